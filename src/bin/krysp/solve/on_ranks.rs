//! `krysp solve` under `mpirun`: all ranks solve one system, and the first one prints.

use super::{Solve, save, vector};
use crate::Failure;
use crate::text::{self, bad, good, line};
use krysp::io::{read_matrix, write_vector};
use krysp::mpi::{BlockJacobi, RankAmg, RankFsai, RankMatrix, RankTwoLevel, RankVector, Ranks, Rows};
use krysp::plan::{Method, Preconditioner};
use krysp::solvers::{Identity, Report, Scalar, Solution, Vector};
use krysp::{
    BiCgStab, Cg, Cholesky, CoarseSpace, Fcg, Fgmres, Gmres, Ic0, Idr, Ilu0, Ilut, Jacobi, LinearOperator,
    Lu, Minres, Space, Spai,
};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Vectors = RankVector<f64>;
type Matrix = RankMatrix<f64>;

/// Whether `mpirun` has started more than one rank. Open MPI tells by the first of these, MPICH and its relatives by the others.
pub(super) fn several() -> bool {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];
    let size = |name| std::env::var(name).ok()?.parse::<usize>().ok();
    names.into_iter().any(|name| size(name).is_some_and(|size| size > 1))
}

impl Solve {
    /// One of several ranks. All get the same errors; the first one tells.
    pub(super) fn on_ranks(&self) -> Result<ExitCode, Failure> {
        let ranks = Ranks::world()?;
        let solved = ranks.run(|| self.on_rank(&ranks));
        match solved {
            Err(failure) if ranks.rank() == 0 => Err(failure),
            Err(_) => Ok(ExitCode::from(2)),
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::from(1)),
        }
    }

    fn on_rank(&self, ranks: &Ranks) -> Result<bool, Failure> {
        let unknown = [
            ("--device", self.device != "cpu"),
            ("--format", self.format.is_some()),
            ("--json", self.json.is_some()),
            ("--plot", self.plot.is_some()),
        ];
        if let Some((option, _)) = unknown.into_iter().find(|(_, given)| *given) {
            return Err(format!("{option} is for one process, not for ranks of MPI").into());
        }
        let say = |label: &str, text: &str| {
            if ranks.rank() == 0 && !self.quiet {
                line(label, text);
            }
        };
        let started = Instant::now();
        let a = self.matrix_of(ranks)?;
        let b = match &self.rhs {
            Some(path) => scattered(&a, path)?,
            None => {
                let x = a.domain().rows().map(|row| 1.0 + (row % 7) as f64 / 7.0).collect::<Vec<_>>();
                let mut b = a.range().zeros()?;
                a.apply(&a.domain().vector(&x)?, &mut b)?;
                b.own().as_slice().to_vec()
            }
        };
        let guess = self.guess.as_deref().map(|path| scattered(&a, path)).transpose()?;
        let rows = text::count(a.domain().len());
        say("matrix", &format!("{rows} rows on {} ranks, read in {}", ranks.size(), time(started.elapsed())));
        say("rank 0", &a.report().to_string());
        let mut best: Option<Solution<f64>> = None;
        for (method, preconditioner) in self.candidates(&a)? {
            say("tried", &format!("{method} with {preconditioner}"));
            let started = Instant::now();
            let m = match made(preconditioner, &a) {
                Ok(m) => m,
                Err(error) => {
                    say("", &format!("not built: {error}"));
                    continue;
                }
            };
            let setup = started.elapsed();
            let solution = self.solution(method, &a, m, &b, guess.as_deref())?;
            let Report { iterations, time: spent, outcome, .. } = &solution.report;
            let residual = solution.report.relative_residual();
            say(
                "",
                &format!(
                    "{outcome} after {} in {}, setup {}, residual {residual:.1e}",
                    text::counted(*iterations, "iteration"),
                    time(*spent),
                    time(setup)
                ),
            );
            let better = |best: &Solution<f64>| best.report.true_residual <= solution.report.true_residual;
            if !best.as_ref().is_some_and(better) {
                best = Some(solution);
            }
            if best.as_ref().is_some_and(|best| best.report.converged()) {
                break;
            }
        }
        let Some(Solution { x, report }) = best else {
            return Err("no preconditioner could be built: try --preconditioner none".into());
        };
        let outcome = report.outcome.to_string();
        let outcome = if report.converged() { good(&outcome) } else { bad(&outcome) };
        let iterations = text::counted(report.iterations, "iteration");
        say("result", &format!("{outcome}: {iterations}, residual {:.1e} of b", report.relative_residual()));
        if let Some(advice) = report.outcome.advice() {
            say("try next", advice);
        }
        let whole = a.gather(&x)?;
        let written = || -> Result<(), Failure> {
            if let (Some(path), Some(x)) = (&self.out, &whole) {
                write_vector(path, x)?;
            }
            if let (Some(path), true) = (&self.history, ranks.rank() == 0) {
                let each = report.history.iter().enumerate();
                let lines: String = each.map(|(at, residual)| format!("{at},{residual:e}\n")).collect();
                save(path, &format!("iteration,residual\n{lines}"))?;
            }
            Ok(())
        };
        written()?;
        // nobody ends before the files are there
        ranks.all(Ok(()))?;
        Ok(report.converged())
    }

    /// Matrix Market files are read in parts by all ranks, others by the first one.
    fn matrix_of(&self, ranks: &Ranks) -> krysp::Result<Matrix> {
        let name = self.matrix.to_string_lossy();
        if name.trim_end_matches(".gz").ends_with(".mtx") {
            return RankMatrix::read(ranks, &self.matrix, Rows::ByEntries);
        }
        let whole = (ranks.rank() == 0).then(|| read_matrix::<f64>(&self.matrix)).transpose();
        RankMatrix::from_first(ranks, ranks.all(whole.map_err(Into::into))?.as_ref())
    }

    /// What to try, one after the other, until one converges.
    fn candidates(&self, a: &Matrix) -> Result<Vec<(Method, Preconditioner)>, Failure> {
        use Preconditioner::{Amg, Ilu0, Ilut, None};
        let symmetric = is_symmetric(a)?;
        let diagonal = a.own_block().diagonal()?;
        let positive = a.domain().agree(u8::from(diagonal.iter().any(|d| *d <= 0.0)))? == 0;
        let suited = match (symmetric, positive) {
            (true, true) => vec![
                (Method::Cg, Amg),
                (Method::Cg, Preconditioner::Jacobi),
                (Method::Minres, Preconditioner::Jacobi),
            ],
            (true, false) => vec![(Method::Minres, None), (Method::Gmres, Ilut)],
            _ => vec![(Method::BiCgStab, Ilu0), (Method::Gmres, Ilut)],
        };
        let mut chosen: Vec<_> = suited
            .into_iter()
            .map(|(method, preconditioner)| {
                (self.method.unwrap_or(method), self.preconditioner.unwrap_or(preconditioner))
            })
            .collect();
        chosen.dedup();
        Ok(chosen)
    }

    fn solution(
        &self,
        method: Method,
        a: &Matrix,
        m: Box<dyn LinearOperator<Vector = Vectors>>,
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
            other => Err(format!("{other} does not run on ranks of MPI").into()),
        }
    }
}

/// A preconditioner over ranks; those that are not made over ranks for each rank's block.
fn made(name: Preconditioner, a: &Matrix) -> krysp::Result<Box<dyn LinearOperator<Vector = Vectors>>> {
    Ok(match name {
        Preconditioner::None => Box::new(Identity::new(a.domain())),
        Preconditioner::Jacobi => Box::new(BlockJacobi::new(a, Jacobi::new)?),
        Preconditioner::TwoLevel => {
            let jacobi = BlockJacobi::new(a, Jacobi::new)?;
            Box::new(RankTwoLevel::over(jacobi, a, CoarseSpace::<f64>::UNKNOWNS)?)
        }
        Preconditioner::Amg => Box::new(RankAmg::new(a)?),
        Preconditioner::Fsai => Box::new(RankFsai::new(a)?),
        Preconditioner::Spai => Box::new(BlockJacobi::new(a, Spai::new)?),
        Preconditioner::Ic0 => Box::new(BlockJacobi::new(a, Ic0::new)?),
        Preconditioner::Ilu0 => Box::new(BlockJacobi::new(a, Ilu0::new)?),
        Preconditioner::Ilut => Box::new(BlockJacobi::new(a, Ilut::new)?),
        Preconditioner::Cholesky => Box::new(BlockJacobi::new(a, Cholesky::new)?),
        Preconditioner::Lu => Box::new(BlockJacobi::new(a, Lu::new)?),
        other => {
            let (what, expected) = ("the preconditioner", "one that runs on ranks of MPI");
            return Err(krysp::Error::Option { what, got: other.to_string(), expected });
        }
    })
}

/// Whether `⟨y, A x⟩ = ⟨x, A y⟩` to rounding, for vectors without any order in them: no rank has both halves of the matrix.
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

/// This rank's part of a vector in a file, which the first one reads.
fn scattered(a: &Matrix, path: &Path) -> Result<Vec<f64>, Failure> {
    let whole = (a.ranks().rank() == 0).then(|| vector(path, a.domain().len())).transpose();
    let whole = whole.map_err(|failure| krysp::Error::Mpi(failure.to_string()));
    Ok(a.scatter(a.ranks().all(whole)?.as_deref())?)
}

fn time(time: Duration) -> String {
    text::seconds(time.as_secs_f64())
}
