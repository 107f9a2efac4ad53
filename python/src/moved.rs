//! Solves that begin on arrays of the user, and go on with a copy of the matrix when that pays: numbered so that rows read `x`
//! from near, and in the format that is fastest then.

use crate::matrix::Number;
use crate::solve::{OnHost, System, Wishes, by_name, joined};
use krysp::formats::CsrRef;
use krysp::plan::{iterations_expected, nearer};
use krysp::solvers::{Cost, Diagonal, Form, Identity};
use krysp::{Host, HostVector, LinearOperator, Operator, Outcome, Progress, Report, Space, Vector};

/// What the copy takes, in products with the arrays of the user: 90 to 130 were measured.
const COPYING: f64 = 90.0;

/// The part of later iterations that it saves: 25 to 78 hundredths were measured.
const SAVED: f64 = 0.5;

/// The part of the iterations made that is for nothing, as the method begins anew: 0 to 1 were measured.
const LOST: f64 = 0.5;

/// Before so many iterations nobody knows how many there will be.
const SEEN: usize = 16;

/// The memory that is needed on the way, as a multiple of the arrays of the user: the matrix sorted, renumbered and stored.
const ON_THE_WAY: usize = 5;

/// Follows the residual of a solve.
pub(crate) struct Ahead {
    /// What the copy takes, in iterations.
    copying: f64,
    residuals: Vec<f64>,
    look_at: usize,
}

impl Ahead {
    pub(crate) fn new(cost: Cost) -> Ahead {
        Ahead { copying: COPYING / cost.products, residuals: vec![], look_at: SEEN }
    }

    /// Notes a residual. Returns whether a copy pays.
    pub(crate) fn pays_to_move(&mut self, progress: &Progress) -> bool {
        self.residuals.push(progress.residual);
        let made = self.residuals.len();
        if made < self.look_at {
            return false;
        }
        self.look_at = made + made / 4;
        SAVED * iterations_expected(&self.residuals, progress.threshold) >= self.copying + LOST * made as f64
    }
}

/// Whether a preconditioner can come along.
pub(crate) fn can_move<T: Number>(m: &OnHost<'_, T>) -> bool {
    matches!(m.form(), Form::Identity | Form::Diagonal(_))
}

/// A solve that may move to a copy of its matrix.
pub(crate) fn solve<T: Number>(
    wishes: &Wishes,
    a: &CsrRef<'_, T>,
    m: &OnHost<'_, T>,
    system: &mut System<'_, HostVector<T>>,
) -> krysp::solvers::Result<Report> {
    let first = by_name(&wishes.that_may_move(), a, m, system, None, None)?;
    if first.outcome != Outcome::Stopped {
        return Ok(first);
    }
    let rest = wishes.after(&first);
    let fits = Host.free_memory().is_none_or(|free| free / ON_THE_WAY >= a.bytes());
    let second = match fits.then(|| copied(wishes, a, m)) {
        Some(Ok((a, m))) => by_name(&rest, &a, &*m, system, None, None),
        // where memory is short all stays where it is
        Some(Err(_)) | None => by_name(&rest, a, m, system, None, None),
    };
    Ok(joined(first, second?))
}

/// The matrix and the preconditioner where rows read `x` from near.
fn copied<T: Number>(
    wishes: &Wishes,
    a: &CsrRef<'_, T>,
    m: &OnHost<'_, T>,
) -> krysp::Result<(Operator<HostVector<T>>, OnHost<'static, T>)> {
    let mut csr = a.to_csr()?;
    if let Some(renumbered) = nearer(&Host, &csr)? {
        csr = renumbered;
    }
    let symmetric = match wishes.needs_symmetry() {
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
