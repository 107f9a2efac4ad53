//! Steps of a solve on several ranks.

use super::local::Local;
use super::scalar::RankScalar;
use super::vector::{RankSpace, RankVector};
use crate::Real;
use krysp_solvers::{Condition, Element, Ending, Error, Result, Scalar, Steps};
use std::collections::VecDeque;

/// Runs each step at once. What a step records may be a sum that is still to be added up: then the next step begins before
/// it is known, and the sum travels during that step's product.
///
/// A step that began too early, because the step before was the last, ends at its first watch, where the sum is known at
/// the latest, and changes nothing.
pub struct RankSteps<T: Real> {
    threshold_squared: f64,
    queued: VecDeque<Queued<T>>,
}

/// A step that has run, whose numbers the host may not know yet.
struct Queued<T> {
    numbers: Vec<RankScalar<T>>,
    known: Vec<f64>,
    has_residual: bool,
    failed: Option<(&'static str, f64)>,
}

impl<T: Real> Queued<T> {
    fn new() -> Self {
        Queued { numbers: vec![], known: vec![], has_residual: false, failed: None }
    }
}

/// One step may run before the numbers of the step before it are known.
const LAG: usize = 2;

/// How a step ends that began after the last.
const TOO_LATE: &str = "the residual of the step before";

impl<T: Real> RankSteps<T> {
    /// Records, within a step, numbers that are known already.
    pub(super) fn record_known(&mut self, numbers: &[T]) {
        if let Some(step) = self.queued.back_mut() {
            step.known.extend(numbers.iter().map(|&number| Element::to_f64(number)));
        }
    }

    fn note(&mut self, number: &RankScalar<T>) {
        if let Some(step) = self.queued.back_mut() {
            step.numbers.push(number.clone());
        }
    }

    fn is_last(&self, residual: &RankScalar<T>) -> Result<bool> {
        let squared = residual.read()?.to_f64();
        // A residual of NaN or infinity ends the solve, too.
        Ok(!(squared.is_finite() && squared > self.threshold_squared))
    }
}

impl<T: Real, L: Local<T>> Steps<RankVector<T, L>> for RankSteps<T> {
    const LAG: usize = LAG;

    fn new(_: &RankSpace<T, L>, _: usize) -> Result<Self> {
        Ok(RankSteps { threshold_squared: 0.0, queued: VecDeque::new() })
    }

    fn begin(&mut self, threshold_squared: f64) -> Result<()> {
        self.threshold_squared = threshold_squared;
        self.queued.clear();
        Ok(())
    }

    fn run(&mut self, _: usize, _: bool, step: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.queued.push_back(Queued::new());
        match step(self) {
            Err(Error::Breakdown { what: TOO_LATE, .. }) => {
                self.queued.pop_back();
            }
            Err(Error::Breakdown { what, value }) => {
                if let Some(step) = self.queued.back_mut() {
                    step.failed = Some((what, value));
                }
            }
            outcome => outcome?,
        }
        Ok(())
    }

    /// Steps whose numbers are known leave nothing to run ahead for.
    fn in_flight(&self) -> usize {
        let known = |step: &Queued<T>| step.numbers.iter().all(RankScalar::is_known);
        match self.queued.back() {
            Some(step) if known(step) => LAG.max(self.queued.len()),
            _ => self.queued.len(),
        }
    }

    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending> {
        numbers.clear();
        let Some(step) = self.queued.pop_front() else { return Ok(Ending::Known { last: true }) };
        if let Some((what, value)) = step.failed {
            return Ok(Ending::Failed { what, value });
        }
        for number in &step.numbers {
            numbers.push(number.read()?.to_f64());
        }
        numbers.extend(&step.known);
        let last = match step.numbers.first().filter(|_| step.has_residual) {
            Some(residual) => self.is_last(residual)?,
            None => false,
        };
        Ok(Ending::Known { last })
    }

    fn watch(&mut self, what: &'static str, value: &RankScalar<T>, must_be: Condition) -> Result<()> {
        if let [before, _] = self.queued.make_contiguous()
            && before.has_residual
            && let Some(residual) = before.numbers.first().cloned()
            && self.is_last(&residual)?
        {
            return Err(Error::Breakdown { what: TOO_LATE, value: residual.read()?.to_f64() });
        }
        let value = value.read()?.to_f64();
        if must_be.holds(value) { Ok(()) } else { Err(Error::Breakdown { what, value }) }
    }

    fn residual(&mut self, squared: &RankScalar<T>) -> Result<()> {
        if let Some(step) = self.queued.back_mut() {
            step.has_residual = true;
        }
        self.note(squared);
        Ok(())
    }

    fn record(&mut self, value: &RankScalar<T>) -> Result<()> {
        self.note(value);
        Ok(())
    }
}
