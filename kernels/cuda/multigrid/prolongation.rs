//! Smoothed prolongation in a single pass, for scalar matrices (1×1 blocks) with short rows.

use super::graph::{Blocks, Counts, Graph, RawGraph, SHORT, SHORT_THREADS, short_rows};
use crate::cuda::device::Array;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::matrix::device_csr::Misfit;
use crate::multigrid::POSITIVE;
use cudarc::driver::{DeviceRepr, LaunchConfig};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "prolongation.cu",
    text: concat!(
        include_str!("graph.cu"),
        include_str!("short.cu"),
        "#line 1 \"prolongation.cu\"\n",
        include_str!("prolongation.cu")
    ),
    constants: constants![SHORT, SHORT_THREADS],
    mirrors: &[
        mirror!("Graph" = RawGraph { offsets, columns, rows }),
        mirror!("Smoothing" = RawSmoothing { a, strong, joined, values, inverse, omega, positive }),
    ],
};

/// Maximum number of entries of a row; the kernels that count and fill, and their lanes per row; the kernel that
/// fills rows of known columns, and its lanes per row.
type Capacity = (usize, [&'static str; 2], usize, (&'static str, usize));

/// Kernels by maximum length of a row of `A`. The first ones use short.cu: they limit the rows of `P`
/// instead, and are meant for short rows.
const CAPACITY: [Capacity; 4] = [
    (16, ["count_smoothed_short", "fill_smoothed_short"], 1, ("fill_smoothed_short", 1)),
    (32, ["count_smoothed_32", "fill_smoothed_32"], 8, ("refill_smoothed_32", 4)),
    (64, ["count_smoothed_64", "fill_smoothed_64"], 16, ("refill_smoothed_64", 8)),
    (128, ["count_smoothed_128", "fill_smoothed_128"], 32, ("refill_smoothed_128", 16)),
];

/// Launch configuration for `rows` rows of `lanes` lanes each.
fn cut(rows: usize, lanes: usize) -> LaunchConfig {
    if lanes == 1 { short_rows(rows) } else { config(rows * lanes) }
}

/// Inputs of the smoothed prolongation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smoothing<'a> {
    pub(super) a: &'a Blocks,
    /// Strong connections; `None` if all are strong.
    pub(super) strong: Option<&'a Graph>,
    /// Tentative prolongator `T`.
    pub(super) t: &'a Blocks,
    /// `D⁻¹`
    pub(super) inverse: &'a Array<f64>,
    pub(super) omega: f64,
}

/// `Smoothing` as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawSmoothing {
    a: RawGraph,
    strong: RawGraph,
    joined: u64,
    values: u64,
    inverse: u64,
    omega: f64,
    positive: f64,
}
// SAFETY: has the layout of `Smoothing` in prolongation.cu
unsafe impl DeviceRepr for RawSmoothing {}

impl Smoothing<'_> {
    /// The entry of `T` of each node: aggregate and value in 16 bytes.
    fn joined(&self) -> Result<Array<u64>> {
        let (device, nodes) = (self.a.values.device(), self.t.graph.rows());
        let joined = device.uninitialized(2 * nodes)?;
        queue!(device, f64, "join_values", config(nodes), self.t.graph, self.t.values, joined);
        Ok(joined)
    }

    fn raw(&self, joined: &Array<u64>) -> RawSmoothing {
        let nowhere = RawGraph { offsets: 0, columns: 0, rows: 0 };
        RawSmoothing {
            a: self.a.graph.raw(),
            strong: self.strong.map_or(nowhere, Graph::raw),
            joined: joined.address(0),
            values: self.a.address(),
            inverse: self.inverse.address(0),
            omega: self.omega,
            positive: POSITIVE,
        }
    }

    /// `P`, and the index into [`CAPACITY`] of the kernels used. `None` if blocks are not 1×1 or a row is too
    /// long.
    pub(super) fn prolongation(&self) -> Result<Option<(usize, Blocks)>> {
        if self.t.shape != [1, 1] {
            return Ok(None);
        }
        let (graph, device, joined) = (&self.a.graph, self.a.values.device(), self.joined()?);
        let raw = self.raw(&joined);
        let mean = graph.entries() / graph.rows().max(1);
        for (at, (capacity, [count, fill], lanes, _)) in CAPACITY.iter().enumerate() {
            // the longest row of A is seldom shorter than twice the mean length, but rows of P, which alone
            // limit the kernels of short.cu, often are
            let longest = if *lanes == 1 { mean } else { 2 * mean };
            if longest > *capacity {
                continue;
            }
            let counts = Counts::new(device, graph.rows())?;
            let cut = cut(graph.rows(), *lanes);
            queue!(device, f64, count, cut, raw, counts.address(), counts.mark());
            let Some(pattern) = counts.graph(self.t.graph.cols())? else { continue };
            let values = self.filled(raw, &pattern, fill, *lanes)?;
            return Ok(Some((at, Blocks { graph: pattern, shape: [1, 1], values })));
        }
        Ok(None)
    }

    /// The values of `P`, whose pattern the kernels `CAPACITY[capacity]` computed.
    pub(super) fn numbers(&self, capacity: usize, pattern: &Graph) -> Result<Array<f64>> {
        let (_, _, _, (fill, lanes)) = CAPACITY[capacity];
        let joined = self.joined()?;
        self.filled(self.raw(&joined), pattern, fill, lanes)
    }

    /// Computes the values of `P` with the kernel `fill`; row offsets are those of the pattern.
    fn filled(
        &self,
        raw: RawSmoothing,
        pattern: &Graph,
        fill: &'static str,
        lanes: usize,
    ) -> Result<Array<f64>> {
        let device = self.a.values.device();
        let (values, overflow) = (device.uninitialized(pattern.entries())?, Misfit::none(device)?);
        let (cut, offsets, columns) = (cut(pattern.rows(), lanes), pattern.offsets(), &pattern.columns);
        queue!(device, f64, fill, cut, raw, offsets, columns, values, overflow.address());
        Ok(values)
    }
}
