//! Plans with limits, with new values, and their reproducibility from run to run.

use krysp::plan::{AttemptEnd, Preconditioner, Preparation, Solved};
use krysp::testing::matrices;
use krysp::{CancelToken, Csr, Interrupt, Outcome, Plan, gallery};
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// A system that needs more than one attempt.
fn system(kind: usize) -> Csr<f64> {
    match kind {
        // a long chain of stiff and soft springs, on which CG with Jacobi is slow
        0 => {
            let n = 1500;
            let spring = |i: usize| if i.is_multiple_of(7) { 1e-4 } else { 1.0 };
            let entries = (0..n).flat_map(|i| {
                let next = (i + 1 < n).then_some([(i, i + 1, -spring(i + 1)), (i + 1, i, -spring(i + 1))]);
                [(i, i, spring(i) + spring(i + 1))].into_iter().chain(next.into_iter().flatten())
            });
            Csr::from_triplets(n, n, &entries.collect::<Vec<_>>()).unwrap()
        }
        // unsymmetric and badly scaled, with weak diagonal entries
        1 => {
            let n = 700;
            let entries = (0..n).flat_map(|i| {
                let scale = 10f64.powi((i % 9) as i32 - 4);
                let diagonal = if i % 5 == 0 { 1e-9 } else { 1.0 };
                [(i, i, scale * diagonal), (i, (i * 7 + 3) % n, scale), (i, (i + 1) % n, 0.3 * scale)]
            });
            Csr::from_triplets(n, n, &entries.collect::<Vec<_>>()).unwrap()
        }
        // symmetric and indefinite
        2 => {
            let a = matrices::stencil7(9).csr::<f64>().unwrap();
            let shifted: Vec<_> =
                a.triplets().map(|(i, j, v)| (i, j, if i == j { v - 2.0 } else { v })).collect();
            Csr::from_triplets(a.rows(), a.rows(), &shifted).unwrap()
        }
        // a chain without supports: unsymmetric and singular, without a solution for most right-hand sides
        _ => {
            let n = 300;
            let entries = (0..n - 1)
                .flat_map(|i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)]);
            Csr::from_triplets(n, n, &entries.chain([(5, 80, 0.5), (5, 81, -0.5)]).collect::<Vec<_>>())
                .unwrap()
        }
    }
}

fn rhs(n: usize, seed: u64) -> Vec<f64> {
    (0..n).map(|i| ((i as f64 + 1.0) * (0.37 + seed as f64 * 0.11)).sin()).collect()
}

/// The attempts, without times.
fn sequence(solved: &Solved<f64>) -> Vec<String> {
    let attempts = solved.attempts.iter();
    attempts.map(|one| format!("{} {} {}", one.method, one.preconditioner, one.iterations)).collect()
}

/// Time by which a solve may exceed its limit: 0.2 s, and more because other tests run at the same time.
fn slack() -> Duration {
    Duration::from_millis(if std::env::var_os("CI").is_some() { 1000 } else { 400 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Also where values change, so that preconditioners are kept and renewed, and where many solves pay for other setups.
    #[test]
    fn iterations_never_exceed_the_limit(
        kind in 0usize..4,
        limits in prop::array::uniform3(0usize..600),
        solves in prop::option::of(1usize..40),
        values_change in any::<bool>(),
        seed in 0u64..50,
    ) {
        let a = system(kind);
        let mut plan = Plan::new(&a).unwrap().values_change(values_change);
        if let Some(solves) = solves {
            plan = plan.solves(solves);
        }
        let mut solver = plan.build().unwrap();
        for (step, most) in limits.into_iter().enumerate() {
            solver = solver.max_iterations(Some(most));
            let solved = solver.solve(&rhs(a.rows(), seed + step as u64)).unwrap();
            prop_assert!(solved.report.iterations <= most, "{most} allowed: {solved}");
            let made: usize = solved.attempts.iter().map(|one| one.iterations).sum();
            prop_assert_eq!(made, solved.report.iterations);
            prop_assert!(solved.report.relative_residual() <= 1.0, "{solved}");
            let scale = 1.0 + 0.2 * step as f64;
            let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { scale * v } else { v }).collect();
            solver.refresh(&values).unwrap();
        }
    }

    /// The preconditioners are built one after the other; the setup of each takes longer than most limits.
    #[test]
    fn time_limits_hold_while_a_preconditioner_is_built(at in 0usize..7, millis in 0u64..60) {
        use Preconditioner::{Amg, Cholesky, Fsai, Ilut, Ldl, Lu, Spai};
        let a = gallery::poisson::<f64>(&[16; 3]).unwrap();
        let limit = Duration::from_millis(millis);
        let one = [Amg, Cholesky, Fsai, Ilut, Ldl, Lu, Spai][at];
        let mut solver = Plan::new(&a).unwrap().preconditioner(one).time_limit(limit).build().unwrap();
        let started = Instant::now();
        let solved = solver.solve(&rhs(a.rows(), 1)).unwrap();
        prop_assert!(started.elapsed() < limit + slack(), "{:?} for {limit:?}: {solved}", started.elapsed());
        let ended = matches!(solved.report.outcome, Outcome::Converged | Outcome::TimeLimit);
        prop_assert!(ended && solved.report.relative_residual() <= 1.0, "{solved}");
    }

    #[test]
    fn time_limits_hold_in_every_phase(kind in 0usize..4, micros in 0u64..20_000) {
        let a = system(kind);
        let limit = Duration::from_micros(micros);
        let mut solver = Plan::new(&a).unwrap().time_limit(limit).build().unwrap();
        let started = Instant::now();
        let solved = solver.solve(&rhs(a.rows(), 1)).unwrap();
        prop_assert!(started.elapsed() < limit + slack(), "{:?} for {limit:?}: {solved}", started.elapsed());
        prop_assert!(solved.x.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn without_a_time_limit_every_run_makes_the_same_attempts_and_bits() {
    for kind in 0..4 {
        let a = system(kind);
        let run = |solves: Option<usize>| {
            let plan = Plan::new(&a).unwrap();
            let mut solver = solves.map_or(plan.clone(), |solves| plan.solves(solves)).build().unwrap();
            let solved: Vec<_> = (0..3).map(|seed| solver.solve(&rhs(a.rows(), seed)).unwrap()).collect();
            let bits = |solved: &Solved<f64>| solved.x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (
                solved.iter().flat_map(sequence).collect::<Vec<_>>(),
                solved.iter().map(bits).collect::<Vec<_>>(),
            )
        };
        for solves in [None, Some(1), Some(9)] {
            let [first, second] = [run(solves), run(solves)];
            assert_eq!(first.0, second.0);
            assert!(first.1 == second.1, "kind {kind}, {solves:?}: {:?}", first.0);
        }
    }
}

#[test]
fn a_preconditioner_is_kept_for_new_values_until_that_costs_more_than_a_new_one() {
    let a = gallery::poisson::<f64>(&[14; 3]).unwrap();
    let b = rhs(a.rows(), 3);
    let mut solver =
        Plan::new(&a).unwrap().preconditioner(Preconditioner::Amg).values_change(true).build().unwrap();
    let mut seen = vec![];
    for step in 0..40 {
        let shift = 0.02 * f64::from(step);
        let values: Vec<f64> =
            a.triplets().map(|(i, j, v)| if i == j { v + shift } else { v * (1.0 + 0.1 * shift) }).collect();
        solver.refresh(&values).unwrap();
        let solved = solver.solve(&b).unwrap();
        assert!(solved.converged(), "{solved}");
        seen.push(solved.attempts[0].preparation);
    }
    let count = |of: Preparation| seen.iter().filter(|&&one| one == of).count();
    assert!(count(Preparation::Kept) > 20, "{seen:?}");
    assert_eq!(seen[0], Preparation::Built);
    // values for which the old hierarchy is useless
    let far: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { 1e4 * v } else { -1e3 * v }).collect();
    solver.refresh(&far).unwrap();
    let solved = solver.solve(&b).unwrap();
    assert!(solved.converged(), "{solved}");
    assert!(solved.attempts.iter().any(|one| one.preparation == Preparation::Renewed), "{solved}");
}

/// Matrices `M + Δt K` with growing Δt are symmetric positive definite: Jacobi, multigrid and IC(0) are enough.
#[test]
fn a_loop_of_time_steps_stays_with_conjugate_gradients() {
    let k = gallery::poisson::<f64>(&[20; 3]).unwrap();
    let values = |dt: f64| -> Vec<f64> {
        k.triplets().map(|(i, j, v)| dt * v + if i == j { 1.0 } else { 0.0 }).collect()
    };
    for (announced, values_change) in [(None, false), (None, true), (Some(40), true)] {
        let a = k.with_values(&values(0.05)).unwrap();
        let mut plan = Plan::new(&a).unwrap().values_change(values_change);
        if let Some(solves) = announced {
            plan = plan.solves(solves);
        }
        let mut solver = plan.build().unwrap();
        let mut t = vec![1.0; a.rows()];
        for step in 0..40 {
            solver.refresh(&values(0.05 * 1.1f64.powi(step))).unwrap();
            let solved = solver.solve_from(&t.clone(), &t).unwrap();
            assert!(solved.converged(), "{solved}");
            for attempt in &solved.attempts {
                let direct_or_weaker = matches!(
                    attempt.preconditioner,
                    Preconditioner::Jacobi | Preconditioner::Amg | Preconditioner::Ic0
                );
                assert!(direct_or_weaker, "step {step}: {solved}");
            }
            t = solved.x;
        }
    }
}

#[test]
fn a_switch_is_reported_with_its_numbers() {
    let a = system(0);
    let solved = krysp::solve(&a, &rhs(a.rows(), 0)).unwrap();
    assert!(solved.converged(), "{solved}");
    let switched = solved.attempts.iter().any(|one| {
        matches!(&one.ending, AttemptEnd::Switched { to, to_seconds, .. }
            if to.contains(" with ") && *to_seconds > 0.0)
    });
    assert!(switched && solved.to_string().contains("switched to "), "{solved}");
}

#[test]
fn an_interrupted_plan_can_be_used_again() {
    let a = system(2);
    let token = CancelToken::new();
    let mut solver = Plan::new(&a).unwrap().build().unwrap();
    token.cancel();
    let b = rhs(a.rows(), 0);
    let interrupted = Interrupt::new(&token).run(|| solver.solve(&b)).unwrap();
    assert_eq!(interrupted.report.outcome, Outcome::Cancelled);
    assert!(solver.solve(&b).unwrap().converged());
}

/// A failed refresh may leave a factor with some of the new values; the factor is not used again.
#[test]
fn a_factor_that_refuses_values_is_built_again_for_others() {
    let a = gallery::poisson::<f64>(&[9; 3]).unwrap();
    let b = rhs(a.rows(), 2);
    let mut solver =
        Plan::new(&a).unwrap().preconditioner(Preconditioner::Cholesky).values_change(true).build().unwrap();
    assert!(solver.solve(&b).unwrap().converged());
    let indefinite: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v - 5.0 } else { v }).collect();
    solver.refresh(&indefinite).unwrap();
    let refused = solver.solve(&b).unwrap();
    assert!(!refused.converged(), "{refused}");
    let ends = refused.attempts.iter().map(|one| &one.ending);
    assert!(ends.into_iter().any(|end| matches!(end, AttemptEnd::NotBuilt(_))), "{refused}");
    solver.refresh(a.entries()).unwrap();
    let solved = solver.solve(&b).unwrap();
    assert!(solved.converged(), "{solved}");
    assert_eq!(solved.attempts[0].preparation, Preparation::Built, "{solved}");
}
