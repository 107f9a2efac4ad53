//! Workspace of speculative products: values passed between warps and stages, and reports to the host.
//! speculative.cu describes bunches (the tiles of one warp), counts and ranges of rows.

use crate::cuda::device::error::Result;
use crate::cuda::device::pinned::PinnedArray;
use crate::cuda::device::prelude::PARCEL;
use crate::cuda::device::{Device, Real, lock};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Workspace that all matrices of a device share: every product restores it to its initial state, and only
/// the first matrix waits for an allocation.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// [`PARCEL`] elements per bunch, then the counts, then the ranges.
    words: CudaSlice<u32>,
    reports: Reports,
    bunches: usize,
    ranges: usize,
    /// Locked while both kernels are queued.
    pub(crate) queueing: Mutex<()>,
}

/// Workspace shared by all matrices of an element type.
#[derive(Debug, Default)]
struct Shared<T> {
    scratch: Mutex<Option<Arc<Scratch>>>,
    element: PhantomData<fn() -> T>,
}

/// Device addresses of parts, counts, ranges, and of the word for the report to the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) parts: u64,
    pub(crate) counts: u64,
    pub(crate) ranges: u64,
    pub(crate) report: u64,
}

/// Number of words for the counts, padded so that the ranges that follow are aligned.
const COUNTS: usize = 4;

impl Scratch {
    /// Number of words for the parts of `bunches` bunches.
    fn of_parts<T: Real>(bunches: usize) -> usize {
        bunches * PARCEL * size_of::<T>() / size_of::<u32>()
    }

    /// Workspace of a device for at least this many bunches and ranges; reallocated if the current one is
    /// smaller.
    pub(crate) fn on<T: Real>(device: &Device, bunches: usize, ranges: usize) -> Result<Arc<Scratch>> {
        let mut kept = lock(&device.kept::<Shared<T>>().scratch);
        if let Some(scratch) =
            kept.as_ref().filter(|scratch| scratch.bunches >= bunches && scratch.ranges >= ranges)
        {
            return Ok(scratch.clone());
        }
        let before = kept.as_ref().map_or((0, 0), |scratch| (scratch.bunches, scratch.ranges));
        let (bunches, ranges) = (bunches.max(before.0), ranges.max(before.1));
        let words = device.zeros(Scratch::of_parts::<T>(bunches) + COUNTS + 2 * ranges)?.into_slice();
        let scratch =
            Scratch { words, reports: Reports::new(device)?, bunches, ranges, queueing: Mutex::new(()) };
        Ok(kept.insert(Arc::new(scratch)).clone())
    }

    /// Kernel arguments for the matrix with this id.
    pub(crate) fn addresses<T: Real>(&self, number: u64) -> Addresses {
        let counts = Scratch::of_parts::<T>(self.bunches);
        let word = |at: usize| self.words.device_ptr(self.words.stream()).0 + (at * size_of::<u32>()) as u64;
        let report = self.reports.place(number) as u64;
        Addresses { parts: word(0), counts: word(counts), ranges: word(counts + COUNTS), report }
    }

    /// Returns whether products of the matrix with this id leave ranges to the second stage; `None` until a product
    /// has reported it.
    pub(crate) fn leaves_ranges(&self, number: u64) -> Option<bool> {
        // SAFETY: within the allocation; the load is volatile because the device may write meanwhile
        let word = unsafe { self.reports.place(number).read_volatile() };
        (word >> 1 == number).then_some(word & 1 == 1)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // queued kernels may still write a report; if the device is lost, none does
        let _ = self.words.stream().synchronize();
    }
}

/// Returns an id that is unique in the process and not 0, which is the initial value of a report.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Reports in pinned memory: word `id % 512` has `2 * id + dirty`, where `dirty` is 1 if a product of the
/// matrix left ranges to the second stage. If another matrix has overwritten the word, the ids differ, and
/// the second stage runs.
#[derive(Debug)]
struct Reports(PinnedArray<u64>);

impl Reports {
    const WORDS: u64 = 512;

    fn new(device: &Device) -> Result<Reports> {
        Ok(Reports(device.pinned(Reports::WORDS as usize)?))
    }

    /// Address of a matrix's word; the same on host and device, since memory is pinned.
    fn place(&self, number: u64) -> *mut u64 {
        // SAFETY: within the allocation
        unsafe { (self.0.address() as *mut u64).add((number % Reports::WORDS) as usize) }
    }
}
