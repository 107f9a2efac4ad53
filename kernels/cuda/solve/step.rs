//! Steps (iterations) of a solve: the numbers that a step watches, reports and carries over to the next, and
//! the recording and replay of steps as CUDA graphs.
//!
//! The host queues a fixed number of steps ahead of the results it has seen. Each step ends by writing its
//! reported numbers to host memory. Once the residual meets the threshold, or a watched number fails, the
//! device stops changing vectors, so the solution is the iterate that was reported last.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::prelude::{CONTROL, FAILED, HEAD, LAST};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate::{
    self, Condition, Kernels, NUMBERS, RawEnding, end, gate, settle_assigned, take_assigned,
};
use crate::cuda::solve::number::{Kept, Number, Scalar};
use crate::cuda::solve::ring::Ring;
use cudarc::driver::{CudaGraph, CudaSlice, DevicePtr, LaunchConfig, sys};

/// A step recorded as a CUDA graph.
struct Recording {
    graph: CudaGraph,
    /// Cells that the graph writes to.
    _kept: Kept,
}

// SAFETY: a graph may be moved between threads, and is used through `&mut Steps` only
unsafe impl Send for Recording {}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    /// The step reported its numbers.
    Numbers {
        /// True if its residual ended the solve.
        last: bool,
    },
    /// A watched number failed, and the step ended before it changed the solution.
    Failed {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: f64,
    },
}

/// Queues and tracks the steps of one solve at a time.
pub struct Steps<T: Real> {
    device: Device,
    /// The gate's state, `Control` of prelude.cu.
    control: CudaSlice<u64>,
    ring: Ring,
    names: Vec<&'static str>,
    /// Number of steps queued, over all solves.
    queued: u64,
    /// Number of steps whose outcome was read, over all solves.
    known: u64,
    numbers: Vec<Number<T>>,
    has_residual: bool,
    /// Addresses of two arrays whose sum is reported, and their length; the second address may be null.
    coefficients: Option<(u64, u64, usize)>,
    places: Vec<Place>,
    /// Index, in the cycle that the method repeats, of the step that is being queued.
    making: usize,
    /// True if the step that is being queued is also recorded as a graph.
    recording: bool,
}

/// State of a place in the cycle of steps that a method repeats (such as the iterations of a restart cycle).
enum Place {
    New,
    /// The step was queued once without recording, so that all kernels are loaded and all memory is
    /// allocated.
    Warm,
    Recorded(Recording),
    /// Recording failed, so it is always queued call by call.
    Never,
}

impl<T: Real> std::fmt::Debug for Steps<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} steps queued, {} known, on {:?}", self.queued, self.known, self.device)
    }
}

impl<T: Real> Steps<T> {
    /// Steps on a device, each of which reports at most `numbers` numbers.
    pub fn new(device: &Device, numbers: usize) -> Result<Self> {
        Ok(Steps {
            device: device.clone(),
            control: device.zeros(CONTROL)?.into_slice(),
            ring: Ring::new(device, numbers)?,
            names: Vec::new(),
            queued: 0,
            known: 0,
            numbers: Vec::new(),
            has_residual: false,
            coefficients: None,
            places: Vec::new(),
            making: 0,
            recording: false,
        })
    }

    /// Starts a solve that ends when `‖r‖²` is at most this threshold, or not finite.
    pub fn begin(&mut self, threshold: f64) -> Result<()> {
        settle_assigned::<T>(&self.device)?;
        if self.known < self.queued {
            // wait for steps still in flight, and discard their outcomes
            self.device.synchronize()?;
            for step in self.known + 1..=self.queued {
                self.ring.clear(step);
            }
            self.known = self.queued;
        }
        let control = self.control();
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.device.launch(&Kernels::<T>::of(&self.device)?.begin_steps);
        launch.arg(&control).arg(&threshold).arg(&self.queued);
        // SAFETY: arguments as in step.cu; the control words live
        unsafe { launch.launch(one) }?;
        Ok(())
    }

    /// Drops all recordings; required if vectors were reallocated.
    pub fn discard_recordings(&mut self) {
        self.places.clear();
    }

    /// Kernel arguments for the ring: address, words per entry, number of entries.
    pub(crate) fn ring(&self) -> (u64, u32, u32) {
        (self.ring.address(), self.ring.width as u32, self.ring.entries as u32)
    }

    /// Maximum number of steps in one launch: half of the ring's entries, less those of steps in flight. The
    /// other half is reserved for abandoned steps, whose entries may still be written.
    pub(crate) fn free_entries(&self) -> usize {
        self.ring.entries / 2 - self.in_flight().min(self.ring.entries / 2)
    }

    /// Counts steps that a persistent kernel runs, which are not queued one by one through
    /// [`Steps::begin_step`].
    pub(crate) fn queued(&mut self, count: usize) {
        self.queued += count as u64;
    }

    /// Id with which the device reports that a watched number failed.
    pub(crate) fn name(&mut self, what: &'static str) -> u32 {
        let at = self.names.iter().position(|name| *name == what);
        let at = at.unwrap_or_else(|| {
            self.names.push(what);
            self.names.len() - 1
        });
        at as u32 + 1
    }

    pub(crate) fn control(&self) -> u64 {
        self.control.device_ptr(&self.device.inner.stream).0
    }

    /// Watches a number: if it fails the condition, the solve ends before another vector changes.
    pub fn watch(&mut self, what: &'static str, value: &Scalar<T>, must_be: Condition) {
        let name = self.name(what);
        // evaluate before locking the step, because `number` takes the same lock
        let number = value.number();
        gate::step::<T>(&self.device).watches.push((number, must_be, name));
    }

    /// Reports `‖r‖²` to the host, and ends the solve if it is at most the threshold, or not finite. Must
    /// precede other reported numbers.
    pub fn residual(&mut self, squared: &Scalar<T>) {
        self.has_residual = self.numbers.is_empty();
        self.record(squared);
    }

    /// Reports a number to the host.
    pub fn record(&mut self, value: &Scalar<T>) {
        self.numbers.push(value.number());
    }

    /// Reports the entries of an array or of the sum of two arrays to the host, after all other numbers.
    pub(crate) fn record_sums(&mut self, first: &Array<T>, second: Option<&Array<T>>, count: usize) {
        let count = count.min(first.len()).min(second.map_or(count, Array::len));
        self.coefficients = Some((first.address(0), second.map_or(0, |second| second.address(0)), count));
    }

    /// Begins the step with index `place` in the cycle of steps that the method repeats. Returns `false` if a
    /// recording of the step was replayed; if `true`, the caller queues the step's work and then calls
    /// [`Steps::end_step`]. `replays` promises that the step queues the same work every time. At most
    /// [`LAG`](crate::cuda::tuning::LAG) steps may be in flight.
    pub fn begin_step(&mut self, place: usize, replays: bool) -> Result<bool> {
        while self.places.len() <= place {
            self.places.push(Place::New);
        }
        self.making = place;
        match &self.places[place] {
            Place::Recorded(recording) => {
                recording.graph.launch()?;
                self.queued += 1;
                return Ok(false);
            }
            Place::Warm if replays => {
                let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
                let cells = self.device.cells::<T>()?;
                cells.keep();
                match self.device.inner.stream.begin_capture(mode) {
                    Ok(()) => self.recording = true,
                    Err(_) => {
                        drop(cells.kept());
                        self.places[place] = Place::Never;
                    }
                }
            }
            _ => {}
        }
        gate::step::<T>(&self.device).control = self.control();
        Ok(true)
    }

    /// Ends the step whose work was queued; `ok` is false if queueing failed. Returns `true` if recording
    /// failed and the caller must queue the work again.
    pub fn end_step(&mut self, ok: bool) -> Result<bool> {
        let ended = if ok { self.end() } else { Ok(()) };
        {
            let mut state = gate::step::<T>(&self.device);
            state.control = 0;
            state.watches.clear();
        }
        // do not report numbers of a failed step with the next one
        self.numbers.clear();
        (self.coefficients, self.has_residual) = (None, false);
        if !std::mem::take(&mut self.recording) {
            if let Place::New = self.places[self.making] {
                self.places[self.making] = Place::Warm;
            }
            ended?;
            self.queued += u64::from(ok);
            return Ok(false);
        }
        let graph = self.device.inner.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        let kept = self.device.cells::<T>()?.kept();
        match graph {
            Ok(Some(graph)) if ok && ended.is_ok() => {
                graph.launch()?;
                self.queued += 1;
                self.places[self.making] = Place::Recorded(Recording { graph, _kept: kept });
                Ok(false)
            }
            _ => {
                self.places[self.making] = Place::Never;
                // capturing failed, so the work was not queued
                Ok(ok && self.begin_step(self.making, false)?)
            }
        }
    }

    /// Number of steps queued whose outcome has not been read.
    pub fn in_flight(&self) -> usize {
        (self.queued - self.known) as usize
    }

    fn end(&mut self) -> Result<()> {
        let assigned = take_assigned::<T>(&self.device);
        let mut ending = RawEnding { gate: gate(&self.device)?, ..RawEnding::nothing() };
        let numbers = std::mem::take(&mut self.numbers);
        if numbers.len() > NUMBERS {
            let what = "the number of values that a step reports";
            return Err(Error::TooLarge { what, got: numbers.len(), limit: NUMBERS });
        }
        for (raw, number) in ending.number.iter_mut().zip(&numbers) {
            *raw = number.raw();
        }
        ending.numbers = numbers.len() as u32;
        ending.has_residual = std::mem::take(&mut self.has_residual).into();
        if let Some((first, second, count)) = self.coefficients.take() {
            (ending.first, ending.second, ending.coefficients) = (first, second, count as u32);
        }
        let words = HEAD + numbers.len() + ending.coefficients as usize;
        if words > self.ring.width {
            let what = "the number of words of a step's report";
            return Err(Error::TooLarge { what, got: words, limit: self.ring.width });
        }
        (ending.ring, ending.width, ending.entries) = self.ring();
        end(&self.device, ending, &assigned)
    }

    /// Waits for the outcome of the oldest step in flight, and returns it with the numbers it reported.
    /// `None` once the solve has ended.
    pub fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Option<Entry>> {
        if self.known == self.queued {
            return Ok(None);
        }
        let next = self.known + 1;
        let mut spins = 0u32;
        let (what, count) = loop {
            if let Some(entry) = self.ring.entry(next, numbers) {
                break entry;
            }
            spins += 1;
            if spins.is_multiple_of(4096) {
                // SAFETY: the stream lives
                match unsafe { sys::cuStreamQuery(self.device.inner.stream.cu_stream()) } {
                    sys::CUresult::CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                    sys::CUresult::CUDA_SUCCESS => match self.ring.entry(next, numbers) {
                        Some(entry) => break entry,
                        None => return self.device.take_error().map_or(Ok(None), Err),
                    },
                    failed => failed.result()?,
                }
            }
            std::hint::spin_loop();
        };
        self.ring.clear(next);
        self.known = next;
        if what == FAILED {
            let name = count.checked_sub(1).and_then(|at| self.names.get(at));
            let value = numbers.first().copied().unwrap_or(f64::NAN);
            return Ok(Some(Entry::Failed { what: name.copied().unwrap_or("a watched number"), value }));
        }
        Ok(Some(Entry::Numbers { last: what == LAST }))
    }
}
