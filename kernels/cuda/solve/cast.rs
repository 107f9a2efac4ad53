//! Conversion of vectors to and from single precision, outside of iterations that are recorded as CUDA
//! graphs.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Element, Real};

/// The kernels.
pub(crate) const SOURCE: Source =
    Source { file: "cast.cu", text: include_str!("cast.cu"), constants: constants![], mirrors: &[] };

/// `y ← factor x`, rounded to single precision.
pub fn to_single<T: Real>(x: &Array<T>, factor: f64, y: &mut Array<f32>) -> Result<()> {
    cast::<T, _, _>("to_single", x, factor, y)
}

/// `y ← factor x`, for `x` in single precision.
pub fn from_single<T: Real>(x: &Array<f32>, factor: f64, y: &mut Array<T>) -> Result<()> {
    cast::<T, _, _>("from_single", x, factor, y)
}

fn cast<T: Real, X: Element, Y: Element>(
    name: &str,
    x: &Array<X>,
    factor: f64,
    y: &mut Array<Y>,
) -> Result<()> {
    let device = y.device();
    assert!(x.len() == y.len() && x.device() == device, "vectors of one length on one device");
    let (function, n) = (device.function::<T>(&SOURCE, name)?, x.len() as i64);
    let (from, to) = (x.address(0), y.address(0));
    let mut launch = device.launch(&function);
    launch.arg(&n).arg(&from).arg(&factor).arg(&to);
    // SAFETY: arguments as in cast.cu; both arrays hold `n` entries
    unsafe { launch.launch(config_concurrent(device, x.len(), 4)) }
}
