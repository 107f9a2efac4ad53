//! Partitions of rows among processors of different power, after Yang, Li, Mo and Li (2015).
//!
//! ```text
//! cargo bench --bench partition                 # imbalance and density of algorithms 1, 2, 3 and the library's own
//! cargo bench --bench partition -- times        # products on the threads of this machine, with parts of equally many rows, of
//!                                               # equally many nonzeros, and of equal work; RAYON_NUM_THREADS=8 for eight threads
//! ```
//!
//! Other arguments are names of matrices, instead of all. Imbalances are those of the paper's tests 1 (eight equal cores) and 2
//! (two GPUs of power 75 and six cores); densities are those of test 2.

use krysp::partition::{by_least_padding, by_length_classes, by_nonzeros, by_rows, quality, ranges};
use krysp::testing::{SHARED_FOLDERS, matrices, shared_matrices, shared_matrix};
use krysp::{Csr, HostSpace, LinearOperator, Space, io};
use std::sync::Barrier;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const CORES: [f64; 8] = [1.0; 8];
const GPUS_AND_CORES: [f64; 8] = [75.0, 75.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

fn main() -> Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let timed = args.first().is_some_and(|arg| arg == "times");
    if timed {
        args.remove(0);
    }
    let names = match args.is_empty() {
        false => args,
        true if timed => irregular(),
        true => every_name(),
    };
    if timed { times(&names) } else { table(&names) }
}

/// Generated matrices, without those that take minutes.
fn generated() -> impl Iterator<Item = String> {
    matrices::names().filter(|name| !["33M", "100M"].iter().any(|size| name.contains(size))).map(String::from)
}

/// Generated matrices with rows of very unequal lengths.
fn irregular() -> Vec<String> {
    let words = ["_like", "rmat", "circuit"];
    generated().filter(|name| words.iter().any(|word| name.contains(word))).collect()
}

/// Names of the generated matrices, and of all files in the folder of shared matrices.
fn every_name() -> Vec<String> {
    let mut names: Vec<String> = generated().collect();
    for folder in SHARED_FOLDERS {
        let files = std::fs::read_dir(shared_matrices().join(folder));
        let mut found: Vec<String> = files
            .into_iter()
            .flatten()
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".mtx.gz")?.to_owned()))
            // omit vectors and coordinates
            .filter(|name| !["_b", "_x", "_f", "_coord"].iter().any(|end| name.ends_with(end)))
            .collect();
        found.sort();
        names.append(&mut found);
    }
    names
}

fn load(name: &str) -> Result<Option<Csr<f64>>> {
    if let Some(matrix) = matrices::named(name) {
        return Ok(Some(matrix.csr()?));
    }
    match shared_matrix(name).map(io::read_matrix) {
        Some(Ok(csr)) => Ok(Some(csr)),
        Some(Err(error)) => {
            println!("skipped: {name}: {error}");
            Ok(None)
        }
        None => {
            println!("skipped: {name} is neither a generated matrix nor in the folder of shared matrices");
            Ok(None)
        }
    }
}

/// The rows of each part (the rows of one processor) by algorithms 1, 2, 3 and by the one with the least
/// padding.
fn cuts(lengths: &[usize], powers: &[f64]) -> Result<[Vec<Vec<usize>>; 4]> {
    let rows = |bounds: Vec<usize>| ranges(&bounds).map(Iterator::collect).collect();
    Ok([
        rows(by_rows(lengths.len(), powers)?),
        rows(by_nonzeros(lengths, powers)?),
        by_length_classes(lengths, powers)?,
        by_least_padding(lengths, powers)?,
    ])
}

fn table(names: &[String]) -> Result<()> {
    println!(
        "{:32}imbalance in %, eight cores           imbalance in %, two GPUs and six cores   density in %",
        ""
    );
    let columns = ["alg. 1", "alg. 2", "alg. 3", "ours"].map(|name| format!("{name:>9}")).concat();
    println!("{:24}{:>10} {columns}  {columns}  {columns}  longest / share", "matrix", "nonzeros");
    let (mut means, mut count) = ([0.0; 4], 0);
    // Counts of results of algorithms 2 and 3 where the longest row has less than a tenth of the nonzeros of the smallest share: `held`
    // with an imbalance below 0.2 %, `above` with a larger one. `finest` is the smallest ratio of longest row to share among those of
    // `above`.
    let (mut held, mut above, mut finest) = (0, 0, f64::INFINITY);
    for name in names {
        let Some(csr) = load(name)? else { continue };
        let lengths: Vec<usize> = csr.row_lengths().collect();
        print!("{name:24}{:>10} ", csr.nnz());
        let mut densities = [0.0; 4];
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut of_share = 0.0;
        for powers in [CORES, GPUS_AND_CORES] {
            let least = powers[7] / powers.iter().sum::<f64>() * csr.nnz() as f64;
            of_share = longest as f64 / least.max(1.0);
            for (at, parts) in cuts(&lengths, &powers)?.into_iter().enumerate() {
                let quality = quality(&lengths, parts, &powers)?;
                densities[at] = 100.0 * quality.density;
                print!("{:>9.4}", 100.0 * quality.imbalance);
                if (1..3).contains(&at) && of_share < 0.1 {
                    if quality.imbalance < 2e-3 {
                        held += 1;
                    } else {
                        above += 1;
                        finest = of_share.min(finest);
                    }
                }
            }
            print!("  ");
        }
        println!("{}  {of_share:.5}", densities.map(|d| format!("{d:>9.1}")).concat());
        means.iter_mut().zip(densities).for_each(|(mean, density)| *mean += density);
        count += 1;
    }
    let means = means.map(|mean| format!("{:>9.1}", mean / f64::from(count.max(1)))).concat();
    println!("\nmean density of {count} matrices, algorithms 1, 2, 3 and ours: {means} %");
    println!(
        "longest row below a tenth of the smallest share: imbalance of algorithms 2 and 3 below 0.2 % in {held} cases"
    );
    println!("above 0.2 % in {above} cases, all with a longest row of at least {finest:.5} of that share");
    Ok(())
}

/// A matrix whose rows are partitioned among threads, each of which computes its part alone.
struct OfThreads {
    parts: Vec<Csr<f64>>,
}

impl OfThreads {
    fn new(csr: &Csr<f64>, bounds: &[usize]) -> Result<OfThreads> {
        let part = |rows: std::ops::Range<usize>| {
            let (offsets, first) = (csr.offsets(), csr.offsets()[rows.start]);
            let entries = first..offsets[rows.end];
            let offsets: Vec<usize> = offsets[rows.start..=rows.end].iter().map(|at| at - first).collect();
            let (columns, values) = (&csr.columns()[entries.clone()], &csr.entries()[entries]);
            Ok(Csr::from_csr(rows.len(), csr.cols(), &offsets, columns, values)?)
        };
        Ok(OfThreads { parts: ranges(bounds).map(part).collect::<Result<_>>()? })
    }

    /// The seconds of a product: the CPU time of the busiest thread. All threads compute at the same time, but interruptions by
    /// other programs do not count.
    fn seconds(&self, x: &[f64], rounds: usize) -> Result<f64> {
        let barrier = Barrier::new(self.parts.len());
        let alone = || rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let pools = self.parts.iter().map(|_| alone()).collect::<std::result::Result<Vec<_>, _>>()?;
        let run = |part: &Csr<f64>, pool: &rayon::ThreadPool| {
            pool.install(|| {
                let x = HostSpace::new(x.len()).vector(x)?;
                let mut y = HostSpace::new(part.rows()).zeros()?;
                barrier.wait();
                // CPU time has the resolution of the system's clock: one product would be too short
                let started = computed();
                (0..rounds).try_for_each(|_| part.apply(&x, &mut y))?;
                krysp::solvers::Result::Ok((computed() - started) / rounds as f64)
            })
        };
        let times = std::thread::scope(|scope| {
            let parts = self.parts.iter().zip(&pools);
            let threads: Vec<_> = parts.map(|(part, pool)| scope.spawn(|| run(part, pool))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        let mut busiest = 0.0;
        for time in times {
            busiest = f64::max(busiest, time.map_err(|_| "a thread panicked")??);
        }
        Ok(busiest)
    }
}

/// The CPU time of this thread in seconds; wall time if the system does not report it.
fn computed() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = reported.and_then(|reported| reported.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed().as_secs_f64(), |ns| 1e-9 * ns)
}

/// Times products, with a thread for each part, for parts of equally many rows, of equally many nonzeros, and of equal work by
/// the model of the library, in which a row costs as much as two entries.
fn times(names: &[String]) -> Result<()> {
    let threads = rayon::current_num_threads();
    let powers = vec![1.0; threads];
    println!("products in ms on {threads} threads, f64: CPU time of the busiest thread, minimum of many");
    println!(
        "{:24}{:>12}{:>12}{:>12}{:>16}{:>12}",
        "matrix", "equal rows", "nonzeros", "work", "rows/nonzeros", "rows/work"
    );
    let (mut logs, mut count) = ([0.0; 2], 0);
    for name in names {
        let Some(csr) = load(name)? else { continue };
        let lengths: Vec<usize> = csr.row_lengths().collect();
        let x = vec![1.0; csr.cols()];
        let work: Vec<usize> = lengths.iter().map(|length| length + 2).collect();
        let cuts =
            [by_rows(csr.rows(), &powers)?, by_nonzeros(&lengths, &powers)?, by_nonzeros(&work, &powers)?];
        let cuts = cuts.map(|bounds| OfThreads::new(&csr, &bounds));
        let rounds = (100_000_000 / csr.nnz().max(1)).clamp(3, 100);
        let mut least = [f64::INFINITY; 3];
        for _ in 0..5 {
            for (least, cut) in least.iter_mut().zip(&cuts) {
                let cut = cut.as_ref().map_err(|error| error.to_string())?;
                *least = least.min(cut.seconds(&x, rounds)?);
            }
        }
        let [rows, nonzeros, work] = least.map(|seconds| 1e3 * seconds);
        let ratios = [rows / nonzeros, rows / work];
        println!("{name:24}{rows:>12.4}{nonzeros:>12.4}{work:>12.4}{:>16.2}{:>12.2}", ratios[0], ratios[1]);
        logs.iter_mut().zip(ratios).for_each(|(log, ratio)| *log += ratio.ln());
        count += 1;
    }
    let [nonzeros, work] = logs.map(|log| (log / f64::from(count.max(1))).exp());
    println!(
        "geometric mean of {count}: equal nonzeros are {nonzeros:.3}, equal work {work:.3} times as fast as equal rows"
    );
    Ok(())
}
