//! Grid-wide sums: partial sums of blocks, and the scalars that hold the results.

use crate::cuda::device::error::Result;
use crate::cuda::device::launch::MAX_BLOCKS;
use crate::cuda::device::prelude::{PARCEL, RESULTS, RawSum};
use crate::cuda::device::{Device, Real};
use crate::cuda::solve::number::{Cell, Scalar};
use cudarc::driver::{CudaSlice, DevicePtr};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// Partial sums that blocks send to the block that adds them.
#[derive(Debug)]
struct Parcels<T: Real> {
    /// `Parcel`s of prelude.cu, one for each block and sum.
    parcels: CudaSlice<T>,
    /// Number of calls so far, which distinguishes the parcels of different calls.
    calls: CudaSlice<u32>,
}

impl<T: Real> Parcels<T> {
    /// The parcels of a device, allocated at first use.
    fn of(device: &Device) -> Result<&Self> {
        let new = || {
            let parcels = device.zeros(RESULTS * PARCEL * MAX_BLOCKS)?.into_slice();
            Ok(Parcels { parcels, calls: device.zeros(1)?.into_slice() })
        };
        device.kept::<OnceLock<Result<Parcels<T>>>>().get_or_init(new).as_ref().map_err(Clone::clone)
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
        const { assert!(K >= 1 && K <= RESULTS) };
        let (cells, parcels) = (device.cells::<T>()?, Parcels::<T>::of(device)?);
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

    /// The sums; if the device is in a team, over all its members.
    pub(crate) fn scalars(self) -> [Scalar<T>; K] {
        self.cells.map(Scalar::in_cell)
    }
}
