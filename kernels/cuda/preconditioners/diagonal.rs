//! Diagonals of matrices on a device, and their inverses. diagonal.cu has the memory traffic.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::{config_concurrent, index};
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Real};
use crate::cuda::matrix::device_csr::DeviceCsr;

/// The kernels.
pub(crate) const SOURCE: Source =
    Source { file: "diagonal.cu", text: include_str!("diagonal.cu"), constants: constants![], mirrors: &[] };

/// Positions of the diagonal entries, for all matrices of a pattern.
#[derive(Debug)]
pub struct Places {
    /// Position of the diagonal entry within each row.
    of_row: Array<u32>,
    /// Number of entries of the pattern.
    entries: usize,
}

impl Places {
    /// Finds the diagonal entries of a matrix.
    pub fn find<T: Real>(matrix: &DeviceCsr<T>) -> Result<Places> {
        let (device, rows, entries) = (matrix.device(), matrix.rows.count(), matrix.values.len());
        index("the number of rows", rows)?;
        assert_eq!(matrix.columns.len(), entries, "a pattern with columns");
        let of_row = device.uninitialized::<u32>(rows)?;
        let find = device.function::<T>(&SOURCE, "diagonal_places")?;
        let (raw, columns, to) = (matrix.rows.raw(), matrix.columns.address(0), of_row.address(0));
        let mut launch = device.launch(&find);
        launch.arg(&raw).arg(&columns).arg(&to);
        // SAFETY: arguments as in diagonal.cu; there is a column for each entry, and an element of `of_row`
        // for each row
        unsafe { launch.launch(config_concurrent(device, rows, 1)) }?;
        Ok(Places { of_row, entries })
    }

    /// The diagonal of a matrix of the pattern; zero for rows without a diagonal entry.
    pub fn diagonal<T: Real>(&self, matrix: &DeviceCsr<T>) -> Result<Array<T>> {
        let (device, rows) = (matrix.device(), matrix.rows.count());
        let (of_pattern, of_matrix) = ((self.of_row.len(), self.entries), (rows, matrix.values.len()));
        assert!(of_pattern == of_matrix && self.of_row.device() == device, "a matrix of the pattern");
        let diagonal = device.uninitialized::<T>(rows)?;
        let take = device.function::<T>(&SOURCE, "diagonal_take")?;
        let (raw, places) = (matrix.rows.raw(), self.of_row.address(0));
        let (values, to) = (matrix.values.address(0), diagonal.address(0));
        let mut launch = device.launch(&take);
        launch.arg(&raw).arg(&places).arg(&values).arg(&to);
        // SAFETY: arguments as in diagonal.cu; positions were found in rows of these lengths
        unsafe { launch.launch(config_concurrent(device, rows, 1)) }?;
        Ok(diagonal)
    }
}

/// `d_i ← 1 / a_ii`. If some `d_i` would be zero or not finite, returns the first such row and its entry, and
/// leaves `inverse` unchanged.
pub fn invert<T: Real>(diagonal: &Array<T>, inverse: &mut Array<T>) -> Result<Option<(usize, T)>> {
    let (device, n) = (diagonal.device(), diagonal.len());
    assert!(inverse.len() == n && inverse.device() == device, "an inverse for each entry, on one device");
    let refused = device.upload(&[u32::MAX])?;
    let [check, invert] =
        ["diagonal_check", "diagonal_invert"].map(|name| device.function::<T>(&SOURCE, name));
    let (check, invert) = (check?, invert?);
    let (count, from, config) = (n as i64, diagonal.address(0), config_concurrent(device, n, 1));
    let (mark, to) = (refused.address(0), inverse.address(0));
    let mut launch = device.launch(&check);
    launch.arg(&count).arg(&from).arg(&mark);
    // SAFETY: arguments as in diagonal.cu, for a diagonal of this length
    unsafe { launch.launch(config) }?;
    let mut row = [0];
    refused.read(&mut row)?;
    if row[0] != u32::MAX {
        let (row, mut entries) = (row[0] as usize, vec![T::default(); n]);
        diagonal.read(&mut entries)?;
        return Ok(Some((row, entries[row])));
    }
    let mut launch = device.launch(&invert);
    launch.arg(&count).arg(&from).arg(&to);
    // SAFETY: arguments as in diagonal.cu, for arrays of this length
    unsafe { launch.launch(config) }?;
    Ok(None)
}
