//! Systems on several GPUs, and on one GPU.

use krysp::ToCuda;
use krysp::cuda::{CudaSpace, CudaVector};
use krysp::multi_gpu::GpuPart;
use krysp::solvers::{Composed, LinearOperator, Space};
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Csr, Cuda, Error, Fcg, Fgmres, Fsai, Gmres, Idr, Jacobi, Minres, MultiGpu, Operator,
    Outcome, Permutation, PipelinedCg, Solution,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

type Result<T> = krysp::solvers::Result<T>;

/// Teams to test, groups of GPUs that solve together: the first GPU, and up to eight GPUs of the machine. On a machine with
/// one GPU, two streams of it form a team if the environment has `CUDA_MODULE_LOADING=EAGER`. Use that for manual runs only:
/// if CUDA loads a module while one stream waits for the other, it may wait for both, and the solve ends with an error after
/// ten seconds.
fn teams() -> Vec<Vec<Cuda>> {
    let mut teams = vec![vec![0]];
    match Cuda::devices().len() {
        0 | 1 if std::env::var("CUDA_MODULE_LOADING").is_ok_and(|how| how == "EAGER") => {
            teams.push(vec![0, 0])
        }
        0 | 1 => krysp::testing::skipped(
            "teams of several GPUs: this machine has one; CUDA_MODULE_LOADING=EAGER makes a team of its queues",
        ),
        all => teams.push((0..all.min(8)).collect()),
    }
    let team = |ordinals: Vec<usize>| ordinals.into_iter().map(|at| Cuda::new(at).unwrap()).collect();
    teams.into_iter().map(team).collect()
}

/// A matrix that is distributed evenly.
fn shared(team: &[Cuda], a: &Csr<f64>) -> MultiGpu<f64> {
    MultiGpu::on_streams(team, a, &vec![1.0; team.len()]).unwrap()
}

/// Solves with a method on a part.
type Solve = fn(&GpuPart<f64>, &[f64]) -> Result<Solution<f64>>;

macro_rules! methods {
    ($($method:ident),*) => {
        [$((stringify!($method), (|part, b| {
            let mut solver = $method::new(part).preconditioner(part.jacobi()?).rtol(1e-10);
            solver.solve(b)
        }) as Solve)),*]
    };
}

gpu_test!(every_method_solves_on_several_gpus);
fn every_method_solves_on_several_gpus() {
    let a = matrices::stencil7(24).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let multi_gpu = shared(&team, &a);
        println!("{multi_gpu}");
        for (name, solve) in methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres, Fgmres] {
            let solution = multi_gpu.solve(&b, solve).unwrap();
            println!("{name}: {}", solution.report);
            assert!(solution.report.converged(), "{name}: {}", solution.report);
            let residual = residual(&a, &solution.x, &b);
            assert!(
                (residual - solution.report.true_residual).abs() <= 1e-6 * residual + 1e-14,
                "{name} {residual:e}"
            );
            for _ in 0..3 {
                let again = multi_gpu.solve(&b, solve).unwrap();
                assert_eq!(again.x, solution.x, "{name}");
                assert_eq!(again.report.history, solution.report.history, "{name}");
            }
        }
        let alone =
            Cg::new(a.to(&team[0]).unwrap()).preconditioner(Jacobi::new(&a).unwrap().to(&team[0]).unwrap());
        let alone = { alone }.rtol(1e-10).solve(&b).unwrap();
        let together = multi_gpu.solve(&b, methods![Cg][0].1).unwrap();
        assert!(alone.report.iterations.abs_diff(together.report.iterations) <= 2);
        for (one, other) in alone.report.history.iter().zip(&together.report.history).take(20) {
            assert!((one - other).abs() <= 1e-10 * one, "{one:e} {other:e}");
        }
    }
}

fn residual(a: &Csr<f64>, x: &[f64], b: &[f64]) -> f64 {
    let row = |i: usize| {
        let entries = a.row_columns(i).iter().zip(a.row_values(i));
        b[i] - entries.map(|(&j, v)| v * x[j as usize]).sum::<f64>()
    };
    (0..a.rows()).map(|i| row(i).powi(2)).sum::<f64>().sqrt()
}

gpu_test!(an_ordering_stays_between_matrix_and_parts);
fn an_ordering_stays_between_matrix_and_parts() {
    let a = matrices::named("el3_0.3M_nat").unwrap().diagonally_dominant().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let reordered = a.reordered(&Permutation::clustered(&a, 256).unwrap()).unwrap();
    for team in teams() {
        let solution = shared(&team, &reordered)
            .solve(&b, |part, b| Cg::new(part).preconditioner(part.jacobi()?).rtol(1e-10).solve(b))
            .unwrap();
        assert!(solution.report.converged());
        let residual = residual(&a, &solution.x, &b);
        assert!(residual <= 2e-10 * solution.report.rhs_norm, "{residual:e}");
    }
}

gpu_test!(a_gpu_that_fails_ends_the_solve);
fn a_gpu_that_fails_ends_the_solve() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let multi_gpu = shared(&team, &a);
        let failed = multi_gpu.solve(&b, |part, b| {
            if part.rows().end == 16 * 16 * 16 {
                return Err(Error::ZeroDiagonal { row: 7, value: 0.0 }.into());
            }
            Cg::new(part).rtol(1e-10).solve(b)
        });
        println!("{:?}", failed.as_ref().map(|solution| &solution.report.outcome));
        // the error is that of the part that failed first
        assert_eq!(failed.unwrap_err().to_string(), Error::ZeroDiagonal { row: 7, value: 0.0 }.to_string());
        // the team is not used again; another is built
        assert!(multi_gpu.solve(&b, |part, b| Cg::new(part).solve(b)).is_err());
        let multi_gpu = shared(&team, &a);
        assert!(multi_gpu.solve(&b, |part, b| Cg::new(part).solve(b)).unwrap().report.converged());
    }
}

/// A part that fails at a product in the middle of a solve.
struct Fails<'p>(&'p GpuPart<f64>, AtomicUsize);

impl LinearOperator for Fails<'_> {
    type Vector = CudaVector<f64>;

    fn domain(&self) -> &CudaSpace<f64> {
        self.0.domain()
    }

    fn apply(&self, x: &CudaVector<f64>, y: &mut CudaVector<f64>) -> Result<()> {
        if self.0.rows().start == 0 && self.1.fetch_add(1, Ordering::Relaxed) == 9 {
            return Err(krysp::solvers::Error::Backend("the tenth product fails".into()));
        }
        self.0.apply(x, y)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

gpu_test!(a_failure_in_the_middle_ends_the_solve);
fn a_failure_in_the_middle_ends_the_solve() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let multi_gpu = shared(&team, &a);
        for _ in 0..2 {
            let started = Instant::now();
            let failed =
                multi_gpu.solve(&b, |part, b| Cg::new(Fails(part, AtomicUsize::new(0))).rtol(0.0).solve(b));
            let why = failed.unwrap_err().to_string();
            assert!(why.contains("tenth product") || why.contains("distribute the matrix again"), "{why}");
            assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
        }
        let multi_gpu = shared(&team, &a);
        assert!(multi_gpu.solve(&b, |part, b| Cg::new(part).solve(b)).unwrap().report.converged());
    }
}

gpu_test!(parts_end_together);
fn parts_end_together() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let multi_gpu = shared(&team, &a);
        let stopped = multi_gpu.solve(&b, |part, b| {
            let first = part.rows().start == 0; // only this part stops
            Cg::new(part).rtol(0.0).stop_when(move |p| first && p.iteration == 9).solve(b)
        });
        let report = stopped.unwrap().report;
        assert_eq!(report.outcome, Outcome::Stopped);
        assert!(report.iterations < 40, "{report}");
    }
}

gpu_test!(small_systems_stay_on_one_gpu);
fn small_systems_stay_on_one_gpu() {
    let a = matrices::named("st7_20k").unwrap().diagonally_dominant().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let gpus: Vec<Cuda> = (0..Cuda::devices().len().min(8)).map(|at| Cuda::new(at).unwrap()).collect();
    let multi_gpu = MultiGpu::new(&gpus, &a).unwrap();
    println!("{multi_gpu}");
    assert_eq!(multi_gpu.parts().count(), 1);
    let shared = multi_gpu.solve(&b, methods![Cg][0].1).unwrap();
    let jacobi = Jacobi::new(&a).unwrap().to(&gpus[0]).unwrap();
    let mut alone = Cg::new(Operator::auto(&a, &gpus[0]).unwrap()).preconditioner(jacobi).rtol(1e-10);
    assert_eq!(shared.x, alone.solve(&b).unwrap().x);
}

gpu_test!(any_number_of_rows_and_gpus);
fn any_number_of_rows_and_gpus() {
    let none = MultiGpu::<f64>::new(&[], &matrices::stencil7(4).csr().unwrap());
    assert!(matches!(none, Err(Error::Option { got, .. }) if got == "none"));
    let gpu = Cuda::new(0).unwrap();
    for make in [MultiGpu::<f64>::on_all_gpus, MultiGpu::new] {
        let twice = make(&[gpu.clone(), gpu.clone()], &matrices::stencil7(4).csr().unwrap());
        assert!(matches!(twice, Err(Error::Option { got, .. }) if got == "GPU 0 twice"));
    }
    for team in teams() {
        for rows in 1..=5 {
            let a = matrices::edge::tridiagonal(rows).csr::<f64>().unwrap();
            let multi_gpu = shared(&team, &a);
            // pairs of rows may be detected as nodes, which leaves fewer parts
            assert!((1..=rows.min(team.len())).contains(&multi_gpu.parts().count()));
            let solution = multi_gpu.solve(&vec![1.0; rows], methods![Cg][0].1).unwrap();
            assert!(solution.report.converged(), "{rows} rows: {}", solution.report);
        }
    }
}

gpu_test!(new_values_and_other_matrices_are_shared_alike);
fn new_values_and_other_matrices_are_shared_alike() {
    let a = matrices::named("el3_0.3M_nat").unwrap().diagonally_dominant().csr::<f64>().unwrap();
    let a = a.reordered(&Permutation::clustered(&a, 256).unwrap()).unwrap();
    let b = matrices::vector(a.rows());
    let fsai = Fsai::new(&a).unwrap();
    for team in teams() {
        let mut multi_gpu = shared(&team, &a);
        let [lower, upper] = [fsai.lower(), fsai.upper()].map(|factor| multi_gpu.matrix(factor).unwrap());
        let by_fsai = multi_gpu.solve(&b, |part, b| {
            let inverse = Composed::new(upper.of(part), lower.of(part))?;
            Cg::new(part).preconditioner(inverse).rtol(1e-10).solve(b)
        });
        let alone = Cg::new(&a).preconditioner(&fsai).rtol(1e-10).solve(&b).unwrap();
        let by_fsai = by_fsai.unwrap();
        assert!(by_fsai.report.converged(), "{}", by_fsai.report);
        assert!(by_fsai.report.iterations.abs_diff(alone.report.iterations) <= 1);

        let by_blocks = multi_gpu.solve(&b, |part, b| {
            let jacobi = Jacobi::blocks(&part.block()?, 3)?.to(part.gpu())?;
            Cg::new(part).preconditioner(jacobi).rtol(1e-10).solve(b)
        });
        let by_blocks = by_blocks.unwrap();
        let blocks = Jacobi::blocks(&a, 3).unwrap();
        let alone = Cg::new(&a).preconditioner(blocks).rtol(1e-10).solve(&b).unwrap();
        assert!(by_blocks.report.converged(), "{}", by_blocks.report);
        assert!(by_blocks.report.iterations.abs_diff(alone.report.iterations) <= 1);

        // twice the matrix has half the solution; values have the order of the entries
        let twice: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
        multi_gpu.refresh(&twice).unwrap();
        let half = multi_gpu.solve(&b, methods![Cg][0].1).unwrap();
        for (half, whole) in half.x.iter().zip(&by_blocks.x) {
            assert!((2.0 * half - whole).abs() <= 1e-7 * (1.0 + whole.abs()), "{half} {whole}");
        }
    }
}

gpu_test!(a_part_that_ends_early_leaves_nobody_waiting);
fn a_part_that_ends_early_leaves_nobody_waiting() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams().into_iter().filter(|team| team.len() > 1) {
        let multi_gpu = shared(&team, &a);
        let started = Instant::now();
        let ended = multi_gpu.solve(&b, |part, b| {
            let iterations = if part.rows().start == 0 { 3 } else { 9 };
            Cg::new(part).rtol(0.0).max_iterations(iterations).solve(b)
        });
        // the others wait for at most ten seconds
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
        println!("{}", ended.as_ref().unwrap_err());
        // the team is not used again; another is built
        assert!(multi_gpu.solve(&b, |part, b| Cg::new(part).solve(b)).is_err());
        let multi_gpu = shared(&team, &a);
        assert!(multi_gpu.solve(&b, |part, b| Cg::new(part).solve(b)).unwrap().report.converged());
    }
}

gpu_test!(shares_move_towards_equal_times);
fn shares_move_towards_equal_times() {
    let a = matrices::stencil7(180).csr::<f64>().unwrap();
    let team = [Cuda::new(0).unwrap(), Cuda::new(0).unwrap()];
    let balance = |powers: &[f64]| MultiGpu::on_streams(&team, &a, powers).unwrap().balance().unwrap();
    // one stream has three times the rows of the other, on the same GPU
    let uneven = balance(&[3.0, 1.0]);
    println!("{uneven}");
    assert!(uneven.gain() > 0.1, "{uneven}");
    let even = balance(&balance(&uneven.powers()).powers());
    println!("{even}");
    let [one, other] = [even.seconds[0], even.seconds[1]];
    assert!((one - other).abs() < 0.05 * one.max(other) && even.gain() < 0.05, "{even}");
    let one = MultiGpu::on_streams(&team, &a, &[1.0]);
    assert!(matches!(one, Err(Error::Option { got, .. }) if got == "1 for 2 GPUs"));
}

gpu_test!(a_thousand_products_are_bitwise_equal);
fn a_thousand_products_are_bitwise_equal() {
    let a = matrices::named("p1_0.1M_perm").unwrap().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let multi_gpu = shared(&team, &a);
        let product = |part: &GpuPart<f64>, b: &[f64]| {
            let x = part.domain().vector(b)?;
            let (mut y, mut first, mut again) =
                (part.domain().zeros()?, vec![0.0; b.len()], vec![0.0; b.len()]);
            part.apply(&x, &mut y)?;
            part.domain().store(&y, &mut first)?;
            for time in 0..1000 {
                part.apply(&x, &mut y)?;
                if time % 10 == 9 {
                    part.domain().store(&y, &mut again)?;
                    assert!(first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{time}");
                }
            }
            Ok(Solution { x: first, report: krysp::Report::default() })
        };
        let y = multi_gpu.solve(&b, product).unwrap().x;
        let mut whole = a.range().zeros().unwrap();
        a.apply(&a.domain().vector(&b).unwrap(), &mut whole).unwrap();
        for (y, whole) in y.iter().zip(whole.as_slice()) {
            assert!((y - whole).abs() <= 1e-12 * (1.0 + whole.abs()), "{y} {whole}");
        }
    }
}
