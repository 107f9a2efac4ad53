//! `krysp solve`

#[cfg(feature = "mpi")]
mod on_ranks;

use crate::chart::{self, Curve};
use crate::json::Json;
use crate::progress::Seen;
use crate::text::{self, bad, good, line};
use crate::{Failure, bandwidth, inspect};
use clap::Args;
use krysp::io::{read_matrix, read_vector, write_vector};
use krysp::plan::{Builds, Ladder, Left, Method, Preconditioner, Rung, Solved};
use krysp::solvers::Report;
use krysp::{CancelToken, Csr, Host, LinearOperator, Plan};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Solves A x = b, and says how it went.
///
/// Without b, some x is taken and A multiplied by it, so that the error of the solution is known.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp solve A.mtx b.mtx --out x.mtx
  krysp solve A.mtx                              without b, one is made
  krysp solve A.mtx --plot residual.png --history h.csv
  krysp solve A.mtx --method cg --preconditioner amg --rtol 1e-10
  krysp solve A.mtx b.mtx --json report.json --quiet && echo good
  krysp solve A.mtx b.mtx --save plan.krysp
  krysp solve A.mtx b.mtx --load plan.krysp      plans nothing again
  mpirun -n 4 krysp solve A.mtx b.mtx            on ranks, if built with `mpi`

Ctrl-C ends the solve after the next iteration; x and reports are written even
then.
Exit codes: 0 converged, 1 not converged, 2 wrong input.")]
pub(crate) struct Solve {
    /// The file of the matrix, in any form that `krysp convert` knows
    matrix: PathBuf,
    /// The file of the right-hand side
    rhs: Option<PathBuf>,
    /// Where x begins, from a file; zero if not given
    #[arg(long, value_name = "FILE")]
    guess: Option<PathBuf>,
    /// Cg, Fcg, Minres, BiCgStab, Gmres, ...: this method and no other
    #[arg(long)]
    method: Option<Method>,
    /// none, Jacobi, TwoLevel, Amg, Fsai, Ilu0, ...: this preconditioner and no other
    #[arg(long, visible_alias = "precond")]
    preconditioner: Option<Preconditioner>,
    /// This format, by a name that `krysp inspect` shows: CSR, SELL-P, ...
    #[arg(long)]
    format: Option<String>,
    /// Where to compute: cpu, gpu (cuda means that too), or gpu:1 for the second
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Converged is ‖b − A x‖ ≤ RTOL ‖b‖
    #[arg(long, default_value = "1e-8")]
    rtol: f64,
    /// The most iterations
    #[arg(long, value_name = "N")]
    max_iterations: Option<usize>,
    /// The most seconds
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
    /// Plan as for this many right-hand sides
    #[arg(long, value_name = "N", default_value_t = 1)]
    solves: usize,
    /// Write what was decided and built to a file, for --load
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Begin with what --save wrote for this matrix, instead of planning and building
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "preconditioner", "format", "solves"])]
    load: Option<PathBuf>,
    /// Write x, in the form of its name: .mtx, .npy, .petsc
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw the residual of each iteration, as a PNG file
    #[arg(long, value_name = "PNG")]
    plot: Option<PathBuf>,
    /// Write the residual of each iteration
    #[arg(long, value_name = "CSV")]
    history: Option<PathBuf>,
    /// Write the report as JSON, to `-` for the terminal; names are those of Ginkgo's benchmarks where these have them
    #[arg(long, value_name = "JSON")]
    json: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Bytes of a matrix below which caches hold so much of it that the speed of memory says little.
const CACHED: usize = 64 << 20;

/// A solve and what was seen of it.
struct Run {
    solved: Solved<f64>,
    curves: Vec<Curve>,
    /// The error of x relative to the one that b was made of.
    error: Option<f64>,
    format: String,
    bytes: usize,
    read: Duration,
    built: Duration,
    /// Bytes a second that the device reads, where that says something about the solve.
    reads: Option<f64>,
}

impl Solve {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        if !(self.rtol > 0.0 && self.rtol < 1.0) {
            return Err(format!("--rtol is {}: it lies between 0 and 1, 1e-8 for example", self.rtol).into());
        }
        // what goes to the terminal is JSON and nothing else
        let to_terminal = self.json.as_deref() == Some(Path::new("-"));
        self.quiet |= to_terminal;
        #[cfg(feature = "mpi")]
        if let Some(ended) = self.on_ranks() {
            return ended;
        }
        let seen = Seen::new(self.rtol, self.quiet);
        let started = Instant::now();
        seen.say(&format!("reading {}", self.matrix.display()));
        let a = read_matrix::<f64>(&self.matrix)?;
        let (b, known) = self.right_hand_side(&a)?;
        let guess = self.guess.as_deref().map(|path| vector(path, a.cols())).transpose()?;
        let read = started.elapsed();

        let cancel = CancelToken::new();
        let token = cancel.clone();
        ctrlc::set_handler(move || {
            // the second time it is meant
            if token.is_cancelled() {
                std::process::exit(130);
            }
            token.cancel();
        })?;
        let run = match self.device.as_str() {
            "cpu" => self.on(&Host, &a, &b, guess.as_deref(), &cancel, &seen, &bandwidth::of_host),
            device => self.on_gpu(device, &a, &b, guess.as_deref(), &cancel, &seen),
        };
        let curves = seen.end();
        let mut run = run?;
        (run.curves, run.read) = (named(curves, &run.solved.rungs), read);
        run.error = known.map(|known| distance(&run.solved.x, &known));

        if !self.quiet {
            self.print(&a, &run);
        }
        self.write(&run.solved.x, &run.curves, &self.report(&a, &run))?;
        Ok(if run.solved.converged() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// The right-hand side, and x where that is known.
    fn right_hand_side(&self, a: &Csr<f64>) -> Result<(Vec<f64>, Option<Vec<f64>>), Failure> {
        if let Some(path) = &self.rhs {
            return Ok((vector(path, a.rows())?, None));
        }
        let x: Vec<f64> = (0..a.cols()).map(|i| 1.0 + (i % 7) as f64 / 7.0).collect();
        let dot =
            |row| a.row_columns(row).iter().zip(a.row_values(row)).map(|(&j, &v)| v * x[j as usize]).sum();
        Ok(((0..a.rows()).map(dot).collect(), Some(x)))
    }

    #[expect(clippy::too_many_arguments, reason = "called from two places, for the processor and for a GPU")]
    fn on<M: Builds<f64>>(
        &self,
        machine: &M,
        a: &Csr<f64>,
        b: &[f64],
        guess: Option<&[f64]>,
        cancel: &CancelToken,
        seen: &Seen,
        reads: &dyn Fn() -> krysp::Result<f64>,
    ) -> Result<Run, Failure>
    where
        M::Vector: 'static,
    {
        let started = Instant::now();
        seen.say("preparing");
        let limit = self.time_limit.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let ladder = match &self.load {
            Some(path) => Ladder::load(path, a, machine)?,
            None => self.plan(machine, a)?.build()?,
        };
        let ladder = ladder.rtol(self.rtol).max_iterations(self.max_iterations).time_limit(limit);
        let watcher = seen.clone();
        let mut ladder = ladder.cancel_token(cancel).observe(move |progress| watcher.note(progress));
        let built = started.elapsed();
        let solved = match guess {
            Some(guess) => ladder.solve_from(b, guess)?,
            None => ladder.solve(b)?,
        };
        if let Some(path) = &self.save {
            ladder.save(path)?;
        }
        let operator = ladder.operator()?;
        let (format, bytes) = (operator.choice().stored().to_string(), operator.bytes());
        let reads = if bytes < CACHED { None } else { reads().ok() };
        Ok(Run { solved, curves: vec![], error: None, format, bytes, read: Duration::ZERO, built, reads })
    }

    fn plan<'a, M: Builds<f64>>(&self, machine: &M, a: &'a Csr<f64>) -> Result<Plan<'a, f64, M>, Failure> {
        let mut plan = Plan::new(a)?.on(machine).solves(self.solves);
        if let Some(method) = self.method {
            plan = plan.method(method);
        }
        if let Some(preconditioner) = self.preconditioner {
            plan = plan.preconditioner(preconditioner);
        }
        if let Some(format) = &self.format {
            plan = plan.format(format);
        }
        Ok(plan)
    }

    #[cfg(feature = "cuda")]
    fn on_gpu(
        &self,
        device: &str,
        a: &Csr<f64>,
        b: &[f64],
        guess: Option<&[f64]>,
        cancel: &CancelToken,
        seen: &Seen,
    ) -> Result<Run, Failure> {
        let ordinal = match device.strip_prefix("gpu").or_else(|| device.strip_prefix("cuda")) {
            Some("") => Some(0),
            Some(ordinal) => ordinal.strip_prefix(':').and_then(|ordinal| ordinal.parse().ok()),
            None => None,
        };
        let ordinal = ordinal.ok_or_else(|| unknown_device(device))?;
        let there = krysp::Cuda::devices().len();
        if ordinal >= there {
            return Err(format!(
                "--device {device}: {} here; `krysp devices` lists them",
                text::counted(there, "GPU")
            )
            .into());
        }
        let gpu = krysp::Cuda::new(ordinal)?;
        self.on(&gpu, a, b, guess, cancel, seen, &|| bandwidth::of_gpu(&gpu))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_gpu(
        &self,
        device: &str,
        _: &Csr<f64>,
        _: &[f64],
        _: Option<&[f64]>,
        _: &CancelToken,
        _: &Seen,
    ) -> Result<Run, Failure> {
        Err(format!("{}; this program was built without the feature `cuda`", unknown_device(device)).into())
    }

    fn print(&self, a: &Csr<f64>, run: &Run) {
        let Run { solved, read, built, .. } = run;
        let time = |time: Duration| text::seconds(time.as_secs_f64());
        let (rows, cols, entries) = (text::count(a.rows()), text::count(a.cols()), text::entries(a.nnz()));
        line("matrix", &format!("{rows} x {cols}, {entries}, read in {}", time(*read)));
        let place = if self.device == "cpu" { String::new() } else { format!(" on {}", self.device) };
        let bytes = text::bytes(run.bytes);
        line("format", &format!("{}, {bytes}{place}, ready in {}", run.format, time(*built)));
        for rung in &solved.rungs {
            line("tried", &format!("{} with {}: {}", rung.method, rung.preconditioner, rung.reason));
            let how = match &rung.ending {
                Left::Refused(why) => format!("not built: {why}"),
                ending => {
                    let (iterations, setup) = (text::counted(rung.iterations, "iteration"), time(rung.setup));
                    format!(
                        "{ending} after {iterations} in {}, setup {setup}, residual {:.1e}",
                        time(rung.time),
                        rung.residual
                    )
                }
            };
            line("", &how);
        }
        let report = &solved.report;
        let (outcome, residual) = (report.outcome.to_string(), report.relative_residual());
        let outcome = if solved.converged() { good(&outcome) } else { bad(&outcome) };
        let iterations = text::counted(report.iterations, "iteration");
        line(
            "result",
            &format!("{outcome}: {iterations}, {} in all, residual {residual:.1e} of b", time(report.time)),
        );
        if let Some(error) = run.error {
            let mut found = format!("x differs by {error:.1e} from the x that b was made of");
            // with a condition number below 1e4 it would not
            if solved.converged() && error > 1e4 * residual.max(f64::EPSILON) {
                found += ": other x have as small residuals, the matrix is nearly singular";
            }
            line("", &found);
        }
        if let Some(rate) = run.rate() {
            line("memory", &rate);
        }
        if let Some(advice) = report.outcome.advice() {
            line("try next", &advice);
        }
    }

    /// Writes what was asked for.
    fn write(&self, x: &[f64], curves: &[Curve], report: &Json) -> Result<(), Failure> {
        if let Some(path) = &self.out {
            write_vector(path, x)?;
        }
        if let Some(path) = &self.plot {
            chart::residuals(path, &inspect::title(&self.matrix), curves, self.rtol)?;
        }
        if let Some(path) = &self.history {
            write_history(path, curves)?;
        }
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => println!("{report}"),
            Some(path) => save(path, &format!("{report}\n"))?,
            None => {}
        }
        Ok(())
    }

    /// How a solve ended, for the report.
    fn ending(&self, report: &Report, error: Option<f64>, read: Duration) -> Vec<(&'static str, Json)> {
        vec![
            ("rtol", self.rtol.into()),
            ("converged", report.converged().into()),
            ("outcome", report.outcome.to_string().into()),
            ("advice", report.outcome.advice().into()),
            ("iterations", report.iterations.into()),
            ("rhs_norm", report.rhs_norm.into()),
            ("residual_norm", report.true_residual.into()),
            ("relative_residual", report.relative_residual().into()),
            ("relative_error", error.into()),
            ("read_time", read.as_secs_f64().into()),
        ]
    }

    /// Names are those of Ginkgo's benchmarks where these have them.
    fn report(&self, a: &Csr<f64>, run: &Run) -> Json {
        let solved = &run.solved;
        let problem = Json::Object(vec![
            ("rows", a.rows().into()),
            ("columns", a.cols().into()),
            ("nonzeros", a.nnz().into()),
        ]);
        let curve = |rung: &Rung| run.curves.iter().find(|curve| curve.name == configuration(rung));
        let rung = |rung: &Rung| {
            let residuals = curve(rung)
                .map(|curve| curve.points.iter().map(|(_, residual)| *residual).collect::<Vec<_>>());
            let timed = |time: Duration| ("time", Json::from(time.as_secs_f64()));
            let completed = !matches!(rung.ending, Left::Refused(_));
            Json::Object(vec![
                ("solver", rung.method.name().into()),
                ("preconditioner", rung.preconditioner.name().into()),
                ("reason", rung.reason.clone().into()),
                ("generate", Json::Object(vec![timed(rung.setup)])),
                ("apply", Json::Object(vec![timed(rung.time), ("iterations", rung.iterations.into())])),
                ("recurrent_residuals", residuals.into()),
                ("true_residual", rung.residual.into()),
                ("ending", rung.ending.to_string().into()),
                ("completed", completed.into()),
            ])
        };
        let report = &solved.report;
        let mut fields = vec![
            ("filename", self.matrix.display().to_string().into()),
            ("rhs", self.rhs.as_ref().map(|path| path.display().to_string()).into()),
            ("problem", problem),
            ("device", self.device.clone().into()),
            ("format", run.format.clone().into()),
            ("storage", run.bytes.into()),
        ];
        fields.extend(self.ending(report, run.error, run.read));
        fields.push(("generate_time", run.built.as_secs_f64().into()));
        fields.push(("apply_time", report.time.as_secs_f64().into()));
        fields.push(("solver", Json::List(solved.rungs.iter().map(rung).collect())));
        Json::Object(fields)
    }
}

impl Run {
    /// Bytes a second, beside what the device can.
    fn rate(&self) -> Option<String> {
        let time: f64 = self.solved.rungs.iter().map(|rung| rung.time.as_secs_f64()).sum();
        let rate = self.solved.report.bytes as f64 / time;
        let reads = self.reads.filter(|_| rate.is_finite())?;
        Some(format!("{:.1} GB/s, {:.0} % of what the device reads", rate / 1e9, 100.0 * rate / reads))
    }
}

fn unknown_device(device: &str) -> String {
    format!("--device {device}: cpu, gpu, gpu:0, gpu:1, ... are known; `krysp devices` lists them")
}

/// A vector from a file, as long as it must be.
fn vector(path: &Path, expected: usize) -> Result<Vec<f64>, Failure> {
    let vector = read_vector(path)?;
    if vector.len() != expected {
        let (file, got) = (path.display(), vector.len());
        return Err(format!(
            "{file}: it has {got} entries, the matrix needs {expected}: is it of another matrix?"
        )
        .into());
    }
    Ok(vector)
}

fn save(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn write_history(path: &Path, curves: &[Curve]) -> Result<(), Failure> {
    let mut text = "configuration,iteration,residual\n".to_owned();
    for curve in curves {
        let line = |(at, residual): &(f64, f64)| format!("{},{at},{residual:e}\n", curve.name);
        text.extend(curve.points.iter().map(line));
    }
    save(path, &text)
}

/// `‖x − known‖ / ‖known‖`
fn distance(x: &[f64], known: &[f64]) -> f64 {
    let norm = |squares: &mut dyn Iterator<Item = f64>| squares.sum::<f64>().sqrt();
    norm(&mut x.iter().zip(known).map(|(x, known)| (x - known).powi(2)))
        / norm(&mut known.iter().map(|x| x * x))
}

fn configuration(rung: &Rung) -> String {
    format!("{} with {}", rung.method, rung.preconditioner)
}

/// Gives curves the names of the configurations that made them, and their last residuals, computed anew.
fn named(mut curves: Vec<Curve>, rungs: &[Rung]) -> Vec<Curve> {
    let iterated = rungs.iter().filter(|rung| rung.iterations > 0);
    for (curve, rung) in curves.iter_mut().zip(iterated) {
        curve.name = configuration(rung);
        curve.recomputed = curve.points.last().map(|&(at, _)| (at, rung.residual));
    }
    curves
}
