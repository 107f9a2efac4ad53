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
        Begins::new(csr)?.factors(csr, factorise)
    }

    /// The factors of `A'`.
    pub(super) fn inner(&self) -> &M {
        &self.inner
    }
}

/// What factorisations of a matrix begin with: the matching, and what has been made of a factorisation that was halted.
#[derive(Debug)]
pub(super) struct Begins<T: Real> {
    scaling: Scaling<T>,
    halted: Option<(Csr<T>, Begun<T>)>,
}

impl<T: Real> Begins<T> {
    /// Finds the matching.
    pub(super) fn new(csr: &Csr<T>) -> Result<Self> {
        check_square("a matching", csr)?;
        let scaling = match Matching::of(csr) {
            Ok(matching) => Scaling::matched(csr, &matching),
            // nothing to put on the whole diagonal
            Err(Error::Singular { .. }) => Scaling::equilibrated(csr),
            Err(error) => Err(error),
        }?;
        Ok(Begins { scaling, halted: None })
    }

    /// Factorises what the matching makes of the matrix.
    pub(super) fn factors<M>(
        &self,
        csr: &Csr<T>,
        factorise: impl Fn(&Csr<T>) -> Result<M> + Send + Sync + 'static,
    ) -> Result<Matched<T, M>> {
        let inner = factorise(&self.scaling.matrix(csr)?)?;
        Ok(Matched { scaling: self.scaling.clone(), inner, factorise: Box::new(factorise) })
    }

    /// Whether a complete factorization has been suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.halted.is_some()
    }

    /// Continues a complete factorization for so many multiplications. `None` if it is suspended after them.
    pub(super) fn go_on(&mut self, csr: &Csr<T>, most: f64) -> Result<Option<Matched<T, Lu<T>>>> {
        let (matrix, mut begun) = match self.halted.take() {
            Some(halted) => halted,
            None => {
                let matrix = self.scaling.matrix(csr)?;
                let begun = Begun::tolerant(&matrix)?;
                (matrix, begun)
            }
        };
        if begun.go_on(&matrix, most)? {
            let (scaling, inner) = (self.scaling.clone(), begun.whole());
            return Ok(Some(Matched { scaling, inner, factorise: Box::new(Lu::tolerant) }));
        }
        self.halted = Some((matrix, begun));
        Ok(None)
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
        let scaling = Begins::new(&csr)?.scaling;
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
