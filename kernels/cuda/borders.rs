//! What chunks of entries leave to a second kernel: rows that cross their borders, and rows without entries. coo.cu says how
//! these are finished.

use super::chunks::{Chunks, SOURCE};
use super::device::{Array, Device, Real, Storage, lock};
use super::error::Result;
use super::product::config;
use super::slices::WARP;
use cudarc::driver::{CudaFunction, DeviceRepr};
use std::sync::Mutex;

/// What becomes of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onto {
    /// `y ← A x`
    Nothing,
    /// `y ← y + A x`
    Y,
}

/// The rows that chunks leave to a second kernel, and what they carry out for it.
#[derive(Debug)]
pub(super) struct Borders<T: Real> {
    crossing: Array<u32>,
    empty: Array<u32>,
    carries: Array<T>,
    finish: CudaFunction,
    /// Held while both kernels are queued: they share `carries`.
    queueing: Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawRest {
    crossing: u64,
    empty: u64,
    carries: u64,
    crossings: u32,
    empties: u32,
}
// SAFETY: as `Rest` of coo.cu
unsafe impl DeviceRepr for RawRest {}

impl<T: Real> Borders<T> {
    /// Of a matrix that stores `V`.
    pub(super) fn new<V: Storage<T>>(device: &Device, chunks: &Chunks, onto: Onto) -> Result<Self> {
        let (empty, finish) = match onto {
            Onto::Nothing => (chunks.empty(), "coo_finish"),
            Onto::Y => (vec![], "coo_finish_add"),
        };
        Ok(Borders {
            crossing: device.upload(&chunks.crossing())?,
            empty: device.upload(&empty)?,
            carries: device.zeros(2 * chunks.chunks())?,
            finish: device.function_storing::<T, V>(&SOURCE, finish)?,
            queueing: Mutex::new(()),
        })
    }

    /// Queues the product, which is told where carries go, and the kernel that finishes it.
    pub(super) fn finish(&self, y: &mut Array<T>, product: impl FnOnce(u64) -> Result<()>) -> Result<()> {
        let (crossings, empties) = (self.crossing.len() / 3, self.empty.len());
        let rest = RawRest {
            crossing: self.crossing.address(0),
            empty: self.empty.address(0),
            carries: self.carries.address(0),
            crossings: crossings as u32,
            empties: empties as u32,
        };
        let (device, to) = (y.device(), y.address(0));
        let _queueing = lock(&self.queueing);
        product(rest.carries)?;
        if crossings + empties > 0 {
            let mut launch = device.launch(&self.finish);
            launch.arg(&rest).arg(&to);
            // SAFETY: arguments as in coo.cu; rows are those of `y`, chunks those that have carries
            unsafe { launch.launch(config((crossings * WARP).max(empties))) }?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.crossing.bytes() + self.empty.bytes() + self.carries.bytes()
    }
}
