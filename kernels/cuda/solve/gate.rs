//! Gates and endings of steps (iterations): conditions that kernels check before they change a vector, and
//! numbers that are written when a step ends.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::module::{Source, constants, is_compiled, mirror};
use crate::cuda::device::prelude::{FINITE, NONZERO, POSITIVE, RawGate, RawNumber, RawWatch, WATCHES};
use crate::cuda::device::{Device, Real, lock};
use crate::cuda::solve::number::{Cell, Number};
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "step.cu",
    text: include_str!("step.cu"),
    constants: constants![NUMBERS, ASSIGNMENTS],
    mirrors: &[
        mirror!("Ending" = RawEnding<f32> | RawEnding<f64> { gate, assignments, numbers, has_residual, coefficients, first, second, ring, width, entries, number, home }),
    ],
};

/// Returns whether the kernels that every solve needs are in the disk cache, for at least one architecture of
/// GPUs. If they are, the other kernels of a solve most likely are, too.
pub fn has_compiled<T: Real>() -> bool {
    is_compiled::<T, T>(&SOURCE)
}

#[derive(Debug)]
pub(crate) struct Kernels<T> {
    add: CudaFunction,
    end_step: CudaFunction,
    pub(crate) begin_steps: CudaFunction,
    element: PhantomData<fn() -> T>,
}

impl<T: Real> Kernels<T> {
    /// The kernels of a device, loaded at first use.
    pub(crate) fn of(device: &Device) -> Result<&Self> {
        at_first_use(device.kept::<OnceLock<Kernels<T>>>(), || Kernels::new(device))
    }

    fn new(device: &Device) -> Result<Self> {
        let function = |name| device.function::<T>(&SOURCE, name);
        Ok(Kernels {
            add: function("add")?,
            end_step: function("end_step")?,
            begin_steps: function("begin_steps")?,
            element: PhantomData,
        })
    }
}

/// Condition on a watched number; a number that is not finite fails every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Condition {
    /// Neither infinite nor NaN.
    Finite = FINITE,
    /// Finite and not zero.
    NonZero = NONZERO,
    /// Finite and above zero.
    Positive = POSITIVE,
}

/// State of the step that is being queued: what its next kernels must check and write.
#[derive(Debug)]
pub(crate) struct Step<T> {
    /// Address of the gate's state within a step; zero outside.
    pub(crate) control: u64,
    pub(crate) watches: Vec<(Number<T>, Condition, u32)>,
    assignments: Vec<(Arc<Cell>, Number<T>)>,
    /// One plus the number of times that pending assignments were settled, that is, queued to be written to
    /// their homes (the cells of assigned scalars).
    epoch: u64,
}

/// The step that is being queued on a device.
pub(crate) fn step<T: Real>(device: &Device) -> MutexGuard<'_, Step<T>> {
    lock(device.kept::<Mutex<Step<T>>>())
}

impl<T> Default for Step<T> {
    fn default() -> Self {
        Step { control: 0, watches: Vec::new(), assignments: Vec::new(), epoch: 1 }
    }
}

impl<T> Step<T> {
    /// Returns whether the value assigned in epoch `assigned` has been settled: kernels queued from now on
    /// find it in its home.
    pub(crate) fn settled(&self, assigned: u64) -> bool {
        assigned < self.epoch
    }

    pub(crate) fn assign(&mut self, home: Arc<Cell>, number: Number<T>) -> u64 {
        self.assignments.retain(|(other, _)| other.address != home.address);
        self.assignments.push((home, number));
        self.epoch
    }
}

/// Maximum number of assignments at the end of a step.
const ASSIGNMENTS: usize = 6;
/// Maximum number of scalars that the end of a step reports to the host.
pub(crate) const NUMBERS: usize = 3;

impl<T: Real> RawGate<T> {
    pub(crate) fn open(control: u64) -> Self {
        let nothing = RawWatch { number: RawNumber::constant(T::one()), condition: 0, id: 0 };
        RawGate { control, watches: 0, watch: [nothing; WATCHES] }
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawEnding<T> {
    pub(crate) gate: RawGate<T>,
    pub(crate) assignments: u32,
    pub(crate) numbers: u32,
    pub(crate) has_residual: u32,
    pub(crate) coefficients: u32,
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) ring: u64,
    pub(crate) width: u32,
    pub(crate) entries: u32,
    /// Numbers that are reported, followed by numbers that are assigned.
    pub(crate) number: [RawNumber<T>; NUMBERS + ASSIGNMENTS],
    pub(crate) home: [u64; ASSIGNMENTS],
}
// SAFETY: has the layout of `Ending` in step.cu
unsafe impl<T: Real> DeviceRepr for RawEnding<T> {}

/// The gate for the next launch that changes a vector; takes over the pending watches.
pub(crate) fn gate<T: Real>(device: &Device) -> Result<RawGate<T>> {
    let mut step = step::<T>(device);
    let mut gate = RawGate::open(step.control);
    if step.control == 0 {
        return Ok(gate);
    }
    if step.watches.len() > WATCHES {
        return Err(Error::TooLarge {
            what: "the number of watches",
            got: step.watches.len(),
            limit: WATCHES,
        });
    }
    for (raw, (number, condition, id)) in gate.watch.iter_mut().zip(step.watches.drain(..)) {
        *raw = RawWatch { number: number.raw(), condition: condition as u32, id };
        gate.watches += 1;
    }
    Ok(gate)
}

/// Queues the end of a step, or settles assignments made outside of one.
pub(crate) fn end<T: Real>(
    device: &Device,
    ending: RawEnding<T>,
    of: &[(Arc<Cell>, Number<T>)],
) -> Result<()> {
    launch_end(device, ending, of.iter().map(|(home, number)| (home.address, number)))
}

/// Queues writes of numbers to addresses that the device can access.
pub(crate) fn deliver<'n, T: Real>(
    device: &Device,
    of: impl ExactSizeIterator<Item = (u64, &'n Number<T>)>,
) -> Result<()> {
    launch_end(device, RawEnding::nothing(), of)
}

fn launch_end<'n, T: Real>(
    device: &Device,
    mut ending: RawEnding<T>,
    of: impl ExactSizeIterator<Item = (u64, &'n Number<T>)>,
) -> Result<()> {
    if of.len() > ASSIGNMENTS {
        return Err(Error::TooLarge { what: "the number of assignments", got: of.len(), limit: ASSIGNMENTS });
    }
    ending.assignments = of.len() as u32;
    let raw = ending.home.iter_mut().zip(&mut ending.number[NUMBERS..]);
    for ((raw_home, raw_number), (home, number)) in raw.zip(of) {
        (*raw_home, *raw_number) = (home, number.raw());
    }
    let one_warp = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    let mut launch = device.launch(&Kernels::<T>::of(device)?.end_step);
    launch.arg(&ending);
    // SAFETY: arguments as in step.cu; the addresses are those of cells, arrays and rings that live
    unsafe { launch.launch(one_warp) }?;
    Ok(())
}

impl<T: Real> RawEnding<T> {
    pub(crate) fn nothing() -> Self {
        let number = RawNumber::constant(T::zero());
        RawEnding {
            gate: RawGate::open(0),
            assignments: 0,
            numbers: 0,
            has_residual: 0,
            coefficients: 0,
            first: 0,
            second: 0,
            ring: 0,
            width: 0,
            entries: 1,
            number: [number; NUMBERS + ASSIGNMENTS],
            home: [0; ASSIGNMENTS],
        }
    }
}

/// Queues writes of numbers to cells.
pub(crate) fn settle<T: Real>(device: &Device, numbers: &[(Arc<Cell>, Number<T>)]) -> Result<()> {
    end(device, RawEnding::nothing(), numbers)
}

/// Queues a write of the sum of two numbers, or its square root, to a cell.
pub(crate) fn add<T: Real>(device: &Device, of: [&Number<T>; 2], root: bool, into: &Cell) -> Result<()> {
    let ([a, b], root) = (of.map(Number::raw), u32::from(root));
    let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    let mut launch = device.launch(&Kernels::<T>::of(device)?.add);
    launch.arg(&a).arg(&b).arg(&root).arg(&into.address);
    // SAFETY: arguments as in step.cu; the addresses are those of cells that live
    unsafe { launch.launch(one) }?;
    Ok(())
}

/// Settles all pending assignments.
pub(crate) fn settle_assigned<T: Real>(device: &Device) -> Result<()> {
    let assigned = take_assigned::<T>(device);
    if assigned.is_empty() {
        return Ok(());
    }
    if assigned.len() <= ASSIGNMENTS {
        return settle(device, &assigned);
    }
    // too many for one launch: evaluate all into new cells before the first home is written, because other
    // numbers may read it
    let (mut values, mut homes) = (Vec::new(), Vec::new());
    for (home, number) in assigned {
        let cell = device.cells::<T>()?.take(device)?;
        homes.push((home, Number::cell(cell.clone())));
        values.push((cell, number));
    }
    values.chunks(ASSIGNMENTS).chain(homes.chunks(ASSIGNMENTS)).try_for_each(|some| settle(device, some))
}

/// Takes all pending assignments; the caller settles them.
pub(crate) fn take_assigned<T: Real>(device: &Device) -> Vec<(Arc<Cell>, Number<T>)> {
    let mut step = step::<T>(device);
    step.epoch += 1;
    std::mem::take(&mut step.assignments)
}
