//! Layout of a coarse correction for the blocks of a persistent kernel: which rows of each block belong to
//! which aggregate, and where the block stores its partial sum for that aggregate.

use crate::cpu::preconditioners::coarse::NONE;
use crate::cuda::device::error::Result;
use crate::cuda::device::module::{Mirror, mirror};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::preconditioners::coarse::Coarse;
use crate::cuda::tuning::MOST_RESIDENT_SUMS;
use cudarc::driver::DeviceRepr;
use rayon::prelude::*;
use std::sync::Arc;

/// The rows of each block, sorted by aggregate. A segment is the intersection of a block and an aggregate.
#[derive(Debug, Default, PartialEq)]
struct SegmentArrays {
    /// Local row indices, segment by segment.
    order: Vec<u16>,
    /// First segment of each block, and the end.
    first: Vec<u32>,
    /// Start of each segment in `order`, and the end.
    starts: Vec<u32>,
    /// Position of each segment among all segments, sorted by aggregate.
    slots: Vec<u32>,
    /// First position of each aggregate, and the end.
    aggregates: Vec<u32>,
}

impl SegmentArrays {
    /// Sorts the rows of each block. `rows` has the first row of each block, and the end; a block has fewer
    /// than 2¹⁶ rows, because `BlockArrays` limits its window, which contains them.
    fn new(rows: &[u32], of_row: &[u32], aggregates: usize) -> SegmentArrays {
        let sorted: Vec<Vec<(u32, u16)>> = rows
            .par_windows(2)
            .map(|block| {
                let own = of_row[block[0] as usize..block[1] as usize].iter().zip(0u16..);
                let mut own: Vec<(u32, u16)> =
                    own.map(|(&of, row)| (of, row)).filter(|&(of, _)| of != NONE).collect();
                own.sort_unstable();
                own
            })
            .collect();
        let mut arrays = SegmentArrays { first: vec![0], starts: vec![0], ..SegmentArrays::default() };
        let (mut of_segment, mut counts) = (vec![], vec![0; aggregates + 1]);
        for own in &sorted {
            for segment in own.chunk_by(|a, b| a.0 == b.0) {
                arrays.order.extend(segment.iter().map(|&(_, row)| row));
                arrays.starts.push(arrays.order.len() as u32);
                of_segment.push(segment[0].0 as usize);
                counts[segment[0].0 as usize + 1] += 1;
            }
            arrays.first.push(of_segment.len() as u32);
        }
        for aggregate in 0..aggregates {
            counts[aggregate + 1] += counts[aggregate];
        }
        arrays.aggregates = counts.clone();
        for aggregate in of_segment {
            arrays.slots.push(counts[aggregate]);
            counts[aggregate] += 1;
        }
        arrays
    }
}

/// The layout on the device, for one coarse space.
#[derive(Debug)]
pub(crate) struct Segments<T: Real> {
    /// Token of the coarse space.
    identity: Arc<()>,
    /// Maximum number of segments of a block.
    most_segments: usize,
    /// True if the numbers of partial sums and of aggregates are small enough for the kernel.
    suits: bool,
    order: Array<u16>,
    first: Array<u32>,
    starts: Array<u32>,
    slots: Array<u32>,
    aggregates: Array<u32>,
    /// Partial sums of `Zᵀ v`, one per segment and mode.
    sums: Array<T>,
    /// `E c`
    e: Array<T>,
}

/// `Correction` as passed to the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCorrection {
    order: u64,
    segment_first: u64,
    segments: u64,
    slots: u64,
    aggregates: u64,
    of_row: u64,
    weights: u64,
    dense: u64,
    sums: u64,
    e: u64,
    n: u32,
    modes: u32,
    unknowns: u32,
    stride: u32,
    numbers: u32,
}
// SAFETY: has the layout of `Correction` in resident.cu
unsafe impl DeviceRepr for RawCorrection {}

/// Layout check of [`RawCorrection`] against the kernel.
pub(crate) const MIRROR: Mirror = mirror!(
    "Correction" = RawCorrection {
        order,
        segment_first,
        segments,
        slots,
        aggregates,
        of_row,
        weights,
        dense,
        sums,
        e,
        n,
        modes,
        unknowns,
        stride,
        numbers
    }
);

impl<T: Real> Segments<T> {
    /// Lays out the correction for blocks whose first rows are `rows`.
    pub(crate) fn new(device: &Device, rows: &[u32], coarse: &Coarse<T>) -> Result<Self> {
        let mut of_row = vec![0; coarse.of_row.len()];
        coarse.of_row.read(&mut of_row)?;
        let arrays = SegmentArrays::new(rows, &of_row, coarse.count());
        let sums = arrays.slots.len() * coarse.modes;
        let most_segments = arrays.first.windows(2).map(|block| (block[1] - block[0]) as usize).max();
        Ok(Segments {
            identity: coarse.identity.clone(),
            most_segments: most_segments.unwrap_or(0),
            suits: sums <= MOST_RESIDENT_SUMS.max(2 * coarse.unknowns())
                && coarse.count() < usize::from(u16::MAX),
            order: device.upload(&arrays.order)?,
            first: device.upload(&arrays.first)?,
            starts: device.upload(&arrays.starts)?,
            slots: device.upload(&arrays.slots)?,
            aggregates: device.upload(&arrays.aggregates)?,
            sums: device.zeros(sums)?,
            e: device.zeros(coarse.unknowns())?,
        })
    }

    /// Returns whether the layout was made for this coarse space.
    pub(crate) fn is_of(&self, coarse: &Coarse<T>) -> bool {
        Arc::ptr_eq(&self.identity, &coarse.identity)
    }

    /// Shared memory of a block, in elements of `T`, for `own` rows and `window` entries of `x` that the block
    /// reads (own rows and halo). Holds `c = Zᵀ r` and `e = E c`, the weights of the window, start and slot of
    /// each segment, the first slot of each aggregate, the order of the rows, and the aggregate of each entry
    /// of the window.
    fn shared_numbers(&self, coarse: &Coarse<T>, [own, window]: [usize; 2]) -> usize {
        let words = 2 * self.most_segments + coarse.count() + 2 + (own + window).div_ceil(2);
        let weights = if coarse.weights.is_some() { window * coarse.modes } else { 0 };
        let numbers = 2 * coarse.stride() + weights.next_multiple_of(4);
        numbers + (words * size_of::<u32>()).next_multiple_of(16) / size_of::<T>()
    }

    /// Kernel arguments, and the bytes of shared memory that they need; `sizes` are the largest number of
    /// rows and the largest window of a block. `None` if the coarse space does not suit the kernel.
    pub(crate) fn raw(&self, coarse: &Coarse<T>, sizes: [usize; 2]) -> Option<(RawCorrection, usize)> {
        let numbers = self.shared_numbers(coarse, sizes);
        let raw = RawCorrection {
            order: self.order.address(0),
            segment_first: self.first.address(0),
            segments: self.starts.address(0),
            slots: self.slots.address(0),
            aggregates: self.aggregates.address(0),
            of_row: coarse.of_row.address(0),
            weights: coarse.weights.as_ref().map_or(0, |weights| weights.address(0)),
            dense: coarse.dense.address(0),
            sums: self.sums.address(0),
            e: self.e.address(0),
            n: coarse.of_row.len() as u32,
            modes: coarse.modes as u32,
            unknowns: coarse.unknowns() as u32,
            stride: coarse.stride() as u32,
            numbers: numbers as u32,
        };
        self.suits.then_some((raw, numbers * size_of::<T>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_an_aggregate_is_in_one_segment() {
        let of_row = [2, 0, 2, NONE, 0, 0, 1, 2, NONE];
        let arrays = SegmentArrays::new(&[0, 4, 4, 9], &of_row, 4);
        let expected = SegmentArrays {
            order: vec![1, 0, 2, 0, 1, 2, 3],
            first: vec![0, 2, 2, 5],
            starts: vec![0, 1, 3, 5, 6, 7],
            slots: vec![0, 3, 1, 2, 4],
            aggregates: vec![0, 2, 3, 5, 5],
        };
        assert_eq!(arrays, expected);
    }
}
