//! The minimal residual iteration: `x ← x + α z` with `z = M⁻¹ r`, `q = A z` and the `α = ⟨r, q⟩ / ⟨q, q⟩` that
//! minimizes `‖r − α q‖` (Saad, Iterative Methods for Sparse Linear Systems, algorithm 5.3).
//!
//! An iteration has one product, one application of `M⁻¹`, two reductions besides the residual, and moves 14
//! vectors. It converges if the symmetric part of `A M⁻¹` is positive definite.

use krysp::solvers::{Condition, Cost, Identity, Method, Result, ScalarOf, Solver, Steps, System};
use krysp::{LinearOperator, Space, Vector};

/// A solver with the minimal residual iteration.
pub type MinimalResidual<A, M = Identity<<A as LinearOperator>::Vector>> =
    Solver<MinimalResidualMethod, A, M>;

/// The method.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinimalResidualMethod;

/// The vectors of an iteration.
#[derive(Debug)]
pub struct State<V> {
    r: V,
    z: V,
    q: V,
}

impl<V: Vector> Method<V> for MinimalResidualMethod {
    type State = State<V>;

    fn workspace(&self, space: &V::Space) -> Result<State<V>> {
        Ok(State { r: space.zeros()?, z: space.zeros()?, q: space.zeros()? })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut State<V>) -> Result<ScalarOf<V>> {
        system.residual(x, &mut state.r)
    }

    fn step(
        &self,
        system: &System<'_, V>,
        x: &mut V,
        State { r, z, q }: &mut State<V>,
        _place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        system.m.apply(r, z)?;
        system.a.apply(z, q)?;
        let squared = q.norm_squared();
        steps.watch("⟨Az, Az⟩", &squared, Condition::Positive)?; // ends the step before x changes
        let alpha = r.dot(q) / squared;
        x.axpy(&alpha, z);
        let squared = r.axpy_norm(&-alpha, q);
        steps.residual(&squared)
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 14.0 }
    }
}
