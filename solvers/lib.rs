//! Krylov methods.
