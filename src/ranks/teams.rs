//! Teams: GPUs of ranks that access each other's memory.

use crate::device::Cuda;
use krysp_kernels::cuda::team::across::Region;
use krysp_kernels::cuda::team::member::Member;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// GPUs that ranks of this process exchange with directly: the number of each, and the owner of the ranks.
static RESERVED: Mutex<Vec<(usize, Weak<()>)>> = Mutex::new(vec![]);

/// The teams (groups of GPUs that access each other's memory) that this rank's GPUs belong to. Teams are
/// never dropped before the ranks, because other ranks may still use their memory.
#[derive(Debug, Default)]
pub(super) struct Teams {
    made: Mutex<Vec<(Cuda, Option<Arc<Team>>)>>,
    /// True if ranks that share a GPU communicate peer to peer, too.
    #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
    pub(super) shared: AtomicBool,
    /// Owner of reserved GPUs.
    owner: Arc<()>,
}

impl Teams {
    pub(super) fn made(&self) -> MutexGuard<'_, Vec<(Cuda, Option<Arc<Team>>)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves GPUs of this process until these ranks, and all matrices that they returned, are gone; returns
    /// `false` if other ranks have reserved one of them. Kernels of two teams on the same GPUs could wait for each
    /// other until the time limit: waiting kernels of one team may occupy all multiprocessors of a GPU.
    pub(super) fn reserve(&self, gpus: &[usize]) -> bool {
        let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.retain(|(_, owner)| owner.strong_count() > 0);
        let own = Arc::downgrade(&self.owner);
        let is_free = reserved.iter().all(|(gpu, owner)| owner.ptr_eq(&own) || !gpus.contains(gpu));
        if is_free {
            reserved.extend(gpus.iter().map(|&gpu| (gpu, own.clone())));
        }
        is_free
    }

    /// Makes the GPUs of other ranks stop waiting for this rank's GPUs.
    pub(super) fn report_failure(&self) {
        let members =
            |(_, team): &(Cuda, Option<Arc<Team>>)| team.as_ref().and_then(|team| team.member.clone());
        self.made().iter().filter_map(members).for_each(|member| member.report_failure());
    }
}

/// A rank's part of a team.
#[derive(Debug)]
pub(super) struct Team {
    /// `None` if there is only one rank.
    pub(super) member: Option<Arc<Member>>,
    /// Memory that other ranks write to, reused once all ranks have released it.
    pub(super) regions: Mutex<Vec<Arc<Region>>>,
}
