//! GPUs of ranks that access each other's memory (peer access): sums and entries of `x` are sent between GPUs
//! without the hosts.
//!
//! All ranks must run on one machine, each with a separate GPU. Each rank allocates memory that the kernels of
//! the others write to over NVLink or PCIe. Ranks that are threads of one process share this memory; ranks that
//! are processes export it, and open that of the others by its handle. If that is not possible, all data are
//! sent through pinned host memory.
//!
//! Threads of one process have one driver, and calls that allocate or free memory may wait for all GPUs of the
//! process. A rank that makes such a call waits for GPUs that wait for work of this rank. Therefore all ranks
//! allocate regions together: none of them queues work while another allocates. Regions are kept until the
//! ranks end, and so is pinned memory (`Queue::keep_pinned`).

use super::collective::Ranks;
use super::halo::Routes;
use super::local::Link;
use super::teams::Team;
use crate::device::Cuda;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cuda::Device;
use krysp_kernels::cuda::team::across::{Offer, Region, SharedWord, shared_word};
use krysp_kernels::cuda::team::halo::{HaloExchange, Plan};
use krysp_kernels::cuda::team::member::{MEMBERS, Member, Notice, mail_bytes};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Length of the name of a file that all ranks open, in bytes.
const PATH: usize = 64;

/// Link of a rank's GPU to those of the other ranks.
#[derive(Clone, Debug)]
pub struct CudaLink {
    team: Arc<Team>,
    ranks: Ranks,
}

impl Link for CudaLink {
    fn sum<R>(&self, work: impl FnOnce() -> R) -> R {
        match &self.team.member {
            Some(member) => member.sum(work),
            None => work(),
        }
    }

    fn check(&self) -> Result<()> {
        match self.team.member.as_ref().and_then(|member| member.failed_member()) {
            Some(rank) => Err(self.ranks.failed(rank)),
            None => self.ranks.check(),
        }
    }
}

impl Ranks {
    /// Allows these ranks to communicate peer to peer even if ranks share a GPU: for tests on a machine with
    /// a single GPU. Ranks that are threads then need `CUDA_MODULE_LOADING=EAGER` in the environment: the driver
    /// may wait for the work of all ranks when it loads a module. Collective: all ranks call this.
    #[cfg(any(test, feature = "testing"))]
    pub fn join_on_one_gpu(&self) {
        self.teams().shared.store(true, Ordering::Relaxed);
    }

    /// Returns this rank's value if all ranks have a value, otherwise `None` on all ranks.
    fn each_has<R>(&self, result: Result<R>) -> Result<Option<R>> {
        let all = self.all_gather(vec![u8::from(result.is_ok())])?;
        Ok(result.ok().filter(|_| all.iter().all(|&has| has == 1)))
    }

    /// Gathers `K` bytes from each rank: the handle of exported memory, the identity of a GPU, or a path.
    fn names<const K: usize>(&self, own: [u8; K]) -> Result<Vec<[u8; K]>> {
        Ok(self.all_gather(own.to_vec())?.as_chunks::<K>().0.to_vec())
    }
}

impl CudaLink {
    /// Links the GPUs of all ranks, if that is possible. Collective: all ranks call this.
    pub(super) fn new(ranks: &Ranks, gpu: &Cuda) -> Result<Option<CudaLink>> {
        let link = |team: Option<Arc<Team>>| team.map(|team| CudaLink { team, ranks: ranks.clone() });
        let before = ranks.teams().made().iter().find(|(of, _)| of == gpu).map(|(_, team)| team.clone());
        let known = ranks.all_gather(vec![u8::from(before.is_some())])?;
        if let Some(team) = before.filter(|_| known.iter().all(|&known| known == 1)) {
            return Ok(link(team));
        }
        let team = Team::new(ranks, gpu)?.map(Arc::new);
        ranks.teams().made().push((gpu.clone(), team.clone()));
        Ok(link(team))
    }

    /// This rank's GPU as a member of the team, or `None` if there is only one rank.
    pub(super) fn member(&self) -> Option<&Arc<Member>> {
        self.team.member.as_ref()
    }

    /// Prepares products with rows that have entries in columns of other ranks. Collective: all ranks call
    /// this.
    pub(super) fn halo<T: Real>(
        &self,
        member: &Arc<Member>,
        routes: &Routes,
        own: usize,
        rows: &[u32],
        outside: &Csr<T>,
    ) -> Result<HaloExchange<T>> {
        let (ranks, ghosts) = (&self.ranks, outside.cols());
        let plan = Plan {
            sends: routes.sends_by_rank(),
            ghosts_from: routes.ghosts_from(),
            rows: rows.to_vec(),
            offsets: outside.offsets().iter().map(|&offset| offset as u32).collect(),
            columns: outside.columns().to_vec(),
            values: outside.entries().to_vec(),
        };
        // exchange the positions at which each rank's entries begin among the ghosts of the others
        let begin = plan.ghosts_from[..ranks.size()].iter().map(|&place| vec![place as u64]).collect();
        let begin: Vec<usize> =
            ranks.exchange(begin)?.concat().into_iter().map(|place| place as usize).collect();
        let region = self.team.region(ranks, member, HaloExchange::<T>::inbox_bytes(ghosts))?;
        ranks.all(HaloExchange::across(member, own, &plan, &begin, region).map_err(Into::into))
    }
}

impl Team {
    /// Links the GPUs; `None` if that is impossible. Collective: all ranks call this.
    fn new(ranks: &Ranks, gpu: &Cuda) -> Result<Option<Team>> {
        let regions = Mutex::default();
        if ranks.size() == 1 {
            return Ok(Some(Team { member: None, regions }));
        }
        let one_machine = ranks.of_this_machine()?.len() == ranks.size();
        let Some(own) = ranks.each_has(gpu.device().identity().map_err(Into::into))? else { return Ok(None) };
        let identities = ranks.names(own)?;
        let shares = (1..identities.len()).any(|at| identities[..at].contains(&identities[at]));
        let may = one_machine
            && ranks.size() <= MEMBERS
            && (!shares || ranks.teams().shared.load(Ordering::Relaxed));
        // all ranks decide together, because their own results may differ (machines are identified by name)
        if ranks.all_gather(vec![u8::from(may)])?.contains(&0) {
            return Ok(None);
        }
        if !have_access(ranks, gpu.device())? {
            return Ok(None);
        }
        let mail = region(ranks, gpu.device(), mail_bytes(ranks.size()));
        // return the error of a failed rank; GPUs that merely cannot be linked exchange through the hosts
        ranks.check()?;
        let Ok(mail) = mail else { return Ok(None) };
        let Some(notice) = notice(ranks, gpu.device())? else { return Ok(None) };
        let member = Member::across(gpu.device(), ranks.rank(), mail, notice).map_err(Into::into);
        Ok(ranks.each_has(member)?.map(|member| Team { member: Some(Arc::new(member)), regions }))
    }

    /// Zeroed memory of at least `bytes` on each rank, reused if possible. Collective: all ranks call this.
    fn region(&self, ranks: &Ranks, member: &Member, bytes: usize) -> Result<Arc<Region>> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        // all ranks create regions together, so each rank has the same number of regions
        let free = |region: &Arc<Region>| u8::from(Arc::strong_count(region) == 1 && region.bytes() >= bytes);
        let count = regions.len();
        let mine: Vec<u8> = regions.iter().map(free).chain([1]).collect();
        let all = ranks.all_gather(mine)?;
        let place = (0..=count).find(|&at| (0..ranks.size()).all(|rank| all[rank * (count + 1) + at] == 1));
        if let Some(region) = place.and_then(|place| regions.get(place)) {
            ranks.all(region.clear().map_err(Into::into))?;
            return Ok(region.clone());
        }
        // all ranks allocate the maximum, so that a region that is large enough for one rank is for all
        let most = ranks.all_gather(vec![bytes as u64])?.into_iter().max().unwrap_or(0) as usize;
        let region = region(ranks, member.device(), most)?;
        regions.push(region.clone());
        Ok(region)
    }
}

/// Enables access of this rank's GPU to those of ranks in the same process; returns whether that is possible
/// and no other ranks of the process use these GPUs. Processes have access to memory that they open.
/// Collective: all ranks call this.
fn have_access(ranks: &Ranks, own: &Device) -> Result<bool> {
    let Some(devices) = ranks.share(own.clone())? else { return Ok(true) };
    // on a common stream, a rank would wait for work that is queued after its own
    if (1..devices.len()).any(|at| devices[..at].contains(&devices[at])) {
        return Ok(false);
    }
    let gpus: Vec<usize> = devices.iter().map(Device::ordinal).collect();
    let are_free = ranks.rank() > 0 || ranks.teams().reserve(&gpus);
    let have_access = are_free && devices.iter().all(|other| own.access(other).is_ok());
    Ok(!ranks.all_gather(vec![u8::from(have_access)])?.contains(&0))
}

/// Zeroed memory of each rank's GPU, which all others can access. Collective: all ranks call this.
fn region(ranks: &Ranks, device: &Device, bytes: usize) -> Result<Arc<Region>> {
    let own = Arc::new(ranks.all(Offer::new(device, bytes).map_err(Into::into))?);
    if let Some(all) = ranks.share(own.clone())? {
        return Ok(Arc::new(Region::within(all, ranks.rank())));
    }
    let names = ranks.names(ranks.all(own.name().map_err(Into::into))?)?;
    let region = Region::open(own, ranks.rank(), &names).map_err(Into::into);
    Ok(Arc::new(ranks.all(region)?))
}

/// The word by which members learn of a failure; `None` if it is impossible to share one. Collective: all ranks
/// call this.
fn notice(ranks: &Ranks, device: &Device) -> Result<Option<Arc<Notice>>> {
    if !ranks.are_threads() {
        let Some(word) = word(ranks)? else { return Ok(None) };
        let registered = Notice::shared(device, word).map_err(Into::into);
        return Ok(ranks.each_has(registered)?.map(Arc::new));
    }
    let made = if ranks.rank() == 0 { Notice::new(device).map(Arc::new).map(Some) } else { Ok(None) };
    let Some(own) = ranks.each_has(made.map_err(Into::into))? else { return Ok(None) };
    Ok(ranks.share(own)?.and_then(|all| all.into_iter().flatten().next()))
}

/// A word of memory shared by all processes; `None` if that is impossible. Collective: all ranks call this.
fn word(ranks: &Ranks) -> Result<Option<SharedWord>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let mut own = format!("/dev/shm/krysp-{}-{now:x}", std::process::id()).into_bytes();
    own.resize(PATH, 0);
    let mut first = [0; PATH];
    first.copy_from_slice(&own[..PATH]);
    let first = ranks.names(first)?[0];
    let path = PathBuf::from(String::from_utf8_lossy(&first).trim_end_matches('\0'));
    let is_first = ranks.rank() == 0;
    let made = if is_first { shared_word(&path, true).map(Some) } else { Ok(None) };
    let Some(made) = ranks.each_has(made.map_err(Into::into))? else { return Ok(None) };
    let opened = made.map_or_else(|| shared_word(&path, false), Ok);
    let word = ranks.each_has(opened.map_err(Into::into));
    if is_first {
        // mappings of the file stay valid after it is removed
        let _ = std::fs::remove_file(&path);
    }
    word
}
