//! The format and the numbering of a matrix. Where many solves are ahead, they are compared by their products: prices are fitted
//! to other matrices and machines.

use super::{Builds, ladder::operator};
use crate::choice::{Candidate, Choice, RowStatistics};
use crate::{Csr, Dia, Format, Operator, Real, Result};
use krysp_solvers::{LinearOperator, Scalar, Space, Vector};
use std::time::Instant;

/// Formats compared in each numbering, by their foretold cost.
const FORMATS: usize = 5;

/// A format that would cost so many times the cheapest is not compared.
const WORTH: f64 = 2.5;

/// Products at a time, and how often.
const PRODUCTS: [usize; 2] = [4, 6];

/// The share of `x` read from anywhere, and the bytes of `x`, from which on another numbering may bring it into the cache; and the
/// part of that share that may be left in a numbering that is worth its while.
const SCATTERED: f64 = 0.1;
const CACHE: usize = 1 << 18;
const NEARER: f64 = 0.75;

/// Whether rows of a matrix in the user's numbering read `x` from anywhere, and not from the cache. By diagonals it is read in order.
pub(super) fn is_scattered<T: Real>(given: &Csr<T>, choice: &Choice) -> bool {
    is_large(given) && choice.stored().format() != Dia::<T>::NAME && choice.rows().scattering >= SCATTERED
}

/// The matrix in the numbering of the machine, where its rows then read `x` from nearer. What was numbered well stays as it is.
pub fn nearer<T: Real>(machine: &impl Builds<T>, given: &Csr<T>) -> Result<Option<Csr<T>>> {
    let before = RowStatistics::of(given).scattering;
    if before < SCATTERED {
        return Ok(None);
    }
    let renumbered = given.renumbered(&machine.numbering(given)?)?;
    let is_nearer = RowStatistics::of(&renumbered).scattering <= NEARER * before;
    Ok(is_nearer.then_some(renumbered))
}

/// Whether a matrix in the user's numbering has more columns than there is room for in the cache.
fn is_large<T: Real>(given: &Csr<T>) -> bool {
    given.rows() * size_of::<T>() >= CACHE && given.domain().numbering().is_none()
}

/// A matrix, in the numbering of the machine if that makes its products faster, and in the format whose products take the least
/// time.
pub(super) fn fastest<T: Real, M: Builds<T>>(
    machine: &M,
    given: Csr<T>,
    symmetric: bool,
) -> Result<(Csr<T>, Operator<M::Vector>)> {
    let (kept, seconds) = in_formats(machine, &given, symmetric)?;
    if !is_scattered(&given, kept.choice()) {
        return Ok((given, kept));
    }
    let renumbered = given.renumbered(&machine.numbering(&given)?)?;
    let (other, less) = in_formats(machine, &renumbered, symmetric)?;
    Ok(if less < seconds { (renumbered, other) } else { (given, kept) })
}

/// The format of the fastest products, and what one takes.
fn in_formats<T: Real, M: Builds<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
) -> Result<(Operator<M::Vector>, f64)> {
    let mut best = operator(machine, matrix, symmetric, None)?;
    let mut least = seconds(&best)?;
    let worth = WORTH * best.choice().chosen().cost;
    let others = best.choice().rejected().iter().filter_map(|other| match other {
        Candidate::Costlier(other) if other.cost <= worth => Some(other.stored.format()),
        _ => None,
    });
    for format in others.take(FORMATS - 1).collect::<Vec<_>>() {
        // what cannot be converted after all is none the worse for it
        let Ok(other) = Operator::in_format(matrix, machine, format) else { continue };
        let time = seconds(&other)?;
        if time < least {
            (best, least) = (other, time);
        }
    }
    Ok((best, least))
}

/// The time of a product, when nothing disturbs it.
fn seconds<V: Vector>(a: &Operator<V>) -> Result<f64> {
    let (x, mut y) = (a.domain().zeros()?, a.range().zeros()?);
    let [products, rounds] = PRODUCTS;
    let mut least = f64::INFINITY;
    for _ in 0..=rounds {
        let started = Instant::now();
        (0..products).try_for_each(|_| a.apply(&x, &mut y))?;
        // hardware that computes by itself is waited for
        y.norm_squared().read()?;
        least = least.min(started.elapsed().as_secs_f64());
    }
    Ok(least / products as f64)
}
