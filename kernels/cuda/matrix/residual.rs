//! Residuals in twice the precision.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::WARP;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::{Array, Real};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::Pattern;

/// The kernel.
pub(crate) const SOURCE: Source =
    Source { file: "residual.cu", text: include_str!("residual.cu"), constants: constants![], mirrors: &[] };

impl<T: Real> DeviceCsr<T> {
    /// `r ← b − A x` in twice the precision, for a matrix of this pattern.
    pub fn residual(self, pattern: Pattern<'_>, b: &Array<T>, x: &Array<T>, r: &mut Array<T>) -> Result<()> {
        let matrix = self.with_columns(pattern)?;
        let device = matrix.device();
        let (rows, cols) = (matrix.rows.count(), pattern.cols());
        assert_eq!((b.len(), x.len(), r.len()), (rows, cols, rows), "vectors that fit the matrix");
        assert!([b, x, &*r].iter().all(|v| v.device() == device), "vectors on the device of the matrix");
        let kernel = device.function::<T>(&SOURCE, "residual")?;
        let (raw, columns, values) = (matrix.rows.raw(), matrix.columns.address(0), matrix.values.address(0));
        let (b, x, to) = (b.address(0), x.address(0), r.address(0));
        let mut launch = device.launch(&kernel);
        launch.arg(&raw).arg(&columns).arg(&values).arg(&b).arg(&x).arg(&to);
        // SAFETY: arguments as in residual.cu; columns were checked to be below the number of columns, and
        // lengths are checked above
        unsafe { launch.launch(config(rows * WARP)) }?;
        Ok(())
    }
}
