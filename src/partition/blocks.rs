//! Separates entries near the main diagonal from the others.

use crate::error::{Error, Result};
use crate::formats::{Csr, Format, Source};
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use std::sync::Arc;

/// Splits a matrix into two that add up to it (algorithm 4): the entries inside the blocks of `block` rows
/// and columns along the main diagonal, and all others. The first has at most `2 block − 1` diagonals, for
/// [`Dia`](crate::Dia); the second remains [`Csr`]. Both are in the spaces of the matrix.
///
/// ```
/// use krysp::partition::by_diagonal_blocks;
/// use krysp::{BasicVector, Dia, HostSpace, LinearOperator, Space, gallery};
///
/// let a = gallery::poisson::<f64>(&[16; 3])?;
/// let [near, far] = by_diagonal_blocks(&a, 32)?;
/// let near = Dia::new(&near)?; // refuses blocks that are mostly empty
/// assert!(near.diagonals().len() <= 63);
/// let space = HostSpace::new(a.rows());
/// let (x, mut y, mut z) = (space.vector(&vec![1.0; a.rows()])?, space.zeros()?, space.zeros()?);
/// near.apply(&x, &mut y)?;
/// far.apply(&x, &mut z)?;
/// y.axpby(&1.0, &z, &1.0); // A x
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn by_diagonal_blocks<T: Real>(csr: &Csr<T>, block: usize) -> Result<[Csr<T>; 2]> {
    if block == 0 {
        let (what, got) = ("the rows of a diagonal block", "0".into());
        return Err(Error::Option { what, got, expected: "1 or more; the paper takes 16 or 32" });
    }
    let part = |inside: bool| -> Result<Csr<T>> {
        let (mut offsets, mut columns, mut values) = (vec![0], vec![], vec![]);
        for row in 0..csr.rows() {
            for (&column, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                if (column as usize / block == row / block) == inside {
                    columns.push(column);
                    values.push(value);
                }
            }
            offsets.push(columns.len());
        }
        let part = Csr::from_csr(csr.rows(), csr.cols(), &offsets, &columns, &values)?;
        let (of, spaces) = (part.source(), csr.source());
        let source = Source::new(Arc::clone(&of.pattern), spaces.domain().clone(), spaces.range().clone());
        Ok(Csr::from_source(source, Buffer::from(values)))
    };
    Ok([part(true)?, part(false)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dia;
    use crate::permutation::Permutation;
    use crate::testing::matrices;
    use krysp_solvers::{BasicVector, LinearOperator, Space};

    #[test]
    fn both_parts_add_up_to_the_matrix() {
        let cases = [
            matrices::stencil7(9).csr::<f64>().unwrap(),
            matrices::random(50, 70, 0.1, 3).csr().unwrap(),
            matrices::random(70, 50, 0.1, 4).csr().unwrap(),
        ];
        for (a, block) in cases.iter().flat_map(|a| [1, 16, 32, 1000].map(|block| (a, block))) {
            let [near, far] = by_diagonal_blocks(a, block).unwrap();
            assert!(near.triplets().all(|(row, column, _)| row / block == column / block));
            assert!(far.triplets().all(|(row, column, _)| row / block != column / block));
            let mut together: Vec<_> = near.triplets().chain(far.triplets()).collect();
            together.sort_by_key(|&(row, column, _)| (row, column));
            assert!(together.into_iter().eq(a.triplets()));
        }
        assert!(by_diagonal_blocks(&cases[0], 0).is_err());
    }

    #[test]
    fn blocks_become_few_diagonals_in_the_ordering_of_the_matrix() {
        let a = matrices::stencil7(12).csr::<f64>().unwrap();
        let a = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
        let [near, far] = by_diagonal_blocks(&a, 16).unwrap();
        let near = Dia::new(&near).unwrap();
        assert!(near.diagonals().iter().all(|offset| offset.abs() < 16));
        let x = a.domain().vector(&matrices::vector(a.cols())).unwrap();
        let [mut whole, mut y, mut z] = [(); 3].map(|()| a.range().zeros().unwrap());
        a.apply(&x, &mut whole).unwrap();
        near.apply(&x, &mut y).unwrap();
        far.apply(&x, &mut z).unwrap();
        y.axpby(&1.0, &z, &1.0);
        for (sum, whole) in y.as_slice().iter().zip(whole.as_slice()) {
            assert!((sum - whole).abs() <= 1e-13 * (1.0 + whole.abs()), "{sum} {whole}");
        }
    }
}
