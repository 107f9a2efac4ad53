//! Loops over arrays.

pub mod map;
