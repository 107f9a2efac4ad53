//! Transposes of matrices in device memory.

use crate::error::{Error, Result};
use crate::formats::assembly_order::AssemblyOrder;
use crate::formats::pattern::{Pattern, made};
use crate::numbers::Real;
use krysp_kernels::cuda::{DeviceCsr, Transposition};
use std::sync::Arc;

/// Computes the transpose of a square matrix: its pattern, storage for its values, and the map from the
/// matrix's values to these. If the pattern of `guess` is that of the transpose, the host need not compute
/// it: the device checks the guess, which takes less time.
pub(crate) fn transposed<T: Real>(
    pattern: &Pattern,
    matrix: &DeviceCsr<T>,
    guess: Option<(Arc<Pattern>, DeviceCsr<T>)>,
) -> Result<(Arc<Pattern>, DeviceCsr<T>, Transposition)> {
    if let Some((guessed, values)) = guess
        && let Some(transposition) = Transposition::find(matrix, &values)?
    {
        return Ok((guessed, values, transposition));
    }
    let (mut found, from) = pattern.transposed()?;
    found.given = made(AssemblyOrder::InOrder { len: from.len() });
    let values = DeviceCsr::zeros_of(matrix.device(), found.on_device())?;
    let transposition = mirrored(matrix, &values)?;
    Ok((Arc::new(found), values, transposition))
}

/// The map from the values of a matrix to those of its transpose, whose pattern must be the transposed one.
pub(crate) fn mirrored<T: Real>(matrix: &DeviceCsr<T>, transposed: &DeviceCsr<T>) -> Result<Transposition> {
    // the error cannot occur: a transpose has a mirrored entry for each entry
    Transposition::find(matrix, transposed)?.ok_or(Error::PatternMismatch { row: 0 })
}
