//! Vector operations on a device. All are queued on the device's stream; none waits for the device.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config_at_once;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::{PACK_BYTES, RawGate};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate::{self};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use cudarc::driver::{CudaFunction, LaunchConfig};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Kernels with one result.
pub(crate) const SOURCE: Source = Source {
    file: "vector.cu",
    text: concat!(include_str!("loop.cu"), "#line 1 \"vector.cu\"\n", include_str!("vector.cu")),
    constants: constants![],
    mirrors: &[],
};

/// Kernels with several results.
pub(crate) const FUSED: Source = Source {
    file: "fused.cu",
    text: concat!(include_str!("loop.cu"), "#line 1 \"fused.cu\"\n", include_str!("fused.cu")),
    constants: constants![],
    mirrors: &[],
};

/// Loaded kernels.
#[derive(Debug)]
pub(crate) struct Kernels<T: Real> {
    copy: CudaFunction,
    flip_signs: CudaFunction,
    axpby: CudaFunction,
    axpbypcz: CudaFunction,
    dot: CudaFunction,
    dot_2: CudaFunction,
    axpy_dot_2: CudaFunction,
    axpy_norm: CudaFunction,
    axpy_xpby: CudaFunction,
    multiply: CudaFunction,
    multiply_dot: CudaFunction,
    axpy_multiply_dot: CudaFunction,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernels<T> {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let function = |name| device.function::<T>(&SOURCE, name);
        let fused = |name| device.function::<T>(&FUSED, name);
        Ok(Kernels {
            copy: function("copy")?,
            flip_signs: function("flip_signs")?,
            axpby: function("axpby")?,
            axpbypcz: function("axpbypcz")?,
            dot: function("dot")?,
            dot_2: function("dot_2")?,
            axpy_dot_2: fused("axpy_dot_2")?,
            axpy_norm: fused("axpy_norm")?,
            axpy_xpby: fused("axpy_xpby")?,
            multiply: fused("multiply")?,
            multiply_dot: fused("multiply_dot")?,
            axpy_multiply_dot: fused("axpy_multiply_dot")?,
            element: PhantomData,
        })
    }

    /// The kernels of a device, loaded at first use.
    fn of(device: &Device) -> Result<&Self> {
        let kept = device.kept::<OnceLock<Result<Kernels<T>>>>();
        kept.get_or_init(|| Kernels::new(device)).as_ref().map_err(Clone::clone)
    }
}

/// Launch parameters of an operation on vectors of one length.
struct Call<'d, T: Real> {
    device: &'d Device,
    kernels: &'d Kernels<T>,
    n: i64,
    config: LaunchConfig,
}

impl<'d, T: Real> Call<'d, T> {
    fn new(y: &'d Array<T>, others: &[&Array<T>]) -> Result<Self> {
        for x in others {
            assert_eq!(x.len(), y.len(), "vectors of one length");
            assert!(x.device() == y.device(), "vectors of one device");
        }
        let device = y.device();
        let n = y.len();
        let config = config_at_once(device, n, 2 * PACK_BYTES / size_of::<T>());
        Ok(Call { device, kernels: Kernels::of(device)?, n: n as i64, config })
    }

    fn gate(&self) -> Result<RawGate<T>> {
        gate::gate(self.device)
    }
}

/// Stores the error of an operation that cannot return it on the device.
fn parked<T: Real>(y: &Array<T>, outcome: Result<()>) {
    y.device().park(outcome);
}

/// The scalars of a sum; NaN if queueing failed (the error is stored on the device).
pub(crate) fn parked_sums<T: Real, const K: usize>(
    device: &Device,
    outcome: Result<[Scalar<T>; K]>,
) -> [Scalar<T>; K] {
    outcome.unwrap_or_else(|error| {
        device.park(Err(error));
        [(); K].map(|()| Scalar::constant(T::nan()))
    })
}

/// `y ← x`
pub fn copy<T: Real>(x: &Array<T>, y: &mut Array<T>) {
    assert_eq!(x.len(), y.len(), "vectors of one length");
    parked(y, copy_from(x, 0, y));
}

/// `y ← x[first..first + y.len()]`
pub(crate) fn copy_from<T: Real>(x: &Array<T>, first: usize, y: &Array<T>) -> Result<()> {
    let call = Call::new(y, &[])?;
    assert!(x.device() == y.device() && first + y.len() <= x.len(), "a part of an array on the same device");
    let (gate, x, to) = (call.gate()?, x.address(first), y.address(0));
    let mut launch = call.device.launch(&call.kernels.copy);
    launch.arg(&gate).arg(&call.n).arg(&x).arg(&to);
    // SAFETY: arguments as in vector.cu; both arrays hold `n` entries from these addresses on
    unsafe { launch.launch(call.config) }?;
    Ok(())
}

/// Negates about half of the entries, pseudo-randomly.
pub fn flip_signs<T: Real>(x: &mut Array<T>) -> Result<()> {
    let call = Call::new(x, &[])?;
    let to = x.address(0);
    let mut launch = call.device.launch(&call.kernels.flip_signs);
    launch.arg(&call.n).arg(&to);
    // SAFETY: arguments as in vector.cu; the array holds `n` entries
    unsafe { launch.launch(call.config) }?;
    Ok(())
}

/// `y ← a x + b y`; `b = 0` overwrites.
pub fn axpby<T: Real>(a: &Scalar<T>, x: &Array<T>, b: &Scalar<T>, y: &mut Array<T>) {
    let queue = || {
        let call = Call::new(y, &[x])?;
        let (a, b) = (a.number(), b.number());
        let (gate, a, x, b, to) = (call.gate()?, a.raw(), x.address(0), b.raw(), y.address(0));
        let mut launch = call.device.launch(&call.kernels.axpby);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&x).arg(&b).arg(&to);
        // SAFETY: arguments as in vector.cu; both arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(())
    };
    parked(y, queue());
}

/// `z ← a x + b y + c z`; `c = 0` overwrites.
pub fn axpbypcz<T: Real>(
    a: &Scalar<T>,
    x: &Array<T>,
    b: &Scalar<T>,
    y: &Array<T>,
    c: &Scalar<T>,
    z: &mut Array<T>,
) {
    let queue = || {
        let call = Call::new(z, &[x, y])?;
        let (a, b, c) = (a.number(), b.number(), c.number());
        let (gate, a, b, c) = (call.gate()?, a.raw(), b.raw(), c.raw());
        let (x, y, to) = (x.address(0), y.address(0), z.address(0));
        let mut launch = call.device.launch(&call.kernels.axpbypcz);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&x).arg(&b).arg(&y).arg(&c).arg(&to);
        // SAFETY: arguments as in vector.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(())
    };
    parked(z, queue());
}

/// `⟨x, y⟩`
pub fn dot<T: Real>(x: &Array<T>, y: &Array<T>) -> Scalar<T> {
    let queue = || {
        let call = Call::new(y, &[x])?;
        let sums = Sums::<T, 1>::new(call.device)?;
        let (x, y) = (x.address(0), y.address(0));
        let mut launch = call.device.launch(&call.kernels.dot);
        launch.arg(&call.n).arg(&x).arg(&y).arg(&sums.raw);
        // SAFETY: arguments as in vector.cu; both arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    let [xy] = parked_sums(y.device(), queue());
    xy
}

/// `[⟨x, y⟩, ⟨x, z⟩]`
pub fn dot_2<T: Real>(x: &Array<T>, y: &Array<T>, z: &Array<T>) -> [Scalar<T>; 2] {
    let queue = || {
        let call = Call::new(x, &[y, z])?;
        let sums = Sums::<T, 2>::new(call.device)?;
        let (x, y, z) = (x.address(0), y.address(0), z.address(0));
        let mut launch = call.device.launch(&call.kernels.dot_2);
        launch.arg(&call.n).arg(&x).arg(&y).arg(&z).arg(&sums.raw);
        // SAFETY: arguments as in vector.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    parked_sums(x.device(), queue())
}

/// `r ← r + a x; [‖r‖², ⟨r, y⟩]`
pub fn axpy_dot_2<T: Real>(a: &Scalar<T>, x: &Array<T>, y: &Array<T>, r: &mut Array<T>) -> [Scalar<T>; 2] {
    let queue = || {
        let call = Call::new(r, &[x, y])?;
        let (a, sums) = (a.number(), Sums::<T, 2>::new(call.device)?);
        let (gate, a) = (call.gate()?, a.raw());
        let (x, y, to) = (x.address(0), y.address(0), r.address(0));
        let mut launch = call.device.launch(&call.kernels.axpy_dot_2);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&x).arg(&y).arg(&to).arg(&sums.raw);
        // SAFETY: arguments as in fused.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    parked_sums(r.device(), queue())
}

/// `r ← r + a x; ‖r‖²`
pub fn axpy_norm<T: Real>(a: &Scalar<T>, x: &Array<T>, r: &mut Array<T>) -> Scalar<T> {
    let queue = || {
        let call = Call::new(r, &[x])?;
        let (a, sums) = (a.number(), Sums::<T, 1>::new(call.device)?);
        let (gate, a, x, to) = (call.gate()?, a.raw(), x.address(0), r.address(0));
        let mut launch = call.device.launch(&call.kernels.axpy_norm);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&x).arg(&to).arg(&sums.raw);
        // SAFETY: arguments as in fused.cu; both arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    let [norm] = parked_sums(r.device(), queue());
    norm
}

/// `x ← x + a p; p ← z + b p`
pub fn axpy_xpby<T: Real>(a: &Scalar<T>, p: &mut Array<T>, z: &Array<T>, b: &Scalar<T>, x: &mut Array<T>) {
    let queue = || {
        let call = Call::new(x, &[p, z])?;
        let (a, b) = (a.number(), b.number());
        let (gate, a, b) = (call.gate()?, a.raw(), b.raw());
        let (p, z, x) = (p.address(0), z.address(0), x.address(0));
        let mut launch = call.device.launch(&call.kernels.axpy_xpby);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&p).arg(&z).arg(&b).arg(&x);
        // SAFETY: arguments as in fused.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(())
    };
    parked(x, queue());
}

/// `y ← d x`, elementwise.
pub fn multiply<T: Real>(d: &Array<T>, x: &Array<T>, y: &mut Array<T>) {
    let queue = || {
        let call = Call::new(y, &[d, x])?;
        let (gate, d, x, to) = (call.gate()?, d.address(0), x.address(0), y.address(0));
        let mut launch = call.device.launch(&call.kernels.multiply);
        launch.arg(&gate).arg(&call.n).arg(&d).arg(&x).arg(&to);
        // SAFETY: arguments as in fused.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(())
    };
    parked(y, queue());
}

/// `y ← d x; ⟨x, y⟩`
pub fn multiply_dot<T: Real>(d: &Array<T>, x: &Array<T>, y: &mut Array<T>) -> Scalar<T> {
    let queue = || {
        let call = Call::new(y, &[d, x])?;
        let sums = Sums::<T, 1>::new(call.device)?;
        let (gate, d, x, to) = (call.gate()?, d.address(0), x.address(0), y.address(0));
        let mut launch = call.device.launch(&call.kernels.multiply_dot);
        launch.arg(&gate).arg(&call.n).arg(&d).arg(&x).arg(&to).arg(&sums.raw);
        // SAFETY: arguments as in fused.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    let [xy] = parked_sums(y.device(), queue());
    xy
}

/// `r ← r + a q; z ← d r; [‖r‖², ⟨r, z⟩]`
pub fn axpy_multiply_dot<T: Real>(
    a: &Scalar<T>,
    q: &Array<T>,
    d: &Array<T>,
    r: &mut Array<T>,
    z: &mut Array<T>,
) -> [Scalar<T>; 2] {
    let queue = || {
        let call = Call::new(r, &[q, d, z])?;
        let (a, sums) = (a.number(), Sums::<T, 2>::new(call.device)?);
        let (gate, a) = (call.gate()?, a.raw());
        let (q, d, to, z) = (q.address(0), d.address(0), r.address(0), z.address(0));
        let mut launch = call.device.launch(&call.kernels.axpy_multiply_dot);
        launch.arg(&gate).arg(&call.n).arg(&a).arg(&q).arg(&d).arg(&to).arg(&z).arg(&sums.raw);
        // SAFETY: arguments as in fused.cu; the arrays hold `n` entries
        unsafe { launch.launch(call.config) }?;
        Ok(sums.scalars())
    };
    parked_sums(r.device(), queue())
}
