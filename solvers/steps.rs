//! Execution of steps, and readback of the numbers that they compute.
//!
//! In host memory a step is complete when `run` returns. On a GPU steps are queued before the host reads the
//! results of earlier ones, and may be recorded once and replayed. So a step makes no decision on the host,
//! and reports results only by recording numbers.

use crate::{ElemOf, Element, Error, Form, LinearOperator, Result, Scalar, ScalarOf, Space, SpaceOf, Vector};
use std::marker::PhantomData;

/// Minimum size of an operator and its preconditioner, divided by the size of a vector, for solving in
/// lockstep. Time of eight solves in lockstep, relative to eight separate ones (CG with Jacobi, 16 threads of
/// a Xeon): 1.25 for size 7 (7 diagonals, 128³ nodes), 0.70 for 22 (tetrahedra), 0.43 for 78 (3 x 3 blocks).
const LEAST_VECTORS: usize = 8;

/// Condition on a watched number. A number that is not finite violates every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Neither infinite nor NaN.
    Finite,
    /// Finite and not zero.
    NonZero,
    /// Finite and above zero.
    Positive,
}

impl Condition {
    /// Returns whether `value` meets the condition.
    pub fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Condition::Finite => true,
                Condition::NonZero => value != 0.0,
                Condition::Positive => value > 0.0,
            }
    }
}

/// Ending of a step: it was completed, or a watched number failed its condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// The step is complete, and its numbers are recorded.
    Completed {
        /// True if this is the last step: its residual meets the threshold or is not finite. Later
        /// steps change nothing.
        last: bool,
    },
    /// A watched number failed its condition. The step ended before it changed the solution, and later steps
    /// change nothing.
    Failed {
        /// The name of the number.
        what: &'static str,
        /// The value of the number.
        value: f64,
    },
}

/// Runs the steps of one solve at a time.
pub trait Steps<V: Vector>: Sized + Send {
    /// Maximum number of queued steps whose results the host has not read back yet.
    const LAG: usize;

    /// Like [`Steps::LAG`], for steps that move this many bytes: long steps need no long queue to hide the
    /// latency of the host, and steps queued after the last one are wasted work.
    fn lag(&self, _bytes: u64) -> usize {
        Self::LAG
    }

    /// Returns whether lockstep, in which the host waits for every step, is faster than separate solves for several
    /// right-hand sides.
    fn lockstep_pays(
        a: &dyn LinearOperator<Vector = V>,
        m: &dyn LinearOperator<Vector = V>,
        _columns: usize,
    ) -> bool {
        // The shared reads of both operators must outweigh additional cache misses: vectors of one column
        // stay in cache longer. A diagonal is applied with the update of each column, so its reads are not
        // shared.
        let vector = a.range().local_len() * size_of::<ElemOf<V>>();
        let preconditioner = if matches!(m.form(), Form::General) { m.bytes() } else { 0 };
        Self::LAG == 1 && (a.bytes() == 0 || a.bytes() + preconditioner >= LEAST_VECTORS * vector)
    }

    /// Prepares for steps that record at most this many numbers.
    fn new(space: &SpaceOf<V>, numbers: usize) -> Result<Self>;

    /// Begins a solve or a restart. Discards queued steps.
    fn begin(&mut self, threshold_squared: f64) -> Result<()>;

    /// Drops recorded steps, because the next steps may work on other vectors.
    fn discard_recordings(&mut self) {}

    /// Runs or queues one step. `place` is its index in the method's cycle or period. If `replays` is set,
    /// the step queues the same work every time.
    fn run(
        &mut self,
        place: usize,
        replays: bool,
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()>;

    /// Number of queued steps whose results the host has not read back yet.
    fn in_flight(&self) -> usize;

    /// Waits for the oldest queued step and returns the numbers that it recorded.
    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending>;

    /// Within a step: ends the step before the solution changes, if the number violates the condition.
    fn watch(&mut self, what: &'static str, value: &ScalarOf<V>, must_be: Condition) -> Result<()>;

    /// Within a step: records `‖r‖²`, before any other number. The solve ends if `‖r‖²` meets the threshold.
    fn residual(&mut self, squared: &ScalarOf<V>) -> Result<()>;

    /// Within a step: records a number.
    fn record(&mut self, value: &ScalarOf<V>) -> Result<()>;

    /// Queues up to `count` iterations of conjugate gradients as one launch, if the hardware has a kernel
    /// that keeps such a system on the chip. Returns the number of iterations queued, 0 without such a
    /// kernel.
    fn conjugate_gradients(&mut self, _iterate: CgIterate<'_, V>, _count: usize) -> Result<usize> {
        Ok(0)
    }
}

/// The state of conjugate gradients between two steps, for [`Steps::conjugate_gradients`].
pub struct CgIterate<'s, V: Vector> {
    /// The operator.
    pub a: Form<'s, V>,
    /// The preconditioner, which applies `M⁻¹`.
    pub m: Form<'s, V>,
    /// The solution.
    pub x: &'s mut V,
    /// The residual.
    pub r: &'s mut V,
    /// The direction.
    pub p: &'s mut V,
    /// The preconditioned residual.
    pub z: &'s mut V,
    /// `⟨r, z⟩`
    pub rho: &'s ScalarOf<V>,
    /// The names of `⟨r, z⟩` and `⟨p, A p⟩`, which must stay positive.
    pub watched: [&'static str; 2],
}

/// Runs each step immediately: the steps of host memory.
#[derive(Debug)]
pub struct Immediate<V> {
    threshold_squared: f64,
    numbers: Vec<f64>,
    ending: Option<Ending>,
    vector: PhantomData<fn() -> V>,
}

impl<V> Immediate<V> {
    /// Within a step: records numbers that already are in host memory.
    pub fn record_known<T: Element>(&mut self, numbers: &[T]) {
        self.numbers.extend(numbers.iter().map(|number| number.to_f64()));
    }
}

impl<V: Vector> Steps<V> for Immediate<V> {
    const LAG: usize = 1;

    fn new(_: &SpaceOf<V>, numbers: usize) -> Result<Self> {
        let numbers = Vec::with_capacity(numbers);
        Ok(Immediate { threshold_squared: 0.0, numbers, ending: None, vector: PhantomData })
    }

    fn begin(&mut self, threshold_squared: f64) -> Result<()> {
        (self.threshold_squared, self.ending) = (threshold_squared, None);
        Ok(())
    }

    fn run(&mut self, _: usize, _: bool, step: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.numbers.clear();
        self.ending = Some(Ending::Completed { last: false });
        match step(self) {
            Err(Error::Breakdown { what, value }) => self.ending = Some(Ending::Failed { what, value }),
            outcome => outcome?,
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.ending.is_some().into()
    }

    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending> {
        numbers.clone_from(&self.numbers);
        Ok(self.ending.take().unwrap_or(Ending::Completed { last: true }))
    }

    fn watch(&mut self, what: &'static str, value: &ScalarOf<V>, must_be: Condition) -> Result<()> {
        let value = value.read()?.to_f64();
        if must_be.holds(value) { Ok(()) } else { Err(Error::Breakdown { what, value }) }
    }

    fn residual(&mut self, squared: &ScalarOf<V>) -> Result<()> {
        let squared = squared.read()?.to_f64();
        // an infinite or NaN residual ends the solve too
        let continues = squared.is_finite() && squared > self.threshold_squared;
        self.ending = Some(Ending::Completed { last: !continues });
        self.numbers.push(squared);
        Ok(())
    }

    fn record(&mut self, value: &ScalarOf<V>) -> Result<()> {
        self.numbers.push(value.read()?.to_f64());
        Ok(())
    }
}
