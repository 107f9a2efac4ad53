//! The coupled rows of the left null space of factors that are stored by columns.

use super::super::triangle::Triangle;
use super::column_factors::ColumnFactors;
use crate::numbers::Real;

/// `N Nᵀ`, where the rows of `N` span the left null space, for those rows that are not multiples of unit vectors. The others, as for empty
/// rows of `A`, are orthogonal to all rows.
///
/// `N` is a part of `L⁻¹ S`, with the diagonal matrix `S` of the row scaling. Only steps whose columns of `L` have entries, and the steps of
/// the rows of these entries, are stored.
#[derive(Debug)]
pub(super) struct Coupled<T> {
    lower: Triangle<T>,
    /// `S²`
    squares: Vec<T>,
    /// Stored step, and index among all steps without a pivot, of each row of `N` in this part.
    rows: Vec<(u32, u32)>,
    /// Index among all steps without a pivot, and entry of `S²`, of each other row.
    others: Vec<(u32, T)>,
}

impl<T: Real> Coupled<T> {
    /// `further` holds factors by which the rows of the matrix were multiplied before the scaling of `factors`.
    pub(super) fn new(factors: &ColumnFactors<T>, further: Option<&[T]>) -> Coupled<T> {
        let ColumnFactors { scale, row_of, lower: all, missing, .. } = factors;
        let mut stored = vec![false; row_of.len()];
        all.rows.iter().for_each(|&row| stored[row as usize] = true);
        let (mut places, mut steps) = (vec![0u32; row_of.len()], vec![]);
        for step in 0..row_of.len() {
            if stored[step] || !all.column(step).0.is_empty() {
                (stored[step], places[step]) = (true, steps.len() as u32);
                steps.push(step);
            }
        }
        let mut lower = Triangle::new(steps.len());
        for &step in &steps {
            let (rows, values) = all.column(step);
            rows.iter().zip(values).for_each(|(&row, &value)| lower.push(places[row as usize], value));
            lower.starts.push(lower.rows.len());
        }
        let square = |step: usize| {
            let row = row_of[step] as usize;
            let factor = further.map_or(scale[row], |further| scale[row] * further[row]);
            factor * factor
        };
        let (mut rows, mut others) = (vec![], vec![]);
        for (index, &step) in (0..).zip(missing) {
            match stored[step as usize] {
                true => rows.push((places[step as usize], index)),
                false => others.push((index, square(step as usize))),
            }
        }
        Coupled { lower, squares: steps.into_iter().map(square).collect(), rows, others }
    }

    /// The entries of `N b` of the rows in this part.
    pub(super) fn part(&self, missed: &[T]) -> Vec<T> {
        self.rows.iter().map(|&(_, index)| missed[index as usize]).collect()
    }

    /// Solution `w` of `N Nᵀ w = N b` for all rows, given that for the rows in this part.
    pub(super) fn whole(&self, missed: &[T], part: &[T]) -> Vec<T> {
        let mut w = vec![T::zero(); missed.len()];
        self.rows.iter().zip(part).for_each(|(&(_, index), &part)| w[index as usize] = part);
        self.others.iter().for_each(|&(index, square)| w[index as usize] = missed[index as usize] / square);
        w
    }

    /// `y ← N Nᵀ w`.
    pub(super) fn apply(&self, w: &[T], y: &mut [T]) {
        let mut x = vec![T::zero(); self.squares.len()];
        self.rows.iter().zip(w).for_each(|(&(place, _), &w)| x[place as usize] = w);
        for place in (0..x.len()).rev() {
            // a step without a pivot has no entries
            let (rows, values) = self.lower.column(place);
            let known =
                rows.iter().zip(values).fold(T::zero(), |sum, (&row, &value)| sum + value * x[row as usize]);
            x[place] -= known;
        }
        x.iter_mut().zip(&self.squares).for_each(|(x, &square)| *x *= square);
        for place in 0..x.len() {
            self.lower.subtract(place, x[place], &mut x);
        }
        self.rows.iter().zip(y).for_each(|(&(place, _), y)| *y = x[place as usize]);
    }
}
