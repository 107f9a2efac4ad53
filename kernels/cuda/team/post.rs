//! What goes between a device and other processes by way of the host: entries of `x` that they read, and ghosts.
//!
//! A product takes the launches of a team's, where the one other member is host memory:
//!
//! ```text
//! push          entries that others read of x, to host memory, and says so     the host sends them, and waits for others
//! (any format)  y ← A_own x                                                    meanwhile
//! add_ghosts    y ← y + A_ghost ghosts                                         of ghosts that the host has copied here
//! ```

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config_at_once;
use crate::cuda::device::pinned::PinnedArray;
use crate::cuda::device::prelude::{RawNumber, TEAM_MEMBERS};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::team::border::Border;
use crate::cuda::team::halo::RawHalo;
use crate::cuda::team::member::SOURCE;
use cudarc::driver::CudaFunction;
use std::marker::PhantomData;

/// What kernels of a team are told where there is one member, whose host sees to it that nobody waits.
#[derive(Debug)]
struct Alone {
    raw: RawHalo,
    /// What addresses in `raw` are of.
    _words: [Array<u64>; 2],
    _tickets: Array<u32>,
}

impl Alone {
    fn new(device: &Device) -> Result<Alone> {
        // what is sent has always been used
        let (product, used) = (device.zeros::<u64>(1)?, device.upload(&[u64::MAX])?);
        let tickets = device.zeros::<u32>(2)?;
        let raw = RawHalo {
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

/// Copies some entries of vectors to host memory.
#[derive(Debug)]
pub struct Collect<T: Real> {
    device: Device,
    alone: Alone,
    length: usize,
    places: Array<u32>,
    /// Not zero once they are there.
    collected: PinnedArray<u64>,
    push: CudaFunction,
    element: PhantomData<T>,
}

impl<T: Real> Collect<T> {
    /// The entries at `places` of vectors with `length` entries.
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

    /// Bytes of what is read beside vectors.
    pub fn bytes(&self) -> usize {
        self.places.bytes()
    }

    /// Queues that the entries are copied.
    pub fn queue(&mut self, x: &Array<T>, into: &mut PinnedArray<T>) -> Result<()> {
        let fits = x.len() == self.length && into.as_ref().len() == self.places.len();
        assert!(fits && x.device() == &self.device, "a vector of this device, and room for what is sent");
        if self.places.is_empty() {
            return Ok(());
        }
        self.collected.as_mut()[0] = 0;
        self.alone.raw.ghosts[0] = into.address();
        let x = x.address(0);
        let mut launch = self.device.launch(&self.push);
        launch.arg(&self.alone.raw).arg(&x);
        // SAFETY: arguments as in team.cu; places to send are entries of `x`, and `into`, which waits for the device before its
        // memory is given back, has room for them
        unsafe { launch.launch(config_at_once(&self.device, self.places.len(), 1)) }
    }

    /// Waits until what was queued last is in host memory. Work queued after it may go on.
    pub fn wait(&self) -> Result<()> {
        if self.places.is_empty() || self.device.wait_for(|| self.collected.peek(0) != 0)? {
            return Ok(());
        }
        Err(Error::Driver("the device has ended its work and has not collected what is sent".into()))
    }
}

/// Adds what comes of other processes to vectors.
#[derive(Debug)]
pub struct Ghosts<T: Real> {
    device: Device,
    alone: Alone,
    border: Border<T>,
    /// Entries of a vector.
    length: usize,
    ghosts: Array<T>,
}

impl<T: Real> Ghosts<T> {
    /// For vectors with `length` entries and so many ghosts. `offsets` says where the entries of each of `rows` begin, and has
    /// their number; `columns` are places among the ghosts.
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
        let border = Border::new(device, rows, offsets, columns, values)?;
        let ghosts = device.zeros(ghosts)?;
        Ok(Ghosts { device: device.clone(), alone: Alone::new(device)?, border, length, ghosts })
    }

    /// Bytes of the entries in columns of ghosts.
    pub fn bytes(&self) -> usize {
        self.border.bytes()
    }

    /// New values for those entries.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.border.refresh(values)
    }

    /// Queues `y ← y + A_ghost ghosts`. The ghosts must stay as they are until the device has copied them.
    pub fn add(&mut self, ghosts: &PinnedArray<T>, y: &mut Array<T>) -> Result<()> {
        self.receive(ghosts, [y, y], RawNumber::constant(T::zero()), None)
    }

    /// [`Ghosts::add`], and `⟨x, y⟩` over all rows here, where `own` is what it is without ghosts.
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
        ghosts.copy_to(&mut self.ghosts)?;
        self.border.add(&self.alone.raw, self.ghosts.address(0), [x, y], own, sums)
    }
}
