//! Block conjugate gradients: predictions of theory, and blocks that theory excludes, such as dependent
//! columns.

use krysp::solvers::Diagonal;
use krysp::testing::matrices;
use krysp::{
    CancelToken, Cg, Csr, HostSpace, HostVector, Jacobi, LinearOperator, MultiVector, Outcome, Report,
    Solution,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Pseudo-random right-hand sides.
pub(crate) fn rough(n: usize, columns: usize) -> Vec<Vec<f64>> {
    let value = |i: usize, j: usize| {
        let mixed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (j as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    (0..columns).map(|j| (0..n).map(|i| value(i, j)).collect()).collect()
}

pub(crate) fn diagonal(entries: &[f64]) -> Diagonal<HostVector<f64>> {
    Diagonal::new(HostVector::from_slice(entries))
}

pub(crate) fn all_converged(a: &Csr<f64>, b: &[Vec<f64>], solved: &[Solution<f64>]) {
    assert_eq!(b.len(), solved.len());
    for (j, (b, Solution { x, report })) in b.iter().zip(solved).enumerate() {
        assert!(report.converged(), "column {j}: {report}");
        assert_eq!(report.iterations + 1, report.history.len());
        let (residual, length) = (crate::truth::residual(a, x, b), crate::truth::norm(b));
        assert!(residual <= 1.001e-8 * length, "column {j}: {residual}");
    }
}

/// An operator that counts its products with one vector.
pub(crate) struct Counted {
    pub(crate) a: Csr<f64>,
    pub(crate) count: AtomicUsize,
}

/// The failure of [`FailsOnce`] in place of an application.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// One entry of the result is NaN.
    NotFinite,
    Error,
}

/// An operator, one application of which fails.
pub(crate) struct FailsOnce<A> {
    inner: A,
    /// Number of applications before the one that fails.
    before: usize,
    failure: Failure,
    calls: AtomicUsize,
}

impl<A> FailsOnce<A> {
    pub(crate) fn new(inner: A, before: usize, failure: Failure) -> FailsOnce<A> {
        FailsOnce { inner, before, failure, calls: AtomicUsize::new(0) }
    }
}

impl<A: LinearOperator<Vector = HostVector<f64>>> LinearOperator for FailsOnce<A> {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        self.inner.domain()
    }

    fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp::solvers::Result<()> {
        let fails = self.calls.fetch_add(1, Relaxed) == self.before;
        if fails && matches!(self.failure, Failure::Error) {
            return Err(krysp::solvers::Error::Breakdown { what: "an application", value: 0.0 });
        }
        self.inner.apply(x, y)?;
        if fails {
            y.as_mut_slice()[3] = f64::NAN;
        }
        Ok(())
    }
}

impl LinearOperator for Counted {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        self.a.domain()
    }

    fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp::solvers::Result<()> {
        self.count.fetch_add(1, Relaxed);
        self.a.apply(x, y)
    }
}

/// A zero column reduces a block of two columns to one vector.
#[test]
fn a_block_of_one_is_conjugate_gradients() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let b = [vec![0.0; a.rows()], matrices::vector(a.rows())];
    let same = |block: &[Solution<f64>], own: &Solution<f64>| {
        assert_eq!((block[0].report.iterations, &block[0].report.outcome), (0, &Outcome::Converged));
        let (block, own) = (&block[1].report, &own.report);
        assert_eq!(block.iterations, own.iterations);
        for (got, expected) in block.history.iter().zip(&own.history) {
            assert!((got - expected).abs() <= 1e-6 * expected, "{got} and {expected}");
        }
    };
    same(&Cg::new(&a).solve_block(&b).unwrap(), &Cg::new(&a).solve(&b[1]).unwrap());
    let block = Cg::new(&a).preconditioner(&jacobi).solve_block(&b).unwrap();
    same(&block, &Cg::new(&a).preconditioner(&jacobi).solve(&b[1]).unwrap());
    // one column alone is solved as by `solve`
    let alone = Cg::new(&a).solve_block(&b[1..]).unwrap();
    assert_eq!(alone[0].x, Cg::new(&a).solve(&b[1]).unwrap().x);
}

/// As many independent right-hand sides as unknowns span the space.
#[test]
fn as_many_columns_as_unknowns_take_one_step() {
    let a = matrices::stencil7(2).csr::<f64>().unwrap();
    let b = rough(8, 8);
    let solved = Cg::new(&a).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    assert!(solved.iter().all(|solution| solution.report.iterations == 1));
    // half as many take two steps
    let solved = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).solve_block(&b[..4]).unwrap();
    all_converged(&a, &b[..4], &solved);
    assert!(solved.iter().all(|solution| solution.report.iterations <= 2));
}

/// With `k` columns, the error decreases as if the `k − 1` smallest eigenvalues were absent. The others are
/// between 1 and 10: the bound `2 ((√10 − 1) / (√10 + 1))^m` is less than 1e-8 after m = 30 iterations, and
/// 15 more reduce it by a factor of 2e4, which allows for the angle between the columns and the eigenvectors.
/// A single solve takes 10 or more additional iterations for each small eigenvalue.
#[test]
fn small_eigenvalues_do_not_count() {
    let eigenvalues: Vec<f64> = (0..400)
        .map(|i| if i < 7 { 1e-6 * (i + 1) as f64 } else { 1.0 + 9.0 * (i - 7) as f64 / 392.0 })
        .collect();
    let a = diagonal(&eigenvalues);
    let b = rough(400, 8);
    let most = |solved: &[Solution<f64>]| {
        assert!(solved.iter().all(|solution| solution.report.converged()));
        solved.iter().map(|solution| solution.report.iterations).max().unwrap()
    };
    let block = most(&Cg::new(&a).solve_block(&b).unwrap());
    let single = most(&Cg::new(&a).solve_many(&b).unwrap());
    assert!(block <= 45 && single > 45 + 70, "{block} and {single}");
}

/// A block needs fewer iterations than separate solves of its columns.
#[test]
fn a_block_takes_fewer_iterations() {
    for a in [matrices::stencil7(10).csr::<f64>().unwrap(), matrices::elasticity(5).csr().unwrap()] {
        let b = rough(a.rows(), 6);
        let jacobi = Jacobi::new(&a).unwrap();
        let block = Cg::new(&a).preconditioner(&jacobi).solve_block(&b).unwrap();
        all_converged(&a, &b, &block);
        let single = Cg::new(&a).preconditioner(&jacobi).solve_many(&b).unwrap();
        for (block, single) in block.iter().zip(&single) {
            let [block, single] = [block, single].map(|solution| solution.report.iterations);
            assert!(10 * block <= 9 * single, "{block} and {single}");
        }
    }
}

/// Equal, opposite, nearly equal and zero columns, and sums of others: the width of the block is the
/// dimension of their span.
#[test]
fn dependent_columns_are_solved() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let n = a.rows();
    let [p, q] = <[Vec<f64>; 2]>::try_from(rough(n, 2)).unwrap();
    let sum = |s: f64, t: f64| -> Vec<f64> { p.iter().zip(&q).map(|(p, q)| s * p + t * q).collect() };
    let b = [p.clone(), p.clone(), sum(-1.0, 0.0), q.clone(), sum(1e6, -3.0), vec![0.0; n], sum(1e-9, 1e-12)];
    let counted = Counted { a: a.clone(), count: AtomicUsize::new(0) };
    let solved = Cg::new(&counted).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    let most = solved.iter().map(|solution| solution.report.iterations).max().unwrap();
    // two products per iteration, one for each final residual, and two for the norm of the matrix
    let count = counted.count.load(Relaxed);
    assert!(count <= 2 * most + 6 + 2, "{count} products in {most} iterations");
    // columns that differ by little are not dependent
    let near: Vec<f64> = p.iter().zip(&q).map(|(p, q)| p + 1e-5 * q).collect();
    let b = [p, near, q];
    let jacobi = Jacobi::new(&a).unwrap();
    all_converged(&a, &b, &Cg::new(&a).preconditioner(&jacobi).solve_block(&b).unwrap());
}

/// A column with NaN ends, and the others are unchanged.
#[test]
fn a_column_that_is_not_finite_ends_alone() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let mut b = rough(a.rows(), 3);
    let clean = Cg::new(&a).solve_block(&b).unwrap();
    let mut nan = vec![1.0; a.rows()];
    nan[1] = f64::NAN;
    b.insert(1, nan.clone());
    let solved = Cg::new(&a).solve_block(&b).unwrap();
    let own = Cg::new(&a).solve(&nan).unwrap().report;
    assert_eq!(format!("{:?}", solved[1].report.outcome), format!("{:?}", own.outcome));
    for (got, expected) in [&solved[0], &solved[2], &solved[3]].into_iter().zip(&clean) {
        assert!(got.report.converged());
        assert_eq!(got.x, expected.x);
    }
}

/// A product that is NaN once, or fails, ends the block; its columns are then solved separately.
#[test]
fn a_product_that_fails_leaves_columns_to_themselves() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let b = rough(a.rows(), 3);
    for failure in [Failure::NotFinite, Failure::Error] {
        let flaky = FailsOnce::new(&a, 9, failure);
        let solved = Cg::new(&flaky).solve_block(&b).unwrap();
        all_converged(&a, &b, &solved);
        assert_eq!(solved[2].x, Cg::new(&a).solve(&b[2]).unwrap().x);
    }
}

/// A block reports an indefinite operator as conjugate gradients do.
#[test]
fn an_indefinite_operator_is_reported() {
    let n = 60;
    let signs: Vec<f64> = (0..n).map(|i| if i % 7 == 6 { -1.0 } else { 1.0 + i as f64 }).collect();
    let (a, b) = (diagonal(&signs), rough(n, 4));
    let what = |report: &Report| match &report.outcome {
        Outcome::Breakdown { what, value, .. } if *value < 0.0 => *what,
        _ => panic!("{report}"),
    };
    let single = Cg::new(&a).solve(&b[0]).unwrap();
    for solution in Cg::new(&a).solve_block(&b).unwrap() {
        assert_eq!(what(&solution.report), what(&single.report));
        assert!(solution.report.true_residual.is_finite());
    }
    let positive = diagonal(&signs.iter().map(|sign| sign.abs()).collect::<Vec<_>>());
    let single = Cg::new(&positive).preconditioner(&a).solve(&b[0]).unwrap();
    for solution in Cg::new(&positive).preconditioner(&a).solve_block(&b).unwrap() {
        assert_eq!(what(&solution.report), what(&single.report));
    }
}

#[test]
fn limits_and_tokens_end_all_columns() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let mut b = rough(a.rows(), 4);
    b.push(vec![0.0; a.rows()]);
    let few = Cg::new(&a).max_iterations(5).solve_block(&b).unwrap();
    let late = Cg::new(&a).time_limit(Duration::ZERO).solve_block(&b).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let cancelled = Cg::new(&a).cancel_token(&token).solve_block(&b).unwrap();
    for j in 0..4 {
        assert_eq!((few[j].report.iterations, &few[j].report.outcome), (5, &Outcome::IterationLimit));
        let residual = crate::truth::residual(&a, &few[j].x, &b[j]);
        let by_recurrence = few[j].report.history[5];
        assert!((residual - by_recurrence).abs() <= 1e-10 * crate::truth::norm(&b[j]));
        assert_eq!(late[j].report.outcome, Outcome::TimeLimit);
        assert_eq!(cancelled[j].report.outcome, Outcome::Cancelled);
    }
    assert_eq!(late[4].report.outcome, Outcome::Converged);
}

/// More columns than one block holds, guesses, and guesses that are already the solution.
#[test]
fn many_columns_come_in_groups_and_begin_from_guesses() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let b = rough(a.rows(), 35);
    all_converged(&a, &b, &Cg::new(&a).solve_block(&b).unwrap());
    let vectors = |of: &[Vec<f64>]| {
        let vectors = of.iter().map(|v| HostVector::from_slice(v)).collect();
        MultiVector::from_columns(a.domain(), vectors).unwrap()
    };
    let exact = Cg::new(&a).rtol(1e-12).solve(&b[1]).unwrap().x;
    let mut x = vectors(&[vec![0.5; a.rows()], exact, vec![0.0; a.rows()], b[0].clone()]);
    let reports = Cg::new(&a).solve_block_into(&vectors(&b[..4]), &mut x).unwrap().to_vec();
    assert_eq!(reports[1].iterations, 0);
    let x = x.columns().iter().zip(reports);
    let solved: Vec<_> = x.map(|(x, report)| Solution { x: x.as_slice().to_vec(), report }).collect();
    all_converged(&a, &b[..4], &solved);
    let [two, mut three] = [2, 3].map(|columns| MultiVector::zeros(a.domain(), columns).unwrap());
    assert!(Cg::new(&a).solve_block_into(&two, &mut three).is_err());
    assert!(Cg::new(&a).solve_block(&[vec![1.0; a.rows()], vec![1.0]]).is_err());
    assert!(Cg::new(&a).solve_block::<Vec<f64>>(&[]).unwrap().is_empty());
}

/// Columns that end early leave the block, one after the other.
#[test]
fn columns_end_at_different_times() {
    let a = matrices::elasticity(5).csr::<f64>().unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let mut b = rough(a.rows(), 5);
    // the solution of this column, b[0], is soon in the joint search space
    let mut y = HostVector::from_slice(&vec![0.0; a.rows()]);
    a.apply(&HostVector::from_slice(&b[0]), &mut y).unwrap();
    b[1] = y.as_slice().to_vec();
    b.push(a.diagonal_entries());
    let solved = Cg::new(&a).preconditioner(&jacobi).solve_block(&b).unwrap();
    all_converged(&a, &b, &solved);
    let iterations: Vec<usize> = solved.iter().map(|solution| solution.report.iterations).collect();
    assert!(iterations.iter().min() < iterations.iter().max(), "{iterations:?}");
}

/// Single precision has its own thresholds.
#[test]
fn single_precision_converges() {
    let a = matrices::stencil7(8).csr::<f32>().unwrap();
    let mut b: Vec<Vec<f32>> =
        rough(a.rows(), 5).iter().map(|b| b.iter().map(|&b| b as f32).collect()).collect();
    b.push(b[2].clone());
    let jacobi = Jacobi::new(&a).unwrap();
    let most = |solved: Vec<Solution<f32>>| {
        assert!(solved.iter().all(|solution| solution.report.converged()), "{}", solved[0].report);
        solved.iter().map(|solution| solution.report.iterations).max()
    };
    let block = most(Cg::new(&a).preconditioner(&jacobi).solve_block(&b).unwrap());
    assert!(block < most(Cg::new(&a).preconditioner(&jacobi).solve_many(&b).unwrap()));
}

/// Near the rounding limit, a column is continued separately.
#[test]
fn a_tolerance_at_the_limit_of_rounding_is_met() {
    let a = matrices::stencil7(7).csr::<f64>().unwrap();
    let b = rough(a.rows(), 4);
    for solution in Cg::new(&a).rtol(1e-15).solve_block(&b).unwrap() {
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
    let a = matrices::stencil7(52).csr::<f64>().unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let b = rough(a.rows(), 5);
    let solve = || Cg::new(&a).preconditioner(&jacobi).max_iterations(8).solve_block(&b).unwrap();
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
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let b = rough(a.rows(), 3);
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let observed = Cg::new(&a).observe(move |_| _ = seen.fetch_add(1, Relaxed)).solve_block(&b).unwrap();
    let sum: usize = observed.iter().map(|solution| solution.report.iterations).sum();
    assert_eq!(count.load(Relaxed), sum);
    let floating = matrices::stencil7(5).zero_row_sums().csr::<f64>().unwrap();
    let constants = [vec![1.0; floating.rows()]];
    let solved = Cg::new(&floating).null_space(&constants).unwrap().solve_block(&b).unwrap();
    assert!(solved.iter().all(|solution| solution.report.converged() && solution.report.removed > 0.0));
}
