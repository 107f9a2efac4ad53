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
        assert_eq!(x.len(), pattern.cols(), "vectors that fit the matrix");
        self.with_columns(pattern)?.queue_residual(b, x, r)
    }

    /// `r ← b − A x` in twice the precision, for a square matrix with columns.
    pub(crate) fn square_residual(&self, b: &Array<T>, x: &Array<T>, r: &mut Array<T>) -> Result<()> {
        assert_eq!(
            (x.len(), self.columns.len()),
            (self.rows.count(), self.nnz()),
            "a square matrix with columns"
        );
        self.queue_residual(b, x, r)
    }

    /// Queues the kernel; the length of `x` is checked by the caller.
    fn queue_residual(&self, b: &Array<T>, x: &Array<T>, r: &mut Array<T>) -> Result<()> {
        let (device, rows) = (self.device(), self.rows.count());
        assert_eq!((b.len(), r.len()), (rows, rows), "vectors that fit the matrix");
        assert!([b, x, &*r].iter().all(|v| v.device() == device), "vectors on the device of the matrix");
        let kernel = device.function::<T>(&SOURCE, "residual")?;
        let (raw, columns, values) = (self.rows.raw(), self.columns.address(0), self.values.address(0));
        let (b, x, to) = (b.address(0), x.address(0), r.address(0));
        let mut launch = device.launch(&kernel);
        launch.arg(&raw).arg(&columns).arg(&values).arg(&b).arg(&x).arg(&to);
        // SAFETY: arguments as in residual.cu; columns were checked to be below the number of columns, and
        // lengths are checked above and by the callers
        unsafe { launch.launch(config(rows * WARP)) }?;
        Ok(())
    }
}
