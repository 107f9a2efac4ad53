//! A factorisation of a matrix whose rows a matching has ordered and scaled.
//!
//! Rows and columns of very different sizes, and zeros on the diagonal, are what factorisations fail on. With
//! `A' = R P A C` and `M' ≈ A'⁻¹`, what is applied is `C M' R P`: a preconditioner of `A` itself, so that residuals are those of
//! the system as it was given.

use crate::preconditioners::Begun;
use crate::preconditioners::origin::{check_space, check_square};
use crate::saved::{Loaded, Reader, Saved, Writer};
use crate::{Cg, Csr, Error, HostSpace, HostVector, Lu, Matching, Origin, Real, Refresh, Result, Scaling};
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

impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> Matched<T, M> {
    /// Finds the matching, and factorises what it makes of the matrix.
    pub(super) fn new(
        csr: &Csr<T>,
        factorise: impl Fn(&Csr<T>) -> Result<M> + Send + Sync + 'static,
    ) -> Result<Self> {
        check_square("a matching", csr)?;
        let (scaling, inner) = factors(csr, &factorise)?;
        Ok(Matched { scaling, inner, factorise: Box::new(factorise) })
    }

    /// The factors of `A'`.
    pub(super) fn inner(&self) -> &M {
        &self.inner
    }
}

fn scaling<T: Real>(csr: &Csr<T>) -> Result<Scaling<T>> {
    match Matching::of(csr) {
        Ok(matching) => Scaling::matched(csr, &matching),
        // nothing to put on the whole diagonal
        Err(Error::Singular { .. }) => Scaling::equilibrated(csr),
        Err(error) => Err(error),
    }
}

fn factors<T: Real, M>(csr: &Csr<T>, factorise: impl Fn(&Csr<T>) -> Result<M>) -> Result<(Scaling<T>, M)> {
    let scaling = scaling(csr)?;
    let inner = factorise(&scaling.matrix(csr)?)?;
    Ok((scaling, inner))
}

/// A factorisation that was halted, as it took too long, and what a matching has made of the matrix.
#[derive(Debug)]
pub(super) struct Halted<T: Real> {
    scaling: Scaling<T>,
    matrix: Csr<T>,
    begun: Begun<T>,
}

impl<T: Real> Halted<T> {
    /// In which nothing is factorised yet.
    pub(super) fn new(csr: &Csr<T>) -> Result<Self> {
        check_square("a matching", csr)?;
        let scaling = scaling(csr)?;
        let matrix = scaling.matrix(csr)?;
        let begun = Begun::tolerant(&matrix)?;
        Ok(Halted { scaling, matrix, begun })
    }

    /// Goes on for so many multiplications. Returns whether it is whole.
    pub(super) fn go_on(&mut self, most: f64) -> Result<bool> {
        self.begun.go_on(&self.matrix, most)
    }

    /// The factorisation, once it is whole.
    pub(super) fn whole(self) -> Matched<T, Lu<T>> {
        let Halted { scaling, begun, .. } = self;
        Matched { scaling, inner: begun.whole(), factorise: Box::new(Lu::tolerant) }
    }
}

impl<T: Real> Matched<T, Lu<T>> {
    /// The part of `b` that no `A x` has anything of: `Nᵀ (N Nᵀ)⁻¹ N b`, where the rows of `N` span all `v` with `vᵀ A = 0`.
    pub(super) fn unreachable(&self, b: &HostVector<T>) -> Result<HostVector<T>> {
        let few = HostSpace::new(self.inner.missing());
        let mut w = few.zeros()?;
        let rhs = few.vector(&self.missed(b)?)?;
        Cg::new(Gram { factors: self, few }).rtol(T::EPSILON).solve_into(&rhs, &mut w)?;
        self.missed_transposed(w.as_slice())
    }

    /// `N b`.
    fn missed(&self, b: &HostVector<T>) -> Result<Vec<T>> {
        let space = self.inner.domain();
        let mut host = vec![T::zero(); space.len()];
        space.store(b, &mut host)?;
        Ok(self.inner.missed(space.vector(&self.scaling.rhs(&host)?)?.as_slice()))
    }

    /// `Nᵀ w`.
    fn missed_transposed(&self, w: &[T]) -> Result<HostVector<T>> {
        let space = self.inner.domain();
        let mut v = space.zeros()?;
        v.as_mut_slice().copy_from_slice(&self.inner.missed_transposed(w));
        let mut host = vec![T::zero(); space.len()];
        space.store(&v, &mut host)?;
        Ok(space.vector(&self.scaling.rhs_transposed(&host)?)?)
    }
}

/// `N Nᵀ`.
struct Gram<'a, T: Real> {
    factors: &'a Matched<T, Lu<T>>,
    few: HostSpace<T>,
}

impl<T: Real> LinearOperator for Gram<'_, T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.few
    }

    fn apply(&self, w: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, w, y)?;
        let v = self.factors.missed_transposed(w.as_slice())?;
        y.as_mut_slice().copy_from_slice(&self.factors.missed(&v)?);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.factors.bytes()
    }
}

/// With a matching of its own: other values may need other entries on the diagonal.
impl<T: Real, M: LinearOperator<Vector = HostVector<T>>> Refresh<T> for Matched<T, M> {
    fn refresh(&mut self, a: &dyn Origin<T>) -> Result<()> {
        check_space(a, self.inner.domain())?;
        let csr = a.in_host_memory()?;
        let (scaling, inner) = factors(&csr, &self.factorise)?;
        (self.scaling, self.inner) = (scaling, inner);
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
