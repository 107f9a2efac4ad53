//! The state of a solver besides its operators. Everything that solves is implemented for it, with operators
//! passed as trait objects, so that it is compiled once per method and type of vector, not once per
//! combination with a format and a preconditioner.

use crate::callbacks::Callbacks;
use crate::deflation::NullSpace;
use crate::workspace::Workspace;
use crate::{
    Arithmetic, CancelToken, Element, Error, Form, LinearOperator, Method, MultiVector, Outcome, Report,
    Result, Solution, Space, Stopping, System, Vector, lanczos,
};
use std::any::Any;
use std::time::Instant;

/// The operators of a solve.
pub(crate) struct Operators<'s, V: Vector> {
    /// The matrix `A`.
    pub(crate) a: &'s dyn LinearOperator<Vector = V>,
    /// The preconditioner: applies `M⁻¹`.
    pub(crate) m: &'s dyn LinearOperator<Vector = V>,
}

impl<V: Vector> Clone for Operators<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vector> Copy for Operators<'_, V> {}

/// Operators and a right-hand side.
pub(crate) struct Problem<'s, V: Vector> {
    pub(crate) on: Operators<'s, V>,
    pub(crate) b: &'s V,
}

impl<V: Vector> Clone for Problem<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vector> Copy for Problem<'_, V> {}

impl<'s, V: Vector> Problem<'s, V> {
    /// The system as methods receive it, preconditioned by `m`.
    pub(crate) fn system(
        self,
        m: &'s dyn LinearOperator<Vector = V>,
        arithmetic: Arithmetic,
        attempt: usize,
    ) -> System<'s, V> {
        System { a: self.on.a, m, b: self.b, arithmetic, attempt }
    }
}

/// A method, its options, its workspace and the report of the latest solve.
pub(crate) struct Driver<K: Method<V>, V: Vector> {
    pub(crate) method: K,
    pub(crate) null_space: Option<NullSpace<V>>,
    pub(crate) stopping: Stopping,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) callbacks: Callbacks<V>,
    pub(crate) report: Report,
    /// `‖A‖`, once it is estimated; cleared when the values of `A` may change.
    pub(crate) operator_norm: Option<f64>,
    /// Reports of the columns of the latest solve of several systems.
    pub(crate) reports: Vec<Report>,
    /// Steps, vectors and states of joint solves, a `Joint` whose type depends on the method.
    pub(crate) joint: Option<Box<dyn Any + Send>>,
    /// Right-hand sides and solutions of a group of columns.
    pub(crate) copies: Option<[MultiVector<V>; 2]>,
    workspace: Option<Workspace<K, V>>,
}

impl<K: Method<V>, V: Vector> Driver<K, V> {
    pub(crate) fn new(method: K) -> Self {
        Driver {
            method,
            null_space: None,
            stopping: Stopping::new(V::Elem::EPSILON),
            cancel: None,
            callbacks: Callbacks::new(),
            report: Report::default(),
            operator_norm: None,
            reports: Vec::new(),
            joint: None,
            copies: None,
            workspace: None,
        }
    }

    /// Discards measured properties of the operators, because their values may change.
    pub(crate) fn forget_operator_facts(&mut self) {
        self.operator_norm = None;
        if let Some(workspace) = &mut self.workspace {
            workspace.symmetry = None;
        }
    }

    /// Drops what belongs to one system: the null space, the cancel token, observers and stop rules.
    pub(crate) fn forget_system(&mut self) {
        self.forget_operator_facts();
        (self.null_space, self.cancel) = (None, None);
        self.callbacks = Callbacks::new();
    }

    /// Solves from the guess `x` for a right-hand side in host memory.
    pub(crate) fn solve_host(
        &mut self,
        on: Operators<'_, V>,
        b: &[V::Elem],
        mut x: V,
        guess: Arithmetic,
    ) -> Result<Solution<V::Elem>> {
        let range = on.a.range();
        fits("`b`", b.len(), "`A`'s rows", range.local_len())?;
        let mut rhs = range.zeros()?;
        range.load(b, &mut rhs)?;
        self.solve_at(on, &rhs, &mut x, guess, Instant::now())?;
        let mut host = vec![V::Elem::default(); x.space().local_len()];
        x.space().store(&x, &mut host)?;
        Ok(Solution { x: host, report: std::mem::take(&mut self.report) })
    }

    /// Solves from the guess in `x`; `guess` defines how its residual is computed.
    pub(crate) fn solve_at(
        &mut self,
        on: Operators<'_, V>,
        b: &V,
        x: &mut V,
        guess: Arithmetic,
        started: Instant,
    ) -> Result<&Report> {
        self.check_spaces(on, b, x)?;
        let mut workspace = self.take_workspace(on)?;
        self.begin_report();
        workspace.begin();
        let outcome = self.deflate(Problem { on, b }, x, &mut workspace, guess, started);
        let ended = outcome.map(|outcome| self.end_report(on, outcome, started, &workspace));
        self.keep_workspace(workspace);
        ended?;
        Ok(&self.report)
    }

    /// The workspace of the last solve, or a new one.
    pub(crate) fn take_workspace(&mut self, on: Operators<'_, V>) -> Result<Workspace<K, V>> {
        let space = on.a.range();
        match self.workspace.take() {
            Some(workspace) if workspace.space == *space => Ok(workspace),
            _ => Workspace::new(&self.method, space),
        }
    }

    /// Keeps a workspace for the next solve.
    pub(crate) fn keep_workspace(&mut self, workspace: Workspace<K, V>) {
        self.workspace = Some(workspace);
    }

    /// Clears the report for a new solve.
    pub(crate) fn begin_report(&mut self) {
        self.report.history.clear();
        self.report.restarts = 0;
        self.report.block = 1;
        self.report.condition = None;
        self.report.backward_error = f64::NAN;
        self.report.removed = 0.0;
    }

    /// Completes the report of a solve.
    pub(crate) fn end_report(
        &mut self,
        on: Operators<'_, V>,
        outcome: Outcome,
        started: Instant,
        workspace: &Workspace<K, V>,
    ) {
        let bytes = self.bytes_per_iteration(on);
        let report = &mut self.report;
        report.condition = lanczos::widest(report.condition, lanczos::condition(&workspace.lanczos));
        report.outcome = outcome;
        report.iterations = report.history.len().saturating_sub(1);
        report.bytes = bytes * report.iterations as u64;
        report.time = started.elapsed();
    }

    /// Drops the workspace, because an option has changed its size. The next solve allocates a new one.
    pub(crate) fn forget_workspace(&mut self) {
        (self.workspace, self.joint) = (None, None);
    }

    pub(crate) fn check_spaces(&self, Operators { a, m }: Operators<'_, V>, b: &V, x: &V) -> Result<()> {
        let (domain, range) = (a.domain(), a.range());
        if domain != range {
            return Err(Error::NotSquare { rows: range.len(), columns: domain.len() });
        }
        fits("`b`", b.space().len(), "`A`'s rows", range.len())?;
        fits("`x`", x.space().len(), "`A`'s columns", domain.len())?;
        fits("the preconditioner", m.domain().len(), "`A`", range.len())?;
        for (matches, what) in [
            (b.space() == range, "`b`"),
            (x.space() == domain, "`x`"),
            (m.domain() == range && m.range() == domain, "the preconditioner"),
            (self.null_space.as_ref().is_none_or(|null| null.space() == range), "the null space"),
        ] {
            if !matches {
                return Err(Error::Space { what, than: "`A`" });
            }
        }
        Ok(())
    }

    /// Memory traffic of one iteration in bytes, by a model: the arrays of the operators once per product,
    /// and the vectors.
    pub(crate) fn bytes_per_iteration(&self, on: Operators<'_, V>) -> u64 {
        let cost = self.method.cost();
        let vector = on.a.range().local_len() * size_of::<V::Elem>();
        // `cost.vectors` counts a diagonal M⁻¹ already
        let diagonal = matches!(on.m.form(), Form::Diagonal(_));
        let preconditioner = if diagonal { 0 } else { on.m.bytes() };
        let deflation = self.null_space.as_ref().map_or(0, NullSpace::vectors);
        (cost.products * on.a.bytes() as f64
            + cost.preconditionings * (preconditioner + deflation * vector) as f64
            + cost.vectors * vector as f64) as u64
    }
}

pub(crate) fn fits(what: &'static str, got: usize, of: &'static str, expected: usize) -> Result<()> {
    if got == expected { Ok(()) } else { Err(Error::Size { what, got, of, expected }) }
}
