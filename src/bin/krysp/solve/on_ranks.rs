//! `krysp solve` under `mpirun`: all ranks (MPI processes) solve one system; the first one prints and writes.

use super::{Solve, distance, finite_vector};
use crate::Failure;
use crate::chart::Curve;
use crate::files;
use crate::json::Json;
use crate::text::{self, bad, good, line};
use krysp::plan::{Method, Preconditioner};
use krysp::ranks::{
    BlockJacobi, Local, RankAmg, RankFsai, RankMatrix, RankSpace, RankSpai, RankTwoLevel, RankVector, Ranks,
    RowDistribution,
};
use krysp::solvers::{BasicVector, Identity, Report, Scalar, Solution, Vector};
use krysp::{
    BiCgStab, Cg, Cholesky, CoarseSpace, Fcg, Fgmres, Gmres, Host, Ic0, Idr, Ilu0, Ilut, Jacobi, Ldl,
    LinearOperator, Lu, MatrixSource, Minres, Space,
};
#[cfg(feature = "cuda")]
use krysp::{Cuda, ToCuda};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Matrix = RankMatrix<f64>;
type AnyPreconditioner<L = Host> = Box<dyn LinearOperator<Vector = RankVector<f64, L>>>;

/// Returns whether an MPI launcher has started this process.
fn may_be_a_rank() -> bool {
    // Open MPI sets the first two, Slurm the second, and MPICH and its derivatives the third
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"].iter().any(|name| std::env::var_os(name).is_some())
}

/// The joint result of all ranks.
struct Run {
    rows: usize,
    entries: usize,
    bytes: usize,
    read: Duration,
    tried: Vec<Tried>,
    /// Report of the solution with the smallest residual.
    report: Report,
    /// On the first rank, the whole x with the smallest residual.
    x: Option<Vec<f64>>,
    /// On the first rank, the relative error of `x`, if b was computed from a known x.
    error: Option<f64>,
}

struct Tried {
    method: Method,
    preconditioner: Preconditioner,
    setup: Duration,
    /// The report of the solve, or the reason why the preconditioner was not built.
    ended: Result<Report, String>,
}

impl Solve {
    /// Solves together with other ranks. Returns `None` in a program without other ranks.
    ///
    /// All ranks but the first return exit code 0: `mpirun` kills all ranks after the first other code, and might do so before
    /// the first rank has printed its error.
    pub(super) fn on_ranks(&self) -> Option<Result<ExitCode, Failure>> {
        if !may_be_a_rank() {
            return None;
        }
        let ranks = match Ranks::world() {
            Ok(ranks) if ranks.size() == 1 => return None,
            Ok(ranks) => ranks,
            Err(error) => return Some(Err(error.into())),
        };
        let converged = ranks.run(|| self.on_rank(&ranks));
        Some(match converged {
            _ if ranks.rank() > 0 => Ok(ExitCode::SUCCESS),
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::from(1)),
            Err(failure) => Err(failure),
        })
    }

    fn on_rank(&self, ranks: &Ranks) -> Result<bool, Failure> {
        // only the first rank prints and writes
        if ranks.rank() == 0 {
            self.check_options()?;
        }
        let refused = [
            (
                "--device",
                !["cpu", "gpu", "cuda"].contains(&&*self.device),
                "use `--device gpu`, which assigns a GPU of its machine to each rank, or `--device cpu`",
            ),
            ("--format", self.format.is_some(), "each rank chooses the format of its rows"),
            ("--solves", self.solves != 1, "there are no plans on ranks"),
            ("--save", self.save.is_some(), "there are no plans on ranks"),
            ("--load", self.load.is_some(), "there are no plans on ranks"),
            (
                self.known.first().unwrap_or_default(),
                self.known.first().is_some(),
                "there are no plans on ranks",
            ),
        ];
        if let Some((option, _, why)) = refused.into_iter().find(|(_, given, _)| *given) {
            return Err(format!("{option} does not work with {} ranks: {why}", ranks.size()).into());
        }
        let run = self.solved_on(ranks)?;
        let written = if ranks.rank() == 0 { self.report_run(ranks, &run) } else { Ok(()) };
        written?;
        // wait until the first rank has written the files
        ranks.all(Ok(()))?;
        Ok(run.report.converged())
    }

    fn solved_on(&self, ranks: &Ranks) -> Result<Run, Failure> {
        let started = Instant::now();
        let a = self.matrix_of(ranks)?;
        let known = |row: usize| 1.0 + (row % 7) as f64 / 7.0;
        let b = match &self.rhs {
            Some(path) => scattered(&a, path)?,
            None => {
                let x: Vec<f64> = a.domain().rows().map(|row| known(row as usize)).collect();
                let mut b = a.range().zeros()?;
                a.apply(&a.domain().vector(&x)?, &mut b)?;
                b.own().as_slice().to_vec()
            }
        };
        let guess = self.guess.as_deref().map(|path| scattered(&a, path)).transpose()?;
        let read = started.elapsed();
        let candidates = self.candidates(&a)?;
        let (tried, best) = match self.device.as_str() {
            "cpu" => self.attempt(&a, candidates, &|name| over_ranks(name, &a), &b, guess.as_deref())?,
            _ => self.attempt_on_gpus(&a, candidates, &b, guess.as_deref())?,
        };
        let Some(Solution { x, report }) = best else {
            let why: Vec<String> = tried.iter().filter_map(|one| one.ended.as_ref().err().cloned()).collect();
            return Err(format!("no preconditioner could be built: {}", why.join("; ")).into());
        };
        let (rows, x) = (a.domain().len(), a.gather(&x)?);
        let error = x.as_ref().filter(|_| self.rhs.is_none());
        let error = error.map(|x| distance(x, &(0..rows).map(known).collect::<Vec<_>>()));
        let [entries, bytes] = total(ranks, [a.report().entries, a.bytes()])?;
        Ok(Run { rows, entries, bytes, read, tried, report, x, error })
    }

    /// Runs one candidate after the other until one converges. Returns all attempts, and the solution with the smallest residual.
    fn attempt<L: Local<f64>>(
        &self,
        a: &RankMatrix<f64, L>,
        candidates: Vec<(Method, Preconditioner)>,
        make: &dyn Fn(Preconditioner) -> krysp::Result<AnyPreconditioner<L>>,
        b: &[f64],
        guess: Option<&[f64]>,
    ) -> Result<(Vec<Tried>, Option<Solution<f64>>), Failure> {
        let (mut tried, mut best) = (vec![], None::<Solution<f64>>);
        for (method, preconditioner) in candidates {
            let started = Instant::now();
            let m = match make(preconditioner) {
                Ok(m) => m,
                Err(error) => {
                    let (setup, ended) = (started.elapsed(), Err(error.to_string()));
                    tried.push(Tried { method, preconditioner, setup, ended });
                    continue;
                }
            };
            let setup = started.elapsed();
            let solution = self.solution(method, a, m, b, guess)?;
            tried.push(Tried { method, preconditioner, setup, ended: Ok(solution.report.clone()) });
            let converged = solution.report.converged();
            let better = |best: &Solution<f64>| best.report.true_residual <= solution.report.true_residual;
            if !best.as_ref().is_some_and(better) {
                best = Some(solution);
            }
            if converged {
                break;
            }
        }
        Ok((tried, best))
    }

    #[cfg(feature = "cuda")]
    fn attempt_on_gpus(
        &self,
        a: &Matrix,
        candidates: Vec<(Method, Preconditioner)>,
        b: &[f64],
        guess: Option<&[f64]>,
    ) -> Result<(Vec<Tried>, Option<Solution<f64>>), Failure> {
        let gpu = a.ranks().gpu()?;
        let there = a.to(&gpu)?;
        self.attempt(&there, candidates, &|name| over_gpus(name, a, &there, &gpu), b, guess)
    }

    #[cfg(not(feature = "cuda"))]
    fn attempt_on_gpus(
        &self,
        _: &Matrix,
        _: Vec<(Method, Preconditioner)>,
        _: &[f64],
        _: Option<&[f64]>,
    ) -> Result<(Vec<Tried>, Option<Solution<f64>>), Failure> {
        Err("this program was built without the feature `cuda`".into())
    }

    /// Reads the matrix: Matrix Market files in parts on all ranks, other files on the first rank.
    fn matrix_of(&self, ranks: &Ranks) -> Result<Matrix, Failure> {
        let name = self.matrix.to_string_lossy();
        if name.trim_end_matches(".gz").ends_with(".mtx") {
            return Ok(RankMatrix::read(ranks, &self.matrix, RowDistribution::ByEntries)?);
        }
        let whole =
            (ranks.rank() == 0).then(|| files::matrix(&self.matrix).map(|input| input.matrix)).transpose();
        Ok(RankMatrix::distribute(ranks, whole?.as_ref())?)
    }

    /// The list of candidates, in the order in which they run.
    fn candidates(&self, a: &Matrix) -> Result<Vec<(Method, Preconditioner)>, Failure> {
        use Preconditioner::{Amg, Ilu0, Ilut, Jacobi, None, Spai};
        // incomplete factorizations are available on the CPU only
        let [first, second] = if self.device == "cpu" { [Ilu0, Ilut] } else { [Spai, Jacobi] };
        let diagonal = a.diagonal_block().diagonal()?;
        let positive = a.domain().agree(u8::from(diagonal.iter().any(|d| *d <= 0.0)))? == 0;
        let suited = match (is_symmetric(a)?, positive) {
            (true, true) => {
                vec![(Method::Cg, Amg), (Method::Cg, Jacobi), (Method::Minres, Jacobi)]
            }
            (true, false) => vec![(Method::Minres, None), (Method::Gmres, second)],
            (false, _) => vec![(Method::BiCgStab, first), (Method::Gmres, second)],
        };
        let requested = |(method, preconditioner)| {
            (self.method.unwrap_or(method), self.preconditioner.unwrap_or(preconditioner))
        };
        let mut chosen: Vec<_> = suited.into_iter().map(requested).collect();
        chosen.dedup();
        Ok(chosen)
    }

    fn solution<L: Local<f64>>(
        &self,
        method: Method,
        a: &RankMatrix<f64, L>,
        m: AnyPreconditioner<L>,
        b: &[f64],
        guess: Option<&[f64]>,
    ) -> Result<Solution<f64>, Failure> {
        macro_rules! by {
            ($method:ident) => {{
                let mut solver = $method::new(a).preconditioner(m).rtol(self.rtol);
                if let Some(iterations) = self.max_iterations {
                    solver = solver.max_iterations(iterations);
                }
                if let Some(seconds) = self.time_limit {
                    solver = solver.time_limit(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
                }
                Ok(match guess {
                    Some(guess) => solver.solve_from(b, guess)?,
                    None => solver.solve(b)?,
                })
            }};
        }
        match method {
            Method::Cg => by!(Cg),
            Method::Fcg => by!(Fcg),
            Method::Minres => by!(Minres),
            Method::BiCgStab => by!(BiCgStab),
            Method::Gmres => by!(Gmres),
            Method::Fgmres => by!(Fgmres),
            Method::Idr => by!(Idr),
            other => Err(format!("{other} is not available on MPI ranks").into()),
        }
    }

    /// Prints the report and writes the files, on the first rank.
    fn report_run(&self, ranks: &Ranks, run: &Run) -> Result<(), Failure> {
        if !self.quiet {
            self.print_ranks(ranks, run);
        }
        self.write(run.x.as_deref().unwrap_or_default(), &curves(run), &self.report_of_ranks(ranks, run))
    }

    fn print_ranks(&self, ranks: &Ranks, run: &Run) {
        let Run { rows, entries, bytes, read, tried, report, error, .. } = run;
        let time = |time: Duration| text::seconds(time.as_secs_f64());
        let size = format!("{} x {}, {}", text::count(*rows), text::count(*rows), text::entries(*entries));
        line("matrix", &format!("{size}, on {} ranks, read in {}", ranks.size(), time(*read)));
        line("format", &format!("chosen by each rank, {} in total", text::bytes(*bytes)));
        for Tried { method, preconditioner, setup, ended } in tried {
            line("tried", &format!("{method} with {preconditioner}{}", of_what(*preconditioner)));
            let how = match ended {
                Err(why) => format!("not built: {why}"),
                Ok(report) => {
                    let Report { outcome, iterations, .. } = report;
                    let iterations = text::counted(*iterations, "iteration");
                    let (setup, solve) = (time(*setup), time(report.time));
                    let residual = report.relative_residual();
                    format!("{iterations}, setup {setup}, solve {solve}, residual {residual:.1e}, {outcome}")
                }
            };
            line("", &how);
        }
        let (outcome, residual) = (report.outcome.to_string(), report.relative_residual());
        let outcome = if report.converged() { good(&outcome) } else { bad(&outcome) };
        let iterations = text::counted(report.iterations, "iteration");
        line("result", &format!("{outcome}: {iterations}, relative residual {residual:.1e}"));
        if let Some(error) = error {
            line("", &format!("relative error of x {error:.1e}"));
        }
        if let Some(advice) = report.outcome.advice_with(&text::WORDS) {
            line("try next", &advice);
        }
    }

    /// The report as JSON, with the fields of a single process and the number of ranks.
    fn report_of_ranks(&self, ranks: &Ranks, run: &Run) -> Json {
        let size = [("rows", run.rows), ("columns", run.rows), ("nonzeros", run.entries)];
        let tried = |tried: &Tried| {
            let report = tried.ended.as_ref().ok();
            let ending = match &tried.ended {
                Ok(report) => report.outcome.to_string(),
                Err(why) => format!("not built: {why}"),
            };
            let seconds = |time: Duration| ("time", Json::from(time.as_secs_f64()));
            let apply = report.map(|report| {
                Json::Object(vec![seconds(report.time), ("iterations", report.iterations.into())])
            });
            Json::Object(vec![
                ("solver", tried.method.name().into()),
                ("preconditioner", tried.preconditioner.name().into()),
                ("generate", Json::Object(vec![seconds(tried.setup)])),
                ("apply", apply.into()),
                ("recurrent_residuals", report.map(relative).into()),
                ("true_residual", report.map(Report::relative_residual).into()),
                ("ending", ending.into()),
                ("completed", report.is_some().into()),
            ])
        };
        let mut fields = vec![
            ("filename", self.matrix.display().to_string().into()),
            ("rhs", self.rhs.as_ref().map(|path| path.display().to_string()).into()),
            ("problem", Json::Object(size.into_iter().map(|(name, size)| (name, size.into())).collect())),
            ("device", self.device.clone().into()),
            ("ranks", ranks.size().into()),
            ("storage", run.bytes.into()),
        ];
        fields.extend(self.ending(&run.report, run.error, run.read));
        fields.push(("apply_time", run.report.time.as_secs_f64().into()));
        fields.push(("solver", Json::List(run.tried.iter().map(tried).collect())));
        Json::Object(fields)
    }
}

/// A preconditioner over all ranks: its distributed form if there is one, otherwise block Jacobi with one
/// block per rank.
fn over_ranks(name: Preconditioner, a: &Matrix) -> krysp::Result<AnyPreconditioner> {
    Ok(match name {
        Preconditioner::None => Box::new(Identity::new(a.domain())),
        Preconditioner::Jacobi => Box::new(BlockJacobi::new(a, Jacobi::new)?),
        Preconditioner::TwoLevel => {
            let jacobi = BlockJacobi::new(a, Jacobi::new)?;
            Box::new(RankTwoLevel::with_inner(jacobi, a, CoarseSpace::<f64>::UNKNOWNS)?)
        }
        Preconditioner::Amg => Box::new(RankAmg::new(a)?),
        Preconditioner::Fsai => Box::new(RankFsai::new(a)?),
        Preconditioner::Spai => Box::new(RankSpai::new(a)?),
        Preconditioner::Ic0 => Box::new(BlockJacobi::new(a, Ic0::new)?),
        Preconditioner::Ilu0 => Box::new(BlockJacobi::new(a, Ilu0::new)?),
        Preconditioner::Ilut => Box::new(BlockJacobi::new(a, Ilut::new)?),
        Preconditioner::Cholesky => Box::new(BlockJacobi::new(a, Cholesky::new)?),
        Preconditioner::Ldl => Box::new(BlockJacobi::new(a, Ldl::new)?),
        Preconditioner::Lu => Box::new(BlockJacobi::new(a, Lu::new)?),
        other => {
            let (what, expected) = ("the preconditioner", "one that is available on MPI ranks");
            return Err(krysp::Error::Option { what, got: other.to_string(), expected });
        }
    })
}

/// A preconditioner on ranks whose matrix is on GPUs.
#[cfg(feature = "cuda")]
fn over_gpus(
    name: Preconditioner,
    host: &Matrix,
    a: &RankMatrix<f64, Cuda>,
    gpu: &Cuda,
) -> krysp::Result<AnyPreconditioner<Cuda>> {
    Ok(match name {
        Preconditioner::None => Box::new(Identity::new(a.domain())),
        Preconditioner::Jacobi => Box::new(BlockJacobi::new(a, |block| Jacobi::on(gpu, block))?),
        Preconditioner::TwoLevel => {
            let jacobi = BlockJacobi::new(a, |block| Jacobi::on(gpu, block))?;
            Box::new(RankTwoLevel::with_inner(jacobi, a, CoarseSpace::<f64>::UNKNOWNS)?)
        }
        Preconditioner::Amg => Box::new(RankAmg::new(a)?),
        Preconditioner::Fsai => Box::new(RankFsai::new(host)?.to(gpu)?),
        Preconditioner::Spai => Box::new(RankSpai::new(host)?.to(gpu)?),
        other => {
            let (what, expected) = ("the preconditioner", "one that is available on GPUs of MPI ranks");
            return Err(krysp::Error::Option { what, got: other.to_string(), expected });
        }
    })
}

/// Suffix for the name of a preconditioner that is built for the diagonal block of each rank.
fn of_what(name: Preconditioner) -> &'static str {
    use Preconditioner::{Cholesky, Ic0, Ilu0, Ilut, Ldl, Lu};
    if matches!(name, Cholesky | Ic0 | Ilu0 | Ilut | Ldl | Lu) { " of each rank's block" } else { "" }
}

/// Returns whether the matrix is symmetric, tested by `⟨y, A x⟩ = ⟨x, A y⟩` up to rounding for two random
/// vectors, because no rank has all entries to compare.
fn is_symmetric(a: &Matrix) -> Result<bool, Failure> {
    let random = |seed: u64| {
        let number = |row: u64| {
            let bits = (row + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
            let bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (bits >> 12) as f64 / (1u64 << 51) as f64 - 1.0
        };
        a.domain().vector(&a.domain().rows().map(number).collect::<Vec<_>>())
    };
    let [x, y] = [random(1)?, random(2)?];
    let [mut ax, mut ay] = [a.range().zeros()?, a.range().zeros()?];
    a.apply(&x, &mut ax)?;
    a.apply(&y, &mut ay)?;
    let [one, other] = [y.dot(&ax).read()?, x.dot(&ay).read()?];
    let size = (y.norm_squared().read()? * ax.norm_squared().read()?).sqrt();
    Ok((one - other).abs() <= 1e-10 * size)
}

/// This rank's part of a vector in a file, which the first rank reads.
fn scattered(a: &Matrix, path: &Path) -> Result<Vec<f64>, Failure> {
    let whole = (a.ranks().rank() == 0).then(|| finite_vector(path, a.domain().len())).transpose()?;
    Ok(a.scatter(whole.as_deref())?)
}

/// For each of the `K` numbers, the sum over all ranks.
fn total<const K: usize>(ranks: &Ranks, own: [usize; K]) -> krysp::Result<[usize; K]> {
    let space = RankSpace::<f64>::new(ranks, 1)?;
    let one = space.vector(&[1.0])?;
    let mut sums = own;
    for sum in &mut sums {
        *sum = space.vector(&[*sum as f64])?.dot(&one).read()? as usize;
    }
    Ok(sums)
}

/// The residual history from the recurrence, relative to b.
fn relative(report: &Report) -> Vec<f64> {
    report.history.iter().map(|residual| residual / report.rhs_norm).collect()
}

/// A curve for each attempt with at least one iteration.
fn curves(run: &Run) -> Vec<Curve> {
    let mut before = 0;
    let curve = |tried: &Tried| {
        let report = tried.ended.as_ref().ok().filter(|report| report.iterations > 0)?;
        let place = |(at, residual)| ((before + at) as f64, residual);
        let points: Vec<_> = relative(report).into_iter().enumerate().map(place).collect();
        before += report.iterations;
        let recomputed = Some((before as f64, report.relative_residual()));
        let name = format!("{} with {}", tried.method, tried.preconditioner);
        Some(Curve { name, points, recomputed })
    };
    run.tried.iter().filter_map(curve).collect()
}
