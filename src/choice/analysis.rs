//! Analysis of a matrix for the choice of a format, computed once for all formats.

use super::{Model, RowStatistics};
use crate::formats::{Offer, Variant, check_padding, default_height, fewest_bytes_at, has_short_columns};
use crate::formats::{quantile, row_length_histogram};
use crate::{Csr, Real, Result};
use krysp_kernels::cost::scattering;

/// A matrix and a kind of machine, with the statistics that formats need for their estimates.
pub(crate) struct Analysis<'a, T: Real> {
    pub(crate) csr: &'a Csr<T>,
    pub(crate) machine: Model,
    pub(crate) rows: RowStatistics,
    /// The number of rows of each length.
    lengths: Vec<usize>,
}

impl<T: Real> Analysis<'_, T> {
    /// Bytes of a row or column index.
    pub(crate) const INDEX: usize = size_of::<u32>();

    /// Bytes of an entry with its column index.
    pub(crate) const ENTRY: usize = size_of::<T>() + Self::INDEX;

    pub(crate) fn new(csr: &Csr<T>, machine: Model) -> Analysis<'_, T> {
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

    /// The predicted work of a product in a format (an [`Offer`]), with defaults: `gathers = entries *
    /// scattering`, where `scattering` is the average number of memory sectors of `x` read per entry, and
    /// `rows = waits = 0`. Formats whose cost depends on `rows` or `waits` set them.
    pub(crate) fn offer<O>(&self, variant: Variant, options: O, bytes: usize, slots: usize) -> Offer<O> {
        let gathers = self.rows.entries as f64 * self.rows.scattering;
        Offer { variant, detail: String::new(), options, bytes, slots, gathers, rows: 0, waits: 0 }
    }

    /// Whether the machine is a GPU.
    pub(crate) fn on_gpu(&self) -> bool {
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
