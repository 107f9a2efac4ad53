//! Induced dimension reduction, IDR(s) (Sonneveld and van Gijzen 2008), in the biorthogonal variant of van
//! Gijzen and Sonneveld (2011), right-preconditioned, for general `A`.
//!
//! Residuals are forced into a sequence of nested subspaces of decreasing dimension. `s` shadow vectors `p_i`
//! are fixed. A cycle consists of `s` steps that make the residual orthogonal to one shadow vector after the
//! other, and one step into the next subspace:
//!
//! ```text
//! for k = 1 … s:  v = r;       for i = k … s:   c_i = ⟨p_i, v⟩ / μ_i,  v = v − c_i g_i
//!                 u_k = ω M⁻¹ v + Σ_i c_i u_i,  g_k = A u_k
//!                 for i = 1 … k−1:              α = ⟨p_i, g_k⟩ / μ_i,  g_k = g_k − α g_i,  u_k = u_k − α u_i
//!                 μ_k = ⟨p_k, g_k⟩,  β = ⟨p_k, r⟩ / μ_k,  r = r − β g_k,  x = x + β u_k
//! z = M⁻¹ r,  t = A z,  r = r − ω t,  x = x + ω z
//! ```
//!
//! Differs from the paper:
//! 1. Coefficients are computed one after the other from the updated vector, instead of by a triangular solve
//!    with stored inner products. This takes the same number of passes and no sums of scalars, and rounding
//!    errors do not accumulate.
//! 2. The paper increases `ω = ⟨t, r⟩ / ⟨t, t⟩` when `t` and `r` are nearly orthogonal: by `κ / ρ` if the
//!    cosine `ρ` of their angle is below `κ = 0.7`. Here the factor is `(1 + (κ/ρ)⁴)^(1/4)`, which is close
//!    to the larger of 1 and `κ / ρ`, because a step must not branch on a computed number.
//!
//! A step costs one product and one preconditioning. Over a cycle of `s + 1` steps it reads or writes `(s (7
//! s + 16) + 14) / (s + 1)` vectors per step, 38 with `s = 4`. Each of the first `s` steps waits for `s + 1`
//! reductions, the last one for two. Memory: `3 s + 3` vectors.

use crate::Condition::{Finite, NonZero};
use crate::{
    Cost, Element, Identity, LinearOperator, Method, Result, Scalar, ScalarOf, Solver, Space, Steps, System,
    Vector,
};
use num_traits::{One, Zero};

/// Induced dimension reduction, for general `A` where [`BiCgStab`](crate::BiCgStab) breaks down or converges
/// erratically: `Idr::new(op).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹` |
/// | [`shadow_vectors`](Idr::shadow_vectors) | number of shadow vectors, 4 by default; more converge in fewer products and need more memory |
/// | [`rtol`](Solver::rtol), [`atol`](Solver::atol) | converged when `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`; 1e-8 (`f32`: 3.5e-4) and 0 by default |
/// | [`max_iterations`](Solver::max_iterations), [`time_limit`](Solver::time_limit) | limits: 10,000 iterations and no time limit by default |
/// | [`stagnation_window`](Solver::stagnation_window) | stagnation window: iterations without a decrease of the residual before a check |
/// | [`null_space`](Solver::null_space) | the null space of `A`, if it is known |
/// | [`observe`](Solver::observe), [`stop_when`](Solver::stop_when), [`stop_soon_when`](Solver::stop_soon_when), [`cancel_token`](Solver::cancel_token) | observe iterations, stop the solve |
///
/// An iteration is one product; one of [`BiCgStab`](crate::BiCgStab) is two.
///
/// Then call [`solve`](Solver::solve) to start from zero, [`solve_from`](Solver::solve_from) to start from an
/// initial guess, or [`solve_into`](Solver::solve_into) for vectors in the operator's memory, without copies.
///
/// ```
/// use krysp::{Csr, Idr, Jacobi};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, -1.0), (1, 1, 2.0)])?;
/// let solution = Idr::new(&a).shadow_vectors(2).preconditioner(Jacobi::new(&a)?).solve(&[3.0, 2.0])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Idr<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<InducedDimensionReduction, A, M>;

/// Parameter `κ` of the paper.
const KAPPA: f64 = 0.7;

/// The method of [`Idr`].
#[derive(Clone, Copy, Debug)]
pub struct InducedDimensionReduction {
    shadow_vectors: usize,
}

impl Default for InducedDimensionReduction {
    fn default() -> Self {
        InducedDimensionReduction { shadow_vectors: 4 }
    }
}

impl<A, M> Idr<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Sets the number of shadow vectors `s`, 4 by default and at most 64. A cycle is `s + 1` iterations.
    pub fn shadow_vectors(mut self, count: usize) -> Self {
        self.driver.method.shadow_vectors = count.clamp(1, 64);
        self.driver.forget_workspace();
        self
    }
}

/// State between two iterations.
pub struct IdrState<V: Vector> {
    /// Shadow vectors `p`.
    p: Vec<V>,
    g: Vec<V>,
    u: Vec<V>,
    /// `⟨p_k, g_k⟩`
    mu: Vec<ScalarOf<V>>,
    /// Coefficients of a step, empty between steps.
    c: Vec<ScalarOf<V>>,
    r: V,
    v: V,
    z: V,
    /// `⟨p_k, r⟩` for the next step.
    phi: ScalarOf<V>,
    omega: ScalarOf<V>,
    /// `‖r‖²`
    rr: ScalarOf<V>,
}

/// Fills a shadow vector with pseudo-random numbers between −1 and 1, the same every time.
fn fill<T: Element>(entries: &mut [T], seed: u64) {
    for (number, entry) in (1u64..).zip(entries) {
        // the mixing steps of SplitMix64
        let mut bits = (number ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        *entry = T::from_f64((bits >> 40) as f64 / (1u64 << 23) as f64 - 1.0);
    }
}

impl<V: Vector> Method<V> for InducedDimensionReduction {
    type State = IdrState<V>;

    fn workspace(&self, space: &V::Space) -> Result<IdrState<V>> {
        let count = self.shadow_vectors;
        let zeros = || (0..count).map(|_| space.zeros()).collect::<Result<Vec<V>>>();
        let (mut p, one) = (zeros()?, V::Elem::one());
        let mut entries = vec![V::Elem::zero(); space.local_len()];
        for (p, seed) in p.iter_mut().zip(1..) {
            fill(&mut entries, seed);
            // where processes share vectors, every process fills its part in the same way; the vectors are
            // still linearly independent
            space.load(&entries, p)?;
        }
        Ok(IdrState {
            p,
            g: zeros()?,
            u: zeros()?,
            mu: vec![one.into(); count],
            c: Vec::with_capacity(count),
            r: space.zeros()?,
            v: space.zeros()?,
            z: space.zeros()?,
            phi: one.into(),
            omega: one.into(),
            rr: one.into(),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut IdrState<V>) -> Result<V::Scalar> {
        let IdrState { p, g, u, mu, r, phi, omega, rr, .. } = state;
        rr.assign(&system.residual(x, r)?); // r = b − A x
        phi.assign(&p[0].dot(r));
        // g = u = 0 and μ = ω = 1 make u_k = M⁻¹ r. `one` is computed on the hardware, so that all scalars
        // have fixed addresses before a step is recorded for replay.
        let one = rr.clone().quotient(rr.clone());
        omega.assign(&one);
        let zero = V::Elem::zero().into();
        for ((g, u), mu) in g.iter_mut().zip(u).zip(mu) {
            g.axpby(&zero, r, &zero);
            u.axpby(&zero, r, &zero);
            mu.assign(&one);
        }
        Ok(rr.clone())
    }

    fn step(
        &self,
        &System { a, m, .. }: &System<'_, V>,
        x: &mut V,
        state: &mut IdrState<V>,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        let IdrState { p, g, u, mu, c, r, v, z, phi, omega, rr } = state;
        let (k, s) = (place, p.len());
        if k == s {
            m.apply(r, z)?; // z = M⁻¹ r
            a.apply(z, v)?; // t = A z, stored in v
            let [tr, tt] = v.dot_2(r, v);
            // (κ / ρ)² = κ² ‖r‖² ‖t‖² / ⟨t, r⟩²
            let kappa_squared: V::Scalar = V::Elem::from_f64(KAPPA * KAPPA).into();
            let stretch = rr.clone() / tr.clone() * (tt.clone() / tr.clone()) * kappa_squared;
            let stretch = (stretch.clone() * stretch + V::Elem::one().into()).sqrt().sqrt();
            omega.assign(&(tr.quotient(tt) * stretch)); // ω = ⟨t, r⟩ / ⟨t, t⟩ (1 + (κ/ρ)⁴)^(1/4)
            steps.watch("ω", omega, Finite)?;
            let [rr_next, phi_next] = r.axpy_dot_2(&-omega.clone(), v, &p[0]); // r = r − ω t
            steps.watch("‖r‖²", &rr_next, Finite)?;
            x.axpy(omega, z); // x = x + ω z
            phi.assign(&phi_next);
            rr.assign(&rr_next);
            return steps.residual(&rr_next);
        }
        v.copy_from(r);
        c.clear();
        let mut along = phi.clone(); // ⟨p_k, v⟩
        for i in k..s {
            let part = along / mu[i].clone();
            [_, along] = v.axpy_dot_2(&-part.clone(), &g[i], &p[(i + 1) % s]); // v = v − c_i g_i,  ⟨p_{i+1}, v⟩
            c.push(part);
        }
        m.apply(v, z)?;
        let (now, later) = u[k..].split_at_mut(1);
        let now = &mut now[0];
        now.axpby(omega, z, &c[0]); // u_k = ω M⁻¹ v + c_k u_k
        for (part, u) in c[1..].iter().zip(later) {
            now.axpy(part, u); // u_k = u_k + c_i u_i
        }
        c.clear();
        let (before, now) = u.split_at_mut(k);
        let now = &mut now[0];
        let (g_before, g_now) = g.split_at_mut(k);
        let g_now = &mut g_now[0];
        a.apply(now, g_now)?; // g_k = A u_k
        let mut along = p[0].dot(g_now);
        for i in 0..k {
            let alpha = -(along / mu[i].clone()); // −⟨p_i, g_k⟩ / μ_i
            [_, along] = g_now.axpy_dot_2(&alpha, &g_before[i], &p[i + 1]); // g_k = g_k − α g_i
            now.axpy(&alpha, &before[i]); // u_k = u_k − α u_i
        }
        steps.watch("⟨p, Au⟩", &along, NonZero)?;
        let beta = phi.clone() / along.clone();
        let [rr_next, phi_next] = r.axpy_dot_2(&-beta.clone(), g_now, &p[(k + 1) % s]); // r = r − β g_k
        steps.watch("‖r‖²", &rr_next, Finite)?;
        x.axpy(&beta, now); // x = x + β u_k
        mu[k].assign(&along);
        phi.assign(&phi_next);
        rr.assign(&rr_next);
        steps.residual(&rr_next)
    }

    fn places(&self) -> usize {
        self.shadow_vectors + 1
    }

    fn cost(&self) -> Cost {
        let s = self.shadow_vectors as f64;
        let vectors = (s * (7.0 * s + 16.0) + 14.0) / (s + 1.0);
        Cost { products: 1.0, preconditionings: 1.0, vectors }
    }

    fn restarts_after_breakdown(&self) -> bool {
        true
    }
}
