//! Choice of the format and the ordering of a matrix: by measured times if many products are ahead. Otherwise it may be reordered, which
//! takes as long as a hundred products, and reduces their time by up to three quarters if their reads of `x` are scattered.

use super::backend::operator;
use super::matched::Begins;
use super::{Backend, PlannedSolver, WorkUnits};
use crate::choice::{Candidate, Choice, Operator, RowStatistics};
use crate::error::Result;
use crate::formats::user_order::UserOrder;
use crate::formats::{Csr, Dia, Format};
use crate::numbers::Real;
use krysp_kernels::interrupt;
use krysp_solvers::{LinearOperator, Scalar, Space, Vector};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of formats, those of the least predicted cost, that are measured in each ordering. Not measured; it bounds the time.
const FORMATS: usize = 5;

/// Formats whose predicted cost is above this multiple of the cheapest one's are not measured. Not measured.
const WORTH: f64 = 2.5;

/// Number of affordable products from which on every matrix is also measured in the machine's ordering. Not measured.
const ORDERING: f64 = 500.0;

/// Maximum time of a product after reordering, divided by that before. Below 1, because solves then permute `b` and `x`. Not measured.
const GAINS: f64 = 0.98;

/// Fraction of the work ahead that may be spent on measuring the formats in one ordering. A guess.
const SHARE: f64 = 0.05;

/// Minimum time in seconds for measuring formats on a GPU, where each further format may compile kernels, in 0.3 to 0.9 s.
const COMPILATION: f64 = 0.1;

/// Two operators are compared by at most `TURNS` alternating measurements of each, `PRODUCTS` products per measurement. The
/// comparison stops early if the ratio of their times exceeds `HOPELESS`. Not measured.
const PRODUCTS: usize = 4;
const TURNS: usize = 24;
const HOPELESS: f64 = 1.3;

/// Another ordering may improve the use of the cache if `scattering` (32-byte sectors of `x` read per entry) is at least
/// `SCATTERED` and `x` takes at least `CACHE` bytes. It is used if its `scattering` is at most the fraction `NEARER` of that in
/// the given ordering. Not measured.
const SCATTERED: f64 = 0.1;
const CACHE: usize = 1 << 18;
const NEARER: f64 = 0.75;

/// Whether products make scattered reads of an `x` that does not fit into the cache. DIA reads `x` contiguously.
pub(super) fn is_scattered<T: Real>(given: &Csr<T>, choice: &Choice) -> bool {
    let is_large = given.rows() * size_of::<T>() >= CACHE && given.domain().permutation().is_none();
    is_large && choice.stored().format() != Dia::<T>::NAME && choice.rows().scattering >= SCATTERED
}

/// The matrix in the machine's ordering, if that makes the reads of `x` in products more local; `None` if the given ordering is kept.
pub fn nearer<T: Real>(machine: &impl Backend<T>, given: &Csr<T>) -> Result<Option<Csr<T>>> {
    let before = RowStatistics::of(given).scattering;
    if before < SCATTERED {
        return Ok(None);
    }
    let reordered = given.reordered(&machine.ordering(given)?)?;
    let is_nearer = RowStatistics::of(&reordered).scattering <= NEARER * before;
    Ok(is_nearer.then_some(reordered))
}

/// The matrix in another ordering, if it is to be reordered, and its operator.
type Chosen<T, V> = (Option<Csr<T>>, Operator<V>);

/// The matrix in the machine's ordering, with its operator; `None` if that would not make the reads of `x` more local.
pub(super) fn reordered<T: Real, M: Backend<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
) -> Result<Option<Chosen<T, M::Vector>>> {
    let Some(matrix) = nearer(machine, matrix)? else { return Ok(None) };
    let operator = operator(machine, &matrix, symmetric, None)?;
    Ok(Some((Some(matrix), operator)))
}

/// Work that may be spent on measuring in one ordering, in units; a product takes about one.
fn affordable(ahead: WorkUnits) -> f64 {
    SHARE * ahead.0
}

/// Number of measurements of each of two operators for which [`affordable`] products suffice.
fn turns(ahead: WorkUnits) -> usize {
    (affordable(ahead) as usize / (2 * PRODUCTS * FORMATS)).clamp(2, TURNS)
}

/// The operator of a matrix in the format with the fastest products, for the work that is `ahead`; and the matrix in the machine's ordering,
/// if that is allowed and makes its products faster. The machine's ordering is measured if reads of `x` are scattered, or if measuring costs
/// little compared to the work ahead.
pub(super) fn fastest<T: Real, M: Backend<T>>(
    machine: &M,
    given: &Csr<T>,
    symmetric: bool,
    ahead: WorkUnits,
    may_reorder: bool,
) -> Result<Chosen<T, M::Vector>> {
    let kept = in_formats(machine, given, symmetric, ahead)?;
    let reordered = given.domain().permutation().is_some();
    let pays = affordable(ahead) >= ORDERING || is_scattered(given, kept.choice());
    if !may_reorder || reordered || !pays {
        return Ok((None, kept));
    }
    let reordered = given.reordered(&machine.ordering(given)?)?;
    let other = in_formats(machine, &reordered, symmetric, ahead)?;
    let is_faster = is_faster(&other, &kept, GAINS, turns(ahead))?;
    Ok(if is_faster { (Some(reordered), other) } else { (None, kept) })
}

/// Stores a matrix in the format with the fastest products, among as many formats as there is time to measure.
fn in_formats<T: Real, M: Backend<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
    ahead: WorkUnits,
) -> Result<Operator<M::Vector>> {
    let mut best = operator(machine, matrix, symmetric, None)?;
    let started = Instant::now();
    let [product, _] = compare([&best; 2], 2)?;
    let most = product.as_secs_f64() * affordable(ahead) / PRODUCTS as f64;
    let turns = turns(ahead);
    let worth = WORTH * best.choice().chosen().cost;
    let others = best.choice().rejected().iter().filter_map(|other| match other {
        Candidate::HigherCost(other) if other.cost <= worth => Some(other.stored.format()),
        _ => None,
    });
    if machine.class().is_gpu() && most < COMPILATION {
        return Ok(best);
    }
    for format in others.take(FORMATS - 1).collect::<Vec<_>>() {
        if started.elapsed().as_secs_f64() > most {
            break;
        }
        // skip formats to which the matrix cannot be converted
        let Ok(other) = Operator::known(matrix, machine, symmetric, Some(format)) else { continue };
        if is_faster(&other, &best, 1.0, turns)? {
            best = other;
        }
    }
    Ok(best)
}

/// Whether a product with `a` takes less than `part` times the time of one with `b`.
fn is_faster<V: Vector>(a: &Operator<V>, b: &Operator<V>, part: f64, turns: usize) -> Result<bool> {
    let [own, other] = compare([a, b], turns)?;
    Ok(own < other.mul_f64(part))
}

/// Minimum time of [`PRODUCTS`] products with each operator. Measurements alternate, so that disturbances affect both.
fn compare<V: Vector>(operators: [&Operator<V>; 2], turns: usize) -> Result<[Duration; 2]> {
    let vectors = |a: &Operator<V>| Ok::<_, crate::error::Error>((a.domain().zeros()?, a.range().zeros()?));
    let mut vectors = [vectors(operators[0])?, vectors(operators[1])?];
    let mut least = [Duration::MAX; 2];
    for turn in 0..turns {
        interrupt::check("comparison of formats")?;
        for ((operator, (x, y)), least) in operators.iter().zip(&mut vectors).zip(&mut least) {
            let started = Instant::now();
            (0..PRODUCTS).try_for_each(|_| operator.apply(x, y))?;
            // wait for devices that compute asynchronously
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

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Replaces the matrix by a reordered one, and drops all preconditioners.
    pub(super) fn adopt(&mut self, matrix: Csr<T>, operator: Operator<M::Vector>) {
        self.user_order = Some(UserOrder::new(self.user(), matrix.source()));
        (self.matrix, self.operator) = (Arc::new(matrix), Some(operator));
        (self.running, self.kept, self.residual) = (None, None, None);
        self.begins = Begins::default();
        self.symbolic = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::plan::Plan;
    use crate::testing::matrices;

    #[test]
    fn the_work_ahead_limits_what_is_spent_on_measuring() {
        let [few_turns, some, most] = [1e3, 5e3, 1e5].map(|ahead| turns(WorkUnits(ahead)));
        assert!(few_turns == 2 && (3..TURNS).contains(&some) && most == TURNS);
        let csr = matrices::stencil7(10).csr::<f64>().unwrap();
        for (ahead, may_reorder) in [(1e3, true), (1e5, false)] {
            let (reordered, operator) = fastest(&Host, &csr, true, WorkUnits(ahead), may_reorder).unwrap();
            assert!(reordered.is_none() && operator.domain() == csr.domain());
        }
    }

    #[test]
    fn a_matrix_is_reordered_when_solves_have_paid_for_it() {
        // a cube whose unknowns are in random order, too large for the cache
        let cube = matrices::stencil7(35).csr::<f64>().unwrap();
        let anyhow = |index: usize| index * 7919 % 42_875;
        let entries: Vec<_> = cube.triplets().map(|(i, j, value)| (anyhow(i), anyhow(j), value)).collect();
        let a = Csr::from_triplets(42_875, 42_875, &entries).unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.37).sin()).collect();
        let mut solver = Plan::new(&a).unwrap().build().unwrap();
        let first = solver.solve(&b).unwrap();
        // the matrix is not shared: a refresh of a shared one would copy it
        assert_eq!(Arc::strong_count(&solver.matrix), 1);
        assert!(first.converged() && solver.matrix.domain().permutation().is_none(), "{first}");
        // no elimination ordering was computed either
        assert!(solver.scheduler.found.factorization.is_none() && solver.symbolic.lock().unwrap().is_none());
        let solved: Vec<_> = (0..4).map(|_| solver.solve(&b).unwrap()).collect();
        assert!(solver.matrix.domain().permutation().is_some());
        for solved in solved {
            assert!(solved.converged(), "{solved}");
            let most = first.x.iter().zip(&solved.x).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(most < 1e-6, "{most}");
        }
        // the order of values is that of the entries of the given matrix
        let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
        let assembled: Vec<f64> = entries.iter().map(|(.., value)| 2.0 * value).collect();
        for refresh in 0..3 {
            match refresh {
                0 => solver.refresh(&doubled).unwrap(),
                1 => solver.refresh(&solver.assemble(&assembled).unwrap()).unwrap(),
                _ => solver.refresh_from(&a.with_values(&doubled).unwrap()).unwrap(),
            }
            let half = solver.solve(&b).unwrap();
            let most = first.x.iter().zip(&half.x).map(|(x, y)| (x - 2.0 * y).abs()).fold(0.0, f64::max);
            assert!(half.converged() && most < 1e-6, "{most}");
            solver.refresh(a.entries()).unwrap();
        }
    }
}
