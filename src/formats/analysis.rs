//! Analysis of a matrix for a kind of machine, computed once for all formats. Each format reads from it how much
//! memory the matrix would take in that format.

use super::{Csr, check_padding, default_height, fewest_bytes_at, has_short_columns};
use super::{quantile, row_length_histogram};
use crate::error::Result;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cost::scattering;
use std::fmt;

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The CPU that this program runs on.
    Host,
    /// An NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Gpu {
        /// Number of streaming multiprocessors; 132 for an H200.
        multiprocessors: usize,
    },
}

/// Statistics of the rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowStatistics {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Number of entries.
    pub entries: usize,
    /// Length of the shortest row.
    pub shortest: usize,
    /// Length of the longest row.
    pub longest: usize,
    /// The `x` of the quantile `Q_R(x)` of the row lengths
    /// ([`row_length_quantile`](crate::formats::row_length_quantile)) at which HYB needs the fewest bytes.
    pub quantile_at: f64,
    /// The quantile `t = Q_R(x)` of the row lengths for this `x`.
    pub quantile: usize,
    /// `S(t)`: the bytes of HYB with `t` slots (stored positions, including padding) per row, by the formula
    /// of Anzt et al. (2020).
    pub hyb_bytes: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Mean number of 32-byte sectors of `x` that a product reads per entry, in samples of consecutive
    /// entries.
    pub scattering: f64,
}

saved!(impl[] RowStatistics {
    rows, cols, entries, shortest, longest, quantile_at, quantile, hyb_bytes, value, scattering
});

impl RowStatistics {
    /// Mean row length.
    pub fn mean(&self) -> f64 {
        self.entries as f64 / self.rows.max(1) as f64
    }

    /// Length of the longest row divided by the mean row length; 1 if all rows have the same length.
    pub fn imbalance(&self) -> f64 {
        if self.entries == 0 { 1.0 } else { self.longest as f64 / self.mean() }
    }
}

impl fmt::Display for RowStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowStatistics {
            rows,
            cols,
            entries,
            shortest,
            longest,
            quantile_at,
            quantile,
            hyb_bytes,
            scattering,
            ..
        } = self;
        write!(
            f,
            "{rows} x {cols}, {entries} entries, {shortest} to {longest} per row, mean {:.2}",
            self.mean()
        )?;
        write!(f, " (imbalance {:.1}), Q_R({quantile_at:.2}) = {quantile}", self.imbalance())?;
        write!(f, ", S({quantile}) = {}", megabytes(*hyb_bytes))?;
        write!(f, ", {:.0} % scattered accesses to x", 100.0 * scattering)
    }
}

/// A matrix and a kind of machine, with the statistics that formats need for their estimates. Computed once for
/// all formats.
pub struct Analysis<'a, T: Real> {
    /// The matrix.
    pub csr: &'a Csr<T>,
    /// The kind of machine.
    pub machine: Model,
    /// Statistics of the rows.
    pub rows: RowStatistics,
    /// The number of rows of each length.
    lengths: Vec<usize>,
}

impl<T: Real> Analysis<'_, T> {
    /// Bytes of a row or column index.
    pub const INDEX: usize = size_of::<u32>();

    /// Bytes of an entry with its column index.
    pub const ENTRY: usize = size_of::<T>() + Self::INDEX;

    /// Analyses the rows of a matrix. Takes two passes over the row lengths, and samples the columns.
    pub fn new(csr: &Csr<T>, machine: Model) -> Analysis<'_, T> {
        let lengths = row_length_histogram(csr);
        let quantile_at = fewest_bytes_at::<T>();
        let quantile = quantile(&lengths, quantile_at);
        let padded = csr.rows() * quantile * Self::ENTRY;
        let rows = RowStatistics {
            rows: csr.rows(),
            cols: csr.cols(),
            entries: csr.nnz(),
            shortest: lengths.iter().position(|&rows| rows > 0).unwrap_or(0),
            longest: lengths.len().saturating_sub(1),
            quantile_at,
            quantile,
            hyb_bytes: padded + overflow(&lengths, quantile) * (Self::ENTRY + Self::INDEX),
            value: size_of::<T>(),
            scattering: scattering(csr.columns(), size_of::<T>()),
        };
        Analysis { csr, machine, rows, lengths }
    }

    /// Returns whether the machine is a GPU.
    pub fn on_gpu(&self) -> bool {
        self.machine != Model::Host
    }

    /// Number of rows per slice.
    pub(crate) fn slice_height(&self) -> usize {
        if self.on_gpu() { 32 } else { default_height::<T>() }
    }

    /// Number of entries beyond the first `t` of each row: `Σ max(n_i − t, 0)` for rows of `n_i` entries.
    pub(crate) fn overflow(&self, t: usize) -> usize {
        overflow(&self.lengths, t)
    }

    /// Number of slots (stored positions, including padding), and bytes, of rows that are padded or cut to
    /// `width` entries. Returns an error if most slots would be padding.
    pub(crate) fn uniform(&self, format: &'static str, width: usize) -> Result<(usize, usize)> {
        let height = self.slice_height();
        let slots = self.csr.rows().next_multiple_of(height) * width;
        check_padding(format, slots, self.csr.nnz(), "rows are of unequal length")?;
        let short = has_short_columns(self.csr.pattern(), height, None, width);
        Ok((slots, self.slices(slots, short)))
    }

    /// Bytes of slots that are stored in slices.
    pub(crate) fn slices(&self, slots: usize, short_columns: bool) -> usize {
        let bases = self.csr.rows().div_ceil(self.slice_height()) * Self::INDEX;
        let columns = if short_columns { slots * size_of::<u16>() + bases } else { slots * Self::INDEX };
        columns + slots * size_of::<T>()
    }
}

impl RowStatistics {
    /// The statistics of a matrix.
    pub fn of<T: Real>(csr: &Csr<T>) -> RowStatistics {
        Analysis::new(csr, Model::Host).rows
    }
}

/// `Σ max(n_i − t, 0)` for rows of `n_i` entries, computed from the number of rows of each length.
fn overflow(lengths: &[usize], t: usize) -> usize {
    let longer = lengths.iter().enumerate().skip(t);
    longer.map(|(length, rows)| (length - t) * rows).sum()
}

/// Bytes of the offsets of `ranges` ranges, the last of which ends at `end`.
pub(crate) fn offset_bytes(ranges: usize, end: usize) -> usize {
    let offset = if u32::try_from(end).is_ok() { size_of::<u32>() } else { size_of::<u64>() };
    (ranges + 1) * offset
}

/// A number of bytes as text, in kB or MB.
pub(crate) fn megabytes(bytes: usize) -> String {
    let (number, unit) =
        if bytes < 1_000_000 { (bytes as f64 / 1e3, "kB") } else { (bytes as f64 / 1e6, "MB") };
    format!("{number:.1} {unit}")
}
