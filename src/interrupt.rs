//! Interruption of long work, in every phase of it.

use crate::CancelToken;
use krysp_kernels::interrupt::Scope;
pub use krysp_kernels::interrupt::{Interrupted, Progress as PhaseProgress};
use std::time::{Duration, Instant};

/// Interrupts whatever runs inside it: reading, orderings, factorizations, the setup of preconditioners, solves.
///
/// Work inside [`run`](Interrupt::run) polls the token and the time limit, as a rule several times in 0.2 s. Constructors then return
/// [`Error::Interrupted`](crate::Error::Interrupted), and solves end with the best `x` so far. A single call into a driver, such as
/// compiling a GPU kernel, is not interrupted. [`progress`](Interrupt::progress) shows another thread how far the work is.
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
/// The scope belongs to the thread that calls `run`. Threads of the library that work for it obey it, too.
#[derive(Clone, Debug)]
#[doc(alias = "timeout")]
#[doc(alias = "cancel")]
pub struct Interrupt {
    token: CancelToken,
    scope: Scope,
}

impl Interrupt {
    /// Work inside ends when another thread cancels the token, or when a scope around this one is interrupted.
    pub fn new(token: &CancelToken) -> Interrupt {
        let cancelled = token.clone();
        Interrupt { token: token.clone(), scope: Scope::new(move || cancelled.is_cancelled()) }
    }

    /// Work inside ends so much time from now, too.
    pub fn time_limit(self, limit: Duration) -> Interrupt {
        let token = self.token.clone();
        // a limit beyond what the clock can represent is none
        let Some(deadline) = Instant::now().checked_add(limit) else { return self };
        let scope = Scope::new(move || token.is_cancelled() || Instant::now() >= deadline);
        Interrupt { token: self.token, scope }
    }

    /// Runs work that this interrupts, on the current thread.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        self.scope.run(work)
    }

    /// Whether the work inside should end.
    pub fn is_raised(&self) -> bool {
        self.scope.is_raised()
    }

    /// The phase that the work is in, and what it has done; `None` between phases that report.
    pub fn progress(&self) -> Option<PhaseProgress> {
        self.scope.progress()
    }
}
