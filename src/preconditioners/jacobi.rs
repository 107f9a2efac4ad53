//! Jacobi: `M` is the diagonal of `A`, or its small diagonal blocks.
//!
//! The diagonal is stored as one vector, and its application is fused with adjacent vector operations. Blocks
//! suit nodes with several unknowns: they include the coupling within a node, and take as many values per row
//! as a block has rows. All blocks are inverted in parallel, by Gauss-Jordan elimination with pivoting in
//! double precision, and may be stored in lower precision: [`Jacobi::rounded`].

#[cfg(feature = "cuda")]
mod blocks_on_cuda;
#[cfg(feature = "cuda")]
mod on_cuda;

#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;

use super::several::checked_pairs;
use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::{Csr, Format, row_blocks};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_kernels::block_diagonal::{LARGEST_BLOCK, Limits, StoredRows};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::block_diagonal::BlockDiagonal;
use krysp_kernels::cpu::run::rows::{self, Parts};
use krysp_kernels::cpu::run::{threads, tiles};
use krysp_kernels::index::Offsets;
use krysp_kernels::ranges::even_parts;
use krysp_solvers::{Diagonal, Element, LinearOperator, MultiVector, Space, Wrapper, check_spaces};
use std::ops::Range;

/// The inverse of a diagonal, or of diagonal blocks.
#[derive(Clone, Debug)]
pub struct Jacobi<T: Real> {
    inverse: Inverse<T>,
}

#[derive(Clone, Debug)]
enum Inverse<T: Real> {
    Diagonal(Diagonal<HostVector<T>>),
    Blocks(Blocks<T>),
}

/// Inverted diagonal blocks.
#[derive(Clone, Debug)]
struct Blocks<T: Real> {
    space: HostSpace<T>,
    matrix: BlockDiagonal<T>,
    limits: Limits,
    /// The first row of each block, then the total number of rows.
    #[cfg(feature = "cuda")]
    bounds: Vec<usize>,
    /// Boundaries of the parts into which rows are divided among threads.
    parts: Vec<usize>,
}

impl<T: Real> Jacobi<T> {
    /// Inverts the diagonal of a matrix. The preconditioner applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Jacobi<T>> {
        check_square("Jacobi", csr)?;
        let zeros = csr.source().domain().zeros()?;
        let mut jacobi = Jacobi { inverse: Inverse::Diagonal(Diagonal::new(zeros)) };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// Inverts a diagonal given in the user's order, for operators other than [`Csr`].
    pub fn from_diagonal(diagonal: &[T]) -> Result<Jacobi<T>> {
        let mut inverse = HostSpace::new(diagonal.len()).zeros()?;
        invert_diagonal(diagonal, &mut inverse)?;
        Ok(Jacobi { inverse: Inverse::Diagonal(Diagonal::new(inverse)) })
    }

    /// Inverts the diagonal blocks of `size` rows, up to 32; the last may be smaller.
    pub fn blocks(csr: &Csr<T>, size: usize) -> Result<Jacobi<T>> {
        Jacobi::partitioned(csr, &even_bounds(csr.rows(), size))
    }

    /// Inverts the given diagonal blocks: `bounds` has the first row of each, then the total number of rows.
    /// Each block has 1 to 32 rows.
    pub fn partitioned(csr: &Csr<T>, bounds: &[usize]) -> Result<Jacobi<T>> {
        check_bounds(csr, bounds)?;
        let lengths = bounds.windows(2).flat_map(|block| (block[0]..block[1]).map(|_| block[1] - block[0]));
        let offsets = Offsets::from_lengths(lengths);
        let tasks = threads::tasks(offsets.end());
        let parts = even_parts(&offsets, tasks, threads::block_rows(csr.rows()));
        let (space, matrix) = (csr.source().domain().clone(), BlockDiagonal::zeros(bounds));
        let blocks = Blocks {
            space,
            matrix,
            limits: Limits::of::<T>(0.0),
            #[cfg(feature = "cuda")]
            bounds: bounds.to_vec(),
            parts,
        };
        let mut jacobi = Jacobi { inverse: Inverse::Blocks(blocks) };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// Inverts the largest diagonal blocks whose rows all have the same pattern, as nodes of several unknowns
    /// do, or the diagonal if there are none.
    pub fn detected(csr: &Csr<T>) -> Result<Jacobi<T>> {
        match row_blocks(csr) {
            1 => Jacobi::new(csr),
            size => Jacobi::blocks(csr, size),
        }
    }

    /// Stores inverted blocks in lower precision, `f32` or [`Bf16`](crate::Bf16), where that changes `M⁻¹ A`
    /// of the block, which is the identity in exact arithmetic, by at most `accuracy` in the infinity norm.
    /// An accuracy of 0.1 costs one iteration or none: for a symmetric positive definite matrix, the
    /// condition number of the preconditioned matrix grows by a factor of 1.1 / 0.9 at most. The precision of
    /// each block follows from its condition number (thresholds are 2⁸ and 2²⁴ times the accuracy), now and
    /// after each [`Jacobi::refresh`]. Values that have been rounded stay rounded until a refresh. A diagonal
    /// is not affected.
    ///
    /// ```
    /// use krysp::{Cg, Jacobi, gallery};
    ///
    /// let (a, _) = gallery::elasticity::<f64>([5, 4, 4], 0.3)?;
    /// let blocks = Jacobi::detected(&a)?.rounded(0.1)?;
    /// assert_eq!(blocks.stored_rows().halves, a.rows());
    /// assert!(Cg::new(&a).preconditioner(blocks).solve(&vec![1.0; a.rows()])?.report.converged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rounded(mut self, accuracy: f64) -> Result<Jacobi<T>> {
        let limits = limits::<T>(accuracy)?;
        if let Inverse::Blocks(blocks) = &mut self.inverse {
            blocks.limits = limits;
            blocks.matrix.round(limits);
        }
        Ok(self)
    }

    /// The block size; 1 for the diagonal, and the largest if blocks differ in size.
    pub fn block_size(&self) -> usize {
        self.block_diagonal().map_or(1, BlockDiagonal::largest_block)
    }

    /// Number of rows by the type in which they are stored.
    pub fn stored_rows(&self) -> StoredRows {
        let elements = self.domain().len();
        let all = StoredRows { elements, ..StoredRows::default() };
        self.block_diagonal().map_or(all, BlockDiagonal::stored_rows)
    }

    /// The inverse of the diagonal, in the order of the space; `None` for blocks.
    pub fn diagonal(&self) -> Option<&HostVector<T>> {
        match &self.inverse {
            Inverse::Diagonal(inverse) => Some(inverse.diagonal()),
            Inverse::Blocks(_) => None,
        }
    }

    /// The inverted blocks; `None` for a diagonal.
    fn block_diagonal(&self) -> Option<&BlockDiagonal<T>> {
        match &self.inverse {
            Inverse::Diagonal(_) => None,
            Inverse::Blocks(blocks) => Some(&blocks.matrix),
        }
    }
}

/// A diagonal is refreshed without copying the matrix to CSR. After an error a diagonal is unchanged; blocks
/// are invalid until the next successful refresh.
impl<T: Real> Refresh<T> for Jacobi<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        match &mut self.inverse {
            Inverse::Diagonal(inverse) => invert_diagonal(&a.diagonal()?, inverse.diagonal_mut()),
            Inverse::Blocks(Blocks { matrix, limits, .. }) => {
                let csr = finite(a)?;
                let gather = |rows: Range<usize>, block: &mut [f64]| {
                    for (row, to) in rows.clone().zip(block.chunks_mut(rows.len())) {
                        for (&column, value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                            if rows.contains(&(column as usize)) {
                                to[column as usize - rows.start] = Element::to_f64(*value);
                            }
                        }
                    }
                };
                matrix
                    .invert(*limits, &gather)
                    .map_err(|rows| Error::SingularBlock { first: rows.start, end: rows.end })
            }
        }
    }
}

/// Refuses invalid block boundaries.
fn check_bounds<T: Real>(a: &dyn MatrixSource<T>, bounds: &[usize]) -> Result<()> {
    check_square("Jacobi", a)?;
    let n = a.structure().pattern.rows();
    let whole = bounds.first() == Some(&0) && bounds.last() == Some(&n);
    let odd = |b: &[usize]| b[1].checked_sub(b[0]).is_none_or(|size| !(1..=LARGEST_BLOCK).contains(&size));
    if let Some(wrong) = bounds.windows(2).find(|b| odd(b)).or((!whole).then_some(bounds)) {
        return Err(Error::Option {
            what: "the blocks",
            got: format!("{:?}", &wrong[..wrong.len().min(8)]),
            expected: "bounds that ascend from 0 to the number of rows, blocks of 1 to 32 rows",
        });
    }
    if n > u32::MAX as usize {
        return Err(Error::TooLarge { what: "row", got: n });
    }
    Ok(())
}

/// Largest condition numbers for storing a block as bfloat16 or `f32` at this accuracy. Returns an error
/// unless 0 ≤ `accuracy` < 1: from 1 on the rounding error may be as large as the inverse.
fn limits<T: Real>(accuracy: f64) -> Result<Limits> {
    if (0.0..1.0).contains(&accuracy) {
        return Ok(Limits::of::<T>(accuracy));
    }
    let (got, expected) = (accuracy.to_string(), "0 to 1, without 1");
    Err(Error::Option { what: "the accuracy of rounded blocks", got, expected })
}

/// The first row of each block of `size` rows, then the total number of rows. Size 0 gives no blocks, which
/// [`check_bounds`] refuses.
fn even_bounds(rows: usize, size: usize) -> Vec<usize> {
    let starts = (0..rows).filter(|row| row.checked_rem(size) == Some(0));
    starts.chain([rows]).collect()
}

fn invert_diagonal<T: Real>(diagonal: &[T], inverse: &mut HostVector<T>) -> Result<()> {
    let wrong = |inverse: T| !Element::is_finite(inverse) || inverse.is_zero();
    if let Some(row) = threads::find_row(diagonal.len(), 1, &|row| wrong(T::one() / diagonal[row])) {
        return Err(Error::diagonal(row, diagonal[row].to_f64()));
    }
    threads::over_rows(diagonal.len(), 2, inverse.as_mut_slice(), &|rows, inverse: &mut [T]| {
        inverse.iter_mut().zip(&diagonal[rows]).for_each(|(inverse, &entry)| *inverse = T::one() / entry);
    });
    Ok(())
}

impl<T: Real> Wrapper for Jacobi<T> {
    type Inner = dyn LinearOperator<Vector = HostVector<T>>;

    fn inner(&self) -> &Self::Inner {
        match &self.inverse {
            Inverse::Diagonal(inverse) => inverse,
            Inverse::Blocks(blocks) => blocks,
        }
    }
}

impl<T: Real> LinearOperator for Blocks<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        rows::product(&self.matrix, Parts::new(&self.parts), x.as_slice(), y.as_mut_slice());
        Ok(())
    }

    fn apply_dot(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<T> {
        check_spaces(self, x, y)?;
        Ok(rows::product_dot(&self.matrix, Parts::new(&self.parts), x.as_slice(), y.as_mut_slice()))
    }

    fn apply_many(
        &self,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let pairs = checked_pairs(self, x, y)?.into_iter().map(|(x, y)| (x.as_slice(), y.as_mut_slice()));
        // multiply one vector after the other for each chunk of rows, without packing
        tiles::product_many(&self.matrix, Parts::new(&self.parts), pairs, &mut Buffer::zeros(0));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.matrix.bytes()
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

    /// Blocks are inverted, whether all have one size (several are tried) or their sizes differ within a
    /// matrix.
    #[test]
    fn blocks_of_any_size_are_inverted() {
        let csr = matrices::elasticity(5).csr::<f64>().unwrap();
        let n = csr.rows();
        let uniform = |size: usize| (0..n).step_by(size).chain([n]).collect::<Vec<_>>();
        let mut cases: Vec<_> =
            [1, 3, 5, 7, 32].map(|size| (Jacobi::blocks(&csr, size).unwrap(), uniform(size))).into();
        let uneven: Vec<usize> = [0, 1, 33, 40].into_iter().chain((60..n).step_by(21)).chain([n]).collect();
        cases.push((Jacobi::partitioned(&csr, &uneven).unwrap(), uneven));
        let x: Vec<f64> = (0..n).map(|i| (i % 5) as f64 - 1.0).collect();
        for (mut jacobi, bounds) in cases {
            let x = jacobi.domain().vector(&x).unwrap();
            let mut y = jacobi.domain().zeros().unwrap();
            for factor in [1.0, 2.0] {
                let values: Vec<f64> = csr.entries().iter().map(|v| factor * v).collect();
                let csr = csr.with_values(&values).unwrap();
                jacobi.refresh(&csr).unwrap();
                jacobi.apply(&x, &mut y).unwrap();
                for block in bounds.windows(2) {
                    for row in block[0]..block[1] {
                        let product: f64 = (block[0]..block[1])
                            .map(|col| csr.get(row, col).unwrap_or_default() * y.as_slice()[col])
                            .sum();
                        approx::assert_relative_eq!(product, x.as_slice()[row], epsilon = 1e-11);
                    }
                }
            }
        }
    }

    /// For all blocks, `M⁻¹ A` differs from the identity by at most the accuracy, and by more than rounding
    /// to `f64` if blocks are stored in lower precision; refreshed values are rounded as well.
    #[test]
    fn rounded_blocks_are_as_accurate_as_asked() {
        let csr = matrices::elasticity(5).csr::<f64>().unwrap();
        let n = csr.rows();
        let uneven: Vec<usize> = [0, 1, 33, 40].into_iter().chain((60..n).step_by(21)).chain([n]).collect();
        for accuracy in [0.2, 0.01, 1e-5, 0.0] {
            let mut jacobi = Jacobi::partitioned(&csr, &uneven).unwrap().rounded(accuracy).unwrap();
            let whole = jacobi.bytes();
            for csr in
                [&csr, &csr.with_values(&csr.entries().iter().map(|v| 3.0 * v).collect::<Vec<_>>()).unwrap()]
            {
                jacobi.refresh(csr).unwrap();
                let mut moved = 0.0_f64;
                for block in uneven.windows(2) {
                    let rows = block[0]..block[1];
                    let mut sums = vec![0.0; rows.len()];
                    for column in rows.clone() {
                        let x: Vec<f64> = (0..n)
                            .map(|row| {
                                if rows.contains(&row) {
                                    csr.get(row, column).unwrap_or_default()
                                } else {
                                    0.0
                                }
                            })
                            .collect();
                        let x = jacobi.domain().vector(&x).unwrap();
                        let mut y = jacobi.domain().zeros().unwrap();
                        jacobi.apply(&x, &mut y).unwrap();
                        for (row, sum) in rows.clone().zip(&mut sums) {
                            *sum += (y.as_slice()[row] - f64::from(u8::from(row == column))).abs();
                        }
                    }
                    moved = sums.into_iter().fold(moved, f64::max);
                }
                let stored = jacobi.stored_rows();
                assert_eq!(stored.elements == n, accuracy == 0.0, "{stored:?}");
                assert!(
                    if accuracy > 0.0 { 1e-9 < moved && moved <= accuracy } else { moved < 1e-12 },
                    "{moved}"
                );
                assert_eq!(jacobi.bytes(), whole, "three times the values have the same condition");
            }
        }
        let halves = Jacobi::detected(&csr).unwrap().rounded(0.1).unwrap();
        let exact = Jacobi::detected(&csr).unwrap();
        assert_eq!(halves.stored_rows().halves, n);
        assert!(3 * halves.bytes() < exact.bytes(), "{} {}", halves.bytes(), exact.bytes());
        assert_eq!(Jacobi::new(&csr).unwrap().rounded(0.1).unwrap().stored_rows().elements, n);
    }

    #[test]
    fn refusals_name_the_row() {
        let csr = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (1, 2, 1.0), (2, 2, 1.0)]).unwrap();
        assert!(matches!(Jacobi::new(&csr), Err(Error::ZeroDiagonal { row: 1, value: 0.0 })));
        let csr = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0)]).unwrap();
        assert!(matches!(Jacobi::blocks(&csr, 2), Err(Error::SingularBlock { first: 2, end: 4 })));
        assert!(matches!(Jacobi::blocks(&csr, 3), Err(Error::SingularBlock { first: 3, end: 4 })));
        for bounds in [&[0, 2][..], &[0, 2, 2, 4], &[0, 3, 2, 4], &[1, 4], &[], &[0]] {
            assert!(matches!(Jacobi::partitioned(&csr, bounds), Err(Error::Option { .. })), "{bounds:?}");
        }
        let nothing = Csr::from_triplets::<usize>(0, 0, &[]).unwrap();
        assert_eq!(Jacobi::partitioned(&nothing, &[0]).unwrap().block_size(), 1);
        assert!(matches!(Jacobi::<f64>::partitioned(&nothing, &[0, 0]), Err(Error::Option { .. })));
        let large = matrices::stencil7(4).csr::<f64>().unwrap();
        assert!(matches!(Jacobi::blocks(&large, 33), Err(Error::Option { .. })));
        assert!(matches!(Jacobi::blocks(&large, 0), Err(Error::Option { .. })));
        for accuracy in [-0.1, 1.0, f64::NAN] {
            let jacobi = Jacobi::blocks(&large, 4).unwrap();
            assert!(matches!(jacobi.rounded(accuracy), Err(Error::Option { .. })), "{accuracy}");
        }
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Jacobi::new(&wide), Err(Error::NotSquare { .. })));
    }
}
