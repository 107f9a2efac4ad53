//! Linear maps between spaces.

use crate::{ElemOf, Element, Error, Result, ScalarOf, Space, SpaceOf, StepsOf, Vector};
use std::any::Any;
use std::sync::Arc;

/// Conjugate gradients between two steps.
pub struct CgIterate<'s, V: Vector> {
    /// The inverse of the diagonal that preconditions; none without preconditioner.
    pub inverse: Option<&'s V>,
    /// What preconditions beside it, of a type that the hardware knows; see [`LinearOperator::corrected_diagonal`].
    pub correction: Option<&'s dyn Any>,
    /// The solution.
    pub x: &'s mut V,
    /// The residual.
    pub r: &'s mut V,
    /// The direction.
    pub p: &'s mut V,
    /// Room for the preconditioned residual.
    pub z: &'s mut V,
    /// `⟨r, z⟩`
    pub rho: &'s ScalarOf<V>,
    /// The names of `⟨r, z⟩` and `⟨p, A p⟩`, which must stay positive.
    pub watched: [&'static str; 2],
}

/// Conjugate gradients between two products: what is known, and what changes.
pub struct CgUpdate<'s, V: Vector> {
    /// The length of the step.
    pub alpha: &'s ScalarOf<V>,
    /// `⟨r, M⁻¹ r⟩` before it.
    pub rho: &'s ScalarOf<V>,
    /// The product of the direction.
    pub q: &'s V,
    /// The solution.
    pub x: &'s mut V,
    /// The residual.
    pub r: &'s mut V,
    /// The direction.
    pub p: &'s mut V,
    /// Room for the preconditioned residual: what it holds then is of no meaning.
    pub z: &'s mut V,
}

/// A linear map `y = A x`: a matrix in some format, a function, a preconditioner `M⁻¹`.
///
/// Object safe: `Box<dyn LinearOperator<Vector = V>>` is a format chosen at run time. `apply` may fail (closures, inner
/// solves, streaming). The provided methods are fusions whose default body is their specification.
pub trait LinearOperator: Send + Sync {
    /// The vectors it maps.
    type Vector: Vector;

    /// Where `x` lives.
    fn domain(&self) -> &SpaceOf<Self::Vector>;

    /// Where `y` lives.
    fn range(&self) -> &SpaceOf<Self::Vector> {
        self.domain()
    }

    /// `y ← A x`
    fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;

    /// `y ← A x; ⟨x, y⟩`, where both live in one space.
    fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<ScalarOf<Self::Vector>> {
        check_square(self)?;
        self.apply(x, y)?;
        Ok(x.dot(y))
    }

    /// `r ← b − A x`. Matrices whose entries are known add up in twice the precision, so that a residual that is next to
    /// nothing is not drowned in its own rounding: the last word on a solution. It may take as long as ten products.
    fn residual(&self, b: &Self::Vector, x: &Self::Vector, r: &mut Self::Vector) -> Result<()> {
        plain_residual(self, b, x, r)
    }

    /// `r ← r + a q; z ← A r; [‖r‖², ⟨r, z⟩]`: one pass where `A` is diagonal.
    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<Self::Vector>,
        q: &Self::Vector,
        r: &mut Self::Vector,
        z: &mut Self::Vector,
    ) -> Result<[ScalarOf<Self::Vector>; 2]> {
        r.axpy(a, q);
        let rz = self.apply_dot(r, z)?;
        Ok([r.norm_squared(), rz])
    }

    /// As a preconditioner of conjugate gradients: `r ← r − α q; z = A r; ρ' = ⟨r, z⟩;
    /// x ← x + α p; p ← z + ρ'/ρ p; [‖r‖², ρ']`.
    fn cg_update(&self, at: CgUpdate<'_, Self::Vector>) -> Result<[ScalarOf<Self::Vector>; 2]> {
        update_by_parts(self, at)
    }

    /// Queues up to `count` steps of conjugate gradients at once, preconditioned by a diagonal and what may correct it, where
    /// the hardware can run them without the host in between; says how many. They compute what single steps would, to
    /// rounding.
    fn cg_steps(
        &self,
        _at: CgIterate<'_, Self::Vector>,
        _steps: &mut StepsOf<Self::Vector>,
        _count: usize,
    ) -> Result<usize> {
        Ok(0)
    }

    /// The diagonal, where the operator is nothing else. Lets a fused kernel recognise Jacobi.
    fn diagonal(&self) -> Option<&Self::Vector> {
        None
    }

    /// The diagonal and what is added to it, where the operator is nothing else. Whoever runs whole steps looks whether it
    /// knows what that is.
    fn corrected_diagonal(&self) -> Option<(&Self::Vector, &dyn Any)> {
        None
    }

    /// Whether it is `y = x`: a method may then do without applying it.
    fn is_identity(&self) -> bool {
        false
    }

    /// Bytes of the operator itself that one application reads, vectors apart; zero where unknown.
    fn bytes(&self) -> usize {
        0
    }

    /// Whether every application queues the same work on its hardware, so that it may be recorded and replayed. Of no
    /// meaning in host memory.
    fn replays(&self) -> bool {
        false
    }
}

/// `r ← b − A x`, by a product: what [`LinearOperator::residual`] is where nothing better is known.
pub fn plain_residual<A: LinearOperator + ?Sized>(
    a: &A,
    b: &A::Vector,
    x: &A::Vector,
    r: &mut A::Vector,
) -> Result<()> {
    let one = ElemOf::<A::Vector>::from_f64(1.0);
    a.apply(x, r)?;
    r.axpby(&one.into(), b, &(-one).into());
    Ok(())
}

/// What [`LinearOperator::cg_update`] is, for those that fuse it only sometimes.
pub fn update_by_parts<A: LinearOperator + ?Sized>(
    a: &A,
    at: CgUpdate<'_, A::Vector>,
) -> Result<[ScalarOf<A::Vector>; 2]> {
    let CgUpdate { alpha, rho, q, x, r, p, z } = at;
    if a.is_identity() {
        let rr = r.axpy_norm(&-alpha.clone(), q);
        x.axpy_xpby(alpha, p, r, &(rr.clone() / rho.clone()));
        return Ok([rr.clone(), rr]);
    }
    let [rr, rho_next] = a.axpy_apply_dot(&-alpha.clone(), q, r, z)?;
    x.axpy_xpby(alpha, p, z, &(rho_next.clone() / rho.clone()));
    Ok([rr, rho_next])
}

/// Refuses vectors that do not live where the operator needs them. For implementations of [`LinearOperator::apply`].
pub fn check_spaces<A: LinearOperator + ?Sized>(a: &A, x: &A::Vector, y: &A::Vector) -> Result<()> {
    for (what, vector, of, space) in
        [("`x`", x, "`A`'s columns", a.domain()), ("`y`", y, "`A`'s rows", a.range())]
    {
        let (got, expected) = (vector.space().len(), space.len());
        if got != expected {
            return Err(Error::Size { what, got, of, expected });
        }
        if vector.space() != space {
            return Err(Error::Space { what, than: "`A`" });
        }
    }
    Ok(())
}

/// Refuses an operator between unequal spaces.
pub(crate) fn check_square<A: LinearOperator + ?Sized>(a: &A) -> Result<()> {
    let (domain, range) = (a.domain(), a.range());
    if domain == range {
        return Ok(());
    }
    Err(Error::NotSquare { rows: range.len(), columns: domain.len() })
}

/// Passes every method on, provided ones too: a boxed operator must not lose its fusions.
macro_rules! forward_to_inner {
    ($($pointer:ty),*) => {$(
        impl<A: LinearOperator + ?Sized> LinearOperator for $pointer {
            type Vector = A::Vector;

            fn domain(&self) -> &SpaceOf<A::Vector> {
                (**self).domain()
            }

            fn range(&self) -> &SpaceOf<A::Vector> {
                (**self).range()
            }

            fn apply(&self, x: &A::Vector, y: &mut A::Vector) -> Result<()> {
                (**self).apply(x, y)
            }

            fn apply_dot(&self, x: &A::Vector, y: &mut A::Vector) -> Result<ScalarOf<A::Vector>> {
                (**self).apply_dot(x, y)
            }

            fn residual(&self, b: &A::Vector, x: &A::Vector, r: &mut A::Vector) -> Result<()> {
                (**self).residual(b, x, r)
            }

            fn axpy_apply_dot(
                &self,
                a: &ScalarOf<A::Vector>,
                q: &A::Vector,
                r: &mut A::Vector,
                z: &mut A::Vector,
            ) -> Result<[ScalarOf<A::Vector>; 2]> {
                (**self).axpy_apply_dot(a, q, r, z)
            }

            fn cg_update(&self, at: CgUpdate<'_, A::Vector>) -> Result<[ScalarOf<A::Vector>; 2]> {
                (**self).cg_update(at)
            }

            fn cg_steps(
                &self,
                at: CgIterate<'_, A::Vector>,
                steps: &mut StepsOf<A::Vector>,
                count: usize,
            ) -> Result<usize> {
                (**self).cg_steps(at, steps, count)
            }

            fn diagonal(&self) -> Option<&A::Vector> {
                (**self).diagonal()
            }

            fn corrected_diagonal(&self) -> Option<(&A::Vector, &dyn Any)> {
                (**self).corrected_diagonal()
            }

            fn is_identity(&self) -> bool {
                (**self).is_identity()
            }

            fn bytes(&self) -> usize {
                (**self).bytes()
            }

            fn replays(&self) -> bool {
                (**self).replays()
            }
        }
    )*};
}
forward_to_inner!(&A, Box<A>, Arc<A>);

/// `y = x`: no preconditioner.
#[derive(Clone, Debug)]
pub struct Identity<V: Vector> {
    space: SpaceOf<V>,
}

impl<V: Vector> Identity<V> {
    /// The identity of a space.
    pub fn new(space: &SpaceOf<V>) -> Self {
        Identity { space: space.clone() }
    }
}

impl<V: Vector> LinearOperator for Identity<V> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        &self.space
    }

    fn apply(&self, x: &V, y: &mut V) -> Result<()> {
        check_spaces(self, x, y)?;
        y.copy_from(x);
        Ok(())
    }

    fn is_identity(&self) -> bool {
        true
    }

    fn replays(&self) -> bool {
        true
    }
}

/// A matrix-free operator: a function that computes `y ← A x`. It is called with vectors of its spaces only.
#[derive(Clone, Debug)]
pub struct OperatorFn<V: Vector, F> {
    domain: SpaceOf<V>,
    range: SpaceOf<V>,
    function: F,
}

impl<V: Vector, F: Fn(&V, &mut V) -> Result<()> + Send + Sync> OperatorFn<V, F> {
    /// The operator that `function` computes, from `domain` to `range`.
    pub fn new(domain: &SpaceOf<V>, range: &SpaceOf<V>, function: F) -> Self {
        OperatorFn { domain: domain.clone(), range: range.clone(), function }
    }
}

impl<V: Vector, F: Fn(&V, &mut V) -> Result<()> + Send + Sync> LinearOperator for OperatorFn<V, F> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        &self.domain
    }

    fn range(&self) -> &SpaceOf<V> {
        &self.range
    }

    fn apply(&self, x: &V, y: &mut V) -> Result<()> {
        check_spaces(self, x, y)?;
        (self.function)(x, y)
    }
}
