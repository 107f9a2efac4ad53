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

/// A device's side of products whose rows read entries of `x` that other processes own.
#[derive(Debug)]
pub struct Post<T: Real> {
    device: Device,
    raw: RawHalo,
    border: Border<T>,
    /// Entries of a vector here.
    length: usize,
    places: Array<u32>,
    ghosts: Array<T>,
    /// Not zero once the entries that others read are in host memory.
    collected: PinnedArray<u64>,
    push: CudaFunction,
    /// What other addresses in `raw` are of.
    _words: [Array<u64>; 2],
    _tickets: Array<u32>,
}

impl<T: Real> Post<T> {
    /// For vectors with `length` entries here, of which others read those at `places`, and for this number of ghosts. `offsets`
    /// says where the entries of each of `rows` begin, and has their number; `columns` are places among the ghosts.
    pub fn new(
        device: &Device,
        length: usize,
        places: &[u32],
        ghosts: usize,
        [rows, offsets, columns]: [&[u32]; 3],
        values: &[T],
    ) -> Result<Post<T>> {
        let places_fit = places.iter().all(|&place| (place as usize) < length);
        let border_fits = rows.iter().all(|&row| (row as usize) < length)
            && columns.iter().all(|&column| (column as usize) < ghosts)
            && offsets.len() == rows.len() + 1
            && offsets.is_sorted()
            && offsets[rows.len()] as usize == columns.len()
            && columns.len() == values.len();
        assert!(places_fit && border_fits, "entries of the vector, and ghosts");
        // what is sent has always been used: the host sees to that
        let (product, used) = (device.zeros::<u64>(1)?, device.upload(&[u64::MAX])?);
        let (tickets, places) = (device.zeros::<u32>(2)?, device.upload(places)?);
        let collected = device.pinned::<u64>(1)?;
        let mut raw = RawHalo {
            members: 1,
            own: 0,
            product: product.address(0),
            tickets: tickets.address(0),
            notice: used.address(0),
            places: places.address(0),
            firsts: [places.len() as u32; TEAM_MEMBERS + 1],
            senders: 0,
            ghosts: [0; TEAM_MEMBERS],
            sent_at: [0; TEAM_MEMBERS],
            used_at: [0; TEAM_MEMBERS],
            sent: used.address(0),
            used: used.address(0),
        };
        (raw.firsts[0], raw.sent_at[0]) = (0, collected.address());
        Ok(Post {
            device: device.clone(),
            raw,
            border: Border::new(device, rows, offsets, columns, values)?,
            length,
            places,
            ghosts: device.zeros(ghosts)?,
            collected,
            push: device.function::<T>(&SOURCE, "push")?,
            _words: [product, used],
            _tickets: tickets,
        })
    }

    /// Bytes of the entries in columns of others, and of what is sent.
    pub fn bytes(&self) -> usize {
        self.border.bytes() + self.places.bytes()
    }

    /// New values for the entries in columns of others.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.border.refresh(values)
    }

    /// Queues that the entries of `x` that others read are copied to host memory.
    pub fn collect(&mut self, x: &Array<T>, into: &mut PinnedArray<T>) -> Result<()> {
        let fits = x.len() == self.length && into.as_ref().len() == self.places.len();
        assert!(fits && x.device() == &self.device, "a vector of this device, and room for what is sent");
        if self.places.is_empty() {
            return Ok(());
        }
        self.collected.as_mut()[0] = 0;
        self.raw.ghosts[0] = into.address();
        let x = x.address(0);
        let mut launch = self.device.launch(&self.push);
        launch.arg(&self.raw).arg(&x);
        // SAFETY: arguments as in team.cu; places to send are entries of `x`, and `into`, which waits for the device before its
        // memory is given back, has room for them
        unsafe { launch.launch(config_at_once(&self.device, self.places.len(), 1)) }
    }

    /// Waits until what [`Post::collect`] was given last is in host memory. Work queued after it may go on.
    pub fn collected(&self) -> Result<()> {
        if self.places.is_empty() || self.device.wait_for(|| self.collected.peek(0) != 0)? {
            return Ok(());
        }
        Err(Error::Driver("the device has ended its work and has not collected what is sent".into()))
    }

    /// Queues `y ← y + A_ghost ghosts`. The ghosts must stay as they are until the device has copied them.
    pub fn add(&mut self, ghosts: &PinnedArray<T>, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.receive(ghosts, [x, y], RawNumber::constant(T::zero()), None)
    }

    /// [`Post::add`], and `⟨x, y⟩` over all rows here, where `own` is what it is without ghosts.
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
        self.border.add(&self.raw, &self.ghosts, [x, y], own, sums)
    }
}
