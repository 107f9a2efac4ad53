//! Multifrontal `A = L U` and `A = L D Lᵀ`: fronts for the pattern of `A + Aᵀ`, with threshold pivoting
//! inside them. Rejected pivots are delayed to the parent front (Duff and Reid 1983 and 1984; Amestoy, Duff,
//! L'Excellent and Koster 2001).
//!
//! ```text
//! for each front, children first:
//!     assemble: its entries of A, and the Schur complements of its children, whose delayed pivots are fully summed here
//!     eliminate the fully summed columns that have acceptable pivots, as a dense matrix
//!     pass the Schur complement, with delayed pivots, to the parent
//! columns of a root front without an acceptable pivot: the matrix is singular to rounding
//! ```
//!
//! Subtrees run in parallel, then the fronts above them, each on all threads. The order of operations in a
//! front is fixed: factors are bitwise the same for every number of threads.

mod assembly;
mod solves;
#[cfg(test)]
mod tests;

use super::Budget;
use super::order::Pivoting;
use super::scale::{power, row_scale};
use super::tree::{NONE, Tree};
use crate::{Csr, Error, Real, Result};
use krysp_kernels::cpu::preconditioners::frontal::ldl::{self, LdlFront};
use krysp_kernels::cpu::preconditioners::frontal::lu::{self, LuFront};
use krysp_kernels::interrupt::Phase;
use krysp_solvers::Element;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Minimum magnitude of a pivot, as a fraction of the largest entry of its column: the default of UMFPACK for
/// LU, that of MA57 and MUMPS for LDLᵀ.
const LU_THRESHOLD: f64 = 0.1;
const LDL_THRESHOLD: f64 = 0.01;

/// Kind of factorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `L U`
    General,
    /// `L D Lᵀ`
    Symmetric,
}

/// Factors of the fronts of one step of the factorization (a range of fronts, `Progress::steps`), children
/// first.
#[derive(Debug)]
struct Piece<T> {
    /// Values of each front. For `L U`: the columns of `L` and `U₁₁`, then `U₁₂ᵀ`. For `L D Lᵀ`: `L` and `D`.
    numbers: Vec<T>,
    /// For each front, the positions (in the elimination order) of its rows, then (of `L U`) those of its
    /// columns.
    places: Vec<u32>,
    /// For each pivot of `L D Lᵀ`, whether it and the next one form a 2×2 block.
    pairs: Vec<bool>,
    fronts: Vec<Eliminated>,
    /// Positions of the rows and columns that have no pivot.
    missing_rows: Vec<u32>,
    missing_columns: Vec<u32>,
}

/// Sizes of an eliminated front: its number of rows (`order`) and of pivots.
#[derive(Clone, Debug)]
struct Eliminated {
    order: usize,
    pivots: usize,
    /// Start of its values, positions and pairs in the arrays of the piece.
    numbers: usize,
    places: usize,
    pairs: usize,
}

/// Schur complement that a front passes to its parent, with its delayed pivots.
#[derive(Debug)]
struct Rest<T> {
    /// Positions in the elimination order; those of delayed pivots come first.
    rows: Vec<u32>,
    columns: Vec<u32>,
    /// Number of delayed pivots.
    delayed: usize,
    /// For each column, the magnitude up to which a pivot counts as zero: a fraction of the largest magnitude
    /// that the column has had so far.
    least: Vec<T>,
    values: Vec<T>,
}

/// A multifrontal factorization that may be partial (resumable).
#[derive(Debug)]
pub(super) struct Progress<T> {
    kind: Kind,
    row_scale: Vec<T>,
    column_scale: Vec<T>,
    /// Steps: ranges of fronts that are eliminated in sequence. The first `independent` steps do not depend
    /// on each other.
    steps: Vec<Range<usize>>,
    independent: usize,
    pieces: Vec<Piece<T>>,
    rests: Vec<Option<Rest<T>>>,
}

impl<T: Real> Progress<T> {
    /// Starts a factorization, given the matrix and its transpose.
    pub(super) fn new(tree: &Tree, [matrix, columns]: [&Csr<T>; 2], kind: Kind) -> Progress<T> {
        let (row_scale, column_scale) = match kind {
            Kind::General => {
                let row_scale: Vec<T> = row_scale(columns);
                let size = |(&row, &value): (&u32, &T)| (value * row_scale[row as usize]).to_f64().abs();
                let largest = |column: usize| {
                    let rows = columns.row_columns(column).iter().zip(columns.row_values(column));
                    rows.map(size).fold(0.0, f64::max)
                };
                let column_scale = (0..matrix.cols()).map(|column| power(largest(column))).collect();
                (row_scale, column_scale)
            }
            // scaled by the caller
            Kind::Symmetric => (vec![T::one(); matrix.rows()], vec![T::one(); matrix.rows()]),
        };
        let mut steps = tree.tasks.clone();
        steps.extend(tree.top.iter().map(|&front| front..front + 1));
        let rests = (0..tree.fronts.len()).map(|_| None).collect();
        Progress {
            kind,
            row_scale,
            column_scale,
            steps,
            independent: tree.tasks.len(),
            pieces: vec![],
            rests,
        }
    }

    /// Continues until all fronts are eliminated, and then returns `true`, or until the next step is expected
    /// to exceed the rest of `most` multiplications. Each call completes at least one step, unless `most` is
    /// zero.
    pub(super) fn run(
        &mut self,
        tree: &Tree,
        [matrix, columns]: [&Csr<T>; 2],
        pivoting: Pivoting,
        budget: Budget,
        most: f64,
    ) -> Result<bool> {
        let (first, next) = tree.children();
        let (name, halves) = match self.kind {
            Kind::General => ("LU factorization", 2.0),
            Kind::Symmetric => ("LDL factorization", 1.0),
        };
        let phase = Phase::new(name, halves * tree.work());
        let work = |step: &Range<usize>| halves * step.clone().map(|at| tree.fronts[at].work()).sum::<f64>();
        let done: f64 = self.steps[..self.pieces.len()].iter().map(work).sum();
        phase.advance(done as u64)?;
        let held = AtomicUsize::new(self.bytes());
        let (mut left, mut workspace, before) = (most, None, self.pieces.len());
        while self.pieces.len() < self.steps.len() {
            let too_much = work(&self.steps[self.pieces.len()]) > left && self.pieces.len() > before;
            if too_much || left <= 0.0 {
                return Ok(false);
            }
            let Progress { kind, row_scale, column_scale, steps, independent, pieces, rests } = self;
            let from = pieces.len();
            let mut end = from + 1;
            left -= work(&steps[from]);
            while end < *independent && work(&steps[end]) <= left {
                left -= work(&steps[end]);
                end += 1;
            }
            let task = Work {
                kind: *kind,
                matrix,
                columns,
                tree,
                first: &first,
                next: &next,
                scales: [row_scale, column_scale],
                pivoting,
                budget,
                held: &held,
                phase: &phase,
            };
            if from >= *independent {
                let workspace = workspace.get_or_insert_with(|| Workspace::new(matrix.rows()));
                pieces.push(task.eliminate(steps[from].clone(), rests, 0, workspace)?);
                continue;
            }
            let own_workspace = || Workspace::new(matrix.rows());
            let eliminate = |workspace: &mut Workspace<T>, fronts: &Range<usize>| {
                let mut own: Vec<_> = fronts.clone().map(|_| None).collect();
                task.eliminate(fronts.clone(), &mut own, fronts.start, workspace).map(|piece| (piece, own))
            };
            let done: Vec<_> = match &steps[from..end] {
                // a single task is run directly, without starting threads
                [alone] => vec![eliminate(&mut own_workspace(), alone)],
                steps => steps.par_iter().map_init(own_workspace, eliminate).collect(),
            };
            // return the first error in the order of steps, for any number of threads
            for (fronts, done) in steps[from..end].iter().zip(done) {
                let (piece, own) = done?;
                pieces.push(piece);
                fronts.clone().zip(own).for_each(|(at, own)| rests[at] = own);
            }
        }
        Ok(true)
    }

    fn bytes(&self) -> usize {
        let rests = self.rests.iter().flatten().map(|rest| size_of_val(&*rest.values));
        self.pieces.iter().map(|piece| size_of_val(&*piece.numbers)).chain(rests).sum()
    }

    /// Factors of a completed factorization.
    pub(super) fn factors(self) -> FrontFactors<T> {
        let Progress { row_scale, column_scale, pieces, .. } = self;
        FrontFactors { row_scale, column_scale, pieces }
    }
}

/// Workspace of one thread.
struct Workspace<T> {
    /// Index in the current front of each row and column position.
    rows: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<T>,
    upper: Vec<T>,
    pairs: Vec<bool>,
}

impl<T: Real> Workspace<T> {
    fn new(n: usize) -> Workspace<T> {
        Workspace {
            rows: vec![NONE; n],
            columns: vec![NONE; n],
            values: vec![],
            upper: vec![],
            pairs: vec![],
        }
    }
}

/// Input of the elimination of fronts, shared by all threads. `first` and `next` are lists of children.
struct Work<'a, T: Real> {
    kind: Kind,
    matrix: &'a Csr<T>,
    /// Transpose of `matrix`.
    columns: &'a Csr<T>,
    tree: &'a Tree,
    first: &'a [u32],
    next: &'a [u32],
    scales: [&'a [T]; 2],
    pivoting: Pivoting,
    budget: Budget,
    /// Bytes of factors, of fronts in elimination, and of Schur complements that wait for parent fronts.
    held: &'a AtomicUsize,
    phase: &'a Phase,
}

/// Rows and columns of an assembled front, fully summed ones first. Its values are in the workspace.
struct Assembled<T> {
    rows: Vec<u32>,
    columns: Vec<u32>,
    summed: usize,
    /// Magnitude up to which a pivot of each column counts as zero.
    least: Vec<T>,
}

impl<T: Real> Work<'_, T> {
    /// Eliminates `fronts`; `rests[0]` belongs to front `from`.
    fn eliminate(
        &self,
        fronts: Range<usize>,
        rests: &mut [Option<Rest<T>>],
        from: usize,
        workspace: &mut Workspace<T>,
    ) -> Result<Piece<T>> {
        let mut piece = Piece {
            numbers: vec![],
            places: vec![],
            pairs: vec![],
            fronts: Vec::with_capacity(fronts.len()),
            missing_rows: vec![],
            missing_columns: vec![],
        };
        let mut counter = self.phase.counter();
        for at in fronts {
            let mut front = self.assemble(at, rests, from, workspace)?;
            let order = front.rows.len();
            let workspace_bytes = self.workspace_bytes(order, front.summed);
            counter.add(order * order)?;
            let pivots = self.dense(&mut front, workspace)?;
            let Workspace { values, upper, pairs, .. } = &mut *workspace;
            let (numbers, places, first) = (piece.numbers.len(), piece.places.len(), piece.pairs.len());
            let count = match self.kind {
                Kind::General => pivots * order + upper.len(),
                Kind::Symmetric => ldl::packed(order, pivots),
            };
            self.take(count * size_of::<T>())?;
            self.budget.reserve_more(&mut piece.numbers, count)?;
            piece.places.extend_from_slice(&front.rows);
            if self.kind == Kind::General {
                piece.numbers.extend_from_slice(&values[..pivots * order]);
                piece.numbers.extend_from_slice(upper);
                piece.places.extend_from_slice(&front.columns);
            } else {
                ldl::pack(values, order, pivots, &mut piece.numbers);
            }
            piece.pairs.extend_from_slice(pairs);
            piece.fronts.push(Eliminated { order, pivots, numbers, places, pairs: first });
            if self.tree.fronts[at].parent.is_some() {
                rests[at - from] = Some(self.rest(front, pivots, values)?);
            } else if pivots < order {
                self.check_missing(&front, pivots, values)?;
                piece.missing_rows.extend_from_slice(&front.rows[pivots..]);
                piece.missing_columns.extend_from_slice(&front.columns[pivots..]);
            }
            self.held.fetch_sub(workspace_bytes, Ordering::Relaxed);
        }
        Ok(piece)
    }

    /// Eliminates the fully summed columns of a front, and returns the number of pivots.
    fn dense(&self, front: &mut Assembled<T>, workspace: &mut Workspace<T>) -> Result<usize> {
        let Workspace { values, upper, pairs, .. } = workspace;
        let Assembled { rows, columns, summed, least } = front;
        let (order, summed) = (rows.len(), *summed);
        let least = &mut least[..summed];
        Ok(match self.kind {
            Kind::General => {
                let threshold = T::from_f64(LU_THRESHOLD);
                lu::eliminate(
                    LuFront { values, order, summed, rows, columns, least, threshold },
                    upper,
                    self.phase,
                )?
            }
            Kind::Symmetric => {
                let threshold = T::from_f64(LDL_THRESHOLD);
                let pivots = ldl::eliminate(
                    LdlFront { values, order, summed, rows, least, threshold },
                    pairs,
                    self.phase,
                )?;
                columns.copy_from_slice(rows);
                pivots
            }
        })
    }

    /// Bytes that the elimination of a front needs: its square and, for LU, the separate copy of `U₁₂`.
    fn workspace_bytes(&self, order: usize, summed: usize) -> usize {
        let columns = match self.kind {
            Kind::General => order.saturating_add(summed),
            Kind::Symmetric => order,
        };
        order.saturating_mul(columns).saturating_mul(size_of::<T>())
    }

    /// Counts bytes that are about to be allocated. Returns an error if they exceed the limit.
    fn take(&self, bytes: usize) -> Result<()> {
        self.budget.allows(self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes))
    }

    /// Copies the Schur complement that a front passes to its parent.
    fn rest(&self, mut front: Assembled<T>, pivots: usize, values: &[T]) -> Result<Rest<T>> {
        let (order, left) = (front.rows.len(), front.rows.len() - pivots);
        self.take(left * left * size_of::<T>())?;
        let mut rest = vec![];
        self.budget.reserve(&mut rest, left * left)?;
        for column in values.chunks_exact(order.max(1)).skip(pivots) {
            rest.extend_from_slice(&column[pivots..]);
        }
        let rounding = self.pivoting.rounding::<T>();
        for (at, column) in rest.chunks_exact(left.max(1)).enumerate() {
            let least = &mut front.least[pivots..];
            let mut largest = T::zero();
            if self.kind == Kind::Symmetric {
                // only the lower triangle is used: an entry belongs to its column and, mirrored, to that of
                // its row
                for (least, value) in least[at..].iter_mut().zip(&column[at..]) {
                    largest = largest.max(value.abs());
                    *least = least.max(rounding * value.abs());
                }
            } else {
                largest = column.iter().fold(largest, |most, value| most.max(value.abs()));
            }
            least[at] = least[at].max(rounding * largest);
        }
        [&mut front.rows, &mut front.columns].into_iter().for_each(|places| drop(places.drain(..pivots)));
        front.least.drain(..pivots);
        let Assembled { rows, columns, summed, least } = front;
        Ok(Rest { rows, columns, delayed: summed - pivots, least, values: rest })
    }

    /// Returns an error if columns of a root front have no pivot, unless singular matrices are allowed and the
    /// remaining entries are finite.
    fn check_missing(&self, front: &Assembled<T>, pivots: usize, values: &[T]) -> Result<()> {
        let order = front.rows.len();
        for (at, (column, &place)) in values.chunks_exact(order).zip(&front.columns).enumerate().skip(pivots)
        {
            // only the lower triangle of a symmetric front is used
            let from = if self.kind == Kind::Symmetric { at } else { pivots };
            let left = &column[from..];
            let pivot = left.iter().fold(T::zero(), |most, value| most.max(value.abs()));
            let finite = left.iter().all(|&value| Element::is_finite(value));
            if !finite || matches!(self.pivoting, Pivoting::Regular) {
                let column = self.tree.order[place as usize] as usize;
                let pivot = if finite { pivot.to_f64() } else { f64::NAN };
                return Err(Error::Singular { what: self.budget.what(), column, pivot });
            }
        }
        Ok(())
    }
}

/// Complete factors, step by step.
#[derive(Debug)]
pub(super) struct FrontFactors<T> {
    row_scale: Vec<T>,
    column_scale: Vec<T>,
    pieces: Vec<Piece<T>>,
}
