//! The compute threads, in the process that first called krysp and in processes forked from it.
//!
//! Rayon's global pool belongs to the process that started it. A forked child inherits the pool but none of its threads, so work
//! that is sent to the pool would never run. In a child, long work therefore runs in a separate pool, and each thread that calls
//! krysp becomes the only thread of a pool of one, so that the work it runs itself never reaches the inherited pool.
//!
//! A GPU context cannot be used in a forked child at all.

#[cfg(feature = "cuda")]
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{Scope, ThreadPool, ThreadPoolBuilder};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Id of the process that uses Rayon's global pool; zero before the first call.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Id of the process that uses the GPU driver; zero before its first use.
#[cfg(feature = "cuda")]
static ON_GPU: AtomicU32 = AtomicU32::new(0);

/// The pool of a forked child, and the child's process id. The lock is taken only while the GIL is held; a thread that forks
/// holds the GIL, so the lock is free in the child.
static OWN: Mutex<Option<(u32, &'static ThreadPool)>> = Mutex::new(None);

/// Returns whether this process owns the resource whose owner is stored in `owner`. The first process that
/// calls this becomes the owner.
fn is_mine(owner: &AtomicU32) -> bool {
    let id = process::id();
    match owner.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == id,
    }
}

/// Prepares the calling thread. Every function that Python calls and that may compute calls this first.
pub(crate) fn enter() {
    if is_mine(&FIRST) || rayon::current_thread_index().is_some() {
        return;
    }
    // this cannot fail: no thread is started, and the current one belongs to no pool; the pool lasts as long as the thread
    if let Ok(pool) = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build() {
        std::mem::forget(pool);
    }
}

/// The threads for long work.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// Rayon's global pool.
    Global,
    /// The pool of a forked child.
    Own(&'static ThreadPool),
    /// The calling thread alone, in a child that cannot start threads.
    Caller,
}

impl Threads {
    pub(crate) fn new(_: Python<'_>) -> Threads {
        enter();
        if is_mine(&FIRST) {
            return Threads::Global;
        }
        let (id, mut own) = (process::id(), OWN.lock().unwrap_or_else(PoisonError::into_inner));
        match *own {
            Some((owner, pool)) if owner == id => Threads::Own(pool),
            // the current value of RAYON_NUM_THREADS applies; an inherited pool is leaked, as dropping it would wait for its
            // threads
            _ => match ThreadPoolBuilder::new().build() {
                Ok(pool) => {
                    let pool = Box::leak(Box::new(pool));
                    *own = Some((id, pool));
                    Threads::Own(pool)
                }
                Err(_) => Threads::Caller,
            },
        }
    }

    /// Runs work on one of the threads.
    pub(crate) fn run<R: Send>(self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Threads::Global => rayon::scope(|_| work()),
            Threads::Own(pool) => pool.install(work),
            Threads::Caller => work(),
        }
    }

    /// Runs `work` on the calling thread, and the tasks that it spawns on the pool.
    pub(crate) fn scope<'scope, R>(self, work: impl FnOnce(&Scope<'scope>) -> R) -> R {
        match self {
            Threads::Own(pool) => pool.in_place_scope(work),
            _ => rayon::in_place_scope(work),
        }
    }

    /// Returns whether there are threads other than the calling one.
    pub(crate) fn has_others(self) -> bool {
        !matches!(self, Threads::Caller)
    }
}

/// Returns an error in a child that was forked after its parent had used a GPU.
#[cfg(feature = "cuda")]
pub(crate) fn check_gpu() -> PyResult<()> {
    match ON_GPU.load(Ordering::Relaxed) {
        0 => Ok(()),
        owner if owner == process::id() => Ok(()),
        _ => Err(PyRuntimeError::new_err(
            "the GPU was used before this process was forked, and cannot be used in the forked process: start workers with \
             `multiprocessing.get_context(\"spawn\")`",
        )),
    }
}

/// Records that this process uses a GPU.
#[cfg(feature = "cuda")]
pub(crate) fn uses_gpu() {
    is_mine(&ON_GPU);
}
