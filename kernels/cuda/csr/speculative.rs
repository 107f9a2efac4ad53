//! CSR products on a device by speculative segmented sums. The pattern needs no preprocessing. speculative.cu
//! describes the algorithm and the memory traffic.

use crate::cuda::csr::bunches::{RawUnfinished, SOURCE, Speculation};
use crate::cuda::csr::by_entries::Strategic;
use crate::cuda::csr::scratch::{Addresses, Scratch, next_number};
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::prelude::THREADS;
use crate::cuda::device::{Array, Real, Storage, lock};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::tuning::VECTOR_BLOCKS;
use cudarc::driver::CudaFunction;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A CSR matrix, multiplied by speculative segmented sums.
#[derive(Debug)]
pub struct Speculative<T: Real, V: Storage<T> = T> {
    matrix: Speculation<V>,
    scratch: Arc<Scratch>,
    /// Id of this matrix, unique in the process.
    number: u64,
    /// Set once a product has reported that no tile is dirty. A tile is dirty if it has empty rows, so that
    /// the second stage must move its sums; dirty tiles depend on the pattern only, so the second stage is
    /// then never launched.
    is_clean: AtomicBool,
    finish: CudaFunction,
    vectors: PhantomData<T>,
}

impl<T: Real, V: Storage<T>> Speculative<T, V> {
    /// Wraps a matrix on the device; `pattern` must be its pattern, of which only the shape is used.
    pub(crate) fn of(ordered: DeviceCsr<V>, pattern: Pattern<'_>) -> Result<Self> {
        let device = &ordered.device().clone();
        let matrix = Speculation::of(ordered, pattern.shape(), "speculative")?;
        let scratch = Scratch::on::<T>(device, matrix.bunches.count(), matrix.bunches.most_ranges())?;
        let finish = device.function_storing::<T, V>(&SOURCE, "speculative_finish")?;
        let (number, is_clean) = (next_number(), AtomicBool::new(false));
        Ok(Speculative { matrix, scratch, number, is_clean, finish, vectors: PhantomData })
    }

    /// Returns whether it is known that no tile is dirty. Does not wait for a report.
    fn is_clean(&self) -> bool {
        if !self.is_clean.load(Relaxed) && self.scratch.leaves_ranges(self.number) == Some(false) {
            self.is_clean.store(true, Relaxed);
        }
        self.is_clean.load(Relaxed)
    }
}

/// A product of a matrix whose values are stored in the order of the pattern.
impl<T: Real, V: Storage<T>> Strategic<T> for Speculative<T, V> {
    type Value = V;

    fn shape(&self) -> Shape {
        self.matrix.bunches.shape
    }

    fn ordered(&self) -> &DeviceCsr<V> {
        &self.matrix.ordered
    }

    fn ordered_mut(&mut self) -> &mut DeviceCsr<V> {
        &mut self.matrix.ordered
    }

    fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        if y.is_empty() {
            return Ok(());
        }
        let (to, device) = (y.address(0), y.device());
        // one warp per tile, limited to the warps that are resident at the same time
        let concurrent = VECTOR_BLOCKS * device.multiprocessors() * THREADS as usize;
        let Addresses { parts, counts, ranges, report } = self.scratch.addresses::<T>(self.number);
        let left =
            RawUnfinished { parts, counts, ranges, report, number: self.number, ..RawUnfinished::default() };
        let raw = self.matrix.raw(left);
        let _queueing = lock(&self.scratch.queueing);
        self.matrix.queue(x, to, left)?;
        if self.is_clean() {
            return Ok(());
        }
        let mut launch = device.launch(&self.finish);
        launch.arg(&raw).arg(&to);
        // SAFETY: arguments as in speculative.cu; the first stage recorded rows of `y` only
        unsafe { launch.launch(config((self.matrix.bunches.tiles * WARP).min(concurrent))) }?;
        Ok(())
    }
}
