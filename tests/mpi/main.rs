//! Tests of MPI ranks. Under `cargo test`, this program starts itself under `mpirun` with 1 to 5 ranks, each of which runs all
//! tests. `mpirun -n 3 PROGRAM ranks NAME` runs those whose names begin with NAME.

mod assembly;
mod counts;
mod failures;
#[cfg(feature = "cuda")]
mod gpus;
mod laws;
mod multigrid;
#[path = "../suite/multigrid_on_host.rs"]
mod multigrid_on_host;
mod solves;

use krysp::mpi::{RankMatrix, Ranks};
use krysp::testing::skipped;
use krysp::{Csr, Real};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a run, which normally takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A test, which all ranks run together.
type Test = fn(&Ranks);

macro_rules! tests {
    ($($module:ident: $($name:ident),*;)*) => {
        [$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name as Test)),*),*]
    };
}

fn tests() -> Vec<(&'static str, Test)> {
    let everywhere = tests! {
        laws: vectors, operators, products, refreshed, precise_residuals;
        solves: methods, preconditioners, multigrid, multigrid_of_nodes, multigrid_again, inverse_factors, inverses, two_levels, more_ranks_than_rows, same_bits_again, null_space, single_precision;
        multigrid: features, one_gain_for_all_ranks;
        assembly: entries_go_to_their_rows, files, from_the_first_rank, rows_by_entries, wrong_files;
        counts: halo_is_that_of_the_partition, sums_of_an_iteration, preconditioners;
        failures: bad_rows, wrong_length, not_a_number, preconditioner_that_fails, panic_of_one;
    };
    everywhere.into_iter().chain(on_gpus()).collect()
}

#[cfg(feature = "cuda")]
fn on_gpus() -> Vec<(&'static str, Test)> {
    if krysp::Cuda::devices().is_empty() {
        return vec![];
    }
    tests! {
        gpus: vectors, operators, products, large_products, precise_residuals, methods, preconditioners, multigrid, again, failures, joined, joined_failures;
        multigrid: features_on_gpus;
    }
    .into()
}

#[cfg(not(feature = "cuda"))]
fn on_gpus() -> Vec<(&'static str, Test)> {
    vec![]
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("ranks") => on_rank(args.get(1).map_or("", String::as_str)),
        // options of the test harness, such as `cargo test -- --list`
        Some("--list") => ExitCode::SUCCESS,
        _ => launch(),
    }
}

/// The program of one rank.
fn on_rank(wanted: &str) -> ExitCode {
    let world = Ranks::world().unwrap();
    for (name, test) in tests().into_iter().filter(|(name, _)| name.starts_with(wanted)) {
        // a new communicator for each test, because a failing test makes its ranks unusable
        let ranks = Ranks::world().unwrap();
        let started = Instant::now();
        test(&ranks);
        if world.rank() == 0 {
            println!("{} ranks: {name} ... ok, {:.2} s", world.size(), started.elapsed().as_secs_f64());
        }
    }
    ExitCode::SUCCESS
}

/// Runs this program under `mpirun`.
fn launch() -> ExitCode {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        skipped("no `mpirun` on this machine");
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "cuda")]
    if krysp::Cuda::devices().is_empty() {
        skipped("no CUDA device on this machine");
    }
    let program = std::env::current_exe().unwrap();
    for ranks in 1..=5 {
        let started = Instant::now();
        let mut child = Command::new("mpirun")
            .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
            .arg(&program)
            .arg("ranks")
            .env("RAYON_NUM_THREADS", "1")
            // the library itself yields if there are more ranks than cores
            .env("OMPI_MCA_mpi_yield_when_idle", "0")
            .spawn()
            .unwrap();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > TIMEOUT {
                // `mpirun` ends its ranks when it gets a signal
                let _ = Command::new("kill").arg(child.id().to_string()).status();
                std::thread::sleep(Duration::from_secs(2));
                let _ = child.kill();
                eprintln!("{ranks} ranks: no end after {TIMEOUT:?}");
                return ExitCode::FAILURE;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !status.success() {
            eprintln!("{ranks} ranks: {status}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// First rows of the ranks in several partitions: even; all rows on the last rank; few on the first and none on the second.
fn cuts(n: usize, ranks: usize) -> Vec<Vec<usize>> {
    let even: Vec<usize> = (0..=ranks).map(|rank| n * rank / ranks).collect();
    let mut last = vec![0; ranks];
    last.push(n);
    let mut uneven = even.clone();
    if ranks > 2 {
        let few = even[2].min(3);
        (uneven[1], uneven[2]) = (few, few);
    }
    vec![even, last, uneven]
}

/// This rank's rows of a matrix.
fn share<T: Real>(ranks: &Ranks, a: &Csr<T>, cut: &[usize]) -> RankMatrix<T> {
    let (first, end) = (cut[ranks.rank()], cut[ranks.rank() + 1]);
    let all = a.offsets();
    let entries = all[first]..all[end];
    let offsets: Vec<usize> = all[first..=end].iter().map(|offset| offset - entries.start).collect();
    let columns: Vec<u64> = a.columns()[entries.clone()].iter().map(|&column| column.into()).collect();
    RankMatrix::from_rows(ranks, &offsets, &columns, &a.entries()[entries]).unwrap()
}

/// This rank's part of a vector.
fn part<'v, T>(ranks: &Ranks, x: &'v [T], cut: &[usize]) -> &'v [T] {
    &x[cut[ranks.rank()]..cut[ranks.rank() + 1]]
}
