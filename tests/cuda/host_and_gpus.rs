//! Systems on the threads of the host and GPUs together: one GPU, and two where there are two.

use crate::{gpu, residual};
use krysp::host_and_gpus::{BlockJacobi, DiagonalBlocks, HostAndGpus};
use krysp::partition::RowShares;
use krysp::solvers::{Scalar, Vector};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Csr, Cuda, Error, Fcg, Fgmres, Gmres, Ic0, Idr, Jacobi, LinearOperator, Minres,
    PipelinedCg, Solution, Space, ToCuda,
};

type Result<T> = krysp::solvers::Result<T>;

/// One GPU, and two if there are two.
fn machines() -> Vec<Vec<Cuda>> {
    let second = Cuda::devices().get(1).map(|_| vec![gpu(), Cuda::new(1).unwrap()]);
    [vec![gpu()]].into_iter().chain(second).collect()
}

/// Powers of the host and one GPU, and of the host and two GPUs.
const POWERS: [&[f64]; 2] = [&[1.0, 3.0], &[1.0, 4.0, 2.0]];

fn shared(gpus: &[Cuda], a: &Csr<f64>) -> HostAndGpus<f64> {
    let shares = RowShares::by_nonzeros(a, POWERS[gpus.len() - 1]).unwrap();
    HostAndGpus::with_shares(gpus, a, &shares).unwrap()
}

/// Solves by one method, on the host and on both.
struct Method {
    name: &'static str,
    on_host: fn(&Csr<f64>, &[f64]) -> Result<Solution<f64>>,
    together: fn(&HostAndGpus<f64>, &[f64]) -> Result<Solution<f64>>,
}

macro_rules! methods {
    ($($method:ident),*) => {
        [$(Method {
            name: stringify!($method),
            on_host: |a, b| $method::new(a).preconditioner(Jacobi::new(a)?).rtol(1e-10).solve(b),
            together: |a, b| $method::new(a).preconditioner(a.jacobi()?).rtol(1e-10).solve(b),
        }),*]
    };
}

gpu_test!(every_method_solves_on_host_and_gpus);
fn every_method_solves_on_host_and_gpus() {
    let a = matrices::stencil7(24).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for gpus in machines() {
        let shared = shared(&gpus, &a);
        println!("{shared}");
        for Method { name, on_host, together } in
            methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres, Fgmres]
        {
            let expected = on_host(&a, &b).unwrap();
            let solution = together(&shared, &b).unwrap();
            println!("{name}: {}", solution.report);
            assert!(solution.report.converged(), "{name}: {}", solution.report);
            let truth = residual(&a, &b, &solution.x);
            assert!(truth <= 1.01e-10 * solution.report.rhs_norm, "{name} {truth:e}");
            let allowed = if ["BiCgStab", "Idr"].contains(&name) { 1e-8 } else { 1e-10 };
            let both = expected.report.history.iter().zip(&solution.report.history).take(20);
            for (one, other) in both {
                assert!((one - other).abs() <= allowed * one, "{name}: {one:e} {other:e}");
            }
            for _ in 0..3 {
                let again = together(&shared, &b).unwrap();
                assert_eq!(again.x, solution.x, "{name}");
                assert_eq!(again.report.history, solution.report.history, "{name}");
            }
        }
    }
}

gpu_test!(laws_hold_for_vectors_and_operators);
fn laws_hold_for_vectors_and_operators() {
    for a in [matrices::stencil7(6).csr::<f64>().unwrap(), matrices::edge::tridiagonal(41).csr().unwrap()] {
        for gpus in machines() {
            let shared = shared(&gpus, &a);
            laws::vector_fusions(shared.domain(), Agreement::Rounding).unwrap();
            laws::basis_fusions(shared.domain(), Agreement::Rounding).unwrap();
            laws::operator_fusions(&shared, Agreement::Rounding).unwrap();
            laws::several_products(&shared, &[3], Agreement::Rounding).unwrap();
            laws::stale_values(&shared).unwrap();
            laws::second_product(&shared).unwrap();
            laws::operator_fusions(&shared.jacobi().unwrap(), Agreement::Rounding).unwrap();
        }
    }
}

gpu_test!(a_thousand_products_without_a_wait_are_bitwise_equal);
fn a_thousand_products_without_a_wait_are_bitwise_equal() {
    let a = matrices::named("p1_0.1M_perm").unwrap().csr::<f64>().unwrap();
    let orders = |powers: &[f64]| {
        [RowShares::by_nonzeros(&a, powers).unwrap(), RowShares::by_length_classes(&a, powers).unwrap()]
    };
    let mut whole = a.range().zeros().unwrap();
    let b = matrices::vector(a.rows());
    a.apply(&a.domain().vector(&b).unwrap(), &mut whole).unwrap();
    for (gpus, powers) in machines().iter().zip(POWERS) {
        for shares in orders(powers) {
            let shared = HostAndGpus::with_shares(gpus, &a, &shares).unwrap();
            let x = shared.domain().vector(&b).unwrap();
            let (mut y, mut first, mut again) =
                (shared.domain().zeros().unwrap(), vec![0.0; b.len()], vec![0.0; b.len()]);
            shared.apply(&x, &mut y).unwrap();
            shared.domain().store(&y, &mut first).unwrap();
            for time in 0..1000 {
                shared.apply(&x, &mut y).unwrap();
                if time % 10 == 9 {
                    shared.domain().store(&y, &mut again).unwrap();
                    assert!(first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{time}");
                }
            }
            for (y, whole) in first.iter().zip(whole.as_slice()) {
                assert!((y - whole).abs() <= 1e-12 * (1.0 + whole.abs()), "{y} {whole}");
            }
            // other vectors in each product, so that ghosts of one must not reach another
            let scaled = |factor: f64| {
                let x: Vec<f64> = b.iter().map(|b| factor * b).collect();
                shared.domain().vector(&x).unwrap()
            };
            let vectors = [scaled(1.0), scaled(2.0), scaled(4.0)];
            let mut results = [(); 3].map(|()| shared.domain().zeros().unwrap());
            for _ in 0..50 {
                for (x, y) in vectors.iter().zip(&mut results) {
                    shared.apply(x, y).unwrap();
                }
            }
            for (y, factor) in results.iter().zip([1.0, 2.0, 4.0]) {
                shared.domain().store(y, &mut again).unwrap();
                assert!(first.iter().zip(&again).all(|(one, other)| factor * one == *other), "{factor}");
            }
        }
    }
}

gpu_test!(a_gpu_is_listed_once);
fn a_gpu_is_listed_once() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let twice = HostAndGpus::on_all(&[gpu(), gpu()], &a).err().unwrap();
    assert!(matches!(twice, Error::Option { what: "the list of machines", .. }), "{twice}");
}

gpu_test!(a_full_gpu_is_an_error_and_remains_usable);
fn a_full_gpu_is_an_error_and_remains_usable() {
    let a = matrices::stencil7(40).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let gpus = [gpu()];
    let limit = |bytes: usize| gpus[0].limit_memory(bytes);
    limit(100_000);
    let shares = RowShares::by_nonzeros(&a, POWERS[0]).unwrap();
    let error = HostAndGpus::with_shares(&gpus, &a, &shares).err().unwrap();
    assert!(matches!(error, Error::Cuda(krysp::cuda::Error::OutOfMemory { .. })), "{error}");
    // memory for sums counts only while it is allocated, at first use
    limit(usize::MAX);
    gpus[0].space::<f64>(1).zeros().unwrap().norm_squared().read().unwrap();
    // the host gets the rows that do not fit: 12 bytes per entry in each of two formats, and 0.6, rounded up, for row offsets
    limit(8_000_000);
    let capped = HostAndGpus::on_all(&gpus, &a).unwrap();
    assert!(capped.members()[1].rows.nonzeros * 25 <= 8_000_000 + 4 * 25, "{capped}");
    limit(usize::MAX);
    let shared = shared(&gpus, &a);
    let solve = || Cg::new(&shared).preconditioner(shared.jacobi().unwrap()).rtol(1e-10).solve(&b);
    let expected = solve().unwrap();
    assert!(expected.report.converged());
    // vectors of a solve do not fit
    limit(100_000);
    let error = Cg::new(&shared).rtol(1e-10).solve(&b).err().unwrap().to_string();
    assert!(error.contains("memory"), "{error}");
    limit(usize::MAX);
    assert_eq!(solve().unwrap().x, expected.x);
}

gpu_test!(shares_settle_at_equal_times);
fn shares_settle_at_equal_times() {
    let a = matrices::stencil7(160).csr::<f64>().unwrap();
    let gpus = [gpu()];
    // the GPU repeats products with the second half of its rows nine times
    let measured = |powers: &[f64]| {
        let shares = RowShares::by_nonzeros(&a, powers).unwrap();
        let shared = HostAndGpus::with_shares(&gpus, &a, &shares).unwrap();
        shared.slowed(1, &(a.rows() / 2..a.rows()), 9).unwrap().balance().unwrap()
    };
    let plain = HostAndGpus::on_all(&gpus, &a).unwrap();
    println!("{plain}\n{}\n", plain.balance().unwrap());
    let mut found = measured(&[1.0, 1.0]);
    println!("{found}");
    let is_settled = |seconds: &[f64]| {
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        seconds.iter().all(|time| (time - mean).abs() < 0.05 * mean)
    };
    let mut rounds = 0;
    while !is_settled(&found.seconds) && rounds < 10 {
        (found, rounds) = (measured(&found.powers()), rounds + 1);
        println!("{found}");
    }
    assert!(is_settled(&found.seconds), "after {rounds} rounds: {found}");
    // the slow part makes the share of the GPU smaller
    assert!(found.members[1].rows.nonzeros < plain.members()[1].rows.nonzeros);
}

gpu_test!(a_small_system_needs_no_host);
fn a_small_system_needs_no_host() {
    let a = matrices::stencil7(40).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let shared = HostAndGpus::new(&[gpu()], &a).unwrap();
    println!("{shared}");
    assert_eq!(shared.members()[0].rows.rows, 0);
    assert!(shared.to_string().contains("The host would save time "));
    let solution = Cg::new(&shared).preconditioner(shared.jacobi().unwrap()).rtol(1e-10).solve(&b).unwrap();
    assert!(solution.report.converged());
    assert!(residual(&a, &b, &solution.x) <= 1.01e-10 * solution.report.rhs_norm);
}

gpu_test!(preconditioners_of_each_processor_and_new_values);
fn preconditioners_of_each_processor_and_new_values() {
    let a = matrices::stencil7(24).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for gpus in machines() {
        let mut shared = shared(&gpus, &a);
        let blocks = BlockJacobi::new(&shared, Ic0::new, |block, gpu| Jacobi::new(block)?.to(gpu)).unwrap();
        let solution = Cg::new(&shared).preconditioner(blocks).rtol(1e-10).solve(&b).unwrap();
        assert!(solution.report.converged());
        let twice: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
        shared.refresh(&twice).unwrap();
        let half = Cg::new(&shared).preconditioner(shared.jacobi().unwrap()).rtol(1e-10).solve(&b).unwrap();
        for (half, whole) in half.x.iter().zip(&solution.x) {
            assert!((2.0 * half - whole).abs() <= 1e-7 * (1.0 + whole.abs()), "{half} {whole}");
        }
    }
}

gpu_test!(blocks_on_the_diagonal_are_split_from_the_rest);
fn blocks_on_the_diagonal_are_split_from_the_rest() {
    let a = matrices::stencil7(24).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for block in [16, 32, 1 << 20] {
        let split = DiagonalBlocks::new(&gpu(), &a, block).unwrap();
        let solve = || Cg::new(&split).rtol(1e-10).solve(&b).unwrap();
        let solution = solve();
        assert!(solution.report.converged(), "{}", solution.report);
        assert!(residual(&a, &b, &solution.x) <= 1.01e-10 * solution.report.rhs_norm);
        assert_eq!(solve().x, solution.x);
        let gmres = Gmres::new(&split).rtol(1e-10).solve(&b).unwrap();
        assert!(gmres.report.converged(), "{}", gmres.report);
    }
}

gpu_test!(single_precision_is_split_too);
fn single_precision_is_split_too() {
    let a = matrices::stencil7(20).csr::<f32>().unwrap();
    let shares = RowShares::by_nonzeros(&a, &[1.0, 3.0]).unwrap();
    let shared = HostAndGpus::with_shares(&[gpu()], &a, &shares).unwrap();
    let b = vec![1.0_f32; a.rows()];
    let solution = Cg::new(&shared).preconditioner(shared.jacobi().unwrap()).rtol(1e-5).solve(&b).unwrap();
    assert!(solution.report.converged(), "{}", solution.report);
}
