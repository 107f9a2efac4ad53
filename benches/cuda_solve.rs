//! Solves on a GPU: the time of an iteration, compared with its memory traffic divided by the bandwidth of a copy (`budget`),
//! and with textbook conjugate gradients on cuSPARSE and cuBLAS in the same process.
//!
//! ```text
//! cargo bench --features peers --bench cuda_solve                 the usual matrices, appended to benches/record/<machine>/
//! cargo bench --features peers --bench cuda_solve -- el3_20k
//!     --quick, --dry, --parts, --pairs, --machine NAME, --out DIR, --commit X    as those of the bench `cuda_spmv`
//! ```
//!
//! `CG, scaled` has no preconditioner: the matrix is scaled by its diagonal on both sides, which gives the same
//! iterations as Jacobi. The time of an iteration is the difference in time of a longer and a shorter solve divided by the
//! difference in iterations, so that the start and the end of a solve do not count. GMRES makes whole cycles. The tolerance
//! is zero.

mod common;

use common::cuda::Gpu;
use common::cuda_formats::{Converter, Operator, converters};
use common::cuda_options::Options;
use common::cuda_peers::cusparse::{Cusparse, Kind, Product};
use common::cuda_peers::textbook::{Scalars, Textbook};
use common::systems::{System, reordered};
use common::{median, record};
use krysp::solvers::{LinearOperator, Method, Solver};
use krysp::testing::matrices::{self, Matrix};
use krysp::{BasicVector, BiCgStab, Cg, Csr, CudaVector, Gmres, Jacobi, Outcome, Scaling, Space, ToCuda};
use rayon::prelude::*;
use std::rc::Rc;
use std::time::Instant;

const USUAL: [&str; 8] =
    ["st7_20k", "el3_20k", "st7_200k", "p1_200k", "el3_200k", "st7_128", "el3_100M_perm", "p1_100M_perm"];

const QUICK: [&str; 4] = ["st7_20k", "el3_20k", "st7_200k", "p1_200k"];

/// The formats to solve with, if they are suitable for the matrix.
const FORMATS: [&str; 6] = ["CSR", "SELL-P", "BSR", "DIA", "Halo", "symmetric BSR"];

/// Prefixes of the names of symmetric indefinite matrices, which are made positive definite.
const INDEFINITE: [&str; 5] = ["st7_", "st27_", "el3_", "p1_", "tiny_el3"];

const RESTART: usize = 30;

/// Number of solves of each length; the median of their times is the result.
const ROUNDS: usize = 7;

/// Iterations after which our residual and that of the textbook implementation must agree up to the relative
/// difference `AGREEMENT`.
const CHECKED: usize = 30;
const AGREEMENT: f64 = 0.02;

/// Bytes of device memory per entry that are enough for every compared implementation.
const BYTES_PER_ENTRY: usize = 100;

/// The iterations of the shorter and the longer solve: whole cycles of GMRES, and whole graphs of the textbook's loop.
struct Lengths {
    short: usize,
    long: usize,
}

impl Lengths {
    fn of(csr: &Csr<f64>) -> Lengths {
        match csr.nnz() {
            ..20_000_000 => Lengths { short: 90, long: 690 },
            _ => Lengths { short: 30, long: 120 },
        }
    }

    fn both(&self) -> [usize; 2] {
        [self.short, self.long]
    }
}

/// The milliseconds of an iteration, from the seconds of the shorter and the longer solves.
fn per_iteration([short, long]: &mut [Vec<f64>; 2], iterations: usize) -> f64 {
    (median(long) - median(short)) * 1e3 / iterations as f64
}

/// The result of a method on a format.
struct Line {
    method: &'static str,
    format: &'static str,
    setup_ms: f64,
    iterations: usize,
    ms: f64,
    budget_ms: f64,
    residual: f64,
    /// How the solve ended, if not at the iteration limit.
    ended: Option<String>,
}

fn main() -> common::Result<()> {
    let options = Options::from_args()?;
    let Some(mut gpu) = Gpu::first()? else { return Ok(()) };
    let library = Cusparse::new(&gpu.stream)?;
    println!("{}, cuSPARSE {}", options.stamp(&gpu), library.version()?);
    for wanted in options.matrices(if options.quick { &QUICK } else { &USUAL }) {
        let started = Instant::now();
        let indefinite = INDEFINITE.iter().any(|family| wanted.name.starts_with(family));
        let definite = |matrix: Matrix| if indefinite { matrix.diagonally_dominant() } else { matrix };
        let rows_per_block = |csr: &Csr<f64>| options.rows_per_block(&gpu.cuda, csr);
        let systems = reordered(&wanted.name, definite, rows_per_block)?;
        println!("\n# {} (made in {:.1?})", wanted.name, started.elapsed());
        for system in systems {
            let rows = solve(&system, &mut gpu, &library, &options)?;
            options.append(&gpu, "solve.csv", record::SOLVE, &rows)?;
        }
    }
    Ok(())
}

/// Measures every method on every format, and the textbook implementations. Returns rows for the CSV file
/// `solve.csv`.
fn solve(
    system: &System,
    gpu: &mut Gpu,
    library: &Rc<Cusparse>,
    options: &Options,
) -> common::Result<Vec<String>> {
    let (csr, id, started) = (&system.csr, system.id(), Instant::now());
    let (free, needed) = (gpu.cuda.memory()?.0, BYTES_PER_ENTRY * csr.nnz());
    if needed > free {
        println!("\n{id}: skipped, may need {needed} bytes of device memory, but only {free} are free");
        return Ok(vec![]);
    }
    let b = matrices::vector(csr.rows());
    let bench = Bench { csr, b: &b, lengths: Lengths::of(csr), bytes_per_ms: gpu.bandwidth()? };
    let (mut lines, mut residuals) = (vec![], vec![]);
    for converter in converters().iter().filter(|converter| FORMATS.contains(&converter.name)) {
        let (found, residual) = bench.ours(converter, gpu, system.ordering_ms)?;
        lines.extend(found);
        residuals.extend(residual.map(|residual| (converter.name, residual)));
    }
    let peers = bench.textbooks(gpu, library)?;
    println!("\n{id}: {} rows, {} entries", csr.rows(), csr.nnz());
    for peer in &peers {
        println!("{:<44}{:>10.4} ms/iteration", peer.name, peer.ms);
        for (format, residual) in &residuals {
            if (residual - peer.residual).abs() > AGREEMENT * peer.residual {
                return Err(format!(
                    "{id}: after {CHECKED} iterations the residual is {residual:e} with {format}, {:e} by {}",
                    peer.residual, peer.name
                )
                .into());
            }
        }
    }
    let Some(best) = peers.iter().min_by(|a, b| a.ms.total_cmp(&b.ms)) else {
        return Err("no peer".into());
    };

    print!("{:<26}{:>10}{:>10}{:>10}{:>11}", "", "ms/it.", "budget", "/budget", "residual");
    let short_names = ["host", "device", "graph", "SELL"];
    println!("   ratio to: {}", short_names.map(|name| format!("{name:>8}")).concat());
    let mut rows = vec![];
    let stamp = options.stamp(gpu);
    for line in &lines {
        let Line { method, format, setup_ms, iterations, ms, budget_ms, residual, .. } = line;
        let is_cg = [CG, STEPWISE, SCALED].contains(method);
        let ratios = peers.iter().filter(|_| is_cg).map(|peer| format!("{:>8.2}", peer.ms / ms));
        println!(
            "{method:<14}{format:<12}{ms:>10.4}{budget_ms:>10.4}{:>10.2}{residual:>11.1e}             {}",
            ms / budget_ms,
            ratios.collect::<String>(),
        );
        if let Some(ended) = &line.ended {
            println!("    {ended}");
        }
        if *method == STEPWISE {
            continue;
        }
        let (peer, peer_ms, ratio) = if is_cg {
            (&*best.name, format!("{:.5}", best.ms), format!("{:.3}", best.ms / ms))
        } else {
            ("", String::new(), String::new())
        };
        let (method, preconditioner) = if *method == SCALED { (CG, "scaling") } else { (*method, "Jacobi") };
        rows.push(format!(
            "{stamp},{id},{},{},f64,{method},{preconditioner},{format},{setup_ms:.3},{iterations},{ms:.5},{budget_ms:.5},{residual:.3e},{peer},{peer_ms},{ratio}",
            csr.rows(),
            csr.nnz(),
        ));
    }
    println!("copying {:.0} GB/s; measured in {:.1?}", bench.bytes_per_ms / 1e6, started.elapsed());
    Ok(rows)
}

const CG: &str = "CG";

/// Conjugate gradients with a stopping rule that is evaluated after every iteration, so that iterations are queued
/// one by one.
const STEPWISE: &str = "CG, stepwise";

/// Conjugate gradients without preconditioner on the system scaled by its diagonal: the same iterations as with Jacobi.
const SCALED: &str = "CG, scaled";

/// A variant of the textbook implementation.
struct Peer {
    name: String,
    ms: f64,
    /// `‖b − A x‖ / ‖b‖` after the iterations that are checked.
    residual: f64,
}

/// A system to solve.
struct Bench<'a> {
    csr: &'a Csr<f64>,
    b: &'a [f64],
    lengths: Lengths,
    bytes_per_ms: f64,
}

impl Bench<'_> {
    /// Measures every method on one of our formats, and computes the residual to check. Does nothing if the format
    /// refuses the matrix.
    fn ours(
        &self,
        converter: &Converter<f64>,
        gpu: &Gpu,
        ordering_ms: f64,
    ) -> common::Result<(Vec<Line>, Option<f64>)> {
        let started = Instant::now();
        let Some(operator) = (converter.convert)(self.csr, &gpu.cuda)? else { return Ok((vec![], None)) };
        let operator: &Operator<f64> = &*operator;
        let jacobi = &Jacobi::new(self.csr)?.to(&gpu.cuda)?;
        gpu.cuda.synchronize()?;
        let setup_ms = started.elapsed().as_secs_f64() * 1e3 + ordering_ms;
        let b = operator.range().vector(self.b)?;
        let on = On { bench: self, gpu, format: converter.name, setup_ms, b };

        let mut x = operator.domain().zeros()?;
        let mut checked = Cg::new(operator).preconditioner(jacobi).rtol(0.0).max_iterations(CHECKED);
        let residual = checked.solve_into(&on.b, &mut x)?.relative_residual();
        let scaling = Scaling::symmetric(self.csr)?;
        let Some(scaled) = (converter.convert)(&scaling.matrix(self.csr)?, &gpu.cuda)? else {
            return Err(format!("{} refuses the scaled matrix", converter.name).into());
        };
        let scaled_b = scaled.range().vector(&scaling.rhs(self.b)?)?;
        let of_scaled = On { bench: self, gpu, format: converter.name, setup_ms, b: scaled_b };
        let lines = vec![
            on.timed(CG, Cg::new(operator).preconditioner(jacobi))?,
            on.timed(STEPWISE, Cg::new(operator).preconditioner(jacobi).stop_when(|_| false))?,
            of_scaled.timed(SCALED, Cg::new(&*scaled))?,
            on.timed("BiCGStab", BiCgStab::new(operator).preconditioner(jacobi))?,
            on.timed("GMRES(30)", Gmres::new(operator).preconditioner(jacobi).restart(RESTART))?,
        ];
        Ok((lines, Some(residual)))
    }

    /// Measures the textbook implementation: with CSR and scalars on the host, on the device, and in a CUDA
    /// graph, and with sliced ELL in a graph.
    fn textbooks(&self, gpu: &mut Gpu, library: &Rc<Cusparse>) -> common::Result<Vec<Peer>> {
        let mut algorithms = vec![];
        for kind in [Kind::Csr1, Kind::Csr2] {
            if let Some(mut product) = Product::new(library, kind, self.csr, self.b)? {
                algorithms.push((kind, gpu.warm(&mut || product.queue())?));
            }
        }
        let faster = algorithms.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|&(kind, _)| kind);
        let mut peers = vec![];
        for (kind, variants) in [
            (faster, &[Scalars::Host, Scalars::Device, Scalars::Graph][..]),
            (Some(Kind::Sliced), &[Scalars::Graph][..]),
        ] {
            let Some(kind) = kind else { continue };
            let Some(mut textbook) = Textbook::new(library, &gpu.stream, kind, self.csr, self.b)? else {
                continue;
            };
            for &scalars in variants {
                let how = match scalars {
                    Scalars::Host => "host dots",
                    Scalars::Device => "device scalars",
                    Scalars::Graph => "graph",
                };
                let name = format!("{} + cuBLAS {how}", kind.name());
                textbook.solve(scalars, CHECKED)?;
                let residual = self.residual(&textbook.x()?);
                textbook.solve(scalars, self.lengths.long)?;
                let mut times = [vec![], vec![]];
                for _ in 0..ROUNDS {
                    for (length, times) in self.lengths.both().into_iter().zip(&mut times) {
                        let started = Instant::now();
                        textbook.solve(scalars, length)?;
                        times.push(started.elapsed().as_secs_f64());
                    }
                }
                let ms = per_iteration(&mut times, self.lengths.long - self.lengths.short);
                peers.push(Peer { name, ms, residual });
            }
        }
        Ok(peers)
    }

    /// `‖b − A x‖ / ‖b‖`
    fn residual(&self, x: &[f64]) -> f64 {
        let off = |row: usize| {
            let entries = self.csr.row_columns(row).iter().zip(self.csr.row_values(row));
            let sum: f64 = entries.map(|(&column, value)| value * x[column as usize]).sum();
            (self.b[row] - sum).powi(2)
        };
        let squared: f64 = (0..x.len()).into_par_iter().map(off).sum();
        (squared / self.b.iter().map(|b| b * b).sum::<f64>()).sqrt()
    }
}

/// A system in one of our formats.
struct On<'a> {
    bench: &'a Bench<'a>,
    gpu: &'a Gpu,
    format: &'static str,
    setup_ms: f64,
    b: CudaVector<f64>,
}

impl On<'_> {
    /// The milliseconds of a method's iteration. A solve of the longer length, which is not timed, comes first.
    fn timed<K: Method<CudaVector<f64>>, M: LinearOperator<Vector = CudaVector<f64>>>(
        &self,
        method: &'static str,
        solver: Solver<K, &Operator<f64>, M>,
    ) -> common::Result<Line> {
        let mut solver =
            solver.rtol(0.0).stagnation_window(usize::MAX).max_iterations(self.bench.lengths.long);
        let zeros = self.b.space().zeros()?;
        let mut x = self.b.space().zeros()?;
        solver.solve_into(&self.b, &mut x)?;
        let (mut times, mut made) = ([vec![], vec![]], [0; 2]);
        let (mut residual, mut ended) = (f64::NAN, None);
        for _ in 0..ROUNDS {
            for (at, length) in self.bench.lengths.both().into_iter().enumerate() {
                x.copy_from(&zeros);
                self.gpu.cuda.synchronize()?;
                solver = solver.max_iterations(length);
                let started = Instant::now();
                let report = solver.solve_into(&self.b, &mut x)?;
                times[at].push(started.elapsed().as_secs_f64());
                made[at] = report.iterations;
                residual = report.relative_residual();
                ended = (report.outcome != Outcome::IterationLimit).then(|| report.to_string());
            }
        }
        let ms = match made[1].checked_sub(made[0]) {
            Some(iterations) if iterations > 0 => per_iteration(&mut times, iterations),
            _ => f64::NAN,
        };
        Ok(Line {
            method,
            format: self.format,
            setup_ms: self.setup_ms,
            iterations: made[1],
            ms,
            budget_ms: solver.bytes_per_iteration() as f64 / self.bench.bytes_per_ms,
            residual,
            ended,
        })
    }
}
