//! A factorisation of a matrix whose rows a matching has ordered and scaled.
//!
//! Rows and columns of very different sizes, and zeros on the diagonal, are what factorisations fail on. With
//! `A' = R P A C` and `M' ≈ A'⁻¹`, what is applied is `C M' R P`: a preconditioner of `A` itself, so that residuals are those of
//! the system as it was given.

use crate::preconditioners::PartialLu;
use crate::preconditioners::matrix_source::{check_space, check_square};
use crate::saved::{Loaded, Reader, Saved, Writer};
use crate::{Csr, Error, HostSpace, HostVector, Lu, Matching, MatrixSource, Real, Refresh, Result, Scaling};
use krysp_solvers::{LinearOperator, Space, check_spaces};

/// What factorises a matrix.
type Factorise<T, M> = Box<dyn Fn(&Csr<T>) -> Result<M> + Send + Sync>;

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
    pub(super) fn load(
        from: &mut Reader<'_>,
        factorise: impl Fn(&Csr<T>) -> Result<M> + Send + Sync + 'static,
    ) -> Loaded<Self> {
        Ok(Matched { scaling: from.load()?, inner: from.load()?, factorise: Box::new(factorise) })
    }
}

/// What factorizations of a matrix leave to each other: its matching, and a complete factorization that is suspended.
#[derive(Debug, Default)]
pub(super) struct Begins<T: Real> {
    scaling: Option<Scaling<T>>,
    suspended: Option<PartialLu<T>>,
}

impl<T: Real> Begins<T> {
    /// Factorizes what the matching makes of the matrix.
    pub(super) fn factors<M>(
        &mut self,
        csr: &Csr<T>,
        factorise: impl Fn(&Csr<T>) -> Result<M> + Send + Sync + 'static,
    ) -> Result<Matched<T, M>> {
        let scaling = match self.scaling.take() {
            Some(scaling) => scaling,
            None => matched(csr)?,
        };
        let scaling = self.scaling.insert(scaling).clone();
        let inner = factorise(&scaling.matrix(csr)?)?;
        Ok(Matched { scaling, inner, factorise: Box::new(factorise) })
    }

    /// Whether a complete factorization has been suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Continues a complete factorization for so many multiplications. `None` if it is suspended after them.
    pub(super) fn go_on(&mut self, csr: &Csr<T>, most: f64) -> Result<Option<Lu<T>>> {
        let mut partial = self.suspended.take().map_or_else(|| PartialLu::tolerant(csr), Ok)?;
        if partial.go_on(csr, most)? {
            return Ok(Some(partial.whole()));
        }
        self.suspended = Some(partial);
        Ok(None)
    }
}

/// The scaling by a maximum-product matching.
fn matched<T: Real>(csr: &Csr<T>) -> Result<Scaling<T>> {
    check_square("a matching", csr)?;
    match Matching::of(csr) {
        Ok(matching) => Scaling::matched(csr, &matching),
        // nothing to put on the whole diagonal
        Err(Error::Singular { .. }) => Scaling::equilibrated(csr),
        Err(error) => Err(error),
    }
}

/// With a separate matching: other values may need other entries on the diagonal.
impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> Refresh<T> for Matched<T, M> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.inner.domain())?;
        let csr = a.in_host_memory()?;
        let scaling = matched(&csr)?;
        self.inner = (self.factorise)(&scaling.matrix(&csr)?)?;
        self.scaling = scaling;
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
