//! The program `krysp`: inspects matrices in files, solves linear systems, converts and plots matrices.

// unlike the library, a program may print
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bandwidth;
mod bench;
mod calibrate;
mod chart;
mod check;
mod convert;
mod devices;
mod files;
mod formats;
mod generate;
mod inspect;
mod json;
mod machine;
mod manual;
mod peers;
mod progress;
mod recipe;
mod solve;
mod spy;
mod text;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The error of a subcommand. Its message names the file and says what to do.
type Failure = Box<dyn std::error::Error>;

/// Inspects sparse matrices in files, solves linear systems, converts and plots matrices.
#[derive(Parser)]
#[command(
    name = "krysp",
    version,
    arg_required_else_help = true,
    max_term_width = 80,
    after_help = "Start with a file:
  krysp inspect A.mtx           its properties, suitable formats, and a plan
  krysp solve A.mtx b.mtx       solve A x = b and report the result
  krysp generate p7_20 A.mtx    no file? a Laplacian on 20 x 20 x 20 points

Files: Matrix Market (.mtx), SciPy (.npz, vectors .npy), PETSc (.petsc),
Rutherford-Boeing (.rb), each also gzipped (.gz); - is standard input or
output. Values are real numbers.
Exit codes: 0 done, converged, all correct; 1 not converged, or a check failed;
2 invalid input or missing file.
Environment variables: RAYON_NUM_THREADS=2 sets the number of threads,
KRYSP_SIMD=portable (or avx2, avx512) the instruction set, NO_COLOR=1 disables
colours."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Inspect),
    Solve(Box<solve::Solve>),
    Convert(convert::Convert),
    Generate(generate::Generate),
    Check(check::Check),
    Bench(bench::Bench),
    Devices(devices::Devices),
    Calibrate(calibrate::Calibrate),
    #[command(hide = true)]
    Completions(manual::Completions),
    #[command(hide = true)]
    Manual(manual::Manual),
}

/// Number of threads that is always allowed. Rayon starts more of them in a time that grows with their square: on two
/// cores 0.3 s for 500 threads, 3 s for 1,000 and more than 10 s for 2,000.
const ALLOWED_THREADS: usize = 512;

/// Checks `RAYON_NUM_THREADS`, which Rayon ignores unless it is a number.
fn check_threads() -> Result<(), String> {
    let Some(given) = std::env::var_os("RAYON_NUM_THREADS").filter(|given| !given.is_empty()) else {
        return Ok(());
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = ALLOWED_THREADS.max(2 * cores);
    match given.to_str().and_then(|text| text.parse::<usize>().ok()) {
        Some(count) if count <= most => Ok(()),
        _ => {
            let given = given.display();
            Err(format!("RAYON_NUM_THREADS must be 1 to {most}, or 0 for one thread a core; got {given}"))
        }
    }
}

fn main() -> ExitCode {
    if let Err(why) = check_threads() {
        eprintln!("krysp: {why}");
        return ExitCode::from(2);
    }
    // The main thread joins the pool: otherwise each operation would have to wake the pool and then the main thread. This fails
    // if the pool exists already; then everything works, but more slowly.
    let _ = rayon::ThreadPoolBuilder::new().use_current_thread().build_global();
    let command = Cli::parse().command;
    if let Err(why) = krysp::simd::requested() {
        eprintln!("krysp: {why}");
        return ExitCode::from(2);
    }
    let outcome = match command {
        Command::Inspect(inspect) => inspect.run(),
        Command::Solve(solve) => solve.run(),
        Command::Convert(convert) => convert.run(),
        Command::Generate(generate) => generate.run(),
        Command::Check(check) => check.run(),
        Command::Bench(bench) => bench.run(),
        Command::Devices(devices) => devices.run(),
        Command::Calibrate(calibrate) => calibrate.run(),
        Command::Completions(completions) => completions.run(),
        Command::Manual(manual) => manual.run(),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("krysp: {failure}");
        if let Some(remedy) = remedy(&failure) {
            eprintln!("       {remedy}");
        }
        // 130 is what shells report for Ctrl-C
        let interrupted = matches!(failure.downcast_ref(), Some(krysp::Error::Interrupted(_)));
        ExitCode::from(if interrupted { 130 } else { 2 })
    })
}

/// Advice for errors whose message does not say what to do.
fn remedy(failure: &Failure) -> Option<&'static str> {
    use krysp::io::matrix_market::ReadError;
    match failure.downcast_ref()? {
        krysp::Error::Read(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Some("check the file name; `krysp generate p7_20 A.mtx` creates a matrix to try")
        }
        krysp::Error::Read(ReadError::Syntax { line: 1, found, .. }) if found.starts_with("complex") => Some(
            "solve [Re A, -Im A; Im A, Re A] [Re x; Im x] = [Re b; Im b] instead: twice the unknowns, all real",
        ),
        krysp::Error::Read(ReadError::Syntax { line: 1, expected, .. }) if expected.contains("banner") => {
            Some("supported formats: Matrix Market, SciPy .npz, PETSc binary, Rutherford-Boeing")
        }
        krysp::Error::Rectangular { .. } => Some("from Python: krysp.solve(A.T @ A, A.T @ b)"),
        _ => None,
    }
}
