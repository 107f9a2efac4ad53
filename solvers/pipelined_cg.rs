//! Pipelined conjugate gradients (Ghysels and Vanroose 2014), preconditioned, for symmetric positive definite
//! `A` and `M`, on many processes, where global reductions have a high latency.
//!
//! Conjugate gradients wait for two dependent reductions per iteration. Here all reductions of an iteration
//! start together, and overlap with the next preconditioning and product. The equations on the right hold in
//! exact arithmetic:
//!
//! ```text
//! γ = ⟨r, u⟩,  δ = ⟨w, u⟩,  ‖r‖²                            u = M⁻¹ r,  w = A u
//! m = M⁻¹ w,  n = A m      (while the sums are reduced)
//! β = γ / γ',  α = γ / (δ − β γ / α')
//! z = n + β z,  q = m + β q,  s = w + β s,  p = u + β p     z = A q,  q = M⁻¹ s,  s = A p
//! x = x + α p,  r = r − α s,  u = u − α q,  w = w − α z
//! ```
//!
//! The vectors that depend on products are updated by recurrences instead of being computed, so their
//! rounding errors grow. Differs from the paper: every 64 iterations (`REPLACE`) `u`, `w`, `s`, `q` and `z`
//! are recomputed from `r` and `p` (residual replacement). Only `r` continues by its recurrence, as in
//! conjugate gradients: the driver compares it with `b − A x` before it reports convergence.
//!
//! An iteration costs one product, one preconditioning, one reduction and about 31 vectors moved, against 11
//! for conjugate gradients: the method is faster if one reduction takes longer than moving 20 vectors.
//! Memory: nine vectors.

use crate::Condition::Positive;
use crate::cg::{RHO, SIGMA};
use crate::{
    Cost, Element, Identity, LinearOperator, Method, Result, Scalar, ScalarOf, Solver, Space, Steps,
    Symmetry, System, Vector,
};
use num_traits::{One, Zero};

/// Iterations between two replacements, which cost three products and two preconditionings: 5 % of the work.
/// Guess, chosen by that cost.
const REPLACE: usize = 64;

/// Pipelined conjugate gradients, for symmetric positive definite `A` on many processes:
/// `PipelinedCg::new(op).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹`, symmetric positive definite |
/// | [`rtol`](Solver::rtol), [`atol`](Solver::atol) | converged when `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`; 1e-8 (`f32`: 3.5e-4) and 0 by default |
/// | [`max_iterations`](Solver::max_iterations), [`time_limit`](Solver::time_limit) | limits: 10,000 iterations and no time limit by default |
/// | [`stagnation_window`](Solver::stagnation_window) | stagnation window: iterations without a decrease of the residual before a check |
/// | [`null_space`](Solver::null_space) | the null space of `A`, if it is known |
/// | [`observe`](Solver::observe), [`stop_when`](Solver::stop_when), [`stop_soon_when`](Solver::stop_soon_when), [`cancel_token`](Solver::cancel_token) | observe iterations, stop the solve |
///
/// Then call [`solve`](Solver::solve) to start from zero, [`solve_from`](Solver::solve_from) to start from an
/// initial guess, or [`solve_into`](Solver::solve_into) for vectors in the operator's memory, without copies.
///
/// ```
/// use krysp::{Jacobi, PipelinedCg, gallery};
///
/// let a = gallery::poisson::<f64>(&[12; 3])?;
/// let mut solver = PipelinedCg::new(&a).preconditioner(Jacobi::new(&a)?).rtol(1e-8);
/// assert!(solver.solve(&vec![1.0; a.rows()])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type PipelinedCg<A, M = Identity<<A as LinearOperator>::Vector>> =
    Solver<PipelinedConjugateGradients, A, M>;

/// The method of [`PipelinedCg`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelinedConjugateGradients;

/// State between two iterations.
pub struct PipelinedCgState<V: Vector> {
    r: V,
    u: V,
    w: V,
    m: V,
    n: V,
    z: V,
    q: V,
    s: V,
    p: V,
    gamma: ScalarOf<V>,
    gamma_before: ScalarOf<V>,
    delta: ScalarOf<V>,
    alpha: ScalarOf<V>,
}

impl<V: Vector> Method<V> for PipelinedConjugateGradients {
    type State = PipelinedCgState<V>;

    fn workspace(&self, space: &V::Space) -> Result<PipelinedCgState<V>> {
        let zero = || ScalarOf::<V>::from(V::Elem::zero());
        Ok(PipelinedCgState {
            r: space.zeros()?,
            u: space.zeros()?,
            w: space.zeros()?,
            m: space.zeros()?,
            n: space.zeros()?,
            z: space.zeros()?,
            q: space.zeros()?,
            s: space.zeros()?,
            p: space.zeros()?,
            gamma: zero(),
            gamma_before: zero(),
            delta: zero(),
            alpha: zero(),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut PipelinedCgState<V>) -> Result<V::Scalar> {
        system.residual(x, &mut state.r) // r = b − A x
    }

    fn begin(&self, system: &System<'_, V>, state: &mut PipelinedCgState<V>) -> Result<()> {
        let PipelinedCgState { r, u, w, z, q, s, p, gamma, gamma_before, delta, alpha, .. } = state;
        gamma.assign(&system.m.apply_dot(r, u)?); // u = M⁻¹ r,  γ = ⟨r, u⟩
        delta.assign(&system.a.apply_dot(u, w)?); // w = A u,  δ = ⟨w, u⟩
        // there is no direction yet: an infinite γ' makes the first β zero
        gamma_before.assign(&V::Elem::from_f64(f64::INFINITY).into());
        alpha.assign(&V::Elem::one().into());
        let zero: V::Scalar = V::Elem::zero().into();
        for direction in [z, q, s, p] {
            direction.axpby(&zero, r, &zero);
        }
        Ok(())
    }

    fn step(
        &self,
        system: &System<'_, V>,
        x: &mut V,
        state: &mut PipelinedCgState<V>,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        let PipelinedCgState { r, u, w, m, n, z, q, s, p, gamma, gamma_before, delta, alpha } = state;
        system.m.apply(w, m)?; // m = M⁻¹ w
        system.a.apply(m, n)?; // n = A m
        steps.watch(RHO, gamma, Positive)?;
        let beta = gamma.clone() / gamma_before.clone(); // β = γ / γ'
        let sigma = delta.clone() + -(beta.clone() * gamma.clone() / alpha.clone()); // ⟨p, A p⟩ = δ − β γ / α'
        steps.watch(SIGMA, &sigma, Positive)?;
        let step = gamma.clone() / sigma; // α = γ / ⟨p, A p⟩
        let back = -step.clone();
        z.xpby(n, &beta); // z = n + β z
        q.xpby(m, &beta); // q = m + β q
        s.xpby(w, &beta); // s = w + β s
        p.xpby(u, &beta); // p = u + β p
        x.axpy(&step, p); // x = x + α p
        let (rr, gamma_next, delta_next);
        if place + 1 < REPLACE {
            u.axpy(&back, q); // u = u − α q
            [rr, gamma_next] = r.axpy_dot_2(&back, s, u); // r = r − α s,  ‖r‖²,  γ = ⟨r, u⟩
            [_, delta_next] = w.axpy_dot_2(&back, z, u); // w = w − α z,  δ = ⟨w, u⟩
        } else {
            system.a.apply(p, s)?; // s = A p
            system.m.apply(s, q)?; // q = M⁻¹ s
            system.a.apply(q, z)?; // z = A q
            r.axpy(&back, s); // r = r − α s
            system.m.apply(r, u)?; // u = M⁻¹ r
            system.a.apply(u, w)?; // w = A u
            [rr, gamma_next] = r.dot_2(r, u);
            delta_next = w.dot(u);
        }
        gamma_before.assign(gamma);
        gamma.assign(&gamma_next);
        delta.assign(&delta_next);
        alpha.assign(&step);
        steps.residual(&rr)?;
        steps.record(&step)?;
        steps.record(&beta)
    }

    fn places(&self) -> usize {
        REPLACE
    }

    fn numbers(&self, _: usize) -> usize {
        3
    }

    /// A step records the `β` that belongs to the step before.
    fn process_step(
        &self,
        _: &mut PipelinedCgState<V>,
        numbers: &[f64],
        lanczos: &mut Vec<[f64; 2]>,
    ) -> Result<f64> {
        let [squared, alpha, beta] = numbers else { return Ok(f64::NAN) };
        if let Some([_, before]) = lanczos.last_mut() {
            *before = *beta;
        }
        lanczos.push([*alpha, 0.0]);
        Ok(squared.sqrt())
    }

    fn minimizes_energy(&self) -> bool {
        true
    }

    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Both
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.05, preconditionings: 1.03, vectors: 31.0 }
    }
}
