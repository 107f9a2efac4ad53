//! What is special about ranks that are threads: how they end, and how many threads each one has.

use crate::{cuts, share};
use krysp::ranks::{RankAmg, RankMatrix, RankSpace, Ranks};
use krysp::solvers::Scalar;
use krysp::testing::matrices;
use krysp::{BasicVector, CancelToken, Cg, Error, Interrupt, LinearOperator, Space};

/// An error of a program, which is neither an error of this library nor a string.
#[derive(Debug, PartialEq)]
enum Failed {
    OwnReason(usize),
    Library(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Library(error.to_string())
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

pub(super) fn results_are_in_the_order_of_ranks() {
    for count in [1, 2, 7] {
        let found = Ranks::threads(count, |ranks| {
            assert_eq!(ranks.size(), count);
            let threads = rayon::current_num_threads();
            let space = RankSpace::<f64>::new(ranks, 3)?;
            krysp::Result::Ok((ranks.rank(), threads, space.rows().start))
        });
        let threads = (rayon::current_num_threads() / count).max(1);
        let expected: Vec<_> = (0..count).map(|rank| (rank, threads, 3 * rank as u64)).collect();
        assert_eq!(found.unwrap(), expected);
    }
    assert!(Ranks::threads(0, |_| krysp::Result::Ok(())).is_err());
}

/// A solve that does not end by itself.
fn endless(ranks: &Ranks) -> krysp::Result<()> {
    let a = matrices::stencil7(24).csr::<f64>()?;
    let (is_first, b) = (ranks.rank() == 0, matrices::vector(a.rows()));
    let rows = RankMatrix::distribute(ranks, is_first.then_some(&a))?;
    let b = rows.scatter(is_first.then_some(&b[..]))?;
    Cg::new(&rows).rtol(0.0).max_iterations(usize::MAX).stagnation_window(usize::MAX).solve(&b)?;
    Ok(())
}

pub(super) fn the_error_is_that_of_the_rank_that_failed() {
    for failing in 0..3 {
        let failed = Ranks::threads(3, |ranks| {
            if ranks.rank() == failing {
                return Err(Failed::OwnReason(failing));
            }
            endless(ranks)?;
            Ok(())
        });
        assert_eq!(failed.unwrap_err(), Failed::OwnReason(failing));
    }
}

/// An error that says nothing of its cause.
#[derive(Debug, PartialEq)]
pub(super) struct Opaque(pub(super) Option<usize>);

impl From<Error> for Opaque {
    fn from(_: Error) -> Opaque {
        Opaque(None)
    }
}

impl std::fmt::Display for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the work failed")
    }
}

pub(super) fn the_cause_is_known_without_its_text() {
    let failed = Ranks::threads(3, |ranks| {
        if ranks.rank() == 2 {
            return Err(Opaque(Some(2)));
        }
        endless(ranks)?;
        Ok(())
    });
    assert_eq!(failed.unwrap_err(), Opaque(Some(2)));
}

/// An error that a rank has because of another one stays that of the other one, also if it is agreed on.
pub(super) fn an_error_that_is_passed_on_is_not_the_cause() {
    let failed = Ranks::threads(2, |ranks| {
        if ranks.rank() == 1 {
            return Err(Opaque(Some(1)));
        }
        let passed_on = endless(ranks);
        assert!(passed_on.is_err());
        ranks.all(passed_on)?;
        Ok(())
    });
    assert_eq!(failed.unwrap_err(), Opaque(Some(1)));
}

/// Products in which rank 1 reads an entry of rank 0, which reads none of rank 1 and would run ahead.
pub(super) fn a_slow_rank_receives_in_order() {
    const STEPS: usize = 200;
    let parts = Ranks::threads(2, |ranks| {
        let (offsets, columns): (&[usize], &[u64]) = match ranks.rank() {
            0 => (&[0, 1, 3], &[0, 0, 1]),
            _ => (&[0, 2, 4], &[1, 2, 2, 3]),
        };
        let a = RankMatrix::from_rows(ranks, offsets, columns, &vec![0.75; columns.len()])?;
        let mut x = a.domain().vector(&[1.0; 2])?;
        let mut y = a.range().zeros()?;
        for step in 0..STEPS {
            if ranks.rank() == 1 && step % 20 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            a.apply(&x, &mut y)?;
            std::mem::swap(&mut x, &mut y);
        }
        let mut own = [0.0_f64; 2];
        a.domain().store(&x, &mut own)?;
        krysp::Result::Ok(own)
    });
    let mut expected = [1.0_f64; 4];
    for _ in 0..STEPS {
        let x = expected;
        expected = std::array::from_fn(|row| 0.75 * x[row] + if row > 0 { 0.75 * x[row - 1] } else { 0.0 });
    }
    let found = parts.unwrap().concat();
    assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() <= 1e-12 * y), "{found:?}, {expected:?}");
}

pub(super) fn a_collective_error_is_that_of_the_rank_that_failed() {
    let failed = Ranks::threads(3, |ranks| {
        let column = if ranks.rank() == 1 { 1_000_000 } else { 0 };
        RankMatrix::from_rows(ranks, &[0, 1], &[column], &[1.0]).map(|_| ())
    });
    assert!(matches!(failed, Err(Error::Index { .. })), "{failed:?}");
}

pub(super) fn a_panic_ends_all() {
    let ended = std::panic::catch_unwind(|| {
        Ranks::threads(3, |ranks| {
            if ranks.rank() == 2 {
                // a panic that prints nothing
                std::panic::resume_unwind(Box::new("as planned"));
            }
            endless(ranks)
        })
    });
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"as planned"));
}

pub(super) fn nobody_waits_for_a_rank_that_has_ended() {
    let failed = Ranks::threads(3, |ranks| {
        if ranks.rank() > 0 {
            RankSpace::<f64>::new(ranks, 1)?;
        }
        krysp::Result::Ok(())
    });
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("rank 0 failed: ended its work before the others"), "{message}");
    // what is returned is of no use after its ranks have ended
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), 2)[0];
    let matrices = Ranks::threads(2, |ranks| krysp::Result::Ok(share(ranks, &a, cut))).unwrap();
    let (x, mut y) = (matrices[0].domain().zeros(), matrices[0].range().zeros().unwrap());
    assert!(matrices[0].apply(&x.unwrap(), &mut y).is_err());
}

/// Ranks that call different operations: the sum on one rank meets the gather of a length on the other.
pub(super) fn other_collective_operations_are_errors() {
    let failed = Ranks::threads(2, |ranks| {
        let space = RankSpace::<f64>::new(ranks, 3)?;
        if ranks.rank() == 0 {
            let x = space.vector(&[1.0; 3])?;
            x.dot(&x).read()?;
        } else {
            RankSpace::<f64>::new(ranks, 3)?;
        }
        krysp::Result::Ok(())
    });
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("called another collective operation"), "{message}");
}

pub(super) fn an_interruption_reaches_all() {
    let (a, token) = (matrices::stencil7(8).csr::<f64>().unwrap(), CancelToken::new());
    let set_up = |ranks: &Ranks| {
        let rows = share(ranks, &a, &cuts(a.rows(), ranks.size())[0]);
        if ranks.rank() == 1 {
            token.cancel();
        }
        // all ranks wait here for the cancellation, so that each of them finds it by itself in the setup
        RankSpace::<f64>::new(ranks, 1)?;
        krysp::Result::Ok(RankAmg::new(&rows).err())
    };
    let errors = Interrupt::new(&token).run(|| Ranks::threads(3, set_up)).unwrap();
    let is_interruption = |error: &Option<Error>| matches!(error, Some(Error::Interrupted(_)));
    assert!(errors.iter().all(is_interruption), "{errors:?}");
}
