//! Solves for right-hand sides whose squares overflow or underflow: `b` is scaled by a power of two, which is exact, and the solution is
//! scaled back.

use super::executor::{loaded, norm, stored};
use super::{AttemptEnd, Backend, PlannedSolver};
use crate::error::Result;
use crate::numbers::Real;
use krysp_solvers::{BasicVector, Element, Outcome, Report, Space};

/// A right-hand side is not scaled if its norm is between `ε^RANGE` and `ε^-RANGE` (4e19 in `f64`, 5e8 in `f32`), where `ε` is the
/// machine epsilon. The squares of residuals are then far from overflow and underflow.
const RANGE: f64 = 1.25;

/// Maximum exponent of the power of two, for which it and its inverse are finite.
const POWER: f64 = 1000.0;

/// Whether a system with this norm of its right-hand side is solved without scaling. False for zero and NaN.
pub(super) fn needs_no_scaling<T: Real>(norm: f64) -> bool {
    let limit = T::EPSILON.powf(-RANGE);
    (1.0 / limit..=limit).contains(&norm)
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Solves `A x = b` on vectors of [`PlannedSolver::space`], which are not copied. `x` holds the initial guess and receives the
    /// solution, or the best approximation that was found.
    ///
    /// If squares of `b` would overflow or underflow, scaled copies are solved for; observers then see the residuals of the scaled
    /// system.
    pub fn solve_into(&mut self, b: &M::Vector, x: &mut M::Vector) -> Result<&Report> {
        self.solve_on(b, x, false)
    }

    /// Solves as [`PlannedSolver::solve_into`] does. `own` means that no caller holds the vectors: then the matrix may be reordered, and
    /// `x` with it.
    pub(super) fn solve_on(&mut self, b: &M::Vector, x: &mut M::Vector, own: bool) -> Result<&Report> {
        let rhs_norm = norm(b)?;
        if needs_no_scaling::<T>(rhs_norm) {
            return self.execute(b, rhs_norm, x, own);
        }
        let mut host = stored(b)?;
        let most = host.iter().fold(0.0f64, |most, &entry| most.max(Element::to_f64(entry).abs()));
        if most == 0.0 || !host.iter().all(|&entry| Element::is_finite(entry)) {
            return self.execute(b, rhs_norm, x, own);
        }
        let factor = (-most.log2().floor()).clamp(-POWER, POWER).exp2();
        let multiply = |host: &mut [T], factor: f64| {
            host.iter_mut().for_each(|entry| *entry = T::from_f64(Element::to_f64(*entry) * factor));
        };
        multiply(&mut host, factor);
        let scaled = loaded(b.space(), &host)?;
        let scale = |x: &mut M::Vector, factor: f64| -> Result<Vec<T>> {
            let mut host = stored(x)?;
            multiply(&mut host, factor);
            x.space().clone().load(&host, x)?;
            Ok(host)
        };
        scale(x, factor)?;
        let done = norm(&scaled).and_then(|norm| self.execute(&scaled, norm, x, own).map(|_| ()));
        let back = 1.0 / factor;
        let host = scale(x, back)?;
        done?;
        let Report { outcome, history, true_residual, rhs_norm, .. } = &mut self.report;
        history.iter_mut().chain([true_residual, rhs_norm]).for_each(|norm| *norm *= back);
        let endings = self.attempts.iter_mut().filter_map(|attempt| match &mut attempt.ending {
            AttemptEnd::Ended(outcome) => Some(outcome),
            _ => None,
        });
        for outcome in endings.chain([&mut *outcome]) {
            if let Outcome::Inconsistent { residual: norm } | Outcome::PrecisionLimit { limit: norm, .. } =
                outcome
            {
                *norm *= back;
            }
        }
        if !host.iter().all(|&entry| Element::is_finite(entry)) {
            *outcome = Outcome::NotFinite { what: "the solution" };
        }
        Ok(&self.report)
    }
}
