//! Tests that need a GPU. Without one, every test is counted as ignored, and so are those of cuDSS without that library.

/// A test, and the number of GPUs that it needs.
struct GpuTest {
    name: &'static str,
    gpus: usize,
    run: fn(),
}

inventory::collect!(GpuTest);

/// Registers a function as a test; used in place of `#[test]`.
macro_rules! gpu_test {
    ($name:ident) => {
        gpu_test!($name, 1);
    };
    ($name:ident, $gpus:expr) => {
        inventory::submit! {
            crate::GpuTest { name: concat!(module_path!(), "::", stringify!($name)), gpus: $gpus, run: $name }
        }
    };
}

mod amg;
mod blocks;
mod conformance;
mod copies;
mod cudss;
mod host_and_gpus;
mod irregular;
mod many;
mod memory;
mod methods;
mod multi_gpu;
#[path = "../suite/multigrid_on_host.rs"]
mod multigrid_on_host;
mod once;
mod operators;
mod ordering;
mod plan;
mod preconditioners;
mod slices;
mod solves;
mod two_level;

use krysp::testing::skipped;
use krysp::{CuDss, Cuda};
use libtest_mimic::{Arguments, Trial};
use solves::{agree, poisson, residual};
use std::sync::{PoisonError, RwLock};

/// Write-locked by tests that must run alone, read-locked by all others. Tests of several GPUs run alone:
/// while one of their GPUs waits for another, loading a CUDA module for another test may block both until the
/// wait reaches its time limit. Tests that count objects of the process, or compare times, run alone too.
static RUNNING: RwLock<()> = RwLock::new(());

fn main() {
    let gpus = Cuda::devices().len();
    let cudss = if gpus > 0 { CuDss::<f64>::version().map(drop) } else { Ok(()) };
    let trial = |test: &GpuTest| {
        let (name, run) = (test.name.trim_start_matches("cuda::"), test.run);
        let trial = Trial::test(name, move || {
            let alone =
                ["host_and_gpus::", "multi_gpu::", "once::"].iter().any(|module| name.starts_with(module));
            let _others = (!alone).then(|| RUNNING.read().unwrap_or_else(PoisonError::into_inner));
            let _none = alone.then(|| RUNNING.write().unwrap_or_else(PoisonError::into_inner));
            run();
            Ok(())
        });
        let needs_cudss = name.starts_with("cudss::");
        trial.with_ignored_flag(test.gpus > gpus || needs_cudss && cudss.is_err())
    };
    let mut trials: Vec<Trial> = inventory::iter::<GpuTest>().map(trial).collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    if gpus == 0 {
        skipped("no CUDA device on this machine");
    }
    if let Err(error) = &cudss {
        skipped(&error.to_string());
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The first GPU.
fn gpu() -> Cuda {
    Cuda::new(0).unwrap()
}
