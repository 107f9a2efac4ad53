//! Flexible methods equal the plain methods with a fixed preconditioner, and converge with one that changes.

use crate::truth::{check, norm, residual};
use krysp::solvers::OperatorFn;
use krysp::testing::matrices::{self, edge};
use krysp::{
    BasicVector, Cg, Csr, Fcg, Fgmres, Gmres, HostVector, Jacobi, LinearOperator, Lu, Outcome, Solution,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn poisson() -> (Csr<f64>, Vec<f64>) {
    let a = matrices::stencil7(14).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    (a, b)
}

/// A preconditioner that changes with every application: a diagonal of factors up to 4, symmetric positive definite.
fn changing(a: &Csr<f64>) -> impl LinearOperator<Vector = HostVector<f64>> {
    let calls = AtomicUsize::new(0);
    OperatorFn::new(a.domain(), a.range(), move |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        for (i, (y, x)) in y.as_mut_slice().iter_mut().zip(x.as_slice()).enumerate() {
            *y = x * if (i / 3 + call).is_multiple_of(3) { 4.0 } else { 1.0 };
        }
        Ok(())
    })
}

/// Conjugate gradients to a loose tolerance.
fn inner(a: &Csr<f64>, rtol: f64) -> impl LinearOperator<Vector = HostVector<f64>> {
    let solver = Mutex::new(Cg::new(a).rtol(rtol));
    OperatorFn::new(a.domain(), a.range(), move |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        y.axpby(&0.0, x, &0.0);
        solver.lock().unwrap().solve_into(x, y)?;
        Ok(())
    })
}

fn close(one: &[f64], other: &[f64], relative: f64) {
    for (i, (one, other)) in one.iter().zip(other).enumerate() {
        assert!((one - other).abs() <= relative * one.abs(), "{i}: {one:e} {other:e}");
    }
}

#[test]
fn with_a_fixed_preconditioner_flexible_methods_equal_the_plain_ones() {
    let (a, b) = poisson();
    let d: Vec<f64> = (0..a.rows()).map(|i| 6.0 + (i % 4) as f64).collect();
    let m = Jacobi::from_diagonal(&d).unwrap();
    let plain = Cg::new(&a).preconditioner(&m).rtol(1e-9).solve(&b).unwrap();
    let flexible = Fcg::new(&a).preconditioner(&m).rtol(1e-9).solve(&b).unwrap();
    assert_eq!(plain.report.iterations, flexible.report.iterations);
    close(&plain.report.history, &flexible.report.history, 1e-6);
    let plain = Gmres::new(&a).preconditioner(&m).restart(12).rtol(1e-9).solve(&b).unwrap();
    let flexible = Fgmres::new(&a).preconditioner(&m).restart(12).rtol(1e-9).solve(&b).unwrap();
    assert_eq!(plain.report.iterations, flexible.report.iterations);
    close(&plain.report.history, &flexible.report.history, 1e-6);
}

#[test]
fn a_changing_preconditioner_costs_few_iterations() {
    let (a, b) = poisson();
    let unchanging = Cg::new(&a).rtol(1e-8).solve(&b).unwrap().report.iterations;
    let fcg = Fcg::new(&a).preconditioner(changing(&a)).rtol(1e-8).max_iterations(2000).solve(&b).unwrap();
    println!("without {unchanging}\nfcg: {}", fcg.report);
    check(&a, &b, 1e-8, &fcg);
    assert!(fcg.report.converged() && fcg.report.iterations < 5 * unchanging);

    let restart = 40;
    let gmres = Gmres::new(&a)
        .preconditioner(changing(&a))
        .restart(restart)
        .rtol(1e-8)
        .max_iterations(2000)
        .solve(&b)
        .unwrap();
    let mut solver =
        Fgmres::new(&a).preconditioner(changing(&a)).restart(restart).rtol(1e-8).max_iterations(2000);
    let fgmres = solver.solve(&b).unwrap();
    println!("gmres:  {}\nfgmres: {}", gmres.report, fgmres.report);
    check(&a, &b, 1e-8, &fgmres);
    assert!(fgmres.report.converged() && fgmres.report.restarts == 0);
    // plain GMRES minimizes a wrong residual if the preconditioner changes, so that it fails or needs many restarts
    assert!(!gmres.report.converged() || gmres.report.iterations > 2 * fgmres.report.iterations);
}

#[test]
fn fgmres_reports_the_true_residual_with_any_preconditioner() {
    let n = 120;
    let mut triplets = edge::tridiagonal(n);
    triplets.entries.iter_mut().filter(|e| e.1 > e.0).for_each(|e| e.2 += 0.6);
    let (a, b) = (triplets.csr::<f64>().unwrap(), matrices::vector(n));
    for restart in [5, 40] {
        let mut before = norm(&b);
        for k in 1..50 {
            let mut solver =
                Fgmres::new(&a).preconditioner(changing(&a)).restart(restart).rtol(1e-12).max_iterations(k);
            let Solution { x, report } = solver.solve(&b).unwrap();
            let exact = residual(&a, &x, &b);
            let recurred = report.history[report.iterations];
            assert!((recurred - exact).abs() <= 1e-8 * exact + 1e-13, "{k}: {recurred:e} {exact:e}");
            assert!(exact <= before * (1.0 + 1e-10), "{k}: {exact:e} after {before:e}");
            before = exact;
            if report.converged() {
                break;
            }
            assert_eq!((report.iterations, report.outcome), (k, Outcome::IterationLimit));
        }
    }
}

#[test]
fn inner_solves_precondition() {
    let (a, b) = poisson();
    let alone = Cg::new(&a).rtol(1e-10).solve(&b).unwrap().report.iterations;
    let loose = || inner(&a, 0.3);
    let [cg, gmres] = [
        Cg::new(&a).preconditioner(loose()).rtol(1e-10).solve(&b).unwrap(),
        Gmres::new(&a).preconditioner(loose()).rtol(1e-10).solve(&b).unwrap(),
    ];
    let [fcg, fgmres] = [
        Fcg::new(&a).preconditioner(loose()).rtol(1e-10).solve(&b).unwrap(),
        Fgmres::new(&a).preconditioner(loose()).rtol(1e-10).solve(&b).unwrap(),
    ];
    for (plain, flexible) in [(&cg, &fcg), (&gmres, &fgmres)] {
        println!("{}\nflexible: {} ({alone} alone)", plain.report, flexible.report);
        check(&a, &b, 1e-10, flexible);
        assert!(flexible.report.converged() && 3 * flexible.report.iterations < alone);
        assert!(!plain.report.converged() || plain.report.iterations > 4 * flexible.report.iterations);
    }
}

#[test]
fn gmres_applies_a_direct_solver_once() {
    let (a, b) = poisson();
    let (lu, calls) = (Lu::new(&a).unwrap(), AtomicUsize::new(0));
    let m = OperatorFn::new(a.domain(), a.range(), |r: &HostVector<f64>, z: &mut HostVector<f64>| {
        calls.fetch_add(1, Ordering::Relaxed);
        lu.apply(r, z)
    });
    let Solution { x, report } = Gmres::new(&a).preconditioner(m).rtol(1e-10).solve(&b).unwrap();
    assert!(report.converged() && report.iterations == 1, "{report}");
    assert!(residual(&a, &x, &b) <= 1e-10 * norm(&b));
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn gmres_keeps_the_first_step_if_the_second_breaks_down() {
    // the second column is twice the first, so that the least residual of all `x` is √½
    let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 1.0), (1, 1, 2.0)]).unwrap();
    let b = [1.0, 0.0];
    let Solution { x, report } = Gmres::new(&a).solve(&b).unwrap();
    assert!(!report.converged(), "{report}");
    assert!(residual(&a, &x, &b) < 0.71, "{x:?}");
}
