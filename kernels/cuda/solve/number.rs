//! Scalars that stay on the device. A reduction writes its result to a cell of device memory; products and
//! quotients of cells are evaluated by the kernel that uses them. Sums and roots are computed immediately, in
//! a new cell.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::prelude::{RawNumber, TERMS};
use crate::cuda::device::{Device, Inner, PinnedArray, Real, lock};
use crate::cuda::solve::gate;
use crate::cuda::solve::readback::ScalarReadback;
use cudarc::driver::{CudaSlice, DevicePtr};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Maximum number of cells in use on a device.
pub(crate) const CELLS: usize = 4096;

/// Pool of device memory for scalars.
#[derive(Debug)]
pub(crate) struct Cells<T: Real> {
    /// A slice without a handle to the device, because the device owns this pool.
    memory: CudaSlice<T>,
    free: Arc<Mutex<Free>>,
    /// Copy in pinned memory, to which the device writes directly; allocated at first use.
    copy: Mutex<Option<PinnedArray<T>>>,
}

#[derive(Debug)]
struct Free {
    cells: Vec<u32>,
    /// Cells freed while a step (iteration) is being recorded as a CUDA graph; `None` outside of recordings.
    /// They must not be reused while the recording exists, because every replay writes to them.
    kept: Option<Vec<u32>>,
}

/// A scalar's location in device memory; returns to the pool when dropped.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) address: u64,
    index: u32,
    free: Arc<Mutex<Free>>,
    device: Weak<Inner>,
}

impl Cell {
    fn device(&self) -> Result<Device> {
        let gone = || Error::Driver("the device of this scalar was dropped".into());
        Ok(Device { inner: self.device.upgrade().ok_or_else(gone)? })
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let mut free = lock(&self.free);
        match &mut free.kept {
            Some(kept) => kept.push(self.index),
            None => free.cells.push(self.index),
        }
    }
}

/// Cells that a recorded step writes to; they return to the pool when the recording is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    cells: Vec<u32>,
    free: Arc<Mutex<Free>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        lock(&self.free).cells.append(&mut self.cells);
    }
}

impl<T: Real> Cells<T> {
    pub(crate) fn new(device: &Device) -> Result<Cells<T>> {
        // cells freed last are reused first, so that a loop uses few cells
        let free = Free { cells: (0..CELLS as u32).rev().collect(), kept: None };
        let (memory, free) = (device.zeros(CELLS)?.into_slice(), Arc::new(Mutex::new(free)));
        Ok(Cells { memory, free, copy: Mutex::default() })
    }

    pub(crate) fn take(&self, device: &Device) -> Result<Arc<Cell>> {
        let index = lock(&self.free).cells.pop().ok_or(Error::TooLarge {
            what: "the number of scalars",
            got: CELLS + 1,
            limit: CELLS,
        })?;
        let start = self.memory.device_ptr(&device.inner.stream).0;
        Ok(Arc::new(Cell {
            address: start + u64::from(index) * size_of::<T>() as u64,
            index,
            free: self.free.clone(),
            device: Arc::downgrade(&device.inner),
        }))
    }

    /// Starts a recording: from now on, freed cells are held back.
    pub(crate) fn keep(&self) {
        lock(&self.free).kept = Some(Vec::new());
    }

    /// Ends [`Cells::keep`] and returns the cells freed since.
    pub(crate) fn kept(&self) -> Kept {
        let cells = lock(&self.free).kept.take().unwrap_or_default();
        Kept { cells, free: self.free.clone() }
    }

    /// Copies the first `count` cells, once all work queued before is done.
    fn read_first(&self, device: &Device, count: usize) -> Result<Vec<T>> {
        let mut copy = lock(&self.copy);
        let copy = match &mut *copy {
            Some(copy) => copy,
            none => none.insert(device.pinned(CELLS)?),
        };
        device.inner.stream.memcpy_dtoh(&self.memory.slice(..count), &mut copy.as_mut()[..count])?;
        device.synchronize()?;
        device.take_error().map_or_else(|| Ok(copy.as_ref()[..count].to_vec()), Err)
    }
}

/// `factor · Π above / Π below`, where both products are over cells.
#[derive(Clone, Debug)]
pub(crate) struct Number<T> {
    pub(crate) factor: T,
    above: Vec<Arc<Cell>>,
    below: Vec<Arc<Cell>>,
    zero_over_zero: bool,
}

impl<T: Real> RawNumber<T> {
    pub(crate) fn constant(factor: T) -> Self {
        RawNumber { factor, zero_over_zero: 0, above: [0; TERMS], below: [0; TERMS] }
    }
}

impl<T: Real> Number<T> {
    fn constant(factor: T) -> Self {
        Number { factor, above: Vec::new(), below: Vec::new(), zero_over_zero: false }
    }

    pub(crate) fn cell(cell: Arc<Cell>) -> Self {
        Number { above: vec![cell], ..Number::constant(T::one()) }
    }

    pub(crate) fn device(&self) -> Option<Result<Device>> {
        Some(self.above.first().or(self.below.first())?.device())
    }

    pub(crate) fn raw(&self) -> RawNumber<T> {
        let addresses = |cells: &[Arc<Cell>]| {
            let mut raw = [0; TERMS];
            raw.iter_mut().zip(cells).for_each(|(raw, cell)| *raw = cell.address);
            raw
        };
        RawNumber {
            factor: self.factor,
            zero_over_zero: self.zero_over_zero.into(),
            above: addresses(&self.above),
            below: addresses(&self.below),
        }
    }

    /// Evaluates the number into a new cell, and returns the number that consists of this cell alone.
    fn settled(self) -> Self {
        let Some(Ok(device)) = self.device() else { return self };
        let cell = device.cells::<T>().and_then(|cells| cells.take(&device));
        let settled = cell.and_then(|cell| {
            gate::settle(&device, &[(cell.clone(), self.clone())])?;
            Ok(Number::cell(cell))
        });
        settled.unwrap_or_else(|error| {
            device.store_error(Err(error));
            self
        })
    }

    /// The value, given the contents of the pool's first cells, at least up to those of this number.
    fn value(&self, all: &[T]) -> T {
        let mut value = self.factor;
        for i in 0..self.above.len().max(self.below.len()) {
            if let Some(cell) = self.above.get(i) {
                value *= all[cell.index as usize];
            }
            if let Some(cell) = self.below.get(i) {
                let below = all[cell.index as usize];
                let nothing = self.zero_over_zero && value == T::zero() && below == T::zero();
                value = if nothing { T::zero() } else { value / below };
            }
        }
        value
    }

    fn times(mut self, mut other: Self) -> Self {
        if self.above.len().max(self.below.len()) + other.above.len().max(other.below.len()) > TERMS {
            (self, other) = (self.settled(), other.settled());
        }
        self.factor *= other.factor;
        self.above.append(&mut other.above);
        self.below.append(&mut other.below);
        self.zero_over_zero |= other.zero_over_zero;
        self
    }

    fn over(self, mut other: Self) -> Self {
        if other.above.is_empty() && other.below.is_empty() {
            return Number { factor: self.factor / other.factor, ..self };
        }
        if other.factor.abs() != T::one() {
            // a factor of ±1 is its own reciprocal; others are evaluated first
            other = other.settled();
        }
        std::mem::swap(&mut other.above, &mut other.below);
        self.times(other)
    }
}

impl Device {
    /// The pool of cells, allocated at first use.
    pub(crate) fn cells<T: Real>(&self) -> Result<&Cells<T>> {
        at_first_use(self.kept::<OnceLock<Cells<T>>>(), || Cells::new(self))
    }
}

/// A number that a kernel computes, and that the host may read back.
///
/// Arithmetic is lazy. [`Scalar::assign`] stores the value at a fixed address, from which steps that are
/// replayed read it.
#[derive(Clone, Debug)]
pub struct Scalar<T> {
    number: Number<T>,
    home: Option<Arc<Cell>>,
    /// Epoch of the last assignment (see [`Step`](super::gate::Step)); in later epochs `home` holds the
    /// value.
    assigned: u64,
}

impl<T: Real> Scalar<T> {
    /// A constant.
    pub fn constant(factor: T) -> Self {
        Scalar { number: Number::constant(factor), home: None, assigned: 0 }
    }

    pub(crate) fn in_cell(cell: Arc<Cell>) -> Self {
        Scalar { number: Number::cell(cell), home: None, assigned: 0 }
    }

    fn of(number: Number<T>) -> Self {
        Scalar { number, home: None, assigned: 0 }
    }

    /// The address of `home`, if the value has been written there.
    pub(crate) fn home(&self) -> Option<u64> {
        let home = self.home.as_ref()?;
        let device = home.device().ok()?;
        gate::step::<T>(&device).settled(self.assigned).then_some(home.address)
    }

    /// The expression that the next kernels evaluate.
    pub(crate) fn number(&self) -> Number<T> {
        match &self.home {
            Some(home) if self.home().is_some() => Number::cell(home.clone()),
            _ => self.number.clone(),
        }
    }

    /// `−self`
    pub fn negated(&self) -> Self {
        let number = self.number();
        Scalar::of(Number { factor: -number.factor, ..number })
    }

    /// `self · other`
    pub fn times(&self, other: &Self) -> Self {
        Scalar::of(self.number().times(other.number()))
    }

    /// `self / other`
    pub fn over(&self, other: &Self) -> Self {
        Scalar::of(self.number().over(other.number()))
    }

    /// `self / other`, or zero if both are zero.
    pub fn quotient(&self, other: &Self) -> Self {
        Scalar::of(Number { zero_over_zero: true, ..self.number().over(other.number()) })
    }

    /// `self + other`
    pub fn plus(&self, other: &Self) -> Self {
        self.combined(other, false)
    }

    /// `√self`
    pub fn root(&self) -> Self {
        self.combined(&Scalar::constant(T::zero()), true)
    }

    /// Queues the computation of the sum or, if `root`, of its square root. NaN if queueing failed (the error
    /// is stored on the device).
    fn combined(&self, other: &Self, root: bool) -> Self {
        let (a, b) = (self.number(), other.number());
        let Some(device) = a.device().or_else(|| b.device()) else {
            let sum = a.factor + b.factor;
            return Scalar::constant(if root { sum.sqrt() } else { sum });
        };
        // if the device was dropped, the sum cannot be read
        let Ok(device) = device else { return Scalar::constant(T::nan()) };
        let queued = device.cells::<T>().and_then(|cells| {
            let cell = cells.take(&device)?;
            gate::add(&device, [&a, &b], root, &cell)?;
            Ok(Scalar::in_cell(cell))
        });
        queued.unwrap_or_else(|error| {
            device.store_error(Err(error));
            Scalar::constant(T::nan())
        })
    }

    /// Sets this scalar to the value of another, which is written to a fixed address when the step ends.
    pub fn assign(&mut self, value: &Self) {
        let number = value.number();
        let device = match (&self.home, number.device()) {
            (Some(home), _) => Some(home.device()),
            (None, device) => device,
        };
        let Some(device) = device else {
            // both are constants, which belong to no device
            self.number = number;
            return;
        };
        let assigned = device.and_then(|device| {
            let home = match &self.home {
                Some(home) => home.clone(),
                None => device.cells::<T>()?.take(&device)?,
            };
            let epoch = gate::step::<T>(&device).assign(home.clone(), number.clone());
            Ok((home, epoch))
        });
        match assigned {
            Ok((home, epoch)) => *self = Scalar { number, home: Some(home), assigned: epoch },
            // the device was dropped, so no kernel can read a home; keep the expression
            Err(_) => self.number = number,
        }
    }

    /// Reads the value back, after all work queued before. Polling pinned memory is faster than a copy.
    pub fn read(&self) -> Result<T> {
        Ok(ScalarReadback::new([self])?.read()?[0])
    }

    /// Reads back this and another scalar of the same device, with one wait.
    pub fn read_both(&self, other: &Self) -> Result<[T; 2]> {
        ScalarReadback::new([self, other])?.read()
    }

    /// Reads back scalars of one device, with one wait.
    pub fn read_all(scalars: &[&Self]) -> Result<Vec<T>> {
        let numbers: Vec<_> = scalars.iter().map(|scalar| scalar.number()).collect();
        let all = match numbers.iter().find_map(Number::device) {
            Some(device) => {
                let device = device?;
                let cells = numbers.iter().flat_map(|number| number.above.iter().chain(&number.below));
                let count = cells.map(|cell| cell.index as usize + 1).max().unwrap_or(0);
                device.cells::<T>()?.read_first(&device, count)?
            }
            None => vec![],
        };
        Ok(numbers.iter().map(|number| number.value(&all)).collect())
    }
}
