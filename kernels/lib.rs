//! Loops over arrays.
