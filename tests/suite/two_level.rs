//! The two-level preconditioner: laws, iterations saved, and errors.

use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    Cg, CoarseSpace, Csr, Error, Fsai, HostVector, Jacobi, LinearOperator, Permutation, Refresh, Space,
    TwoLevel,
};

fn iterations(a: &Csr<f64>, m: impl LinearOperator<Vector = HostVector<f64>>) -> usize {
    let report = Cg::new(a).preconditioner(m).rtol(1e-8).solve(&laws::numbers(a.rows(), 3)).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations
}

/// The vector with 1 in unknown `unknown` of every node of `size` unknowns, and 0 elsewhere.
fn constant(n: usize, size: usize, unknown: usize) -> Vec<f64> {
    (0..n).map(|row| f64::from(u8::from(row % size == unknown))).collect()
}

#[test]
fn laws_of_operators() {
    let stencil = matrices::stencil7(13).csr::<f64>().unwrap();
    for a in [
        stencil.reordered(&Permutation::clustered(&stencil, 300).unwrap()).unwrap(),
        stencil,
        matrices::elasticity(6).csr::<f64>().unwrap(),
        Csr::from_triplets(40, 40, &(0..40).map(|i| (i, i, 2.0)).collect::<Vec<_>>()).unwrap(),
        Csr::from_triplets::<usize>(0, 0, &[]).unwrap(),
    ] {
        let build = || TwoLevel::new(&a);
        let over = || TwoLevel::with_inner(Fsai::new(&a)?, CoarseSpace::new(&a, 9)?, &a);
        let (m, n) = (build().unwrap(), over().unwrap());
        laws::same_on_all_threads(&|| Ok(build().unwrap())).unwrap();
        for m in [&m as &dyn LinearOperator<Vector = HostVector<f64>>, &n] {
            laws::stale_values(m).unwrap();
            laws::second_product(m).unwrap();
            laws::operator_fusions(m, Agreement::Bitwise).unwrap();
            laws::sizes_refused(m).unwrap();
        }
        laws::stale_values(&TwoLevel::new(&a.cast::<f32>()).unwrap()).unwrap();
    }
}

#[test]
fn the_preconditioner_is_symmetric_and_removes_the_coarse_part() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let m = TwoLevel::new(&a).unwrap();
    let aggregates = m.coarse().aggregates();
    assert!((20..=60).contains(&aggregates), "{aggregates}");
    let space = m.domain();
    let [x, y] = [4, 5].map(|seed| space.vector(&laws::numbers(a.rows(), seed)).unwrap());
    let [mut mx, mut my] = [0; 2].map(|_| space.zeros().unwrap());
    m.apply(&x, &mut mx).unwrap();
    m.apply(&y, &mut my).unwrap();
    let dot = |x: &HostVector<f64>, y: &HostVector<f64>| -> f64 {
        x.as_slice().iter().zip(y.as_slice()).map(|(x, y)| x * y).sum()
    };
    let (one, other) = (dot(&mx, &y), dot(&x, &my));
    assert!((one - other).abs() <= 1e-12 * dot(&mx, &mx).sqrt() * dot(&y, &y).sqrt(), "{one:e} {other:e}");
    assert!(dot(&mx, &x) > 0.0);
    // the vector of ones is in the coarse space: for the residual `A 1` the coarse correction, which is added to Jacobi's, is `1`
    let [mut residual, mut both, mut local] = [0; 3].map(|_| space.zeros().unwrap());
    a.apply(&space.vector(&vec![1.0; a.rows()]).unwrap(), &mut residual).unwrap();
    m.apply(&residual, &mut both).unwrap();
    m.inner().apply(&residual, &mut local).unwrap();
    let coarse = both.as_slice().iter().zip(local.as_slice()).map(|(both, local)| both - local);
    assert!(coarse.into_iter().all(|entry| (entry - 1.0).abs() <= 1e-10));
}

#[test]
fn a_coarse_space_saves_iterations() {
    let a = matrices::stencil7(30).csr::<f64>().unwrap();
    let jacobi = iterations(&a, Jacobi::new(&a).unwrap());
    let both = iterations(&a, TwoLevel::new(&a).unwrap());
    let clustered = a.reordered(&Permutation::clustered(&a, 1350).unwrap()).unwrap();
    let in_runs = TwoLevel::new(&clustered).unwrap();
    assert!((400..=640).contains(&in_runs.coarse().unknowns()), "{}", in_runs.coarse().unknowns());
    let in_runs = iterations(&clustered, in_runs);
    let fsai = iterations(&a, Fsai::new(&a).unwrap());
    let over = TwoLevel::with_inner(Fsai::new(&a).unwrap(), CoarseSpace::new(&a, 512).unwrap(), &a);
    let over = iterations(&a, over.unwrap());
    println!("jacobi {jacobi} two-level {both} in runs {in_runs} fsai {fsai} two-level fsai {over}");
    assert!(10 * jacobi >= 15 * both && 10 * jacobi >= 15 * in_runs && over < fsai && over < both);
}

#[test]
fn constants_of_nodes_are_the_default_and_dependent_modes_are_allowed() {
    let a = matrices::elasticity(8).csr::<f64>().unwrap();
    let n = a.rows();
    let found = TwoLevel::new(&a).unwrap();
    let count = found.coarse().aggregates();
    assert_eq!(found.coarse().unknowns(), 3 * count);
    let given = |modes: &[Vec<f64>]| {
        let coarse = CoarseSpace::with_near_null_space(&a, count * modes.len(), modes).unwrap();
        TwoLevel::with_inner(Jacobi::new(&a).unwrap(), coarse, &a).unwrap()
    };
    let constants = [0, 1, 2].map(|unknown| constant(n, 3, unknown)).to_vec();
    let sum = (0..n).map(|row| constants.iter().map(|mode| mode[row]).sum()).collect();
    let dependent = [constants.clone(), vec![sum]].concat();
    let x = found.domain().vector(&laws::numbers(n, 6)).unwrap();
    let [mut y, mut z] = [0; 2].map(|_| found.domain().zeros().unwrap());
    found.apply(&x, &mut y).unwrap();
    for modes in [constants, dependent] {
        given(&modes).apply(&x, &mut z).unwrap();
        for (y, z) in y.as_slice().iter().zip(z.as_slice()) {
            assert!((y - z).abs() <= 1e-9 * y.abs().max(1e-3), "{y:e} {z:e}");
        }
    }
    let none: [Vec<f64>; 0] = [];
    assert!(matches!(CoarseSpace::with_near_null_space(&a, 9, &none), Err(Error::Option { .. })));
    assert!(CoarseSpace::with_near_null_space(&a, 9, &[vec![1.0; n - 1]]).is_err());
}

#[test]
fn a_refresh_replaces_the_values() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let twice = a.with_values(&a.entries().iter().map(|v| 2.0 * v).collect::<Vec<_>>()).unwrap();
    let mut m = TwoLevel::new(&twice).unwrap();
    m.refresh(&a).unwrap();
    let (x, fresh) = (m.domain().vector(&laws::numbers(a.rows(), 1)).unwrap(), TwoLevel::new(&a).unwrap());
    let [mut y, mut z] = [0; 2].map(|_| m.domain().zeros().unwrap());
    m.apply(&x, &mut y).unwrap();
    fresh.apply(&x, &mut z).unwrap();
    assert_eq!(y.as_slice(), z.as_slice());
    let other = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    assert!(m.refresh(&other).is_err());
}

#[test]
fn matrices_that_are_not_positive_definite_are_refused() {
    // rows sum to zero, so constants are in the null space
    let chain = (0..99).flat_map(|i| [(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    let neumann = Csr::from_triplets(100, 100, &chain.collect::<Vec<_>>()).unwrap();
    let refused = TwoLevel::new(&neumann).unwrap_err();
    let Error::CoarseNotPositive { aggregate, rows, row, pivot } = refused else { panic!("{refused}") };
    assert!(
        rows > 0 && row < 100 && aggregate < 4 && pivot.abs() < 1e-10,
        "{aggregate} {rows} {row} {pivot:e}"
    );
    let wide = Csr::from_triplets(2, 3, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(CoarseSpace::<f64>::new(&wide, 9), Err(Error::NotSquare { .. })));
}

/// In an unsymmetric pattern, the vertices that a search reaches depend on where it starts.
#[test]
fn aggregates_of_unsymmetric_patterns_have_every_unknown() {
    for (edges, seed) in [(20_000, 0), (60_000, 1), (120_000, 2)] {
        let a = matrices::rmat(12 + seed % 2, edges).csr::<f64>().unwrap();
        for run in [48, 96, 200] {
            let a = a.reordered(&Permutation::clustered(&a, run).unwrap()).unwrap();
            for unknowns in [8, 32, 128, 256] {
                assert!(CoarseSpace::new(&a, unknowns).unwrap().aggregates() > 0);
            }
        }
    }
}
