//! Time steps of heat conduction, solved by plans and by fixed configurations whose preconditioner is refreshed every few steps.
//!
//! ```text
//! (M + Δt K) Tⁿ⁺¹ = M Tⁿ + Δt f
//! ```

use crate::Result;
use crate::common::HeatSink;
use krysp::io::{read_matrix, read_vector};
use krysp::plan::{Attempt, Backend, Preparation};
use krysp::prelude::*;
use krysp::solvers::Solver;
use krysp::testing::{shared_matrix, skipped};
use krysp::{Amg, AmgOptions, Cholesky, Ic0, MatrixSource, Plan, PositiveJacobi, Refresh};
use std::f64::consts::TAU;
use std::time::Instant;

const NAME: &str = "heat_sink_transient_80k";

/// A configuration is stopped after this multiple of the time of the fastest one.
const TOO_SLOW: f64 = 1.5;

/// Plans, and the configurations within `NEAR` of the best, run in so many rounds. The shortest total time counts.
const ROUNDS: usize = 3;
const NEAR: f64 = 1.2;

/// Matrices, load and first temperature.
struct System {
    k: Csr<f64>,
    m: Csr<f64>,
    f: Vec<f64>,
    start: f64,
    rtol: f64,
}

impl System {
    /// The heat sink of the shared matrices.
    fn shared() -> Result<Option<System>> {
        let path = |suffix: &str| shared_matrix(&format!("{NAME}_{suffix}"));
        let (Some(k), Some(m), Some(f)) = (path("K"), path("M"), path("f")) else {
            skipped(&format!("no shared matrix {NAME}"));
            return Ok(None);
        };
        let (k, m, f) = (read_matrix(k)?, read_matrix(m)?, read_vector(f)?);
        Ok(Some(System { k, m, f, start: 22.0, rtol: 1e-8 }))
    }

    /// The heat sink of the example `transient_heat`, in random order.
    fn of_example() -> Result<System> {
        let sink = HeatSink::new(5).shuffled();
        let n = sink.unknowns();
        let (mut k, mut m) = (vec![], vec![]);
        sink.for_each_entry(|row, column, stiffness, mass| {
            k.push((row, column, stiffness));
            m.push((row, column, mass));
        });
        let area = sink.heated_area();
        let all: f64 = area.iter().sum();
        let f = area.iter().map(|part| part / all).collect();
        let (k, m) = (Csr::from_triplets(n, n, &k)?, Csr::from_triplets(n, n, &m)?);
        Ok(System { k, m, f, start: 0.0, rtol: 1e-7 })
    }
}

/// The step lengths of one loop.
struct Loop {
    name: &'static str,
    lengths: Vec<f64>,
    /// Factor on the load at a time.
    load: fn(f64) -> f64,
}

/// Loops with the shared matrix, and that of the example.
fn loops() -> ([Loop; 3], Loop) {
    let jumps = |step: usize| if (200..350).contains(&step) { 5.0 } else { 0.05 };
    let steady = |name, lengths| Loop { name, lengths, load: |_| 1.0 };
    let shared = [
        steady("growing", (0..20).map(|step| 0.05 * 1.1f64.powi(step)).collect()),
        steady("constant", vec![0.05; 100]),
        steady("jumps", (0..500).map(jumps).collect()),
    ];
    let bursts = |time: f64| if (TAU * time / 10.0).sin() > 0.0 { 150.0 } else { 30.0 };
    let lengths = [vec![0.25; 60], vec![0.5; 40]].concat();
    (shared, Loop { name: "example", lengths, load: bursts })
}

/// Names of the parts of a step. Fixed configurations have no analysis.
const PARTS: [&str; 6] =
    ["analysis", "build", "refresh of the matrix", "preconditioner", "iterations", "the rest"];

/// Times and counts of one loop of time steps.
#[derive(Default)]
pub(crate) struct Times {
    total: f64,
    steps: Vec<f64>,
    /// Seconds of the [`PARTS`] of each step.
    parts: Vec<[f64; 6]>,
    iterations: usize,
    renewals: usize,
}

/// Calls `work`, and adds its seconds to `to`.
fn timed<R>(to: &mut f64, work: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let result = work();
    *to += started.elapsed().as_secs_f64();
    result
}

impl Times {
    /// Records a step that has ended, and the parts that were measured.
    fn add(&mut self, seconds: f64, mut parts: [f64; 6], iterations: usize) {
        parts[5] = seconds - parts.iter().sum::<f64>();
        self.total += seconds;
        self.steps.push(seconds);
        self.parts.push(parts);
        self.iterations += iterations;
    }

    /// Prints milliseconds of the parts: of the first step, and medians over the others.
    fn print_parts(&self, of: &str, name: &str) {
        let Some((first, others)) = self.parts.split_first() else { return };
        print!("# {of}, {name}, ms of the first step and median of the others:");
        for (part, what) in PARTS.iter().enumerate() {
            let mut all: Vec<f64> = others.iter().map(|parts| parts[part]).collect();
            all.sort_by(f64::total_cmp);
            let median = all.get(all.len() / 2).copied().unwrap_or_default();
            print!(" {what} {:.3}, {:.3};", 1e3 * first[part], 1e3 * median);
        }
        println!();
    }

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

/// Runs a loop, and stops it where it takes much longer than the best total time, the argument.
type Run<'p> = Box<dyn Fn(f64) -> Result<Option<Times>> + 'p>;

/// A way to solve the systems of a loop.
struct Contestant<'p> {
    name: String,
    is_plan: bool,
    run: Run<'p>,
    /// The times of its fastest run; `None` if it was stopped.
    times: Option<Times>,
}

/// Fixed configurations of a machine, by name.
pub(crate) trait Rivals: Backend<f64> {
    fn fixed<'p>(&'p self, problem: &'p Problem<'p>, every: usize) -> Vec<(&'static str, Run<'p>)>;
}

impl Rivals for Host {
    fn fixed<'p>(&'p self, problem: &'p Problem<'p>, every: usize) -> Vec<(&'static str, Run<'p>)> {
        let smoothed = AmgOptions { smooth_finest: Some(true), ..AmgOptions::default() };
        let smooth = move |a: &Csr<f64>, _: &Operator<_>| Amg::with::<Vec<f64>>(a, &[], smoothed);
        vec![
            ("Jacobi", problem.fixed(self, every, |a, o| PositiveJacobi::new(a, o.domain()))),
            ("Amg", problem.fixed(self, every, |a, _| Amg::new(a))),
            ("Amg smoothed", problem.fixed(self, every, smooth)),
            ("Ic0", problem.fixed(self, every, |a, _| Ic0::shifted(a))),
            ("Cholesky", problem.fixed(self, every, |a, _| Cholesky::new(a))),
        ]
    }
}

#[cfg(feature = "cuda")]
impl Rivals for Cuda {
    fn fixed<'p>(&'p self, problem: &'p Problem<'p>, every: usize) -> Vec<(&'static str, Run<'p>)> {
        vec![
            ("Jacobi", problem.fixed(self, every, |a, o| PositiveJacobi::new(a, o.domain()))),
            ("Amg", problem.fixed(self, every, |a, _| Amg::on(self, a))),
        ]
    }
}

/// Prints one line for each loop, of those wanted, and solver.
pub(crate) fn all<M: Rivals>(machine: &M, wanted: &[String]) -> Result<()> {
    println!("loop,solver,total_s,ratio,median_ms,slowest_ms,iterations,renewals");
    let is_wanted = |one: &Loop| wanted.is_empty() || wanted.iter().any(|name| name == one.name);
    let (shared, example) = loops();
    if let Some(system) = if shared.iter().any(is_wanted) { System::shared()? } else { None } {
        shared.iter().filter(|one| is_wanted(one)).try_for_each(|one| compare(machine, &system, one))?;
    }
    if is_wanted(&example) {
        compare(machine, &System::of_example()?, &example)?;
    }
    Ok(())
}

/// Returns whether the command line has an option.
fn has(option: &str) -> bool {
    std::env::args().any(|one| one == option)
}

fn compare<M: Rivals>(machine: &M, system: &System, steps: &Loop) -> Result<()> {
    let Loop { name, lengths, load } = steps;
    let problem = &Problem { system, lengths, load: *load };
    let mut all: Vec<Contestant<'_>> = vec![];
    for every in if problem.changes() { vec![usize::MAX, 5, 1] } else { vec![usize::MAX] } {
        all.extend(machine.fixed(problem, every).into_iter().map(|(of, run)| {
            let name = match every {
                usize::MAX => format!("{of} built once"),
                every => format!("{of} renewed every {every}"),
            };
            Contestant { name, is_plan: false, run, times: None }
        }));
    }
    let mut plan = |name: &str, solves: Option<usize>, values_change: bool| {
        let run = Box::new(move |_| Ok(Some(problem.planned(machine, solves, values_change)?)));
        all.push(Contestant { name: name.into(), is_plan: true, run, times: None });
    };
    plan("Plan", None, false);
    if problem.changes() {
        plan("Plan values_change", None, true);
    }
    plan("Plan solves values_change", Some(lengths.len()), problem.changes());
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        for one in &mut all {
            let known = one.times.as_ref().map_or(f64::INFINITY, |times| times.total);
            if round > 0 && !one.is_plan && known > NEAR * best {
                continue;
            }
            let Some(times) = (one.run)(best)? else { continue };
            if !one.is_plan {
                best = best.min(times.total);
            }
            if times.total < known {
                one.times = Some(times);
            }
        }
    }
    for one in &all {
        if let Some(times) = &one.times {
            times.print(name, &one.name, best);
            if has("--parts") {
                times.print_parts(name, &one.name);
            }
        }
    }
    Ok(())
}

pub(crate) struct Problem<'p> {
    system: &'p System,
    lengths: &'p [f64],
    load: fn(f64) -> f64,
}

impl Problem<'_> {
    fn changes(&self) -> bool {
        self.lengths.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// The matrix of the first step.
    fn matrix(&self) -> Result<Csr<f64>> {
        let System { k, m, f, .. } = self.system;
        let n = f.len();
        let entries: Vec<(usize, usize, f64)> = k.triplets().chain(m.triplets()).collect();
        let a = Csr::from_triplets(n, n, &entries)?;
        Ok(a.with_values(&self.values(&a, self.lengths[0])?)?)
    }

    /// The entries of the matrix `M + Δt K` for a step length `Δt`.
    fn values(&self, a: &Csr<f64>, dt: f64) -> Result<Vec<f64>> {
        let System { k, m, .. } = self.system;
        let stiffness = k.entries().iter().map(|k| dt * k);
        let values: Vec<f64> = stiffness.chain(m.entries().iter().copied()).collect();
        Ok(a.assemble(&values)?.into_owned())
    }

    /// The right-hand side of a step, which ends at `time`.
    fn rhs(&self, t: &[f64], dt: f64, time: f64) -> Vec<f64> {
        let load = dt * (self.load)(time);
        let mut b: Vec<f64> = self.system.f.iter().map(|f| load * f).collect();
        self.system.m.triplets().for_each(|(i, j, value)| b[i] += value * t[j]);
        b
    }

    /// Runs the loop by a fixed configuration.
    fn fixed<'p, M, P>(
        &'p self,
        machine: &'p M,
        every: usize,
        make: impl Fn(&Csr<f64>, &Operator<M::Vector>) -> krysp::Result<P> + 'p,
    ) -> Run<'p>
    where
        M: Backend<f64>,
        P: LinearOperator<Vector = M::Vector> + Refresh<f64> + 'p,
    {
        Box::new(move |best| self.stepped(machine, every, best, &make))
    }

    /// The times of a fixed configuration; `None` if it was too slow.
    fn stepped<M, P>(
        &self,
        machine: &M,
        every: usize,
        best: f64,
        make: &impl Fn(&Csr<f64>, &Operator<M::Vector>) -> krysp::Result<P>,
    ) -> Result<Option<Times>>
    where
        M: Backend<f64>,
        P: LinearOperator<Vector = M::Vector> + Refresh<f64>,
    {
        let a = self.matrix()?;
        let changes = self.changes();
        let mut t = vec![self.system.start; a.rows()];
        let mut times = Times::default();
        let mut solver: Option<Solver<_, Operator<M::Vector>, P>> = None;
        let (mut new, mut time) = (self.values(&a, self.lengths[0])?, 0.0);
        for (step, &dt) in self.lengths.iter().enumerate() {
            time += dt;
            let b = self.rhs(&t, dt, time);
            if step > 0 && dt != self.lengths[step - 1] {
                new = self.values(&a, dt)?;
            }
            let (started, mut parts) = (Instant::now(), [0.0; 6]);
            let solver = match &mut solver {
                Some(solver) => {
                    let (operator, p) = solver.operators_mut();
                    if changes {
                        timed(&mut parts[2], || operator.refresh(&new))?;
                        if step % every == 0 {
                            timed(&mut parts[3], || p.refresh(&*operator as &dyn MatrixSource<f64>))?;
                            times.renewals += 1;
                        }
                    }
                    solver
                }
                empty => {
                    let operator = timed(&mut parts[1], || Operator::auto(&a, machine))?;
                    let p = timed(&mut parts[3], || make(&a, &operator))?;
                    empty.insert(Cg::new(operator).preconditioner(p).rtol(self.system.rtol))
                }
            };
            let solved = solver.solve_from(&b, &t)?;
            parts[4] = solved.report.time.as_secs_f64();
            times.add(started.elapsed().as_secs_f64(), parts, solved.report.iterations);
            t = solved.x;
            if times.total > TOO_SLOW * best {
                return Ok(None);
            }
        }
        Ok(Some(times))
    }

    /// The times of a plan.
    fn planned<M: Backend<f64>>(
        &self,
        machine: &M,
        solves: Option<usize>,
        values_change: bool,
    ) -> Result<Times> {
        let a = self.matrix()?;
        let mut t = vec![self.system.start; a.rows()];
        let changes = self.changes();
        let mut times = Times::default();
        let mut solver = None;
        let explain = has("--explain");
        let (mut new, mut time) = (self.values(&a, self.lengths[0])?, 0.0);
        for (step, &dt) in self.lengths.iter().enumerate() {
            time += dt;
            let b = self.rhs(&t, dt, time);
            if step > 0 && dt != self.lengths[step - 1] {
                new = self.values(&a, dt)?;
            }
            let (started, mut parts) = (Instant::now(), [0.0; 6]);
            let solver = match &mut solver {
                Some(solver) => solver,
                empty => {
                    let plan = timed(&mut parts[0], || Plan::new(&a))?;
                    let mut plan = plan.on(machine).rtol(self.system.rtol).values_change(values_change);
                    if let Some(solves) = solves {
                        plan = plan.solves(solves);
                    }
                    empty.insert(timed(&mut parts[1], || plan.build())?)
                }
            };
            if step > 0 && changes {
                timed(&mut parts[2], || solver.refresh(&new))?;
            }
            let solved = solver.solve_from(&b, &t)?;
            let seconds = started.elapsed().as_secs_f64();
            parts[3] = solved.attempts.iter().map(|one| one.setup.as_secs_f64()).sum();
            parts[4] = solved.attempts.iter().map(|one| one.time.as_secs_f64()).sum();
            if explain {
                println!("# step {step}, dt {dt:.3}, {:.1} ms: {solved}", 1e3 * seconds);
            }
            times.add(seconds, parts, solved.report.iterations);
            let renewed = |one: &&Attempt| one.preparation == Preparation::Renewed;
            times.renewals += solved.attempts.iter().filter(renewed).count();
            if !solved.converged() {
                return Err(format!("step {step}: {solved}").into());
            }
            t = solved.x;
        }
        Ok(times)
    }
}
