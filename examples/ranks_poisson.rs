//! Poisson's equation on a cube, distributed over ranks, each of which assembles its own rows; or the system of a Matrix
//! Market file. Ranks are threads of this process, with `gpu` one for each GPU:
//!
//! ```text
//! cargo run --release --example ranks_poisson [SIDE|FILE [cpu|gpu [THREADS]]]
//! cargo run --release --example ranks_poisson 256 gpu
//! ```
//!
//! With the feature `mpi` and without THREADS, ranks are processes:
//!
//! ```text
//! cargo build --release --features mpi --example ranks_poisson
//! RAYON_NUM_THREADS=1 mpirun -n 4 target/release/examples/ranks_poisson [SIDE|FILE]
//! mpirun -n 2 target/release/examples/ranks_poisson SIDE|FILE gpu
//! ```

use krysp::ranks::{BlockJacobi, Local, RankAmg, RankMatrix, RankVector, Ranks, RowDistribution};
use krysp::solvers::{Method, Report, Solver};
use krysp::{Cg, Error, Ic0, Jacobi, LinearOperator, PipelinedCg, Result, Space};
use std::time::Instant;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let system = args.first().map_or("64", String::as_str);
    let on_gpus = match args.get(1).map_or("cpu", String::as_str) {
        "cpu" => false,
        "gpu" => true,
        other => return Err(wrong("the second argument", other, "`cpu` or `gpu`")),
    };
    let on_rank = |ranks: &Ranks| {
        let a = match system.parse() {
            Ok(side) => assemble(ranks, side)?,
            Err(_) => RankMatrix::read(ranks, system, RowDistribution::ByEntries)?,
        };
        if on_gpus { solve_on_gpus(a) } else { solve(&a) }
    };
    let threads = args.get(2).map(|count| {
        count.parse::<usize>().map_err(|_| wrong("the number of threads", count, "a positive integer"))
    });
    match threads.transpose()? {
        Some(count) => on_threads(count, on_rank),
        None => on_processes(on_gpus, on_rank),
    }
}

fn wrong(what: &'static str, got: &str, expected: &'static str) -> Error {
    Error::Option { what, got: got.into(), expected }
}

fn on_threads(count: usize, work: impl Fn(&Ranks) -> Result<()> + Sync) -> Result<()> {
    Ranks::threads(count, work).map(drop)
}

/// Runs on the ranks of MPI. If one fails, all end.
#[cfg(feature = "mpi")]
fn on_processes(_: bool, work: impl Fn(&Ranks) -> Result<()> + Sync) -> Result<()> {
    let ranks = Ranks::world()?;
    ranks.run(|| work(&ranks))
}

/// Without MPI, runs on a thread for each GPU, or on four threads.
#[cfg(not(feature = "mpi"))]
fn on_processes(on_gpus: bool, work: impl Fn(&Ranks) -> Result<()> + Sync) -> Result<()> {
    on_threads(if on_gpus { gpus() } else { 4 }, work)
}

/// Number of GPUs, at least one: without a GPU, its use is an error that says so.
#[cfg(all(feature = "cuda", not(feature = "mpi")))]
fn gpus() -> usize {
    krysp::Cuda::devices().len().max(1)
}

#[cfg(not(any(feature = "cuda", feature = "mpi")))]
fn gpus() -> usize {
    1
}

#[cfg(feature = "cuda")]
fn solve_on_gpus(host: RankMatrix<f64>) -> Result<()> {
    use krysp::ranks::RankTwoLevel;
    use krysp::{Amg, CoarseSpace, MatrixSource, Operator, ToCuda};

    let gpu = host.ranks().gpu()?;
    let a = host.to(&gpu)?;
    describe(&a)?;
    if a.ranks().size() == 1 {
        // the same solve without MPI, for comparison
        let csr = host.diagonal_block().in_host_memory()?;
        let mut alone =
            Cg::new(Operator::auto(&*csr, &gpu)?).preconditioner(Jacobi::on(&gpu, &*csr)?).rtol(1e-8);
        let b = vec![1.0; csr.rows()];
        alone.solve(&b)?;
        let report = alone.solve(&b)?.report;
        println!("CG, Jacobi, without ranks: {report}");
        println!("    per iteration: {:.4} ms", milliseconds(&report));
    }
    let jacobi = || BlockJacobi::new(&a, |block| Jacobi::on(&gpu, block));
    report("CG, Jacobi", &a, || Ok(Cg::new(&a).preconditioner(jacobi()?)))?;
    report("pipelined CG, Jacobi", &a, || Ok(PipelinedCg::new(&a).preconditioner(jacobi()?)))?;
    report("CG, TwoLevel", &a, || {
        Ok(Cg::new(&a).preconditioner(RankTwoLevel::with_inner(jacobi()?, &a, CoarseSpace::<f64>::UNKNOWNS)?))
    })?;
    let amg = || BlockJacobi::new(&a, |block| Amg::on(&gpu, block));
    report("CG, Amg of each block", &a, || Ok(Cg::new(&a).preconditioner(amg()?)))?;
    report("CG, Amg", &a, || Ok(Cg::new(&a).preconditioner(RankAmg::new(&a)?)))
}

#[cfg(not(feature = "cuda"))]
fn solve_on_gpus(_: RankMatrix<f64>) -> Result<()> {
    Err(wrong(
        "the second argument",
        "gpu",
        "`cpu`, because this program was built without the feature `cuda`",
    ))
}

fn solve(a: &RankMatrix<f64>) -> Result<()> {
    describe(a)?;
    let jacobi = || BlockJacobi::new(a, Jacobi::new);
    report("CG, Jacobi", a, || Ok(Cg::new(a).preconditioner(jacobi()?)))?;
    report("pipelined CG, Jacobi", a, || Ok(PipelinedCg::new(a).preconditioner(jacobi()?)))?;
    report("CG, Ic0 of each block", a, || Ok(Cg::new(a).preconditioner(BlockJacobi::new(a, Ic0::new)?)))?;
    report("CG, Amg", a, || Ok(Cg::new(a).preconditioner(RankAmg::new(a)?)))
}

/// Prints a report on each rank's part of the matrix, one rank after the other.
fn describe<L: Local<f64>>(a: &RankMatrix<f64, L>) -> Result<()> {
    let ranks = a.ranks();
    // ranks take turns, so that lines do not mix
    for rank in 0..ranks.size() {
        if rank == ranks.rank() {
            println!("rank {rank}: {}", a.report());
        }
        ranks.all(Ok(()))?;
    }
    Ok(())
}

/// The 7-point stencil on the nodes of a cube, z slowest; each rank has the rows of some consecutive nodes.
fn assemble(ranks: &Ranks, side: u64) -> Result<RankMatrix<f64>> {
    let n = side.pow(3);
    let first = |rank: usize| n * rank as u64 / ranks.size() as u64;
    let (mut offsets, mut columns, mut values) = (vec![0], vec![], vec![]);
    for node in first(ranks.rank())..first(ranks.rank() + 1) {
        let mut entry = |column, value| {
            columns.push(column);
            values.push(value);
        };
        entry(node, 6.0);
        for stride in [1, side, side * side] {
            let place = node / stride % side;
            if place > 0 {
                entry(node - stride, -1.0);
            }
            if place + 1 < side {
                entry(node + stride, -1.0);
            }
        }
        offsets.push(columns.len());
    }
    RankMatrix::from_rows(ranks, &offsets, &columns, &values)
}

/// Solves twice, because the first solve allocates the workspace, and prints the time of the second.
fn report<'a, K, M, L>(
    name: &str,
    a: &'a RankMatrix<f64, L>,
    make: impl FnOnce() -> Result<Solver<K, &'a RankMatrix<f64, L>, M>>,
) -> Result<()>
where
    L: Local<f64>,
    K: Method<RankVector<f64, L>>,
    M: LinearOperator<Vector = RankVector<f64, L>>,
{
    let started = Instant::now();
    let mut solver = make()?.rtol(1e-8);
    let setup = started.elapsed().as_secs_f64();
    let b = vec![1.0; a.domain().local_len()];
    solver.solve(&b)?;
    let before = a.ranks().traffic();
    let report = solver.solve(&b)?.report;
    let sent = a.ranks().traffic() - before;
    if a.ranks().rank() == 0 {
        let each = |count: u64| count as f64 / report.iterations.max(1) as f64;
        println!("{name}: {report}, setup {setup:.3} s");
        println!(
            "    per iteration: {:.4} ms, {:.1} sums over all ranks, {:.1} messages with {:.0} bytes from rank 0",
            milliseconds(&report),
            each(sent.reductions),
            each(sent.messages),
            each(sent.bytes),
        );
    }
    Ok(())
}

/// The time of an iteration in milliseconds.
fn milliseconds(report: &Report) -> f64 {
    1e3 * report.time.as_secs_f64() / report.iterations.max(1) as f64
}
