//! MINRES, flexible methods, null spaces and polynomials on a GPU give the results of host memory.

use super::{agree, gpu, poisson, residual};

use krysp::solvers::LinearOperator;
use krysp::testing::laws;
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Chebyshev, Csr, Fcg, Fgmres, Gmres, Idr, Jacobi, Minres, Outcome, PipelinedCg, ToCuda,
};

/// A matrix with `k` distinct eigenvalues of both signs.
fn indefinite(n: usize, k: usize) -> Csr<f64> {
    let eigenvalues: Vec<f64> =
        (0..n).map(|i| (1 + i % k) as f64 * if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    matrices::with_eigenvalues(&eigenvalues).csr().unwrap()
}

gpu_test!(minres_solves_as_on_the_host);
fn minres_solves_as_on_the_host() {
    let gpu = gpu();
    let (a, b) = poisson(20);
    let jacobi = Jacobi::new(&a).unwrap();
    let (op, m) = (a.to(&gpu).unwrap(), jacobi.to(&gpu).unwrap());
    let host = Minres::new(&a).rtol(1e-8).solve(&b).unwrap();
    let device = Minres::new(&op).rtol(1e-8).solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
    let host = Minres::new(&a).preconditioner(&jacobi).rtol(1e-8).solve(&b).unwrap();
    let mut solver = Minres::new(&op).preconditioner(&m).rtol(1e-8);
    let device = solver.solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
    // a second solve replays the recorded steps
    let again = solver.solve(&b).unwrap();
    assert_eq!((device.report.history, device.x), (again.report.history, again.x));

    let (a, b) = (indefinite(3000, 12), laws::numbers(3000, 4));
    let op = a.to(&gpu).unwrap();
    let host = Minres::new(&a).rtol(1e-9).solve(&b).unwrap();
    let device = Minres::new(&op).rtol(1e-9).solve(&b).unwrap();
    agree(&a, &b, &host, &device, 0);
    // the returned iterate is the reported one, after even and odd steps
    for limit in [0, 1, 2, 3, 4, 7, 10, 11] {
        let solution = Minres::new(&op).rtol(1e-9).max_iterations(limit).solve(&b).unwrap();
        assert_eq!((solution.report.iterations, solution.report.outcome), (limit, Outcome::IterationLimit));
        let (truth, last) = (residual(&a, &b, &solution.x), solution.report.history[limit]);
        assert!((truth - last).abs() <= 1e-9 * truth, "{limit}: {truth:e} {last:e}");
    }
    // a preconditioner that is not positive definite is a breakdown in the first step
    let mut inverse = vec![1.0; 3000];
    inverse[3] = -100.0;
    let m = Jacobi::from_diagonal(&inverse).unwrap();
    let mut unit = vec![0.0; 3000];
    unit[3] = 1.0;
    let report = Minres::new(&op).preconditioner(m.to(&gpu).unwrap()).solve(&unit).unwrap().report;
    assert!(matches!(report.outcome, Outcome::Breakdown { what: "⟨v, M⁻¹v⟩", iteration: 1, .. }), "{report}");
    let single = matrices::stencil7(16).csr::<f32>().unwrap();
    let b = laws::numbers::<f32>(single.rows(), 5);
    assert!(Minres::new(single.to(&gpu).unwrap()).rtol(1e-4).solve(&b).unwrap().report.converged());
}

gpu_test!(induced_dimension_reduction_solves_as_on_the_host);
fn induced_dimension_reduction_solves_as_on_the_host() {
    let gpu = gpu();
    let (a, b) = poisson(20);
    let jacobi = Jacobi::new(&a).unwrap();
    let (op, m) = (a.to(&gpu).unwrap(), jacobi.to(&gpu).unwrap());
    for count in [1, 2, 4, 8] {
        let host = Idr::new(&a).shadow_vectors(count).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
        let mut solver = Idr::new(&op).shadow_vectors(count).preconditioner(&m).rtol(1e-9);
        let device = solver.solve(&b).unwrap();
        println!("{count} on the host: {}; on the GPU: {}", host.report, device.report);
        assert!(host.report.converged() && device.report.converged());
        // rounding differs, and grows from cycle to cycle: the first residuals agree, and nearly the iterations
        for (one, other) in host.report.history.iter().zip(&device.report.history).take(10) {
            assert!((one - other).abs() <= 1e-8 * one, "{count}: {one:e} {other:e}");
        }
        let (one, other) = (host.report.iterations, device.report.iterations);
        assert!(10 * one.abs_diff(other) <= 2 * one + 10, "{count}: {one} {other}");
        // later solves replay the recorded steps
        let again = solver.solve(&b).unwrap();
        assert_eq!(solver.solve(&b).unwrap().x, again.x);
        assert!((residual(&a, &b, &again.x) - again.report.true_residual).abs() <= 1e-12);
    }
    // for every step of a cycle, even if the first solve ended within a cycle, the returned iterate is the last one or, if that is worse,
    // an earlier one
    let mut solver = Idr::new(&op).preconditioner(&m).rtol(1e-9).max_iterations(2);
    let _ = solver.solve(&b).unwrap();
    for limit in [0, 1, 2, 3, 4, 5, 6, 9, 10, 11] {
        solver = solver.max_iterations(limit);
        let solution = solver.solve(&b).unwrap();
        assert_eq!((solution.report.iterations, solution.report.outcome), (limit, Outcome::IterationLimit));
        let (truth, history) = (residual(&a, &b, &solution.x), &solution.report.history);
        let is_iterate = history.iter().any(|norm| (truth - norm).abs() <= 1e-9 * truth);
        assert!(is_iterate && truth <= (1.0 + 1e-9) * history[limit], "{limit}: {truth:e} {history:?}");
    }
    let single = matrices::stencil7(16).csr::<f32>().unwrap();
    let b = laws::numbers::<f32>(single.rows(), 5);
    assert!(Idr::new(single.to(&gpu).unwrap()).rtol(1e-4).solve(&b).unwrap().report.converged());
}

gpu_test!(flexible_methods_solve_as_on_the_host);
fn flexible_methods_solve_as_on_the_host() {
    let gpu = gpu();
    let (a, b) = poisson(20);
    let jacobi = Jacobi::new(&a).unwrap();
    let (op, m) = (a.to(&gpu).unwrap(), jacobi.to(&gpu).unwrap());
    let host = PipelinedCg::new(&a).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
    let device = PipelinedCg::new(&op).preconditioner(&m).rtol(1e-9).solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
    let host = Fcg::new(&a).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
    let device = Fcg::new(&op).preconditioner(&m).rtol(1e-9).solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
    let host = Fgmres::new(&a).preconditioner(&jacobi).restart(15).rtol(1e-9).solve(&b).unwrap();
    let mut solver = Fgmres::new(&op).preconditioner(&m).restart(15).rtol(1e-9);
    let device = solver.solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
    let again = solver.solve(&b).unwrap();
    assert_eq!((device.report.history, device.x), (again.report.history, again.x));
}

gpu_test!(null_spaces_are_removed_as_on_the_host);
fn null_spaces_are_removed_as_on_the_host() {
    let gpu = gpu();
    let a = matrices::stencil7(16).zero_row_sums().csr::<f64>().unwrap();
    let b: Vec<f64> = laws::numbers(a.rows(), 3);
    let ones = [vec![1.0; a.rows()]];
    let jacobi = Jacobi::new(&a).unwrap();
    let (op, m) = (a.to(&gpu).unwrap(), jacobi.to(&gpu).unwrap());
    let rest: Vec<f64> = b.iter().map(|v| v - b.iter().sum::<f64>() / b.len() as f64).collect();
    let host = Cg::new(&a).preconditioner(&jacobi).null_space(&ones).unwrap().rtol(1e-9).solve(&b).unwrap();
    let device = Cg::new(&op).preconditioner(&m).null_space(&ones).unwrap().rtol(1e-9).solve(&b).unwrap();
    agree(&a, &rest, &host, &device, 1);
    approx::assert_relative_eq!(host.report.removed, device.report.removed, max_relative = 1e-10);
    assert!(device.x.iter().sum::<f64>().abs() <= 1e-9 * residual(&a, &device.x, &vec![0.0; b.len()]));
    let host = Gmres::new(&a).null_space(&ones).unwrap().rtol(1e-9).solve(&b).unwrap();
    let device = Gmres::new(&op).null_space(&ones).unwrap().rtol(1e-9).solve(&b).unwrap();
    agree(&a, &rest, &host, &device, 1);
    assert!(Cg::new(&op).null_space(&[laws::numbers::<f64>(b.len(), 9)]).is_err());
}

gpu_test!(unconverged_solves_return_no_worse_solution_than_the_guess);
fn unconverged_solves_return_no_worse_solution_than_the_guess() {
    let gpu = gpu();
    let a = krysp::gallery::neumann::<f64>(&[30, 30]).unwrap();
    let b: Vec<f64> = (0..900).map(|i| matrices::unit(matrices::mix(i))).collect();
    let least = b.iter().sum::<f64>().abs() / 30.0;
    let op = a.to(&gpu).unwrap();
    for limit in [100, 300, 10_000] {
        let solution = Minres::new(&op).max_iterations(limit).solve(&b).unwrap();
        let found = residual(&a, &b, &solution.x);
        assert!(found <= 1.01 * least, "{limit}: {found:e}, at least {least:e}, {}", solution.report);
        assert!((found - solution.report.true_residual).abs() <= 1e-6 * found, "{}", solution.report);
    }
    let guess = vec![1e-3; 900];
    let first = residual(&a, &b, &guess);
    for solution in [
        Cg::new(&op).solve_from(&b, &guess).unwrap(),
        Fcg::new(&op).solve_from(&b, &guess).unwrap(),
        BiCgStab::new(&op).solve_from(&b, &guess).unwrap(),
        Idr::new(&op).solve_from(&b, &guess).unwrap(),
        Gmres::new(&op).solve_from(&b, &guess).unwrap(),
    ] {
        let found = residual(&a, &b, &solution.x);
        assert!(
            !solution.report.converged() && found <= (1.0 + 1e-10) * first,
            "{found:e}, {}",
            solution.report
        );
    }
}

gpu_test!(polynomials_precondition_as_on_the_host);
fn polynomials_precondition_as_on_the_host() {
    let gpu = gpu();
    let (a, b) = poisson(24);
    let jacobi = Jacobi::new(&a).unwrap();
    let (op, m) = (a.to(&gpu).unwrap(), jacobi.to(&gpu).unwrap());
    let (ours, theirs) = (Chebyshev::new(&a, &jacobi, 4).unwrap(), Chebyshev::new(&op, &m, 4).unwrap());
    for (one, other) in ours.bounds().iter().zip(theirs.bounds()) {
        approx::assert_relative_eq!(*one, other, max_relative = 1e-5);
    }
    assert!(theirs.replays());
    let theirs = Chebyshev::with_bounds(&op, &m, 4, ours.bounds()).unwrap();
    let host = Cg::new(&a).preconditioner(&ours).rtol(1e-10).solve(&b).unwrap();
    let device = Cg::new(&op).preconditioner(&theirs).rtol(1e-10).solve(&b).unwrap();
    agree(&a, &b, &host, &device, 1);
}

gpu_test!(several_solvers_alternate_on_one_device);
fn several_solvers_alternate_on_one_device() {
    let gpu = gpu();
    let (a, b) = poisson(12);
    let op = a.to(&gpu).unwrap();
    // Each solver leaves initial scalars that are never read; together they are more than one launch evaluates.
    let (mut first, mut second) = (BiCgStab::new(&op).rtol(1e-8), BiCgStab::new(&op).rtol(1e-8));
    let (mut third, mut fourth) = (Minres::new(&op).rtol(1e-8), Minres::new(&op).rtol(1e-8));
    let bicgstab = first.solve(&b).unwrap();
    let minres = third.solve(&b).unwrap();
    assert!(bicgstab.report.converged() && minres.report.converged());
    // The first solve starts from constants that the host knows, later ones from scalars in GPU memory. Products
    // of scalars are then grouped and rounded differently.
    assert_eq!(fourth.solve(&b).unwrap().x, minres.x);
    let again = third.solve(&b).unwrap();
    assert_eq!(again.report.iterations, minres.report.iterations);
    for (one, other) in again.x.iter().zip(&minres.x) {
        assert!((one - other).abs() <= 1e-12, "{one} {other}");
    }
    for _ in 0..2 {
        assert_eq!(second.solve(&b).unwrap().x, bicgstab.x);
        assert_eq!(fourth.solve(&b).unwrap().x, again.x);
        assert_eq!(first.solve(&b).unwrap().x, bicgstab.x);
        assert_eq!(third.solve(&b).unwrap().x, again.x);
    }
}
