//! The report of a solve.

use krysp::Outcome;
use krysp::solvers::InterfaceNames;
use numpy::PyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// Python's names for the options and methods that advice mentions. The functions for single methods take no null space,
/// so advice names a function that does.
const WORDS: InterfaceNames = InterfaceNames {
    max_iterations: "`maxiter`",
    time_limit: "`time_limit`",
    guess: "`x0`",
    gmres: "`gmres`",
    minres: "`minres`",
    bicgstab: "`bicgstab`",
    restart: Some("`restart`"),
    null_space: Some("`null_space` of `krysp.solve`"),
};

/// Smallest fraction of `b` whose removal is printed: rounding leaves 1e-16 to 1e-12 of a `b` that has no component in the null space.
/// Guess.
const REMOVED: f64 = 1e-10;

/// Outcome and cost of a solve. ``print(report)`` shows one line, and one more for each attempt of a plan.
#[pyclass(frozen, module = "krysp")]
#[derive(Clone)]
pub(crate) struct Report {
    /// The name of the function that solved: `"cg"`, for example.
    #[pyo3(get)]
    method: String,
    /// Outcome of the solve, in words.
    #[pyo3(get)]
    outcome: String,
    /// Advice on what to try next, or `None` after convergence.
    #[pyo3(get)]
    advice: Option<String>,
    /// The attempts of a plan, in order, one line each; empty for a single method.
    #[pyo3(get)]
    attempts: Vec<String>,
    /// True if the recomputed residual meets the tolerance.
    #[pyo3(get)]
    converged: bool,
    /// Number of iterations.
    #[pyo3(get)]
    iterations: usize,
    history: Vec<f64>,
    /// `norm(b - A @ x)`, computed with the returned `x`. With a declared null space, `b` is here, and in the other residuals, what
    /// remained after its component in the null space was removed.
    #[pyo3(get)]
    true_residual: f64,
    /// `norm(b - A @ x) / norm(b)`.
    #[pyo3(get)]
    relative_residual: f64,
    /// `norm(b - A @ x) / (norm(A) * norm(x) + norm(b))`, with an estimate of `norm(A)`.
    #[pyo3(get)]
    backward_error: f64,
    /// `norm(b)`; with a declared null space, of what remained.
    #[pyo3(get)]
    rhs_norm: f64,
    /// The norm of the component of `b` in the declared null space, which was removed from `b`; zero without a null space. If it is
    /// not small, the system has no solution, and `x` is one of least squares.
    #[pyo3(get)]
    removed: f64,
    /// The residual norm that counts as converged: `max(rtol * norm(b), atol)`.
    #[pyo3(get)]
    tolerance: f64,
    /// Number of restarts from the recomputed residual.
    #[pyo3(get)]
    restarts: usize,
    /// Number of right-hand sides that shared one search space, this one included; 1 for a separate solve.
    #[pyo3(get)]
    block: usize,
    /// The wall time in seconds, including `setup`.
    #[pyo3(get)]
    time: f64,
    /// The seconds spent on planning and on building preconditioners; zero for a single method, whose preconditioner is built
    /// before.
    #[pyo3(get)]
    setup: f64,
    /// The memory traffic of the iterations in bytes, computed from a model.
    #[pyo3(get)]
    bytes: u64,
    /// The estimated condition number of the preconditioned matrix `M⁻¹ A`, from methods that compute one, or `None`.
    #[pyo3(get)]
    condition: Option<f64>,
    /// The smallest relative residual that rounding of `x` permits, if the solve ended there.
    limit: Option<f64>,
}

impl Report {
    /// The report of one method.
    pub(crate) fn new(method: &'static str, report: krysp::Report, tolerance: f64) -> Report {
        let relative_residual = report.relative_residual();
        let limit = match report.outcome {
            Outcome::PrecisionLimit { limit, .. } => Some(limit / report.rhs_norm),
            _ => None,
        };
        Report {
            method: method.into(),
            outcome: report.outcome.to_string(),
            advice: report.outcome.advice_with(&WORDS),
            attempts: vec![],
            converged: report.outcome == Outcome::Converged && report.true_residual <= tolerance,
            iterations: report.iterations,
            history: report.history,
            true_residual: report.true_residual,
            relative_residual,
            backward_error: report.backward_error,
            rhs_norm: report.rhs_norm,
            removed: report.removed,
            tolerance,
            restarts: report.restarts,
            block: report.block,
            time: report.time.as_secs_f64(),
            setup: 0.0,
            bytes: report.bytes,
            condition: report.condition.map(|estimate| estimate.ratio()),
            limit,
        }
    }

    /// Adds the attempts of a plan, and the seconds of its setup.
    pub(crate) fn of_plan(self, attempts: Vec<String>, setup: f64) -> Report {
        Report { attempts, setup, ..self }
    }

    /// A sentence about the component of `b` that was removed, if one was.
    fn removal(&self) -> Option<String> {
        let fraction = self.removed / self.rhs_norm.hypot(self.removed);
        // rounding errors of a `b` that has no such component
        (fraction > REMOVED).then(|| {
            format!(
                "a component of norm {:.2e} in the null space, {:.2} % of norm(b), was removed from `b`",
                self.removed,
                100.0 * fraction
            )
        })
    }

    /// The times, with labels.
    fn times(&self) -> String {
        match self.setup > 0.0 {
            true => format!("setup {:.3} s, solve {:.3} s", self.setup, (self.time - self.setup).max(0.0)),
            false => format!("solve {:.3} s", self.time),
        }
    }
}

/// Converts a report to a dictionary and back, for `Report.__reduce__` and `pickle`.
macro_rules! by_name {
    ($($name:ident),*) => {
        impl Report {
            fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let values = PyDict::new(py);
                $(values.set_item(stringify!($name), &self.$name)?;)*
                Ok(values)
            }

            fn from_dict(values: &Bound<'_, PyDict>) -> PyResult<Report> {
                let value = |name: &str| {
                    let missing = || PyTypeError::new_err("reports are created by solves and by `pickle` only");
                    values.get_item(name)?.ok_or_else(missing)
                };
                Ok(Report { $($name: value(stringify!($name))?.extract()?),* })
            }
        }
    };
}

by_name! { method, outcome, advice, attempts, converged, iterations, history, true_residual, relative_residual,
backward_error, rhs_norm, removed, tolerance, restarts, block, time, setup, bytes, condition, limit }

#[pymethods]
impl Report {
    /// Restores a report from a dictionary, for `pickle`.
    #[new]
    fn unpickled(values: &Bound<'_, PyDict>) -> PyResult<Report> {
        Report::from_dict(values)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyDict>,))> {
        Ok((slf.get_type(), (slf.get().to_dict(slf.py())?,)))
    }

    /// The residual norms from the recurrence of the method: before the first and after each iteration.
    #[getter]
    fn history<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.history)
    }

    /// The report of the same solve with `b` and `x` multiplied by `factor`.
    fn _scaled(&self, factor: f64) -> Report {
        Report {
            history: self.history.iter().map(|residual| residual * factor).collect(),
            true_residual: self.true_residual * factor,
            rhs_norm: self.rhs_norm * factor,
            removed: self.removed * factor,
            tolerance: self.tolerance * factor,
            ..self.clone()
        }
    }

    fn __str__(&self) -> String {
        let Report { method, outcome, iterations, relative_residual, .. } = self;
        let times = self.times();
        let noun = if *iterations == 1 { "iteration" } else { "iterations" };
        let block = match self.block {
            1 => String::new(),
            shared => format!(" in a block of {shared} right-hand sides"),
        };
        let mut text = format!(
            "{method}: {outcome} after {iterations} {noun}{block}, {times}, relative residual {relative_residual:.2e}"
        );
        // complete factors precondition to about 1
        if let Some(condition) = self.condition.filter(|&condition| condition >= 1.05) {
            text += &format!(", condition number of the preconditioned matrix about {condition:.1e}");
        }
        if let Some(removal) = self.removal() {
            text += &format!("; {removal}");
        }
        if let Some(limit) = self.limit {
            text += &format!("; limit due to rounding of `x`: {limit:.1e}");
        }
        if let Some(advice) = &self.advice {
            text += &format!("; to try next: {advice}");
        }
        self.attempts.iter().fold(text, |text, attempt| text + "\n" + attempt)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.__str__())
    }

    fn _repr_html_(&self) -> String {
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let rows = [
            ("outcome", escaped(&self.outcome)),
            ("iterations", self.iterations.to_string()),
            ("relative residual", format!("{:.2e}", self.relative_residual)),
            ("backward error", format!("{:.2e}", self.backward_error)),
            ("null space", self.removal().unwrap_or_default()),
            ("time", self.times()),
            ("to try next", escaped(self.advice.as_deref().unwrap_or(""))),
            ("tried", escaped(&self.attempts.join("\n")).replace('\n', "<br>")),
        ];
        let rows = rows.iter().filter(|(_, what)| !what.is_empty());
        let rows: String =
            rows.map(|(name, what)| format!("<tr><th>{name}</th><td>{what}</td></tr>")).collect();
        format!("<table><caption>krysp.{}</caption>{rows}</table>", self.method)
    }

    /// Plots the residuals against the iterations with matplotlib, on `ax` or in a new figure, and returns the axes.
    #[pyo3(signature = (ax=None))]
    fn plot<'py>(slf: Bound<'py, Self>, ax: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(slf.py());
        options.set_item("ax", ax)?;
        slf.py().import("krysp._plot")?.getattr("residuals")?.call((&slf,), Some(&options))
    }
}
