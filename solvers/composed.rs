//! The composition of two operators.

use crate::{BasicVector, Error, LinearOperator, MultiVector, Result, Space, SpaceOf, with_workspace};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// `y = A (B x)`: for example a preconditioner in two factors, each in any format.
///
/// The intermediate vector `B x` is kept, so that an application allocates nothing, unless another one runs
/// at the same time.
pub struct Composed<A: LinearOperator, B> {
    outer: A,
    inner: B,
    between: Mutex<A::Vector>,
    /// `B X` of the latest application to several vectors.
    between_many: Mutex<Option<MultiVector<A::Vector>>>,
}

impl<A: LinearOperator, B: LinearOperator<Vector = A::Vector>> Composed<A, B> {
    /// Applies `inner`, then `outer`.
    pub fn new(outer: A, inner: B) -> Result<Composed<A, B>> {
        let (got, expected) = (outer.domain(), inner.range());
        if got.len() != expected.len() {
            let (what, of) = ("the outer operator's `x`", "the inner operator's `y`");
            return Err(Error::Size { what, got: got.len(), of, expected: expected.len() });
        }
        if got != expected {
            return Err(Error::Space { what: "the outer operator", than: "the inner operator's `y`" });
        }
        let between = Mutex::new(got.zeros()?);
        Ok(Composed { outer, inner, between, between_many: Mutex::new(None) })
    }

    /// The operator that is applied last.
    pub fn outer(&self) -> &A {
        &self.outer
    }

    /// The operator that is applied first.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Mutable access to both operators, the outer one first, to refresh their values. Their spaces must not
    /// change.
    pub fn factors_mut(&mut self) -> (&mut A, &mut B) {
        (&mut self.outer, &mut self.inner)
    }
}

impl<A: LinearOperator, B: LinearOperator<Vector = A::Vector>> LinearOperator for Composed<A, B> {
    type Vector = A::Vector;

    fn domain(&self) -> &SpaceOf<A::Vector> {
        self.inner.domain()
    }

    fn range(&self) -> &SpaceOf<A::Vector> {
        self.outer.range()
    }

    fn apply(&self, x: &A::Vector, y: &mut A::Vector) -> Result<()> {
        with_workspace(
            &self.between,
            || self.inner.range().zeros(),
            |between| {
                self.inner.apply(x, between)?;
                self.outer.apply(between, y)
            },
        )
    }

    fn apply_many(&self, x: &MultiVector<A::Vector>, y: &mut MultiVector<A::Vector>) -> Result<()> {
        let space = y.space().with_column_space(self.inner.range());
        // A concurrent application allocates its own vectors: waiting could deadlock on a thread pool.
        let kept = self.between_many.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut between = match kept {
            Some(between) if *between.space() == space => between,
            _ => space.zeros()?,
        };
        between.join(&space);
        let applied =
            self.inner.apply_many(x, &mut between).and_then(|()| self.outer.apply_many(&between, y));
        *self.between_many.lock().unwrap_or_else(PoisonError::into_inner) = Some(between);
        applied
    }

    fn bytes(&self) -> usize {
        self.outer.bytes() + self.inner.bytes()
    }

    fn replays(&self) -> bool {
        self.outer.replays() && self.inner.replays()
    }
}

impl<A: LinearOperator + fmt::Debug, B: fmt::Debug> fmt::Debug for Composed<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composed")
            .field("outer", &self.outer)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<A: LinearOperator + Clone, B: Clone> Clone for Composed<A, B>
where
    A::Vector: Clone,
{
    fn clone(&self) -> Self {
        let between = self.between.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Composed {
            outer: self.outer.clone(),
            inner: self.inner.clone(),
            between: Mutex::new(between),
            between_many: Mutex::new(None),
        }
    }
}
