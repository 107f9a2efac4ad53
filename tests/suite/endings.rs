//! How solves end: limits, breakdowns, infinite or NaN numbers, misuse.

use crate::truth::{norm, residual};
use krysp::solvers::{Error, Identity};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{
    BiCgStab, CancelToken, Cg, Csr, Fcg, Fgmres, Gmres, HostSpace, HostVector, Idr, Jacobi, LinearOperator,
    Minres, Outcome, Permutation, PipelinedCg, Progress, Solution, Space, Stopping, operator_fn,
};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn diagonal(values: &[f64]) -> Csr<f64> {
    let entries: Vec<_> = values.iter().enumerate().map(|(i, &v)| (i, i, v)).collect();
    Csr::from_triplets(values.len(), values.len(), &entries).unwrap()
}

fn finite(x: &[f64]) -> bool {
    x.iter().all(|x| x.is_finite())
}

/// Solves a system by every method, from a guess.
fn methods(a: &Csr<f64>, b: &[f64], x0: &[f64]) -> [Solution<f64>; 8] {
    [
        Cg::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        BiCgStab::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        Gmres::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        PipelinedCg::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        Fcg::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        Fgmres::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        Minres::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
        Idr::new(a).rtol(1e-10).solve_from(b, x0).unwrap(),
    ]
}

#[test]
fn the_identity_takes_one_step() {
    let (a, b) = (diagonal(&[1.0; 50]), matrices::vector(50));
    for Solution { x, report } in methods(&a, &b, &[0.0; 50]) {
        assert_eq!((report.iterations, report.outcome), (1, Outcome::Converged));
        assert!(x.iter().zip(&b).all(|(x, b)| (x - b).abs() < 1e-14));
    }
    assert_eq!(BiCgStab::new(&a).solve(&b).unwrap().x, b);
}

#[test]
fn one_unknown() {
    let [cg, bicgstab, gmres, pipelined, fcg, fgmres, minres, idr] =
        methods(&diagonal(&[-4.0]), &[8.0], &[0.0]);
    for Solution { x, report } in [cg, pipelined, fcg] {
        assert!(matches!(
            report.outcome,
            Outcome::Breakdown { what: "⟨p, Ap⟩", value: -256.0, iteration: 1 }
        ));
        assert_eq!(x, [0.0]);
    }
    for Solution { x, report } in [bicgstab, gmres, fgmres, minres, idr] {
        assert_eq!((x, report.outcome), (vec![-2.0], Outcome::Converged));
    }
}

#[test]
fn a_skew_symmetric_matrix_breaks_bicgstab_down_and_x_stays_sound() {
    let a = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, -1.0)]).unwrap();
    let [cg, bicgstab, gmres, ..] = methods(&a, &[1.0, 0.0], &[0.0; 2]);
    for broken in [cg, bicgstab] {
        let Outcome::Breakdown { value, iteration, .. } = broken.report.outcome else {
            panic!("{}", broken.report)
        };
        assert_eq!((value, iteration, broken.x), (0.0, 1, vec![0.0; 2]));
    }
    assert!(gmres.report.converged() && (gmres.x[1] - 1.0).abs() < 1e-14);
    // the symmetric part of A vanishes, so ω = 0, although the shadow vector is not orthogonal to the residual
    for n in [4, 10, 30] {
        let entries: Vec<_> =
            (1..n).flat_map(|i| [(i, i - 1, -1.0 - i as f64), (i - 1, i, 1.0 + i as f64)]).collect();
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let solution = BiCgStab::new(&a).max_iterations(500).solve(&matrices::vector(n)).unwrap();
        println!("{}", solution.report);
        assert!(finite(&solution.x));
    }
}

#[test]
fn a_zero_right_hand_side_gives_zero() {
    let a = edge::tridiagonal(20).csr().unwrap();
    for Solution { x, report } in methods(&a, &[0.0; 20], &[0.0; 20]) {
        assert_eq!((x, report.iterations), (vec![0.0; 20], 0));
        assert!(report.converged() && report.relative_residual() == 0.0);
    }
    // the solution is zero for any guess
    for Solution { x, report } in methods(&a, &[0.0; 20], &matrices::vector(20)) {
        assert_eq!((x, report.iterations, report.true_residual), (vec![0.0; 20], 0, 0.0));
        assert!(report.converged());
    }
}

#[test]
fn an_underflowing_right_hand_side_does_not_count_as_converged() {
    let a = edge::tridiagonal(20).csr().unwrap();
    for tiny in [1e-170, 5e-324] {
        for Solution { x, report } in methods(&a, &[tiny; 20], &[0.0; 20]) {
            assert_eq!(report.outcome, Outcome::Breakdown { what: "‖b‖²", value: 0.0, iteration: 0 });
            assert_eq!(x, [0.0; 20]);
        }
    }
    let a = edge::tridiagonal(20).csr::<f32>().unwrap();
    let report = Cg::new(&a).solve(&[1e-30; 20]).unwrap().report;
    assert!(!report.converged(), "{report}");
}

#[test]
fn an_underflowing_residual_does_not_count_as_converged() {
    let a = edge::tridiagonal(20).csr::<f64>().unwrap();
    for tiny in [1e-140, 1e-150, 1e-153, 1e-155, 1e-158] {
        let b: Vec<f64> = matrices::vector(20).iter().map(|b| tiny * b).collect();
        for Solution { x, report } in methods(&a, &b, &[0.0; 20]) {
            println!("{tiny:e}: {report}");
            // computed at a scale where nothing underflows
            let scaled = |v: &[f64]| v.iter().map(|v| v / tiny).collect::<Vec<_>>();
            let (truth, whole) = (residual(&a, &scaled(&x), &scaled(&b)), norm(&scaled(&b)));
            assert!(!report.converged() || truth <= 2e-10 * whole, "{truth:e}, {report}");
            assert!(report.converged() || tiny < 1e-150, "{report}");
        }
    }
    let a = edge::tridiagonal(20).csr::<f32>().unwrap();
    let report = Cg::new(&a).rtol(1e-6).solve(&[1e-18; 20]).unwrap().report;
    assert!(matches!(report.outcome, Outcome::Breakdown { what: "‖r‖²", .. }), "{report}");
}

#[test]
fn an_overflowing_solution_is_reported_where_the_residual_cannot_show_it() {
    // The first column is empty: its unknown does not affect the residual, but grows with the search
    // directions.
    for seed in 0..40 {
        let n = 10 + seed as usize;
        let mut triplets = matrices::random(n, n, 0.2, seed);
        triplets.entries.retain(|e| e.1 != 0);
        let a = triplets.csr::<f64>().unwrap();
        let Solution { x, report } = BiCgStab::new(&a).rtol(1e-10).solve(&matrices::vector(n)).unwrap();
        assert!(finite(&x) || matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
        assert!(!report.converged(), "{report}");
    }
}

#[test]
fn an_exact_guess_takes_no_step_and_is_not_touched() {
    let a = matrices::stencil7(4).csr::<f64>().unwrap();
    let exact: Vec<f64> = (0..64).map(|i| f64::from(i % 5) - 2.0).collect();
    let entries = matrices::stencil7(4).to_triplets();
    let b = entries.product_reference(&exact).0;
    for Solution { x, report } in methods(&a, &b, &exact) {
        assert_eq!((report.iterations, report.outcome, &x), (0, Outcome::Converged, &exact));
        assert_eq!(report.true_residual, 0.0);
    }
}

#[test]
fn a_better_guess_saves_iterations() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let mut cg = Cg::new(&a).rtol(1e-8);
    let cold = cg.solve(&b).unwrap();
    let near: Vec<f64> = cold.x.iter().map(|x| x * (1.0 + 1e-5)).collect();
    let warm = cg.solve_from(&b, &near).unwrap();
    assert!(warm.report.converged() && warm.report.iterations < cold.report.iterations);
    let (rhs, mut x) = (a.domain().vector(&b).unwrap(), a.domain().vector(&near).unwrap());
    let report = cg.solve_into(&rhs, &mut x).unwrap();
    assert_eq!((report.iterations, &report.history), (warm.report.iterations, &warm.report.history));
    assert_eq!(x.as_slice(), warm.x);
    // the solve starts from zero, whatever `x` contains
    x.as_mut_slice().fill(f64::NAN);
    let report = cg.solve_from_zero(&rhs, &mut x).unwrap();
    assert_eq!((report.iterations, &report.history), (cold.report.iterations, &cold.report.history));
    assert_eq!(x.as_slice(), cold.x);
    // a solver that is given the norm of the matrix, estimated by another one, saves the products for the
    // estimate
    let norm = cg.operator_norm();
    assert!(norm.is_some_and(|norm| 3.0 < norm && norm <= 12.0));
    let known = Cg::new(&a).rtol(1e-8).with_operator_norm(norm).solve(&b).unwrap();
    assert_eq!((known.report.backward_error, known.x), (cold.report.backward_error, cold.x));
    cg.operator_mut();
    assert_eq!(cg.operator_norm(), None);
}

#[test]
fn an_indefinite_matrix_breaks_cg_down_at_the_last_sound_iterate() {
    let values: Vec<f64> = (1..=30).map(|i| if i == 7 { -0.5 } else { f64::from(i) }).collect();
    let (a, mut b) = (diagonal(&values), vec![1.0; 30]);
    // the residual of the last iterate exceeds that of zero
    let report = Cg::new(&a).rtol(1e-12).max_iterations(6).solve(&b).unwrap().report;
    assert!(report.true_residual > 5.0 * report.rhs_norm, "{report}");
    let Solution { x, report } = Cg::new(&a).rtol(1e-12).solve(&b).unwrap();
    assert!(matches!(report.outcome, Outcome::Breakdown { iteration: 7, .. }), "{report}");
    assert_eq!((x, report.true_residual), (vec![0.0; 30], report.rhs_norm));
    b[6] = 0.1;
    let Solution { x, report } = Cg::new(&a).rtol(1e-12).solve(&b).unwrap();
    let Outcome::Breakdown { what: "⟨p, Ap⟩", value, iteration } = report.outcome else {
        panic!("{report}")
    };
    assert!(value < 0.0 && iteration > 1 && report.iterations == iteration - 1);
    let sound = Cg::new(&a).rtol(1e-12).max_iterations(iteration - 1).solve(&b).unwrap();
    assert_eq!(sound.x, x);
    assert_eq!(sound.report.true_residual, report.true_residual);
    assert!(report.to_string().contains(&format!("broke down in iteration {iteration}: ⟨p, Ap⟩ = -")));
}

#[test]
fn an_indefinite_preconditioner_breaks_cg_down() {
    let a = edge::tridiagonal(10).csr::<f64>().unwrap();
    let minus = operator_fn(10, |x: &[f64], y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, x)| *y = -x));
    let Solution { x, report } = Cg::new(&a).preconditioner(minus).solve(&[1.0; 10]).unwrap();
    assert_eq!(report.outcome, Outcome::Breakdown { what: "⟨r, M⁻¹r⟩", value: -10.0, iteration: 1 });
    assert_eq!(x, [0.0; 10]);
}

#[test]
fn infinite_and_nan_numbers_are_reported() {
    let a = edge::tridiagonal(10).csr::<f64>().unwrap();
    for bad in [f64::NAN, f64::INFINITY] {
        let mut b = vec![1.0; 10];
        b[3] = bad;
        for Solution { x, report } in methods(&a, &b, &[0.0; 10]) {
            assert_eq!((report.outcome, x), (Outcome::NotFinite { what: "`b`" }, vec![0.0; 10]));
        }
        let mut entries = edge::tridiagonal(10);
        entries.entries[5].2 = bad;
        for Solution { x, report } in methods(&entries.csr().unwrap(), &[1.0; 10], &[0.0; 10]) {
            assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
            assert!(finite(&x));
        }
        let m = operator_fn(10, move |_: &[f64], y: &mut [f64]| y.fill(bad));
        for report in [
            Cg::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            BiCgStab::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            Gmres::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            PipelinedCg::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            Fcg::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            Fgmres::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
            Minres::new(&a).preconditioner(&m).solve(&[1.0; 10]).unwrap().report,
        ] {
            assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
        }
        let mut x0 = [0.0; 10];
        x0[2] = bad;
        for Solution { report, .. } in methods(&a, &[1.0; 10], &x0) {
            assert_eq!(report.outcome, Outcome::NotFinite { what: "the initial residual" });
        }
    }
}

#[test]
fn overflow_is_not_convergence() {
    let scaled = |factor: f64| {
        let mut triplets = edge::tridiagonal(10);
        triplets.entries.iter_mut().for_each(|e| e.2 *= factor);
        triplets.csr::<f64>().unwrap()
    };
    for (matrix, rhs) in [(1e300, 1e10), (1e160, 1.0), (1.0, 1e200), (1e-300, 1e150), (1e-200, 1.0)] {
        for Solution { x, report } in methods(&scaled(matrix), &[rhs; 10], &[0.0; 10]) {
            println!("{matrix:e} x = {rhs:e}: {report}");
            // the solution of the fourth system overflows
            assert!(finite(&x) || matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
            if report.converged() {
                let ax: Vec<f64> = (0..10)
                    .map(|i| {
                        matrix
                            * (2.0 * x[i]
                                - if i > 0 { x[i - 1] } else { 0.0 }
                                - if i < 9 { x[i + 1] } else { 0.0 })
                    })
                    .collect();
                assert!(ax.iter().all(|ax| (ax - rhs).abs() <= 1e-9 * rhs), "{report}: {x:?}");
            }
        }
    }
}

#[test]
fn limits_keep_the_iterate() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let start = b.iter().map(|b| b * b).sum::<f64>().sqrt();
    for Solution { x, report } in [
        Cg::new(&a).max_iterations(5).solve(&b).unwrap(),
        BiCgStab::new(&a).max_iterations(5).solve(&b).unwrap(),
        Gmres::new(&a).max_iterations(5).solve(&b).unwrap(),
        PipelinedCg::new(&a).max_iterations(5).solve(&b).unwrap(),
        Fcg::new(&a).max_iterations(5).solve(&b).unwrap(),
        Fgmres::new(&a).max_iterations(5).solve(&b).unwrap(),
        Minres::new(&a).max_iterations(5).solve(&b).unwrap(),
    ] {
        assert_eq!((report.iterations, &report.outcome), (5, &Outcome::IterationLimit));
        assert!(report.true_residual < start && x.iter().any(|&x| x != 0.0));
        assert!((report.history[5] - report.true_residual).abs() <= 1e-10 * start);
    }
    let guess = matrices::vector(a.rows());
    let none = Cg::new(&a).max_iterations(0).solve_from(&b, &guess).unwrap();
    assert_eq!((none.report.iterations, none.report.outcome, none.x), (0, Outcome::IterationLimit, guess));
}

/// An operator whose products are slow.
fn slow(a: &Csr<f64>) -> impl LinearOperator<Vector = HostVector<f64>> + '_ {
    krysp::solvers::OperatorFn::new(a.domain(), a.range(), |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        std::thread::sleep(Duration::from_millis(3));
        a.apply(x, y)
    })
}

#[test]
fn time_is_limited() {
    let a = edge::tridiagonal(2000).csr::<f64>().unwrap();
    let b = vec![1.0; 2000];
    let report = Cg::new(&a).time_limit(Duration::ZERO).solve(&b).unwrap().report;
    assert_eq!((report.iterations, report.outcome), (0, Outcome::TimeLimit));
    let solution = Cg::new(slow(&a)).time_limit(Duration::from_millis(30)).solve(&b).unwrap();
    assert_eq!(solution.report.outcome, Outcome::TimeLimit);
    assert!((1..=10).contains(&solution.report.iterations), "{}", solution.report);
    assert!(solution.report.time >= Duration::from_millis(30));
    assert!(solution.x.iter().any(|&x| x != 0.0));
}

#[test]
fn another_thread_cancels() {
    let a = edge::tridiagonal(500).csr::<f64>().unwrap();
    let token = CancelToken::new();
    let (ask, asked) = mpsc::channel();
    let (answer, answered) = mpsc::channel();
    let canceller = std::thread::spawn({
        let token = token.clone();
        move || {
            asked.recv().unwrap();
            token.cancel();
            answer.send(()).unwrap();
        }
    });
    let mut cg = Cg::new(&a).cancel_token(&token).observe(move |progress| {
        if progress.iteration == 3 {
            ask.send(()).unwrap();
            answered.recv().unwrap();
        }
    });
    let Solution { x, report } = cg.solve(&[1.0; 500]).unwrap();
    canceller.join().unwrap();
    assert_eq!((report.iterations, report.outcome), (3, Outcome::Cancelled));
    assert!(token.is_cancelled() && x.iter().any(|&x| x != 0.0));
    token.reset();
    assert!(!token.is_cancelled());
}

#[test]
fn a_rule_stops_the_solve() {
    let a = edge::tridiagonal(500).csr::<f64>().unwrap();
    let report = Cg::new(&a).stop_when(|p| p.iteration == 4).solve(&[1.0; 500]).unwrap().report;
    assert_eq!((report.iterations, report.outcome), (4, Outcome::Stopped));
    // in host memory, no further iterations are queued when the rule is evaluated
    let report = Cg::new(&a).stop_soon_when(|p| p.iteration == 4).solve(&[1.0; 500]).unwrap().report;
    assert_eq!((report.iterations, report.outcome), (4, Outcome::Stopped));
}

#[test]
fn observers_see_every_iteration() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let observer = || {
        let seen = seen.clone();
        move |progress: &Progress| seen.lock().unwrap().push(*progress)
    };
    for Solution { report, .. } in [
        Cg::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        BiCgStab::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        Gmres::new(&a).restart(4).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        PipelinedCg::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        Fcg::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        Fgmres::new(&a).restart(4).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        Minres::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
        Idr::new(&a).rtol(1e-9).observe(observer()).solve(&b).unwrap(),
    ] {
        let seen: Vec<Progress> = seen.lock().unwrap().drain(..report.iterations).collect();
        assert!(seen.iter().map(|p| p.iteration).eq(1..=report.iterations));
        assert!(seen.iter().map(|p| p.residual).eq(report.history[1..].iter().copied()));
        assert!(seen.iter().all(|p| p.threshold == 1e-9 * report.rhs_norm));
    }
    assert!(seen.lock().unwrap().is_empty());
}

/// Observers get the whole iterate, also while most of it is accumulated separately (group-wise update).
#[test]
fn iterates_are_seen_whole() {
    let a = edge::tridiagonal(2000).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let residual = |x: &HostVector<f64>| residual(&a, x.as_slice(), &b);
    let seen: Arc<Mutex<Vec<HostVector<f64>>>> = Arc::default();
    let observer = || {
        let seen = seen.clone();
        move |_: &Progress, x: &HostVector<f64>| seen.lock().unwrap().push(x.clone())
    };
    let cg = Cg::new(&a).rtol(0.0).max_iterations(600).observe_iterates(observer());
    let minres = Minres::new(&a).rtol(0.0).max_iterations(600).observe_iterates(observer());
    for solution in [{ cg }.solve(&b).unwrap(), { minres }.solve(&b).unwrap()] {
        let seen: Vec<_> = seen.lock().unwrap().drain(..600).collect();
        assert_eq!(seen[599].as_slice(), solution.x);
        for (x, by_recurrence) in seen.iter().zip(&solution.report.history[1..]) {
            assert!((residual(x) - by_recurrence).abs() <= 1e-6 * by_recurrence);
        }
    }
    let mut gmres = Gmres::new(&a).restart(7).max_iterations(20).observe_iterates(observer());
    let solution = gmres.solve(&b).unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3, "one for each cycle, the last of which is cut short");
    assert_eq!(seen[2].as_slice(), solution.x);
    assert!((residual(&seen[0]) - solution.report.history[7]).abs() <= 1e-9 * residual(&seen[0]));
}

#[test]
fn a_growing_residual_is_divergence() {
    let a = edge::tridiagonal(100).csr::<f64>().unwrap();
    let stopping = Stopping { divergence: 1.0001, ..Stopping::new(f64::EPSILON) };
    // with this right-hand side, the residual of CG increases at first
    let report = Cg::new(&a).stopping(stopping).solve(&matrices::vector(100)).unwrap().report;
    println!("{report}");
    let rose = report.history.windows(2).any(|w| w[1] > 1.0001 * report.history[0]);
    assert_eq!(rose, report.outcome == Outcome::Diverged);
}

#[test]
fn misuse_is_refused_with_numbers_and_advice() {
    let a = edge::tridiagonal(100).csr::<f64>().unwrap();
    let message = |error: Error| error.to_string();
    let said = message(Cg::new(&a).solve(&[1.0; 99]).unwrap_err());
    assert!(said.contains("`b` has 99 entries") && said.contains("100"), "{said}");
    let said = message(Cg::new(&a).solve_from(&[1.0; 100], &[0.0; 101]).unwrap_err());
    assert!(said.contains("`x0` has 101 entries") && said.contains("100"), "{said}");

    let wide = Triplets { rows: 3, cols: 5, entries: vec![(0, 0, 1.0)] }.csr::<f64>().unwrap();
    let error = Gmres::new(&wide).solve(&[1.0; 3]).unwrap_err();
    assert!(matches!(error, Error::NotSquare { rows: 3, columns: 5 }), "{error}");
    assert!(matches!(Jacobi::new(&wide), Err(krysp::Error::NotSquare { rows: 3, cols: 5, .. })));

    let reordered = a.reordered(&Permutation::from_old_of_new((0..100).rev().collect()).unwrap()).unwrap();
    let foreign = Jacobi::new(&reordered).unwrap();
    let said = message(Cg::new(&a).preconditioner(&foreign).solve(&[1.0; 100]).unwrap_err());
    assert!(said.contains("the preconditioner is in another space"), "{said}");
    assert!(said.contains("csr.in_space(op.domain())"), "{said}");
    // the advice in the message works
    let own = Jacobi::new(&a.in_space(reordered.domain()).unwrap()).unwrap();
    assert!(Cg::new(&reordered).preconditioner(own).solve(&[1.0; 100]).unwrap().report.converged());

    let small = Identity::new(&HostSpace::<f64>::new(7));
    let error = Cg::new(&a).preconditioner(small).solve(&[1.0; 100]).unwrap_err();
    assert!(
        matches!(error, Error::Size { what: "the preconditioner", got: 7, expected: 100, .. }),
        "{error}"
    );
    let mut cg = Cg::new(&a);
    let (b, mut x) = (reordered.domain().zeros().unwrap(), a.domain().zeros().unwrap());
    assert!(matches!(cg.solve_into(&b, &mut x), Err(Error::Space { what: "`b`", .. })));
    let b = a.domain().zeros().unwrap();
    let mut x = reordered.domain().zeros().unwrap();
    assert!(matches!(cg.solve_into(&b, &mut x), Err(Error::Space { what: "`x`", .. })));
    let mut x = HostSpace::new(101).zeros().unwrap();
    assert!(matches!(cg.solve_into(&b, &mut x), Err(Error::Size { what: "`x`", got: 101, .. })));
}

#[test]
fn failing_operators_end_the_solve_with_their_error() {
    let space = HostSpace::<f64>::new(4);
    let failing =
        krysp::solvers::OperatorFn::new(&space, &space, |_: &HostVector<f64>, _: &mut HostVector<f64>| {
            Err(Error::Backend("the device is gone".into()))
        });
    let error = BiCgStab::new(failing).solve(&[1.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "the device is gone");
}
