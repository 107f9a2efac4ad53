//! Vectors, their spaces, and the scalars that reductions return.

use crate::{Basis, Element, Error, Result, Steps};
use num_traits::{One, Zero};
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg};

/// The element type of a vector type.
pub type ElemOf<V> = <V as BasicVector>::Elem;
/// The scalar type of a vector type.
pub type ScalarOf<V> = <V as BasicVector>::Scalar;
/// The type that runs steps on vectors of a type.
pub type StepsOf<V> = <V as BasicVector>::Steps;
/// The space type of a vector type.
pub type SpaceOf<V> = <V as BasicVector>::Space;

/// Result of a reduction: a number in host memory, an address in device memory, or an all-reduced number of
/// several ranks.
///
/// Arithmetic on scalars may be lazy. Products and quotients are free; a sum or a square root costs a launch
/// on a GPU. Only [`Scalar::read`], [`Scalar::read_both`] and [`Scalar::read_all`] wait for the hardware.
pub trait Scalar<T>:
    Clone + Send + From<T> + Neg<Output = Self> + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Copies a value to the storage of this scalar. State that the next iteration reads must stay at fixed
    /// addresses, so that a recorded iteration can be replayed.
    fn assign(&mut self, value: &Self);

    /// Reads the value back to the host.
    fn read(&self) -> Result<T>;

    /// Reads two values back to the host, with a single wait if possible.
    fn read_both(&self, other: &Self) -> Result<[T; 2]> {
        Ok([self.read()?, other.read()?])
    }

    /// Reads several values back to the host, with a single wait if possible, and appends them to `to`.
    fn read_all<'s>(mut scalars: impl Iterator<Item = &'s Self>, to: &mut Vec<T>) -> Result<()>
    where
        Self: 's,
    {
        scalars.try_for_each(|scalar| {
            to.push(scalar.read()?);
            Ok(())
        })
    }

    /// `self / divisor`, or zero if both are zero.
    fn quotient(self, divisor: Self) -> Self;

    /// `√self`, for a real number.
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
        // Rounding the `f64` root to `f32` gives the correctly rounded `f32` root, because `f64` has more
        // than twice the digits.
        T::from_f64(self.to_f64().sqrt())
    }
}

/// A space of vectors: their memory, their length and their order of unknowns.
///
/// Only vectors and operators of equal spaces may be combined.
pub trait Space: Clone + PartialEq + Debug + Send + Sync {
    /// Vector type of this space.
    type Vector: Vector<Space = Self>;

    /// Number of entries of a vector, over all processes that share it.
    fn len(&self) -> usize;

    /// Number of entries that this process holds: the length of its slices `b` and `x` in a solve, and in
    /// `load` and `store`.
    fn local_len(&self) -> usize {
        self.len()
    }

    /// Largest `wish` of all processes that share the vectors (an all-reduce). The driver calls this before
    /// it acts on information that only one process has, so that all processes end after the same iteration.
    fn agree(&self, wish: u8) -> Result<u8> {
        Ok(wish)
    }

    /// Reports to the other processes that share the vectors that this one ends with an error, so that they
    /// do not wait for it.
    fn report_failure(&self, _error: &Error) {}

    /// Returns whether solves on this thread should end because of a request from outside the solver. Spaces whose
    /// vectors are shared by several processes return false.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Returns whether vectors of this space have no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocates a vector of zeros.
    fn zeros(&self) -> Result<Self::Vector>;

    /// Copies host data, in the user's order of unknowns, to a vector of this space.
    fn load(&self, host: &[ElemOf<Self::Vector>], into: &mut Self::Vector) -> Result<()>;

    /// Copies a vector of this space to the host, in the user's order of unknowns.
    fn store(&self, from: &Self::Vector, host: &mut [ElemOf<Self::Vector>]) -> Result<()>;
}

/// The operations that every memory must have for its vectors. [`Vector`] has those that follow from them.
///
/// Operations return no errors: if work is asynchronous, the first error is stored, and [`Scalar::read`]
/// returns it.
pub trait BasicVector: Sized + Send + Sync + 'static {
    /// Number type of the entries.
    type Elem: Element;
    /// Result type of reductions.
    type Scalar: Scalar<Self::Elem>;
    /// Type of the vector's space.
    type Space: Space<Vector = Self>;
    /// Basis of an Arnoldi process with such vectors: a [`Basis`], such as
    /// [`VectorBasis`](crate::VectorBasis), which suits every memory.
    type Basis;
    /// Type that runs the steps of a solve on such vectors: a [`Steps`], such as
    /// [`Immediate`](crate::Immediate), for a memory whose operations are complete when they return.
    type Steps;
    /// Structure that an operator may pass to kernels of this hardware by
    /// [`Form::Native`](crate::Form::Native); [`Infallible`](std::convert::Infallible) if there are no such
    /// kernels.
    type Native: ?Sized;

    /// The space of the vector.
    fn space(&self) -> &Self::Space;

    /// `self ← x`
    fn copy_from(&mut self, x: &Self);

    /// `self ← a x + b self`. `b = 0` overwrites old entries, even NaN.
    fn axpby(&mut self, a: &Self::Scalar, x: &Self, b: &Self::Scalar);

    /// `⟨self, y⟩`
    fn dot(&self, y: &Self) -> Self::Scalar;

    /// `self ← d ∘ x`, entry by entry.
    fn multiply(&mut self, d: &Self, x: &Self);

    /// Allocates a basis of up to `count` vectors of this space.
    fn basis(space: &Self::Space, count: usize) -> Result<Self::Basis>;
}

/// A vector in any memory, as methods use it: the operations of [`BasicVector`], and fused operations.
///
/// All methods are provided; the default body of each is its specification, in terms of [`BasicVector`]. So
/// `impl Vector for Mine {}` is enough to run every Krylov method on a new memory. A memory with faster
/// kernels does the same in one pass, with the same result: bitwise in host memory, up to rounding elsewhere.
pub trait Vector: BasicVector<Basis: Basis<Self>, Steps: Steps<Self>> {
    /// Calls `work`, which applies one operation to several vectors, such as the columns of a
    /// [`MultiVector`](crate::MultiVector). No operation reads a result of another one, so a GPU may fuse
    /// them into one launch.
    fn together<R>(_space: &Self::Space, work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Negates a pseudo-random half of the entries, the same ones every time. A smooth vector becomes an
    /// oscillatory one of the same norm.
    fn flip_signs(&mut self) -> Result<()> {
        let space = self.space().clone();
        let mut entries = vec![Self::Elem::default(); space.local_len()];
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

    /// `self ← self + a p; p ← z + b p`: updates the solution along its direction, then the direction.
    fn axpy_xpby(&mut self, a: &Self::Scalar, p: &mut Self, z: &Self, b: &Self::Scalar) {
        self.axpy(a, p);
        p.xpby(z, b);
    }

    /// `self ← d ∘ x; ⟨x, self⟩`
    fn multiply_dot(&mut self, d: &Self, x: &Self) -> Self::Scalar {
        self.multiply(d, x);
        x.dot(self)
    }

    /// `self ← self + a q; z ← d ∘ self; [‖self‖², ⟨self, z⟩]`
    fn axpy_multiply_dot(&mut self, a: &Self::Scalar, q: &Self, d: &Self, z: &mut Self) -> [Self::Scalar; 2] {
        let norm_squared = self.axpy_norm(a, q);
        [norm_squared, z.multiply_dot(d, self)]
    }

    /// Inner products `⟨x_i, y_j⟩` for `i ≤ j`, column by column: the upper triangle of `Xᵀ Y`, which must be
    /// symmetric. A single-pass implementation may sum in another order, the same every time. `products` is
    /// overwritten; its capacity serves as workspace.
    fn gram(x: &[Self], y: &[Self], products: &mut Vec<Self::Scalar>) {
        let columns = y.iter().enumerate();
        products.clear();
        products.extend(columns.flat_map(|(j, y)| x.iter().take(j + 1).map(move |x| x.dot(y))));
    }

    /// Inner products `⟨x_i, y_j⟩` of all pairs, column by column: the entries of `Xᵀ Y`. Otherwise like
    /// [`Vector::gram`].
    #[doc(alias = "block dot product")]
    fn dots(x: &[Self], y: &[Self], products: &mut Vec<Self::Scalar>) {
        products.clear();
        products.extend(y.iter().flat_map(|y| x.iter().map(move |x| x.dot(y))));
    }

    /// `Y ← Σ X C`, or, if `keep` is set, `Y ← Y + Σ X C`, over some terms with at least one vector in total.
    /// Without `keep`, old entries are overwritten, even NaN.
    #[doc(alias = "block axpy")]
    fn combine(y: &mut [Self], keep: bool, terms: &[Term<'_, Self>]) {
        let [zero, one] = [Self::Elem::zero(), Self::Elem::one()].map(Self::Scalar::from);
        let columns = y.len();
        for (j, y) in y.iter_mut().enumerate() {
            let mut old = if keep { &one } else { &zero };
            for Term { x, c } in terms {
                for (x, c) in x.iter().zip(c.iter().skip(j).step_by(columns)) {
                    y.axpby(&(*c).into(), x, old);
                    old = &one;
                }
            }
        }
    }

    /// The vector operations of conjugate gradients between two products, with a diagonal preconditioner:
    /// `r ← r − α q; z = d ∘ r; ρ' = ⟨r, z⟩; x ← x + α p; p ← z + ρ'/ρ p; [‖r‖², ρ']`.
    fn cg_update(at: CgUpdate<'_, Self>) -> [Self::Scalar; 2] {
        let CgUpdate { alpha, rho, q, d, x, r, p, z } = at;
        let [norm_squared, rho_next] = r.axpy_multiply_dot(&-alpha.clone(), q, d, z);
        x.axpy_xpby(alpha, p, z, &(rho_next.clone() / rho.clone()));
        [norm_squared, rho_next]
    }
}

/// Product `X C` of a block of vectors and a small matrix, for [`Vector::combine`].
pub struct Term<'t, V: Vector> {
    /// Vectors of `X`.
    pub x: &'t [V],
    /// Entries of `C`, row by row: a row for each vector of `x`, a column for each vector of the result.
    pub c: &'t [V::Elem],
}

/// The arguments of [`Vector::cg_update`].
pub struct CgUpdate<'s, V: Vector> {
    /// The step length `α`.
    pub alpha: &'s V::Scalar,
    /// `⟨r, d ∘ r⟩` before the update.
    pub rho: &'s V::Scalar,
    /// `A p`.
    pub q: &'s V,
    /// The diagonal of the preconditioner, which applies `M⁻¹`.
    pub d: &'s V,
    /// The solution.
    pub x: &'s mut V,
    /// The residual.
    pub r: &'s mut V,
    /// The direction.
    pub p: &'s mut V,
    /// Workspace. Its content afterwards has no meaning.
    pub z: &'s mut V,
}

/// Negates a pseudo-random half of the entries. The selection depends only on their indices, counted from
/// `first`.
pub fn flip_signs<T: Element>(entries: &mut [T], first: usize) {
    for (number, entry) in (first as u64 + 1..).zip(entries) {
        if number.wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones() % 2 == 1 {
            *entry = -*entry;
        }
    }
}
