//! A factorisation of a matrix whose rows a matching has ordered and scaled.
//!
//! Rows and columns of very different sizes, and zeros on the diagonal, are what factorisations fail on. With
//! `A' = R P A C` and `M' ≈ A'⁻¹`, what is applied is `C M' R P`: a preconditioner of `A` itself, so that residuals are those of
//! the system as it was given.

use crate::preconditioners::origin::{check_space, check_square};
use crate::saved::{Loaded, Reader, Saved, Writer};
use crate::{Csr, HostSpace, HostVector, Matching, Origin, Real, Refresh, Result, Scaling};
use krysp_solvers::{LinearOperator, Space, check_spaces};

/// What factorises a matrix.
type Factorise<T, M> = fn(&Csr<T>) -> Result<M>;

/// A factorisation of the matrix that a matching makes of another.
pub(super) struct Matched<T: Real, M> {
    scaling: Scaling<T>,
    inner: M,
    factorise: Factorise<T, M>,
}

impl<T: Real, M: Saved> Matched<T, M> {
    /// Saves all but how to factorise.
    pub(super) fn save(&self, to: &mut Writer<'_>) {
        self.scaling.save(to);
        self.inner.save(to);
    }

    /// Reads what was saved.
    pub(super) fn load(from: &mut Reader<'_>, factorise: Factorise<T, M>) -> Loaded<Self> {
        Ok(Matched { scaling: from.load()?, inner: from.load()?, factorise })
    }
}

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> Matched<T, M> {
    /// Finds the matching, and factorises what it makes of the matrix.
    pub(super) fn new(csr: &Csr<T>, factorise: Factorise<T, M>) -> Result<Self> {
        check_square("a matching", csr)?;
        let scaling = Scaling::matched(csr, &Matching::of(csr)?)?;
        let inner = factorise(&scaling.matrix(csr)?)?;
        Ok(Matched { scaling, inner, factorise })
    }
}

/// With a matching of its own: other values may need other entries on the diagonal.
impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> Refresh<T> for Matched<T, M> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, self.inner.domain())?;
        *self = Matched::new(&*a.in_host_memory()?, self.factorise)?;
        Ok(())
    }
}

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> LinearOperator for Matched<T, M> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.inner.domain()
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let space = self.domain();
        let mut host = vec![T::zero(); space.len()];
        space.store(r, &mut host)?;
        let mut scaled = space.zeros()?;
        space.load(&self.scaling.rhs(&host)?, &mut scaled)?;
        self.inner.apply(&scaled, z)?;
        space.store(z, &mut host)?;
        self.scaling.unscale(&mut host)?;
        space.load(&host, z)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
