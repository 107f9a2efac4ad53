//! Solves with the `L D Lᵀ` factors of a front, and the signs of `D`.

use super::add;
use crate::cpu::simd::{Simd, Task, Value, run};

/// Number of stored entries of a front's factors, which hold each column from its diagonal on.
pub fn packed(order: usize, pivots: usize) -> usize {
    pivots * order - (pivots * pivots - pivots) / 2
}

/// Appends the factors that [`eliminate`](super::eliminate) has left in `values` to `to`.
pub fn pack<T: Value>(values: &[T], order: usize, pivots: usize, to: &mut Vec<T>) {
    for (k, column) in values.chunks_exact(order.max(1)).take(pivots).enumerate() {
        to.extend_from_slice(&column[k..]);
    }
}

/// The factors of a front.
#[derive(Clone, Copy, Debug)]
pub struct LdlFactors<'a, T> {
    /// Entries of `L` and `D` in the order in which [`pack`] stores them.
    pub lower: &'a [T],
    /// Number of rows of the front.
    pub order: usize,
    /// For each column, whether it and the next column form a 2×2 pivot.
    pub pairs: &'a [bool],
}

impl<T: Value> LdlFactors<'_, T> {
    /// `x ← D⁻¹ L₁₁⁻¹ x` and `taken ← L₂₁ L₁₁⁻¹ x` for several vectors, stored one after the other. Each
    /// column of the factors is read once for all of them.
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn forward(self, vectors: usize, x: &mut [T], taken: &mut [T]) {
        self.check(vectors, x, taken);
        taken.fill(T::zero());
        run(Forward { factors: self, vectors, x, taken });
    }

    /// `x ← L₁₁⁻ᵀ (x − L₂₁ᵀ others)`. Vectors are stored as in [`LdlFactors::forward`].
    ///
    /// # Panics
    /// Panics if the sizes do not match.
    pub fn backward(self, vectors: usize, x: &mut [T], others: &[T]) {
        self.check(vectors, x, others);
        run(Backward { factors: self, vectors, x, others });
    }

    /// Numbers of negative and of positive eigenvalues of `D`.
    pub fn signs(self) -> [usize; 2] {
        let mut counts = [0; 2];
        let mut k = 0;
        while k < self.pairs.len() {
            let own = self.column(k);
            if self.pairs[k] {
                let (a, b, c) = (own[0], own[1], self.column(k + 1)[0]);
                if (a / b) * (c / b) < T::one() {
                    counts = [counts[0] + 1, counts[1] + 1];
                } else {
                    counts[usize::from(a > T::zero())] += 2;
                }
                k += 2;
            } else {
                counts[usize::from(own[0] > T::zero())] += 1;
                k += 1;
            }
        }
        counts
    }

    /// Largest magnitude of an entry of `D Lᵀ`, with a unit diagonal of `L`.
    pub fn largest(self) -> T {
        let (mut most, mut k) = (T::zero(), 0);
        let mut see = |value: T| most = if value.abs() > most { value.abs() } else { most };
        while k < self.pairs.len() {
            let own = self.column(k);
            if self.pairs[k] {
                let next = self.column(k + 1);
                let (a, b, c) = (own[0], own[1], next[0]);
                [a, b, c].into_iter().for_each(&mut see);
                for (&one, &other) in own[2..].iter().zip(&next[1..]) {
                    see(a * one + b * other);
                    see(b * one + c * other);
                }
                k += 2;
            } else {
                see(own[0]);
                own[1..].iter().for_each(|&entry| see(own[0] * entry));
                k += 1;
            }
        }
        most
    }

    /// Returns a column, from its diagonal on.
    #[inline(always)]
    fn column(&self, k: usize) -> &[T] {
        &self.lower[packed(self.order, k)..][..self.order - k]
    }

    fn check(self, vectors: usize, x: &[T], others: &[T]) {
        let LdlFactors { lower, order, pairs } = self;
        let count = pairs.len();
        assert!(
            x.len() == count * vectors && others.len() == (order - count) * vectors,
            "a number for each row"
        );
        assert!(lower.len() == packed(order, count) && pairs.last() != Some(&true), "whole factors");
    }
}

struct Forward<'a, T> {
    factors: LdlFactors<'a, T>,
    vectors: usize,
    x: &'a mut [T],
    taken: &'a mut [T],
}

impl<T: Value> Task for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Forward { factors, vectors, x, taken } = self;
        let (count, pairs) = (factors.pairs.len(), factors.pairs);
        let below = factors.order - count;
        let mut k = 0;
        while k < count {
            let width = if pairs[k] { 2 } else { 1 };
            for v in 0..vectors {
                let (x, taken) = (&mut x[v * count..][..count], &mut taken[v * below..][..below]);
                for j in k..k + width {
                    let (column, solved) = (factors.column(j), x[j]);
                    add::<T, S>(&mut x[k + width..], &column[k + width - j..count - j], -solved);
                    add::<T, S>(taken, &column[count - j..], solved);
                }
                let own = factors.column(k);
                if width == 2 {
                    let (a, b, c) = (own[0], own[1], factors.column(k + 1)[0]);
                    let (ab, cb) = (a / b, c / b);
                    let by = T::one() / ((ab * cb - T::one()) * b);
                    (x[k], x[k + 1]) = ((cb * x[k] - x[k + 1]) * by, (ab * x[k + 1] - x[k]) * by);
                } else {
                    x[k] /= own[0];
                }
            }
            k += width;
        }
    }
}

struct Backward<'a, T> {
    factors: LdlFactors<'a, T>,
    vectors: usize,
    x: &'a mut [T],
    others: &'a [T],
}

impl<T: Value> Task for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Backward { factors, vectors, x, others } = self;
        let count = factors.pairs.len();
        let below = factors.order - count;
        for k in (0..count).rev() {
            // in the first column of a 2×2 pivot, the entry below the diagonal belongs to D, not to L
            let from = if factors.pairs[k] { k + 2 } else { k + 1 };
            let column = factors.column(k);
            for v in 0..vectors {
                let (x, others) = (&mut x[v * count..][..count], &others[v * below..][..below]);
                let sum = super::super::dot::<T, S>(&column[from - k..count - k], &x[from..]);
                x[k] -= sum + super::super::dot::<T, S>(&column[count - k..], others);
            }
        }
    }
}
