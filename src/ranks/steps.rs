//! State of the steps (iterations) of a solve on several ranks, which `execution` runs.

use super::local::{Local, RankMemory};
use super::scalar::RankScalar;
use crate::host::Host;
use crate::numbers::Real;
use krysp_solvers::{Element, Result, Scalar, StepsOf};
use std::collections::VecDeque;

/// Runs each step immediately. A step may record a sum that is not known yet: the next step then begins
/// before the sum is known, and the communication of the sum overlaps with the product of the next step.
///
/// If the preceding step turns out to be the last one, the step that was begun early ends at its first call
/// of `watch`, when the sum is known, and changes nothing.
///
/// GPUs with peer access run steps like a single GPU: steps are enqueued ahead of the hosts, and recorded as
/// graphs if they can be replayed.
pub struct RankSteps<T: Real, L: Local<T> = Host> {
    pub(super) threshold_squared: f64,
    pub(super) queued: VecDeque<Queued<T, L>>,
    pub(super) joined: Option<Joined<T, L>>,
}

/// The steps of this rank's GPU, for GPUs with peer access.
pub(super) struct Joined<T: Real, L: Local<T>> {
    pub(super) steps: StepsOf<L::Vector>,
    pub(super) link: <L as RankMemory<T>>::Link,
    /// True if the last step could be replayed, so that the hosts do not wait within steps.
    pub(super) replays: bool,
}

/// A step that has run, whose numbers may not be known to the host yet.
pub(super) struct Queued<T: Real, L: Local<T>> {
    pub(super) numbers: Vec<RankScalar<T, L>>,
    pub(super) known: Vec<f64>,
    pub(super) has_residual: bool,
    pub(super) failed: Option<(&'static str, f64)>,
}

impl<T: Real, L: Local<T>> Queued<T, L> {
    pub(super) fn new() -> Self {
        Queued { numbers: vec![], known: vec![], has_residual: false, failed: None }
    }
}

impl<T: Real, L: Local<T>> RankSteps<T, L> {
    /// The steps of this rank's GPU, if the GPUs communicate peer to peer.
    pub(super) fn of_gpu(&mut self) -> Option<&mut StepsOf<L::Vector>> {
        self.joined.as_mut().map(|joined| &mut joined.steps)
    }

    /// Records numbers that are already known, within a step.
    pub(super) fn record_known(&mut self, numbers: &[T]) {
        if let Some(step) = self.queued.back_mut() {
            step.known.extend(numbers.iter().map(|&number| Element::to_f64(number)));
        }
    }

    pub(super) fn note(&mut self, number: &RankScalar<T, L>) {
        if let Some(step) = self.queued.back_mut() {
            step.numbers.push(number.clone());
        }
    }

    pub(super) fn is_last(&self, residual: &RankScalar<T, L>) -> Result<bool> {
        let squared = residual.read()?.to_f64();
        // a residual of NaN or infinity ends the solve, too
        Ok(!(squared.is_finite() && squared > self.threshold_squared))
    }
}
