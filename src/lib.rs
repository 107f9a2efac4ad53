//! Krylov solvers on sparse formats that run at the speed of memory.
//!
//! *krysp* (KRYlov + SParse, pronounced "crisp") solves `A x = b` for applications that multiply with one sparse matrix thousands
//! of times, such as finite elements and transient simulation.
//!
//! ```
//! use krysp::{Cg, Csr, Jacobi};
//!
//! // −u'' on five points
//! let mut entries = vec![];
//! for i in 0..5 {
//!     entries.push((i, i, 2.0));
//!     if i > 0 {
//!         entries.push((i, i - 1, -1.0));
//!         entries.push((i - 1, i, -1.0));
//!     }
//! }
//! let a = Csr::from_triplets(5, 5, &entries)?;
//! let solution = Cg::new(&a).preconditioner(Jacobi::new(&a)?).rtol(1e-10).solve(&[1.0; 5])?;
//! assert!(solution.report.converged());
//! assert!((solution.x[2] - 4.5_f64).abs() < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The solution of a pure Neumann problem is unique only up to a constant. Declare the null space of the matrix:
//!
//! ```
//! use krysp::{Chebyshev, Jacobi, Minres, gallery};
//!
//! let a = gallery::neumann::<f64>(&[5])?; // −u'' on five cells, no value prescribed
//! let polynomial = Chebyshev::new(&a, Jacobi::new(&a)?, 2)?;
//! let mut solver = Minres::new(&a).preconditioner(polynomial).null_space(&[[1.0; 5]])?;
//! let solution = solver.solve(&[2.0, 0.0, 0.0, 0.0, 0.0])?;
//! assert!(solution.report.converged());
//! // the mean of the load, 0.4, was subtracted from every entry: the system has a solution only if the mean is 0
//! assert!((solution.report.removed - 0.4 * 5.0_f64.sqrt()).abs() < 1e-14);
//! assert!(solution.x.iter().sum::<f64>().abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Matrices are assembled as [`Csr`] and converted to the [format](formats) that suits their rows and the hardware
//! best; [`Operator::auto`] chooses one. [`gallery`] has model problems to start with. Every format and every preconditioner is a
//! [`LinearOperator`], and every [method](solvers) runs on all of them.

// docs.rs names the feature that an item needs
#![cfg_attr(docsrs, feature(doc_cfg))]
// These lints apply to the library only. Tests and examples may unwrap, panic and print.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::todo,
    clippy::unimplemented,
    clippy::print_stdout,
    clippy::print_stderr
)]

pub mod choice;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "cuda")]
mod device;
mod error;
pub mod formats;
pub mod gallery;
mod host;
#[cfg(any(feature = "cuda", feature = "testing", test))]
pub mod host_and_gpus;
#[cfg(any(feature = "faer", feature = "nalgebra", feature = "sprs"))]
pub mod interop;
mod interrupt;
pub mod io;
mod memory;
#[cfg(feature = "cuda")]
pub mod multi_gpu;
mod numbers;
mod ordering;
pub mod partition;
mod permutation;
pub mod plan;
pub mod preconditioners;
pub mod ranks;
pub mod saved;
mod scaling;
mod spelling;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use choice::{Choice, Operator, calibrate};
#[cfg(feature = "cuda")]
pub use cuda::Streamed;
#[cfg(feature = "cuda")]
pub use device::{Cuda, CudaSpace, CudaVector, OnCuda, ToCuda};
pub use error::{Error, Result, SavedFileError};
pub use formats::{Format, MatrixSource};
pub use host::{Host, HostBasis, HostSpace, HostVector, operator_fn};
pub use interrupt::{Interrupt, Interrupted, PhaseProgress};
pub use krysp_kernels::cpu::simd::bf16::Bf16;
pub use krysp_solvers as solvers;
pub use krysp_solvers::{
    BasicVector, BiCgStab, CancelToken, Cg, Chebyshev, Composed, Element, Fcg, Fgmres, Gmres, Idr,
    LinearOperator, Minres, MultiVector, Outcome, PipelinedCg, Progress, Report, Solution, Space, Stopping,
    Vector,
};
#[cfg(feature = "cuda")]
pub use multi_gpu::MultiGpu;
pub use numbers::{Real, Storage};
pub use permutation::Permutation;
pub use plan::{Plan, solve, solve_many};
pub use preconditioners::{
    Amg, AmgOptions, BlockSolver, Cholesky, CoarseSpace, DirectOptions, FactorReport, Fields, Fsai, Growth,
    Ic0, Ilu0, Ilut, IlutOptions, Inertia, Isai, Jacobi, Ldl, Lu, PositiveJacobi, Refresh, SaddleEstimate,
    SaddlePoint, SaddlePointOptions, Schur, Side, SinglePrecision, Spai, SpaiReport, Sparsity, StoredRows,
    TwoLevel, UnknownOrder, rigid_body_modes,
};
#[cfg(feature = "cuda")]
pub use preconditioners::{CuDss, CuDssKind, CuDssReport};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use preconditioners::{EliminationOrder, elimination_order};
pub use scaling::{Matching, Scaling};

macro_rules! reexport {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        $(pub use formats::$format;)*
    };
}
each_format!(reexport);

/// The SIMD level of the CPU kernels: the best one of the CPU, unless the environment variable `KRYSP_SIMD` selects another.
///
/// `KRYSP_SIMD=portable`, `avx2` or `avx512` helps to find out whether a wrong result depends on the machine. An unknown name, or
/// a level that the CPU lacks, is ignored: [`level`](simd::level) returns the level in use, [`requested`](simd::requested) the
/// error.
pub mod simd {
    pub use krysp_kernels::cpu::simd::{Forced, Level, force, level, requested};
}

/// The items that most programs need: `use krysp::prelude::*;`.
///
/// ```
/// use krysp::prelude::*;
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
/// let fast = Operator::auto(&a, &Host)?;
/// let solution = Cg::new(fast).preconditioner(Jacobi::new(&a)?).solve(&[2.0, 4.0])?;
/// assert_eq!(solution.x, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod prelude {
    #[cfg(feature = "cuda")]
    pub use crate::formats::OnDevice;
    pub use crate::{
        BasicVector, BiCgStab, Cg, Csr, Format, Gmres, Host, Jacobi, LinearOperator, Minres, Operator,
        Outcome, Permutation, Refresh, Report, Solution, Space, TwoLevel, Vector,
    };
    #[cfg(feature = "cuda")]
    pub use crate::{Cuda, CudaVector, ToCuda};
}

/// Pages whose Rust code `cargo test --doc` compiles and, unless it is marked `no_run`, runs.
/// `tests/suite/documents.rs` checks that the list is complete.
#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($(#[$condition:meta])* $name:ident: $path:literal;)*) => {
            $($(#[$condition])* #[doc = include_str!(concat!("../", $path))] struct $name;)*
        };
    }

    pages! {
        #[cfg(feature = "cuda")]
        Readme: "README.md";
        FirstSolve: "docs/tutorials/rust.md";
        #[cfg(feature = "cuda")]
        OnGpu: "docs/tutorials/gpu.md";
        Choose: "docs/how_to/choose.md";
        #[cfg(feature = "cuda")]
        Cluster: "docs/how_to/cluster.md";
        Extend: "docs/how_to/extend.md";
        Port: "docs/how_to/port.md";
        SaveAndLoad: "docs/how_to/save_and_load.md";
        #[cfg(feature = "cuda")]
        SeveralGpus: "docs/how_to/several_gpus.md";
        Formats: "docs/reference/formats.md";
        Preconditioners: "docs/reference/preconditioners.md";
    }
}
