//! Saving and loading a hierarchy. After loading, the sizes of all levels are compared, so that a forged file
//! with a valid checksum is refused.

use super::Amg;
use super::apply::Workspaces;
use super::coarsening::Coarsening;
use super::cycle::{Level, Transfer};
use super::product::{PIECE, Piece, Pieces};
use super::stored::Stored;
use super::unsmoothed::{Unsmoothed, VISITS};
use crate::formats::pattern::Pattern;
use crate::formats::pattern::check_pattern;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::find_row;
use krysp_solvers::{LinearOperator, Space};

saved!(impl[T: Real] Amg<T> {
    space, size, whole, pattern, options, hierarchy, reports; workspaces = Workspaces::default()
} where |read| read.fits().is_some());

/// Returns `Some` if a condition holds, for use with `?`.
fn require(holds: bool) -> Option<()> {
    holds.then_some(())
}

impl<T: Real> Amg<T> {
    /// Returns whether each entry of the matrix is in a block of the node pattern. If each node has one row,
    /// the two patterns must be equal: values are then read by their place in the node pattern.
    fn covers(&self) -> bool {
        let (whole, nodes, size) = (&self.whole, &self.pattern, self.size);
        if size == 1 {
            return check_pattern(whole, nodes).is_ok();
        }
        let uncovered = |row: usize| {
            let blocks = nodes.row(row / size);
            whole.row(row).iter().any(|column| blocks.binary_search(&(column / size as u32)).is_err())
        };
        find_row(whole.rows(), 16, &uncovered).is_none()
    }

    /// Whether the sizes of everything that was read agree, level by level.
    fn fits(&self) -> Option<()> {
        let nodes = self.pattern.rows();
        require(self.whole.cols() == self.whole.rows() && self.space.len() == self.whole.rows())?;
        require(nodes.checked_mul(self.size) == Some(self.space.len()) && self.size > 0)?;
        require(self.pattern.cols() == nodes && self.covers())?;
        require(self.options.check().is_ok() && self.hierarchy.scale.is_normal())?;
        let (mut pattern, mut size, mut goes_on) = (&*self.pattern, self.size, true);
        for (at, level) in self.hierarchy.levels.iter().enumerate() {
            require(goes_on && has_rows(level, pattern, size))?;
            match &level.transfer {
                None => goes_on = false,
                Some(Transfer::Unsmoothed(unsmoothed)) => {
                    require(at == 0 && size == 1 && level.visits == VISITS && unsmoothed.fits(pattern))?;
                    pattern = &unsmoothed.coarse;
                }
                Some(Transfer::Smoothed(coarsening)) => {
                    require(level.visits == 1 && coarsening.fits(pattern, size))?;
                    (pattern, size) = (&coarsening.coarse, coarsening.modes());
                }
            }
        }
        match &self.hierarchy.last {
            Some(dense) => require(goes_on && dense.rows == pattern.rows() * size),
            None => require(!goes_on),
        }
    }
}

/// Whether a level has `size` rows for each node of `pattern`.
fn has_rows(level: &Level, pattern: &Pattern, size: usize) -> bool {
    let rows = pattern.rows().checked_mul(size);
    let lengths = [level.a.domain().len(), level.a.range().len(), level.inverse.as_slice().len()];
    pattern.cols() == pattern.rows()
        && lengths.iter().all(|&length| Some(length) == rows)
        && pattern.entries().checked_mul(size * size) == Some(level.a.entries())
        && !level.weights.is_empty()
        && level.a.keeps_to_chunks()
}

impl Unsmoothed {
    fn fits(&self, pattern: &Pattern) -> bool {
        let count = self.aggregates.count;
        self.aggregates.of_node.len() == pattern.rows()
            && [self.coarse.rows(), self.coarse.cols(), self.members.rows()] == [count; 3]
            && self.members.cols() == pattern.rows()
    }
}

impl Coarsening {
    fn fits(&self, pattern: &Pattern, size: usize) -> bool {
        let (nodes, count, [rows, modes]) = (pattern.rows(), self.aggregates.count, self.shape);
        let shapes = [&self.prolongation, &self.restriction, &self.coarse].map(|p| [p.rows(), p.cols()]);
        let (fine, coarse) = (nodes.checked_mul(rows), count.checked_mul(modes));
        let (entries, strong) = (self.prolongation.entries(), self.strong.as_ref());
        rows == size
            && modes > 0
            && self.aggregates.of_node.len() == nodes
            && nodes.checked_mul(rows * modes) == Some(self.tentative.len())
            && strong.is_none_or(|strong| [strong.rows(), strong.cols()] == [nodes; 2])
            && shapes == [[nodes, count], [count, nodes], [count; 2]]
            && [self.restriction.entries(), self.from.len()] == [entries; 2]
            && self.from.iter().all(|&from| (from as usize) < entries)
            && self.product.fits(nodes, count, self.shape)
            && [fine, coarse].iter().all(Option::is_some)
            && self.transfers.each_ref().map(|one| Some(one.range().len())) == [fine, coarse]
            && self.transfers.each_ref().map(|one| Some(one.domain().len())) == [coarse, fine]
            && self.transfers.each_ref().map(Stored::entries) == [entries * rows * modes; 2]
    }
}

impl Pieces {
    /// Whether the pieces form a matrix with this many block rows and columns and blocks of this shape.
    fn fits(&self, rows: usize, columns: usize, shape: [usize; 2]) -> bool {
        let fits = |(at, piece): (usize, &Piece)| {
            let (starts, count) = (&piece.starts, rows.saturating_sub(at * PIECE).min(PIECE));
            starts.len() == count + 1
                && starts.is_sorted()
                && starts.last().is_some_and(|&end| end as usize == piece.columns.len())
                && piece.columns.iter().all(|&column| (column as usize) < columns)
        };
        self.shape == shape
            && self.columns == columns
            && self.pieces.len() == rows.div_ceil(PIECE)
            && self.pieces.iter().enumerate().all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{Csr, Format};
    use crate::testing::matrices;

    #[test]
    fn a_pattern_of_as_many_entries_in_other_places_does_not_fit() {
        for (a, size) in [(matrices::stencil7(6), 1), (matrices::elasticity(4), 3)] {
            let a = a.csr::<f64>().unwrap();
            let mut amg = Amg::new(&a).unwrap();
            assert!(amg.size == size && amg.fits().is_some());
            let n = a.rows();
            let moved: Vec<_> =
                a.triplets().map(|(row, col, value)| (row, (col + 2 * size) % n, value)).collect();
            amg.whole = Csr::from_triplets(n, n, &moved).unwrap().source().pattern.clone();
            assert!(amg.whole.entries() == a.nnz() && amg.fits().is_none(), "{size}");
        }
    }
}
