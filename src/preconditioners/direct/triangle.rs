//! A triangular factor, stored by columns.

use crate::Real;

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

    pub(super) fn push(&mut self, row: u32, value: T) {
        self.rows.push(row);
        self.values.push(value);
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.rows) + size_of_val(&*self.values)
    }
}
