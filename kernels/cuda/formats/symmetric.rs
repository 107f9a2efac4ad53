//! Symmetric matrices on a device, in which each pair of mirrored entries within a block of rows is stored
//! once. symmetric.cu describes the layout and the memory traffic.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::{MAX_BLOCKS, index};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{RawWindows, THREADS};
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Layout, Slots};
use crate::cuda::matrix::windows::{WindowArrays, too_large};
use crate::cuda::tuning::{
    NODES_OF_4, NODES_OF_8, SHARED_MEMORY, SYMMETRIC_BLOCKS, SYMMETRIC_THREADS, by_size,
};
use crate::pairs::{self, Pair};
use crate::windows::{LARGEST, TooLarge, Windows};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use rayon::prelude::*;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "symmetric.cu",
    text: include_str!("symmetric.cu"),
    constants: constants![; SYMMETRIC_THREADS, SYMMETRIC_BLOCKS, NODES_OF_8, NODES_OF_4],
    mirrors: &[mirror!(
        "Symmetric" = RawSymmetric { windows, slices, steps, order, columns, values, diagonals, window }
    )],
};

/// A symmetric matrix in blocks of rows, each with a window of `x`.
#[derive(Debug)]
pub struct Symmetric<T: Real, V: Storage<T> = T> {
    shape: Shape,
    /// Rows per node.
    size: usize,
    windows: WindowArrays,
    slices: Array<u32>,
    steps: Array<u32>,
    order: Array<u16>,
    columns: Array<u16>,
    values: Array<V>,
    diagonals: Array<V>,
    kernel: Kernel<T>,
    copy_values: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawSymmetric {
    windows: RawWindows,
    slices: u64,
    steps: u64,
    order: u64,
    columns: u64,
    values: u64,
    diagonals: u64,
    window: u32,
}
// SAFETY: has the layout of `Symmetric` in symmetric.cu
unsafe impl DeviceRepr for RawSymmetric {}

impl<T: Real, V: Storage<T>> Symmetric<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern, with `size` rows per node: 1, 2, 3, 4 or
    /// 6. Every entry must be in one of the dense blocks with pattern `nodes`, and its mirrored entry must
    /// exist.
    pub fn new(
        device: &Device,
        size: usize,
        nodes: Pattern<'_>,
        pattern: Pattern<'_>,
        values: &[T],
    ) -> Result<Self> {
        let scalar = (nodes.rows() * size, nodes.cols() * size);
        assert_eq!((pattern.rows(), pattern.cols()), scalar, "blocks of the size make up the matrix");
        assert_eq!(nodes.rows(), nodes.cols(), "a symmetric matrix is square");
        index("the number of rows", pattern.rows())?;
        let most = largest_window::<T>(size, device.shared_memory()?);
        let height = nodes_per_block::<T>(size);
        let windows =
            Windows::new(nodes.offsets(), nodes.columns(), height, WARP, most).map_err(too_large(most))?;
        if windows.count() > MAX_BLOCKS {
            return Err(Error::TooLarge {
                what: "the number of blocks",
                got: windows.count(),
                limit: MAX_BLOCKS,
            });
        }
        let pairs = PairSlices::new(nodes, &windows)?;
        let shared = (windows.largest() + 1 + windows.tallest()) * size * size_of::<T>();
        let slices = pairs.starts.len() - 1;
        let symmetric = Symmetric {
            shape: pattern.shape(),
            size,
            windows: WindowArrays::new(device, &windows)?,
            slices: device.upload(&pairs.starts)?,
            steps: device.upload(&pairs.steps)?,
            order: device.upload(&pairs.order)?,
            values: device.zeros(pairs.columns.len() * size * size)?,
            columns: device.upload(&pairs.columns)?,
            diagonals: device.zeros(slices * WARP * size * (size + 1) / 2)?,
            kernel: Kernel::with_shared_memory::<V>(
                device,
                &SOURCE,
                &format!("symmetric_{size}"),
                by_size(&SYMMETRIC_THREADS, size) as u32,
                shared,
            )?,
            copy_values: device.function_storing::<T, V>(&SOURCE, "symmetric_copy_values")?,
        };
        symmetric.copy_values(&DeviceCsr::new(device, pattern, values)?, Direction::ToSlots)?;
        Ok(symmetric)
    }
}

/// Upper bound in bytes of the shared memory per block in addition to windows and sums: that of the driver
/// and of reductions.
const BESIDE: usize = 2048;

/// Nodes per block, for nodes with `size` rows.
pub fn nodes_per_block<T>(size: usize) -> usize {
    by_size(&SYMMETRIC_THREADS, size) * nodes_of_thread(size, size_of::<T>())
}

/// Maximum number of nodes of a window if the resident blocks of a multiprocessor share `shared_memory`
/// bytes, and each block stores a window and the sums of its nodes.
fn largest_window<T>(size: usize, shared_memory: usize) -> usize {
    let memory = (shared_memory / by_size(&SYMMETRIC_BLOCKS, size)).saturating_sub(BESIDE);
    let (places, height) = (memory / (size * size_of::<T>()), nodes_per_block::<T>(size));
    places.max(height + 2 * WARP).saturating_sub(height + 1).min(LARGEST)
}

/// Number of nodes with `size` rows that a thread processes one after the other, for values of `value` bytes.
pub fn nodes_of_thread(size: usize, value: usize) -> usize {
    if value == 8 { by_size(&NODES_OF_8, size) } else { by_size(&NODES_OF_4, size) }
}

// SAFETY: blocks cover the nodes of `y`, and have no more nodes than threads process; the nodes of halos are
// below the number of nodes of `x`; columns are within the window or the zero after it, for which there is
// shared memory, as for the sums; pairs of one step are stored at different nodes and have different other
// nodes; there are as many slots as the slices need
unsafe impl<T: Real, V: Storage<T>> Layout for Symmetric<T, V> {
    type Element = T;
    type Value = V;
    type Raw = RawSymmetric;

    fn by_column(&self) -> bool {
        true
    }

    fn raw(&self) -> RawSymmetric {
        RawSymmetric {
            windows: self.windows.raw(),
            slices: self.slices.address(0),
            steps: self.steps.address(0),
            order: self.order.address(0),
            columns: self.columns.address(0),
            values: self.values.address(0),
            diagonals: self.diagonals.address(0),
            window: self.windows.largest as u32,
        }
    }

    fn kernel(&self) -> &Kernel<T> {
        &self.kernel
    }

    fn threads(&self) -> usize {
        self.windows.blocks * by_size(&SYMMETRIC_THREADS, self.size)
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        let slices = self.slices.bytes() + self.steps.bytes() + self.order.bytes();
        self.windows.bytes() + slices + self.columns.bytes() + self.values.bytes() + self.diagonals.bytes()
    }

    fn values(&self) -> &Array<V> {
        &self.values
    }

    fn slots(&self) -> Vec<Slots> {
        vec![Slots::of::<T, V>(&self.values), Slots::of::<T, V>(&self.diagonals)]
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        if self.windows.blocks == 0 {
            return Ok(());
        }
        let (matrix, rows, columns) = (self.raw(), ordered.rows.raw(), ordered.columns.address(0));
        let (entries, slots) = (ordered.values.address(0), self.values.address(0));
        let (diagonals, size, back) =
            (self.diagonals.address(0), self.size as u32, u32::from(direction == Direction::FromSlots));
        let config = LaunchConfig {
            grid_dim: (self.windows.blocks as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.values.device().launch(&self.copy_values);
        launch.arg(&matrix).arg(&rows).arg(&columns).arg(&entries).arg(&slots).arg(&diagonals);
        launch.arg(&size).arg(&back);
        // SAFETY: arguments as in symmetric.cu; rows are those of the matrix, and slots without an entry
        // become zero
        unsafe { launch.launch(config) }?;
        Ok(())
    }
}

/// Data that a product reads of a symmetric matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of the matrix, without vectors.
    pub bytes: usize,
    /// Total number of halo nodes of all blocks.
    pub halo: usize,
}

/// Estimated footprint of a matrix with values of type `T` and this pattern of dense blocks of `size` rows,
/// without laying out the matrix: assumes that half of the pairs of a node with nodes of its block of rows
/// are stored at the node, and that a slice has as many groups as its longest node has pairs.
pub fn footprint<T>(size: usize, nodes: Pattern<'_>) -> std::result::Result<Footprint, TooLarge> {
    let (height, most) = (nodes_per_block::<T>(size), largest_window::<T>(size, SHARED_MEMORY));
    let windows = Windows::new(nodes.offsets(), nodes.columns(), height, WARP, most)?;
    let groups_of = |block| {
        let rows = windows.rows(block);
        let stored = |node| {
            let columns = &nodes.columns()[nodes.row(node)];
            let below = |bound: usize| columns.partition_point(|&column| (column as usize) < bound);
            let (inner, end) = (below(rows.start), below(rows.end));
            let others = end - inner - (below(node + 1) - below(node));
            columns.len() - (end - inner) + others.div_ceil(2)
        };
        let mut stored: Vec<usize> = rows.clone().map(stored).collect();
        stored.sort_unstable_by(|a, b| b.cmp(a));
        (stored.iter().step_by(WARP).sum::<usize>(), stored.len().div_ceil(WARP))
    };
    let blocks = (0..windows.count()).into_par_iter().map(groups_of);
    let (groups, slices) = blocks.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let slot = size * size * size_of::<T>() + size_of::<u16>();
    let diagonal = size * (size + 1) / 2 * size_of::<T>();
    let halo = windows.all_halos();
    let order = nodes.rows() * size_of::<u16>();
    let bytes = WARP * (groups * slot + slices * diagonal) + size_of_val(halo) + order;
    Ok(Footprint { bytes, halo: halo.len() })
}

/// Layout of pairs of coupled nodes in slices of 32 nodes. A pair is stored at one of its nodes, or at both
/// if they are in different blocks. A group has one pair, or padding, for each node of a slice.
#[derive(Debug)]
struct PairSlices {
    /// First group of each slice, and the end.
    starts: Vec<u32>,
    /// Number of steps of each block; the pairs of a step are stored at different nodes and have different
    /// other nodes.
    steps: Vec<u32>,
    /// Nodes (indices within their block), sorted within each block by descending number of pairs stored at
    /// them.
    order: Vec<u16>,
    /// Position in the window of each pair's other node, 32 per group.
    columns: Vec<u16>,
}

/// The part of [`PairSlices`] of one block.
struct BlockSlices {
    steps: usize,
    order: Vec<u16>,
    /// Number of groups of each slice.
    groups: Vec<u32>,
    columns: Vec<u16>,
}

impl PairSlices {
    fn new(nodes: Pattern<'_>, windows: &Windows) -> Result<PairSlices> {
        let part = |block| BlockSlices::new(nodes, windows, block);
        let parts: Vec<BlockSlices> = (0..windows.count()).into_par_iter().map(part).collect();
        let mut starts = vec![0];
        let mut end = 0usize;
        for &groups in parts.iter().flat_map(|part| &part.groups) {
            end += groups as usize;
            starts.push(index("the number of groups", end)? as u32);
        }
        let steps = parts.iter().map(|part| part.steps as u32).collect();
        let order = parts.iter().flat_map(|part| part.order.iter().copied()).collect();
        let mut columns = vec![0; end * WARP];
        let (mut rest, mut copies) = (columns.as_mut_slice(), vec![]);
        for part in &parts {
            let (here, others) = rest.split_at_mut(part.columns.len());
            copies.push((here, &part.columns));
            rest = others;
        }
        copies.into_par_iter().with_min_len(8).for_each(|(to, from)| to.copy_from_slice(from));
        Ok(PairSlices { starts, steps, order, columns })
    }
}

impl BlockSlices {
    fn new(nodes: Pattern<'_>, windows: &Windows, block: usize) -> BlockSlices {
        let (rows, zero) = (windows.rows(block), windows.len(block) as u16);
        let mut pairs = vec![];
        let mut crossing = vec![];
        let mut ends = vec![];
        for node in rows.clone() {
            for &column in &nodes.columns()[nodes.row(node)] {
                let place = windows.place(block, column) as u16;
                if !rows.contains(&(column as usize)) {
                    crossing.push(place);
                } else if (column as usize) < node {
                    pairs.push(((node - rows.start) as u16, place));
                }
            }
            ends.push(crossing.len());
        }
        let (pairs, steps) = pairs::steps(rows.len(), &pairs);
        // for each node and step, the position of the other node of the pair
        let mut slots = vec![vec![zero; steps]; rows.len()];
        for Pair { owner, other, step } in pairs {
            slots[owner as usize][step as usize] = other;
        }
        let mut crossing = crossing.into_iter();
        let mut from = 0;
        for (slots, &end) in slots.iter_mut().zip(&ends) {
            let mut at = 0;
            for place in crossing.by_ref().take(end - from) {
                while slots.get(at).is_some_and(|&slot| slot != zero) {
                    at += 1;
                }
                match slots.get_mut(at) {
                    Some(slot) => *slot = place,
                    None => slots.push(place),
                }
            }
            from = end;
            while slots.last() == Some(&zero) {
                slots.pop();
            }
        }
        let mut order: Vec<u16> = (0..rows.len() as u16).collect();
        order.sort_by_key(|&node| std::cmp::Reverse(slots[node as usize].len()));
        let (mut groups, mut columns) = (vec![], vec![]);
        for slice in order.chunks(WARP) {
            let longest = slots[slice[0] as usize].len();
            groups.push(longest as u32);
            for step in 0..longest {
                let place = |&node: &u16| slots[node as usize].get(step).copied().unwrap_or(zero);
                columns.extend(slice.iter().map(place));
                columns.extend(std::iter::repeat_n(zero, WARP - slice.len()));
            }
        }
        BlockSlices { steps, order, groups, columns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Columns, Offsets};
    use std::collections::BTreeMap;

    /// Pattern of nodes on a ring; each is coupled to the nodes at the given distances, on both sides.
    fn ring(nodes: usize, distances: impl Fn(usize) -> Vec<usize>) -> (Offsets, Columns) {
        let mut rows = vec![std::collections::BTreeSet::new(); nodes];
        for node in 0..nodes {
            rows[node].insert(node as u32);
            for other in distances(node).into_iter().map(|distance| (node + distance) % nodes) {
                rows[node].insert(other as u32);
                rows[other].insert(node as u32);
            }
        }
        let offsets = Offsets::from_lengths(rows.iter().map(|row| row.len()));
        (offsets, Columns::new(rows.into_iter().flatten().collect::<Vec<_>>(), nodes).unwrap())
    }

    /// Checks that the estimate is close to the footprint of the actual layout.
    #[test]
    fn a_footprint_is_near_the_cut() {
        for (nodes, far, near) in [(0, 1, 0.0), (4096, 7, 0.05), (5000, 20, 0.05), (20_000, 170, 0.05)] {
            let (offsets, columns) = ring(nodes, |node| vec![1, 2, 3, far, far + node % 5, 1 + node % 17]);
            let pattern = Pattern::new(&offsets, &columns);
            let most = largest_window::<f64>(3, SHARED_MEMORY);
            let windows = Windows::new(&offsets, &columns, nodes_per_block::<f64>(3), WARP, most).unwrap();
            let pairs = PairSlices::new(pattern, &windows).unwrap();
            let slices = (pairs.starts.len() - 1) * WARP * 6 * 8;
            let halo = windows.all_halos().len();
            let real = pairs.columns.len() * (9 * 8 + 2) + slices + 4 * halo + 2 * nodes;
            let Footprint { bytes, halo: found } = footprint::<f64>(3, pattern).unwrap();
            assert_eq!(found, halo);
            assert!(bytes.abs_diff(real) as f64 <= near * real as f64, "{nodes}: {bytes}, really {real}");
        }
    }

    /// Checks that slots represent every entry once, and that the pairs of a step have different other nodes.
    #[test]
    fn slots_stand_for_all_entries() {
        for (nodes, far) in [(0, 1), (1, 1), (31, 7), (64, 20), (500, 3), (1000, 170)] {
            let (offsets, columns) = ring(nodes, |node| vec![1, 2, far, far + node % 5, 1 + node % 17]);
            let pattern = Pattern::new(&offsets, &columns);
            for height in [32, 256] {
                let windows = Windows::new(&offsets, &columns, height, WARP, LARGEST).unwrap();
                let pairs = PairSlices::new(pattern, &windows).unwrap();
                let mut found = BTreeMap::new();
                for block in 0..windows.count() {
                    let rows = windows.rows(block);
                    for step in 0.. {
                        let (mut others, mut any) = (vec![], false);
                        for place in 0..rows.len() {
                            let slice = rows.start / WARP + place / WARP;
                            let group = pairs.starts[slice] as usize + step;
                            if group >= pairs.starts[slice + 1] as usize {
                                continue;
                            }
                            any = true;
                            let at = pairs.columns[group * WARP + place % WARP] as usize;
                            if at == windows.len(block) {
                                continue;
                            }
                            let node = rows.start + pairs.order[rows.start + place] as usize;
                            let other = windows.column(block, at);
                            *found.entry((node, other)).or_insert(0) += 1;
                            if rows.contains(&other) {
                                assert!(step < pairs.steps[block] as usize, "a pair after the last step");
                                others.push(other);
                                *found.entry((other, node)).or_insert(0) += 1;
                            }
                        }
                        let count = others.len();
                        others.sort_unstable();
                        others.dedup();
                        assert_eq!(others.len(), count, "two pairs of a step add to one node");
                        if !any {
                            break;
                        }
                    }
                }
                let expected: BTreeMap<_, _> = (0..nodes)
                    .flat_map(|node| columns[offsets.range(node)].iter().map(move |&c| (node, c as usize)))
                    .filter(|(node, other)| node != other)
                    .map(|entry| (entry, 1))
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }
}
