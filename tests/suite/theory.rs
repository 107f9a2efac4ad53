//! The behaviour of methods agrees with theory.

use crate::truth::{check, norm, residual};
use krysp::solvers::{Evidence, Form};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{
    BiCgStab, Cg, Csr, Fcg, Fgmres, Gmres, HostVector, Idr, Jacobi, LinearOperator, Minres, Outcome,
    Permutation, Report, Solution, formats,
};

/// A tridiagonal matrix with convection: not symmetric.
fn convection(n: usize) -> Csr<f64> {
    let mut triplets = edge::tridiagonal(n);
    for (row, column, value) in &mut triplets.entries {
        *value += match column.cmp(&row) {
            std::cmp::Ordering::Less => -0.7,
            std::cmp::Ordering::Equal => 0.1,
            std::cmp::Ordering::Greater => 0.6,
        };
    }
    triplets.csr().unwrap()
}

/// Sonneveld and van Gijzen (2008): `s + 1` products reduce the dimension of the space of residuals by `s`.
#[test]
fn idr_ends_within_the_products_that_its_dimensions_allow() {
    for (n, k, s) in [(40, 3, 4), (40, 4, 4), (40, 9, 4), (40, 9, 2), (60, 12, 6), (60, 6, 1)] {
        let a = matrices::distinct_eigenvalues(n, k).csr::<f64>().unwrap();
        let b = matrices::vector(n);
        let solution = Idr::new(&a).shadow_vectors(s).rtol(1e-9).solve(&b).unwrap();
        check(&a, &b, 1e-9, &solution);
        let allowed = k + k.div_ceil(s);
        assert!(
            solution.report.converged() && solution.report.iterations <= allowed,
            "{k} eigenvalues, {s} shadow vectors: {}",
            solution.report
        );
    }
    // a skew-symmetric matrix, where ω of BiCGStab vanishes
    let entries: Vec<_> =
        (1..4).flat_map(|i| [(i, i - 1, -1.0 - i as f64), (i - 1, i, 1.0 + i as f64)]).collect();
    let skew = Csr::from_triplets(4, 4, &entries).unwrap();
    let b = matrices::vector(4);
    let solution = Idr::new(&skew).rtol(1e-10).solve(&b).unwrap();
    check(&skew, &b, 1e-10, &solution);
    assert!(solution.report.converged() && solution.report.iterations <= 4, "{}", solution.report);
    // more shadow vectors need no more products than one, and four at most 1.5 times as many as BiCGStab
    let a = convection(400);
    let b = matrices::vector(400);
    let products = 2 * BiCgStab::new(&a).rtol(1e-9).solve(&b).unwrap().report.iterations;
    let [one, four, eight] = [1, 4, 8].map(|s| {
        let solution = Idr::new(&a).shadow_vectors(s).rtol(1e-9).solve(&b).unwrap();
        check(&a, &b, 1e-9, &solution);
        assert!(solution.report.converged(), "{s}: {}", solution.report);
        solution.report.iterations
    });
    println!("BiCGStab {products} products, IDR(1) {one}, IDR(4) {four}, IDR(8) {eight}");
    assert!(four <= one && eight <= one && 2 * four <= 3 * products, "{products}: {one} {four} {eight}");
}

#[test]
fn cg_ends_in_as_many_steps_as_there_are_eigenvalues() {
    for (n, k) in [(1, 1), (37, 1), (37, 2), (100, 3), (100, 5), (500, 8), (24, 12)] {
        let a = matrices::distinct_eigenvalues(n, k).csr::<f64>().unwrap();
        let b = matrices::vector(n);
        let solution = Cg::new(&a).rtol(1e-11).solve(&b).unwrap();
        assert_eq!(
            (solution.report.iterations, solution.report.outcome),
            (k, Outcome::Converged),
            "{n}, {k}"
        );
        assert!(residual(&a, &solution.x, &b) <= 1.1e-11 * norm(&b));
    }
}

#[test]
fn cg_ends_in_one_step_if_jacobi_is_the_inverse() {
    let a = edge::diagonal(300).csr::<f64>().unwrap();
    let mut cg = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-12);
    let report = cg.solve(&matrices::vector(300)).unwrap().report;
    assert_eq!(report.iterations, 1);
    let condition = report.condition.unwrap();
    assert!((condition.smallest - 1.0).abs() < 1e-5 && (condition.ratio() - 1.0).abs() < 1e-5);
}

#[test]
fn cg_finds_the_extreme_eigenvalues() {
    for (low, high, n) in [(1.0, 100.0, 100), (0.25, 4.0, 61), (1.0, 4096.0, 200)] {
        let between = |i: usize| low + ((high - low) * i as f64 / (n - 1) as f64 * 16.0).round() / 16.0;
        let eigenvalues: Vec<f64> = (0..n).map(between).collect();
        let a = matrices::with_eigenvalues(&eigenvalues).csr::<f64>().unwrap();
        let report = Cg::new(&a).rtol(1e-13).solve(&matrices::vector(n)).unwrap().report;
        assert!(report.converged());
        let found = report.condition.unwrap();
        println!("{low}..{high}: {found:?}");
        // inside of the spectrum, up to rounding and the 10⁻⁶ of the bisection
        assert!(found.smallest >= low * (1.0 - 1e-5) && found.smallest <= low * 1.01, "{found:?}");
        assert!(found.largest <= high * (1.0 + 1e-5) && found.largest >= high * 0.99, "{found:?}");
    }
}

#[test]
fn gmres_solves_a_cyclic_shift_in_the_last_step_only() {
    for n in [2, 3, 10, 40] {
        let a = edge::cyclic_shift(n).csr::<f64>().unwrap();
        let mut b = vec![0.0; n];
        b[0] = 1.0;
        let mut gmres = Gmres::new(&a).restart(n).stagnation_window(usize::MAX).rtol(1e-12);
        let Solution { x, report } = gmres.solve(&b).unwrap();
        assert_eq!((report.iterations, &report.outcome), (n, &Outcome::Converged));
        assert!(report.history[..n].iter().all(|r| (r - 1.0).abs() < 1e-14), "{:?}", report.history);
        assert_eq!(x.iter().position(|x| (x - 1.0).abs() < 1e-12), Some(n - 1));
    }
    // with restarts `x` never changes, and the solve stagnates
    let a = edge::cyclic_shift(40).csr::<f64>().unwrap();
    let mut b = vec![0.0; 40];
    b[0] = 1.0;
    let report = Gmres::new(&a).restart(10).solve(&b).unwrap().report;
    assert_eq!(report.outcome, Outcome::Stagnated(Evidence::Residual { iterations: 100 }));
    assert_eq!(report.true_residual, 1.0);
}

/// The residual of the recurrence and the recomputed residual, for every number of steps.
fn gmres_residuals<M: LinearOperator<Vector = HostVector<f64>>>(
    a: &Csr<f64>,
    m: M,
    restart: usize,
    b: &[f64],
    steps: usize,
) -> Vec<[f64; 2]> {
    let mut gmres =
        Gmres::new(a).preconditioner(m).restart(restart).rtol(1e-13).stagnation_window(usize::MAX);
    let mut residuals = vec![];
    for k in 1..=steps {
        gmres = gmres.max_iterations(k);
        let Solution { x, report } = gmres.solve(b).unwrap();
        let exact = residual(a, &x, b);
        assert!((exact - report.true_residual).abs() <= 1e-6 * exact + 1e-14 * norm(b));
        residuals.push([report.history[report.iterations], exact]);
        if report.converged() {
            break;
        }
        assert_eq!((report.iterations, report.outcome), (k, Outcome::IterationLimit));
    }
    residuals
}

#[test]
fn gmres_reports_the_true_residual_which_never_rises() {
    let n = 120;
    let (a, b) = (convection(n), matrices::vector(n));
    let jacobi = Jacobi::new(&a).unwrap();
    let identity = krysp::solvers::Identity::new(a.domain());
    for restart in [3, 10, 200] {
        for residuals in
            [gmres_residuals(&a, &identity, restart, &b, 60), gmres_residuals(&a, &jacobi, restart, &b, 60)]
        {
            let mut before = norm(&b);
            for (k, &[recurred, exact]) in residuals.iter().enumerate() {
                assert!((recurred - exact).abs() <= 1e-8 * exact + 1e-13, "step {k}: {recurred:e} {exact:e}");
                assert!(
                    exact <= before * (1.0 + 1e-10),
                    "step {k} of cycles of {restart}: {exact:e} after {before:e}"
                );
                before = exact;
            }
        }
    }
}

#[test]
fn unrestarted_gmres_ends_in_n_steps() {
    for n in [1, 2, 7, 30] {
        let (a, b) = (convection(n), matrices::vector(n));
        let report = Gmres::new(&a).restart(n).rtol(1e-10).solve(&b).unwrap().report;
        assert!(report.converged() && report.iterations <= n, "{report}");
    }
}

fn methods(a: &Csr<f64>, b: &[f64], rtol: f64) -> [Solution<f64>; 5] {
    [
        Cg::new(a).rtol(rtol).max_iterations(3000).solve(b).unwrap(),
        BiCgStab::new(a).rtol(rtol).max_iterations(3000).solve(b).unwrap(),
        Gmres::new(a).rtol(rtol).max_iterations(3000).solve(b).unwrap(),
        Fcg::new(a).rtol(rtol).max_iterations(3000).solve(b).unwrap(),
        Minres::new(a).rtol(rtol).max_iterations(3000).solve(b).unwrap(),
    ]
}

#[test]
fn outcomes_agree_with_true_residuals() {
    let neumann = |n: usize| {
        let mut triplets = edge::tridiagonal(n);
        for (row, column, value) in &mut triplets.entries {
            if row == column && (*row == 0 || *row as usize == n - 1) {
                *value = 1.0;
            }
        }
        triplets
    };
    let skew = |n: usize| {
        let mut triplets = edge::tridiagonal(n);
        triplets.entries.retain(|e| e.0 != e.1);
        triplets.entries.iter_mut().for_each(|e| e.2 = if e.0 < e.1 { 1.0 } else { -1.0 });
        triplets
    };
    let graded = |n: usize, ratio: f64| Triplets {
        rows: n,
        cols: n,
        entries: (0..n as u32).map(|i| (i, i, ratio.powi(i as i32))).collect(),
    };
    let systems: Vec<(&str, Triplets)> = vec![
        ("tridiagonal", edge::tridiagonal(200)),
        ("arrow", edge::arrow(65)),
        ("singular", neumann(50)),
        ("skew", skew(20)),
        ("skew of odd order", skew(21)),
        ("cyclic shift", edge::cyclic_shift(15)),
        ("graded over 18 orders", graded(60, 2.0)),
        ("graded down", graded(60, 0.5)),
        ("zero diagonal entries", edge::explicit_zeros(30)),
        ("random", matrices::random(80, 80, 0.1, 3)),
        ("a dense row", edge::dense_row(64, 9)),
        ("nothing", edge::empty(7, 7)),
        ("no unknowns", edge::empty(0, 0)),
    ];
    for (name, triplets) in &systems {
        let a = triplets.csr::<f64>().unwrap();
        for b in [
            matrices::vector(a.rows()),
            vec![1.0; a.rows()],
            triplets.product_reference(&vec![1.0; a.rows()]).0,
        ] {
            for rtol in [1e-4, 1e-8, 1e-12] {
                let solutions = methods(&a, &b, rtol);
                for solution in &solutions {
                    println!("{name}: {}", solution.report);
                    check(&a, &b, rtol, solution);
                }
                // GMRES minimizes the residual, so the residual cannot grow beyond the backward error, even if the
                // matrix is singular
                let [_, _, Solution { x, report }, ..] = &solutions;
                let rounding = 100.0 * f64::EPSILON * norm(a.entries()) * norm(x);
                assert!(report.true_residual <= norm(&b) * (1.0 + 1e-10) + rounding, "{name}: {report}");
            }
        }
    }
}

#[test]
fn unreachable_tolerances_are_not_reported_as_met() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for Solution { report, .. } in methods(&a, &b, 1e-30) {
        println!("{report}");
        assert!(matches!(report.outcome, Outcome::PrecisionLimit { element: "f64", .. }), "{report}");
        assert!(report.relative_residual() < 1e-14, "{report}");
        assert!(report.backward_error < 2.0 * f64::EPSILON, "{report}");
    }
}

#[test]
fn singular_consistent_systems_are_solved() {
    // a periodic problem: the matrix maps constants to zero
    let mut triplets = edge::tridiagonal(40);
    triplets.entries.extend([(0, 39, -1.0), (39, 0, -1.0)]);
    let a = triplets.csr::<f64>().unwrap();
    let b = triplets.product_reference(&matrices::vector(40)).0;
    for solution in [
        Cg::new(&a).rtol(1e-9).solve(&b).unwrap(),
        Gmres::new(&a).restart(40).rtol(1e-9).solve(&b).unwrap(),
        BiCgStab::new(&a).rtol(1e-9).solve(&b).unwrap(),
        Minres::new(&a).rtol(1e-9).solve(&b).unwrap(),
        Fcg::new(&a).rtol(1e-9).solve(&b).unwrap(),
    ] {
        check(&a, &b, 1e-9, &solution);
        assert!(solution.report.converged(), "{}", solution.report);
    }
}

#[test]
fn solutions_do_not_depend_on_the_ordering() {
    let mesh = matrices::tetrahedra(6, matrices::NodeOrder::Shuffled(3)).csr::<f64>().unwrap();
    let b = matrices::vector(mesh.rows());
    let expected = Cg::new(&mesh).rtol(1e-13).solve(&b).unwrap().x;
    let mut order: Vec<u32> = (0..mesh.rows() as u32).collect();
    order.sort_by_key(|&i| matrices::mix(u64::from(i)));
    let permutations = [Permutation::rcm(&mesh).unwrap(), Permutation::from_old_of_new(order).unwrap()];
    for permutation in &permutations {
        let a = mesh.reordered(permutation).unwrap();
        let jacobi = Jacobi::new(&a).unwrap();
        let sell = formats::Sell::new(&a).unwrap();
        for solution in [
            Cg::new(&a).preconditioner(&jacobi).rtol(1e-12).solve(&b).unwrap(),
            BiCgStab::new(&sell).preconditioner(&jacobi).rtol(1e-12).solve(&b).unwrap(),
            Gmres::new(&a).preconditioner(&jacobi).rtol(1e-12).solve_from(&b, &expected).unwrap(),
            Minres::new(&sell).preconditioner(&jacobi).rtol(1e-12).solve(&b).unwrap(),
        ] {
            check(&mesh, &b, 1e-12, &solution);
            let error: Vec<f64> = solution.x.iter().zip(&expected).map(|(x, y)| x - y).collect();
            assert!(solution.report.converged() && norm(&error) <= 1e-9 * norm(&expected));
        }
        // the guess is in the user's order, too: starting from the solution needs no step
        let from = Cg::new(&a).rtol(1e-11).solve_from(&b, &expected).unwrap();
        assert_eq!((from.report.iterations, from.x), (0, expected.clone()));
    }
}

fn same(a: &Solution<f64>, b: &Solution<f64>) {
    assert_eq!(a.x, b.x);
    let Report { history, true_residual, iterations, .. } = &a.report;
    assert_eq!((history, *iterations), (&b.report.history, b.report.iterations));
    assert_eq!(true_residual.to_bits(), b.report.true_residual.to_bits());
}

#[test]
fn boxed_and_shared_operators_give_bitwise_equal_solutions() {
    type Boxed = Box<dyn LinearOperator<Vector = HostVector<f64>>>;
    let a = matrices::stencil7(10).csr::<f64>().unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let b = matrices::vector(a.rows());
    let boxed = || -> (Boxed, Boxed) { (Box::new(a.clone()), Box::new(jacobi.clone())) };
    let shared = std::sync::Arc::new(a.clone());

    let plain = Cg::new(&a).preconditioner(&jacobi).solve(&b).unwrap();
    let (op, m) = boxed();
    assert_eq!(op.bytes(), a.bytes());
    assert!(matches!((m.form(), op.form()), (Form::Diagonal(_), Form::General)));
    let mut solver = Cg::new(op).preconditioner(m);
    let budget = Cg::new(&a).preconditioner(&jacobi).bytes_per_iteration();
    assert_eq!(solver.bytes_per_iteration(), budget);
    same(&solver.solve(&b).unwrap(), &plain);
    same(&Cg::new(shared.clone()).preconditioner(&jacobi).solve(&b).unwrap(), &plain);

    let plain = BiCgStab::new(&a).preconditioner(&jacobi).solve(&b).unwrap();
    let (op, m) = boxed();
    same(&BiCgStab::new(op).preconditioner(m).solve(&b).unwrap(), &plain);
    let plain = Gmres::new(&a).preconditioner(&jacobi).solve(&b).unwrap();
    let (op, m) = boxed();
    same(&Gmres::new(&op).preconditioner(&m).solve(&b).unwrap(), &plain);
}

#[test]
fn a_second_solve_is_bitwise_equal_to_the_first() {
    let a = matrices::stencil7(10).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let mut cg = Cg::new(&a);
    same(&cg.solve(&b).unwrap(), &cg.solve(&b).unwrap());
    let mut bicgstab = BiCgStab::new(&a);
    same(&bicgstab.solve(&b).unwrap(), &bicgstab.solve(&b).unwrap());
    let mut gmres = Gmres::new(&a).restart(7);
    same(&gmres.solve(&b).unwrap(), &gmres.solve(&b).unwrap());
    let mut minres = Minres::new(&a);
    same(&minres.solve(&b).unwrap(), &minres.solve(&b).unwrap());
    let mut fgmres = Fgmres::new(&a).restart(7);
    same(&fgmres.solve(&b).unwrap(), &fgmres.solve(&b).unwrap());
    // bitwise equal for every number of threads
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let inside = pool.install(|| Cg::new(&a).solve(&b).unwrap());
        same(&inside, &cg.solve(&b).unwrap());
    }
}
