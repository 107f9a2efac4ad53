//! Limited GPU memory: errors, and streamed matrices that are larger than the limit.

use super::gpu;
use super::solves::poisson;
use krysp::solvers::{LinearOperator, Space};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, Triplets};
use krysp::{Cg, Csr, Cuda, Error, Jacobi, MultiGpu, Operator, Streamed, ToCuda};

/// Bytes of a matrix as CSR.
fn bytes(csr: &Csr<f64>) -> usize {
    12 * csr.nnz() + 8 * csr.rows()
}

gpu_test!(streamed_matrices_obey_the_laws);
fn streamed_matrices_obey_the_laws() {
    let gpu = gpu();
    let named = |name: &str| matrices::named(name).unwrap().to_triplets();
    let mut cases: Vec<(String, Triplets)> =
        ["st7_2M_nat", "el3_2M_perm", "p1_0.1M_perm", "rmat_2M", "circuit_1M"]
            .map(|name| (name.into(), named(name)))
            .into();
    cases.push(("wide".into(), matrices::random(3000, 9000, 0.01, 1)));
    cases.push(("tall".into(), matrices::random(9000, 3000, 0.01, 2)));
    cases.push(("a dense row".into(), matrices::edge::dense_row(20_000, 7)));
    cases.push(("three diagonals".into(), matrices::edge::tridiagonal(50_000)));
    cases.push(("empty".into(), matrices::edge::empty(1000, 1000)));
    for (name, triplets) in cases {
        let csr = triplets.csr::<f64>().unwrap();
        for share in [4.0, 0.5, 0.25] {
            let limit = ((share * bytes(&csr) as f64) as usize).max(1 << 16);
            let mut a = Streamed::on(&gpu, &csr, limit).map_err(|error| format!("{name}: {error}")).unwrap();
            println!("{name}, limit {limit}: {}", a.traffic());
            assert!(a.traffic().resident_bytes <= limit);
            if share > 1.0 || bytes(&csr) > 2 * limit {
                assert_eq!(a.traffic().streamed_bytes == 0, share > 1.0, "{name}");
            }
            assert!(a.replays());
            laws::product(&a, &triplets).map_err(|broken| broken.on(&name)).unwrap();
            if csr.rows() == csr.cols() {
                laws::operator_fusions(&a, Agreement::Rounding).map_err(|broken| broken.on(&name)).unwrap();
            }
            let mut twice = triplets.clone();
            twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
            a.refresh(twice.csr::<f64>().unwrap().entries()).unwrap();
            laws::product(&a, &twice).map_err(|broken| broken.on(&name)).unwrap();
        }
    }
}

gpu_test!(streamed_solves_are_those_in_memory);
fn streamed_solves_are_those_in_memory() {
    let gpu = gpu();
    let (csr, b) = poisson(40);
    let solve = |a: &dyn LinearOperator<Vector = krysp::CudaVector<f64>>| {
        let jacobi = Jacobi::new(&csr).unwrap().to(&gpu).unwrap();
        Cg::new(a).preconditioner(jacobi).rtol(1e-10).solve(&b).unwrap()
    };
    let inside = solve(&Operator::auto(&csr, &gpu).unwrap());
    let streamed = Streamed::on(&gpu, &csr, bytes(&csr) / 4).unwrap();
    assert!(streamed.traffic().streamed_bytes > 0 && streamed.traffic().seconds() > 0.0);
    let first = solve(&streamed);
    assert!(first.report.converged(), "{}", first.report);
    assert!(first.report.iterations.abs_diff(inside.report.iterations) <= 1);
    for (one, other) in inside.report.history.iter().zip(&first.report.history).take(20) {
        assert!((one - other).abs() <= 1e-10 * one, "{one:e} {other:e}");
    }
    // bitwise identical from run to run
    let second = solve(&streamed);
    assert_eq!((first.x, first.report.history), (second.x, second.report.history));
}

gpu_test!(an_ordering_stays_with_a_streamed_matrix);
fn an_ordering_stays_with_a_streamed_matrix() {
    let gpu = gpu();
    let (csr, b) = poisson(24);
    let reordered = csr.reordered(&krysp::Permutation::rcm(&csr).unwrap()).unwrap();
    let a = Streamed::on(&gpu, &reordered, bytes(&csr) / 3).unwrap();
    let solution = Cg::new(&a).rtol(1e-10).solve(&b).unwrap();
    assert!(solution.report.converged());
    let x = csr.domain().vector(&solution.x).unwrap();
    let mut y = csr.range().zeros().unwrap();
    csr.apply(&x, &mut y).unwrap();
    for (y, b) in y.as_slice().iter().zip(&b) {
        assert!((y - b).abs() < 1e-7, "{y} {b}");
    }
}

/// Whether an error reports insufficient memory.
fn is_full<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Cuda(krysp::cuda::Error::OutOfMemory { .. })))
}

gpu_test!(a_limit_is_kept_and_refused_memory_does_no_harm);
fn a_limit_is_kept_and_refused_memory_does_no_harm() {
    let gpu = gpu();
    let (csr, b) = poisson(32);
    gpu.limit_memory(bytes(&csr) / 2);
    assert!(is_full(Operator::auto(&csr, &gpu)));
    assert!(gpu.memory().unwrap().1 <= bytes(&csr) / 2);
    // a limit that is too small for the resident part is an error, too
    assert!(is_full(Streamed::on(&Cuda::new(0).unwrap(), &csr, 1000)));
    // another stream of the GPU has a separate limit, and still works
    let other = Cuda::new(0).unwrap();
    assert!(Cg::new(Operator::auto(&csr, &other).unwrap()).solve(&b).unwrap().report.converged());
    // all memory is freed
    let (free, total) = gpu.memory().unwrap();
    assert!(total - free < 64 << 20, "{free} of {total}");
    gpu.limit_memory(usize::MAX);
    assert!(Cg::new(Operator::auto(&csr, &gpu).unwrap()).solve(&b).unwrap().report.converged());
    // a streamed matrix that fits is built within its limit
    let limit = bytes(&csr) / 2;
    let tight = Cuda::new(0).unwrap();
    let beside = 40 << 20; // buffers for measuring the bus, and for partial sums of kernels
    tight.limit_memory(limit + beside);
    let streamed = Streamed::on(&tight, &csr, limit).unwrap();
    assert!(Cg::new(&streamed).solve(&b).unwrap().report.converged());
}

gpu_test!(a_spread_on_a_full_gpu_is_refused_and_can_be_made_again);
fn a_spread_on_a_full_gpu_is_refused_and_can_be_made_again() {
    let (csr, b) = poisson(32);
    let gpus: Vec<Cuda> = (0..Cuda::devices().len().min(8)).map(|at| Cuda::new(at).unwrap()).collect();
    let full = &gpus[gpus.len() - 1];
    full.limit_memory(1 << 20);
    assert!(is_full(MultiGpu::on_all_gpus(&gpus, &csr)));
    full.limit_memory(usize::MAX);
    let multi_gpu = MultiGpu::on_all_gpus(&gpus, &csr).unwrap();
    let solution = multi_gpu.solve(&b, |part, b| Cg::new(part).rtol(1e-8).solve(b)).unwrap();
    assert!(solution.report.converged());
}
