//! Short lists in host memory that allocate nothing.

use std::ops::{Deref, DerefMut};

/// Maximum number of columns that are solved together. More would take more memory and save little, because each
/// column's share of reading the matrix is already small. Time of blocks of 8, 16 and 32 columns relative to
/// lockstep, for 32 columns of `heat_sink_p1_27k` (`benches/block.rs`, two busy cores): 0.37, 0.25 and 0.29
/// with `Jacobi`; 1.0, 0.99 and 0.70 with `Amg`. Between 8 and 32 it hardly matters.
pub(crate) const TOGETHER: usize = 16;

/// A list of at most [`TOGETHER`] items.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Few<T> {
    items: [T; TOGETHER],
    len: usize,
}

impl<T: Copy + Default> Few<T> {
    pub(crate) fn new() -> Self {
        Few { items: [T::default(); TOGETHER], len: 0 }
    }

    pub(crate) fn push(&mut self, item: T) {
        self.items[self.len] = item;
        self.len += 1;
    }
}

impl<T: Copy + Default> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut few = Few::new();
        items.into_iter().for_each(|item| few.push(item));
        few
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}
