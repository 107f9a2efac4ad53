//! Wrappers of operators: every operation is that of the wrapped operator.

use crate::{Form, LinearOperator, MultiVector, Result, ScalarOf, SpaceOf};
use std::sync::Arc;

/// A linear operator that contains another one and multiplies as that does: a pointer to it, or a struct that
/// adds other functions.
///
/// It implements [`LinearOperator`] by forwarding every operation, including those with a default body.
/// Otherwise the wrapped operator would lose its fused operations. An operator that changes one operation
/// implements [`LinearOperator`] itself.
///
/// ```
/// use krysp::solvers::Wrapper;
/// use krysp::{Cg, Csr, gallery};
///
/// struct Stiffness {
///     matrix: Csr<f64>,
///     points: [usize; 2],
/// }
///
/// impl Wrapper for Stiffness {
///     type Inner = Csr<f64>;
///
///     fn inner(&self) -> &Csr<f64> {
///         &self.matrix
///     }
/// }
///
/// let points = [10, 12];
/// let stiffness = Stiffness { matrix: gallery::poisson(&points)?, points };
/// let solution = Cg::new(&stiffness).solve(&[1.0; 120])?;
/// assert_eq!(solution.x.len(), stiffness.points[0] * stiffness.points[1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Wrapper: Send + Sync {
    /// Type of the wrapped operator.
    type Inner: LinearOperator + ?Sized;

    /// The wrapped operator.
    fn inner(&self) -> &Self::Inner;
}

/// Clippy, which runs before each change lands, refuses this block if it lacks an operation.
#[deny(clippy::missing_trait_methods)]
impl<W: Wrapper> LinearOperator for W {
    type Vector = <W::Inner as LinearOperator>::Vector;

    fn domain(&self) -> &SpaceOf<Self::Vector> {
        self.inner().domain()
    }

    fn range(&self) -> &SpaceOf<Self::Vector> {
        self.inner().range()
    }

    fn apply(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
        self.inner().apply(x, y)
    }

    fn apply_dot(&self, x: &Self::Vector, y: &mut Self::Vector) -> Result<ScalarOf<Self::Vector>> {
        self.inner().apply_dot(x, y)
    }

    fn residual(&self, b: &Self::Vector, x: &Self::Vector, r: &mut Self::Vector) -> Result<()> {
        self.inner().residual(b, x, r)
    }

    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<Self::Vector>,
        q: &Self::Vector,
        r: &mut Self::Vector,
        z: &mut Self::Vector,
    ) -> Result<[ScalarOf<Self::Vector>; 2]> {
        self.inner().axpy_apply_dot(a, q, r, z)
    }

    fn apply_many(&self, x: &MultiVector<Self::Vector>, y: &mut MultiVector<Self::Vector>) -> Result<()> {
        self.inner().apply_many(x, y)
    }

    fn apply_dot_many(
        &self,
        x: &MultiVector<Self::Vector>,
        y: &mut MultiVector<Self::Vector>,
    ) -> Result<ScalarOf<MultiVector<Self::Vector>>> {
        self.inner().apply_dot_many(x, y)
    }

    fn form(&self) -> Form<'_, Self::Vector> {
        self.inner().form()
    }

    fn bytes(&self) -> usize {
        self.inner().bytes()
    }

    fn replays(&self) -> bool {
        self.inner().replays()
    }
}

/// The pointers `&A`, `Box<A>` and `Arc<A>` are wrappers of `A`.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<A: LinearOperator + ?Sized> Wrapper for $pointer {
            type Inner = A;

            fn inner(&self) -> &A {
                self
            }
        }
    )*};
}
pointers!(&A, Box<A>, Arc<A>);
