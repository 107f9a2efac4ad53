//! The bits of solutions, to compare ranks that are processes with ranks that are threads.

use crate::{cuts, part, share};
use krysp::ranks::{BlockJacobi, RankAmg, RankFsai, RankMatrix, RankSpai, RankTwoLevel, Ranks};
use krysp::testing::matrices;
use krysp::{AmgOptions, BiCgStab, Cg, Gmres, Ic0, Jacobi, PipelinedCg, Solution};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A line for each solve: its iterations, and a hash of its history and of the whole solution. Empty on all ranks but the
/// first.
pub(super) fn of_solutions(ranks: &Ranks) -> String {
    let a = matrices::stencil7(14).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let options = AmgOptions { max_coarse_size: 60, ..AmgOptions::default() };
    let mut lines = String::new();
    for (which, cut) in cuts(a.rows(), ranks.size()).iter().enumerate() {
        let (rows, b) = (share(ranks, &a, cut), part(ranks, &b, cut));
        let jacobi = || BlockJacobi::new(&rows, Jacobi::new).unwrap();
        macro_rules! line {
            ($method:ident, $name:literal, $m:expr) => {
                let solution = $method::new(&rows).preconditioner($m).rtol(1e-10).solve(b).unwrap();
                let name = concat!(stringify!($method), " with ", $name);
                lines += &line(&rows, &format!("cut {which}, {name}"), &solution);
            };
        }
        line!(Cg, "Jacobi", jacobi());
        line!(PipelinedCg, "Jacobi", jacobi());
        line!(Cg, "Ic0", BlockJacobi::new(&rows, Ic0::new).unwrap());
        line!(Cg, "RankFsai", RankFsai::new(&rows).unwrap());
        line!(Cg, "RankTwoLevel", RankTwoLevel::with_inner(jacobi(), &rows, 60).unwrap());
        line!(Cg, "RankAmg", RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap());
        line!(BiCgStab, "RankSpai", RankSpai::new(&rows).unwrap());
        line!(Gmres, "Jacobi", jacobi());
    }
    lines
}

fn line(a: &RankMatrix<f64>, name: &str, solution: &Solution<f64>) -> String {
    assert!(solution.report.converged(), "{name}: {}", solution.report);
    let Some(x) = a.gather(&solution.x).unwrap() else { return String::new() };
    let mut hasher = DefaultHasher::new();
    x.iter().chain(&solution.report.history).for_each(|number| number.to_bits().hash(&mut hasher));
    format!("{name}: {} iterations, {:016x}\n", solution.report.iterations, hasher.finish())
}
