//! Preconditioners: operators that apply `M⁻¹`.

mod jacobi;

pub use jacobi::Jacobi;
