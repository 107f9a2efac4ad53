//! The GPU of a bench: a stream that this library and the compared ones share, and times by the clock of the
//! GPU.

use super::cuda_peers;
use super::{Result, median};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaSlice, CudaStream};
use krysp::Cuda;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the array that is copied to measure the bandwidth.
const COPIED: usize = 1 << 30;

/// Bytes of the array that is copied to flush the caches, and to let the host run ahead of the device.
const BALLAST: usize = 128 << 20;

/// Number of times that are measured; their median is the result.
const SAMPLES: usize = 41;

/// Approximate milliseconds of a batch: several products that are timed together.
const BATCH: f64 = 0.3;

/// The number of products in a batch.
const BATCHED: std::ops::RangeInclusive<usize> = 3..=60;

/// A product that takes longer than this many milliseconds is timed without a batch.
const LONG: f64 = 1.0;

pub struct Gpu {
    from: CudaSlice<u8>,
    to: CudaSlice<u8>,
    /// The stream of `cuda`.
    pub stream: Arc<CudaStream>,
    /// The last field, dropped last, because it owns the stream.
    pub cuda: Cuda,
}

impl Gpu {
    /// The first GPU. Reports if there is none.
    pub fn first() -> Result<Option<Gpu>> {
        if Cuda::devices().is_empty() {
            println!("skipped: no CUDA device on this machine");
            return Ok(None);
        }
        let cuda = Cuda::new(0)?;
        let stream = cuda_peers::stream(&cuda)?;
        let (from, to) = (stream.alloc_zeros(COPIED)?, stream.alloc_zeros(COPIED)?);
        Ok(Some(Gpu { from, to, stream, cuda }))
    }

    /// The name of the GPU, for a CSV file.
    pub fn name(&self) -> String {
        self.cuda.name().replace(',', " ")
    }

    /// The name of the GPU as a folder of `benches/record`: `h200` for `NVIDIA H200`.
    pub fn machine(&self) -> String {
        let words = self.cuda.name().split_whitespace().filter(|&word| word != "NVIDIA");
        words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
    }

    /// Milliseconds that the device takes for what `work` queues.
    fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let begin = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        work()?;
        let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        let ms = begin.elapsed_ms(&end)?;
        // returns errors of the queued work
        self.cuda.synchronize()?;
        Ok(ms.into())
    }

    fn copy(&mut self, bytes: usize) -> Result<()> {
        Ok(self.stream.memcpy_dtod(&self.from.slice(..bytes), &mut self.to.slice_mut(..bytes))?)
    }

    fn copy_time(&mut self, bytes: usize) -> Result<f64> {
        let mut times = vec![];
        for _ in 0..SAMPLES {
            self.copy(bytes)?;
            let begin = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
            self.copy(bytes)?;
            let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
            times.push(begin.elapsed_ms(&end)?.into());
        }
        Ok(median(&mut times))
    }

    /// The bytes that a copy reads and writes in a millisecond.
    pub fn bandwidth(&mut self) -> Result<f64> {
        Ok(2.0 * COPIED as f64 / self.copy_time(COPIED)?)
    }

    /// Milliseconds of one call of `work` among many, back to back: the median over batches. Two calls before each
    /// batch bring the caches into their steady state. A batch is queued behind copies that last until the host has
    /// queued everything. Work longer than [`LONG`] is timed one call at a time, without copies and calls before it.
    pub fn warm(&mut self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        work()?;
        let once = self.time(work)?.min(self.time(work)?);
        let batch = if once > LONG { 1 } else { (BATCH / once).ceil() as usize };
        let batch = if once > LONG { batch } else { batch.clamp(*BATCHED.start(), *BATCHED.end()) };
        let before = if once > LONG { 0 } else { 2 };
        let head_start = self.copy_time(BALLAST)?;
        let started = Instant::now();
        for _ in 0..batch + before {
            work()?;
        }
        let queueing = started.elapsed().as_secs_f64() * 1e3;
        self.cuda.synchronize()?;
        let copies = if once > LONG { 0 } else { (1.5 * queueing / head_start).ceil() as usize + 1 };
        let mut times = vec![];
        for _ in 0..SAMPLES {
            for _ in 0..copies {
                self.copy(BALLAST)?;
            }
            for _ in 0..before {
                work()?;
            }
            let ms = self.time(&mut || (0..batch).try_for_each(|_| work()))?;
            times.push(ms / batch as f64);
        }
        Ok(median(&mut times))
    }

    /// Milliseconds of one call of `work` with cold caches.
    pub fn cold(&mut self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let mut times = vec![];
        for _ in 0..SAMPLES {
            self.copy(BALLAST)?;
            self.copy(BALLAST)?;
            times.push(self.time(work)?);
        }
        Ok(median(&mut times))
    }
}
