//! When entries of `x` are asked for before their turn.
//!
//! Hardware foresees columns of meshes, and what `x` holds stays in caches. Where both fail, a product waits for memory at
//! every gather, unless it asks for `x` some entries ahead.

use crate::cpu::tuning::{JUMP, LOOK, LOOK_FROM};

/// How far to look ahead, or zero: judged by the length of `x` and by columns of neighbouring rows.
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
