//! Parallel loops over rows.
//!
//! Rows form chunks of [`CHUNK`] rows, which fused operations keep in the L1 cache; chunks form blocks, the
//! units of a reduction. The length of a block depends on the number of rows only, and block sums are added
//! in a fixed tree, so reductions are bitwise the same for every number of threads.

use crate::buffer::in_huge_pages;
use crate::cpu::tuning::{SERIAL, SERIAL_ON_VECTORS, TASKS_PER_THREAD};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rows per chunk: a multiple of every SIMD width, slice height and small block size.
pub const CHUNK: usize = 768;

/// Maximum number of blocks of a vector. Guess, chosen as more than the threads of most machines, and
/// few enough to be summed by one.
pub const BLOCKS: usize = 256;

/// Rows per block for vectors with `rows` entries: a multiple of [`CHUNK`].
pub fn block_rows(rows: usize) -> usize {
    rows.div_ceil(BLOCKS).next_multiple_of(CHUNK).max(CHUNK)
}

/// Number of tasks for a loop that moves `numbers` values.
pub fn tasks(numbers: usize) -> usize {
    tasks_from(SERIAL, numbers)
}

/// Number of tasks for a loop that moves `numbers` values, and runs on one thread below `least`.
fn tasks_from(least: usize, numbers: usize) -> usize {
    match rayon::current_num_threads() {
        1 => 1,
        _ if numbers < least => 1,
        threads => (numbers / (least / 4)).min(threads * TASKS_PER_THREAD),
    }
}

/// Data that can be split by rows, to hand its parts to threads.
pub trait Split: Sized + Send {
    /// Splits into the first `rows` rows and the rest.
    fn split(self, rows: usize) -> (Self, Self);
}

impl<T: Send> Split for &mut [T] {
    fn split(self, rows: usize) -> (Self, Self) {
        self.split_at_mut(rows)
    }
}

/// Splits all arrays at the same row. An array with fewer entries than there are rows yields an empty slice
/// for every part behind its end.
impl<T: Send, const N: usize> Split for [&mut [T]; N] {
    fn split(mut self, rows: usize) -> (Self, Self) {
        let rest = self.each_mut().map(|part| {
            let rows = rows.min(part.len());
            let (first, rest) = std::mem::take(part).split_at_mut(rows);
            *part = first;
            rest
        });
        (self, rest)
    }
}

impl Split for () {
    fn split(self, _: usize) -> (Self, Self) {
        ((), ())
    }
}

impl<A: Split, B: Split> Split for (A, B) {
    fn split(self, rows: usize) -> (Self, Self) {
        let ((a, c), (b, d)) = (self.0.split(rows), self.1.split(rows));
        ((a, b), (c, d))
    }
}

/// An array with rows of different lengths, split between threads by rows.
pub struct ByRow<'a, X> {
    data: &'a mut [X],
    first: usize,
    offset: &'a (dyn Fn(usize) -> usize + Sync),
}

impl<'a, X> ByRow<'a, X> {
    /// Wraps an array in which row `i` begins at `offset(i)`.
    pub fn new(data: &'a mut [X], offset: &'a (dyn Fn(usize) -> usize + Sync)) -> Self {
        ByRow::starting(0, data, offset)
    }

    /// Wraps the part of an array that begins with row `first`.
    pub fn starting(first: usize, data: &'a mut [X], offset: &'a (dyn Fn(usize) -> usize + Sync)) -> Self {
        ByRow { data, first, offset }
    }

    /// Entries of one row of this part.
    pub fn row_mut(&mut self, row: usize, len: usize) -> &mut [X] {
        let start = (self.offset)(row) - (self.offset)(self.first);
        &mut self.data[start..start + len]
    }

    /// All entries of this part, and the offset of the first in the whole array.
    pub fn all(self) -> (&'a mut [X], usize) {
        (self.data, (self.offset)(self.first))
    }
}

impl<X: Send> Split for ByRow<'_, X> {
    fn split(self, rows: usize) -> (Self, Self) {
        let ByRow { data, first, offset } = self;
        let (a, b) = data.split_at_mut(offset(first + rows) - offset(first));
        (ByRow { data: a, first, offset }, ByRow { data: b, first: first + rows, offset })
    }
}

/// Results of a reduction, one per block of rows.
pub struct PerBlock<'r, R> {
    results: &'r mut [R],
    block: usize,
}

impl<R: Send> Split for PerBlock<'_, R> {
    fn split(self, rows: usize) -> (Self, Self) {
        let (a, b) = self.results.split_at_mut(rows / self.block);
        (PerBlock { results: a, block: self.block }, PerBlock { results: b, block: self.block })
    }
}

impl<R> PerBlock<'_, R> {
    /// Computes the result of every block in `rows`, which are the rows of this part.
    pub fn fill(self, rows: Range<usize>, mut block: impl FnMut(Range<usize>) -> R) {
        for (i, result) in self.results.iter_mut().enumerate() {
            let start = rows.start + i * self.block;
            *result = block(start..rows.end.min(start + self.block));
        }
    }
}

/// Runs two tasks once each, on two threads if another one is idle. `rayon::join` is compiled for each pair of
/// closures, which was a fifth of the code of the library; this function is compiled once.
#[inline(never)]
pub fn join(first: &mut (dyn FnMut() + Send), second: &mut (dyn FnMut() + Send)) {
    rayon::join(first, second);
}

/// Runs `work` on every part, on all threads. There are `count` parts; part `i` has rows `bound(i)` to
/// `bound(i + 1)`.
///
/// Each thread begins with the parts at its own place in the rows, and takes parts of other threads only after
/// these. So successive loops over vectors and matrices of the same rows find them in the caches of the
/// same cores, and a thread that is late does not delay the others.
pub fn over_parts<D: Split>(
    count: usize,
    bound: &(impl Fn(usize) -> usize + Sync),
    data: D,
    work: &(impl Fn(Range<usize>, D) + Sync),
) {
    // `bound` and `work` are trait objects, so that this function is compiled once per type of data instead
    // of once per caller
    fn distribute<D: Split>(
        parts: Range<usize>,
        bound: &(dyn Fn(usize) -> usize + Sync),
        mut data: D,
        work: &(dyn Fn(usize, D) + Sync),
    ) {
        let threads = rayon::current_num_threads();
        if threads > 1 && parts.len() > PARTS {
            let middle = parts.start + parts.len() / 2;
            let (first, second) = data.split(bound(middle) - bound(parts.start));
            let (mut first, mut second) = (Some(first), Some(second));
            let half = |parts: Range<usize>, data: &mut Option<D>| {
                if let Some(data) = data.take() {
                    distribute(parts, bound, data, work);
                }
            };
            return join(&mut || half(parts.start..middle, &mut first), &mut || {
                half(middle..parts.end, &mut second)
            });
        }
        // the last part has all data that are left, such as a block of fewer rows
        let last = parts.end - 1;
        if threads == 1 {
            for part in parts.start..last {
                let (first, rest) = data.split(bound(part + 1) - bound(part));
                data = rest;
                work(part, first);
            }
            return work(last, data);
        }
        // on the stack, because a product allocates nothing
        let split: [Mutex<Option<D>>; PARTS] = std::array::from_fn(|_| Mutex::new(None));
        let at = |part: usize| split[part - parts.start].lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts.start..last {
            let (first, rest) = data.split(bound(part + 1) - bound(part));
            data = rest;
            *at(part) = Some(first);
        }
        *at(last) = Some(data);
        in_place(parts.len(), &|part| {
            let part = parts.start + part;
            let data = at(part).take();
            if let Some(data) = data {
                work(part, data);
            }
        });
    }
    match count {
        0 => {}
        1 => work(bound(0)..bound(1), data),
        _ => distribute(0..count, bound, data, &|part, data| work(bound(part)..bound(part + 1), data)),
    }
}

/// Maximum number of parts that are distributed together, and of queues of parts: as many as a vector has blocks
/// at most, and few enough for the stack of a thread.
const PARTS: usize = BLOCKS;
const QUEUES: usize = 64;

/// Calls `work` once for each part, on all threads, each of which prefers the parts at its place.
fn in_place(count: usize, work: &(dyn Fn(usize) + Sync)) {
    fn run(count: usize, queues: &Queues, work: &(dyn Fn(usize) + Sync)) {
        if count == 1 {
            if let Some(part) = queues.take() {
                work(part);
            }
            return;
        }
        // the tasks are alike: which part a task computes is decided when a thread runs it
        let half = count / 2;
        join(&mut || run(count - half, queues, work), &mut || run(half, queues, work));
    }
    run(count, &Queues::new(count), work);
}

/// Parts that have not been begun: a queue for each thread, or for several if there are more than [`QUEUES`].
struct Queues {
    queues: [Queue; QUEUES],
    threads: usize,
}

/// The parts at the place of one thread. Aligned to two cache lines, which processors fetch together.
#[repr(align(128))]
struct Queue {
    next: AtomicUsize,
    end: usize,
}

impl Queues {
    fn new(count: usize) -> Queues {
        let threads = rayon::current_num_threads();
        let used = threads.min(QUEUES);
        // those that are not used stay empty
        let first = |queue: usize| count * queue.min(used) / used;
        let queue = |queue: usize| Queue { next: AtomicUsize::new(first(queue)), end: first(queue + 1) };
        Queues { queues: std::array::from_fn(queue), threads }
    }

    /// A part for this thread: from its own queue, or else from the next one that has parts.
    fn take(&self) -> Option<usize> {
        let used = self.threads.min(QUEUES);
        let own = rayon::current_thread_index().unwrap_or(0) * used / self.threads;
        (0..used).find_map(|offset| {
            let queue = &self.queues[(own + offset) % used];
            // reads before it writes, so that empty queues stay shared between caches
            let left = queue.next.load(Ordering::Relaxed) < queue.end;
            let part = if left { queue.next.fetch_add(1, Ordering::Relaxed) } else { queue.end };
            (part < queue.end).then_some(part)
        })
    }
}

/// Like [`over_parts`], with parts that begin at block boundaries; sums the `K` values that `work` computes
/// for each block.
pub fn sum_over_parts<T, const K: usize, D: Split>(
    count: usize,
    bound: &(impl Fn(usize) -> usize + Sync),
    data: D,
    work: &(impl Fn(Range<usize>, D, PerBlock<'_, [T; K]>) + Sync),
) -> [T; K]
where
    T: num_traits::Zero + Copy + Send,
{
    let rows = bound(count);
    let block = block_rows(rows);
    let mut results = [[T::zero(); K]; BLOCKS];
    let results = &mut results[..rows.div_ceil(block)];
    let per_block = PerBlock { results, block };
    over_parts(count, bound, (data, per_block), &|rows, (data, sums)| work(rows, data, sums));
    tree_sum(results)
}

fn tree_sum<T: num_traits::Zero + Copy, const K: usize>(sums: &[[T; K]]) -> [T; K] {
    match sums {
        [] => [T::zero(); K],
        [one] => *one,
        _ => {
            let (a, b) = sums.split_at(sums.len() / 2);
            let (a, b) = (tree_sum(a), tree_sum(b));
            std::array::from_fn(|k| a[k] + b[k])
        }
    }
}

/// Runs `work` over all rows of vectors of equal length, of which `streams` are read or written.
pub fn over_rows<D: Split>(rows: usize, streams: usize, data: D, work: &(impl Fn(Range<usize>, D) + Sync)) {
    let (count, bound) = even(rows, streams);
    over_parts(count, &bound, data, work);
}

/// Like [`over_rows`], for rows that take long: parts begin at any row, so that few rows suffice for all threads.
pub fn over_long_rows<D: Split>(
    rows: usize,
    streams: usize,
    data: D,
    work: &(impl Fn(Range<usize>, D) + Sync),
) {
    let parts = tasks(rows * streams).clamp(1, rows.max(1));
    over_parts(parts, &|part| part * rows / parts, data, work);
}

/// Fills an array whose rows (or groups of rows) are contiguous: calls
/// `fill(rows, part, index of the part's first element)` on all threads.
pub fn fill_by_rows<X: Send>(
    rows: usize,
    data: &mut [X],
    offset: &(dyn Fn(usize) -> usize + Sync),
    fill: &(impl Fn(Range<usize>, &mut [X], usize) + Sync),
) {
    over_rows(rows, 8, ByRow::new(data, offset), &|rows, part: ByRow<'_, X>| {
        let (part, first) = part.all();
        fill(rows, part, first);
    });
}

/// Computes a result for each of `rows` rows; each row reads or writes `streams` values.
pub fn map_rows<R: Default + Clone + Send>(
    rows: usize,
    streams: usize,
    result: &(impl Fn(usize) -> R + Sync),
) -> Vec<R> {
    let mut results = vec![R::default(); rows];
    in_huge_pages(&mut results);
    over_rows(rows, streams, results.as_mut_slice(), &|rows, results: &mut [R]| {
        for (row, to) in rows.zip(results) {
            *to = result(row);
        }
    });
    results
}

/// First of `rows` rows for which `wanted` is true; each test reads `streams` values.
pub fn find_row(rows: usize, streams: usize, wanted: &(impl Fn(usize) -> bool + Sync)) -> Option<usize> {
    // a search that ends soon wakes no other thread
    if let Some(row) = (0..rows.min(CHUNK)).find(|&row| wanted(row)) {
        return Some(row);
    }
    let first = AtomicUsize::new(usize::MAX);
    over_rows(rows, streams, (), &|mut rows, ()| {
        if let Some(row) = rows.find(|&row| wanted(row)) {
            first.fetch_min(row, Ordering::Relaxed);
        }
    });
    Some(first.into_inner()).filter(|&row| row < rows)
}

/// Like [`over_rows`]; sums the `K` values that `work` computes for each block.
pub fn sum_over_rows<T, const K: usize, D: Split>(
    rows: usize,
    streams: usize,
    data: D,
    work: &(impl Fn(Range<usize>, D, PerBlock<'_, [T; K]>) + Sync),
) -> [T; K]
where
    T: num_traits::Zero + Copy + Send,
{
    let (count, bound) = even(rows, streams);
    sum_over_parts(count, &bound, data, work)
}

/// Number of parts with equally many blocks, and the first row of each part.
fn even(rows: usize, streams: usize) -> (usize, impl Fn(usize) -> usize + Sync) {
    let block = block_rows(rows);
    let blocks = rows.div_ceil(block);
    let count = tasks_from(SERIAL_ON_VECTORS, rows * streams).min(blocks);
    (count, move |part| if part == count { rows } else { part * blocks / count * block })
}

/// Splits a range of rows into chunks.
#[inline(always)]
pub fn chunks(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(CHUNK).map(move |start| start..end.min(start + CHUNK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_length() {
        for rows in [0, 1, 767, 768, 769, 196_608, 196_609, 1_000_000, 100_000_000] {
            let block = block_rows(rows);
            assert!(block.is_multiple_of(CHUNK) && rows.div_ceil(block) <= BLOCKS, "{rows}: {block}");
        }
    }

    #[test]
    fn every_row_is_visited_once() {
        for rows in [0, 1, 5, 768, 769, 10_000, 300_000] {
            let mut visits = vec![0u8; rows];
            over_rows(rows, 8, visits.as_mut_slice(), &|range, part| {
                assert_eq!(range.len(), part.len());
                part.iter_mut().for_each(|v| *v += 1);
            });
            assert!(visits.iter().all(|&v| v == 1));
            assert!(map_rows(rows, 8, &|row| row).into_iter().eq(0..rows));
            for wanted in [0, rows / 3, rows.saturating_sub(1)] {
                let found = find_row(rows, 8, &|row| row >= wanted);
                assert_eq!(found, (rows > 0).then_some(wanted));
            }
            let [count]: [f64; 1] = sum_over_rows(rows, 8, (), &|rows, (), sums| {
                sums.fill(rows, |block| [chunks(block).map(|c| c.len() as f64).sum()]);
            });
            assert_eq!(count, rows as f64);
        }
    }

    #[test]
    fn every_part_runs_once_in_nested_loops() {
        for threads in [1, 2, 7, 80] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for count in [1, 2, 5, 256, 700] {
                let mut visits = vec![[0u8; 3]; count];
                let outer = |_: Range<usize>, of_part: &mut [[u8; 3]]| {
                    let inner = of_part.as_flattened_mut();
                    over_parts(inner.len(), &|part| part, inner, &|_, visit: &mut [u8]| visit[0] += 1);
                };
                pool.install(|| over_parts(count, &|part| part, visits.as_mut_slice(), &outer));
                assert!(visits.as_flattened().iter().all(|&count| count == 1), "{threads} threads");
            }
        }
    }
}
