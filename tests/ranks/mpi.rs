//! All tests under `mpirun`, and the bits of solutions of ranks that are processes and of ranks that are threads.
//!
//! `mpirun -n 3 PROGRAM --rank NAME` runs tests whose names begin with NAME.

use crate::{TIMEOUT, cuts, part, share, tests, within_time_limit};
use krysp::ranks::{BlockJacobi, Local, RankAmg, RankFsai, RankMatrix, RankSpai, RankTwoLevel, Ranks};
use krysp::testing::{matrices, skipped};
use krysp::{AmgOptions, BiCgStab, Cg, Gmres, Ic0, Jacobi, PipelinedCg, Solution};
use libtest_mimic::{Failed, Trial};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Option by which `mpirun` starts this program.
const RANK: &str = "--rank";

/// Returns whether this process is a rank.
pub(super) fn is_rank() -> bool {
    std::env::args().nth(1).is_some_and(|option| option == RANK)
}

/// Returns whether a test runs on this number of processes. `multigrid::features` takes long where processes wait for each other on few
/// cores, and runs on at most three: `bits_of_solutions` shows that more give the results of as many threads.
fn runs_on(name: &str, processes: usize) -> bool {
    processes <= 3 || name != "multigrid::features"
}

/// The program of a rank. The first rank writes the bits of solutions to a file.
pub(super) fn on_rank() {
    let mut args = std::env::args().skip(2);
    let (wanted, bits) = (args.next().unwrap_or_default(), args.next());
    let world = Ranks::world().unwrap();
    let runs = |name: &str| name.starts_with(&wanted) && runs_on(name, world.size());
    for (name, test) in tests().into_iter().filter(|(name, _)| runs(name)) {
        // a new communicator for each test, because a failing test makes its ranks unusable
        let ranks = Ranks::world().unwrap();
        let started = Instant::now();
        test(&ranks);
        if world.rank() == 0 {
            println!("{} processes: {name} ... ok, {:.2} s", world.size(), started.elapsed().as_secs_f64());
        }
    }
    if let Some(path) = bits {
        let found = bits_of_solutions(&world);
        if world.rank() == 0 {
            std::fs::write(path, found).unwrap();
        }
    }
}

/// A test for each number of processes.
pub(super) fn trials() -> impl Iterator<Item = Trial> {
    let has_mpi = Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_mpi {
        skipped("no `mpirun` on this machine");
    }
    let trial = |count: usize| Trial::test(format!("mpi::{count}_processes"), move || on_processes(count));
    (1..=5).map(trial).map(move |trial| trial.with_ignored_flag(!has_mpi))
}

/// Runs all tests under `mpirun`, and compares bits with those of ranks that are threads.
fn on_processes(count: usize) -> Result<(), Failed> {
    let path = std::env::temp_dir().join(format!("krysp_bits_{}_{count}", std::process::id()));
    under_mpirun(count, &path)?;
    let of_processes = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    let on_threads = move || Ranks::threads(count, |ranks| krysp::Result::Ok(bits_of_solutions(ranks)));
    let of_threads = within_time_limit(format!("solutions on {count} threads"), on_threads)??;
    assert!(of_processes.lines().count() >= 8, "{of_processes}");
    assert_eq!(of_threads[0], of_processes, "{count} threads, and as many processes");
    Ok(())
}

/// Runs all tests of this program under `mpirun`; `bits` is the file for the bits of solutions.
fn under_mpirun(ranks: usize, bits: &Path) -> Result<(), String> {
    let started = Instant::now();
    let mut child = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
        .arg(std::env::current_exe().unwrap())
        .args([RANK, ""])
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
            return Err(format!("{ranks} processes: no end after {TIMEOUT:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() { Ok(()) } else { Err(format!("{ranks} processes: {status}")) }
}

/// A line for each solve: its iterations, and a hash of its history and of the whole solution. Empty on all ranks but the
/// first.
fn bits_of_solutions(ranks: &Ranks) -> String {
    let a = matrices::stencil7(14).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let options = AmgOptions { max_coarse_size: 60, ..AmgOptions::default() };
    let mut lines = String::new();
    for (which, cut) in cuts(a.rows(), ranks.size()).iter().enumerate() {
        let (rows, b) = (share(ranks, &a, cut), part(ranks, &b, cut));
        let jacobi = || BlockJacobi::new(&rows, Jacobi::new).unwrap();
        macro_rules! line {
            ($method:ident, $name:literal, $m:expr) => {
                let solution = $method::new(&rows).preconditioner($m).rtol(1e-10).solve(b).unwrap();
                let name = concat!(stringify!($method), " with ", $name);
                lines += &line(&rows, &format!("cut {which}, {name}"), &solution);
            };
        }
        line!(Cg, "Jacobi", jacobi());
        line!(PipelinedCg, "Jacobi", jacobi());
        line!(Cg, "Ic0", BlockJacobi::new(&rows, Ic0::new).unwrap());
        line!(Cg, "RankFsai", RankFsai::new(&rows).unwrap());
        line!(Cg, "RankTwoLevel", RankTwoLevel::with_inner(jacobi(), &rows, 60).unwrap());
        line!(Cg, "RankAmg", RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap());
        line!(BiCgStab, "RankSpai", RankSpai::new(&rows).unwrap());
        line!(Gmres, "Jacobi", jacobi());
        #[cfg(feature = "cuda")]
        if crate::gpus::is_direct(ranks) {
            lines += &bits_on_gpus(&rows, b, &format!("cut {which}"));
        }
    }
    lines
}

/// Lines of solves on GPUs, one for each rank.
#[cfg(feature = "cuda")]
fn bits_on_gpus(host: &RankMatrix<f64>, b: &[f64], cut: &str) -> String {
    use krysp::ToCuda;
    let gpu = host.ranks().gpu().unwrap();
    let rows = host.to(&gpu).unwrap();
    let jacobi = || BlockJacobi::new(&rows, |block| Jacobi::on(&gpu, block)).unwrap();
    let options = AmgOptions { max_coarse_size: 60, ..AmgOptions::default() };
    let amg = RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap();
    let of_cg = Cg::new(&rows).preconditioner(jacobi()).rtol(1e-10).solve(b).unwrap();
    let of_gmres = Gmres::new(&rows).preconditioner(jacobi()).rtol(1e-10).solve(b).unwrap();
    let of_amg = Cg::new(&rows).preconditioner(amg).rtol(1e-10).solve(b).unwrap();
    let solutions = [("Cg with Jacobi", of_cg), ("Gmres with Jacobi", of_gmres), ("Cg with RankAmg", of_amg)];
    let lines = solutions.iter().map(|(name, found)| line(&rows, &format!("{cut}, GPUs, {name}"), found));
    lines.collect()
}

fn line<L: Local<f64>>(a: &RankMatrix<f64, L>, name: &str, solution: &Solution<f64>) -> String {
    assert!(solution.report.converged(), "{name}: {}", solution.report);
    let Some(x) = a.gather(&solution.x).unwrap() else { return String::new() };
    let mut hasher = DefaultHasher::new();
    x.iter().chain(&solution.report.history).for_each(|number| number.to_bits().hash(&mut hasher));
    format!("{name}: {} iterations, {:016x}\n", solution.report.iterations, hasher.finish())
}
