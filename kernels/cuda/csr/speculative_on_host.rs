//! Speculative segmented sums with the second stage on the host, as Liu and Vinter do on chips where CPU and
//! GPU share memory. The device runs the first stage; the host waits for it, moves the sums of dirty tiles to
//! their rows, and adds the parts of rows that cross bunches.
//!
//! Every product waits for the device, and `y` is in host memory. Only meant for comparison with
//! [`Speculative`](crate::cuda::csr::speculative::Speculative).

use super::second_stage::{rearrange, synchronize};
use crate::cuda::csr::bunches::{FILL, RawUnfinished, Speculation};
use crate::cuda::device::error::Result;
use crate::cuda::device::{Array, Device, Element, Real};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::index::Offsets;
use cudarc::driver::UnifiedSlice;

/// A matrix, and unified memory for the results of a product.
#[derive(Debug)]
pub struct SpeculativeOnHost<T: Real> {
    matrix: Speculation<T>,
    offsets: Offsets,
    y: UnifiedSlice<T>,
    carries: UnifiedSlice<T>,
    rows: UnifiedSlice<u32>,
    counts: UnifiedSlice<u32>,
    ranges: UnifiedSlice<u32>,
}

impl<T: Real> SpeculativeOnHost<T> {
    /// Uploads a matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T]) -> Result<Self> {
        let matrix = Speculation::of(
            DeviceCsr::new(device, pattern, values)?,
            pattern.shape(),
            "speculative_carrying",
        )?;
        let bunches = matrix.bunches;
        Ok(SpeculativeOnHost {
            offsets: pattern.offsets().clone(),
            y: visible(device, bunches.shape.rows)?,
            carries: visible(device, 2 * bunches.count())?,
            rows: visible(device, bunches.count())?,
            counts: visible(device, 2)?,
            ranges: visible(device, 2 * bunches.most_ranges())?,
            matrix,
        })
    }

    /// Numbers of rows, columns and entries.
    pub fn shape(&self) -> Shape {
        self.matrix.bunches.shape
    }

    /// `A x`, complete on return.
    pub fn product(&mut self, x: &Array<T>) -> Result<&[T]> {
        let shape = self.shape();
        assert_eq!(x.len(), shape.cols, "`x` has an entry for each column");
        assert!(x.device() == self.matrix.ordered.device(), "a matrix and a vector of one device");
        if shape.rows == 0 {
            return Ok(&[]);
        }
        let device = x.device();
        let left = RawUnfinished {
            carries: address(device, &self.carries),
            rows: address(device, &self.rows),
            counts: address(device, &self.counts),
            ranges: address(device, &self.ranges),
            ..RawUnfinished::default()
        };
        self.matrix.queue(x, address(device, &self.y), left)?;
        device.synchronize()?;
        let y = &mut self.y.as_mut_slice()?[..shape.rows];
        let counts = self.counts.as_mut_slice()?;
        let ranges = &self.ranges.as_slice()?[..2 * counts[0] as usize];
        counts[0] = 0;
        let offsets = (&self.offsets).into();
        for range in ranges.chunks_exact(2) {
            let rows = (range[0] & !FILL) as usize..range[1] as usize;
            if range[0] & FILL == 0 {
                rearrange(offsets, rows.clone(), &mut y[rows]);
            } else {
                rows.filter(|&row| self.offsets.range(row).is_empty()).for_each(|row| y[row] = T::zero());
            }
        }
        let bunches = self.matrix.bunches.count();
        let (rows, carries) = (&self.rows.as_slice()?[..bunches], self.carries.as_slice()?);
        synchronize(offsets, self.matrix.bunches.of_bunch(), rows, carries, y);
        Ok(y)
    }
}

/// Zeroed unified memory, accessible from host and device.
fn visible<T: Element>(device: &Device, len: usize) -> Result<UnifiedSlice<T>> {
    // SAFETY: all bytes are set to zero before they are read, and zero bytes are a valid `T`
    let mut slice = unsafe { device.inner.context.alloc_unified(len.max(1), true) }?;
    device.inner.stream.memset_zeros(&mut slice)?;
    device.synchronize()?;
    Ok(slice)
}

fn address<T>(device: &Device, slice: &UnifiedSlice<T>) -> u64 {
    use cudarc::driver::DevicePtr;
    slice.device_ptr(&device.inner.stream).0
}
