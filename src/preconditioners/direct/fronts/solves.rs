//! Solves with multifrontal factors. Rows and columns are indexed by their position: that in the elimination
//! order, whose variables `Tree::order` lists.

use super::super::super::several::{gather, scatter};
use super::super::tree::Tree;
use super::{Eliminated, FrontFactors, Piece};
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::frontal::ldl::{LdlFactors, packed};
use krysp_kernels::cpu::preconditioners::frontal::lu::LuFactors;

saved!(impl[] Eliminated { order, pivots, numbers, places, pairs });
saved!(impl[T: Real] Piece<T> { numbers, places, pairs, fronts, missing_rows, missing_columns });
saved!(impl[T: Real] FrontFactors<T> { row_scale, column_scale, pieces });

/// Factors of a front, its number of pivots, and the positions of its rows and of its columns.
type Parts<'a, T> = (LuFactors<'a, T>, usize, &'a [u32], &'a [u32]);

impl<T: Real> Piece<T> {
    fn parts(&self, front: &Eliminated) -> Parts<'_, T> {
        let &Eliminated { order, pivots, numbers, places, .. } = front;
        let (lower, upper) =
            self.numbers[numbers..][..pivots * (2 * order - pivots)].split_at(pivots * order);
        let (rows, columns) = self.places[places..][..2 * order].split_at(order);
        (LuFactors { lower, upper, order }, pivots, rows, columns)
    }
}

impl<T: Real> Piece<T> {
    /// Factors of a front of a symmetric matrix, its number of pivots, and the positions of its rows.
    fn symmetric(&self, front: &Eliminated) -> (LdlFactors<'_, T>, usize, &[u32]) {
        let &Eliminated { order, pivots, numbers, places, pairs } = front;
        let lower = &self.numbers[numbers..][..packed(order, pivots)];
        let pairs = &self.pairs[pairs..][..pivots];
        (LdlFactors { lower, order, pairs }, pivots, &self.places[places..][..order])
    }

    /// Whether all fronts are within the arrays, and all positions are less than `rows`.
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
    /// Whether all sizes fit a matrix with `rows` rows.
    pub(in super::super) fn fit(&self, rows: usize, symmetric: bool) -> bool {
        self.row_scale.len() == rows
            && self.column_scale.len() == rows
            && self.pieces.iter().all(|piece| piece.fits(rows, symmetric))
    }

    /// `y ← A⁻¹ y` for a symmetric matrix. `y` holds several vectors, one after the other, in elimination
    /// order.
    pub(in super::super) fn solve_symmetric(&self, y: &mut [T], vectors: usize) {
        let (mut own, mut others) = (vec![], vec![]);
        let fronts = || {
            self.pieces.iter().flat_map(|piece| piece.fronts.iter().map(move |front| piece.symmetric(front)))
        };
        for (factors, pivots, rows) in fronts() {
            gather(&mut own, y, vectors, &rows[..pivots]);
            others.resize((rows.len() - pivots) * vectors, T::zero());
            factors.forward(vectors, &mut own, &mut others);
            scatter(&own, y, vectors, &rows[..pivots], put);
            scatter(&others, y, vectors, &rows[pivots..], take);
        }
        // set unknowns without a pivot to zero
        let rows = y.len() / vectors.max(1);
        for missing in self.missing_rows() {
            y.iter_mut().skip(missing).step_by(rows.max(1)).for_each(|y| *y = T::zero());
        }
        for (factors, pivots, rows) in fronts().rev() {
            gather(&mut own, y, vectors, &rows[..pivots]);
            gather(&mut others, y, vectors, &rows[pivots..]);
            factors.backward(vectors, &mut own, &others);
            scatter(&own, y, vectors, &rows[..pivots], put);
        }
    }

    /// Numbers of negative and of positive eigenvalues of a symmetric matrix.
    pub(in super::super) fn signs(&self) -> [usize; 2] {
        let mut counts = [0; 2];
        for piece in &self.pieces {
            for front in &piece.fronts {
                let [negative, positive] = piece.symmetric(front).0.signs();
                counts = [counts[0] + negative, counts[1] + positive];
            }
        }
        counts
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

    /// Positions of the rows without a pivot.
    pub(in super::super) fn missing_rows(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().flat_map(|piece| &piece.missing_rows).map(|&row| row as usize)
    }

    fn fronts(&self) -> impl DoubleEndedIterator<Item = Parts<'_, T>> {
        self.pieces.iter().flat_map(|piece| piece.fronts.iter().map(move |front| piece.parts(front)))
    }

    /// Appends `b`, scaled and in elimination order, to `y`.
    pub(in super::super) fn load(&self, tree: &Tree, b: &[T], y: &mut Vec<T>) {
        y.extend(tree.order.iter().map(|&row| b[row as usize] * self.row_scale[row as usize]));
    }

    /// `y ← L⁻¹ y` for several vectors, one after the other, with rows in elimination order.
    pub(in super::super) fn forward(&self, y: &mut [T], vectors: usize) {
        let (mut x, mut taken) = (vec![], vec![]);
        for (factors, pivots, rows, _) in self.fronts() {
            gather(&mut x, y, vectors, &rows[..pivots]);
            taken.resize((rows.len() - pivots) * vectors, T::zero());
            factors.forward(vectors, &mut x, &mut taken);
            scatter(&x, y, vectors, &rows[..pivots], put);
            scatter(&taken, y, vectors, &rows[pivots..], take);
        }
    }

    /// `solution ← U⁻¹ y` for several vectors, one after the other; `solution` has columns in elimination
    /// order.
    pub(in super::super) fn backward(&self, y: &[T], vectors: usize, solution: &mut Vec<T>) {
        solution.clear();
        solution.resize(y.len(), T::zero());
        let (mut x, mut others) = (vec![], vec![]);
        for (factors, pivots, rows, columns) in self.fronts().rev() {
            gather(&mut x, y, vectors, &rows[..pivots]);
            gather(&mut others, solution, vectors, &columns[pivots..]);
            factors.backward(vectors, &mut x, &mut others);
            scatter(&x, solution, vectors, &columns[..pivots], put);
        }
    }

    /// Copies a solution in elimination order to the original order, and applies the column scaling.
    pub(in super::super) fn store(&self, tree: &Tree, solution: &[T], to: &mut [T]) {
        for (&column, &x) in tree.order.iter().zip(solution) {
            to[column as usize] = x * self.column_scale[column as usize];
        }
    }

    /// `x = A⁻ᵀ b`.
    pub(in super::super) fn solve_transposed(
        &self,
        tree: &Tree,
        b: &[T],
        [y, solution]: &mut [Vec<T>; 2],
        x: &mut [T],
    ) {
        y.clear();
        y.extend(tree.order.iter().map(|&column| b[column as usize] * self.column_scale[column as usize]));
        solution.clear();
        solution.resize(y.len(), T::zero());
        let (mut own, mut taken) = (vec![], vec![]);
        for (factors, pivots, rows, columns) in self.fronts() {
            gather(&mut own, y, 1, &columns[..pivots]);
            taken.resize(columns.len() - pivots, T::zero());
            factors.forward_transposed(1, &mut own, &mut taken);
            scatter(&own, solution, 1, &rows[..pivots], put);
            scatter(&taken, y, 1, &columns[pivots..], take);
        }
        self.backward_transposed(tree, solution, x);
    }

    /// `x ← L⁻ᵀ y`, scaled and in the original order of rows, for `y` in elimination order.
    pub(in super::super) fn backward_transposed(&self, tree: &Tree, y: &mut [T], x: &mut [T]) {
        let (mut own, mut others) = (vec![], vec![]);
        for (factors, pivots, rows, _) in self.fronts().rev() {
            gather(&mut own, y, 1, &rows[..pivots]);
            gather(&mut others, y, 1, &rows[pivots..]);
            factors.backward_transposed(1, &mut own, &mut others);
            scatter(&own, y, 1, &rows[..pivots], put);
        }
        for (&row, &y) in tree.order.iter().zip(&*y) {
            x[row as usize] = y * self.row_scale[row as usize];
        }
    }
}

fn put<T>(to: &mut T, number: T) {
    *to = number;
}

fn take<T: Real>(to: &mut T, number: T) {
    *to -= number;
}
