//! The format and the ordering of a matrix. Where many solves are ahead, they are compared by their products: cost models are fitted
//! to other matrices and machines.

use super::{Backend, solver::operator};
use crate::choice::{Candidate, Choice, RowStatistics};
use crate::{Csr, Dia, Format, Operator, Real, Result};
use krysp_kernels::interrupt;
use krysp_solvers::{LinearOperator, Scalar, Space, Vector};
use std::time::{Duration, Instant};

/// Formats compared in each ordering, by their predicted cost.
const FORMATS: usize = 5;

/// A format that would cost so many times the cheapest is not compared.
const WORTH: f64 = 2.5;

/// Solves from which on any matrix is compared in another ordering too, where so many products may be spent on comparing.
const ENDLESS: usize = 1000;
const ORDERING: f64 = 500.0;

/// In another ordering products take this part of the time or less: all of `b` and `x` is permuted for it in every solve.
const GAINS: f64 = 0.98;

/// Products that may be spent on comparing, for each solve ahead and each node along a side of a cube of so many rows. Iterations
/// grow with that side: 1 to 10 for each node (`heat_sink_transient_80k`, `p7_64`), so this is a tenth of all products at most.
const SHARE: f64 = 0.1;

/// Seconds that the products of a comparison may take from which on a GPU compares: the kernels of each further format may have to be
/// compiled, which takes 0.3 to 0.9 s.
const COMPILATION: f64 = 0.1;

/// Products at a time, and how often two operators take turns at most; and when one that is slower by so much is given up.
const PRODUCTS: usize = 4;
const TURNS: usize = 24;
const HOPELESS: f64 = 1.3;

/// The share of `x` read from anywhere, and the bytes of `x`, from which on another ordering may bring it into the cache; and the
/// part of that share that may be left in an ordering that is worth its while.
const SCATTERED: f64 = 0.1;
const CACHE: usize = 1 << 18;
const NEARER: f64 = 0.75;

/// Whether rows of a matrix in the user's ordering read `x` from anywhere, and not from the cache. By diagonals it is read in order.
pub(super) fn is_scattered<T: Real>(given: &Csr<T>, choice: &Choice) -> bool {
    is_large(given) && choice.stored().format() != Dia::<T>::NAME && choice.rows().scattering >= SCATTERED
}

/// The matrix in the ordering of the machine, where its rows then read `x` from nearer. A good ordering is kept.
pub fn nearer<T: Real>(machine: &impl Backend<T>, given: &Csr<T>) -> Result<Option<Csr<T>>> {
    let before = RowStatistics::of(given).scattering;
    if before < SCATTERED {
        return Ok(None);
    }
    let reordered = given.reordered(&machine.ordering(given)?)?;
    let is_nearer = RowStatistics::of(&reordered).scattering <= NEARER * before;
    Ok(is_nearer.then_some(reordered))
}

/// Whether a matrix in the user's ordering has more columns than fit into the cache.
fn is_large<T: Real>(given: &Csr<T>) -> bool {
    given.rows() * size_of::<T>() >= CACHE && given.domain().permutation().is_none()
}

/// The products that may be spent on comparing in one ordering.
fn affordable<T: Real>(given: &Csr<T>, solves: usize) -> f64 {
    SHARE * solves as f64 * (given.rows() as f64).cbrt()
}

/// The turns of each comparison that these allow.
fn turns<T: Real>(given: &Csr<T>, solves: usize) -> usize {
    (affordable(given, solves) as usize / (2 * PRODUCTS * FORMATS)).clamp(2, TURNS)
}

/// A matrix, in the ordering of the machine if that makes its products faster, and in the format whose products take the least
/// time. That ordering is tried where rows are scattered; else only if it costs little beside what is ahead.
pub(super) fn fastest<T: Real, M: Backend<T>>(
    machine: &M,
    given: Csr<T>,
    symmetric: bool,
    solves: usize,
) -> Result<(Csr<T>, Operator<M::Vector>)> {
    let kept = in_formats(machine, &given, symmetric, solves)?;
    let reordered = given.domain().permutation().is_some();
    let endless = solves >= ENDLESS && affordable(&given, solves) >= ORDERING;
    if reordered || !endless && !is_scattered(&given, kept.choice()) {
        return Ok((given, kept));
    }
    let reordered = given.reordered(&machine.ordering(&given)?)?;
    let other = in_formats(machine, &reordered, symmetric, solves)?;
    let turns = turns(&given, solves);
    Ok(if is_faster(&other, &kept, GAINS, turns)? { (reordered, other) } else { (given, kept) })
}

/// Stores a matrix in the format with the fastest products, among as many formats as there is time to compare.
fn in_formats<T: Real, M: Backend<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
    solves: usize,
) -> Result<Operator<M::Vector>> {
    let mut best = operator(machine, matrix, symmetric, None)?;
    let started = Instant::now();
    let [product, _] = compare([&best; 2], 2)?;
    let most = product.as_secs_f64() * affordable(matrix, solves) / PRODUCTS as f64;
    let turns = turns(matrix, solves);
    let worth = WORTH * best.choice().chosen().cost;
    let others = best.choice().rejected().iter().filter_map(|other| match other {
        Candidate::HigherCost(other) if other.cost <= worth => Some(other.stored.format()),
        _ => None,
    });
    if !M::ON_HOST && most < COMPILATION {
        return Ok(best);
    }
    for format in others.take(FORMATS - 1).collect::<Vec<_>>() {
        if started.elapsed().as_secs_f64() > most {
            break;
        }
        // what cannot be converted after all is none the worse for it
        let Ok(other) = Operator::known(matrix, machine, symmetric, Some(format)) else { continue };
        if is_faster(&other, &best, 1.0, turns)? {
            best = other;
        }
    }
    Ok(best)
}

/// Whether a product takes less than this part of the time of another.
fn is_faster<V: Vector>(a: &Operator<V>, b: &Operator<V>, part: f64, turns: usize) -> Result<bool> {
    let [own, other] = compare([a, b], turns)?;
    Ok(own < other.mul_f64(part))
}

/// What [`PRODUCTS`] take in each format, when nothing disturbs them: they take turns.
fn compare<V: Vector>(operators: [&Operator<V>; 2], turns: usize) -> Result<[Duration; 2]> {
    let vectors = |a: &Operator<V>| Ok::<_, crate::Error>((a.domain().zeros()?, a.range().zeros()?));
    let mut vectors = [vectors(operators[0])?, vectors(operators[1])?];
    let mut least = [Duration::MAX; 2];
    for turn in 0..turns {
        interrupt::check("comparison of formats")?;
        for ((operator, (x, y)), least) in operators.iter().zip(&mut vectors).zip(&mut least) {
            let started = Instant::now();
            (0..PRODUCTS).try_for_each(|_| operator.apply(x, y))?;
            // hardware that computes by itself is waited for
            y.norm_squared().read()?;
            *least = started.elapsed().min(*least);
        }
        let [less, more] = [least[0].min(least[1]), least[0].max(least[1])];
        if turn > 0 && more > less.mul_f64(HOPELESS) {
            break;
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;
    use crate::testing::matrices;

    #[test]
    fn as_much_is_spent_on_comparing_as_is_ahead() {
        let [few, many] = [3, 20].map(|n| matrices::stencil7(n).csr::<f64>().unwrap());
        assert!(affordable(&few, ENDLESS) < ORDERING && ORDERING < affordable(&many, ENDLESS));
        let [few_turns, some, most] = [10, 100, ENDLESS].map(|solves| turns(&many, solves));
        assert!(few_turns == 2 && (3..TURNS).contains(&some) && most == TURNS);
        // unknowns that are few stay as they are numbered
        let (csr, operator) = fastest(&Host, few, true, ENDLESS).unwrap();
        assert!(csr.domain().permutation().is_none() && operator.domain() == csr.domain());
    }
}
