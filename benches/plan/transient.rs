//! Time steps of heat conduction, solved by plans and by fixed configurations whose preconditioner is renewed after every so many steps.
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
use krysp::{Amg, AmgOptions, Cholesky, HostVector, Ic0, Jacobi, Origin, Plan, Refresh};
use std::time::Instant;

const NAME: &str = "heat_sink_transient_80k";
const RTOL: f64 = 1e-8;

/// The step lengths of one loop.
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

/// Times and counts of one loop.
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

/// Prints one line for each loop and way of solving it.
pub(crate) fn all<M: Backend<f64>>(machine: &M, fixed: bool) -> Result<()> {
    let path = |suffix: &str| shared_matrix(&format!("{NAME}_{suffix}"));
    let (Some(k), Some(m), Some(f)) = (path("K"), path("M"), path("f")) else {
        skipped(&format!("{NAME} is not beside this checkout"));
        return Ok(());
    };
    let (k, m, f): (Csr<f64>, Csr<f64>, _) = (read_matrix(k)?, read_matrix(m)?, read_vector(f)?);
    println!("loop,solver,total_s,ratio,median_ms,slowest_ms,iterations,renewals");
    for Loop { name, lengths } in loops() {
        let mut rows = vec![];
        if fixed {
            for every in [1, 5, usize::MAX] {
                let label = |of: &str| match every {
                    usize::MAX => format!("{of} built once"),
                    every => format!("{of} renewed every {every}"),
                };
                let problem = Problem { k: &k, m: &m, f: &f, lengths: &lengths };
                rows.push((label("Jacobi"), problem.fixed(every, Jacobi::new)?));
                rows.push((label("Amg"), problem.fixed(every, Amg::new)?));
                let smoothed = AmgOptions { smoothed: true, ..AmgOptions::default() };
                rows.push((
                    label("Amg smoothed"),
                    problem.fixed(every, |a| Amg::with::<Vec<f64>>(a, &[], smoothed))?,
                ));
                rows.push((label("Ic0"), problem.fixed(every, Ic0::shifted)?));
                rows.push((label("Cholesky"), problem.fixed(every, Cholesky::new)?));
            }
        }
        let best = rows.iter().map(|(_, times)| times.total).fold(f64::INFINITY, f64::min);
        let best = if best.is_finite() { best } else { f64::NAN };
        for (solver, times) in &rows {
            times.print(name, solver, best);
        }
        let problem = Problem { k: &k, m: &m, f: &f, lengths: &lengths };
        let changes = lengths.windows(2).any(|pair| pair[0] != pair[1]);
        let none = problem.planned(machine, None, false)?;
        none.print(name, "Plan", best);
        if changes {
            problem.planned(machine, None, true)?.print(name, "Plan new_values", best);
        }
        problem.planned(machine, Some(lengths.len()), changes)?.print(name, "Plan solves new_values", best);
    }
    Ok(())
}

struct Problem<'p> {
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

    /// The entries for a step length.
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

    fn fixed<P>(&self, every: usize, make: impl Fn(&Csr<f64>) -> krysp::Result<P>) -> Result<Times>
    where
        P: LinearOperator<Vector = HostVector<f64>> + Refresh<f64>,
    {
        let a = self.matrix()?;
        let changes = self.lengths.windows(2).any(|pair| pair[0] != pair[1]);
        let mut t = vec![22.0; self.f.len()];
        let mut times = Times { total: 0.0, steps: vec![], iterations: 0, renewals: 0 };
        let mut solver: Option<Solver<_, Operator<HostVector<f64>>, P>> = None;
        for (step, pair) in self.lengths.iter().enumerate() {
            let (b, new) = (self.rhs(&t, *pair), self.values(&a, *pair)?);
            let started = Instant::now();
            let solver = match &mut solver {
                Some(solver) => {
                    let (operator, p) = solver.operators_mut();
                    if changes {
                        operator.refresh(&new)?;
                        if step % every == 0 {
                            p.refresh(&*operator as &dyn Origin<f64>)?;
                            times.renewals += 1;
                        }
                    }
                    solver
                }
                empty => {
                    empty.insert(Cg::new(Operator::auto(&a, &Host)?).preconditioner(make(&a)?).rtol(RTOL))
                }
            };
            let solved = solver.solve_from(&b, &t)?;
            let seconds = started.elapsed().as_secs_f64();
            times.total += seconds;
            times.steps.push(seconds);
            times.iterations += solved.report.iterations;
            t = solved.x;
        }
        Ok(times)
    }

    fn planned<M: Backend<f64>>(
        &self,
        machine: &M,
        solves: Option<usize>,
        new_values: bool,
    ) -> Result<Times> {
        let a = self.matrix()?;
        let mut t = vec![22.0; self.f.len()];
        let changes = self.lengths.windows(2).any(|pair| pair[0] != pair[1]);
        let mut times = Times { total: 0.0, steps: vec![], iterations: 0, renewals: 0 };
        let mut solver = None;
        let explain = std::env::args().any(|one| one == "--explain");
        for (step, &dt) in self.lengths.iter().enumerate() {
            let (b, new) = (self.rhs(&t, dt), self.values(&a, dt)?);
            let started = Instant::now();
            let solver = match &mut solver {
                Some(solver) => solver,
                empty => {
                    let mut plan = Plan::new(&a)?.on(machine).rtol(RTOL).new_values(new_values);
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
