//! What a format reports to the automatic choice: its names, its cost coefficients, and its predicted work
//! for a matrix.

use super::Format;
use super::analysis::Analysis;
use crate::error::Result;
use crate::numbers::Real;
use krysp_kernels::cost::CostModel;

/// A format as the automatic choice sees it.
pub(crate) trait Offered<T: Real>: Format<T> {
    /// Whether the format stores only one of `a_ij` and `a_ji`, so that both must be equal and remain so.
    const SYMMETRIC: bool = false;

    /// Names in the measurements of `benches/record`, with cost coefficients. The first name is
    /// [`Format::NAME`].
    fn variants() -> Vec<Variant>;

    /// Predicts layout and work for a matrix without converting it: one [`Offer`] for each applicable
    /// variant. An error says why the matrix is unsuitable. Called only if the first variant has coefficients
    /// on this kind of machine.
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<Self::Options>>>;
}

/// A name under which a format is measured (in `benches/record`), and its cost coefficients on each kind of
/// machine.
///
/// On a CPU, `byte` is the time per byte relative to that of SELL-P (1.0), from the measurements in
/// `benches/record/zen3-1t`, `zen3-2t` and `avx512-2t`; `cargo bench --features cuda --bench judge --
/// zen3-2t` evaluates the coefficients. On a GPU, the coefficients are the result of `judge -- h200 --fit`,
/// which prints the matrices of `benches/record/h200` that it used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// Name in `benches/record` and in the reasons of a choice.
    pub(crate) name: &'static str,
    /// Coefficients on a CPU.
    pub(crate) host: Coefficients,
    /// Coefficients on a GPU.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "read for GPUs only"))]
    pub(crate) gpu: Coefficients,
}

/// Cost coefficients of a variant on a kind of machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coefficients {
    /// The same coefficients on all machines of this kind.
    Fixed(CostModel),
    /// Coefficients that depend on the SIMD level.
    BySimdLevel {
        /// Coefficients with AVX-512.
        avx512: CostModel,
        /// Coefficients at other SIMD levels.
        other: CostModel,
    },
    /// Not offered to the automatic choice, for this reason; it can be chosen explicitly.
    NotOffered(&'static str),
}

/// Predicted layout and work of a variant for a matrix. [`Analysis::offer`] fills in what most formats have
/// in common.
pub(crate) struct Offer<O> {
    /// Name and cost coefficients.
    pub(crate) variant: Variant,
    /// Details of the layout in words; may be empty.
    pub(crate) detail: String,
    /// Options for the conversion.
    pub(crate) options: O,
    /// Bytes of the matrix that a product reads, without the vectors.
    pub(crate) bytes: usize,
    /// Number of stored values, including padding (slots).
    pub(crate) slots: usize,
    /// Number of reads that the coefficient `gather` counts: memory sectors of `x` ([`Analysis::offer`]),
    /// unless the format counts other reads.
    pub(crate) gathers: f64,
    /// Number of rows, if a row is summed at a time; zero if lanes sum several rows side by side.
    pub(crate) rows: usize,
    /// Memory latencies that the busiest lane waits for one after the other. Zero on CPUs.
    pub(crate) waits: usize,
}

impl<T: Real> Analysis<'_, T> {
    /// The predicted work of a product in a format (an [`Offer`]), with defaults: `gathers = entries *
    /// scattering`, where `scattering` is the average number of memory sectors of `x` read per entry, and
    /// `rows = waits = 0`. Formats whose cost depends on `rows` or `waits` set them.
    pub(crate) fn offer<O>(&self, variant: Variant, options: O, bytes: usize, slots: usize) -> Offer<O> {
        let gathers = self.rows.entries as f64 * self.rows.scattering;
        Offer { variant, detail: String::new(), options, bytes, slots, gathers, rows: 0, waits: 0 }
    }
}
