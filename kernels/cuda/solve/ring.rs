//! What the device tells the host: entries of numbers in host memory that the device writes to.
//!
//! Words may arrive in any order, and the device does not wait for them: an entry is known once none of its words is empty.

use crate::cuda::device::Device;
use crate::cuda::device::error::Result;
use crate::cuda::device::pinned::Pinned;
use crate::cuda::device::prelude::{FAILED, HEAD};
use crate::cuda::tuning::LAG;

/// Host memory that the device writes to.
#[derive(Debug)]
pub(crate) struct Ring {
    words: *mut u64,
    /// Where they are stored.
    _memory: Pinned,
    /// Words of an entry.
    pub(crate) width: usize,
    pub(crate) entries: usize,
    device: Device,
}

// SAFETY: the memory is owned, and read through volatile loads only
unsafe impl Send for Ring {}

/// Entries of a ring, at least: those on their way, and as many that were given up.
const FEWEST_ENTRIES: usize = 4 * LAG;
/// Words of a ring, where that makes for more entries: room for many steps of one launch.
const WORDS: usize = 8192;

/// A word that was not written yet: no number that the device writes.
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

    /// Where it begins: pinned memory has one address for host and device.
    pub(crate) fn address(&self) -> u64 {
        self.words as u64
    }

    fn place(&self, sequence: u64, at: usize) -> *mut u64 {
        let entry = (sequence % self.entries as u64) as usize;
        assert!(at < self.width, "a word of the entry");
        // SAFETY: within the allocation
        unsafe { self.words.add(entry * self.width + at) }
    }

    /// A word of an entry, once it is written.
    fn word(&self, sequence: u64, at: usize) -> Option<f64> {
        // SAFETY: within the allocation; the device may write to it meanwhile, which a volatile load allows for
        let word = unsafe { self.place(sequence, at).read_volatile() };
        (word != EMPTY).then_some(f64::from_bits(word))
    }

    /// Makes an entry empty again. The device writes to it once more when a later step was queued.
    pub(crate) fn clear(&mut self, sequence: u64) {
        for at in 0..self.width {
            // SAFETY: within the allocation, and the device is done with the entry
            unsafe { self.place(sequence, at).write_volatile(EMPTY) };
        }
    }

    /// The entry of a step, once all of it is written: what it is, its count or watch, and its numbers.
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
        // what is queued may still write here
        self.device.park(self.device.synchronize());
    }
}
