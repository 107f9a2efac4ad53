//! A polynomial preconditioner: a fixed number of steps of Chebyshev's iteration (Golub and Varga 1961; Saad
//! 2003, algorithm 12.1), for symmetric positive definite `A` and `M`.
//!
//! The preconditioner computes `z = p(M⁻¹A) M⁻¹ r`, where `p` has degree `n` and minimizes the maximum of
//! `|1 − λ p(λ)|` over an interval `[l, h]` that contains the eigenvalues of `M⁻¹A`. The residual polynomial
//! `1 − λ p(λ)` is then `T_{n+1}((θ − λ)/δ) / T_{n+1}(θ/δ)` with the Chebyshev polynomial `T_{n+1}`,
//! `θ = (h + l)/2` and `δ = (h − l)/2`.
//!
//! ```text
//! d₀ = M⁻¹ r    g₀ = 1/θ    ρ₀ = δ/θ    s₀ = r    z₀ = 0
//! s_k = s_{k−1} − g_{k−1} A d_{k−1}    z_k = z_{k−1} + g_{k−1} d_{k−1}
//! g_k = 2/(2θ − δ ρ_{k−1})    ρ_k = δ g_k/2    d_k = M⁻¹ s_k + (ρ_k ρ_{k−1} g_{k−1}/g_k) d_{k−1}
//! ```
//!
//! There are no inner products, so no operation waits for a reduction over all unknowns, and a GPU can queue
//! a whole application at once. The preconditioner is symmetric. It is positive definite unless an eigenvalue
//! is far above `h`; the error components of eigenvalues below `l` are reduced less. A dozen steps of
//! conjugate gradients (Lanczos) with a pseudo-random solution estimate both bounds. These estimates are
//! inside the spectrum, so `h` is increased by 10 % and `l` is halved.
//!
//! An application of degree `n` costs `n` products and `n + 1` applications of `M⁻¹`; with a diagonal `M` it
//! reads or writes about `13 n + 6` vectors. Memory: three vectors.

use crate::lockstep::OnColumns;
use crate::{
    BasicVector, Cg, ElemOf, Element, Error, Identity, LinearOperator, MultiVector, Outcome, Result,
    ScalarOf, Space, SpaceOf, Vector, check_spaces, with_workspace,
};
use std::sync::{Mutex, PoisonError};

/// Steps of conjugate gradients that estimate the extreme eigenvalues. Guess, chosen as few compared
/// with the iterations of a solve.
const STEPS: usize = 12;

/// Upper bound of the eigenvalues, as a multiple of the largest Ritz value, which is below the largest eigenvalue. Guess,
/// chosen because Chebyshev's iteration diverges above the bound, and a bound that is too large costs little.
const ABOVE: f64 = 1.1;

/// Chebyshev polynomial preconditioner `p(M⁻¹A) M⁻¹`.
///
/// `A` and `M` may be owned, borrowed or shared, on any hardware. `M` is the symmetric positive definite
/// preconditioner to improve, possibly [`Identity`].
pub struct Chebyshev<A: LinearOperator, M = Identity<<A as LinearOperator>::Vector>> {
    a: A,
    m: M,
    degree: usize,
    bounds: [f64; 2],
    work: Mutex<WorkVectors<A::Vector>>,
    /// Workspace of the latest application to several vectors.
    work_many: Mutex<Option<WorkVectors<MultiVector<A::Vector>>>>,
}

struct WorkVectors<V> {
    residual: V,
    direction: V,
    image: V,
}

impl<V: Vector> WorkVectors<V> {
    fn new(space: &V::Space) -> Result<Self> {
        Ok(WorkVectors { residual: space.zeros()?, direction: space.zeros()?, image: space.zeros()? })
    }
}

impl<A, M> Chebyshev<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Creates a polynomial of this degree, which is the number of products with `A` per application.
    /// Estimates the eigenvalues of `M⁻¹A`, and returns an error if `A` or `M` is found not to be positive
    /// definite.
    pub fn new(a: A, m: M, degree: usize) -> Result<Self> {
        let mut chebyshev = Self::with_bounds(a, m, degree, [1.0, 1.0])?;
        chebyshev.estimate()?;
        Ok(chebyshev)
    }

    /// Creates a polynomial for known bounds `[l, h]` of the eigenvalues of `M⁻¹A`.
    pub fn with_bounds(a: A, m: M, degree: usize, bounds: [f64; 2]) -> Result<Self> {
        let [low, high] = bounds;
        if !(0.0 < low && low <= high && high.is_finite()) {
            return Err(Error::Bounds { low, high });
        }
        let work = Mutex::new(WorkVectors::new(a.range())?);
        Ok(Chebyshev { a, m, degree, bounds, work, work_many: Mutex::new(None) })
    }

    /// Estimates the eigenvalues again, after the operators have changed.
    pub fn estimate(&mut self) -> Result<()> {
        let space = self.a.range();
        let (mut x, mut image) = (space.zeros()?, space.zeros()?);
        space.load(&pseudo_random(space.local_len()), &mut x)?;
        self.a.apply(&x, &mut image)?; // in the range of `A`, even if `A` is singular
        let zero = ElemOf::<A::Vector>::from_f64(0.0);
        x.axpby(&zero.into(), &image, &zero.into());
        let mut cg =
            Cg::new(&self.a).preconditioner(&self.m).stagnation_window(usize::MAX).max_iterations(STEPS);
        let report = cg.solve_into(&image, &mut x)?;
        let low_and_high = report.condition.as_ref().map(|found| {
            // The smallest eigenvalue of a singular matrix is a rounding error, perhaps negative.
            let smallest = (0.5 * found.smallest).max(ElemOf::<A::Vector>::EPSILON * found.largest);
            [smallest, ABOVE * found.largest]
        });
        self.bounds = match report.outcome {
            Outcome::Breakdown { what, value, .. } => return Err(Error::Breakdown { what, value }),
            Outcome::NotFinite { what } => return Err(Error::Breakdown { what, value: f64::NAN }),
            _ => low_and_high.unwrap_or([1.0, 1.0]),
        };
        Ok(())
    }

    /// Bounds `[l, h]` of the eigenvalues of `M⁻¹A` for which the polynomial was constructed.
    pub fn bounds(&self) -> [f64; 2] {
        self.bounds
    }

    /// Mutable access to `A` and `M`, to refresh both. Call [`Chebyshev::estimate`] afterwards.
    pub fn operators_mut(&mut self) -> (&mut A, &mut M) {
        (&mut self.a, &mut self.m)
    }
}

/// Pseudo-random entries between −1 and 1, so that every eigenvector contributes.
fn pseudo_random<T: Element>(len: usize) -> Vec<T> {
    let mut bits = 0u64;
    let mut next = || {
        // Weyl's sequence with mixed bits.
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (bits ^ bits >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
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
        let new = || WorkVectors::new(self.a.range());
        with_workspace(&self.work, new, |work| {
            polynomial(&self.a, &self.m, (self.degree, self.bounds), r, z, work)
        })
    }

    fn apply_many(&self, r: &MultiVector<A::Vector>, z: &mut MultiVector<A::Vector>) -> Result<()> {
        MultiVector::open_pairs(r, z)?.try_for_each(|(r, z)| check_spaces(self, r, z))?;
        let space = z.space().with_column_space(self.a.range());
        let kept = self.work_many.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut work = match kept {
            Some(work) if *work.residual.space() == space => work,
            _ => WorkVectors::new(&space)?,
        };
        for vector in [&mut work.residual, &mut work.direction, &mut work.image] {
            vector.join(&space);
        }
        let a = OnColumns::new(&self.a, &space);
        let m = OnColumns::new(&self.m, &space);
        let applied = polynomial(&a, &m, (self.degree, self.bounds), r, z, &mut work);
        *self.work_many.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        applied
    }

    fn bytes(&self) -> usize {
        let applications = self.degree.saturating_add(1).saturating_mul(self.m.bytes());
        self.degree.saturating_mul(self.a.bytes()).saturating_add(applications)
    }

    fn replays(&self) -> bool {
        self.a.replays() && self.m.replays()
    }
}

/// `z ← p(M⁻¹A) M⁻¹ r`, for one vector or for the columns of a multivector.
fn polynomial<V: Vector>(
    a: &impl LinearOperator<Vector = V>,
    m: &impl LinearOperator<Vector = V>,
    (degree, [low, high]): (usize, [f64; 2]),
    r: &V,
    z: &mut V,
    work: &mut WorkVectors<V>,
) -> Result<()> {
    let scalar = |value: f64| ScalarOf::<V>::from(ElemOf::<V>::from_f64(value));
    let WorkVectors { residual: s, direction: d, image: t } = work;
    let (theta, delta) = (0.5 * (high + low), 0.5 * (high - low));
    let (mut g, mut rho) = (1.0 / theta, delta / theta);
    s.copy_from(r);
    z.axpby(&scalar(0.0), r, &scalar(0.0));
    m.apply(r, d)?; // d = M⁻¹ r
    for _ in 0..degree {
        a.apply(d, t)?;
        s.axpy(&scalar(-g), t); // s = s − g A d
        m.apply(s, t)?;
        let g_next = 2.0 / (2.0 * theta - delta * rho);
        let rho_next = 0.5 * delta * g_next;
        z.axpy_xpby(&scalar(g), d, t, &scalar(rho_next * rho * g / g_next)); // z = z + g d,  d = M⁻¹ s + … d
        (g, rho) = (g_next, rho_next);
    }
    z.axpy(&scalar(g), d); // z = z + g d
    Ok(())
}
