//! Sparse matrix-matrix products (SpGEMM) of block matrices on a device, and transposes.
//!
//! Cost of `A B`: one row of `B` is read for each entry of `A` in the symbolic pass, and once more in the
//! numeric pass. For rows of the result with up to 128 columns, the symbolic pass stores the columns while it
//! counts them, so it need not run a second time to write them.

use super::graph::{Blocks, Counts, Graph, RawGraph, RawShape, SHORT, SHORT_THREADS, short_rows, too_many};
use super::single_pass::{self, Right};
use crate::cuda::device::Array;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::matrix::device_csr::Misfit;
use crate::cuda::matrix::scan::scan;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "products.cu",
    text: concat!(
        include_str!("graph.cu"),
        include_str!("short.cu"),
        "#line 1 \"products.cu\"\n",
        include_str!("products.cu")
    ),
    constants: constants![SHORT, SHORT_THREADS],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Shape" = RawShape { rows, columns }),
    ],
};

/// Average number of terms `a_ik b_kj` per row of `A B` up to which one thread computes a row. Guess,
/// chosen as the threads of a warp.
const SHORT_TERMS: f64 = 32.0;
/// Value of [`Graph::capacity`] for products with one thread per row.
const BY_THREADS: usize = usize::MAX;

/// Kernels that find the columns of each row of a product with at most `columns` columns per row.
struct Capacity {
    columns: usize,
    /// Average number of terms `a_ik b_kj` per row up to which these kernels are tried.
    terms: f64,
    /// Names of the kernel that counts the columns and, unless that kernel stores them, of the kernel that
    /// writes them.
    finds: [&'static str; 2],
    /// True if the counting kernel stores the columns.
    keeps: bool,
    /// Lanes per row.
    lanes: usize,
}

const fn capacity(columns: usize, terms: f64, finds: [&'static str; 2], lanes: usize) -> Capacity {
    Capacity { columns, terms, finds, keeps: columns <= 128, lanes }
}

const CAPACITY: [Capacity; 5] = [
    capacity(32, 32.0, ["count_32", ""], 8),
    capacity(64, 160.0, ["count_64", ""], 8),
    capacity(128, f64::INFINITY, ["count_128", ""], WARP),
    capacity(512, f64::INFINITY, ["count_512", "fill_512"], WARP),
    capacity(4096, f64::INFINITY, ["count_4096", "fill_4096"], THREADS as usize),
];

/// Average number of terms per row of `A B`.
fn terms(a: &Graph, b: &Graph) -> f64 {
    let mean = |graph: &Graph| graph.entries() as f64 / graph.rows().max(1) as f64;
    mean(a) * mean(b)
}

/// The pattern of `A B`. Rows that are empty in `skip` stay empty.
pub(super) fn pattern(a: &Graph, b: &Graph, skip: Option<&Graph>) -> Result<Graph> {
    let (device, rows) = (a.device(), a.rows());
    let skip = skip.map_or(0, Graph::offsets);
    let terms = terms(a, b);
    for capacity in CAPACITY.iter().filter(|capacity| terms <= capacity.terms) {
        let counts = Counts::new(device, rows)?;
        let kept = device.uninitialized::<u32>(if capacity.keeps { rows * capacity.columns } else { 0 })?;
        let ([count, fill], cut) = (capacity.finds, config(rows * capacity.lanes));
        queue!(device, f64, count, cut, a, b, skip, counts.address(), kept, counts.mark());
        let Some(c) = counts.graph(b.cols())? else { continue };
        let c = Graph { capacity: capacity.columns, ..c };
        let (offsets, number, columns) = (c.offsets(), rows as u32, capacity.columns as u32);
        if capacity.keeps {
            let cut = config(rows * 8);
            queue!(device, f64, "order_kept", cut, offsets, number, kept, columns, c.columns);
        } else {
            let mark = Misfit::none(device)?;
            queue!(device, f64, fill, cut, a, b, skip, offsets, c.columns, mark.address());
        }
        return Ok(c);
    }
    let limit = CAPACITY[CAPACITY.len() - 1].columns;
    Err(Error::TooLarge { what: "the number of entries of a row of a level", got: limit + 1, limit })
}

/// `A B`
pub fn product(a: &Blocks, b: &Blocks) -> Result<Blocks> {
    let graph = pattern(&a.graph, &b.graph, None)?;
    let values = numbers(a, b, &graph)?;
    Ok(Blocks { graph, shape: [a.shape[0], b.shape[1]], values })
}

/// `A B` of scalar matrices, one thread per row; `None` if rows have too many terms, or one has more than
/// [`SHORT`] columns.
pub(super) fn short(a: &Blocks, b: &Blocks) -> Result<Option<Blocks>> {
    if terms(&a.graph, &b.graph) > SHORT_TERMS {
        return Ok(None);
    }
    let (device, rows) = (a.values.device(), a.graph.rows());
    let (counts, kept) = (Counts::new(device, rows)?, device.uninitialized::<u32>(rows * SHORT)?);
    let (cut, of_a, of_b) = (short_rows(rows), &a.graph, &b.graph);
    queue!(device, f64, "count_short", cut, of_a, of_b, counts.address(), kept, counts.mark());
    let Some(graph) = counts.graph(b.graph.cols())? else { return Ok(None) };
    let (values, columns) = (device.uninitialized(graph.entries())?, &graph.columns);
    queue!(device, f64, "fill_short", cut, of_a, a.values, of_b, b.values, graph, kept, columns, values);
    Ok(Some(Blocks { graph: Graph { capacity: BY_THREADS, ..graph }, shape: [1, 1], values }))
}

/// The values of `A B`, whose pattern is known.
pub(super) fn numbers(a: &Blocks, b: &Blocks, c: &Graph) -> Result<Array<f64>> {
    let device = a.values.device();
    let ([rows, inner], [_, columns]) = (a.shape, b.shape);
    assert!(inner == b.shape[0] && a.graph.cols() == b.graph.rows(), "matrices that can be multiplied");
    if rows * inner * columns == 1 && c.capacity <= single_pass::KNOWN_COLUMNS {
        return single_pass::numbers(a, &Right::Blocks(b), c);
    }
    let values = device.uninitialized(c.entries() * rows * columns)?;
    let (of_a, a, of_b, b) = (&a.graph, &a.values, &b.graph, &b.values);
    if c.capacity == BY_THREADS {
        queue!(device, f64, "sums_short", short_rows(c.rows()), of_a, a, of_b, b, c, values);
        return Ok(values);
    }
    if rows * inner * columns == 1 {
        let blocks = config(c.rows() * THREADS as usize);
        queue!(device, f64, "sums_4096", blocks, of_a, a, of_b, b, c, values);
        return Ok(values);
    }
    let (shape, inner, cut) = (RawShape::from([rows, columns]), inner as u32, config(c.entries() * WARP));
    queue!(device, f64, "sums_of_blocks", cut, of_a, a, of_b, b, shape, inner, c, values);
    Ok(values)
}

/// Number of the first `entries` blocks in each column, then zero.
pub(super) fn column_counts(a: &Graph, entries: usize) -> Result<Array<u32>> {
    let device = a.device();
    let number = u32::try_from(entries).map_err(|_| too_many(entries))?;
    let counts = device.zeros::<u32>(a.cols() + 1)?;
    queue!(device, f64, "count_columns", config(entries), a.columns, number, counts);
    Ok(counts)
}

/// The pattern of the transpose, and for each of its blocks the position in `a`.
pub(super) fn transposed_pattern(a: &Graph) -> Result<(Graph, Array<u32>)> {
    let (device, entries, counts) = (a.device(), a.entries(), column_counts(a, a.entries())?);
    scan(&counts)?;
    // the kernel advances each row's start while it scatters entries, so it works on a copy
    let mut next = device.uninitialized::<u32>(a.cols() + 1)?;
    device.inner.stream.memcpy_dtod(&*counts.slice, &mut *next.slice)?;
    let array = || device.uninitialized::<u32>(entries);
    let (unordered, ordered, from) = (device.uninitialized::<u64>(entries)?, array()?, array()?);
    queue!(device, f64, "scatter_entries", config(a.rows() * 4), a, next, unordered);
    let (cut, rows) = (config(a.cols() * WARP), a.cols() as u32);
    queue!(device, f64, "order_entries", cut, counts, rows, unordered, ordered, from);
    Ok((Graph::new(counts, ordered, a.rows()), from))
}

/// The values of the transpose; `from` has, for each of its blocks, the position in `a`.
pub(super) fn transposed(a: &Blocks, from: &Array<u32>) -> Result<Array<f64>> {
    let (device, numbers) = (a.values.device(), a.values.len());
    let values = device.uninitialized(numbers)?;
    let (count, shape) = (numbers as u64, RawShape::from(a.shape));
    queue!(device, f64, "transpose", config(numbers), from, count, shape, a.values, values);
    Ok(values)
}
