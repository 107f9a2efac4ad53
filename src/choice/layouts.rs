//! What every format would take of a matrix, found without converting it.

use super::Model;
use super::candidate::{Candidate, Footprint, Footprints, RowStatistics, Stored};
use crate::formats::{
    Cut, HaloFootprint, SellOptions, Strategy, best_blocks, check_padding, diagonals_of, fewest_bytes_at,
    halo_footprint, has_short_columns, quantile, row_length_histogram,
};
use crate::{
    Bsr, Csr, Dia, Ehyb, Ell, EllpackR, Error, Format, Halo, Hyb, Real, Result, Sell, SymBsr, SymCsr,
};
use krysp_kernels::cpu::run::threads::CHUNK;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{formats::coo, tuning::SHARED_MEMORY};
use krysp_kernels::price::scattering;

/// Bytes of a row's or a column's index.
const INDEX: usize = size_of::<u32>();

/// What is known of the values that a matrix has and will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Any,
    Symmetric,
}

/// What every format would take, as it is on a machine of this kind.
pub(super) fn of<T: Real>(csr: &Csr<T>, machine: Model, values: Values) -> Footprints {
    let (height, on_gpu) = (machine.slice_height::<T>(), machine.has_windows());
    let matrix = Analysis { csr, height, on_gpu, lengths: &row_length_histogram(csr) };
    let unsuited = |format| {
        move |error| match error {
            Error::Unsuitable { why, .. } => Candidate::Unsuitable { format, why },
            other => Candidate::Unsuitable { format, why: other.to_string() },
        }
    };
    let rows = matrix.statistics();
    let mut others = vec![
        matrix.dia().map_err(unsuited(Dia::<T>::NAME)),
        matrix.bsr().map_err(unsuited(Bsr::<T>::NAME)),
        matrix.sell().map_err(unsuited(Sell::<T>::NAME)),
        matrix.ell(rows.longest).map_err(unsuited(Ell::<T>::NAME)),
        matrix.ellpack_r(rows.longest).map_err(unsuited(EllpackR::<T>::NAME)),
        matrix.hyb(rows.quantile, rows.longest).map_err(unsuited(Hyb::<T>::NAME)),
        Ok(matrix.coo()),
        Ok(matrix.csr(Strategy::LoadBalance)),
        Ok(matrix.csr(Strategy::MergePath)),
        Err(Candidate::Unsuitable { format: Ehyb::<T>::NAME, why: EXTRA.into() }),
    ];
    match values {
        Values::Any => others.extend(
            [SymCsr::<T>::NAME, SymBsr::<T>::NAME]
                .map(|format| Err(Candidate::Unsuitable { format, why: SYMMETRIC.into() })),
        ),
        Values::Symmetric => others.extend([
            matrix.sym_csr().map_err(unsuited(SymCsr::<T>::NAME)),
            matrix.sym_bsr().map_err(unsuited(SymBsr::<T>::NAME)),
        ]),
    }
    if on_gpu {
        others.push(matrix.halo().map_err(unsuited(Halo::<T>::NAME)));
    }
    Footprints { rows, csr: matrix.csr(Strategy::Classical), others }
}

/// Neither would notice new values that are not symmetric.
const SYMMETRIC: &str = "its values must stay symmetric: where they do, ask for `Operator::symmetric`";

/// By every record of an H200: with one row a node there is always a faster format.
const SINGLE: &str = "chosen by hand only: on a GPU others are faster where nodes have one row";

/// SELL-P has columns of 16 bits as well, and [`Halo`] all of them.
const EXTRA: &str = "chosen by hand only: its extra lines move more bytes than SELL-P or Halo";

/// A matrix, and what is found of it once.
struct Analysis<'a, T: Real> {
    csr: &'a Csr<T>,
    /// Rows of a slice.
    height: usize,
    on_gpu: bool,
    /// The number of rows of each length.
    lengths: &'a [usize],
}

impl<T: Real> Analysis<'_, T> {
    /// Bytes of an entry with its column.
    const ENTRY: usize = size_of::<T>() + INDEX;

    fn statistics(&self) -> RowStatistics {
        let quantile_at = fewest_bytes_at::<T>();
        let quantile = quantile(self.lengths, quantile_at);
        let padded = self.csr.rows() * quantile * Self::ENTRY;
        RowStatistics {
            rows: self.csr.rows(),
            cols: self.csr.cols(),
            entries: self.csr.nnz(),
            shortest: self.lengths.iter().position(|&rows| rows > 0).unwrap_or(0),
            longest: self.lengths.len().saturating_sub(1),
            quantile_at,
            quantile,
            hyb_bytes: padded + self.overflow(quantile) * (Self::ENTRY + INDEX),
            value: size_of::<T>(),
            scattering: scattering(self.csr.columns(), size_of::<T>()),
        }
    }

    /// `Σ max(n_i − t, 0)`
    fn overflow(&self, t: usize) -> usize {
        let longer = self.lengths.iter().enumerate().skip(t);
        longer.map(|(length, rows)| (length - t) * rows).sum()
    }

    fn footprint(&self, stored: Stored, bytes: usize, slots: usize) -> Footprint {
        let entries = self.csr.nnz();
        Footprint { stored, bytes, padding: slots.saturating_sub(entries) as f64 / entries.max(1) as f64 }
    }

    fn csr(&self, strategy: Strategy) -> Footprint {
        let (rows, entries) = (self.csr.rows(), self.csr.nnz());
        self.footprint(Stored::Csr { strategy }, offsets(rows, entries) + entries * Self::ENTRY, entries)
    }

    fn coo(&self) -> Footprint {
        #[cfg(feature = "cuda")]
        if self.on_gpu {
            let pattern = self.csr.source().on_device();
            if let Some(sums) = coo::sums_in_slabs::<T>(pattern, SHARED_MEMORY) {
                // each is written, read, and has its place
                let (sums, entries) = (sums as usize, self.csr.nnz());
                let of_entries = entries * Self::ENTRY - entries * size_of::<u16>() + entries.div_ceil(2);
                let bytes = of_entries + sums * (2 * size_of::<T>() + size_of::<u16>());
                return self.footprint(Stored::Slabs { sums }, bytes, entries);
            }
        }
        self.footprint(Stored::Coo, self.coordinates(self.csr.nnz()), self.csr.nnz())
    }

    /// Entries with their rows, and where those of each chunk of rows begin; on a GPU, 16 bits for four in place of rows.
    fn coordinates(&self, entries: usize) -> usize {
        if self.on_gpu {
            return entries * Self::ENTRY + entries.div_ceil(4) * size_of::<u16>();
        }
        offsets(self.csr.rows().div_ceil(CHUNK), entries) + entries * (Self::ENTRY + INDEX)
    }

    fn dia(&self) -> Result<Footprint> {
        let diagonals = diagonals_of(self.csr)?.len();
        let slots = self.csr.rows().next_multiple_of(32) * diagonals;
        let bytes = diagonals * size_of::<i64>() + slots * size_of::<T>();
        Ok(self.footprint(Stored::Dia { diagonals }, bytes, slots))
    }

    fn bsr(&self) -> Result<Footprint> {
        let (bytes, size) = best_blocks(self.csr)?;
        Ok(self.footprint(Stored::Bsr { size }, bytes, self.slots_of_blocks(bytes, size)))
    }

    /// Of blocks that take so many bytes.
    fn slots_of_blocks(&self, bytes: usize, size: usize) -> usize {
        let blocks = (bytes - self.csr.rows() / size * INDEX) / (size * size * size_of::<T>() + INDEX);
        blocks * size * size
    }

    fn halo(&self) -> Result<Footprint> {
        let HaloFootprint { size, bytes, slots, halo } = halo_footprint(self.csr)?;
        Ok(self.footprint(Stored::Halo { size, halo }, bytes, slots))
    }

    fn sym_csr(&self) -> Result<Footprint> {
        if self.on_gpu {
            return Err(Error::Unsuitable { format: SymCsr::<T>::NAME, why: SINGLE.into() });
        }
        Ok(self.footprint(Stored::SymCsr, SymCsr::bytes_of(self.csr), self.csr.nnz()))
    }

    /// Padded as much as [`Bsr`].
    fn sym_bsr(&self) -> Result<Footprint> {
        let (bytes, size) = best_blocks(self.csr)?;
        let slots = self.slots_of_blocks(bytes, size);
        #[cfg(feature = "cuda")]
        if self.on_gpu {
            let (bytes, halo) = SymBsr::footprint_on_gpu(self.csr, size)?;
            return Ok(self.footprint(Stored::SymBsr { size, halo }, bytes, slots));
        }
        let bytes = SymBsr::bytes_of(self.csr, size)?;
        Ok(self.footprint(Stored::SymBsr { size, halo: 0 }, bytes, slots))
    }

    fn sell(&self) -> Result<Footprint> {
        let Cut { widths, order, .. } =
            Cut::new(self.csr, SellOptions { height: Some(self.height), window: None })?;
        let slots = widths.iter().sum::<usize>() * self.height;
        let short_columns = has_short_columns(self.csr.pattern(), self.height, order.as_deref(), usize::MAX);
        let order_bytes = order.as_ref().map_or(0, |order| size_of_val(&**order));
        let bytes = offsets(widths.len(), slots) + order_bytes + self.slices(slots, short_columns);
        Ok(self.footprint(Stored::Sell { sorted: order.is_some(), short_columns }, bytes, slots))
    }

    fn ell(&self, width: usize) -> Result<Footprint> {
        let (slots, bytes) = self.uniform(Ell::<T>::NAME, width)?;
        Ok(self.footprint(Stored::Ell { width }, bytes, slots))
    }

    fn ellpack_r(&self, width: usize) -> Result<Footprint> {
        let (slots, bytes) = self.uniform(EllpackR::<T>::NAME, width)?;
        Ok(self.footprint(Stored::EllpackR { width }, bytes + self.csr.rows() * INDEX, slots))
    }

    fn hyb(&self, width: usize, longest: usize) -> Result<Footprint> {
        if width == longest {
            let why = format!("no row is longer than Q_R = {width}: it would be ELL");
            return Err(Error::Unsuitable { format: Hyb::<T>::NAME, why });
        }
        let (slots, bytes) = self.uniform(Hyb::<T>::NAME, width)?;
        let overflow = self.overflow(width);
        let stored = Stored::Hyb { width, overflow };
        Ok(self.footprint(stored, bytes + self.coordinates(overflow), slots + overflow))
    }

    /// Slots and bytes of the first `width` entries of every row, padded.
    fn uniform(&self, format: &'static str, width: usize) -> Result<(usize, usize)> {
        let slots = self.csr.rows().next_multiple_of(self.height) * width;
        check_padding(format, slots, self.csr.nnz(), "rows are of unequal length")?;
        let short = has_short_columns(self.csr.pattern(), self.height, None, width);
        Ok((slots, self.slices(slots, short)))
    }

    /// Bytes of slots in slices.
    fn slices(&self, slots: usize, short_columns: bool) -> usize {
        let bases = self.csr.rows().div_ceil(self.height) * INDEX;
        let columns = if short_columns { slots * size_of::<u16>() + bases } else { slots * INDEX };
        columns + slots * size_of::<T>()
    }
}

/// Bytes of the places where ranges begin, and of the end.
fn offsets(ranges: usize, end: usize) -> usize {
    let offset = if u32::try_from(end).is_ok() { size_of::<u32>() } else { size_of::<u64>() };
    (ranges + 1) * offset
}
