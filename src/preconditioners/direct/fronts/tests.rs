//! Tests of suspended factorizations: their budgets, and the error if one is resumed after a failure.

use super::super::DirectOptions;
use super::super::tree::{Both, Expected};
use super::*;
use crate::ordering::minimum_degree;
use crate::testing::matrices;

fn tree(a: &Csr<f64>, budget: Budget) -> Tree {
    let both = Both::new([a; 2]);
    let order = minimum_degree::of_sum(a, a).unwrap();
    Tree::new(Expected::new(order, &both).unwrap(), &both, [8; 2], budget).unwrap()
}

#[test]
fn runs_of_more_than_one_step_keep_their_budget() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let budget = Budget::new("test", DirectOptions::default(), 0);
    let tree = tree(&a, budget);
    let most = 0.1 * tree.work();
    let mut progress = Progress::new(&tree, &a, Kind::Symmetric);
    let (mut done, mut complete, mut several) = (0, false, 0);
    while !complete {
        complete = progress.run(&tree, &a, Pivoting::Regular, budget, most).unwrap();
        let steps = &progress.steps[done..progress.pieces.len()];
        let work: f64 = steps.iter().cloned().flatten().map(|at| tree.fronts[at].work()).sum();
        assert!(
            !steps.is_empty() && (steps.len() == 1 || work <= 1.000001 * most),
            "{steps:?}: {work} {most}"
        );
        several += usize::from(steps.len() > 1);
        done = progress.pieces.len();
    }
    assert!(done == progress.steps.len() && several > 0, "{done} {several}");
}

#[test]
fn no_front_is_assembled_without_what_its_children_leave() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let budget = Budget::new("test", DirectOptions::default(), 0);
    let tree = tree(&a, budget);
    let mut progress = Progress::new(&tree, &a, Kind::Symmetric);
    while progress.pieces.len() + 1 < progress.steps.len() {
        assert!(!progress.run(&tree, &a, Pivoting::Regular, budget, 1e-3).unwrap());
    }
    // as if the last front had failed after its assembly
    progress.rests.fill_with(Mutex::default);
    let refused = progress.run(&tree, &a, Pivoting::Regular, budget, f64::INFINITY);
    assert!(matches!(refused, Err(Error::NoOperator)), "{refused:?}");
}

#[test]
fn forged_positions_are_refused_or_harmless() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let (n, budget) = (a.rows(), Budget::new("test", DirectOptions::default(), 0));
    let tree = tree(&a, budget);
    let (b, mut refused) = (vec![1.0; n], 0);
    for kind in [Kind::Symmetric, Kind::General] {
        let symmetric = kind == Kind::Symmetric;
        let mut progress = Progress::new(&tree, &a, kind);
        progress.run(&tree, &a, Pivoting::Regular, budget, f64::INFINITY).unwrap();
        let mut factors = progress.factors();
        assert!(factors.fit(&tree, symmetric) && factors.pieces.len() > 8);
        for piece in 0..factors.pieces.len() {
            for at in (0..factors.pieces[piece].places.len()).step_by(7) {
                let place = factors.pieces[piece].places[at];
                factors.pieces[piece].places[at] = (place + 1 + at as u32) % n as u32;
                factors.units = OnceLock::new();
                if factors.fit(&tree, symmetric) {
                    factors.solve(&tree, symmetric, &[&b], &mut [&mut vec![0.0; n]], &mut Default::default());
                } else {
                    refused += 1;
                }
                factors.pieces[piece].places[at] = place;
            }
        }
        let dropped = factors.pieces.pop();
        assert!(dropped.is_some() && !factors.fit(&tree, symmetric));
    }
    assert!(refused > 50, "{refused}");
}
