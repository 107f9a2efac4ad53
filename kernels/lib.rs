//! Loops over arrays: sparse products and vector operations on threads and SIMD lanes.
//!
//! This crate knows slices, threads and lanes. It has no matrix objects and no solvers; `krysp` joins it to
//! `krysp-solvers`. It is the one place where `unsafe` may stand. Its interface is safe: index arrays are wrapped in
//! types that were checked once ([`index`]), and a kernel compares lengths before it trusts them.

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

pub mod block_diagonal;
pub mod buffer;
pub mod cache;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod index;
pub mod interrupt;
pub mod map;
pub mod pairs;
pub mod parts;
pub mod price;
pub mod strategy;
pub mod windows;
