//! Time of products, iterations and preconditioners with more threads than cores, and beside a program that keeps one core busy.
//!
//! ```text
//! cargo bench --bench threads [-- ROUNDS]
//! ```
//!
//! Prints one line of CSV for each matrix and operation: microseconds with one thread per core, and the time in each other setting
//! relative to that. All settings take turns in one process, each for [`WINDOW`] per round; ratios are medians over rounds. The
//! program that keeps the first core busy is this one, started by `taskset`, which is part of util-linux.

use krysp::testing::matrices;
use krysp::{Amg, Cg, Csr, Host, HostVector, Ic0, Jacobi, LinearOperator, Operator, Space};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Time for which an operation is repeated in one round.
const WINDOW: Duration = Duration::from_millis(200);
/// Iterations of conjugate gradients per call.
const ITERATIONS: usize = 20;

/// Way of calling an operation.
struct Setting {
    name: &'static str,
    /// The pool inside which it is called, or `None`: from outside of the global pool, which has one thread per core.
    pool: Option<ThreadPool>,
    /// True if another program keeps a core busy.
    is_contended: bool,
}

impl Setting {
    fn new(name: &'static str, threads: usize, is_contended: bool) -> Result<Setting> {
        let pool = Some(ThreadPoolBuilder::new().num_threads(threads).build()?);
        Ok(Setting { name, pool, is_contended })
    }

    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// An operation, and its seconds in each setting and round.
struct Operation<'a> {
    name: &'static str,
    /// Number of iterations of one call.
    parts: usize,
    call: Box<dyn FnMut() -> Result<()> + Send + 'a>,
    /// Seconds of one part, for each setting and round.
    seconds: Vec<Vec<f64>>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.first().is_some_and(|argument| argument == "spin") {
        loop {
            std::hint::spin_loop();
        }
    }
    let rounds: usize = arguments.first().map_or(Ok(15), |rounds| rounds.parse())?;
    let cores = std::thread::available_parallelism()?.get();
    let settings = [
        Setting::new("one_thread_per_core", cores, false)?,
        Setting::new("two_threads_per_core", 2 * cores, false)?,
        Setting::new("one_core_taken", cores, true)?,
        Setting::new("one_core_taken_two_threads_per_core", 2 * cores, true)?,
        Setting::new("one_thread", 1, false)?,
        Setting { name: "from_outside", pool: None, is_contended: false },
    ];
    let names: Vec<&str> = settings[1..].iter().map(|setting| setting.name).collect();
    println!("matrix,operation,microseconds,{}", names.join(","));
    for (name, a) in [("p7_32", matrices::stencil7(32)), ("p7_100", matrices::stencil7(100))] {
        let a = a.csr::<f64>()?;
        let mut operations = settings[0].run(|| operations(&a))?;
        operations.iter_mut().for_each(|operation| operation.seconds = vec![vec![]; settings.len()]);
        for round in 0..=rounds {
            for (at, setting) in settings.iter().enumerate() {
                let _busy = setting.is_contended.then(Busy::start).transpose()?;
                for operation in &mut operations {
                    let seconds = setting.run(|| operation.repeat())?;
                    // the first round warms up
                    if round > 0 {
                        operation.seconds[at].push(seconds);
                    }
                }
            }
        }
        for Operation { name: operation, seconds, .. } in &operations {
            let ratio = |setting: &Vec<f64>| {
                format!("{:.2}", median(setting.iter().zip(&seconds[0]).map(|(a, b)| a / b).collect()))
            };
            let ratios: Vec<String> = seconds[1..].iter().map(ratio).collect();
            println!("{name},{operation},{:.1},{}", 1e6 * median(seconds[0].clone()), ratios.join(","));
        }
    }
    Ok(())
}

fn operations(a: &Csr<f64>) -> Result<Vec<Operation<'_>>> {
    let x = a.domain().vector(&matrices::vector(a.rows()))?;
    let b = matrices::vector(a.rows());
    let apply = |name, m: Box<dyn LinearOperator<Vector = HostVector<f64>>>| -> Result<Operation<'_>> {
        let (x, mut y) = (x.clone(), m.range().zeros()?);
        Ok(Operation { name, parts: 1, call: Box::new(move || Ok(m.apply(&x, &mut y)?)), seconds: vec![] })
    };
    let sell = Operator::in_format(a, &Host, "SELL-P")?;
    let mut solver = Cg::new(a).preconditioner(Jacobi::new(a)?).rtol(0.0).max_iterations(ITERATIONS);
    let solve = move || Ok(solver.solve(&b).map(drop)?);
    Ok(vec![
        apply("product (CSR)", Box::new(a.clone()))?,
        apply("product (SELL-P)", Box::new(sell))?,
        Operation {
            name: "iteration of Cg with Jacobi",
            parts: ITERATIONS,
            call: Box::new(solve),
            seconds: vec![],
        },
        apply("Amg", Box::new(Amg::new(a)?))?,
        apply("Ic0", Box::new(Ic0::new(a)?))?,
    ])
}

impl Operation<'_> {
    /// Repeats the operation for [`WINDOW`], and returns the seconds of one part.
    fn repeat(&mut self) -> Result<f64> {
        let (started, mut calls) = (Instant::now(), 0);
        while started.elapsed() < WINDOW {
            (self.call)()?;
            calls += 1;
        }
        Ok(started.elapsed().as_secs_f64() / (calls * self.parts) as f64)
    }
}

/// A process that keeps the first core busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Busy> {
        let program = std::env::current_exe()?;
        let process = Command::new("taskset").args(["-c", "0"]).arg(program).arg("spin").spawn()?;
        std::thread::sleep(Duration::from_millis(50));
        Ok(Busy(process))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // neither fails while the process is ours
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
