//! Products of a matrix with several vectors, in which each matrix entry is read from memory once for all
//! vectors of a *tile*: a group of [`TILE`] vectors packed row by row, not a block of the matrix.
//!
//! Vectors are stored one after the other. For a product, up to [`TILE`] of them are packed row by row, so
//! that an entry of the matrix needs one contiguous load for all vectors instead of a scattered load for
//! each:
//!
//! ```text
//! X[j, :] ← x_1[j], …, x_8[j]                      all rows
//! for each chunk of rows, on all threads:
//!     Y[i, :] ← Σ_j a_ij X[j, :]                   in the cache
//!     y_1[i], …, y_8[i] ← Y[i, :]
//! ```
//!
//! Memory traffic per vector: `1/TILE` of the matrix and about four vectors, instead of the matrix and two
//! vectors. The sums of each vector have the same order as in a product with one vector, so results are
//! bitwise the same.

use crate::buffer::{Buffer, LINE};
use crate::cpu::run::rows::{Parts, RowProduct, check, check_parts, multiply, multiply_in_turn};
use crate::cpu::run::threads::{CHUNK, chunks, over_parts, over_rows, sum_over_parts};
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Task, Value, run};
use crate::cpu::vector::{block_dot, end_streams, stream_to, streams};
use std::ops::Range;

/// Vectors per tile (group of packed vectors); 8 numbers in f64 fill a cache line. Measured on two threads of
/// a Zen 3, time per vector divided by the time of a product with one vector: 0.20 to 0.26 for tiles of 8,
/// 0.24 to 0.34 for tiles of 4, 0.18 to 0.25 for tiles of 16 (7-point stencil on 128³ nodes, tetrahedra with
/// as many nodes, 3 × 3 blocks on 80³ nodes, f64).
pub const TILE: usize = 8;

/// Minimum number of vectors that are packed. Fewer vectors are multiplied one after the other for each chunk
/// of rows, which takes 0.5 to 0.75 of the time of separate products. A tile takes as long as 2 to 3.5
/// products with one vector, however many vectors it contains.
const LEAST: usize = TILE / 2;

/// Length of the workspace of a product with `columns` vectors of `x` entries.
pub fn packed_len<T: Value, A: RowProduct<T>>(a: &A, x: usize, columns: usize) -> usize {
    if a.has_tiles() && columns >= LEAST { x * TILE } else { 0 }
}

/// Loads a register with numbers of one row of a tile; it holds the whole row if it has at least [`TILE`]
/// lanes.
///
/// # Safety
/// The requirements are those of [`Lanes::load`], for the first [`TILE`] numbers.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, T: Value>(from: *const T) -> T::In<S> {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    // SAFETY: the caller's contract is the same
    unsafe { if lanes <= TILE { T::In::<S>::load(from) } else { T::In::<S>::load_first(from, TILE) } }
}

/// Writes a register to one row of a tile, as [`load`] reads it.
///
/// # Safety
/// The requirements are those of [`Lanes::store`], for the first [`TILE`] numbers.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd, T: Value>(register: T::In<S>, to: *mut T) {
    let lanes = <T::In<S> as Lanes<T>>::COUNT;
    // SAFETY: the caller's contract is the same
    unsafe { if lanes <= TILE { register.store(to) } else { register.store_first(to, TILE) } }
}

/// Sums the registers `lanes[l]` in the order in which [`Lanes::sum`] adds the lanes of one register.
/// `lanes[l]` holds, for every vector of the tile, what lane `l` holds in a product with one vector.
///
/// # Safety
/// The CPU has the features of `S`.
#[inline(always)]
pub(crate) unsafe fn sum_lanes<S: Simd, T: Value>(mut lanes: [T::In<S>; MOST_LANES]) -> T::In<S> {
    let count = <T::In<S> as Lanes<T>>::COUNT;
    // SAFETY: the caller's contract is the same
    unsafe {
        if !S::SUMS_HALVES {
            let mut sum = T::In::<S>::splat(T::zero());
            for lane in lanes.iter().take(count) {
                sum = sum.add(*lane);
            }
            return sum;
        }
        let mut half = count / 2;
        while half > 0 {
            for l in 0..half {
                lanes[l] = lanes[l].add(lanes[l + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Pairs of up to [`TILE`] vectors `x` and `y`.
struct Pairs<'m, T> {
    count: usize,
    x: [&'m [T]; TILE],
    y: [&'m mut [T]; TILE],
}

impl<'m, T> Pairs<'m, T> {
    /// Takes the next pairs; `None` if there are no more.
    fn next(pairs: &mut impl Iterator<Item = (&'m [T], &'m mut [T])>) -> Option<Self> {
        let mut group = Pairs { count: 0, x: [&[]; TILE], y: std::array::from_fn(|_| &mut [][..]) };
        for ((x, y), pair) in group.x.iter_mut().zip(&mut group.y).zip(pairs) {
            (*x, *y) = pair;
            group.count += 1;
        }
        (group.count > 0).then_some(group)
    }
}

/// `y_j ← A x_j` for several pairs of vectors. `packed` is workspace of at least [`packed_len`] numbers.
pub fn product_many<'m, T: Value, A: RowProduct<T>>(
    a: &A,
    parts: Parts<'_>,
    pairs: impl IntoIterator<Item = (&'m [T], &'m mut [T])>,
    packed: &mut Buffer<T>,
) {
    let mut pairs = pairs.into_iter();
    while let Some(Pairs { count, x, y }) = Pairs::next(&mut pairs) {
        y[..count].iter().for_each(|y| check_parts(parts, y));
        let group = Group::new(a, &x[..count], &y[..count], packed);
        let bound = |part: usize| parts.bound(part);
        over_parts(parts.count(), &bound, y, &|rows, mut y: [&mut [T]; TILE]| {
            // SAFETY: `new` compared the lengths; parts begin at chunks
            unsafe { group.multiply(rows.clone(), rows.start, &mut y[..count], None) };
        });
    }
}

/// `Y ← A X` for [`TILE`] vectors that are stored row by row.
///
/// # Panics
/// Panics if the vectors do not fit the matrix, or `x` is empty and `y` is not.
pub fn product_tile<T: Value, A: RowProduct<T>>(a: &A, parts: Parts<'_>, x: &[T], y: &mut [T]) {
    let (y, rest) = y.as_chunks_mut::<TILE>();
    assert!(rest.is_empty() && x.len().is_multiple_of(TILE), "vectors are stored row by row");
    assert!(a.fits(x.len() / TILE), "the arrays of the matrix are consistent and fit `x`");
    assert!(a.rows() == y.len() && (y.is_empty() || !x.is_empty()), "`y` has a row for each row");
    check_parts(parts, y);
    let stream = streams::<T>(y.len() * TILE);
    let bound = |part: usize| parts.bound(part);
    over_parts(parts.count(), &bound, y, &|rows, y: &mut [[T; TILE]]| {
        if !stream {
            return run(Tile { a, rows, x, y: y.as_flattened_mut() });
        }
        let first = rows.start;
        let mut near = [[T::zero(); TILE]; CHUNK];
        for chunk in chunks(rows) {
            let (near, far) = (&mut near[..chunk.len()], &mut y[chunk.start - first..chunk.end - first]);
            run(Tile { a, rows: chunk, x, y: near.as_flattened_mut() });
            stream_to(near.as_flattened(), far.as_flattened_mut());
        }
        end_streams();
    });
}

/// `y_j ← A x_j; ⟨x_j, y_j⟩`, with parts that begin at block boundaries
/// ([`threads::block_rows`](crate::cpu::run::threads::block_rows)). Appends the inner products to `dots`.
pub fn product_dot_many<'m, T: Value, A: RowProduct<T>>(
    a: &A,
    parts: Parts<'_>,
    pairs: impl IntoIterator<Item = (&'m [T], &'m mut [T])>,
    packed: &mut Buffer<T>,
    dots: &mut impl Extend<T>,
) {
    let mut pairs = pairs.into_iter();
    while let Some(Pairs { count, x, y }) = Pairs::next(&mut pairs) {
        let (x, of_group) = (&x[..count], &y[..count]);
        of_group.iter().for_each(|y| check_parts(parts, y));
        assert!(
            x.iter().zip(of_group).all(|(x, y)| x.len() == y.len()),
            "an inner product needs equal lengths"
        );
        let group = Group::new(a, x, of_group, packed);
        let bound = |part: usize| parts.bound(part);
        let sums: [T; TILE] =
            sum_over_parts(parts.count(), &bound, y, &|rows, mut y: [&mut [T]; TILE], sums| {
                let first = rows.start;
                sums.fill(rows, |block| {
                    let mut dots = [T::zero(); TILE];
                    // SAFETY: `new` compared the lengths; blocks begin at chunks
                    unsafe { group.multiply(block, first, &mut y[..count], Some(&mut dots)) };
                    dots
                });
            });
        dots.extend(sums[..count].iter().copied());
    }
}

/// Up to [`TILE`] vectors that are multiplied together.
struct Group<'a, A, T> {
    a: &'a A,
    x: &'a [&'a [T]],
    /// The vectors packed row by row, if the format has tiles and there are at least [`LEAST`] vectors.
    packed: Option<&'a [T]>,
    stream: bool,
}

impl<'a, T: Value, A: RowProduct<T>> Group<'a, A, T> {
    fn new(a: &'a A, x: &'a [&'a [T]], y: &[&mut [T]], packed: &'a mut Buffer<T>) -> Self {
        assert_eq!(x.len(), y.len(), "a `y` for each `x`");
        x.iter().zip(y).for_each(|(x, y)| check(a, x, y));
        let len = x.first().map_or(0, |x| x.len());
        assert!(x.iter().all(|x| x.len() == len), "vectors of one space share their length");
        let numbers = packed_len(a, len, x.len());
        let packed = if numbers > 0 {
            pack(x, &mut packed[..numbers]);
            Some(&packed[..numbers])
        } else {
            None
        };
        Group { a, x, packed, stream: streams::<T>(y.first().map_or(0, |y| y.len())) }
    }

    /// Computes the products of some rows, and adds their inner products with `x` to `dots`. `y` begins with
    /// row `first`.
    ///
    /// # Safety
    /// The requirements are those of [`RowProduct::product`].
    unsafe fn multiply(
        &self,
        rows: Range<usize>,
        first: usize,
        y: &mut [&mut [T]],
        mut dots: Option<&mut [T; TILE]>,
    ) {
        let mut tile = [T::zero(); CHUNK * TILE];
        let [mut of_x, mut of_y] = [[T::zero(); CHUNK]; 2];
        for chunk in chunks(rows) {
            let (here, len) = (chunk.start - first..chunk.end - first, chunk.len());
            if let Some(packed) = self.packed {
                let (a, rows) = (self.a, chunk.clone());
                run(Tile { a, rows, x: packed, y: &mut tile[..len * TILE] });
            }
            for (j, (x, y)) in self.x.iter().zip(y.iter_mut()).enumerate() {
                let (y, of_y) = (&mut y[here.clone()], &mut of_y[..len]);
                let mut x = &x[..];
                if let Some(packed) = self.packed {
                    unpack(&tile, j, of_y);
                    if dots.is_some() {
                        // read `x` from the packed vectors, which are still in cache
                        unpack(&packed[chunk.start * TILE..], j, &mut of_x[..len]);
                        x = &of_x[..len];
                    }
                } else if A::IN_TURN {
                    let streams = self.stream && dots.is_none() && y.as_ptr().addr().is_multiple_of(LINE);
                    let to = if streams { &mut *y } else { &mut *of_y };
                    // SAFETY: the caller's contract is the same; the alignment was checked
                    unsafe { multiply_in_turn(self.a, chunk.clone(), x, to, streams) };
                    if streams {
                        continue;
                    }
                    x = x.get(chunk.clone()).unwrap_or_default();
                } else {
                    // SAFETY: the caller's contract is the same
                    unsafe { multiply(self.a, chunk.clone(), x, of_y) };
                    x = x.get(chunk.clone()).unwrap_or_default();
                }
                if let Some(dots) = &mut dots {
                    dots[j] += block_dot(x, of_y);
                }
                if self.stream { stream_to(of_y, y) } else { y.copy_from_slice(of_y) }
            }
        }
        if self.stream {
            end_streams();
        }
    }
}

/// Task that computes some rows of a tile.
struct Tile<'a, A, T> {
    a: &'a A,
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Value, A: RowProduct<T>> Task for Tile<'_, A, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `run` ensures the features; the caller of `multiply` ensures the rest
        unsafe { self.a.tile::<S>(self.rows, self.x, self.y) }
    }
}

/// `packed[i, j] ← x_j[i]`, and zero for `j` from the number of vectors on.
fn pack<T: Value>(x: &[&[T]], packed: &mut [T]) {
    let (rows, _) = packed.as_chunks_mut::<TILE>();
    let stream = streams::<T>(rows.len() * TILE);
    over_rows(rows.len(), 2 * TILE, rows, &|range, rows: &mut [[T; TILE]]| {
        // 64 rows stay in the L1 cache
        let mut near = [[T::zero(); TILE]; 64];
        for (start, rows) in range.step_by(near.len()).zip(rows.chunks_mut(near.len())) {
            let near = &mut near[..rows.len()];
            for (j, x) in x.iter().enumerate() {
                for (to, &x) in near.iter_mut().zip(&x[start..start + rows.len()]) {
                    to[j] = x;
                }
            }
            if stream {
                stream_to(near.as_flattened(), rows.as_flattened_mut())
            } else {
                rows.copy_from_slice(near)
            }
        }
        if stream {
            end_streams();
        }
    });
}

/// `column[i] ← tile[i, j]`
fn unpack<T: Value>(tile: &[T], j: usize, column: &mut [T]) {
    for (to, row) in column.iter_mut().zip(tile.as_chunks::<TILE>().0) {
        *to = row[j];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::formats::bsr::{AnyBsr, SLACK};
    use crate::cpu::formats::csr::Csr;
    use crate::cpu::formats::dia::{Dia, HEIGHT};
    use crate::cpu::run::balanced::Balanced;
    use crate::cpu::run::rows::{product, product_dot};
    use crate::cpu::run::threads::block_rows;
    use crate::cpu::simd::{Level, force};
    use crate::cpu::tuning::ENTRIES_OF_TASK;
    use crate::index::{Columns, Offsets};

    fn number(i: usize) -> f64 {
        ((i * 7919) % 1009) as f64 / 500.0 - 1.0
    }

    fn pairs<'m>(x: &'m [&[f64]], y: &'m mut [Vec<f64>]) -> impl Iterator<Item = (&'m [f64], &'m mut [f64])> {
        x.iter().copied().zip(y.iter_mut().map(|y| &mut y[..]))
    }

    /// Checks that every column and every inner product is bitwise equal to that of a product with one
    /// vector.
    fn same_as_single<A: RowProduct<f64>>(a: &A, rows: usize, cols: usize) {
        let bounds: Vec<usize> = (0..rows).step_by(block_rows(rows)).chain([rows]).collect();
        let parts = Parts::new(&bounds);
        let x: Vec<Vec<f64>> = (0..17).map(|j| (0..cols).map(|i| number(i * 17 + j)).collect()).collect();
        let mut packed = Buffer::zeros(0);
        for count in [0, 1, 2, 3, 8, 12, 17] {
            let x: Vec<&[f64]> = x[..count].iter().map(|x| &x[..]).collect();
            let mut y = vec![vec![f64::NAN; rows]; count];
            let len = packed_len(a, cols, count);
            if packed.len() < len {
                packed = Buffer::zeros(len);
                packed.fill(f64::NAN);
            }
            product_many(a, parts, pairs(&x, &mut y), &mut packed);
            let mut own = vec![f64::NAN; rows];
            for (x, y) in x.iter().zip(&y) {
                product(a, parts, x, &mut own);
                assert!(y.iter().zip(&own).all(|(a, b)| a.to_bits() == b.to_bits()), "{count} columns");
            }
            if rows == cols {
                let mut dots = vec![];
                product_dot_many(a, parts, pairs(&x, &mut y), &mut packed, &mut dots);
                assert_eq!(dots.len(), count);
                for ((x, y), dot) in x.iter().zip(&y).zip(dots) {
                    assert_eq!(
                        product_dot(a, parts, x, &mut own).to_bits(),
                        dot.to_bits(),
                        "{count} columns"
                    );
                    assert_eq!(y, &own);
                }
            }
        }
    }

    #[test]
    fn columns_have_the_bits_of_products_by_themselves() {
        // row lengths below, at and above the number of lanes, and one row long enough for several tasks
        let lengths: Vec<usize> =
            (0..1600).map(|i| if i == 900 { 2 * ENTRIES_OF_TASK + 77 } else { i % 41 }).collect();
        let offsets = Offsets::from_lengths(lengths.iter().copied());
        let (rows, cols) = (lengths.len(), lengths.len());
        let columns: Vec<u32> = (0..offsets.end()).map(|k| (k * 31 % cols) as u32).collect();
        let columns = Columns::new(columns, cols).unwrap();
        let values: Vec<f64> = (0..columns.len()).map(number).collect();
        let csr = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
        let blocks = Offsets::from_lengths((0..400).map(|i| i % 7));
        let block_columns = (0..blocks.end()).map(|k| (k * 13 % 400) as u32).collect::<Vec<_>>();
        let block_columns = Columns::new(block_columns, 400).unwrap();
        let diagonals = [-700, -1, 0, 1, 5, 1599];
        let of_diagonals: Vec<f64> =
            (0..rows.div_ceil(HEIGHT) * HEIGHT * diagonals.len()).map(number).collect();
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            same_as_single(&csr, rows, cols);
            same_as_single(&Balanced(csr), rows, cols);
            for size in [2, 3, 4, 6] {
                let values: Vec<f64> = (0..blocks.end() * size * size + SLACK).map(number).collect();
                let bsr = AnyBsr::new(size, &blocks, &block_columns, &values);
                same_as_single(&bsr, 400 * size, 400 * size);
            }
            same_as_single(&Dia { rows, cols, diagonals: &diagonals, values: &of_diagonals }, rows, cols);
        }
    }

    /// Vectors long enough for non-temporal stores; the matrix has more columns than rows.
    #[test]
    fn long_vectors_and_rectangles() {
        let _forced = force(Level::best());
        let (rows, cols) = (1_200_000, 1_200_500);
        let offsets = Offsets::from_lengths((0..rows).map(|i| i % 3));
        let columns: Vec<u32> = (0..offsets.end()).map(|k| (k * 31 % cols) as u32).collect();
        let columns = Columns::new(columns, cols).unwrap();
        let values: Vec<f64> = (0..columns.len()).map(number).collect();
        let csr = Csr { offsets: (&offsets).into(), columns: (&columns).into(), values: &values };
        let x: Vec<Vec<f64>> = (0..5).map(|j| (0..cols).map(|i| number(i + j)).collect()).collect();
        let x: Vec<&[f64]> = x.iter().map(|x| &x[..]).collect();
        let bounds = [0, 768 * 700, rows];
        let mut packed = Buffer::zeros(packed_len(&csr, cols, 5));
        let mut y = vec![vec![f64::NAN; rows]; 5];
        product_many(&csr, Parts::new(&bounds), pairs(&x, &mut y), &mut packed);
        let mut own = vec![f64::NAN; rows];
        for (x, y) in x.iter().zip(&y) {
            product(&csr, Parts::new(&bounds), x, &mut own);
            assert!(y == &own);
        }
    }

    /// The product writes aligned vectors with non-temporal stores itself; others are copied with them.
    #[test]
    fn long_products_of_diagonals() {
        let n: usize = 1_050_000;
        let diagonals = [-1000, -1, 0, 1, 40, 1000];
        let values: Vec<f64> = (0..n.next_multiple_of(HEIGHT) * diagonals.len()).map(number).collect();
        let a = Dia { rows: n, cols: n, diagonals: &diagonals, values: &values };
        let x: Vec<Vec<f64>> = (0..3).map(|j| (0..n).map(|i| number(i + j)).collect()).collect();
        let bounds = [0, CHUNK * 500, n];
        for level in Level::ALL {
            let Some(_forced) = force(level) else { continue };
            let mut y: Vec<Buffer<f64>> = (0..3).map(|_| Buffer::zeros(n + 1)).collect();
            let [one, two, three] = &mut y[..] else { unreachable!("three vectors") };
            let targets = [&mut one[..n], &mut two[1..], &mut three[..n]];
            let pairs = x.iter().map(|x| &x[..]).zip(targets);
            product_many(&a, Parts::new(&bounds), pairs, &mut Buffer::zeros(0));
            let mut own = vec![f64::NAN; n];
            for (x, y) in x.iter().zip([&y[0][..n], &y[1][1..], &y[2][..n]]) {
                product(&a, Parts::new(&bounds), x, &mut own);
                assert!(y == own);
            }
        }
    }
}
