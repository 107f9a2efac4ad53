//! Asynchronous readback of scalars: the host polls pinned memory, and does not wait for work queued later.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::pinned::PinnedArray;
use crate::cuda::device::{Device, Real, lock};
use crate::cuda::solve::gate;
use crate::cuda::solve::number::{CELLS, Number, Scalar};
use std::sync::{Mutex, OnceLock};

/// Maximum number of scalars that are read back together.
const TOGETHER: usize = 2;

/// Pinned host memory that the device writes to, with a piece (slot) for each readback in flight.
#[derive(Debug)]
struct Slots {
    words: PinnedArray<u64>,
    free: Mutex<Vec<usize>>,
}

impl Slots {
    fn of(device: &Device) -> Result<&Slots> {
        let new =
            || Ok(Slots { words: device.pinned(CELLS * TOGETHER)?, free: Mutex::new((0..CELLS).collect()) });
        at_first_use(device.kept::<OnceLock<Slots>>(), new)
    }

    fn place<T>(&self, slot: usize, at: usize) -> *mut T {
        assert!(slot < CELLS && at < TOGETHER, "a word of a slot");
        (self.words.address() + ((slot * TOGETHER + at) * size_of::<u64>()) as u64) as *mut T
    }
}

/// Scalars being read back: the device writes them to host memory as soon as they are known.
#[derive(Debug)]
pub struct ScalarReadback<T: Real, const COUNT: usize> {
    /// `Ok`: the device and the slot in host memory. `Err`: the values, if all are constants.
    from: std::result::Result<(Device, usize), [T; COUNT]>,
}

/// Returns whether a word has not been written yet. (A NaN with these bits is recognized once all queued work is
/// done.)
fn is_empty<T: Real>(number: T) -> bool {
    crate::buffer::bytes_of(&[number]).iter().all(|&byte| byte == 0xff)
}

impl<T: Real, const COUNT: usize> ScalarReadback<T, COUNT> {
    /// Queues the readback of up to two scalars of one device.
    pub fn new(scalars: [&Scalar<T>; COUNT]) -> Result<ScalarReadback<T, COUNT>> {
        const { assert!(COUNT <= TOGETHER, "a slot has no capacity for more") };
        let numbers: [Number<T>; COUNT] = scalars.map(Scalar::number);
        let Some(device) = numbers.iter().find_map(Number::device) else {
            return Ok(ScalarReadback { from: Err(numbers.map(|number| number.factor)) });
        };
        let device = device?;
        let slots = Slots::of(&device)?;
        let full = || Error::TooLarge { what: "the number of scalars", got: CELLS + 1, limit: CELLS };
        let slot = lock(&slots.free).pop().ok_or_else(full)?;
        let readback = ScalarReadback { from: Ok((device.clone(), slot)) };
        for at in 0..TOGETHER {
            // SAFETY: a word of the slot, which no other readback uses
            unsafe { slots.place::<u64>(slot, at).write_volatile(u64::MAX) };
        }
        let places =
            numbers.iter().enumerate().map(|(at, number)| (slots.place::<T>(slot, at) as u64, number));
        gate::deliver(&device, places)?;
        Ok(readback)
    }

    /// Waits until the device has written the numbers, and returns them.
    pub fn read(&self) -> Result<[T; COUNT]> {
        let (device, slot) = match &self.from {
            Ok((device, slot)) => (device, *slot),
            Err(known) => return Ok(*known),
        };
        let slots = Slots::of(device)?;
        // SAFETY: a word of the slot, and any bits are a value; the load is volatile because the device may
        // write meanwhile
        let number = |at: usize| unsafe { slots.place::<T>(slot, at).read_volatile() };
        device.wait_for(|| !(0..COUNT).any(|at| is_empty(number(at))))?;
        if let Some(error) = device.take_error() {
            return Err(error);
        }
        Ok(std::array::from_fn(number))
    }
}

impl<T: Real, const COUNT: usize> Drop for ScalarReadback<T, COUNT> {
    fn drop(&mut self) {
        let Ok((device, slot)) = &self.from else { return };
        // wait before the slot is freed: the device may not have written to it yet
        let read = self.read().map(|_| ());
        if let Ok(slots) = Slots::of(device) {
            lock(&slots.free).push(*slot);
        }
        device.store_error(read);
    }
}
