//! Time steps of heat conduction, solved by plans and by fixed configurations whose preconditioner is refreshed every few steps.
//!
//! ```text
//! (M + Δt K) Tⁿ⁺¹ = M Tⁿ + Δt f
//! ```

use crate::Result;
use krysp::io::{read_matrix, read_vector};
use krysp::plan::{Backend, Preparation};
use krysp::prelude::*;
use krysp::solvers::Solver;
use krysp::testing::{shared_matrix, skipped};
use krysp::{Amg, AmgOptions, Cholesky, Ic0, MatrixSource, Plan, PositiveJacobi, Refresh};
use std::time::Instant;

const NAME: &str = "heat_sink_transient_80k";
const RTOL: f64 = 1e-8;

/// A configuration is stopped after this multiple of the time of the fastest one.
const TOO_SLOW: f64 = 1.5;

/// A loop of time steps: its name and the length of each step.
struct Loop {
    name: &'static str,
    lengths: Vec<f64>,
}

fn loops() -> [Loop; 3] {
    let jumps = |step: usize| if (200..350).contains(&step) { 5.0 } else { 0.05 };
    [
        Loop { name: "growing", lengths: (0..20).map(|step| 0.05 * 1.1f64.powi(step)).collect() },
        Loop { name: "constant", lengths: vec![0.05; 100] },
        Loop { name: "jumps", lengths: (0..500).map(jumps).collect() },
    ]
}

/// Times and counts of one loop of time steps.
struct Times {
    total: f64,
    steps: Vec<f64>,
    iterations: usize,
    renewals: usize,
}

impl Times {
    fn print(&self, of: &str, name: &str, best: f64) {
        let mut sorted = self.steps.clone();
        sorted.sort_by(f64::total_cmp);
        println!(
            "{of},{name},{:.3},{:.2},{:.2},{:.2},{},{}",
            self.total,
            self.total / best,
            1e3 * sorted[sorted.len() / 2],
            1e3 * sorted[sorted.len() - 1],
            self.iterations,
            self.renewals
        );
    }
}

/// A backend (CPU or GPU) with the list of preconditioners for CG that the plan is compared with there.
pub(crate) trait Rivals: Backend<f64> {
    fn fixed(&self, problem: &Problem<'_>, every: usize, rows: &mut Rows) -> Result<()>;
}

/// The times of each configuration that was not stopped.
#[derive(Default)]
pub(crate) struct Rows {
    rows: Vec<(String, Times)>,
}

impl Rows {
    fn best(&self) -> f64 {
        self.rows.iter().map(|(_, times)| times.total).fold(f64::INFINITY, f64::min)
    }

    fn add(&mut self, name: &str, every: usize, times: Option<Times>) {
        let Some(times) = times else { return };
        let name = match every {
            usize::MAX => format!("{name} built once"),
            every => format!("{name} renewed every {every}"),
        };
        self.rows.push((name, times));
    }
}

impl Rivals for Host {
    fn fixed(&self, problem: &Problem<'_>, every: usize, rows: &mut Rows) -> Result<()> {
        let smoothed = AmgOptions { smooth_finest: true, ..AmgOptions::default() };
        let jacobi = |a: &Csr<f64>, operator: &Operator<_>| PositiveJacobi::new(a, operator.domain());
        rows.add("Jacobi", every, problem.fixed(self, every, rows.best(), jacobi)?);
        rows.add("Amg", every, problem.fixed(self, every, rows.best(), |a, _| Amg::new(a))?);
        let made = |a: &Csr<f64>, _: &Operator<_>| Amg::with::<Vec<f64>>(a, &[], smoothed);
        rows.add("Amg smoothed", every, problem.fixed(self, every, rows.best(), made)?);
        rows.add("Ic0", every, problem.fixed(self, every, rows.best(), |a, _| Ic0::shifted(a))?);
        rows.add("Cholesky", every, problem.fixed(self, every, rows.best(), |a, _| Cholesky::new(a))?);
        Ok(())
    }
}

#[cfg(feature = "cuda")]
impl Rivals for Cuda {
    fn fixed(&self, problem: &Problem<'_>, every: usize, rows: &mut Rows) -> Result<()> {
        let jacobi = |a: &Csr<f64>, operator: &Operator<_>| PositiveJacobi::new(a, operator.domain());
        rows.add("Jacobi", every, problem.fixed(self, every, rows.best(), jacobi)?);
        rows.add("Amg", every, problem.fixed(self, every, rows.best(), |a, _| Amg::on(self, a))?);
        Ok(())
    }
}

/// Prints one line for each loop and solver.
pub(crate) fn all<M: Rivals>(machine: &M) -> Result<()> {
    let path = |suffix: &str| shared_matrix(&format!("{NAME}_{suffix}"));
    let (Some(k), Some(m), Some(f)) = (path("K"), path("M"), path("f")) else {
        skipped(&format!("no shared matrix {NAME}"));
        return Ok(());
    };
    let (k, m, f): (Csr<f64>, Csr<f64>, _) = (read_matrix(k)?, read_matrix(m)?, read_vector(f)?);
    println!("loop,solver,total_s,ratio,median_ms,slowest_ms,iterations,renewals");
    for Loop { name, lengths } in loops() {
        let problem = Problem { k: &k, m: &m, f: &f, lengths: &lengths };
        let mut rows = Rows::default();
        for every in [usize::MAX, 5, 1] {
            machine.fixed(&problem, every, &mut rows)?;
        }
        let best = rows.best();
        for (solver, times) in &rows.rows {
            times.print(name, solver, best);
        }
        let changes = lengths.windows(2).any(|pair| pair[0] != pair[1]);
        problem.planned(machine, None, false)?.print(name, "Plan", best);
        if changes {
            problem.planned(machine, None, true)?.print(name, "Plan values_change", best);
        }
        problem.planned(machine, Some(lengths.len()), changes)?.print(
            name,
            "Plan solves values_change",
            best,
        );
    }
    Ok(())
}

pub(crate) struct Problem<'p> {
    k: &'p Csr<f64>,
    m: &'p Csr<f64>,
    f: &'p [f64],
    lengths: &'p [f64],
}

impl Problem<'_> {
    /// The matrix of the first step.
    fn matrix(&self) -> Result<Csr<f64>> {
        let n = self.f.len();
        let entries: Vec<(usize, usize, f64)> = self.k.triplets().chain(self.m.triplets()).collect();
        let a = Csr::from_triplets(n, n, &entries)?;
        Ok(a.with_values(&self.values(&a, self.lengths[0])?)?)
    }

    /// The entries of the matrix `M + Δt K` for a step length `Δt`.
    fn values(&self, a: &Csr<f64>, dt: f64) -> Result<Vec<f64>> {
        let stiffness = self.k.entries().iter().map(|k| dt * k);
        let values: Vec<f64> = stiffness.chain(self.m.entries().iter().copied()).collect();
        Ok(a.assemble(&values)?.into_owned())
    }

    fn rhs(&self, t: &[f64], dt: f64) -> Vec<f64> {
        let mut b: Vec<f64> = self.f.iter().map(|f| dt * f).collect();
        self.m.triplets().for_each(|(i, j, value)| b[i] += value * t[j]);
        b
    }

    /// The times of a loop with a fixed configuration; `None` if it was too slow.
    fn fixed<M, P>(
        &self,
        machine: &M,
        every: usize,
        best: f64,
        make: impl Fn(&Csr<f64>, &Operator<M::Vector>) -> krysp::Result<P>,
    ) -> Result<Option<Times>>
    where
        M: Backend<f64>,
        P: LinearOperator<Vector = M::Vector> + Refresh<f64>,
    {
        let a = self.matrix()?;
        let changes = self.lengths.windows(2).any(|pair| pair[0] != pair[1]);
        let mut t = vec![22.0; self.f.len()];
        let mut times = Times { total: 0.0, steps: vec![], iterations: 0, renewals: 0 };
        let mut solver: Option<Solver<_, Operator<M::Vector>, P>> = None;
        let mut new = self.values(&a, self.lengths[0])?;
        for (step, &dt) in self.lengths.iter().enumerate() {
            let b = self.rhs(&t, dt);
            if step > 0 && dt != self.lengths[step - 1] {
                new = self.values(&a, dt)?;
            }
            let started = Instant::now();
            let solver = match &mut solver {
                Some(solver) => {
                    let (operator, p) = solver.operators_mut();
                    if changes {
                        operator.refresh(&new)?;
                        if step % every == 0 {
                            p.refresh(&*operator as &dyn MatrixSource<f64>)?;
                            times.renewals += 1;
                        }
                    }
                    solver
                }
                empty => {
                    let operator = Operator::auto(&a, machine)?;
                    let p = make(&a, &operator)?;
                    empty.insert(Cg::new(operator).preconditioner(p).rtol(RTOL))
                }
            };
            let solved = solver.solve_from(&b, &t)?;
            let seconds = started.elapsed().as_secs_f64();
            times.total += seconds;
            times.steps.push(seconds);
            times.iterations += solved.report.iterations;
            t = solved.x;
            if times.total > TOO_SLOW * best {
                return Ok(None);
            }
        }
        Ok(Some(times))
    }

    fn planned<M: Backend<f64>>(
        &self,
        machine: &M,
        solves: Option<usize>,
        values_change: bool,
    ) -> Result<Times> {
        let a = self.matrix()?;
        let mut t = vec![22.0; self.f.len()];
        let changes = self.lengths.windows(2).any(|pair| pair[0] != pair[1]);
        let mut times = Times { total: 0.0, steps: vec![], iterations: 0, renewals: 0 };
        let mut solver = None;
        let explain = std::env::args().any(|one| one == "--explain");
        let mut new = self.values(&a, self.lengths[0])?;
        for (step, &dt) in self.lengths.iter().enumerate() {
            let b = self.rhs(&t, dt);
            if step > 0 && dt != self.lengths[step - 1] {
                new = self.values(&a, dt)?;
            }
            let started = Instant::now();
            let solver = match &mut solver {
                Some(solver) => solver,
                empty => {
                    let mut plan = Plan::new(&a)?.on(machine).rtol(RTOL).values_change(values_change);
                    if let Some(solves) = solves {
                        plan = plan.solves(solves);
                    }
                    empty.insert(plan.build()?)
                }
            };
            if step > 0 && changes {
                solver.refresh(&new)?;
            }
            let solved = solver.solve_from(&b, &t)?;
            let seconds = started.elapsed().as_secs_f64();
            if explain {
                println!("# step {step}, dt {dt:.3}, {:.1} ms: {solved}", 1e3 * seconds);
            }
            times.total += seconds;
            times.steps.push(seconds);
            times.iterations += solved.report.iterations;
            let renewed = |one: &&krysp::plan::Attempt| one.preparation == Preparation::Renewed;
            times.renewals += solved.attempts.iter().filter(renewed).count();
            if !solved.converged() {
                return Err(format!("step {step}: {solved}").into());
            }
            t = solved.x;
        }
        Ok(times)
    }
}
