//! Matrices from files and into files.

pub mod matrix_market;
