//! Flexible conjugate gradients (Notay 2000), for symmetric positive definite `A` and preconditioners that
//! change from one iteration to the next, such as inner solves to a loose tolerance or adaptive multigrid
//! cycles.
//!
//! Each direction is explicitly made conjugate to the previous one, `⟨p', A p⟩ = 0`; conjugate gradients rely
//! on a fixed symmetric `M` for that. Because `r' − r = −α A p`, the coefficient is the `β` of Polak and
//! Ribière,
//!
//! ```text
//! β = ⟨z', r' − r⟩ / ⟨z, r⟩ = −⟨z', A p⟩ / ⟨p, A p⟩
//! ```
//!
//! which costs one more inner product and no more memory. With a fixed `M` the iterates are those of
//! conjugate gradients.
//!
//! An iteration costs one product, one preconditioning and two reductions; with a diagonal `M` its memory
//! traffic is that of the matrix and 16 vectors (`p`, `q`; `r` twice, `q`; `r`, `d`, `z`; `z`, `r`, `q`; `x`
//! twice, `p` twice, `z`). Memory: four vectors.

use crate::Condition::Positive;
use crate::cg::{CgState, ConjugateGradients, RHO, SIGMA};
use crate::{Cost, Identity, LinearOperator, Method, Result, Solver, Steps, Symmetry, System, Vector};

/// Flexible conjugate gradients, for symmetric positive definite `A` and a preconditioner that changes from
/// one iteration to the next: `Fcg::new(op).preconditioner(inner).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹`, which may change |
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
/// use krysp::solvers::OperatorFn;
/// use krysp::{Cg, Fcg, HostVector, LinearOperator, gallery};
///
/// let a = gallery::poisson::<f64>(&[12; 3])?;
/// // a few iterations of another solver: not a fixed operator
/// let space = a.domain();
/// let inner = OperatorFn::new(space, space, |r: &HostVector<f64>, z: &mut HostVector<f64>| {
///     z.as_mut_slice().fill(0.0);
///     Cg::new(&a).rtol(0.1).max_iterations(10).solve_into(r, z)?;
///     Ok(())
/// });
/// assert!(Fcg::new(&a).preconditioner(inner).solve(&vec![1.0; a.rows()])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Fcg<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<FlexibleConjugateGradients, A, M>;

/// The method of [`Fcg`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexibleConjugateGradients;

impl<V: Vector> Method<V> for FlexibleConjugateGradients {
    type State = CgState<V>;

    fn workspace(&self, space: &V::Space) -> Result<CgState<V>> {
        ConjugateGradients.workspace(space)
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut CgState<V>) -> Result<V::Scalar> {
        ConjugateGradients.start(system, x, state)
    }

    fn begin(&self, system: &System<'_, V>, state: &mut CgState<V>) -> Result<()> {
        ConjugateGradients.begin(system, state)
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
        let alpha = rho.clone() / sigma.clone(); // α = ρ / σ
        let rr = r.axpy_norm(&-alpha.clone(), q); // r = r − α q,  ‖r‖²
        m.apply(r, z)?; // z = M⁻¹ r
        let [rho_next, zq] = z.dot_2(r, q); // ρ' = ⟨z, r⟩,  ⟨z, A p⟩
        let beta = -(zq / sigma); // β = −⟨z, A p⟩ / ⟨p, A p⟩
        x.axpy_xpby(&alpha, p, z, &beta); // x = x + α p,  p = z + β p
        let ratio = rho_next.clone() / rho.clone(); // β of conjugate gradients, for the condition estimate
        ConjugateGradients::end::<V>(steps, rho, [rr, rho_next, alpha, ratio])
    }

    fn numbers(&self, len: usize) -> usize {
        Method::<V>::numbers(&ConjugateGradients, len)
    }

    fn process_step(
        &self,
        state: &mut CgState<V>,
        numbers: &[f64],
        lanczos: &mut Vec<[f64; 2]>,
    ) -> Result<f64> {
        ConjugateGradients.process_step(state, numbers, lanczos)
    }

    fn minimizes_energy(&self) -> bool {
        true
    }

    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Operator
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 16.0 }
    }
}
