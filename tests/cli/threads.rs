//! The default number of threads is that of the cores which the process may use.

use crate::folder::Folder;
use krysp::testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};

/// Checks the number of threads of the program, started by `limits`, without a value of `RAYON_NUM_THREADS` and with one.
fn uses_one_thread(folder: &Folder, limits: &str) {
    for (variable, expected) in
        [("-u RAYON_NUM_THREADS", ", 1 thread,"), ("RAYON_NUM_THREADS=3", ", 3 threads,")]
    {
        let ran = folder.run(&format!("{limits} env {variable} krysp devices"));
        assert!(ran.code == 0 && ran.out.contains(expected), "{limits}, {variable}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn threads_are_limited_to_the_affinity_mask() {
    let folder = Folder::new("affinity");
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.and_then(|list| list.trim().split(['-', ',']).next());
    match first {
        Some(core) if folder.run("taskset --version").code == 0 => {
            uses_one_thread(&folder, &format!("taskset -c {core}"));
        }
        _ => skipped("no `taskset` on this machine"),
    }
}

/// A control group below the root, removed at the end of a test.
struct Group(PathBuf);

impl Group {
    /// Creates a group and writes `limit` to its file `file`. Returns `None` without the permission to do that.
    fn new(controller: &str, file: &str, limit: &str) -> Option<Group> {
        let path = Path::new("/sys/fs/cgroup").join(controller).join(format!("krysp_{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Group(path);
        fs::write(group.0.join(file), limit).is_ok().then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // the group of a process that still runs remains
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn threads_are_limited_to_the_quota_of_a_control_group() {
    let folder = Folder::new("quota");
    let group = Group::new("cpu", "cpu.cfs_quota_us", "100000")
        .or_else(|| Group::new("", "cpu.max", "100000 100000"));
    let Some(group) = group else { return skipped("no permission to create a control group with a quota") };
    uses_one_thread(&folder, &format!("echo $$ > {}/cgroup.procs &&", group.0.display()));
}
