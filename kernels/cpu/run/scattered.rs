//! Software prefetching of scattered entries of `x`.
//!
//! The hardware prefetcher handles the nearby columns of mesh matrices, and a small `x` stays in cache. If
//! columns are scattered and `x` is large, every gather waits for memory unless `x` is prefetched some
//! entries ahead.

use crate::cpu::tuning::{JUMP, LOOK, LOOK_FROM};

/// Prefetch distance in entries, or zero for none: decided by the length of `x` and the columns of
/// neighbouring rows.
#[inline(always)]
pub(crate) fn look<T>(x: &[T], neighbours: impl Iterator<Item = u32>) -> usize {
    if size_of_val(x) < LOOK_FROM {
        return 0;
    }
    let (mut last, mut jumps, mut near) = (None, 0, 0);
    for column in neighbours {
        match last.replace(column) {
            Some(last) if column.abs_diff(last) > JUMP => jumps += 1,
            Some(_) => near += 1,
            None => {}
        }
    }
    if jumps > near { LOOK } else { 0 }
}
