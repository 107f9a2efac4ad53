//! Measures what the CSV files in `benches/record` hold: all implementations of SpMV (the contestants) in one
//! process, in turns, with medians.
//!
//! ```text
//! cargo bench --features peers --bench record                      everything, appended to benches/record/<machine>/
//! cargo bench --features peers --bench record -- spmv p7_128       products with one matrix
//! cargo bench --features peers --bench record -- solve --dry       solves, nothing written
//! cargo bench --features peers --bench record -- read p27_80       reading it from a Matrix Market file
//! cargo bench --features peers --bench record -- export p7_128     its file, for programs that are not a crate
//!     --machine NAME   instead of one derived from the processor and its threads
//!     --rounds N       turns of each contestant, 9 by default
//!     --library        products of krysp and of MKL only: one line per matrix, then the geometric mean
//! ```
//!
//! `cargo run --release --example tables` makes tables of these files. README.md in this folder explains the columns.

mod common;

use common::contestant::{Contestant, Element, Whose};
use common::contestants::{cast, checked, compulsory_bytes, contestants, own};
use common::machine::Bandwidth;
use common::mkl::mkl;
use common::read::{export, read};
use common::solve::solve;
use common::systems::{System, systems};
use common::{machine, median, record};
use krysp::testing::matrices;
use std::time::Instant;

/// The approximate length of a turn in seconds: products of one implementation before the next one follows.
const TURN: f64 = 0.03;

/// With `--library`, formats whose first product takes more than so many times as long as that of the fastest one are left out. A guess.
const HOPELESS: f64 = 2.0;

/// Matrices whose solves are recorded. Others are solved if they are named.
const SOLVED: [&str; 2] = ["p7_128", "elast55"];

/// The matrix whose reading is recorded. Others are read if they are named.
const READ: &str = "p27_80";

struct Options {
    spmv: bool,
    solve: bool,
    read: bool,
    export: bool,
    dry: bool,
    library: bool,
    machine: String,
    rounds: usize,
    wanted: Vec<String>,
}

impl Options {
    fn from_args() -> common::Result<Options> {
        let mut options = Options {
            spmv: false,
            solve: false,
            read: false,
            export: false,
            dry: false,
            library: false,
            machine: machine::name(),
            rounds: 9,
            wanted: vec![],
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match &*arg {
                "spmv" => options.spmv = true,
                "solve" => options.solve = true,
                "read" => options.read = true,
                "export" => options.export = true,
                "--dry" => options.dry = true,
                "--library" => options.library = true,
                "--machine" => options.machine = args.next().ok_or("--machine needs a name")?,
                "--rounds" => options.rounds = args.next().ok_or("--rounds needs a number")?.parse()?,
                // cargo adds this option
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                matrix => options.wanted.push(matrix.into()),
            }
        }
        if options.rounds == 0 {
            return Err("--rounds must be at least 1".into());
        }
        if !(options.spmv || options.solve || options.read || options.export) {
            (options.spmv, options.solve, options.read) = (true, true, true);
        }
        Ok(options)
    }

    fn append(&self, file: &str, header: &str, rows: &[String]) -> common::Result<()> {
        if self.dry { Ok(()) } else { record::append(&record::folder(&self.machine), file, header, rows) }
    }
}

fn main() -> common::Result<()> {
    machine::join_threads()?;
    let options = Options::from_args()?;
    let stamp = format!("{},{},{}", machine::date(), machine::commit(), machine::device());
    println!("{stamp} ({})", options.machine);
    if options.library {
        return against_library(&options);
    }
    let bandwidth = Bandwidth::new()?;
    for found in systems(&options.wanted) {
        for system in found? {
            if options.spmv {
                let rows = spmv::<f64>(&system, &options, &bandwidth, &stamp)?;
                options.append("spmv.csv", record::SPMV, &rows)?;
                let rows = spmv::<f32>(&system, &options, &bandwidth, &stamp)?;
                options.append("spmv.csv", record::SPMV, &rows)?;
            }
            if options.solve && (SOLVED.contains(&&*system.name) || options.wanted.contains(&system.name)) {
                let rows = solve(&system, options.rounds, &bandwidth, &stamp)?;
                options.append("solve.csv", record::SOLVE, &rows)?;
            }
            if options.export {
                println!("{}", export(&system)?.display());
            }
            if options.read && (system.name == READ || options.wanted.contains(&system.name)) {
                let row = read(&system, options.rounds, &stamp)?;
                options.append("read.csv", record::READ, &[row])?;
            }
        }
    }
    Ok(())
}

/// The mean seconds of one product in a turn. One product that is not timed comes first; then products fill
/// the turn.
fn turn<T>(contestant: &mut Contestant<T>, products: usize) -> f64 {
    contestant.product.multiply();
    let started = Instant::now();
    for _ in 0..products {
        contestant.product.multiply();
    }
    started.elapsed().as_secs_f64() / products as f64
}

/// Prints how many times as fast as MKL the fastest format is, for each matrix in `f64` and `f32`.
fn against_library(options: &Options) -> common::Result<()> {
    let (mut logarithms, mut least) = (vec![], f64::INFINITY);
    for found in systems(&options.wanted) {
        for system in found? {
            for ratio in [of_library::<f64>(&system, options)?, of_library::<f32>(&system, options)?] {
                logarithms.push(ratio.ln());
                least = least.min(ratio);
            }
        }
    }
    let mean = (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp();
    let threads = rayon::current_num_threads();
    println!("{threads} threads, {} products: geometric mean {mean:.3}, least {least:.3}", logarithms.len());
    Ok(())
}

/// The time of MKL's fastest product over that of this library's fastest format.
fn of_library<T: Element>(system: &System, options: &Options) -> common::Result<f64> {
    let csr = cast::<T>(&system.csr)?;
    let x = matrices::vector(csr.cols()).iter().map(|&x| T::narrow(x)).collect::<Vec<T>>();
    let theirs = mkl(&csr, &x)?;
    if theirs.is_empty() {
        return Err("MKL was not found: LD_LIBRARY_PATH needs the folder of libmkl_rt".into());
    }
    let mut all = checked(&csr, &x, own(&csr, &x)?.into_iter().chain(theirs).collect())?;
    let first: Vec<f64> = all.iter_mut().map(|contestant| turn(contestant, 1)).collect();
    let ours = |contestant: &Contestant<T>| contestant.whose == Whose::Ours;
    let of_ours = all.iter().zip(&first).filter(|(contestant, _)| ours(contestant));
    let fastest = of_ours.map(|(_, &seconds)| seconds).fold(f64::INFINITY, f64::min);
    let mut running: Vec<(Contestant<T>, usize, Vec<f64>)> = all
        .into_iter()
        .zip(&first)
        .filter(|(contestant, seconds)| !ours(contestant) || **seconds <= HOPELESS * fastest)
        .map(|(contestant, seconds)| (contestant, (TURN / seconds).ceil() as usize, vec![]))
        .collect();
    for _ in 0..options.rounds {
        for (contestant, products, times) in &mut running {
            times.push(turn(contestant, *products));
        }
    }
    let timed: Vec<(&'static str, bool, f64)> = running
        .iter_mut()
        .map(|(contestant, _, times)| (contestant.name, ours(contestant), median(times)))
        .collect();
    let best = |wanted: bool| {
        let among = timed.iter().filter(|(_, ours, _)| *ours == wanted);
        among.min_by(|a, b| a.2.total_cmp(&b.2)).ok_or("nothing to compare")
    };
    let (&(format, _, seconds), &(name, _, library)) = (best(true)?, best(false)?);
    let ratio = library / seconds;
    println!(
        "{:<20} {} {:>9.4} ms  {format:<16} {:>9.4} ms  {name:<14} {ratio:.2}",
        system.id(),
        T::NAME,
        seconds * 1e3,
        library * 1e3
    );
    Ok(ratio)
}

fn spmv<T: Element>(
    system: &System,
    options: &Options,
    bandwidth: &Bandwidth,
    stamp: &str,
) -> common::Result<Vec<String>> {
    let csr = cast::<T>(&system.csr)?;
    let mut all = contestants(&csr, &matrices::vector(csr.cols()))?;
    let products: Vec<usize> =
        all.iter_mut().map(|contestant| (TURN / turn(contestant, 1)).ceil() as usize).collect();
    let mut times = vec![vec![]; all.len()];
    let mut reads = vec![];
    for _ in 0..options.rounds {
        reads.push(bandwidth.seconds());
        for ((contestant, &products), times) in all.iter_mut().zip(&products).zip(&mut times) {
            times.push(turn(contestant, products));
        }
    }
    let bytes_per_second = bandwidth.bytes() as f64 / median(&mut reads);
    let seconds: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    let timed = || all.iter().zip(&seconds);
    let best = |among: fn(Whose) -> bool| {
        let peers = timed().filter(|(contestant, _)| among(contestant.whose));
        peers.min_by(|a, b| a.1.total_cmp(b.1)).ok_or("no peer")
    };
    let (peer, &peer_seconds) = best(|whose| whose != Whose::Ours)?;
    let (_, &crate_seconds) = best(|whose| whose == Whose::Crate)?;
    let (_, &loop_seconds) = best(|whose| whose == Whose::Loop)?;
    let library_seconds = best(|whose| whose == Whose::Library).ok().map(|(_, &seconds)| seconds);

    let (id, element, bytes) = (system.id(), T::NAME, compulsory_bytes(&csr) as f64);
    let vectors = (csr.rows() + csr.cols()) * size_of::<T>();
    println!("\n{id} {element}: {} rows, {} entries", csr.rows(), csr.nnz());
    let mut head = vec!["ms", "GB/s", "share", "own bytes", "to crates", "to a loop"];
    head.extend(library_seconds.map(|_| "to MKL"));
    println!("{:<20}{}", "", head.iter().map(|name| format!("{name:>11}")).collect::<String>());
    let share = |seconds: f64| bytes / seconds / bytes_per_second;
    for (contestant, &seconds) in timed() {
        let own = match contestant.whose {
            Whose::Ours => (contestant.bytes + vectors) as f64 / seconds / bytes_per_second,
            _ => f64::NAN,
        };
        let mut cells =
            vec![bytes / seconds / 1e9, share(seconds), own, crate_seconds / seconds, loop_seconds / seconds];
        cells.extend(library_seconds.map(|theirs| theirs / seconds));
        let cell = |cell: f64| if cell.is_nan() { "–".into() } else { format!("{cell:.2}") };
        let cells: String = cells.into_iter().map(|value| format!("{:>11}", cell(value))).collect();
        println!("{:<20}{:>11.3}{cells}", contestant.name, seconds * 1e3);
    }
    println!("{:<20}{:>11}{:>11.2}", "reading", "", bytes_per_second / 1e9);

    let row = |(ours, &seconds): (&Contestant<T>, &f64)| {
        format!(
            "{stamp},{},{},{},{element},{},{},{:.3},{:.4},{},{:.3},{},{:.4},{:.3}",
            system.name,
            csr.rows(),
            csr.nnz(),
            ours.name,
            system.ordering,
            ours.setup_ms + system.ordering_ms,
            seconds * 1e3,
            ours.bytes,
            share(seconds),
            peer.name,
            peer_seconds * 1e3,
            peer_seconds / seconds,
        )
    };
    Ok(timed().filter(|(contestant, _)| contestant.whose == Whose::Ours).map(row).collect())
}
