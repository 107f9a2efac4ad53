//! Costs of [`CuDss`](Preconditioner::CuDss), which runs on a GPU only.

use super::{Costs, LAUNCH, Line, Threads, line, unit};
use crate::plan::{Preconditioner, Profile};
use crate::{Error, Result};
use std::time::Duration;

/// Work units of the analysis for one unit of the ordering in the table: it runs on the host, mostly on one thread.
/// A guess: 60 for the host, 3 for nested dissection.
pub(super) const ANALYSIS: f64 = 180.0;

/// Multiply-adds that take as long as the fixed costs of an analysis and a factorization, and of a solve (guesses: 50 ms and
/// 0.5 ms).
pub(super) const FIXED: [f64; 2] = [1.5e10, 1.5e8];

/// Seconds of a multiply-add of an iteration on a GPU (H200, see [`LAUNCH`]).
const MULTIPLY_ADD: f64 = 3.4e-12;

/// The line of the table; the numbers are guesses.
pub(super) const LINE: Line = line(
    Preconditioner::CuDss,
    |s| s.ordering + 3.0 * s.factor.entries + 0.1 * s.factor.multiplications,
    1.0,
    |s| 8.0 * s.factor.entries,
    |_| 1.0,
    [Threads::Alike, Threads::Alike],
);

/// Returns an error if a factorization, which cannot be cancelled, is expected to take longer than the time that is left.
pub(in crate::plan) fn check_time(costs: &Costs, profile: &Profile, left: Option<Duration>) -> Result<()> {
    let expected = costs.setup.0 * (unit(profile) + LAUNCH) * MULTIPLY_ADD;
    match left {
        Some(left) if expected > left.as_secs_f64() => {
            let left = left.as_secs_f64();
            let why = format!(
                "a factorization cannot be cancelled, it is expected to take {expected:.2} s, and {left:.2} s are left"
            );
            Err(Error::Unsuitable { format: "CuDss", why })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;
    use crate::plan::WorkUnits;

    #[test]
    fn a_factorization_that_would_end_too_late_is_not_begun() {
        let profile = Profile::of(&gallery::poisson::<f64>(&[10; 3]).unwrap());
        let one_second = 1.0 / ((unit(&profile) + LAUNCH) * MULTIPLY_ADD);
        let costs = Costs { setup: WorkUnits(one_second), ..Costs::UNKNOWN };
        let check = |seconds: f64| check_time(&costs, &profile, Some(Duration::from_secs_f64(seconds)));
        assert!(check(1.1).is_ok() && check_time(&costs, &profile, None).is_ok());
        let error = check(0.5).unwrap_err().to_string();
        assert!(error.contains("expected to take 1.00 s, and 0.50 s are left"), "{error}");
    }
}
