//! Elimination by fronts or by columns, and what follows when pivots are missing.

use super::super::fronts::{self, Kind};
use super::super::order::{Order, Pivoting};
use super::super::tree::{Both, Expected, Tree};
use super::partial::{Choice, Prepared};
use super::{Budget, columns};
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;

/// A missing pivot may be due to rounding where entries have grown by this factor in an elimination by columns (1.8e6 in a circuit of ideal
/// operational amplifiers, which is regular), or where a matching scales the matrix and fronts delay this fraction of the pivots (0.6 in
/// such circuits: the scaling spreads their entries over the range of the conductances), or where the elimination by such fronts fails for
/// lack of a pivot. The columns are then eliminated with other pivots. Both numbers are guesses.
const GROWTH: f64 = 1e3;
const DELAYS: f64 = 0.25;

/// Multiplications of that elimination, about 0.1 s, that are allowed beyond those that take as long as the first one. A guess.
const SHORT: f64 = 1e7;

/// The smallest pivot of that elimination must be at least `EPSILON^CLEAR` of the largest magnitude in its column, 4e-11 in `f64`: circuits
/// have 4e-7 and more, singular Neumann problems the rounding error of zero. A guess between.
const CLEAR: f64 = 2.0 / 3.0;

/// Number of multiplications in fronts that take as long as one in a column, whose operands are scattered
/// (guess).
pub(super) const DENSE: f64 = 8.0;

/// Way of elimination, with its progress.
#[derive(Debug)]
pub(super) enum Method<T> {
    Columns {
        order: Order,
        progress: Box<columns::Progress<T>>,
        /// True if a matching or fronts follow where the factors have too many entries; only for a nearly
        /// symmetric pattern.
        may_change: bool,
        /// Prescription of fronts, as in [`PartialLu::of`](super::partial::PartialLu).
        fronts: Option<bool>,
    },
    Fronts {
        tree: Tree,
        progress: Box<fronts::Progress<T>>,
    },
}

impl<T: Real> Method<T> {
    /// Returns whether columns have no pivot.
    pub(super) fn is_deficient(&self) -> bool {
        match self {
            Method::Columns { progress, .. } => progress.is_deficient(),
            Method::Fronts { progress, .. } => progress.is_deficient(),
        }
    }

    /// Returns whether rounding may have made pivots of a matrix zero. `scaled` states whether a matching scales it, `ended` whether the elimination
    /// ended with an error: delays are not counted then, because the number of fronts before the error depends on the number of threads.
    pub(super) fn may_miss(&self, scaled: bool, ended: bool) -> bool {
        match self {
            Method::Columns { progress, .. } => progress.growth().is_some_and(|growth| growth >= GROWTH),
            Method::Fronts { tree, progress } => {
                scaled && (ended || progress.delayed() as f64 >= DELAYS * tree.order.len() as f64)
            }
        }
    }

    /// Bytes of the factors, and of Schur complements that wait.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Method::Columns { progress, .. } => progress.bytes(),
            Method::Fronts { progress, .. } => progress.bytes()[0],
        }
    }

    /// Maximum number of multiplications of an elimination by columns that replaces this one.
    pub(super) fn most(&self) -> f64 {
        SHORT
            + match self {
                Method::Columns { progress, .. } => 2.0 * progress.work,
                Method::Fronts { tree, progress } => {
                    progress.multiplications().max(2.0 * tree.work()) / DENSE
                }
            }
    }

    /// Chooses the method by the numbers of entries and multiplications, unless `fronts` prescribes it.
    pub(super) fn choose(
        csr: &Csr<T>,
        prepared: &mut Prepared<T>,
        (budget, pivoting): (Budget, Pivoting),
        fronts: Option<bool>,
        known: Option<&[u32]>,
    ) -> Result<Method<T>> {
        let symmetric = prepared.shape.is_symmetric();
        let chosen = match fronts {
            Some(true) => Choice::Fronts(None),
            _ if symmetric => prepared.preferred_rows(csr, pivoting, fronts.is_some(), known)?,
            _ => prepared.any_rows(csr, pivoting)?,
        };
        Method::of(chosen, csr, prepared, (budget, fronts), false)
    }

    /// Eliminates by columns, with the largest entries as pivots. `None` if a pivot is missing or may be the rounding error of zero, or after
    /// `most` multiplications.
    pub(super) fn by_largest(
        csr: &Csr<T>,
        (budget, pivoting): (Budget, Pivoting),
        most: f64,
    ) -> Result<Option<(Prepared<T>, Method<T>)>> {
        // without the scaling, which may bring entries of very different magnitudes together
        let mut prepared = Prepared::new(csr)?;
        let choice = prepared.any_rows(csr, pivoting)?;
        let mut method = Method::of(choice, csr, &mut prepared, (budget, None), true)?;
        let Method::Columns { order, progress, .. } = &mut method else { return Ok(None) };
        let complete = progress.run(&prepared.columns, order, pivoting, budget, most)?;
        let is_clear = progress.least.to_f64() >= T::EPSILON.powf(CLEAR);
        Ok((complete && !progress.is_deficient() && is_clear).then_some((prepared, method)))
    }

    /// Starts the elimination. If `largest`, pivots in any row are the largest entries of their columns.
    pub(super) fn of(
        choice: Choice,
        csr: &Csr<T>,
        prepared: &mut Prepared<T>,
        (budget, fronts): (Budget, Option<bool>),
        largest: bool,
    ) -> Result<Method<T>> {
        match choice {
            Choice::Columns(order, blocks, expected) => {
                let starts = blocks.map_or_else(|| vec![0, csr.rows() as u32], |blocks| blocks.starts);
                let lengths = match order.preferred.is_empty() && !largest {
                    true => csr.row_lengths().map(|length| length as u32).collect(),
                    false => vec![],
                };
                let scale = prepared.row_scale();
                let progress = Box::new(columns::Progress::new(scale, lengths, starts, expected, budget));
                let may_change = !order.preferred.is_empty();
                Ok(Method::Columns { order, progress, may_change, fronts })
            }
            Choice::Fronts(expected) => {
                prepared.match_rows(csr)?;
                let suits = prepared.matched.is_none();
                let expected =
                    expected.filter(|_| suits).map_or_else(|| prepared.symmetric_order(csr), Ok)?;
                Method::fronts(expected, prepared, csr, budget)
            }
        }
    }

    pub(super) fn fronts(
        expected: Expected,
        prepared: &mut Prepared<T>,
        csr: &Csr<T>,
        budget: Budget,
    ) -> Result<Method<T>> {
        prepared.for_fronts(csr)?;
        let matrices = [prepared.matrix(csr), &prepared.columns];
        // both triangles of a front are stored, but only one square of a waiting Schur complement
        let tree = Tree::new(expected, &Both::new(matrices), [2 * size_of::<T>(), size_of::<T>()], budget)?;
        let progress = Box::new(fronts::Progress::new(&tree, &prepared.columns, Kind::General));
        Ok(Method::Fronts { tree, progress })
    }
}
