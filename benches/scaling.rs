//! The scaling of solves on MPI ranks, measured on 1 to 5 ranks, and a performance model for many more.
//!
//! ```text
//! cargo bench --features mpi --bench scaling -- check       # the model compared with measurements on this machine
//! cargo bench --features mpi --bench scaling                # weak and strong scaling to 4096 ranks, by the model
//! ```
//!
//! Both print CSV; `benches/record/<machine>/scaling_check.csv` and `scaling.csv` are such files. The program starts itself under
//! `mpirun`, with one thread for each rank.
//!
//! **Measured** for each number of ranks: the memory bandwidth while all ranks use it; the time that a halo of one number adds to a
//! product; the time of a sum over all ranks; the bandwidth of long messages in a product; and solves on a cube.
//!
//! **Model:** the time of an iteration is the sum of three terms: the time on one rank, divided by the number of ranks and
//! multiplied by the ratio of a rank's memory bandwidth alone to that while all ranks use the memory; for each message the
//! measured latency of a halo, and the message's bytes divided by the bandwidth of messages; the latency of each sum.
//! Messages, bytes and sums are counted (`Ranks::traffic`). The check assumes no overlap, and memory-bound coarse levels, although
//! these are in cache: the model overestimates the time. If there are more ranks than cores, the ranks share the bandwidth of all
//! cores, and messages and sums are measured in that state, including time slices.
//!
//! **Many ranks:** each rank is as fast as one of two ranks here, and has a cube of rows, with six neighbours on the finest level
//! and 26 on coarser ones. Products overlap messages, and pipelined CG overlaps sums, as far as the products last. A sum takes
//! ⌈log₂ P⌉ steps and moves 8 P bytes for each of its numbers, because all ranks gather all parts. The iterations of CG grow with
//! the side of the cube, those of multigrid by one with each doubling of the side. Levels shrink like the measured ones; a level
//! of 600 rows, or of 8 rows per rank, is gathered and then computed by all ranks. Results are printed for the measured network
//! and for a modelled one, which adds its latency to each message and step, and limits the bandwidth.

use krysp::ranks::{BlockJacobi, RankAmg, RankMatrix, RankSpace, Ranks};
use krysp::solvers::{Method, Scalar, Solver};
use krysp::{BasicVector, Cg, Jacobi, LinearOperator, PipelinedCg, Space};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::Command;
use std::time::Instant;

type Vectors = krysp::ranks::RankVector<f64>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Nodes along an edge of the cube that is measured.
const SIDE: u64 = 80;
/// Methods, as they are named in tables.
const METHODS: [&str; 3] = ["CG", "pipelined CG", "CG with Amg"];
/// Latency of a message in the modelled network in seconds, and its bandwidth in bytes per second.
const NETWORK: (f64, f64) = (1.5e-6, 12e9);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.first().map(String::as_str) {
        Some("ranks") => {
            let ranks = Ranks::world()?;
            Ok(ranks.run(|| measure(&ranks))?)
        }
        Some("check") => check(),
        _ => many(),
    }
}

/// Measures, and prints a line with a name and a number for each result, on the first rank.
fn measure(ranks: &Ranks) -> Result<()> {
    let say = |name: &str, value: f64| {
        if ranks.rank() == 0 {
            println!("{name}={value:e}");
        }
    };
    let large = RankSpace::<f64>::new(ranks, 4 << 20)?;
    // pages of zeros that were never written would all map to one page
    let ones = vec![1.0; 4 << 20];
    let (x, mut y) = (large.vector(&ones)?, large.vector(&ones)?);
    let memory = fastest(ranks, 5, 4, || {
        y.axpby(&2.0.into(), &x, &0.5.into());
        Ok(())
    })?;
    say("memory", 24.0 * (4 << 20) as f64 / memory);
    let small = RankSpace::<f64>::new(ranks, 1)?;
    let one = small.vector(&[1.0])?;
    say("sum", fastest(ranks, 5, 1000, || Ok(one.dot(&one).read().map(|_| ())?))?);
    let latency = halo(ranks, 1, 1000)? - alone(ranks, 1, 1000)?;
    say("halo", latency.max(0.0));
    let long = 1 << 20;
    let travel = halo(ranks, long, 4)? - alone(ranks, long, 4)?;
    say("message", if ranks.size() > 1 { 8.0 * long as f64 / travel } else { f64::INFINITY });

    let a = cube(ranks)?;
    let jacobi = || BlockJacobi::new(&a, Jacobi::new);
    solve(ranks, METHODS[0], &a, Cg::new(&a).preconditioner(jacobi()?))?;
    solve(ranks, METHODS[1], &a, PipelinedCg::new(&a).preconditioner(jacobi()?))?;
    let amg = RankAmg::new(&a)?;
    // "512000 rows, 21000 rows, 700 rows, 30 rows on each rank"
    for (at, level) in amg.to_string().split(',').enumerate() {
        say(&format!("level {at}"), level.split_whitespace().next().unwrap_or_default().parse()?);
    }
    solve(ranks, METHODS[2], &a, Cg::new(&a).preconditioner(amg))
}

/// The seconds per call in the fastest of several rounds.
fn fastest(ranks: &Ranks, rounds: usize, calls: usize, mut does: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        ranks.all(Ok(()))?;
        let started = Instant::now();
        for _ in 0..calls {
            does()?;
        }
        least = least.min(started.elapsed().as_secs_f64() / calls as f64);
    }
    Ok(least)
}

/// Seconds of a product in which two ranks send all of their entries to each other.
fn halo(ranks: &Ranks, rows: usize, calls: usize) -> Result<f64> {
    product(ranks, rows, calls, |row, partner| vec![row, partner])
}

/// Seconds of the same product without the entries of the other rank, hence without messages.
fn alone(ranks: &Ranks, rows: usize, calls: usize) -> Result<f64> {
    product(ranks, rows, calls, |row, _| vec![row])
}

fn product(ranks: &Ranks, rows: usize, calls: usize, columns: impl Fn(u64, u64) -> Vec<u64>) -> Result<f64> {
    let partner = ranks.rank() ^ 1;
    let partner = if partner < ranks.size() { partner } else { ranks.rank() };
    let place = |rank: usize, row: usize| (rank * rows + row) as u64;
    let all: Vec<Vec<u64>> =
        (0..rows).map(|row| columns(place(ranks.rank(), row), place(partner, row))).collect();
    let each = all[0].len();
    let offsets: Vec<usize> = (0..=rows).map(|row| row * each).collect();
    let a = RankMatrix::from_rows(ranks, &offsets, &all.concat(), &vec![1.0; rows * each])?;
    let (x, mut y) = (a.domain().zeros()?, a.range().zeros()?);
    fastest(ranks, 5, calls, || Ok(a.apply(&x, &mut y)?))
}

/// The 7-point stencil on the nodes of a cube.
fn cube(ranks: &Ranks) -> krysp::Result<RankMatrix<f64>> {
    let n = SIDE.pow(3);
    let first = |rank: usize| n * rank as u64 / ranks.size() as u64;
    let (mut offsets, mut columns, mut values) = (vec![0], vec![], vec![]);
    for node in first(ranks.rank())..first(ranks.rank() + 1) {
        let steps = [1, SIDE, SIDE * SIDE].map(|step| (node / step % SIDE, step));
        let below = steps.iter().filter(|(place, _)| *place > 0).map(|(_, step)| node - step);
        let above = steps.iter().filter(|(place, _)| *place + 1 < SIDE).map(|(_, step)| node + step);
        let row: Vec<u64> = below.chain(above).collect();
        values.extend(row.iter().map(|_| -1.0).chain([6.0]));
        columns.extend(row.into_iter().chain([node]));
        offsets.push(columns.len());
    }
    RankMatrix::from_rows(ranks, &offsets, &columns, &values)
}

/// Solves, and prints the time and the communication per iteration, and the number of iterations.
fn solve<K, M>(
    ranks: &Ranks,
    name: &str,
    a: &RankMatrix<f64>,
    solver: Solver<K, &RankMatrix<f64>, M>,
) -> Result<()>
where
    K: Method<Vectors>,
    M: LinearOperator<Vector = Vectors>,
{
    let mut solver = solver.rtol(1e-8);
    let b = vec![1.0; a.domain().local_len()];
    solver.solve(&b)?;
    let (mut seconds, mut found) = (vec![], None);
    for _ in 0..3 {
        let before = ranks.traffic();
        let report = solver.solve(&b)?.report;
        seconds.push(report.time.as_secs_f64());
        found = Some((report, ranks.traffic() - before));
    }
    seconds.sort_by(f64::total_cmp);
    let Some((report, sent)) = found else { return Ok(()) };
    if ranks.rank() == 0 {
        let each = |count: u64| count as f64 / report.iterations as f64;
        println!("{name} iterations={}", report.iterations);
        println!("{name} seconds={:e}", seconds[1] / report.iterations as f64);
        println!("{name} messages={}", each(sent.messages));
        println!("{name} sent={}", each(sent.bytes));
        println!("{name} sums={}", each(sent.reductions));
    }
    Ok(())
}

/// The measurements with some number of ranks, by name.
struct Measured(BTreeMap<String, f64>);

impl Measured {
    fn on(ranks: usize) -> Result<Measured> {
        let output = Command::new("mpirun")
            .args(["--allow-run-as-root", "--oversubscribe", "--bind-to"])
            .args([if ranks <= cores() { "core" } else { "none" }, "-n", &ranks.to_string()])
            .arg(std::env::current_exe()?)
            .arg("ranks")
            .env("RAYON_NUM_THREADS", "1")
            .env("OMPI_MCA_mpi_yield_when_idle", "0")
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        if !output.status.success() {
            return Err(format!("{ranks} ranks: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let number =
            |line: &str| Some((line.split_once('=')?.0.to_owned(), line.split_once('=')?.1.parse().ok()?));
        Ok(Measured(text.lines().filter_map(number).collect()))
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    fn of(&self, method: &str, name: &str) -> f64 {
        self.get(&format!("{method} {name}"))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prints the model compared with measurements.
fn check() -> Result<()> {
    println!("ranks,cores,memory_gb_s,sum_us,halo_us,message_gb_s,method,measured_ms,modelled_ms,ratio");
    let (one, all_cores) = (Measured::on(1)?, Measured::on(cores().min(5))?);
    for ranks in 1..=5 {
        let m = if ranks == 1 { &one } else { &Measured::on(ranks)? };
        // with more ranks than cores, ranks take turns
        let memory = match ranks <= cores() {
            true => m.get("memory"),
            false => all_cores.get("memory") * cores() as f64 / ranks as f64,
        };
        for method in METHODS {
            let measured = m.of(method, "seconds");
            let modelled = one.of(method, "seconds") * one.get("memory") / memory / ranks as f64
                + m.of(method, "messages") * m.get("halo")
                + m.of(method, "sent") / m.get("message")
                + m.of(method, "sums") * m.get("sum");
            println!(
                "{ranks},{},{:.1},{:.2},{:.2},{:.1},{method},{:.3},{:.3},{:.2}",
                cores(),
                memory / 1e9,
                1e6 * m.get("sum"),
                1e6 * m.get("halo"),
                m.get("message") / 1e9,
                1e3 * measured,
                1e3 * modelled,
                modelled / measured
            );
        }
    }
    Ok(())
}

/// The parameters of the model for a machine.
struct Machine {
    memory: f64,
    sum: f64,
    halo: f64,
    message: f64,
    /// Bytes per row that memory could move in the time of an iteration on two ranks, for each method.
    moved: [f64; 3],
    /// Number of iterations on the measured cube, for each method.
    iterations: [f64; 3],
    /// Rows of a level divided by those of the next finer level.
    shrink: f64,
}

impl Machine {
    /// Seconds of a global sum of `numbers` numbers.
    fn sum(&self, ranks: f64, numbers: f64) -> f64 {
        ranks.log2().ceil() * self.sum + 8.0 * numbers * ranks / self.message
    }

    /// Seconds of a halo exchange with `neighbours` neighbours, which send the faces of a cube of `rows` rows, `bytes` bytes
    /// per row.
    fn halo(&self, rows: f64, neighbours: f64, bytes: f64) -> f64 {
        neighbours * self.halo + 6.0 * rows.powf(2.0 / 3.0) * bytes / self.message
    }

    /// Seconds of an iteration with `rows` rows per rank, and the number of iterations.
    fn iteration(&self, method: usize, ranks: f64, rows: f64) -> [f64; 2] {
        let several = if ranks > 1.0 { 1.0 } else { 0.0 };
        let side = (rows * ranks).cbrt() / SIDE as f64;
        let moved = |method: usize| self.moved[method] * rows / self.memory;
        // a product with seven diagonals reads 56 bytes of the matrix per row, and moves two vectors
        let product = 72.0 * rows / self.memory;
        let halo = several * (self.halo(rows, 6.0, 8.0) - product).max(0.0);
        let sum = |numbers: f64| several * self.sum(ranks, numbers);
        match method {
            0 => [moved(0) + halo + sum(1.0) + sum(2.0), self.iterations[0] * side],
            1 => [moved(1) + halo + (sum(4.0) - product).max(0.0), self.iterations[1] * side],
            _ => {
                let (mut level, mut neighbours, mut levels) = (rows, 6.0, 0.0);
                let few = (600.0 / ranks).max(8.0);
                while level > few {
                    // four products overlap messages, two transfers do not
                    let product = 4.0 * level * (if neighbours > 6.0 { 27.0 } else { 7.0 }) / self.memory;
                    let one = self.halo(level, neighbours, 4.0);
                    levels += 4.0 * (one - product).max(0.0) + 2.0 * one;
                    (level, neighbours) = (level * self.shrink, 26.0);
                }
                // four products with about 27 entries per row
                let last = 4.0 * 27.0 * 4.0 * level * ranks / self.memory;
                let gathered = self.sum(ranks, 0.0) + 4.0 * level * ranks / self.message;
                let cycle = several * (levels + gathered) + if ranks > 1.0 { last } else { 0.0 };
                let iterations = self.iterations[2] + side.log2();
                [moved(2) + halo + sum(1.0) + sum(2.0) + cycle, iterations]
            }
        }
    }
}

/// Prints weak and strong scaling by the model.
fn many() -> Result<()> {
    let (one, two) = (Measured::on(1)?, Measured::on(2)?);
    let rows = SIDE.pow(3) as f64;
    let here = |extra: f64, bandwidth: f64| Machine {
        memory: two.get("memory"),
        sum: two.get("sum") + extra,
        halo: two.get("halo") + extra,
        message: two.get("message").min(bandwidth),
        moved: METHODS.map(|method| two.of(method, "seconds") * two.get("memory") / (rows / 2.0)),
        iterations: METHODS.map(|method| two.of(method, "iterations")),
        shrink: one.get("level 1") / one.get("level 0"),
    };
    let other = format!("{} us and {} GB/s", NETWORK.0 * 1e6, NETWORK.1 / 1e9);
    let networks = [("as measured", here(0.0, f64::INFINITY)), (&*other, here(NETWORK.0, NETWORK.1))];
    println!(
        "network,scaling,ranks,rows_a_rank,cg_ms,pipelined_ms,amg_ms,cg_s,pipelined_s,amg_s,cg_efficiency,\
         pipelined_efficiency,amg_efficiency"
    );
    for (network, machine) in &networks {
        for (scaling, all) in [("weak", None), ("strong", Some(256f64.powi(3)))] {
            let mut first: Option<[f64; 3]> = None;
            for ranks in [1, 8, 64, 512, 4096].map(f64::from) {
                let rows = all.map_or(1e6, |all| all / ranks);
                let found = [0, 1, 2].map(|method| machine.iteration(method, ranks, rows));
                // efficiency: the time of an iteration on one rank divided by that on all ranks; for strong scaling, the latter is
                // multiplied by the number of ranks
                let work = found.map(|[seconds, _]| seconds * if all.is_some() { ranks } else { 1.0 });
                let first = first.get_or_insert(work);
                let efficiency = [0, 1, 2].map(|method| first[method] / work[method]);
                let columns =
                    |numbers: [f64; 3], digits: usize| numbers.map(|n| format!("{n:.digits$}")).join(",");
                println!(
                    "{network},{scaling},{ranks},{rows:.0},{},{},{}",
                    columns(found.map(|[seconds, _]| 1e3 * seconds), 3),
                    columns(found.map(|[seconds, iterations]| seconds * iterations), 3),
                    columns(efficiency, 2),
                );
            }
        }
    }
    Ok(())
}
