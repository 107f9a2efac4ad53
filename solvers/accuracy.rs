//! Attainable accuracy: estimates of the residual that rounding leaves, and of `‖A‖`.

use crate::verdict::norm;
use crate::{Element, LinearOperator, Result, Scalar, Vector};
use num_traits::Zero;

/// Root mean square of the relative rounding error of a number, in units of epsilon: for numbers between 1
/// and 2 the absolute error is distributed uniformly between −½ and ½ (root mean square 0.29), and the
/// numbers are about 1.4 on average.
const ROUNDING: f64 = 0.2;

/// Estimates `‖A‖₂` from below by two steps of the power method, at the cost of two products. The starting
/// vector is `b` with pseudo-random signs. For finite-element matrices the estimate is too small by a factor
/// of two or three.
pub(crate) fn operator_norm<V: Vector>(
    a: &dyn LinearOperator<Vector = V>,
    b: &V,
    [v, w]: [&mut V; 2],
) -> Result<f64> {
    v.copy_from(b);
    v.flip_signs()?;
    let mut length = norm::<V>(v.norm_squared())?;
    let mut largest = 0.0;
    for step in 0..2 {
        a.apply(v, w)?;
        let image = norm::<V>(w.norm_squared())?;
        if !(image > 0.0 && image.is_finite() && length > 0.0) {
            break;
        }
        largest = f64::max(largest, image / length);
        if step == 0 {
            // Preserve the length of the vector, so that nothing overflows.
            let scale = V::Elem::from_f64(length / image);
            v.axpby(&scale.into(), w, &V::Elem::zero().into());
            length = norm::<V>(v.norm_squared())?;
        }
    }
    Ok(largest)
}

/// Expected residual norm of an `x` that is exact except for rounding to the element type. The rounding
/// errors of the entries are independent, so `‖A (x ∘ ±1)‖` with pseudo-random signs estimates their combined
/// effect.
pub(crate) fn rounding_limit<V: Vector>(
    a: &dyn LinearOperator<Vector = V>,
    x: &V,
    [v, w]: [&mut V; 2],
) -> Result<f64> {
    v.copy_from(x);
    v.flip_signs()?;
    a.apply(v, w)?;
    Ok(ROUNDING * V::Elem::EPSILON * norm::<V>(w.norm_squared())?)
}

/// Returns whether `⟨u, A v⟩ = ⟨v, A u⟩` up to a relative tolerance, where `v` is `u` with pseudo-random signs.
pub(crate) fn is_symmetric<V: Vector>(
    a: &dyn LinearOperator<Vector = V>,
    u: &V,
    [v, w]: [&mut V; 2],
    tolerance: f64,
) -> Result<bool> {
    v.copy_from(u);
    v.flip_signs()?;
    a.apply(v, w)?;
    let (u_av, rough_image) = (u.dot(w).read()?.to_f64(), norm::<V>(w.norm_squared())?);
    a.apply(u, w)?;
    let (v_au, smooth_image) = (v.dot(w).read()?.to_f64(), norm::<V>(w.norm_squared())?);
    let allowed = tolerance * norm::<V>(u.norm_squared())? * rough_image.max(smooth_image);
    let off = (u_av - v_au).abs();
    // Infinite and NaN values prove nothing about symmetry.
    Ok(off <= allowed || !off.is_finite() || !allowed.is_finite())
}
