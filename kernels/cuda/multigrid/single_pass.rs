//! Single-pass products of scalar sparse matrices: symbolic and numeric phase at once.
//!
//! Cost of `Pᵀ (A P)`: `A`, and a row of `P` for each of its entries, are read once; `Pᵀ`, and a row of `A P`
//! for each of its entries, are read once. Rows of `A P` stay where they were computed: each row has the same
//! capacity, more than most rows need.

use super::graph::{Blocks, Counts, Graph, RawGraph};
use crate::cuda::device::Array;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use cudarc::driver::DeviceRepr;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "single_pass.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"single_pass.cu\"\n", include_str!("single_pass.cu")),
    constants: constants![],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Rows" = RawRows { offsets, lengths, columns, values, capacity }),
        mirror!("Kept" = RawKept { lengths, columns, values, overflow }),
    ],
};

/// Per kernel: capacity of a row in columns, average number of terms per row up to which the kernel is tried, its
/// name, and its lanes per row.
const CAPACITY: [(usize, f64, &str, usize); 3] = [
    (32, 160.0, "single_pass_32", 8),
    (64, 1000.0, "single_pass_64", 8),
    (128, f64::INFINITY, "single_pass_128", 16),
];

/// Maximum columns of a row, the kernel for known patterns, and its lanes per row.
const KNOWN: [(usize, &str, usize); 3] =
    [(64, "known_64", 8), (128, "known_128", 16), (KNOWN_COLUMNS, "known_512", WARP)];
/// Largest capacity of [`KNOWN`].
pub(super) const KNOWN_COLUMNS: usize = 512;

/// `Rows` as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawRows {
    offsets: u64,
    lengths: u64,
    columns: u64,
    values: u64,
    capacity: u32,
}
// SAFETY: has the layout of `Rows` in single_pass.cu
unsafe impl DeviceRepr for RawRows {}

/// `Kept` as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawKept {
    lengths: u64,
    columns: u64,
    values: u64,
    overflow: u64,
}
// SAFETY: has the layout of `Kept` in single_pass.cu
unsafe impl DeviceRepr for RawKept {}

/// A matrix-matrix product as the single-pass kernels store it: rows of equal capacity with unsorted columns.
pub(super) struct Kept {
    rows: usize,
    cols: usize,
    /// Index into [`CAPACITY`].
    pub(super) capacity: usize,
    lengths: Counts,
    columns: Array<u32>,
    values: Array<f64>,
}

/// Right operand of a product.
pub(super) enum Right<'a> {
    Blocks(&'a Blocks),
    Kept(&'a Kept),
}

impl Right<'_> {
    fn raw(&self) -> RawRows {
        match self {
            Right::Blocks(b) => RawRows {
                offsets: b.graph.offsets(),
                lengths: 0,
                columns: b.graph.columns.address(0),
                values: b.address(),
                capacity: 0,
            },
            Right::Kept(kept) => RawRows {
                offsets: 0,
                lengths: kept.lengths.address(),
                columns: kept.columns.address(0),
                values: kept.values.address(0),
                capacity: CAPACITY[kept.capacity].0 as u32,
            },
        }
    }

    /// Number of columns, and average entries per row; if the average is unknown, the capacity.
    fn size(&self) -> (usize, f64) {
        match self {
            Right::Blocks(b) => (b.graph.cols(), b.graph.entries() as f64 / b.graph.rows().max(1) as f64),
            Right::Kept(kept) => (kept.cols, CAPACITY[kept.capacity].0 as f64),
        }
    }
}

/// Index of the first capacity of [`CAPACITY`] that may suffice for `A B`.
fn first_capacity(a: &Blocks, b: &Right<'_>) -> usize {
    let terms = a.graph.entries() as f64 / a.graph.rows().max(1) as f64 * b.size().1;
    CAPACITY.iter().position(|capacity| terms <= capacity.1).unwrap_or(CAPACITY.len() - 1)
}

/// `A B` with the smallest capacity of [`CAPACITY`] that its rows fit; `None` if none is large enough.
pub(super) fn found(a: &Blocks, b: &Right<'_>) -> Result<Option<Kept>> {
    for (capacity, &(columns, ..)) in CAPACITY.iter().enumerate().skip(first_capacity(a, b)) {
        if u32::try_from(a.graph.rows() * columns).is_err() {
            break;
        }
        let kept = product(a, b, capacity)?;
        if !kept.lengths.is_marked()? {
            return Ok(Some(kept));
        }
    }
    Ok(None)
}

/// `A B` with the capacity `CAPACITY[capacity]`; the caller checks the overflow flag or knows that rows fit.
pub(super) fn product(a: &Blocks, b: &Right<'_>, capacity: usize) -> Result<Kept> {
    let (device, rows) = (a.values.device(), a.graph.rows());
    let (columns, _, kernel, lanes) = CAPACITY[capacity];
    let kept = Kept {
        rows,
        cols: b.size().0,
        capacity,
        lengths: Counts::new(device, rows)?,
        columns: device.uninitialized(rows * columns)?,
        values: device.uninitialized(rows * columns)?,
    };
    let to = RawKept {
        lengths: kept.lengths.address(),
        columns: kept.columns.address(0),
        values: kept.values.address(0),
        overflow: kept.lengths.mark(),
    };
    queue!(device, f64, kernel, config(rows * lanes), a.graph, a.values, b.raw(), to);
    Ok(kept)
}

impl Kept {
    /// The product in CSR form with sorted rows; `None` if a row did not fit.
    pub(super) fn ordered(self) -> Result<Option<Blocks>> {
        let Kept { rows, cols, capacity, lengths, columns, values } = self;
        let device = values.device().clone();
        let Some(graph) = lengths.graph(cols)? else { return Ok(None) };
        let graph = Graph { capacity: CAPACITY[capacity].0, ..graph };
        let to = device.uninitialized(graph.entries())?;
        let kept = RawRows {
            offsets: 0,
            lengths: 0,
            columns: columns.address(0),
            values: values.address(0),
            capacity: CAPACITY[capacity].0 as u32,
        };
        let (cut, offsets, columns) = (config(rows * 8), graph.offsets(), &graph.columns);
        queue!(&device, f64, "order_rows", cut, offsets, rows as u32, kept, columns, to);
        Ok(Some(Blocks { graph, shape: [1, 1], values: to }))
    }
}

/// The values of `A B`, whose pattern is known and has at most [`KNOWN_COLUMNS`] columns per row.
pub(super) fn numbers(a: &Blocks, b: &Right<'_>, c: &Graph) -> Result<Array<f64>> {
    let device = a.values.device();
    let values = device.uninitialized(c.entries())?;
    let fits = KNOWN.iter().find(|(columns, ..)| c.capacity <= *columns);
    let &(_, kernel, lanes) = fits.unwrap_or(&KNOWN[KNOWN.len() - 1]);
    queue!(device, f64, kernel, config(c.rows() * lanes), a.graph, a.values, b.raw(), c, values);
    Ok(values)
}
