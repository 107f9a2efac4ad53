//! DIA: whole diagonals, no column indices.
//!
//! Best for stencils on grids. Diagonals are stored in slices of 32 rows, so that values stream in one piece.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::slices::check_padding;
use super::{Csr, Format, Source, row_operator};
use crate::{Real, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::dia::{self, HEIGHT};
use krysp_kernels::cpu::rows::RowProduct;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;

/// A matrix stored by diagonals.
#[derive(Clone, Debug)]
pub struct Dia<T: Real> {
    source: Source<T>,
    diagonals: Vec<i64>,
    values: Buffer<T>,
}

impl<T: Real> Dia<T> {
    /// Converts a matrix; refuses one with so many diagonals that it would be mostly padding.
    pub fn new(csr: &Csr<T>) -> Result<Dia<T>> {
        let mut used = vec![false; (csr.rows() + csr.cols()).saturating_sub(1)];
        for row in 0..csr.rows() {
            for &column in csr.row_columns(row) {
                used[csr.rows() - 1 - row + column as usize] = true;
            }
        }
        let diagonals: Vec<i64> = used
            .iter()
            .enumerate()
            .filter(|(_, used)| **used)
            .map(|(d, _)| d as i64 + 1 - csr.rows() as i64)
            .collect();
        let slots = csr.rows().next_multiple_of(HEIGHT) * diagonals.len();
        check_padding(Self::NAME, slots, csr.nnz(), "SELL-P or CSR store scattered entries")?;
        let values = Buffer::zeros(slots);
        let mut dia = Dia { source: csr.source().clone(), diagonals, values };
        dia.fill(csr.entries());
        Ok(dia)
    }

    /// The offset of each stored diagonal: its entries stand at `(i, i + offset)`.
    pub fn diagonals(&self) -> &[i64] {
        &self.diagonals
    }

    fn kernel(&self) -> impl RowProduct<T> + '_ {
        let pattern = &self.source.pattern;
        dia::Dia {
            rows: pattern.rows(),
            cols: pattern.cols(),
            diagonals: &self.diagonals,
            values: &self.values,
        }
    }

    fn array_bytes(&self) -> usize {
        size_of_val(&*self.diagonals) + size_of_val(&*self.values)
    }
}

row_operator!(Dia);

impl<T: Real> Format<T> for Dia<T> {
    const NAME: &'static str = "DIA";

    fn convert(csr: &Csr<T>) -> Result<Self> {
        Dia::new(csr)
    }

    fn source(&self) -> &Source<T> {
        &self.source
    }

    fn values(&self) -> &Buffer<T> {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Buffer<T> {
        &mut self.values
    }

    fn first_slot(&self, row: usize) -> usize {
        row.next_multiple_of(HEIGHT) * self.diagonals.len()
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let pattern = &self.source.pattern;
        let first = row / HEIGHT * HEIGHT * self.diagonals.len() + row % HEIGHT;
        // columns and diagonals both ascend
        let mut d = 0;
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            let offset = i64::from(column) - row as i64;
            while self.diagonals[d] < offset {
                d += 1;
            }
            visit(entry, first + d * HEIGHT);
        }
    }
}

#[cfg(feature = "cuda")]
impl<T: Real + cuda::Real> OnDevice<T> for Dia<T> {
    type Arrays = cuda::dia::Dia<T>;
    type Options = ();

    fn defaults() -> () {}

    fn chosen(&self) -> () {}

    fn lay_out(csr: &Csr<T>, (): (), device: &cuda::Device) -> Result<Self::Arrays> {
        let (pattern, diagonals) = (csr.source().on_device(), diagonals_of(csr)?);
        Ok(Self::Arrays::new(device, pattern, csr.entries(), &diagonals)?)
    }
}
