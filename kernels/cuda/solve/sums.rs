//! Grid-wide sums: partial sums of blocks, and the scalars that hold the results.

use crate::cuda::device::error::Result;
use crate::cuda::device::kept::at_first_use;
use crate::cuda::device::launch::MAX_BLOCKS;
use crate::cuda::device::prelude::{PARCEL, RESULTS, RawSum};
use crate::cuda::device::{Device, Real};
use crate::cuda::matrix::columns::COLUMNS;
use crate::cuda::solve::number::{Cell, Scalar};
use crate::cuda::tuning::VECTOR_BLOCKS;
use cudarc::driver::{CudaSlice, DevicePtr};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// Maximum number of sums of a column if a launch has several columns.
const OF_COLUMN: usize = 2;

/// Partial sums that blocks pass to the block that adds them up.
#[derive(Debug)]
struct Parcels<T: Real> {
    /// `Parcel`s of prelude.cu, one for each block and sum.
    parcels: CudaSlice<T>,
    /// Number of calls so far, which distinguishes the parcels of different calls.
    calls: CudaSlice<u32>,
}

impl<T: Real> Parcels<T> {
    /// Parcels of a device for one column of a launch, allocated at first use. Columns that are summed at the
    /// same time must not share a call counter.
    fn of(device: &Device, column: usize) -> Result<&Self> {
        let len = match column {
            0 => RESULTS * PARCEL * MAX_BLOCKS,
            _ => OF_COLUMN * PARCEL * VECTOR_BLOCKS * device.multiprocessors(),
        };
        let new = || {
            let parcels = device.zeros(len)?.into_slice();
            Ok(Parcels { parcels, calls: device.zeros(1)?.into_slice() })
        };
        at_first_use(&device.kept::<[OnceLock<Parcels<T>>; COLUMNS]>()[column], new)
    }
}

/// `K` sums of a kernel to be launched: its output argument, and the scalars of the results.
pub(crate) struct Sums<T, const K: usize> {
    pub(crate) raw: RawSum,
    cells: [Arc<Cell>; K],
    element: PhantomData<T>,
}

impl<T: Real, const K: usize> Sums<T, K> {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Sums::of_column(device, 0)
    }

    /// Sums of one column of a launch, each column of which has as many blocks as
    /// [`config_concurrent`](crate::cuda::device::launch::config_concurrent) chooses.
    pub(crate) fn of_column(device: &Device, column: usize) -> Result<Self> {
        const { assert!(K >= 1 && K <= RESULTS) };
        assert!(column == 0 || K <= OF_COLUMN, "parcels for all sums");
        let (cells, parcels) = (device.cells::<T>()?, Parcels::<T>::of(device, column)?);
        let stream = &device.inner.stream;
        let first = cells.take(device)?;
        let mut results = [first.address; RESULTS];
        let mut taken = [(); K].map(|()| first.clone());
        for (cell, result) in taken.iter_mut().zip(&mut results).skip(1) {
            *cell = cells.take(device)?;
            *result = cell.address;
        }
        let raw = RawSum {
            parcels: parcels.parcels.device_ptr(stream).0,
            calls: parcels.calls.device_ptr(stream).0,
            results,
            team: device.team_address(),
        };
        Ok(Sums { raw, cells: taken, element: PhantomData })
    }

    /// Argument for a kernel variant that computes no sums.
    pub(crate) fn nowhere() -> RawSum {
        RawSum { parcels: 0, calls: 0, results: [0; RESULTS], team: 0 }
    }

    /// The address of the first result.
    pub(crate) fn first(&self) -> u64 {
        self.raw.results[0]
    }

    /// The sums; if the device is in a team (GPUs that share vectors), over all its members.
    pub(crate) fn scalars(self) -> [Scalar<T>; K] {
        self.cells.map(Scalar::in_cell)
    }
}
