//! Systems that determine their solution up to a null space that is known: pure Neumann problems up to a constant, floating
//! structures up to rigid motions.
//!
//! With orthonormal `Q` of the null space and `P = I − Q Qᵀ` the system solved is `A x = P b`, preconditioned by `P M⁻¹`:
//!
//! 1. The part `Q Qᵀ b`, which no `x` reaches, is taken out of `b` and reported.
//! 2. Every direction is a combination of preconditioned residuals, and so is orthogonal to the null space, as is `x`: of all
//!    solutions it is the shortest. Nothing drifts, however long the solve takes.
//! 3. On what is left `P M⁻¹` is symmetric and positive definite where `M` is, `A` is regular, and methods see neither zero
//!    eigenvalues nor anything else of the null space.
//!
//! `A` must map to zero what its transpose maps to zero, as symmetric matrices do.
//!
//! With `k` vectors a preconditioning costs two passes over them, `2 k + 3` vector words and a reduction more.

use crate::operator::check_square;
use crate::{
    Basis, ElemOf, Element, Error, Form, LinearOperator, Method, Result, Scalar, Solver, Space, SpaceOf,
    Vector,
};
use num_traits::Zero;
use std::sync::{Mutex, PoisonError};

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: Method<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Solves up to a null space: `A` maps these vectors, given in the user's numbering, to zero. What `b` has of them is
    /// taken out and [reported](crate::Report::removed), and `x` gets nothing of them.
    pub fn null_space<N: AsRef<[ElemOf<A::Vector>]>>(mut self, vectors: &[N]) -> Result<Self> {
        let some = !vectors.is_empty();
        self.null_space = some.then(|| NullSpace::new(&self.operator, vectors)).transpose()?;
        Ok(self)
    }
}

/// An orthonormal basis of a null space.
pub(crate) struct NullSpace<V: Vector> {
    space: SpaceOf<V>,
    count: usize,
    room: Mutex<Room<V>>,
}

struct Room<V: Vector> {
    basis: V::Basis,
    coefficients: Vec<V::Elem>,
}

impl<V: Vector> NullSpace<V> {
    fn new<A>(a: &A, vectors: &[impl AsRef<[V::Elem]>]) -> Result<Self>
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
            // as large in every entry, and of no null space
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
        Ok(NullSpace { space, count, room: Mutex::new(Room { basis, coefficients }) })
    }

    pub(crate) fn space(&self) -> &SpaceOf<V> {
        &self.space
    }

    /// The vectors that taking it out of one reads and writes.
    pub(crate) fn vectors(&self) -> usize {
        2 * self.count + 3
    }

    /// `v ← v − Q Qᵀ v`
    pub(crate) fn remove(&self, v: &mut V) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.basis.project(self.count, v);
        room.basis.subtract(self.count, v);
    }

    /// The norm of what was removed last.
    pub(crate) fn removed(&self) -> Result<f64> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let Room { basis, coefficients } = &mut *room;
        basis.coefficients(coefficients)?;
        Ok(coefficients.iter().fold(0.0, |norm: f64, c| norm.hypot(c.to_f64())))
    }
}

fn norm<V: Vector>(v: &V) -> Result<f64> {
    Ok(v.norm_squared().read()?.to_f64().sqrt())
}

/// `P M⁻¹`, or `M⁻¹` itself where there is no null space.
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
