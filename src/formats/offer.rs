//! Data that a format reports to the automatic choice: its names, its cost coefficients, and its predicted work
//! for a matrix.

use super::Format;
use super::analysis::Analysis;
use crate::error::Result;
use crate::numbers::Real;
use krysp_kernels::cost::CostModel;

/// A format that the automatic choice may select: its names, its cost models, and its predicted work for a
/// matrix.
///
/// [`Operator::auto`](crate::Operator::auto) queries the formats of this library, and those of other crates
/// that are in [`Formats`](crate::choice::Formats).
pub trait Offered<T: Real>: Format<T> {
    /// True if the format stores only one of `a_ij` and `a_ji`, so that both must be equal and remain so. Such
    /// a format is chosen only for matrices that are declared symmetric, and is expected to multiply several
    /// vectors one after the other.
    const SYMMETRIC: bool = false;

    /// Names, each with its cost coefficients; several if the format has several algorithms. The first name is
    /// [`Format::NAME`]. No other format has these names.
    fn variants() -> Vec<Variant>;

    /// Predicts layout and work for a matrix without converting it: one [`Offer`] for each applicable
    /// variant. An error says why the matrix is unsuitable. Called only if the first variant has coefficients
    /// on this kind of machine.
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<Self::Options>>>;
}

/// A name under which a format is measured, and its cost coefficients on each kind of machine.
///
/// Those of the formats of this library are fitted to `benches/record`. On a CPU, `byte` is the time per byte
/// relative to that of SELL-P (1.0), from the measurements in `benches/record/zen3-1t`, `zen3-2t` and
/// `avx512-2t`; `cargo bench --features cuda --bench judge -- zen3-2t` evaluates the coefficients. On a GPU,
/// the coefficients are the result of `judge -- h200 --fit`, which prints the matrices of
/// `benches/record/h200` that it used.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Name in records and in the reasons of a choice.
    pub name: &'static str,
    /// Coefficients on a CPU.
    pub host: Coefficients,
    /// Coefficients on a GPU.
    pub gpu: Coefficients,
}

/// Cost coefficients of a variant on a kind of machine.
#[derive(Clone, Copy, Debug)]
pub enum Coefficients {
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
pub struct Offer<O> {
    /// Name and cost coefficients.
    pub variant: Variant,
    /// Details of the layout in words; may be empty.
    pub detail: String,
    /// Options for the conversion.
    pub options: O,
    /// Bytes of the matrix that a product reads, without the vectors.
    pub bytes: usize,
    /// Number of stored values, including padding (slots).
    pub slots: usize,
    /// Number of reads that the coefficient `gather` counts: memory sectors of `x` ([`Analysis::offer`]),
    /// unless the format counts other reads.
    pub gathers: f64,
    /// Number of rows, if a row is summed at a time; zero if lanes sum several rows side by side.
    pub rows: usize,
    /// Memory latencies that the busiest lane waits for one after the other. Zero on CPUs.
    pub waits: usize,
}

impl<T: Real> Analysis<'_, T> {
    /// The predicted work of a product in a format (an [`Offer`]), with defaults: `gathers = entries *
    /// scattering`, where `scattering` is the average number of memory sectors of `x` read per entry, and
    /// `rows = waits = 0`. Formats whose cost depends on `rows` or `waits` set them.
    pub fn offer<O>(&self, variant: Variant, options: O, bytes: usize, slots: usize) -> Offer<O> {
        let gathers = self.rows.entries as f64 * self.rows.scattering;
        Offer { variant, detail: String::new(), options, bytes, slots, gathers, rows: 0, waits: 0 }
    }
}
