//! Jacobi: `M` is the diagonal of `A`, or its small diagonal blocks.
//!
//! The diagonal is one vector, and its application is fused with whatever vector work stands beside it. Blocks suit nodes
//! with several unknowns: they take the coupling within a node into account, for `size` vectors instead of one.

use crate::formats::{BLOCK_SIZES, row_blocks};
use crate::{Csr, Error, Format, HostSpace, HostVector, Real, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::bsr::{AnyBsr, SLACK};
use krysp_kernels::cpu::dense::invert;
use krysp_kernels::cpu::rows::{self, Parts};
use krysp_kernels::cpu::{threads, vector};
use krysp_kernels::index::{Columns, Offsets};
use krysp_solvers::{Element, LinearOperator, Space, Vector, check_spaces};

/// The inverse of a diagonal, or of diagonal blocks.
#[derive(Clone, Debug)]
pub struct Jacobi<T: Real> {
    inverse: Inverse<T>,
}

#[derive(Clone, Debug)]
enum Inverse<T: Real> {
    Diagonal(HostVector<T>),
    Blocks(Blocks<T>),
}

/// Inverted diagonal blocks: a block matrix of one block a row.
#[derive(Clone, Debug)]
struct Blocks<T: Real> {
    space: HostSpace<T>,
    size: usize,
    offsets: Offsets,
    columns: Columns,
    /// Column by column.
    values: Buffer<T>,
    /// Boundaries of what threads share.
    parts: Vec<usize>,
}

impl<T: Real> Jacobi<T> {
    /// From the diagonal of a matrix, in the matrix's space.
    pub fn new(csr: &Csr<T>) -> Result<Jacobi<T>> {
        check_square(csr)?;
        let mut jacobi = Jacobi { inverse: Inverse::Diagonal(csr.source().domain().zeros()?) };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// From a diagonal in the user's numbering, for operators that are no [`Csr`].
    pub fn from_diagonal(diagonal: &[T]) -> Result<Jacobi<T>> {
        let mut inverse = HostSpace::new(diagonal.len()).zeros()?;
        invert_diagonal(diagonal, &mut inverse)?;
        Ok(Jacobi { inverse: Inverse::Diagonal(inverse) })
    }

    /// From the diagonal blocks of a size: 2, 3, 4 or 6.
    pub fn blocks(csr: &Csr<T>, size: usize) -> Result<Jacobi<T>> {
        check_square(csr)?;
        if !BLOCK_SIZES.contains(&size) || !csr.rows().is_multiple_of(size) {
            return Err(Error::Option {
                what: "the block size",
                got: size.to_string(),
                expected: "2, 3, 4 or 6, and a divisor of the number of rows",
            });
        }
        let (space, count) = (csr.source().domain().clone(), csr.rows() / size);
        let bounds = |_| Error::TooLarge { what: "row", got: csr.rows() };
        let columns = Columns::new((0..count as u32).collect::<Vec<_>>(), count).map_err(bounds)?;
        let offsets = Offsets::from_lengths(std::iter::repeat_n(1, count));
        let scalar_offsets = Offsets::from_lengths(std::iter::repeat_n(size, csr.rows()));
        let tasks = threads::tasks(csr.rows() * size);
        let parts = crate::partition::even_parts(&scalar_offsets, tasks, threads::block_rows(csr.rows()));
        let values = Buffer::zeros(csr.rows() * size + SLACK);
        let blocks = Blocks { space, size, offsets, columns, values, parts };
        let mut jacobi = Jacobi { inverse: Inverse::Blocks(blocks) };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// From the largest diagonal blocks whose rows have equal patterns everywhere, as nodes of several unknowns do; from
    /// the diagonal where there are none.
    pub fn detected(csr: &Csr<T>) -> Result<Jacobi<T>> {
        match row_blocks(csr) {
            1 => Jacobi::new(csr),
            size => Jacobi::blocks(csr, size),
        }
    }

    /// The size of the blocks, 1 for the diagonal.
    pub fn block_size(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(_) => 1,
            Inverse::Blocks(blocks) => blocks.size,
        }
    }

    /// The inverted blocks as a matrix in their space; none for a diagonal.
    #[cfg(feature = "cuda")]
    pub(crate) fn blocks_as_csr(&self) -> Result<Option<Csr<T>>> {
        let Inverse::Blocks(blocks) = &self.inverse else { return Ok(None) };
        let (n, size) = (blocks.space.len(), blocks.size);
        let offsets: Vec<usize> = (0..=n).map(|row| row * size).collect();
        let columns: Vec<usize> =
            (0..n).flat_map(|row| (0..size).map(move |j| row / size * size + j)).collect();
        // from column by column to row by row
        let value = |row: usize, j: usize| blocks.values[(row / size * size + j) * size + row % size];
        let values: Vec<T> = (0..n).flat_map(|row| (0..size).map(move |j| value(row, j))).collect();
        Ok(Some(Csr::from_csr(n, n, &offsets, &columns, &values)?.declared_in(&blocks.space)))
    }

    /// Takes new values from a matrix of the same space.
    pub fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        if csr.source().domain() != self.domain() {
            return Err(krysp_solvers::Error::Space { what: "the matrix", than: "the preconditioner" }.into());
        }
        match &mut self.inverse {
            Inverse::Diagonal(inverse) => invert_diagonal(&csr.diagonal_entries(), inverse),
            Inverse::Blocks(blocks) => blocks.refresh(csr),
        }
    }
}

fn invert_diagonal<T: Real>(diagonal: &[T], inverse: &mut HostVector<T>) -> Result<()> {
    for (row, (inverse, &entry)) in inverse.as_mut_slice().iter_mut().zip(diagonal).enumerate() {
        *inverse = T::one() / entry;
        if !Element::is_finite(*inverse) || inverse.is_zero() {
            return Err(Error::ZeroDiagonal { row, value: entry.to_f64() });
        }
    }
    Ok(())
}

fn check_square<T: Real>(csr: &Csr<T>) -> Result<()> {
    let (rows, cols) = (csr.rows(), csr.cols());
    if rows == cols { Ok(()) } else { Err(Error::NotSquare { what: "Jacobi", rows, cols }) }
}

impl<T: Real> Blocks<T> {
    fn refresh(&mut self, csr: &Csr<T>) -> Result<()> {
        let size = self.size;
        let mut block = vec![0.0; size * size];
        for first in (0..csr.rows()).step_by(size) {
            block.fill(0.0);
            for i in 0..size {
                let row = first + i;
                for (&column, value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                    if let Some(j) = (column as usize).checked_sub(first).filter(|&j| j < size) {
                        block[i * size + j] = Element::to_f64(*value);
                    }
                }
            }
            if !invert(&mut block, size) {
                return Err(Error::SingularBlock { first, end: first + size });
            }
            for i in 0..size {
                for j in 0..size {
                    self.values[first * size + j * size + i] = T::from_f64(block[i * size + j]);
                }
            }
        }
        Ok(())
    }

    fn kernel(&self) -> AnyBsr<'_, T> {
        AnyBsr::new(self.size, &self.offsets, &self.columns, &self.values)
    }
}

impl<T: Real> LinearOperator for Jacobi<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        match &self.inverse {
            Inverse::Diagonal(inverse) => inverse.space(),
            Inverse::Blocks(blocks) => &blocks.space,
        }
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        let (x, y) = (x.as_slice(), y.as_mut_slice());
        match &self.inverse {
            Inverse::Diagonal(inverse) => vector::mul(inverse.as_slice(), x, y),
            Inverse::Blocks(blocks) => rows::product(&blocks.kernel(), Parts::new(&blocks.parts), x, y),
        }
        Ok(())
    }

    fn apply_dot(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<T> {
        let Inverse::Blocks(blocks) = &self.inverse else {
            self.apply(x, y)?;
            return Ok(x.dot(y));
        };
        check_spaces(self, x, y)?;
        let parts = Parts::new(&blocks.parts);
        Ok(rows::product_dot(&blocks.kernel(), parts, x.as_slice(), y.as_mut_slice()))
    }

    fn axpy_apply_dot(
        &self,
        a: &T,
        q: &HostVector<T>,
        r: &mut HostVector<T>,
        z: &mut HostVector<T>,
    ) -> krysp_solvers::Result<[T; 2]> {
        let Inverse::Diagonal(inverse) = &self.inverse else {
            r.axpy(a, q);
            let rz = self.apply_dot(r, z)?;
            return Ok([r.norm_squared(), rz]);
        };
        check_spaces(self, r, z)?;
        check_spaces(self, q, z)?;
        let (r, z) = (r.as_mut_slice(), z.as_mut_slice());
        Ok(vector::axpy_mul_dots(*a, q.as_slice(), r, inverse.as_slice(), z))
    }

    fn diagonal(&self) -> Option<&HostVector<T>> {
        match &self.inverse {
            Inverse::Diagonal(inverse) => Some(inverse),
            Inverse::Blocks(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(inverse) => size_of_val(inverse.as_slice()),
            Inverse::Blocks(blocks) => size_of_val(&*blocks.values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;

    #[test]
    fn blocks_are_detected_and_inverted() {
        let csr = matrices::named("elast5").unwrap().csr::<f64>().unwrap();
        let jacobi = Jacobi::detected(&csr).unwrap();
        assert_eq!(jacobi.block_size(), 3);
        let x: Vec<f64> = (0..csr.rows()).map(|i| (i % 5) as f64 - 1.0).collect();
        let x = jacobi.domain().vector(&x).unwrap();
        let mut y = jacobi.domain().zeros().unwrap();
        jacobi.apply(&x, &mut y).unwrap();
        for (row, &expected) in x.as_slice().iter().enumerate() {
            let node = row / 3 * 3;
            let found: f64 = (node..node + 3).map(|col| csr.get(row, col).unwrap() * y.as_slice()[col]).sum();
            approx::assert_relative_eq!(found, expected, epsilon = 1e-12);
        }
        let stencil = matrices::named("p7_4").unwrap().csr::<f64>().unwrap();
        assert_eq!(Jacobi::detected(&stencil).unwrap().block_size(), 1);
    }

    #[test]
    fn refusals_name_the_row() {
        let csr = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (1, 2, 1.0), (2, 2, 1.0)]).unwrap();
        assert!(matches!(Jacobi::new(&csr), Err(Error::ZeroDiagonal { row: 1, value: 0.0 })));
        let csr = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0)]).unwrap();
        assert!(matches!(Jacobi::blocks(&csr, 2), Err(Error::SingularBlock { first: 2, end: 4 })));
        assert!(matches!(Jacobi::blocks(&csr, 3), Err(Error::Option { .. })));
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Jacobi::new(&wide), Err(Error::NotSquare { .. })));
    }
}
