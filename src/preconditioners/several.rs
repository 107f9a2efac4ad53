//! Preconditioners that are applied to several vectors at once.

use crate::host::HostVector;
use crate::memory::check_free_memory;
use crate::numbers::Real;
use krysp_solvers::{LinearOperator, MultiVector, Result, check_spaces, with_workspace};
use rayon::prelude::*;
use std::sync::Mutex;

/// Maximum number of vectors of a group: with this many, the entries of the vectors that a large frontal
/// matrix reads stay in the L2 cache (guess).
const TOGETHER: usize = 8;

/// A right-hand side, and the vector that receives its solution.
pub(super) type Pair<'p, T> = (&'p HostVector<T>, &'p mut HostVector<T>);

/// Returns the open columns of `r` and `z`, those whose solve has not ended, or an error if they are not in
/// the space of `m`.
pub(super) fn checked_pairs<'p, T: Real>(
    m: &impl LinearOperator<Vector = HostVector<T>>,
    r: &'p MultiVector<HostVector<T>>,
    z: &'p mut MultiVector<HostVector<T>>,
) -> Result<Vec<Pair<'p, T>>> {
    let pairs: Vec<Pair<'p, T>> = MultiVector::open_pairs(r, z)?.collect();
    pairs.iter().try_for_each(|(r, z)| check_spaces(m, r, z))?;
    Ok(pairs)
}

/// Solves for one vector, with the workspace that `m` keeps. `solve` must accept a workspace with any content.
pub(super) fn alone<T: Real, W: Default>(
    m: &impl LinearOperator<Vector = HostVector<T>>,
    kept: &Mutex<W>,
    (r, z): Pair<'_, T>,
    solve: impl FnOnce(&mut [Pair<'_, T>], &mut W),
) -> Result<()> {
    check_spaces(m, r, z)?;
    let new = || Ok(W::default());
    with_workspace(kept, new, |workspace| {
        solve(&mut [(r, z)], workspace);
        Ok(())
    })
}

/// Solves for the open columns of `r` in groups, in parallel. `solve` must accept a workspace with any content,
/// which it may grow to `numbers` for each right-hand side.
pub(super) fn in_groups<T: Real, W: Default>(
    m: &impl LinearOperator<Vector = HostVector<T>>,
    r: &MultiVector<HostVector<T>>,
    z: &mut MultiVector<HostVector<T>>,
    numbers: usize,
    solve: impl Fn(&mut [Pair<'_, T>], &mut W) + Sync,
) -> Result<()> {
    let mut pairs = checked_pairs(m, r, z)?;
    let threads = rayon::current_num_threads();
    let group = pairs.len().div_ceil(threads).clamp(1, TOGETHER);
    let vectors = pairs.len().min(threads * group);
    check_free_memory(
        "the workspace of solves with several vectors",
        (vectors as u128) * (numbers as u128) * size_of::<T>() as u128,
    )?;
    pairs.par_chunks_mut(group).for_each(|group| solve(group, &mut W::default()));
    Ok(())
}
