//! Features of multigrid that are the same in every memory: host memory.

use crate::multigrid_on_host::OnHost;
use krysp::testing::laws::{self, Multigrid, Relation};
use krysp::testing::matrices;
use krysp::{BiCgStab, Csr};

/// The option matters where the matrix is symmetric, with one unknown per node.
#[test]
fn the_finest_prolongator_is_smoothed_on_request() {
    let grid = matrices::stencil7(11).csr::<f64>().unwrap();
    let convection = |i: usize, j: usize, v: f64| if j == i + 1 { 0.9 * v } else { v };
    let flow: Vec<f64> = grid.triplets().map(|(i, j, v)| convection(i, j, v)).collect();
    let flow = grid.with_values(&flow).unwrap();
    let iterations = |a: &Csr<f64>| {
        [false, true].map(|smooth_finest| {
            let m = OnHost.build(a, &[], smooth_finest).unwrap();
            BiCgStab::new(a).preconditioner(&m).solve(&matrices::vector(a.rows())).unwrap().report.history
        })
    };
    let [unsmoothed, smoothed] = iterations(&grid);
    assert_ne!(unsmoothed, smoothed);
    let [unsmoothed, smoothed] = iterations(&flow);
    assert_eq!(unsmoothed, smoothed);
}

#[test]
fn features_in_host_memory() {
    let relation = Relation { same_aggregates: true, iterations: |host| host..=host };
    laws::multigrid(&OnHost, &OnHost, relation).unwrap();
}
