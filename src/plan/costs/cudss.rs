//! Costs of [`CuDss`](Preconditioner::CuDss), which runs on a GPU only.

use super::{Costs, LAUNCH, Line, Threads, line, unit};
use crate::error::{Error, Result};
use crate::plan::Profile;
use std::time::Duration;

/// Multiply-adds of an iteration that take as long as the analysis of one row, which runs on the host. On 16 threads beside an H100
/// it took 3.3 to 5.1 µs for each row (`elast20`, `elast30`, `p7_56`, `convdiff_channel_p1_186k`: `cargo bench --bench direct -- --gpu`,
/// cuDSS 0.7.1), and 1.7 times that on one thread.
pub(super) const ANALYSIS: f64 = 1.2e6;

/// Multiply-adds that take as long as the fixed costs of a setup, and of a solve: 20 ms and 0.9 ms on the same matrices.
pub(super) const FIXED: [f64; 2] = [6e9, 2.6e8];

/// Seconds of a multiply-add of an iteration on a GPU (H200, see [`LAUNCH`]).
const MULTIPLY_ADD: f64 = 3.4e-12;

/// The line of the table, from the same matrices. The measured 17 to 105 ms of a factorization are `0.5 ns * entries + 0.5 ps *
/// multiplications` within a factor of 1.6, where `entries` are those of one triangular factor. A solve is `0.9 ms + 0.045 ns * entries`
/// within a tenth.
pub(super) const LINE: Line = line(
    |s| s.ordering + 150.0 * s.factor.entries + 0.15 * s.factor.multiplications,
    1.0,
    |s| 13.0 * s.factor.entries,
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
    use crate::plan::context::Context;
    use crate::plan::{MachineClass, Method, Preconditioner, WorkUnits};

    #[test]
    fn a_factorization_that_would_end_too_late_is_not_begun() {
        let profile = Profile::of(&gallery::poisson::<f64>(&[10; 3]).unwrap());
        let one_second = 1.0 / ((unit(&profile) + LAUNCH) * MULTIPLY_ADD);
        let context = Context::of_table(&profile, MachineClass::Gpu { threads: 16 });
        let costs = Costs::of(&context, Method::Gmres, Preconditioner::CuDss, None);
        let costs = Costs { setup: WorkUnits(one_second), ..costs };
        let check = |seconds: f64| check_time(&costs, &profile, Some(Duration::from_secs_f64(seconds)));
        assert!(check(1.1).is_ok() && check_time(&costs, &profile, None).is_ok());
        let error = check(0.5).unwrap_err().to_string();
        assert!(error.contains("expected to take 1.00 s, and 0.50 s are left"), "{error}");
    }
}
