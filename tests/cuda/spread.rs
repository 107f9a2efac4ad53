//! Systems on several GPUs, and on a team of one.

use krysp::ToCuda;
use krysp::spread::Part;
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Csr, Cuda, Fcg, Fgmres, Gmres, Idr, Jacobi, Minres, Numbering, Outcome, PipelinedCg,
    Solution, Spread,
};

type Result<T> = krysp::solvers::Result<T>;

/// The first GPU alone, and all of the machine where there are several.
fn teams() -> Vec<Vec<Cuda>> {
    let all = Cuda::devices().len().min(8);
    let mut sizes = vec![1, all];
    sizes.dedup();
    sizes.into_iter().map(|size| (0..size).map(|at| Cuda::new(at).unwrap()).collect()).collect()
}

/// A method on a part.
type Solve = fn(&Part<f64>, &[f64]) -> Result<Solution<f64>>;

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
        let spread = Spread::new(&team, &a).unwrap();
        println!("{spread}");
        for (name, solve) in methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres, Fgmres] {
            let solution = spread.solve(&b, solve).unwrap();
            println!("{name}: {}", solution.report);
            assert!(solution.report.converged(), "{name}: {}", solution.report);
            let residual = residual(&a, &solution.x, &b);
            assert!(
                (residual - solution.report.true_residual).abs() <= 1e-6 * residual + 1e-14,
                "{name} {residual:e}"
            );
            for _ in 0..3 {
                let again = spread.solve(&b, solve).unwrap();
                assert_eq!(again.x, solution.x, "{name}");
                assert_eq!(again.report.history, solution.report.history, "{name}");
            }
        }
        let alone =
            Cg::new(a.to(&team[0]).unwrap()).preconditioner(Jacobi::new(&a).unwrap().to(&team[0]).unwrap());
        let alone = { alone }.rtol(1e-10).solve(&b).unwrap();
        let together = spread.solve(&b, methods![Cg][0].1).unwrap();
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

gpu_test!(a_numbering_stays_between_matrix_and_parts);
fn a_numbering_stays_between_matrix_and_parts() {
    let a = matrices::named("el3_0.3M_nat").unwrap().diagonally_dominant().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let numbered = a.renumbered(&Numbering::clustered(&a, 256).unwrap()).unwrap();
    for team in teams() {
        let solution = Spread::new(&team, &numbered)
            .unwrap()
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
        let spread = Spread::new(&team, &a).unwrap();
        let failed = spread.solve(&b, |part, b| {
            if part.rows().end == 16 * 16 * 16 {
                return Err(krysp::Error::ZeroDiagonal { row: 7, value: 0.0 }.into());
            }
            Cg::new(part).rtol(1e-10).solve(b)
        });
        println!("{:?}", failed.as_ref().map(|solution| &solution.report.outcome));
        // the reason of the part that failed, whatever the others say
        assert_eq!(
            failed.unwrap_err().to_string(),
            krysp::Error::ZeroDiagonal { row: 7, value: 0.0 }.to_string()
        );
        // the team is not used again; another is built
        assert!(spread.solve(&b, |part, b| Cg::new(part).solve(b)).is_err());
        let spread = Spread::new(&team, &a).unwrap();
        assert!(spread.solve(&b, |part, b| Cg::new(part).solve(b)).unwrap().report.converged());
    }
}

gpu_test!(parts_end_together);
fn parts_end_together() {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for team in teams() {
        let spread = Spread::new(&team, &a).unwrap();
        let stopped = spread.solve(&b, |part, b| {
            let first = part.rows().start == 0; // the others know nothing of it
            Cg::new(part).rtol(0.0).stop_when(move |p| first && p.iteration == 9).solve(b)
        });
        let report = stopped.unwrap().report;
        assert_eq!(report.outcome, Outcome::Stopped);
        assert!(report.iterations < 40, "{report}");
    }
}
