//! How much memory factors may take.

use crate::{Error, Result};

/// The share of the memory that is free which factors may take, where no limit is given.
const SHARE: f64 = 0.75;

/// What a direct factorisation may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectOptions {
    /// Bytes for the factors and what computing them needs; three quarters of the memory that is free where `None`.
    pub memory: Option<usize>,
}

/// A limit on the memory of one factorisation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    what: &'static str,
    limit: usize,
}

impl Budget {
    pub(super) fn new(what: &'static str, options: DirectOptions) -> Budget {
        Budget { what, limit: options.memory.unwrap_or_else(free_share) }
    }

    /// Refuses to take so many bytes.
    pub(super) fn allows(self, bytes: usize) -> Result<()> {
        if bytes <= self.limit { Ok(()) } else { Err(self.refused(bytes)) }
    }

    pub(super) fn refused(self, needed: usize) -> Error {
        Error::Memory { what: self.what, needed, limit: self.limit }
    }

    /// Zeros, or an error where there is no memory for them.
    pub(super) fn zeros<T: Clone + Default>(self, len: usize) -> Result<Vec<T>> {
        let mut zeros = vec![];
        self.reserve(&mut zeros, len)?;
        zeros.resize(len, T::default());
        Ok(zeros)
    }

    /// Makes room for so many more, or says that there is none.
    pub(super) fn reserve<T>(self, list: &mut Vec<T>, more: usize) -> Result<()> {
        let bytes = (list.len() + more).saturating_mul(size_of::<T>());
        list.try_reserve_exact(more).map_err(|_| self.refused(bytes))
    }
}

fn free_share() -> usize {
    free().map_or(usize::MAX, |free| (SHARE * free as f64) as usize)
}

/// The bytes of memory that are free, where the system says so.
fn free() -> Option<usize> {
    let system = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let number = |file| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok();
    // a container may be allowed less than the machine has
    let [most, taken] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"].map(number);
    let allowed = most.map(|most| most.saturating_sub(taken.unwrap_or(0)));
    Some((kibibytes << 10).min(allowed.unwrap_or(usize::MAX)))
}
