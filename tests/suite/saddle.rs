//! Block preconditioners of saddle point systems: laws of operators, iterations that do not depend on the
//! mesh, detected fields.

use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    BlockSolver, Csr, Error, Fgmres, HostVector, LinearOperator, Minres, Permutation, Refresh,
    SaddleEstimate, SaddlePoint, SaddlePointOptions, Schur, Space, gallery,
};

fn rhs(n: usize) -> Vec<f64> {
    laws::numbers(n, 3)
}

/// Iterations of FGMRES with the block triangular preconditioner.
fn triangular(a: &Csr<f64>, options: SaddlePointOptions<f64>, b: &[f64]) -> usize {
    let m = SaddlePoint::with(a, options).unwrap();
    let report = Fgmres::new(a).preconditioner(m).restart(100).rtol(1e-8).solve(b).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations
}

/// Iterations of MINRES with the block diagonal preconditioner.
fn diagonal(a: &Csr<f64>, options: SaddlePointOptions<f64>, b: &[f64]) -> usize {
    let m = SaddlePoint::with(a, SaddlePointOptions { block_diagonal: true, ..options }).unwrap();
    let report = Minres::new(a).preconditioner(m).rtol(1e-8).solve(b).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations
}

fn with(schur: Schur<f64>) -> SaddlePointOptions<f64> {
    SaddlePointOptions { schur, ..SaddlePointOptions::default() }
}

fn every_schur(m: usize) -> [Schur<f64>; 4] {
    let unit: Vec<_> = (0..m).map(|i| (i, i, 0.5)).collect();
    [
        Schur::Diagonal,
        Schur::Sparse,
        Schur::LeastSquares,
        Schur::Given(Csr::from_triplets(m, m, &unit).unwrap()),
    ]
}

/// Stokes flow in a closed box, whose pressure is unique up to a constant: the matrix without the faces at
/// the outlet.
fn enclosed(cells: [usize; 2]) -> Csr<f64> {
    let a = gallery::stokes::<f64>(&cells).unwrap();
    let outlet = cells[0] * cells[1];
    let kept: Vec<usize> =
        (0..a.rows()).filter(|row| *row >= outlet || row % cells[0] + 1 < cells[0]).collect();
    let place: Vec<Option<usize>> = (0..a.rows()).map(|row| kept.binary_search(&row).ok()).collect();
    let inside = a.triplets().filter_map(|(i, j, value)| Some((place[i]?, place[j]?, value)));
    Csr::from_triplets(kept.len(), kept.len(), &inside.collect::<Vec<_>>()).unwrap()
}

#[test]
fn laws_of_operators() {
    let flow = gallery::stokes::<f64>(&[9, 7]).unwrap();
    let reordered = flow.reordered(&Permutation::clustered(&flow, 60).unwrap()).unwrap();
    for a in [flow, reordered] {
        for schur in every_schur(63) {
            for block_diagonal in [false, true] {
                let options = SaddlePointOptions { block_diagonal, ..with(schur.clone()) };
                let build = || SaddlePoint::with(&a, options.clone()).unwrap();
                let m = build();
                laws::same_on_all_threads(&|| Ok(build())).unwrap();
                laws::stale_values(&m).unwrap();
                laws::second_product(&m).unwrap();
                laws::operator_fusions(&m, Agreement::Bitwise).unwrap();
                laws::sizes_refused(&m).unwrap();
            }
        }
    }
}

#[test]
fn iterations_do_not_depend_on_the_mesh() {
    for [coarse, fine] in [[&[48, 48][..], &[128, 128]], [&[10, 10, 10], &[18, 18, 18]]] {
        let [coarse, fine] = [coarse, fine].map(|cells| gallery::stokes::<f64>(cells).unwrap());
        for solve in [triangular, diagonal] {
            let count = |a: &Csr<f64>| {
                let options = SaddlePointOptions { first: BlockSolver::Amg, ..Default::default() };
                solve(a, options, &rhs(a.rows()))
            };
            let (few, many) = (count(&coarse), count(&fine));
            assert!(
                2 * many <= 3 * few,
                "{few} iterations for {} rows, {many} for {}",
                coarse.rows(),
                fine.rows()
            );
        }
    }
}

#[test]
fn exact_blocks_end_after_a_few_steps() {
    // with A = 2 I the matrix B D⁻¹ Bᵀ is the Schur complement, and so is the least-squares commutator
    let a = gallery::stokes::<f64>(&[8, 6]).unwrap();
    let velocities = a.rows() - 48;
    let entries = a.triplets().filter(|(i, j, _)| i == j || *i >= velocities || *j >= velocities);
    let entries: Vec<_> = entries.map(|(i, j, value)| (i, j, if i == j { 2.0 } else { value })).collect();
    let a = Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
    let b = rhs(a.rows());
    for schur in [Schur::Automatic, Schur::Sparse, Schur::LeastSquares] {
        assert!(triangular(&a, with(schur.clone()), &b) <= 2, "{schur:?}");
        assert!(diagonal(&a, with(schur), &b) <= 3);
    }
    assert!(SaddlePoint::new(&a).unwrap().to_string().contains("Cholesky of B D⁻¹ Bᵀ + C"));
}

#[test]
fn signs_and_order_of_the_blocks_do_not_matter() {
    let a = gallery::stokes::<f64>(&[12, 10]).unwrap();
    let (n, velocities) = (a.rows(), a.rows() - 120);
    let b = rhs(n);
    let expected = every_schur(120).map(|schur| triangular(&a, with(schur), &b));
    // continuity equations with the other sign: the matrix is not symmetric any more
    let flipped: Vec<f64> =
        a.triplets().map(|(i, _, value)| if i >= velocities { -value } else { value }).collect();
    let flipped = a.with_values(&flipped).unwrap();
    let other: Vec<f64> = (0..n).map(|i| if i >= velocities { -b[i] } else { b[i] }).collect();
    let reordered = a.reordered(&Permutation::clustered(&a, 50).unwrap()).unwrap();
    for (schur, expected) in every_schur(120).into_iter().zip(expected) {
        let found = triangular(&flipped, with(schur.clone()), &other);
        assert!(found.abs_diff(expected) <= 2, "{schur:?}: {found} and {expected}");
        let found = triangular(&reordered, with(schur), &b);
        assert!(found.abs_diff(expected) <= 2, "{found} and {expected}");
    }
    let refused = SaddlePoint::block_diagonal(&flipped).unwrap_err();
    assert!(refused.to_string().contains("symmetric"), "{refused}");
}

#[test]
fn enclosed_flow_has_a_singular_schur_complement() {
    let a = enclosed([24, 24]);
    // a right-hand side of forces only, as no fluid leaves the box
    let mut b = rhs(a.rows());
    b[a.rows() - 576..].fill(0.0);
    for schur in [Schur::Diagonal, Schur::Sparse, Schur::LeastSquares] {
        for second in [BlockSolver::Complete, BlockSolver::Amg] {
            let options = SaddlePointOptions { second, ..with(schur.clone()) };
            assert!(triangular(&a, options.clone(), &b) <= 120);
            if matches!(schur, Schur::Diagonal) {
                assert!(diagonal(&a, options, &b) <= 120);
            }
        }
    }
}

#[test]
fn fields_are_found() {
    let a = gallery::stokes::<f64>(&[5, 4]).unwrap();
    let fields = SaddlePoint::fields(&a).unwrap();
    assert_eq!(fields.second, 20);
    assert!(fields.of_row.iter().enumerate().all(|(row, &field)| (field == 1) == (row + 20 >= a.rows())));
    // a diagonal −C and small numbers left by assembly
    for own in [-0.1, 1e-17] {
        let diagonal = (a.rows() - 20..a.rows()).map(|i| (i, i, own));
        let entries: Vec<_> = a.triplets().chain(diagonal).collect();
        let with_c = Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap();
        assert_eq!(SaddlePoint::fields(&with_c).unwrap(), fields);
        assert!(triangular(&with_c, with(Schur::Automatic), &rhs(a.rows())) <= 40);
    }
    let estimate = SaddleEstimate::new(&a, &fields, true);
    assert!(estimate.application > 0.0 && estimate.setup > estimate.application, "{estimate:?}");
}

#[test]
fn what_is_no_saddle_point_is_refused() {
    let refused = |entries: &[(usize, usize, f64)], reason: &str| {
        let a = Csr::from_triplets(4, 4, entries).unwrap();
        let error = SaddlePoint::new(&a).unwrap_err();
        assert!(matches!(&error, Error::Unsuitable { .. }) && error.to_string().contains(reason), "{error}");
    };
    let diagonal = [(0, 0, 2.0), (1, 1, 2.0)];
    let coupled = [(0, 2, 1.0), (2, 0, 1.0), (1, 3, 1.0), (3, 1, 1.0)];
    let all = |more: &[(usize, usize, f64)]| [&diagonal[..], &coupled, more].concat();
    SaddlePoint::new(&Csr::from_triplets(4, 4, &all(&[])).unwrap()).unwrap();
    refused(&all(&[(2, 2, 1.0), (3, 3, 1.0)]), "all diagonal entries are positive");
    refused(&all(&[(2, 3, 1.0), (3, 2, 1.0)]), "neither zero nor negative semidefinite");
    refused(&[(0, 1, 1.0), (1, 0, 1.0), (2, 3, 1.0), (3, 2, 1.0)], "no diagonal entry is positive");
    refused(&[diagonal[0], diagonal[1], coupled[0], coupled[1]], "row 3 has a zero diagonal");
    refused(
        &[diagonal[0], (0, 2, 1.0), (2, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (0, 3, 1.0), (3, 0, 1.0)],
        "the matrix is singular",
    );
    refused(&[&diagonal[..], &[(2, 0, 1.0), (3, 1, 1.0), (0, 1, 1.0)]].concat(), "no mirrored entry");
    let a = Csr::from_triplets(4, 4, &all(&[])).unwrap();
    for fields in [vec![0, 0, 1], vec![0, 0, 1, 2], vec![0; 4], vec![1; 4]] {
        let options = SaddlePointOptions { fields: Some(fields), ..SaddlePointOptions::default() };
        SaddlePoint::with(&a, options).unwrap_err();
    }
    let wrong = Schur::Given(Csr::from_triplets(3, 3, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0)]).unwrap());
    assert!(SaddlePoint::with(&a, with(wrong)).unwrap_err().to_string().contains("3 rows"));
    let definite = matrices::stencil7(3).csr::<f64>().unwrap();
    SaddlePoint::new(&definite).unwrap_err();
}

#[test]
fn new_values_are_those_of_a_new_preconditioner() {
    let a = gallery::stokes::<f64>(&[9, 8]).unwrap();
    let values: Vec<f64> =
        a.triplets().map(|(i, j, value)| if i == j { 1.5 * value } else { value }).collect();
    let changed = a.with_values(&values).unwrap();
    for schur in every_schur(72) {
        let mut refreshed = SaddlePoint::with(&a, with(schur.clone())).unwrap();
        refreshed.refresh(&changed).unwrap();
        let built = SaddlePoint::with(&changed, with(schur.clone())).unwrap();
        let r = a.domain().vector(&rhs(a.rows())).unwrap();
        let image = |m: &SaddlePoint<f64>| {
            let mut z: HostVector<f64> = a.domain().zeros().unwrap();
            m.apply(&r, &mut z).unwrap();
            z.as_slice().to_vec()
        };
        let (one, other) = (image(&refreshed), image(&built));
        let apart = one.iter().zip(&other).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        let largest = other.iter().fold(0.0_f64, |most, y| most.max(y.abs()));
        assert!(apart <= 1e-12 * largest, "{schur:?}: {apart:e} relative to {largest:e}");
        // another pattern
        let smaller = gallery::stokes::<f64>(&[8, 9]).unwrap();
        refreshed.refresh(&smaller).unwrap_err();
    }
}
