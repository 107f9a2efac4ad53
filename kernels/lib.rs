//! Loops over arrays: sparse matrix-vector products and vector operations on threads and SIMD lanes.
//!
//! This crate works on slices, threads and lanes. It has no matrix objects and no solvers; `krysp` connects
//! it to `krysp-solvers`. It is the only crate in which `unsafe` is allowed. Its interface is safe: index
//! arrays are wrapped in types that are checked once at construction ([`index`]), and a kernel compares
//! lengths before it relies on them.

// docs.rs names the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Lints that apply to the library only, not to tests and examples.
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
pub mod cost;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod index;
pub mod interrupt;
pub mod map;
pub mod multigrid;
pub mod pairs;
pub mod parts;
pub mod ranges;
pub mod strategy;
pub mod windows;
