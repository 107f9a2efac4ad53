//! Workspaces that operators keep from one application to the next.

use crate::Result;
use std::sync::{Mutex, TryLockError};

/// Calls `work` with the kept workspace, or with one from `new` if another application is using it.
///
/// Waiting for the workspace could deadlock: a Rayon worker that holds it may begin another application of
/// the same operator while it waits for other threads. `work` must accept a workspace with any content.
///
/// ```
/// use krysp_solvers::with_workspace;
/// use std::sync::Mutex;
///
/// let kept = Mutex::new(vec![0.0; 3]);
/// let new = || Ok(vec![0.0; 3]);
/// // the inner call gets a workspace from `new`
/// with_workspace(&kept, new, |_| with_workspace(&kept, new, |workspace| Ok(workspace[0] = 1.0)))?;
/// assert_eq!(kept.into_inner().unwrap(), [0.0; 3]);
/// # Ok::<(), krysp_solvers::Error>(())
/// ```
pub fn with_workspace<W, R>(
    kept: &Mutex<W>,
    new: impl FnOnce() -> Result<W>,
    work: impl FnOnce(&mut W) -> Result<R>,
) -> Result<R> {
    match kept.try_lock() {
        Ok(mut workspace) => work(&mut workspace),
        Err(TryLockError::Poisoned(workspace)) => work(&mut workspace.into_inner()),
        Err(TryLockError::WouldBlock) => work(&mut new()?),
    }
}
