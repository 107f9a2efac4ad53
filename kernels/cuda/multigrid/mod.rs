//! Algebraic multigrid on a device.

/// Queues a kernel of the file `SOURCE`, for matrices of `T`: `queue!(device, T, "name", config, argument…)`.
macro_rules! queue {
    ($device:expr, $element:ty, $name:expr, $config:expr $(, $argument:expr)* $(,)?) => {{
        let device = $device;
        let function = device.function::<$element>(&SOURCE, $name)?;
        let mut launch = device.launch(&function);
        $(let argument = $argument; launch.arg(&argument);)*
        // SAFETY: every caller stands beside its file of kernels: arguments are as there, arrays as long as they are read and
        // written
        unsafe { launch.launch($config) }?;
    }};
}

mod aggregates;
mod at_once;
pub mod coarsening;
pub mod cycle;
pub mod graph;
pub mod numbering;
pub mod numbers;
mod products;
mod prolongation;
pub mod strength;

pub(crate) use aggregates::SOURCE as AGGREGATES;
pub(crate) use at_once::SOURCE as AT_ONCE;
pub(crate) use numbering::SOURCE as NUMBERING;
pub(crate) use numbers::SOURCE as NUMBERS;
pub(crate) use products::SOURCE as PRODUCTS;
pub(crate) use prolongation::SOURCE as PROLONGATION;
pub(crate) use strength::SOURCE as STRENGTH;
