//! Several right-hand sides at once: each column ends like a separate solve, bitwise.

use krysp::solvers::{Error, OperatorFn};
use krysp::testing::matrices;
use krysp::{
    BasicVector, BiCgStab, CancelToken, Cg, Csr, Fcg, Gmres, HostSpace, HostVector, Idr, Jacobi,
    LinearOperator, Minres, MultiVector, Outcome, PipelinedCg, Report, Solution,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Checks that two solutions are equal in everything but the time.
fn same(what: &str, got: &Solution<f64>, own: &Solution<f64>) {
    same_reports(what, &got.report, &own.report);
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&got.x) == bits(&own.x), "{what}: another solution");
}

fn same_reports(what: &str, got: &Report, own: &Report) {
    let bits = |history: &[f64]| history.iter().map(|r| r.to_bits()).collect::<Vec<_>>();
    // compare the debug output, because NaN in an outcome is not equal to itself
    assert_eq!(format!("{:?}", got.outcome), format!("{:?}", own.outcome), "{what}");
    assert_eq!(got.iterations, own.iterations, "{what}");
    assert_eq!(bits(&got.history), bits(&own.history), "{what}");
    assert_eq!(got.true_residual.to_bits(), own.true_residual.to_bits(), "{what}");
    assert_eq!(got.rhs_norm.to_bits(), own.rhs_norm.to_bits(), "{what}");
    assert_eq!((got.restarts, got.condition), (own.restarts, own.condition), "{what}");
}

/// Right-hand sides of all kinds: rough, smooth, of one entry, small, zero, and NaN.
fn loads(n: usize) -> Vec<Vec<f64>> {
    let mut unit = vec![0.0; n];
    unit[n / 2] = 1.0;
    let mut nan = vec![1.0; n];
    nan[1] = f64::NAN;
    let rough = matrices::vector(n);
    let small = rough.iter().rev().map(|b| 1e-9 * b).collect();
    vec![rough, vec![1.0; n], nan, unit, small, vec![0.0; n]]
}

macro_rules! each_as_its_own {
    ($($method:ident $(.$option:ident($value:expr))?),*) => {$({
        for (name, a) in systems() {
            let jacobi = Jacobi::new(&a).unwrap();
            let b = loads(a.rows());
            let solver = || $method::new(&a)$(.$option($value))?.max_iterations(700);
            let together = solver().solve_many(&b).unwrap();
            let preconditioned = solver().preconditioner(&jacobi).solve_many(&b).unwrap();
            for (j, b) in b.iter().enumerate() {
                let what = format!("{}, {name}, column {j}", stringify!($method));
                same(&what, &together[j], &solver().solve(b).unwrap());
                let own = solver().preconditioner(&jacobi).solve(b).unwrap();
                same(&format!("{what}, Jacobi"), &preconditioned[j], &own);
            }
        }
    })*};
}

/// A system that converges quickly, one that takes hundreds of iterations, and one that is indefinite.
fn systems() -> [(&'static str, Csr<f64>); 3] {
    let signs: Vec<_> = (0..50).map(|i| (i, i, if i % 7 == 6 { -1.0 } else { 1.0 + i as f64 })).collect();
    [
        ("stencil", matrices::stencil7(7).csr().unwrap()),
        ("line", line(600)),
        ("indefinite", Csr::from_triplets(50, 50, &signs).unwrap()),
    ]
}

#[test]
fn each_column_ends_as_its_own_solve() {
    each_as_its_own!(Cg, Fcg, PipelinedCg, Minres, BiCgStab, Idr, Gmres.restart(20));
}

/// Below the rounding limit, restarts and residuals in twice the precision are chosen for each column.
#[test]
fn each_column_ends_as_its_own_solve_at_the_limit_of_rounding() {
    let [_, (_, a), _] = systems();
    let b = loads(a.rows());
    let solver = || Cg::new(&a).rtol(1e-17);
    let together = solver().solve_many(&b).unwrap();
    assert!(matches!(together[0].report.outcome, Outcome::PrecisionLimit { .. }), "{}", together[0].report);
    for (j, b) in b.iter().enumerate() {
        same(&format!("column {j}"), &together[j], &solver().solve(b).unwrap());
    }
}

#[test]
fn guesses_count() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let (space, b) = (a.domain(), loads(a.rows()));
    let exact = Cg::new(&a).rtol(1e-13).solve(&b[0]).unwrap().x;
    let guesses = [exact, vec![0.0; a.rows()], vec![0.5; a.rows()], vec![0.25; a.rows()]];
    let columns = |of: &[Vec<f64>]| of.iter().map(|v| HostVector::from_slice(v)).collect::<Vec<_>>();
    let rhs = MultiVector::from_columns(space, columns(&b[..4])).unwrap();
    let mut x = MultiVector::from_columns(space, columns(&guesses)).unwrap();
    let mut solver = Cg::new(&a);
    let reports = solver.solve_many_into(&rhs, &mut x).unwrap().to_vec();
    assert_eq!(reports[0].iterations, 0);
    for (j, guess) in guesses.iter().enumerate() {
        let mut own = HostVector::from_slice(guess);
        let mut solver = Cg::new(&a);
        same_reports(
            &format!("column {j}"),
            &reports[j],
            solver.solve_into(&rhs.columns()[j], &mut own).unwrap(),
        );
        assert!(
            x.columns()[j].as_slice().iter().zip(own.as_slice()).all(|(a, b)| a.to_bits() == b.to_bits())
        );
    }
    // the second solve reuses the workspace
    let mut again = MultiVector::from_columns(space, columns(&guesses)).unwrap();
    solver.solve_many_into(&rhs, &mut again).unwrap();
    assert_eq!(again.columns()[3].as_slice(), x.columns()[3].as_slice());
}

/// No right-hand sides, vectors of wrong length, and different numbers of right-hand sides and guesses.
#[test]
fn misuse_is_refused() {
    let a = matrices::stencil7(4).csr::<f64>().unwrap();
    let mut solver = Cg::new(&a);
    assert!(solver.solve_many::<Vec<f64>>(&[]).unwrap().is_empty());
    let short = solver.solve_many(&[vec![1.0; 64], vec![1.0; 63]]);
    assert!(matches!(short, Err(Error::Size { got: 63, expected: 64, .. })));
    let space = a.domain();
    let (b, mut x) = (MultiVector::zeros(space, 3).unwrap(), MultiVector::zeros(space, 2).unwrap());
    assert!(matches!(solver.solve_many_into(&b, &mut x), Err(Error::Columns { got: 2, expected: 3, .. })));
    let other = HostSpace::new(63);
    let (b, mut x) = (MultiVector::zeros(&other, 2).unwrap(), MultiVector::zeros(&other, 2).unwrap());
    assert!(matches!(solver.solve_many_into(&b, &mut x), Err(Error::Size { .. })));
    assert!(MultiVector::from_columns(space, vec![HostVector::from_slice(&[1.0; 63])]).is_err());
}

/// More columns than fit in one group.
#[test]
fn many_columns_come_in_groups() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let b: Vec<Vec<f64>> =
        (0..35).map(|j| (0..125).map(|i| f64::from((i * j) % 17) - 8.0).collect()).collect();
    let together = Cg::new(&a).solve_many(&b).unwrap();
    for j in [0, 15, 16, 31, 32, 34] {
        same(&format!("column {j}"), &together[j], &Cg::new(&a).solve(&b[j]).unwrap());
    }
}

/// An iteration makes one joint product for all columns; only the final residuals take one per column.
#[test]
fn an_iteration_takes_one_product() {
    struct Counted {
        a: Csr<f64>,
        single: AtomicUsize,
        joint: AtomicUsize,
    }
    impl LinearOperator for Counted {
        type Vector = HostVector<f64>;

        fn domain(&self) -> &HostSpace<f64> {
            self.a.domain()
        }

        fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp::solvers::Result<()> {
            self.single.fetch_add(1, Relaxed);
            self.a.apply(x, y)
        }

        fn apply_many(
            &self,
            x: &MultiVector<HostVector<f64>>,
            y: &mut MultiVector<HostVector<f64>>,
        ) -> krysp::solvers::Result<()> {
            self.joint.fetch_add(1, Relaxed);
            self.a.apply_many(x, y)
        }
    }
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b: Vec<Vec<f64>> =
        (1..=8).map(|j| (0..512).map(|i| f64::from((i * j) % 13) - 6.0).collect()).collect();
    let counted = Counted { a, single: AtomicUsize::new(0), joint: AtomicUsize::new(0) };
    let solutions = Cg::new(&counted).solve_many(&b).unwrap();
    let longest = solutions.iter().map(|solution| solution.report.iterations).max().unwrap();
    assert!(solutions.iter().all(|solution| solution.report.converged()));
    assert_eq!(counted.joint.load(Relaxed), longest);
    // one product for the final residual of each column, and two for the norm of the matrix
    assert_eq!(counted.single.load(Relaxed), 8 + 2);
}

/// If the preconditioner breaks down for one column, only that column ends, like a separate solve.
#[test]
fn a_failing_product_is_that_of_its_column() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let space = a.domain().clone();
    let jacobi = Jacobi::new(&a).unwrap();
    let m = OperatorFn::new(&space, &space, |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        if x.as_slice().iter().any(|&x| x < -1e3) {
            return Err(Error::Breakdown { what: "a pivot", value: 0.0 });
        }
        jacobi.apply(x, y)
    });
    let mut b = loads(125);
    // this column's first residual has only positive entries; the next has entries below −1e3: `m` fails
    b[1] = vec![1e4; 125];
    let together = Cg::new(&a).preconditioner(&m).solve_many(&b).unwrap();
    assert!(matches!(together[1].report.outcome, Outcome::Breakdown { what: "a pivot", .. }));
    assert!(together[0].report.converged());
    for (j, b) in b.iter().enumerate() {
        same(&format!("column {j}"), &together[j], &Cg::new(&a).preconditioner(&m).solve(b).unwrap());
    }
}

#[test]
fn limits_and_tokens_end_all_columns() {
    let [_, (_, a), _] = systems();
    let b = loads(a.rows());
    let few = Cg::new(&a).max_iterations(5).solve_many(&b).unwrap();
    for j in [0, 1, 3, 4] {
        assert_eq!((few[j].report.iterations, &few[j].report.outcome), (5, &Outcome::IterationLimit));
        same(&format!("column {j}"), &few[j], &Cg::new(&a).max_iterations(5).solve(&b[j]).unwrap());
    }
    let late = Cg::new(&a).time_limit(Duration::ZERO).solve_many(&b).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let cancelled = Cg::new(&a).cancel_token(&token).solve_many(&b).unwrap();
    for j in [0, 1, 3, 4] {
        assert_eq!(late[j].report.outcome, Outcome::TimeLimit);
        assert_eq!(cancelled[j].report.outcome, Outcome::Cancelled);
    }
    assert_eq!(late[5].report.outcome, Outcome::Converged);
}

/// Observers see the iterations of each column, one column after the other.
#[test]
fn observers_see_every_iteration() {
    use std::sync::{Arc, Mutex};
    let a = matrices::stencil7(4).csr::<f64>().unwrap();
    let b = [matrices::vector(64), vec![1.0; 64]];
    let seen = Arc::new(Mutex::new(vec![]));
    let to = seen.clone();
    let solutions =
        Cg::new(&a).observe(move |at| to.lock().unwrap().push(at.residual)).solve_many(&b).unwrap();
    let histories: Vec<f64> = solutions.iter().flat_map(|s| s.report.history[1..].to_vec()).collect();
    assert_eq!(*seen.lock().unwrap(), histories);
}

/// Formats that multiply several vectors at once solve several systems.
#[test]
fn every_format_of_the_chooser_solves_many() {
    let a = matrices::elasticity(4).csr::<f64>().unwrap();
    let b: Vec<Vec<f64>> =
        (1..6).map(|j| (0..a.rows()).map(|i| ((i * j) % 11) as f64 - 5.0).collect()).collect();
    for name in ["CSR", "Bsr", "Sell", "SymCsr", "SymBsr"] {
        let op = krysp::Operator::in_format(&a, &krysp::Host, name).unwrap();
        let jacobi = Jacobi::new(&a).unwrap();
        let together = Cg::new(&op).preconditioner(&jacobi).solve_many(&b).unwrap();
        for (j, b) in b.iter().enumerate() {
            let own = Cg::new(&op).preconditioner(&jacobi).solve(b).unwrap();
            assert!(own.report.converged(), "{name}");
            same(&format!("{name}, column {j}"), &together[j], &own);
        }
    }
}

/// An operator that counts its products with several vectors, and may cancel a token in one of them.
struct Calls {
    a: Csr<f64>,
    count: AtomicUsize,
    widest: AtomicUsize,
    cancel_in: usize,
    token: CancelToken,
}

impl Calls {
    fn new(a: Csr<f64>, cancel_in: usize) -> Calls {
        let [count, widest] = [0; 2].map(AtomicUsize::new);
        Calls { a, count, widest, cancel_in, token: CancelToken::new() }
    }
}

impl LinearOperator for Calls {
    type Vector = HostVector<f64>;

    fn domain(&self) -> &HostSpace<f64> {
        self.a.domain()
    }

    fn apply(&self, x: &HostVector<f64>, y: &mut HostVector<f64>) -> krysp::solvers::Result<()> {
        self.a.apply(x, y)
    }

    fn apply_many(
        &self,
        x: &MultiVector<HostVector<f64>>,
        y: &mut MultiVector<HostVector<f64>>,
    ) -> krysp::solvers::Result<()> {
        self.widest.fetch_max(x.columns().len(), Relaxed);
        if self.count.fetch_add(1, Relaxed) + 1 == self.cancel_in {
            self.token.cancel();
        }
        self.a.apply_many(x, y)
    }
}

/// Right-hand sides in a `MultiVector` are also solved in groups, each from its own initial guess.
#[test]
fn many_vectors_come_in_groups() {
    let a = Calls::new(matrices::stencil7(5).csr().unwrap(), usize::MAX);
    let vector = |j: usize, by: usize| {
        HostVector::from_slice(&(0..125).map(|i| ((i * j) % by) as f64 - 3.0).collect::<Vec<_>>())
    };
    let rhs = (0..35).map(|j| vector(j, 17)).collect();
    let b = MultiVector::from_columns(a.domain(), rhs).unwrap();
    let mut x = MultiVector::from_columns(a.domain(), (0..35).map(|j| vector(j, 11)).collect()).unwrap();
    let reports = Cg::new(&a).solve_many_into(&b, &mut x).unwrap().to_vec();
    assert_eq!((reports.len(), a.widest.load(Relaxed)), (35, 16));
    for j in [0, 15, 16, 34] {
        let (mut own, mut solver) = (vector(j, 11), Cg::new(&a.a));
        same_reports(
            &format!("column {j}"),
            &reports[j],
            solver.solve_into(&b.columns()[j], &mut own).unwrap(),
        );
        assert_eq!(x.columns()[j].as_slice(), own.as_slice());
    }
}

#[test]
fn a_token_ends_columns_within_a_run() {
    let a = Calls::new(line(600), 5);
    let b = [matrices::vector(600), vec![1.0; 600], vec![0.0; 600]];
    let solved = Cg::new(&a).cancel_token(&a.token).solve_many(&b).unwrap();
    for solved in &solved[..2] {
        assert_eq!((&solved.report.outcome, solved.report.iterations), (&Outcome::Cancelled, 5));
    }
    assert_eq!(solved[2].report.outcome, Outcome::Converged);
}

/// The time limit holds for all columns together, also if they are solved one after the other.
#[test]
fn a_time_limit_is_that_of_all_columns() {
    let a = line(600);
    let slow = OperatorFn::new(a.domain(), a.domain(), |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        std::thread::sleep(Duration::from_millis(2));
        a.apply(x, y)
    });
    let b = [matrices::vector(600), vec![1.0; 600], matrices::vector(600)];
    let solved = Gmres::new(&slow).restart(20).time_limit(Duration::from_millis(50)).solve_many(&b).unwrap();
    for solved in &solved {
        assert_eq!(solved.report.outcome, Outcome::TimeLimit);
    }
    assert_eq!([1, 2].map(|j: usize| solved[j].report.iterations), [0, 0]);
}

/// After an application of the preconditioner that fails, the other columns restart from their guesses.
#[test]
fn a_failing_product_leaves_the_guesses_of_others() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let space = a.domain().clone();
    let m = OperatorFn::new(&space, &space, |x: &HostVector<f64>, y: &mut HostVector<f64>| {
        if x.as_slice().iter().any(|&x| x < -1e3) {
            return Err(Error::Breakdown { what: "a pivot", value: 0.0 });
        }
        y.copy_from(x);
        Ok(())
    });
    let mut b = loads(125);
    // this column's first residual has only positive entries; the next has entries below −1e3: `m` fails
    b[1] = vec![1e4; 125];
    let guesses = [0.5, 0.0, 0.5, 0.25, 0.0, 0.25].map(|x| vec![x; 125]);
    let columns = |of: &[Vec<f64>]| of.iter().map(|v| HostVector::from_slice(v)).collect::<Vec<_>>();
    let rhs = MultiVector::from_columns(&space, columns(&b)).unwrap();
    let mut x = MultiVector::from_columns(&space, columns(&guesses)).unwrap();
    let reports = Cg::new(&a).preconditioner(&m).solve_many_into(&rhs, &mut x).unwrap().to_vec();
    assert!(matches!(reports[1].outcome, Outcome::Breakdown { what: "a pivot", .. }));
    for (j, guess) in guesses.iter().enumerate() {
        let mut own = HostVector::from_slice(guess);
        let mut solver = Cg::new(&a).preconditioner(&m);
        let report = solver.solve_into(&rhs.columns()[j], &mut own).unwrap();
        same_reports(&format!("column {j}"), &reports[j], report);
        let bits = |x: &HostVector<f64>| x.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&x.columns()[j]), bits(&own), "column {j}");
    }
}

/// A plan finds a candidate with one right-hand side; the others run that candidate in lockstep.
#[test]
fn a_plan_solves_many() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let mut b = loads(a.rows());
    b.truncate(5);
    let solved = krysp::solve_many(&a, &b).unwrap();
    assert_eq!(solved.len(), 5);
    for (j, (solved, b)) in solved.iter().zip(&b).enumerate() {
        if j == 2 {
            assert!(matches!(solved.report.outcome, Outcome::NotFinite { .. }));
            continue;
        }
        assert!(solved.converged(), "column {j}: {solved}");
        let residual = crate::truth::residual(&a, &solved.x, b);
        assert!(residual <= 2e-8 * crate::truth::norm(b), "column {j}: {residual}");
        // the first one may try another candidate before
        assert!(solved.attempts.len() == 1 || j == 0, "column {j}: {solved}");
        assert_eq!(solved.attempts.last().unwrap().method, krysp::plan::Method::Cg);
    }
    assert!(krysp::solve_many::<f64, Vec<f64>>(&a, &[]).unwrap().is_empty());
    assert!(krysp::solve_many(&a, &[vec![1.0; 3]]).is_err());
}

/// A column that does not converge with the candidate of the first one is planned separately.
#[test]
fn a_plan_solves_by_itself_what_does_not_converge_together() {
    let [_, _, (_, a)] = systems();
    let b = loads(a.rows());
    let mut definite = vec![1.0; 50];
    definite.iter_mut().skip(6).step_by(7).for_each(|b| *b = 0.0);
    let plan = krysp::Plan::new(&a).unwrap().max_iterations(500);
    let solved = plan.build().unwrap().solve_many(&[definite, b[0].clone(), b[1].clone()]).unwrap();
    for (j, solved) in solved.iter().enumerate() {
        assert!(solved.converged(), "column {j}: {solved}");
    }
}

/// An eigenvector of the second difference: conjugate gradients find the solution in one iteration.
fn mode(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((n / 2 * (i + 1)) as f64 * std::f64::consts::PI / (n + 1) as f64).sin()).collect()
}

/// The second difference on `n` points, with explicit zeros that make the matrix large enough for lockstep.
fn line(n: usize) -> Csr<f64> {
    let value = |i: usize, j: usize| [2.0, -1.0, 0.0, 0.0, 0.0][i.abs_diff(j)];
    let near = (0..n).flat_map(|i: usize| (i.saturating_sub(4)..n.min(i + 5)).map(move |j| (i, j)));
    Csr::from_triplets(n, n, &near.map(|(i, j)| (i, j, value(i, j))).collect::<Vec<_>>()).unwrap()
}

/// The plan takes its candidate from the first column that needs iterations (the lead). Observers see only
/// columns that are solved separately.
#[test]
fn a_plan_finds_its_lead_behind_columns_without_iterations() {
    use std::sync::Arc;
    let a = matrices::stencil27(9).csr::<f64>().unwrap();
    let [rough, ones, nan, unit, small, zero] = <[Vec<f64>; 6]>::try_from(loads(a.rows())).unwrap();
    let tiny: Vec<f64> = rough.iter().map(|b| 1e-200 * b).collect();
    let seen = Arc::new(AtomicUsize::new(0));
    let to = seen.clone();
    let solver = krysp::Plan::new(&a).unwrap().build().unwrap();
    let mut solver = solver.observe(move |_| {
        to.fetch_add(1, Relaxed);
    });
    let solved = solver.solve_many(&[zero, nan, rough, ones, unit, small, tiny]).unwrap();
    for (j, solved) in solved.iter().enumerate() {
        assert_eq!(solved.converged(), j != 1, "column {j}: {solved}");
    }
    let together = &solved[3..6];
    assert!(together.iter().all(|solved| solved.attempts.len() == 1 && solved.report.iterations > 0));
    // the squares of the last right-hand side underflow: it is scaled, and solved separately
    assert!(solved[6].report.iterations > 0);
    assert_eq!(seen.load(Relaxed), solved[2].report.iterations + solved[6].report.iterations);
}

#[test]
fn limits_of_a_plan_hold_for_every_column() {
    use krysp::plan::{Method, Preconditioner};
    let a = line(600);
    let b = [mode(600), matrices::vector(600), vec![1.0; 600]];
    let plan = krysp::Plan::new(&a).unwrap().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
    let solved = plan.max_iterations(20).build().unwrap().solve_many(&b).unwrap();
    assert!(solved[0].converged(), "{}", solved[0]);
    for solved in &solved[1..] {
        assert_eq!((&solved.report.outcome, solved.report.iterations), (&Outcome::IterationLimit, 20));
        assert_eq!(solved.attempts.len(), 1, "{solved}");
    }
    let b = [vec![0.0; 600], matrices::vector(600), vec![1.0; 600]];
    let plan = krysp::Plan::new(&a).unwrap();
    let none = plan.build().unwrap().max_iterations(Some(0)).solve_many(&b).unwrap();
    assert_eq!(none[2].report.outcome, Outcome::IterationLimit);
    let late = plan.build().unwrap().time_limit(Some(Duration::ZERO)).solve_many(&b).unwrap();
    assert_eq!(late[2].report.outcome, Outcome::TimeLimit);
    let token = CancelToken::new();
    token.cancel();
    let cancelled = plan.build().unwrap().cancel_token(&token).solve_many(&b).unwrap();
    assert_eq!(cancelled[2].report.outcome, Outcome::Cancelled);
}

/// Lockstep stops a column that takes much longer than the first one; the column is then solved separately.
#[test]
fn a_plan_resumes_what_takes_long() {
    use krysp::plan::{AttemptEnd, Method, Preconditioner};
    let n = 4000;
    let a = line(n);
    let plan = krysp::Plan::new(&a).unwrap().method(Method::Cg).preconditioner(Preconditioner::Jacobi);
    let b = [mode(n), vec![1.0; n], matrices::vector(n)];
    let solved = plan.build().unwrap().solve_many(&b).unwrap();
    assert!(solved[0].converged(), "{}", solved[0]);
    for solved in &solved[1..] {
        let [together, alone, ..] = &solved.attempts[..] else { panic!("{solved}") };
        assert_eq!(together.iterations, 1000);
        assert!(matches!(together.ending, AttemptEnd::Ended(Outcome::IterationLimit)), "{solved}");
        assert!(alone.iterations > 0);
        let all: usize = solved.attempts.iter().map(|attempt| attempt.iterations).sum();
        assert_eq!(solved.report.iterations, all);
    }
}
