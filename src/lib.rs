//! Krylov solvers on sparse formats that run at the speed of memory.

#[cfg(any(test, feature = "testing"))]
pub mod testing;
