//! The complete factorization of a solve, as text and as JSON.

use super::Solve;
use crate::json::Json;
use crate::text;
use krysp::FactorReport;
use krysp::plan::{Backend, PlannedSolver};

impl Solve {
    /// Report of a complete factorization, if it is printed or written: it takes a pass over the factors.
    pub(super) fn factor_report<M: Backend<f64>>(
        &self,
        planned: &PlannedSolver<f64, M>,
    ) -> Option<FactorReport>
    where
        M::Vector: 'static,
    {
        let is_used = !self.quiet || self.json.is_some();
        if is_used { planned.factor_report() } else { None }
    }
}

/// Describes a factorization in one line.
pub(super) fn shown(report: &FactorReport) -> String {
    let FactorReport { kind, entries, multiplications, bytes, inertia, .. } = report;
    let way = if report.by_fronts { "fronts" } else { "columns" };
    let (entries, bytes) = (text::entries(*entries), text::bytes(*bytes));
    let mut shown = format!("{kind} by {way}: {entries}, {multiplications:.1e} multiplications, {bytes}");
    for (count, what) in [(report.delayed_pivots, "delayed"), (report.missing_pivots, "missing")] {
        if count > 0 {
            shown += &format!(", {}", text::counted(count, &format!("{what} pivot")));
        }
    }
    if let Some(inertia) = inertia {
        shown += &format!(", {}", text::inertia(*inertia));
    }
    if let Some(growth) = report.growth {
        shown += &format!(", pivot growth {growth:.1e}");
    }
    shown
}

/// The fields of a factorization.
pub(super) fn json(report: &FactorReport) -> Json {
    Json::Object(vec![
        ("kind", report.kind.into()),
        ("by_fronts", report.by_fronts.into()),
        ("nonzeros", report.entries.into()),
        ("multiplications", report.multiplications.into()),
        ("storage", report.bytes.into()),
        ("delayed_pivots", report.delayed_pivots.into()),
        ("missing_pivots", report.missing_pivots.into()),
        ("positive_eigenvalues", report.inertia.map(|inertia| inertia.positive).into()),
        ("negative_eigenvalues", report.inertia.map(|inertia| inertia.negative).into()),
        ("pivot_growth", report.growth.into()),
    ])
}
