//! Objects that a process creates only once: contexts, kernels, streams and their memory. These tests count them, so they run
//! alone.

use super::solves::poisson;
use krysp::solvers::{BasicVector, Space};
use krysp::testing::created;
use krysp::{Amg, Cg, Csr, Cuda, Jacobi, Plan, ToCuda};

/// Solves with a new `Cuda`, as each call of `krysp.solve` in Python does.
fn solve(a: &Csr<f64>, b: &[f64]) -> Vec<f64> {
    let gpu = Cuda::new(0).unwrap();
    let plan = Plan::new(a).unwrap().solves(1).on(&gpu).build().unwrap().solve(b).unwrap();
    let jacobi = Jacobi::new(a).unwrap().to(&gpu).unwrap();
    let jacobi = Cg::new(a.to(&gpu).unwrap()).preconditioner(jacobi).solve(b).unwrap();
    let amg = Amg::new(a).unwrap().to(&gpu).unwrap();
    let amg = Cg::new(a.to(&gpu).unwrap()).preconditioner(amg).solve(b).unwrap();
    assert!(plan.converged() && jacobi.report.converged() && amg.report.converged());
    jacobi.x
}

gpu_test!(a_later_device_creates_no_stream_and_loads_no_kernel);
fn a_later_device_creates_no_stream_and_loads_no_kernel() {
    let (a, b) = poisson(10);
    let first = solve(&a, &b);
    let before = created(0);
    assert!(before.queues > 0 && before.modules > 0, "{before:?}");
    for _ in 0..5 {
        assert_eq!(solve(&a, &b), first);
    }
    assert_eq!(created(0), before);
}

gpu_test!(devices_at_the_same_time_have_a_stream_each_and_share_kernels);
fn devices_at_the_same_time_have_a_stream_each_and_share_kernels() {
    let (a, b) = poisson(10);
    let first = solve(&a, &b);
    let before = created(0);
    let gpus = [0; 6].map(|ordinal| Cuda::new(ordinal).unwrap());
    for (at, gpu) in gpus.iter().enumerate() {
        assert!(gpus[..at].iter().all(|other| other.stream() != gpu.stream()));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = gpus.iter().map(|_| scope.spawn(|| [0; 5].map(|_| solve(&a, &b)))).collect();
        for thread in threads {
            assert!(thread.join().unwrap().iter().all(|x| *x == first));
        }
    });
    assert_eq!(created(0).modules, before.modules);
}

gpu_test!(limits_and_errors_end_with_their_device);
fn limits_and_errors_end_with_their_device() {
    let (a, b) = poisson(10);
    let first = solve(&a, &b);
    // more devices than the idle streams that the process keeps: the next device has a new stream
    let others = [0; 8].map(|ordinal| Cuda::new(ordinal).unwrap());
    let gpu = Cuda::new(0).unwrap();
    let whole = gpu.memory().unwrap().1;
    gpu.limit_memory(1 << 20);
    drop(gpu);
    let before = created(0);
    let again = Cuda::new(0).unwrap();
    assert_eq!(created(0), before);
    assert_eq!(again.memory().unwrap().1, whole);
    let x = again.space::<f64>(1000).zeros().unwrap();
    again.limit_memory(0);
    // the allocation for the sum fails, and the device stores the error
    let _ = x.dot(&x);
    drop((x, again));
    let next = Cuda::new(0).unwrap();
    assert_eq!(created(0).queues, before.queues + 1);
    drop((next, others));
    assert_eq!(solve(&a, &b), first);
}

gpu_test!(memory_of_idle_streams_is_there_for_others);
fn memory_of_idle_streams_is_there_for_others() {
    let zeros = |gpu: &Cuda, bytes: usize| drop(gpu.space::<f64>(bytes / 8).zeros().unwrap());
    let [idle, gpu] = [0; 2].map(|ordinal| Cuda::new(ordinal).unwrap());
    zeros(&idle, 200 << 20);
    drop(idle);
    // all memory but a reserve for the driver, which is smaller than the memory of the idle stream
    zeros(&gpu, gpu.memory().unwrap().0 - (100 << 20));
}
