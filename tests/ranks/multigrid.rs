//! Features of multigrid that are the same in every memory: ranks, in host memory and with GPUs.

use crate::multigrid_on_host::{OnHost, options};
use crate::{cuts, part, share};
use krysp::ranks::{Local, RankAmg, RankMatrix, Ranks};
use krysp::testing::laws::{self, Multigrid, Reference, Relation};
use krysp::{AmgOptions, Cg, Csr, Result, Solution};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Ranks with equally many nodes of three rows.
struct OnRanks<'r, L: Local<f64>> {
    ranks: &'r Ranks,
    /// Index of the partition; there are as many as ranks, at most three.
    which: usize,
    /// Moves a matrix to the memory of the hierarchies.
    moved: &'r dyn Fn(RankMatrix<f64>) -> Result<RankMatrix<f64, L>>,
}

impl<L: Local<f64>> OnRanks<'_, L> {
    fn cut(&self, a: &Csr<f64>) -> Vec<usize> {
        let mut cut = cuts(a.rows() / 3, self.ranks.size()).swap_remove(self.which);
        cut.iter_mut().for_each(|bound| *bound *= 3);
        cut[self.ranks.size()] = a.rows();
        cut
    }

    fn rows(&self, a: &Csr<f64>) -> Result<RankMatrix<f64, L>> {
        (self.moved)(share(self.ranks, a, &self.cut(a)))
    }
}

macro_rules! multigrid_of {
    ($local:ty) => {
        impl Multigrid for OnRanks<'_, $local> {
            type Hierarchy = RankAmg<f64, $local>;

            fn build(
                &self,
                a: &Csr<f64>,
                modes: &[Vec<f64>],
                smooth_finest: bool,
            ) -> Result<RankAmg<f64, $local>> {
                let cut = self.cut(a);
                let own: Vec<&[f64]> = modes.iter().map(|mode| part(self.ranks, mode, &cut)).collect();
                RankAmg::with(&self.rows(a)?, &own, options(smooth_finest))
            }

            fn refresh(&self, m: &mut RankAmg<f64, $local>, a: &Csr<f64>) -> Result<()> {
                m.refresh(&self.rows(a)?)
            }

            fn aggregates(&self, m: &RankAmg<f64, $local>) -> Result<Vec<Vec<Option<u32>>>> {
                m.aggregates()
            }

            fn solve(&self, m: &RankAmg<f64, $local>, a: &Csr<f64>, b: &[f64]) -> Result<Solution<f64>> {
                let (rows, own) = (self.rows(a)?, part(self.ranks, b, &self.cut(a)));
                Ok(Cg::new(&rows).preconditioner(m).rtol(1e-8).solve(own)?)
            }

            fn table(&self, m: &RankAmg<f64, $local>) -> String {
                m.to_string()
            }
        }
    };
}

multigrid_of!(krysp::Host);
#[cfg(feature = "cuda")]
multigrid_of!(krysp::Cuda);

/// One rank has the hierarchy of the host; several have other aggregates at their borders.
fn features_of<L: Local<f64>>(
    ranks: &Ranks,
    moved: &dyn Fn(RankMatrix<f64>) -> Result<RankMatrix<f64, L>>,
    iterations: [fn(usize) -> RangeInclusive<usize>; 2],
) where
    for<'r> OnRanks<'r, L>: Multigrid,
{
    let alone = ranks.size() == 1;
    let relation = Relation { same_aggregates: alone, iterations: iterations[usize::from(!alone)] };
    // shared by the ranks of a process, and by all partitions
    static ON_HOST: OnceLock<Reference> = OnceLock::new();
    let on_host = ON_HOST.get_or_init(|| Reference::of(&OnHost).unwrap());
    for which in 0..ranks.size().min(3) {
        laws::multigrid(on_host, &OnRanks { ranks, which, moved }, relation).unwrap();
    }
}

pub(super) fn features(ranks: &Ranks) {
    features_of(ranks, &|rows| Ok(rows), [|host| host..=host, |host| 1..=host + host / 2 + 3]);
}

/// Ranks with GPUs build their hierarchies there.
#[cfg(feature = "cuda")]
pub(super) fn features_on_gpus(ranks: &Ranks) {
    use krysp::ToCuda;

    let gpu = ranks.gpu().unwrap();
    let iterations: [fn(usize) -> _; 2] =
        [|host| host.saturating_sub(1)..=host + 1, |host| 1..=host + host / 2 + 4];
    features_of(ranks, &|rows| rows.to(&gpu), iterations);
}

/// Whether a level is coarsened is one decision of all ranks. Nodes have two unknowns, apart from the last one. Those of the
/// first rank are a grid; those of every other rank are groups of three, each of which is an aggregate with as many
/// modes as unknowns.
pub(super) fn one_gain_for_all_ranks(ranks: &Ranks) {
    const SIDE: usize = 12;
    const MODES: usize = 6;
    let grid = SIDE * SIDE;
    let nodes = grid + 15 * (ranks.size() - 1);
    let right_and_down = |node: usize| match node < grid {
        true => [(node % SIDE + 1 < SIDE, node + 1), (node + SIDE < grid, node + SIDE)],
        false => [((node - grid) % 3 < 2, node + 1), (false, node)],
    };
    let mut triplets = vec![];
    let mut block = |row: usize, column: usize, value: f64| {
        for (at, share) in [1.0, 0.25, 0.25, 1.0].into_iter().enumerate() {
            let (row, column) = (2 * row + at / 2, 2 * column + at % 2);
            // the last unknown is missing
            if row.max(column) + 1 < 2 * nodes {
                triplets.push((row, column, value * share));
            }
        }
    };
    for node in 0..nodes {
        block(node, node, 0.01);
        for (_, other) in right_and_down(node).into_iter().filter(|(there, _)| *there) {
            block(node, node, 1.0);
            block(other, other, 1.0);
            block(node, other, -1.0);
            block(other, node, -1.0);
        }
    }
    let rows = 2 * nodes - 1;
    let a = Csr::<f64>::from_triplets(rows, rows, &triplets).unwrap();
    let bound = |rank: usize| if rank == 0 { 0 } else { (2 * (grid + 15 * (rank - 1))).min(rows) };
    let cut: Vec<usize> = (0..=ranks.size()).map(bound).collect();
    let modes: Vec<Vec<f64>> =
        (0..MODES).map(|k| (0..rows).map(|at| ((at * (k + 1)) as f64).sin() + 1.0).collect()).collect();
    let own: Vec<&[f64]> = modes.iter().map(|mode| part(ranks, mode, &cut)).collect();
    let (shared, options) =
        (share(ranks, &a, &cut), AmgOptions { max_coarse_size: 10, ..AmgOptions::default() });
    let m = RankAmg::with(&shared, &own, options).unwrap();
    let finest = &m.aggregates().unwrap()[0];
    assert!(finest.len() == cut[ranks.rank() + 1] - cut[ranks.rank()] && finest.iter().all(Option::is_some));
}
