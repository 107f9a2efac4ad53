//! Products with a fused elementwise operation, applied to each chunk of `A x` while it is in the L1 cache.

use crate::cpu::run::rows::RowProduct;
use crate::cpu::run::threads::chunks;
use crate::cpu::run::tiles::TILE;
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

impl<T: Value> Then<'_, T> {
    /// Applies the operation to products of some rows, with `W` vectors stored row by row.
    #[inline(always)]
    fn apply<const W: usize>(self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let here = rows.start * W..rows.end * W;
        match self {
            Then::Add { b } => {
                for (y, b) in y.iter_mut().zip(&b[here]) {
                    *y = *b + *y;
                }
            }
            Then::Subtract { b } => {
                for (y, b) in y.iter_mut().zip(&b[here]) {
                    *y = *b - *y;
                }
            }
            Then::Relax { weight, inverse, b } => {
                let (b, x) = (b[here.clone()].as_chunks::<W>().0, x[here].as_chunks::<W>().0);
                let parts = b.iter().zip(&inverse[rows]).zip(x);
                for (y, ((b, d), x)) in y.as_chunks_mut::<W>().0.iter_mut().zip(parts) {
                    let factor = weight * *d;
                    for j in 0..W {
                        y[j] = x[j] + factor * (b[j] - y[j]);
                    }
                }
            }
        }
    }
}

/// A matrix and the operation applied to its products with `W` vectors stored row by row: one, or those of a
/// [tile](crate::cpu::run::tiles). `D⁻¹` is the same for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a, A, T, const W: usize> {
    /// The matrix.
    pub a: A,
    /// Operation applied to each product.
    pub then: Then<'a, T>,
}

impl<T: Value, A: RowProduct<T>, const W: usize> RowProduct<T> for Followed<'_, A, T, W> {
    fn rows(&self) -> usize {
        self.a.rows()
    }

    fn fits(&self, x: usize) -> bool {
        let rows = self.rows();
        let fits = match self.then {
            Then::Add { b } | Then::Subtract { b } => b.len() == rows * W,
            Then::Relax { inverse, b, .. } => b.len() == rows * W && inverse.len() == rows && x == rows,
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
            self.then.apply::<1>(chunk, x, y);
        }
    }

    fn has_tiles(&self) -> bool {
        self.a.has_tiles()
    }

    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, rows: Range<usize>, x: &[T], y: &mut [T]) {
        let first = rows.start;
        for chunk in chunks(rows) {
            let y = &mut y[(chunk.start - first) * TILE..(chunk.end - first) * TILE];
            // SAFETY: as in `product`
            unsafe { self.a.tile::<S>(chunk.clone(), x, y) };
            self.then.apply::<TILE>(chunk, x, y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::formats::csr::Csr;
    use crate::cpu::run::rows::{Parts, product};
    use crate::cpu::run::threads::CHUNK;
    use crate::cpu::run::tiles::product_tile;
    use crate::index::{Columns, Offsets};

    const WEIGHT: f64 = 0.5;

    fn then<'a>(which: usize, inverse: &'a [f64], b: &'a [f64]) -> Then<'a, f64> {
        match which {
            0 => Then::Add { b },
            1 => Then::Subtract { b },
            _ => Then::Relax { weight: WEIGHT, inverse, b },
        }
    }

    #[test]
    fn what_follows_is_what_it_would_be_by_itself() {
        let n = 3 * CHUNK + 17;
        let offsets = Offsets::from_lengths(vec![2; n]);
        let columns: Vec<u32> = (0..n).flat_map(|row| [row, (7 * row + 1) % n].map(|c| c as u32)).collect();
        let columns = Columns::new(columns, n).unwrap();
        let number = |seed: usize| (0..).map(move |k| ((k * seed + 3) % 17) as f64 - 8.0);
        let [values, inverse, x, b]: [Vec<f64>; 4] = [(5, 2 * n), (13, n), (7, n * TILE), (11, n * TILE)]
            .map(|(seed, count)| number(seed).take(count).collect());
        let column = |of: &[f64], j: usize| of.iter().skip(j).step_by(TILE).copied().collect::<Vec<f64>>();
        let a = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
        let bounds = [0, CHUNK, n];
        let parts = Parts::new(&bounds);
        let (mut plain, mut y, mut all) = (vec![0.0; n], vec![f64::NAN; n], vec![f64::NAN; n * TILE]);
        for which in 0..3 {
            product_tile(&Followed::<_, _, TILE> { a, then: then(which, &inverse, &b) }, parts, &x, &mut all);
            for j in 0..TILE {
                let (x, b) = (column(&x, j), column(&b, j));
                product(&a, parts, &x, &mut plain);
                product(&Followed::<_, _, 1> { a, then: then(which, &inverse, &b) }, parts, &x, &mut y);
                for row in 0..n {
                    let expected = match which {
                        0 => b[row] + plain[row],
                        1 => b[row] - plain[row],
                        _ => x[row] + WEIGHT * inverse[row] * (b[row] - plain[row]),
                    };
                    assert_eq!(y[row], expected);
                }
                assert_eq!(column(&all, j), y);
            }
        }
        let short = Followed::<_, _, 1> { a, then: Then::Add { b: &b[1..n] } };
        assert!(!RowProduct::<f64>::fits(&short, n));
    }
}
