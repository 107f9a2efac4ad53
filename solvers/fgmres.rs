//! Flexible GMRES (Saad 1993), right-preconditioned, for general `A` and preconditioners that change from one
//! step to the next, such as inner solves to a loose tolerance or adaptive multigrid cycles.
//!
//! The steps are those of [GMRES](crate::gmres). GMRES computes `M⁻¹ V y` at the end of a cycle. With a
//! changing `M` that is impossible, so every `z_j = M_j⁻¹ v_j` is stored, and the solution is assembled from
//! these vectors: `A Z_m = V_{m+1} H_m`, `x = x₀ + Z_m y`. With a fixed `M` the iterates are those of GMRES.
//!
//! A step costs as much as a step of GMRES, and reads or writes two more vectors. No preconditioning is
//! needed at the end of a cycle. Memory: `2 m + 4` vectors.

use crate::gmres::{self, GeneralizedMinimalResidual};
use crate::{
    Basis, Cost, Identity, LinearOperator, Method, Result, Solver, Space, StagnationWindow, System, Vector,
};
use num_traits::One;

/// Flexible restarted GMRES, for general `A` and a preconditioner that changes from one iteration to the
/// next: `Fgmres::new(op).preconditioner(inner).restart(50).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹`, which may change |
/// | [`restart`](Fgmres::restart) | iterations per cycle, 30 by default; more converge better and need more memory |
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
/// use krysp::{Csr, Fgmres, Gmres, HostVector, LinearOperator};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, -1.0), (1, 1, 2.0)])?;
/// // the preconditioner is an inner solve to a loose tolerance, which is not a fixed operator
/// let space = a.domain();
/// let inner = OperatorFn::new(space, space, |r: &HostVector<f64>, z: &mut HostVector<f64>| {
///     z.as_mut_slice().fill(0.0);
///     Gmres::new(&a).rtol(0.1).solve_into(r, z)?;
///     Ok(())
/// });
/// assert!(Fgmres::new(&a).preconditioner(inner).restart(50).solve(&[3.0, 2.0])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Fgmres<A, M = Identity<<A as LinearOperator>::Vector>> =
    Solver<FlexibleGeneralizedMinimalResidual, A, M>;

/// The method of [`Fgmres`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexibleGeneralizedMinimalResidual {
    gmres: GeneralizedMinimalResidual,
}

impl<A, M> Fgmres<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Sets the number of steps per cycle, 30 by default. More steps converge better and need more memory.
    pub fn restart(mut self, steps: usize) -> Self {
        if self.driver.method.gmres.block.restart != steps.max(1) {
            self.driver.method.gmres.block.restart = steps.max(1);
            self.driver.forget_workspace();
        }
        self
    }
}

/// State between two steps.
pub struct FgmresState<V: Vector> {
    cycle: gmres::GmresState<V>,
    /// The preconditioned basis vectors `z_j`.
    directions: V::Basis,
}

impl<V: Vector> Method<V> for FlexibleGeneralizedMinimalResidual {
    type State = FgmresState<V>;

    fn workspace(&self, space: &V::Space) -> Result<FgmresState<V>> {
        let directions = V::basis(space, self.gmres.block.steps(space.len()))?;
        Ok(FgmresState { cycle: self.gmres.workspace(space)?, directions })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut FgmresState<V>) -> Result<V::Scalar> {
        self.gmres.start(system, x, &mut state.cycle)
    }

    fn step(
        &self,
        system: &System<'_, V>,
        x: &mut V,
        state: &mut FgmresState<V>,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        self.gmres.step(system, x, &mut state.cycle, place, steps)?;
        state.directions.push(place, &state.cycle.z, &V::Elem::one().into()) // z_j
    }

    fn numbers(&self, len: usize) -> usize {
        Method::<V>::numbers(&self.gmres, len)
    }

    fn cycle(&self, len: usize) -> Option<usize> {
        Method::<V>::cycle(&self.gmres, len)
    }

    fn process_step(
        &self,
        state: &mut FgmresState<V>,
        numbers: &[f64],
        lanczos: &mut Vec<[f64; 2]>,
    ) -> Result<f64> {
        self.gmres.process_step(&mut state.cycle, numbers, lanczos)
    }

    fn finish(&self, _: &System<'_, V>, x: &mut V, state: &mut FgmresState<V>) -> Result<()> {
        let FgmresState { cycle, directions } = state;
        if !cycle.minimiser().is_empty() {
            directions.combine(&cycle.y, &mut cycle.z)?; // z = Z y
            x.axpy(&V::Elem::one().into(), &cycle.z); // x = x + Z y
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        let gmres = Method::<V>::cost(&self.gmres);
        Cost { vectors: gmres.vectors + 2.0, ..gmres }
    }

    fn stagnation_window(&self) -> StagnationWindow {
        Method::<V>::stagnation_window(&self.gmres)
    }
}
