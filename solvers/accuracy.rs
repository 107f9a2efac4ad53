//! How small a residual can become: what rounding the solution leaves, and how large that is beside matrix and solution.

use crate::verdict::norm;
use crate::{Element, LinearOperator, Result, Scalar, Vector};
use num_traits::Zero;

/// The root mean square of the rounding of a number, in units of its last place's worth: a number between 1 and 2 is off by
/// up to half a unit, evenly, and 1.4 large in the mean.
const ROUNDING: f64 = 0.2;

/// `‖A‖₂`, estimated from below: two steps of the power method, from `b` with signs as by chance. Within a factor of two or
/// three on matrices of finite elements, at the cost of two products.
pub(crate) fn operator_norm<A>(a: &A, b: &A::Vector, [v, w]: [&mut A::Vector; 2]) -> Result<f64>
where
    A: LinearOperator,
{
    v.copy_from(b);
    v.flip_signs()?;
    let mut length = norm::<A::Vector>(v.norm_squared())?;
    let mut found = 0.0;
    for step in 0..2 {
        a.apply(v, w)?;
        let image = norm::<A::Vector>(w.norm_squared())?;
        if !(image > 0.0 && image.is_finite() && length > 0.0) {
            break;
        }
        found = f64::max(found, image / length);
        if step == 0 {
            // as long as before, so that nothing overflows
            let scale = <A::Vector as Vector>::Elem::from_f64(length / image);
            v.axpby(&scale.into(), w, &<A::Vector as Vector>::Elem::zero().into());
            length = norm::<A::Vector>(v.norm_squared())?;
        }
    }
    Ok(found)
}

/// The residual to expect of an `x` that is exact but for its rounding to the element type: its roundings are independent,
/// so that `‖A (x ∘ ±1)‖` with signs as by chance tells how they add up.
pub(crate) fn rounding_limit<A>(a: &A, x: &A::Vector, [v, w]: [&mut A::Vector; 2]) -> Result<f64>
where
    A: LinearOperator,
{
    v.copy_from(x);
    v.flip_signs()?;
    a.apply(v, w)?;
    Ok(ROUNDING * <A::Vector as Vector>::Elem::EPSILON * norm::<A::Vector>(w.norm_squared())?)
}

/// Whether `⟨u, A v⟩ = ⟨v, A u⟩` up to a part of their size, for `v` as `u` with signs as by chance.
pub(crate) fn is_symmetric<A>(
    a: &A,
    u: &A::Vector,
    [v, w]: [&mut A::Vector; 2],
    tolerance: f64,
) -> Result<bool>
where
    A: LinearOperator + ?Sized,
{
    v.copy_from(u);
    v.flip_signs()?;
    a.apply(v, w)?;
    let (one, of_rough) = (u.dot(w).read()?.to_f64(), norm::<A::Vector>(w.norm_squared())?);
    a.apply(u, w)?;
    let (other, of_smooth) = (v.dot(w).read()?.to_f64(), norm::<A::Vector>(w.norm_squared())?);
    let allowed = tolerance * norm::<A::Vector>(u.norm_squared())? * of_rough.max(of_smooth);
    let off = (one - other).abs();
    // what is not finite says nothing of symmetry
    Ok(off <= allowed || !off.is_finite() || !allowed.is_finite())
}
