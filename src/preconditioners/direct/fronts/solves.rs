//! Solves with multifrontal factors (`tree::Solve`). Rows and columns are indexed by their position: that in the
//! elimination order, whose variables `Tree::order` lists.

use super::super::tree::{Solve, Tree, Units, Workspace};
use super::{Eliminated, FrontFactors, Piece};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::frontal::ldl::{LdlFactors, packed};
use krysp_kernels::cpu::preconditioners::frontal::lu::LuFactors;
use std::ops::Range;
use std::sync::OnceLock;

saved!(impl[] Eliminated { order, pivots, numbers, places, pairs });
saved!(impl[T: Real] Piece<T> { numbers, places, pairs, fronts, missing_rows, missing_columns });
saved!(impl[T: Real] FrontFactors<T> { row_scale, column_scale, largest, pieces; units = OnceLock::new() });

/// Units for solves: those of the rows of the fronts, and those of their columns.
#[derive(Debug)]
pub(super) struct BothUnits {
    rows: Units,
    /// `None` if the matrix is symmetric: the columns are the rows.
    columns: Option<Units>,
    /// Piece of each front, and the place of the front in it.
    at: Vec<(u32, u32)>,
}

impl BothUnits {
    fn columns(&self) -> &Units {
        self.columns.as_ref().unwrap_or(&self.rows)
    }
}

impl<T: Real> Piece<T> {
    /// `L` and `U` of a front.
    pub(super) fn lu(&self, front: &Eliminated) -> LuFactors<'_, T> {
        let &Eliminated { order, pivots, numbers, .. } = front;
        let (lower, upper) =
            self.numbers[numbers..][..pivots * (2 * order - pivots)].split_at(pivots * order);
        LuFactors { lower, upper, order }
    }

    /// `L` and `D` of a front of a symmetric matrix.
    pub(super) fn ldl(&self, front: &Eliminated) -> LdlFactors<'_, T> {
        let &Eliminated { order, pivots, numbers, pairs, .. } = front;
        let lower = &self.numbers[numbers..][..packed(order, pivots)];
        LdlFactors { lower, order, pairs: &self.pairs[pairs..][..pivots] }
    }

    /// Positions of the rows of a front, or, for `list` 1, of its columns: those of the pivots, then the others.
    fn positions(&self, front: &Eliminated, list: usize) -> [&[u32]; 2] {
        let &Eliminated { order, pivots, places, .. } = front;
        self.places[places + list * order..][..order].split_at(pivots).into()
    }

    /// Returns whether all fronts are within the arrays, and all positions are less than `rows`.
    fn fits(&self, rows: usize, symmetric: bool) -> bool {
        let within = |start: usize, count: Option<usize>, len: usize| {
            count.and_then(|count| start.checked_add(count)).is_some_and(|end| end <= len)
        };
        let front = |front: &Eliminated| {
            let &Eliminated { order, pivots, .. } = front;
            let whole = order.checked_mul(2).and_then(|twice| twice.checked_mul(pivots));
            let numbers = whole.filter(|_| pivots <= order).map(|_| match symmetric {
                true => packed(order, pivots),
                false => pivots * (2 * order - pivots),
            });
            let lists = if symmetric { 1 } else { 2 };
            let pairs = self.pairs.get(front.pairs..).and_then(|pairs| pairs.get(..pivots));
            order <= rows
                && within(front.numbers, numbers, self.numbers.len())
                && within(front.places, order.checked_mul(lists), self.places.len())
                && (!symmetric || pairs.is_some_and(|pairs| pairs.last() != Some(&true)))
        };
        let places = |places: &[u32]| places.iter().all(|&at| (at as usize) < rows);
        self.fronts.iter().all(front)
            && [&self.places, &self.missing_rows, &self.missing_columns].into_iter().all(|list| places(list))
    }
}

impl<T: Real> FrontFactors<T> {
    /// Returns whether all sizes and positions fit a tree.
    pub(in super::super) fn fit(&self, tree: &Tree, symmetric: bool) -> bool {
        let (rows, steps) = (tree.order.len(), tree.steps());
        let fits = |(piece, step): (&Piece<T>, &Range<usize>)| {
            piece.fronts.len() == step.len() && piece.fits(rows, symmetric)
        };
        let sizes = [&self.row_scale, &self.column_scale].into_iter().all(|scale| scale.len() == rows);
        if !sizes || self.pieces.len() != steps.len() || !self.pieces.iter().zip(&steps).all(fits) {
            return false;
        }
        let BothUnits { rows, columns, .. } = self.units(tree, symmetric);
        let alike = |columns: &Units| columns.is_consistent() && columns.is_like(rows);
        rows.is_consistent() && columns.as_ref().is_none_or(alike)
    }

    /// Units for solves with a symmetric matrix, or with any.
    fn units(&self, tree: &Tree, symmetric: bool) -> &BothUnits {
        self.units.get_or_init(|| {
            let mut at = vec![(0, 0); tree.fronts.len()];
            for (piece, step) in (0..).zip(tree.steps()) {
                at[step].iter_mut().zip(0..).for_each(|(at, front)| *at = (piece, front));
            }
            let units = |list| {
                let rows = |front| {
                    let (piece, front) = self.front(&at, front);
                    piece.positions(front, list)
                };
                let missing = |front| {
                    let piece = self.front(&at, front).0;
                    [&*piece.missing_rows, &*piece.missing_columns][list]
                };
                Units::new(tree, rows, missing)
            };
            Box::new(BothUnits { rows: units(0), columns: (!symmetric).then(|| units(1)), at })
        })
    }

    fn front(&self, at: &[(u32, u32)], front: usize) -> (&Piece<T>, &Eliminated) {
        let (piece, front) = at[front];
        let piece = &self.pieces[piece as usize];
        (piece, &piece.fronts[front as usize])
    }

    /// `z ← A⁻¹ r` for several vectors.
    pub(in super::super) fn solve(
        &self,
        tree: &Tree,
        symmetric: bool,
        r: &[&[T]],
        z: &mut [&mut [T]],
        workspace: &mut Workspace<T>,
    ) {
        let (units, vectors) = (self.units(tree, symmetric), r.len());
        let solve = Solve::new(&units.rows, vectors, workspace);
        let front = |at: usize| self.front(&units.at, at);
        self.up(tree, units, symmetric, r, &solve);
        // unknowns without a pivot are zero
        solve.each_missing(&units.rows, |x| *x = T::zero());
        solve.down(units.columns(), |at, x, others| match front(at) {
            (piece, front) if symmetric => piece.ldl(front).backward(vectors, x, others),
            (piece, front) => piece.lu(front).backward(vectors, x, others),
        });
        solve.each(units.columns(), |vector, column, x| {
            let column = tree.order[column as usize] as usize;
            z[vector][column] = *x * self.column_scale[column];
        });
    }

    /// The first half of a solve: `L⁻¹ r`, for a symmetric matrix `D⁻¹ L⁻¹ r`.
    fn up(&self, tree: &Tree, units: &BothUnits, symmetric: bool, r: &[&[T]], solve: &Solve<'_, T>) {
        let load = |vector: usize, row: u32| {
            let row = tree.order[row as usize] as usize;
            r[vector][row] * self.row_scale[row]
        };
        solve.up(&units.rows, load, |at, x, taken| match self.front(&units.at, at) {
            (piece, front) if symmetric => piece.ldl(front).forward(r.len(), x, taken),
            (piece, front) => piece.lu(front).forward(r.len(), x, taken),
        });
    }

    /// `z ← A⁻ᵀ r`.
    pub(in super::super) fn solve_transposed(
        &self,
        tree: &Tree,
        r: &[T],
        z: &mut [T],
        workspace: &mut Workspace<T>,
    ) {
        let units = self.units(tree, false);
        let solve = Solve::new(&units.rows, 1, workspace);
        let load = |_: usize, column: u32| {
            let column = tree.order[column as usize] as usize;
            r[column] * self.column_scale[column]
        };
        solve.up(units.columns(), load, |at, x, taken| {
            let (piece, front) = self.front(&units.at, at);
            piece.lu(front).forward_transposed(1, x, taken);
        });
        solve.each_missing(&units.rows, |x| *x = T::zero());
        self.down_transposed(tree, units, z, &solve);
    }

    /// The second half of a solve with the transpose: `z ← L⁻ᵀ x`.
    fn down_transposed(&self, tree: &Tree, units: &BothUnits, z: &mut [T], solve: &Solve<'_, T>) {
        solve.down(&units.rows, |at, x, others| {
            let (piece, front) = self.front(&units.at, at);
            piece.lu(front).backward_transposed(1, x, others);
        });
        solve.each(&units.rows, |_, row, x| {
            let row = tree.order[row as usize] as usize;
            z[row] = *x * self.row_scale[row];
        });
    }

    /// `N b`, where the rows of `N` span the left null space.
    pub(in super::super) fn missed(&self, tree: &Tree, b: &[T]) -> Vec<T> {
        let (units, mut workspace, mut missed) = (self.units(tree, false), Workspace::default(), vec![]);
        let solve = Solve::new(&units.rows, 1, &mut workspace);
        self.up(tree, units, false, &[b], &solve);
        solve.each_missing(&units.rows, |x| missed.push(*x));
        missed
    }

    /// `Nᵀ w`.
    pub(in super::super) fn missed_transposed(&self, tree: &Tree, w: &[T]) -> Vec<T> {
        let (units, mut workspace, mut v) =
            (self.units(tree, false), Workspace::default(), vec![T::zero(); tree.order.len()]);
        // all entries are zero at first
        let solve = Solve::new(&units.rows, 1, &mut workspace);
        let mut w = w.iter();
        solve.each_missing(&units.rows, |x| *x = w.next().copied().unwrap_or_default());
        self.down_transposed(tree, units, &mut v, &solve);
        v
    }

    /// Number of entries of the vectors of a solve.
    pub(in super::super) fn entries(&self, tree: &Tree, symmetric: bool) -> usize {
        self.units(tree, symmetric).rows.entries()
    }

    /// Number of stored entries of both factors, including zeros.
    pub(in super::super) fn nnz(&self) -> usize {
        self.pieces.iter().map(|piece| piece.numbers.len()).sum()
    }

    pub(in super::super) fn bytes(&self) -> usize {
        let piece = |piece: &Piece<T>| size_of_val(&*piece.numbers) + size_of_val(&*piece.places);
        self.pieces.iter().map(piece).sum()
    }

    pub(in super::super) fn missing(&self) -> usize {
        self.pieces.iter().map(|piece| piece.missing_rows.len()).sum()
    }
}
