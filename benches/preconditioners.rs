//! Setup, iterations and time of preconditioners to a residual of 10⁻⁸, compared with Jacobi, in host memory and, with
//! the feature `cuda`, on the first GPU.
//!
//! ```text
//! cargo bench --bench preconditioners [-- --record --rounds 3 heat_sink_p1_340k]
//!     --amg                                   total time from CSR to `x`, for all preconditioners; on a GPU only multigrid, from
//!                                             the given CSR; b = 1 without a file
//!     --transient                             100 steps with new values in each, Jacobi and multigrid
//!     --with WORDS                            with --amg: only lines whose name contains WORDS; on a GPU, `two-level` is measured
//!                                             instead of multigrid, other WORDS have no effect
//!     --beside PROGRAM                        with --amg: also runs this external program on the same system
//! cargo bench --features cuda --bench preconditioners -- --gpu
//!     --steps 100                             after `--amg`: number of time steps, each with other values
//!     --machine NAME, --out DIR, --commit X    as those of the bench `cuda_spmv`
//! ```
//!
//! Matrices are three of ../shared/matrices with their right-hand sides, or generated ones if one of the three is missing.
//! The total is the setup of the preconditioner and the solve, each the median over the rounds. All lines of a matrix
//! have the same ordering and format, whose setup is reported separately.

#[path = "preconditioners/from_csr.rs"]
mod from_csr;
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "common/machine.rs"]
mod machine;
#[cfg(feature = "cuda")]
#[path = "preconditioners/on_gpu.rs"]
mod on_gpu;
#[path = "preconditioners/on_host.rs"]
mod on_host;
#[allow(dead_code, unreachable_pub, reason = "a part of it is used")]
#[path = "common/record.rs"]
mod record;
#[cfg(feature = "cuda")]
#[path = "preconditioners/steps_on_gpu.rs"]
mod steps_on_gpu;
#[path = "preconditioners/system.rs"]
mod system;
#[path = "preconditioners/transient.rs"]
mod transient;

use krysp::solvers::{Method, Solver};
use krysp::{BasicVector, Cg, HostVector, LinearOperator, Space};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use system::System;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time limit of a solve.
const LONGEST: Duration = Duration::from_secs(20);

type Boxed<'a> = Box<dyn LinearOperator<Vector = HostVector<f64>> + 'a>;

/// A function that solves with a matrix and a preconditioner.
type Solves<'s> = dyn FnMut(Boxed<'_>, Boxed<'_>) -> Result<()> + 's;

const HEADER: &str = "date,commit,device,matrix,rows,nnz,element,method,preconditioner,setup_ms,iterations,\
                      ms_per_iteration,total_ms,true_residual,jacobi_total_ms,ratio";

fn main() -> Result<()> {
    machine::join_threads()?;
    let options = Options::from_args()?;
    if options.transient {
        return transient::all();
    }
    for name in system::names(&options.wanted) {
        let system = System::new(&name, options.amg)?;
        if options.gpu {
            #[cfg(feature = "cuda")]
            on_gpu::all(&options, &system)?;
            #[cfg(not(feature = "cuda"))]
            return Err("--gpu needs the feature cuda".into());
        } else if options.amg {
            from_csr::all(&options, &system)?;
        } else {
            on_host::all(&options, &system)?;
        }
    }
    Ok(())
}

struct Options {
    gpu: bool,
    amg: bool,
    transient: bool,
    with: Option<String>,
    beside: Vec<PathBuf>,
    steps: usize,
    record: bool,
    rounds: usize,
    machine: Option<String>,
    out: Option<PathBuf>,
    commit: Option<String>,
    wanted: Vec<String>,
}

impl Options {
    fn from_args() -> Result<Options> {
        let mut options = Options {
            gpu: false,
            amg: false,
            transient: false,
            with: None,
            beside: vec![],
            steps: 0,
            record: false,
            rounds: 3,
            machine: None,
            out: None,
            commit: None,
            wanted: vec![],
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match &*arg {
                "--gpu" => options.gpu = true,
                "--amg" => options.amg = true,
                "--transient" => options.transient = true,
                "--with" => options.with = Some(value()?),
                "--beside" => options.beside.push(value()?.into()),
                "--record" => options.record = true,
                "--steps" => options.steps = value()?.parse()?,
                "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
                "--machine" => options.machine = Some(value()?),
                "--out" => options.out = Some(value()?.into()),
                "--commit" => options.commit = Some(value()?),
                // cargo adds this option
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                matrix => options.wanted.push(matrix.into()),
            }
        }
        Ok(options)
    }
}

/// The lines of one matrix on one device.
struct Table<'a> {
    options: &'a Options,
    /// The first columns of every row: date, commit, device, matrix, rows, entries.
    stamp: String,
    jacobi_ms: Option<f64>,
    rows: Vec<String>,
}

impl<'a> Table<'a> {
    fn new(options: &'a Options, device: &str, name: &str, [rows, nnz]: [usize; 2]) -> Table<'a> {
        let commit = options.commit.clone().unwrap_or_else(machine::commit);
        let stamp = format!("{},{commit},{device},{name},{rows},{nnz}", machine::date());
        println!("\n{name}: {rows} rows, {nnz} entries, {device}");
        println!("{:<42}{:>10}{:>8}{:>12}{:>12}{:>8}", "", "setup ms", "its", "ms/it.", "total ms", "ratio");
        Table { options, stamp, jacobi_ms: None, rows: vec![] }
    }

    /// Measures solves with a preconditioner. The first line is the one that others are compared with. `wait` returns
    /// when the device has finished all queued work.
    fn line<K, A, M>(
        &mut self,
        called: [&str; 2],
        a: &A,
        b: &A::Vector,
        wait: &dyn Fn() -> Result<()>,
        build: &dyn Fn() -> Result<M>,
    ) -> Result<()>
    where
        A: LinearOperator,
        M: LinearOperator<Vector = A::Vector>,
        K: Method<A::Vector> + Default,
    {
        let (mut setups, mut solves) = (vec![], vec![]);
        if let Err(error) = build() {
            println!("{:<42}{error}", called[1]);
            return Ok(());
        }
        let mut made = None;
        for _ in 0..self.options.rounds {
            // drop the previous preconditioner outside of the timed part
            drop(made.take());
            wait()?;
            let started = Instant::now();
            made = Some(build()?);
            wait()?;
            setups.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let Some(made) = made else { return Ok(()) };
        let mut solver = Solver::<K, _, _>::new(a).preconditioner(&made).rtol(1e-8).max_iterations(20_000);
        let (zeros, mut x) = (a.domain().zeros()?, a.domain().zeros()?);
        // not timed: records the iterations as a CUDA graph (on a GPU) and allocates memory
        let mut report = solver.solve_into(b, &mut x)?;
        for _ in 0..self.options.rounds {
            x.copy_from(&zeros);
            wait()?;
            let started = Instant::now();
            report = solver.solve_into(b, &mut x)?;
            wait()?;
            solves.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let times = [median(&mut setups), median(&mut solves)];
        self.row(called, times, report.iterations, report.relative_residual(), report.converged());
        if !report.converged() {
            println!("    {report}");
        }
        Ok(())
    }

    /// Prints a line; if the solve converged, also keeps it as a row for the CSV file.
    fn row(
        &mut self,
        [method, preconditioner]: [&str; 2],
        [setup, solve]: [f64; 2],
        its: usize,
        residual: f64,
        ok: bool,
    ) {
        let (total, each) = (setup + solve, solve / its.max(1) as f64);
        let jacobi = *self.jacobi_ms.get_or_insert(total);
        let ratio = jacobi / total;
        println!("{preconditioner:<42}{setup:>10.2}{its:>8}{each:>12.5}{total:>12.2}{ratio:>8.2}");
        if ok {
            self.rows.push(format!(
                "{},f64,{method},{preconditioner},{setup:.3},{its},{each:.5},{total:.3},{residual:.3e},{jacobi:.3},{ratio:.3}",
                self.stamp,
            ));
        }
    }

    /// Measures the total time from CSR to `x`: `build` creates a matrix and a preconditioner, and calls its argument with
    /// them, which solves.
    fn whole(
        &mut self,
        called: [&str; 2],
        system: &System,
        build: &dyn Fn(&mut Solves<'_>) -> Result<()>,
    ) -> Result<()> {
        let (mut setups, mut solves, mut ended) = (vec![], vec![], None);
        for _ in 0..self.options.rounds {
            let started = Instant::now();
            let built = build(&mut |a, m| {
                setups.push(started.elapsed().as_secs_f64() * 1e3);
                let solver = Cg::new(a).preconditioner(m).rtol(1e-8).max_iterations(20_000);
                let report = solver.time_limit(LONGEST).solve(&system.b)?.report;
                solves.push(started.elapsed().as_secs_f64() * 1e3);
                ended = Some(report);
                Ok(())
            });
            if let Err(error) = built {
                println!("{:<42}{error}", called[1]);
                return Ok(());
            }
        }
        solves.iter_mut().zip(&setups).for_each(|(both, setup)| *both -= setup);
        let Some(report) = ended else { return Ok(()) };
        let times = [median(&mut setups), median(&mut solves)];
        self.row(called, times, report.iterations, report.relative_residual(), report.converged());
        if !report.converged() {
            println!("    {report}");
        }
        Ok(())
    }

    /// Reports the time of a refresh with new values for the same pattern.
    fn again<M>(
        &self,
        preconditioner: &str,
        wait: &dyn Fn() -> Result<()>,
        made: &mut M,
        refresh: &dyn Fn(&mut M) -> Result<()>,
    ) -> Result<()> {
        let mut times = vec![];
        for _ in 0..=self.options.rounds {
            wait()?;
            let started = Instant::now();
            refresh(made)?;
            wait()?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        println!("{:<42}{:>10.2}", format!("    {preconditioner}, again"), median(&mut times[1..]));
        Ok(())
    }

    fn keep(&self, machine: &str) -> Result<()> {
        if !self.options.record {
            return Ok(());
        }
        let machine = self.options.machine.as_deref().unwrap_or(machine);
        let folder =
            self.options.out.as_ref().map_or_else(|| record::folder(machine), |out| out.join(machine));
        record::append(&folder, "preconditioners.csv", HEADER, &self.rows)
    }
}

/// The names of conjugate gradients and of a preconditioner, for the CSV file.
fn cg(preconditioner: &str) -> [&str; 2] {
    ["CG", preconditioner]
}

fn bicgstab(preconditioner: &str) -> [&str; 2] {
    ["BiCGStab", preconditioner]
}

/// The median: the middle time, or the mean of the middle two.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
}
