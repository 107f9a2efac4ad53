//! Tests of ranks. Under `cargo test`, this program runs all tests on 1 to 5 ranks that are threads, and starts itself under
//! `mpirun` with as many ranks, each of which runs all tests. Both must find the same bits.
//!
//! `mpirun -n 3 PROGRAM ranks NAME` runs tests whose names begin with NAME, `PROGRAM threads 3 NAME` runs them on threads.

mod assembly;
mod bits;
mod counts;
mod failures;
#[cfg(feature = "cuda")]
mod gpus;
mod laws;
mod multigrid;
#[path = "../suite/multigrid_on_host.rs"]
mod multigrid_on_host;
mod solves;
mod threads;

use krysp::ranks::{RankMatrix, Ranks};
use krysp::testing::skipped;
use krysp::{Csr, Real};
use std::path::Path;
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
        Some("ranks") => on_rank(args.get(1).map_or("", String::as_str), args.get(2).map(Path::new)),
        Some("threads") => {
            on_threads(args[1].parse().unwrap(), args.get(2).map_or("", String::as_str));
            ExitCode::SUCCESS
        }
        // options of the test harness, such as `cargo test -- --list`
        Some("--list") => ExitCode::SUCCESS,
        _ => launch(),
    }
}

/// The program of one rank of MPI. The first rank writes the bits of solutions to a file.
fn on_rank(wanted: &str, bits: Option<&Path>) -> ExitCode {
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
    if let Some(path) = bits {
        let found = bits::of_solutions(&world);
        if world.rank() == 0 {
            std::fs::write(path, found).unwrap();
        }
    }
    ExitCode::SUCCESS
}

/// Runs tests on ranks that are threads.
fn on_threads(count: usize, wanted: &str) {
    for (name, test) in tests().into_iter().filter(|(name, _)| name.starts_with(wanted)) {
        let started = Instant::now();
        Ranks::threads(count, |ranks| {
            test(ranks);
            krysp::Result::Ok(())
        })
        .unwrap();
        println!("{count} threads: {name} ... ok, {:.2} s", started.elapsed().as_secs_f64());
    }
}

/// Runs all tests on threads, then this program under `mpirun`, and compares.
fn launch() -> ExitCode {
    let has_mpi = Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_mpi {
        skipped("no `mpirun` on this machine");
    }
    #[cfg(feature = "cuda")]
    if krysp::Cuda::devices().is_empty() {
        skipped("no CUDA device on this machine");
    }
    threads::all();
    for count in 1..=5 {
        on_threads(count, "");
        if !has_mpi {
            continue;
        }
        let path = std::env::temp_dir().join(format!("krysp_bits_{}_{count}", std::process::id()));
        if let Err(why) = under_mpirun(count, &path) {
            eprintln!("{count} ranks: {why}");
            return ExitCode::FAILURE;
        }
        let on_ranks = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let on_threads = Ranks::threads(count, |ranks| krysp::Result::Ok(bits::of_solutions(ranks))).unwrap();
        assert!(on_ranks.lines().count() >= 8, "{on_ranks}");
        assert_eq!(on_threads[0], on_ranks, "{count} threads, and as many ranks of MPI");
    }
    ExitCode::SUCCESS
}

/// Runs all tests of this program under `mpirun`; `bits` is the file for the bits of solutions.
fn under_mpirun(ranks: usize, bits: &Path) -> Result<(), String> {
    let started = Instant::now();
    let mut child = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["ranks", ""])
        .arg(bits)
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
            return Err(format!("no end after {TIMEOUT:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() { Ok(()) } else { Err(status.to_string()) }
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
