//! Algebraic multigrid on a device.

/// Queues a kernel of the file `SOURCE`, for matrices of `T`: `queue!(device, T, "name", config, argument…)`. The kernel gets each
/// [`Argument`] in its raw form.
macro_rules! queue {
    ($device:expr, $element:ty, $name:expr, $config:expr $(, $argument:expr)* $(,)?) => {{
        use $crate::cuda::multigrid::Argument as _;
        let device = $device;
        let function = device.function::<$element>(&SOURCE, $name)?;
        let mut launch = device.launch(&function);
        $(let argument = (&$argument).as_argument(); launch.arg(&argument);)*
        // SAFETY: every use is in the module of its kernel file: arguments match the kernel's signature, and
        // arrays are as long as the kernel reads and writes
        unsafe { launch.launch($config) }?;
    }};
}

mod aggregates;
pub mod coarsening;
pub mod cycle;
pub mod graph;
mod level;
pub mod numbers;
pub mod permutation;
pub mod products;
mod prolongation;
pub mod shared;
mod single_pass;
pub mod strength;

use crate::cuda::device::ahead::{File, For};
use crate::cuda::device::{Array, Device, Element, Real};
use crate::cuda::formats::{dia, sliced};
use crate::cuda::matrix::{scan, slices};
use crate::cuda::preconditioners::coarse;
use crate::cuda::solve::vector;
use cudarc::driver::DeviceRepr;

pub(crate) use aggregates::SOURCE as AGGREGATES;
pub(crate) use level::{MANY, SOURCE as CYCLE};
pub(crate) use numbers::SOURCE as NUMBERS;
pub(crate) use permutation::SOURCE as PERMUTATION;
pub(crate) use products::SOURCE as PRODUCTS;
pub(crate) use prolongation::SOURCE as PROLONGATION;
pub(crate) use shared::SOURCE as SHARED;
pub(crate) use single_pass::SOURCE as SINGLE_PASS;
pub(crate) use strength::SOURCE as STRENGTH;

/// An argument of a kernel: an array, of which it gets the address, or a value that it gets unchanged.
trait Argument {
    /// Type of the value that the kernel receives.
    type Raw: DeviceRepr;

    /// The raw form.
    fn as_argument(&self) -> Self::Raw;
}

impl<T: Element> Argument for Array<T> {
    type Raw = u64;

    fn as_argument(&self) -> u64 {
        self.address(0)
    }
}

impl Argument for graph::Graph {
    type Raw = graph::RawGraph;

    fn as_argument(&self) -> graph::RawGraph {
        self.raw()
    }
}

impl<R: DeviceRepr + Copy> Argument for R {
    type Raw = R;

    fn as_argument(&self) -> R {
        *self
    }
}

/// Files that setup and cycle need, the slowest to compile first.
const FILES: &[File] = &[
    (&PRODUCTS, For::Double),
    (&SINGLE_PASS, For::Double),
    (&coarse::SOURCE, For::Single),
    (&PROLONGATION, For::Double),
    (&vector::FUSED, For::Single),
    (&vector::SOURCE, For::Single),
    (&sliced::SOURCE, For::Single),
    (&CYCLE, For::Single),
    (&cycle::ENDS, For::Solve),
    (&NUMBERS, For::Double),
    (&STRENGTH, For::Double),
    (&AGGREGATES, For::Double),
    (&slices::SOURCE, For::Single),
    (&slices::SOURCE, For::Rounding),
    (&PERMUTATION, For::Double),
    (&scan::SOURCE, For::Single),
    (&dia::SOURCE, For::Single),
    (&dia::SOURCE, For::Rounding),
];

/// Starts to compile the kernels that multigrid for a solve in `T` needs, on background threads; if `shares`, those of
/// [`shared`], too.
pub fn begin<T: Real>(device: &Device, shares: bool) {
    let more = shares.then_some((&SHARED, For::Double));
    device.begin_with::<T>(FILES.iter().copied().chain(more));
}
