//! The report of a solve.

use krysp::Outcome;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How a solve ended, and what it cost. Printed, it is one line.
#[pyclass(frozen, module = "krysp")]
pub(crate) struct Report {
    method: &'static str,
    report: krysp::Report,
    tolerance: f64,
    /// What was tried, in order, where a plan did.
    rungs: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        method: &'static str,
        report: krysp::Report,
        tolerance: f64,
        rungs: Vec<String>,
    ) -> Report {
        Report { method, report, tolerance, rungs }
    }
}

#[pymethods]
impl Report {
    /// The name of the function that solved: `"cg"`, for example.
    #[getter]
    fn method(&self) -> &'static str {
        self.method
    }

    /// How the solve ended, in words.
    #[getter]
    fn outcome(&self) -> String {
        self.report.outcome.to_string()
    }

    /// What a plan tried, in order, a line for each; empty for a single method.
    #[getter]
    fn rungs(&self) -> Vec<String> {
        self.rungs.clone()
    }

    /// Whether the recomputed residual meets the tolerance.
    #[getter]
    fn converged(&self) -> bool {
        self.report.outcome == Outcome::Converged && self.report.true_residual <= self.tolerance
    }

    /// What to try next, or `None` after convergence.
    #[getter]
    fn advice(&self) -> Option<&'static str> {
        self.report.outcome.advice()
    }

    /// Iterations made.
    #[getter]
    fn iterations(&self) -> usize {
        self.report.iterations
    }

    /// The residual norm by the method's recurrence after each iteration, beginning with the initial one.
    #[getter]
    fn history<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.report.history)
    }

    /// `norm(b - A @ x)`, computed with the returned `x`.
    #[getter]
    fn true_residual(&self) -> f64 {
        self.report.true_residual
    }

    /// `norm(b - A @ x) / norm(b)`.
    #[getter]
    fn relative_residual(&self) -> f64 {
        self.report.relative_residual()
    }

    /// `norm(b - A @ x) / (norm(A) * norm(x) + norm(b))`, with an estimate of `norm(A)`.
    #[getter]
    fn backward_error(&self) -> f64 {
        self.report.backward_error
    }

    /// `norm(b)`.
    #[getter]
    fn rhs_norm(&self) -> f64 {
        self.report.rhs_norm
    }

    /// The residual norm that was to be reached: `max(rtol * norm(b), atol)`.
    #[getter]
    fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// How often the method was started again from the true residual.
    #[getter]
    fn restarts(&self) -> usize {
        self.report.restarts
    }

    /// The wall time of the solve, in seconds.
    #[getter]
    fn time(&self) -> f64 {
        self.report.time.as_secs_f64()
    }

    /// The bytes that the iterations had to move.
    #[getter]
    fn bytes(&self) -> u64 {
        self.report.bytes
    }

    /// The estimated condition number of `M⁻¹A`, from methods that compute one, or `None`.
    #[getter]
    fn condition(&self) -> Option<f64> {
        self.report.condition.map(|estimate| estimate.ratio())
    }

    fn __str__(&self) -> String {
        let rungs: String = self.rungs.iter().map(|rung| format!("\n{rung}")).collect();
        format!("{}: {}{rungs}", self.method, self.report)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.__str__())
    }

    fn _repr_html_(&self) -> String {
        let rows = [
            ("outcome", self.report.outcome.to_string()),
            ("iterations", self.report.iterations.to_string()),
            ("relative residual", format!("{:.2e}", self.report.relative_residual())),
            ("backward error", format!("{:.2e}", self.report.backward_error)),
            ("seconds", format!("{:.4}", self.report.time.as_secs_f64())),
            ("to try next", self.report.outcome.advice().unwrap_or("").replace('<', "&lt;")),
            ("tried", self.rungs.join("\n").replace('<', "&lt;").replace('\n', "<br>")),
        ];
        let rows = rows.iter().filter(|(_, what)| !what.is_empty());
        let rows: String =
            rows.map(|(name, what)| format!("<tr><th>{name}</th><td>{what}</td></tr>")).collect();
        format!("<table><caption>krysp.{}</caption>{rows}</table>", self.method)
    }

    /// Draws the residuals over the iterations with matplotlib, into `ax` or a new figure, and returns the axes.
    #[pyo3(signature = (ax=None))]
    fn plot<'py>(slf: Bound<'py, Self>, ax: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(slf.py());
        options.set_item("ax", ax)?;
        slf.py().import("krysp._plot")?.getattr("residuals")?.call((&slf,), Some(&options))
    }
}
