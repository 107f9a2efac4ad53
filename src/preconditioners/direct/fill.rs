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

/// Computes an elimination order by minimum degree, and, where the factorization takes long, by nested dissection;
/// returns the one with the smaller sum. `expected` is the approximate number of pairs of neighbours. Patterns with dense
/// variables, for which minimum degree does not count the work, are not dissected.
pub(super) fn reducing(n: usize, expected: usize, neighbours: &impl Neighbours) -> Result<Ordered> {
    let by_degree = minimum_degree::of_symmetric(n, expected, neighbours)?;
    let Some(work) = by_degree.work.map(|[_, squares]| squares) else { return Ok(by_degree) };
    if work < WORK * expected.max(n) as f64 {
        return Ok(by_degree);
    }
    let dissected = Expected::new(dissection::of_symmetric(n, neighbours)?, neighbours)?;
    let [entries, less] = dissected.work();
    Ok(if less < work { Ordered { order: dissected.order, work: Some([entries, less]) } } else { by_degree })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;
    use crate::ordering::minimum_degree::Both;

    /// The sum of the squared column lengths in the order of minimum degree, and in the chosen order.
    fn squares(shape: &[usize]) -> [f64; 2] {
        let a = gallery::poisson::<f64>(shape).unwrap();
        let both = Both::new([&a, &a]);
        let by_degree = minimum_degree::of_symmetric(a.rows(), a.nnz(), &both).unwrap();
        [by_degree, reducing(a.rows(), a.nnz(), &both).unwrap()].map(|ordered| ordered.work.unwrap()[1])
    }

    #[test]
    fn large_cubes_are_dissected_and_squares_are_not() {
        let [by_degree, chosen] = squares(&[90, 90]);
        assert_eq!(chosen, by_degree);
        // 6.9 and 4.3 billion
        let [by_degree, chosen] = squares(&[32, 32, 32]);
        assert!(chosen < 0.75 * by_degree, "{chosen} and {by_degree}");
    }
}
