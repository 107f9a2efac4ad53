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
    Basis, ElemOf, Element, Error, Form, LinearOperator, Method, MultiVector, Result, Scalar, ScalarOf,
    Solver, Space, SpaceOf, Vector,
};
use num_traits::Zero;
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

/// `P M⁻¹`, or `M⁻¹` if there is no null space.
pub(crate) struct Deflated<'s, V: Vector> {
    pub(crate) m: &'s dyn LinearOperator<Vector = V>,
    pub(crate) null_space: Option<&'s NullSpace<V>>,
}

impl<V: Vector> LinearOperator for Deflated<'_, V> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        self.m.domain()
    }

    fn range(&self) -> &SpaceOf<V> {
        self.m.range()
    }

    fn apply(&self, x: &V, y: &mut V) -> Result<()> {
        self.m.apply(x, y)?;
        if let Some(null_space) = self.null_space {
            null_space.remove(y);
        }
        Ok(())
    }

    fn apply_dot(&self, x: &V, y: &mut V) -> Result<V::Scalar> {
        if self.null_space.is_none() {
            return self.m.apply_dot(x, y);
        }
        self.apply(x, y)?;
        Ok(x.dot(y))
    }

    fn axpy_apply_dot(&self, a: &V::Scalar, q: &V, r: &mut V, z: &mut V) -> Result<[V::Scalar; 2]> {
        if self.null_space.is_none() {
            return self.m.axpy_apply_dot(a, q, r, z);
        }
        r.axpy(a, q);
        self.apply(r, z)?;
        Ok(r.dot_2(r, z))
    }

    fn apply_many(&self, x: &MultiVector<V>, y: &mut MultiVector<V>) -> Result<()> {
        self.m.apply_many(x, y)?;
        if let Some(null_space) = self.null_space {
            MultiVector::open_pairs(x, y)?.for_each(|(_, y)| null_space.remove(y));
        }
        Ok(())
    }

    fn apply_dot_many(&self, x: &MultiVector<V>, y: &mut MultiVector<V>) -> Result<ScalarOf<MultiVector<V>>> {
        if self.null_space.is_none() {
            return self.m.apply_dot_many(x, y);
        }
        check_square(self)?;
        self.apply_many(x, y)?;
        Ok(y.dot_with(x))
    }

    fn form(&self) -> Form<'_, V> {
        if self.null_space.is_none() { self.m.form() } else { Form::General }
    }

    fn bytes(&self) -> usize {
        self.m.bytes()
    }

    fn replays(&self) -> bool {
        self.m.replays()
    }
}
