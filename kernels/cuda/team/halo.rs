//! Matrix-vector products whose rows read entries of `x` (ghosts) that other members of a team, the devices
//! that share the vectors, own.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config_concurrent;
use crate::cuda::device::module::{Mirror, mirror};
use crate::cuda::device::prelude::{RawNumber, TEAM_MEMBERS};
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::sums::Sums;
use crate::cuda::team::across::{Offer, Region};
use crate::cuda::team::border::OffDiagonal;
use crate::cuda::team::member::{Member, SOURCE};
use cudarc::driver::{CudaFunction, DeviceRepr};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawHaloExchange {
    pub(super) members: u32,
    pub(super) own: u32,
    pub(super) product: u64,
    pub(super) tickets: u64,
    pub(super) notice: u64,
    pub(super) places: u64,
    pub(super) firsts: [u32; TEAM_MEMBERS + 1],
    pub(super) senders: u32,
    pub(super) ghosts: [u64; TEAM_MEMBERS],
    pub(super) sent_at: [u64; TEAM_MEMBERS],
    pub(super) used_at: [u64; TEAM_MEMBERS],
    pub(super) sent: u64,
    pub(super) used: u64,
}
// SAFETY: has the layout of `HaloExchange` in team.cu
unsafe impl DeviceRepr for RawHaloExchange {}

/// Layout check of [`RawHaloExchange`] against the kernels.
pub(crate) const MIRROR: Mirror = mirror!(
    "HaloExchange" = RawHaloExchange {
        members,
        own,
        product,
        tickets,
        notice,
        places,
        firsts,
        senders,
        ghosts,
        sent_at,
        used_at,
        sent,
        used
    }
);

/// Communication plan of a member: entries of `x` that it sends and receives in a product, and its matrix
/// entries in ghost columns. Computed on the host.
#[derive(Clone, Debug, Default)]
pub struct Plan<T> {
    /// For each other member, the indices of the entries of this member's `x` that the other reads, in the
    /// order of its ghosts.
    pub sends: Vec<Vec<u32>>,
    /// For each member, the start of its entries among the ghosts of this member, and the end.
    pub ghosts_from: Vec<usize>,
    /// Rows with entries in ghost columns.
    pub rows: Vec<u32>,
    /// Start of the entries of each of these rows, and the end.
    pub offsets: Vec<u32>,
    /// Index of the ghost of each entry.
    pub columns: Vec<u32>,
    /// Value of each entry.
    pub values: Vec<T>,
}

/// The arrays whose addresses are in [`RawHaloExchange`].
#[derive(Debug)]
struct Arrays {
    _product: Array<u64>,
    _tickets: Array<u32>,
    places: Array<u32>,
}

/// A member's side of products with ghost columns.
#[derive(Debug)]
pub struct HaloExchange<T: Real> {
    member: Arc<Member>,
    raw: RawHaloExchange,
    border: OffDiagonal<T>,
    /// Number of entries of this member's vectors.
    length: usize,
    /// Number of entries that this member sends.
    sends: usize,
    /// Device address of this member's ghosts.
    ghosts: u64,
    push: CudaFunction,
    arrays: Arrays,
    _inboxes: Arc<Region>,
}

/// Offset in bytes of the second part of a member's inbox. The three parts of an inbox are: for each other
/// member, the number of the last product for which it has sent ghosts; from here on, for each other member,
/// the number of the last product for which it has used the ghosts that this member sent; and, from
/// [`GHOSTS_AT`] on, the ghosts.
const USED_AT: usize = TEAM_MEMBERS * size_of::<u64>();
const GHOSTS_AT: usize = 256;

impl<T: Real> HaloExchange<T> {
    /// Connects all members of a team within a process, each with its plan.
    pub fn connect(members: &[Arc<Member>], plans: &[Plan<T>]) -> Result<Vec<HaloExchange<T>>> {
        let most = plans.iter().filter_map(|plan| plan.ghosts_from.last().copied()).max().unwrap_or(0);
        let inbox = |member: &Arc<Member>| Offer::new(member.device(), Self::inbox_bytes(most)).map(Arc::new);
        let inboxes = members.iter().map(inbox).collect::<Result<Vec<Arc<Offer>>>>()?;
        let halo = |(own, (member, plan)): (usize, (&Arc<Member>, &Plan<T>))| {
            let at_others: Vec<usize> = plans.iter().map(|plan| plan.ghosts_from[own]).collect();
            let region = Arc::new(Region::within(inboxes.clone(), own));
            HaloExchange::across(member, member.own_length(), plan, &at_others, region)
        };
        members.iter().zip(plans).enumerate().map(halo).collect()
    }

    /// Bytes of a region that a member with this number of ghosts needs.
    pub fn inbox_bytes(ghosts: usize) -> usize {
        GHOSTS_AT + ghosts * size_of::<T>()
    }

    /// Connects one member with the others, which other threads or processes connect. Vectors have `length`
    /// entries on this member. All members use one zeroed region for their inboxes; `at_others` has for each
    /// member the start of this member's entries among its ghosts.
    pub fn across(
        member: &Arc<Member>,
        length: usize,
        plan: &Plan<T>,
        at_others: &[usize],
        region: Arc<Region>,
    ) -> Result<HaloExchange<T>> {
        let (_, count) = member.place();
        let ghosts = plan.ghosts_from.last().copied().unwrap_or(0);
        let ends = plan.sends.iter().zip(at_others).map(|(sends, first)| first + sends.len());
        let needed = Self::inbox_bytes(ends.max().unwrap_or(0).max(ghosts));
        if needed > region.bytes() {
            let (what, limit) = ("the size of a halo in bytes", region.bytes());
            return Err(Error::TooLarge { what, got: needed, limit });
        }
        let fits = [plan.sends.len(), at_others.len(), region.addresses().len()] == [count; 3]
            && plan.sends.iter().flatten().all(|&place| (place as usize) < length)
            && plan.rows.iter().all(|&row| (row as usize) < length)
            && plan.columns.iter().all(|&column| (column as usize) < ghosts)
            && plan.offsets.len() == plan.rows.len() + 1
            && plan.offsets.is_sorted()
            && plan.offsets[plan.rows.len()] as usize == plan.columns.len()
            && plan.columns.len() == plan.values.len();
        assert!(fits, "members of the team, rows of the vector, and ghosts");
        HaloExchange::new(member, length, plan, at_others, region)
    }

    /// Like [`HaloExchange::across`], with arguments that were checked.
    fn new(
        member: &Arc<Member>,
        length: usize,
        plan: &Plan<T>,
        at_others: &[usize],
        inboxes: Arc<Region>,
    ) -> Result<HaloExchange<T>> {
        let (device, (own, count)) = (member.device(), member.place());
        // addresses in a member's inbox: of the ghosts that this member sends, of the flags of products sent,
        // and of the flags of products used
        let address = |to: usize| {
            let ghosts = GHOSTS_AT + at_others[to] * size_of::<T>();
            [ghosts, 0, USED_AT].map(|at| inboxes.addresses()[to] + at as u64)
        };
        let mut firsts = [0; TEAM_MEMBERS + 1];
        let mut places = vec![];
        for (to, sends) in plan.sends.iter().enumerate() {
            places.extend_from_slice(sends);
            firsts[to + 1..].fill(places.len() as u32);
        }
        let each = |which: usize, word: usize| {
            let mut addresses = [0; TEAM_MEMBERS];
            let of =
                |(to, at): (usize, &mut u64)| *at = address(to)[which] + (word * size_of::<u64>()) as u64;
            addresses.iter_mut().enumerate().take(count).for_each(of);
            addresses
        };
        let gets = |from: usize| plan.ghosts_from[from + 1] > plan.ghosts_from[from];
        let senders = (0..count).filter(|&from| gets(from)).fold(0, |all, from| all | 1 << from);
        let (product, tickets) = (device.zeros::<u64>(1)?, device.zeros::<u32>(2)?);
        let (sends, places) = (places.len(), device.upload(&places)?);
        let raw = RawHaloExchange {
            members: count as u32,
            own: own as u32,
            product: product.address(0),
            tickets: tickets.address(0),
            notice: member.notice.address(),
            places: places.address(0),
            firsts,
            senders,
            ghosts: each(0, 0),
            sent_at: each(1, own),
            used_at: each(2, own),
            sent: address(own)[1],
            used: address(own)[2],
        };
        Ok(HaloExchange {
            member: member.clone(),
            raw,
            border: OffDiagonal::new(device, &plan.rows, &plan.offsets, &plan.columns, &plan.values)?,
            length,
            sends,
            ghosts: inboxes.addresses()[own] + GHOSTS_AT as u64,
            push: device.function::<T>(&SOURCE, "push")?,
            arrays: Arrays { _product: product, _tickets: tickets, places },
            _inboxes: inboxes,
        })
    }

    /// Bytes of the entries in ghost columns, and of the indices of entries that are sent.
    pub fn bytes(&self) -> usize {
        self.border.bytes() + self.arrays.places.bytes()
    }

    /// Replaces the values of the entries in ghost columns.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.border.refresh(values)
    }

    fn device(&self) -> &Device {
        self.member.device()
    }

    /// Queues sending of entries of `x` to the members that read them.
    pub fn send(&self, x: &Array<T>) -> Result<()> {
        assert!(x.device() == self.device() && x.len() == self.length, "a part of the member's");
        let x = x.address(0);
        let mut launch = self.device().launch(&self.push);
        launch.arg(&self.raw).arg(&x);
        // SAFETY: arguments as in team.cu; `places` are indices of `x`, and inboxes have space for them
        unsafe { launch.launch(config_concurrent(self.device(), self.sends, 1)) }
    }

    fn receive(
        &self,
        x: &Array<T>,
        y: &Array<T>,
        own: RawNumber<T>,
        sums: Option<&Sums<T, 1>>,
    ) -> Result<()> {
        assert!(y.device() == self.device() && y.len() == self.length, "a part of the member's");
        self.border.add(&self.raw, self.ghosts, [x, y], own, sums)
    }

    /// `y ← y + A_ghost ghosts` with the ghosts of the current product; the device waits until other members
    /// have sent them.
    pub fn add(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.receive(x, y, RawNumber::constant(T::zero()), None)
    }

    /// Like [`HaloExchange::add`]; also returns `⟨x, y⟩` over all members, where `own` is this member's value
    /// without ghosts.
    pub fn add_dot(&self, x: &Array<T>, y: &mut Array<T>, own: &Scalar<T>) -> Result<Scalar<T>> {
        let sums = Sums::<T, 1>::new(self.device())?;
        self.receive(x, y, own.number().raw(), Some(&sums))?;
        let [sum] = sums.scalars();
        Ok(sum)
    }
}

impl<T: Real> Drop for HaloExchange<T> {
    fn drop(&mut self) {
        // wait for queued kernels, which may still write to the inboxes of others, before that memory is
        // reused
        let device = self.device();
        device.store_error(device.synchronize());
    }
}
