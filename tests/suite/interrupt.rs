//! Long work ends soon after its token is cancelled or its time limit is reached, in all phases.

use krysp::io::{read_matrix, write_matrix};
use krysp::plan::{Method, Preconditioner};
use krysp::testing::matrices;
use krysp::{
    Amg, CancelToken, Cg, Cholesky, Csr, Error, Fsai, Growth, Ic0, Ilu0, Ilut, Interrupt, Isai, Lu, Matching,
    Operator, Outcome, Permutation, Plan, Refresh, Sell, Side, Spai, Sparsity, TwoLevel,
};
use krysp_kernels::interrupt::Scope;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Runs `work` in a scope that is interrupted at poll number `at`. Returns the result, the number of polls, and the longest time between
/// two of them.
fn interrupted<R>(at: usize, work: impl FnOnce() -> R) -> (R, usize, Duration) {
    let count = Arc::new(AtomicUsize::new(0));
    let gaps = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
    let (polls, latest) = (count.clone(), gaps.clone());
    let scope = Scope::new(move || {
        let mut latest = latest.lock().unwrap();
        *latest = (Instant::now(), latest.1.max(latest.0.elapsed()));
        polls.fetch_add(1, Ordering::Relaxed) + 1 >= at
    });
    let result = scope.run(work);
    let (last, gap) = *gaps.lock().unwrap();
    (result, count.load(Ordering::Relaxed), gap.max(last.elapsed()))
}

type Work = Box<dyn Fn() -> krysp::Result<()>>;

/// All operations that may take long for a large matrix, with their names; `symmetric` is positive definite.
fn phases(symmetric: Csr<f64>, general: Csr<f64>) -> Vec<(&'static str, Work)> {
    let (a, g) = (Arc::new(symmetric), Arc::new(general));
    let path = std::env::temp_dir().join(format!("krysp_interrupt_{}.mtx", a.rows()));
    write_matrix(&path, &*a).unwrap();
    let zipped = path.with_extension("npz");
    write_matrix(&zipped, &*a).unwrap();
    macro_rules! work {
        ($matrix:ident, $does:expr) => {{
            let $matrix = $matrix.clone();
            Box::new(move || $does.map(drop)) as Work
        }};
    }
    let mut refreshed = Amg::new(&a).unwrap();
    let amg = {
        let a = a.clone();
        Mutex::new(move || refreshed.refresh(&*a))
    };
    vec![
        ("Matrix Market", Box::new(move || read_matrix::<f64>(&path).map(drop)) as Work),
        ("npz", Box::new(move || read_matrix::<f64>(&zipped).map(drop))),
        ("triplets", {
            let entries: Vec<_> = a.triplets().collect();
            let rows = a.rows();
            Box::new(move || Csr::from_triplets(rows, rows, &entries).map(drop))
        }),
        ("RCM", work!(a, Permutation::rcm(&a))),
        ("clustered", work!(a, Permutation::clustered(&a, 512))),
        ("format", work!(a, Operator::auto(&a, &krysp::Host))),
        ("Cholesky", work!(a, Cholesky::new(&a))),
        ("LU", work!(g, Lu::new(&g))),
        ("ILUT", work!(g, Ilut::new(&g))),
        ("ILU(0)", work!(g, Ilu0::new(&g))),
        ("IC(0)", work!(a, Ic0::new(&a))),
        ("matching", work!(g, Matching::of(&g))),
        ("AMG", work!(a, Amg::new(&a))),
        ("AMG refresh", Box::new(move || (amg.lock().unwrap())())),
        ("two-level", work!(a, TwoLevel::new(&a))),
        ("FSAI", work!(a, Fsai::new(&a))),
        (
            "adaptive FSAI",
            work!(a, Fsai::adaptive(&a, Sparsity::Power(0), Growth { max_steps: 3, ..Fsai::<f64>::GROWTH })),
        ),
        ("SPAI", work!(g, Spai::new(&g))),
        (
            "adaptive SPAI",
            work!(
                g,
                Spai::adaptive(
                    &g,
                    Side::Right,
                    Sparsity::Power(0),
                    Growth { max_steps: 3, ..Spai::<f64>::GROWTH }
                )
            ),
        ),
        ("ISAI", work!(g, Isai::new(Ilu0::new(&g)?, Sparsity::Power(1)))),
    ]
}

fn model_matrices(side: usize) -> (Csr<f64>, Csr<f64>) {
    let a = matrices::stencil7(side).csr::<f64>().unwrap();
    let wind = |(i, j, v): (usize, usize, f64)| (i, j, if j > i { 0.4 * v } else { v });
    let g = Csr::from_triplets(a.rows(), a.cols(), &a.triplets().map(wind).collect::<Vec<_>>()).unwrap();
    (a, g)
}

#[test]
fn every_long_phase_can_be_interrupted_early_and_late() {
    let (a, g) = model_matrices(20);
    for (name, work) in phases(a, g) {
        let (whole, polls, _) = interrupted(usize::MAX, &work);
        whole.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(polls >= 1, "{name} polls");
        for at in [1, polls.div_ceil(2), polls - polls / 4] {
            let (result, polled, _) = interrupted(at, &work);
            // work on several threads does not poll equally often every time
            let ended = result.is_ok() && polled < at;
            assert!(
                matches!(result, Err(Error::Interrupted(_))) || ended,
                "{name} at poll {at} of {polls}: {result:?}"
            );
        }
    }
}

/// Measures the longest time between two polls. Takes minutes: `cargo test --release --test suite -- --ignored no_phase`.
#[test]
#[ignore = "takes minutes"]
fn no_phase_works_longer_than_a_fifth_of_a_second_between_two_polls() {
    let (a, g) = model_matrices(100);
    let small = model_matrices(40);
    let mut long = vec![];
    let [large, small] = [(a, g), small].map(|(a, g)| phases(a, g));
    for ((name, large), (_, small)) in large.into_iter().zip(small) {
        // a complete factorization of the large cube would not fit into memory
        let work = if matches!(name, "LU" | "Cholesky") { small } else { large };
        let started = Instant::now();
        let (result, polls, gap) = interrupted(usize::MAX, work);
        println!(
            "{name:20} {:8.3} s, {polls:8} polls, longest gap {:.3} s",
            started.elapsed().as_secs_f64(),
            gap.as_secs_f64()
        );
        if result.is_err() || gap >= Duration::from_millis(200) {
            long.push((name, gap));
        }
    }
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn an_iteration_inside_an_interrupted_scope_ends_the_solve() {
    let (a, _) = model_matrices(12);
    let token = CancelToken::new();
    let interrupt = Interrupt::new(&token);
    let cancel = token.clone();
    let mut solver = Cg::new(Sell::new(&a).unwrap()).observe(move |progress| {
        if progress.iteration == 5 {
            cancel.cancel();
        }
    });
    let report = interrupt.run(|| solver.solve(&vec![1.0; a.rows()])).unwrap().report;
    assert_eq!((report.outcome, report.iterations), (Outcome::Cancelled, 5));
}

#[test]
fn a_time_limit_of_a_plan_ends_a_factorization() {
    // a factorization that takes seconds: a grid in space, with convection
    let (_, g) = model_matrices(if cfg!(debug_assertions) { 26 } else { 40 });
    let plan = Plan::new(&g).unwrap().method(Method::Gmres).preconditioner(Preconditioner::Lu);
    let started = Instant::now();
    let mut solver = plan.time_limit(Duration::from_millis(100)).build().unwrap();
    let solved = solver.solve(&vec![1.0; g.rows()]).unwrap();
    assert_eq!(solved.report.outcome, Outcome::TimeLimit, "{solved}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(solved.x.iter().all(|&x| x == 0.0) && solved.report.true_residual == solved.report.rhs_norm);
}

#[test]
fn a_cancelled_plan_returns_the_guess_without_building_anything() {
    let (a, _) = model_matrices(16);
    let token = CancelToken::new();
    let mut solver =
        Plan::new(&a).unwrap().preconditioner(Preconditioner::Cholesky).build().unwrap().cancel_token(&token);
    token.cancel();
    let guess: Vec<f64> = (0..a.rows()).map(|i| i as f64).collect();
    let solved = solver.solve_from(&vec![1.0; a.rows()], &guess).unwrap();
    assert_eq!(solved.report.outcome, Outcome::Cancelled, "{solved}");
    token.reset();
    assert!(solver.solve(&vec![1.0; a.rows()]).unwrap().converged());
}

/// Iterations of all attempts and of the least-squares search count against one limit.
#[test]
fn no_plan_makes_more_iterations_than_allowed() {
    // singular, and the right-hand side has no solution: every candidate is tried, and then least squares
    let n = 60;
    let mut entries: Vec<(usize, usize, f64)> = (0..n - 1)
        .flat_map(|i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)])
        .collect();
    entries.push((3, 40, 0.5));
    entries.push((3, 41, -0.5));
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let b: Vec<f64> = (0..n).map(|i| 1.0 + (i % 3) as f64).collect();
    for most in [1, 2, 3, 5, 8, 20, 50, 100, 200, 400, 1000] {
        let solved = Plan::new(&a).unwrap().max_iterations(most).build().unwrap().solve(&b).unwrap();
        assert!(solved.report.iterations <= most, "{most} allowed: {solved}");
    }
}
