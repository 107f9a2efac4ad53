//! Rows that several chunks of entries have parts of. prelude.cu says how these come together.

use super::device::{Array, Device, Real};
use super::error::Result;

/// No row crosses a border.
pub(super) const NO_ROW: u32 = u32::MAX;

/// The rows that cross the borders of chunks, on the host.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// `[row, first chunk, last chunk]` each.
    pub(super) list: Vec<u32>,
    chunks: usize,
}

impl Rows {
    /// `crossing(chunk)` is the row that crosses the border before a chunk, if there is one.
    pub(super) fn new(chunks: usize, crossing: impl Fn(usize) -> Option<usize>) -> Rows {
        let mut list: Vec<u32> = vec![];
        for chunk in 1..chunks {
            let Some(row) = crossing(chunk) else { continue };
            match list.last_chunk_mut::<3>() {
                Some([same, _, last]) if *same as usize == row => *last = chunk as u32,
                _ => list.extend([row as u32, chunk as u32 - 1, chunk as u32]),
            }
        }
        Rows { list, chunks }
    }

    /// Before each chunk, and behind the last: the number of the row that crosses it, or [`NO_ROW`].
    pub(super) fn borders(&self) -> Vec<u32> {
        let mut borders = vec![NO_ROW; self.chunks + 1];
        for (number, row) in self.list.chunks(3).enumerate() {
            borders[row[1] as usize + 1..=row[2] as usize].fill(number as u32);
        }
        borders
    }
}

/// The same on a device, with room for what chunks carry out.
#[derive(Debug)]
pub(super) struct Crossing<T: Real> {
    borders: Array<u32>,
    rows: Array<u32>,
    carries: Array<T>,
    arrived: Array<u32>,
}

/// [`Crossing`] as kernels see it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawCrossing {
    borders: u64,
    rows: u64,
    carries: u64,
    arrived: u64,
}

impl<T: Real> Crossing<T> {
    pub(super) fn new(device: &Device, rows: &Rows) -> Result<Self> {
        Ok(Crossing {
            borders: device.upload(&rows.borders())?,
            rows: device.upload(&rows.list)?,
            carries: device.zeros(2 * rows.chunks)?,
            arrived: device.zeros(rows.list.len() / 3)?,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.borders.bytes() + self.rows.bytes() + self.carries.bytes() + self.arrived.bytes()
    }

    pub(super) fn raw(&self) -> RawCrossing {
        RawCrossing {
            borders: self.borders.address(0),
            rows: self.rows.address(0),
            carries: self.carries.address(0),
            arrived: self.arrived.address(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_may_cross_many_borders() {
        let before = [None, Some(3), None, Some(7), Some(7), Some(9)];
        let rows = Rows::new(6, |chunk| before[chunk]);
        assert_eq!(rows.list, [3, 0, 1, 7, 2, 4, 9, 4, 5]);
        assert_eq!(rows.borders(), [NO_ROW, 0, NO_ROW, 1, 1, 2, NO_ROW]);
        assert_eq!(Rows::new(0, |_| None).borders(), [NO_ROW]);
    }
}
