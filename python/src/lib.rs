//! The extension module `_krysp`: takes NumPy arrays, returns solutions and reports.
//!
//! Users call the functions of the Python package `krysp`, which wraps this module and converts its arguments to the few types
//! that the functions here accept. A solve releases the GIL, except while a Python function of the user runs.

mod arrays;
mod borrow;
mod converted;
mod declarations;
#[cfg(feature = "cuda")]
mod device;
mod errors;
mod function;
mod matrix;
mod ordered;
mod plan;
mod preconditioner;
mod report;
mod solve;
mod threads;
mod watch;
mod workspaces;

/// The compiled part of the package `krysp`.
#[pyo3::pymodule]
mod _krysp {
    use pyo3::prelude::*;

    #[cfg(feature = "cuda")]
    #[pymodule_export]
    use super::device::{compiler_version, look_for_compiler_in, solve_on_device, stream};
    #[pymodule_export]
    use super::errors::KryspError;
    #[pymodule_export]
    use super::matrix::{Matrix, devices};
    #[pymodule_export]
    use super::plan::Plan;
    #[pymodule_export]
    use super::preconditioner::{Preconditioner, rigid_body_modes};
    #[pymodule_export]
    use super::report::Report;
    #[pymodule_export]
    use super::solve::many::solve_many;
    #[pymodule_export]
    use super::solve::solve;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
