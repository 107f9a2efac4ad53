//! Halo exchange between a device and other processes through host memory.
//!
//! A product uses the kernels that several devices of one process use (a team); entries are sent to host
//! memory instead of to other devices:
//!
//! ```text
//! push          copies entries of x to host memory and sets a flag     the host sends them, and waits for others
//! (any format)  y ← A_own x                                            meanwhile
//! add_ghosts    y ← y + A_ghost ghosts                                 after the host has copied the ghosts to the device
//! ```

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::pinned::PinnedArray;
use crate::cuda::device::prelude::{RawNumber, TEAM_MEMBERS};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::team::border::OffDiagonal;
use crate::cuda::team::halo::RawHaloExchange;
use crate::cuda::team::member::SOURCE;
use cudarc::driver::{CudaFunction, CudaStream};
use std::marker::PhantomData;
use std::sync::Arc;

/// Arguments for the kernels of a team with a single member: all flags are set, so that no kernel waits.
#[derive(Debug)]
struct Alone {
    raw: RawHaloExchange,
    /// The arrays whose addresses are in `raw`.
    _words: [Array<u64>; 2],
    _tickets: Array<u32>,
}

impl Alone {
    fn new(device: &Device) -> Result<Alone> {
        // mark all products as used, so that `push` never waits
        let (product, used) = (device.zeros::<u64>(1)?, device.upload(&[u64::MAX])?);
        let tickets = device.zeros::<u32>(2)?;
        let raw = RawHaloExchange {
            members: 1,
            own: 0,
            product: product.address(0),
            tickets: tickets.address(0),
            notice: used.address(0),
            places: 0,
            firsts: [0; TEAM_MEMBERS + 1],
            senders: 0,
            ghosts: [0; TEAM_MEMBERS],
            sent_at: [0; TEAM_MEMBERS],
            used_at: [0; TEAM_MEMBERS],
            sent: used.address(0),
            used: used.address(0),
        };
        Ok(Alone { raw, _words: [product, used], _tickets: tickets })
    }
}

/// Copies selected entries of vectors to host memory.
#[derive(Debug)]
pub struct Collect<T: Real> {
    device: Device,
    alone: Alone,
    length: usize,
    places: Array<u32>,
    /// Nonzero once the entries are in host memory.
    collected: PinnedArray<u64>,
    push: CudaFunction,
    element: PhantomData<T>,
}

impl<T: Real> Collect<T> {
    /// Prepares copies of the entries at `places` of vectors with `length` entries.
    pub fn new(device: &Device, length: usize, places: &[u32]) -> Result<Collect<T>> {
        assert!(places.iter().all(|&place| (place as usize) < length), "entries of the vector");
        let (mut alone, collected) = (Alone::new(device)?, device.pinned::<u64>(1)?);
        let places = device.upload(places)?;
        alone.raw.places = places.address(0);
        alone.raw.firsts = [places.len() as u32; TEAM_MEMBERS + 1];
        (alone.raw.firsts[0], alone.raw.sent_at[0]) = (0, collected.address());
        let push = device.function::<T>(&SOURCE, "push")?;
        Ok(Collect { device: device.clone(), alone, length, places, collected, push, element: PhantomData })
    }

    /// Bytes read in addition to vectors.
    pub fn bytes(&self) -> usize {
        self.places.bytes()
    }

    /// Queues the copy of the entries to `into`.
    pub fn queue(&mut self, x: &Array<T>, into: &mut PinnedArray<T>) -> Result<()> {
        let fits = x.len() == self.length && into.as_ref().len() == self.places.len();
        assert!(fits && x.device() == &self.device, "a vector of this device, and capacity for what is sent");
        if self.places.is_empty() {
            return Ok(());
        }
        self.collected.as_mut()[0] = 0;
        self.alone.raw.ghosts[0] = into.address();
        let x = x.address(0);
        let mut launch = self.device.launch(&self.push);
        launch.arg(&self.alone.raw).arg(&x);
        // SAFETY: arguments as in team.cu; `places` are indices of `x`, and `into`, which waits for the
        // device before its memory is freed, has an element for each
        unsafe { launch.launch(config_concurrent(&self.device, self.places.len(), 1)) }
    }

    /// Waits until the last queued copy is in host memory. Does not wait for work queued after it.
    pub fn wait(&self) -> Result<()> {
        if self.places.is_empty() || self.device.wait_for(|| self.collected.peek(0) != 0)? {
            return Ok(());
        }
        Err(Error::Driver("internal: the device finished without copying the entries to be sent".into()))
    }
}

/// Adds contributions of ghosts, received from other processes, to vectors.
#[derive(Debug)]
pub struct Ghosts<T: Real> {
    device: Device,
    alone: Alone,
    border: OffDiagonal<T>,
    /// Number of entries of a vector.
    length: usize,
    ghosts: Array<T>,
    /// A stream for copies beside other work, and the ghosts of the product before.
    beside: Option<(Arc<CudaStream>, Array<T>)>,
}

impl<T: Real> Drop for Ghosts<T> {
    fn drop(&mut self) {
        if let Some((copies, _)) = &self.beside {
            self.device.store_error(copies.synchronize().map_err(Error::from));
        }
    }
}

impl<T: Real> Ghosts<T> {
    /// The same, but ghosts are copied beside other work of the device, instead of after it. Before ghosts
    /// are added, the caller must have waited for work that was queued after the addition before the last one.
    pub fn copied_beside(mut self) -> Result<Ghosts<T>> {
        let other = self.device.zeros(self.ghosts.len())?;
        let copies = self.device.inner.context.new_stream()?;
        // the arrays must be allocated and zero before another stream writes to them
        self.device.synchronize()?;
        self.beside = Some((copies, other));
        Ok(self)
    }

    /// Uploads the matrix entries in ghost columns, for vectors with `length` entries and this number of
    /// ghosts. `offsets` has the start of the entries of each of `rows`, and the end; `columns` are indices
    /// of ghosts.
    pub fn new(
        device: &Device,
        length: usize,
        ghosts: usize,
        [rows, offsets, columns]: [&[u32]; 3],
        values: &[T],
    ) -> Result<Ghosts<T>> {
        let fits = rows.iter().all(|&row| (row as usize) < length)
            && columns.iter().all(|&column| (column as usize) < ghosts)
            && offsets.len() == rows.len() + 1
            && offsets.is_sorted()
            && offsets[rows.len()] as usize == columns.len()
            && columns.len() == values.len();
        assert!(fits, "rows of the vector, and ghosts");
        let border = OffDiagonal::new(device, rows, offsets, columns, values)?;
        let ghosts = device.zeros(ghosts)?;
        let (device, alone) = (device.clone(), Alone::new(device)?);
        Ok(Ghosts { device, alone, border, length, ghosts, beside: None })
    }

    /// Bytes of the entries in ghost columns.
    pub fn bytes(&self) -> usize {
        self.border.bytes()
    }

    /// Replaces the values of the entries in ghost columns.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.border.refresh(values)
    }

    /// Queues `y ← y + A_ghost ghosts`. `ghosts` must not change until the device has copied them.
    pub fn add(&mut self, ghosts: &PinnedArray<T>, y: &mut Array<T>) -> Result<()> {
        self.receive(ghosts, [y, y], RawNumber::constant(T::zero()), None)
    }

    /// Like [`Ghosts::add`]; also returns `⟨x, y⟩` over all rows of this device, where `own` is the value
    /// before ghosts are added.
    pub fn add_dot(
        &mut self,
        ghosts: &PinnedArray<T>,
        x: &Array<T>,
        y: &mut Array<T>,
        own: &Scalar<T>,
    ) -> Result<Scalar<T>> {
        let sums = Sums::<T, 1>::new(&self.device)?;
        self.receive(ghosts, [x, y], own.number().raw(), Some(&sums))?;
        let [sum] = sums.scalars();
        Ok(sum)
    }

    fn receive(
        &mut self,
        ghosts: &PinnedArray<T>,
        [x, y]: [&Array<T>; 2],
        own: RawNumber<T>,
        sums: Option<&Sums<T, 1>>,
    ) -> Result<()> {
        let fits = |v: &Array<T>| v.device() == &self.device && v.len() == self.length;
        assert!(fits(x) && fits(y), "vectors of this device");
        match &mut self.beside {
            None => ghosts.copy_to(&mut self.ghosts)?,
            Some((copies, before)) => {
                std::mem::swap(&mut self.ghosts, before);
                // SAFETY: the stream of the device waits for the copy, and `drop` does; both arrays are freed only when
                // one of them is done
                unsafe { ghosts.copy_on(copies, &mut self.ghosts) }?;
                self.device.inner.stream.join(copies)?;
            }
        }
        self.border.add(&self.alone.raw, self.ghosts.address(0), [x, y], own, sums)
    }
}
