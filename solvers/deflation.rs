//! Systems whose solution is unique up to a known null space: pure Neumann problems up to a constant,
//! unconstrained structures up to rigid body modes.
//!
//! Let the columns of `Q` be an orthonormal basis of the null space, and `P = I − Q Qᵀ`. The system solved is
//! `A x = P b`, preconditioned by `P M⁻¹`:
//!
//! 1. No `x` can produce the component `Q Qᵀ b`. This component is removed from `b` and reported.
//! 2. Every direction is a combination of preconditioned residuals, so every direction, and `x` with it, is
//!    orthogonal to the null space. Of all solutions, `x` is the one with minimum norm. No component along
//!    the null space grows during a long solve.
//! 3. On the complement of the null space, `A` is nonsingular, and `P M⁻¹` is symmetric and positive definite
//!    if `M` is. Methods see no zero eigenvalues.
//!
//! `A` and its transpose must have the same null space, as symmetric matrices do.
//!
//! With `k` vectors, each preconditioning makes two more passes over these vectors: `2 k + 3` vectors read or
//! written, and one reduction.

use crate::operator::check_square;
use crate::{
    Basis, ElemOf, Element, Error, LinearOperator, Method, MultiVector, Result, Scalar, ScalarOf, Solver,
    Space, SpaceOf, Vector, Wrapper,
};
use num_traits::Zero;
use std::borrow::Borrow;
use std::sync::{Mutex, PoisonError};

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Declares the null space of `A`: vectors, in the user's order of unknowns, that `A` maps to zero. The
    /// component of `b` along the null space is removed and [reported](crate::Report::removed), and `x` has
    /// no such component.
    pub fn null_space<N: AsRef<[ElemOf<A::Vector>]>>(mut self, vectors: &[N]) -> Result<Self> {
        let some = !vectors.is_empty();
        self.driver.null_space = some.then(|| NullSpace::new(&self.operator, vectors)).transpose()?;
        Ok(self)
    }
}

/// Orthonormal basis of a null space. [`Solver::null_space`] creates one; used directly, it projects vectors,
/// for example in a preconditioner of a singular system.
pub struct NullSpace<V: Vector> {
    space: SpaceOf<V>,
    count: usize,
    projector: Mutex<Projector<V>>,
}

struct Projector<V: Vector> {
    basis: V::Basis,
    coefficients: Vec<V::Elem>,
}

impl<V: Vector> NullSpace<V> {
    /// Checks that an operator maps these vectors, in the user's order, to zero, and orthonormalizes them.
    pub fn new<A>(a: &A, vectors: &[impl AsRef<[V::Elem]>]) -> Result<Self>
    where
        A: LinearOperator<Vector = V>,
    {
        check_square(a)?;
        let (space, count) = (a.range().clone(), vectors.len());
        let mut basis = V::basis(&space, count)?;
        let [mut v, mut image] = [space.zeros()?, space.zeros()?];
        for (k, vector) in vectors.iter().enumerate() {
            let entries = vector.as_ref();
            if entries.len() != space.local_len() {
                let (got, expected) = (entries.len(), space.local_len());
                return Err(Error::Size { what: "a vector of the null space", got, of: "`A`", expected });
            }
            // `usual`: norm of `A v` for the vector with some signs flipped, which is not in the null space.
            // It shows how large `A v` is for entries of this size.
            space.load(entries, &mut v)?;
            v.flip_signs()?;
            a.apply(&v, &mut image)?;
            let usual = norm(&image)?;
            space.load(entries, &mut v)?;
            a.apply(&v, &mut image)?;
            let (image, whole) = (norm(&image)?, norm(&v)?);
            let rounding = V::Elem::EPSILON.sqrt();
            if image.is_nan() || image > rounding * usual {
                return Err(Error::NotNull { vector: k, image, usual });
            }
            basis.project(k, &v);
            basis.subtract_project(k, &mut v);
            let rest = basis.subtract_norm(k, &mut v);
            if rest.read()?.to_f64().sqrt() <= rounding * whole {
                return Err(Error::Dependent { vector: k });
            }
            basis.push(k, &v, &rest)?;
        }
        let coefficients = vec![V::Elem::zero(); count];
        Ok(NullSpace { space, count, projector: Mutex::new(Projector { basis, coefficients }) })
    }

    pub(crate) fn space(&self) -> &SpaceOf<V> {
        &self.space
    }

    /// Number of vectors that one call of `remove` reads and writes.
    pub(crate) fn vectors(&self) -> usize {
        2 * self.count + 3
    }

    /// `v ← v − Q Qᵀ v`
    pub fn remove(&self, v: &mut V) {
        let mut projector = self.projector.lock().unwrap_or_else(PoisonError::into_inner);
        projector.basis.project(self.count, v);
        projector.basis.subtract(self.count, v);
    }

    /// Norm of the component that the last call of `remove` removed.
    pub(crate) fn removed(&self) -> Result<f64> {
        let mut projector = self.projector.lock().unwrap_or_else(PoisonError::into_inner);
        let Projector { basis, coefficients } = &mut *projector;
        basis.coefficients(coefficients)?;
        Ok(coefficients.iter().fold(0.0, |norm: f64, c| norm.hypot(c.to_f64())))
    }
}

fn norm<V: Vector>(v: &V) -> Result<f64> {
    Ok(v.norm_squared().read()?.to_f64().sqrt())
}

/// The preconditioner `P M⁻¹`, where `P` removes the component in a null space. Search directions are
/// combinations of preconditioned residuals, so they stay orthogonal to the null space.
///
/// [`Solver::null_space`] does more: it also removes the null space from `b`, and reports what it removed.
pub struct Deflated<M, N> {
    m: M,
    null_space: N,
}

impl<M: LinearOperator, N: Borrow<NullSpace<M::Vector>>> Deflated<M, N> {
    /// Applies `m`, then removes the component in the null space, which may be owned or borrowed. Returns an error if
    /// that has vectors of another space.
    pub fn new(m: M, null_space: N) -> Result<Self> {
        if m.range() != null_space.borrow().space() {
            return Err(Error::Space { what: "the null space", than: "`M`" });
        }
        Ok(Deflated { m, null_space })
    }

    /// The preconditioner `M⁻¹`, without the projection.
    pub fn inner(&self) -> &M {
        &self.m
    }

    /// Mutable access to `M⁻¹`, to refresh its values.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.m
    }
}

/// The preconditioner of a solve: `P M⁻¹` if a null space was declared, else `M⁻¹`.
pub(crate) enum Preconditioner<'s, V: Vector> {
    Given(&'s dyn LinearOperator<Vector = V>),
    Deflated(Deflated<&'s dyn LinearOperator<Vector = V>, &'s NullSpace<V>>),
}

impl<'s, V: Vector> Preconditioner<'s, V> {
    pub(crate) fn new(m: &'s dyn LinearOperator<Vector = V>, null_space: Option<&'s NullSpace<V>>) -> Self {
        match null_space {
            Some(null_space) => Preconditioner::Deflated(Deflated { m, null_space }),
            None => Preconditioner::Given(m),
        }
    }
}

impl<'s, V: Vector> Wrapper for Preconditioner<'s, V> {
    type Inner = dyn LinearOperator<Vector = V> + 's;

    fn inner(&self) -> &Self::Inner {
        match self {
            Preconditioner::Given(m) => *m,
            Preconditioner::Deflated(m) => m,
        }
    }
}

impl<M: LinearOperator, N: Borrow<NullSpace<M::Vector>> + Send + Sync> LinearOperator for Deflated<M, N> {
    type Vector = M::Vector;

    fn domain(&self) -> &SpaceOf<M::Vector> {
        self.m.domain()
    }

    fn range(&self) -> &SpaceOf<M::Vector> {
        self.m.range()
    }

    fn apply(&self, x: &M::Vector, y: &mut M::Vector) -> Result<()> {
        self.m.apply(x, y)?;
        self.null_space.borrow().remove(y);
        Ok(())
    }

    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<M::Vector>,
        q: &M::Vector,
        r: &mut M::Vector,
        z: &mut M::Vector,
    ) -> Result<[ScalarOf<M::Vector>; 2]> {
        r.axpy(a, q);
        self.apply(r, z)?;
        Ok(r.dot_2(r, z))
    }

    fn apply_many(&self, x: &MultiVector<M::Vector>, y: &mut MultiVector<M::Vector>) -> Result<()> {
        self.m.apply_many(x, y)?;
        MultiVector::open_pairs(x, y)?.for_each(|(_, y)| self.null_space.borrow().remove(y));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.m.bytes()
    }

    fn replays(&self) -> bool {
        self.m.replays()
    }
}
