//! A format, a preconditioner and a Krylov method that are not part of krysp, and work with all that is.
//!
//! ```
//! use krysp::choice::Formats;
//! use krysp::{Operator, Plan, gallery};
//! use padded_format::{GaussSeidel, MinimalResidual, Padded};
//!
//! let csr = gallery::poisson::<f64>(&[20, 20])?;
//! let b = vec![1.0; csr.rows()];
//!
//! // the format: chosen among those of krysp, or named, also in a plan
//! let formats = Formats::standard().with::<Padded<f64>>()?;
//! let a = Operator::in_format(&csr, &formats, "padded")?;
//! assert!(Plan::new(&csr)?.on(&formats).format("padded").build()?.solve(&b)?.converged());
//!
//! // the preconditioner and the method
//! let m = GaussSeidel::new(&a)?;
//! let solution = MinimalResidual::new(&a).preconditioner(m).rtol(1e-6).solve(&b)?;
//! assert!(solution.report.converged());
//! # Ok::<(), krysp::Error>(())
//! ```

mod gauss_seidel;
mod kernel;
mod minimal_residual;
mod padded;

pub use gauss_seidel::GaussSeidel;
pub use minimal_residual::{MinimalResidual, MinimalResidualMethod};
pub use padded::Padded;
