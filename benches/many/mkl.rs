//! The product of MKL with eight vectors.

use super::common::mkl::mkl_many;
use super::{ROUNDS, Result};
use krysp::solvers::MultiVector;
use krysp::{Csr, HostVector, LinearOperator, Operator};
use std::time::Instant;

const COUNT: usize = 8;

pub(crate) fn eight(a: &Csr<f64>, operator: &Operator<HostVector<f64>>) -> Result<()> {
    let entry = |i: usize, j: usize| ((i * 7 + j * 13) % 101) as f64 / 50.0 - 1.0;
    let column = |j| operator.domain().vector(&(0..a.cols()).map(|i| entry(i, j)).collect::<Vec<_>>());
    let columns = (0..COUNT).map(column).collect::<std::result::Result<Vec<_>, _>>()?;
    let x = MultiVector::from_columns(operator.domain(), columns)?;
    let mut y = MultiVector::<HostVector<f64>>::zeros(operator.range(), COUNT)?;
    // MKL gets the vectors in the order of the matrix, which may differ from that of the user
    let mut contestants = mkl_many(a, COUNT, |i, j| x.columns()[j].as_slice()[i])?;
    let mut times = vec![f64::INFINITY; 1 + contestants.len()];
    let mut time = |at: usize, work: &mut dyn FnMut()| {
        work(); // wakes sleeping threads
        let started = Instant::now();
        work();
        times[at] = times[at].min(started.elapsed().as_secs_f64() * 1e3);
    };
    for _ in 0..ROUNDS {
        let mut failed = Ok(());
        time(0, &mut || failed = operator.apply_many(&x, &mut y));
        failed?;
        for (at, contestant) in contestants.iter_mut().enumerate() {
            time(1 + at, &mut || contestant.product.multiply());
        }
    }
    let own = y.columns()[1].as_slice();
    for (at, contestant) in contestants.iter().enumerate() {
        let by_rows = contestant.name.ends_with("rows");
        let theirs = |i: usize| contestant.product.y()[if by_rows { i * COUNT + 1 } else { a.rows() + i }];
        let off = (0..a.rows()).map(|i| (own[i] - theirs(i)).abs()).fold(0.0, f64::max);
        let size = own.iter().fold(0.0, |size: f64, y| size.max(y.abs()));
        assert!(off <= 1e-12 * size, "{}: {off:e} off", contestant.name);
        println!(
            "  {:28} {COUNT} vectors: {:8.2} ms, {:.2} of the time of krysp",
            contestant.name,
            times[1 + at],
            times[1 + at] / times[0]
        );
    }
    Ok(())
}
