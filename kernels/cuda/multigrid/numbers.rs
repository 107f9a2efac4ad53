//! Values of a level on a device: conversion of the user's matrix to blocks, and of blocks to the matrices
//! that a cycle reads.

use super::cycle::Dense;
use super::graph::{Blocks, Graph, RawGraph, RawShape, too_many};
use super::permutation::{Permutation, RawOrder};
use crate::cpu::preconditioners::inverse::row_stride;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::device_csr::{DeviceCsr, RowStarts};
use crate::cuda::preconditioners::coarse;
use crate::multigrid::POSITIVE;
use std::any::Any;
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "numbers.cu",
    text: concat!(
        include_str!("graph.cu"),
        include_str!("order.cu"),
        "#line 1 \"numbers.cu\"\n",
        include_str!("numbers.cu")
    ),
    constants: constants![],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Shape" = RawShape { rows, columns }),
        mirror!("Order" = RawOrder { nodes, size }),
    ],
};

/// The pattern of a square matrix in blocks of `size` rows and columns, one row of blocks for each node; the
/// rows of a node must have the same pattern.
pub fn nodes<T: Real>(a: &DeviceCsr<T>, size: usize) -> Result<Graph> {
    let (device, entries) = (a.device(), a.nnz());
    let RowStarts::Short(starts) = &*a.rows else { return Err(too_many(entries)) };
    let count = a.rows.count() / size;
    if size == 1 {
        return Ok(Graph { rows: a.rows.clone(), columns: a.columns.clone(), cols: count, capacity: 0 });
    }
    let offsets = device.uninitialized::<u32>(count + 1)?;
    queue!(device, T, "node_offsets", config(count + 1), starts, count as u32, size as u32, offsets);
    Ok(Graph::new(offsets, device.uninitialized(entries / (size * size))?, count))
}

/// The entries at some positions, in double precision.
pub fn entries_at<T: Real>(a: &DeviceCsr<T>, at: &[usize]) -> Result<Vec<f64>> {
    u32::try_from(a.nnz()).map_err(|_| too_many(a.nnz()))?;
    gathered(&a.values, &at.iter().map(|&at| at as u32).collect::<Vec<_>>())
}

/// The numbers at some positions of an array, in double precision.
pub fn gathered<T: Real>(values: &Array<T>, at: &[u32]) -> Result<Vec<f64>> {
    assert!(at.iter().all(|&at| (at as usize) < values.len()), "positions in the array");
    let (device, mut entries) = (values.device(), vec![0.0; at.len()]);
    let (places, gathered) = (device.upload(at)?, device.uninitialized::<f64>(at.len())?);
    queue!(device, T, "widen_entries", config(at.len()), values, places, at.len() as u64, gathered);
    gathered.read(&mut entries)?;
    Ok(entries)
}

/// Calls `made` with the matrix in blocks of `size` rows, in double precision. `graph` is the result of
/// [`nodes`], whose columns are written here, or a pattern of blocks of which the matrix does not store all
/// elements. If blocks are 1×1 and the values are in double precision, they are not copied.
pub fn with_blocks<T: Real, R>(
    a: &DeviceCsr<T>,
    graph: &Graph,
    size: usize,
    made: impl FnOnce(&Blocks) -> R,
) -> Result<R> {
    let (device, entries) = (a.device().clone(), a.nnz());
    let DeviceCsr { rows, columns, values: given } = a;
    let (shape, graph) = ([size; 2], graph.clone());
    if size == 1
        && let Some(there) = (given as &dyn Any).downcast_ref::<Array<f64>>()
    {
        // SAFETY: the array is borrowed from `a`, which lives until the end of this function; memory is freed
        // behind queued work
        let values = unsafe { device.borrowed(there.address(0), there.len()) };
        return Ok(made(&Blocks { graph, shape, values }));
    }
    let all = graph.entries() * size * size;
    let values = if entries < all { device.zeros(all)? } else { device.uninitialized::<f64>(entries)? };
    let (nodes, block, offsets) = (graph.rows() as u32, size as u32, graph.offsets());
    let (cut, places) = (config(graph.rows() * WARP), &graph.columns);
    if entries < all {
        let RowStarts::Short(starts) = &**rows else { return Err(too_many(entries)) };
        queue!(&device, T, "fill_blocks", cut, offsets, nodes, block, starts, columns, given, places, values);
    } else if size == 1 {
        let (all, count) = (0u64, entries as u64);
        queue!(&device, T, "widen_entries", config(entries), given, all, count, values);
    } else {
        queue!(&device, T, "gather_blocks", cut, offsets, nodes, block, columns, given, places, values);
    }
    Ok(made(&Blocks { graph, shape, values }))
}

/// Inverse of a diagonal; zero for empty rows.
#[derive(Debug)]
pub struct Inverse {
    /// Values, permuted if there is a permutation.
    pub values: Array<f64>,
    /// Two words: the first nonempty row without a positive diagonal (`u32::MAX` if there is none), and the
    /// bits of the smallest nonzero value.
    found: Array<u64>,
    /// Scalar rows of a node.
    size: usize,
}

impl Inverse {
    /// Inverts the diagonal of a matrix.
    pub fn new(a: &Blocks, permutation: Option<&Permutation>) -> Result<Inverse> {
        let (device, rows, size) = (a.values.device(), a.rows(), a.shape[0]);
        let words = [u64::from(u32::MAX), f64::INFINITY.to_bits()];
        let (values, found) = (device.uninitialized::<f64>(rows)?, device.upload(&words)?);
        let (cut, block, least) = (config(rows), size as u32, found.address(1));
        let places = permutation.map_or_else(RawOrder::default, Permutation::places);
        queue!(device, f64, "invert_diagonal", cut, a.graph, a.values, block, places, values, found, least);
        Ok(Inverse { values, found, size })
    }

    /// Waits for the kernel. Returns the smallest nonzero value (infinity if all are zero) or, as an error,
    /// the first nonempty row without a positive diagonal, and its diagonal.
    pub fn least(&self, permutation: Option<&Permutation>) -> Result<std::result::Result<f64, (usize, f64)>> {
        let mut words = [0; 2];
        self.found.read(&mut words)?;
        let [refused, least] = words;
        if refused == u64::from(u32::MAX) {
            return Ok(Ok(f64::from_bits(least)));
        }
        let (row, mut inverse) = (refused as usize, vec![0.0; self.values.len()]);
        self.values.read(&mut inverse)?;
        let node = match permutation {
            Some(permutation) => permutation.places_of_nodes()?[row / self.size] as usize,
            None => row / self.size,
        };
        let found = inverse[node * self.size + row % self.size];
        Ok(Err((row, if found == 0.0 { 0.0 } else { 1.0 / found })))
    }
}

/// `inverse / scale`, the inverse diagonal of `scale · A`, rounded to single precision; one for empty rows.
pub fn rounded_diagonal(inverse: &Array<f64>, scale: f64) -> Result<Array<f32>> {
    let (device, rows) = (inverse.device(), inverse.len());
    let rounded = device.uninitialized(rows)?;
    queue!(device, f64, "round_diagonal", config(rows), inverse, rows as u32, scale, rounded);
    Ok(rounded)
}

/// Fills a vector with pseudo-random values between −1 and 1; a row's value depends on its number before the
/// permutation.
pub fn noise(to: &mut Array<f32>, permutation: Option<&Permutation>) -> Result<()> {
    let order = permutation.map_or_else(RawOrder::default, Permutation::order);
    queue!(to.device(), f64, "noise", config(to.len()), order, to.len() as u32, to);
    Ok(())
}

/// Constant near-null-space vectors, one for each unknown of a node.
pub fn constants_of(device: &Device, rows: usize, size: usize) -> Result<Array<f64>> {
    let modes = device.uninitialized(rows * size)?;
    let count = rows * size;
    queue!(device, f64, "constant_modes", config(count), count as u64, size as u32, modes);
    Ok(modes)
}

/// `I − ω D⁻¹ A`. If `strong` is given, `A` is restricted to the strong connections, and weak entries are
/// lumped into its diagonal.
pub(super) fn smoothing(
    a: &Blocks,
    strong: Option<&Graph>,
    inverse: &Array<f64>,
    omega: f64,
) -> Result<Blocks> {
    let device = a.values.device();
    let graph = strong.unwrap_or(&a.graph);
    let values = device.uninitialized(graph.entries() * a.shape[0] * a.shape[1])?;
    let (config, of, numbers, d) = (config(a.rows()), &a.graph, &a.values, inverse);
    match strong {
        Some(strong) => {
            queue!(device, f64, "strong_smoothing", config, of, numbers, strong, d, omega, POSITIVE, values);
        }
        None => queue!(device, f64, "smoothing", config, of, numbers, a.shape[0] as u32, d, omega, values),
    }
    Ok(Blocks { graph: graph.clone(), shape: a.shape, values })
}

/// The values of blocks times `scale`, rounded to single precision, as a CSR matrix of scalars.
pub(super) fn expanded(blocks: &Blocks, scale: f64) -> Result<DeviceCsr<f32>> {
    let Blocks { graph, shape, values } = blocks;
    let (device, entries, rows) = (graph.device(), values.len(), blocks.rows());
    u32::try_from(entries).map_err(|_| too_many(entries))?;
    let (offsets, columns) = (device.uninitialized::<u32>(rows + 1)?, device.uninitialized(entries)?);
    let (rounded, block) = (device.uninitialized(entries)?, RawShape::from(*shape));
    queue!(device, f64, "expand_offsets", config(rows + 1), graph, block, offsets);
    let config = config(graph.rows() * WARP);
    queue!(device, f64, "expand_numbers", config, graph, block, values, scale, columns, rounded);
    let rows = Arc::new(RowStarts::Short(offsets));
    Ok(DeviceCsr { rows, columns: Arc::new(columns), values: rounded })
}

/// The inverse of `scale · A` with its diagonal multiplied by `lift`. If a pivot is not positive beyond
/// rounding errors, returns the row of the first such pivot, its value, and the diagonal there.
pub fn inverted(a: &Blocks, scale: f64, lift: f64) -> Result<std::result::Result<Dense, (usize, f64, f64)>> {
    let (device, rows) = (a.values.device(), a.rows());
    let stride = row_stride(rows);
    let (dense, diagonal) = (device.zeros::<f64>(rows * stride)?, device.uninitialized::<f64>(rows)?);
    let (of, values, size, pitch) = (&a.graph, &a.values, a.shape[0] as u32, stride as u32);
    let config = config(a.graph.rows() * WARP);
    queue!(device, f64, "expand_dense", config, of, values, size, scale, lift, pitch, dense, diagonal);
    let mut host = vec![0.0; rows];
    diagonal.read(&mut host)?;
    let mut inverse = device.zeros::<f32>(rows * stride)?;
    let refused = coarse::invert(&dense, &host, &mut inverse)?;
    Ok(match refused {
        None => Ok(Dense { rows, inverse }),
        Some((row, pivot)) => Err((row, pivot, host[row])),
    })
}
