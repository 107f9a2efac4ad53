//! Vectors, the spaces they live in, the scalars they reduce to, and bases made of them.

use crate::{Element, Result, Steps};
use num_traits::One;
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg};

/// The element type of a vector type.
pub type ElemOf<V> = <V as Vector>::Elem;
/// The scalar type of a vector type.
pub type ScalarOf<V> = <V as Vector>::Scalar;
/// How steps on vectors of a type are run.
pub type StepsOf<V> = <V as Vector>::Steps;
/// The space type of a vector type.
pub type SpaceOf<V> = <V as Vector>::Space;

/// What a reduction gives: a number in host memory, a slot in device memory, an all-reduced number between ranks.
///
/// Arithmetic on scalars may be lazy: products and quotients cost nothing anywhere, a sum or a root a launch on a GPU.
/// [`Scalar::read`] is the only call that waits for the hardware.
pub trait Scalar<T>:
    Clone + Send + From<T> + Neg<Output = Self> + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Copies a value into this scalar's place. State carried from one iteration to the next lives in fixed places, so
    /// that a recorded iteration can be replayed.
    fn assign(&mut self, value: &Self);

    /// The value, on the host.
    fn read(&self) -> Result<T>;

    /// `self / divisor`, and zero where both are zero.
    fn quotient(self, divisor: Self) -> Self;

    /// `√self`, of a real number.
    fn sqrt(self) -> Self;
}

impl<T: Element> Scalar<T> for T {
    fn assign(&mut self, value: &T) {
        *self = *value;
    }

    fn read(&self) -> Result<T> {
        Ok(*self)
    }

    fn quotient(self, divisor: T) -> T {
        if self.is_zero() && divisor.is_zero() { T::zero() } else { self / divisor }
    }

    fn sqrt(self) -> T {
        // rounded twice is rounded once here: a double holds more than twice the digits of a float
        T::from_f64(self.to_f64().sqrt())
    }
}

/// A space of vectors: in which memory they live, how long they are, and in which numbering.
///
/// Vectors and operators of equal spaces may mix; others may not.
pub trait Space: Clone + PartialEq + Debug + Send + Sync {
    /// The vectors of this space.
    type Vector: Vector<Space = Self>;

    /// The number of entries.
    fn len(&self) -> usize;

    /// Whether vectors of this space have no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A vector of zeros.
    fn zeros(&self) -> Result<Self::Vector>;

    /// Copies host data in, from the user's numbering to this space's.
    fn load(&self, host: &[ElemOf<Self::Vector>], into: &mut Self::Vector) -> Result<()>;

    /// Copies a vector out, back to the user's numbering.
    fn store(&self, from: &Self::Vector, host: &mut [ElemOf<Self::Vector>]) -> Result<()>;
}

/// A vector, wherever it lives.
///
/// Required methods come first; the provided ones are fusions whose default body is their specification: an
/// implementation may do the work in one pass, with the same result (bitwise in host memory, to rounding elsewhere).
/// Operations do not return errors: where work is asynchronous, the first error is kept and [`Scalar::read`] returns it.
pub trait Vector: Sized + Send + Sync {
    /// What it is made of.
    type Elem: Element;
    /// What its reductions give.
    type Scalar: Scalar<Self::Elem>;
    /// Where it lives.
    type Space: Space<Vector = Self>;
    /// A set of such vectors.
    type Basis: Basis<Self>;
    /// How steps of a solve on such vectors are run.
    type Steps: Steps<Self>;

    /// Where it lives.
    fn space(&self) -> &Self::Space;

    /// `self ← x`
    fn copy_from(&mut self, x: &Self);

    /// `self ← a x + b self`; `b = 0` overwrites, even NaN.
    fn axpby(&mut self, a: &Self::Scalar, x: &Self, b: &Self::Scalar);

    /// `⟨self, y⟩`
    fn dot(&self, y: &Self) -> Self::Scalar;

    /// Room for `count` vectors of this space.
    fn basis(space: &Self::Space, count: usize) -> Result<Self::Basis>;

    /// Negates about half of the entries, as if by chance: the same ones every time. A smooth vector becomes a rough one of
    /// the same size.
    fn flip_signs(&mut self) -> Result<()> {
        let space = self.space().clone();
        let mut entries = vec![Self::Elem::default(); space.len()];
        space.store(self, &mut entries)?;
        flip_signs(&mut entries, 0);
        space.load(&entries, self)
    }

    /// `self ← self + a x`
    fn axpy(&mut self, a: &Self::Scalar, x: &Self) {
        self.axpby(a, x, &Self::Elem::one().into());
    }

    /// `self ← x + b self`
    fn xpby(&mut self, x: &Self, b: &Self::Scalar) {
        self.axpby(&Self::Elem::one().into(), x, b);
    }

    /// `‖self‖²`
    fn norm_squared(&self) -> Self::Scalar {
        self.dot(self)
    }

    /// `[⟨self, y⟩, ⟨self, z⟩]`
    fn dot_2(&self, y: &Self, z: &Self) -> [Self::Scalar; 2] {
        [self.dot(y), self.dot(z)]
    }

    /// `self ← a x + b y + c self`
    fn axpbypcz(&mut self, a: &Self::Scalar, x: &Self, b: &Self::Scalar, y: &Self, c: &Self::Scalar) {
        self.axpby(a, x, c);
        self.axpy(b, y);
    }

    /// `self ← self + a x; [‖self‖², ⟨self, y⟩]`
    fn axpy_dot_2(&mut self, a: &Self::Scalar, x: &Self, y: &Self) -> [Self::Scalar; 2] {
        self.axpy(a, x);
        [self.norm_squared(), self.dot(y)]
    }

    /// `self ← self + a x; ‖self‖²`
    fn axpy_norm(&mut self, a: &Self::Scalar, x: &Self) -> Self::Scalar {
        self.axpy(a, x);
        self.norm_squared()
    }

    /// `self ← self + a p; p ← z + b p`: a solution moves along its direction, the direction turns.
    fn axpy_xpby(&mut self, a: &Self::Scalar, p: &mut Self, z: &Self, b: &Self::Scalar) {
        self.axpy(a, p);
        p.xpby(z, b);
    }
}

/// Negates about half of the entries, as if by chance: which ones depends on their places alone, counted from `first` on.
pub fn flip_signs<T: Element>(entries: &mut [T], first: usize) {
    for (place, entry) in (first as u64 + 1..).zip(entries) {
        if place.wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones() % 2 == 1 {
            *entry = -*entry;
        }
    }
}

/// The vectors of an Arnoldi process and the Hessenberg column being built. Its columns are never handed out by
/// reference, so that an implementation may store them compressed.
pub trait Basis<V: Vector>: Send {
    /// `v_j ← w / √norm²`
    fn push(&mut self, j: usize, w: &V, norm_squared: &V::Scalar) -> Result<()>;

    /// `w ← v_j`
    fn load(&self, j: usize, w: &mut V);

    /// `c ← V_kᵀ w` over the first `k` vectors.
    fn project(&mut self, k: usize, w: &V);

    /// `w ← w − V_k c`, with `c` of the last [`Basis::project`].
    fn subtract(&mut self, k: usize, w: &mut V);

    /// `w ← w − V_k c; c ← V_kᵀ w`
    fn subtract_project(&mut self, k: usize, w: &mut V) {
        self.subtract(k, w);
        self.project(k, w);
    }

    /// `w ← w − V_k c; ‖w‖²`
    fn subtract_norm(&mut self, k: usize, w: &mut V) -> V::Scalar {
        self.subtract(k, w);
        w.norm_squared()
    }

    /// Copies the last projection's `c` to the host.
    fn coefficients(&self, c: &mut [V::Elem]) -> Result<()>;

    /// Within a step: records the sum of the coefficients of [`Basis::project`] and of the [`Basis::subtract_project`]
    /// after it, after all other numbers.
    fn record(&self, k: usize, steps: &mut V::Steps) -> Result<()>;

    /// `x ← V_k y`, with `k` the length of `y`.
    fn combine(&mut self, y: &[V::Elem], x: &mut V) -> Result<()>;
}
