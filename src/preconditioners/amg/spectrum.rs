//! The largest eigenvalue of a level's `D⁻¹ A`, and the weights of the smoother, which follow from it.

use super::NAME;
use crate::error::{Error, Result};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::interrupt::Interrupted;
use krysp_solvers::{BasicVector, Diagonal, LinearOperator, Scalar, Space, Vector};
use std::ops::Range;

/// Number of conjugate gradient (Lanczos) steps that estimate the largest eigenvalue of `D⁻¹ A`.
const STEPS: usize = 6;

/// Number of Lanczos steps in a refresh; the factor by which the remaining steps increase the estimate is
/// taken from the first setup.
const STEPS_OF_REFRESH: usize = 3;

/// Weights of Jacobi sweeps: the inverse roots of the Chebyshev polynomial on `[0.15 largest, largest]`, or
/// on the upper half of the spectrum for a single sweep.
pub(crate) fn weights(largest: f64, sweeps: usize) -> Vec<f32> {
    let fraction = match sweeps {
        1 => 0.5,
        _ => 0.15,
    };
    let [low, high] = [fraction * largest, largest];
    let root = |k: usize| {
        let angle = std::f64::consts::PI * (2 * k + 1) as f64 / (2 * sweeps) as f64;
        0.5 * (high + low) + 0.5 * (high - low) * angle.cos()
    };
    (0..sweeps).map(|k| (1.0 / root(k)) as f32).collect()
}

/// Pseudo-random numbers between −1 and 1 for these rows, which do not depend on the number of ranks.
pub(crate) fn noise(rows: Range<usize>) -> Vec<f32> {
    map_rows(rows.len(), 2, &|at| {
        let bits = ((rows.start + at) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = (bits ^ bits >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    })
}

/// Estimates the largest eigenvalue of `D⁻¹ A`, increased by 7 %, from the Lanczos matrix of conjugate
/// gradient steps that start with [`noise`]. On a GPU all steps are queued before the first scalar is read
/// back.
///
/// `gain` is set to the ratio of the estimates after all steps and after [`STEPS_OF_REFRESH`] steps. If
/// `gain` is given, only [`STEPS_OF_REFRESH`] steps run, and their estimate is multiplied by it; for an
/// unchanged matrix both estimates are equal. Returns 2 if already the first step is impossible, for example
/// because the matrix is zero.
pub(crate) fn largest<A>(
    a: &A,
    inverse: &Diagonal<A::Vector>,
    noise: A::Vector,
    gain: &mut Option<f64>,
) -> Result<f64>
where
    A: LinearOperator<Vector: Vector<Elem = f32>>,
{
    let zeros = || a.domain().zeros();
    let (mut r, mut z, mut p, mut q) = (noise, zeros()?, zeros()?, zeros()?);
    let mut rho = inverse.apply_dot(&r, &mut z)?;
    p.copy_from(&z);
    let mut steps = vec![];
    let count = if gain.is_some() { STEPS_OF_REFRESH } else { STEPS };
    while steps.len() < count {
        if a.domain().is_interrupted() {
            return Err(Interrupted { phase: "estimate of the largest eigenvalue" }.into());
        }
        let energy = a.apply_dot(&p, &mut q)?;
        if steps.len() + 1 == count {
            steps.push([rho, energy]);
            break;
        }
        let step = -rho.clone().quotient(energy.clone());
        let [_, next] = inverse.axpy_apply_dot(&step, &q, &mut r, &mut z)?;
        p.axpby(&1.0.into(), &z, &next.clone().quotient(rho.clone()));
        steps.push([std::mem::replace(&mut rho, next), energy]);
    }
    // the Lanczos matrix: its diagonal, and the squares of its off-diagonal
    let (mut diagonal, mut beside, mut before, mut first) = (vec![], vec![], None, 0.0);
    let mut values = vec![];
    Scalar::read_all(steps.iter().flatten(), &mut values)?;
    for numbers in values.chunks_exact(2) {
        let [rho, energy] = [numbers[0], numbers[1]].map(f64::from);
        if energy < 0.0 {
            let why = format!(
                "it is not positive definite: ⟨p, A p⟩ = {energy:.3e} for a vector p; for indefinite matrices use \
                 `Ldl`, `Ilu0` or `Ilut`"
            );
            return Err(Error::Unsuitable { format: NAME, why });
        }
        first = if diagonal.is_empty() { rho } else { first };
        // converged up to rounding, or a zero vector
        if !(rho > 1e-12 * first && energy > 0.0 && rho.is_finite() && energy.is_finite()) {
            break;
        }
        let inverse_step = energy / rho;
        let (shared, squared) = match before {
            Some((rho_before, inverse_before)) => {
                let beta: f64 = rho / rho_before;
                (beta * inverse_before, beta * inverse_before * inverse_before)
            }
            None => (0.0, 0.0),
        };
        diagonal.push(inverse_step + shared);
        beside.push(squared);
        before = Some((rho, inverse_step));
    }
    if diagonal.is_empty() {
        return Ok(2.0);
    }
    let few = diagonal.len().min(STEPS_OF_REFRESH);
    let first = largest_eigenvalue(&diagonal[..few], &beside);
    let gain = *gain.get_or_insert_with(|| largest_eigenvalue(&diagonal, &beside) / first);
    Ok(1.07 * gain * first)
}

/// The largest eigenvalue of a symmetric positive definite tridiagonal matrix, by bisection; `beside[i]` is
/// the square of the off-diagonal entry before row `i`.
fn largest_eigenvalue(diagonal: &[f64], beside: &[f64]) -> f64 {
    let trace: f64 = diagonal.iter().sum();
    let (mut low, mut high) = (0.0, trace);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        // Sturm sequence: `middle I` minus the matrix is positive definite if all pivots are positive
        let mut pivot = 1.0;
        let above = diagonal.iter().zip(beside).all(|(d, squared)| {
            pivot = middle - d - squared / pivot;
            pivot > 0.0
        });
        if above {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}
