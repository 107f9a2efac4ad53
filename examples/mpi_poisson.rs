//! Poisson's equation on a cube, distributed over MPI ranks, each of which assembles its own rows; or a matrix of `krysp
//! generate`, which the first rank generates and distributes.
//!
//! ```text
//! cargo build --release --features mpi --example mpi_poisson
//! RAYON_NUM_THREADS=1 mpirun -n 4 target/release/examples/mpi_poisson [SIDE]
//! mpirun -n 2 target/release/examples/mpi_poisson SIDE|MATRIX gpu
//! ```

use krysp::ranks::{BlockJacobi, Local, RankAmg, RankMatrix, RankVector, Ranks};
use krysp::solvers::{Method, Report, Solver};
use krysp::testing::matrices;
use krysp::{Cg, Ic0, Jacobi, LinearOperator, PipelinedCg, Space};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let system = args.first().map_or("64", String::as_str);
    let ranks = Ranks::world()?;
    // if one rank fails, all ranks end
    ranks.run(|| {
        let a = match system.parse() {
            Ok(side) => assemble(&ranks, side)?,
            Err(_) => shared(&ranks, system)?,
        };
        if args.len() > 1 { solve_on_gpus(a) } else { solve(&a) }
    })
}

#[cfg(feature = "cuda")]
fn solve_on_gpus(host: RankMatrix<f64>) -> Result<(), Box<dyn Error>> {
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
fn solve_on_gpus(_: RankMatrix<f64>) -> Result<(), Box<dyn Error>> {
    Err("this program was built without the feature `cuda`".into())
}

fn solve(a: &RankMatrix<f64>) -> Result<(), Box<dyn Error>> {
    describe(a)?;
    let jacobi = || BlockJacobi::new(a, Jacobi::new);
    report("CG, Jacobi", a, || Ok(Cg::new(a).preconditioner(jacobi()?)))?;
    report("pipelined CG, Jacobi", a, || Ok(PipelinedCg::new(a).preconditioner(jacobi()?)))?;
    report("CG, Ic0 of each block", a, || Ok(Cg::new(a).preconditioner(BlockJacobi::new(a, Ic0::new)?)))?;
    report("CG, Amg", a, || Ok(Cg::new(a).preconditioner(RankAmg::new(a)?)))
}

/// A named matrix in its given ordering, made diagonally dominant and thereby positive definite.
fn shared(ranks: &Ranks, name: &str) -> krysp::Result<RankMatrix<f64>> {
    let unknown =
        || krysp::Error::Option { what: "the matrix", got: name.into(), expected: "one of `krysp generate`" };
    let make = || matrices::named(name).ok_or_else(unknown)?.diagonally_dominant().csr();
    let whole = (ranks.rank() == 0).then(make).transpose();
    RankMatrix::distribute(ranks, ranks.all(whole)?.as_ref())
}

/// Prints a report on each rank's part of the matrix, one rank after the other.
fn describe<L: Local<f64>>(a: &RankMatrix<f64, L>) -> krysp::Result<()> {
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
fn assemble(ranks: &Ranks, side: u64) -> krysp::Result<RankMatrix<f64>> {
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
    make: impl FnOnce() -> krysp::Result<Solver<K, &'a RankMatrix<f64, L>, M>>,
) -> Result<(), Box<dyn Error>>
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
