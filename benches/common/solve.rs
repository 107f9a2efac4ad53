//! Times solves: the time of an iteration, compared with its memory traffic (`bytes_per_iteration`) divided
//! by the measured bandwidth, and the time to a relative residual of 1e-8.

use super::contestants::formats;
use super::machine::Bandwidth;
use super::systems::System;
use super::{Result, median};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::matrix_free::conjugate_gradient::{CgParams, conjugate_gradient, conjugate_gradient_scratch};
use faer::sparse::SparseRowMat;
use faer::{Mat, Par};
use krysp::solvers::{Method, Solver};
use krysp::testing::matrices;
use krysp::{BasicVector, BiCgStab, Cg, Csr, Gmres, HostVector, Jacobi, LinearOperator, Report};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The formats to solve with. Formats that are fastest only for unusual matrices are left out.
const FORMATS: [&str; 6] = ["CSR", "symmetric CSR", "symmetric BSR", "SELL-P", "BSR", "DIA"];

/// Iterations of a timed solve: two cycles of GMRES(30).
const ITERATIONS: usize = 60;

/// The relative residual to reach, and the number of iterations and the time allowed.
const TOLERANCE: f64 = 1e-8;
const LIMIT: usize = 2000;
const TIME_LIMIT: Duration = Duration::from_secs(25);

/// The time at which each iteration ended.
type Times = Arc<Mutex<Vec<Instant>>>;

type Operator = dyn LinearOperator<Vector = HostVector<f64>>;

/// The milliseconds of an iteration, from the end of the first to the end of the last.
fn per_iteration(times: &Times) -> f64 {
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    let ms = match (times.first(), times.last()) {
        (Some(&first), Some(&last)) if times.len() > 1 => {
            (last - first).as_secs_f64() * 1e3 / (times.len() - 1) as f64
        }
        _ => f64::NAN,
    };
    times.clear();
    ms
}

/// A method with a format, and its measurements.
struct Entry<'a> {
    method: &'static str,
    format: &'static str,
    setup_ms: f64,
    budget_bytes: u64,
    report: Report,
    turn: Box<dyn FnMut() -> Result<f64> + 'a>,
}

fn entry<'a, K>(
    method: &'static str,
    format: &'static str,
    setup_ms: f64,
    solver: Solver<K, &'a Operator, &'a Jacobi<f64>>,
    b: &'a HostVector<f64>,
) -> Result<Entry<'a>>
where
    K: Method<HostVector<f64>> + 'a,
{
    let times = Times::default();
    let stamps = times.clone();
    let mut solver = solver.rtol(TOLERANCE).max_iterations(LIMIT).time_limit(TIME_LIMIT).observe(move |_| {
        stamps.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    });
    let zeros = HostVector::from_slice(&vec![0.0; b.as_slice().len()]);
    let mut x = zeros.clone();
    let report = solver.solve_into(b, &mut x)?.clone();
    println!("{method:<10}{format:<16}{report}");
    let budget_bytes = solver.bytes_per_iteration();
    let mut solver = solver.rtol(0.0).max_iterations(ITERATIONS + 1).stagnation_window(usize::MAX);
    let turn = move || {
        x.copy_from(&zeros);
        per_iteration(&times);
        solver.solve_into(b, &mut x)?;
        Ok(per_iteration(&times))
    };
    Ok(Entry { method, format, setup_ms, budget_bytes, report, turn: Box::new(turn) })
}

/// faer's conjugate gradients with Jacobi.
struct FaerCg {
    name: &'static str,
    par: Par,
    a: SparseRowMat<u32, f64>,
    inverse_diagonal: faer::diag::Diag<f64>,
    b: Mat<f64>,
    times: Times,
}

impl FaerCg {
    fn new(name: &'static str, par: Par, csr: &Csr<f64>, b: &[f64]) -> Result<FaerCg> {
        let mut inverse_diagonal = faer::diag::Diag::zeros(b.len());
        let entries = inverse_diagonal.column_vector_mut().iter_mut();
        entries.zip(csr.diagonal_entries()).for_each(|(inverse, entry)| *inverse = entry.recip());
        let b = Mat::from_fn(b.len(), 1, |i, _| b[i]);
        Ok(FaerCg { name, par, a: csr.try_into()?, inverse_diagonal, b, times: Times::default() })
    }

    /// The number of iterations, if the solve converged.
    fn solve(&self, tolerance: f64, max_iters: usize) -> Option<usize> {
        let (a, m, par) = (self.a.as_ref(), self.inverse_diagonal.as_ref(), self.par);
        let mut x = Mat::zeros(self.b.nrows(), 1);
        let mut memory = MemBuffer::new(conjugate_gradient_scratch(m, a, 1, par));
        let params = CgParams { rel_tolerance: tolerance, max_iters, ..Default::default() };
        let stamp = |_: faer::MatRef<'_, f64>| {
            self.times.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        };
        let stack = MemStack::new(&mut memory);
        let info = conjugate_gradient(x.as_mut(), m, a, self.b.as_ref(), params, stamp, par, stack);
        info.ok().map(|info| info.iter_count)
    }

    fn turn(&self) -> f64 {
        per_iteration(&self.times);
        self.solve(0.0, ITERATIONS + 1);
        per_iteration(&self.times)
    }
}

/// Measures CG with the formats of [`FORMATS`], and BiCGStab and GMRES(30) with the one that has the fewest bytes, in turns.
/// Returns rows for the CSV file `solve.csv`.
pub fn solve(system: &System, rounds: usize, bandwidth: &Bandwidth, stamp: &str) -> Result<Vec<String>> {
    let csr = &system.csr;
    println!("\n{}: {} rows, {} entries, to {TOLERANCE:e}", system.id(), csr.rows(), csr.nnz());
    let b = matrices::vector(csr.rows());
    let started = Instant::now();
    let jacobi = Jacobi::new(csr)?;
    let jacobi_ms = started.elapsed().as_secs_f64() * 1e3;

    // faer runs on one thread: with its own threads it is three times slower on two cores
    let peer = FaerCg::new("faer on one thread", Par::Seq, csr, &b)?;
    let started = Instant::now();
    let iterations =
        peer.solve(TOLERANCE, LIMIT).map_or("no convergence in".into(), |i| format!("{i} iterations in"));
    println!("CG        {}: {iterations} {:.3?}", peer.name, started.elapsed());

    let b = HostVector::from_slice(&b);
    let formats: Vec<_> = formats(csr).into_iter().filter(|(name, ..)| FORMATS.contains(name)).collect();
    let leanest =
        formats.iter().filter_map(|(name, operator, _)| Some((operator.as_ref()?.bytes(), *name))).min();
    let mut entries = vec![];
    for (format, operator, ms) in &formats {
        let Some(operator) = operator.as_deref() else { continue };
        let setup_ms = ms + jacobi_ms + system.ordering_ms;
        entries.push(entry("CG", format, setup_ms, Cg::new(operator).preconditioner(&jacobi), &b)?);
        if leanest.is_none_or(|(_, leanest)| leanest != *format) {
            continue;
        }
        entries.push(entry(
            "BiCGStab",
            format,
            setup_ms,
            BiCgStab::new(operator).preconditioner(&jacobi),
            &b,
        )?);
        let gmres = Gmres::new(operator).preconditioner(&jacobi).restart(30);
        entries.push(entry("GMRES(30)", format, setup_ms, gmres, &b)?);
    }

    let (mut times, mut theirs, mut reads) = (vec![vec![]; entries.len()], vec![], vec![]);
    for _ in 0..rounds {
        reads.push(bandwidth.seconds());
        theirs.push(peer.turn());
        for (entry, times) in entries.iter_mut().zip(&mut times) {
            times.push((entry.turn)()?);
        }
    }
    let bytes_per_ms = bandwidth.bytes() as f64 / median(&mut reads) / 1e3;
    let theirs = median(&mut theirs);

    println!("{:<26}{:>14}{:>10}{:>10}{:>10}", "", "ms/iteration", "budget", "peer", "ratio");
    let mut rows = vec![];
    for (entry, times) in entries.iter().zip(&mut times) {
        let (ms, budget) = (median(times), entry.budget_bytes as f64 / bytes_per_ms);
        let (peer_name, peer_ms, ratio) = match entry.method {
            "CG" => (peer.name, format!("{theirs:.4}"), format!("{:.3}", theirs / ms)),
            _ => ("", String::new(), String::new()),
        };
        let (method, format) = (entry.method, entry.format);
        println!("{method:<10}{format:<16}{ms:>14.3}{budget:>10.3}{peer_ms:>10}{ratio:>10}");
        rows.push(format!(
            "{stamp},{},{},{},f64,{method},Jacobi,{format},{:.3},{},{ms:.4},{budget:.4},{:.3e},{peer_name},{peer_ms},{ratio}",
            system.name,
            csr.rows(),
            csr.nnz(),
            entry.setup_ms,
            entry.report.iterations,
            entry.report.relative_residual(),
        ));
    }
    println!("{:<26}{:>14.2} GB/s", "reading", bytes_per_ms / 1e6);
    Ok(rows)
}
