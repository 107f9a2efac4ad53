//! The machine that runs the bench: its name and bandwidth, the date and the commit.

use krysp::{HostSpace, HostVector, Space};
use rayon::prelude::*;
use std::hint::black_box;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Bytes that are read to measure the bandwidth: more than any cache holds.
const READ: usize = 512 << 20;

/// The array that is read to measure the bandwidth.
pub struct Bandwidth {
    array: HostVector<f64>,
}

impl Bandwidth {
    pub fn new() -> super::Result<Bandwidth> {
        let mut array = HostSpace::new(READ / size_of::<f64>()).zeros()?;
        array.as_mut_slice().par_iter_mut().enumerate().for_each(|(i, x)| *x = i as f64);
        Ok(Bandwidth { array })
    }

    pub fn bytes(&self) -> usize {
        READ
    }

    /// The seconds in which all threads read the array once.
    pub fn seconds(&self) -> f64 {
        let started = Instant::now();
        self.read();
        started.elapsed().as_secs_f64()
    }

    fn read(&self) {
        let sum = |part: &[f64]| {
            let mut sums = [0.0; 32];
            for line in part.chunks_exact(32) {
                sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += x);
            }
            sums.iter().sum::<f64>()
        };
        let pieces = 4 * rayon::current_num_threads();
        let length = self.array.as_slice().len().div_ceil(pieces).next_multiple_of(32);
        black_box(self.array.as_slice().par_chunks(length).map(sum).sum::<f64>());
    }
}

/// Makes the main thread one of Rayon's threads, as OpenMP does. Otherwise the main thread sleeps during every product,
/// and two threads must be woken for each product instead of one. Call it at the start of `main`.
pub fn join_threads() -> super::Result<()> {
    Ok(rayon::ThreadPoolBuilder::new().use_current_thread().build_global()?)
}

/// A field of the first processor in /proc/cpuinfo.
fn cpuinfo(key: &str) -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.split(':').next().is_some_and(|k| k.trim() == key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The processor, threads and SIMD level, for a CSV file.
pub fn device() -> String {
    let model = cpuinfo("model name").unwrap_or_else(|| std::env::consts::ARCH.into());
    format!("{} {}t {}", model.replace(',', " "), rayon::current_num_threads(), krysp::simd::level())
}

/// The generation of the processor and the number of threads, for example `zen3-2t`.
pub fn name() -> String {
    let number = |key: &str| cpuinfo(key).and_then(|v| v.parse().ok()).unwrap_or(0u32);
    let generation = match (cpuinfo("vendor_id").as_deref(), number("cpu family"), number("model")) {
        (Some("AuthenticAMD"), 23, 0..=0x2f) => "zen".into(),
        (Some("AuthenticAMD"), 23, _) => "zen2".into(),
        (Some("AuthenticAMD"), 25, 0x00..=0x0f | 0x20..=0x5f) => "zen3".into(),
        (Some("AuthenticAMD"), 25, _) => "zen4".into(),
        (Some("AuthenticAMD"), 26, _) => "zen5".into(),
        _ => cpuinfo("model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
    };
    let words: Vec<String> = generation
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    format!("{}-{}t", words.join("-"), rayon::current_num_threads())
}

/// The measured commit, marked if files outside `benches/record` differ from it. Taken from `KRYSP_COMMIT` at compile
/// time, for benches that run without their sources, or from git.
pub fn commit() -> String {
    if let Some(commit) = option_env!("KRYSP_COMMIT") {
        return commit.into();
    }
    let git = |args: &[&str]| Command::new("git").args(args).output().ok().filter(|run| run.status.success());
    let Some(head) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".into() };
    let differs = git(&["diff", "--quiet", "HEAD", "--", ".", ":(exclude)benches/record"]).is_none();
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    if differs { head + "-dirty" } else { head }
}

/// Today's date (UTC), for example 2025-11-21.
pub fn date() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400);
    // the civil date from days, after Howard Hinnant: years begin in March
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
