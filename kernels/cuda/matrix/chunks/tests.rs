//! Checks that chunks contain all entries of a matrix, and that products computed from them are right.

use super::*;
use crate::cuda::matrix::cases::{Matrix, matrices};

/// Place where the kernel's function `put` writes the sum of a row: to `y`, or to `head` for the row `first`, which
/// began in an earlier chunk.
struct Target<'t> {
    y: &'t mut [f64],
    head: f64,
    first: u32,
}

impl Target<'_> {
    fn put(&mut self, row: u32, sum: f64) {
        let to = if row == self.first { &mut self.head } else { &mut self.y[row as usize] };
        assert!(to.is_nan(), "row {row} is written once");
        *to = sum;
    }
}

/// Word that the kernel `coo_starts` stores for a lane of a tile. Bit `k` is set if a row starts at entry `k`
/// of the lane; the bits from the fifth on hold the number of rows that start in preceding lanes of the tile.
fn word(started: &Started, tile: usize, lane: usize) -> u32 {
    let before = |entry: usize| (0..started.at.ranges()).filter(|&row| started.at.at(row) < entry).count();
    let entry = tile * TILE + lane * (TILE / WARP);
    let bits = (0..TILE / WARP).map(|k| ((before(entry + k + 1) - before(entry + k)) as u32) << k);
    bits.sum::<u32>() + 16 * (before(entry) - before(tile * TILE)) as u32
}

/// The rows of a tile's entries, decoded from the words of its lanes as in the kernel; the entry before the
/// tile belongs to row `open`.
fn rows_of_tile(started: &Started, tile: usize, open: u32) -> Vec<u32> {
    let of_lane = |lane: usize| {
        let word = word(started, tile, lane);
        let row = move |k: u32| open.wrapping_add(word / 16 + (word & ((2 << k) - 1)).count_ones());
        (0..(TILE / WARP) as u32).map(row)
    };
    (0..WARP).flat_map(of_lane).collect()
}

#[test]
fn words_lead_to_rows() {
    for matrix in &matrices() {
        for skip in [0, 3] {
            let chunks = Chunks::of_whole_rows(matrix.pattern(), skip, 1).unwrap();
            if chunks.count() > 6_000 || chunks.rows() > 5_000 {
                continue;
            }
            let started = Started::new(&chunks);
            let before = started.before(&chunks);
            assert_eq!(before.len(), chunks.chunks());
            let (mut open, mut begun) = (NONE, 0);
            for tile in 0..chunks.tiles {
                if tile % chunks.tiles_of_chunk == 0 {
                    let [row, first] = before[tile / chunks.tiles_of_chunk];
                    assert_eq!(row, open);
                    assert_eq!(first as usize, begun / (chunks.tiles_of_chunk * TILE));
                }
                let rows = rows_of_tile(&started, tile, open);
                for (entry, &row) in (tile * TILE..).zip(&rows) {
                    begun = if row == open { begun } else { entry };
                    open = row;
                }
                let row = |&row: &u32| started.rows.as_ref().map_or(row, |rows| rows[row as usize]) as usize;
                let expected = (tile * TILE..).map(|entry| chunks.row_of(entry));
                assert!(rows.iter().map(row).eq(expected.take(TILE)), "{}, {skip}, {tile}", matrix.name);
            }
        }
    }
}

/// Emulates the kernels, tile by tile: adds up each row's `products` (of its entries with those of `x`).
fn add_up(chunks: &Chunks, rows: &[u32], products: &[f64]) -> Vec<f64> {
    let mut y = vec![f64::NAN; chunks.rows()];
    let mut parts: Vec<Option<f64>> = vec![None; chunks.chunks()];
    for chunk in 0..chunks.chunks() {
        let start = chunk * chunks.tiles_of_chunk;
        let end = chunks.tiles.min(start + chunks.tiles_of_chunk);
        let first = rows[start * TILE];
        let is_shared = start > 0 && rows[start * TILE - 1] == first;
        let mut target = Target { y: &mut y, head: f64::NAN, first: if is_shared { first } else { NONE } };
        let (mut open_row, mut open_sum) = (first, 0.0);
        for tile in start..end {
            (open_row, open_sum) = tile_of(
                &rows[tile * TILE..][..TILE],
                &products[tile * TILE..][..TILE],
                (open_row, open_sum),
                &mut target,
            );
        }
        let goes_on = rows.get(end * TILE) == Some(&open_row);
        if goes_on {
            parts[chunk] = Some(open_sum);
        } else {
            target.put(open_row, open_sum);
        }
        if is_shared && !(goes_on && open_row == first) {
            let head = target.head;
            let begins = chunks.starts.at(first as usize) / (chunks.tiles_of_chunk * TILE);
            let sum: f64 =
                parts[begins..chunk].iter_mut().map(|part| part.take().expect("it was sent")).sum();
            assert!(y[first as usize].is_nan());
            y[first as usize] = sum + head;
        }
    }
    assert!(parts.iter().all(Option::is_none), "all that is sent is received");
    for row in chunks.empty() {
        assert!(y[row as usize].is_nan());
        y[row as usize] = 0.0;
    }
    y
}

/// Emulates the kernel for one tile, with all lanes in lockstep.
fn tile_of(
    rows: &[u32],
    products: &[f64],
    (open_row, open_sum): (u32, f64),
    target: &mut Target<'_>,
) -> (u32, f64) {
    let of_lane = TILE / WARP;
    let (mut head, mut tail, mut one_row) = ([0.0; WARP], [0.0; WARP], [true; WARP]);
    for lane in 0..WARP {
        let (rows, products) = (&rows[lane * of_lane..][..of_lane], &products[lane * of_lane..][..of_lane]);
        tail[lane] = products[0];
        for k in 1..of_lane {
            if rows[k] == rows[k - 1] {
                tail[lane] += products[k];
            } else {
                if one_row[lane] {
                    head[lane] = tail[lane];
                } else {
                    target.put(rows[k - 1], tail[lane]);
                }
                one_row[lane] = false;
                tail[lane] = products[k];
            }
        }
    }
    let first = |lane: usize| rows[lane * of_lane];
    let last = |lane: usize| rows[lane * of_lane + of_lane - 1];
    let continues = |lane: usize| first(lane) == if lane == 0 { open_row } else { last(lane - 1) };
    if !continues(0) {
        target.put(open_row, open_sum);
    }
    let mut sum = tail;
    if continues(0) && one_row[0] {
        sum[0] += open_sum;
    }
    let restarts = |lane: usize| lane == 0 || !one_row[lane] || !continues(lane);
    let start = |lane: usize| (0..=lane).rev().find(|&lane| restarts(lane)).unwrap();
    for step in [1, 2, 4, 8, 16] {
        let before = sum;
        for lane in step..WARP {
            if lane - step >= start(lane) {
                sum[lane] += before[lane - step];
            }
        }
    }
    for lane in 0..WARP {
        let before = if lane == 0 { open_sum } else { sum[lane - 1] };
        if !one_row[lane] {
            target.put(first(lane), if continues(lane) { before + head[lane] } else { head[lane] });
        }
        if lane + 1 < WARP && first(lane + 1) != last(lane) {
            target.put(last(lane), sum[lane]);
        }
    }
    (last(WARP - 1), sum[WARP - 1])
}

fn holds(matrix: &Matrix, skip: usize, chunks: &Chunks) {
    let pattern = matrix.pattern();
    let mut stored = matrix.triplets();
    let mut before = (usize::MAX, 0);
    stored.retain(|&(row, ..)| {
        before = if before.0 == row { (row, before.1 + 1) } else { (row, 0) };
        before.1 >= skip
    });
    assert!(stored.len() <= chunks.count(), "{}", matrix.name);
    let rows: Vec<u32> = (0..chunks.tiles * TILE).map(|k| chunks.row_of(k) as u32).collect();
    let mut values = vec![0.0; rows.len()];
    let (mut row_before, mut slot) = (None, 0);
    for &(row, _, value) in &stored {
        if row_before.replace(row) != Some(row) {
            slot = chunks.starts.at(row);
        }
        assert_eq!(rows[slot] as usize, row, "{}", matrix.name);
        values[slot] = value;
        slot += 1;
    }
    let mut y = vec![0.0; pattern.rows()];
    stored.iter().for_each(|&(row, _, value)| y[row] += value);
    assert_eq!(add_up(chunks, &rows, &values), y, "{}, {skip}", matrix.name);
}

#[test]
fn coordinates_hold_the_matrix_and_add_up() {
    for matrix in &matrices() {
        for skip in [0, 1, 3, 1000] {
            for multiprocessors in [0, 1, 132] {
                let (pattern, tight) = (matrix.pattern(), Chunks::new);
                holds(matrix, skip, &tight(pattern, skip, multiprocessors).unwrap());
                holds(matrix, skip, &Chunks::of_whole_rows(pattern, skip, multiprocessors).unwrap());
            }
        }
    }
}

/// The rows that continue in another chunk.
fn crossing(chunks: &Chunks) -> impl Iterator<Item = usize> {
    let borders = (1..chunks.chunks()).map(|chunk| chunk * chunks.tiles_of_chunk * TILE);
    borders
        .filter(|&border| chunks.row_of(border - 1) == chunks.row_of(border))
        .map(|border| chunks.row_of(border))
}

#[test]
fn short_rows_do_not_cross_borders() {
    let filled = |lengths: &[usize], of_chunk| filled_up(lengths.iter().copied(), of_chunk);
    assert_eq!(filled(&[6, 0, 3, 6, 2, 0, 1], 8), [6, 0, 3, 6, 2, 0, 1]);
    assert_eq!(filled(&[60, 0, 3, 8, 52, 0, 1, 4, 0], 64), [60, 0, 4, 8, 52, 0, 4, 4, 0]);
    assert_eq!(filled(&[200, 7, 50, 2], 64), [200, 7, 50, 2]);
    assert_eq!(filled(&[250, 7, 50, 2], 64), [256, 7, 50, 2]);
    for matrix in &matrices() {
        let chunks = Chunks::of_whole_rows(matrix.pattern(), 0, 132).unwrap();
        for row in crossing(&chunks) {
            assert!(matrix.pattern().row(row).len() * 8 > TILE * chunks.tiles_of_chunk);
        }
    }
}

#[test]
fn waves_of_chunks_are_full() {
    let of = |tiles| tiles_of_chunk(tiles, 132);
    assert_eq!([0, 1, 5280, 5281, 16 * 5280].map(of), [1, 1, 1, 2, 16]);
    // with chunks of 16 tiles, a second wave would consist of a single chunk
    assert_eq!(of(16 * 5280 + 1), 9);
    assert_eq!(tiles_of_chunk(100, 0), TILES_OF_CHUNK - 1);
    for tiles in (0..3_000_000).step_by(997) {
        assert!(of(tiles) <= TILES_OF_CHUNK && (tiles < 100_000 || of(tiles) > TILES_OF_CHUNK / 2));
    }
}

/// Uses offsets only; no entries are allocated.
#[test]
fn entries_beyond_32_bits_are_cut() {
    let lengths = [3 << 30, 0, 1 << 31, 5, 0, 1 << 33];
    let chunks = Chunks::of(Offsets::from_lengths(lengths), 132).unwrap();
    let all: usize = lengths.iter().sum();
    assert_eq!((chunks.count(), chunks.tiles), (all, all.div_ceil(TILE)));
    let at = [0, (3 << 30) - 1, 3 << 30, (5 << 30) - 1, 5 << 30, (5 << 30) + 5, all - 1, all + 1000];
    assert_eq!(at.map(|entry| chunks.row_of(entry)), [0, 0, 2, 2, 3, 5, 5, 5]);
    let of_chunk = TILE * TILES_OF_CHUNK;
    let mut rows: Vec<usize> = crossing(&chunks).collect();
    rows.dedup();
    // the chunk in which the last row begins starts with five entries of another row
    let begin = |row| (row, chunks.starts.at(row) / of_chunk);
    let border = (5usize << 30) / of_chunk;
    let expected = [(0, 0), (2, (3 << 30) / of_chunk), (5, border)];
    assert!(rows.into_iter().map(begin).eq(expected));
}
