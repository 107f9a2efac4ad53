//! Solves on a GPU agree with those in host memory, and vectors and formats obey the laws. Without a GPU every test is
//! reported as ignored.

/// A test, and the number of GPUs that it needs.
struct GpuTest {
    name: &'static str,
    gpus: usize,
    run: fn(),
}

inventory::collect!(GpuTest);

/// Registers a function as a test; used in place of `#[test]`.
macro_rules! gpu_test {
    ($name:ident) => {
        gpu_test!($name, 1);
    };
    ($name:ident, $gpus:expr) => {
        inventory::submit! {
            crate::GpuTest { name: concat!(module_path!(), "::", stringify!($name)), gpus: $gpus, run: $name }
        }
    };
}

mod blocks;
mod conformance;
mod irregular;
mod methods;
mod numbering;
mod preconditioners;
mod slices;
mod two_level;

use krysp::cuda::OnCuda;
use krysp::formats::{Bsr, Ehyb, Halo, OnDevice, Sell, SymBsr, SymCsr};
use krysp::io::{read_matrix, read_vector};
use krysp::solvers::{LinearOperator, Method, Solver, Space};
use krysp::testing::laws::{self, Agreement, Broken};
use krysp::testing::matrices::{self, Triplets};
use krysp::testing::{shared_matrix, skipped};
use krysp::{
    BiCgStab, CancelToken, Cg, Csr, Cuda, CudaVector, Gmres, HostVector, Jacobi, Numbering, Operator,
    Outcome, Solution,
};
use libtest_mimic::{Arguments, Trial};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() {
    let gpus = Cuda::devices().len();
    let trial = |test: &GpuTest| {
        let (name, run) = (test.name.trim_start_matches("cuda::"), test.run);
        let trial = Trial::test(name, move || {
            run();
            Ok(())
        });
        trial.with_ignored_flag(test.gpus > gpus)
    };
    let mut trials: Vec<Trial> = inventory::iter::<GpuTest>().map(trial).collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    if gpus == 0 {
        skipped("no CUDA device on this machine");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The first GPU.
fn gpu() -> Cuda {
    Cuda::new(0).unwrap()
}

/// Checks that both solves agree: residuals of the first iterations closely, the numbers of iterations within
/// `percent`, and that the reported residual is that of `x`.
fn agree(a: &Csr<f64>, b: &[f64], host: &Solution<f64>, device: &Solution<f64>, percent: usize) {
    println!("host:   {}\ndevice: {}", host.report, device.report);
    assert_eq!(host.report.outcome, device.report.outcome);
    // the last residuals of a short solve are rounding
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

fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let mut r = b.to_vec();
    for (i, j, v) in a.triplets() {
        r[i] -= v * x[j];
    }
    r.iter().map(|r| r * r).sum::<f64>().sqrt()
}

/// Solves with one method and Jacobi, on the host and on the GPU.
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

type DeviceSolver<L> = Solver<L, OnCuda<f64, Csr<f64>>, krysp::cuda::CudaJacobi<f64>>;

fn poisson(side: usize) -> (Csr<f64>, Vec<f64>) {
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
        krysp::solvers::bicgstab::StabilisedBiConjugateGradients,
        krysp::solvers::bicgstab::StabilisedBiConjugateGradients,
    >(&gpu, &a, &b, |s| s.rtol(1e-10), |s| s.rtol(1e-10));
    agree(&a, &b, &host, &device, 5);
    let [host, device] = both::<
        krysp::solvers::gmres::GeneralisedMinimalResidual,
        krysp::solvers::gmres::GeneralisedMinimalResidual,
    >(&gpu, &a, &b, |s| s.restart(20).rtol(1e-10), |s| s.restart(20).rtol(1e-10));
    agree(&a, &b, &host, &device, 1);
}

gpu_test!(the_returned_iterate_is_the_reported_one);
fn the_returned_iterate_is_the_reported_one() {
    let gpu = gpu();
    let (a, b) = poisson(16);
    let (op, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
    // limits below, at and above the number of steps that are queued ahead
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
    for rtol in [1e-2, 1e-5, 1e-9] {
        let solution = Cg::new(&op).preconditioner(&jacobi).rtol(rtol).solve(&b).unwrap();
        assert_eq!(solution.report.outcome, Outcome::Converged);
        let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
        assert!((truth - last).abs() <= 1e-6 * truth, "{rtol}: {truth:e} {last:e}");
    }
}

gpu_test!(a_resident_solve_equals_single_steps);
fn a_resident_solve_equals_single_steps() {
    let gpu = gpu();
    for a in [
        matrices::stencil7(3).csr::<f64>().unwrap(),
        matrices::stencil7(30).csr().unwrap(),
        matrices::elasticity(12).diagonally_dominant().csr().unwrap(),
        matrices::named("p1_200k").unwrap().diagonally_dominant().csr().unwrap(),
    ] {
        let b = laws::numbers(a.rows(), 5);
        let (op, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
        let at_once = Cg::new(&op).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
        // an observer is called for every step
        let one_by_one = Cg::new(&op).preconditioner(&jacobi).rtol(1e-9).observe(|_| {}).solve(&b).unwrap();
        agree(&a, &b, &one_by_one, &at_once, 1);
        for limit in [1, 2, 300] {
            let solution =
                Cg::new(&op).preconditioner(&jacobi).rtol(1e-30).max_iterations(limit).solve(&b).unwrap();
            // a system that is solved exactly before the limit may stagnate
            let done = solution.report.relative_residual() < 1e-13;
            assert!(solution.report.iterations == limit || done, "{}", solution.report);
            let (truth, last) = (residual(&a, &b, &solution.x), *solution.report.history.last().unwrap());
            assert!((truth - last).abs() <= 1e-8 * truth + 1e-11, "{limit}: {truth:e} {last:e}");
        }
    }
    // both break down by the same number in the same step
    let entries: Vec<_> = (0..100).map(|i| (i, i, if i == 50 { -50.0 } else { 1.0 + i as f64 })).collect();
    let a = Csr::from_triplets(100, 100, &entries).unwrap();
    let ones = Jacobi::from_diagonal(&[1.0; 100]).unwrap();
    let (op, ones) = (a.to(&gpu).unwrap(), ones.to(&gpu).unwrap());
    let b = vec![1.0; 100];
    let at_once = Cg::new(&op).preconditioner(&ones).rtol(1e-12).solve(&b).unwrap();
    let one_by_one = Cg::new(&op).preconditioner(&ones).rtol(1e-12).observe(|_| {}).solve(&b).unwrap();
    let Outcome::Breakdown { what, iteration, .. } = at_once.report.outcome else {
        panic!("{:?}", at_once.report.outcome)
    };
    let Outcome::Breakdown { what: found, iteration: at, .. } = one_by_one.report.outcome else {
        panic!("{:?}", one_by_one.report.outcome)
    };
    assert_eq!((what, iteration), (found, at));
    for (one, other) in at_once.x.iter().zip(&one_by_one.x) {
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
    // doubling the matrix halves the solution
    let twice: Vec<f32> = a.entries().iter().map(|v| 2.0 * v).collect();
    let doubled = a.with_values(&twice).unwrap();
    op.refresh(&twice).unwrap();
    let jacobi = Jacobi::new(&doubled).unwrap().to(&gpu).unwrap();
    for at_once in [true, false] {
        let mut solver = Cg::new(&op).preconditioner(&jacobi).rtol(1e-5);
        if !at_once {
            solver = solver.observe(|_| {});
        }
        let second = solver.solve(&b).unwrap();
        assert!(second.report.converged());
        for (one, other) in first.x.iter().zip(&second.x) {
            assert!((one - 2.0 * other).abs() <= 1e-2 * one.abs() + 1e-3, "{one} {other}");
        }
    }
}

gpu_test!(a_second_solve_is_bitwise_equal_to_the_first);
fn a_second_solve_is_bitwise_equal_to_the_first() {
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
    let (truth, last) = (residual(&a, &b, &device.x), *device.report.history.last().unwrap());
    assert!((truth - last).abs() <= 1e-9 * truth, "{truth:e} {last:e}");
    // an infinite or NaN right-hand side
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
    // products for the first and the last residual, one for each iteration, and for steps queued after the last
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
    assert!(solution.report.iterations < 40, "{}", solution.report.iterations);
}

gpu_test!(vectors_of_two_queues_are_not_combined);
fn vectors_of_two_queues_are_not_combined() {
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

gpu_test!(a_full_device_gives_an_error_and_keeps_working);
fn a_full_device_gives_an_error_and_keeps_working() {
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

gpu_test!(the_chosen_operator_obeys_the_laws);
fn the_chosen_operator_obeys_the_laws() {
    let gpu = gpu();
    for name in ["st7_20k", "el3_2M_perm", "p1_0.1M_perm", "rmat_2M", "circuit_1M"] {
        let matrix = matrices::named(name).unwrap();
        let (csr, triplets) = (matrix.csr::<f64>().unwrap(), matrix.to_triplets());
        let mut a = Operator::auto(&csr, &gpu).unwrap();
        println!("{name}: {}\n", a.choice());
        let named = |broken: Broken| broken.on(name);
        laws::product(&a, &triplets).map_err(named).unwrap();
        laws::operator_fusions(&a, Agreement::Rounding).map_err(named).unwrap();
        let mut twice = triplets;
        twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
        a.refresh(&csr.entries().iter().map(|value| 2.0 * value).collect::<Vec<_>>()).unwrap();
        laws::product(&a, &twice).map_err(named).unwrap();
    }
    let (csr, b) = poisson(16);
    let a = Operator::auto(&csr, &gpu).unwrap();
    assert!(a.replays());
    assert!(Cg::new(&a).solve(&b).unwrap().report.converged());
    let symmetric = Operator::symmetric(&csr, &gpu).unwrap();
    assert!(Cg::new(&symmetric).solve(&b).unwrap().report.converged());
}

gpu_test!(a_later_matrix_leaves_an_earlier_one_its_shared_memory);
/// A kernel asks for as much shared memory as a matrix needs. A smaller matrix created later must not lower the limit
/// of a larger one.
fn a_later_matrix_leaves_an_earlier_one_its_shared_memory() {
    fn multiplies<F: OnDevice<f64>>(gpu: &Cuda) {
        let [large, small] = [16, 2].map(|nodes| {
            let a = matrices::elasticity(nodes).csr::<f64>().unwrap();
            let entries = a.triplets().map(|(i, j, value)| (i as u32, j as u32, value)).collect();
            Triplets { rows: a.rows(), cols: a.cols(), entries }
        });
        let convert = |triplets: &Triplets| {
            let a = triplets.csr::<f64>().unwrap();
            F::on(gpu, &a).unwrap()
        };
        let (first, second) = (convert(&large), convert(&small));
        laws::product(&first, &large).unwrap();
        laws::product(&second, &small).unwrap();
    }
    let gpu = gpu();
    multiplies::<Halo<f64>>(&gpu);
    multiplies::<Ehyb<f64>>(&gpu);
    multiplies::<SymCsr<f64>>(&gpu);
    multiplies::<SymBsr<f64>>(&gpu);
}

gpu_test!(values_on_the_device_refresh_a_renumbered_matrix);
/// A refresh from device memory equals one from the host, in a numbering too, and a resident solve uses the new values.
fn values_on_the_device_refresh_a_renumbered_matrix() {
    let gpu = gpu();
    let given = matrices::elasticity(9).diagonally_dominant().csr::<f64>().unwrap();
    let a = given.renumbered(&Numbering::clustered(&given, 96).unwrap()).unwrap();
    let values: Vec<f64> = given.entries().iter().map(|value| 2.5 * value).collect();
    let on_device = gpu.space::<f64>(values.len()).vector(&values).unwrap();
    fn same<F: OnDevice<f64>>(gpu: &Cuda, a: &Csr<f64>, values: &[f64], on_device: &CudaVector<f64>) {
        let (mut one, mut other) = (F::on(gpu, a).unwrap(), F::on(gpu, a).unwrap());
        one.refresh(values).unwrap();
        other.refresh_on(on_device).unwrap();
        let (one, other) = (one.to_csr().unwrap(), other.to_csr().unwrap());
        assert!(one.triplets().eq(other.triplets()), "{}", F::NAME);
        let short = gpu.space::<f64>(values.len() - 1).zeros().unwrap();
        assert!(F::on(gpu, a).unwrap().refresh_on(&short).is_err());
    }
    same::<Csr<f64>>(&gpu, &a, &values, &on_device);
    same::<Sell<f64>>(&gpu, &a, &values, &on_device);
    same::<Halo<f64>>(&gpu, &a, &values, &on_device);
    same::<Bsr<f64>>(&gpu, &a, &values, &on_device);
    same::<SymBsr<f64>>(&gpu, &a, &values, &on_device);
    same::<Ehyb<f64>>(&gpu, &a, &values, &on_device);
    // larger values give a smaller solution
    let b = laws::numbers(a.rows(), 3);
    let mut solver = Cg::new(Csr::on(&gpu, &a).unwrap()).rtol(1e-10);
    let before = solver.solve(&b).unwrap();
    solver.operator_mut().refresh_on(&on_device).unwrap();
    let after = solver.solve(&b).unwrap();
    for (x, y) in before.x.iter().zip(&after.x) {
        assert!((x - 2.5 * y).abs() <= 1e-7 * (1.0 + x.abs()), "{x} {y}");
    }
}

gpu_test!(several_threads_each_use_their_own_queue);
fn several_threads_each_use_their_own_queue() {
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
        let (Some(matrix), Some(rhs)) = (shared_matrix(name), shared_matrix(&format!("{name}_b"))) else {
            skipped(&format!("{name} is not in the folder of shared matrices"));
            continue;
        };
        let (a, b): (Csr<f64>, Vec<f64>) = (read_matrix(matrix).unwrap(), read_vector(rhs).unwrap());
        println!("{name}");
        if bicgstab {
            use krysp::solvers::bicgstab::StabilisedBiConjugateGradients as Method;
            let [host, device] = both::<Method, Method>(&gpu, &a, &b, |s| s.rtol(1e-8), |s| s.rtol(1e-8));
            agree(&a, &b, &host, &device, 10);
        } else {
            use krysp::solvers::cg::ConjugateGradients as Method;
            let [host, device] = both::<Method, Method>(&gpu, &a, &b, |s| s.rtol(1e-8), |s| s.rtol(1e-8));
            agree(&a, &b, &host, &device, 1);
        }
    }
    let (Some(matrix), Some(rhs)) = (shared_matrix("oseen_tiny"), shared_matrix("oseen_tiny_b")) else {
        skipped("oseen_tiny is not in the folder of shared matrices");
        return;
    };
    let (a, b): (Csr<f64>, Vec<f64>) = (read_matrix(matrix).unwrap(), read_vector(rhs).unwrap());
    let solution = Gmres::new(a.to(&gpu).unwrap()).restart(a.rows()).rtol(1e-8).solve(&b).unwrap();
    println!("oseen_tiny: {}", solution.report);
    assert_eq!(solution.report.outcome, Outcome::Converged);
    assert!(solution.report.iterations.abs_diff(740) <= 37);
}
