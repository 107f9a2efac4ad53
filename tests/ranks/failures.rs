//! If one rank fails, all ranks end with its message.

use crate::{cuts, part, share, try_share};
use krysp::ranks::{RankMatrix, Ranks};
use krysp::solvers::{Error, OperatorFn};
use krysp::testing::matrices;
use krysp::{BasicVector, Cg, LinearOperator, Outcome};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The rank that fails.
fn culprit(ranks: &Ranks) -> usize {
    ranks.size() / 2
}

/// A column out of range on one rank. The ranks can continue afterwards.
pub(super) fn bad_rows(ranks: &Ranks) {
    let column = if ranks.rank() == culprit(ranks) { 1_000_000 } else { ranks.rank() as u64 };
    let made = RankMatrix::from_rows(ranks, &[0, 1], &[column], &[1.0]);
    let message = made.unwrap_err().to_string();
    assert!(message.contains("column 1000000"), "{message}");
    assert!(message.contains("rank") == (ranks.rank() != culprit(ranks)), "{message}");
    let made = RankMatrix::from_rows(ranks, &[0, 1], &[ranks.rank() as u64], &[1.0]).unwrap();
    assert!(Cg::new(&made).solve(&[1.0]).unwrap().report.converged());
    // offsets that do not match the entries
    let offsets: &[usize] = if ranks.rank() == culprit(ranks) { &[0, 2] } else { &[0, 1] };
    assert!(RankMatrix::from_rows(ranks, offsets, &[0], &[1.0]).is_err());
}

/// A right-hand side of another length on one rank.
pub(super) fn wrong_length(ranks: &Ranks) {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let b =
        vec![1.0; cut[ranks.rank() + 1] - cut[ranks.rank()] + usize::from(ranks.rank() == culprit(ranks))];
    let solved = try_share(ranks, &a, cut).and_then(|rows| Ok(Cg::new(&rows).solve(&b)?));
    let message = solved.unwrap_err().to_string();
    assert!(message.contains("`b`"), "{message}");
}

/// NaN on one rank is an outcome on all ranks, not an error.
pub(super) fn not_a_number(ranks: &Ranks) {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let rows = share(ranks, &a, cut);
    let mut b = part(ranks, &matrices::vector(a.rows()), cut).to_vec();
    if ranks.rank() == culprit(ranks) {
        b[0] = f64::NAN;
    }
    let report = Cg::new(&rows).solve(&b).unwrap().report;
    assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
}

/// A preconditioner that fails on one rank, in the middle of a solve.
pub(super) fn preconditioner_that_fails(ranks: &Ranks) {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let (rows, b) = (share(ranks, &a, cut), matrices::vector(a.rows()));
    let (calls, fails) = (AtomicUsize::new(0), ranks.rank() == culprit(ranks));
    let m = OperatorFn::new(rows.domain(), rows.range(), |x: &krysp::ranks::RankVector<f64>, y: &mut _| {
        if fails && calls.fetch_add(1, Relaxed) == 5 {
            return Err(Error::Backend("out of coffee".into()));
        }
        krysp::ranks::RankVector::copy_from(y, x);
        Ok(())
    });
    let message = Cg::new(&rows).preconditioner(m).solve(part(ranks, &b, cut)).unwrap_err().to_string();
    assert!(message.contains("out of coffee"), "{message}");
    // these ranks cannot be used again: later calls return errors without waiting
    assert!(Cg::new(&rows).solve(part(ranks, &b, cut)).is_err());
}

/// A rank that panics outside of any call of this library.
pub(super) fn panic_of_one(ranks: &Ranks) {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let b = matrices::vector(a.rows());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ranks.run(|| {
            let rows = try_share(ranks, &a, cut)?;
            if ranks.rank() == culprit(ranks) {
                // a panic that prints nothing
                std::panic::resume_unwind(Box::new("as planned"));
            }
            let mut solver =
                Cg::new(&rows).rtol(0.0).max_iterations(usize::MAX).stagnation_window(usize::MAX);
            krysp::Result::Ok(solver.solve(part(ranks, &b, cut))?)
        })
    }));
    match ended {
        Err(_) => assert_eq!(ranks.rank(), culprit(ranks)),
        Ok(result) => assert!(result.unwrap_err().to_string().contains("panicked")),
    }
}
