//! Choice between fronts and columns, and an LU factorization that can be suspended and resumed.

use super::super::super::check_square;
use super::super::fill::{self, Reduced};
use super::super::fronts::{self, Kind};
use super::super::order::{Matched, Order, Pivoting, Shape, paired};
use super::super::scale::{largest, powers, row_scale};
use super::super::transpose::transposed;
use super::super::tree::{Both, Expected, Tree, inverse};
use super::blocks::{Blocks, transversal};
use super::method::{DENSE, Method};
use super::{Budget, DirectOptions, Factors, Lu, NAME, columns, condition};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, Rows};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::ordering::minimum_degree::{self, Ordered};
use crate::scaling::{Matching, Scaling};
use std::sync::{Arc, Mutex};

/// Minimum number of multiplications for which fronts are used, per entry of one factor: the threshold of
/// CHOLMOD (Chen, Davis, Hager and Rajamanickam 2008), which counts both in the same way. And per column, for
/// the overhead of small fronts: a guess between 25, above which `tucker21935`, a tree with one dense block, is
/// eliminated by columns, and 75, from which on `crack`, a mesh, is.
const FRONTS: f64 = 40.0;
const FRONTS_BY_COLUMN: f64 = 50.0;

/// The elimination by columns stops, and fronts are used, if the factors have more than this many times the
/// entries predicted for pivots on the diagonal (guess).
const MOST_FILL: f64 = 3.0;

/// Limit that replaces `MOST_FILL` where the diagonal is weak and no matching was computed: with more entries than predicted, other
/// pivots than preferred ones have caused fill-in, and the elimination starts again with a matching. `kkt_VESUVIA_0000`, `qh1484`
/// and `rajat19`, which do not need one, have 0.55 to 0.85 times the predicted entries.
const UNMATCHED_FILL: f64 = 1.0;

/// Returns whether fronts are faster than columns for factors with so many columns, entries and
/// multiplications.
pub(crate) fn by_fronts(columns: usize, entries: f64, multiplications: f64) -> bool {
    multiplications >= FRONTS * entries + FRONTS_BY_COLUMN * columns as f64
}

/// An LU factorization that may be partial (resumable).
#[derive(Debug)]
pub(crate) struct PartialLu<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    budget: Budget,
    pivoting: Pivoting,
    prepared: Prepared<T>,
    method: Method<T>,
}

/// Matrix to be factorized, with its transpose.
#[derive(Debug)]
pub(super) struct Prepared<T: Real> {
    /// Scaling to matched entries of magnitude one; `None` if no matching was computed.
    scaling: Option<Scaling<T>>,
    /// Row matched to each column; `None` if no matching was computed.
    pub(super) matched: Option<Vec<u32>>,
    /// The scaled matrix; `None` if there is no scaling, or fronts are not used.
    scaled: Option<Csr<T>>,
    /// The transpose of the scaled matrix.
    pub(super) columns: Csr<T>,
    /// Largest magnitude of each row of the matrix without scaling.
    largest: Vec<T>,
    /// `‖A‖₁`
    norm: f64,
    pub(super) shape: Shape,
}

/// Choice of a method, with the ordering that was computed for it.
pub(super) enum Choice {
    /// Columns, with diagonal blocks if there are several, and the predicted number of entries of a triangle.
    Columns(Order, Option<Blocks>, usize),
    /// Fronts. `None` if the ordering computed for columns does not suit fronts.
    Fronts(Option<Expected>),
}

impl<T: Real> Prepared<T> {
    pub(super) fn new(csr: &Csr<T>) -> Result<Prepared<T>> {
        check_square(NAME, csr)?;
        csr.check_finite()?;
        Prepared::of(csr, transposed(csr)?)
    }

    /// Analyses a square matrix with finite entries, given its transpose.
    pub(super) fn of(csr: &Csr<T>, columns: Csr<T>) -> Result<Prepared<T>> {
        let largest = largest(csr);
        let (norm, shape) = (condition::norm_of_columns(&columns), Shape::of(csr, &columns, &largest));
        Ok(Prepared { scaling: None, matched: None, scaled: None, columns, largest, norm, shape })
    }

    /// Powers of two that scale the largest entry of each row to near one.
    pub(super) fn row_scale(&self) -> Vec<T> {
        match &self.scaling {
            Some(_) => row_scale(&self.columns),
            None => powers(self.largest.clone()),
        }
    }

    /// Computes a matching, and scales the transpose by it, if the diagonal is weak and the pattern nearly
    /// symmetric. If the pattern is unsymmetric, any row may become a pivot: no matching is needed.
    pub(super) fn match_rows(&mut self, csr: &Csr<T>) -> Result<()> {
        if !self.may_match() {
            return Ok(());
        }
        let matching = Matching::of(csr)?;
        let mut scaling = Scaling::matched(csr, &matching)?;
        scaling.keep_rows();
        scaling.scale_transposed(&mut self.columns);
        (self.scaling, self.matched) = (Some(scaling), Some(matching.rows().to_vec()));
        Ok(())
    }

    /// Returns whether a matching may help and is not known yet.
    fn may_match(&self) -> bool {
        self.matched.is_none() && self.shape.is_weak() && self.shape.is_symmetric()
    }

    /// Scales the matrix, from which fronts are assembled.
    pub(super) fn for_fronts(&mut self, csr: &Csr<T>) -> Result<()> {
        if let (Some(scaling), None) = (&self.scaling, &self.scaled) {
            self.scaled = Some(scaling.matrix(csr)?);
        }
        Ok(())
    }

    /// Computes an ordering for pivots in symmetric positions that keeps matched rows adjacent.
    pub(super) fn symmetric_order(&self, matrix: &Csr<T>) -> Result<Expected> {
        let both = Both::new([matrix, &self.columns]);
        match &self.matched {
            Some(rows) => Expected::new(paired([matrix, &self.columns], rows)?, &both),
            None => fill::reducing(matrix.rows(), matrix.nnz(), &both)?.expected(&both),
        }
    }

    /// Finds the diagonal blocks, given the column matched to each row; all matched entries must be stored. `None` if there is a
    /// single block, or if columns may depend on others: the null space is computed from factors of the whole matrix.
    fn blocks(&self, column_of: &[u32], pivoting: Pivoting) -> Result<Option<Blocks>> {
        match pivoting {
            Pivoting::Regular => Blocks::new(&self.columns, column_of),
            Pivoting::Tolerant => Ok(None),
        }
    }

    /// Orders the columns of an unsymmetric pattern, whose pivots may be in any row.
    pub(super) fn any_rows(&self, matrix: &Csr<T>, pivoting: Pivoting) -> Result<Choice> {
        let rows = transversal(&self.columns, |_| true)?;
        let column_of = rows.as_ref().map(|rows| inverse(rows));
        let blocks = match &column_of {
            Some(column_of) => self.blocks(column_of, pivoting)?,
            None => None,
        };
        let kept = |row: u32, column: u32| match (&blocks, &column_of) {
            (Some(Blocks { of, .. }), Some(column_of)) => {
                of[column_of[row as usize] as usize] == of[column as usize]
            }
            _ => true,
        };
        let order = minimum_degree::of_columns(matrix, &self.columns, kept)?;
        let column_of = sorted(order, &blocks);
        let order = Order { column_of, preferred: vec![], most_entries: usize::MAX };
        Ok(Choice::Columns(order, blocks, matrix.nnz()))
    }

    /// Chooses a preferred pivot row for each column: if the diagonal is weak, by a transversal of nonzero entries,
    /// which takes a fraction of the time of a matching, or, if there is none, by a matching. Also returns whether the matrix
    /// stores an entry in each of these positions.
    fn pivot_rows(&mut self, csr: &Csr<T>) -> Result<(Vec<u32>, bool)> {
        if self.may_match() {
            if let Some(rows) = transversal(&self.columns, |value| !value.is_zero())? {
                return Ok((rows, true));
            }
            self.match_rows(csr)?;
        }
        if let Some(rows) = &self.matched {
            let is_stored = |(column, row)| self.columns.row_columns(column).binary_search(row).is_ok();
            return Ok((rows.clone(), rows.iter().enumerate().all(is_stored)));
        }
        // the diagonal, apart from entries that are not stored
        let rows = transversal(&self.columns, |_| true)?.map(|rows| (rows, true));
        Ok(rows.unwrap_or_else(|| ((0..csr.rows() as u32).collect(), false)))
    }

    /// Orders columns with preferred pivot rows, or chooses fronts if they are faster and columns are not
    /// `forced`. `known` is an ordering of the symmetric pattern.
    pub(super) fn preferred_rows(
        &mut self,
        matrix: &Csr<T>,
        pivoting: Pivoting,
        forced: bool,
        known: Option<&[u32]>,
    ) -> Result<Choice> {
        let n = matrix.rows();
        let (row_of, stored) = self.pivot_rows(matrix)?;
        let column_of = inverse(&row_of);
        let on_diagonal = row_of.is_sorted();
        // a symmetric pattern has no entries outside of its diagonal blocks: separating them saves nothing
        let blocks = match !stored || on_diagonal && self.shape.is_mirrored() {
            true => None,
            false => self.blocks(&column_of, pivoting)?,
        };
        let matrices = [matrix, &self.columns];
        let of = blocks.as_ref().map(|blocks| &*blocks.of);
        let by_rows = matrices.map(Rows::of);
        let matched = Matched { matrices: by_rows, row_of: &row_of, column_of: &column_of, blocks: of };
        let (both, same) = (Both::new(matrices), self.matched.is_none() && on_diagonal && blocks.is_none());
        let reduced = match (same, known) {
            (true, Some(known)) => {
                Reduced::Ordered(Ordered { order: known.to_vec(), work: None, at_most: [f64::INFINITY; 2] })
            }
            (true, None) => fill::reducing(n, matrix.nnz(), &both)?,
            (false, _) => fill::reducing(n, matrix.nnz(), &matched)?,
        };
        let analysed = |reduced: Reduced| match same {
            true => reduced.expected(&both),
            false => reduced.expected(&matched),
        };
        let at_most = reduced.at_most();
        let (reduced, [entries, work]) = match reduced.work() {
            Some(work) => (reduced, work),
            // an upper bound is sufficient for the choice of columns; limits of fill-in are then relative to that bound
            None if !by_fronts(n, at_most[0], at_most[1]) => (reduced, at_most),
            None => {
                let expected = analysed(reduced)?;
                let work = expected.work();
                (Reduced::Analysed(expected), work)
            }
        };
        if !forced && by_fronts(n, entries, work) {
            return Ok(Choice::Fronts(if same { Some(analysed(reduced)?) } else { None }));
        }
        let order = reduced.order();
        let outside = blocks.as_ref().map_or(0, |_| matrix.nnz());
        let most_fill = if self.may_match() { UNMATCHED_FILL } else { MOST_FILL };
        let most_entries = outside + (2.0 * most_fill * entries) as usize;
        let column_of = sorted(order, &blocks);
        let order = Order { column_of, preferred: row_of, most_entries };
        Ok(Choice::Columns(order, blocks, entries as usize))
    }

    /// Matrix from which fronts are assembled: the scaled one, or `csr` if there is no scaling.
    pub(super) fn matrix<'a>(&'a self, csr: &'a Csr<T>) -> &'a Csr<T> {
        self.scaled.as_ref().unwrap_or(csr)
    }
}

impl<T: Real> PartialLu<T> {
    /// As [`Lu::tolerant`], but resumable. `known` is an ordering of the pattern of `A + Aᵀ`.
    pub(crate) fn tolerant(csr: &Csr<T>, known: Option<&[u32]>) -> Result<PartialLu<T>> {
        let budget = Budget::new(NAME, DirectOptions::default(), csr.rows());
        PartialLu::of(csr, Prepared::new(csr)?, budget, Pivoting::Tolerant, None, known)
    }

    pub(super) fn with(csr: &Csr<T>, budget: Budget, pivoting: Pivoting) -> Result<PartialLu<T>> {
        PartialLu::of(csr, Prepared::new(csr)?, budget, pivoting, None, None)
    }

    /// Chooses the method by the numbers of entries and multiplications, unless `fronts` prescribes it.
    pub(super) fn of(
        csr: &Csr<T>,
        mut prepared: Prepared<T>,
        budget: Budget,
        pivoting: Pivoting,
        fronts: Option<bool>,
        known: Option<&[u32]>,
    ) -> Result<PartialLu<T>> {
        let method = Method::choose(csr, &mut prepared, (budget, pivoting), fronts, known)?;
        Ok(PartialLu::by(method, csr, prepared, budget, pivoting))
    }

    fn by(
        method: Method<T>,
        csr: &Csr<T>,
        prepared: Prepared<T>,
        budget: Budget,
        pivoting: Pivoting,
    ) -> PartialLu<T> {
        let (space, pattern) = (csr.source().domain().clone(), csr.source().pattern.clone());
        PartialLu { space, pattern, budget, pivoting, prepared, method }
    }

    /// Starts with the tree of an earlier factorization.
    pub(super) fn on_tree(
        csr: &Csr<T>,
        mut prepared: Prepared<T>,
        tree: Tree,
        budget: Budget,
        pivoting: Pivoting,
    ) -> Result<PartialLu<T>> {
        prepared.for_fronts(csr)?;
        let progress = Box::new(fronts::Progress::new(&tree, &prepared.columns, Kind::General));
        Ok(PartialLu::by(Method::Fronts { tree, progress }, csr, prepared, budget, pivoting))
    }

    /// Continues with the same matrix for about `most` multiplications. If pivots are missing at the end, perhaps because of rounding
    /// ([`Method::may_miss`]), eliminates by columns with at most [`Method::most`] multiplications; if that fails, the first result is kept.
    /// Returns whether the factorization is complete.
    pub(crate) fn go_on(&mut self, csr: &Csr<T>, most: f64) -> Result<bool> {
        let PartialLu { budget, pivoting, prepared, method, .. } = self;
        let complete = loop {
            let (order, progress, may_change, fronts) = match method {
                Method::Columns { order, progress, may_change, fronts } => {
                    (order, progress, may_change, fronts)
                }
                Method::Fronts { tree, progress } => {
                    break progress.run(tree, &prepared.columns, *pivoting, *budget, DENSE * most);
                }
            };
            let until = progress.work + most;
            match progress.run(&prepared.columns, order, *pivoting, *budget, until) {
                // fronts may need less memory
                Err(Error::Memory { .. }) if *may_change => {}
                Err(Error::Singular { .. }) if prepared.may_match() => {}
                Ok(true) if prepared.may_match() && progress.is_deficient() => {}
                Ok(false) if *may_change && progress.work <= until => {}
                complete => break complete,
            }
            let fronts = *fronts;
            // releases the old factors before memory for new ones is reserved
            let starts = vec![0, csr.rows() as u32];
            **progress = columns::Progress::new(prepared.row_scale(), vec![], starts, 0, *budget);
            *method = if prepared.may_match() {
                prepared.match_rows(csr)?;
                Method::choose(csr, prepared, (*budget, *pivoting), fronts, None)?
            } else {
                Method::fronts(prepared.symmetric_order(csr)?, prepared, csr, *budget)?
            };
        };
        let is_singular = matches!(complete, Err(Error::Singular { .. }));
        let is_deficient = is_singular || matches!(complete, Ok(true)) && method.is_deficient();
        if is_deficient && method.may_miss(prepared.scaling.is_some(), is_singular) {
            let left = budget.without(method.bytes());
            match Method::by_largest(csr, (left, *pivoting), method.most()) {
                Ok(Some(better)) => {
                    (*prepared, *method) = better;
                    return Ok(true);
                }
                Err(Error::Interrupted(interrupted)) => return Err(interrupted.into()),
                // keep the result of the first elimination
                Ok(None) | Err(_) => {}
            }
        }
        complete
    }

    /// Returns the completed factorization.
    pub(crate) fn whole(self) -> Lu<T> {
        let PartialLu { space, pattern, budget, pivoting, prepared, method } = self;
        let Prepared { scaling, matched, norm, .. } = prepared;
        let factors = match method {
            Method::Columns { order, progress, .. } => {
                Factors::Columns { order, factors: progress.factors() }
            }
            Method::Fronts { tree, progress } => Factors::Fronts { tree, factors: progress.factors() },
        };
        Lu { space, pattern, budget, pivoting, scaling, matched, norm, factors, workspace: Mutex::default() }
    }
}

/// Sorts an ordering by diagonal blocks.
fn sorted(order: Vec<u32>, blocks: &Option<Blocks>) -> Vec<u32> {
    match blocks {
        Some(blocks) => blocks.sort(&order),
        None => order,
    }
}
