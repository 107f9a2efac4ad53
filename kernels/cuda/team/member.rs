//! Membership of a device in a team: devices that share the vectors of a solve.
//!
//! Each member has a part of every vector. While a device is a member, reductions in its kernels are over the
//! whole team: each member sends its part of a sum to the mailboxes of the others, and adds the parts in the
//! order of members, so that sums are bitwise equal on all devices. The host is not involved.
//!
//! Members must queue the same work. A member that cannot do so announces failure: the others then stop
//! waiting, and their sums are NaN. A device that has waited for ten seconds announces failure on behalf of
//! the member that it waits for. So every wait ends, even if the driver blocks a call of that member's host
//! until the waiting device is done.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::WARP;
use crate::cuda::device::module::{Source, constants};
use crate::cuda::device::prelude::{RawTeam, TEAM_MAIL, TEAM_MEMBERS};
use crate::cuda::device::{Array, Device, Real, lock};
use crate::cuda::team::across::{Offer, Region, SharedWord};
use cudarc::driver::{LaunchConfig, result, sys};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "team.cu",
    text: include_str!("team.cu"),
    constants: constants![],
    mirrors: &[super::halo::MIRROR, super::border::MIRROR],
};

/// Maximum number of members of a team.
pub const MEMBERS: usize = TEAM_MEMBERS;

/// Words of 64 bits per number in a mailbox.
const WORDS: usize = 2;

/// Bytes of a mailbox for this number of members.
pub fn mail_bytes(members: usize) -> usize {
    2 * members * TEAM_MAIL * WORDS * size_of::<u64>()
}

/// Interval at which a waiting host checks whether a member has failed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A word in host memory that all members access: zero, or one plus the index of the member that failed
/// first.
#[derive(Debug)]
pub struct Notice {
    word: *mut u32,
    /// Device address.
    address: u64,
    shared: Option<SharedWord>,
}

// SAFETY: hosts access the word atomically, devices through volatile loads and stores
unsafe impl Send for Notice {}
// SAFETY: as above
unsafe impl Sync for Notice {}

impl Notice {
    /// A word for the members of one process.
    pub fn new(device: &Device) -> Result<Notice> {
        device.inner.context.bind_to_thread()?;
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the memory is freed once, on drop
        let word = unsafe { result::malloc_host(4, flags) }?.cast::<u32>();
        // SAFETY: just allocated
        unsafe { word.write_volatile(0) };
        Ok(Notice { word, address: word as u64, shared: None })
    }

    /// Registers a word in memory that processes share; initially zero.
    pub fn shared(device: &Device, mut memory: SharedWord) -> Result<Notice> {
        device.inner.context.bind_to_thread()?;
        let (word, bytes) = (memory.0.as_mut_ptr(), memory.0.len());
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the memory outlives its registration
        unsafe { sys::cuMemHostRegister_v2(word.cast(), bytes, flags) }.result()?;
        let (mut address, shared) = (0, Some(memory));
        // SAFETY: just registered; the result goes to a local
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, word.cast(), 0) }.result()?;
        Ok(Notice { word: word.cast(), address, shared })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    fn failed(&self) -> &AtomicU32 {
        // SAFETY: the word lives as long as `self`, and is aligned
        unsafe { AtomicU32::from_ptr(self.word) }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let _ = match &self.shared {
            // SAFETY: allocated by `malloc_host`, and freed once; members have synchronized with their
            // devices
            None => unsafe { result::free_host(self.word.cast()) },
            // SAFETY: registered once, in `shared`
            Some(_) => unsafe { sys::cuMemHostUnregister(self.word.cast()) }.result(),
        };
    }
}

/// State of the agreement between the hosts of members: requests of this round, the result of the last round,
/// and the number of members that will make no more requests.
#[derive(Debug, Default)]
struct Agreement {
    arrived: usize,
    most: u8,
    round: u64,
    agreed: u8,
    ended: usize,
}

/// Synchronization point of the members' threads.
#[derive(Debug, Default)]
struct Rendezvous {
    agreement: Mutex<Agreement>,
    changed: Condvar,
}

/// A device's membership in a team.
#[derive(Debug)]
pub struct Member {
    device: Device,
    own: usize,
    count: usize,
    /// Numbers of entries of a vector on this member, and on all members together.
    lengths: [usize; 2],
    team: Array<RawTeam>,
    /// Memory of the mailboxes; lives as long as any member, because others write to it.
    _mail: Arc<Region>,
    _calls: Array<u32>,
    rendezvous: Arc<Rendezvous>,
    pub(crate) notice: Arc<Notice>,
}

impl Member {
    /// Creates a team of devices. `lengths` has the number of entries of every vector on each device.
    pub fn team(devices: &[Device], lengths: &[usize]) -> Result<Vec<Member>> {
        if devices.is_empty() || devices.len() > TEAM_MEMBERS || devices.len() != lengths.len() {
            let (what, got) = ("the number of devices in a team", devices.len());
            return Err(Error::TooLarge { what, got, limit: TEAM_MEMBERS });
        }
        for device in devices {
            devices.iter().try_for_each(|other| device.access(other))?;
        }
        let notice = Arc::new(Notice::new(&devices[0])?);
        let mail = devices.iter().map(|device| Offer::new(device, mail_bytes(devices.len())).map(Arc::new));
        let mail = mail.collect::<Result<Vec<Arc<Offer>>>>()?;
        let (total, rendezvous) = (lengths.iter().sum(), Arc::new(Rendezvous::default()));
        let member = |(own, (device, &length)): (usize, (&Device, &usize))| {
            let mail = Arc::new(Region::within(mail.clone(), own));
            Member::new(device, own, [length, total], mail, rendezvous.clone(), notice.clone())
        };
        devices.iter().zip(lengths).enumerate().map(member).collect()
    }

    /// Creates one member of a team whose other members are created by other threads or processes. All share a
    /// notice, and a region of [`mail_bytes`]. Only sums of work queued in [`Member::sum`] are over the team;
    /// all other coordination is left to the callers.
    pub fn across(device: &Device, own: usize, mail: Arc<Region>, notice: Arc<Notice>) -> Result<Member> {
        Member::new(device, own, [usize::MAX, 0], mail, Arc::default(), notice)
    }

    fn new(
        device: &Device,
        own: usize,
        lengths: [usize; 2],
        mail: Arc<Region>,
        rendezvous: Arc<Rendezvous>,
        notice: Arc<Notice>,
    ) -> Result<Member> {
        let addresses = mail.addresses();
        let enough = addresses.len() <= TEAM_MEMBERS && mail.bytes() >= mail_bytes(addresses.len());
        assert!(enough, "capacity for all members");
        device.inner.keep_pinned();
        let calls = device.zeros::<u32>(1)?;
        let mut raw = RawTeam {
            members: addresses.len() as u32,
            own: own as u32,
            calls: calls.address(0),
            notice: notice.address(),
            mail: [0; TEAM_MEMBERS],
        };
        raw.mail[..addresses.len()].copy_from_slice(addresses);
        let (device, count, team) = (device.clone(), addresses.len(), device.upload(&[raw])?);
        device.synchronize()?;
        Ok(Member { device, own, count, lengths, team, _mail: mail, _calls: calls, rendezvous, notice })
    }

    /// Queues work whose sums are over the team.
    pub fn sum<R>(self: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        self.device.join(Some(self.clone()));
        let result = work();
        self.device.join(None);
        result
    }

    /// Device of the member.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Index of this member, and the number of members.
    pub fn place(&self) -> (usize, usize) {
        (self.own, self.count)
    }

    /// Number of entries of a vector on this member.
    pub fn own_length(&self) -> usize {
        self.lengths[0]
    }

    /// Number of entries of a vector on all members together.
    pub fn whole_length(&self) -> usize {
        self.lengths[1]
    }

    /// Announces failure: the other members stop waiting for this one.
    pub fn report_failure(&self) {
        let (mine, relaxed) = (self.own as u32 + 1, Ordering::Relaxed);
        // if another member failed first, its failure is the one to report
        let _ = self.notice.failed().compare_exchange(0, mine, relaxed, relaxed);
        self.rendezvous.changed.notify_all();
    }

    /// The member that failed first, if one did.
    pub fn failed_member(&self) -> Option<usize> {
        (self.notice.failed().load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Resets the hosts' agreement, before the team's work begins.
    pub fn begin(&self) {
        *lock(&self.rendezvous.agreement) = Agreement::default();
    }

    /// Announces that this member queues no more work, and waits for its device.
    pub fn end(&self) {
        lock(&self.rendezvous.agreement).ended += 1;
        self.rendezvous.changed.notify_all();
        self.device.store_error(self.device.synchronize());
    }

    /// The maximum of all members' requests; each member calls this on its own thread.
    pub fn agree(&self, request: u8) -> Result<u8> {
        let mut agreement = lock(&self.rendezvous.agreement);
        let round = agreement.round;
        agreement.most = agreement.most.max(request);
        agreement.arrived += 1;
        if agreement.arrived == self.count {
            *agreement =
                Agreement { arrived: 0, most: 0, round: round + 1, agreed: agreement.most, ..*agreement };
            self.rendezvous.changed.notify_all();
            return Ok(agreement.agreed);
        }
        // the next round cannot end, and overwrite `agreed`, before all threads have left this one, because
        // it needs another call by each of them
        while agreement.round == round {
            if self.failed_member().is_some() || agreement.ended > 0 {
                return Err(Error::Driver(
                    "another member of the team has failed, or has ended its work".into(),
                ));
            }
            let waited = self.rendezvous.changed.wait_timeout(agreement, POLL_INTERVAL);
            agreement = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(agreement.agreed)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // wait for queued kernels, which may still access the memory of the team
        self.device.store_error(self.device.synchronize());
    }
}

/// The current team of a device.
#[derive(Debug, Default)]
struct Membership {
    member: Mutex<Option<Arc<Member>>>,
    /// True if sums are over this device only (see [`Device::apart`]).
    apart: Mutex<bool>,
}

impl Device {
    /// Makes this device a member of a team or, for `None`, ends its membership. While it is a member,
    /// vectors with the length of its part are parts of distributed vectors.
    pub fn join(&self, member: Option<Arc<Member>>) {
        *lock(&self.kept::<Membership>().member) = member;
    }

    /// The membership of this device, if it is in a team.
    pub fn member(&self) -> Option<Arc<Member>> {
        lock(&self.kept::<Membership>().member).clone()
    }

    /// Queues work whose sums are over this device only.
    pub fn apart<R>(&self, work: impl FnOnce() -> R) -> R {
        let apart = &self.kept::<Membership>().apart;
        *lock(apart) = true;
        let result = work();
        *lock(apart) = false;
        result
    }

    /// Device address of `Team` for kernels that compute sums; 0 for sums over this device only.
    pub(crate) fn team_address(&self) -> u64 {
        let membership = self.kept::<Membership>();
        match &*lock(&membership.member) {
            Some(member) if !*lock(&membership.apart) => member.team.address(0),
            _ => 0,
        }
    }

    /// Sums an array elementwise over the team, if the device is in one.
    pub(crate) fn sum_over_team<T: Real>(&self, array: u64, count: usize) -> Result<()> {
        let team = self.team_address();
        if team == 0 || count == 0 {
            return Ok(());
        }
        if count > TEAM_MAIL {
            let what = "the number of values in one sum over a team";
            return Err(Error::TooLarge { what, got: count, limit: TEAM_MAIL });
        }
        let (function, numbers) = (self.function::<T>(&SOURCE, "sum_array")?, count as u32);
        let mut launch = self.launch(&function);
        launch.arg(&team).arg(&numbers).arg(&array);
        // SAFETY: arguments as in team.cu; the array has `count` elements, and the launch a thread for each
        unsafe { launch.launch(one_block(count)) }
    }
}

fn one_block(threads: usize) -> LaunchConfig {
    let block_dim = (threads.next_multiple_of(WARP) as u32, 1, 1);
    LaunchConfig { grid_dim: (1, 1, 1), block_dim, shared_mem_bytes: 0 }
}
