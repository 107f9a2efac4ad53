//! Final checks of a solution, also for numbers whose squares underflow or overflow.

use crate::{Element, Outcome, Report, Result, Scalar, Space, Vector};
use num_traits::Float;

/// Names in [`Outcome::Breakdown`] for squared norms that underflow or overflow although the vectors do not.
pub(crate) const RHS: &str = "‖b‖²";
pub(crate) const RESIDUAL: &str = "‖r‖²";

/// Ends a solve with `‖b‖² = 0`: `x` is zero if `b` is zero; reports a breakdown if only the squares of `b`'s
/// entries underflow.
pub(crate) fn trivial<V: Vector>(b: &V, x: &mut V, report: &mut Report) -> Result<Outcome> {
    let zero = V::Elem::from_f64(0.0);
    x.axpby(&V::Elem::from_f64(smallest_normal::<V>().recip()).into(), b, &zero.into());
    report.true_residual = 0.0;
    report.history.push(0.0);
    if norm::<V>(x.norm_squared())? == 0.0 {
        report.backward_error = 0.0;
        return Ok(Outcome::Converged);
    }
    x.axpby(&zero.into(), b, &zero.into());
    Ok(Outcome::Breakdown { what: RHS, value: 0.0, iteration: 0 })
}

/// The outcome for an infinite or NaN `‖b‖²`: a breakdown if all entries of `b` are finite and only their
/// squares overflow, else `NotFinite`.
pub(crate) fn not_finite<V: Vector>(b: &V) -> Result<Outcome> {
    Ok(match finite_or(Outcome::Converged, b, f64::INFINITY)? {
        Outcome::Converged => Outcome::Breakdown { what: RHS, value: f64::INFINITY, iteration: 0 },
        _ => Outcome::NotFinite { what: "`b`" },
    })
}

/// Outcome for a true residual that meets the threshold. Reports a breakdown if underflowed squares could
/// hide a residual above the threshold, and `NotFinite` if `x`, whose norm is `length`, is not finite. The
/// residual does not show that where `A` has no entries in a column.
pub(crate) fn converged<V: Vector>(
    truth: f64,
    threshold: f64,
    report: &Report,
    x: &V,
    length: f64,
) -> Result<Outcome> {
    let vanished = x.space().len() as f64 * smallest_normal::<V>() * V::Elem::EPSILON;
    if truth.hypot(vanished.sqrt()) > threshold {
        let iteration = report.history.len() - 1;
        return Ok(Outcome::Breakdown { what: RESIDUAL, value: truth * truth, iteration });
    }
    finite_or(Outcome::Converged, x, length)
}

/// The given outcome, or `NotFinite` if `x`, whose norm is `length`, is not finite.
pub(crate) fn finite_or<V: Vector>(outcome: Outcome, x: &V, length: f64) -> Result<Outcome> {
    let mut finite = length.is_finite();
    if !finite {
        // Perhaps only the square overflows: test a scaled copy.
        let mut small = x.space().zeros()?;
        small.axpby(
            &V::Elem::from_f64(smallest_normal::<V>().sqrt()).into(),
            x,
            &V::Elem::from_f64(0.0).into(),
        );
        finite = norm::<V>(small.norm_squared())?.is_finite();
    }
    let reported = matches!(outcome, Outcome::NotFinite { .. });
    Ok(if finite || reported { outcome } else { Outcome::NotFinite { what: "the solution" } })
}

/// Two norms from their squares, with a single wait for the device.
pub(crate) fn norms<V: Vector>(squares: [V::Scalar; 2]) -> Result<[f64; 2]> {
    let [first, second] = squares;
    Ok(first.read_both(&second)?.map(|squared| squared.to_f64().sqrt()))
}

/// Norm from its square, on the host.
pub(crate) fn norm<V: Vector>(squared: V::Scalar) -> Result<f64> {
    Ok(squared.read()?.to_f64().sqrt())
}

/// Smallest positive normal number.
fn smallest_normal<V: Vector>() -> f64 {
    <V::Elem as Element>::Real::min_positive_value().into()
}
