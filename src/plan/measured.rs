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

/// Solves from which on any matrix is compared in another numbering, which takes some hundred products.
const ENDLESS: usize = 1000;

/// Products at a time, and how often two operators take turns; and when one that is slower by so much is given up.
const PRODUCTS: usize = 4;
const TURNS: usize = 24;
const HOPELESS: f64 = 1.3;

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
/// time. That numbering is tried where rows are scattered; else only if it costs nothing beside what is ahead.
pub(super) fn fastest<T: Real, M: Builds<T>>(
    machine: &M,
    given: Csr<T>,
    symmetric: bool,
    solves: usize,
) -> Result<(Csr<T>, Operator<M::Vector>)> {
    let kept = in_formats(machine, &given, symmetric)?;
    let numbered = given.domain().numbering().is_some();
    if numbered || solves < ENDLESS && !is_scattered(&given, kept.choice()) {
        return Ok((given, kept));
    }
    let renumbered = given.renumbered(&machine.numbering(&given)?)?;
    let other = in_formats(machine, &renumbered, symmetric)?;
    Ok(if is_faster(&other, &kept)? { (renumbered, other) } else { (given, kept) })
}

/// In the format of the fastest products.
fn in_formats<T: Real, M: Builds<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
) -> Result<Operator<M::Vector>> {
    let mut best = operator(machine, matrix, symmetric, None)?;
    let worth = WORTH * best.choice().chosen().cost;
    let others = best.choice().rejected().iter().filter_map(|other| match other {
        Candidate::Costlier(other) if other.cost <= worth => Some(other.stored.format()),
        _ => None,
    });
    for format in others.take(FORMATS - 1).collect::<Vec<_>>() {
        // what cannot be converted after all is none the worse for it
        let Ok(other) = Operator::in_format(matrix, machine, format) else { continue };
        if is_faster(&other, &best)? {
            best = other;
        }
    }
    Ok(best)
}

/// Whether a product takes less time than that of another, each when nothing disturbs it: they take turns.
fn is_faster<V: Vector>(a: &Operator<V>, b: &Operator<V>) -> Result<bool> {
    let mut pairs =
        [(a, a.domain().zeros()?, a.range().zeros()?), (b, b.domain().zeros()?, b.range().zeros()?)];
    let mut least = [f64::INFINITY; 2];
    for turn in 0..TURNS {
        for ((operator, x, y), least) in pairs.iter_mut().zip(&mut least) {
            let started = Instant::now();
            (0..PRODUCTS).try_for_each(|_| operator.apply(x, y))?;
            // hardware that computes by itself is waited for
            y.norm_squared().read()?;
            *least = least.min(started.elapsed().as_secs_f64());
        }
        let [own, other] = least;
        if turn > 0 && own.max(other) > HOPELESS * own.min(other) {
            break;
        }
    }
    Ok(least[0] < least[1])
}
