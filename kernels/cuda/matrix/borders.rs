//! Additional data for matrices in chunks of entries: buffers for the partial sums of rows that continue in
//! the next chunk, and the list of empty rows. coo.cu describes their use.

use crate::cuda::device::error::Result;
use crate::cuda::device::prelude::PARCEL;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::chunks::Chunks;

/// Effect of a product on `y`: overwritten or updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// `y ← A x`
    Nothing,
    /// `y ← y + A x`
    Y,
}

/// Empty rows, and buffers through which chunks pass partial sums of rows.
#[derive(Debug)]
pub(crate) struct Borders<T: Real> {
    pub(crate) empty: Array<u32>,
    /// One `Parcel` of prelude.cu per chunk.
    pub(crate) parts: Array<T>,
}

impl<T: Real> Borders<T> {
    pub(crate) fn new(device: &Device, chunks: &Chunks, onto: Onto) -> Result<Self> {
        let empty = match onto {
            Onto::Nothing => chunks.empty(),
            Onto::Y => vec![],
        };
        Ok(Borders { empty: device.upload(&empty)?, parts: device.zeros(PARCEL * chunks.chunks())? })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.empty.bytes() + self.parts.bytes()
    }
}

/// Number of empty rows that a thread sets to zero. Guess.
pub(crate) const EMPTY_ROWS_PER_THREAD: usize = 4;
