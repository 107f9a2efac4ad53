//! The choice of a method, and a factorization that can be suspended and resumed.

use super::super::super::check_square;
use super::super::fronts::{self, Kind};
use super::super::order::{Order, Pivoting, Shape, paired, permuted_rows};
use super::super::tree::{Both, Expected, Tree};
use super::{Budget, DirectOptions, Factors, Lu, NAME, columns};
use crate::formats::derived::Derivation;
use crate::formats::pattern::Pattern;
use crate::numbering::minimum_degree;
use crate::{Csr, Error, Format, HostSpace, Matching, Real, Result, Scaling};
use std::sync::{Arc, Mutex};

/// Multiplications for each entry of the factor from which on fronts pay: CHOLMOD's limit (Chen, Davis, Hager and Rajamanickam 2008),
/// counted as it counts them.
const FRONTS: f64 = 40.0;

/// Entries beyond so many times those that pivots on the diagonal lead to make the scalar method stop, and fronts are used: a guess.
const MOST_FILL: f64 = 3.0;

/// Multiplications in fronts in the time of one in a column, whose operands are scattered: a guess.
const DENSE: f64 = 8.0;

/// Whether fronts are faster than columns for factors with so many entries and multiplications.
pub(crate) fn by_fronts(entries: f64, multiplications: f64) -> bool {
    multiplications >= FRONTS * entries
}

/// Multiplications of the order for fronts, over those from which on fronts pay, for which no order for columns is computed beside it. A
/// guess: orders for fronts had up to three times the entries of orders for columns (rajat19, qh1484), and then about as many times the
/// multiplications for each entry. A sparse system whose factors by columns have a fraction of the entries would show that it is too small.
const CLEARLY: f64 = 4.0;

impl Expected {
    /// Entries of one factor, and multiplications.
    fn work(&self) -> [f64; 2] {
        let lengths = self.lengths.iter().map(|&length| f64::from(length));
        lengths.fold([0.0; 2], |[entries, work], length| [entries + length, work + length * length])
    }

    /// Whether fronts pay, if multiplications were divided by `times`.
    fn by_fronts(&self, times: f64) -> bool {
        let [entries, work] = self.work();
        by_fronts(times * entries, work)
    }
}

/// A factorization that may not be complete yet.
#[derive(Debug)]
pub(crate) struct Begun<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    budget: Budget,
    pivoting: Pivoting,
    prepared: Prepared<T>,
    method: Method<T>,
}

/// The matrix that is factorized.
#[derive(Debug)]
pub(super) struct Prepared<T: Real> {
    /// Brings large entries to the diagonal, where it is weak.
    pub(super) scaling: Option<Scaling<T>>,
    /// The rows that a matching found for the columns.
    pub(super) matched: Option<Vec<u32>>,
    /// The scaled matrix; `None` if there is no scaling.
    pub(super) scaled: Option<Csr<T>>,
    /// Its transpose.
    pub(super) columns: Csr<T>,
    shape: Shape,
}

impl<T: Real> Prepared<T> {
    pub(super) fn new(csr: &Csr<T>) -> Result<Prepared<T>> {
        check_square(NAME, csr)?;
        csr.check_finite()?;
        let (columns, _) = Derivation::transposed(csr)?;
        let shape = Shape::of(csr, &columns);
        // of an unsymmetric pattern, any row may be a pivot
        if !shape.is_weak() || !shape.is_symmetric() {
            return Ok(Prepared { scaling: None, matched: None, scaled: None, columns, shape });
        }
        let matching = Matching::of(csr)?;
        let mut scaling = Scaling::matched(csr, &matching)?;
        scaling.keep_rows();
        let scaled = scaling.matrix(csr)?;
        let (columns, _) = Derivation::transposed(&scaled)?;
        let matched = Some(matching.rows().to_vec());
        Ok(Prepared { scaling: Some(scaling), matched, scaled: Some(scaled), columns, shape })
    }

    /// An order for pivots in symmetric positions, in which rows that a matching joins are neighbours.
    fn symmetric_order(&self, matrix: &Csr<T>) -> Result<Expected> {
        let order = match &self.matched {
            Some(rows) => paired(matrix, &self.columns, rows)?,
            None => minimum_degree::of_sum(matrix, &self.columns)?,
        };
        Expected::new(order, &Both([matrix, &self.columns]))
    }

    /// The scaled matrix, if this is the one that it was prepared from.
    pub(super) fn matrix<'a>(&'a self, csr: &'a Csr<T>) -> &'a Csr<T> {
        self.scaled.as_ref().unwrap_or(csr)
    }
}

#[derive(Debug)]
enum Method<T> {
    Columns {
        order: Order,
        progress: Box<columns::Progress<T>>,
        /// Whether fronts are used if factors have too many entries: not if the pattern is unsymmetric.
        may_change: bool,
    },
    Fronts {
        tree: Tree,
        progress: Box<fronts::Progress<T>>,
    },
}

impl<T: Real> Begun<T> {
    /// As [`Lu::tolerant`].
    pub(crate) fn tolerant(csr: &Csr<T>) -> Result<Begun<T>> {
        Begun::with(csr, Budget::new(NAME, DirectOptions::default()), Pivoting::Tolerant)
    }

    pub(super) fn with(csr: &Csr<T>, budget: Budget, pivoting: Pivoting) -> Result<Begun<T>> {
        Begun::of(csr, budget, pivoting, None)
    }

    /// With fronts or without, if that is not left to the numbers of entries and multiplications.
    pub(super) fn of(
        csr: &Csr<T>,
        budget: Budget,
        pivoting: Pivoting,
        fronts: Option<bool>,
    ) -> Result<Begun<T>> {
        let prepared = Prepared::new(csr)?;
        let (matrix, columns) = (prepared.matrix(csr), &prepared.columns);
        let method = if fronts == Some(true) {
            Method::fronts(prepared.symmetric_order(matrix)?, matrix, columns, budget)?
        } else if !prepared.shape.is_symmetric() {
            Method::columns(Order::of_columns(matrix, columns)?, columns, false)
        } else {
            let expected = prepared.symmetric_order(matrix)?;
            let for_columns = match &prepared.matched {
                Some(_) if fronts.is_none() && expected.by_fronts(CLEARLY) => None,
                Some(rows) => {
                    let permuted = permuted_rows(matrix, rows)?;
                    let (transposed, _) = Derivation::transposed(&permuted)?;
                    let order = minimum_degree::of_sum(&permuted, &transposed)?;
                    Some((Expected::new(order, &Both([&permuted, &transposed]))?, rows.clone()))
                }
                None => Some((expected.clone(), (0..csr.rows() as u32).collect())),
            };
            match for_columns {
                Some((chosen, preferred)) if fronts.is_some() || !chosen.by_fronts(1.0) => {
                    let [entries, _] = chosen.work();
                    let most_entries = (2.0 * MOST_FILL * entries) as usize;
                    let order = Order { column_of: chosen.order, preferred, most_entries };
                    Method::columns(order, columns, true)
                }
                _ => Method::fronts(expected, matrix, columns, budget)?,
            }
        };
        Ok(Begun::by(method, csr, prepared, budget, pivoting))
    }

    fn by(
        method: Method<T>,
        csr: &Csr<T>,
        prepared: Prepared<T>,
        budget: Budget,
        pivoting: Pivoting,
    ) -> Begun<T> {
        let (space, pattern) = (csr.source().domain().clone(), csr.source().pattern.clone());
        Begun { space, pattern, budget, pivoting, prepared, method }
    }

    /// Starts from the order of an earlier factorization.
    pub(super) fn on_tree(
        csr: &Csr<T>,
        prepared: Prepared<T>,
        tree: Tree,
        budget: Budget,
        pivoting: Pivoting,
    ) -> Begun<T> {
        let matrices = [prepared.matrix(csr), &prepared.columns];
        let progress = Box::new(fronts::Progress::new(&tree, matrices, Kind::General));
        Begun::by(Method::Fronts { tree, progress }, csr, prepared, budget, pivoting)
    }

    /// Continues with the same matrix, for so many multiplications. Returns whether it is complete.
    pub(crate) fn go_on(&mut self, csr: &Csr<T>, most: f64) -> Result<bool> {
        let Begun { budget, pivoting, prepared, method, .. } = self;
        let (matrix, columns) = (prepared.matrix(csr), &prepared.columns);
        if let Method::Columns { order, progress, may_change } = method {
            let most = progress.work + most;
            match progress.run(columns, order, *pivoting, *budget, most) {
                // fronts may take less memory
                Err(Error::Memory { .. }) if *may_change => {}
                Ok(false) if *may_change && progress.work <= most => {}
                complete => return complete,
            }
            *method = Method::fronts(prepared.symmetric_order(matrix)?, matrix, columns, *budget)?;
        }
        match method {
            Method::Fronts { tree, progress } => {
                progress.run(tree, [matrix, columns], *pivoting, *budget, DENSE * most)
            }
            Method::Columns { .. } => Ok(false),
        }
    }

    /// The factorization, once it is complete.
    pub(crate) fn whole(self) -> Lu<T> {
        let Begun { space, pattern, budget, pivoting, prepared, method } = self;
        let Prepared { scaling, matched, .. } = prepared;
        let factors = match method {
            Method::Columns { order, progress, .. } => {
                Factors::Columns { order, factors: progress.factors() }
            }
            Method::Fronts { tree, progress } => Factors::Fronts { tree, factors: progress.factors() },
        };
        Lu { space, pattern, budget, pivoting, scaling, matched, factors, workspace: Mutex::default() }
    }
}

impl<T: Real> Method<T> {
    fn columns(order: Order, columns: &Csr<T>, may_change: bool) -> Method<T> {
        Method::Columns { order, progress: Box::new(columns::Progress::new(columns)), may_change }
    }

    fn fronts(expected: Expected, matrix: &Csr<T>, columns: &Csr<T>, budget: Budget) -> Result<Method<T>> {
        // of a front both triangles are stored, of what waits for a parent the square
        let bytes = [2 * size_of::<T>(), size_of::<T>()];
        let tree = Tree::new(expected, &Both([matrix, columns]), bytes, budget)?;
        let progress = Box::new(fronts::Progress::new(&tree, [matrix, columns], Kind::General));
        Ok(Method::Fronts { tree, progress })
    }
}
