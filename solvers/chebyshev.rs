//! A polynomial preconditioner: a fixed number of steps of Chebyshev's iteration (Golub and Varga 1961; Saad 2003,
//! algorithm 12.1), for symmetric positive definite `A` and `M`.
//!
//! `z = p(M⁻¹A) M⁻¹ r` with the polynomial of degree `d` that makes `1 − λ p(λ)` smallest over the eigenvalues `[l, h]` of
//! `M⁻¹A`, which is Chebyshev's: `T_{d+1}((θ − λ)/δ) / T_{d+1}(θ/δ)`, with `θ = (h + l)/2` and `δ = (h − l)/2`.
//!
//! ```text
//! d₀ = M⁻¹ r    g₀ = 1/θ    ρ₀ = δ/θ    s₀ = r    z₀ = 0
//! s_k = s_{k−1} − g_{k−1} A d_{k−1}    z_k = z_{k−1} + g_{k−1} d_{k−1}
//! g_k = 2/(2θ − δ ρ_{k−1})    ρ_k = δ g_k/2    d_k = M⁻¹ s_k + (ρ_k ρ_{k−1} g_{k−1}/g_k) d_{k−1}
//! ```
//!
//! It has no inner products: nothing waits for a sum over all unknowns, and the work of a whole application can be queued
//! at once. It is symmetric, and positive definite as long as no eigenvalue lies far above `h`; those below `l` it merely
//! treats less well. A dozen steps of conjugate gradients (Lanczos) towards numbers like noise estimate both; as they
//! come from inside `h` is taken a tenth larger and `l` half as large.
//!
//! An application of degree `d` costs `d` products and `d + 1` times `M⁻¹`, with a diagonal `M` some `13 d + 6` vectors.
//! Memory: three vectors.

use crate::{
    Cg, ElemOf, Element, Error, Identity, LinearOperator, Outcome, Result, ScalarOf, Space, SpaceOf, Vector,
    check_spaces,
};
use std::sync::{Mutex, TryLockError};

/// Steps of conjugate gradients that estimate the extreme eigenvalues.
const STEPS: usize = 12;

/// `p(M⁻¹A) M⁻¹` with Chebyshev's polynomial, a preconditioner for `A`.
///
/// It works on its own handle of `A`, owned, borrowed or shared, on any hardware, and improves on any symmetric positive
/// definite preconditioner `M`, [`Identity`] included.
pub struct Chebyshev<A: LinearOperator, M = Identity<<A as LinearOperator>::Vector>> {
    a: A,
    m: M,
    degree: usize,
    bounds: [f64; 2],
    room: Mutex<Room<A::Vector>>,
}

struct Room<V> {
    residual: V,
    direction: V,
    image: V,
}

impl<V: Vector> Room<V> {
    fn new(space: &V::Space) -> Result<Self> {
        Ok(Room { residual: space.zeros()?, direction: space.zeros()?, image: space.zeros()? })
    }
}

impl<A, M> Chebyshev<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Of a degree: the number of products with `A`. Estimates the eigenvalues of `M⁻¹A`, and fails where `A` or `M` turns
    /// out not to be positive definite.
    pub fn new(a: A, m: M, degree: usize) -> Result<Self> {
        let mut chebyshev = Self::with_bounds(a, m, degree, [1.0, 1.0])?;
        chebyshev.estimate()?;
        Ok(chebyshev)
    }

    /// With bounds `[l, h]` of the eigenvalues of `M⁻¹A` that are known.
    pub fn with_bounds(a: A, m: M, degree: usize, bounds: [f64; 2]) -> Result<Self> {
        let [low, high] = bounds;
        if !(0.0 < low && low <= high && high.is_finite()) {
            return Err(Error::Bounds { low, high });
        }
        let room = Mutex::new(Room::new(a.range())?);
        Ok(Chebyshev { a, m, degree, bounds, room })
    }

    /// Estimates the eigenvalues anew, after the operators have changed.
    pub fn estimate(&mut self) -> Result<()> {
        let space = self.a.range();
        let (mut x, mut image) = (space.zeros()?, space.zeros()?);
        space.load(&numbers_like_noise(space.local_len()), &mut x)?;
        self.a.apply(&x, &mut image)?; // within the reach of `A`, be it singular
        let zero = ElemOf::<A::Vector>::from_f64(0.0);
        x.axpby(&zero.into(), &image, &zero.into());
        let mut cg = Cg::new(&self.a).preconditioner(&self.m).patience(usize::MAX).max_iterations(STEPS);
        let report = cg.solve_into(&image, &mut x)?;
        let low_and_high = report.condition.as_ref().map(|found| {
            // of a singular matrix the smallest is what rounding makes of zero
            let smallest = (0.5 * found.smallest).max(ElemOf::<A::Vector>::EPSILON * found.largest);
            [smallest, 1.1 * found.largest]
        });
        self.bounds = match report.outcome {
            Outcome::Breakdown { what, value, .. } => return Err(Error::Breakdown { what, value }),
            Outcome::NotFinite { whence } => return Err(Error::Breakdown { what: whence, value: f64::NAN }),
            _ => low_and_high.unwrap_or([1.0, 1.0]),
        };
        Ok(())
    }

    /// The bounds of the eigenvalues of `M⁻¹A` that the polynomial is made for.
    pub fn bounds(&self) -> [f64; 2] {
        self.bounds
    }

    /// `A` and `M`, to refresh both. [`Chebyshev::estimate`] is for afterwards.
    pub fn operators_mut(&mut self) -> (&mut A, &mut M) {
        (&mut self.a, &mut self.m)
    }
}

/// Every eigenvector has a share in them.
fn numbers_like_noise<T: Element>(len: usize) -> Vec<T> {
    let mut bits = 0u64;
    let mut next = || {
        // Weyl's sequence, stirred
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let stirred = (bits ^ bits >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (stirred >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| T::from_f64(next())).collect()
}

impl<A, M> LinearOperator for Chebyshev<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    type Vector = A::Vector;

    fn domain(&self) -> &SpaceOf<A::Vector> {
        self.a.range()
    }

    fn range(&self) -> &SpaceOf<A::Vector> {
        self.a.domain()
    }

    fn apply(&self, r: &A::Vector, z: &mut A::Vector) -> Result<()> {
        check_spaces(self, r, z)?;
        let scalar = |value: f64| ScalarOf::<A::Vector>::from(ElemOf::<A::Vector>::from_f64(value));
        // whoever finds the room taken works in one of its own: waiting for a solve on the same threads could last forever
        let (mut guard, mut own);
        let Room { residual: s, direction: d, image: t } = match self.room.try_lock() {
            Ok(room) => {
                guard = room;
                &mut *guard
            }
            Err(TryLockError::Poisoned(room)) => {
                guard = room.into_inner();
                &mut *guard
            }
            Err(TryLockError::WouldBlock) => {
                own = Room::new(self.a.range())?;
                &mut own
            }
        };
        let [low, high] = self.bounds;
        let (theta, delta) = (0.5 * (high + low), 0.5 * (high - low));
        let (mut g, mut rho) = (1.0 / theta, delta / theta);

        s.copy_from(r);
        z.axpby(&scalar(0.0), r, &scalar(0.0));
        self.m.apply(r, d)?; // d = M⁻¹ r
        for _ in 0..self.degree {
            self.a.apply(d, t)?;
            s.axpy(&scalar(-g), t); // s = s − g A d
            self.m.apply(s, t)?;
            let g_next = 2.0 / (2.0 * theta - delta * rho);
            let rho_next = 0.5 * delta * g_next;
            z.axpy_xpby(&scalar(g), d, t, &scalar(rho_next * rho * g / g_next)); // z = z + g d,  d = M⁻¹ s + … d
            (g, rho) = (g_next, rho_next);
        }
        z.axpy(&scalar(g), d); // z = z + g d
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.degree * self.a.bytes() + (self.degree + 1) * self.m.bytes()
    }

    fn replays(&self) -> bool {
        self.a.replays() && self.m.replays()
    }
}
