//! Krylov solvers on sparse formats that run at the speed of memory.

pub mod io;
