//! Eigenvalue estimates from the coefficients of conjugate gradients.
//!
//! The coefficients `α_k`, `β_k` of CG define the Lanczos matrix `T` of `M⁻¹A`:
//! `T_kk = 1/α_k + β_{k−1}/α_{k−1}`, `T_{k,k+1} = √β_k / α_k`. Its extreme eigenvalues, computed here by
//! bisection with Sturm counts, approach those of `M⁻¹A` from inside the spectrum.

use crate::ConditionEstimate;

impl ConditionEstimate {
    /// Computes the estimate from the coefficients `[α, β]` of each iteration of conjugate gradients run by
    /// the caller: the extreme eigenvalues of the Lanczos matrix. `None` without iterations.
    pub fn from_coefficients(coefficients: &[[f64; 2]]) -> Option<ConditionEstimate> {
        condition(coefficients)
    }
}

/// Estimate from `[α, β]` of each iteration, or `None` before the first iteration.
pub(crate) fn condition(coefficients: &[[f64; 2]]) -> Option<ConditionEstimate> {
    let n = coefficients.len();
    let diagonal = |k: usize| {
        let [alpha, _] = coefficients[k];
        let before = if k == 0 { 0.0 } else { coefficients[k - 1][1] / coefficients[k - 1][0] };
        1.0 / alpha + before
    };
    // `T_{k,k+1}²`; zero past the end.
    let off_squared = |k: usize| {
        let [alpha, beta] = coefficients[k];
        if k + 1 < n { beta / (alpha * alpha) } else { 0.0 }
    };
    let off = |k: usize| off_squared(k).max(0.0).sqrt();
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for k in 0..n {
        let radius = off(k) + if k > 0 { off(k - 1) } else { 0.0 };
        low = low.min(diagonal(k) - radius);
        high = high.max(diagonal(k) + radius);
    }
    if !(low.is_finite() && high.is_finite()) {
        return None;
    }
    // Number of eigenvalues below `shift`: the number of negative pivots of `T − shift`.
    let below = |shift: f64| {
        let mut count = 0;
        let mut pivot = 1.0;
        for k in 0..n {
            let coupling = if k > 0 { off_squared(k - 1) / pivot } else { 0.0 };
            pivot = diagonal(k) - shift - coupling;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += usize::from(pivot < 0.0);
        }
        count
    };
    let bisect = |wanted: usize| {
        let (mut a, mut b) = (low, high);
        for _ in 0..100 {
            let middle = 0.5 * (a + b);
            if b - a <= 1e-6 * middle.abs() {
                break;
            }
            if below(middle) >= wanted { b = middle } else { a = middle }
        }
        0.5 * (a + b)
    };
    Some(ConditionEstimate { smallest: bisect(1), largest: bisect(n) })
}

/// Combines two estimates for the same matrix. Estimates are inside the spectrum, so the wider range is
/// better.
pub(crate) fn widest(
    one: Option<ConditionEstimate>,
    other: Option<ConditionEstimate>,
) -> Option<ConditionEstimate> {
    match (one, other) {
        (Some(one), Some(other)) => Some(ConditionEstimate {
            smallest: one.smallest.min(other.smallest),
            largest: one.largest.max(other.largest),
        }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::condition;

    #[test]
    fn eigenvalues_of_a_known_tridiagonal_matrix() {
        // T = tridiag(−1, 2, −1) of order 3, with eigenvalues 2 − √2, 2, 2 + √2; its α and β from the
        // recurrences
        let mut coefficients = vec![];
        let (mut previous, mut alpha_previous) = (0.0, 1.0);
        for k in 0..3 {
            let alpha: f64 = 1.0 / (2.0 - if k == 0 { 0.0 } else { previous / alpha_previous });
            let beta = alpha * alpha;
            coefficients.push([alpha, beta]);
            (previous, alpha_previous) = (beta, alpha);
        }
        let found = condition(&coefficients).unwrap();
        assert!((found.smallest - (2.0 - 2f64.sqrt())).abs() < 1e-5, "{found:?}");
        assert!((found.largest - (2.0 + 2f64.sqrt())).abs() < 1e-5, "{found:?}");
        assert!((found.ratio() - (2.0 + 2f64.sqrt()) / (2.0 - 2f64.sqrt())).abs() < 1e-3);
    }

    #[test]
    fn no_estimate_before_the_first_iteration() {
        assert!(condition(&[]).is_none());
    }
}
