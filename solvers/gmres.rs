//! Restarted GMRES (Saad and Schultz 1986), right-preconditioned, for general `A`.
//!
//! Each step extends an orthonormal basis `V` of the Krylov space of `A M⁻¹` and minimizes `‖b − A x‖` over
//! `x₀ + M⁻¹ span V`. New vectors are orthogonalized by classical Gram-Schmidt, done twice (CGS2): at least
//! as orthogonal as by modified Gram-Schmidt, in three passes over the basis instead of `j` inner products
//! that depend on each other. Givens rotations keep the Hessenberg matrix triangular, so the residual norm is
//! known after every step; `x` is assembled at the end of a cycle. If `A` is singular and the basis cannot
//! grow further, the method breaks down with the smallest residual that the basis allows.
//!
//! Step `j` costs one product, one preconditioning, three passes over `j + 1` basis vectors, and about 11
//! vectors moved. Over a cycle of `m` steps that is `3(m + 1)/2 + 11` vectors per step. Memory: `m + 4`
//! vectors.

use crate::Condition::Finite;
use crate::block_gmres::BlockGeneralizedMinimalResidual;
use crate::reflections::ROUNDING;
use crate::{
    Basis, Cost, Element, Error, Identity, LinearOperator, Method, Result, Scalar, Solver, Space,
    StagnationWindow, Steps, System, Vector,
};
use num_traits::One;

/// Restarted GMRES, for general `A`: `Gmres::new(op).restart(50).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹` |
/// | [`restart`](Gmres::restart) | iterations per cycle, 30 by default; more converge better and need more memory |
/// | [`rtol`](Solver::rtol), [`atol`](Solver::atol) | converged when `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`; 1e-8 (`f32`: 3.5e-4) and 0 by default |
/// | [`max_iterations`](Solver::max_iterations), [`time_limit`](Solver::time_limit) | limits: 10,000 iterations and no time limit by default |
/// | [`stagnation_window`](Solver::stagnation_window) | stagnation window: iterations without a decrease of the residual before a check |
/// | [`null_space`](Solver::null_space) | the null space of `A`, if it is known |
/// | [`observe`](Solver::observe), [`stop_when`](Solver::stop_when), [`stop_soon_when`](Solver::stop_soon_when), [`cancel_token`](Solver::cancel_token) | observe iterations, stop the solve |
///
/// Then call [`solve`](Solver::solve) to start from zero, [`solve_from`](Solver::solve_from) to start from an
/// initial guess, or [`solve_into`](Solver::solve_into) for vectors in the operator's memory, without copies.
/// [`solve_block`](Solver::solve_block) solves for several right-hand sides in one search space.
///
/// ```
/// use krysp::{Csr, Gmres};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, -1.0), (1, 1, 2.0)])?;
/// let solution = Gmres::new(&a).restart(50).solve(&[3.0, 2.0])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Gmres<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<GeneralizedMinimalResidual, A, M>;

pub(crate) const PIVOT: &str = "the pivot of A M⁻¹ V";

/// The method of [`Gmres`].
#[derive(Clone, Copy, Debug)]
pub struct GeneralizedMinimalResidual {
    /// The method for several right-hand sides, with the number of steps per cycle of both.
    pub(crate) block: BlockGeneralizedMinimalResidual,
}

impl Default for GeneralizedMinimalResidual {
    fn default() -> Self {
        GeneralizedMinimalResidual { block: BlockGeneralizedMinimalResidual { restart: 30 } }
    }
}

impl<A, M> Gmres<A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Sets the number of steps per cycle, 30 by default. More steps converge better and need more memory. A
    /// block of `k` columns needs `k` times the memory.
    pub fn restart(mut self, steps: usize) -> Self {
        if self.driver.method.block.restart != steps.max(1) {
            self.driver.method.block.restart = steps.max(1);
            self.driver.forget_workspace();
        }
        self
    }
}

/// State between two steps.
pub struct GmresState<V: Vector> {
    basis: V::Basis,
    w: V,
    v: V,
    /// `M⁻¹ v` of the last step.
    pub(crate) z: V,
    /// Place of the last step in its cycle.
    last: usize,
    pub(crate) y: Vec<V::Elem>,
    least_squares: LeastSquares,
}

impl<V: Vector> GmresState<V> {
    /// Coordinates, in the basis, of the correction with the smallest residual. Ends the cycle.
    pub(crate) fn minimiser(&mut self) -> &[V::Elem] {
        let GmresState { y, least_squares, .. } = self;
        y.clear();
        y.extend(least_squares.solve().iter().map(|&y| V::Elem::from_f64(y)));
        y
    }
}

/// Least-squares problem `min ‖g − H y‖` of a cycle. Givens rotations make the Hessenberg matrix `H`
/// triangular, column by column.
#[derive(Default)]
struct LeastSquares {
    /// Number of columns so far.
    columns: usize,
    /// Triangular factor: column `j` has `j + 1` entries from `j (j + 1) / 2` on.
    r: Vec<f64>,
    rotations: Vec<[f64; 2]>,
    /// Rotated right-hand side; the magnitude of its last entry is the residual norm.
    g: Vec<f64>,
    column: Vec<f64>,
}

impl LeastSquares {
    fn new(steps: usize) -> Self {
        LeastSquares {
            columns: 0,
            r: vec![0.0; steps * (steps + 1) / 2],
            rotations: vec![[0.0; 2]; steps],
            g: vec![0.0; steps + 1],
            column: vec![0.0; steps + 1],
        }
    }

    fn begin(&mut self, residual: f64) {
        self.columns = 0;
        self.g[0] = residual;
    }

    /// Appends the next column of `H`, whose last entry is `last`. Returns the residual norm.
    fn extend(&mut self, h: &[f64], last: f64, epsilon: f64) -> Result<f64> {
        let LeastSquares { columns, r, rotations, g, column } = self;
        let (j, k) = (*columns, *columns + 1);
        column[..k].copy_from_slice(&h[..k]);
        column[k] = last;
        let image = column[..=k].iter().fold(0.0, |sum: f64, h| sum.hypot(*h)); // ‖A z‖
        for (i, [c, s]) in rotations[..j].iter().enumerate() {
            (column[i], column[i + 1]) =
                (c * column[i] + s * column[i + 1], c * column[i + 1] - s * column[i]);
        }
        // The image of the new direction is in the span of the earlier images, up to rounding: no progress is
        // possible.
        let pivot = column[j].hypot(column[k]);
        if pivot <= ROUNDING * epsilon * image {
            return Err(Error::Breakdown { what: PIVOT, value: pivot });
        }
        // a = column[j] and b = column[k]: −s a + c b = 0 and c² + s² = 1
        let [c, s] = [column[j] / pivot, column[k] / pivot];
        rotations[j] = [c, s];
        column[j] = pivot;
        (g[j], g[k]) = (c * g[j], -(s * g[j]));
        r[j * k / 2..][..k].copy_from_slice(&column[..k]);
        *columns = k;
        Ok(g[k].abs())
    }

    /// Solves for `y` and removes all columns.
    fn solve(&mut self) -> &[f64] {
        let k = std::mem::take(&mut self.columns);
        let y = &mut self.column[..k];
        y.copy_from_slice(&self.g[..k]);
        for j in (0..k).rev() {
            let (column, pivot) = (&self.r[j * (j + 1) / 2..][..j], self.r[j * (j + 1) / 2 + j]);
            y[j] /= pivot;
            for i in 0..j {
                y[i] -= column[i] * y[j];
            }
        }
        y
    }
}

impl<V: Vector> Method<V> for GeneralizedMinimalResidual {
    type State = GmresState<V>;

    fn workspace(&self, space: &V::Space) -> Result<GmresState<V>> {
        let steps = self.block.steps(space.len());
        Ok(GmresState {
            basis: V::basis(space, steps + 1)?,
            w: space.zeros()?,
            v: space.zeros()?,
            z: space.zeros()?,
            last: 0,
            y: Vec::with_capacity(steps),
            least_squares: LeastSquares::new(steps),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut GmresState<V>) -> Result<V::Scalar> {
        let rr = system.residual(x, &mut state.w)?; // w = b − A x
        state.basis.push(0, &state.w, &rr)?; // v₀ = w / ‖w‖
        state.least_squares.begin(rr.read()?.to_f64().sqrt());
        Ok(rr)
    }

    fn step(
        &self,
        system: &System<'_, V>,
        _: &mut V,
        state: &mut GmresState<V>,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        state.last = place;
        let GmresState { basis, w, v, z, .. } = state;
        let k = place + 1;
        basis.load(place, v);
        system.m.apply(v, z)?; // z = M⁻¹ v_j
        system.a.apply(z, w)?; // w = A z
        basis.project(k, w); // h = Vᵀ w
        basis.subtract_project(k, w); // w = w − V h,  c = Vᵀ w
        let ww = basis.subtract_norm(k, w); // w = w − V c,  ‖w‖²
        steps.watch("‖w‖²", &ww, Finite)?;
        basis.push(k, w, &ww)?; // v_{j+1} = w / ‖w‖
        steps.record(&ww)?;
        basis.record(k, steps) // h + c
    }

    fn numbers(&self, len: usize) -> usize {
        self.block.steps(len) + 1
    }

    fn cycle(&self, len: usize) -> Option<usize> {
        Some(self.block.steps(len))
    }

    fn process_step(&self, state: &mut GmresState<V>, numbers: &[f64], _: &mut Vec<[f64; 2]>) -> Result<f64> {
        let [ww, h @ ..] = numbers else { return Ok(f64::NAN) };
        state.least_squares.extend(h, ww.sqrt(), V::Elem::EPSILON)
    }

    fn finish(&self, system: &System<'_, V>, x: &mut V, state: &mut GmresState<V>) -> Result<()> {
        if state.minimiser().is_empty() {
            return Ok(());
        }
        let GmresState { basis, v, z, y, last, .. } = state;
        // a direct solver is applied once: `z` is M⁻¹ v₀ if no second step was made, also none that broke down or is in flight
        if let ([y], 0, 1) = (&y[..], *last, V::Steps::LAG) {
            x.axpy(&(*y).into(), z);
            return Ok(());
        }
        basis.combine(y, v)?; // v = V y
        system.m.apply(v, z)?;
        x.axpy(&V::Elem::one().into(), z); // x = x + M⁻¹ V y
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 1.5 * (self.block.restart as f64 + 1.0) + 11.0 }
    }

    fn stagnation_window(&self) -> StagnationWindow {
        // A cycle without progress is repeated identically by the next one, so ten cycles are a sufficient
        // window.
        StagnationWindow { iterations: self.block.restart.saturating_mul(10), fall: 0.01 }
    }
}
