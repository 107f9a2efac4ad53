//! The part of a conjugate gradient iteration between two matrix-vector products, in one launch; see
//! advance.cu.
//!
//! Blocks synchronize once, for the sums that determine the new direction. Therefore the launch is
//! cooperative, with one block per multiprocessor. Across the synchronization, blocks keep as much of the
//! preconditioned residual as fits in shared memory.

use crate::cuda::device::error::Result;
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::PACK_BYTES;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate::gate;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::solve::vector::sums_or_nan;
use crate::cuda::tuning::ADVANCE_THREADS;
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaFunction, LaunchConfig};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "advance.cu",
    text: include_str!("advance.cu"),
    constants: constants![ADVANCE_THREADS],
    mirrors: &[],
};

/// Upper bound of the kernel's static shared memory, in bytes.
const DECLARED: usize = 2048;

/// The kernel, for devices that support cooperative launches.
#[derive(Debug)]
struct Kernel<T> {
    function: CudaFunction,
    /// Maximum number of packs per thread that fit in shared memory.
    kept: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernel<T> {
    /// The kernel of a device, loaded at first use.
    fn of(device: &Device) -> Result<Option<&Self>> {
        let kept = device.kept::<OnceLock<Option<Kernel<T>>>>();
        at_first_use(kept, || Kernel::new(device)).map(Option::as_ref)
    }

    fn new(device: &Device) -> Result<Option<Self>> {
        let cooperative = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
        if device.inner.context.attribute(cooperative)? == 0 {
            return Ok(None);
        }
        let function = device.function::<T>(&SOURCE, "advance")?;
        device.lift_shared_limit(&function)?;
        let kept = device.shared_memory()?.saturating_sub(DECLARED) / (ADVANCE_THREADS * PACK_BYTES);
        Ok(Some(Kernel { function, kept, element: PhantomData }))
    }
}

/// Operands of conjugate gradients between two products.
#[derive(Debug)]
pub struct Advance<'a, T: Real> {
    /// Step length.
    pub alpha: &'a Scalar<T>,
    /// `⟨r, d r⟩` of the iteration before.
    pub rho: &'a Scalar<T>,
    /// Product of the matrix and the direction.
    pub q: &'a Array<T>,
    /// Diagonal of the preconditioner `M⁻¹`.
    pub d: &'a Array<T>,
    /// Solution.
    pub x: &'a mut Array<T>,
    /// Residual.
    pub r: &'a mut Array<T>,
    /// Search direction.
    pub p: &'a mut Array<T>,
}

/// `r ← r − α q; z = d r; ρ' = ⟨r, z⟩; x ← x + α p; p ← z + ρ'/ρ p; [‖r‖², ρ']`. If the device does not
/// support cooperative launches, changes nothing and returns `None`.
pub fn advance<T: Real>(at: Advance<'_, T>) -> Option<[Scalar<T>; 2]> {
    let device = at.x.device().clone();
    match queue(at) {
        Ok(sums) => sums,
        Err(error) => Some(sums_or_nan(&device, Err(error))),
    }
}

fn queue<T: Real>(at: Advance<'_, T>) -> Result<Option<[Scalar<T>; 2]>> {
    let Advance { alpha, rho, q, d, x, r, p } = at;
    let device = x.device();
    for other in [q, d, r, p] {
        assert_eq!(other.len(), x.len(), "vectors of one length");
        assert!(other.device() == device, "vectors of one device");
    }
    let Some(kernel) = Kernel::<T>::of(device)? else { return Ok(None) };
    let of_block = ADVANCE_THREADS * PACK_BYTES / size_of::<T>();
    let blocks = x.len().div_ceil(of_block).clamp(1, device.multiprocessors());
    let kept = x.len().div_ceil(of_block * blocks).min(kernel.kept);
    let config = LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (ADVANCE_THREADS as u32, 1, 1),
        shared_mem_bytes: (kept * ADVANCE_THREADS * PACK_BYTES) as u32,
    };
    let (alpha, rho, sums) = (alpha.number(), rho.number(), Sums::<T, 2>::new(device)?);
    let (gate, alpha, rho, n, kept) =
        (gate::<T>(device)?, alpha.raw(), rho.raw(), x.len() as i64, kept as u32);
    let [q, d] = [q, d].map(|vector| vector.address(0));
    let [x, r, p] = [&*x, &*r, &*p].map(|vector| vector.address(0));
    let mut launch = device.launch(&kernel.function);
    launch.arg(&gate).arg(&n).arg(&alpha).arg(&rho).arg(&q).arg(&d).arg(&x).arg(&r).arg(&p).arg(&kept);
    launch.arg(&sums.raw);
    // SAFETY: arguments as in advance.cu; the vectors have `n` entries, shared memory holds `kept` packs of
    // each thread, and a block fits on a multiprocessor
    unsafe { launch.cooperative().launch(config) }?;
    Ok(Some(sums.scalars()))
}
