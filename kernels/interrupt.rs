//! Cancellation and progress of long operations, such as a factorization or reading a file.
//!
//! A caller opens a [`Scope`] on the current thread. Long operations inside it begin a [`Phase`], which polls
//! the scope and reports its progress. Without a scope a phase costs one addition per call.
//!
//! Pool threads do not inherit the scope of the thread that spawned their tasks; they share its [`Phase`] by
//! reference.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Units of work between two polls of one thread. A unit is about one multiplication or one entry, so a poll
/// happens about every 100 µs.
const GRAIN: u64 = 1 << 16;

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Error of an operation whose scope was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Name of the interrupted phase.
    pub phase: &'static str,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.phase)
    }
}

impl std::error::Error for Interrupted {}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Name of the phase, for example "LU factorization".
    pub phase: &'static str,
    /// Work done, in units of the phase. Multifrontal factorizations count multiplications, factorizations by columns count columns.
    pub done: f64,
    /// Total work of the phase in the same units; zero if it is unknown.
    pub total: f64,
}

/// A cancellation condition for operations. Clones share it.
#[derive(Clone)]
pub struct Scope(Arc<State>);

struct State {
    is_raised: Box<dyn Fn() -> bool + Send + Sync>,
    latest: Mutex<Option<Progress>>,
    /// The scope that was current when this one was created.
    outer: Option<Scope>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("latest", &self.progress()).finish_non_exhaustive()
    }
}

/// Restores the previous scope of a thread on drop, also when the inner operation panics.
struct Restored(Option<Scope>);

impl Drop for Restored {
    fn drop(&mut self) {
        let outer = self.0.take();
        // fails only when the thread is ending and its local storage is gone
        let _ = CURRENT.try_with(|current| current.replace(outer));
    }
}

impl Scope {
    /// Creates a scope that is interrupted once `is_raised` returns true or the enclosing scope of the
    /// current thread is interrupted.
    pub fn new(is_raised: impl Fn() -> bool + Send + Sync + 'static) -> Scope {
        Scope(Arc::new(State {
            is_raised: Box::new(is_raised),
            latest: Mutex::default(),
            outer: Scope::current(),
        }))
    }

    /// Runs an operation inside the scope, on the current thread.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _restored = Restored(CURRENT.with(|current| current.replace(Some(self.clone()))));
        work()
    }

    /// Scope of the current thread.
    pub fn current() -> Option<Scope> {
        CURRENT.with(|current| current.borrow().clone())
    }

    /// Returns whether operations inside the scope should stop.
    pub fn is_raised(&self) -> bool {
        (self.0.is_raised)() || self.0.outer.as_ref().is_some_and(Scope::is_raised)
    }

    /// Progress of the phase that reported last.
    pub fn progress(&self) -> Option<Progress> {
        *self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, progress: Option<Progress>) {
        *self.0.latest.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        if let Some(outer) = &self.0.outer {
            outer.report(progress);
        }
    }
}

/// Returns whether the scope of the current thread is interrupted; false outside of any scope.
pub fn is_raised() -> bool {
    CURRENT.with(|current| current.borrow().as_ref().is_some_and(Scope::is_raised))
}

/// Returns an error if the scope of the current thread is interrupted. Meant for short steps between longer
/// phases.
pub fn check(phase: &'static str) -> Result<(), Interrupted> {
    if is_raised() { Err(Interrupted { phase }) } else { Ok(()) }
}

/// A phase of a long operation inside the scope of the thread that began it. Threads share it by reference.
#[derive(Debug)]
pub struct Phase {
    name: &'static str,
    total: f64,
    done: AtomicU64,
    scope: Option<Scope>,
}

impl Phase {
    /// Begins a phase of `total` units of work; zero if that is unknown.
    pub fn new(name: &'static str, total: f64) -> Phase {
        let phase = Phase { name, total, done: AtomicU64::new(0), scope: Scope::current() };
        phase.report(0);
        phase
    }

    /// Adds completed work; returns an error if the scope was interrupted.
    pub fn advance(&self, work: u64) -> Result<(), Interrupted> {
        let Some(scope) = &self.scope else { return Ok(()) };
        self.report(self.done.fetch_add(work, Ordering::Relaxed) + work);
        if scope.is_raised() { Err(Interrupted { phase: self.name }) } else { Ok(()) }
    }

    /// Returns an error if the scope was interrupted.
    pub fn check(&self) -> Result<(), Interrupted> {
        self.advance(0)
    }

    /// Returns whether the scope was interrupted. Parallel loops that cannot return an error skip their remaining
    /// work, and their caller checks.
    pub fn is_raised(&self) -> bool {
        self.check().is_err()
    }

    /// Creates a counter for the work of one thread, which polls the scope only after every 65,536 units.
    pub fn counter(&self) -> Counter<'_> {
        Counter { phase: self, pending: 0 }
    }

    fn report(&self, done: u64) {
        if let Some(scope) = &self.scope {
            scope.report(Some(Progress { phase: self.name, done: done as f64, total: self.total }));
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        if let Some(scope) = &self.scope {
            scope.report(None);
        }
    }
}

/// The work of one thread in a [`Phase`].
#[derive(Debug)]
pub struct Counter<'a> {
    phase: &'a Phase,
    pending: u64,
}

impl Counter<'_> {
    /// Adds completed work. Polls the scope after every 65,536 units and returns an error if it was
    /// interrupted.
    #[inline(always)]
    pub fn add(&mut self, work: usize) -> Result<(), Interrupted> {
        self.pending += work as u64 + 1;
        if self.pending < GRAIN { Ok(()) } else { self.flush() }
    }

    #[cold]
    fn flush(&mut self) -> Result<(), Interrupted> {
        self.phase.advance(std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A scope that is interrupted at the poll with this number, and the count of polls.
    fn after(polls: usize) -> (Scope, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        (Scope::new(move || seen.fetch_add(1, Ordering::Relaxed) >= polls), count)
    }

    #[test]
    fn work_ends_at_the_poll_that_interrupts_it() {
        let (scope, count) = after(3);
        let ended = scope.run(|| {
            let phase = Phase::new("test", 0.0);
            let mut counter = phase.counter();
            (0..u64::MAX).find_map(|at| counter.add(GRAIN as usize / 2).err().map(|error| (at, error)))
        });
        let (at, error) = ended.unwrap();
        assert_eq!((at, error), (7, Interrupted { phase: "test" }));
        assert_eq!(count.load(Ordering::Relaxed), 4);
        assert!(Scope::current().is_none() && check("outside").is_ok());
    }

    #[test]
    fn an_outer_scope_interrupts_and_sees_the_inner_one() {
        let (outer, _) = after(0);
        outer.run(|| {
            let inner = Scope::new(|| false);
            inner.run(|| {
                let phase = Phase::new("inner", 10.0);
                assert!(phase.advance(4).is_err() && phase.is_raised());
                let expected = Some(Progress { phase: "inner", done: 4.0, total: 10.0 });
                assert_eq!((inner.progress(), outer.progress()), (expected, expected));
            });
            assert_eq!(outer.progress(), None);
        });
    }

    #[test]
    fn a_panic_inside_leaves_the_thread_without_the_scope() {
        let scope = Scope::new(|| true);
        let caught =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scope.run(|| panic!("inside"))));
        assert!(caught.is_err() && Scope::current().is_none());
    }

    #[test]
    fn threads_share_the_phase_of_the_one_that_began_it() {
        let (scope, _) = after(100);
        let errors = scope.run(|| {
            let phase = Phase::new("shared", 0.0);
            std::thread::scope(|threads| {
                let run = || (0..1000).find_map(|_| phase.counter().add(GRAIN as usize).err());
                let both = [threads.spawn(run), threads.spawn(run)];
                both.map(|thread| thread.join().unwrap().is_some())
            })
        });
        assert_eq!(errors, [true, true]);
    }
}
