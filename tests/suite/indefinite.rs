//! MINRES on symmetric systems, definite or not: its behaviour in theory, and saddle points of real problems.

use crate::truth::{check, norm, residual};
use krysp::io::read_matrix;
use krysp::solvers::Identity;
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::testing::needed_matrix;
use krysp::{Csr, HostVector, Jacobi, LinearOperator, Minres, Outcome, Solution};

/// A matrix with `k` distinct eigenvalues, of both signs for `k` of two or more.
fn indefinite(n: usize, k: usize) -> Csr<f64> {
    let eigenvalue = |i: usize| [1.0, -2.0, 3.0, -1.0, 5.0, -7.0, 4.0, -4.0, 9.0, 2.0, -5.0, 11.0][i % k];
    let eigenvalues: Vec<f64> = (0..n).map(eigenvalue).collect();
    matrices::with_eigenvalues(&eigenvalues).csr().unwrap()
}

#[test]
fn minres_ends_in_as_many_steps_as_there_are_eigenvalues() {
    for (n, k) in [(1, 1), (37, 1), (37, 2), (100, 3), (100, 5), (500, 8), (240, 12)] {
        let (a, b) = (indefinite(n, k), matrices::vector(n));
        let solution = Minres::new(&a).rtol(1e-10).solve(&b).unwrap();
        let report = &solution.report;
        assert_eq!((report.iterations, &report.outcome), (k, &Outcome::Converged), "{n}, {k}: {report}");
        assert!(residual(&a, &solution.x, &b) <= 1.1e-10 * norm(&b));
    }
    let a = matrices::with_eigenvalues(&[2.0, -1.0, 2.0, -1.0].repeat(20)).csr::<f32>().unwrap();
    let b: Vec<f32> = matrices::vector(80).iter().map(|&b| b as f32).collect();
    let report = Minres::new(&a).rtol(1e-5).solve(&b).unwrap().report;
    assert_eq!((report.iterations, &report.outcome), (2, &Outcome::Converged), "{report}");
}

/// The residual of the recurrence, the recomputed residual, and the latter in the norm of `M⁻¹`, here a
/// diagonal; for every number of steps.
fn residuals<M>(a: &Csr<f64>, m: M, inverse: &[f64], b: &[f64], steps: usize) -> Vec<[f64; 3]>
where
    M: LinearOperator<Vector = HostVector<f64>>,
{
    let mut minres = Minres::new(a).preconditioner(m).rtol(1e-11);
    let mut residuals = vec![];
    for k in 1..=steps {
        minres = minres.max_iterations(k);
        let Solution { x, report } = minres.solve(b).unwrap();
        let product = Triplets {
            rows: a.rows(),
            cols: a.cols(),
            entries: a.triplets().map(|(i, j, v)| (i as u32, j as u32, v)).collect(),
        }
        .product_reference(&x)
        .0;
        let r: Vec<f64> = b.iter().zip(&product).map(|(b, y)| b - y).collect();
        let weighted: f64 = r.iter().zip(inverse).map(|(r, d)| r * r * d).sum();
        residuals.push([report.history[report.iterations], norm(&r), weighted.sqrt()]);
        if report.converged() {
            break;
        }
        assert_eq!((report.iterations, report.outcome), (k, Outcome::IterationLimit));
    }
    residuals
}

#[test]
fn minres_reports_the_true_residual_which_never_rises() {
    let n = 150;
    // second differences minus 0.3: 26 of the 150 eigenvalues are negative
    let mut triplets = edge::tridiagonal(n);
    triplets.entries.iter_mut().filter(|e| e.0 == e.1).for_each(|e| e.2 -= 0.3);
    let (a, b) = (triplets.csr::<f64>().unwrap(), matrices::vector(n));
    let inverse: Vec<f64> = (0..n).map(|i| 1.0 / (1.0 + (i % 5) as f64)).collect();
    let jacobi = Jacobi::from_diagonal(&inverse.iter().map(|d| 1.0 / d).collect::<Vec<_>>()).unwrap();
    let plain = residuals(&a, Identity::new(a.domain()), &vec![1.0; n], &b, 120);
    let preconditioned = residuals(&a, &jacobi, &inverse, &b, 120);
    for (name, residuals) in [("plain", plain), ("preconditioned", preconditioned)] {
        assert!(residuals.len() > 20, "{name}: {}", residuals.len());
        let mut before = f64::INFINITY;
        for (k, &[recurred, exact, minimised]) in residuals.iter().enumerate() {
            assert!((recurred - exact).abs() <= 1e-7 * exact + 1e-12, "{name}, {k}: {recurred:e} {exact:e}");
            assert!(minimised <= before * (1.0 + 1e-10), "{name}, {k}: {minimised:e} after {before:e}");
            before = minimised;
        }
    }
}

#[test]
fn consistent_singular_systems_are_solved() {
    for n in [40, 203] {
        let eigenvalue = |i: usize| [0.0, 1.0, -2.0, 3.0, -5.0, 4.0][i % 6];
        let eigenvalues: Vec<f64> = (0..n).map(eigenvalue).collect();
        let matrix = matrices::with_eigenvalues(&eigenvalues);
        let a = matrix.csr::<f64>().unwrap();
        let b = matrix.to_triplets().product_reference(&matrices::vector(n)).0;
        let solution = Minres::new(&a).rtol(1e-10).solve(&b).unwrap();
        check(&a, &b, 1e-10, &solution);
        assert!(solution.report.converged(), "{}", solution.report);
        assert!(solution.report.iterations <= 5);
        // inconsistent: the residual decreases to its minimum, the component of `b` orthogonal to the range
        // of `A`, and the solve does not converge
        let b = matrices::vector(n);
        let solution = Minres::new(&a).rtol(1e-10).solve(&b).unwrap();
        check(&a, &b, 1e-10, &solution);
        assert!(!solution.report.converged(), "{}", solution.report);
        let image =
            matrix.to_triplets().product_reference(&residual_of(&matrix.to_triplets(), &solution.x, &b)).0;
        assert!(norm(&image) <= 1e-7 * norm(&b), "{:e}, {}", norm(&image), solution.report);
    }
}

fn residual_of(a: &Triplets, x: &[f64], b: &[f64]) -> Vec<f64> {
    a.product_reference(x).0.iter().zip(b).map(|(y, b)| b - y).collect()
}

#[test]
fn an_indefinite_preconditioner_breaks_minres_down() {
    let a = edge::tridiagonal(10).csr::<f64>().unwrap();
    let mut minus = vec![1.0; 10];
    minus[3] = -100.0;
    let m = Jacobi::from_diagonal(&minus).unwrap();
    let mut b = vec![0.0; 10];
    b[3] = 1.0;
    let Solution { x, report } = Minres::new(&a).preconditioner(m).solve(&b).unwrap();
    assert_eq!(report.outcome, Outcome::Breakdown { what: "⟨v, M⁻¹v⟩", value: -0.01, iteration: 1 });
    assert_eq!(x, [0.0; 10]);
}

/// The diagonal `D` of `A`, and that of `B D⁻¹ Bᵀ`, for `[A Bᵀ; B C]` in which `first_of_b` is the first row
/// of `B`.
fn saddle_point_diagonal(a: &Csr<f64>, first_of_b: usize) -> Vec<f64> {
    let mut d = vec![0.0; a.rows()];
    for (i, j, v) in a.triplets().filter(|&(i, j, _)| i == j && i < first_of_b) {
        d[i.min(j)] = v;
    }
    for i in first_of_b..a.rows() {
        let row = a.row_columns(i).iter().zip(a.row_values(i)).filter(|(j, _)| (**j as usize) < first_of_b);
        d[i] = row.map(|(&j, v)| v * v / d[j as usize]).sum();
    }
    d
}

#[test]
fn saddle_points_and_waves() {
    for (name, rtol, most) in
        [("stokes_tiny", 1e-8, 1000), ("kkt_VESUVIA_0000", 1e-6, 4000), ("ngs_screw_helmholtz", 1e-3, 4000)]
    {
        let Some(path) = needed_matrix(name) else { continue };
        let a: Csr<f64> = read_matrix(path).unwrap();
        let exact = matrices::vector(a.rows());
        let entries = a.triplets().map(|(i, j, v)| (i as u32, j as u32, v)).collect();
        let b = Triplets { rows: a.rows(), cols: a.cols(), entries }.product_reference(&exact).0;
        let plain = Minres::new(&a).rtol(rtol).max_iterations(most).solve(&b).unwrap();
        println!("{name}: {}", plain.report);
        check(&a, &b, rtol, &plain);
        if name == "stokes_tiny" {
            let m = Jacobi::from_diagonal(&saddle_point_diagonal(&a, 1704)).unwrap();
            let solution =
                Minres::new(&a).preconditioner(m).rtol(rtol).max_iterations(most).solve(&b).unwrap();
            println!("{name}, diagonally preconditioned: {}", solution.report);
            check(&a, &b, rtol, &solution);
        }
    }
}
