//! What may be said of a solution: where squares vanish or overflow, less than they seem to say.

use crate::{Element, Outcome, Report, Result, Scalar, Space, Vector};
use num_traits::Float;

/// The square of a right-hand side, and of a residual, that vanishes or overflows though the vector does not.
pub(crate) const RHS: &str = "‖b‖²";
pub(crate) const RESIDUAL: &str = "‖r‖²";

/// Solves `A x = 0`, and tells a right-hand side that is zero from one whose square underflows.
pub(crate) fn trivial<V: Vector>(b: &V, x: &mut V, report: &mut Report) -> Result<Outcome> {
    let zero = V::Elem::from_f64(0.0);
    x.axpby(&V::Elem::from_f64(least::<V>().recip()).into(), b, &zero.into());
    report.true_residual = 0.0;
    report.history.push(0.0);
    if norm::<V>(x.norm_squared())? == 0.0 {
        report.backward_error = 0.0;
        return Ok(Outcome::Converged);
    }
    x.axpby(&zero.into(), b, &zero.into());
    Ok(Outcome::Breakdown { what: RHS, value: 0.0, iteration: 0 })
}

/// What to say of a right-hand side whose square is not finite: perhaps its entries are, and only too large to be squared.
pub(crate) fn not_finite<V: Vector>(b: &V) -> Result<Outcome> {
    Ok(match finite_or(Outcome::Converged, b)? {
        Outcome::Converged => Outcome::Breakdown { what: RHS, value: f64::INFINITY, iteration: 0 },
        _ => Outcome::NotFinite { whence: "`b`" },
    })
}

/// What to say of a true residual that meets the threshold: squares of its entries may have vanished below the smallest
/// number, and `x` may have run away where `A` does not see it.
pub(crate) fn converged<V: Vector>(truth: f64, threshold: f64, report: &Report, x: &V) -> Result<Outcome> {
    let vanished = x.space().len() as f64 * least::<V>() * V::Elem::EPSILON;
    if truth.hypot(vanished.sqrt()) > threshold {
        let iteration = report.history.len() - 1;
        return Ok(Outcome::Breakdown { what: RESIDUAL, value: truth * truth, iteration });
    }
    finite_or(Outcome::Converged, x)
}

/// The outcome, unless `x` is not finite.
pub(crate) fn finite_or<V: Vector>(outcome: Outcome, x: &V) -> Result<Outcome> {
    let mut finite = norm::<V>(x.norm_squared())?.is_finite();
    if !finite {
        // perhaps only its square is beyond all numbers
        let mut small = x.space().zeros()?;
        small.axpby(&V::Elem::from_f64(least::<V>().sqrt()).into(), x, &V::Elem::from_f64(0.0).into());
        finite = norm::<V>(small.norm_squared())?.is_finite();
    }
    let said = matches!(outcome, Outcome::NotFinite { .. });
    Ok(if finite || said { outcome } else { Outcome::NotFinite { whence: "the solution" } })
}

pub(crate) fn norm<V: Vector>(squared: V::Scalar) -> Result<f64> {
    Ok(squared.read()?.to_f64().sqrt())
}

/// The smallest number that has all its digits.
fn least<V: Vector>() -> f64 {
    <V::Elem as Element>::Real::min_positive_value().into()
}
