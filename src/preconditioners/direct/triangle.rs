//! A triangular factor, stored by columns.

use crate::numbers::Real;

/// A triangular factor, stored by columns, without its diagonal.
#[derive(Debug, Default)]
pub(super) struct Triangle<T> {
    pub(super) starts: Vec<usize>,
    pub(super) rows: Vec<u32>,
    pub(super) values: Vec<T>,
}

impl<T: Real> Triangle<T> {
    pub(super) fn new(n: usize) -> Triangle<T> {
        let mut starts = Vec::with_capacity(n + 1);
        starts.push(0);
        Triangle { starts, rows: vec![], values: vec![] }
    }

    pub(super) fn column(&self, step: usize) -> (&[u32], &[T]) {
        let range = self.starts[step]..self.starts[step + 1];
        (&self.rows[range.clone()], &self.values[range])
    }

    /// `x ← x − factor L_s`, for column `s = step`. Returns the number of multiplications.
    #[inline]
    pub(super) fn subtract(&self, step: usize, factor: T, x: &mut [T]) -> usize {
        let (rows, values) = self.column(step);
        for (&row, &value) in rows.iter().zip(values) {
            x[row as usize] -= value * factor;
        }
        rows.len()
    }

    /// Subtracts column `step` times `factor`, and the next column times the entry of `x` in the first row of
    /// this one, which becomes zero. Both columns have the same other rows. Returns the second factor.
    pub(super) fn subtract_two(&self, step: usize, factor: T, x: &mut [T]) -> T {
        let ((rows, values), (_, next)) = (self.column(step), self.column(step + 1));
        let second = std::mem::take(&mut x[rows[0] as usize]) - values[0] * factor;
        for ((&row, &value), &next) in rows[1..].iter().zip(&values[1..]).zip(next) {
            let x = &mut x[row as usize];
            // rounds as two calls of `subtract`
            *x = *x - value * factor - next * second;
        }
        second
    }

    /// Returns whether each column has first the row of the next step, then the rows of the next column in
    /// the same order.
    pub(super) fn continued(&self) -> Vec<bool> {
        let last = self.starts.len().saturating_sub(2);
        let continues = |step: usize| match self.column(step).0 {
            [first, others @ ..] => *first as usize == step + 1 && others == self.column(step + 1).0,
            [] => false,
        };
        (0..last).map(continues).chain((last + 1 < self.starts.len()).then_some(false)).collect()
    }

    pub(super) fn push(&mut self, row: u32, value: T) {
        self.rows.push(row);
        self.values.push(value);
    }

    /// Bytes that are allocated for entries.
    pub(super) fn reserved(&self) -> usize {
        self.rows.capacity() * size_of::<u32>() + self.values.capacity() * size_of::<T>()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.rows) + size_of_val(&*self.values)
    }
}
