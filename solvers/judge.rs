//! Decisions after each step of a run: whether its residuals or tests of `x` and the operators end it.

use crate::driver::Operators;
use crate::stagnation::StagnationDetector;
use crate::workspace::Workspace;
use crate::{
    Element, Evidence, Method, Outcome, Progress, Report, Result, StagnationWindow, Stopping, Symmetry,
    Vector,
};

/// Iterations before the first check whether rounding makes the tolerance unreachable. The interval doubles
/// after each check.
const FIRST_CHECK: usize = 256;
/// The tolerance is raised to this fraction of the residual left by rounding `x`. That residual is an
/// estimate of the mean, so the residual of a particular `x` can be smaller.
const BELOW_LIMIT: f64 = 1.0 / 16.0;
/// `x` counts as too large if the residual that rounding `x` leaves exceeds this fraction of the larger of
/// the first residual and `‖b‖`.
pub(crate) const OUT_OF_BOUNDS: f64 = 0.01;

/// Residual norm to reach in a run, and the state of the tests whether it can be reached.
pub(crate) struct RunChecks {
    pub(crate) detector: StagnationDetector,
    /// The residual norm to reach, which a check may raise.
    pub(crate) threshold: f64,
    /// The iteration of the next check whether rounding makes the threshold unreachable.
    pub(crate) check_at: usize,
    /// True if `x` was too large at the previous check. One such check is not conclusive: a method may
    /// pass through large iterates.
    was_out: bool,
}

/// Decides after each step whether a run ends: by its residuals, and occasionally by tests of `x` and the
/// operators.
pub(crate) struct Judge<'s, V: Vector> {
    pub(crate) stopping: &'s Stopping,
    pub(crate) on: Operators<'s, V>,
    pub(crate) symmetry: Symmetry,
    pub(crate) minimizes_energy: bool,
    pub(crate) has_cycles: bool,
}

impl<V: Vector> Judge<'_, V> {
    /// Begins the tests of a run that starts from the latest residual of a report.
    pub(crate) fn begin_checks(
        &self,
        mut stagnation_window: StagnationWindow,
        report: &Report,
        threshold: f64,
    ) -> RunChecks {
        stagnation_window.iterations =
            self.stopping.stagnation_window.unwrap_or(stagnation_window.iterations);
        let first = report.history.len() - 1;
        RunChecks {
            detector: StagnationDetector::new(stagnation_window, first, report.true_residual),
            threshold,
            // With a tolerance of zero the caller wants all iterations.
            check_at: if threshold == 0.0 { usize::MAX } else { first + FIRST_CHECK },
            was_out: false,
        }
    }

    /// Raises the threshold to the rounding limit. Returns the outcome if `x` has become too large for any
    /// threshold. The whole solution must be either in `x` or folded.
    pub(crate) fn limit<K: Method<V>>(
        &self,
        norm: &mut Option<f64>,
        report: &Report,
        workspace: &mut Workspace<K, V>,
        b: &V,
        x: &V,
        checks: &mut RunChecks,
    ) -> Result<Option<Outcome>> {
        let near = workspace.limit_near(norm, self.on.a, b, x, checks.threshold)?;
        if let Some([limit, scale]) = near {
            let most = report.rhs_norm.max(report.history[0]);
            let never_stagnates = self.stopping.stagnation_window == Some(usize::MAX);
            let out = limit > OUT_OF_BOUNDS * most && !never_stagnates;
            // The norms of the iterates of conjugate gradients never decrease, so one check is enough.
            if out && (checks.was_out || !workspace.lanczos.is_empty()) {
                let evidence = Evidence::Singular { condition: scale / most };
                return Ok(Some(Outcome::Stagnated(evidence)));
            }
            checks.was_out = out;
            checks.threshold = checks.threshold.max(BELOW_LIMIT * limit);
        }
        Ok(None)
    }

    /// Outcome if the latest residuals of a report show divergence or stagnation.
    pub(crate) fn progress<K: Method<V>>(
        &self,
        report: &Report,
        workspace: &mut Workspace<K, V>,
        b: &V,
        x: &V,
        checks: &mut RunChecks,
    ) -> Result<Option<Outcome>> {
        let Progress { iteration, residual, threshold } = latest(report, checks.threshold);
        let detector = &mut checks.detector;
        let check_due = detector.note_residual(iteration, residual);
        if residual > self.stopping.divergence * report.history[0] {
            return Ok(Some(Outcome::Diverged));
        }
        // A method with cycles has not updated `x` since the start of the cycle. The residual of conjugate gradients
        // is not what they minimize, so plateaus are common.
        if !self.has_cycles && !self.minimizes_energy && detector.is_on_plateau(iteration) {
            workspace.keep_iterate(self.on.a, b, x)?;
        }
        let evidence = if check_due {
            let epsilon = V::Elem::EPSILON;
            let lanczos = &workspace.lanczos;
            let energy = (!lanczos.is_empty()).then(|| detector.energy_evidence(iteration, lanczos, epsilon));
            // `M` is tested, not `P M⁻¹`: if `M` is symmetric, so is `P M⁻¹` on the complement of the null
            // space.
            let unsymmetric = match self.symmetry {
                Symmetry::Nothing => None,
                needed => workspace.unsymmetric(needed, self.on, b, x)?,
            };
            match (unsymmetric, energy) {
                (Some(what), _) => Some(Evidence::Unsymmetric { what }),
                (None, Some(energy)) => energy,
                (None, None) => Some(detector.residual_evidence(iteration)),
            }
        } else if self.has_cycles && self.stopping.stagnation_window.is_none() {
            detector.rate_evidence(&report.history, threshold, self.stopping.max_iterations)
        } else {
            None
        };
        Ok(evidence.map(Outcome::Stagnated))
    }
}

/// Progress after the latest iteration.
pub(crate) fn latest(report: &Report, threshold: f64) -> Progress {
    let iteration = report.history.len() - 1;
    Progress { iteration, residual: report.history[iteration], threshold }
}
