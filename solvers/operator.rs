//! Linear maps between spaces.

use crate::{ElemOf, Element, Error, Result, ScalarOf, Space, SpaceOf, Vector};
use std::sync::Arc;

/// What an operator is, where more is known of it than its products: a method then does with less.
pub enum Form<'a, V: Vector> {
    /// Nothing more is known.
    General,
    /// `y = x`.
    Identity,
    /// `y = d ∘ x`: a diagonal matrix.
    Diagonal(&'a V),
    /// Something that kernels of its own hardware know; see [`Vector::Native`].
    Native(&'a V::Native),
    /// `y = d ∘ x + C x`: a diagonal, and something that kernels of its own hardware know.
    DiagonalAnd(&'a V, &'a V::Native),
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

    /// `r ← r + a q; z ← A r; [‖r‖², ⟨r, z⟩]`, where `r` and `z` live in one space.
    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<Self::Vector>,
        q: &Self::Vector,
        r: &mut Self::Vector,
        z: &mut Self::Vector,
    ) -> Result<[ScalarOf<Self::Vector>; 2]> {
        let rr = r.axpy_norm(a, q);
        Ok([rr, self.apply_dot(r, z)?])
    }

    /// What it is, where more is known of it than its products.
    fn form(&self) -> Form<'_, Self::Vector> {
        Form::General
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

            fn form(&self) -> Form<'_, A::Vector> {
                (**self).form()
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

    fn form(&self) -> Form<'_, V> {
        Form::Identity
    }

    fn replays(&self) -> bool {
        true
    }
}

/// `y = d ∘ x`: a diagonal matrix, in whatever memory `d` lives. With the inverse of a matrix's diagonal as `d` it is
/// Jacobi's preconditioner.
#[derive(Clone, Debug)]
pub struct Diagonal<V: Vector> {
    diagonal: V,
}

impl<V: Vector> Diagonal<V> {
    /// The matrix with this diagonal.
    pub fn new(diagonal: V) -> Self {
        Diagonal { diagonal }
    }

    /// The diagonal.
    pub fn diagonal(&self) -> &V {
        &self.diagonal
    }

    /// The diagonal, to give it new values.
    pub fn diagonal_mut(&mut self) -> &mut V {
        &mut self.diagonal
    }
}

impl<V: Vector> LinearOperator for Diagonal<V> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        self.diagonal.space()
    }

    fn apply(&self, x: &V, y: &mut V) -> Result<()> {
        check_spaces(self, x, y)?;
        y.multiply(&self.diagonal, x);
        Ok(())
    }

    fn apply_dot(&self, x: &V, y: &mut V) -> Result<V::Scalar> {
        check_spaces(self, x, y)?;
        Ok(y.multiply_dot(&self.diagonal, x))
    }

    fn axpy_apply_dot(&self, a: &V::Scalar, q: &V, r: &mut V, z: &mut V) -> Result<[V::Scalar; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        Ok(r.axpy_multiply_dot(a, q, &self.diagonal, z))
    }

    fn form(&self) -> Form<'_, V> {
        Form::Diagonal(&self.diagonal)
    }

    fn bytes(&self) -> usize {
        self.domain().local_len() * size_of::<V::Elem>()
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
