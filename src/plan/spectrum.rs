//! Estimates of the spectrum of a symmetric matrix, by Lanczos steps.

use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_solvers::{BasicVector, ConditionEstimate, LinearOperator, Scalar, Space};
use std::fmt;

/// Bounds of the number of steps, between which as many are made as fit into `WORK` multiplications. Guesses: with 64 steps the
/// indefinite Helmholtz matrix `ngs_screw_helmholtz` shows a direction of negative energy; fewer may miss such directions.
const STEPS: [usize; 2] = [64, 2000];
const WORK: usize = 100_000_000;

/// The condition number is estimated if the extreme Ritz values changed by less than this fraction in the second half of the
/// steps. Not measured.
const SETTLED: f64 = 0.05;

/// Energies `⟨p, A p⟩ / ⟨p, D p⟩` of at most this many machine epsilons times the largest energy count as zero. Not
/// measured; chosen well above the rounding of a product.
const ROUNDING: f64 = 1e3;

/// Result of Lanczos steps with `D⁻¹ A`, where `D` is the diagonal of the symmetric matrix `A`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Spectrum {
    /// A direction `p` with negative `⟨p, A p⟩` was found, or a diagonal entry that is not positive: the matrix is not positive definite.
    Indefinite,
    /// A direction in which `⟨p, A p⟩` is zero to rounding was found: the matrix is singular or nearly so.
    Singular,
    /// No such direction was found. The matrix may be positive definite.
    Positive {
        /// The number of steps.
        steps: usize,
        /// The extreme Ritz values, which lie inside the spectrum.
        ritz: ConditionEstimate,
        /// Whether the extreme Ritz values stayed the same during the second half of the steps: only then is their ratio a useful
        /// estimate of the condition number.
        settled: bool,
    },
}

impl Spectrum {
    /// An estimate of the condition number of `D⁻¹ A`; `None` if the steps were too few for one.
    pub fn condition(&self) -> Option<f64> {
        match self {
            Spectrum::Positive { ritz, settled: true, .. } => Some(ritz.ratio()),
            _ => None,
        }
    }
}

/// Estimates the spectrum; `None` for an empty matrix, or one whose entries are not finite.
pub(super) fn spectrum<T: Real>(a: &Csr<T>, positive_diagonal: bool) -> Option<Spectrum> {
    if !positive_diagonal {
        // the energy eᵢᵀ A eᵢ of some i is not positive
        return (a.rows() > 0).then_some(Spectrum::Indefinite);
    }
    let steps = (WORK / (a.nnz() + 8 * a.rows()).max(1)).clamp(STEPS[0], STEPS[1]);
    lanczos(a, steps).ok().flatten()
}

/// Runs the recurrences of conjugate gradients without `x`. The coefficients of the Lanczos process follow from theirs.
fn lanczos<T: Real>(a: &Csr<T>, steps: usize) -> Result<Option<Spectrum>> {
    let space = a.domain();
    let diagonal = a.diagonal_entries();
    let d_inverse: Vec<T> = diagonal.iter().map(|&d| T::one() / d).collect();
    let d_inverse = space.vector(&d_inverse)?;
    // the initial residual D (1 + noise) has components of all eigenvectors; those of smooth eigenvectors are larger, because negative
    // energies are found among these first
    let rough = |i: u64| T::from_f64(1.0 + 0.5 * noise(i));
    let b: Vec<T> = diagonal.iter().zip(0..).map(|(&d, i)| d * rough(i)).collect();
    let mut r = space.vector(&b)?;
    let mut z = space.zeros()?;
    z.multiply(&d_inverse, &r);
    let (mut p, mut q) = (space.zeros()?, space.zeros()?);
    p.copy_from(&z);
    let mut rz = r.dot(&z).read()?.to_f64();
    let (first, mut p_d_p, mut largest) = (rz, rz, 0.0f64);
    let mut coefficients: Vec<[f64; 2]> = vec![];
    // below this residual, at the latest, the recurrence is dominated by rounding errors
    while coefficients.len() < steps && rz > first * (T::EPSILON * T::EPSILON) {
        let energy = a.apply_dot(&p, &mut q)?.read()?.to_f64();
        let quotient = energy / p_d_p;
        if !quotient.is_finite() {
            return Ok(None);
        }
        largest = largest.max(quotient);
        let zero = ROUNDING * T::EPSILON * largest;
        if quotient <= zero {
            return Ok(Some(if quotient < -zero { Spectrum::Indefinite } else { Spectrum::Singular }));
        }
        let alpha = rz / energy;
        r.axpby(&T::from_f64(-alpha), &q, &T::one());
        z.multiply(&d_inverse, &r);
        let next = r.dot(&z).read()?.to_f64();
        let beta = next / rz;
        coefficients.push([alpha, beta]);
        p.axpby(&T::one(), &z, &T::from_f64(beta));
        // ⟨z, D p⟩ = ⟨r, p⟩ = 0 for the old p
        (rz, p_d_p) = (next, next + beta * beta * p_d_p);
    }
    let all = ConditionEstimate::from_coefficients(&coefficients);
    let half = ConditionEstimate::from_coefficients(&coefficients[..coefficients.len() / 2]);
    let close = |now: f64, before: f64| (now - before).abs() <= SETTLED * now.abs();
    Ok(all.map(|ritz| {
        let ended = coefficients.len() < steps;
        let settled = ended
            || half
                .is_some_and(|half| close(ritz.smallest, half.smallest) && close(ritz.largest, half.largest));
        Spectrum::Positive { steps: coefficients.len(), ritz, settled }
    }))
}

/// A pseudorandom number between −1 and 1 (finalizer of SplitMix64).
fn noise(index: u64) -> f64 {
    let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

impl fmt::Display for Spectrum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spectrum::Indefinite => write!(f, "not positive definite"),
            Spectrum::Singular => write!(f, "singular or nearly so: an energy ⟨p, A p⟩ is zero to rounding"),
            Spectrum::Positive { steps, .. } => {
                write!(f, "no negative direction found in {steps} Lanczos steps")?;
                match self.condition() {
                    Some(ratio) => write!(f, "; condition about {ratio:.0e} when scaled by the diagonal"),
                    None => write!(f, "; too few steps to estimate the condition"),
                }
            }
        }
    }
}
