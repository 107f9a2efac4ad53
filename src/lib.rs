//! Krylov solvers on sparse formats that run at the speed of memory.
//!
//! *krysp* (KRYlov + SParse, say "crisp") solves `A x = b` for people who apply one sparse matrix thousands of times:
//! finite elements, transient simulation.
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
//! A pure Neumann problem has a solution up to a constant only. Name what the matrix maps to zero:
//!
//! ```
//! # use krysp::{Chebyshev, Csr, Jacobi, Minres};
//! # let mut entries = vec![];
//! # for i in 1..5 {
//! #     entries.extend([(i, i, 1.0), (i, i - 1, -1.0), (i - 1, i, -1.0), (i - 1, i - 1, 1.0)]);
//! # }
//! # let a = Csr::from_triplets(5, 5, &entries)?;
//! let polynomial = Chebyshev::new(&a, Jacobi::new(&a)?, 2)?;
//! let mut solver = Minres::new(&a).preconditioner(polynomial).null_space(&[[1.0; 5]])?;
//! let solution = solver.solve(&[2.0, 0.0, 0.0, 0.0, 0.0])?;
//! assert!(solution.report.converged());
//! // one fifth of the load at every point, for which there is no counterweight
//! assert!((solution.report.removed - 0.4 * 5.0_f64.sqrt()).abs() < 1e-14);
//! assert!(solution.x.iter().sum::<f64>().abs() < 1e-12);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A matrix is assembled as [`Csr`] and moved into the [format](formats) that its rows and the hardware like best, which
//! [`Operator::auto`] can pick. Every format is a [`LinearOperator`], every preconditioner too, and every
//! [method](solvers) runs on all of them.

// What tests and examples may do, the library may not.
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
mod error;
pub mod formats;
mod host;
#[cfg(any(feature = "faer", feature = "nalgebra", feature = "sprs"))]
pub mod interop;
pub mod io;
mod numbering;
pub mod partition;
pub mod preconditioners;
mod scaling;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use choice::{Choice, Host, Operator};
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaSpace, CudaVector};
pub use error::{Error, Result};
pub use formats::{Bsr, Coo, Csr, Dia, Ehyb, Ell, EllpackR, Format, Halo, Hyb, Sell, SymBsr, SymCsr};
pub use host::{HostBasis, HostSpace, HostVector, operator_fn};
pub use krysp_kernels::cpu::simd::bf16::Bf16;
#[cfg(not(feature = "cuda"))]
pub use krysp_kernels::cpu::simd::storage::Storage;
#[cfg(feature = "cuda")]
pub use krysp_kernels::cuda::Storage;
pub use krysp_solvers as solvers;
pub use krysp_solvers::{
    BiCgStab, CancelToken, Cg, Chebyshev, Composed, Element, Fcg, Fgmres, Gmres, LinearOperator, Minres,
    Outcome, Progress, Report, Solution, Space, Stopping, Vector,
};
pub use numbering::Numbering;
pub use preconditioners::{
    Amg, AmgOptions, CoarseSpace, Fsai, Growth, Ic0, Ilu0, Isai, Jacobi, Narrow, Side, Spai, SpaiReport,
    Sparsity, StoredRows, TwoLevel, Unknowns, rigid_motions,
};
pub use scaling::Scaling;

/// The level of SIMD that the CPU's loops run at: chosen at run time, forced for tests.
pub mod simd {
    pub use krysp_kernels::cpu::simd::{Forced, Level, force, level};
}

/// What most programs need, in one line: `use krysp::prelude::*;`.
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
        BiCgStab, Cg, Csr, Format, Gmres, Host, Jacobi, LinearOperator, Minres, Numbering, Operator, Outcome,
        Report, Solution, Space, TwoLevel, Vector,
    };
    #[cfg(feature = "cuda")]
    pub use crate::{Cuda, CudaVector};
}

/// A number that matrices are made of and kernels compute with: `f32` or `f64`.
#[cfg(not(feature = "cuda"))]
pub trait Real: Element<Real = Self> + krysp_kernels::cpu::simd::Value {}
#[cfg(not(feature = "cuda"))]
impl<T: Element<Real = T> + krysp_kernels::cpu::simd::Value> Real for T {}

/// A number that matrices are made of and kernels compute with: `f32` or `f64`.
#[cfg(feature = "cuda")]
pub trait Real: Element<Real = Self> + krysp_kernels::cpu::simd::Value + krysp_kernels::cuda::Real {}
#[cfg(feature = "cuda")]
impl<T: Element<Real = T> + krysp_kernels::cpu::simd::Value + krysp_kernels::cuda::Real> Real for T {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
