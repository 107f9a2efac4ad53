//! Operations on blocks of vectors: inner products of all pairs, and linear combinations.
//!
//! Both operations keep a tile of results in registers, either 4 × 2 inner products or 2 registers of each of
//! 4 vectors, so that each loaded value is used several times. All tiles process a chunk of rows while its
//! vectors are in the cache, so memory is read once. For blocks of `k` vectors, inner products of all pairs cost
//! `k²` multiply-adds on `2 k` values per row (`k²/2` if the result is symmetric), and combinations `k²` on
//! `3 k` values.

use crate::cpu::basis::{block_sums, with_block_sums};
use crate::cpu::run::threads::{chunks, over_rows};
use crate::cpu::simd::{self, Lanes, Simd, Task, Value};
use crate::cpu::vector::{run_task, task};
use std::ops::Range;

/// Number of rows that all tiles of a combination process before the next rows. These rows of 32 vectors of
/// `f64` take 32 KiB, the size of an L1 cache. Guess: not measured against other numbers.
const ROWS: usize = 128;

// --- inner products -------------------------------------------------------------------------------------------------

/// Maximum number of vectors that a linear combination computes in one pass. Guess, chosen as the widest
/// block of a plan.
pub const MOST: usize = 16;

/// Inner products `⟨x_i, y_j⟩` for `i ≤ j`, column by column. `products` is overwritten; its capacity serves as
/// workspace, so that a second call allocates nothing.
pub fn gram<T: Value>(x: &[&[T]], y: &[&[T]], products: &mut Vec<T>) {
    assert_eq!(x.len(), y.len(), "blocks have equally many vectors");
    inner_products(x, y, true, products);
}

/// Inner products `⟨x_i, y_j⟩` of all pairs, column by column, in `products` as from [`gram`].
pub fn dots<T: Value>(x: &[&[T]], y: &[&[T]], products: &mut Vec<T>) {
    inner_products(x, y, false, products);
}

/// Inner products of all pairs, or, if `upper` is set, those with `i ≤ j`.
fn inner_products<T: Value>(x: &[&[T]], y: &[&[T]], upper: bool, products: &mut Vec<T>) {
    let (columns, rows) = (y.len(), y.first().map_or(0, |y| y.len()));
    assert!(x.iter().chain(y).all(|v| columns == 0 || v.len() == rows), "vectors have equal lengths");
    let pairs = if upper { columns * (columns + 1) / 2 } else { x.len() * columns };
    products.clear();
    products.resize(pairs + block_sums(rows, pairs), T::zero());
    let (results, sums) = products.split_at_mut(pairs);
    with_block_sums(rows, x.len() + columns, (), results, sums, &|rows, (), sums| {
        run_task!(InnerProducts { x, y, upper, rows, sums });
    });
    products.truncate(pairs);
}

task!(InnerProducts {
    x: &'v [&'v [T]],
    y: &'v [&'v [T]],
    upper: bool,
    rows: Range<usize>,
    sums: &'v mut [T],
} -> (), |S| {
    for chunk in chunks(rows) {
        for j in (0..y.len()).step_by(2) {
            let end = if upper { x.len().min(j + 2) } else { x.len() };
            for i in (0..end).step_by(4) {
                chunk_tile::<S, T>((x, i), (y, j), upper, chunk.clone(), sums);
            }
        }
    }
});

/// Adds the inner products of up to four vectors of `x`, from `i` on, and two of `y`, from `j` on, over one
/// chunk to the sums. If there are fewer vectors, the tile repeats the last one, and the surplus sums are
/// discarded, as are those below the diagonal if `upper` is set.
#[inline(always)]
fn chunk_tile<S: Simd, T: Value>(
    (x, i): (&[&[T]], usize),
    (y, j): (&[&[T]], usize),
    upper: bool,
    rows: Range<usize>,
    sums: &mut [T],
) {
    let (last, last_column) = (x.len() - 1, y.len() - 1);
    let mut a = [x[i]; 4];
    for (k, a) in a.iter_mut().enumerate() {
        *a = &x[last.min(i + k)][rows.clone()];
    }
    let b = [&y[j][rows.clone()], &y[last_column.min(j + 1)][rows]];
    let tile = tile::<S, T>(a, b);
    for (row, of_x) in (i..=last).zip(tile.iter()) {
        for (column, &sum) in (j..=last_column).zip(of_x) {
            match upper {
                true if row <= column => sums[column * (column + 1) / 2 + row] += sum,
                true => {}
                false => sums[column * x.len() + row] += sum,
            }
        }
    }
}

/// Inner products of four slices with two, all of one length.
#[inline(always)]
fn tile<S: Simd, T: Value>(x: [&[T]; 4], y: [&[T]; 2]) -> [[T; 2]; 4] {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    let len = y[1].len();
    let mut products = [[T::zero(); 2]; 4];
    // SAFETY: tasks run on a CPU with the features of `S`; all slices have `len` entries, and every index
    // stays below it
    unsafe {
        let mut sums = [[T::In::<S>::splat(T::zero()); 2]; 4];
        let mut at = 0;
        while at + lanes <= len {
            let b = [T::In::<S>::load(y[0].as_ptr().add(at)), T::In::<S>::load(y[1].as_ptr().add(at))];
            for (sums, x) in sums.iter_mut().zip(&x) {
                let a = T::In::<S>::load(x.as_ptr().add(at));
                sums[0] = a.mul_add(b[0], sums[0]);
                sums[1] = a.mul_add(b[1], sums[1]);
            }
            at += lanes;
        }
        if at < len {
            let rest = len - at;
            let b = [
                T::In::<S>::load_first(y[0].as_ptr().add(at), rest),
                T::In::<S>::load_first(y[1].as_ptr().add(at), rest),
            ];
            for (sums, x) in sums.iter_mut().zip(&x) {
                let a = T::In::<S>::load_first(x.as_ptr().add(at), rest);
                sums[0] = a.mul_add(b[0], sums[0]);
                sums[1] = a.mul_add(b[1], sums[1]);
            }
        }
        for (products, sums) in products.iter_mut().zip(sums) {
            *products = [sums[0].sum(), sums[1].sum()];
        }
    }
    products
}

// --- linear combinations --------------------------------------------------------------------------------------------

/// Term `X C` of a linear combination: the vectors of `X`, and the entries of `C` row by row, one row for
/// each vector.
pub type Term<'t, T> = (&'t [&'t [T]], &'t [T]);

/// `Y ← Σ X C`, or, if `keep` is set, `Y ← Y + Σ X C`, for the first `count` vectors of `y`. Consecutive rows
/// of `C` are `stride` entries apart. Each entry is summed in the order of the vectors, as by successive
/// calls of [`axpby`].
///
/// [`axpby`]: crate::cpu::vector::axpby
pub fn combine<T: Value>(
    y: [&mut [T]; MOST],
    count: usize,
    keep: bool,
    terms: &[Term<'_, T>],
    stride: usize,
) {
    if count == 0 {
        return;
    }
    let rows = y[0].len();
    let fits = |(x, c): &Term<'_, T>| {
        let least = x.len().checked_sub(1).map_or(0, |before| before * stride + count);
        c.len() >= least && x.iter().all(|x| x.len() == rows)
    };
    assert!(y[..count].iter().all(|y| y.len() == rows) && terms.iter().all(fits), "blocks fit");
    let streams = count + terms.iter().map(|(x, _)| x.len()).sum::<usize>();
    over_rows(rows, streams, y, &|rows, mut y: [&mut [T]; MOST]| {
        simd::run(Combine { first: rows.start, y: &mut y[..count], keep, terms, stride });
    });
}

struct Combine<'c, 'y, 't, T> {
    /// Row of `x` that corresponds to row 0 of `y`.
    first: usize,
    y: &'c mut [&'y mut [T]],
    keep: bool,
    terms: &'c [Term<'t, T>],
    stride: usize,
}

impl<T: Value> Task for Combine<'_, '_, '_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Combine { first, y, keep, terms, stride } = self;
        let (len, columns) = (y.first().map_or(0, |y| y.len()), y.len());
        for start in (0..len).step_by(ROWS) {
            let rows = start..len.min(start + ROWS);
            let mut j = 0;
            while j + 4 <= columns {
                strip::<S, T, 4>(y, j, rows.clone(), first, keep, (terms, stride));
                j += 4;
            }
            while j < columns {
                strip::<S, T, 1>(y, j, rows.clone(), first, keep, (terms, stride));
                j += 1;
            }
        }
    }
}

/// Computes `rows` of `J` vectors, from vector `j` on. Row `first` of `x` corresponds to row 0 of `y`.
#[inline(always)]
fn strip<S: Simd, T: Value, const J: usize>(
    y: &mut [&mut [T]],
    j: usize,
    rows: Range<usize>,
    first: usize,
    keep: bool,
    (terms, stride): (&[Term<'_, T>], usize),
) {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    let mut to = [y[j].as_mut_ptr(); J];
    for (k, to) in to.iter_mut().enumerate() {
        *to = y[j + k].as_mut_ptr();
    }
    let mut at = rows.start;
    // SAFETY: tasks run on a CPU with the features of `S`; `combine` has checked that all vectors have the
    // same number of rows, that `rows` are in `y` and as many rows from `first` on in each `x`, and that `c`
    // has an entry for each `x` and `y`
    unsafe {
        let zero = T::In::<S>::splat(T::zero());
        while at + 2 * lanes <= rows.end {
            let mut sums = [[zero; 2]; J];
            if keep {
                for (sums, to) in sums.iter_mut().zip(&to) {
                    *sums = [T::In::<S>::load(to.add(at)), T::In::<S>::load(to.add(at + lanes))];
                }
            }
            for (x, c) in terms {
                for (i, x) in x.iter().enumerate() {
                    let x = x.as_ptr().add(first + at);
                    let a = [T::In::<S>::load(x), T::In::<S>::load(x.add(lanes))];
                    let c = c.as_ptr().add(i * stride + j);
                    for (k, sums) in sums.iter_mut().enumerate() {
                        let c = T::In::<S>::splat(*c.add(k));
                        sums[0] = c.mul_add(a[0], sums[0]);
                        sums[1] = c.mul_add(a[1], sums[1]);
                    }
                }
            }
            for (sums, to) in sums.iter().zip(&to) {
                sums[0].store(to.add(at));
                sums[1].store(to.add(at + lanes));
            }
            at += 2 * lanes;
        }
        while at < rows.end {
            let rest = lanes.min(rows.end - at);
            let mut sums = [zero; J];
            if keep {
                for (sum, to) in sums.iter_mut().zip(&to) {
                    *sum = T::In::<S>::load_first(to.add(at), rest);
                }
            }
            for (x, c) in terms {
                for (i, x) in x.iter().enumerate() {
                    let a = T::In::<S>::load_first(x.as_ptr().add(first + at), rest);
                    let c = c.as_ptr().add(i * stride + j);
                    for (k, sum) in sums.iter_mut().enumerate() {
                        *sum = T::In::<S>::splat(*c.add(k)).mul_add(a, *sum);
                    }
                }
            }
            for (sum, to) in sums.iter().zip(&to) {
                if rest == lanes {
                    sum.store(to.add(at));
                } else {
                    sum.store_first(to.add(at), rest);
                }
            }
            at += rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Level, force};
    use crate::cpu::vector::{axpby, dot};

    const LENGTHS: [usize; 8] = [0, 1, 5, 127, 129, 769, 4000, 50_001];

    fn block(rows: usize, columns: usize, seed: usize) -> Vec<Vec<f64>> {
        let value = |i: usize, j: usize| ((i * 7919 + (j + seed) * 104_729) % 1009) as f64 / 500.0 - 1.0;
        (0..columns).map(|j| (0..rows).map(|i| value(i, j)).collect()).collect()
    }

    fn slices(block: &[Vec<f64>]) -> Vec<&[f64]> {
        block.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn a_gram_matrix_has_the_inner_products_on_any_number_of_threads() {
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            for rows in LENGTHS {
                for columns in [0, 1, 2, 3, 4, 5, 9] {
                    let (x, y) = (block(rows, columns, 1), block(rows, columns, 20));
                    let gram = |mut products| {
                        gram(&slices(&x), &slices(&y), &mut products);
                        products
                    };
                    let got = gram(vec![f64::NAN; 2]);
                    let pairs = (0..columns).flat_map(|j| (0..=j).map(move |i| (i, j)));
                    assert_eq!(got.len(), pairs.clone().count());
                    for ((i, j), got) in pairs.zip(&got) {
                        assert!((got - dot(&x[i], &y[j])).abs() <= 1e-12 * rows as f64, "{rows}: {i}, {j}");
                    }
                    for threads in [1, 3] {
                        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                        assert_eq!(pool.install(|| gram(vec![])), got);
                    }
                }
            }
        }
    }

    #[test]
    fn all_pairs_have_the_inner_products_on_any_number_of_threads() {
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            for rows in LENGTHS {
                for (of_x, of_y) in [(0, 2), (2, 0), (1, 1), (3, 2), (2, 7), (17, 3)] {
                    let (x, y) = (block(rows, of_x, 1), block(rows, of_y, 20));
                    let dots = |mut products| {
                        dots(&slices(&x), &slices(&y), &mut products);
                        products
                    };
                    let got = dots(vec![f64::NAN; 2]);
                    let pairs = (0..of_y).flat_map(|j| (0..of_x).map(move |i| (i, j)));
                    assert_eq!(got.len(), of_x * of_y);
                    for ((i, j), got) in pairs.zip(&got) {
                        assert!((got - dot(&x[i], &y[j])).abs() <= 1e-12 * rows as f64, "{rows}: {i}, {j}");
                    }
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
                    assert_eq!(pool.install(|| dots(vec![])), got);
                }
            }
        }
    }

    #[test]
    fn combinations_equal_their_parts_at_every_level() {
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            for rows in LENGTHS {
                for (columns, of_x, of_z) in [(1, 1, 0), (3, 2, 5), (4, 4, 4), (9, 7, 1), (0, 2, 2)] {
                    let (x, z) = (block(rows, of_x, 3), block(rows, of_z, 5));
                    let c = &block(columns * (of_x + of_z), 1, 8)[0];
                    let (c, d) = c.split_at(columns * of_x);
                    for keep in [false, true] {
                        let old =
                            if keep { block(rows, columns, 4) } else { vec![vec![f64::NAN; rows]; columns] };
                        let (mut got, mut expected) = (old.clone(), old);
                        let (x, z) = (slices(&x), slices(&z));
                        let mut y = got.iter_mut().map(Vec::as_mut_slice);
                        let y = std::array::from_fn(|_| y.next().unwrap_or_default());
                        combine(y, columns, keep, &[(&x, c), (&z, d)], columns);
                        for (j, y) in expected.iter_mut().enumerate() {
                            let mut b = f64::from(u8::from(keep));
                            for (x, c) in
                                x.iter().zip(c.chunks(columns)).chain(z.iter().zip(d.chunks(columns)))
                            {
                                axpby(c[j], x, b, y);
                                b = 1.0;
                            }
                        }
                        assert_eq!(got, expected, "{rows} rows, {columns} columns, {keep}");
                    }
                }
            }
        }
    }
}
