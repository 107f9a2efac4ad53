//! Free host memory, which is queried before large allocations: a failed allocation would abort the program.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory limit of this program in bytes.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the total memory of this program, including the memory that it uses now.
pub(crate) fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Size in bytes of the smallest allocation for which free memory is queried. Estimated, not measured.
const LARGE: usize = 64 << 20;

/// Returns an error if an array does not fit into free memory.
pub(crate) fn check_free_memory(what: &'static str, bytes: u128) -> Result<()> {
    if bytes < LARGE as u128 {
        return Ok(());
    }
    let most = free().unwrap_or(isize::MAX as usize);
    let refused = || Error::Allocation { what, bytes, free: most };
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= most).ok_or_else(refused)?;
    // the allocator may fail although the system has enough memory
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| refused())
}

/// Number of bytes that are free before an allocation of `bytes` bytes; `None` if it is unknown. Without a
/// limit, the system is not queried for fewer than [`LARGE`] bytes, because the query takes as long as the
/// conversion of a small matrix.
pub(crate) fn free_for(bytes: usize) -> Option<usize> {
    (bytes >= LARGE || LIMIT.load(Ordering::Relaxed) < usize::MAX).then(free).flatten()
}

/// The bytes of memory that are free and within the limit, if the system reports them.
pub(crate) fn free() -> Option<usize> {
    let limit = LIMIT.load(Ordering::Relaxed);
    let left = (limit < usize::MAX).then(|| limit.saturating_sub(resident_bytes().unwrap_or(0)));
    let all = [free_in_all(), left];
    all.into_iter().flatten().min()
}

/// The resident memory of this program in bytes.
fn resident_bytes() -> Option<usize> {
    let own = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = own.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

fn free_in_all() -> Option<usize> {
    let system = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let number = |file| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok();
    // a container may have a lower limit than the machine
    let [most, taken] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"].map(number);
    let allowed = most.map(|most| most.saturating_sub(taken.unwrap_or(0)));
    Some((kibibytes << 10).min(allowed.unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_refused_and_what_can_is_not() {
        check_free_memory("a test", 0).unwrap();
        check_free_memory("a test", 65 << 20).unwrap();
        for bytes in [1 << 60, u128::from(u64::MAX), u128::MAX] {
            let refused = check_free_memory("a test", bytes).unwrap_err();
            assert!(matches!(refused, Error::Allocation { bytes: said, .. } if said == bytes), "{refused}");
        }
    }
}
