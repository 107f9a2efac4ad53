//! Dense kernels of a sparse Cholesky factorization, column by column: partial factorization of a frontal
//! matrix, and the update of the remaining columns.
//!
//! ```text
//! up to BLOCK columns:  factorize their diagonal block; solve for the rows below
//! more columns:         factorize the first half; subtract `A₂ A₂ᵀ` of its rows `A₂` below from the second half;
//!                       factorize the second half
//! C ← C − A Bᵀ: in register tiles of two registers times COLUMNS, accumulated over DEPTH columns
//! ```
//!
//! The order of every sum depends on sizes only: results are bitwise the same for every number of threads.
//!
//! Cost: `n³/3` multiply-adds for a square matrix of `n` rows, most of them in register tiles with 2 to 6
//! multiply-adds per number loaded.

pub mod ldl;
pub mod lu;

use crate::cpu::preconditioners::Refused;
use crate::cpu::run::threads::{ByRow, over_parts, tasks};
use crate::cpu::simd::{Lanes, MOST_LANES, Simd, Task, Value, run};
use crate::interrupt::{Interrupted, Phase};
use std::ops::Range;

/// Number of columns that are eliminated together. Guess.
const BLOCK: usize = 32;

/// Number of rows that are solved together, so that they stay in the L1 cache. Guess.
const ROWS: usize = 64;

/// Number of columns of a register tile. Guess, chosen so that two registers of rows times six columns,
/// with operands, fit 16 registers.
const COLUMNS: usize = 6;

/// `WIDTH`: rows of `B` (columns of `C`) that are packed together. `DEPTH`: number of products that are
/// accumulated in registers before they are subtracted from `C`.
const WIDTH: usize = 8 * COLUMNS;
const DEPTH: usize = 192;

/// Rows that are packed by one thread: whole tiles at every register width.
const BAND: usize = 2 * MOST_LANES;

/// Minimum number of multiply-adds of an update that uses register tiles. Guess, chosen as the work of
/// about 2 µs, below which packing takes a large part of the time.
const TILED: usize = 16 * 1024;

/// Some rows of consecutive columns of a column-major matrix.
#[derive(Clone, Copy, Debug)]
pub struct Strip<'a, T> {
    /// Values from the first row of the first column on.
    pub values: &'a [T],
    /// Distance between columns in memory (leading dimension).
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
}

impl<'a, T> Strip<'a, T> {
    fn column(&self, column: usize) -> &'a [T] {
        &self.values[column * self.stride..][..self.rows]
    }
}

/// Partial Cholesky factorization in place: `L` with `A₁ = L Lᵀ` replaces the first `columns` rows `A₁`, and
/// `A₂ L⁻ᵀ` the rows `A₂` below. `A` has `columns` columns of `stride` rows; entries above the diagonal are
/// not read. Fails at the first pivot that is not larger than its column's entry of `least`. Reports
/// multiply-adds as work of `phase`.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn cholesky<T: Value>(
    a: &mut [T],
    stride: usize,
    columns: usize,
    least: &[T],
    phase: &Phase,
) -> Result<(), Refused<T>> {
    assert!(
        columns <= stride && a.len() == columns * stride && least.len() == columns,
        "columns have equal lengths"
    );
    eliminate(a, stride, 0, least, phase)
}

/// Factorizes columns whose first diagonal entry is in row `first`. More than `BLOCK` columns are halved: the
/// first half is factorized, its product is subtracted from the second half, and that is factorized. Most
/// updates are then products over many columns.
fn eliminate<T: Value>(
    a: &mut [T],
    stride: usize,
    first: usize,
    least: &[T],
    phase: &Phase,
) -> Result<(), Refused<T>> {
    let columns = least.len();
    if columns > BLOCK {
        let half = (columns / 2).next_multiple_of(BLOCK);
        let (before, after) = a.split_at_mut(half * stride);
        eliminate(before, stride, first, &least[..half], phase)?;
        let at = first + half;
        let strip = Strip { values: &before[at..], stride, rows: stride - at };
        let right = Strip { rows: columns - half, ..strip };
        subtract(after, stride, at, [strip, right], half, true, phase)?;
        return eliminate(after, stride, at, &least[half..], phase);
    }
    run(Diagonal { a, stride, first, least })?;
    let below = stride - first - columns;
    let mut diagonal: [&[T]; BLOCK] = [&[]; BLOCK];
    let mut rows: [&mut [T]; BLOCK] = std::array::from_fn(|_| &mut [][..]);
    for ((own, diagonal), rows) in a.chunks_exact_mut(stride).zip(&mut diagonal).zip(&mut rows) {
        let (own, others) = own[first..].split_at_mut(columns);
        (*diagonal, *rows) = (own, others);
    }
    let parts = tasks(columns * below).min(below);
    over_parts(parts, &|part| part * below / parts, rows, &|_, mut rows| {
        run(Below { diagonal: &diagonal[..columns], rows: &mut rows[..columns] });
    });
    phase.advance((columns * columns / 2 * (stride - first)) as u64)?;
    Ok(())
}

/// Updates `C ← C − A Bᵀ` over `depth` columns of `A` and `B`. `C` has a row for each row of `A` and a column
/// for each row of `B`; its first row is row `skip` of the columns in the array `c`. With `lower`, only
/// entries on and below the diagonal of `C` are needed. Reports multiply-adds as work of `phase`.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn subtract<T: Value>(
    c: &mut [T],
    stride: usize,
    skip: usize,
    [a, b]: [Strip<'_, T>; 2],
    depth: usize,
    lower: bool,
    phase: &Phase,
) -> Result<(), Interrupted> {
    let (rows, columns) = (a.rows, b.rows);
    if rows == 0 || columns == 0 || depth == 0 {
        return Ok(());
    }
    let work = |columns: Range<usize>, depth: usize| {
        // mean number of rows of these columns, which begin at the diagonal in the lower triangle
        let rows = if lower { rows - ((columns.start + columns.end) / 2).min(rows) } else { rows };
        (columns.len() * depth * rows) as u64
    };
    assert!(skip + rows <= stride && c.len() >= columns * stride, "`C` is large enough");
    let c = &mut c[..columns * stride];
    if rows * columns * depth < TILED {
        run(Few { c, stride, skip, a, b, depth, lower });
        return phase.advance(work(0..columns, depth));
    }
    let groups = columns.div_ceil(WIDTH);
    let parts = tasks(rows * columns * depth / 16).min(groups);
    // in the lower triangle the first columns have more rows: small parts balance the load
    let bound = |part: usize| columns.min(part * groups / parts * WIDTH);
    for from in (0..depth).step_by(DEPTH) {
        let depth = from..depth.min(from + DEPTH);
        let mut packed = vec![T::zero(); rows.next_multiple_of(BAND) * depth.len()];
        let (bands, numbers) = (rows.div_ceil(BAND), BAND * depth.len());
        let (pieces, offset) = (tasks(packed.len()).min(bands), |band: usize| band * numbers);
        over_parts(
            pieces,
            &|piece| piece * bands / pieces,
            ByRow::new(&mut packed, &offset),
            &|own, into| {
                run(Pack { strip: a, first: own.start * BAND, depth: depth.clone(), into: into.all().0 });
            },
        );
        let offset = |column: usize| column * stride;
        over_parts(parts, &bound, ByRow::new(c, &offset), &|own, c| {
            let (c, _) = c.all();
            for (at, group) in own.clone().step_by(WIDTH).enumerate() {
                let group = group..own.end.min(group + WIDTH);
                if phase.advance(work(group.clone(), depth.len())).is_err() {
                    return;
                }
                let c = &mut c[at * WIDTH * stride..][..group.len() * stride];
                run(Tiles { c, stride, skip, rows, packed: &packed, b, group, depth: depth.clone(), lower });
            }
        });
        phase.check()?;
    }
    Ok(())
}

/// Task that factorizes the diagonal block of some columns.
struct Diagonal<'a, T> {
    a: &'a mut [T],
    stride: usize,
    /// Row of the first diagonal entry.
    first: usize,
    least: &'a [T],
}

impl<T: Value> Task for Diagonal<'_, T> {
    type Output = Result<(), Refused<T>>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Result<(), Refused<T>> {
        let Diagonal { a, stride, first, least } = self;
        let columns = least.len();
        for j in 0..columns {
            let (before, own) = a.split_at_mut(j * stride);
            let own = &mut own[first + j..first + columns];
            for other in before.chunks_exact(stride) {
                let other = &other[first + j..first + columns];
                let factor = -other[0];
                own.iter_mut().zip(other).for_each(|(v, &l)| *v = S::mul_add(l, factor, *v));
            }
            let pivot = own[0];
            if pivot <= least[j] || !pivot.is_finite() {
                return Err(Refused::Pivot { at: first + j, value: pivot });
            }
            let root = pivot.sqrt();
            own.iter_mut().for_each(|v| *v /= root);
        }
        Ok(())
    }
}

/// Task that overwrites some rows below a diagonal block `L` with `A₂ L⁻ᵀ`. `rows` holds their part of each
/// column.
struct Below<'a, 'r, T> {
    diagonal: &'a [&'a [T]],
    rows: &'a mut [&'r mut [T]],
}

impl<T: Value> Task for Below<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Below { diagonal, rows } = self;
        let len = rows.first().map_or(0, |rows| rows.len());
        for start in (0..len).step_by(ROWS) {
            let at = start..len.min(start + ROWS);
            for j in 0..rows.len() {
                let (before, own) = rows.split_at_mut(j);
                let own = &mut own[0][at.clone()];
                for (diagonal, other) in diagonal.iter().zip(before) {
                    let factor = -diagonal[j];
                    own.iter_mut().zip(&other[at.clone()]).for_each(|(v, &l)| *v = S::mul_add(l, factor, *v));
                }
                let root = diagonal[j][j];
                own.iter_mut().for_each(|v| *v /= root);
            }
        }
    }
}

/// Task that performs a small update column by column.
struct Few<'a, T> {
    c: &'a mut [T],
    stride: usize,
    skip: usize,
    a: Strip<'a, T>,
    b: Strip<'a, T>,
    depth: usize,
    lower: bool,
}

impl<T: Value> Task for Few<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Few { c, stride, skip, a, b, depth, lower } = self;
        for (j, c) in c.chunks_exact_mut(stride).enumerate() {
            let from = if lower { j } else { 0 };
            let c = &mut c[skip + from..skip + a.rows];
            for k in 0..depth {
                let factor = -b.column(k)[j];
                c.iter_mut().zip(&a.column(k)[from..]).for_each(|(c, &a)| *c = S::mul_add(a, factor, *c));
            }
        }
    }
}

/// Task that packs the rows of each tile contiguously, with zeros after the last row.
struct Pack<'a, T> {
    strip: Strip<'a, T>,
    /// First row.
    first: usize,
    depth: Range<usize>,
    into: &'a mut [T],
}

impl<T: Value> Task for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Pack { strip, first, depth, into } = self;
        let height = 2 * T::In::<S>::COUNT;
        for (at, tile) in into.chunks_exact_mut(height * depth.len()).enumerate() {
            let start = first + at * height;
            let rows = start.min(strip.rows)..(start + height).min(strip.rows);
            for (k, to) in depth.clone().zip(tile.chunks_exact_mut(height)) {
                let from = &strip.column(k)[rows.clone()];
                to[..from.len()].copy_from_slice(from);
            }
        }
    }
}

/// Task that updates some columns with register tiles.
struct Tiles<'a, T> {
    c: &'a mut [T],
    stride: usize,
    skip: usize,
    rows: usize,
    packed: &'a [T],
    b: Strip<'a, T>,
    group: Range<usize>,
    depth: Range<usize>,
    lower: bool,
}

impl<T: Value> Task for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Tiles { c, stride, skip, rows, packed, b, group, depth, lower } = self;
        let (height, deep) = (2 * T::In::<S>::COUNT, depth.len());
        let mut right = [T::zero(); WIDTH * DEPTH];
        for (k, depth) in depth.enumerate() {
            for (j, &value) in b.column(depth)[group.clone()].iter().enumerate() {
                right[(j / COLUMNS * deep + k) * COLUMNS + j % COLUMNS] = value;
            }
        }
        for (at, left) in packed.chunks_exact(height * deep).enumerate() {
            let own = at * height..rows.min((at + 1) * height);
            for (tile, columns) in c.chunks_mut(COLUMNS * stride).enumerate() {
                let first = group.start + tile * COLUMNS;
                if own.is_empty() || lower && own.end <= first {
                    break;
                }
                let right = &right[tile * COLUMNS * deep..][..COLUMNS * deep];
                let mut sums = [T::zero(); 2 * MOST_LANES * COLUMNS];
                // SAFETY: the caller has the features of `S`; `left` has `deep * height` numbers, `right`
                // `deep * COLUMNS`
                unsafe { tile_product::<T, S>(left, right, &mut sums) };
                for (j, (c, sums)) in
                    columns.chunks_exact_mut(stride).zip(sums.chunks_exact(height)).enumerate()
                {
                    let above = if lower { (first + j).saturating_sub(own.start).min(own.len()) } else { 0 };
                    let c = &mut c[skip + own.start + above..skip + own.end];
                    c.iter_mut().zip(&sums[above..]).for_each(|(c, &sum)| *c -= sum);
                }
            }
        }
    }
}

/// Multiplies two registers of rows with [`COLUMNS`] columns; stores the results column by column.
///
/// # Safety
/// The CPU has the features of `S`.
#[inline(always)]
unsafe fn tile_product<T: Value, S: Simd>(left: &[T], right: &[T], sums: &mut [T; 2 * MOST_LANES * COLUMNS]) {
    let count = T::In::<S>::COUNT;
    // SAFETY: the caller has the features; chunks have two registers and `COLUMNS` numbers, and `sums` is
    // large enough for every tile
    unsafe {
        let mut tile = [[T::In::<S>::splat(T::zero()); 2]; COLUMNS];
        for (left, right) in left.chunks_exact(2 * count).zip(right.chunks_exact(COLUMNS)) {
            let [low, high] = [T::In::<S>::load(left.as_ptr()), T::In::<S>::load(left.as_ptr().add(count))];
            for j in 0..COLUMNS {
                let factor = T::In::<S>::splat(right[j]);
                tile[j] = [low.mul_add(factor, tile[j][0]), high.mul_add(factor, tile[j][1])];
            }
        }
        for (tile, sums) in tile.iter().zip(sums.chunks_exact_mut(2 * count)) {
            tile[0].store(sums.as_mut_ptr());
            tile[1].store(sums.as_mut_ptr().add(count));
        }
    }
}

/// Forward substitution `x ← L⁻¹ x` for the columns of a front, then `taken ← taken + L₂ x`, where `L₂` are
/// the rows below. Both arrays hold several vectors, one after the other; each column of `L` is read once for
/// all of them.
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn forward<T: Value>(a: &[T], stride: usize, vectors: usize, x: &mut [T], taken: &mut [T]) {
    let sizes = check_front(a, stride, vectors, x, taken);
    run(Forward { a, stride, sizes, x, taken });
}

/// Checks the sizes, and returns the numbers of vectors, columns and rows below the columns of a front.
fn check_front<T>(a: &[T], stride: usize, vectors: usize, x: &[T], others: &[T]) -> [usize; 3] {
    assert!(
        x.len() + others.len() == stride * vectors && a.len() * vectors == stride * x.len(),
        "the front has a row for each entry of the vectors"
    );
    [vectors, x.len() / vectors.max(1), others.len() / vectors.max(1)]
}

struct Forward<'a, T> {
    a: &'a [T],
    stride: usize,
    sizes: [usize; 3],
    x: &'a mut [T],
    taken: &'a mut [T],
}

impl<T: Value> Task for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Forward { a, stride, sizes: [vectors, columns, below], x, taken } = self;
        for (j, l) in a.chunks_exact(stride).enumerate() {
            for v in 0..vectors {
                let (x, taken) = (&mut x[v * columns..][..columns], &mut taken[v * below..][..below]);
                let solved = x[j] / l[j];
                x[j] = solved;
                add::<T, S>(&mut x[j + 1..], &l[j + 1..columns], -solved);
                add::<T, S>(taken, &l[columns..], solved);
            }
        }
    }
}

/// Backward substitution `x ← L⁻ᵀ (x − L₂ᵀ below)` for the columns of a front. Vectors are stored as in
/// [`forward`].
///
/// # Panics
/// Panics if sizes do not fit each other.
pub fn backward<T: Value>(a: &[T], stride: usize, vectors: usize, x: &mut [T], below: &[T]) {
    let sizes = check_front(a, stride, vectors, x, below);
    run(Backward { a, stride, sizes, x, below });
}

struct Backward<'a, T> {
    a: &'a [T],
    stride: usize,
    sizes: [usize; 3],
    x: &'a mut [T],
    below: &'a [T],
}

impl<T: Value> Task for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Backward { a, stride, sizes: [vectors, columns, rows], x, below } = self;
        for (j, l) in a.chunks_exact(stride).enumerate().rev() {
            for v in 0..vectors {
                let (x, below) = (&mut x[v * columns..][..columns], &below[v * rows..][..rows]);
                let sum = dot::<T, S>(&l[j + 1..columns], &x[j + 1..]) + dot::<T, S>(&l[columns..], below);
                x[j] = (x[j] - sum) / l[j];
            }
        }
    }
}

/// `to ← to + factor from`
#[inline(always)]
fn add<T: Value, S: Simd>(to: &mut [T], from: &[T], factor: T) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = S::mul_add(from, factor, *to);
    }
}

/// `⟨x, y⟩` with as many partial sums as the widest register has lanes.
#[inline(always)]
fn dot<T: Value, S: Simd>(x: &[T], y: &[T]) -> T {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<MOST_LANES>(), y.as_chunks::<MOST_LANES>());
    let rest = x_rest.iter().zip(y_rest).fold(T::zero(), |sum, (&x, &y)| S::mul_add(x, y, sum));
    // most columns of small fronts are shorter: adding up the lanes would take longer than the products
    if x.is_empty() {
        return rest;
    }
    let mut sums = [T::zero(); MOST_LANES];
    for (x, y) in x.iter().zip(y) {
        for lane in 0..MOST_LANES {
            sums[lane] = S::mul_add(x[lane], y[lane], sums[lane]);
        }
    }
    // in pairs, because a chain of additions would wait for each of them
    let mut lanes = MOST_LANES / 2;
    while lanes > 0 {
        for lane in 0..lanes {
            let other = sums[lane + lanes];
            sums[lane] += other;
        }
        lanes /= 2;
    }
    rest + sums[0]
}
