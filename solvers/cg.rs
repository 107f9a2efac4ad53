//! Conjugate gradients (Hestenes and Stiefel 1952), preconditioned, for symmetric positive definite `A` and
//! `M`.
//!
//! The iterate minimizes `‖x − x*‖_A` over the Krylov space of `M⁻¹A`. In exact arithmetic the method ends
//! after as many steps as `M⁻¹A` has distinct eigenvalues; in general it needs about `½ √κ ln(2/ε)` steps.
//!
//! An iteration costs one product, one preconditioning and two reductions. With a diagonal `M` the cost model
//! counts the memory traffic of the matrix and 11 vectors: separate operations read or write 12 (`p`, `q`;
//! `r` twice, `q`, `d`, `z`; `x` twice, `p` twice, `z`), and [`Vector::cg_update`] makes that 10 if it keeps
//! `z` in registers or cache. Without a preconditioner `z` is `r`, and 10 are counted. Memory: four vectors.

use crate::Condition::Positive;
use crate::{
    CgIterate, CgUpdate, Cost, Form, Identity, LinearOperator, Method, Result, Scalar, ScalarOf, Solver,
    Space, Steps, Symmetry, System, Vector,
};
use num_traits::Zero;

/// Conjugate gradients, for symmetric positive definite `A`: `Cg::new(op).solve(&b)`.
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
/// use krysp::{Cg, Jacobi, gallery};
///
/// let a = gallery::poisson::<f64>(&[20; 3])?;
/// let b = vec![1.0; a.rows()];
/// let solution = Cg::new(&a).preconditioner(Jacobi::new(&a)?).rtol(1e-8).solve(&b)?;
/// println!("{}", solution.report);
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Cg<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<ConjugateGradients, A, M>;

/// The method of [`Cg`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ConjugateGradients;

pub(crate) const RHO: &str = "⟨r, M⁻¹r⟩";
pub(crate) const SIGMA: &str = "⟨p, Ap⟩";

/// State between two iterations.
pub struct CgState<V: Vector> {
    pub(crate) r: V,
    pub(crate) z: V,
    pub(crate) p: V,
    pub(crate) q: V,
    pub(crate) rho: ScalarOf<V>,
}

impl<V: Vector> Method<V> for ConjugateGradients {
    type State = CgState<V>;

    fn workspace(&self, space: &V::Space) -> Result<CgState<V>> {
        Ok(CgState {
            r: space.zeros()?,
            z: space.zeros()?,
            p: space.zeros()?,
            q: space.zeros()?,
            rho: V::Elem::zero().into(),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut CgState<V>) -> Result<V::Scalar> {
        system.residual(x, &mut state.r) // r = b − A x
    }

    fn begin(&self, system: &System<'_, V>, state: &mut CgState<V>) -> Result<()> {
        let CgState { r, z, p, rho, .. } = state;
        rho.assign(&system.m.apply_dot(r, z)?); // z = M⁻¹ r,  ρ = ⟨r, z⟩
        p.copy_from(z);
        Ok(())
    }

    fn step(
        &self,
        &System { a, m, .. }: &System<'_, V>,
        x: &mut V,
        state: &mut CgState<V>,
        _: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        let CgState { r, z, p, q, rho } = state;
        steps.watch(RHO, rho, Positive)?;
        let sigma = a.apply_dot(p, q)?; // q = A p,  σ = ⟨p, q⟩
        steps.watch(SIGMA, &sigma, Positive)?;
        let alpha = rho.clone() / sigma; // α = ρ / σ
        let [rr, rho_next] = match m.form() {
            // one fused pass over the operations of the last arm
            Form::Diagonal(d) => V::cg_update(CgUpdate { alpha: &alpha, rho, q, d, x, r, p, z }),
            // z equals r, so z is not stored
            Form::Identity => {
                let rr = r.axpy_norm(&-alpha.clone(), q); // r = r − α q,  ‖r‖² = ρ'
                x.axpy_xpby(&alpha, p, r, &(rr.clone() / rho.clone())); // x = x + α p,  p = r + ρ'/ρ p
                [rr.clone(), rr]
            }
            _ => {
                let sums = m.axpy_apply_dot(&-alpha.clone(), q, r, z)?; // r = r − α q,  z = M⁻¹ r,  ‖r‖²,  ρ' = ⟨r, z⟩
                x.axpy_xpby(&alpha, p, z, &(sums[1].clone() / rho.clone())); // x = x + α p,  p = z + ρ'/ρ p
                sums
            }
        };
        let beta = rho_next.clone() / rho.clone(); // β = ρ' / ρ
        Self::end::<V>(steps, rho, [rr, rho_next, alpha, beta])
    }

    fn run_batch(
        &self,
        &System { a, m, .. }: &System<'_, V>,
        x: &mut V,
        state: &mut CgState<V>,
        steps: &mut V::Steps,
        count: usize,
    ) -> Result<usize> {
        let CgState { r, z, p, rho, .. } = state;
        let (a, m) = (a.form(), m.form());
        steps.conjugate_gradients(CgIterate { a, m, x, r, p, z, rho, watched: [RHO, SIGMA] }, count)
    }

    fn numbers(&self, _: usize) -> usize {
        3
    }

    fn process_step(&self, _: &mut CgState<V>, numbers: &[f64], lanczos: &mut Vec<[f64; 2]>) -> Result<f64> {
        let [_, alpha, beta] = numbers else { return Ok(f64::NAN) };
        lanczos.push([*alpha, *beta]);
        Ok(numbers.first().map_or(f64::NAN, |squared| squared.sqrt()))
    }

    fn minimizes_energy(&self) -> bool {
        true
    }

    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Both
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 11.0 }
    }
}

impl ConjugateGradients {
    /// Ends a step: stores `ρ'` for the next step and records `‖r‖²`, `α` and `β`.
    pub(crate) fn end<V: Vector>(
        steps: &mut V::Steps,
        rho: &mut ScalarOf<V>,
        [rr, rho_next, alpha, beta]: [ScalarOf<V>; 4],
    ) -> Result<()> {
        rho.assign(&rho_next);
        steps.residual(&rr)?;
        steps.record(&alpha)?;
        steps.record(&beta)
    }
}
