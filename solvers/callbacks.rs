//! Functions of the user that a solver calls after each iteration.

use crate::{Progress, Result, Space, Vector};

/// A function that receives the progress of each iteration.
type Observer = Box<dyn FnMut(&Progress) + Send>;
/// A function that receives the progress of an iteration or a cycle, and the iterate.
type IterateObserver<V> = Box<dyn FnMut(&Progress, &V) + Send>;
/// A function that receives the progress of each iteration and returns whether to stop.
type StopRule = Box<dyn FnMut(&Progress) -> bool + Send>;

/// Observers and stop rules, each in the order in which it was added.
pub(crate) struct Callbacks<V> {
    pub(crate) observers: Vec<Observer>,
    pub(crate) iterate_observers: Vec<IterateObserver<V>>,
    /// Rules of [`Solver::stop_when`](crate::Solver::stop_when).
    pub(crate) stop_rules: Vec<StopRule>,
    /// Rules of [`Solver::stop_soon_when`](crate::Solver::stop_soon_when).
    pub(crate) late_rules: Vec<StopRule>,
}

/// Result of the stop rules after an iteration.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Request {
    /// No rule returned true.
    Continue,
    /// A rule of `stop_soon_when` returned true.
    StopSoon,
    /// A rule of `stop_when` returned true.
    Stop,
}

impl<V> Callbacks<V> {
    pub(crate) fn new() -> Self {
        Callbacks { observers: vec![], iterate_observers: vec![], stop_rules: vec![], late_rules: vec![] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.observers.is_empty() && self.late_rules.is_empty() && !self.need_single_steps()
    }

    /// Returns whether iterations must not share a launch: a rule of `stop_when` may end the solve after any
    /// iteration, and an observer of iterates needs every `x`.
    pub(crate) fn need_single_steps(&self) -> bool {
        !self.stop_rules.is_empty() || !self.iterate_observers.is_empty()
    }

    pub(crate) fn observe(&mut self, progress: &Progress) {
        self.observers.iter_mut().for_each(|observer| observer(progress));
    }

    pub(crate) fn observe_iterate(&mut self, progress: &Progress, x: &V) {
        self.iterate_observers.iter_mut().for_each(|observer| observer(progress, x));
    }
}

impl<V: Vector> Callbacks<V> {
    /// Calls all stop rules. All processes that share the vectors get the strongest request of any of them.
    pub(crate) fn request(&mut self, progress: &Progress, space: &V::Space) -> Result<Request> {
        if self.stop_rules.is_empty() && self.late_rules.is_empty() {
            return Ok(Request::Continue);
        }
        let asks =
            |rules: &mut Vec<StopRule>| rules.iter_mut().fold(false, |asks, rule| asks | rule(progress));
        let (stop, soon) = (asks(&mut self.stop_rules), asks(&mut self.late_rules));
        Ok(match space.agree(if stop { 2 } else { soon.into() })? {
            0 => Request::Continue,
            1 => Request::StopSoon,
            _ => Request::Stop,
        })
    }
}
