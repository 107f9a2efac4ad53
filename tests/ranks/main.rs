//! Tests of ranks: each runs on 1 to 5 ranks that are threads. With the feature `mpi`, this program also starts itself under
//! `mpirun` with as many ranks, each of which runs all tests; both must find the same bits.

mod assembly;
mod counts;
#[cfg(feature = "cuda")]
mod exchange;
mod failures;
#[cfg(feature = "cuda")]
mod gpus;
mod laws;
#[cfg(feature = "mpi")]
mod mpi;
mod multigrid;
#[path = "../suite/multigrid_on_host.rs"]
mod multigrid_on_host;
mod solves;
mod threads;

use krysp::ranks::{RankMatrix, Ranks};
use krysp::{Csr, Real};
use libtest_mimic::{Arguments, Failed, Trial};
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time limit of a test on threads, and of all tests under `mpirun`. Both normally take seconds.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A test that all ranks run together.
type Test = fn(&Ranks);

macro_rules! tests {
    ($($module:ident: $($name:ident),*;)*) => {
        vec![$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name as _)),*),*]
    };
}

fn tests() -> Vec<(&'static str, Test)> {
    let mut tests = tests! {
        laws: vectors, operators, products, refreshed, precise_residuals;
        solves: methods, preconditioners, multigrid, multigrid_of_nodes, inverse_factors, inverses, two_levels, more_ranks_than_rows, same_bits_again, null_space, single_precision;
        multigrid: features, one_gain_for_all_ranks;
        assembly: entries_go_to_their_rows, files, from_the_first_rank, rows_by_entries, wrong_files;
        counts: halo_is_that_of_the_partition, sums_of_an_iteration, preconditioners;
        failures: bad_rows, wrong_length, not_a_number, preconditioner_that_fails, panic_of_one;
    };
    tests.extend(on_gpus());
    tests
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
}

#[cfg(not(feature = "cuda"))]
fn on_gpus() -> Vec<(&'static str, Test)> {
    vec![]
}

/// Tests that start ranks themselves.
fn tests_of_threads() -> Vec<(&'static str, fn())> {
    let mut tests = tests! {
        threads: results_are_in_the_order_of_ranks, the_error_is_that_of_the_rank_that_failed, the_cause_is_known_without_its_text, an_error_that_is_passed_on_is_not_the_cause, a_slow_rank_receives_in_order, a_collective_error_is_that_of_the_rank_that_failed, a_panic_ends_all, nobody_waits_for_a_rank_that_has_ended, other_collective_operations_are_errors, an_interruption_reaches_all;
    };
    #[cfg(feature = "cuda")]
    if !krysp::Cuda::devices().is_empty() {
        tests.extend(tests! { exchange: a_failing_rank_ends_all, gpus_exchange_for_one_team, a_busy_thread_does_not_wait; });
    }
    tests
}

fn main() {
    #[cfg(feature = "mpi")]
    if mpi::is_rank() {
        return mpi::on_rank();
    }
    let mut args = Arguments::from_args();
    // ranks use all cores
    args.test_threads.get_or_insert(1);
    #[cfg(feature = "cuda")]
    match krysp::Cuda::devices().len() {
        0 => krysp::testing::skipped("no CUDA device on this machine"),
        1 if !gpus::threads_share_gpus() => krysp::testing::skipped(
            "direct exchange of ranks that are threads: this machine has one GPU; CUDA_MODULE_LOADING=EAGER lets them share it",
        ),
        _ => {}
    }
    let trial = |(name, test): (&'static str, Test)| {
        Trial::test(name, move || (1..=5).try_for_each(|count| on_threads(name, count, test)))
    };
    let started_by_test =
        |(name, test): (&'static str, fn())| Trial::test(name, move || within_time_limit(name.into(), test));
    let mut trials: Vec<Trial> = tests().into_iter().map(trial).collect();
    trials.extend(tests_of_threads().into_iter().map(started_by_test));
    #[cfg(feature = "mpi")]
    trials.extend(mpi::trials());
    libtest_mimic::run(&args, trials).exit();
}

/// Runs a test on ranks that are threads.
fn on_threads(name: &str, count: usize, test: Test) -> Result<(), Failed> {
    within_time_limit(format!("{name} on {count} threads"), move || {
        let work = |ranks: &Ranks| {
            test(ranks);
            krysp::Result::Ok(())
        };
        Ranks::threads(count, work).map(drop).unwrap();
    })
}

/// Runs a test on another thread. If it does not end in time, that thread is abandoned and the test has failed, so that a
/// deadlock does not keep the other tests from running.
fn within_time_limit<R: Send + 'static>(
    name: String,
    test: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Failed> {
    let (ended, end) = channel();
    let run = move || {
        let result = test();
        // the receiver is gone after the time limit
        let _ = ended.send(());
        result
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(run)?;
    match end.recv_timeout(TIMEOUT) {
        Err(RecvTimeoutError::Timeout) => Err(format!("{name}: no end after {TIMEOUT:?}").into()),
        // it has ended, or has dropped the sender in a panic
        Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().or_else(|panic| resume_unwind(panic)),
    }
}

/// First rows of the ranks in several partitions: even; all rows on the last rank; few on the first and none on the second. One
/// rank has one partition, two ranks have two.
fn cuts(n: usize, ranks: usize) -> Vec<Vec<usize>> {
    let even: Vec<usize> = (0..=ranks).map(|rank| n * rank / ranks).collect();
    let mut last = vec![0; ranks];
    last.push(n);
    let mut cuts = vec![even, last];
    if ranks > 2 {
        let few = cuts[0][2].min(3);
        let mut uneven = cuts[0].clone();
        (uneven[1], uneven[2]) = (few, few);
        cuts.push(uneven);
    }
    cuts.dedup();
    cuts
}

/// This rank's rows of a matrix.
fn share<T: Real>(ranks: &Ranks, a: &Csr<T>, cut: &[usize]) -> RankMatrix<T> {
    try_share(ranks, a, cut).unwrap()
}

/// The same, for ranks that go on to fail: their failure may end this call on ranks that have not returned from it.
fn try_share<T: Real>(ranks: &Ranks, a: &Csr<T>, cut: &[usize]) -> krysp::Result<RankMatrix<T>> {
    let (first, end) = (cut[ranks.rank()], cut[ranks.rank() + 1]);
    let all = a.offsets();
    let entries = all[first]..all[end];
    let offsets: Vec<usize> = all[first..=end].iter().map(|offset| offset - entries.start).collect();
    let columns: Vec<u64> = a.columns()[entries.clone()].iter().map(|&column| column.into()).collect();
    RankMatrix::from_rows(ranks, &offsets, &columns, &a.entries()[entries])
}

/// This rank's part of a vector.
fn part<'v, T>(ranks: &Ranks, x: &'v [T], cut: &[usize]) -> &'v [T] {
    &x[cut[ranks.rank()]..cut[ranks.rank() + 1]]
}
