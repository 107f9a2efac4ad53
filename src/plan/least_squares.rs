//! Consistency test: minimizes the residual, which shows whether the system has a solution, and verifies the minimum.
//!
//! The norm of `r = b − A x` is the least if `Aᵀ r = 0`: then `‖b − A y‖² = ‖r‖² + ‖A (x − y)‖²` for every `y`. Two methods are used:
//!
//! - Factors of a rank-deficient matrix give an `N` whose rows span the left null space, all `v` with `vᵀ A = 0`. Then
//!   `r = Nᵀ (N Nᵀ)⁻¹ N b`, and `A x = b − r` has a solution, which GMRES with the factors finds.
//! - Conjugate gradients on `Aᵀ A x = Aᵀ b`, scaled by the norms of the columns.

use super::executor::stored;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::formats::derived::Derivation;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::preconditioners::Lu;
use krysp_solvers::{
    BasicVector, Cg, Composed, Diagonal, Element, Gmres, LinearOperator, Outcome, Space, Stopping,
};
use std::time::{Duration, Instant};

/// Maximum number of iterations of conjugate gradients, even if the caller allows more. Each takes two products. Not
/// measured.
const ITERATIONS: usize = 5_000;

/// Maximum number of iterations of GMRES with the factors as preconditioner. Not measured.
const REFINEMENTS: usize = 20;

/// Relative tolerance of the component of `b` in the left null space, divided by [`Normal::tolerance`]. The error of the component remains in
/// the right-hand side of GMRES, which cannot reduce it. A guess: for a web graph a factor of 10 is worth 35 of 250 iterations.
const UNREACHABLE: f64 = 0.25;

/// Result of minimizing the residual.
pub(super) struct Least<T> {
    /// The minimizer, in the user's ordering.
    pub(super) x: Vec<T>,
    /// Whether it is certain that no `x` has a much smaller residual.
    pub(super) certain: bool,
    pub(super) iterations: usize,
    pub(super) time: Duration,
    /// Outcome of the solver that found `x`.
    pub(super) outcome: Outcome,
}

/// The normal equations of a system.
struct Normal<'a, T: Real> {
    a: &'a Csr<T>,
    transposed: Csr<T>,
    /// Norms of the columns of `A`.
    norms: Vec<f64>,
    b: HostVector<T>,
    /// `Aᵀ r` counts as zero if `‖D⁻¹ Aᵀ r‖ ≤ slope ‖r‖`, where `D` is the diagonal matrix of `norms`.
    slope: f64,
    /// Maximum number of iterations.
    most: usize,
    started: Instant,
}

/// Minimizes the residual. If `factorised`, the matrix is factorized, and the factors are used if they are rank-deficient. Unless that
/// gives a certain result, conjugate gradients from `guess` follow. Each makes at most `most` iterations. For `slope` see [`Normal`].
/// Returns `None` if the transpose cannot be formed, or if no result is finite.
pub(super) fn least_squares<T: Real>(
    a: &Csr<T>,
    b: &[T],
    guess: &[T],
    slope: f64,
    factorised: bool,
    most: usize,
) -> Result<Option<Least<T>>> {
    let started = Instant::now();
    let Ok((transposed, _)) = Derivation::transposed(a) else { return Ok(None) };
    let space = a.domain();
    // the norms of the columns of A are those of the rows of Aᵀ
    let norms = (0..a.rows()).map(|row| norm(transposed.row_values(row))).collect();
    let normal = Normal { a, transposed, norms, b: space.vector(b)?, slope, most, started };
    let factors = match factorised {
        true => match Lu::tolerant(a) {
            Err(Error::Interrupted(interrupted)) => return Err(interrupted.into()),
            factors => factors.ok().filter(|factors| factors.missing() > 0),
        },
        false => None,
    };
    let mut least: Option<Least<T>> = None;
    let uncertain = |least: &Option<Least<T>>| least.as_ref().is_none_or(|least| !least.certain);
    if let Some(factors) = factors {
        let tolerance = normal.tolerance();
        for tolerance in [tolerance, T::EPSILON.min(tolerance)] {
            if uncertain(&least) {
                least = normal.finished(normal.by_factors(&factors, tolerance)?)?.or(least);
            }
        }
    }
    if uncertain(&least) {
        let by_gradients = normal.by_gradients(space.vector(guess)?)?;
        least = normal.finished(by_gradients)?.or(least);
    }
    Ok(least)
}

impl<T: Real> Normal<'_, T> {
    /// Norm of the error of a residual, relative to the residual, that [`Normal::finished`] accepts as certain: for a residual `r + e`
    /// with `Aᵀ r = 0`, `‖D⁻¹ Aᵀ (r + e)‖ ≤ √ℓ ‖e‖`, where `ℓ` is the length of the longest row.
    fn tolerance(&self) -> f64 {
        let longest = self.a.row_lengths().max().unwrap_or(0).max(1);
        self.slope / (longest as f64).sqrt()
    }

    /// Minimizes the residual with factors of a rank-deficient matrix, with an error of its component in the range of `A` of about
    /// `tolerance` times the residual.
    fn by_factors(&self, factors: &Lu<T>, tolerance: f64) -> Result<(HostVector<T>, usize, Outcome)> {
        let space = self.a.domain();
        let (mut rhs, one) =
            (factors.unreachable(&self.b, (UNREACHABLE * tolerance).max(T::EPSILON))?, T::from_f64(1.0));
        let least = norm(rhs.as_slice());
        rhs.axpby(&one, &self.b, &T::from_f64(-1.0));
        let mut x = space.zeros()?;
        let mut solver = Gmres::new(self.a).preconditioner(factors);
        *solver.stopping_mut() = Stopping {
            rtol: T::EPSILON.powf(0.75),
            atol: tolerance * least,
            max_iterations: REFINEMENTS.min(self.most),
            ..Stopping::new(T::EPSILON)
        };
        let report = solver.solve_into(&rhs, &mut x)?.clone();
        Ok((x, report.iterations, report.outcome))
    }

    /// Minimizes the residual by conjugate gradients for a correction of the guess, `Aᵀ A d = Aᵀ (b − A x)`.
    fn by_gradients(&self, mut x: HostVector<T>) -> Result<(HostVector<T>, usize, Outcome)> {
        let space = self.a.domain();
        let mut scale = space.zeros()?;
        for (entry, &norm) in scale.as_mut_slice().iter_mut().zip(&self.norms) {
            let inverse = T::from_f64(1.0 / (norm * norm));
            *entry = if norm > 0.0 && Element::is_finite(inverse) { inverse } else { T::from_f64(1.0) };
        }
        let (mut r, mut rhs, mut gain) = (space.zeros()?, space.zeros()?, space.zeros()?);
        self.a.residual(&self.b, &x, &mut r)?;
        self.transposed.apply(&r, &mut rhs)?;
        let mut solver =
            Cg::new(Composed::new(&self.transposed, self.a)?).preconditioner(Diagonal::new(scale));
        *solver.stopping_mut() = Stopping {
            rtol: T::EPSILON,
            max_iterations: ITERATIONS.min(self.most),
            ..Stopping::new(T::EPSILON)
        };
        let report = solver.solve_into(&rhs, &mut gain)?.clone();
        x.axpby(&T::from_f64(1.0), &gain, &T::from_f64(1.0));
        Ok((x, report.iterations, report.outcome))
    }

    /// Tests whether the residual of `x` is the least; `None` if `x` is not finite.
    fn finished(&self, (x, made, outcome): (HostVector<T>, usize, Outcome)) -> Result<Option<Least<T>>> {
        let space = self.a.domain();
        let (mut r, mut rhs) = (space.zeros()?, space.zeros()?);
        self.a.residual(&self.b, &x, &mut r)?;
        self.transposed.apply(&r, &mut rhs)?;
        let rest = norm(r.as_slice());
        let scaled = rhs.as_slice().iter().zip(&self.norms).filter(|(_, norm)| **norm > 0.0);
        let rise = scaled.map(|(&v, norm)| (v.to_f64() / norm).powi(2)).sum::<f64>().sqrt();
        let certain = rise <= self.slope * rest;
        let x = stored(&x)?;
        let finite = x.iter().all(|&entry| Element::is_finite(entry));
        Ok(finite.then_some(Least { x, certain, iterations: made, time: self.started.elapsed(), outcome }))
    }
}

fn norm<T: Real>(values: &[T]) -> f64 {
    values.iter().map(|&value| value.to_f64().powi(2)).sum::<f64>().sqrt()
}
