//! Quantiles of row lengths by histograms on the device: rows are not sorted, and offsets are read only a few
//! times.

use crate::cuda::device::error::Result;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Device};
use crate::cuda::matrix::device_csr::RowStarts;
use crate::cuda::tuning::VECTOR_BLOCKS;
use cudarc::driver::LaunchConfig;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "lengths.cu",
    text: include_str!("lengths.cu"),
    constants: constants![BINS],
    mirrors: &[],
};

/// Number of bins of a histogram without the overflow bin.
const BINS: usize = 2048;

/// The smallest length that more than `rows` rows do not exceed; the length of the longest row if there is no
/// such length.
pub(crate) fn quantile(device: &Device, offsets: &RowStarts, rows: f64) -> Result<usize> {
    let count = device.function::<f32>(&SOURCE, "count_lengths")?;
    let raw = offsets.raw();
    let blocks =
        offsets.count().div_ceil(THREADS as usize).clamp(1, VECTOR_BLOCKS * device.multiprocessors());
    let config =
        LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    let histogram = |low: usize, shift: u32| {
        let bins: Array<u32> = device.zeros(BINS + 1)?;
        let (low, to) = (low as i64, bins.address(0));
        let mut launch = device.launch(&count);
        launch.arg(&raw).arg(&low).arg(&shift).arg(&to);
        // SAFETY: arguments as in lengths.cu; there is a counter for each bin and the overflow bin
        unsafe { launch.launch(config) }?;
        let mut counts = vec![0; BINS + 1];
        bins.read(&mut counts)?;
        Ok(counts)
    };
    search(offsets.count(), rows, histogram)
}

/// Searches in histograms: `histogram(low, shift)` has bins of `2^shift` lengths from `low` on, and an
/// overflow bin.
fn search(count: usize, rows: f64, histogram: impl Fn(usize, u32) -> Result<Vec<u32>>) -> Result<usize> {
    // limit `rows` to less than the number of rows, so that the length of the longest row always qualifies
    let rows = rows.min(count as f64 - 0.5);
    let (mut low, mut shift, mut passed) = (0, 0, 0u64);
    if count == 0 {
        return Ok(0);
    }
    loop {
        let counts = histogram(low, shift)?;
        let mut bin = 0;
        while bin < BINS && (passed + u64::from(counts[bin])) as f64 <= rows {
            passed += u64::from(counts[bin]);
            bin += 1;
        }
        low += bin << shift;
        match (bin < BINS, shift) {
            (true, 0) => return Ok(low),
            // narrow the bins
            (true, _) => shift = shift.saturating_sub(BINS.ilog2()),
            // widen the bins
            (false, _) => shift += BINS.ilog2(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_sorted_lengths() {
        let hashed = |i: usize| (i * 7919 + 13) % 1009;
        let distributions: [Vec<usize>; 7] = [
            vec![],
            vec![0; 5],
            vec![7],
            (0..500).map(hashed).collect(),
            (0..500).map(|i| hashed(i) * 5).collect(),
            (0..500).map(|i| if i % 50 == 0 { 10_000_000 + i } else { 3 }).collect(),
            (0..60).map(|i| (1usize << (i % 35)) + i).collect(),
        ];
        for lengths in distributions {
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let histogram = |low: usize, shift: u32| {
                let mut counts = vec![0; BINS + 1];
                for length in lengths.iter().filter(|&&length| length >= low) {
                    counts[((length - low) >> shift).min(BINS)] += 1;
                }
                Ok(counts)
            };
            for rows in (0..=lengths.len()).map(|rows| rows as f64).chain([-1.0, 0.3, f64::INFINITY]) {
                let expected = match sorted.get(rows.max(-0.5) as usize) {
                    _ if rows < 0.0 => 0,
                    Some(&length) => length,
                    None => sorted.last().copied().unwrap_or(0),
                };
                assert_eq!(search(lengths.len(), rows, histogram).unwrap(), expected, "{rows} {lengths:?}");
            }
        }
    }
}
