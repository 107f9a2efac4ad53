//! Features of multigrid that are the same in every memory: ranks, in host memory and with GPUs.

use crate::multigrid_on_host::{OnHost, options};
use crate::{cuts, part, share};
use krysp::ranks::{RankAmg, RankMatrix, Ranks};
use krysp::testing::laws::{self, Multigrid, Relation};
use krysp::{AmgOptions, Cg, Csr, Result};

/// Ranks with equally many nodes of three rows.
struct OnRanks<'r> {
    ranks: &'r Ranks,
    /// Which of the partitions.
    which: usize,
}

impl OnRanks<'_> {
    fn cut(&self, a: &Csr<f64>) -> Vec<usize> {
        let mut cut = cuts(a.rows() / 3, self.ranks.size()).swap_remove(self.which);
        cut.iter_mut().for_each(|bound| *bound *= 3);
        cut[self.ranks.size()] = a.rows();
        cut
    }

    fn rows(&self, a: &Csr<f64>) -> RankMatrix<f64> {
        share(self.ranks, a, &self.cut(a))
    }
}

impl Multigrid for OnRanks<'_> {
    type Hierarchy = RankAmg<f64>;

    fn build(&self, a: &Csr<f64>, modes: &[Vec<f64>], smooth_finest: bool) -> Result<RankAmg<f64>> {
        let cut = self.cut(a);
        let own: Vec<&[f64]> = modes.iter().map(|mode| part(self.ranks, mode, &cut)).collect();
        RankAmg::with(&self.rows(a), &own, options(smooth_finest))
    }

    fn refresh(&self, m: &mut RankAmg<f64>, a: &Csr<f64>) -> Result<()> {
        m.refresh(&self.rows(a))
    }

    fn aggregates(&self, m: &RankAmg<f64>) -> Result<Vec<Vec<Option<u32>>>> {
        m.aggregates()
    }

    fn iterations(&self, m: &RankAmg<f64>, a: &Csr<f64>, b: &[f64]) -> Result<usize> {
        let (rows, own) = (self.rows(a), part(self.ranks, b, &self.cut(a)));
        let report = Cg::new(&rows).preconditioner(m).rtol(1e-8).solve(own)?.report;
        assert!(report.converged(), "{report}");
        Ok(report.iterations)
    }

    fn table(&self, m: &RankAmg<f64>) -> String {
        m.to_string()
    }
}

/// One rank has the hierarchy of the host; several have other aggregates at their borders.
fn relation(ranks: &Ranks) -> Relation {
    let alone = ranks.size() == 1;
    Relation {
        same_aggregates: alone,
        iterations: if alone { |host| host..=host } else { |host| 1..=host + host / 2 + 3 },
    }
}

pub(super) fn features(ranks: &Ranks) {
    for which in [0, 2] {
        laws::multigrid(&OnHost, &OnRanks { ranks, which }, relation(ranks)).unwrap();
    }
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

/// Ranks with GPUs build their hierarchies there.
#[cfg(feature = "cuda")]
pub(super) fn features_on_gpus(ranks: &Ranks) {
    use krysp::{Cuda, ToCuda};

    struct OnGpus<'r>(OnRanks<'r>, Cuda);

    impl OnGpus<'_> {
        fn rows(&self, a: &Csr<f64>) -> Result<RankMatrix<f64, Cuda>> {
            self.0.rows(a).to(&self.1)
        }
    }

    impl Multigrid for OnGpus<'_> {
        type Hierarchy = RankAmg<f64, Cuda>;

        fn build(&self, a: &Csr<f64>, modes: &[Vec<f64>], smooth_finest: bool) -> Result<Self::Hierarchy> {
            let cut = self.0.cut(a);
            let own: Vec<&[f64]> = modes.iter().map(|mode| part(self.0.ranks, mode, &cut)).collect();
            RankAmg::with(&self.rows(a)?, &own, options(smooth_finest))
        }

        fn refresh(&self, m: &mut Self::Hierarchy, a: &Csr<f64>) -> Result<()> {
            m.refresh(&self.rows(a)?)
        }

        fn aggregates(&self, m: &Self::Hierarchy) -> Result<Vec<Vec<Option<u32>>>> {
            m.aggregates()
        }

        fn iterations(&self, m: &Self::Hierarchy, a: &Csr<f64>, b: &[f64]) -> Result<usize> {
            let (rows, own) = (self.rows(a)?, part(self.0.ranks, b, &self.0.cut(a)));
            let report = Cg::new(&rows).preconditioner(m).rtol(1e-8).solve(own)?.report;
            assert!(report.converged(), "{report}");
            Ok(report.iterations)
        }

        fn table(&self, m: &Self::Hierarchy) -> String {
            m.to_string()
        }
    }

    let gpu = ranks.gpu().unwrap();
    for which in [0, 2] {
        let on_gpus = OnGpus(OnRanks { ranks, which }, gpu.clone());
        let alone = ranks.size() == 1;
        let iterations: fn(usize) -> _ =
            if alone { |host| host.saturating_sub(1)..=host + 1 } else { |host| 1..=host + host / 2 + 4 };
        laws::multigrid(&OnHost, &on_gpus, Relation { same_aggregates: alone, iterations }).unwrap();
    }
}
