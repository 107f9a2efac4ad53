//! Rows sorted by class on a device, for kernels that each process the rows of one class.

use crate::cuda::device::Array;
use crate::cuda::device::error::Result;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::THREADS;
use cudarc::driver::LaunchConfig;
use std::ops::Range;
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "classes.cu",
    text: include_str!("classes.cu"),
    constants: constants![CLASSES],
    mirrors: &[],
};

/// Maximum number of classes.
const CLASSES: usize = 32;

/// Maximum number of blocks that sort rows; each block reads the counts of all blocks. Guess.
const MOST_BLOCKS: usize = 256;
/// Minimum number of rows per block. Guess.
const LEAST_SHARE: usize = 1024;

/// A list of rows on a device: a range of an array.
#[derive(Debug)]
pub(crate) struct List {
    rows: Arc<Array<u32>>,
    range: Range<usize>,
}

impl List {
    /// A list of all elements of an array.
    pub(crate) fn all(rows: Array<u32>) -> List {
        let range = 0..rows.len();
        List { rows: Arc::new(rows), range }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Device address of the first row.
    pub(crate) fn address(&self) -> u64 {
        self.rows.address(self.range.start)
    }

    /// Copies the rows to the host, after all work queued before.
    pub(crate) fn read(&self) -> Result<Vec<u32>> {
        let (device, mut rows) = (self.rows.device(), vec![0; self.len()]);
        if !rows.is_empty() {
            device.inner.stream.memcpy_dtoh(&self.rows.slice.slice(self.range.clone()), &mut rows)?;
            device.synchronize()?;
        }
        Ok(rows)
    }
}

/// The rows of each of the first `N` classes, in ascending order. `classes` has the class of each row, below
/// 32.
pub(crate) fn sorted<const N: usize>(classes: &Array<u8>) -> Result<[List; N]> {
    assert!(N <= CLASSES, "classes that there are");
    let (device, rows) = (classes.device(), classes.len());
    let share = rows.div_ceil(MOST_BLOCKS).next_multiple_of(LEAST_SHARE).max(LEAST_SHARE);
    let blocks = rows.div_ceil(share).max(1);
    let [counts, starts, list] =
        [CLASSES * blocks, CLASSES + 1, rows].map(|len| device.uninitialized::<u32>(len));
    let (counts, starts, list) = (counts?, starts?, list?);
    let [count, place] = ["class_count", "class_place"].map(|name| device.function::<f32>(&SOURCE, name));
    let (count, place) = (count?, place?);
    let config =
        LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    let (from, number, share) = (classes.address(0), rows as u32, share as u32);
    let (counted, begins, to) = (counts.address(0), starts.address(0), list.address(0));
    let mut launch = device.launch(&count);
    launch.arg(&from).arg(&number).arg(&share).arg(&counted);
    // SAFETY: arguments as in classes.cu; there is a counter for each class and block
    unsafe { launch.launch(config) }?;
    let mut launch = device.launch(&place);
    launch.arg(&from).arg(&number).arg(&share).arg(&counted).arg(&begins).arg(&to);
    // SAFETY: as above; there is an element for each row
    unsafe { launch.launch(config) }?;
    let mut bounds = [0; CLASSES + 1];
    starts.read(&mut bounds)?;
    let list = Arc::new(list);
    let range = |class: usize| bounds[class] as usize..bounds[class + 1] as usize;
    Ok(std::array::from_fn(|class| List { rows: list.clone(), range: range(class) }))
}
