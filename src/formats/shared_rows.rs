//! Distribution of a matrix's rows over threads.

use crate::{HostSpace, HostVector, Real, partition};
use krysp_kernels::cpu::run::rows::{self, Parts, RowProduct};
use krysp_kernels::cpu::run::threads::{self, CHUNK};
use krysp_kernels::index::OffsetsRef;
use krysp_solvers::{Error, Space, Vector};
use std::sync::Arc;

/// Spaces of a matrix, and the distribution of its rows over threads.
#[derive(Clone, Debug)]
pub(crate) struct SharedRows<T> {
    domain: HostSpace<T>,
    range: HostSpace<T>,
    /// Boundaries of parts, at chunks.
    parts: Arc<[usize]>,
    /// Boundaries of parts at the reduction blocks of vectors, if these parts are balanced well enough for a
    /// fused inner product.
    block_parts: Option<Arc<[usize]>>,
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
        let parts = partition::even_parts(offsets, count, CHUNK);
        let block_parts = partition::even_parts(offsets, count, threads::block_rows(rows));
        let heaviest = |bounds: &[usize]| {
            bounds.windows(2).map(|b| offsets.at(b[1]) - offsets.at(b[0])).max().unwrap_or(0)
        };
        let balanced = 4 * heaviest(&block_parts) <= 5 * heaviest(&parts) + 4 * CHUNK;
        let block_parts = (domain == range && balanced).then(|| block_parts.into());
        SharedRows { domain, range, parts: parts.into(), block_parts }
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
