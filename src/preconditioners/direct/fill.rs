//! Choice of a fill-reducing ordering.

use super::tree::Expected;
use crate::error::Result;
use crate::ordering::dissection;
use crate::ordering::minimum_degree::{self, Neighbours, Ordered};

/// Nested dissection is tried if the sum of the squared column lengths of the factor, in the order of minimum degree, is at
/// least this multiple of the number of pairs of neighbours. On two threads of an AMD EPYC (Zen 3) dissection takes about 0.6 µs for each pair, less if nodes
/// have several unknowns. It reduces the sum by a third at 7,900 (`heat_sink_transient_80k_K`) and 9,500
/// (`elast_bracket_p1_59k`), but takes as long as that saves, or longer; from 31,000 to 110,000 (3-D grids, `cage10`) it reduces the sum by 40 to 80 %.
const WORK: f64 = 2e4;

/// A fill-reducing ordering.
#[derive(Debug)]
pub(super) enum Reduced {
    /// An ordering whose elimination tree is not known.
    Ordered(Ordered),
    /// An ordering with its elimination tree.
    Analysed(Expected),
}

impl Reduced {
    pub(super) fn order(self) -> Vec<u32> {
        match self {
            Reduced::Ordered(ordered) => ordered.order,
            Reduced::Analysed(expected) => expected.order,
        }
    }

    /// Number of entries of one triangular factor and the sum of the squared lengths of its columns, if known.
    pub(super) fn work(&self) -> Option<[f64; 2]> {
        match self {
            Reduced::Ordered(ordered) => ordered.work,
            Reduced::Analysed(expected) => Some(expected.work()),
        }
    }

    /// Upper bounds on the number of entries of one triangular factor and on the sum of the squared lengths of its columns.
    pub(super) fn at_most(&self) -> [f64; 2] {
        match self {
            Reduced::Ordered(ordered) => ordered.at_most,
            Reduced::Analysed(expected) => expected.work(),
        }
    }

    /// The elimination tree for the pattern that was ordered.
    pub(super) fn expected(self, neighbours: &impl Neighbours) -> Result<Expected> {
        match self {
            Reduced::Ordered(ordered) => Expected::new(ordered.order, neighbours),
            Reduced::Analysed(expected) => Ok(expected),
        }
    }
}

/// Whether an order by minimum degree, whose columns have this sum of squared lengths, is compared with nested dissection. `pairs` is
/// the approximate number of pairs of neighbours.
pub(crate) fn is_long(squares: f64, n: usize, pairs: usize) -> bool {
    squares >= WORK * pairs.max(n) as f64
}

/// Computes an elimination order by minimum degree, and, where the factorization takes long, by nested dissection;
/// returns the one with the smaller sum. `pairs` is the approximate number of pairs of neighbours. Patterns with dense
/// variables, for which minimum degree does not count the work, are not dissected.
pub(super) fn reducing(n: usize, pairs: usize, neighbours: &(impl Neighbours + Sync)) -> Result<Reduced> {
    let by_degree = minimum_degree::of_symmetric(n, pairs, neighbours)?;
    let long = by_degree.work.map(|[_, squares]| squares).filter(|&squares| is_long(squares, n, pairs));
    let dissected = long.map(|squares| dissected(n, pairs, neighbours, squares)).transpose()?.flatten();
    Ok(dissected.map_or(Reduced::Ordered(by_degree), Reduced::Analysed))
}

/// Computes an elimination order by nested dissection; `None` if its sum of squared lengths is at least `squares`.
pub(super) fn dissected(
    n: usize,
    pairs: usize,
    neighbours: &(impl Neighbours + Sync),
    squares: f64,
) -> Result<Option<Expected>> {
    let dissected = Expected::new(dissection::of_symmetric(n, pairs, neighbours)?, neighbours)?;
    Ok((dissected.work()[1] < squares).then_some(dissected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;
    use crate::ordering::minimum_degree::Both;
    use krysp_kernels::interrupt::Scope;

    /// The sum of the squared column lengths in the order of minimum degree, and in the chosen order.
    fn squares(shape: &[usize]) -> [f64; 2] {
        let a = gallery::poisson::<f64>(shape).unwrap();
        let both = Both::new([&a, &a]);
        let by_degree = minimum_degree::of_symmetric(a.rows(), a.nnz(), &both).unwrap();
        let chosen = reducing(a.rows(), a.nnz(), &both).unwrap();
        [by_degree.work, chosen.work()].map(|work| work.unwrap()[1])
    }

    #[test]
    fn large_cubes_are_dissected_and_squares_are_not() {
        let [by_degree, chosen] = squares(&[90, 90]);
        assert_eq!(chosen, by_degree);
        // 6.9 and 4.3 billion
        let [by_degree, chosen] = squares(&[32, 32, 32]);
        assert!(chosen < 0.75 * by_degree, "{chosen} and {by_degree}");
    }
    #[test]
    fn the_choice_does_not_depend_on_the_number_of_threads() {
        for (shape, dissected) in [(&[90, 90][..], false), (&[32, 32, 32], true)] {
            let a = gallery::poisson::<f64>(shape).unwrap();
            let both = Both::new([&a, &a]);
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let chosen = pool.install(|| reducing(a.rows(), a.nnz(), &both).unwrap());
                assert_eq!(matches!(chosen, Reduced::Analysed(_)), dissected);
                chosen.order()
            };
            let alone = with(1);
            assert!([2, 3, 7].into_iter().all(|threads| with(threads) == alone));
        }
    }

    #[test]
    fn an_interruption_ends_both_orderings() {
        let a = gallery::poisson::<f64>(&[32, 32, 32]).unwrap();
        let both = Both::new([&a, &a]);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let started = std::time::Instant::now();
        let scope = Scope::new(move || started.elapsed() > std::time::Duration::from_millis(1));
        let refused = pool.install(|| scope.run(|| reducing(a.rows(), a.nnz(), &both)));
        assert!(matches!(refused, Err(crate::error::Error::Interrupted { .. })), "{refused:?}");
    }
}
