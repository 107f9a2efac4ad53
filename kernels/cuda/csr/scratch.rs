//! Scratch for what products by speculation leave between warps and between their stages, and what they tell the host.

use crate::cuda::device::error::Result;
use crate::cuda::device::pinned::PinnedArray;
use crate::cuda::device::prelude::PARCEL;
use crate::cuda::device::{Device, Real, lock};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Memory that every product leaves as it was, so that all matrices of a device share it: the first product of one waits for no
/// memory.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// [`PARCEL`] elements a bunch, the counts, the ranges.
    words: CudaSlice<u32>,
    told: Told,
    bunches: usize,
    ranges: usize,
    /// Held while both kernels are queued.
    pub(crate) queueing: Mutex<()>,
}

/// The memory that all matrices of an element type share.
#[derive(Debug, Default)]
struct Shared<T> {
    scratch: Mutex<Option<Arc<Scratch>>>,
    element: PhantomData<fn() -> T>,
}

/// Where parts, counts and ranges are for kernels, and what they tell the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) parts: u64,
    pub(crate) counts: u64,
    pub(crate) ranges: u64,
    pub(crate) told: u64,
}

/// Words of counts, and what aligns the ranges behind them.
const COUNTS: usize = 4;

impl Scratch {
    /// Words of the parts of `bunches`; counts and ranges follow.
    fn of_parts<T: Real>(bunches: usize) -> usize {
        bunches * PARCEL * size_of::<T>() / size_of::<u32>()
    }

    /// The memory of a device for this number of bunches and ranges; larger memory takes its place where it has less.
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
        let scratch = Scratch { words, told: Told::new(device)?, bunches, ranges, queueing: Mutex::new(()) };
        Ok(kept.insert(Arc::new(scratch)).clone())
    }

    /// For a matrix of this number.
    pub(crate) fn addresses<T: Real>(&self, number: u64) -> Addresses {
        let counts = Scratch::of_parts::<T>(self.bunches);
        let word = |at: usize| self.words.device_ptr(self.words.stream()).0 + (at * size_of::<u32>()) as u64;
        let told = self.told.place(number) as u64;
        Addresses { parts: word(0), counts: word(counts), ranges: word(counts + COUNTS), told }
    }

    /// Whether products of a matrix of this number leave ranges to the second stage, once one has told it.
    pub(crate) fn leaves_ranges(&self, number: u64) -> Option<bool> {
        // SAFETY: within the allocation; the device may write to it meanwhile, which a volatile load allows for
        let word = unsafe { self.told.place(number).read_volatile() };
        (word >> 1 == number).then_some(word & 1 == 1)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // what is queued may still tell something; where the device is lost, nothing does
        let _ = self.words.stream().synchronize();
    }
}

/// A number that no other matrix of the process has, and no word begins as.
pub(crate) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Words in host memory that the device writes to: `2 · number + dirty` of a matrix, at `number % 512`. Where another matrix has
/// written to the word, its number differs, and the second stage runs.
#[derive(Debug)]
struct Told(PinnedArray<u64>);

impl Told {
    const WORDS: u64 = 512;

    fn new(device: &Device) -> Result<Told> {
        Ok(Told(device.pinned(Told::WORDS as usize)?))
    }

    /// Pinned memory has one address for host and device.
    fn place(&self, number: u64) -> *mut u64 {
        // SAFETY: within the allocation
        unsafe { (self.0.address() as *mut u64).add((number % Told::WORDS) as usize) }
    }
}
