//! Times of matrix-vector products in every format by the number of threads, and the bandwidth of memory and caches.
//!
//! ```text
//! cargo bench --features peers --bench formats                          all matrices of `record`, 1, 2, 4, 8, 16 and 32 threads
//! cargo bench --features peers --bench formats -- elast55 --counts 1,2  one matrix, and other numbers of threads
//! ```
//!
//! Prints CSV. A line `read` has the bytes that are read again and again, and GB/s. A line `product` has the work of a product as
//! the automatic choice predicts it, its cost, and the milliseconds of the fastest and of the median product. At the end, a line
//! `loss` has the time of the format with the least cost over that of the fastest one, mean and worst of all matrices: among formats
//! for any values, and with those for symmetric ones. Each number of threads has a separate Rayon pool, inside which products are
//! measured; costs are those for the default number of threads; numbers beyond the processors of the machine are left out. Results are checked by the bench `record`.

mod common;

use common::contestant::Element;
use common::contestants::{Converted, cast, formats};
use common::machine;
use common::systems::systems;
use krysp::choice::{Candidate, Choice, Estimate, Model};
use krysp::testing::matrices::vector;
use krysp::{Csr, HostVector, LinearOperator, Space};
use rayon::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Products of one format are timed for this long, at least `LEAST` and at most `MOST` times.
const LONG: Duration = Duration::from_millis(25);
const LEAST: usize = 4;
const MOST: usize = 60;

/// Megabytes of the arrays that are read.
const ARRAYS: [usize; 5] = [4, 32, 128, 512, 2048];

fn main() -> common::Result<()> {
    let (mut names, mut counts) = (vec![], vec![1, 2, 4, 8, 16, 32]);
    let mut args = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(arg) = args.next() {
        match &*arg {
            "--counts" => {
                let list = args.next().ok_or("--counts needs numbers")?;
                counts = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
            name => names.push(name.to_string()),
        }
    }
    let processors = std::thread::available_parallelism()?.get();
    counts.retain(|&count| count <= processors);
    println!("# {} {} {}", machine::date(), machine::commit(), machine::device());
    let pools = counts.iter().map(|&count| rayon::ThreadPoolBuilder::new().num_threads(count).build());
    let pools = pools.collect::<Result<Vec<_>, _>>()?;
    read(&pools);
    let mut cases = vec![];
    for found in systems(&names) {
        for system in found? {
            products::<f64>(&system.id(), &system.csr, &pools, &mut cases)?;
            products::<f32>(&system.id(), &cast(&system.csr)?, &pools, &mut cases)?;
        }
    }
    losses(&cases);
    Ok(())
}

/// Cost and milliseconds of a format.
struct Timing {
    symmetric: bool,
    cost: f64,
    fastest: f64,
}

/// The timings of all formats of a matrix.
struct Case {
    threads: usize,
    element: &'static str,
    matrix: String,
    formats: Vec<Timing>,
}

impl Case {
    /// The time of the format with the least cost over that of the fastest one.
    fn loss(&self, symmetric: bool) -> Option<f64> {
        let offered = || self.formats.iter().filter(|format| symmetric || !format.symmetric);
        let chosen = offered().min_by(|a, b| a.cost.total_cmp(&b.cost))?;
        let fastest = offered().map(|format| format.fastest).reduce(f64::min)?;
        Some(chosen.fastest / fastest)
    }
}

/// Prints how much longer the chosen formats take than the fastest ones.
fn losses(cases: &[Case]) {
    println!("loss,threads,element,formats,matrices,mean,worst,worst_matrix");
    let mut kinds: Vec<_> = cases.iter().map(|case| (case.threads, case.element)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (threads, element) in kinds {
        for (formats, symmetric) in [("any values", false), ("with symmetric", true)] {
            let of = cases.iter().filter(|case| (case.threads, case.element) == (threads, element));
            let losses: Vec<_> = of.filter_map(|case| Some((case.loss(symmetric)?, &*case.matrix))).collect();
            let mean = losses.iter().map(|(loss, _)| loss).sum::<f64>() / losses.len() as f64;
            let Some((worst, matrix)) = losses.iter().max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            println!("loss,{threads},{element},{formats},{},{mean:.3},{worst:.2},{matrix}", losses.len());
        }
    }
}

/// Seconds of the fastest and of the median call.
fn repeated(mut call: impl FnMut()) -> [f64; 2] {
    call();
    let (mut seconds, started) = (vec![], Instant::now());
    while seconds.len() < LEAST || (started.elapsed() < LONG && seconds.len() < MOST) {
        let before = Instant::now();
        call();
        seconds.push(before.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    [seconds[0], seconds[seconds.len() / 2]]
}

/// Prints the bandwidth of reading arrays of several sizes.
fn read(pools: &[rayon::ThreadPool]) {
    let mut array = vec![0.0_f64; (ARRAYS[ARRAYS.len() - 1] << 20) / size_of::<f64>()];
    array.par_iter_mut().enumerate().for_each(|(i, x)| *x = i as f64);
    let sum = |part: &[f64]| {
        let mut sums = [0.0; 32];
        for line in part.chunks_exact(32) {
            sums.iter_mut().zip(line).for_each(|(sum, x)| *sum += x);
        }
        sums.iter().sum::<f64>()
    };
    println!("read,threads,megabytes,fastest_gbs,median_gbs");
    for pool in pools {
        for megabytes in ARRAYS {
            let part = &array[..(megabytes << 20) / size_of::<f64>()];
            let pieces = part.len().div_ceil(4 * pool.current_num_threads()).next_multiple_of(32);
            let seconds = pool.install(|| {
                repeated(|| {
                    black_box(part.par_chunks(pieces).map(sum).sum::<f64>());
                })
            });
            let [fastest, median] = seconds.map(|seconds| (megabytes << 20) as f64 / seconds / 1e9);
            println!("read,{},{megabytes},{fastest:.1},{median:.1}", pool.current_num_threads());
        }
    }
}

/// Prints the times of all formats that suit the matrix.
fn products<T: Element>(
    name: &str,
    csr: &Csr<T>,
    pools: &[rayon::ThreadPool],
    cases: &mut Vec<Case>,
) -> common::Result<()> {
    let choice = Choice::of_symmetric(csr, Model::Host).unwrap_or_else(|_| Choice::of(csr, Model::Host));
    let others = choice.rejected().iter().filter_map(|candidate| match candidate {
        Candidate::HigherCost(estimate) => Some(estimate),
        Candidate::Unsuitable { .. } => None,
    });
    let estimates: Vec<&Estimate> = std::iter::once(choice.chosen()).chain(others).collect();
    let formats: Vec<Converted<T>> = formats(csr);
    let entries: Vec<T> = vector(csr.cols()).into_iter().map(T::narrow).collect();
    let x = csr.domain().vector(&entries)?;
    println!("# {name} {} chosen: {}", T::NAME, choice.stored());
    println!(
        "product,threads,matrix,element,format,rows,nnz,bytes,gathers,row_sums,cost,fastest_ms,median_ms"
    );
    for pool in pools {
        let mut timings = vec![];
        for (format, operator, _) in &formats {
            let estimate = estimates.iter().find(|estimate| estimate.stored.format() == *format);
            let (Some(operator), Some(Estimate { work, cost, .. })) = (operator, estimate) else { continue };
            let mut y = operator.range().zeros()?;
            let [fastest, median] =
                pool.install(|| time(&**operator, &x, &mut y)).map(|seconds| 1e3 * seconds);
            println!(
                "product,{},{name},{},{format},{},{},{:.0},{:.0},{:.0},{cost:.0},{fastest:.4},{median:.4}",
                pool.current_num_threads(),
                T::NAME,
                csr.rows(),
                csr.nnz(),
                work.bytes,
                work.gathers,
                work.rows,
            );
            timings.push(Timing { symmetric: format.starts_with("symmetric"), cost: *cost, fastest });
        }
        let (threads, matrix) = (pool.current_num_threads(), name.to_string());
        cases.push(Case { threads, element: T::NAME, matrix, formats: timings });
    }
    Ok(())
}

fn time<T: Element>(
    operator: &dyn LinearOperator<Vector = HostVector<T>>,
    x: &HostVector<T>,
    y: &mut HostVector<T>,
) -> [f64; 2] {
    repeated(|| assert!(operator.apply(x, y).is_ok(), "the spaces are those of the matrix"))
}
