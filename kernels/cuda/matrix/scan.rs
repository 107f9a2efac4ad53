//! Exclusive prefix sums in place: starts of rows, slices or clusters from their lengths.

use crate::cuda::device::Array;
use crate::cuda::device::error::Result;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::THREADS;
use cudarc::driver::LaunchConfig;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "scan.cu",
    text: concat!(include_str!("sums.cu"), "#line 1 \"scan.cu\"\n", include_str!("scan.cu")),
    constants: constants![NUMBERS_OF_BLOCK],
    mirrors: &[],
};

/// Numbers per block. Guess.
const NUMBERS_OF_BLOCK: usize = 4096;

/// Up to this many numbers are scanned by one block, in one launch instead of three. Guess.
const NUMBERS_OF_ONE: usize = 2048;

/// Replaces each number by the sum of all numbers before it; the last element, whose value is not used,
/// becomes the total.
pub(crate) fn scan(numbers: &Array<u32>) -> Result<()> {
    let (device, count) = (numbers.device(), numbers.len() - 1);
    let parts = count.div_ceil(NUMBERS_OF_BLOCK).max(1);
    let blocks = |count: usize| LaunchConfig {
        grid_dim: (count as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    let sums = device.uninitialized::<u32>(parts + 1)?;
    let (from, to, count, count_of_sums) = (numbers.address(0), sums.address(0), count as u32, parts as u32);
    let [sum, scan_sums, scan] =
        ["sum_blocks", "scan_sums", "scan_blocks"].map(|name| device.function::<f32>(&SOURCE, name));
    let (sum, scan_sums, scan) = (sum?, scan_sums?, scan?);
    if count as usize <= NUMBERS_OF_ONE {
        let mut launch = device.launch(&scan_sums);
        launch.arg(&from).arg(&count);
        // SAFETY: arguments as in scan.cu; there is one more element for the total
        return unsafe { launch.launch(blocks(1)) };
    }
    let mut launch = device.launch(&sum);
    launch.arg(&from).arg(&count).arg(&to);
    // SAFETY: arguments as in scan.cu; there is a sum for each block
    unsafe { launch.launch(blocks(parts)) }?;
    let mut launch = device.launch(&scan_sums);
    launch.arg(&to).arg(&count_of_sums);
    // SAFETY: as above; there is one more sum, for the total
    unsafe { launch.launch(blocks(1)) }?;
    let mut launch = device.launch(&scan);
    launch.arg(&from).arg(&count).arg(&to);
    // SAFETY: as above; there is one more element for the total
    unsafe { launch.launch(blocks(parts)) }
}
