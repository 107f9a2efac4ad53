//! Poisson's equation on a cube, shared by ranks of MPI: each assembles its own rows.
//!
//! ```text
//! cargo build --release --features mpi --example mpi_poisson
//! RAYON_NUM_THREADS=1 mpirun -n 4 target/release/examples/mpi_poisson [SIDE]
//! ```

use krysp::mpi::{BlockJacobi, RankAmg, RankMatrix, Ranks};
use krysp::solvers::{Method, Solver};
use krysp::{Cg, Ic0, Jacobi, LinearOperator, PipelinedCg, Space};
use std::error::Error;
use std::time::Instant;

type Vector = krysp::mpi::RankVector<f64>;

fn main() -> Result<(), Box<dyn Error>> {
    let side = std::env::args().nth(1).map_or(Ok(64), |side| side.parse())?;
    let ranks = Ranks::world()?;
    // if one rank fails, all end
    ranks.run(|| solve(&ranks, side))
}

fn solve(ranks: &Ranks, side: u64) -> Result<(), Box<dyn Error>> {
    let a = assemble(ranks, side)?;
    // ranks take turns, so that lines do not mix
    for rank in 0..ranks.size() {
        if rank == ranks.rank() {
            println!("rank {rank}: {}", a.report());
        }
        ranks.all(Ok(()))?;
    }
    let jacobi = || BlockJacobi::new(&a, Jacobi::new);
    report("CG, Jacobi", &a, || Ok(Cg::new(&a).preconditioner(jacobi()?)))?;
    report("pipelined CG, Jacobi", &a, || Ok(PipelinedCg::new(&a).preconditioner(jacobi()?)))?;
    report("CG, Ic0 of each block", &a, || Ok(Cg::new(&a).preconditioner(BlockJacobi::new(&a, Ic0::new)?)))?;
    report("CG, Amg", &a, || Ok(Cg::new(&a).preconditioner(RankAmg::new(&a)?)))
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

/// Solves twice, because the first solve makes the workspace, and prints what the second took.
fn report<'a, K, M>(
    name: &str,
    a: &'a RankMatrix<f64>,
    make: impl FnOnce() -> krysp::Result<Solver<K, &'a RankMatrix<f64>, M>>,
) -> Result<(), Box<dyn Error>>
where
    K: Method<Vector>,
    M: LinearOperator<Vector = Vector>,
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
            "    an iteration: {:.3} ms, {:.1} sums over all ranks, {:.1} messages with {:.0} bytes from rank 0",
            1e3 * report.time.as_secs_f64() / report.iterations.max(1) as f64,
            each(sent.reductions),
            each(sent.messages),
            each(sent.bytes),
        );
    }
    Ok(())
}
