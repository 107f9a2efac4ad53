//! Whether several right-hand sides share one search space, decided by counted work, so that the decision is the same in every run.
//!
//! Work of an iteration for one of `k` columns, in multiply-adds as in [`costs`](super::costs), on a matrix of `n` rows:
//!
//! ```text
//! separate  c
//! lockstep  s (c − 8 n) + 8 n
//! block     s (c − 8 n) + 8 n + 13 k n f + 6 k²
//!
//! c: work of an iteration of a single solve, of which 8 n is for vectors
//! s: work of a joint product for each column, as a fraction of a single product, see `share_of_joint`
//! f: `FUSED`
//! ```
//!
//! A block is run if (work of an iteration) × (expected iterations) is less than without blocks. The lead is the candidate that has solved a
//! column separately, in `m` iterations. A block is expected to take `m k^-⅓` iterations if `m ≥ MANY`, else `m max(k^-⅓, 0.85)`, rounded up.
//! After each block, this is corrected by the iterations that it took.

use crate::choice::share_of_joint;

/// Numbers of columns that may share a search space, largest first. Wider blocks need fewer iterations, each with more work. Time relative to
/// lockstep for 32 columns of `heat_sink_p1_340k` in blocks of 8 and 16: 0.55 and 0.41 with `Jacobi`, 0.82 and 0.88 with `Amg`
/// (`benches/block.rs`, 16 threads of a Xeon), so both widths are compared. Other widths were not measured.
const WIDTHS: [usize; 2] = [16, 8];

/// Multiply-adds of an iteration for the vectors of one column, per row: the definition of a work unit.
const VECTORS: f64 = 8.0;

/// Multiply-adds of block conjugate gradients per row, column, and column of the block: see `krysp_solvers::block_cg`.
const COUPLING: f64 = 13.0;

/// Time of such a multiply-add, which works in registers and cache, over that of one of a product, which waits for memory. An iteration for
/// one column in a block of 16 took 1.39 (`Jacobi`) and 1.02 (`Amg`) times as long as in lockstep, one in a block of 8 1.14 and 0.93 (16
/// threads of a Xeon, as above), from which at most 0.024 follows; on two busy cores without AVX-512 0.8 to 1.6 times as long, at most 0.04.
/// Between 0.01 and 0.04 the decisions of these cases are the same.
const FUSED: f64 = 0.03;

/// Multiply-adds with small matrices in host memory, per column and squared number of columns; counted in the source.
const SMALL: f64 = 6.0;

/// If a single solve takes at least this many iterations, its smallest eigenvalues are assumed to determine them. A block of `k` columns
/// converges as if the `k - 1` smallest were removed, which for the Laplacian in space takes `k^-⅓` of the iterations: 0.40 with 16 columns and
/// 0.50 with 8 (measured with `Jacobi`: 0.29 and 0.47). With fewer iterations the fraction is `FEW`, but never below `k^-⅓` (measured with `Amg`,
/// about 20 iterations: 0.82 to 0.88). `MANY` is a guess: no case between 25 and 500 iterations was measured.
const MANY: usize = 100;
const FEW: f64 = 0.85;

/// What decides whether columns share a search space.
pub(super) struct Blocks {
    /// Rows of the matrix.
    pub(super) rows: f64,
    /// Multiply-adds of an iteration of the lead.
    pub(super) iteration: f64,
    /// Iterations of a whole solve with the lead.
    pub(super) iterations: usize,
    /// Iterations of the blocks so far over those that were expected, or 1.
    pub(super) correction: f64,
}

impl Blocks {
    /// Number of the next columns to solve in one block, out of `left`; `None` if they are solved faster in lockstep, or one by one.
    pub(super) fn width(&self, left: usize, lockstep: bool) -> Option<usize> {
        let other = if lockstep { self.lockstep(left.min(WIDTHS[0])) } else { self.iteration };
        let work = |width: usize| self.expected(width) * self.block(width);
        let widths = WIDTHS.map(|width| width.min(left));
        let best = widths.into_iter().min_by(|a, b| work(*a).total_cmp(&work(*b)))?;
        (best > 1 && work(best) < self.lead() * other).then_some(best)
    }

    /// Corrects the expectation after a block of `width` columns that took so many iterations on average.
    pub(super) fn took(&mut self, width: usize, iterations: f64) {
        self.correction *= iterations / self.expected(width);
    }

    /// Iterations of the lead, at least one.
    fn lead(&self) -> f64 {
        self.iterations.max(1) as f64
    }

    /// Expected iterations in a block.
    fn expected(&self, width: usize) -> f64 {
        let space = (width as f64).powf(-1.0 / 3.0);
        let share = if self.iterations >= MANY { space } else { space.max(FEW) };
        self.correction * (share * self.lead()).ceil()
    }

    /// Work of an iteration for one of several columns in lockstep.
    fn lockstep(&self, columns: usize) -> f64 {
        let vectors = VECTORS * self.rows;
        share_of_joint(columns) * (self.iteration - vectors) + vectors
    }

    /// Work of an iteration for one column of a block.
    fn block(&self, width: usize) -> f64 {
        let k = width as f64;
        self.lockstep(width) + FUSED * COUPLING * k * self.rows + SMALL * k * k
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `heat_sink_p1_340k`: 14 entries in a row; a cycle of `Amg` costs 2.6 units.
    fn heat_sink(units: f64, iterations: usize) -> Blocks {
        let rows = 342_361.0;
        Blocks { rows, iteration: units * 22.0 * rows, iterations, correction: 1.0 }
    }

    #[test]
    fn measured_cases_are_decided_as_measured() {
        assert_eq!(heat_sink(1.0, 1340).width(31, true), Some(16));
        assert_eq!(heat_sink(3.6, 21).width(31, true), Some(8));
        assert_eq!(heat_sink(1.0, 1340).width(3, true), Some(3));
        assert_eq!(heat_sink(1.0, 1340).width(1, true), None);
        // a few iterations with a diagonal are not worth the additional work on vectors
        assert_eq!(heat_sink(1.0, 21).width(31, true), None);
        // a block takes no fewer iterations than one
        assert_eq!(heat_sink(30.0, 1).width(31, true), None);
        // of a tiny matrix, small dense matrices take most of the time
        let tiny = Blocks { rows: 20.0, iteration: 300.0, iterations: 18, correction: 1.0 };
        assert_eq!(tiny.width(31, true), None);
    }

    #[test]
    fn each_block_corrects_the_expectation() {
        let mut blocks = heat_sink(1.0, 1000);
        blocks.took(16, 1000.0);
        assert!((blocks.expected(16) - 1000.0).abs() < 1e-9);
        assert_eq!(blocks.width(16, true), None);
        let mut blocks = heat_sink(3.6, 21);
        blocks.took(8, 18.0);
        assert_eq!(blocks.width(23, true), Some(8));
    }
}
