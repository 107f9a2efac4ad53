//! What chunks of entries need beside the entries: a place for the parts of rows that go on in the next chunk, and the rows
//! without entries. coo.cu says how both are used.

use crate::cuda::device::error::Result;
use crate::cuda::device::prelude::PARCEL;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::chunks::Chunks;

/// What becomes of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// `y ← A x`
    Nothing,
    /// `y ← y + A x`
    Y,
}

/// Rows without entries, and what chunks send each other.
#[derive(Debug)]
pub(crate) struct Borders<T: Real> {
    pub(crate) empty: Array<u32>,
    /// A `Parcel` of prelude.cu for each chunk.
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

/// Rows without entries that a thread sets to zero.
pub(crate) const EMPTY_ROWS_PER_THREAD: usize = 4;
