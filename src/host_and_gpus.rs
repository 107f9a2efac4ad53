//! One system on the threads of the host and any number of GPUs together, after Yang, Li, Mo and Li (2015).
//!
//! ```no_run
//! use krysp::host_and_gpus::HostAndGpus;
//! use krysp::{Cg, Cuda, gallery};
//!
//! let a = gallery::poisson::<f64>(&[100; 3])?;
//! let shared = HostAndGpus::new(&[Cuda::new(0)?], &a)?;
//! println!("{shared}"); // shares, and whether the host saves time
//! let b = vec![1.0; a.rows()];
//! let solution = Cg::new(&shared).preconditioner(shared.jacobi()?).rtol(1e-8).solve(&b)?;
//! assert!(solution.report.converged());
//! # Ok::<(), krysp::Error>(())
//! ```
//!
//! Rows are cut by the computing powers of the processors, which are measured or given ([`RowShares`]); each part is
//! stored in the format that suits its machine. One thread drives all: an operation is queued on the GPUs,
//! then the host computes its part with all threads. In a product, entries of `x` travel through pinned memory
//! while every processor multiplies the entries in its own columns. Sums are added up on the host in the order
//! of the processors, so that results are bitwise repeatable for equal shares, and every method and observer
//! works as with one memory.
//!
//! A server's host has about a twentieth of the memory bandwidth of its GPU, and waiting for sums takes longer
//! than it saves: [`SplitMatrix::new`] then gives the host no rows, and its `Display` prints for which systems
//! the host would save time. Without the host, a copy on the GPU (`a.to(&gpu)`) or `MultiGpu` is faster than a
//! [`SplitMatrix`], because steps are recorded and replayed.
//!
//! An error of a machine, such as a lack of memory, ends construction or solve with that error. Other machines
//! remain usable: split the rows again without the one that failed.
//!
//! [`RowShares`]: crate::partition::RowShares

mod blocks;
mod coprocessor;
mod diagonal_blocks;
mod forecast;
mod halo;
mod matrix;
#[cfg(feature = "cuda")]
mod on_cuda;
mod own;
mod report;
mod scalar;
#[cfg(any(test, feature = "testing"))]
mod stand_in;
mod vector;

pub use blocks::BlockJacobi;
pub use coprocessor::{Coprocessor, Exchange};
pub use diagonal_blocks::DiagonalBlocks;
pub use matrix::SplitMatrix;
#[cfg(feature = "cuda")]
pub use on_cuda::ThroughPinned;
pub use report::{Measured, MemberReport};
pub use scalar::{Awaited, SplitScalar};
#[cfg(any(test, feature = "testing"))]
pub use stand_in::{InHostMemory, StandIn};
pub use vector::{SplitSpace, SplitVector};

/// A square matrix whose rows are split between the host and GPUs.
#[cfg(feature = "cuda")]
#[doc(alias = "heterogeneous")]
pub type HostAndGpus<T> = SplitMatrix<T, crate::device::Cuda>;
