//! Solves one system on several ranks: each rank has some of the rows, and every method runs on all ranks together.
//!
//! Ranks are threads of one process ([`Ranks::threads`]):
//!
//! ```
//! use krysp::ranks::{RankAmg, RankMatrix, Ranks, RowDistribution};
//! use krysp::{Cg, LinearOperator, Space};
//!
//! // −u″ on 1000 points; each rank gives some of the entries, of any rows
//! let n = 1000;
//! let solve = |ranks: &Ranks| {
//!     let mut entries = vec![];
//!     for i in (ranks.rank() as u64..n).step_by(ranks.size()) {
//!         entries.push((i, i, 2.0));
//!         if i > 0 {
//!             entries.extend([(i, i - 1, -1.0), (i - 1, i, -1.0)]);
//!         }
//!     }
//!     let a = RankMatrix::from_entries(ranks, n, RowDistribution::Even, &entries)?;
//!     let b = vec![1.0; a.domain().local_len()]; // this rank's part
//!     let solution = Cg::new(&a).preconditioner(RankAmg::new(&a)?).rtol(1e-10).solve(&b)?;
//!     assert!(solution.report.converged());
//!     krysp::Result::Ok(solution.x)
//! };
//! let parts = Ranks::threads(2, solve)?;
//! assert_eq!(parts.concat().len(), 1000);
//! # Ok::<(), krysp::Error>(())
//! ```
//!
//! Or ranks are processes of MPI, on one machine or many. This needs the feature `mpi` and an MPI library with its
//! headers. `Ranks::world` returns these ranks, and the work is the same:
//!
//! ```text
//! let ranks = Ranks::world()?;
//! let x = ranks.run(|| solve(&ranks))?;
//! ```
//!
//! Every rank runs the same program. Vectors ([`RankVector`]) and matrices ([`RankMatrix`]) are distributed
//! by rows; `b` and `x` of a solve are this rank's parts. In a product, the entries of `x` that other ranks
//! own are communicated while the diagonal block, which does not need them, is multiplied. Sums are deferred
//! until one of them is needed, and then take one collective operation together. They are added in the order
//! of the ranks, so that results are bitwise the same on all ranks and all ranks make the same decisions.
//!
//! | preconditioner | what it is |
//! | --- | --- |
//! | [`BlockJacobi`] | any preconditioner of each rank's diagonal block; with [`Jacobi`](crate::Jacobi) it equals Jacobi of the whole matrix |
//! | [`RankFsai`] | [`Fsai`](crate::Fsai) of the whole matrix |
//! | [`RankSpai`] | [`Spai`](crate::Spai) of the whole matrix |
//! | [`RankTwoLevel`] | any other preconditioner, plus a coarse correction over all ranks |
//! | [`RankAmg`] | algebraic multigrid of the whole system |
//!
//! `a.to(&gpu)` copies this rank's part to a GPU, and `ranks.gpu()` chooses a GPU for each rank:
//! `Ranks::gpu` has an example.
//!
//! Constructors return an error on all ranks if one rank has an error, and work can go on. A later error ends the
//! work of all ranks: the others stop waiting and return an error with its message. See
//! [`Ranks::run`].
//!
//! The page `docs/how_to/cluster.md` explains how to build and run such programs.

mod amg;
mod assemble;
mod block_jacobi;
mod collective;
mod comm;
mod execution;
mod fsai;
mod halo;
mod in_process;
#[cfg(feature = "cuda")]
mod link;
mod local;
mod matrix;
#[cfg(feature = "mpi")]
mod mpi;
mod near;
#[cfg(feature = "cuda")]
mod on_cuda;
mod scalar;
mod spai;
mod steps;
#[cfg(feature = "cuda")]
mod teams;
mod threads;
mod two_level;
mod vector;

pub use amg::RankAmg;
pub use assemble::RowDistribution;
pub use block_jacobi::BlockJacobi;
pub use collective::{CommunicationCounts, Ranks};
pub use fsai::RankFsai;
pub use local::Local;
pub use matrix::{RankMatrix, RankReport};
pub use scalar::RankScalar;
pub use spai::RankSpai;
pub use steps::RankSteps;
pub use two_level::RankTwoLevel;
pub use vector::{RankBasis, RankSpace, RankVector};
