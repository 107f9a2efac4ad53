//! `krysp solve`

mod columns;
mod declarations;
mod factors;
#[cfg(feature = "mpi")]
mod on_ranks;

use crate::chart::{self, Curve};
use crate::files::{self, Content, vector};
use crate::formats::{self, Device};
use crate::json::Json;
use crate::progress::Seen;
use crate::text::{self, bad, good, line};
use crate::{Failure, bandwidth, inspect};
use clap::Args;
use declarations::Declarations;
use krysp::io::check_finite;
use krysp::plan::{Attempt, AttemptEnd, Backend, Method, Place, PlannedSolver, Preconditioner, Solved};
use krysp::solvers::Report;
use krysp::{CancelToken, Csr, FactorReport, Host, Interrupt, LinearOperator, Outcome, Plan};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Entries of a vector.
type Column = Vec<f64>;

/// Solves A x = b and reports the result.
///
/// Without b, the right-hand side is A times a known x, so that the error of the solution can be reported.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp solve A.mtx b.mtx --out x.mtx
  krysp solve A.mtx                              with a generated b
  krysp solve A.mtx B.mtx --out X.mtx            several right-hand sides
  krysp solve A.mtx --plot residual.png --history h.csv
  krysp solve A.mtx --method cg --preconditioner amg --rtol 1e-10
  krysp solve A.mtx b.mtx --json report.json --quiet && echo good
  krysp solve A.mtx b.mtx --save plan.krysp
  krysp solve A.mtx b.mtx --load plan.krysp      skips planning and setup
  mpirun -n 4 krysp solve A.mtx b.mtx            with the feature `mpi`

Names of methods, preconditioners and formats ignore case, blanks, - and _.
Ctrl-C ends the solve in any phase, and the best x so far and the reports are
written. A second Ctrl-C ends the program immediately.
Exit codes: 0 converged, 1 not converged, 2 invalid input.")]
pub(crate) struct Solve {
    /// File of the matrix, in any file format that `krysp convert` reads; - is standard input
    matrix: PathBuf,
    /// File of the right-hand side, or of several, as columns; - is standard input
    rhs: Option<PathBuf>,
    /// File of an initial guess of x; zero if not given
    #[arg(long, value_name = "FILE")]
    guess: Option<PathBuf>,
    #[arg(long, help = names("Use only this method, with suitable iterative preconditioners", &Method::ALL))]
    method: Option<Method>,
    #[arg(long, visible_alias = "precond", help = names("Use only this preconditioner", &Preconditioner::ALL))]
    preconditioner: Option<Preconditioner>,
    #[arg(long, help = formats::help_offered("Use this format"))]
    format: Option<String>,
    /// Device: cpu, gpu (or cuda), gpu:1 for the second GPU, or auto for the one that is expected to be faster
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Relative tolerance: the solve has converged when ‖b − A x‖ ≤ RTOL ‖b‖
    #[arg(long, default_value = "1e-8", allow_negative_numbers = true)]
    rtol: f64,
    /// Maximum number of iterations, for each right-hand side
    #[arg(long, value_name = "N")]
    max_iterations: Option<usize>,
    /// Maximum time in seconds, for each right-hand side
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time_limit: Option<f64>,
    /// Number of right-hand sides to plan for
    #[arg(long, value_name = "N", default_value_t = 1)]
    solves: usize,
    /// Save the plan, with its decisions and its preconditioner, to a file for --load
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Load the plan that --save wrote for this matrix, which skips planning and setup
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "preconditioner", "format", "solves"])]
    load: Option<PathBuf>,
    /// Write x in the file format of the extension: .mtx, .npy, .petsc; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Plot the residual of each iteration to a PNG file
    #[arg(long, value_name = "PNG")]
    plot: Option<PathBuf>,
    /// Write the residual of each iteration; - is standard output
    #[arg(long, value_name = "CSV")]
    history: Option<PathBuf>,
    /// Write the report as JSON; - is standard output. Field names follow Ginkgo's benchmarks where possible
    #[arg(long, value_name = "JSON")]
    json: Option<PathBuf>,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    known: Declarations,
}

/// Bytes of a matrix below which no memory bandwidth is reported, because much of the matrix is in cache.
const CACHED: usize = 64 << 20;

/// Minimum duration of a solve after which a hint is printed.
const SLOW: Duration = Duration::from_secs(1);

/// Result of a solve, with measurements.
struct Run {
    solved: Solved<f64>,
    curves: Vec<Curve>,
    /// Relative error of x, if b was computed from a known x.
    error: Option<f64>,
    format: String,
    bytes: usize,
    read: Duration,
    built: Duration,
    is_pattern: bool,
    /// Memory read bandwidth of the device in bytes per second, if it is a meaningful reference for the solve.
    reads: Option<f64>,
    /// A hint about declarations that would make solves faster.
    hint: Option<String>,
    factors: Option<FactorReport>,
}

impl Solve {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        #[cfg(feature = "mpi")]
        if let Some(ended) = self.on_ranks() {
            return ended;
        }
        self.check_options()?;
        let chosen = (self.device != "auto").then(|| Device::named(&self.device)).transpose()?;
        let seen = Seen::new(self.rtol, self.quiet);
        let started = Instant::now();
        seen.say(&format!("reading {}", files::shown(&self.matrix)));
        let files::Input { matrix: a, is_pattern } = files::matrix(&self.matrix)?;
        check_finite(&self.matrix, &a)?;
        let (rows, cols) = (a.rows(), a.cols());
        if rows != cols {
            // before a right-hand side is computed, which takes long for many columns
            return Err(krysp::Error::Rectangular { rows, cols }.into());
        }
        let (mut columns, known) = self.right_hand_sides(&a)?;
        let guess = self.guess.as_deref().map(|path| finite_vector(path, a.cols())).transpose()?;
        let read = started.elapsed();
        let device = match chosen {
            Some(device) => device,
            None => self.faster_device(&a)?,
        };

        let cancel = CancelToken::new();
        let token = cancel.clone();
        ctrlc::set_handler(move || {
            // a second Ctrl-C ends the program immediately
            if token.is_cancelled() {
                std::process::exit(130);
            }
            token.cancel();
        })?;
        if columns.len() > 1 {
            return self.solve_columns(&a, &columns, &device, read, &cancel, &seen);
        }
        let b = columns.pop().unwrap_or_default();
        seen.relate_to(b.iter().map(|b| b * b).sum::<f64>().sqrt());
        let (b, guess) = (&b[..], guess.as_deref());
        let interrupt = Interrupt::new(&cancel);
        let phases = seen.phases(&interrupt, self.kept());
        let run = interrupt.run(|| match &device {
            Device::Host => self.on(&Host, &a, b, guess, &cancel, &seen, &bandwidth::of_host),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => self.on(gpu, &a, b, guess, &cancel, &seen, &|| bandwidth::of_gpu(gpu)),
        });
        drop(phases);
        let curves = seen.end();
        let mut run = run?;
        (run.curves, run.read) = (named(curves, &run.solved.attempts), read);
        run.is_pattern = is_pattern;
        run.error = known.map(|known| distance(&run.solved.x, &known));

        if !self.quiet {
            self.print(&a, &run);
        }
        self.write(&run.solved.x, &run.curves, &self.report(&a, &run))?;
        Ok(if run.solved.converged() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// The device with the shorter expected time. Stores its name in `device`.
    fn faster_device(&mut self, a: &Csr<f64>) -> Result<Device, Failure> {
        let device = match self.plan(&Host, a)?.place() {
            Place::Cpu => Device::Host,
            Place::Gpu => Device::named("gpu")?,
        };
        self.device = device.name();
        Ok(device)
    }

    /// Describes the effect of Ctrl-C.
    fn kept(&self) -> &'static str {
        let reports = [&self.plot, &self.history, &self.json, &self.save].into_iter().any(Option::is_some);
        match (self.out.is_some(), reports) {
            (true, true) => "ends it and writes the best x and the reports",
            (true, false) => "ends it and writes the best x",
            (false, true) => "ends it and writes the reports",
            (false, false) => "ends it; nothing is written",
        }
    }

    /// Returns an error for invalid options, and for outputs that cannot be written.
    fn check_options(&self) -> Result<(), Failure> {
        if !(0.0..1.0).contains(&self.rtol) {
            return Err(
                format!("--rtol must be 0 or more and below 1, such as 1e-8; got {}", self.rtol).into()
            );
        }
        if let Some(limit) = self.time_limit.filter(|limit| limit.is_nan() || *limit < 0.0) {
            return Err(format!("--time-limit must be a number of seconds, 0 or more; got {limit}").into());
        }
        if let (Some(option), Some(_)) = (self.known.first(), &self.load) {
            let why = "a saved plan already contains the properties of its system";
            return Err(format!("{option} cannot be used with --load: {why}").into());
        }
        let inputs: Vec<_> = [Some(&self.matrix), self.rhs.as_ref(), self.guess.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .chain(self.known.files())
            .collect();
        files::check_inputs(&inputs)?;
        let outputs = [
            ("--out", self.out.as_deref(), Content::Vector),
            ("--plot", self.plot.as_deref(), Content::Picture),
            ("--history", self.history.as_deref(), Content::Csv),
            ("--json", self.json.as_deref(), Content::Json),
            ("--save", self.save.as_deref(), Content::Plan),
        ];
        text::keep_clear(files::check_outputs(&outputs)?);
        files::check_overwritten(&inputs, &outputs.map(|(option, path, _)| (option, path)))?;
        Ok(())
    }

    /// The right-hand sides, and the known x if the right-hand side is computed from one.
    fn right_hand_sides(&self, a: &Csr<f64>) -> Result<(Vec<Column>, Option<Column>), Failure> {
        if let Some(path) = &self.rhs {
            let columns = files::columns(path, a.rows())?;
            files::check_finite(path, &columns)?;
            return Ok((columns, None));
        }
        let x: Vec<f64> = (0..a.cols()).map(|i| 1.0 + (i % 7) as f64 / 7.0).collect();
        let dot =
            |row| a.row_columns(row).iter().zip(a.row_values(row)).map(|(&j, &v)| v * x[j as usize]).sum();
        Ok((vec![(0..a.rows()).map(dot).collect()], Some(x)))
    }

    #[expect(clippy::too_many_arguments, reason = "called from two places, for the processor and for a GPU")]
    fn on<M: Backend<f64>>(
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
        let planned = match &self.load {
            Some(path) => PlannedSolver::load(path, a, machine)?,
            None => self.plan(machine, a)?.build()?,
        };
        let planned = planned.rtol(self.rtol).max_iterations(self.max_iterations).time_limit(limit);
        let watcher = seen.clone();
        let mut planned = planned.cancel_token(cancel).observe(move |progress| watcher.note(progress));
        let built = started.elapsed();
        let solved = match guess {
            Some(guess) => planned.solve_from(b, guess)?,
            None => planned.solve(b)?,
        };
        if let Some(path) = &self.save {
            planned.save(path)?;
        }
        let operator = planned.operator()?;
        let (format, bytes) = (operator.choice().stored().to_string(), operator.bytes());
        let reads = if bytes < CACHED { None } else { reads().ok() };
        let (read, is_pattern) = (Duration::ZERO, false);
        let (curves, error, hint, factors) = (vec![], None, planned.hint(), self.factor_report(&planned));
        Ok(Run { solved, curves, error, format, bytes, read, built, is_pattern, reads, hint, factors })
    }

    fn plan<'a, M: Backend<f64>>(&self, machine: &M, a: &'a Csr<f64>) -> Result<Plan<'a, f64, M>, Failure> {
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
        self.known.declare_to(plan, a.rows())
    }

    fn print(&self, a: &Csr<f64>, run: &Run) {
        let Run { solved, read, built, .. } = run;
        let time = |time: Duration| text::seconds(time.as_secs_f64());
        let (rows, cols, entries) = (text::count(a.rows()), text::count(a.cols()), text::entries(a.nnz()));
        line("matrix", &format!("{rows} x {cols}, {entries}, read in {}", time(*read)));
        if run.is_pattern {
            line("", files::ONES);
        }
        let place = if self.device == "cpu" { String::new() } else { format!(" on {}", self.device) };
        let bytes = text::bytes(run.bytes);
        line("format", &format!("{}, {bytes}{place}, converted in {}", run.format, time(*built)));
        for attempt in &solved.attempts {
            line("tried", &format!("{} with {}: {}", attempt.method, attempt.preconditioner, attempt.reason));
            let how = match &attempt.ending {
                AttemptEnd::NotBuilt(why) => format!("not built: {why}"),
                ending => {
                    let iterations = text::counted(attempt.iterations, "iteration");
                    let (setup, solve) = (time(attempt.setup), time(attempt.time));
                    let residual = attempt.residual;
                    format!("{iterations}, setup {setup}, solve {solve}, residual {residual:.1e}, {ending}")
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
            &format!(
                "{outcome}: {iterations}, total {}, relative residual {residual:.1e}",
                time(report.time)
            ),
        );
        if let Some(error) = run.error {
            let mut found = format!("relative error of x {error:.1e}");
            // relative error <= condition number * relative residual, so the condition number is above 1e4
            if solved.converged() && error > 1e4 * residual.max(f64::EPSILON) {
                found += ", much larger than the residual: the matrix is nearly singular";
            }
            line("", &found);
        }
        if let Some(factors) = &run.factors {
            line("factors", &factors::shown(factors));
        }
        if let Some(rate) = run.rate() {
            line("memory", &rate);
        }
        // after an interrupted setup there is no x to continue from
        let has_x = report.iterations > 0 || !matches!(report.outcome, Outcome::Cancelled);
        if let Some(advice) = report.outcome.advice_with(&text::WORDS).filter(|_| has_x) {
            line("try next", &advice);
        }
        if let Some(hint) = run.hint.as_ref().filter(|_| report.time >= SLOW) {
            line("hint", &format!("{hint} (--coordinates)"));
        }
    }

    /// Writes the output files that were requested.
    fn write(&self, x: &[f64], curves: &[Curve], report: &Json) -> Result<(), Failure> {
        if let Some(path) = &self.out {
            files::save_vector(path, x)?;
        }
        if let Some(path) = &self.plot {
            chart::residuals(path, &inspect::title(&self.matrix), curves, self.rtol)?;
        }
        if let Some(path) = &self.history {
            files::save(path, history(curves).as_bytes())?;
        }
        if let Some(path) = &self.json {
            files::save(path, format!("{report}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Fields of the report that describe the result.
    fn ending(&self, report: &Report, error: Option<f64>, read: Duration) -> Vec<(&'static str, Json)> {
        vec![
            ("rtol", self.rtol.into()),
            ("converged", report.converged().into()),
            ("outcome", report.outcome.to_string().into()),
            ("advice", report.outcome.advice_with(&text::WORDS).into()),
            ("iterations", report.iterations.into()),
            ("rhs_norm", report.rhs_norm.into()),
            ("residual_norm", report.true_residual.into()),
            ("relative_residual", report.relative_residual().into()),
            ("relative_error", error.into()),
            ("read_time", read.as_secs_f64().into()),
        ]
    }

    /// The report as JSON. Field names follow Ginkgo's benchmarks where possible.
    fn report(&self, a: &Csr<f64>, run: &Run) -> Json {
        let solved = &run.solved;
        let problem = Json::Object(vec![
            ("rows", a.rows().into()),
            ("columns", a.cols().into()),
            ("nonzeros", a.nnz().into()),
        ]);
        let curve = |attempt: &Attempt| run.curves.iter().find(|curve| curve.name == configuration(attempt));
        let attempt = |attempt: &Attempt| {
            let residuals = curve(attempt)
                .map(|curve| curve.points.iter().map(|(_, residual)| *residual).collect::<Vec<_>>());
            let timed = |time: Duration| ("time", Json::from(time.as_secs_f64()));
            let completed = !matches!(attempt.ending, AttemptEnd::NotBuilt(_));
            Json::Object(vec![
                ("solver", attempt.method.name().into()),
                ("preconditioner", attempt.preconditioner.name().into()),
                ("reason", attempt.reason.clone().into()),
                ("generate", Json::Object(vec![timed(attempt.setup)])),
                ("apply", Json::Object(vec![timed(attempt.time), ("iterations", attempt.iterations.into())])),
                ("recurrent_residuals", residuals.into()),
                ("true_residual", attempt.residual.into()),
                ("ending", attempt.ending.to_string().into()),
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
        fields.push(("factors", run.factors.as_ref().map(factors::json).into()));
        fields.push(("generate_time", run.built.as_secs_f64().into()));
        fields.push(("apply_time", report.time.as_secs_f64().into()));
        fields.push(("solver", Json::List(solved.attempts.iter().map(attempt).collect())));
        Json::Object(fields)
    }
}

impl Run {
    /// The bandwidth of the solve, and its fraction of the device's memory bandwidth.
    fn rate(&self) -> Option<String> {
        let time: f64 = self.solved.attempts.iter().map(|attempt| attempt.time.as_secs_f64()).sum();
        let rate = self.solved.report.bytes as f64 / time;
        let reads = self.reads.filter(|_| rate.is_finite())?;
        Some(format!("{:.1} GB/s, {:.0} % of the read bandwidth", rate / 1e9, 100.0 * rate / reads))
    }
}

/// Reads a vector of this length, whose entries must be finite.
fn finite_vector(path: &Path, length: usize) -> Result<Column, Failure> {
    let vector = vector(path, Some(length))?;
    files::check_finite(path, std::slice::from_ref(&vector))?;
    Ok(vector)
}

/// Help text of an option, with the names that it accepts.
fn names(what: &str, all: &[impl std::fmt::Display]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    format!("{what}: {}", all.join(", "))
}

/// The residuals of all iterations as CSV, one line for each iteration.
fn history(curves: &[Curve]) -> String {
    let mut text = "configuration,iteration,residual\n".to_owned();
    for curve in curves {
        let line = |(at, residual): &(f64, f64)| format!("{},{at},{residual:e}\n", curve.name);
        text.extend(curve.points.iter().map(line));
    }
    text
}

/// `‖x − known‖ / ‖known‖`
fn distance(x: &[f64], known: &[f64]) -> f64 {
    let norm = |squares: &mut dyn Iterator<Item = f64>| squares.sum::<f64>().sqrt();
    let difference = norm(&mut x.iter().zip(known).map(|(x, known)| (x - known).powi(2)));
    // a system without unknowns has no error
    if difference == 0.0 { 0.0 } else { difference / norm(&mut known.iter().map(|x| x * x)) }
}

fn configuration(attempt: &Attempt) -> String {
    format!("{} with {}", attempt.method, attempt.preconditioner)
}

/// Adds to each curve the name of its configuration and the recomputed last residual.
fn named(mut curves: Vec<Curve>, attempts: &[Attempt]) -> Vec<Curve> {
    let iterated = attempts.iter().filter(|attempt| attempt.iterations > 0);
    for (curve, attempt) in curves.iter_mut().zip(iterated) {
        curve.name = configuration(attempt);
        curve.recomputed = curve.points.last().map(|&(at, _)| (at, attempt.residual));
    }
    curves
}
