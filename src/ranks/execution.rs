//! Execution of the steps (iterations) of a solve on several ranks.

use super::local::{Link, Local, RankMemory};
use super::scalar::RankScalar;
use super::steps::{Joined, Queued, RankSteps};
use super::vector::{RankSpace, RankVector};
use crate::numbers::Real;
use krysp_solvers::{Condition, Ending, Error, Result, Scalar, Space, Steps, StepsOf};
use std::collections::VecDeque;

/// Maximum number of steps in flight: one step may run before the numbers of the preceding step are known.
/// All ranks must have the same number of steps in flight, also on GPUs, no matter how long their steps take.
const LAG: usize = 2;

/// Name of the quantity in the error by which `watch` ends a step that began after the last step of a run.
const TOO_LATE: &str = "the residual of the step before";

impl<T: Real, L: Local<T>> Steps<RankVector<T, L>> for RankSteps<T, L> {
    const LAG: usize = LAG;

    fn new(space: &RankSpace<T, L>, numbers: usize) -> Result<Self> {
        let joined = |link: &<L as RankMemory<T>>::Link| -> Result<_> {
            let steps = StepsOf::<L::Vector>::new(space.own(), numbers)?;
            // synchronize the ranks, whose preceding work may have taken different times: waits of GPUs with
            // peer access time out
            space.agree(0)?;
            Ok(Joined { steps, link: link.clone(), replays: false })
        };
        let joined = space.link().map(joined).transpose()?;
        Ok(RankSteps { threshold_squared: 0.0, queued: VecDeque::new(), joined })
    }

    fn begin(&mut self, threshold_squared: f64) -> Result<()> {
        if let Some(steps) = self.of_gpu() {
            return steps.begin(threshold_squared);
        }
        self.threshold_squared = threshold_squared;
        self.queued.clear();
        Ok(())
    }

    fn discard_recordings(&mut self) {
        self.of_gpu().into_iter().for_each(Steps::discard_recordings);
    }

    fn run(
        &mut self,
        place: usize,
        replays: bool,
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if let Some(joined) = &mut self.joined {
            joined.replays = replays;
            let mut queue = L::begin_step(&mut joined.steps, place, replays)?;
            while queue {
                let outcome = step(self);
                let Some(steps) = self.of_gpu() else { break };
                queue = L::end_step(steps, outcome.is_ok())?;
                outcome?;
            }
            return Ok(());
        }
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

    /// If all numbers are known, running ahead has no advantage, so the queue is reported as full.
    fn in_flight(&self) -> usize {
        if let Some(Joined { steps, replays, .. }) = &self.joined {
            let queued = steps.in_flight();
            return if *replays || queued == 0 { queued } else { LAG.max(queued) };
        }
        let known = |step: &Queued<T, L>| step.numbers.iter().all(RankScalar::is_known);
        match self.queued.back() {
            Some(step) if known(step) => LAG.max(self.queued.len()),
            _ => self.queued.len(),
        }
    }

    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending> {
        if let Some(Joined { steps, link, .. }) = &mut self.joined {
            let ending = steps.next(numbers);
            link.check()?;
            return ending;
        }
        numbers.clear();
        let Some(step) = self.queued.pop_front() else { return Ok(Ending::Completed { last: true }) };
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
        Ok(Ending::Completed { last })
    }

    fn watch(&mut self, what: &'static str, value: &RankScalar<T, L>, must_be: Condition) -> Result<()> {
        if let Some(steps) = self.of_gpu() {
            return steps.watch(what, &value.local(), must_be);
        }
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

    fn residual(&mut self, squared: &RankScalar<T, L>) -> Result<()> {
        if let Some(steps) = self.of_gpu() {
            return steps.residual(&squared.local());
        }
        if let Some(step) = self.queued.back_mut() {
            step.has_residual = true;
        }
        self.note(squared);
        Ok(())
    }

    fn record(&mut self, value: &RankScalar<T, L>) -> Result<()> {
        if let Some(steps) = self.of_gpu() {
            return steps.record(&value.local());
        }
        self.note(value);
        Ok(())
    }
}
