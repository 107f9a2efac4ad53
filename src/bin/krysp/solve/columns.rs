//! `krysp solve` with several right-hand sides, the columns of one file.

use super::{Failure, Solve, factors};
use crate::files;
use crate::formats::Device;
use crate::json::Json;
use crate::progress::Seen;
use crate::text::{self, bad, good, line};
use krysp::plan::{Backend, PlannedSolver, Solved};
use krysp::{CancelToken, Csr, FactorReport, Host, Interrupt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Name of the format, solution of each column, the time at which all were solved, and report of a complete factorization.
type Columns = (String, Vec<Solved<f64>>, Instant, Option<FactorReport>);

impl Solve {
    /// Solves for all columns, and reports the outcome of each.
    pub(super) fn solve_columns(
        &self,
        a: &Csr<f64>,
        b: &[Vec<f64>],
        device: &Device,
        read: Duration,
        cancel: &CancelToken,
        seen: &Seen,
    ) -> Result<ExitCode, Failure> {
        self.check_for_columns(b.len())?;
        let started = Instant::now();
        let interrupt = Interrupt::new(cancel);
        let phases = seen.phases(&interrupt, self.kept());
        let solved = interrupt.run(|| match device {
            Device::Host => self.columns_on(&Host, a, b, cancel),
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => self.columns_on(gpu, a, b, cancel),
        });
        drop(phases);
        seen.end();
        let (format, solved, ended, factors) = solved?;
        let total = ended - started;
        if !self.quiet {
            let time = |time: Duration| text::seconds(time.as_secs_f64());
            let (rows, cols) = (text::count(a.rows()), text::count(a.cols()));
            let entries = text::entries(a.nnz());
            line("matrix", &format!("{rows} x {cols}, {entries}, read in {}", time(read)));
            line("format", &format!("{format}, on {}", self.device));
            for (solved, number) in solved.iter().zip(1..) {
                let report = &solved.report;
                let outcome = report.outcome.to_string();
                let outcome = if solved.converged() { good(&outcome) } else { bad(&outcome) };
                let iterations = text::counted(report.iterations, "iteration");
                let residual = report.relative_residual();
                let block = match report.block {
                    1 => String::new(),
                    shared => format!(" in a block of {shared} right-hand sides"),
                };
                let how = format!("{outcome}: {iterations}{block}, relative residual {residual:.1e}");
                line(&format!("column {number}"), &how);
            }
            let converged = solved.iter().filter(|solved| solved.converged()).count();
            let all = text::counted(solved.len(), "column");
            line("result", &format!("{converged} of {all} converged, total {}", time(total)));
            if let Some(factors) = &factors {
                line("factors", &factors::shown(factors));
            }
        }
        if let Some(path) = &self.out {
            let x: Vec<Vec<f64>> = solved.iter().map(|solved| solved.x.clone()).collect();
            files::save_columns(path, &x)?;
        }
        if let Some(path) = &self.json {
            let columns = solved.iter().map(|solved| {
                let mut column = self.ending(&solved.report, None, read);
                column.push(("block", solved.report.block.into()));
                Json::Object(column)
            });
            let report = Json::Object(vec![
                ("filename", self.matrix.display().to_string().into()),
                ("rhs", self.rhs.as_ref().map(|path| path.display().to_string()).into()),
                ("device", self.device.clone().into()),
                ("format", format.into()),
                ("factors", factors.as_ref().map(factors::json).into()),
                ("apply_time", total.as_secs_f64().into()),
                ("columns", Json::List(columns.collect())),
            ]);
            files::save(path, format!("{report}\n").as_bytes())?;
        }
        let converged = solved.iter().all(Solved::converged);
        Ok(if converged { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Returns an error for options that are only for a single right-hand side.
    fn check_for_columns(&self, count: usize) -> Result<(), Failure> {
        let given = [
            ("--guess", self.guess.is_some()),
            ("--plot", self.plot.is_some()),
            ("--history", self.history.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(format!("{option} is for one right-hand side, there are {count}").into());
        }
        let is_text = |path: &Path| {
            let name = path.to_string_lossy().to_lowercase();
            files::is_standard(path) || name.ends_with(".mtx") || name.ends_with(".mtx.gz")
        };
        match &self.out {
            Some(path) if !is_text(path) => {
                let file = files::shown_output(path);
                let forms = "a file in .mtx or .mtx.gz, or to -";
                Err(format!("--out {file}: {count} columns are written to {forms}").into())
            }
            _ => Ok(()),
        }
    }

    /// Solves on `machine`.
    fn columns_on<M: Backend<f64>>(
        &self,
        machine: &M,
        a: &Csr<f64>,
        b: &[Vec<f64>],
        cancel: &CancelToken,
    ) -> Result<Columns, Failure>
    where
        M::Vector: 'static,
    {
        let limit = self.time_limit.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let planned = match &self.load {
            Some(path) => PlannedSolver::load(path, a, machine)?,
            None => self.plan(machine, a)?.solves(self.solves.max(b.len())).build()?,
        };
        let planned = planned.rtol(self.rtol).max_iterations(self.max_iterations).time_limit(limit);
        let mut planned = planned.cancel_token(cancel);
        let solved = planned.solve_many(b)?;
        if let Some(path) = &self.save {
            planned.save(path)?;
        }
        let (ended, format) = (Instant::now(), planned.operator()?.choice().stored().to_string());
        Ok((format, solved, ended, self.factor_report(&planned)))
    }
}
