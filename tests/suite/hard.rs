//! How solves of hard systems end: thin and nearly incompressible parts, tolerances below rounding, matrices without
//! the properties that a method needs. Settings are the defaults, except for the allowed iterations.

use crate::truth::{check, norm, residual};
use krysp::solvers::{ConditionEstimate, Evidence, InterfaceNames};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{
    BiCgStab, Cg, Csr, Fcg, Gmres, HostVector, Idr, Ilu0, Ilut, Jacobi, LinearOperator, Matching, Minres,
    Outcome, Report, Scaling, Sell, Solution,
};

/// A plate under its own weight, with a force at a corner.
fn bent_plate(hexes: [usize; 3]) -> (Csr<f64>, Vec<f64>) {
    let a = matrices::plate(hexes, 0.49).csr().unwrap();
    let mut b: Vec<f64> = (0..a.rows()).map(|i| if i % 3 == 2 { -1.0 } else { 0.0 }).collect();
    *b.last_mut().unwrap() = 100.0;
    (a, b)
}

#[test]
fn a_residual_that_rises_for_thousands_of_iterations_is_no_stagnation() {
    let (a, b) = bent_plate([60, 6, 1]);
    let jacobi = Jacobi::new(&a).unwrap();
    for solution in [
        Cg::new(&a).preconditioner(&jacobi).rtol(1e-8).max_iterations(40_000).solve(&b).unwrap(),
        Fcg::new(&a).preconditioner(&jacobi).rtol(1e-8).max_iterations(40_000).solve(&b).unwrap(),
    ] {
        let report = &solution.report;
        println!("{report}");
        check(&a, &b, 1e-8, &solution);
        assert_eq!(report.outcome, Outcome::Converged);
        let rises = report.history.iter().rposition(|&r| r > report.history[0]).unwrap();
        assert!(
            rises > 2000,
            "not a hard system: the residual stays below the first one after {rises} iterations"
        );
        assert!(report.condition.as_ref().unwrap().ratio() > 1e7);
    }
}

#[test]
fn a_tolerance_below_rounding_ends_at_the_precision_limit() {
    let (a, b) = bent_plate([40, 6, 1]);
    let jacobi = Jacobi::new(&a).unwrap();
    let at_limit = |Solution { x, report }: &Solution<f64>| {
        println!("{report}");
        let Outcome::PrecisionLimit { element: "f64", limit } = report.outcome else { panic!("{report}") };
        let exact = residual(&a, x, &b);
        assert!((exact - report.true_residual).abs() <= 1e-9 * exact, "{exact:e} {report}");
        // the residual is about as large as the one that rounding of `x` leaves
        assert!((0.1..8.0).contains(&(exact / limit)), "{exact:e} {limit:e}");
        assert!(report.backward_error < f64::EPSILON, "{:e}", report.backward_error);
        assert!(report.to_string().contains("at the limit of f64"), "{report}");
    };
    let modest = Cg::new(&a).preconditioner(&jacobi).rtol(1e-9).max_iterations(40_000).solve(&b).unwrap();
    assert!(modest.report.converged(), "{}", modest.report);
    let [cg, minres, gmres] = [
        Cg::new(&a).preconditioner(&jacobi).rtol(1e-15).max_iterations(40_000).solve(&b).unwrap(),
        Minres::new(&a).preconditioner(&jacobi).rtol(1e-15).max_iterations(40_000).solve(&b).unwrap(),
        Gmres::new(&a).preconditioner(&jacobi).restart(a.rows()).rtol(1e-15).solve(&b).unwrap(),
    ];
    [&cg, &minres, &gmres].iter().for_each(|solution| at_limit(solution));
    assert!(cg.report.iterations < 3 * modest.report.iterations, "{} {}", cg.report, modest.report);
    // starting from the solution ends at the limit, too
    let again = Cg::new(&a).preconditioner(&jacobi).rtol(1e-15).solve_from(&b, &cg.x).unwrap();
    at_limit(&again);
}

#[test]
fn the_precision_limit_depends_on_the_element_type() {
    let (a32, a) = (matrices::stencil7(30).csr::<f32>().unwrap(), matrices::stencil7(30).csr().unwrap());
    let b = vec![1.0; a.rows()];
    let b32 = vec![1.0f32; a.rows()];
    let jacobi = Jacobi::new(&a32).unwrap();
    let Solution { x, report } = Cg::new(&a32).preconditioner(jacobi).rtol(1e-7).solve(&b32).unwrap();
    println!("{report}");
    assert!(matches!(report.outcome, Outcome::PrecisionLimit { element: "f32", .. }), "{report}");
    let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    let exact = residual(&a, &x, &b);
    assert!((exact - report.true_residual).abs() <= 1e-5 * exact, "{exact:e}, {report}");
    assert!(report.iterations < 1000, "{report}");
}

#[test]
fn a_restart_keeps_the_condition_estimate() {
    let (a, b) = bent_plate([40, 6, 1]);
    let jacobi = Jacobi::new(&a).unwrap();
    let once =
        Cg::new(&a).preconditioner(&jacobi).rtol(1e-8).max_iterations(40_000).solve(&b).unwrap().report;
    // one wrong product makes the residual of the recurrence differ from the true residual
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let errs = krysp::solvers::OperatorFn::new(
        a.domain(),
        a.range(),
        |x: &HostVector<f64>, y: &mut HostVector<f64>| {
            a.apply(x, y)?;
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == once.iterations / 2 {
                y.as_mut_slice().iter_mut().for_each(|y| *y *= 1.0 + 1e-4);
            }
            Ok(())
        },
    );
    let report =
        Cg::new(errs).preconditioner(&jacobi).rtol(1e-8).max_iterations(40_000).solve(&b).unwrap().report;
    println!("{once}\n{report}");
    assert!(report.restarts > 0 && report.converged(), "{report}");
    let ratio = |estimate: &Option<ConditionEstimate>| estimate.as_ref().unwrap().ratio();
    let (once, twice) = (ratio(&once.condition), ratio(&report.condition));
    assert!((once - twice).abs() <= 0.01 * once, "{once:e} {twice:e}");
}

#[test]
fn bicgstab_restarts_with_a_new_shadow_vector() {
    // The first two rows depend on no other, and only they have a right-hand side. Once these rows are solved, the
    // first residual, which is the shadow vector, is orthogonal to the present one.
    let mut triplets = edge::tridiagonal(60);
    triplets.entries.retain(|&(row, column, _)| row > 1 || row == column);
    let a = triplets.csr::<f64>().unwrap();
    let mut b = vec![0.0; 60];
    (b[0], b[1]) = (1.0, 0.5);
    let solution = BiCgStab::new(&a).rtol(1e-10).solve(&b).unwrap();
    println!("{}", solution.report);
    check(&a, &b, 1e-10, &solution);
    assert!(solution.report.converged() && solution.report.restarts > 0, "{}", solution.report);
    // Every residual is orthogonal to its image, so a restart with the residual as shadow vector fails; one
    // with flipped signs succeeds.
    let balanced: Vec<_> =
        (0..40).map(|i| (i, i, if i % 2 == 0 { 1.0 } else { -1.0 } * (1 + i / 2) as f64)).collect();
    let a = Csr::from_triplets(40, 40, &balanced).unwrap();
    let solution = BiCgStab::new(&a).rtol(1e-10).solve(&[1.0; 40]).unwrap();
    println!("{}", solution.report);
    check(&a, &[1.0; 40], 1e-10, &solution);
    assert!(solution.report.converged() && solution.report.restarts >= 2, "{}", solution.report);
    // a real system where ⟨r̃, r⟩ cancels to exactly zero, which must not end the solve
    let Some(path) = krysp::testing::needed_matrix("ccx_multistage") else { return };
    let a: Csr<f64> = krysp::io::read_matrix(path).unwrap();
    let b = vec![1.0; a.rows()];
    let jacobi = Jacobi::new(&a).unwrap();
    let solution =
        BiCgStab::new(&a).preconditioner(jacobi).rtol(1e-8).max_iterations(20_000).solve(&b).unwrap();
    println!("{}", solution.report);
    check(&a, &b, 1e-8, &solution);
    assert!(solution.report.converged(), "{}", solution.report);
}

/// Systems of chemical plants, circuits and flow, on which Jacobi is refused or stagnates.
#[test]
fn matched_systems_with_thresholds_are_solved_where_a_diagonal_is_of_no_use() {
    for name in ["west0479", "west0497", "lhr01", "rajat19", "adder_dcop_05", "oseen_tiny", "bp_1200"] {
        let Some(path) = krysp::testing::needed_matrix(name) else { continue };
        let a: Csr<f64> = krysp::io::read_matrix(path).unwrap();
        let b = vec![1.0; a.rows()];
        let useless = Jacobi::new(&a).is_err() || {
            let jacobi = Jacobi::new(&a).unwrap();
            let solver = BiCgStab::new(&a).preconditioner(jacobi).rtol(1e-8);
            !{ solver }.max_iterations(1000).solve(&b).unwrap().report.converged()
        };
        assert!(useless, "{name}");
        let matching = Matching::of(&a).unwrap();
        assert_eq!(matching.unmatched(), 0, "{name}");
        let scaling = Scaling::matched(&a, &matching).unwrap();
        let scaled = scaling.matrix(&a).unwrap();
        let ilut = Ilut::new(&scaled).unwrap();
        let mut solver = Idr::new(&scaled).preconditioner(&ilut).rtol(1e-8).max_iterations(300);
        // a small residual of the scaled system may be a large one of the original system: then solve again
        // for the residual
        let (mut x, mut left) = (vec![0.0; b.len()], b.clone());
        for attempt in 1..=4 {
            let mut solution = solver.solve(&scaling.rhs(&left).unwrap()).unwrap();
            scaling.unscale(&mut solution.x).unwrap();
            x.iter_mut().zip(&solution.x).for_each(|(x, d)| *x += d);
            left.copy_from_slice(&b);
            a.triplets().for_each(|(i, j, value)| left[i] -= value * x[j]);
            println!("{name}, {attempt}: {:.1e}; {}", norm(&left) / norm(&b), solution.report);
            if norm(&left) <= 1e-8 * norm(&b) {
                break;
            }
        }
        assert!(residual(&a, &x, &b) <= 2e-8 * norm(&b), "{name}");
    }
}

/// Checks that a solve ended as stagnated within `allowed` iterations, and returns the evidence.
fn stagnation_evidence(report: &Report, allowed: usize) -> &Evidence {
    println!("{report}");
    assert!(report.iterations <= allowed, "{report}");
    match &report.outcome {
        Outcome::Stagnated(evidence) => evidence,
        _ => panic!("{report}"),
    }
}

#[test]
fn stagnating_solves_end_early_and_say_why() {
    // an inconsistent pure Neumann problem, without a declared null space
    let mut line = edge::tridiagonal(3000);
    line.entries.iter_mut().filter(|e| e.0 == e.1 && (e.0 == 0 || e.0 == 2999)).for_each(|e| e.2 = 1.0);
    let neumann = line.csr::<f64>().unwrap();
    let b = matrices::vector(neumann.rows());
    let report = Cg::new(&neumann).max_iterations(40_000).solve(&b).unwrap().report;
    let evidence = stagnation_evidence(&report, 10_000);
    assert!(matches!(evidence, Evidence::Singular { condition } if *condition > 1e13), "{evidence}");
    let report = BiCgStab::new(&neumann).max_iterations(40_000).solve(&b).unwrap().report;
    assert!(!report.converged() && report.iterations < 10_000, "{report}");
    // conjugate gradients with an unsymmetric matrix, and with an unsymmetric preconditioner
    let (convection, b) = convection(40);
    let report = Cg::new(&convection).max_iterations(40_000).solve(&b).unwrap().report;
    assert_eq!(stagnation_evidence(&report, 4000), &Evidence::Unsymmetric { what: "the matrix" });
    let report = Minres::new(&convection).max_iterations(40_000).solve(&b).unwrap().report;
    assert_eq!(stagnation_evidence(&report, 4000), &Evidence::Unsymmetric { what: "the matrix" });
    let symmetric = matrices::stencil7(10).csr::<f64>().unwrap();
    let shift = krysp::operator_fn(symmetric.rows(), |x: &[f64], y: &mut [f64]| {
        y.copy_from_slice(x);
        y[1..].iter_mut().zip(x).for_each(|(y, x)| *y += 0.9 * x);
    });
    let b = matrices::vector(symmetric.rows());
    let report =
        Cg::new(&symmetric).preconditioner(shift).rtol(1e-12).max_iterations(40_000).solve(&b).unwrap();
    assert_eq!(
        stagnation_evidence(&report.report, 4000),
        &Evidence::Unsymmetric { what: "the preconditioner" }
    );
    // Symmetric systems are not reported as unsymmetric: with a null space, and with unsymmetric rows of boundary
    // values only.
    let mut neumann = edge::tridiagonal(3000);
    for (row, column, value) in &mut neumann.entries {
        let spring = |i: u32| f64::from(1 + i % 7);
        let (i, j) = (*row, *column);
        let left = if i > 0 { spring(i - 1) } else { 0.0 };
        let right = if i < 2999 { spring(i) } else { 0.0 };
        *value = if i == j { left + right } else { -spring(i.min(j)) };
    }
    let neumann = neumann.csr::<f64>().unwrap();
    let b = matrices::vector(neumann.rows());
    let solver =
        Cg::new(&neumann).preconditioner(Jacobi::new(&neumann).unwrap()).stagnation_window(20).rtol(1e-9);
    let report = solver.null_space(&[vec![1.0; 3000]]).unwrap().solve(&b).unwrap().report;
    assert!(report.converged(), "{report}");
    let mut held = edge::tridiagonal(3000);
    held.entries.retain(|e| e.0 != 0 || e.1 == 0);
    let (held, b) = (held.csr::<f64>().unwrap(), matrices::vector(3000));
    let mut guess = vec![0.0; 3000];
    guess[0] = b[0] / 2.0;
    let report = Cg::new(&held).stagnation_window(20).rtol(1e-8).solve_from(&b, &guess).unwrap().report;
    assert!(report.converged(), "{report}");
    // flexible conjugate gradients allow nonlinear preconditioners, which are not reported as unsymmetric
    let line = edge::tridiagonal(1000).csr::<f64>().unwrap();
    let inner = krysp::operator_fn(1000, |x: &[f64], y: &mut [f64]| {
        y.iter_mut().enumerate().for_each(|(i, y)| *y = x[i] * (1.0 + 0.3 * f64::from(x[i] > 0.0)));
    });
    let report = Fcg::new(&line)
        .preconditioner(inner)
        .stagnation_window(20)
        .solve(&matrices::vector(1000))
        .unwrap()
        .report;
    assert!(!matches!(report.outcome, Outcome::Stagnated(Evidence::Unsymmetric { .. })), "{report}");
    // GMRES without any progress, and GMRES with very slow progress
    let shift = edge::cyclic_shift(100).csr::<f64>().unwrap();
    let mut one = vec![0.0; 100];
    one[0] = 1.0;
    let report = Gmres::new(&shift).max_iterations(40_000).solve(&one).unwrap().report;
    assert_eq!(stagnation_evidence(&report, 300), &Evidence::Residual { iterations: 300 });
    let laplace = edge::tridiagonal(500).csr::<f64>().unwrap();
    let report = Gmres::new(&laplace).restart(10).solve(&vec![1.0; 500]).unwrap().report;
    assert!(
        matches!(stagnation_evidence(&report, 1000), Evidence::SlowConvergence { iterations: needed } if *needed > 40_000.0),
        "{report}"
    );
}

/// Convection-diffusion by central differences, far from symmetric.
fn convection(side: usize) -> (Csr<f64>, Vec<f64>) {
    let node = |x: usize, y: usize| (x + side * y) as u32;
    let mut entries = vec![];
    for y in 0..side {
        for x in 0..side {
            entries.push((node(x, y), node(x, y), 4.0));
            if x > 0 {
                entries.push((node(x, y), node(x - 1, y), -1.9));
                entries.push((node(x - 1, y), node(x, y), -0.1));
            }
            if y > 0 {
                entries.push((node(x, y), node(x, y - 1), -1.0));
                entries.push((node(x, y - 1), node(x, y), -1.0));
            }
        }
    }
    let n = side * side;
    (Triplets { rows: n, cols: n, entries }.csr().unwrap(), vec![1.0; n])
}

#[test]
fn the_backward_error_uses_nearly_the_exact_norm() {
    // by the eigenvalues of tridiag(−1, 2, −1), ‖A‖ = 4 to six digits
    let a = edge::tridiagonal(2000).csr::<f64>().unwrap();
    for (b, iterations) in [(vec![1.0; 2000], 10), (matrices::vector(2000), 1000)] {
        let Solution { x, report } = Cg::new(&a).rtol(1e-10).max_iterations(iterations).solve(&b).unwrap();
        let expected = residual(&a, &x, &b) / (4.0 * norm(&x) + norm(&b));
        let ratio = report.backward_error / expected;
        assert!((1.0..2.0).contains(&ratio), "{:e}, not {expected:e}", report.backward_error);
    }
    // after a refresh, the norm is that of the new values
    let mut solver = Cg::new(Sell::new(&a).unwrap()).rtol(1e-10).max_iterations(10);
    let before = solver.solve(&vec![1.0; 2000]).unwrap().report.backward_error;
    let larger: Vec<f64> = a.entries().iter().map(|v| 1e6 * v).collect();
    krysp::Format::refresh(solver.operator_mut(), &larger).unwrap();
    let after = solver.solve(&vec![1.0; 2000]).unwrap().report.backward_error;
    assert!((after / before - 1.0).abs() < 1e-6, "{before:e} {after:e}");
}

#[test]
fn every_failed_solve_says_what_to_try_next() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let indefinite = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, -1.0)]).unwrap();
    let singular = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0)]).unwrap();
    let flipped = Ilu0::new(&Csr::from_triplets(2, 2, &[(0, 0, -1.0), (1, 1, -1.0)]).unwrap()).unwrap();
    for (report, said) in [
        (Cg::new(&a).max_iterations(2).solve(&b).unwrap().report, "`max_iterations`"),
        (Cg::new(&a).time_limit(std::time::Duration::ZERO).solve(&b).unwrap().report, "`time_limit`"),
        (Cg::new(&a).stop_when(|p| p.iteration == 2).solve(&b).unwrap().report, "`solve_from`"),
        (Cg::new(&indefinite).solve(&[1.0, 2.0]).unwrap().report, "`Minres`"),
        (Cg::new(&indefinite).preconditioner(flipped).solve(&[2.0, 1.0]).unwrap().report, "preconditioner"),
        (Gmres::new(&singular).solve(&[0.0, 1.0]).unwrap().report, "singular"),
        (Cg::new(&a).rtol(1e-18).solve(&b).unwrap().report, "larger tolerance"),
        (Cg::new(&a).solve(&vec![f64::NAN; b.len()]).unwrap().report, "NaN"),
        (Cg::new(&a).solve(&vec![1e-200; b.len()]).unwrap().report, "scale `b`"),
        (Cg::new(&a).solve(&vec![1e200; b.len()]).unwrap().report, "scale `b`"),
    ] {
        println!("{report}");
        let advice = report.outcome.advice().unwrap();
        assert!(advice.contains(said), "{report}");
        assert!(report.to_string().ends_with(&format!("; to try next: {advice}")), "{report}");
        assert!(!advice.contains(". "), "one sentence: {advice}");
    }
    let converged = Cg::new(&a).solve(&b).unwrap().report;
    assert_eq!(converged.outcome.advice(), None);
}

#[test]
fn advice_has_the_names_of_the_interface_and_of_nothing_that_it_lacks() {
    let words = InterfaceNames {
        max_iterations: "maxiter",
        time_limit: "--time-limit",
        guess: "x0",
        gmres: "gmres",
        minres: "minres",
        bicgstab: "bicgstab",
        restart: None,
        null_space: None,
    };
    let breakdown = |what| Outcome::Breakdown { what, value: -1.0, iteration: 3 };
    let pivot =
        Gmres::new(&Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0)]).unwrap()).solve(&[0.0, 1.0]);
    for outcome in [
        Outcome::IterationLimit,
        Outcome::TimeLimit,
        Outcome::Cancelled,
        breakdown("any number"),
        pivot.unwrap().report.outcome,
        Outcome::Diverged,
        Outcome::Inconsistent { residual: 1.0 },
        Outcome::Stagnated(Evidence::Residual { iterations: 7 }),
        Outcome::Stagnated(Evidence::SlowConvergence { iterations: 1e5 }),
        Outcome::Stagnated(Evidence::Energy { iterations: 7 }),
        Outcome::Stagnated(Evidence::Unsymmetric { what: "the matrix" }),
        Outcome::Stagnated(Evidence::Singular { condition: 1e16 }),
    ] {
        let advice = outcome.advice_with(&words).unwrap();
        for name in [
            "max_iterations",
            "time_limit",
            "solve_from",
            "null_space",
            "Gmres",
            "Minres",
            "BiCgStab",
            "restart",
        ] {
            assert!(!advice.contains(name), "{advice}");
        }
    }
    let advice = Outcome::IterationLimit.advice_with(&words).unwrap();
    assert_eq!(advice, "raise maxiter, or use a preconditioner that needs fewer iterations");
}
