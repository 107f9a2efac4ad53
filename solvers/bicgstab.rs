//! Stabilized bi-conjugate gradients (van der Vorst 1992), right-preconditioned, for general `A`.
//!
//! An iteration costs two products, two preconditionings and three waits for reductions. With a diagonal `M` it
//! reads the matrix twice, and reads or writes 29 vectors (`p` twice, `r`, `v`; `p`, `d`, `p̂`; `p̂`, `v`; `r̃`,
//! `v`; `r` twice, `v`; `r`, `d`, `ŝ`; `ŝ`, `t`; `t`, `r`; `r` twice, `t`, `r̃`; `x` twice, `p̂`, `ŝ`). Memory:
//! seven vectors.
//!
//! The method breaks down when the shadow vector `r̃` becomes orthogonal to the residual: cancellation in
//! `ρ = ⟨r̃, r⟩` leaves only rounding errors, or exactly zero. The driver then restarts from the true
//! residual, which also becomes the new shadow vector; if that breaks down as well, the shadow vector is the
//! residual with flipped signs.
//!
//! If the half step already solves the system (`s = 0`), `ω = 0/0` is taken as zero.

use crate::Condition::{Finite, NonZero};
use crate::{
    Cost, Identity, LinearOperator, Method, Result, Scalar, ScalarOf, Solver, Space, Steps, System, Vector,
};
use num_traits::{One, Zero};

/// Stabilized bi-conjugate gradients, for general `A` in little memory: `BiCgStab::new(op).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹` |
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
/// use krysp::{BiCgStab, Csr, Jacobi};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, -1.0), (1, 1, 2.0)])?;
/// let solution = BiCgStab::new(&a).preconditioner(Jacobi::new(&a)?).solve(&[3.0, 2.0])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type BiCgStab<A, M = Identity<<A as LinearOperator>::Vector>> =
    Solver<StabilizedBiConjugateGradients, A, M>;

/// The method of [`BiCgStab`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StabilizedBiConjugateGradients;

/// State between two iterations.
pub struct BiCgStabState<V: Vector> {
    shadow: V,
    r: V,
    p: V,
    v: V,
    t: V,
    p_hat: V,
    s_hat: V,
    rho: ScalarOf<V>,
    rho_before: ScalarOf<V>,
    alpha: ScalarOf<V>,
    omega: ScalarOf<V>,
}

impl<V: Vector> Method<V> for StabilizedBiConjugateGradients {
    type State = BiCgStabState<V>;

    fn workspace(&self, space: &V::Space) -> Result<BiCgStabState<V>> {
        let one = V::Elem::one();
        Ok(BiCgStabState {
            shadow: space.zeros()?,
            r: space.zeros()?,
            p: space.zeros()?,
            v: space.zeros()?,
            t: space.zeros()?,
            p_hat: space.zeros()?,
            s_hat: space.zeros()?,
            rho: one.into(),
            rho_before: one.into(),
            alpha: one.into(),
            omega: one.into(),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut BiCgStabState<V>) -> Result<V::Scalar> {
        let BiCgStabState { shadow, r, p, v, rho, rho_before, alpha, omega, .. } = state;
        let (zero, one): (V::Scalar, V::Scalar) = (V::Elem::zero().into(), V::Elem::one().into());
        let rr = system.residual(x, r)?; // r = b − A x
        shadow.copy_from(r); // r̃ = r
        rho.assign(&rr);
        if system.attempt > 0 && system.attempt.is_multiple_of(2) {
            shadow.flip_signs()?;
            rho.assign(&shadow.dot(r)); // ρ = ⟨r̃, r⟩
        }
        p.axpby(&zero, r, &zero); // p = v = 0 and ρ' = α = ω = 1 make the first direction p = r
        v.axpby(&zero, r, &zero);
        rho_before.assign(&one);
        alpha.assign(&one);
        omega.assign(&one);
        Ok(rr)
    }

    fn step(
        &self,
        &System { a, m, .. }: &System<'_, V>,
        x: &mut V,
        state: &mut BiCgStabState<V>,
        _: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        let BiCgStabState { shadow, r, p, v, t, p_hat, s_hat, rho, rho_before, alpha, omega } = state;
        let one: V::Scalar = V::Elem::one().into();
        steps.watch("⟨r̃, r⟩", rho, NonZero)?;
        steps.watch("ω", omega, NonZero)?;
        let beta = rho.clone() / rho_before.clone() * (alpha.clone() / omega.clone()); // β = (ρ / ρ')(α / ω)
        p.axpbypcz(&one, r, &-(beta.clone() * omega.clone()), v, &beta); // p = r + β (p − ω v)
        m.apply(p, p_hat)?; // p̂ = M⁻¹ p
        a.apply(p_hat, v)?; // v = A p̂
        let sigma = shadow.dot(v);
        steps.watch("⟨r̃, Ap̂⟩", &sigma, NonZero)?;
        alpha.assign(&(rho.clone() / sigma)); // α = ρ / ⟨r̃, v⟩
        r.axpy(&-alpha.clone(), v); // s = r − α v, stored in r
        m.apply(r, s_hat)?; // ŝ = M⁻¹ s
        a.apply(s_hat, t)?; // t = A ŝ
        let [ts, tt] = t.dot_2(r, t);
        omega.assign(&ts.quotient(tt)); // ω = ⟨t, s⟩ / ⟨t, t⟩
        steps.watch("⟨t, s⟩ / ⟨t, t⟩", omega, Finite)?;
        let [rr, rho_next] = r.axpy_dot_2(&-omega.clone(), t, shadow); // r = s − ω t,  ‖r‖²,  ρ = ⟨r̃, r⟩
        // On singular matrices a step may overflow. Check before `x` changes.
        steps.watch("‖r‖²", &rr, Finite)?;
        x.axpbypcz(alpha, p_hat, omega, s_hat, &one); // x = x + α p̂ + ω ŝ
        rho_before.assign(rho);
        rho.assign(&rho_next);
        steps.residual(&rr)
    }

    fn cost(&self) -> Cost {
        Cost { products: 2.0, preconditionings: 2.0, vectors: 29.0 }
    }

    fn restarts_after_breakdown(&self) -> bool {
        true
    }
}
