//! Interruption of long work in all its phases.

use krysp_kernels::interrupt::Scope;
pub use krysp_kernels::interrupt::{Interrupted, Progress as PhaseProgress};
use krysp_solvers::CancelToken;
use std::time::{Duration, Instant};

/// A scope that can be interrupted: reading, orderings, factorizations, the setup of preconditioners, solves.
///
/// Work inside [`run`](Interrupt::run) polls the token and the time limit, usually several times in 0.2 s.
/// After an interruption, constructors return [`Error::Interrupted`](crate::Error::Interrupted), and solves
/// end with the best `x` so far. A single call into a driver, such as compiling a GPU kernel, is not
/// interrupted. [`progress`](Interrupt::progress) reports the progress of the work to other threads.
///
/// ```
/// use krysp::{CancelToken, Csr, Error, Interrupt, Lu};
/// use std::time::Duration;
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0)])?;
/// let token = CancelToken::new();
/// let interrupt = Interrupt::new(&token).time_limit(Duration::from_secs(60));
/// let lu = interrupt.run(|| Lu::new(&a))?;
/// assert_eq!(lu.nnz(), 3);
///
/// token.cancel(); // from a handler of Ctrl-C, for example
/// assert!(matches!(interrupt.run(|| Lu::new(&a)), Err(Error::Interrupted(_))));
/// # Ok::<(), krysp::Error>(())
/// ```
///
/// The scope belongs to the thread that calls `run`, and extends to the threads of the library that work for it.
#[derive(Clone, Debug)]
#[doc(alias = "timeout")]
#[doc(alias = "cancel")]
pub struct Interrupt {
    token: CancelToken,
    scope: Scope,
}

impl Interrupt {
    /// A scope whose work ends when another thread cancels the token, or when an enclosing scope is interrupted.
    pub fn new(token: &CancelToken) -> Interrupt {
        let cancelled = token.clone();
        Interrupt { token: token.clone(), scope: Scope::new(move || cancelled.is_cancelled()) }
    }

    /// Sets the time limit, which counts from this call.
    pub fn time_limit(self, limit: Duration) -> Interrupt {
        let token = self.token.clone();
        // no limit if the clock cannot represent the deadline
        let Some(deadline) = Instant::now().checked_add(limit) else { return self };
        let scope = Scope::new(move || token.is_cancelled() || Instant::now() >= deadline);
        Interrupt { token: self.token, scope }
    }

    /// Runs work inside the scope, on the current thread.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.scope.run(work)
    }

    /// Returns whether the work in the scope should end.
    pub fn is_raised(&self) -> bool {
        self.scope.is_raised()
    }

    /// The current phase of the work and its progress; `None` if no phase that reports progress is running.
    pub fn progress(&self) -> Option<PhaseProgress> {
        self.scope.progress()
    }
}
