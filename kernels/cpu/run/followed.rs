//! Products with a fused elementwise operation, applied to each chunk of `A x` while it is in the L1 cache.

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::chunks;
use crate::cpu::simd::{Simd, Value};
use std::ops::Range;

/// Elementwise operation applied to `A x`.
#[derive(Clone, Copy, Debug)]
pub enum Then<'a, T> {
    /// `y ← b + A x`
    Add {
        /// `b`
        b: &'a [T],
    },
    /// `y ← b − A x`
    Subtract {
        /// `b`
        b: &'a [T],
    },
    /// `y ← x + w D⁻¹ (b − A x)`
    Relax {
        /// `w`
        weight: T,
        /// `D⁻¹`
        inverse: &'a [T],
        /// `b`
        b: &'a [T],
    },
}

/// A matrix and the operation applied to its products.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a, A, T> {
    /// The matrix.
    pub a: A,
    /// Operation applied to each product.
    pub then: Then<'a, T>,
}

impl<T: Value, A: RowProduct<T>> RowProduct<T> for Followed<'_, A, T> {
    fn rows(&self) -> usize {
        self.a.rows()
    }

    fn fits(&self, x: usize) -> bool {
        let rows = self.rows();
        let fits = match self.then {
            Then::Add { b } | Then::Subtract { b } => b.len() == rows,
            Then::Relax { inverse, b, .. } => b.len() == rows && inverse.len() == rows && x == rows,
        };
        fits && self.a.fits(x)
    }

    #[inline(always)]
    unsafe fn product<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[chunk.start - first..chunk.end - first];
            // SAFETY: the caller's contract is the same; `chunks` yields rows that begin and end at chunk
            // boundaries
            unsafe { self.a.product::<S>(chunk.clone(), x, y) };
            match self.then {
                Then::Add { b } => {
                    for (y, b) in y.iter_mut().zip(&b[chunk]) {
                        *y = *b + *y;
                    }
                }
                Then::Subtract { b } => {
                    for (y, b) in y.iter_mut().zip(&b[chunk]) {
                        *y = *b - *y;
                    }
                }
                Then::Relax { weight, inverse, b } => {
                    let parts = b[chunk.clone()].iter().zip(&inverse[chunk.clone()]).zip(&x[chunk]);
                    for (y, ((b, d), x)) in y.iter_mut().zip(parts) {
                        *y = *x + weight * *d * (*b - *y);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::formats::csr::Csr;
    use crate::cpu::run::rows::{Parts, product};
    use crate::cpu::run::threads::CHUNK;
    use crate::index::{Columns, Offsets};

    #[test]
    fn what_follows_is_what_it_would_be_by_itself() {
        let n = 3 * CHUNK + 17;
        let offsets = Offsets::from_lengths(vec![2; n]);
        let columns: Vec<u32> = (0..n).flat_map(|row| [row, (7 * row + 1) % n].map(|c| c as u32)).collect();
        let columns = Columns::new(columns, n).unwrap();
        let number = |seed: usize| (0..).map(move |k| ((k * seed + 3) % 17) as f64 - 8.0);
        let [values, x, b, inverse]: [Vec<f64>; 4] =
            [(5, 2 * n), (7, n), (11, n), (13, n)].map(|(seed, count)| number(seed).take(count).collect());
        let a = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
        let bounds = [0, CHUNK, n];
        let parts = Parts::new(&bounds);
        let (mut plain, mut y) = (vec![0.0; n], vec![f64::NAN; n]);
        product(&a, parts, &x, &mut plain);
        let weight = 0.5;
        for then in
            [Then::Add { b: &b }, Then::Subtract { b: &b }, Then::Relax { weight, inverse: &inverse, b: &b }]
        {
            product(&Followed { a, then }, parts, &x, &mut y);
            for row in 0..n {
                let expected = match then {
                    Then::Add { .. } => b[row] + plain[row],
                    Then::Subtract { .. } => b[row] - plain[row],
                    Then::Relax { .. } => x[row] + weight * inverse[row] * (b[row] - plain[row]),
                };
                assert_eq!(y[row], expected);
            }
        }
        let short = Followed { a, then: Then::Add { b: &b[1..] } };
        assert!(!RowProduct::<f64>::fits(&short, n));
    }
}
