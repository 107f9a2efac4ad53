//! Whether a system has a solution at all: the least residual, and the proof that it is the least.
//!
//! Conjugate gradients on `Aᵀ A x = Aᵀ b`, scaled by the norms of the columns, lead to the least residual `r`. It is that if
//! `Aᵀ r = 0`: then `‖b − A y‖² = ‖r‖² + ‖A (x − y)‖²` for every `y`.

use crate::formats::derived::Derivation;
use crate::{Cg, Csr, LinearOperator, Outcome, Real, Result};
use krysp_solvers::{Composed, Diagonal, Element, Space, Stopping, Vector};
use std::time::Duration;

/// Iterations at most: two products each.
const ITERATIONS: usize = 5_000;

/// The least residual that was found.
pub(super) struct Least<T> {
    /// In the user's numbering.
    pub(super) x: Vec<T>,
    /// Whether it is certain that the residual of no `x` is much smaller.
    pub(super) certain: bool,
    pub(super) iterations: usize,
    pub(super) time: Duration,
    /// How the search ended.
    pub(super) outcome: Outcome,
}

/// Looks for it from a guess. It is certain where `Aᵀ r` is at most this part of `r`. `None` if the matrix has no transpose here, or nothing finite came out.
pub(super) fn least_squares<T: Real>(
    a: &Csr<T>,
    b: &[T],
    guess: &[T],
    slope: f64,
) -> Result<Option<Least<T>>> {
    let Ok((transposed, _)) = Derivation::transposed(a) else { return Ok(None) };
    let space = a.domain();
    let (b, mut x) = (space.vector(b)?, space.vector(guess)?);
    // the norms of the columns of A are those of the rows of Aᵀ
    let norm = |row: usize| {
        let squares = transposed.row_values(row).iter().map(|&value| value.to_f64().powi(2));
        squares.sum::<f64>().sqrt()
    };
    let norms: Vec<f64> = (0..a.rows()).map(norm).collect();
    let mut scale = space.zeros()?;
    for (entry, &norm) in scale.as_mut_slice().iter_mut().zip(&norms) {
        let inverse = T::from_f64(1.0 / (norm * norm));
        *entry = if norm > 0.0 && Element::is_finite(inverse) { inverse } else { T::from_f64(1.0) };
    }
    // from the residual of the guess, which is where the normal equations are solved best
    let (mut r, mut rhs, mut gain) = (space.zeros()?, space.zeros()?, space.zeros()?);
    a.residual(&b, &x, &mut r)?;
    transposed.apply(&r, &mut rhs)?;
    let normal = Composed::new(&transposed, a)?;
    let mut solver = Cg::new(normal).preconditioner(Diagonal::new(scale));
    *solver.stopping_mut() =
        Stopping { rtol: T::EPSILON, max_iterations: ITERATIONS, ..Stopping::new(T::EPSILON) };
    let report = solver.solve_into(&rhs, &mut gain)?.clone();
    x.axpby(&T::from_f64(1.0), &gain, &T::from_f64(1.0));
    a.residual(&b, &x, &mut r)?;
    transposed.apply(&r, &mut rhs)?;
    let size = |vector: &[T]| vector.iter().map(|&v| v.to_f64().powi(2)).sum::<f64>().sqrt();
    let rest = size(r.as_slice());
    let scaled = rhs.as_slice().iter().zip(&norms).filter(|(_, norm)| **norm > 0.0);
    let rise = scaled.map(|(&v, norm)| (v.to_f64() / norm).powi(2)).sum::<f64>().sqrt();
    let mut found = vec![T::default(); guess.len()];
    space.store(&x, &mut found)?;
    if !found.iter().all(|&entry| Element::is_finite(entry)) {
        return Ok(None);
    }
    let certain = rise <= slope * rest;
    Ok(Some(Least {
        x: found,
        certain,
        iterations: report.iterations,
        time: report.time,
        outcome: report.outcome,
    }))
}
