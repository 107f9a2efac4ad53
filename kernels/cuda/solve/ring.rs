//! Ring buffer in pinned host memory, through which the device reports the numbers of each step (iteration).
//!
//! Words may arrive in any order, and the device does not wait for them: an entry is complete once none of
//! its words is empty.

use crate::cuda::device::Device;
use crate::cuda::device::error::Result;
use crate::cuda::device::pinned::Pinned;
use crate::cuda::device::prelude::{FAILED, HEAD};
use crate::cuda::tuning::LAG;

/// Ring of entries in pinned memory. The device writes them; the host reads and clears them.
#[derive(Debug)]
pub(crate) struct Ring {
    words: *mut u64,
    /// Owns the memory.
    _memory: Pinned,
    /// Words of an entry.
    pub(crate) width: usize,
    pub(crate) entries: usize,
    device: Device,
}

// SAFETY: the memory is owned, and read through volatile loads only
unsafe impl Send for Ring {}

/// Minimum number of entries: enough for the steps in flight, and for steps that were abandoned.
const FEWEST_ENTRIES: usize = 4 * LAG;
/// Minimum number of words, enough for many steps in one launch.
const WORDS: usize = 8192;

/// Value of a word that has not been written yet; the device never writes these bits.
const EMPTY: u64 = u64::MAX;

impl Ring {
    pub(crate) fn new(device: &Device, numbers: usize) -> Result<Ring> {
        let width = HEAD + numbers;
        let entries = (WORDS / width).max(FEWEST_ENTRIES);
        let bytes = (entries * width).max(WORDS) * size_of::<u64>();
        let mut memory = Pinned::new(device, bytes)?;
        // every word is empty, and no device writes to it yet
        memory.bytes_mut().fill(0xff);
        let words = memory.address() as *mut u64;
        Ok(Ring { words, _memory: memory, width, entries, device: device.clone() })
    }

    /// Device address of the ring; the same as on the host, since memory is pinned.
    pub(crate) fn address(&self) -> u64 {
        self.words as u64
    }

    fn place(&self, sequence: u64, at: usize) -> *mut u64 {
        let entry = (sequence % self.entries as u64) as usize;
        assert!(at < self.width, "a word of the entry");
        // SAFETY: within the allocation
        unsafe { self.words.add(entry * self.width + at) }
    }

    /// A word of an entry; `None` until it is written.
    fn word(&self, sequence: u64, at: usize) -> Option<f64> {
        // SAFETY: within the allocation; the load is volatile because the device may write meanwhile
        let word = unsafe { self.place(sequence, at).read_volatile() };
        (word != EMPTY).then_some(f64::from_bits(word))
    }

    /// Marks an entry as empty, so that the device can use it for a later step.
    pub(crate) fn clear(&mut self, sequence: u64) {
        for at in 0..self.width {
            // SAFETY: within the allocation, and the device is done with the entry
            unsafe { self.place(sequence, at).write_volatile(EMPTY) };
        }
    }

    /// The entry of a step once it is complete: its kind, and the count of its numbers or the id of the
    /// failed watch. `numbers` receives its numbers.
    pub(crate) fn entry(&self, sequence: u64, numbers: &mut Vec<f64>) -> Option<(u32, usize)> {
        let (what, count) = (self.word(sequence, 0)? as u32, self.word(sequence, 1)? as usize);
        numbers.clear();
        let words = if what == FAILED { 1 } else { count };
        for at in HEAD..self.width.min(HEAD + words) {
            numbers.push(self.word(sequence, at)?);
        }
        Some((what, count))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // wait for queued kernels, which may still write to the ring
        self.device.store_error(self.device.synchronize());
    }
}
