//! Complete factorizations on a GPU, by NVIDIA's cuDSS.
//!
//! ```text
//! symmetric, positive diagonal:         L Lᵀ; if a pivot is not positive, L D Lᵀ
//! symmetric:                            L D Lᵀ
//! unsymmetric, or if L D Lᵀ fails:      L U
//! many small or zero diagonal entries:  L U after a matching
//! solve with a random right-hand side: factors that leave too large a residual are refused
//! ```
//!
//! The library chooses pivots within dense blocks only, and replaces small ones instead of delaying them. So the
//! residual of a trial decides, and a Krylov method refines the solution.

use super::super::{MatrixSource, Refresh, check_square, finite};
use super::Inertia;
use super::order::has_weak_diagonal;
use crate::device::{Cuda, CudaSpace, CudaVector, failed, open_columns};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, check_symmetric};
use crate::numbers::Real;
use crate::preconditioners::refresh::check_alike;
use crate::scaling::Matching;
use krysp_kernels::cuda::preconditioners::cudss::{self, Factors, Findings, Kind, Options};
use krysp_kernels::interrupt;
use krysp_solvers::{LinearOperator, MultiVector, check_spaces};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &str = "CuDss";

/// Pivots below this multiple of the largest entry are replaced: the defaults of cuDSS for matrices whose largest
/// entry is one, in double and in single precision.
const SMALLEST_PIVOT: [f64; 2] = [1e-13, 1e-5];

/// Factors are refused if the relative residual of a solve with a right-hand side of random signs is above
/// `ε^REFUSED`, where `ε` is the machine epsilon: 6e-6 in double, 5e-3 in single precision. The residual for a
/// matrix that is singular to rounding is about `1 / √n`. A guess.
const REFUSED: f64 = 1.0 / 3.0;

/// Kind of factorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuDssKind {
    /// `L U`, for any square matrix.
    General,
    /// `L D Lᵀ`, for symmetric matrices, definite or not.
    Symmetric,
    /// `L Lᵀ`, for symmetric positive definite matrices.
    PositiveDefinite,
}

impl CuDssKind {
    fn kernel(self) -> Kind {
        match self {
            CuDssKind::General => Kind::General,
            CuDssKind::Symmetric => Kind::Symmetric,
            CuDssKind::PositiveDefinite => Kind::PositiveDefinite,
        }
    }
}

/// Facts about a factorization by [`CuDss`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CuDssReport {
    /// Major, minor and patch version of cuDSS.
    pub version: (u32, u32, u32),
    /// Kind of factorization.
    pub kind: CuDssKind,
    /// Stored entries of the factors.
    pub factor_entries: usize,
    /// Number of pivots that were too small and were replaced: the factors are those of another matrix nearby.
    pub perturbed_pivots: usize,
    /// Inertia, for [`CuDssKind::Symmetric`]. It is that of the nearby matrix if pivots were replaced.
    pub inertia: Option<Inertia>,
    /// Relative residual of a solve with a random right-hand side.
    pub residual: f64,
    /// Time of the analysis: ordering and symbolic factorization.
    pub analysis: Duration,
    /// Time of the latest numeric factorization.
    pub factorization: Duration,
}

impl fmt::Display for CuDssReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CuDssReport { version: (major, minor, patch), kind, factor_entries, perturbed_pivots, .. } = self;
        let [analysis, factorization] = [self.analysis, self.factorization].map(|time| time.as_secs_f64());
        write!(
            f,
            "cuDSS {major}.{minor}.{patch}, {kind:?}: analysis {analysis:.3} s, factorization {factorization:.3} s, \
             {factor_entries} entries, {perturbed_pivots} perturbed pivots"
        )
    }
}

/// Complete factorization on a GPU by NVIDIA's cuDSS, applied as `A⁻¹`.
///
/// The library is opened when the first factorization is made. It is not part of the CUDA toolkit:
/// `pip install nvidia-cudss-cu13` installs it; for programs outside of Python, add its folder to
/// `LD_LIBRARY_PATH`. Versions 0.7, 0.8 and 1.x are supported; without it the constructors return
/// [`cuda::Error::NoCuDss`](crate::cuda::Error::NoCuDss), and everything else works.
///
/// Unlike [`Cholesky`](crate::Cholesky), [`Ldl`](crate::Ldl) and [`Lu`](crate::Lu) on the host, a factorization
/// cannot be cancelled while it runs, results may differ bitwise from run to run, and factors cannot be saved.
/// Under [`Gmres`](crate::Gmres) it is a direct solver with iterative refinement. An application queues two
/// triangular solves and does not wait for the GPU.
///
/// ```no_run
/// use krysp::prelude::*;
/// use krysp::{CuDss, gallery};
///
/// let csr = gallery::poisson::<f64>(&[40; 3])?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; csr.rows()]);
/// let a = csr.to(&gpu)?;
/// let factors = CuDss::new(&gpu, &a)?;
/// println!("{}", factors.report());
/// let solution = Gmres::new(&a).preconditioner(factors).rtol(1e-12).solve(&b)?;
/// assert!(solution.report.converged() && solution.report.iterations <= 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CuDss<T: Real> {
    space: CudaSpace<T>,
    pattern: Arc<Pattern>,
    /// The kind that the user has declared.
    declared: Option<CuDssKind>,
    /// `None` for a matrix without rows, and after a refresh that failed.
    factors: Option<Factors<T>>,
    /// False after a refresh that failed.
    is_valid: bool,
    report: CuDssReport,
}

impl<T: Real> CuDss<T> {
    /// Factorizes a matrix, as the kind that its symmetry and its signs suggest. Its values are read by the host
    /// once; those of an operator on the GPU are copied back for that.
    ///
    /// Returns [`Error::Unsuitable`] if every kind of factorization fails or leaves too large a residual, as for
    /// a matrix that is singular to rounding, and [`cuda::Error::OutOfMemory`](crate::cuda::Error::OutOfMemory)
    /// if the factorization takes more device memory than is free.
    pub fn new(gpu: &Cuda, a: &impl MatrixSource<T>) -> Result<CuDss<T>> {
        CuDss::build(gpu, a, None)
    }

    /// Like [`CuDss::new`], with a declared kind, which saves tests of symmetry and of definiteness. Of a matrix that
    /// is declared symmetric only one triangle may be read.
    pub fn with_kind(gpu: &Cuda, a: &impl MatrixSource<T>, kind: CuDssKind) -> Result<CuDss<T>> {
        CuDss::build(gpu, a, Some(kind))
    }

    /// Major, minor and patch version of cuDSS, or an error if it is not found or not supported. Loads the library,
    /// but uses no GPU.
    pub fn version() -> Result<(u32, u32, u32)> {
        Ok(cudss::cudss_version()?)
    }

    fn build(gpu: &Cuda, a: &dyn MatrixSource<T>, declared: Option<CuDssKind>) -> Result<CuDss<T>> {
        check_square(NAME, a)?;
        let version = CuDss::<T>::version()?;
        let csr = &*finite(a)?;
        let largest = csr.entries().iter().fold(T::zero(), |most, value| most.max(value.abs())).to_f64();
        let smallest = SMALLEST_PIVOT[usize::from(size_of::<T>() == size_of::<f32>())];
        let is_weak = has_weak_diagonal(csr);
        let mut made = CuDss {
            space: CudaSpace::like(gpu, a.structure().domain()),
            pattern: a.structure().pattern.clone(),
            declared,
            factors: None,
            is_valid: true,
            report: CuDssReport {
                version,
                kind: CuDssKind::General,
                factor_entries: 0,
                perturbed_pivots: 0,
                inertia: None,
                residual: 0.0,
                analysis: Duration::ZERO,
                factorization: Duration::ZERO,
            },
        };
        let kinds = declared.map_or_else(|| kinds(csr, is_weak), |kind| vec![kind]);
        if csr.rows() == 0 {
            return Ok(made);
        }
        let mut refused = None;
        for kind in kinds {
            interrupt::check(NAME)?;
            let started = Instant::now();
            let matching = kind == CuDssKind::General && is_weak;
            // version 0.7.1 writes out of bounds if it finds no complete matching
            if matching && Matching::of(csr)?.unmatched() > 0 {
                let why =
                    "the matrix is structurally singular: its rows and columns have no complete matching"
                        .into();
                return Err(Error::Unsuitable { format: NAME, why });
            }
            let options = Options {
                kind: kind.kernel(),
                matching,
                // a matching may scale entries to at most one
                pivot_epsilon: smallest * if matching { largest.min(1.0) } else { largest },
                threads: rayon::current_num_threads(),
            };
            // drop the factors of the kind before, if any, before memory is needed for the next
            made.factors = None;
            made.report.kind = kind;
            made.factors = Some(Factors::analyse(a.ordered(gpu)?, a.structure().on_device(), options)?);
            made.report.analysis = started.elapsed();
            match made.factorize() {
                Err(error @ Error::Unsuitable { .. }) => refused = Some(error),
                outcome => return outcome.map(|()| made),
            }
        }
        Err(refused.unwrap_or(Error::Unsuitable { format: NAME, why: "no factorization suits it".into() }))
    }

    /// Factorizes the current values of the matrix, and tests the factors.
    fn factorize(&mut self) -> Result<()> {
        let Some(factors) = &mut self.factors else { return Ok(()) };
        self.is_valid = false;
        let started = Instant::now();
        let Findings { info, entries, perturbed, inertia } = factors.factorize()?;
        let report = &mut self.report;
        report.factorization = started.elapsed();
        (report.factor_entries, report.perturbed_pivots) = (entries, perturbed);
        report.inertia = inertia.map(|[negative, positive]| Inertia { negative, positive });
        if info != 0 {
            // the library keeps reporting the error for later values
            self.factors = None;
            let why = match report.kind {
                CuDssKind::PositiveDefinite => {
                    format!(
                        "a pivot is not positive (cuDSS reports {info}): the matrix is not positive definite"
                    )
                }
                _ => format!("a pivot is zero (cuDSS reports {info}): use `Lu`, or another preconditioner"),
            };
            return Err(Error::Unsuitable { format: NAME, why });
        }
        report.residual = factors.trial()?;
        // the comparison is false for NaN
        let most = T::EPSILON.powf(REFUSED);
        self.is_valid = report.residual <= most;
        if self.is_valid {
            return Ok(());
        }
        let why = format!(
            "expected a relative residual of at most {most:.0e} for a random right-hand side, got {:.1e}, with {perturbed} pivots \
             replaced. The matrix is singular to rounding or needs pivoting beyond dense blocks; use `Lu`",
            report.residual
        );
        Err(Error::Unsuitable { format: NAME, why })
    }

    /// Version, kind, times, and what the library reports.
    pub fn report(&self) -> &CuDssReport {
        &self.report
    }

    /// The factors, or `None` for a matrix without rows; an error if the latest refresh failed.
    fn valid(&self) -> krysp_solvers::Result<Option<&Factors<T>>> {
        if self.is_valid {
            return Ok(self.factors.as_ref());
        }
        let why = "CuDss has no factors, because its latest refresh failed: refresh it again";
        Err(krysp_solvers::Error::Backend(why.into()))
    }
}

/// Kinds to try, one after the other.
fn kinds<T: Real>(csr: &Csr<T>, is_weak: bool) -> Vec<CuDssKind> {
    use CuDssKind::{General, PositiveDefinite, Symmetric};
    // the tests are those of `Ldl`
    let is_symmetric =
        || check_symmetric(csr).is_ok() || csr.check_symmetric(super::ldl::ROUNDED * T::EPSILON).is_ok();
    if is_weak || !is_symmetric() {
        return vec![General];
    }
    match csr.diagonal_entries().iter().all(|&entry| entry > T::zero()) {
        true => vec![PositiveDefinite, Symmetric, General],
        false => vec![Symmetric, General],
    }
}

/// A refresh keeps the analysis, which includes a matching; values of an operator on the same GPU do not leave it.
/// If the kind was not declared, and the new values do not suit it, the matrix is analysed again.
impl<T: Real> Refresh<T> for CuDss<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_alike(a, self.space.host(), &self.pattern)?;
        let gpu = self.space.gpu().clone();
        if self.pattern.rows() == 0 {
            return Ok(());
        }
        self.is_valid = false;
        if let Some(factors) = &mut self.factors {
            a.copy_values_to(&gpu, factors.matrix_mut())?;
            match self.factorize() {
                Err(Error::Unsuitable { .. }) if self.declared.is_none() => {}
                outcome => return outcome,
            }
        }
        // free the memory of the factors for the new ones
        self.factors = None;
        *self = CuDss::build(&gpu, a, self.declared)?;
        Ok(())
    }
}

impl<T: Real> LinearOperator for CuDss<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, r: &CudaVector<T>, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        self.valid()?.map_or(Ok(()), |factors| factors.solve(&r.entries, &mut z.entries)).map_err(failed)
    }

    fn apply_many(
        &self,
        r: &MultiVector<CudaVector<T>>,
        z: &mut MultiVector<CudaVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let (r, mut z) = open_columns(self, r, z)?;
        self.valid()?.map_or(Ok(()), |factors| factors.solve_many(&r, &mut z)).map_err(failed)
    }

    fn bytes(&self) -> usize {
        self.report.factor_entries * size_of::<T>()
    }
}
