//! How steps are run, and how the host learns what they computed.
//!
//! In host memory a step is done when it returns. Elsewhere it is queued, some steps ahead of what the host knows, and
//! may be recorded once and replayed: a step therefore takes no decision on the host, and tells what it computed by
//! recording it.

use crate::{Element, Error, Form, Result, Scalar, ScalarOf, SpaceOf, Vector};
use std::marker::PhantomData;

/// What a watched number must be. A number that is not finite fails every condition.
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
    /// Whether `value` is what it must be.
    pub fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Condition::Finite => true,
                Condition::NonZero => value != 0.0,
                Condition::Positive => value > 0.0,
            }
    }
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// It recorded its numbers.
    Known {
        /// Whether its residual met the threshold, or is not finite: no later step changes anything.
        last: bool,
    },
    /// A watched number was not what it must be; the step ended before it changed the solution, and no later step
    /// changes anything.
    Failed {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Runs the steps of a solve, one solve at a time.
pub trait Steps<V: Vector>: Sized + Send {
    /// How many steps may be queued that are not known yet.
    const LAG: usize;

    /// For steps that record so many numbers at most.
    fn new(space: &SpaceOf<V>, numbers: usize) -> Result<Self>;

    /// Begins anew, after a solve or after a restart: steps still on their way are forgotten.
    fn begin(&mut self, threshold_squared: f64) -> Result<()>;

    /// The vectors of the next steps may be others.
    fn forget(&mut self) {}

    /// Runs or queues one more step, the one at a place in the method's cycle. It does the same every time if it
    /// `replays`.
    fn run(
        &mut self,
        place: usize,
        replays: bool,
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()>;

    /// Steps queued that are not known yet.
    fn in_flight(&self) -> usize;

    /// Waits for the oldest step that is not known yet, and gives the numbers that it recorded.
    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending>;

    /// Within a step: ends it, before the solution is touched, if the number is not what it must be.
    fn watch(&mut self, what: &'static str, value: &ScalarOf<V>, must_be: Condition) -> Result<()>;

    /// Within a step: records `‖r‖²`, which ends the solve where it meets the threshold. Comes first, if at all.
    fn residual(&mut self, squared: &ScalarOf<V>) -> Result<()>;

    /// Within a step: records a number.
    fn record(&mut self, value: &ScalarOf<V>) -> Result<()>;

    /// Queues up to `count` iterations of conjugate gradients in one piece, where the hardware has a kernel that keeps such a
    /// system on the chip; says how many, 0 where it has none.
    fn conjugate_gradients(&mut self, _iterate: CgIterate<'_, V>, _count: usize) -> Result<usize> {
        Ok(0)
    }
}

/// Conjugate gradients between two steps: what [`Steps::conjugate_gradients`] reads, and what it changes.
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

/// Steps that are done when they return: those of host memory.
#[derive(Debug)]
pub struct Immediate<V> {
    threshold_squared: f64,
    numbers: Vec<f64>,
    ending: Option<Ending>,
    vector: PhantomData<fn() -> V>,
}

impl<V> Immediate<V> {
    /// Within a step: records numbers that the host has already.
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
        self.ending = Some(Ending::Known { last: false });
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
        Ok(self.ending.take().unwrap_or(Ending::Known { last: true }))
    }

    fn watch(&mut self, what: &'static str, value: &ScalarOf<V>, must_be: Condition) -> Result<()> {
        let value = value.read()?.to_f64();
        if must_be.holds(value) { Ok(()) } else { Err(Error::Breakdown { what, value }) }
    }

    fn residual(&mut self, squared: &ScalarOf<V>) -> Result<()> {
        let squared = squared.read()?.to_f64();
        // NaN meets no threshold, and ends the solve as well
        let goes_on = squared.is_finite() && squared > self.threshold_squared;
        self.ending = Some(Ending::Known { last: !goes_on });
        self.numbers.push(squared);
        Ok(())
    }

    fn record(&mut self, value: &ScalarOf<V>) -> Result<()> {
        self.numbers.push(value.read()?.to_f64());
        Ok(())
    }
}
