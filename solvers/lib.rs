//! Krylov methods over abstract operators and vectors.
//!
//! A method accesses hardware only through two traits: [`Vector`], with its [`Space`], [`Scalar`], [`Basis`]
//! and [`Steps`], and [`LinearOperator`]. The source of a method is therefore written once and works with
//! every kind of memory. A preconditioner is a [`LinearOperator`] too: the operator that applies `M⁻¹`.
//!
//! | module | method |
//! | --- | --- |
//! | [`cg`] | conjugate gradients, for symmetric positive definite systems |
//! | [`block_cg`] | conjugate gradients for several right-hand sides that share a search space |
//! | [`pipelined_cg`] | conjugate gradients whose reductions overlap with products, for many processes |
//! | [`bicgstab`] | stabilized bi-conjugate gradients, for general systems in fixed memory |
//! | [`minres`] | MINRES, for symmetric systems, definite or not |
//! | [`gmres`] | restarted GMRES with right preconditioning, for general systems |
//! | [`block_gmres`] | GMRES for several right-hand sides that share a search space |
//! | [`idr`] | IDR(s), for general systems in fixed memory; smoother than BiCGStab |
//! | [`chebyshev`] | a polynomial in `A` as a preconditioner |
//! | [`fcg`], [`fgmres`] | conjugate gradients and GMRES with preconditioners that change (flexible variants) |
//!
//! All methods can solve systems with a known null space, such as constants or rigid body modes: see
//! [`Solver::null_space`].

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

mod accuracy;
mod advice;
mod basis;
pub mod bicgstab;
mod block;
pub mod block_cg;
pub mod block_gmres;
mod callbacks;
pub mod cg;
pub mod chebyshev;
mod composed;
mod deflation;
mod driver;
mod element;
mod error;
mod fallback;
pub mod fcg;
mod few;
pub mod fgmres;
pub mod gmres;
pub mod idr;
mod iterate;
mod joint;
mod judge;
mod kept;
mod lanczos;
mod lockstep;
mod many;
mod method;
pub mod minres;
mod multi;
mod operator;
mod orthonormal;
pub mod pipelined_cg;
mod reflections;
mod report;
mod run;
mod scalars;
mod small;
mod solver;
mod stagnation;
mod steps;
mod stopping;
mod vector;
mod verdict;
mod workspace;
mod wrapper;

pub use advice::InterfaceNames;
pub use basis::{Basis, VectorBasis};
pub use bicgstab::BiCgStab;
pub use block::BlockMethod;
pub use cg::Cg;
pub use chebyshev::Chebyshev;
pub use composed::Composed;
pub use deflation::{Deflated, NullSpace};
pub use element::Element;
pub use error::{Error, Result};
pub use fcg::Fcg;
pub use fgmres::Fgmres;
pub use gmres::Gmres;
pub use idr::Idr;
pub use kept::with_workspace;
pub use lockstep::Lockstep;
pub use method::{Arithmetic, Cost, Method, Symmetry, System};
pub use minres::Minres;
pub use multi::{MultiSpace, MultiVector};
pub use operator::{Diagonal, Form, Identity, LinearOperator, OperatorFn, check_spaces, plain_residual};
pub use pipelined_cg::PipelinedCg;
pub use report::{ConditionEstimate, Outcome, Report, Solution};
pub use scalars::Scalars;
pub use solver::Solver;
pub use stagnation::{Evidence, StagnationWindow};
pub use steps::{CgIterate, Condition, Ending, Immediate, Steps};
pub use stopping::{CancelToken, Progress, Stopping};
pub use vector::{
    BasicVector, CgUpdate, ElemOf, Scalar, ScalarOf, Space, SpaceOf, StepsOf, Term, Vector, flip_signs,
};
pub use wrapper::Wrapper;
