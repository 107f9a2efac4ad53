//! Conjugate gradients between two products, in one launch: what advance.cu says.
//!
//! Blocks wait for each other once, for the sums that decide the new direction: they are launched cooperatively, one on each
//! multiprocessor, and keep the preconditioned residual in shared memory meanwhile.

use crate::cuda::device::error::Result;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::PACK_BYTES;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate::gate;
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::solve::vector::parked_sums;
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

/// Bytes of shared memory that the kernel declares itself, at most.
const DECLARED: usize = 2048;

/// The kernel for a device whose blocks can wait for each other.
#[derive(Debug)]
struct Kernel<T> {
    function: CudaFunction,
    /// Packs of a thread that stay on the chip, at most.
    kept: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernel<T> {
    /// The kernel of a device, loaded when first needed.
    fn of(device: &Device) -> Result<Option<&Self>> {
        let kept = device.kept::<OnceLock<Result<Option<Kernel<T>>>>>();
        kept.get_or_init(|| Kernel::new(device)).as_ref().map(Option::as_ref).map_err(Clone::clone)
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

/// Conjugate gradients between two products: what is known, and what changes.
#[derive(Debug)]
pub struct Advance<'a, T: Real> {
    /// The length of the step.
    pub alpha: &'a Scalar<T>,
    /// `⟨r, d r⟩` before it.
    pub rho: &'a Scalar<T>,
    /// The product of the direction.
    pub q: &'a Array<T>,
    /// The diagonal that preconditions.
    pub d: &'a Array<T>,
    /// The solution.
    pub x: &'a mut Array<T>,
    /// The residual.
    pub r: &'a mut Array<T>,
    /// The direction.
    pub p: &'a mut Array<T>,
}

/// `r ← r − α q; z = d r; ρ' = ⟨r, z⟩; x ← x + α p; p ← z + ρ'/ρ p; [‖r‖², ρ']`; `None`, and nothing is done, where blocks
/// cannot wait for each other.
pub fn advance<T: Real>(at: Advance<'_, T>) -> Option<[Scalar<T>; 2]> {
    let device = at.x.device().clone();
    match queue(at) {
        Ok(sums) => sums,
        Err(error) => Some(parked_sums(&device, Err(error))),
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
    // SAFETY: arguments as in advance.cu; the vectors hold `n` entries, shared memory `kept` packs of each thread, and a
    // multiprocessor has room for a block
    unsafe { launch.cooperative().launch(config) }?;
    Ok(Some(sums.scalars()))
}
