//! HALO on a device: blocks of rows, each with its window of `x` in shared memory. halo_windows.cu describes
//! the layout and the memory traffic.

use crate::cpu::run::threads::Split;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::{RawWindows, THREADS};
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::matrix::columns::{COLUMNS, Many, RawColumns, Reads};
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction, RowStarts};
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Kernel, Layout, copy_by_column};
use crate::cuda::matrix::slices::{address, group_starts, longest_of};
use crate::cuda::matrix::windows::{WindowArrays, too_large};
use crate::cuda::tuning::{
    HALO_THREADS, MANY_THREADS, ROWS_OF_WINDOW, WINDOWS_OF_MULTIPROCESSOR, by_size, resident_windows,
};
use crate::index::Offsets;
use crate::windows::{LARGEST, PACKED, Windows};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use rayon::prelude::*;
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "halo.cu",
    text: concat!(include_str!("halo_windows.cu"), "#line 1 \"halo.cu\"\n", include_str!("halo.cu")),
    constants: constants![PACKED; HALO_THREADS],
    mirrors: &[mirror!("Halo" = RawHalo { windows, slices, words, order, columns, values })],
};

/// The kernels for several vectors.
pub(crate) const MANY: Source = Source {
    file: "halo_many.cu",
    text: concat!(
        include_str!("halo_windows.cu"),
        include_str!("../matrix/columns.cu"),
        "#line 1 \"halo_many.cu\"\n",
        include_str!("halo_many.cu")
    ),
    constants: constants![PACKED, COLUMNS; MANY_THREADS],
    mirrors: &[mirror!("Columns" = RawColumns { x, y, count, width })],
};

/// A matrix in blocks of rows, each with its window.
#[derive(Debug)]
pub struct Halo<T: Real, V: Storage<T> = T> {
    shape: Shape,
    /// Rows per node.
    size: usize,
    /// Row offsets of the CSR entries (4 or 8 B per row), needed to copy values into slots and back.
    rows: Arc<RowStarts>,
    /// Threads per block.
    threads: usize,
    windows: WindowArrays,
    slices: Array<u32>,
    words: Option<Array<u32>>,
    order: Option<Array<u16>>,
    columns: Array<u16>,
    values: Array<V>,
    kernel: Kernel<T>,
    copy_values: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawHalo {
    windows: RawWindows,
    slices: u64,
    words: u64,
    order: u64,
    columns: u64,
    values: u64,
}
// SAFETY: has the layout of `Halo` in halo_windows.cu
unsafe impl DeviceRepr for RawHalo {}

impl<T: Real, V: Storage<T>> Halo<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern, with `size` rows per node: 1, 2, 3, 4 or
    /// 6. Every entry must be in one of the dense blocks with pattern `nodes`.
    pub fn new(
        device: &Device,
        size: usize,
        nodes: Pattern<'_>,
        pattern: Pattern<'_>,
        values: &[T],
    ) -> Result<Self> {
        let scalar = (nodes.rows() * size, nodes.cols() * size);
        assert_eq!((pattern.rows(), pattern.cols()), scalar, "blocks of the size make up the matrix");
        let (height, most) = limits::<T>(device, nodes.rows(), size)?;
        let windows =
            Windows::new(nodes.offsets(), nodes.columns(), height, WARP, most).map_err(too_large(most))?;
        let slices = NodeSlices::new(nodes.offsets(), windows.bounds())?;
        let ordered = DeviceCsr::new(device, pattern, values)?;
        let halo =
            Halo::shaped(&ordered, size, pattern.shape(), WindowArrays::new(device, &windows)?, &slices)?;
        if size == 1 {
            halo.fill_columns(&ordered.rows, &ordered.columns)?;
        } else {
            let (rows, columns) = (RowStarts::new(device, nodes.offsets())?, device.upload(nodes.columns())?);
            halo.fill_columns(&rows, &columns)?;
        }
        halo.copy_values(&ordered, Direction::ToSlots)?;
        Ok(halo)
    }

    /// Lays out a square matrix on a device, with one row per node and row offsets `offsets`; windows are
    /// computed on the device. `None` if a window is too large: blocks of rows must then be halved, as
    /// [`Halo::new`] does.
    pub fn of(ordered: &DeviceCsr<T>, offsets: &Offsets) -> Result<Option<Self>> {
        let (device, rows, entries) = (ordered.device(), offsets.ranges(), offsets.end());
        assert_eq!((ordered.rows.count(), ordered.columns.len()), (rows, entries), "the offsets of its rows");
        let (height, most) = limits::<T>(device, rows, 1)?;
        let Some((windows, bounds)) = WindowArrays::of_blocks(ordered, height, most)? else {
            return Ok(None);
        };
        let (slices, shape) = (NodeSlices::new(offsets, &bounds)?, Shape { rows, cols: rows, entries });
        let halo = Halo::shaped(ordered, 1, shape, windows, &slices)?;
        halo.fill_columns(&ordered.rows, &ordered.columns)?;
        halo.copy_values(ordered, Direction::ToSlots)?;
        Ok(Some(halo))
    }

    /// Allocates a matrix with the slots of `slices`; columns and values are not set.
    fn shaped(
        ordered: &DeviceCsr<T>,
        size: usize,
        shape: Shape,
        windows: WindowArrays,
        slices: &NodeSlices,
    ) -> Result<Self> {
        index("the number of rows", shape.rows)?;
        let device = ordered.device();
        let (threads, name) = (by_size(&HALO_THREADS, size), format!("halo_{size}"));
        let shared = windows.largest * size * size_of::<T>();
        let reads = Reads::Windows { stride: windows.largest * size };
        let many = Many::new::<V>(&MANY, format!("{name}_many"), reads, by_size(&MANY_THREADS, size) as u32);
        let words = if size == 1 { Some(words(&slices.starts)) } else { None };
        let columns = words.as_ref().unwrap_or(&slices.starts).last().map_or(0, |&end| end as usize);
        Ok(Halo {
            shape,
            size,
            rows: ordered.rows.clone(),
            threads,
            windows,
            slices: device.upload(&slices.starts)?,
            order: slices.order.as_deref().map(|order| device.upload(order)).transpose()?,
            words: words.as_deref().map(|words| device.upload(words)).transpose()?,
            columns: device.uninitialized(columns * WARP)?,
            values: device.zeros(slices.groups() * WARP * size * size)?,
            kernel: Kernel::with_shared_memory::<V>(device, &SOURCE, &name, threads as u32, shared)?
                .with_many(many),
            copy_values: device.function_storing::<T, V>(&SOURCE, "halo_copy_values")?,
        })
    }

    /// Rows per node.
    pub fn node_size(&self) -> usize {
        self.size
    }

    /// Number of blocks of rows.
    pub fn blocks(&self) -> usize {
        self.windows.blocks
    }

    /// Total number of halo nodes of all blocks.
    pub fn halo_nodes(&self) -> usize {
        self.windows.halo_nodes()
    }

    /// Returns whether nodes were sorted by length within their blocks.
    pub fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    fn fill_columns(&self, rows: &RowStarts, columns: &Array<u32>) -> Result<()> {
        let device = columns.device();
        let fill = device.function_storing::<T, V>(&SOURCE, "halo_columns")?;
        let (matrix, rows, from) = (self.raw(), rows.raw(), columns.address(0));
        let to = self.columns.address(0);
        let mut launch = device.launch(&fill);
        launch.arg(&matrix).arg(&rows).arg(&from).arg(&to);
        // SAFETY: arguments as in halo.cu; windows and slices were made from `columns`
        unsafe { launch.launch(self.config()) }?;
        Ok(())
    }

    /// Launch configuration with one thread block per block of rows, for kernels that work with any grid.
    fn config(&self) -> LaunchConfig {
        let blocks = self.windows.blocks.clamp(1, i32::MAX as usize) as u32;
        LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
    }
}

// SAFETY: blocks cover the nodes of `y`; the nodes of halos are below the number of nodes of `x`; columns are
// within the window or the zero after it, for which there is shared memory; there are as many slots as the
// slices need
unsafe impl<T: Real, V: Storage<T>> Layout for Halo<T, V> {
    type Element = T;
    type Value = V;
    type Raw = RawHalo;

    fn by_column(&self) -> bool {
        self.size > 1
    }

    fn raw(&self) -> RawHalo {
        RawHalo {
            windows: self.windows.raw(),
            slices: self.slices.address(0),
            words: address(&self.words),
            order: address(&self.order),
            columns: self.columns.address(0),
            values: self.values.address(0),
        }
    }

    fn kernel(&self) -> &Kernel<T> {
        &self.kernel
    }

    fn threads(&self) -> usize {
        self.windows.blocks * self.threads
    }

    /// Number of threads: one thread block for each block of rows.
    fn threads_of_many(&self, _: usize) -> usize {
        self.windows.blocks * by_size(&MANY_THREADS, self.size)
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, Array::bytes);
        let slices = self.slices.bytes() + self.words.as_ref().map_or(0, Array::bytes);
        self.windows.bytes() + slices + order + self.columns.bytes() + self.values.bytes()
    }

    fn values(&self) -> &Array<V> {
        &self.values
    }

    fn rows(&self) -> Option<&Arc<RowStarts>> {
        Some(&self.rows)
    }

    fn columns(&self, rows: &RowStarts) -> Result<Option<Array<u32>>> {
        if self.size > 1 {
            // positions of nodes do not say which elements of a dense block are entries of the matrix
            return Ok(None);
        }
        let device = self.values.device();
        let columns = device.uninitialized(self.shape.entries)?;
        let read = device.function_storing::<T, V>(&SOURCE, "halo_entries")?;
        let (matrix, rows, to) = (self.raw(), rows.raw(), columns.address(0));
        let mut launch = device.launch(&read);
        launch.arg(&matrix).arg(&rows).arg(&to);
        // SAFETY: arguments as in halo.cu; rows are those of the matrix, which has `entries` entries
        unsafe { launch.launch(self.config()) }?;
        Ok(Some(columns))
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        let config = self.config();
        // SAFETY: arguments as in halo.cu; rows are those of the matrix
        let fits = unsafe { copy_by_column(self, &self.copy_values, ordered, direction, self.size, config) }?;
        assert!(fits, "a slot for each entry");
        Ok(())
    }
}

/// Nodes per block, and maximum number of nodes of a window (without its zero), which is limited by the bits
/// of a position and by the block's share of the shared memory.
fn limits<T: Real>(device: &Device, nodes: usize, size: usize) -> Result<(usize, usize)> {
    let memory = device.shared_memory()? / WINDOWS_OF_MULTIPROCESSOR;
    let fits = (memory / (size * size_of::<T>())).saturating_sub(1);
    let named = if size == 1 { PACKED } else { LARGEST };
    Ok((nodes_per_block(nodes, size, device.multiprocessors()), fits.min(named)))
}

/// Nodes per block of a matrix with `nodes` nodes of `size` rows.
pub fn nodes_per_block(nodes: usize, size: usize, multiprocessors: usize) -> usize {
    height(nodes, size, resident_windows(size) * multiprocessors)
}

/// Nodes per block: as close to the maximum of [`ROWS_OF_WINDOW`] as possible such that all waves of
/// `concurrent` resident blocks are full.
fn height(nodes: usize, size: usize, concurrent: usize) -> usize {
    let (fewest, most) = ROWS_OF_WINDOW;
    let rounds = (nodes * size).div_ceil(most * concurrent).max(1);
    let rows = (nodes * size).div_ceil(rounds * concurrent).clamp(fewest, most);
    rows.div_ceil(size).next_multiple_of(WARP)
}

/// Start of each slice's packed positions, in words per lane, and the end; the positions of four groups take
/// three words.
fn words(starts: &[u32]) -> Vec<u32> {
    let mut end = 0;
    let mut words = Vec::with_capacity(starts.len());
    words.push(end);
    for slice in starts.windows(2) {
        let groups = slice[1] - slice[0];
        end += groups / 4 * 3 + groups % 4;
        words.push(end);
    }
    words
}

/// Layout of the nodes of blocks in slices.
#[derive(Debug)]
struct NodeSlices {
    /// First group (a slot for each of 32 nodes) of each slice, and the end.
    starts: Vec<u32>,
    /// Node (within its block) at each place, if nodes were sorted by length.
    order: Option<Vec<u16>>,
}

impl NodeSlices {
    /// Lays out nodes with row offsets `offsets`, in blocks with first nodes `bounds`.
    fn new(offsets: &Offsets, bounds: &[u32]) -> Result<NodeSlices> {
        let nodes = offsets.ranges();
        let lengths: Vec<u32> =
            (0..nodes).into_par_iter().map(|node| offsets.range(node).len() as u32).collect();
        let natural = longest_of(&lengths, WARP);
        let total = |longest: &[u32]| longest.iter().map(|&longest| longest as usize).sum::<usize>();
        let (mut order, mut by_length) = (vec![0u16; nodes], vec![0u32; nodes]);
        let mut rest = (order.as_mut_slice(), by_length.as_mut_slice());
        let mut blocks = vec![];
        for block in bounds.windows(2) {
            let rows = block[0] as usize..block[1] as usize;
            let (here, others) = rest.split(rows.len());
            blocks.push((&lengths[rows], here));
            rest = others;
        }
        blocks.into_par_iter().with_min_len(8).for_each(|(lengths, (order, by_length))| {
            order.iter_mut().enumerate().for_each(|(place, node)| *node = place as u16);
            order.sort_by_key(|&node| std::cmp::Reverse(lengths[node as usize]));
            by_length.iter_mut().zip(&*order).for_each(|(length, &node)| *length = lengths[node as usize]);
        });
        let sorted = longest_of(&by_length, WARP);
        // sorting costs two bytes per node, a slot of padding about ten bytes: sort if it saves more than one
        // slot per four nodes
        let pays = total(&natural).saturating_sub(total(&sorted)) * WARP * 4 > nodes;
        let (longest, order) = if pays { (sorted, Some(order)) } else { (natural, None) };
        let slices = NodeSlices { starts: group_starts(&longest)?, order };
        let (slots, entries) = (slices.groups() * WARP, offsets.end());
        if slots > 40 * entries + (1 << 22) {
            return Err(Error::Padding { slots, entries });
        }
        Ok(slices)
    }

    /// Total number of groups of all slices.
    fn groups(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::matrix::cases::matrices;

    #[test]
    fn slices_are_long_enough_for_their_rows() {
        for matrix in &matrices() {
            let pattern = matrix.pattern();
            for height in [32, 64, 512] {
                let windows = Windows::new(pattern.offsets(), pattern.columns(), height, WARP, LARGEST);
                let windows = windows.unwrap();
                let slices = NodeSlices::new(pattern.offsets(), windows.bounds()).unwrap();
                assert_eq!(slices.starts.len(), pattern.rows().div_ceil(WARP) + 1);
                let mut seen = vec![false; pattern.rows()];
                for block in 0..windows.count() {
                    let rows = windows.rows(block);
                    for place in rows.clone() {
                        let node = match &slices.order {
                            Some(order) => rows.start + order[place] as usize,
                            None => place,
                        };
                        assert!(rows.contains(&node) && !std::mem::replace(&mut seen[node], true));
                        let groups = slices.starts[place / WARP + 1] - slices.starts[place / WARP];
                        assert!(groups as usize >= pattern.row(node).len(), "{}", matrix.name);
                    }
                }
                assert!(seen.into_iter().all(|seen| seen));
            }
        }
    }

    #[test]
    fn three_words_hold_four_places() {
        assert_eq!(words(&[0, 0, 1, 5, 10, 17]), [0, 0, 1, 4, 8, 14]);
    }

    #[test]
    fn blocks_grow_with_the_matrix() {
        let rows = [100, 342_361, 658_503, 6_644_672];
        assert_eq!(rows.map(|rows| height(rows, 1, 528)), [256, 672, 1248, 1408]);
        assert_eq!([100, 405_224].map(|nodes| height(nodes, 3, 528)), [96, 384]);
    }
}
