//! Solutions to return if a solve does not converge and its last iterate is worse.
//!
//! The last iterate of a solve that fails may be useless: on a singular system without solution, for example,
//! `x` grows along the null space until the rounding errors of `A x` exceed `b`, while the residual of the
//! recurrence goes on falling. So the driver keeps two earlier solutions: the initial guess, if it is not zero,
//! and, for methods without cycles and other than conjugate gradients, an iterate from a plateau of the residual,
//! if its recomputed residual is smaller than that of the guess. A solve from zero without a plateau keeps
//! nothing, and its cost is unchanged.

use crate::driver::{Driver, Problem};
use crate::judge::OUT_OF_BOUNDS;
use crate::workspace::Workspace;
use crate::{Arithmetic, Element, Evidence, Method, Outcome, Result, Space, Vector};
use num_traits::Zero;

/// An earlier iterate replaces the last one if its residual is smaller by this factor: differences by rounding
/// errors do not matter. A guess.
const BETTER: f64 = 0.5;
/// The residual of the recurrence is sound if the recomputed one is at most this many times as large. A
/// guess.
const SOUND: f64 = 2.0;

/// Earlier solutions of one solve. Their vectors are kept from solve to solve.
pub(crate) struct Fallback<V> {
    guess: Option<V>,
    /// True if the initial guess of this solve is in `guess`; otherwise it is zero.
    is_guessed: bool,
    iterate: Option<V>,
    /// Recomputed residual norm of `iterate`; that of the initial guess, if no iterate is kept.
    residual: f64,
    /// True if this solve has kept `iterate`.
    has_iterate: bool,
}

impl<V> Default for Fallback<V> {
    fn default() -> Self {
        Fallback { guess: None, is_guessed: false, iterate: None, residual: f64::NAN, has_iterate: false }
    }
}

impl<V: Vector> Fallback<V> {
    /// Begins a solve from zero.
    pub(crate) fn begin(&mut self) {
        (self.is_guessed, self.has_iterate) = (false, false);
    }

    /// Keeps the initial guess `x`, unless it is zero.
    pub(crate) fn keep_guess(&mut self, x: &V, residual: f64, is_zero: bool) -> Result<()> {
        (self.is_guessed, self.residual) = (!is_zero, residual);
        if is_zero { Ok(()) } else { copy(&mut self.guess, x) }
    }

    /// Keeps an iterate with this recomputed residual, if it is the smallest so far.
    pub(crate) fn keep_iterate(&mut self, x: &V, residual: f64) -> Result<()> {
        if residual < self.residual {
            (self.has_iterate, self.residual) = (true, residual);
            copy(&mut self.iterate, x)?;
        }
        Ok(())
    }

    /// Sets `x` to the initial guess. Returns how its residual is computed.
    fn restore_guess(&self, b: &V, x: &mut V) -> Arithmetic {
        if let Some(guess) = self.guess.as_ref().filter(|_| self.is_guessed) {
            x.copy_from(guess);
            return Arithmetic::Plain;
        }
        let zero: V::Scalar = V::Elem::zero().into();
        x.axpby(&zero, b, &zero);
        Arithmetic::Zero
    }
}

/// Copies a vector, allocating the copy on first use.
fn copy<V: Vector>(to: &mut Option<V>, from: &V) -> Result<()> {
    match to {
        Some(to) => to.copy_from(from),
        none => none.insert(from.space().zeros()?).copy_from(from),
    }
    Ok(())
}

impl<K: Method<V>, V: Vector> Driver<K, V> {
    /// Returns the outcome of a solve that ended with `outcome`. If it did not converge, replaces `x` by an
    /// earlier iterate or the initial guess, where these have a smaller residual.
    ///
    /// The residual of conjugate gradients may exceed the initial one while the error decreases in the energy
    /// norm. Their last iterate stays, as long as its residual is that of the recurrence, if a limit or a token has
    /// ended the solve. If a rule of the caller has, the last iterate of every method stays: the caller may continue.
    pub(crate) fn best_solution(
        &mut self,
        of: Problem<'_, V>,
        x: &mut V,
        workspace: &mut Workspace<K, V>,
        outcome: Outcome,
    ) -> Result<Outcome> {
        let (truth, first) = (self.report.true_residual, self.report.history[0]);
        let recurred = self.report.history.last().copied().unwrap_or(f64::NAN);
        let interrupted =
            matches!(outcome, Outcome::IterationLimit | Outcome::TimeLimit | Outcome::Cancelled);
        let descends = interrupted && self.method.minimizes_energy() && truth <= SOUND * recurred;
        if matches!(outcome, Outcome::Converged | Outcome::Stopped) || descends {
            return Ok(outcome);
        }
        let condition = self.condition_from_below();
        let fallback = &workspace.fallback;
        // an unknown without influence on the residual may have overflowed
        let overflowed = matches!(outcome, Outcome::NotFinite { .. }) && !workspace.length.is_finite();
        let mut is_worse = truth.is_nan() || truth > first || overflowed;
        let mut replaced = is_worse;
        if let Some(iterate) = fallback.iterate.as_ref().filter(|_| fallback.has_iterate)
            && (is_worse || fallback.residual < BETTER * truth)
        {
            x.copy_from(iterate);
            let residual = self.start(of, x, workspace, Arithmetic::Plain, 0)?;
            let is_finite = workspace.length.is_finite();
            (is_worse, replaced) = (residual.is_nan() || residual > first || !is_finite, true);
        }
        if is_worse {
            let guess = workspace.fallback.restore_guess(of.b, x);
            self.start(of, x, workspace, guess, 0)?;
        }
        // `x` was too large for its rounding errors, although the recurrence had not left the initial residual: `A`
        // maps a long vector to a short one
        let is_long = condition.is_finite() && V::Elem::EPSILON * condition > OUT_OF_BOUNDS;
        let singular = recurred <= first && is_long;
        Ok(match outcome {
            Outcome::IterationLimit
            | Outcome::Stagnated(Evidence::Residual { .. } | Evidence::Energy { .. } | Evidence::Restart)
                if replaced && singular =>
            {
                Outcome::Stagnated(Evidence::Singular { condition })
            }
            outcome => outcome,
        })
    }
}
