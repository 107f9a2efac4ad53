//! Transposes of matrices in device memory.

use crate::formats::given::Given;
use crate::formats::pattern::{Pattern, made};
use crate::{Error, Real, Result};
use krysp_kernels::cuda::{Ordered, Transposition};
use std::sync::Arc;

/// The transpose of a square matrix of a pattern: its pattern, a place for its values, and how these follow those of the
/// matrix. `guess` is what it may be, which a device tells faster than a host finds another.
pub(crate) fn transposed<T: Real>(
    pattern: &Pattern,
    matrix: &Ordered<T>,
    guess: Option<(Arc<Pattern>, Ordered<T>)>,
) -> Result<(Arc<Pattern>, Ordered<T>, Transposition)> {
    if let Some((guessed, values)) = guess
        && let Some(transposition) = Transposition::find(matrix, &values)?
    {
        return Ok((guessed, values, transposition));
    }
    let (mut found, from) = pattern.transposed()?;
    found.given = made(Given::InOrder { len: from.len() });
    let values = Ordered::zeros_of(matrix.device(), found.on_device())?;
    let transposition = mirrored(matrix, &values)?;
    Ok((Arc::new(found), values, transposition))
}

/// How the values of one follow those of the other, patterns that are transposes of each other.
pub(crate) fn mirrored<T: Real>(matrix: &Ordered<T>, transposed: &Ordered<T>) -> Result<Transposition> {
    // every entry of a transpose has its mirror image
    Transposition::find(matrix, transposed)?.ok_or(Error::OtherPattern { row: 0 })
}
