//! Facts about multifrontal factors.

use super::super::report::{FactorReport, growth};
use super::super::scale::larger;
use super::super::tree::{self, Tree};
use super::FrontFactors;
use crate::numbers::Real;
use crate::preconditioners::Inertia;

impl<T: Real> FrontFactors<T> {
    /// Numbers of negative and of positive eigenvalues of a symmetric matrix.
    pub(in super::super) fn inertia(&self) -> Inertia {
        let mut inertia = Inertia { negative: 0, positive: 0 };
        for piece in &self.pieces {
            for front in &piece.fronts {
                let [negative, positive] = piece.ldl(front).signs();
                inertia.negative += negative;
                inertia.positive += positive;
            }
        }
        inertia
    }

    /// Facts about the factors, from a pass over their values.
    pub(in super::super) fn report(&self, kind: &'static str, tree: &Tree, symmetric: bool) -> FactorReport {
        let (mut work, mut delayed_pivots, mut largest) = (0.0, 0, T::zero());
        for (piece, step) in self.pieces.iter().zip(tree.steps()) {
            for (front, at) in piece.fronts.iter().zip(step) {
                work += tree::work(front.order, front.order - front.pivots);
                // the rows that are not those of the tree are delayed pivots of the children
                delayed_pivots += front.order.saturating_sub(tree.fronts[at].height());
                let of_front = if symmetric { piece.ldl(front).largest() } else { piece.lu(front).largest() };
                largest = larger(largest, of_front);
            }
        }
        FactorReport {
            kind,
            rows: tree.order.len(),
            entries: self.nnz(),
            multiplications: if symmetric { work } else { 2.0 * work },
            bytes: self.bytes(),
            by_fronts: true,
            delayed_pivots,
            missing_pivots: self.missing(),
            inertia: symmetric.then(|| self.inertia()),
            growth: growth(largest, self.largest),
        }
    }
}
