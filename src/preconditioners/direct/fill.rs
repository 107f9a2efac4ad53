//! Choice of a fill-reducing ordering.

use super::tree::Expected;
use crate::Result;
use crate::ordering::dissection;
use crate::ordering::minimum_degree::{self, Neighbours, Ordered};

/// Nested dissection is tried if the factor in the order of minimum degree has at least `FILL` entries for each
/// entry of the matrix, and its factorization needs at least `WORK` multiplications for each of its entries. CHOLMOD
/// decides by these ratios, too, with 5 and 500 (Chen, Davis, Hager and Rajamanickam 2008).
const FILL: f64 = 5.0;
const WORK: f64 = 500.0;

/// Computes an elimination order by minimum degree, and, where the factorization takes long, by nested dissection;
/// returns the one with less work. `expected` is the approximate number of pairs of neighbours.
pub(super) fn reducing(n: usize, expected: usize, neighbours: &impl Neighbours) -> Result<Ordered> {
    let by_degree = minimum_degree::of_symmetric(n, expected, neighbours)?;
    let Some([entries, work]) = by_degree.work else { return Ok(by_degree) };
    if entries < FILL * expected.max(n) as f64 || work < WORK * entries {
        return Ok(by_degree);
    }
    let dissected = Expected::new(dissection::of_symmetric(n, neighbours)?, neighbours)?;
    let [fewer, less] = dissected.work();
    Ok(if less < work { Ordered { order: dissected.order, work: Some([fewer, less]) } } else { by_degree })
}
