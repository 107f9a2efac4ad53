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
//! Fronts that do not depend on each other run in parallel, and large fronts on all threads. The order of
//! operations in a front is fixed: factors are bitwise the same for every number of threads.

mod assembly;
mod report;
mod rest;
mod solves;
#[cfg(test)]
mod tests;

use super::Budget;
use super::order::Pivoting;
use super::scale::{larger, power, row_scale};
use super::tree::{NONE, Tree};
use crate::error::{Error, Result};
use crate::formats::{Csr, Rows};
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::frontal::ldl::{self, LdlFront};
use krysp_kernels::cpu::preconditioners::frontal::lu::{self, LuFront};
use krysp_kernels::interrupt::Phase;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

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
    values: Buffer<T>,
}

/// A multifrontal factorization that may be partial (resumable).
#[derive(Debug)]
pub(super) struct Progress<T> {
    kind: Kind,
    row_scale: Vec<T>,
    column_scale: Vec<T>,
    /// Largest magnitude of an entry of the scaled matrix.
    largest: T,
    /// Steps: ranges of fronts that are eliminated in sequence, after the steps of their children.
    steps: Vec<Range<usize>>,
    pieces: Vec<Piece<T>>,
    rests: Vec<Mutex<Option<Rest<T>>>>,
    /// Number of delays of pivots: each counts in every front that delays it.
    delayed: AtomicUsize,
    /// Maximum bytes of the factors, and of each front.
    most: usize,
}

impl<T: Real> Progress<T> {
    /// Starts the factorization of a matrix, of which `columns` is the transpose.
    pub(super) fn new(tree: &Tree, columns: &Csr<T>, kind: Kind) -> Progress<T> {
        let (row_scale, column_scale) = match kind {
            Kind::General => {
                let row_scale: Vec<T> = row_scale(columns);
                let size = |(&row, &value): (&u32, &T)| (value * row_scale[row as usize]).to_f64().abs();
                let largest = |column: usize| {
                    let rows = columns.row_columns(column).iter().zip(columns.row_values(column));
                    rows.map(size).fold(0.0, f64::max)
                };
                let column_scale = (0..columns.rows()).map(|column| power(largest(column))).collect();
                (row_scale, column_scale)
            }
            // scaled by the caller
            Kind::Symmetric => (vec![T::one(); columns.rows()], vec![T::one(); columns.rows()]),
        };
        let rests = (0..tree.fronts.len()).map(|_| Mutex::default()).collect();
        let scaled = Rows::of(columns).iter().zip(&column_scale).map(|((rows, values), &scale)| {
            let scaled =
                rows.iter().zip(values).map(|(&row, &value)| value * row_scale[row as usize] * scale);
            scaled.fold(T::zero(), larger)
        });
        let largest = scaled.fold(T::zero(), larger);
        Progress {
            kind,
            row_scale,
            column_scale,
            largest,
            steps: tree.steps(),
            pieces: vec![],
            rests,
            delayed: AtomicUsize::new(0),
            most: usize::MAX,
        }
    }

    /// Returns whether columns have no pivot.
    pub(super) fn is_deficient(&self) -> bool {
        self.pieces.iter().any(|piece| !piece.missing_columns.is_empty())
    }

    /// Number of multiplications of the fronts that were eliminated, for an unsymmetric matrix.
    pub(super) fn multiplications(&self) -> f64 {
        let work = |front: &Eliminated| front.pivots as f64 * (front.order as f64).powi(2);
        self.pieces.iter().flat_map(|piece| &piece.fronts).map(work).sum()
    }

    /// Number of delays of pivots so far.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Sets the limit: [`run`](Progress::run) returns an error if the factors, or a front, take more than `most`
    /// bytes because of delayed pivots. Unlike that of the budget, this limit refuses the same matrices for every
    /// number of threads.
    pub(super) fn with_most(self, most: usize) -> Progress<T> {
        Progress { most, ..self }
    }

    /// Continues until all fronts are eliminated, and then returns `true`, or until the next step is expected
    /// to exceed the rest of `most` multiplications. Each call completes at least one step, unless `most` is
    /// zero.
    pub(super) fn run(
        &mut self,
        tree: &Tree,
        columns: &Csr<T>,
        pivoting: Pivoting,
        budget: Budget,
        most: f64,
    ) -> Result<bool> {
        let (name, halves) = match self.kind {
            Kind::General => ("LU factorization", 2.0),
            Kind::Symmetric => ("LDL factorization", 1.0),
        };
        let phase = Phase::new(name, halves * tree.work());
        let work = |step: &Range<usize>| halves * step.clone().map(|at| tree.fronts[at].work()).sum::<f64>();
        let from = self.pieces.len();
        phase.advance(self.steps[..from].iter().map(work).sum::<f64>() as u64)?;
        let (mut end, mut left) = (from, most);
        while end < self.steps.len() && left > 0.0 && (end == from || work(&self.steps[end]) <= left) {
            left -= work(&self.steps[end]);
            end += 1;
        }
        let [held, stored] = self.bytes().map(AtomicUsize::new);
        let Progress { kind, row_scale, column_scale, steps, pieces, rests, delayed, most, .. } = self;
        let [first, next] = &tree.children().into();
        let idle: Mutex<Vec<Workspace<T>>> = Mutex::default();
        let work = Work {
            kind: *kind,
            columns,
            tree,
            first,
            next,
            rests,
            scales: [row_scale, column_scale],
            pivoting,
            budget,
            held: &held,
            stored: &stored,
            delayed,
            most: *most,
            phase: &phase,
        };
        let eliminated = tree.run(&steps[from..end], |at| {
            let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let found = lock().pop();
            let mut workspace = found.unwrap_or_else(|| Workspace::new(columns.rows()));
            let piece = work.eliminate(steps[from + at].clone(), &mut workspace)?;
            // the arrays of the largest fronts are not kept
            (workspace.values, workspace.upper) = (Buffer::default(), vec![]);
            lock().push(workspace);
            Ok(piece)
        });
        pieces.append(&mut eliminated?);
        Ok(pieces.len() == steps.len())
    }

    /// Bytes in use, and those of the factors.
    pub(super) fn bytes(&self) -> [usize; 2] {
        let size = |rest: &Option<Rest<T>>| rest.as_ref().map_or(0, |rest| size_of_val(&*rest.values));
        let rests = self.rests.iter().map(|rest| size(&rest.lock().unwrap_or_else(PoisonError::into_inner)));
        let factors: usize = self.pieces.iter().map(|piece| size_of_val(&*piece.numbers)).sum();
        [factors + rests.sum::<usize>(), factors]
    }

    /// Factors of a completed factorization.
    pub(super) fn factors(self) -> FrontFactors<T> {
        let Progress { row_scale, column_scale, largest, pieces, .. } = self;
        FrontFactors { row_scale, column_scale, largest, pieces, units: OnceLock::new() }
    }
}

/// Workspace of one thread.
struct Workspace<T> {
    /// Index in the current front of each row and column position.
    rows: Vec<u32>,
    columns: Vec<u32>,
    /// Values of the front, with space behind them.
    values: Buffer<T>,
    upper: Vec<T>,
    pairs: Vec<bool>,
}

impl<T: Real> Workspace<T> {
    fn new(n: usize) -> Workspace<T> {
        Workspace {
            rows: vec![NONE; n],
            columns: vec![NONE; n],
            values: Buffer::default(),
            upper: vec![],
            pairs: vec![],
        }
    }
}

/// Input of the elimination of fronts, shared by all threads. `first` and `next` are lists of children.
struct Work<'a, T: Real> {
    kind: Kind,
    /// Transpose of the matrix.
    columns: &'a Csr<T>,
    tree: &'a Tree,
    first: &'a [u32],
    next: &'a [u32],
    rests: &'a [Mutex<Option<Rest<T>>>],
    scales: [&'a [T]; 2],
    pivoting: Pivoting,
    budget: Budget,
    /// Bytes of factors, of fronts in elimination, and of Schur complements that wait for parent fronts.
    held: &'a AtomicUsize,
    /// Bytes of factors.
    stored: &'a AtomicUsize,
    /// Number of delays of pivots.
    delayed: &'a AtomicUsize,
    /// Maximum bytes of the factors, and of each front.
    most: usize,
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
    /// Eliminates `fronts`.
    fn eliminate(&self, fronts: Range<usize>, workspace: &mut Workspace<T>) -> Result<Piece<T>> {
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
            let mut front = self.assemble(at, workspace)?;
            let order = front.rows.len();
            let workspace_bytes = self.workspace_bytes(order, front.summed);
            counter.add(order * order)?;
            let pivots = self.dense(&mut front, workspace)?;
            let Workspace { values, upper, pairs, .. } = &mut *workspace;
            let values = &values[..order * order];
            let (numbers, places, first) = (piece.numbers.len(), piece.places.len(), piece.pairs.len());
            let count = match self.kind {
                Kind::General => pivots * order + upper.len(),
                Kind::Symmetric => ldl::packed(order, pivots),
            };
            let bytes = count * size_of::<T>();
            self.take(bytes)?;
            self.check_growth(self.stored.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes))?;
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
                let null = self.null(&front, pivots, values)?;
                piece.missing_rows.extend(null.iter().map(|&[row, _]| front.rows[row]));
                piece.missing_columns.extend(null.iter().map(|&[_, column]| front.columns[column]));
                let rest = self.rest(front, pivots, values, &null)?;
                *self.rests[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
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
        let values = &mut values[..order * order];
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

    fn check_growth(&self, bytes: usize) -> Result<()> {
        if bytes <= self.most {
            return Ok(());
        }
        Err(Error::Unsuitable { format: self.budget.what(), why: "too many pivots are delayed".into() })
    }
}

/// Complete factors, step by step.
#[derive(Debug)]
pub(super) struct FrontFactors<T> {
    row_scale: Vec<T>,
    column_scale: Vec<T>,
    /// Largest magnitude of an entry of the scaled matrix.
    largest: T,
    pieces: Vec<Piece<T>>,
    units: OnceLock<Box<solves::BothUnits>>,
}
