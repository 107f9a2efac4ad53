//! Rows with entries in columns owned by other members (ghost columns), and those entries.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Mirror, mirror};
use crate::cuda::device::prelude::RawNumber;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::sums::Sums;
use crate::cuda::team::halo::RawHaloExchange;
use crate::cuda::team::member::SOURCE;
use cudarc::driver::{CudaFunction, DeviceRepr};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawOffDiagonal {
    rows: u64,
    offsets: u64,
    columns: u64,
    values: u64,
    count: u32,
}
// SAFETY: has the layout of `OffDiagonal` in team.cu
unsafe impl DeviceRepr for RawOffDiagonal {}

/// Layout check of [`RawOffDiagonal`] against the kernels.
pub(super) const MIRROR: Mirror =
    mirror!("OffDiagonal" = RawOffDiagonal { rows, offsets, columns, values, count });

/// Rows with entries in ghost columns, on a device.
#[derive(Debug)]
pub(super) struct OffDiagonal<T: Real> {
    raw: RawOffDiagonal,
    /// The arrays whose addresses are in `raw`.
    arrays: [Array<u32>; 3],
    values: Array<T>,
    add_ghosts: CudaFunction,
}

impl<T: Real> OffDiagonal<T> {
    /// Uploads the entries in ghost columns. `offsets` has the start of the entries of each of `rows`, and
    /// the end; `columns` are indices of ghosts.
    pub(super) fn new(
        device: &Device,
        rows: &[u32],
        offsets: &[u32],
        columns: &[u32],
        values: &[T],
    ) -> Result<OffDiagonal<T>> {
        let arrays = [device.upload(rows)?, device.upload(offsets)?, device.upload(columns)?];
        let values = device.upload(values)?;
        let raw = RawOffDiagonal {
            rows: arrays[0].address(0),
            offsets: arrays[1].address(0),
            columns: arrays[2].address(0),
            values: values.address(0),
            count: rows.len() as u32,
        };
        Ok(OffDiagonal { raw, arrays, values, add_ghosts: device.function::<T>(&SOURCE, "add_ghosts")? })
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.bytes() + self.arrays.iter().map(Array::bytes).sum::<usize>()
    }

    /// Replaces the values of the same entries.
    pub(super) fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.values.write(values)
    }

    /// `y ← y + A_ghost ghosts`, after the senders of `halo` have sent the ghosts. With `sums`, also computes
    /// `⟨x, y⟩`: `own`, its value before ghosts are added, plus the contribution of the added terms.
    pub(super) fn add(
        &self,
        halo: &RawHaloExchange,
        ghosts: u64,
        [x, y]: [&Array<T>; 2],
        own: RawNumber<T>,
        sums: Option<&Sums<T, 1>>,
    ) -> Result<()> {
        let device = y.device();
        let (x, y, with_sums) = (x.address(0), y.address(0), u32::from(sums.is_some()));
        let nothing;
        let out = match sums {
            Some(sums) => &sums.raw,
            None => {
                nothing = Sums::<T, 1>::nowhere();
                &nothing
            }
        };
        let mut launch = device.launch(&self.add_ghosts);
        launch.arg(halo).arg(&self.raw).arg(&ghosts).arg(&x).arg(&y).arg(&with_sums).arg(&own).arg(out);
        // SAFETY: arguments as in team.cu; rows of the border are rows of `y`, its columns indices of ghosts
        unsafe { launch.launch(config_concurrent(device, 8 * self.raw.count as usize, 1)) }
    }
}
