//! One system on many machines: each rank of MPI has some of the rows, and every method runs on all of them at once.
//!
//! ```no_run
//! use krysp::mpi::{BlockJacobi, RankMatrix, Ranks, Rows};
//! use krysp::{Cg, Ic0, LinearOperator, Space};
//!
//! fn main() -> krysp::Result<()> {
//!     let ranks = Ranks::world()?;
//!     ranks.run(|| {
//!         let a = RankMatrix::<f64>::read(&ranks, "heat.mtx", Rows::ByEntries)?;
//!         let m = BlockJacobi::new(&a, Ic0::new)?;
//!         let b = vec![1.0; a.domain().local_len()];
//!         let solution = Cg::new(&a).preconditioner(m).rtol(1e-8).solve(&b)?;
//!         println!("{}", solution.report);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Every rank runs the same program. Vectors ([`RankVector`]) and matrices ([`RankMatrix`]) are shared out by rows; `b` and
//! `x` of a solve are this rank's parts. What a product reads of other ranks travels while rows are multiplied that need
//! none of it. Sums wait until one of them is needed and then take one message together; they are added up in the order of
//! the ranks, so that all have the same bits and decide alike.
//!
//! | preconditioner | what it is |
//! | --- | --- |
//! | [`BlockJacobi`] | any preconditioner of each rank's own rows and columns; with [`Jacobi`](crate::Jacobi) that of the whole matrix |
//! | [`RankFsai`] | [`Fsai`](crate::Fsai) of the whole matrix |
//! | [`RankSpai`] | [`Spai`](crate::Spai) of the whole matrix |
//! | [`RankTwoLevel`] | any other, and a coarse system of all ranks |
//! | [`RankAmg`] | multigrid of the whole system |
//!
//! `a.to(&gpu)` puts this rank's part on a GPU, `ranks.gpu()` finds one for it: [`Ranks::gpu`] has an example.
//!
//! A rank that fails ends the work of all: constructors return an error on all ranks if one has an error; where one fails
//! later, the others stop waiting and return an error with its message. See [`Ranks::run`].
//!
//! The page `docs/cluster.md` says how to build and run such programs.

mod assemble;
mod block_jacobi;
mod fsai;
pub(crate) mod halo;
#[cfg(feature = "cuda")]
mod link;
mod local;
mod matrix;
mod near;
#[cfg(feature = "cuda")]
pub(crate) mod on_cuda;
mod ranks;
mod raw;
mod scalar;
mod spai;
mod steps;
mod two_level;
mod vector;

pub use crate::preconditioners::amg::RankAmg;
pub use assemble::Rows;
pub use block_jacobi::BlockJacobi;
pub use fsai::RankFsai;
pub use local::Local;
pub use matrix::{RankMatrix, RankReport};
pub use ranks::{Ranks, Traffic};
pub use scalar::RankScalar;
pub use spai::RankSpai;
pub use steps::RankSteps;
pub use two_level::RankTwoLevel;
pub use vector::{RankBasis, RankSpace, RankVector};
