//! Choice of a fill-reducing ordering.

use super::tree::Expected;
use crate::Result;
use crate::ordering::dissection;
use crate::ordering::minimum_degree::{self, Neighbours, Ordered};

/// Nested dissection is tried if the factorization in the order of minimum degree needs at least this many multiplications
/// for each pair of neighbours. On two threads of an Intel Xeon, dissecting takes about 0.6 µs for each pair, as long as 10⁴
/// multiplications, and spares 20 to 75 % of those of 3-D problems. At 7,000 (`heat_sink_transient_80k_K`) it did not pay, from
/// 50,000 on (`poisson40`) it did.
const WORK: f64 = 2e4;

/// Computes an elimination order by minimum degree, and, where the factorization takes long, by nested dissection;
/// returns the one with less work. `expected` is the approximate number of pairs of neighbours. Patterns with dense
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

    #[test]
    fn squares_are_ordered_by_minimum_degree() {
        let a = gallery::poisson::<f64>(&[90, 90]).unwrap();
        let both = Both::new([&a, &a]);
        let chosen = reducing(a.rows(), a.nnz(), &both).unwrap();
        assert_eq!(chosen.order, minimum_degree::of_symmetric(a.rows(), a.nnz(), &both).unwrap().order);
    }
}
