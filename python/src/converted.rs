//! Solves that start on the user's arrays, and continue on a converted copy of the matrix as soon as that is
//! expected to save time. The copy is reordered for locality in `x` (where that helps) and stored in the
//! fastest format.

use crate::matrix::Number;
use crate::solve::{OnHost, Options, System, by_name, joined};
use krysp::formats::CsrRef;
use krysp::plan::{iterations_expected, nearer};
use krysp::solvers::{Cost, Diagonal, Form, Identity};
use krysp::{BasicVector, Host, HostVector, LinearOperator, Operator, Outcome, Progress, Report, Space};

/// Cost of the copy, in matrix-vector products with the user's arrays. Measured: 90 to 130.
const COPY_COST: f64 = 90.0;

/// Fraction of the time of later iterations that the copy saves. Measured: 0.25 to 0.78.
const SAVED: f64 = 0.5;

/// Fraction of the iterations so far that is lost, because the method restarts. Measured: 0 to 1.
const LOST: f64 = 0.5;

/// Number of residuals before the first estimate of the remaining iterations. Guess.
const FIRST_ESTIMATE: usize = 16;

/// Peak memory of the conversion, as a multiple of the user's arrays: three for copies of the matrix
/// (sorted, reordered and converted), and two for workspace. Guess.
const PEAK_MEMORY: usize = 5;

/// Decides from the residuals of a solve when a converted copy is expected to save time.
pub(crate) struct CopyDecision {
    /// Cost of the copy, in iterations.
    copy_cost: f64,
    residuals: Vec<f64>,
    look_at: usize,
}

impl CopyDecision {
    pub(crate) fn new(cost: Cost) -> CopyDecision {
        CopyDecision { copy_cost: COPY_COST / cost.products, residuals: vec![], look_at: FIRST_ESTIMATE }
    }

    /// Stores a residual. Returns whether a copy pays: `SAVED * remaining >= copy_cost + LOST * made`, in iterations.
    pub(crate) fn copy_pays(&mut self, progress: &Progress) -> bool {
        self.residuals.push(progress.residual);
        let made = self.residuals.len();
        if made < self.look_at {
            return false;
        }
        self.look_at = made + made / 4;
        SAVED * iterations_expected(&self.residuals, progress.threshold)
            >= self.copy_cost + LOST * made as f64
    }
}

/// Returns whether a preconditioner can be converted together with the matrix.
pub(crate) fn can_convert<T: Number>(m: &OnHost<'_, T>) -> bool {
    matches!(m.form(), Form::Identity | Form::Diagonal(_))
}

/// Solves, and switches to a converted copy of the matrix if that pays.
pub(crate) fn solve<T: Number>(
    options: &Options,
    a: &CsrRef<'_, T>,
    m: &OnHost<'_, T>,
    system: &mut System<'_, HostVector<T>>,
) -> krysp::solvers::Result<Report> {
    let first = by_name(&options.until_copy_pays(), a, m, system, None, None)?;
    if first.outcome != Outcome::Stopped {
        return Ok(first);
    }
    let rest = options.after(&first);
    let fits = Host.free_memory().is_none_or(|free| free / PEAK_MEMORY >= a.bytes());
    let second = match fits.then(|| copied(options, a, m)) {
        Some(Ok((a, m))) => by_name(&rest, &a, &*m, system, None, None),
        // without enough memory for a copy, continue on the user's arrays
        Some(Err(_)) | None => by_name(&rest, a, m, system, None, None),
    };
    Ok(joined(first, second?))
}

/// The matrix and the preconditioner, reordered for locality where that helps, and the matrix in the fastest format.
fn copied<T: Number>(
    options: &Options,
    a: &CsrRef<'_, T>,
    m: &OnHost<'_, T>,
) -> krysp::Result<(Operator<HostVector<T>>, OnHost<'static, T>)> {
    let mut csr = a.to_csr()?;
    if let Some(reordered) = nearer(&Host, &csr)? {
        csr = reordered;
    }
    let symmetric = match options.needs_symmetry() {
        true => Operator::symmetric(&csr, &Host).ok(),
        false => None,
    };
    let a = symmetric.map_or_else(|| Operator::auto(&csr, &Host), Ok)?;
    let m: OnHost<'static, T> = match m.form() {
        Form::Diagonal(d) => {
            let (mut entries, mut moved) = (vec![T::default(); d.as_slice().len()], a.domain().zeros()?);
            d.space().store(d, &mut entries)?;
            a.domain().load(&entries, &mut moved)?;
            Box::new(Diagonal::new(moved))
        }
        _ => Box::new(Identity::new(a.domain())),
    };
    Ok((a, m))
}
