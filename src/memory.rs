//! How much host memory there is, asked before large arrays are made: an allocation that fails would end the program.

use crate::{Error, Result};

/// Smaller arrays are not asked for: whatever made the matrix took as much.
const LARGE: usize = 64 << 20;

/// Refuses what does not fit the memory that is free.
pub(crate) fn room(what: &'static str, bytes: u128) -> Result<()> {
    if bytes < LARGE as u128 {
        return Ok(());
    }
    let most = free().unwrap_or(isize::MAX as usize);
    let refused = || Error::Allocation { what, bytes, free: most };
    let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= most).ok_or_else(refused)?;
    // the allocator may refuse what the system has
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| refused())
}

/// The bytes of memory that are free, where the system says so.
pub(crate) fn free() -> Option<usize> {
    let system = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = system.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let number = |file| std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok();
    // a container may be allowed less than the machine has
    let [most, taken] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"].map(number);
    let allowed = most.map(|most| most.saturating_sub(taken.unwrap_or(0)));
    Some((kibibytes << 10).min(allowed.unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_refused_and_what_can_is_not() {
        room("a test", 0).unwrap();
        room("a test", 65 << 20).unwrap();
        for bytes in [1 << 60, u128::from(u64::MAX), u128::MAX] {
            let refused = room("a test", bytes).unwrap_err();
            assert!(matches!(refused, Error::Allocation { bytes: said, .. } if said == bytes), "{refused}");
        }
    }
}
