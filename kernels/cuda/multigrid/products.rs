//! Products of sparse matrices of blocks on a device, and transposes.
//!
//! Budget of a product: a row of `B` read twice for each entry of `A` while its pattern is found, and once more for the numbers;
//! once and once where blocks are numbers.

use super::graph::{Blocks, Graph, RawGraph, RawShape, too_many};
use crate::cuda::device::Array;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::{WARP, config};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::matrix::ordered::Misfit;
use crate::cuda::matrix::scan::scan;
use cudarc::driver::LaunchConfig;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "products.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"products.cu\"\n", include_str!("products.cu")),
    constants: constants![],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Shape" = RawShape { rows, columns }),
    ],
};

/// Kernels by how many columns a row has room for, and terms of a mean row with which they are tried: those that count and fill,
/// and lanes of a row; those that sum, and lanes.
const ROOM: [(usize, f64, [&str; 3], [usize; 2]); 5] = [
    (32, 32.0, ["count_32", "fill_32", "sums_32"], [8, 4]),
    (64, 160.0, ["count_64", "fill_64", "sums_64"], [8, 8]),
    (128, f64::INFINITY, ["count_128", "fill_128", "sums_128"], [WARP, 16]),
    (512, f64::INFINITY, ["count_512", "fill_512", "sums_512"], [WARP, WARP]),
    (4096, f64::INFINITY, ["count_4096", "fill_4096", "sums_4096"], [THREADS as usize, THREADS as usize]),
];

/// Where rows of `A B` begin; columns are not known yet. Rows that `skip` has nothing in are empty.
fn counted(a: &Graph, b: &Graph, skip: Option<&Graph>) -> Result<Graph> {
    let (device, rows) = (a.device(), a.rows());
    let (left, right, skip) = (a.raw(), b.raw(), skip.map_or(0, Graph::offsets));
    let mean = |graph: &Graph| graph.entries() as f64 / graph.rows().max(1) as f64;
    let terms = mean(a) * mean(b);
    for (room, (_, most, [count, ..], [lanes, _])) in ROOM.iter().enumerate() {
        if terms > *most {
            continue;
        }
        let (counts, overflow) = (device.uninitialised::<u32>(rows + 1)?, Misfit::none(device)?);
        let (to, mark, config) = (counts.address(0), overflow.address(), config(rows * lanes));
        queue!(device, f64, count, config, left, right, skip, to, mark);
        if !overflow.is_set()? {
            return Ok(Graph { room, ..Graph::of_lengths(counts, b.cols())? });
        }
    }
    let [.., (limit, ..)] = ROOM;
    Err(Error::TooLarge { what: "the number of entries of a row of a level", got: limit + 1, limit })
}

/// Where `A B` has blocks. Rows that `skip` has nothing in are empty.
pub(super) fn pattern(a: &Graph, b: &Graph, skip: Option<&Graph>) -> Result<Graph> {
    let (c, device) = (counted(a, b, skip)?, a.device());
    let (_, _, [_, fill, _], [lanes, _]) = ROOM[c.room];
    let (left, right, skip) = (a.raw(), b.raw(), skip.map_or(0, Graph::offsets));
    let overflow = Misfit::none(device)?;
    let (offsets, columns, mark) = (c.offsets(), c.columns.address(0), overflow.address());
    queue!(device, f64, fill, config(a.rows() * lanes), left, right, skip, offsets, columns, mark);
    Ok(c)
}

/// `A B`
pub(super) fn product(a: &Blocks, b: &Blocks) -> Result<Blocks> {
    let shape = [a.shape[0], b.shape[1]];
    // where numbers are summed they bring their columns
    let graph = match shape == [1, 1] && a.shape == [1, 1] {
        true => counted(&a.graph, &b.graph, None)?,
        false => pattern(&a.graph, &b.graph, None)?,
    };
    let values = numbers(a, b, &graph)?;
    Ok(Blocks { graph, shape, values })
}

/// The numbers of `A B`, whose rows are known to begin where those of `c` do. Where blocks are numbers, columns are written, too.
pub(super) fn numbers(a: &Blocks, b: &Blocks, c: &Graph) -> Result<Array<f64>> {
    let device = a.values.device();
    let ([rows, inner], [_, columns]) = (a.shape, b.shape);
    assert!(inner == b.shape[0] && a.graph.cols() == b.graph.rows(), "matrices that can be multiplied");
    let values = device.uninitialised(c.entries() * rows * columns)?;
    let (left, right, to) = (a.address(), b.address(), values.address(0));
    let (raw_a, raw_b, raw_c) = (a.graph.raw(), b.graph.raw(), c.raw());
    if rows * inner * columns == 1 {
        let (_, _, [.., name], [_, lanes]) = ROOM[c.room];
        let of_columns = c.columns.address(0);
        queue!(device, f64, name, config(c.rows() * lanes), raw_a, left, raw_b, right, raw_c, of_columns, to);
        return Ok(values);
    }
    let (shape, inner, config) = (RawShape::from([rows, columns]), inner as u32, config(c.rows() * WARP));
    queue!(device, f64, "sums_of_blocks", config, raw_a, left, raw_b, right, shape, inner, raw_c, to);
    Ok(values)
}

/// Where a transpose has blocks, and the block that each of them is.
pub(super) fn transposed_pattern(a: &Graph) -> Result<(Graph, Array<u32>)> {
    let (device, entries) = (a.device(), a.entries());
    let number = u32::try_from(entries).map_err(|_| too_many(entries))?;
    let counts = device.zeros::<u32>(a.cols() + 1)?;
    let (columns, count) = (a.columns.address(0), counts.address(0));
    queue!(device, f64, "count_columns", config(entries), columns, number, count);
    scan(&counts)?;
    // each place is counted up while entries are put there, which leaves the starts of the rows behind
    let mut next = device.uninitialised::<u32>(a.cols() + 1)?;
    device.inner.stream.memcpy_dtod(&counts.slice, &mut next.slice)?;
    let array = || device.uninitialised::<u32>(entries);
    let (rows, of, ordered, from) = (array()?, array()?, array()?, array()?);
    let (next, raw) = (next.address(0), a.raw());
    let (unordered, of_entries) = (rows.address(0), of.address(0));
    queue!(device, f64, "scatter_entries", config(a.rows() * 4), raw, next, unordered, of_entries);
    let (to, places, lines) = (ordered.address(0), from.address(0), a.cols() as u32);
    let warps: LaunchConfig = config(a.cols() * WARP);
    queue!(device, f64, "order_entries", warps, count, lines, unordered, of_entries, to, places);
    Ok((Graph::new(counts, ordered, a.rows()), from))
}

/// The numbers of a transpose, where `from` names the block that each of its blocks is.
pub(super) fn transposed(a: &Blocks, from: &Array<u32>) -> Result<Array<f64>> {
    let (device, numbers) = (a.values.device(), a.values.len());
    let values = device.uninitialised(numbers)?;
    let (places, count, shape) = (from.address(0), numbers as u64, RawShape::from(a.shape));
    let (left, to) = (a.address(), values.address(0));
    queue!(device, f64, "transpose", config(numbers), places, count, shape, left, to);
    Ok(values)
}
