//! `krysp::solve` and plans: systems that they solve, reports of those that they cannot solve, and explicit choices.

use krysp::plan::{Method, PlannedSolver, Preconditioner, Profile};
use krysp::testing::matrices;
use krysp::{Csr, Error, Host, LinearOperator, Outcome, Plan, Real, solve};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `‖b − A x‖ / ‖b‖`, by an independent loop.
fn residual<T: Real>(a: &Csr<T>, b: &[T], x: &[T]) -> f64 {
    let mut r: Vec<f64> = b.iter().map(|&b| krysp::Element::to_f64(b)).collect();
    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let rhs = norm(&r);
    for (i, j, v) in a.triplets() {
        r[i] -= krysp::Element::to_f64(v) * krysp::Element::to_f64(x[j]);
    }
    norm(&r) / rhs
}

/// Solves for a smooth solution and checks the residual.
fn solves<T: Real>(a: &Csr<T>, tolerance: f64) -> krysp::plan::Solved<T> {
    let x: Vec<T> = (0..a.rows()).map(|i| T::from_f64(1.0 + (i as f64 * 0.1).sin())).collect();
    let mut b = vec![T::default(); a.rows()];
    for (i, j, v) in a.triplets() {
        b[i] += v * x[j];
    }
    let solved = solve(a, &b).unwrap();
    println!("{solved}");
    assert!(solved.converged(), "{solved}");
    let residual = residual(a, &b, &solved.x);
    assert!(residual <= tolerance, "{residual:e}: {solved}");
    solved
}

/// A saddle point `[K Bᵀ; B 0]`, with a tridiagonal `K` and differences `x_j − x_{j+2}` as `B x`.
fn saddle_point(n: usize) -> Csr<f64> {
    let mut entries: Vec<(usize, usize, f64)> = vec![];
    for i in 0..n {
        entries.push((i, i, 2.0 + i as f64 / n as f64));
        if i > 0 {
            entries.extend([(i, i - 1, -1.0), (i - 1, i, -1.0)]);
        }
    }
    for i in 0..n / 2 {
        let (row, col) = (n + i, 2 * i);
        entries.extend([(row, col, 1.0), (col, row, 1.0)]);
        if col + 2 < n {
            entries.extend([(row, col + 2, -1.0), (col + 2, row, -1.0)]);
        }
    }
    Csr::from_triplets(n + n / 2, n + n / 2, &entries).unwrap()
}

#[test]
fn every_kind_of_system_is_solved() {
    let definite = solves(&matrices::stencil7(12).csr::<f64>().unwrap(), 1e-8);
    assert_eq!(definite.attempts[0].method, Method::Cg);
    solves(&saddle_point(200), 1e-8);
    solves(&matrices::stencil7(8).csr::<f32>().unwrap(), 3.5e-4);
    let unsymmetric = matrices::stencil7(10).csr::<f64>().unwrap();
    let skewed: Vec<_> =
        unsymmetric.triplets().map(|(i, j, v)| (i, j, if j > i { 0.3 * v } else { v })).collect();
    let solved = solves(&Csr::from_triplets(1000, 1000, &skewed).unwrap(), 1e-8);
    assert_eq!(solved.attempts[0].method, Method::BiCgStab);
}

#[test]
fn the_smallest_systems_are_solved() {
    let one = Csr::from_triplets(1, 1, &[(0, 0, -4.0)]).unwrap();
    assert_eq!(solve(&one, &[2.0]).unwrap().x, [-0.5]);
    let none = Csr::from_triplets(0, 0, &[] as &[(usize, usize, f64)]).unwrap();
    let solved = solve(&none, &[]).unwrap();
    assert!(solved.converged() && solved.x.is_empty());
    let a = matrices::stencil7(4).csr::<f64>().unwrap();
    let solved = solve(&a, &[0.0; 64]).unwrap();
    assert!(solved.converged() && solved.x.iter().all(|&x| x == 0.0));
}

#[test]
fn misuse_is_refused_with_a_remedy() {
    let wide = Csr::from_triplets(2, 3, &[(0, 0, 1.0), (1, 2, 1.0)]).unwrap();
    let error = solve(&wide, &[1.0; 2]).unwrap_err();
    assert!(matches!(error, Error::Rectangular { rows: 2, cols: 3 }));
    assert!(error.to_string().contains("least squares"), "{error}");
    let a = matrices::stencil7(3).csr::<f64>().unwrap();
    assert!(solve(&a, &[1.0; 5]).unwrap_err().to_string().contains("5 entries"));
    let spoilt: Vec<_> =
        a.triplets().map(|(i, j, v)| (i, j, if (i, j) == (0, 9) { f64::NAN } else { v })).collect();
    let spoilt = Csr::from_triplets(27, 27, &spoilt).unwrap();
    assert!(matches!(solve(&spoilt, &[1.0; 27]), Err(Error::NotFinite { row: 0, col: 9, .. })));
    let mut b = [1.0; 27];
    b[4] = f64::NAN;
    let solved = solve(&a, &b).unwrap();
    assert_eq!(solved.report.outcome, Outcome::NotFinite { what: "`b`" });
    assert_eq!(solved.attempts.len(), 1);
}

#[test]
fn each_decision_can_be_made_by_hand() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = vec![1.0; a.rows()];
    for method in Method::ALL {
        assert_eq!(method.to_string().to_uppercase().parse::<Method>().unwrap(), method);
        let plan = Plan::new(&a).unwrap().method(method).preconditioner(Preconditioner::Ic0);
        let solved = plan.build().unwrap().solve(&b).unwrap();
        assert!(solved.converged(), "{solved}");
        let [attempt] = &*solved.attempts else { panic!("{solved}") };
        assert_eq!((attempt.method, attempt.preconditioner), (method, Preconditioner::Ic0));
    }
    for preconditioner in Preconditioner::ALL {
        assert_eq!(preconditioner.to_string().parse::<Preconditioner>().unwrap(), preconditioner);
        if matches!(preconditioner, Preconditioner::SaddlePoint | Preconditioner::CuDss) {
            // the matrix is not a saddle point, and there is no cuDSS for the host
            continue;
        }
        let plan = Plan::new(&a).unwrap().method(Method::Gmres).preconditioner(preconditioner);
        let solved = plan.build().unwrap().solve(&b).unwrap();
        assert!(solved.converged() && solved.attempts.len() == 1, "{solved}");
    }
    let error = "conjugate".parse::<Method>().unwrap_err();
    assert!(error.to_string().contains("Minres"), "{error}");
    let solver = Plan::new(&a).unwrap().format("coo").build().unwrap();
    assert_eq!(solver.operator().unwrap().choice().stored().format(), "COO");
    let unknown = Plan::new(&a).unwrap().format("best").build();
    assert!(matches!(unknown.err(), Some(Error::Unknown { what: "format", .. })));
    let on_host = Plan::new(&a).unwrap().preconditioner(Preconditioner::CuDss).build().unwrap().solve(&b);
    let error = on_host.unwrap_err().to_string();
    assert!(error.contains("CuDss factorizes on a GPU"), "{error}");
    // a named preconditioner that cannot be built is an error
    let indefinite = saddle_point(20);
    let refused = Plan::new(&indefinite).unwrap().preconditioner(Preconditioner::Cholesky);
    assert!(refused.build().unwrap().solve(&[1.0; 30]).is_err());
    let limited = Plan::new(&a).unwrap().max_iterations(3).build().unwrap().solve(&b).unwrap();
    assert_eq!((limited.report.iterations, limited.converged()), (3, false));
}

#[test]
fn new_values_are_taken() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let b = vec![1.0; a.rows()];
    let mut solver = Plan::new(&a).unwrap().solves(10).values_change(true).build().unwrap();
    let before = solver.solve(&b).unwrap();
    let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    solver.refresh(&doubled).unwrap();
    let after = solver.solve(&b).unwrap();
    assert!(before.converged() && after.converged());
    let off = before.x.iter().zip(&after.x).map(|(x, y)| (x - 2.0 * y).abs() / x.abs());
    assert!(off.fold(0.0, f64::max) < 1e-6);
    let from = solver.solve_from(&b, &after.x).unwrap();
    assert!(from.converged() && from.report.iterations == 0, "{from}");
}

/// The method of the first attempt after new values, and whether any attempt used a method for symmetric matrices.
fn methods_for(solver: &mut PlannedSolver<f64, Host>, values: &Csr<f64>) -> (Method, bool) {
    let b = vec![1.0; values.rows()];
    solver.refresh(values.entries()).unwrap();
    let solved = solver.solve(&b).unwrap();
    assert!(solved.converged() && residual(values, &b, &solved.x) <= 2e-8, "{solved}");
    let methods: Vec<Method> = solved.attempts.iter().map(|attempt| attempt.method).collect();
    let symmetric = |method: &Method| matches!(method, Method::Cg | Method::Fcg | Method::Minres);
    (methods[0], methods.iter().any(symmetric))
}

#[test]
fn candidates_follow_the_symmetry_of_new_values() {
    let symmetric = matrices::stencil7(12).csr::<f64>().unwrap();
    let entries: Vec<_> =
        symmetric.triplets().map(|(i, j, value)| (i, j, if j > i { 0.6 * value } else { value })).collect();
    let unsymmetric = Csr::from_triplets(symmetric.rows(), symmetric.rows(), &entries).unwrap();
    for change in [true, false] {
        let mut solver = Plan::new(&symmetric).unwrap().values_change(change).build().unwrap();
        solver.solve(&vec![1.0; symmetric.rows()]).unwrap();
        for _ in 0..2 {
            assert_eq!(methods_for(&mut solver, &symmetric), (Method::Cg, true));
            assert_eq!(methods_for(&mut solver, &unsymmetric), (Method::BiCgStab, false));
            // the second values of a kind are solved with what the first ones have shown
            assert!(!methods_for(&mut solver, &unsymmetric).1);
        }
    }
    let mut solver = Plan::new(&unsymmetric).unwrap().values_change(true).build().unwrap();
    assert_eq!(methods_for(&mut solver, &unsymmetric), (Method::BiCgStab, false));
    assert_eq!(methods_for(&mut solver, &symmetric), (Method::Cg, true));
    // what the user declares is not examined
    let declared = Plan::new(&symmetric).unwrap().symmetric(true).max_iterations(5);
    let mut solver = declared.build().unwrap();
    solver.refresh(unsymmetric.entries()).unwrap();
    let solved = solver.solve(&vec![1.0; symmetric.rows()]).unwrap();
    assert_eq!(solved.attempts[0].method, Method::Cg, "{solved}");
}

#[test]
fn a_profile_tells_what_there_is() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let profile = Profile::of(&a);
    assert!(profile.is_symmetric() && profile.has_positive_diagonal(), "{profile}");
    assert_eq!((profile.dominant, profile.lengths[0], profile.lengths[4]), (216, 4, 7));
    assert_eq!(profile.histogram.iter().sum::<usize>(), 216);
    assert_eq!(profile.connected_components.map(|parts| (parts.count, parts.largest)), Some((1, 216)));
    assert!(matches!(profile.spectrum, Some(krysp::plan::Spectrum::Positive { .. })), "{profile}");
    let saddle = Profile::of(&saddle_point(20));
    assert_eq!((saddle.zero_diagonal, saddle.spectrum), (10, Some(krysp::plan::Spectrum::Indefinite)));
    let text = saddle.to_string();
    assert!(text.contains("10 zero") && text.contains("not positive definite"), "{text}");
    let holes = [(0, 0, 1.0), (0, 2, 3.0), (2, 0, 1.0), (1, 1, 0.0)];
    let holes = Profile::of(&Csr::from_triplets(4, 4, &holes).unwrap());
    assert_eq!((holes.empty_rows, holes.empty_cols, holes.zeros), (2, 2, 1), "{holes}");
    assert_eq!((holes.off_diagonal, holes.mirrored, holes.symmetric), (2, 2, 0));
}

/// A chain of points without boundary conditions: constants are its null space.
fn floating_chain(n: usize) -> Csr<f64> {
    let entries =
        (0..n - 1).flat_map(|i| [(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    Csr::from_triplets(n, n, &entries.collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_singular_system_is_solved_or_called_so() {
    // consistent: the image of a smooth vector
    solves(&floating_chain(80), 1e-8);
    // inconsistent: the mean of `b`, a half, cannot be balanced
    let b: Vec<f64> = (0..80).map(|i| if i < 40 { 1.0 } else { 0.0 }).collect();
    let solved = solve(&floating_chain(80), &b).unwrap();
    let Outcome::Inconsistent { residual: least } = solved.report.outcome else { panic!("{solved}") };
    assert!((least - 0.5 * 80f64.sqrt()).abs() < 1e-6, "{least}: {solved}");
    assert!((residual(&floating_chain(80), &b, &solved.x) * 40f64.sqrt() - least).abs() < 1e-9);
    // a row of zeros with a nonzero right-hand side, in an unsymmetric matrix
    let entries: Vec<_> =
        (0..40).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % 41, 1.0)]).chain([(40, 40, 0.0)]).collect();
    let solved = solve(&Csr::from_triplets(41, 41, &entries).unwrap(), &[1.0; 41]).unwrap();
    assert!(
        matches!(solved.report.outcome, Outcome::Inconsistent { residual: least } if (least - 1.0).abs() < 1e-6)
    );
}

/// The adjacency matrix of a ring. Its null space are cosines and sines with a period of four rows.
fn ring(n: usize) -> Csr<f64> {
    let entries: Vec<_> = (0..n).flat_map(|i| [(i, (i + 1) % n, 1.0), ((i + 1) % n, i, 1.0)]).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

#[test]
fn factors_of_deficient_rank_solve_what_has_a_solution() {
    for a in [floating_chain(300), ring(400)] {
        let x: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.3).sin()).collect();
        let mut b = vec![0.0; a.rows()];
        a.triplets().for_each(|(i, j, v)| b[i] += v * x[j]);
        let plan = Plan::new(&a).unwrap().method(Method::Gmres).preconditioner(Preconditioner::Lu);
        let solved = plan.build().unwrap().solve(&b).unwrap();
        assert!(solved.converged() && solved.report.iterations <= 2, "{solved}");
        assert!(residual(&a, &b, &solved.x) <= 1e-8, "{solved}");
    }
    // the sum of a vector in the null space and one in the range
    let a = ring(400);
    let b: Vec<f64> = (0..400).map(|i| [1.0, 0.0, -1.0, 0.0][i % 4] + 2.0 * [1.0, -1.0][i % 2]).collect();
    let solved = solve(&a, &b).unwrap();
    let Outcome::Inconsistent { residual: least } = solved.report.outcome else { panic!("{solved}") };
    assert!((least - 200f64.sqrt()).abs() < 1e-9, "{least}: {solved}");
    // the last rows are empty, so that no permutation has a zero-free diagonal
    let entries: Vec<_> = (0..60).flat_map(|i| [(i, i, 2.0), (i, (7 * i + 1) % 50, 1.0)]).collect();
    let holes: Vec<_> = entries.into_iter().filter(|(i, j, _)| *i < 50 && *j < 50).collect();
    let holes = Csr::from_triplets(60, 60, &holes).unwrap();
    let b: Vec<f64> = (0..60).map(|i| if i < 50 { 1.0 + i as f64 } else { 0.0 }).collect();
    let solved = solve(&holes, &b).unwrap();
    assert!(solved.converged() && residual(&holes, &b, &solved.x) <= 1e-8, "{solved}");
}

#[test]
fn suspended_attempts_are_resumed() {
    // an indefinite saddle point, singular and inconsistent: no attempt finds a solution, and all of them end
    let a = saddle_point(120);
    let n = a.rows();
    let entries: Vec<_> = a.triplets().filter(|(i, j, _)| *i < n - 1 && *j < n - 1).collect();
    let singular = Csr::from_triplets(n, n, &entries).unwrap();
    let solved = solve(&singular, &vec![1.0; n]).unwrap();
    assert!(
        matches!(solved.report.outcome, Outcome::Inconsistent { residual: least } if (least - 1.0).abs() < 1e-6),
        "{solved}"
    );
}

/// `Ldl` computes one triangle of the fronts of which `Lu` computes two. `Lu` is left for small factors, which it computes by columns, and
/// for singular matrices.
#[test]
fn symmetric_indefinite_systems_are_factorized_by_ldl() {
    let laplace = krysp::gallery::poisson::<f64>(&[90, 90]).unwrap();
    let shifted: Vec<f64> = laplace.triplets().map(|(i, j, v)| if i == j { v - 0.7 } else { v }).collect();
    let helmholtz = laplace.with_values(&shifted).unwrap();
    let b = vec![1.0; helmholtz.rows()];
    let solved = Plan::new(&helmholtz).unwrap().solves(1).build().unwrap().solve(&b).unwrap();
    assert!(solved.converged() && residual(&helmholtz, &b, &solved.x) <= 1e-8, "{solved}");
    let ran: Vec<_> = solved.attempts.iter().map(|one| one.preconditioner).collect();
    assert_eq!(ran.last(), Some(&Preconditioner::Ldl), "{solved}");
    assert!(!ran.contains(&Preconditioner::Ilu0) && !ran.contains(&Preconditioner::Lu), "{solved}");
    // an adjacency matrix of deficient rank
    let ring = ring(400);
    let mut image = vec![0.0; ring.rows()];
    ring.triplets().for_each(|(i, j, v)| image[i] += v * (j as f64).sin());
    let solved = Plan::new(&ring).unwrap().solves(50).build().unwrap().solve(&image).unwrap();
    assert!(solved.converged() && residual(&ring, &image, &solved.x) <= 1e-8, "{solved}");
}

/// Factors are stored in single precision if its range suffices, otherwise in double precision. A saved solver solves as before.
#[test]
fn incomplete_factors_of_any_size_solve() {
    let poisson = matrices::stencil7(9).csr::<f64>().unwrap();
    let b = vec![1.0; poisson.rows()];
    let path = std::env::temp_dir().join(format!("krysp_ic0_{}", std::process::id()));
    let mut iterations = vec![];
    for size in [1.0, 1e-25, 1e25] {
        let entries: Vec<_> = poisson.triplets().map(|(i, j, v)| (i, j, size * v)).collect();
        let a = Csr::from_triplets(poisson.rows(), poisson.cols(), &entries).unwrap();
        let mut solver = Plan::new(&a).unwrap().preconditioner(Preconditioner::Ic0).build().unwrap();
        let solved = solver.solve(&b).unwrap();
        assert!(solved.converged(), "{size}: {solved}");
        iterations.push(solved.report.iterations);
        solver.save(&path).unwrap();
        let again = PlannedSolver::load(&path, &a, &Host).unwrap().solve(&b).unwrap();
        assert_eq!(again.x, solved.x, "{size}");
    }
    std::fs::remove_file(path).unwrap();
    assert!(iterations[0].abs_diff(iterations[1]) <= 1 && iterations[1] == iterations[2], "{iterations:?}");
}

#[test]
fn solves_are_right_in_the_format_and_ordering_of_many_solves() {
    // a grid in an ordering without locality, with an `x` of more than 256 KiB, so that plans consider another ordering
    let side = 184;
    let n = side * side;
    let place = |i: usize| i * 12_347 % n;
    let beside = |i: usize| [(!i.is_multiple_of(side), i.wrapping_sub(1)), (i >= side, i.wrapping_sub(side))];
    let mut entries: Vec<_> = (0..n).map(|i| (place(i), place(i), 4.01)).collect();
    for i in 0..n {
        for (_, j) in beside(i).into_iter().filter(|(is_there, _)| *is_there) {
            entries.extend([(place(i), place(j), -1.0), (place(j), place(i), -1.0)]);
        }
    }
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let b: Vec<f64> = (0..n).map(|i| (i as f64 * 0.01).cos()).collect();
    let mut solver = Plan::new(&a).unwrap().solves(100).values_change(true).build().unwrap();
    // reordering does not pay for one solve, and an explicit format implies the given ordering
    let single = Plan::new(&a).unwrap();
    assert!(single.build().unwrap().operator().unwrap().domain().permutation().is_none());
    assert!(single.format("CSR").build().unwrap().operator().unwrap().domain().permutation().is_none());
    // from ten solves on it is done before the first one
    let is_reordered = |solves: usize| {
        let solver = Plan::new(&a).unwrap().solves(solves).build().unwrap();
        solver.operator().unwrap().domain().permutation().is_some()
    };
    assert!(is_reordered(10) && !is_reordered(9));
    // iterations that are made only for timing do not reach observers
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    solver = solver.observe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    for _ in 0..2 {
        let before = seen.load(Ordering::Relaxed);
        let solved = solver.solve(&b).unwrap();
        assert!(solved.converged() && residual(&a, &b, &solved.x) <= 1e-8, "{solved}");
        assert_eq!(seen.load(Ordering::Relaxed) - before, solved.report.iterations);
    }
    let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    solver.refresh(&doubled).unwrap();
    let solved = solver.solve(&b).unwrap();
    assert!(
        solved.converged() && residual(&a.with_values(&doubled).unwrap(), &b, &solved.x) <= 1e-8,
        "{solved}"
    );
}

#[test]
fn bad_scaling_and_empty_diagonals_are_no_obstacle() {
    let poisson = matrices::stencil7(7).csr::<f64>().unwrap();
    let size = |i: usize| 10f64.powi((i * 7 % 13) as i32 - 6);
    let rows: Vec<_> = poisson.triplets().map(|(i, j, v)| (i, j, size(i) * v)).collect();
    solves(&Csr::from_triplets(343, 343, &rows).unwrap(), 1e-8);
    let symmetric: Vec<_> = poisson.triplets().map(|(i, j, v)| (i, j, size(i) * v * size(j))).collect();
    solves(&Csr::from_triplets(343, 343, &symmetric).unwrap(), 1e-8);
    // a cyclic shift plus a few entries: the diagonal is zero
    let shift: Vec<_> = (0..300).flat_map(|i| [(i, (i + 1) % 300, 1.0), (i, (i + 7) % 300, 0.2)]).collect();
    solves(&Csr::from_triplets(300, 300, &shift).unwrap(), 1e-8);
}

#[test]
fn right_hand_sides_of_any_size_are_taken() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let base: Vec<f64> = (0..a.rows()).map(|i| 1.0 + (i as f64 * 0.7).sin()).collect();
    let times = |b: &[f64], factor: f64| b.iter().map(|b| b * factor).collect::<Vec<_>>();
    let norm = base.iter().map(|b| b * b).sum::<f64>().sqrt();
    for size in [1e200, 1e-200, -1e300, 1e-307] {
        let solved = solve(&a, &times(&base, size)).unwrap();
        assert!(solved.converged(), "{solved}");
        let left = residual(&a, &base, &times(&solved.x, 1.0 / size));
        assert!(left <= 1e-8, "{size:e}: {left:e}");
        let report = &solved.report;
        assert!((report.rhs_norm / (norm * size.abs()) - 1.0).abs() < 1e-12, "{report}");
        assert!(report.relative_residual() <= 1e-8 && report.history[0] <= 2.0 * report.rhs_norm, "{report}");
        // from a guess that is the solution
        let mut again = Plan::new(&a).unwrap().rtol(1e-7).build().unwrap();
        let again = again.solve_from(&times(&base, size), &solved.x).unwrap();
        assert!(again.converged() && again.report.iterations == 0, "{again}");
    }
    let single = a.cast::<f32>();
    for size in [1e30f32, 1e-30] {
        let b: Vec<f32> = base.iter().map(|&b| b as f32 * size).collect();
        let solved = solve(&single, &b).unwrap();
        let x: Vec<f64> = solved.x.iter().map(|&x| f64::from(x) / f64::from(size)).collect();
        assert!(solved.converged() && residual(&a, &base, &x) <= 3.6e-4, "{solved}");
    }
    // an inconsistent system is reported, with the least-squares residual at the scale of `b`
    let b: Vec<f64> = (0..80).map(|i| if i < 40 { 1e180 } else { 0.0 }).collect();
    let solved = solve(&floating_chain(80), &b).unwrap();
    let Outcome::Inconsistent { residual: least } = solved.report.outcome else { panic!("{solved}") };
    assert!((least / (0.5e180 * 80f64.sqrt()) - 1.0).abs() < 1e-6, "{least:e}: {solved}");
    // a solution beyond the range of `f64`
    let tiny = Csr::from_triplets(2, 2, &[(0, 0, 1e-200), (1, 1, 1e-200)]).unwrap();
    let solved = solve(&tiny, &[1e200, 1e200]).unwrap();
    assert_eq!(solved.report.outcome, Outcome::NotFinite { what: "the solution" }, "{solved}");
}

#[test]
fn entries_are_compared_across_the_diagonal() {
    // pairs of entries: equal, opposite, different, zero and nonzero, two zeros; entries without a mirrored
    // one: a nonzero above the diagonal, a zero below
    let entries = [
        (0, 1, 3.0),
        (1, 0, 3.0),
        (0, 2, 4.0),
        (2, 0, -4.0),
        (1, 2, 5.0),
        (2, 1, 6.0),
        (0, 3, 0.0),
        (3, 0, 7.0),
        (1, 3, 0.0),
        (3, 1, 0.0),
        (2, 3, 8.0),
        (4, 0, 0.0),
    ];
    let profile = Profile::of(&Csr::from_triplets(5, 5, &entries).unwrap());
    assert_eq!((profile.off_diagonal, profile.mirrored), (12, 10), "{profile}");
    assert_eq!((profile.symmetric, profile.skew), (5, 2), "{profile}");
    // explicit zeros without a mirrored entry do not affect symmetry
    let entries = [(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0), (0, 2, 0.0), (1, 0, 2.0), (0, 1, 2.0)];
    assert!(Profile::of(&Csr::from_triplets(3, 3, &entries).unwrap()).is_symmetric());
    // sums that nearly cancel have the rounding errors of their terms
    for (rest, symmetric) in [(1e-15, true), (1e-12, false)] {
        let entries = [(0, 0, 1.0), (1, 1, 1.0), (0, 1, 1e-16), (1, 0, 1e-16 + rest)];
        let profile = Profile::of(&Csr::from_triplets(2, 2, &entries).unwrap());
        assert_eq!(profile.is_symmetric(), symmetric, "{rest}");
    }
}

/// The Jacobi preconditioner of a plan can be built without a plan, and makes the same iterations.
#[test]
fn the_jacobi_of_a_plan_is_a_preconditioner_that_users_can_build() {
    // a saddle point, whose last rows have no diagonal
    let n = 60;
    let mut entries: Vec<(usize, usize, f64)> = (0..n).map(|i| (i, i, 2.0 + (i % 5) as f64)).collect();
    for k in 0..n / 4 {
        let constraint = n + k;
        for i in [4 * k, 4 * k + 1, (4 * k + 9) % n] {
            entries.extend([(constraint, i, 1.0), (i, constraint, 1.0)]);
        }
    }
    let rows = n + n / 4;
    let a = Csr::from_triplets(rows, rows, &entries).unwrap();
    let b: Vec<f64> = (0..rows).map(|i| 1.0 + (i % 7) as f64).collect();
    let plan =
        Plan::new(&a).unwrap().method(Method::Minres).preconditioner(Preconditioner::Jacobi).rtol(1e-10);
    let planned = plan.build().unwrap().solve(&b).unwrap();
    let m = krysp::PositiveJacobi::new(&a, a.domain()).unwrap();
    let built = krysp::Minres::new(&a).preconditioner(m).rtol(1e-10).solve(&b).unwrap();
    assert!(planned.converged() && built.report.converged());
    assert_eq!(planned.report.iterations, built.report.iterations);
    assert!(krysp::Jacobi::new(&a).is_err());
}

#[test]
fn a_printed_plan_says_what_is_tried_and_when() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let text = Plan::new(&a).unwrap().solves(10).values_change(true).to_string();
    let after = |text: &str, what: &str| -> f64 {
        let (_, rest) = text.split_once(what).unwrap();
        rest.split([' ', ':', ',']).next().unwrap().parse().unwrap()
    };
    let (first, rule) = (
        "\n1. Cg with Jacobi: ",
        "\n   runs first, and its residuals correct the costs of the others; candidate ",
    );
    let replaces = text.split_once(&format!("\n{}. ", after(&text, rule))).unwrap().1.lines().next().unwrap();
    // it is replaced from 1.5 times the cost of the other one on
    let [limit, cost] =
        [after(&text, " remaining work is estimated at "), after(replaces, "; expected cost of a solve ")];
    assert!(text.contains(first) && (limit - 1.5 * cost).abs() <= 2.0, "{limit} {cost}: {text}");
    assert!(
        replaces.contains(", new values ") && text.contains("; setups are shared by 10 solves)"),
        "{text}"
    );
}
