//! A third kind of memory: vectors distributed over several ranks, like processes of a cluster. Here each rank is a thread.
//! Every method and every law works on such vectors, all ranks end after the same iteration, and the number of reductions is
//! the one in the formulas.
//!
//! A model only: ranks pass data through one lock.

use krysp::solvers::{Diagonal, Immediate, Scalar, VectorBasis, check_spaces};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, edge};
use krysp::{
    BasicVector, BiCgStab, CancelToken, Cg, Chebyshev, Csr, Fcg, Fgmres, Gmres, Idr, LinearOperator, Minres,
    Outcome, PipelinedCg, Report, Space, Vector,
};
use std::convert::Infallible;
use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Range};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

type Result<T> = krysp::solvers::Result<T>;

/// The memory that all ranks share: the data that each rank published last, and the number of arrivals at barriers so far.
struct World {
    parts: Mutex<Vec<Vec<f64>>>,
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl World {
    /// Waits until all ranks have arrived. Panics if one does not arrive in time, so that a test fails instead of
    /// hanging.
    fn meet(&self) {
        let ranks = self.parts.lock().unwrap().len();
        let mut arrived = self.arrived.lock().unwrap();
        *arrived += 1;
        let meeting = (*arrived).next_multiple_of(ranks);
        self.changed.notify_all();
        let missing = |arrived: &mut usize| *arrived < meeting;
        let timeout = Duration::from_secs(30);
        let (_arrived, waited) = self.changed.wait_timeout_while(arrived, timeout, missing).unwrap();
        assert!(!waited.timed_out(), "a rank did not come");
    }
}

/// A rank's access to the shared memory.
struct Rank {
    world: Arc<World>,
    rank: usize,
    /// Local sums of this rank that are not yet reduced.
    pending: Mutex<Vec<Arc<Pending>>>,
    /// The number of reductions so far.
    reductions: Mutex<usize>,
}

impl Rank {
    /// Publishes this rank's data, and returns the data of every rank.
    fn gather(&self, own: Vec<f64>) -> Vec<Vec<f64>> {
        self.world.parts.lock().unwrap()[self.rank] = own;
        self.world.meet();
        let all = self.world.parts.lock().unwrap().clone();
        // no rank may publish again before all have read
        self.world.meet();
        all
    }

    /// Adds up all pending sums over the ranks, in one reduction.
    fn reduce(&self) {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap());
        *self.reductions.lock().unwrap() += 1;
        let all = self.gather(pending.iter().map(|sum| sum.own).collect());
        for (k, sum) in pending.iter().enumerate() {
            sum.whole.set(all.iter().map(|of_rank| of_rank[k]).sum()).unwrap();
        }
    }
}

/// A sum over all ranks that is reduced on demand. `own` is this rank's part.
struct Pending {
    own: f64,
    whole: OnceLock<f64>,
}

/// A number that is known on all ranks, or a sum that is reduced when it is read.
#[derive(Clone)]
enum Sum {
    Known(f64),
    Pending(Arc<Rank>, Arc<Pending>),
}

impl Sum {
    fn value(&self) -> f64 {
        match self {
            Sum::Known(value) => *value,
            Sum::Pending(rank, sum) => {
                if sum.whole.get().is_none() {
                    rank.reduce();
                }
                *sum.whole.get().unwrap()
            }
        }
    }
}

impl From<f64> for Sum {
    fn from(value: f64) -> Sum {
        Sum::Known(value)
    }
}

impl Neg for Sum {
    type Output = Sum;

    fn neg(self) -> Sum {
        Sum::Known(-self.value())
    }
}

impl Add for Sum {
    type Output = Sum;

    fn add(self, other: Sum) -> Sum {
        Sum::Known(self.value() + other.value())
    }
}

impl Mul for Sum {
    type Output = Sum;

    fn mul(self, other: Sum) -> Sum {
        Sum::Known(self.value() * other.value())
    }
}

impl Div for Sum {
    type Output = Sum;

    fn div(self, other: Sum) -> Sum {
        Sum::Known(self.value() / other.value())
    }
}

impl Scalar<f64> for Sum {
    fn assign(&mut self, value: &Sum) {
        *self = value.clone();
    }

    fn read(&self) -> Result<f64> {
        Ok(self.value())
    }

    fn quotient(self, divisor: Sum) -> Sum {
        let (a, b) = (self.value(), divisor.value());
        Sum::Known(if a == 0.0 && b == 0.0 { 0.0 } else { a / b })
    }

    fn sqrt(self) -> Sum {
        Sum::Known(self.value().sqrt())
    }
}

/// The space of vectors of one length. This rank has the entries of a range.
#[derive(Clone)]
struct Ranked {
    rank: Arc<Rank>,
    len: usize,
    own: Range<usize>,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        Arc::ptr_eq(&self.rank, &other.rank) && (self.len, &self.own) == (other.len, &other.own)
    }
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", self.own, self.len)
    }
}

impl Space for Ranked {
    type Vector = Part;

    fn len(&self) -> usize {
        self.len
    }

    fn local_len(&self) -> usize {
        self.own.len()
    }

    fn agree(&self, wish: u8) -> Result<u8> {
        let wishes = self.rank.gather(vec![wish.into()]);
        Ok(wishes.iter().fold(0, |most, wish| most.max(wish[0] as u8)))
    }

    fn zeros(&self) -> Result<Part> {
        Ok(Part { entries: vec![0.0; self.own.len()], space: self.clone() })
    }

    fn load(&self, host: &[f64], into: &mut Part) -> Result<()> {
        into.entries.copy_from_slice(host);
        Ok(())
    }

    fn store(&self, from: &Part, host: &mut [f64]) -> Result<()> {
        host.copy_from_slice(&from.entries);
        Ok(())
    }
}

/// This rank's part of a vector.
struct Part {
    entries: Vec<f64>,
    space: Ranked,
}

impl BasicVector for Part {
    type Elem = f64;
    type Scalar = Sum;
    type Space = Ranked;
    type Basis = VectorBasis<Part>;
    type Steps = Immediate<Part>;
    type Native = Infallible;

    fn space(&self) -> &Ranked {
        &self.space
    }

    fn copy_from(&mut self, x: &Part) {
        self.entries.copy_from_slice(&x.entries);
    }

    fn axpby(&mut self, a: &Sum, x: &Part, b: &Sum) {
        let (a, b) = (a.value(), b.value());
        for (y, x) in self.entries.iter_mut().zip(&x.entries) {
            *y = if b == 0.0 { a * x } else { a * x + b * *y };
        }
    }

    fn multiply(&mut self, d: &Part, x: &Part) {
        for (y, (d, x)) in self.entries.iter_mut().zip(d.entries.iter().zip(&x.entries)) {
            *y = d * x;
        }
    }

    fn dot(&self, y: &Part) -> Sum {
        let own = self.entries.iter().zip(&y.entries).map(|(x, y)| x * y).sum();
        let sum = Arc::new(Pending { own, whole: OnceLock::new() });
        self.space.rank.pending.lock().unwrap().push(sum.clone());
        Sum::Pending(self.space.rank.clone(), sum)
    }

    fn basis(space: &Ranked, count: usize) -> Result<VectorBasis<Part>> {
        VectorBasis::new(space, count)
    }
}

impl Vector for Part {}

/// The rows of a matrix that this rank has. A product gathers the whole `x`.
struct Rows {
    a: Csr<f64>,
    space: Ranked,
}

impl LinearOperator for Rows {
    type Vector = Part;

    fn domain(&self) -> &Ranked {
        &self.space
    }

    fn apply(&self, x: &Part, y: &mut Part) -> Result<()> {
        check_spaces(self, x, y)?;
        let x = self.space.rank.gather(x.entries.clone()).concat();
        for (y, row) in y.entries.iter_mut().zip(self.space.own.clone()) {
            let entries = self.a.row_columns(row).iter().zip(self.a.row_values(row));
            *y = entries.map(|(&column, value)| value * x[column as usize]).sum();
        }
        Ok(())
    }
}

/// Runs every rank on its own thread, and returns the result of each. `cuts` has the first row of each rank.
fn on_ranks<R: Send>(cuts: &[usize], run: impl Fn(Ranked) -> R + Sync) -> Vec<R> {
    let ranks = cuts.len() - 1;
    let (parts, arrived, changed) = (vec![vec![]; ranks].into(), 0.into(), Condvar::new());
    let world = Arc::new(World { parts, arrived, changed });
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let (pending, reductions) = Default::default();
                let shared = Arc::new(Rank { world: world.clone(), rank, pending, reductions });
                let space = Ranked { rank: shared, len: cuts[ranks], own: cuts[rank]..cuts[rank + 1] };
                let run = &run;
                scope.spawn(move || run(space))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Partitions of `n` rows: one part, two equal parts, two unequal parts, and three parts of which one is empty.
fn cuts(n: usize) -> Vec<Vec<usize>> {
    vec![vec![0, n], vec![0, n / 2, n], vec![0, 3, n], vec![0, n / 3, n / 3, n]]
}

/// The inverse of the diagonal, this rank's part.
fn jacobi(a: &Csr<f64>, space: &Ranked) -> Diagonal<Part> {
    let inverse: Vec<f64> = a.diagonal_entries()[space.own.clone()].iter().map(|d| 1.0 / d).collect();
    let mut diagonal = space.zeros().unwrap();
    space.load(&inverse, &mut diagonal).unwrap();
    Diagonal::new(diagonal)
}

/// Solves by one method: the report, and this rank's part of the solution.
type Solve = fn(&Rows, &Diagonal<Part>, &[f64]) -> (Report, Vec<f64>);

macro_rules! methods {
    ($($method:ident $(with $option:ident)?),*) => {
        [$((stringify!($method), (|a, m, b| {
            let mut solver = $method::new(a).preconditioner(m).rtol(1e-10);
            $(solver = solver.$option(40);)?
            let solution = solver.solve(b).unwrap();
            (solution.report, solution.x)
        }) as Solve)),*]
    };
}

#[test]
fn every_method_solves_on_every_cut() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let methods =
        methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres with restart, Fgmres with restart];
    for (name, solve) in methods {
        let mut iterations = vec![];
        for cut in cuts(a.rows()) {
            let solved = on_ranks(&cut, |space| {
                let rows = Rows { a: a.clone(), space: space.clone() };
                solve(&rows, &jacobi(&a, &space), &b[space.own.clone()])
            });
            let x: Vec<f64> = solved.iter().flat_map(|(_, x)| x.clone()).collect();
            let residual = crate::truth::residual(&a, &x, &b);
            assert!(residual <= 2e-10 * crate::truth::norm(&b), "{name} {cut:?}: {residual}");
            for (report, _) in &solved {
                assert!(report.converged(), "{name} {cut:?}: {report}");
                // bitwise equal, because all ranks have the same scalars
                assert_eq!(report.history, solved[0].0.history, "{name} {cut:?}");
            }
            iterations.push(solved[0].0.iterations);
        }
        let [least, most] = [iterations.iter().min(), iterations.iter().max()].map(|i| *i.unwrap());
        // each rank generates its part of the shadow vectors of IDR(s), so that they depend on the partition
        let allowed = if name == "Idr" { most / 5 } else { 1 };
        assert!(most - least <= allowed, "{name}: {iterations:?}");
    }
}

/// A cycle with more steps than a rank has rows: cycles end after the same step on all ranks.
#[test]
fn cycles_may_be_longer_than_a_part() {
    let a = matrices::stencil7(3).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let reports = on_ranks(&[0, 2, a.rows()], |space| {
        let rows = Rows { a: a.clone(), space: space.clone() };
        Gmres::new(&rows).restart(20).rtol(1e-10).solve(&b[space.own.clone()]).unwrap().report
    });
    assert!(reports.iter().all(Report::converged), "{reports:?}");
}

#[test]
fn laws_hold_on_every_cut() {
    let a = edge::tridiagonal(41).csr::<f64>().unwrap();
    for cut in cuts(a.rows()) {
        on_ranks(&cut, |space| {
            laws::vector_fusions(&space, Agreement::Rounding).unwrap();
            laws::basis_fusions(&space, Agreement::Rounding).unwrap();
            let rows = Rows { a: a.clone(), space: space.clone() };
            laws::operator_fusions(&rows, Agreement::Rounding).unwrap();
            laws::several_products(&rows, &[3], Agreement::Rounding).unwrap();
            laws::operator_fusions(&jacobi(&a, &space), Agreement::Rounding).unwrap();
            laws::stale_values(&rows).unwrap();
            laws::second_product(&rows).unwrap();
        });
    }
}

/// One rank wants to end the solve; all ranks end after the same iteration.
#[test]
fn ranks_end_together() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let ended = |end: &(dyn Fn(usize, Cg<Rows>) -> Cg<Rows> + Sync)| {
        let reports = on_ranks(&[0, 100, 300, a.rows()], |space| {
            let rows = Rows { a: a.clone(), space: space.clone() };
            let solver = Cg::new(rows).rtol(0.0).stagnation_window(usize::MAX).max_iterations(100_000);
            end(space.rank.rank, solver).solve(&b[space.own.clone()]).unwrap().report
        });
        let [first, others @ ..] = &reports[..] else { panic!("there are ranks") };
        for other in others {
            assert_eq!(other.history, first.history);
            assert_eq!(other.outcome, first.outcome);
        }
        (first.outcome.clone(), first.iterations)
    };
    let stopped = ended(&|rank, solver| solver.stop_when(move |p| rank == 1 && p.iteration == 7));
    assert_eq!(stopped, (Outcome::Stopped, 7));
    let cancelled = ended(&|rank, solver| {
        let token = CancelToken::new();
        let pulled = token.clone();
        solver.cancel_token(&token).observe(move |p| {
            if rank == 2 && p.iteration == 9 {
                pulled.cancel();
            }
        })
    });
    assert_eq!(cancelled, (Outcome::Cancelled, 9));
    let (outcome, _) = ended(&|rank, solver| {
        solver.time_limit(Duration::from_millis(if rank == 0 { 20 } else { 3_600_000 }))
    });
    assert_eq!(outcome, Outcome::TimeLimit);
}

/// One reduction for `⟨p, A p⟩`, and one for `‖r‖²` and `⟨r, z⟩` together.
#[test]
fn conjugate_gradients_reduce_twice_an_iteration() {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let count = |iterations: usize, chebyshev: bool| {
        let counts = on_ranks(&[0, 200, a.rows()], |space| {
            let rows = Rows { a: a.clone(), space: space.clone() };
            let own = &b[space.own.clone()];
            let m = jacobi(&a, &space);
            let before = || *space.rank.reductions.lock().unwrap();
            if chebyshev {
                let m = Chebyshev::with_bounds(&rows, m, 2, [0.1, 2.0]).unwrap();
                let mut solver = Cg::new(&rows).preconditioner(m).rtol(0.0).max_iterations(iterations);
                let start = before();
                solver.solve(own).unwrap();
                before() - start
            } else {
                let mut solver = Cg::new(&rows).preconditioner(m).rtol(0.0).max_iterations(iterations);
                let start = before();
                solver.solve(own).unwrap();
                before() - start
            }
        });
        assert_eq!(counts[0], counts[1]);
        counts[0]
    };
    for chebyshev in [false, true] {
        // the difference of two solves leaves out the reductions at the start and the end
        assert_eq!(count(15, chebyshev) - count(5, chebyshev), 20, "chebyshev: {chebyshev}");
    }
}
