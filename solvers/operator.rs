//! Linear operators between vector spaces ([`Space`]: memory, length and order of unknowns).

use crate::{BasicVector, ElemOf, Element, Error, MultiVector, Result, ScalarOf, Space, SpaceOf, Vector};

/// Structure of an operator, if known; methods may use it for a faster path.
pub enum Form<'a, V: Vector> {
    /// No structure is known.
    General,
    /// `y = x`.
    Identity,
    /// `y = d ∘ x`: a diagonal matrix.
    Diagonal(&'a V),
    /// A structure that kernels of the operator's hardware support; see [`BasicVector::Native`](crate::BasicVector::Native).
    Native(&'a V::Native),
    /// `y = d ∘ x + C x`: a diagonal, plus a structure `C` that kernels of the operator's hardware support.
    DiagonalAnd(&'a V, &'a V::Native),
}

/// A linear operator `y = A x`: a matrix in some format, a function, a preconditioner `M⁻¹`.
///
/// The trait is object safe: `Box<dyn LinearOperator<Vector = V>>` is a format chosen at run time. `apply`
/// may fail, for example in a closure or an inner solve. The provided methods are fused operations; the
/// default body of each is its specification. A type that contains an operator and has the same products
/// implements [`Wrapper`](crate::Wrapper) instead, so that it has the fused operations, too.
pub trait LinearOperator: Send + Sync {
    /// The type of the vectors.
    type Vector: Vector;

    /// Space of `x`: its memory, length and order of unknowns.
    fn domain(&self) -> &SpaceOf<Self::Vector>;

    /// Space of `y`: its memory, length and order of unknowns.
    fn range(&self) -> &SpaceOf<Self::Vector> {
        self.domain()
    }

    /// `y ← A x`
    #[doc(alias = "spmv")]
    #[doc(alias = "matvec")]
    fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;

    /// `y ← A x; ⟨x, y⟩`, for `x` and `y` in one space.
    fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<ScalarOf<Self::Vector>> {
        check_square(self)?;
        self.apply(x, y)?;
        Ok(x.dot(y))
    }

    /// `r ← b − A x`, computed precisely. Matrices accumulate in twice the working precision, because a tiny
    /// residual would be lost in the rounding errors of a plain product. The driver uses this to verify a
    /// solution near the rounding limit. May take as long as ten products.
    fn residual(&self, b: &Self::Vector, x: &Self::Vector, r: &mut Self::Vector) -> Result<()> {
        plain_residual(self, b, x, r)
    }

    /// `r ← r + a q; z ← A r; [‖r‖², ⟨r, z⟩]`, for `r` and `z` in one space. Within a step `r` is the
    /// residual: if its norm meets the threshold, `z` may be left unchanged.
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

    /// `Y ← A X`, for several vectors that are multiplied together: the entries of a matrix may be read once
    /// for all of them.
    #[doc(alias = "spmm")]
    fn apply_many(&self, x: &MultiVector<Self::Vector>, y: &mut MultiVector<Self::Vector>) -> Result<()> {
        MultiVector::open_pairs(x, y)?.try_for_each(|(x, y)| self.apply(x, y))
    }

    /// `Y ← A X`, and the inner product of each column of `X` with that of `Y`.
    fn apply_dot_many(
        &self,
        x: &MultiVector<Self::Vector>,
        y: &mut MultiVector<Self::Vector>,
    ) -> Result<ScalarOf<MultiVector<Self::Vector>>> {
        check_square(self)?;
        self.apply_many(x, y)?;
        Ok(y.dot_with(x))
    }

    /// Structure of the operator, if known.
    fn form(&self) -> Form<'_, Self::Vector> {
        Form::General
    }

    /// Bytes of the operator's arrays that one application reads, without vectors; zero if unknown.
    fn bytes(&self) -> usize {
        0
    }

    /// Returns whether every application queues the same work on the GPU, so that the work can be recorded and
    /// replayed. In host memory the result has no meaning.
    fn replays(&self) -> bool {
        false
    }
}

/// `r ← b − A x` with one product: the default of [`LinearOperator::residual`].
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

/// Returns an error unless `x` is in the domain of the operator and `y` in its range. For implementations of
/// [`LinearOperator::apply`].
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

/// Returns an error unless domain and range are equal.
pub(crate) fn check_square<A: LinearOperator + ?Sized>(a: &A) -> Result<()> {
    let (domain, range) = (a.domain(), a.range());
    if domain == range {
        return Ok(());
    }
    Err(Error::NotSquare { rows: range.len(), columns: domain.len() })
}

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

/// `y = d ∘ x`: a diagonal matrix, in any memory. With the reciprocals of a matrix's diagonal as `d` this is
/// the Jacobi preconditioner.
#[derive(Clone, Debug)]
pub struct Diagonal<V: Vector> {
    diagonal: V,
}

impl<V: Vector> Diagonal<V> {
    /// Creates the matrix with this diagonal.
    pub fn new(diagonal: V) -> Self {
        Diagonal { diagonal }
    }

    /// The diagonal.
    pub fn diagonal(&self) -> &V {
        &self.diagonal
    }

    /// Mutable access to the diagonal, to refresh its values.
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

/// A matrix-free operator: a function that computes `y ← A x`. It is called only with vectors of the given
/// spaces.
#[derive(Clone, Debug)]
pub struct OperatorFn<V: Vector, F> {
    domain: SpaceOf<V>,
    range: SpaceOf<V>,
    function: F,
}

impl<V: Vector, F: Fn(&V, &mut V) -> Result<()> + Send + Sync> OperatorFn<V, F> {
    /// Wraps `function`, which maps `domain` to `range`.
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
