//! Solves on a GPU agree with those in host memory, wherever and however they end.

use super::gpu;
use krysp::cuda::CudaMatrix;

use krysp::ToCuda;
use krysp::io::{read_matrix, read_vector};
use krysp::solvers::{LinearOperator, Method, Solver, Space};
use krysp::testing::laws;
use krysp::testing::matrices;
use krysp::testing::needed_matrix;
use krysp::{BiCgStab, CancelToken, Cg, Csr, Cuda, CudaVector, Gmres, HostVector, Jacobi, Outcome, Solution};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Residuals of the first iterations agree closely, the numbers of iterations approximately, and `x` is the reported iterate.
pub(super) fn agree(a: &Csr<f64>, b: &[f64], host: &Solution<f64>, device: &Solution<f64>, percent: usize) {
    println!("host:   {}\ndevice: {}", host.report, device.report);
    assert_eq!(host.report.outcome, device.report.outcome);
    // the last residuals of a short solve are dominated by rounding
    let floor = 1e-14 * host.report.history[0];
    for (i, (h, d)) in host.report.history.iter().zip(&device.report.history).take(20).enumerate() {
        assert!((h - d).abs() <= 1e-10 * h + floor, "residual {i}: {h:e} on the host, {d:e} on the device");
    }
    let (h, d) = (host.report.iterations, device.report.iterations);
    assert!(100 * h.abs_diff(d) <= percent * h.max(100), "{h} iterations on the host, {d} on the device");
    let truth = residual(a, b, &device.x);
    let reported = device.report.true_residual;
    assert!((truth - reported).abs() <= 1e-3 * truth + 1e-13, "{truth:e}, not {reported:e}");
}

pub(super) fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let mut r = b.to_vec();
    for (i, j, v) in a.triplets() {
        r[i] -= v * x[j];
    }
    r.iter().map(|r| r * r).sum::<f64>().sqrt()
}

/// Solves on host and GPU with one method and Jacobi; the functions `host` and `device` set the other options.
fn both<K, L>(
    gpu: &Cuda,
    a: &Csr<f64>,
    b: &[f64],
    host: impl FnOnce(Solver<K, &Csr<f64>, Jacobi<f64>>) -> Solver<K, &Csr<f64>, Jacobi<f64>>,
    device: impl FnOnce(DeviceSolver<L>) -> DeviceSolver<L>,
) -> [Solution<f64>; 2]
where
    K: Method<HostVector<f64>> + Default,
    L: Method<CudaVector<f64>> + Default,
{
    let jacobi = Jacobi::new(a).unwrap();
    let on_gpu = (a.to(gpu).unwrap(), jacobi.to(gpu).unwrap());
    let host = host(Solver::new(a).preconditioner(jacobi)).solve(b).unwrap();
    let device = device(Solver::new(on_gpu.0).preconditioner(on_gpu.1)).solve(b).unwrap();
    [host, device]
}

type DeviceSolver<L> = Solver<L, CudaMatrix<f64, Csr<f64>>, <Jacobi<f64> as ToCuda>::OnCuda>;

pub(super) fn poisson(side: usize) -> (Csr<f64>, Vec<f64>) {
    let a = matrices::stencil7(side).csr::<f64>().unwrap();
    let b = laws::numbers(a.rows(), 3);
    (a, b)
}

gpu_test!(every_method_solves_as_on_the_host);
fn every_method_solves_as_on_the_host() {
    let gpu = gpu();
    let (a, b) = poisson(24);
    let [host, device] = both::<krysp::solvers::cg::ConjugateGradients, krysp::solvers::cg::ConjugateGradients>(
        &gpu,
        &a,
        &b,
        |s| s.rtol(1e-10),
        |s| s.rtol(1e-10),
    );
    agree(&a, &b, &host, &device, 1);
    let [low, high] = [&host, &device].map(|s| s.report.condition.as_ref().unwrap().ratio());
    assert!((low - high).abs() <= 1e-6 * low, "{low} {high}");
    let [host, device] = both::<
        krysp::solvers::bicgstab::StabilizedBiConjugateGradients,
        krysp::solvers::bicgstab::StabilizedBiConjugateGradients,
    >(&gpu, &a, &b, |s| s.rtol(1e-10), |s| s.rtol(1e-10));
    agree(&a, &b, &host, &device, 5);
    let [host, device] = both::<
        krysp::solvers::gmres::GeneralizedMinimalResidual,
        krysp::solvers::gmres::GeneralizedMinimalResidual,
    >(&gpu, &a, &b, |s| s.restart(20).rtol(1e-10), |s| s.restart(20).rtol(1e-10));
    agree(&a, &b, &host, &device, 1);
}

gpu_test!(the_iterate_is_the_one_reported_wherever_a_solve_ends);
fn the_iterate_is_the_one_reported_wherever_a_solve_ends() {
    let gpu = gpu();
    let (a, b) = poisson(16);
    let (op, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
    // limits before, at and after the steps queued ahead of the host
    for limit in [0, 1, 2, 3, 7, 8, 9, 10, 17, 30] {
        let solution =
            Cg::new(&op).preconditioner(&jacobi).rtol(0.0).max_iterations(limit).solve(&b).unwrap();
        assert_eq!(solution.report.outcome, Outcome::IterationLimit);
        assert_eq!(solution.report.iterations, limit);
        let (truth, last) = (residual(&a, &b, &solution.x), solution.report.history[limit]);
        assert!((truth - last).abs() <= 1e-9 * truth, "{limit}: {truth:e} {last:e}");
    }
    for at in [1, 5, 20] {
        let mut solver = Cg::new(&op)
            .preconditioner(&jacobi)
            .rtol(0.0)
            .stop_when(move |progress| progress.iteration == at);
        let solution = solver.solve(&b).unwrap();
        assert_eq!(solution.report.outcome, Outcome::Stopped);
        assert!(solution.report.iterations >= at);
        let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
        assert!((truth - last).abs() <= 1e-9 * truth, "{at}: {truth:e} {last:e}");
    }
    // all iterations of a kernel launch are made, and those of the next launch, which is already queued
    for at in [1, 5, 70, 200] {
        let solver = Cg::new(&op).preconditioner(&jacobi).rtol(0.0);
        let solution =
            solver.max_iterations(400).stop_soon_when(move |p| p.iteration >= at).solve(&b).unwrap();
        let made = solution.report.iterations;
        assert_eq!(solution.report.outcome, Outcome::Stopped);
        assert!((at..=at + 128).contains(&made), "{at}: {made}");
        let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
        assert!((truth - last).abs() <= 1e-9 * truth || last < 1e-12, "{at}: {truth:e} {last:e}");
    }
    for rtol in [1e-2, 1e-5, 1e-9] {
        let solution = Cg::new(&op).preconditioner(&jacobi).rtol(rtol).solve(&b).unwrap();
        assert_eq!(solution.report.outcome, Outcome::Converged);
        let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
        assert!((truth - last).abs() <= 1e-6 * truth, "{rtol}: {truth:e} {last:e}");
    }
}

gpu_test!(many_steps_in_one_launch_are_the_same_steps);
fn many_steps_in_one_launch_are_the_same_steps() {
    let gpu = gpu();
    for a in [
        matrices::stencil7(3).csr::<f64>().unwrap(),
        matrices::stencil7(30).csr().unwrap(),
        matrices::elasticity(12).diagonally_dominant().csr().unwrap(),
        matrices::named("p1_200k").unwrap().diagonally_dominant().csr().unwrap(),
    ] {
        let b = laws::numbers(a.rows(), 5);
        let (op, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
        let batched = Cg::new(&op).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
        // a rule is evaluated after every step, so that steps are queued one by one
        let one_by_one =
            Cg::new(&op).preconditioner(&jacobi).rtol(1e-9).stop_when(|_| false).solve(&b).unwrap();
        agree(&a, &b, &one_by_one, &batched, 1);
        for limit in [1, 2, 300] {
            let solution =
                Cg::new(&op).preconditioner(&jacobi).rtol(1e-30).max_iterations(limit).solve(&b).unwrap();
            // systems that reach the rounding level may stagnate there
            let done = solution.report.relative_residual() < 1e-13;
            assert!(solution.report.iterations == limit || done, "{}", solution.report);
            let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
            assert!((truth - last).abs() <= 1e-8 * truth + 1e-11, "{limit}: {truth:e} {last:e}");
        }
    }
    // breakdown at the same step, with the same number
    let entries: Vec<_> = (0..100).map(|i| (i, i, if i == 50 { -50.0 } else { 1.0 + i as f64 })).collect();
    let a = Csr::from_triplets(100, 100, &entries).unwrap();
    let ones = Jacobi::from_diagonal(&[1.0; 100]).unwrap();
    let (op, ones) = (a.to(&gpu).unwrap(), ones.to(&gpu).unwrap());
    let b = vec![1.0; 100];
    let batched = Cg::new(&op).preconditioner(&ones).rtol(1e-12).solve(&b).unwrap();
    let one_by_one = Cg::new(&op).preconditioner(&ones).rtol(1e-12).stop_when(|_| false).solve(&b).unwrap();
    let Outcome::Breakdown { what, iteration, .. } = batched.report.outcome else {
        panic!("{:?}", batched.report.outcome)
    };
    let Outcome::Breakdown { what: found, iteration: at, .. } = one_by_one.report.outcome else {
        panic!("{:?}", one_by_one.report.outcome)
    };
    assert_eq!((what, iteration), (found, at));
    for (one, other) in batched.x.iter().zip(&one_by_one.x) {
        approx::assert_relative_eq!(one, other, max_relative = 1e-9);
    }
}

gpu_test!(single_steps_and_new_values_agree_in_f32);
fn single_steps_and_new_values_agree_in_f32() {
    let gpu = gpu();
    let a = matrices::stencil7(20).csr::<f32>().unwrap();
    let b = laws::numbers::<f32>(a.rows(), 5);
    let mut op = a.to(&gpu).unwrap();
    let jacobi = Jacobi::new(&a).unwrap().to(&gpu).unwrap();
    let first = Cg::new(&op).preconditioner(&jacobi).rtol(1e-5).solve(&b).unwrap();
    assert!(first.report.converged());
    // twice the matrix, half the solution
    let twice: Vec<f32> = a.entries().iter().map(|v| 2.0 * v).collect();
    let doubled = a.with_values(&twice).unwrap();
    op.refresh(&twice).unwrap();
    let jacobi = Jacobi::new(&doubled).unwrap().to(&gpu).unwrap();
    for batched in [true, false] {
        let mut solver = Cg::new(&op).preconditioner(&jacobi).rtol(1e-5);
        if !batched {
            solver = solver.stop_when(|_| false);
        }
        let second = solver.solve(&b).unwrap();
        assert!(second.report.converged());
        for (one, other) in first.x.iter().zip(&second.x) {
            assert!((one - 2.0 * other).abs() <= 1e-2 * one.abs() + 1e-3, "{one} {other}");
        }
    }
}

gpu_test!(a_second_solve_is_bitwise_the_first);
fn a_second_solve_is_bitwise_the_first() {
    let gpu = gpu();
    let (a, b) = poisson(20);
    let (op, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
    let mut solver = Cg::new(&op).preconditioner(&jacobi).rtol(1e-8);
    let (first, second) = (solver.solve(&b).unwrap(), solver.solve(&b).unwrap());
    assert_eq!(first.report.history, second.report.history);
    assert_eq!(first.x, second.x);
    let (rhs, mut x) = (op.domain().vector(&b).unwrap(), op.domain().zeros().unwrap());
    for _ in 0..2 {
        op.domain().load(&vec![0.0; b.len()], &mut x).unwrap();
        assert!(solver.solve_into(&rhs, &mut x).unwrap().converged());
    }
    let mut host = vec![0.0; b.len()];
    op.domain().store(&x, &mut host).unwrap();
    assert_eq!(host, first.x);
}

gpu_test!(breakdowns_are_named_and_leave_the_last_sound_iterate);
fn breakdowns_are_named_and_leave_the_last_sound_iterate() {
    let gpu = gpu();
    // an indefinite diagonal: ⟨p, Ap⟩ turns negative
    let entries: Vec<_> = (0..100).map(|i| (i, i, if i == 50 { -50.0 } else { 1.0 + i as f64 })).collect();
    let a = Csr::from_triplets(100, 100, &entries).unwrap();
    let b = vec![1.0; 100];
    let host = Cg::new(&a).rtol(1e-12).solve(&b).unwrap();
    let device = Cg::new(a.to(&gpu).unwrap()).rtol(1e-12).solve(&b).unwrap();
    let Outcome::Breakdown { what, iteration, .. } = host.report.outcome else {
        panic!("{:?}", host.report.outcome)
    };
    let Outcome::Breakdown { what: found, iteration: at, .. } = device.report.outcome else {
        panic!("{:?}", device.report.outcome)
    };
    assert_eq!((what, iteration), (found, at));
    // the last iterate, or the initial guess if that has a smaller residual
    let history = &device.report.history;
    let (truth, sound) = (residual(&a, &b, &device.x), history.last().unwrap().min(history[0]));
    assert!((truth - sound).abs() <= 1e-9 * truth, "{truth:e} {sound:e}");
    // a right-hand side that is not finite
    let mut bad = b.clone();
    bad[3] = f64::NAN;
    let outcome = Cg::new(a.to(&gpu).unwrap()).solve(&bad).unwrap().report.outcome;
    assert!(matches!(outcome, Outcome::NotFinite { .. }), "{outcome:?}");
    // a matrix that is not finite
    let poisoned = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, f64::INFINITY), (1, 1, 1.0)]).unwrap();
    let outcome = BiCgStab::new(poisoned.to(&gpu).unwrap()).solve(&[1.0, 1.0]).unwrap().report.outcome;
    assert!(matches!(outcome, Outcome::NotFinite { .. }), "{outcome:?}");
}

gpu_test!(a_matrix_free_operator_is_not_replayed);
fn a_matrix_free_operator_is_not_replayed() {
    let gpu = gpu();
    let (a, b) = poisson(10);
    let inner = a.to(&gpu).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let space = inner.domain().clone();
    let function = move |x: &CudaVector<f64>, y: &mut CudaVector<f64>| {
        counted.fetch_add(1, Ordering::Relaxed);
        inner.apply(x, y)
    };
    let solution = Cg::new(krysp::solvers::OperatorFn::new(&space, &space, function)).solve(&b).unwrap();
    assert!(solution.report.converged());
    // the products for the first and the last residual, and one per iteration, including some iterations beyond the last
    let expected = solution.report.iterations + 2;
    assert!((expected..expected + 16).contains(&calls.load(Ordering::Relaxed)));
}

gpu_test!(cancelling_ends_a_solve);
fn cancelling_ends_a_solve() {
    let gpu = gpu();
    let (a, b) = poisson(16);
    let token = CancelToken::new();
    let pulled = token.clone();
    let mut solver = Cg::new(a.to(&gpu).unwrap()).rtol(0.0).cancel_token(&token).observe(move |progress| {
        if progress.iteration == 4 {
            pulled.cancel();
        }
    });
    let solution = solver.solve(&b).unwrap();
    assert_eq!(solution.report.outcome, Outcome::Cancelled);
    // iterations that were already queued are made: one launch of many iterations
    assert!(solution.report.iterations <= 300, "{}", solution.report.iterations);
}

gpu_test!(an_observer_changes_nothing);
fn an_observer_changes_nothing() {
    let gpu = gpu();
    let (a, b) = poisson(16);
    let op = a.to(&gpu).unwrap();
    let seen = Arc::new(Mutex::new(vec![]));
    let seer = seen.clone();
    let observed =
        Cg::new(&op).observe(move |progress| seer.lock().unwrap().push(progress.residual)).solve(&b);
    let (observed, alone) = (observed.unwrap(), Cg::new(&op).solve(&b).unwrap());
    assert_eq!(observed.x, alone.x);
    assert_eq!(observed.report.history, alone.report.history);
    assert_eq!(*seen.lock().unwrap(), observed.report.history[1..]);
    // with a rule, even one that never stops, iterations run one by one, and their sums are rounded differently
    let ruled = Cg::new(&op).stop_when(|_| false).solve(&b).unwrap();
    assert!(ruled.report.converged() && ruled.report.iterations.abs_diff(alone.report.iterations) <= 1);
}

gpu_test!(spaces_of_two_queues_do_not_mix);
fn spaces_of_two_queues_do_not_mix() {
    let gpu = gpu();
    let other = Cuda::new(0).unwrap();
    let (a, b) = poisson(8);
    let op = a.to(&gpu).unwrap();
    let jacobi = Jacobi::new(&a).unwrap().to(&other).unwrap();
    assert!(Cg::new(&op).preconditioner(jacobi).solve(&b).is_err());
    let x = other.space::<f64>(a.rows()).zeros().unwrap();
    let mut y = op.range().zeros().unwrap();
    assert!(op.apply(&x, &mut y).is_err());
    assert!(op.apply_dot(&x, &mut y).is_err());
    let short = gpu.space::<f64>(a.rows() - 1).zeros().unwrap();
    assert!(op.apply(&short, &mut y).is_err());
}

gpu_test!(a_full_device_says_so_and_goes_on);
fn a_full_device_says_so_and_goes_on() {
    let gpu = gpu();
    let (free, total) = gpu.memory().unwrap();
    let too_many = total / 8 + 1;
    match gpu.space::<f64>(too_many).zeros() {
        Err(krysp::solvers::Error::Backend(error)) => {
            let text = error.to_string();
            assert!(text.contains(&format!("{} bytes", too_many * 8)), "{text}");
            println!("{text} (before: {free})");
        }
        other => panic!("{other:?}"),
    }
    let (a, b) = poisson(8);
    assert!(Cg::new(a.to(&gpu).unwrap()).solve(&b).unwrap().report.converged());
}

gpu_test!(threads_with_a_queue_each);
fn threads_with_a_queue_each() {
    let (a, b) = poisson(20);
    let expected = Cg::new(a.to(&Cuda::new(0).unwrap()).unwrap()).solve(&b).unwrap().x;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let gpu = Cuda::new(0).unwrap();
                for _ in 0..5 {
                    let solution = Cg::new(a.to(&gpu).unwrap()).solve(&b).unwrap();
                    assert_eq!(solution.x, expected);
                }
            });
        }
    });
}

gpu_test!(two_devices, 2);
fn two_devices() {
    let (a, b) = poisson(16);
    let [first, second] = [0, 1].map(|ordinal| {
        let gpu = Cuda::new(ordinal).unwrap();
        Cg::new(a.to(&gpu).unwrap()).solve(&b).unwrap().x
    });
    assert_eq!(first, second);
}

gpu_test!(real_systems_solve_as_on_the_host);
fn real_systems_solve_as_on_the_host() {
    let gpu = gpu();
    for (name, bicgstab) in
        [("heat_sink_p1_340k", false), ("elast_bracket_p1_59k", false), ("convdiff_channel_p1_186k", true)]
    {
        let (Some(matrix), Some(rhs)) = (needed_matrix(name), needed_matrix(&format!("{name}_b"))) else {
            continue;
        };
        let (a, b): (Csr<f64>, Vec<f64>) = (read_matrix(matrix).unwrap(), read_vector(rhs).unwrap());
        println!("{name}");
        if bicgstab {
            use krysp::solvers::bicgstab::StabilizedBiConjugateGradients as Method;
            let [host, device] = both::<Method, Method>(&gpu, &a, &b, |s| s.rtol(1e-8), |s| s.rtol(1e-8));
            agree(&a, &b, &host, &device, 10);
        } else {
            use krysp::solvers::cg::ConjugateGradients as Method;
            let [host, device] = both::<Method, Method>(&gpu, &a, &b, |s| s.rtol(1e-8), |s| s.rtol(1e-8));
            agree(&a, &b, &host, &device, 1);
        }
    }
    let (Some(matrix), Some(rhs)) = (needed_matrix("oseen_tiny"), needed_matrix("oseen_tiny_b")) else {
        return;
    };
    let (a, b): (Csr<f64>, Vec<f64>) = (read_matrix(matrix).unwrap(), read_vector(rhs).unwrap());
    let solution = Gmres::new(a.to(&gpu).unwrap()).restart(a.rows()).rtol(1e-8).solve(&b).unwrap();
    println!("oseen_tiny: {}", solution.report);
    assert_eq!(solution.report.outcome, Outcome::Converged);
    assert!(solution.report.iterations.abs_diff(740) <= 37);
}
