//! Block GMRES: predictions of theory, and blocks that theory excludes, such as dependent columns.

use crate::block_cg::{Counted, FailsOnce, Failure, all_converged, diagonal, rough};
use krysp::solvers::{Diagonal, OperatorFn};
use krysp::testing::matrices;
use krysp::{
    CancelToken, Csr, Gmres, HostVector, Ilu0, Jacobi, LinearOperator, MultiVector, Outcome, Solution,
    gallery,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

fn convection(points: usize) -> Csr<f64> {
    gallery::convection_diffusion(&[points, points], &[2.0, 0.5]).unwrap()
}

fn most(solved: &[Solution<f64>]) -> usize {
    solved.iter().map(|solution| solution.report.iterations).max().unwrap()
}

fn sum(solved: &[Solution<f64>]) -> usize {
    solved.iter().map(|solution| solution.report.iterations).sum()
}

fn times(a: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    let mut y = HostVector::from_slice(&vec![0.0; a.rows()]);
    a.apply(&HostVector::from_slice(x), &mut y).unwrap();
    y.as_slice().to_vec()
}

/// A zero column reduces a block of two columns to one vector. Cycles are shorter than the solve.
#[test]
fn a_block_of_one_is_gmres() {
    let a = convection(14);
    let jacobi = Jacobi::new(&a).unwrap();
    let b = [vec![0.0; a.rows()], matrices::vector(a.rows())];
    let same = |block: &[Solution<f64>], own: &Solution<f64>| {
        assert_eq!((block[0].report.iterations, &block[0].report.outcome), (0, &Outcome::Converged));
        let (block, own) = (&block[1].report, &own.report);
        assert_eq!(block.iterations, own.iterations);
        assert!(own.iterations > 20);
        assert_eq!(block.block, 1);
        for (got, expected) in block.history.iter().zip(&own.history) {
            assert!((got - expected).abs() <= 1e-6 * expected, "{got} and {expected}");
        }
    };
    let gmres = || Gmres::new(&a).restart(9);
    same(&gmres().solve_block(&b).unwrap(), &gmres().solve(&b[1]).unwrap());
    let block = gmres().preconditioner(&jacobi).solve_block(&b).unwrap();
    same(&block, &gmres().preconditioner(&jacobi).solve(&b[1]).unwrap());
    // one column alone is solved as by `solve`
    let alone = gmres().solve_block(&b[1..]).unwrap();
    assert_eq!(alone[0].x, gmres().solve(&b[1]).unwrap().x);
    assert_eq!(alone[0].report.block, 1);
}

/// As many independent right-hand sides as unknowns span the space.
#[test]
fn as_many_columns_as_unknowns_take_one_step() {
    let a = gallery::convection_diffusion(&[2, 2, 2], &[1.0, 3.0, 0.5]).unwrap();
    let b = rough(8, 8);
    let solved = Gmres::new(&a).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    assert!(solved.iter().all(|solution| solution.report.iterations == 1));
    // fewer unknowns than columns
    let b = rough(8, 11);
    let solved = Gmres::new(&a).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    assert!(solved.iter().all(|solution| solution.report.iterations == 1 && solution.report.block == 11));
    // half as many take two steps
    let solved = Gmres::new(&a).preconditioner(Jacobi::new(&a).unwrap()).solve_block(&b[..4]).unwrap();
    all_converged(&a, &b[..4], &solved);
    assert!(solved.iter().all(|solution| solution.report.iterations <= 2));
}

/// With `k` columns, the residual decreases as if `k − 1` eigenvalues were absent, here negative ones among
/// positive ones from 1 to 4: the bound `2 (1/3)^m` is less than 1e-8 after m = 18 iterations, and 10 more allow
/// for the angle between the columns and the eigenvectors. A single solve needs several iterations for each
/// negative eigenvalue.
#[test]
fn a_few_eigenvalues_do_not_count() {
    let eigenvalues: Vec<f64> = (0..300)
        .map(|i| if i < 7 { -1e-3 * (i + 1) as f64 } else { 1.0 + 3.0 * (i - 7) as f64 / 292.0 })
        .collect();
    let a = diagonal(&eigenvalues);
    let b = rough(300, 8);
    let gmres = || Gmres::new(&a).restart(300);
    let (block, single) = (gmres().solve_block(&b).unwrap(), gmres().solve_many(&b).unwrap());
    assert!(block.iter().chain(&single).all(|solution| solution.report.converged()));
    assert!(most(&block) <= 28 && most(&single) > 28 + 20, "{} and {}", most(&block), most(&single));
}

/// Blocks of every width need fewer products than separate solves, with cycles of the same number of steps.
/// A group of 17 columns is a block of 16 and a separate solve.
#[test]
fn a_block_takes_fewer_products() {
    let a = convection(30);
    let (jacobi, ilu) = (Jacobi::new(&a).unwrap(), Ilu0::new(&a).unwrap());
    for columns in [3, 8, 17] {
        let b = rough(a.rows(), columns);
        for (block, single) in [
            (Gmres::new(&a).solve_block(&b), Gmres::new(&a).solve_many(&b)),
            (
                Gmres::new(&a).preconditioner(&jacobi).solve_block(&b),
                Gmres::new(&a).preconditioner(&jacobi).solve_many(&b),
            ),
            (
                Gmres::new(&a).preconditioner(&ilu).solve_block(&b),
                Gmres::new(&a).preconditioner(&ilu).solve_many(&b),
            ),
        ] {
            let (block, single) = (block.unwrap(), single.unwrap());
            all_converged(&a, &b, &block);
            let (of_block, of_single) = (sum(&block), sum(&single));
            let enough = if columns == 3 { of_single - 1 } else { of_single * 4 / 5 };
            assert!(of_block <= enough, "{columns} columns: {of_block} and {of_single}");
            for (j, Solution { report, .. }) in block.iter().enumerate() {
                assert_eq!(report.block, if j < 16 { columns.min(16) } else { 1 });
            }
        }
    }
}

/// Equal, opposite, nearly equal and zero columns, and sums of others: the width of the block is the
/// dimension of their span.
#[test]
fn dependent_columns_are_solved() {
    let a = convection(12);
    let n = a.rows();
    let [p, q] = <[Vec<f64>; 2]>::try_from(rough(n, 2)).unwrap();
    let sum = |s: f64, t: f64| -> Vec<f64> { p.iter().zip(&q).map(|(p, q)| s * p + t * q).collect() };
    let b = [p.clone(), p.clone(), sum(-1.0, 0.0), q.clone(), sum(1e6, -3.0), vec![0.0; n], sum(1e-9, 1e-12)];
    let counted = Counted { a: a.clone(), count: AtomicUsize::new(0) };
    let solved = Gmres::new(&counted).restart(200).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    // two products per iteration, one for each final residual, and two for the norm of the matrix
    let count = counted.count.load(Relaxed);
    assert!(count <= 2 * most(&solved) + 6 + 2, "{count} products in {} iterations", most(&solved));
    // columns that differ by little are not dependent
    let near: Vec<f64> = p.iter().zip(&q).map(|(p, q)| p + 1e-5 * q).collect();
    let b = [p, near, q];
    let jacobi = Jacobi::new(&a).unwrap();
    all_converged(&a, &b, &Gmres::new(&a).restart(7).preconditioner(&jacobi).solve_block(&b).unwrap());
}

/// Krylov spaces of some columns end early: eigenvectors, and sums of a few of them. Their vectors are dropped
/// within the cycle.
#[test]
fn blocks_become_narrower_within_a_cycle() {
    let n = 200;
    let a = diagonal(&(0..n).map(|i| 1.0 + i as f64).collect::<Vec<_>>());
    let of = |first: usize, count: usize| -> Vec<f64> {
        (0..n).map(|i| if (first..first + count).contains(&i) { 1.0 + i as f64 } else { 0.0 }).collect()
    };
    let b = [of(3, 1), of(10, 3), of(12, 4), rough(n, 1).remove(0)];
    let solved = Gmres::new(&a).restart(200).solve_block(&b).unwrap();
    for (j, (b, Solution { x, report })) in b.iter().zip(&solved).enumerate() {
        assert!(report.converged(), "column {j}: {report}");
        let square = |i: usize| (b[i] - (1.0 + i as f64) * x[i]).powi(2);
        assert!((0..n).map(square).sum::<f64>().sqrt() <= 1.001e-8 * crate::truth::norm(b));
    }
    let iterations: Vec<usize> = solved.iter().map(|solution| solution.report.iterations).collect();
    assert!(iterations[0] == 1 && iterations[1] <= 3 && iterations[2] <= 4, "{iterations:?}");
}

/// A column with NaN ends, and the others are unchanged.
#[test]
fn a_column_that_is_not_finite_ends_alone() {
    let a = convection(10);
    let mut b = rough(a.rows(), 3);
    let clean = Gmres::new(&a).solve_block(&b).unwrap();
    let mut nan = vec![1.0; a.rows()];
    nan[1] = f64::NAN;
    b.insert(1, nan.clone());
    let solved = Gmres::new(&a).solve_block(&b).unwrap();
    let own = Gmres::new(&a).solve(&nan).unwrap().report;
    assert_eq!(format!("{:?}", solved[1].report.outcome), format!("{:?}", own.outcome));
    for (got, expected) in [&solved[0], &solved[2], &solved[3]].into_iter().zip(&clean) {
        assert!(got.report.converged());
        assert_eq!(got.x, expected.x);
    }
}

/// A product that is NaN once, or fails, ends the block; its columns are then solved separately.
#[test]
fn a_product_that_fails_leaves_columns_to_themselves() {
    let a = convection(9);
    let b = rough(a.rows(), 3);
    for failure in [Failure::NotFinite, Failure::Error] {
        // in the first cycle, in the residuals of the second one, in the second cycle
        for before in [9, 36, 50] {
            let flaky = FailsOnce::new(&a, before, failure);
            let solved = Gmres::new(&flaky).restart(10).solve_block(&b).unwrap();
            all_converged(&a, &b, &solved);
            assert_eq!(solved[2].x, Gmres::new(&a).restart(10).solve(&b[2]).unwrap().x);
        }
    }
}

/// A preconditioner that fails at the end of a cycle of the first group leaves a later group and later solves
/// unchanged. Some of their columns need no iteration.
#[test]
fn a_preconditioner_that_fails_once_does_not_change_later_solves() {
    let a = convection(9);
    let jacobi = Jacobi::new(&a).unwrap();
    let mut b = rough(a.rows(), 32);
    [17, 18, 21].into_iter().for_each(|zero| b[zero].fill(0.0));
    // five steps of 16 columns, and then the update of the solutions
    let flaky = FailsOnce::new(&jacobi, 5 * 16 + 3, Failure::Error);
    let mut gmres = Gmres::new(&a).preconditioner(&flaky).restart(5);
    let first = gmres.solve_block(&b).unwrap();
    all_converged(&a, &b, &first);
    assert!(first[..16].iter().all(|solution| solution.report.block == 1));
    let again = gmres.solve_block(&b).unwrap();
    let clean = Gmres::new(&a).preconditioner(&jacobi).restart(5).solve_block(&b).unwrap();
    for (j, clean) in clean.iter().enumerate() {
        assert_eq!(again[j].x, clean.x, "column {j}");
        assert!(j < 16 || first[j].x == clean.x, "column {j}");
    }
}

/// A solve that is cancelled within a cycle returns the iterates of its latest step, and changes nothing in the
/// next solve.
#[test]
fn a_solver_is_used_again_after_a_cancelled_solve() {
    let a = convection(20);
    let b = rough(a.rows(), 4);
    let (token, calls) = (CancelToken::new(), AtomicUsize::new(0));
    let counting = OperatorFn::new(a.domain(), a.domain(), |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        // in the second step of the second cycle, after the residuals at its start
        if calls.fetch_add(1, Relaxed) == 4 * (6 + 1 + 2) - 1 {
            token.cancel();
        }
        a.apply(x, y)
    });
    let mut gmres = Gmres::new(&counting).restart(6).cancel_token(&token);
    for (b, Solution { x, report }) in b.iter().zip(gmres.solve_block(&b).unwrap()) {
        assert_eq!((&report.outcome, report.iterations), (&Outcome::Cancelled, 8));
        let residual = crate::truth::residual(&a, &x, b);
        assert!((residual - report.history[8]).abs() <= 1e-10 * crate::truth::norm(b));
    }
    token.reset();
    let clean = Gmres::new(&a).restart(6).solve_block(&b).unwrap();
    for (again, clean) in gmres.solve_block(&b).unwrap().iter().zip(&clean) {
        assert_eq!((&again.x, &again.report.history), (&clean.x, &clean.report.history));
    }
}

/// Five eigenvalues are a million times as large as the others, so that images of the other directions are hardly
/// larger than the rounding errors of the largest image.
#[test]
fn a_badly_scaled_matrix_does_not_end_the_block() {
    let n = 1000;
    let eigenvalues: Vec<f32> = (0..n)
        .map(|i| if i < 5 { 1e6 + 1e5 * (i + 1) as f32 } else { 1.0 + 3.0 * (i - 5) as f32 / 994.0 })
        .collect();
    let a = Diagonal::new(HostVector::from_slice(&eigenvalues));
    let b: Vec<Vec<f32>> = rough(n, 4).iter().map(|b| b.iter().map(|&b| b as f32).collect()).collect();
    for (b, Solution { x, report }) in b.iter().zip(Gmres::new(&a).solve_block(&b).unwrap()) {
        assert!(report.converged() && report.block == 4, "{} columns: {report}", report.block);
        let residual = |i: usize| f64::from(b[i]) - f64::from(eigenvalues[i]) * f64::from(x[i]);
        let [got, length] = [(0..n).map(residual).collect::<Vec<_>>(), b.iter().map(|&b| b.into()).collect()]
            .map(|v| crate::truth::norm(&v));
        assert!(got <= 1.01 * 3.5e-4 * length, "{got}");
    }
}

/// The rows of a circulant matrix have the sum zero. Right-hand sides in its range are solved. Others end as in
/// separate solves, and do not change the solutions of the consistent systems.
#[test]
fn singular_systems_are_solved_if_they_are_consistent() {
    let n = 60;
    let triplets: Vec<_> =
        (0..n).flat_map(|i| [(i, i, 3.0), (i, (i + 1) % n, -1.0), (i, (i + n - 1) % n, -2.0)]).collect();
    let a = Csr::from_triplets(n, n, &triplets).unwrap();
    let consistent: Vec<Vec<f64>> = rough(n, 4).iter().map(|x| times(&a, x)).collect();
    for restart in [8, 60] {
        let gmres = || Gmres::new(&a).restart(restart).max_iterations(2000);
        all_converged(&a, &consistent, &gmres().solve_block(&consistent).unwrap());
        let mut b = consistent.clone();
        b.insert(2, rough(n, 1).remove(0));
        let solved = gmres().solve_block(&b).unwrap();
        let own = gmres().solve(&b[2]).unwrap();
        assert!(!solved[2].report.converged() && !own.report.converged());
        let [got, expected] =
            [&solved[2], &own].map(|solution| crate::truth::residual(&a, &solution.x, &b[2]));
        assert!(got <= 1.01 * expected, "{got} and {expected}: {}", solved[2].report);
        let others: Vec<_> = [0, 1, 3, 4].map(|j| solved[j].clone()).to_vec();
        all_converged(&a, &consistent, &others);
    }
}

#[test]
fn limits_and_tokens_end_all_columns() {
    let a = convection(20);
    let mut b = rough(a.rows(), 4);
    b.push(vec![0.0; a.rows()]);
    let jacobi = Jacobi::new(&a).unwrap();
    let gmres = || Gmres::new(&a).restart(6).preconditioner(&jacobi);
    let late = gmres().time_limit(Duration::ZERO).solve_block(&b).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let cancelled = gmres().cancel_token(&token).solve_block(&b).unwrap();
    // within a cycle, at its end, and before the first step
    for limit in [8, 12, 0] {
        let few = gmres().max_iterations(limit).solve_block(&b).unwrap();
        for j in 0..4 {
            assert_eq!((few[j].report.iterations, &few[j].report.outcome), (limit, &Outcome::IterationLimit));
            let residual = crate::truth::residual(&a, &few[j].x, &b[j]);
            let by_recurrence = few[j].report.history[limit];
            assert!((residual - by_recurrence).abs() <= 1e-10 * crate::truth::norm(&b[j]));
        }
    }
    for j in 0..4 {
        assert_eq!(late[j].report.outcome, Outcome::TimeLimit);
        assert_eq!(cancelled[j].report.outcome, Outcome::Cancelled);
    }
    assert_eq!(late[4].report.outcome, Outcome::Converged);
}

/// More columns than one block holds, guesses, and guesses that are already the solution.
#[test]
fn many_columns_come_in_groups_and_begin_from_guesses() {
    let a = convection(14);
    let b = rough(a.rows(), 35);
    all_converged(&a, &b, &Gmres::new(&a).solve_block(&b).unwrap());
    let vectors = |of: &[Vec<f64>]| {
        let vectors = of.iter().map(|v| HostVector::from_slice(v)).collect();
        MultiVector::from_columns(a.domain(), vectors).unwrap()
    };
    let exact = Gmres::new(&a).rtol(1e-12).solve(&b[1]).unwrap().x;
    let mut x = vectors(&[vec![0.5; a.rows()], exact, vec![0.0; a.rows()], b[0].clone()]);
    let reports = Gmres::new(&a).solve_block_into(&vectors(&b[..4]), &mut x).unwrap().to_vec();
    assert_eq!(reports[1].iterations, 0);
    let x = x.columns().iter().zip(reports);
    let solved: Vec<_> = x.map(|(x, report)| Solution { x: x.as_slice().to_vec(), report }).collect();
    all_converged(&a, &b[..4], &solved);
    let [two, mut three] = [2, 3].map(|columns| MultiVector::zeros(a.domain(), columns).unwrap());
    assert!(Gmres::new(&a).solve_block_into(&two, &mut three).is_err());
    assert!(Gmres::new(&a).solve_block(&[vec![1.0; a.rows()], vec![1.0]]).is_err());
    assert!(Gmres::new(&a).solve_block::<Vec<f64>>(&[]).unwrap().is_empty());
}

/// Columns that end early leave the block at the next start, one after the other.
#[test]
fn columns_end_at_different_times() {
    let a = convection(20);
    let ilu = Ilu0::new(&a).unwrap();
    let mut b = rough(a.rows(), 5);
    // the solution of this column, b[0], is soon in the joint search space
    b[1] = times(&a, &b[0]);
    b.push(a.diagonal_entries());
    for restart in [3, 30] {
        let solved = Gmres::new(&a).restart(restart).preconditioner(&ilu).solve_block(&b).unwrap();
        all_converged(&a, &b, &solved);
        let iterations: Vec<usize> = solved.iter().map(|solution| solution.report.iterations).collect();
        assert!(iterations.iter().min() < iterations.iter().max(), "{iterations:?}");
        // the solution of a column that has ended is final
        let shorter = Gmres::new(&a)
            .restart(restart)
            .preconditioner(&ilu)
            .max_iterations(iterations[1])
            .solve_block(&b)
            .unwrap();
        assert_eq!(shorter[1].x, solved[1].x);
    }
}

/// Single precision has its own thresholds.
#[test]
fn single_precision_converges() {
    let a: Csr<f32> = gallery::convection_diffusion(&[20, 20], &[2.0, 0.5]).unwrap();
    let mut b: Vec<Vec<f32>> =
        rough(a.rows(), 5).iter().map(|b| b.iter().map(|&b| b as f32).collect()).collect();
    b.push(b[2].clone());
    let most = |solved: Vec<Solution<f32>>| {
        assert!(solved.iter().all(|solution| solution.report.converged()), "{}", solved[0].report);
        solved.iter().map(|solution| solution.report.iterations).max()
    };
    let block = most(Gmres::new(&a).solve_block(&b).unwrap());
    assert!(block < most(Gmres::new(&a).solve_many(&b).unwrap()));
}

/// Near the rounding limit, a column is continued separately.
#[test]
fn a_tolerance_at_the_limit_of_rounding_is_met() {
    let a = convection(12);
    let b = rough(a.rows(), 4);
    for solution in Gmres::new(&a).rtol(1e-15).solve_block(&b).unwrap() {
        let outcome = &solution.report.outcome;
        assert!(
            matches!(outcome, Outcome::Converged | Outcome::PrecisionLimit { .. }),
            "{}",
            solution.report
        );
        assert!(solution.report.relative_residual() < 1e-14, "{}", solution.report);
    }
}

#[test]
fn solutions_are_the_same_every_time_and_on_any_number_of_threads() {
    // 140,608 rows: loops over a single vector are divided among threads, too (`SERIAL_ON_VECTORS`)
    let a = gallery::convection_diffusion(&[52, 52, 52], &[1.0, 0.5, 2.0]).unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let b = rough(a.rows(), 5);
    let solve =
        || Gmres::new(&a).preconditioner(&jacobi).restart(5).max_iterations(8).solve_block(&b).unwrap();
    let on =
        |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(solve);
    let first = on(1);
    for again in [on(1), on(2), on(3)] {
        for (again, first) in again.iter().zip(&first) {
            assert_eq!((&again.x, &again.report.history), (&first.x, &first.report.history));
        }
    }
}

/// With an observer or a null space, columns are solved as by `solve_many`.
#[test]
fn observers_and_null_spaces_are_kept() {
    let a = convection(8);
    let b = rough(a.rows(), 3);
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let observed = Gmres::new(&a).observe(move |_| _ = seen.fetch_add(1, Relaxed)).solve_block(&b).unwrap();
    assert_eq!(count.load(Relaxed), sum(&observed));
    let floating = matrices::stencil7(5).zero_row_sums().csr::<f64>().unwrap();
    let (constants, b) = ([vec![1.0; floating.rows()]], rough(floating.rows(), 3));
    let solved = Gmres::new(&floating).null_space(&constants).unwrap().solve_block(&b).unwrap();
    assert!(solved.iter().all(|solution| solution.report.converged() && solution.report.removed > 0.0));
}
