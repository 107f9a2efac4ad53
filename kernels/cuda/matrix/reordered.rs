//! Symmetric permutation of a matrix on a device.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Device, Real};
use crate::cuda::matrix::device_csr::{DeviceCsr, RowStarts};
use crate::cuda::matrix::pattern::Pattern;
use crate::index::{ColumnsRef, Offsets};
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "reordered.cu",
    text: include_str!("reordered.cu"),
    constants: constants![],
    mirrors: &[],
};

/// Maximum length of a row. Each entry is compared with all others of its row, so that longer rows are permuted
/// faster on the host. Guess.
const LONGEST: usize = 2048;

impl<T: Real> DeviceCsr<T> {
    /// Permutes the rows and columns of a square matrix symmetrically; also returns the new row offsets.
    /// `old_of_new` has the old index of each new row, `new_of_old` the new index of each old row. `None` if
    /// a row has more than 2048 entries. Columns must be distinct in each row.
    pub fn reordered(
        device: &Device,
        pattern: Pattern<'_>,
        values: &[T],
        old_of_new: &[u32],
        new_of_old: &[u32],
    ) -> Result<Option<(DeviceCsr<T>, Offsets)>> {
        let (rows, old) = (pattern.rows(), pattern.offsets());
        assert_eq!(
            (pattern.cols(), pattern.entries()),
            (rows, values.len()),
            "a square matrix with its values"
        );
        for names in [old_of_new, new_of_old] {
            assert!(names.len() == rows && ColumnsRef::new(names, rows).is_ok(), "a permutation of the rows");
        }
        let length = |row: usize| old.range(old_of_new[row] as usize).len();
        let offsets = Offsets::of_rows(rows, &length);
        assert_eq!(offsets.end(), values.len(), "a permutation of the rows");
        if crate::cpu::run::threads::find_row(rows, 2, &|row| old.range(row).len() > LONGEST).is_some() {
            return Ok(None);
        }
        let given = DeviceCsr::new(device, pattern, values)?;
        let reordered = DeviceCsr {
            rows: Arc::new(RowStarts::new(device, &offsets)?),
            columns: Arc::new(device.zeros(values.len())?),
            values: device.zeros(values.len())?,
        };
        let (old_of_new, new_of_old) = (device.upload(old_of_new)?, device.upload(new_of_old)?);
        let reorder = device.function::<T>(&SOURCE, "reorder_rows")?;
        let (old, columns, values) = (given.rows.raw(), given.columns.address(0), given.values.address(0));
        let (rows_of, names) = (old_of_new.address(0), new_of_old.address(0));
        let (new, to) = (reordered.rows.raw(), reordered.columns.address(0));
        let new_values = reordered.values.address(0);
        let mut launch = device.launch(&reorder);
        launch.arg(&old).arg(&columns).arg(&values).arg(&rows_of).arg(&names);
        launch.arg(&new).arg(&to).arg(&new_values);
        // SAFETY: arguments as in reordered.cu; old and new indices are below the number of rows, and a new
        // row has as many entries as the old one
        unsafe { launch.launch(config(rows * WARP)) }?;
        Ok(Some((reordered, offsets)))
    }
}
