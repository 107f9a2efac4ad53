//! Where the eigenvalues of a symmetric matrix lie, from a few steps of conjugate gradients.

use crate::{Cg, Csr, Jacobi, Outcome, Real};
use krysp_solvers::ConditionEstimate;
use std::fmt;

/// Steps: enough to find an eigenvalue below zero unless it is tiny, few beside those of a solve.
const STEPS: usize = 20;

/// What a few steps of Lanczos saw of the eigenvalues of a symmetric matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Spectrum {
    /// A direction in which `⟨p, A p⟩` is not positive: the matrix is not positive definite.
    Indefinite,
    /// No such direction: the matrix is likely to be positive definite.
    Positive {
        /// Eigenvalues of `D⁻¹ A`, with `D` its diagonal, reach at least from here to there.
        reach: ConditionEstimate,
    },
}

/// `None` where nothing was seen.
pub(super) fn spectrum<T: Real>(a: &Csr<T>, positive_diagonal: bool) -> Option<Spectrum> {
    if !positive_diagonal {
        // eᵢᵀ A eᵢ is not positive
        return (a.rows() > 0).then_some(Spectrum::Indefinite);
    }
    // a rough vector has something of every eigenvector
    let b: Vec<T> = (0..a.rows() as u64).map(|i| T::from_f64(noise(i))).collect();
    let jacobi = Jacobi::new(a).ok()?;
    let solution = Cg::new(a).preconditioner(jacobi).rtol(0.0).max_iterations(STEPS).solve(&b).ok()?;
    match (solution.report.outcome, solution.report.condition) {
        (Outcome::Breakdown { value, .. }, _) if value < 0.0 => Some(Spectrum::Indefinite),
        (_, Some(reach)) => Some(Spectrum::Positive { reach }),
        _ => None,
    }
}

/// A number between −1 and 1 that looks random (the finaliser of SplitMix64).
pub(super) fn noise(index: u64) -> f64 {
    let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

impl fmt::Display for Spectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spectrum::Indefinite => write!(f, "not positive definite"),
            Spectrum::Positive { reach } => write!(
                f,
                "likely positive definite: scaled by its diagonal, eigenvalues reach at least from {:.1e} to {:.1e}",
                reach.smallest, reach.largest
            ),
        }
    }
}
