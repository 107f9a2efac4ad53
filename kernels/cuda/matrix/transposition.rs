//! Updates the values of a transposed matrix from those of the matrix, on a device.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Real};
use crate::cuda::matrix::device_csr::{DeviceCsr, Misfit};

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "transposition.cu",
    text: include_str!("transposition.cu"),
    constants: constants![LANES],
    mirrors: &[],
};

/// Lanes per row in `find_mirrored`. Guess.
const LANES: usize = 8;

/// For each entry of the transpose, its index in the matrix.
#[derive(Debug)]
pub struct Transposition {
    from: Array<u32>,
    /// Number of entries.
    entries: usize,
}

impl<T: Real> DeviceCsr<T> {
    /// Returns whether a square matrix has all diagonal entries in its pattern.
    pub fn has_diagonal(&self) -> Result<bool> {
        assert_eq!(self.columns.len(), self.values.len(), "a pattern with columns");
        let (device, misfit) = (self.device(), Misfit::none(self.device())?);
        let find = device.function::<T>(&SOURCE, "find_diagonal")?;
        let (rows, columns, mark) = (self.rows.raw(), self.columns.address(0), misfit.address());
        let mut launch = device.launch(&find);
        launch.arg(&rows).arg(&columns).arg(&mark);
        // SAFETY: arguments as in transposition.cu
        unsafe { launch.launch(config(self.rows.count())) }?;
        Ok(!misfit.is_set()?)
    }
}

impl Transposition {
    /// Finds for each entry of `transposed` the mirrored entry of the matrix. `None` if `transposed` does not
    /// have the pattern of the transpose: an entry has no mirrored entry, or the numbers of entries differ.
    pub fn find<T: Real>(matrix: &DeviceCsr<T>, transposed: &DeviceCsr<T>) -> Result<Option<Transposition>> {
        let (device, entries) = (matrix.device(), matrix.values.len());
        check_entries(entries)?;
        if transposed.values.len() != entries || transposed.rows.count() != matrix.rows.count() {
            return Ok(None);
        }
        assert!([matrix, transposed].iter().all(|m| m.columns.len() == entries), "patterns with columns");
        let (from, misfit) = (device.uninitialized::<u32>(entries)?, Misfit::none(device)?);
        let find = device.function::<T>(&SOURCE, "find_mirrored")?;
        let (rows, columns) = (matrix.rows.raw(), matrix.columns.address(0));
        let (others, their_columns) = (transposed.rows.raw(), transposed.columns.address(0));
        let (to, mark) = (from.address(0), misfit.address());
        let mut launch = device.launch(&find);
        launch.arg(&rows).arg(&columns).arg(&others).arg(&their_columns).arg(&to).arg(&mark);
        // SAFETY: arguments as in transposition.cu; `from` has an element for each entry, and columns of
        // square matrices of equal size are below the number of rows
        unsafe { launch.launch(config(matrix.rows.count() * LANES)) }?;
        Ok((!misfit.is_set()?).then_some(Transposition { from, entries }))
    }

    /// Queues a copy of the matrix's values to the transpose.
    pub fn refresh<T: Real>(&self, matrix: &DeviceCsr<T>, transposed: &mut DeviceCsr<T>) -> Result<()> {
        assert_eq!(matrix.values.len(), self.entries, "the matrix that was transposed");
        assert_eq!(transposed.values.len(), self.entries, "its transpose");
        let device = self.from.device();
        let take = device.function::<T>(&SOURCE, "take_from")?;
        let (from, values) = (self.from.address(0), matrix.values.address(0));
        let (to, count) = (transposed.values.address(0), self.entries as u64);
        let mut launch = device.launch(&take);
        launch.arg(&from).arg(&values).arg(&to).arg(&count);
        // SAFETY: arguments as in transposition.cu; indices are below the number of values
        unsafe { launch.launch(config(self.entries)) }
    }
}

/// Fails if 32 bits do not suffice for the indices of entries.
fn check_entries(got: usize) -> Result<()> {
    let limit = u32::MAX as usize;
    if got <= limit { Ok(()) } else { Err(Error::TooLarge { what: "the number of entries", got, limit }) }
}
