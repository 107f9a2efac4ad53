//! Jacobi: `M` is the diagonal of `A`, or its small diagonal blocks.
//!
//! The diagonal is one vector, and its application is fused with whatever vector work stands beside it. Blocks suit nodes
//! with several unknowns: they take the coupling within a node into account, for `size` vectors instead of one. They are
//! inverted on all threads, each by Gauss-Jordan elimination with pivoting, in double precision.

use super::{check_space, check_square};
use crate::formats::pattern::Pattern;
use crate::formats::{BLOCK_SIZES, Source, row_blocks};
use crate::{Csr, Error, Format, HostSpace, HostVector, Real, Result};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::bsr::{AnyBsr, SLACK};
use krysp_kernels::cpu::dense::invert;
use krysp_kernels::cpu::rows::{self, Parts};
use krysp_kernels::cpu::threads::{self, ByRow};
use krysp_kernels::cpu::vector;
use krysp_kernels::index::{Columns, Offsets};
use krysp_solvers::{Element, LinearOperator, Space, Vector, check_spaces};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most rows of a block.
const LARGEST_BLOCK: usize = 32;

/// The inverse of a diagonal, or of diagonal blocks.
#[derive(Clone, Debug)]
pub struct Jacobi<T: Real> {
    inverse: Inverse<T>,
}

#[derive(Clone, Debug)]
enum Inverse<T: Real> {
    Diagonal(HostVector<T>),
    Blocks(Blocks<T>),
    Partition(Partition<T>),
}

/// Inverted diagonal blocks of any sizes: a matrix.
#[derive(Clone, Debug)]
struct Partition<T: Real> {
    matrix: Csr<T>,
    /// Where blocks begin, and the end.
    bounds: Vec<usize>,
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
        check_square("Jacobi", csr)?;
        let mut jacobi = Jacobi { inverse: Inverse::Diagonal(csr.source().domain().zeros()?) };
        jacobi.refresh(csr)?;
        Ok(jacobi)
    }

    /// The same in another space of as many unknowns: `Jacobi::new(&csr.in_space(space)?)` without a renumbered matrix, for
    /// operators that were renumbered where they are.
    ///
    /// ```
    /// use krysp::{Csr, Jacobi, LinearOperator, Numbering};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 0, 1.0), (1, 1, 4.0)])?;
    /// let renumbered = a.renumbered(&Numbering::from_old_of_new(vec![1, 0])?)?;
    /// let jacobi = Jacobi::in_space(&a, renumbered.domain())?;
    /// assert_eq!(jacobi.diagonal().unwrap().as_slice(), [0.25, 0.5]);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn in_space(csr: &Csr<T>, space: &HostSpace<T>) -> Result<Jacobi<T>> {
        let mut jacobi = Jacobi::new(csr)?;
        if let Inverse::Diagonal(inverse) = &mut jacobi.inverse
            && inverse.space() != space
        {
            let mut given = vec![T::zero(); csr.rows()];
            inverse.space().store(inverse, &mut given)?;
            *inverse = space.vector(&given)?;
        }
        Ok(jacobi)
    }

    /// From a diagonal in the user's numbering, for operators that are no [`Csr`].
    pub fn from_diagonal(diagonal: &[T]) -> Result<Jacobi<T>> {
        let mut inverse = HostSpace::new(diagonal.len()).zeros()?;
        invert_diagonal(diagonal, &mut inverse)?;
        Ok(Jacobi { inverse: Inverse::Diagonal(inverse) })
    }

    /// From the diagonal blocks of a size, up to 32; the last may be smaller. Blocks of 2, 3, 4 or 6 rows that leave no
    /// rest are applied fastest.
    pub fn blocks(csr: &Csr<T>, size: usize) -> Result<Jacobi<T>> {
        check_square("Jacobi", csr)?;
        if !BLOCK_SIZES.contains(&size) || !csr.rows().is_multiple_of(size) {
            return Jacobi::partitioned(csr, &even_bounds(csr.rows(), size));
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

    /// From given diagonal blocks: the row where each begins, and the number of rows. Each has 1 to 32 rows.
    pub fn partitioned(csr: &Csr<T>, bounds: &[usize]) -> Result<Jacobi<T>> {
        let pattern = block_pattern(csr, bounds)?;
        let (space, values) = (csr.source().domain(), Buffer::zeros(pattern.entries()));
        let matrix = Csr::from_source(Source::new(Arc::new(pattern), space.clone(), space.clone()), values);
        let partition = Partition { matrix, bounds: bounds.to_vec() };
        let mut jacobi = Jacobi { inverse: Inverse::Partition(partition) };
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

    /// The size of the blocks, 1 for the diagonal; of the largest where they differ.
    pub fn block_size(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(_) => 1,
            Inverse::Blocks(blocks) => blocks.size,
            Inverse::Partition(Partition { bounds, .. }) => {
                bounds.windows(2).map(|b| b[1] - b[0]).max().unwrap_or(1)
            }
        }
    }

    /// Whether blocks are of sizes that [`Bsr`](crate::Bsr) does not have.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_partition(&self) -> bool {
        matches!(self.inverse, Inverse::Partition(_))
    }

    /// The inverted blocks as a matrix in their space; none for a diagonal.
    #[cfg(feature = "cuda")]
    pub(crate) fn blocks_as_csr(&self) -> Result<Option<Csr<T>>> {
        let blocks = match &self.inverse {
            Inverse::Diagonal(_) => return Ok(None),
            Inverse::Partition(partition) => return Ok(Some(partition.matrix.clone())),
            Inverse::Blocks(blocks) => blocks,
        };
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
        check_space(csr, self.domain())?;
        match &mut self.inverse {
            Inverse::Diagonal(inverse) => invert_diagonal(&csr.diagonal_entries(), inverse),
            Inverse::Blocks(Blocks { size, values, .. }) => {
                let (size, count) = (*size, csr.rows() / *size);
                let values = &mut values[..csr.rows() * size];
                // column by column
                let place = |i: usize, j: usize, _: usize| j * size + i;
                invert_blocks(csr, count, &|block| block * size, values, &|block| block * size * size, &place)
            }
            Inverse::Partition(Partition { matrix, bounds }) => {
                let pattern = matrix.source().pattern.clone();
                let offset = |block: usize| pattern.offsets.at(bounds[block]);
                let place = |i: usize, j: usize, size: usize| i * size + j;
                let count = bounds.len() - 1;
                invert_blocks(csr, count, &|block| bounds[block], matrix.values_mut(), &offset, &place)
            }
        }
    }
}

/// Where full blocks that begin at these rows have entries; refuses bounds that are none.
pub(crate) fn block_pattern<T: Real>(csr: &Csr<T>, bounds: &[usize]) -> Result<Pattern> {
    check_square("Jacobi", csr)?;
    let n = csr.rows();
    let whole = bounds.first() == Some(&0) && bounds.last() == Some(&n);
    let odd = |b: &[usize]| b[1].checked_sub(b[0]).is_none_or(|size| !(1..=LARGEST_BLOCK).contains(&size));
    if let Some(wrong) = bounds.windows(2).find(|b| n > 0 && odd(b)).or((!whole).then_some(bounds)) {
        return Err(Error::Option {
            what: "the blocks",
            got: format!("{:?}", &wrong[..wrong.len().min(8)]),
            expected: "bounds that ascend from 0 to the number of rows, blocks of 1 to 32 rows",
        });
    }
    let (mut lengths, mut columns) = (Vec::with_capacity(n), vec![]);
    for block in bounds.windows(2) {
        for _ in block[0]..block[1] {
            lengths.push(block[1] - block[0]);
            columns.extend(block[0] as u32..block[1] as u32);
        }
    }
    Pattern::sorted(Offsets::from_lengths(lengths), columns, n)
}

/// The rows where blocks of a size begin, and the number of rows; none of size 0, which is refused.
pub(crate) fn even_bounds(rows: usize, size: usize) -> Vec<usize> {
    let starts = (0..rows).filter(|row| row.checked_rem(size) == Some(0));
    starts.chain([rows]).collect()
}

fn invert_diagonal<T: Real>(diagonal: &[T], inverse: &mut HostVector<T>) -> Result<()> {
    let wrong = |inverse: T| !Element::is_finite(inverse) || inverse.is_zero();
    if let Some(row) = threads::find_row(diagonal.len(), 1, &|row| wrong(T::one() / diagonal[row])) {
        return Err(Error::ZeroDiagonal { row, value: diagonal[row].to_f64() });
    }
    threads::over_rows(diagonal.len(), 2, inverse.as_mut_slice(), &|rows, inverse: &mut [T]| {
        inverse.iter_mut().zip(&diagonal[rows]).for_each(|(inverse, &entry)| *inverse = T::one() / entry);
    });
    Ok(())
}

/// Inverts blocks: block `k` has the rows from `bound(k)` on, and its values from `offset(k)` on, those of row `i` and
/// column `j` at `place(i, j, size)`. If blocks are singular, the first of them is reported.
fn invert_blocks<T: Real>(
    csr: &Csr<T>,
    count: usize,
    bound: &(impl Fn(usize) -> usize + Sync),
    values: &mut [T],
    offset: &(impl Fn(usize) -> usize + Sync),
    place: &(impl Fn(usize, usize, usize) -> usize + Sync),
) -> Result<()> {
    let singular = AtomicUsize::new(usize::MAX);
    let numbers = values.len();
    let tasks = threads::tasks(numbers).min(count);
    let share = |task: usize| task * count / tasks.max(1);
    threads::over_parts(tasks, &share, ByRow::new(values, offset), &|blocks, values: ByRow<'_, T>| {
        let (values, start) = values.all();
        let mut inverse = vec![];
        for block in blocks {
            let (first, end) = (bound(block), bound(block + 1));
            let size = end - first;
            inverse.clear();
            inverse.resize(size * size, 0.0);
            for (row, inverse) in (first..end).zip(inverse.chunks_mut(size)) {
                for (&column, value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                    if (first..end).contains(&(column as usize)) {
                        inverse[column as usize - first] = Element::to_f64(*value);
                    }
                }
            }
            if !invert(&mut inverse, size) {
                singular.fetch_min(block, Ordering::Relaxed);
                return;
            }
            let values = &mut values[offset(block) - start..];
            for i in 0..size {
                for j in 0..size {
                    values[place(i, j, size)] = T::from_f64(inverse[i * size + j]);
                }
            }
        }
    });
    let singular = singular.into_inner();
    if singular >= count {
        return Ok(());
    }
    Err(Error::SingularBlock { first: bound(singular), end: bound(singular + 1) })
}

impl<T: Real> Blocks<T> {
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
            Inverse::Partition(partition) => partition.matrix.domain(),
        }
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        match &self.inverse {
            Inverse::Diagonal(inverse) => vector::mul(inverse.as_slice(), x.as_slice(), y.as_mut_slice()),
            Inverse::Blocks(blocks) => {
                let parts = Parts::new(&blocks.parts);
                rows::product(&blocks.kernel(), parts, x.as_slice(), y.as_mut_slice());
            }
            Inverse::Partition(partition) => partition.matrix.apply(x, y)?,
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
            Inverse::Blocks(_) | Inverse::Partition(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        match &self.inverse {
            Inverse::Diagonal(inverse) => size_of_val(inverse.as_slice()),
            Inverse::Blocks(blocks) => size_of_val(&*blocks.values),
            Inverse::Partition(partition) => partition.matrix.bytes(),
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

    /// Blocks of every size, and of several, undo the products that they were taken from.
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
        let large = matrices::stencil7(4).csr::<f64>().unwrap();
        assert!(matches!(Jacobi::blocks(&large, 33), Err(Error::Option { .. })));
        assert!(matches!(Jacobi::blocks(&large, 0), Err(Error::Option { .. })));
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Jacobi::new(&wide), Err(Error::NotSquare { .. })));
    }
}
