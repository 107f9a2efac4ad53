//! Steps of a solve: what they watch, record and carry over, and how one that was recorded is replayed.
//!
//! The host runs a fixed number of steps ahead of what it knows. Each step ends by writing the numbers it recorded into
//! host memory; once the residual meets the threshold, or a watched number fails, the device stops changing vectors, so
//! that the solution is the iterate that was reported last.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::prelude::{CONTROL, FAILED, HEAD, LAST};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::gate::{
    self, Condition, Kernels, NUMBERS, RawEnding, end, gate, settle_assigned, take_assigned,
};
use crate::cuda::solve::number::{Kept, Number, Scalar};
use crate::cuda::solve::ring::Ring;
use cudarc::driver::{CudaGraph, CudaSlice, DevicePtr, LaunchConfig, sys};

/// A step that can be queued again as it was.
struct Recording {
    graph: CudaGraph,
    /// The cells that it writes to.
    _kept: Kept,
}

// SAFETY: a graph may be moved between threads, and is used through `&mut Steps` only
unsafe impl Send for Recording {}

/// What is known of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entry {
    /// It recorded its numbers.
    Numbers {
        /// Whether its residual ended the solve.
        last: bool,
    },
    /// A watched number failed, and the step ended before it changed the solution.
    Failed {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Runs steps of one solve at a time.
pub struct Steps<T: Real> {
    device: Device,
    /// The gate's state, `Control` of prelude.cu.
    control: CudaSlice<u64>,
    ring: Ring,
    names: Vec<&'static str>,
    /// Steps queued, and steps known, ever.
    queued: u64,
    known: u64,
    numbers: Vec<Number<T>>,
    has_residual: bool,
    /// Two arrays whose sums are recorded, and how many; the second may be null.
    coefficients: Option<(u64, u64, usize)>,
    places: Vec<Place>,
    /// The place of the step in the making, and whether it is being recorded.
    making: usize,
    recording: bool,
}

/// How far a place in a solve's cycle of steps has come.
enum Place {
    New,
    /// It was queued once, call by call: everything it needs exists.
    Warm,
    Recorded(Recording),
    /// It cannot be recorded.
    Never,
}

impl<T: Real> std::fmt::Debug for Steps<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} steps queued, {} known, on {:?}", self.queued, self.known, self.device)
    }
}

impl<T: Real> Steps<T> {
    /// Steps on a device, each of which records at most this number of numbers.
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

    /// Begins anew: steps end the solve at this `‖r‖²`.
    pub fn begin(&mut self, threshold: f64) -> Result<()> {
        settle_assigned::<T>(&self.device)?;
        if self.known < self.queued {
            // what is still on its way is waited for, and forgotten
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

    /// Forgets what was recorded: its vectors may be others now.
    pub fn forget(&mut self) {
        self.places.clear();
    }

    /// The ring as kernels see it: its address, the words of an entry, its entries.
    pub(crate) fn ring(&self) -> (u64, u32, u32) {
        (self.ring.address(), self.ring.width as u32, self.ring.entries as u32)
    }

    /// How many steps one launch may record now: half of the ring, so that as many entries stay for steps that were given up.
    pub(crate) fn free_entries(&self) -> usize {
        self.ring.entries / 2 - self.in_flight().min(self.ring.entries / 2)
    }

    /// Steps were queued by a launch of their own.
    pub(crate) fn queued(&mut self, count: usize) {
        self.queued += count as u64;
    }

    /// The number by which the device calls a watched number.
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

    /// Ends the solve before anything more is changed, if the number is not what it must be.
    pub fn watch(&mut self, what: &'static str, value: &Scalar<T>, must_be: Condition) {
        let name = self.name(what);
        // before the lock, which it takes as well
        let number = value.number();
        gate::step::<T>(&self.device).watches.push((number, must_be, name));
    }

    /// Tells the host `‖r‖²`, and ends the solve where it meets the threshold. Comes before any other number.
    pub fn residual(&mut self, squared: &Scalar<T>) {
        self.has_residual = self.numbers.is_empty();
        self.record(squared);
    }

    /// Tells the host a number.
    pub fn record(&mut self, value: &Scalar<T>) {
        self.numbers.push(value.number());
    }

    /// Tells the host the entries of an array, or of the sum of two, after all other numbers.
    pub(crate) fn record_sums(&mut self, first: &Array<T>, second: Option<&Array<T>>, count: usize) {
        let count = count.min(first.len()).min(second.map_or(count, Array::len));
        self.coefficients = Some((first.address(0), second.map_or(0, |second| second.address(0)), count));
    }

    /// Begins one more step, the one at a place of the solve's cycle. Either it is replayed, or the answer is `true`: the
    /// caller queues its work, and then calls [`Steps::end_step`]. A step that `replays` queues equal work every time. No more
    /// than [`LAG`](crate::cuda::tuning::LAG) may be unknown at a time.
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

    /// Ends the step whose work was queued; `ok` unless that failed. `true` if the caller has to queue it again, because it
    /// could not be recorded.
    pub fn end_step(&mut self, ok: bool) -> Result<bool> {
        let ended = if ok { self.end() } else { Ok(()) };
        {
            let mut state = gate::step::<T>(&self.device);
            state.control = 0;
            state.watches.clear();
        }
        // nothing of a step that failed is recorded with the next
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
                // what was not recorded was not queued either
                Ok(ok && self.begin_step(self.making, false)?)
            }
        }
    }

    /// Steps queued that are not known yet.
    pub fn in_flight(&self) -> usize {
        (self.queued - self.known) as usize
    }

    fn end(&mut self) -> Result<()> {
        let assigned = take_assigned::<T>(&self.device);
        let mut ending = RawEnding { gate: gate(&self.device)?, ..RawEnding::nothing() };
        let numbers = std::mem::take(&mut self.numbers);
        if numbers.len() > NUMBERS {
            return Err(Error::TooLarge { what: "numbers recorded", got: numbers.len(), limit: NUMBERS });
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
            return Err(Error::TooLarge { what: "an entry's words", got: words, limit: self.ring.width });
        }
        (ending.ring, ending.width, ending.entries) = self.ring();
        end(&self.device, ending, &assigned)
    }

    /// What became of the oldest step not yet known, and the numbers that it recorded; waits for it. `None` once the solve
    /// has ended.
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
                        None => return self.device.parked().map_or(Ok(None), Err),
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
