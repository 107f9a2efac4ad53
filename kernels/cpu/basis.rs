//! Operations of one vector with all vectors of a Krylov basis: the inner products with each of them
//! (projection), or the subtraction of a linear combination of them.
//!
//! A chunk of the one vector stays in the L1 cache while the chunks of all basis vectors are read. With `k`
//! basis vectors, a projection thus reads `k + 1` vectors instead of `2 k`, and a subtraction reads or writes
//! `k + 2` instead of `3 k`.

use crate::cpu::run::threads::{Split, block_rows, chunks, over_rows, sum_over_rows};
use crate::cpu::simd::{Simd, Task, Value};
use crate::cpu::vector::{chunk_axpby, chunk_dot, run_task, task};
use std::ops::Range;

/// Vectors of equal length, stored one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'v, T> {
    /// Entries of all vectors.
    pub entries: &'v [T],
    /// Length of each vector.
    pub rows: usize,
}

impl<'v, T> Columns<'v, T> {
    #[inline(always)]
    fn chunk(&self, k: usize, rows: Range<usize>) -> &'v [T] {
        &self.entries[k * self.rows..][..self.rows][rows]
    }
}

/// Partial sums per block of rows, one for each of several vectors.
struct BlockSums<'s, T> {
    sums: &'s mut [T],
    vectors: usize,
    block: usize,
}

impl<T: Send> Split for BlockSums<'_, T> {
    fn split(self, rows: usize) -> (Self, Self) {
        let BlockSums { sums, vectors, block } = self;
        let (a, b) = sums.split_at_mut(rows / block * vectors);
        (BlockSums { sums: a, vectors, block }, BlockSums { sums: b, vectors, block })
    }
}

/// Number of partial sums that [`project`] and [`subtract_project`] need as workspace.
pub fn block_sums(rows: usize, vectors: usize) -> usize {
    rows.div_ceil(block_rows(rows)) * vectors
}

/// Subtracts `Σ_k c_k v_k` from one chunk of `w`.
#[inline(always)]
fn chunk_subtract<S: Simd, T: Value>(v: Columns<'_, T>, rows: Range<usize>, c: &[T], w: &mut [T]) {
    for (k, &c) in c.iter().enumerate() {
        chunk_axpby::<S, T>(-c, v.chunk(k, rows.clone()), T::one(), w);
    }
}

/// Adds the inner product `⟨v_k, w⟩` over one chunk to the `k`-th sum.
#[inline(always)]
fn chunk_project<S: Simd, T: Value>(v: Columns<'_, T>, rows: Range<usize>, w: &[T], sums: &mut [T]) {
    for (k, sum) in sums.iter_mut().enumerate() {
        *sum += chunk_dot::<S, T>(v.chunk(k, rows.clone()), w);
    }
}

task!(Project { v: Columns<'v, T>, first: usize, w: &'v [T], sums: &'v mut [T] } -> (), |S| {
    for chunk in chunks(0..w.len()) {
        chunk_project::<S, T>(v, first + chunk.start..first + chunk.end, &w[chunk], sums);
    }
});

/// `c_k ← ⟨v_k, w⟩`. `sums` is workspace of [`block_sums`] values.
pub fn project<T: Value>(v: Columns<'_, T>, w: &[T], c: &mut [T], sums: &mut [T]) {
    assert_eq!(v.rows, w.len(), "vectors have equal lengths");
    with_block_sums(w.len(), c.len() + 1, (), c, sums, &|rows, (), sums| {
        run_task!(Project { v, first: rows.start, w: &w[rows], sums });
    });
}

task!(SubtractProject { v: Columns<'v, T>, first: usize, c: &'v [T], w: &'v mut [T], sums: &'v mut [T] } -> (), |S| {
    for chunk in chunks(0..w.len()) {
        let rows = first + chunk.start..first + chunk.end;
        let w = &mut w[chunk];
        chunk_subtract::<S, T>(v, rows.clone(), c, w);
        chunk_project::<S, T>(v, rows, w, sums);
    }
});

/// `w ← w − Σ_k c_k v_k; d_k ← ⟨v_k, w⟩`. `sums` is workspace of [`block_sums`] values.
pub fn subtract_project<T: Value>(v: Columns<'_, T>, c: &[T], w: &mut [T], d: &mut [T], sums: &mut [T]) {
    assert_eq!(v.rows, w.len(), "vectors have equal lengths");
    with_block_sums(w.len(), d.len() + 1, w, d, sums, &|rows, w: &mut [T], sums| {
        run_task!(SubtractProject { v, first: rows.start, c, w, sums });
    });
}

/// Runs `work` on every block of rows with a partial sum for each result, then reduces the partial sums in a
/// fixed tree. `streams` is the number of vectors that are read or written.
pub(crate) fn with_block_sums<T: Value, D: Split>(
    rows: usize,
    streams: usize,
    data: D,
    results: &mut [T],
    sums: &mut [T],
    work: &(impl Fn(Range<usize>, D, &mut [T]) + Sync),
) {
    let (vectors, block) = (results.len(), block_rows(rows));
    let blocks = rows.div_ceil(block);
    let sums = &mut sums[..blocks * vectors];
    sums.fill(T::zero());
    let data = (data, BlockSums { sums, vectors, block });
    over_rows(rows, streams, data, &|rows, (mut data, all): (D, BlockSums<'_, T>)| {
        let mut start = rows.start;
        for sums in all.sums.chunks_mut(vectors.max(1)) {
            let end = rows.end.min(start + block);
            let (here, rest) = data.split(end - start);
            work(start..end, here, sums);
            (data, start) = (rest, end);
        }
    });
    for (k, result) in results.iter_mut().enumerate() {
        *result = strided_tree_sum(sums, vectors, k, 0..blocks);
    }
}

fn strided_tree_sum<T: Value>(sums: &[T], stride: usize, k: usize, blocks: Range<usize>) -> T {
    match blocks.len() {
        0 => T::zero(),
        1 => sums[blocks.start * stride + k],
        n => {
            let middle = blocks.start + n / 2;
            strided_tree_sum(sums, stride, k, blocks.start..middle)
                + strided_tree_sum(sums, stride, k, middle..blocks.end)
        }
    }
}

task!(SubtractNorm { v: Columns<'v, T>, first: usize, c: &'v [T], w: &'v mut [T] } -> T, |S| {
    let mut sum = T::zero();
    for chunk in chunks(0..w.len()) {
        let rows = first + chunk.start..first + chunk.end;
        let w = &mut w[chunk];
        chunk_subtract::<S, T>(v, rows, c, w);
        sum += chunk_dot::<S, T>(w, w);
    }
    sum
});

/// `w ← w − Σ_k c_k v_k; ⟨w, w⟩`
pub fn subtract_norm<T: Value>(v: Columns<'_, T>, c: &[T], w: &mut [T]) -> T {
    assert_eq!(v.rows, w.len(), "vectors have equal lengths");
    let [ww] = sum_over_rows(w.len(), c.len() + 2, w, &|rows, w: &mut [T], sums| {
        let start = rows.start;
        sums.fill(rows, |b| {
            let w = &mut w[b.start - start..b.end - start];
            [run_task!(SubtractNorm { v, first: b.start, c, w })]
        });
    });
    ww
}
