//! GPUs of ranks that access each other's memory (peer access): sums and entries of `x` are sent between GPUs
//! without the hosts.
//!
//! All ranks must run on one machine, each with a separate GPU. Each rank exports memory, which the others
//! open by its handle; their kernels then write to it over NVLink or PCIe, as in one process with several
//! GPUs. If that is not possible, or ranks are threads of one process, all data are sent through pinned host memory.

use super::collective::Ranks;
use super::halo::Routes;
use super::local::Link;
use super::teams::Team;
use crate::device::Cuda;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cuda::team::across::{NAME, Offer, Region, SharedWord, shared_word};
use krysp_kernels::cuda::team::halo::{HaloExchange, Plan};
use krysp_kernels::cuda::team::member::{MEMBERS, Member, mail_bytes};
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
    /// a single GPU. Collective: all ranks call this.
    #[cfg(any(test, feature = "testing"))]
    pub fn join_on_one_gpu(&self) {
        self.teams().shared.store(true, Ordering::Relaxed);
    }

    /// Returns this rank's value if all ranks have a value, otherwise `None` on all ranks.
    fn each_has<R>(&self, result: Result<R>) -> Result<Option<R>> {
        let all = self.gather(vec![u8::from(result.is_ok())])?;
        Ok(result.ok().filter(|_| all.iter().all(|&has| has == 1)))
    }

    /// Gathers `K` bytes from each rank: the handle of exported memory, the identity of a GPU, or a path.
    fn names<const K: usize>(&self, own: [u8; K]) -> Result<Vec<[u8; K]>> {
        Ok(self.gather(own.to_vec())?.as_chunks::<K>().0.to_vec())
    }
}

impl CudaLink {
    /// Links the GPUs of all ranks, if that is possible. Collective: all ranks call this.
    pub(super) fn new(ranks: &Ranks, gpu: &Cuda) -> Result<Option<CudaLink>> {
        let link = |team: Option<Arc<Team>>| team.map(|team| CudaLink { team, ranks: ranks.clone() });
        let before = ranks.teams().made().iter().find(|(of, _)| of == gpu).map(|(_, team)| team.clone());
        let known = ranks.gather(vec![u8::from(before.is_some())])?;
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
        // CUDA opens no IPC handle in the process that exports it
        if ranks.are_threads() {
            return Ok(None);
        }
        let one_machine = ranks.of_this_machine()?.len() == ranks.size();
        let Some(own) = ranks.each_has(gpu.device().identity().map_err(Into::into))? else { return Ok(None) };
        let identities = ranks.names(own)?;
        let shares = (1..identities.len()).any(|at| identities[..at].contains(&identities[at]));
        let may = one_machine
            && ranks.size() <= MEMBERS
            && (!shares || ranks.teams().shared.load(Ordering::Relaxed));
        // all ranks decide together, because their own results may differ (machines are identified by name)
        if ranks.gather(vec![u8::from(may)])?.contains(&0) {
            return Ok(None);
        }
        let Some(mail) = region(ranks, gpu, mail_bytes(ranks.size()))? else { return Ok(None) };
        let Some(word) = word(ranks)? else { return Ok(None) };
        let member = Member::across(gpu.device(), ranks.rank(), mail, word).map_err(Into::into);
        Ok(ranks.each_has(member)?.map(|member| Team { member: Some(Arc::new(member)), regions }))
    }

    /// Zeroed memory of at least `bytes` on each rank, reused if possible. Collective: all ranks call this.
    fn region(&self, ranks: &Ranks, member: &Member, bytes: usize) -> Result<Arc<Region>> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        // all ranks create regions together, so each rank has the same number of regions
        let free = |region: &Arc<Region>| u8::from(Arc::strong_count(region) == 1 && region.bytes() >= bytes);
        let count = regions.len();
        let mine: Vec<u8> = regions.iter().map(free).chain([1]).collect();
        let all = ranks.gather(mine)?;
        let place = (0..=count).find(|&at| (0..ranks.size()).all(|rank| all[rank * (count + 1) + at] == 1));
        if let Some(region) = place.and_then(|place| regions.get(place)) {
            ranks.all(region.clear().map_err(Into::into))?;
            return Ok(region.clone());
        }
        // all ranks allocate the maximum, so that a region that is large enough for one rank is for all
        let most = ranks.gather(vec![bytes as u64])?.into_iter().max().unwrap_or(0) as usize;
        let offer = ranks.all(Offer::new(member.device(), most).map_err(Into::into))?;
        let names = ranks.names(ranks.all(offer.name().map_err(Into::into))?)?;
        let region = ranks.all(Region::open(offer, ranks.rank(), &names).map_err(Into::into))?;
        let region = Arc::new(region);
        regions.push(region.clone());
        Ok(region)
    }
}

/// Exports memory of each rank's GPU to all others; `None` if that is impossible. Collective: all ranks call
/// this.
fn region(ranks: &Ranks, gpu: &Cuda, bytes: usize) -> Result<Option<Arc<Region>>> {
    let offered = || {
        let offer = Offer::new(gpu.device(), bytes)?;
        let name: [u8; NAME] = offer.name()?;
        Ok((offer, name))
    };
    let Some((offer, name)) = ranks.each_has(offered())? else { return Ok(None) };
    let names = ranks.names(name)?;
    let region = Region::open(offer, ranks.rank(), &names).map_err(Into::into);
    Ok(ranks.each_has(region)?.map(Arc::new))
}

/// A word of memory shared by all ranks; `None` if that is impossible. Collective: all ranks call this.
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
