//! Whether `Plan::place` chooses the faster one of CPU and GPU, from the first call of the library to `x`.
//!
//! ```text
//! cargo bench --bench place [-- SIDE ...]
//! ```
//!
//! For cubes of `SIDE³` points (7-point stencil, `b` of ones), in three states of the process:
//!
//! - `cold`: nothing is compiled (`KRYSP_CACHE` is an empty folder), first call of a process;
//! - `cached`: compiled kernels are on disk, first call of a process;
//! - `open`: later calls, in a process that has used CPU and GPU.
//!
//! Each first call runs in a separate process, three times, and the median counts. A call plans, builds and solves. The last
//! column is the time of `auto` divided by that of the faster device; it should be at most 1.2. Without a GPU, `auto` chooses the
//! CPU.

use krysp::gallery;
use krysp::plan::Place;
use krysp::{Csr, Plan};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SIDES: [usize; 8] = [10, 16, 27, 40, 58, 80, 100, 128];
/// Number of processes in which a first call is measured, and number of later calls that are measured in one process. The medians
/// count.
const PROCESSES: usize = 3;
const CALLS: usize = 5;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [command, device, side, calls] = &words[..]
        && command == "--call"
    {
        let a = gallery::poisson::<f64>(&[side.parse()?; 3])?;
        let seconds = match calls.as_str() {
            "first" => call(&a, device)?,
            _ => later_calls(&a, device)?,
        };
        println!("{} {}", seconds.0, seconds.1);
        return Ok(());
    }
    let mut sides = words.iter().map(|word| word.parse()).collect::<std::result::Result<Vec<usize>, _>>()?;
    if sides.is_empty() {
        sides = SIDES.to_vec();
    }
    let folder = std::env::temp_dir().join(format!("krysp-place-{}", std::process::id()));
    println!("| state | unknowns | CPU ms | GPU ms | auto ms | auto takes | auto / faster |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for side in sides {
        for state in ["cold", "cached", "open"] {
            row(state, side, &folder)?;
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

/// Measures and prints one line.
fn row(state: &str, side: usize, folder: &Path) -> Result<()> {
    let [cpu, gpu, auto] = ["cpu", "gpu", "auto"].map(|device| measured(state, device, side, folder));
    let (cpu, auto) = (cpu?, auto?);
    let gpu = gpu.map_or(f64::NAN, |(seconds, _)| seconds);
    let ratio = auto.0 / cpu.0.min(gpu);
    println!(
        "| {state} | {} | {:.1} | {:.1} | {:.1} | {} | {ratio:.2} |",
        side.pow(3),
        1e3 * cpu.0,
        1e3 * gpu,
        1e3 * auto.0,
        auto.1,
    );
    Ok(())
}

/// Seconds of a call, and the device that it used.
fn measured(state: &str, device: &str, side: usize, folder: &Path) -> Result<(f64, String)> {
    if state == "open" {
        return in_process(device, side, "later", None);
    }
    let mut all = vec![];
    for process in 0..PROCESSES {
        let cache = (state == "cold").then(|| folder.join(format!("{device}-{side}-{process}")));
        all.push(in_process(device, side, "first", cache)?);
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(all.swap_remove(PROCESSES / 2))
}

/// Runs this program in a new process.
fn in_process(device: &str, side: usize, calls: &str, cache: Option<PathBuf>) -> Result<(f64, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--call", device, &side.to_string(), calls]);
    if let Some(cache) = cache {
        command.env("KRYSP_CACHE", cache);
    }
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    let (seconds, took) = text
        .trim()
        .split_once(' ')
        .ok_or_else(|| format!("{device}, {side}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((seconds.parse()?, took.into()))
}

/// The median of calls in a process that has used both devices.
fn later_calls(a: &Csr<f64>, device: &str) -> Result<(f64, &'static str)> {
    call(a, "cpu")?;
    let _ = call(a, "gpu");
    let mut all = (0..CALLS).map(|_| call(a, device)).collect::<Result<Vec<_>>>()?;
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(all.swap_remove(CALLS / 2))
}

/// Seconds of one call, and the device that it used.
fn call(a: &Csr<f64>, device: &str) -> Result<(f64, &'static str)> {
    let b = vec![1.0; a.rows()];
    let started = Instant::now();
    let plan = Plan::new(a)?.solves(1);
    let place = match device {
        "cpu" => Place::Cpu,
        "gpu" => Place::Gpu,
        _ => plan.place(),
    };
    let (solved, took) = match place {
        Place::Cpu => (plan.build()?.solve(&b)?, "CPU"),
        Place::Gpu => (on_gpu(&plan, &b)?, "GPU"),
    };
    let seconds = started.elapsed().as_secs_f64();
    if !solved.converged() {
        return Err(format!("{solved}").into());
    }
    Ok((seconds, took))
}

#[cfg(feature = "cuda")]
fn on_gpu(plan: &Plan<'_, f64>, b: &[f64]) -> Result<krysp::plan::Solved<f64>> {
    Ok(plan.clone().on(&krysp::Cuda::new(0)?).build()?.solve(b)?)
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: &Plan<'_, f64>, _: &[f64]) -> Result<krysp::plan::Solved<f64>> {
    Err("built without the feature `cuda`".into())
}
