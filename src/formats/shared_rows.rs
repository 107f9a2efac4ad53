//! Distribution of a matrix's rows over threads.

use crate::host::{HostSpace, HostVector};
use crate::memory::check_free_memory;
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::rows::{self, Parts, RowProduct};
use krysp_kernels::cpu::run::threads::{self, CHUNK};
use krysp_kernels::cpu::run::tiles;
use krysp_kernels::index::OffsetsRef;
use krysp_kernels::ranges::even_parts;
use krysp_solvers::{BasicVector, Error, MultiVector, Scalars, Space};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Spaces of `x` and `y` of a matrix (length and order of unknowns), and the distribution of its rows over
/// threads.
#[derive(Clone, Debug)]
pub(crate) struct SharedRows<T> {
    domain: HostSpace<T>,
    range: HostSpace<T>,
    /// First row of each part (the rows of one task), and the end; all are boundaries of chunks (`CHUNK`
    /// rows).
    parts: Arc<[usize]>,
    /// Like `parts`, with boundaries of reduction blocks (several chunks, summed in a fixed order), for fused
    /// inner products; `None` if such parts would be too unbalanced, or if domain and range differ.
    block_parts: Option<Arc<[usize]>>,
    packed: Packed<T>,
}

/// Workspace of products with several vectors, kept for the next product; it has the largest size needed so
/// far.
struct Packed<T>(Mutex<Option<Buffer<T>>>);

/// A copy of the operator begins without workspace.
impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Packed(Mutex::new(None))
    }
}

impl<T> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packed")
    }
}

impl<T: Real> Packed<T> {
    /// Runs `work` with a workspace of at least `len` numbers, whose values are unspecified. If the workspace
    /// is in use by another product, allocates a temporary one.
    fn with<R>(&self, len: usize, work: impl FnOnce(&mut Buffer<T>) -> R) -> krysp_solvers::Result<R> {
        if len == 0 {
            return Ok(work(&mut Buffer::zeros(0)));
        }
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut packed = match kept.filter(|kept| kept.len() >= len) {
            Some(kept) => kept,
            None => {
                check_free_memory("a product of several vectors", (len * size_of::<T>()) as u128)?;
                Buffer::zeros(len)
            }
        };
        let result = work(&mut packed);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|kept| kept.len() < packed.len()) {
            *kept = Some(packed);
        }
        Ok(result)
    }
}

impl<T: Real> SharedRows<T> {
    pub(crate) fn new<'o>(
        offsets: impl Into<OffsetsRef<'o>>,
        domain: HostSpace<T>,
        range: HostSpace<T>,
    ) -> Self {
        let offsets = offsets.into();
        let (entries, rows) = (offsets.end(), offsets.ranges());
        let count = threads::tasks(entries + rows);
        let parts = even_parts(offsets, count, CHUNK);
        let block_parts = even_parts(offsets, count, threads::block_rows(rows));
        let heaviest = |bounds: &[usize]| {
            bounds.windows(2).map(|b| offsets.at(b[1]) - offsets.at(b[0])).max().unwrap_or(0)
        };
        let balanced = 4 * heaviest(&block_parts) <= 5 * heaviest(&parts) + 4 * CHUNK;
        let block_parts = (domain == range && balanced).then(|| block_parts.into());
        SharedRows { domain, range, parts: parts.into(), block_parts, packed: Packed(Mutex::new(None)) }
    }

    pub(crate) fn domain(&self) -> &HostSpace<T> {
        &self.domain
    }

    pub(crate) fn range(&self) -> &HostSpace<T> {
        &self.range
    }

    /// `y ← A x`
    pub(crate) fn product(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.check(x, y)?;
        rows::product(kernel, Parts::new(&self.parts), x.as_slice(), y.as_mut_slice());
        Ok(())
    }

    /// `y ← A x; ⟨x, y⟩`
    pub(crate) fn product_dot(
        &self,
        kernel: &impl RowProduct<T>,
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        let Some(parts) = &self.block_parts else {
            self.check_square()?;
            self.product(kernel, x, y)?;
            return Ok(x.dot(y));
        };
        self.check(x, y)?;
        Ok(rows::product_dot(kernel, Parts::new(parts), x.as_slice(), y.as_mut_slice()))
    }

    /// `Y ← A X`
    pub(crate) fn product_many(
        &self,
        kernel: &impl RowProduct<T>,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let len = tiles::packed_len(kernel, self.domain.len(), self.open_columns(x, y)?);
        let pairs = MultiVector::open_pairs(x, y)?.map(|(x, y)| (x.as_slice(), y.as_mut_slice()));
        self.packed.with(len, |packed| tiles::product_many(kernel, Parts::new(&self.parts), pairs, packed))
    }

    /// `Y ← A X` for `W` vectors stored row by row: one vector, or a group of [packed vectors](tiles).
    pub(crate) fn product_rows<const W: usize>(&self, kernel: &impl RowProduct<T>, x: &[T], y: &mut [T]) {
        let parts = Parts::new(&self.parts);
        if W == 1 { rows::product(kernel, parts, x, y) } else { tiles::product_tile(kernel, parts, x, y) }
    }

    /// `Y ← A X`; returns `⟨x_j, y_j⟩` for each column `j`.
    pub(crate) fn product_dot_many(
        &self,
        kernel: &impl RowProduct<T>,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, T>> {
        let Some(parts) = &self.block_parts else {
            self.check_square()?;
            self.product_many(kernel, x, y)?;
            return Ok(x.dot(y));
        };
        let count = self.open_columns(x, y)?;
        let len = tiles::packed_len(kernel, self.domain.len(), count);
        let mut sums = Scalars::<T, T>::new([]);
        let pairs = MultiVector::open_pairs(x, y)?.map(|(x, y)| (x.as_slice(), y.as_mut_slice()));
        self.packed.with(len, |packed| {
            tiles::product_dot_many(kernel, Parts::new(parts), pairs, packed, &mut sums);
        })?;
        Ok(y.scalars_of_open(sums.into_columns()))
    }

    /// Number of the open columns, whose solves have not ended; a product skips the others. Checks that they
    /// are in the operator's spaces.
    fn open_columns(
        &self,
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<usize> {
        MultiVector::open_pairs(x, y)?.try_fold(0, |count, (x, y)| self.check(x, y).map(|()| count + 1))
    }

    /// Checks that domain and range are equal, as an inner product of `x` and `A x` requires.
    pub(crate) fn check_square(&self) -> krysp_solvers::Result<()> {
        if self.domain == self.range {
            return Ok(());
        }
        Err(Error::NotSquare { rows: self.range.len(), columns: self.domain.len() })
    }

    /// Checks that the vectors are in the operator's spaces.
    pub(crate) fn check(&self, x: &HostVector<T>, y: &HostVector<T>) -> krysp_solvers::Result<()> {
        fits("`x`", x, "`A`'s columns", &self.domain)?;
        fits("`y`", y, "`A`'s rows", &self.range)
    }

    /// Checks that the vectors of a residual are in the operator's spaces.
    pub(super) fn check_residual(
        &self,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.check(x, r)?;
        fits("`b`", b, "`A`'s rows", &self.range)
    }
}

fn fits<T: Real>(
    what: &'static str,
    vector: &HostVector<T>,
    of: &'static str,
    space: &HostSpace<T>,
) -> krysp_solvers::Result<()> {
    if vector.space().len() != space.len() {
        return Err(Error::Size { what, got: vector.space().len(), of, expected: space.len() });
    }
    if vector.space() != space {
        return Err(Error::Space { what, than: "`A`" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_workspace_is_kept() {
        let packed = Packed::<f64>(Mutex::new(None));
        let kept = || packed.0.lock().unwrap().as_ref().map(|kept| kept.len());
        packed.with(8, |packed| assert_eq!(packed.len(), 8)).unwrap();
        packed.with(0, |packed| assert_eq!(packed.len(), 0)).unwrap();
        assert_eq!(kept(), Some(8));
        // two products at the same time; the larger one ends first
        packed.with(4, |_| packed.with(16, |_| ()).unwrap()).unwrap();
        assert_eq!(kept(), Some(16));
    }
}
