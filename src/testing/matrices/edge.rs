//! Edge cases for formats: unusual shapes, empty rows, full rows, and sizes around those of lanes, warps and blocks.

use super::Triplets;
use super::numbers::SplitMix;
use super::triplets::{ordinary, random, random_rows};

/// Sizes equal to, just below and just above those of SIMD lanes, warps, blocks and their multiples.
pub const EDGE_SIZES: [usize; 21] =
    [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 767, 768, 769];

/// A matrix without entries.
pub fn empty(rows: usize, cols: usize) -> Triplets {
    Triplets { rows, cols, entries: Vec::new() }
}

fn square(n: usize, entries: Vec<(u32, u32, f64)>) -> Triplets {
    Triplets { rows: n, cols: n, entries }
}

/// diag(1, …, n): n distinct eigenvalues.
pub fn diagonal(n: usize) -> Triplets {
    square(n, (0..n as u32).map(|i| (i, i, f64::from(i) + 1.0)).collect())
}

/// The 1-d Laplacian, (-1, 2, -1): positive definite, eigenvalues `2 - 2 cos(k π / (n + 1))`.
pub fn tridiagonal(n: usize) -> Triplets {
    let last = (n as u32).saturating_sub(1);
    let entries = (0..n as u32).flat_map(|i| {
        let below = (i > 0).then(|| (i, i - 1, -1.0));
        let above = (i < last).then(|| (i, i + 1, -1.0));
        below.into_iter().chain([(i, i, 2.0)]).chain(above)
    });
    square(n, entries.collect())
}

/// A full first row, a full first column and the diagonal. Positive definite; elimination in this order gives
/// a full factor.
pub fn arrow(n: usize) -> Triplets {
    let mut entries = Vec::with_capacity(3 * n);
    for i in 0..n as u32 {
        entries.push((i, i, if i == 0 { n as f64 } else { 2.0 }));
        if i > 0 {
            entries.extend([(0, i, -1.0), (i, 0, -1.0)]);
        }
    }
    square(n, entries)
}

/// `A eᵢ = eᵢ₊₁`, `A eₙ₋₁ = e₀`: orthogonal, and with `b = e₀` GMRES makes no progress for n - 1 steps.
pub fn cyclic_shift(n: usize) -> Triplets {
    square(n, (0..n as u32).map(|i| ((i + 1) % n as u32, i, 1.0)).collect())
}

/// A diagonal and one full row.
pub fn dense_row(n: usize, row: usize) -> Triplets {
    let mut random = SplitMix::new(n as u64);
    let mut entries = Vec::with_capacity(2 * n);
    for i in 0..n as u32 {
        entries.push((row as u32, i, ordinary(&mut random)));
        if i as usize != row {
            entries.push((i, i, ordinary(&mut random)));
        }
    }
    square(n, entries)
}

/// A diagonal and one full column.
pub fn dense_column(n: usize, column: usize) -> Triplets {
    dense_row(n, column).transposed()
}

/// A tridiagonal matrix with every entry listed three times, far apart; the third value cancels the second.
pub fn duplicates(n: usize) -> Triplets {
    let once = tridiagonal(n);
    let scaled =
        |factor: f64| once.entries.iter().map(move |&(row, column, value)| (row, column, factor * value));
    square(n, scaled(1.0).chain(scaled(3.0)).chain(scaled(-3.0)).collect())
}

/// Explicit zeros: every third value of the diagonal is zero, and the first column has zeros of both signs.
pub fn explicit_zeros(n: usize) -> Triplets {
    let mut entries = Vec::with_capacity(2 * n);
    for i in 0..n as u32 {
        if i > 0 {
            entries.push((i, 0, if i % 2 == 0 { 0.0 } else { -0.0 }));
        }
        entries.push((i, i, if i % 3 == 0 { 0.0 } else { f64::from(i) }));
    }
    square(n, entries)
}

/// Row `i` has `length(i)` entries in consecutive columns, with values -1, 0 and 1. In a product with
/// [`whole_vector`] every partial sum is a small integer, so the product is exact in any order of summation.
pub fn whole_rows(rows: usize, cols: usize, length: impl Fn(usize) -> usize) -> Triplets {
    let mut entries = Vec::new();
    for row in 0..rows {
        entries.extend((row..row + length(row).min(cols)).map(|at| {
            let value = (at % 3) as f64 - 1.0;
            (row as u32, (at % cols) as u32, value)
        }));
    }
    Triplets { rows, cols, entries }
}

/// Like [`whole_rows`], with the entries of a row in columns far from each other.
fn far_apart(rows: usize, cols: usize, length: impl Fn(usize) -> usize) -> Triplets {
    let mut all = whole_rows(rows, cols, length);
    all.entries.iter_mut().for_each(|(_, column, _)| *column = (*column as usize * 104_729 % cols) as u32);
    all
}

/// -2, -1, 0, 1, 2, repeated.
pub fn whole_vector(length: usize) -> Vec<f64> {
    (0..length).map(|j| (j % 5) as f64 - 2.0).collect()
}

/// Matrices that are hard to divide among threads: one row of `size` entries, alone or among short rows; all rows empty
/// except one at either end or in the middle; a gap of `size / 10` empty rows; every second row empty, or none; entries
/// far apart.
pub fn extreme_rows(size: usize) -> Vec<(&'static str, Triplets)> {
    let (rows, gap) = (size / 5, size / 10);
    let but_one = move |one: usize| move |row: usize| if row == one { 300 } else { 0 };
    let at_gap = move |row: usize| if (gap / 3..gap / 3 + gap).contains(&row) { 0 } else { 1 + row % 5 };
    vec![
        ("one row", whole_rows(1, size, |_| size)),
        (
            "one row among short ones",
            whole_rows(gap, size, |row| if row == gap / 2 { size } else { row % 4 }),
        ),
        ("all empty but the first", whole_rows(rows, 1000, but_one(0))),
        ("all empty but one in the middle", whole_rows(rows, 1000, but_one(rows / 2))),
        ("all empty but the last", whole_rows(rows, 1000, but_one(rows - 1))),
        ("a gap", whole_rows(2 * gap, 5000, at_gap)),
        ("every second row is empty", whole_rows(rows, 5000, |row| row % 2 * (1 + row % 7))),
        ("no row is empty", whole_rows(rows, 5000, |row| 1 + row % 3)),
        ("entries far apart", far_apart(1000, size, |row| row % 60)),
    ]
}

/// One row for each of [`EDGE_SIZES`], followed by an empty row: `2 · 21` rows of up to 769 entries.
pub fn every_row_length() -> Triplets {
    random_rows(2 * EDGE_SIZES.len(), EDGE_SIZES[EDGE_SIZES.len() - 1], 11, |row| {
        if row % 2 == 0 { EDGE_SIZES[row / 2] } else { 0 }
    })
}

/// The matrices of this module and random ones, with names, at many sizes; without [`whole_rows`] and [`extreme_rows`].
pub fn edge_cases() -> Vec<(String, Triplets)> {
    let mut cases = Vec::new();
    let mut case = |name: String, triplets: Triplets| cases.push((name, triplets));
    for (rows, cols) in [(0, 0), (0, 5), (5, 0), (1, 1), (33, 33), (7, 300)] {
        case(format!("empty {rows} x {cols}"), empty(rows, cols));
    }
    for n in EDGE_SIZES {
        case(format!("diagonal {n}"), diagonal(n));
        case(format!("tridiagonal {n}"), tridiagonal(n));
        case(format!("cyclic shift {n}"), cyclic_shift(n));
        case(format!("arrow {n}"), arrow(n));
        case(format!("dense row {} of {n}", n / 2), dense_row(n, n / 2));
        case(format!("dense column {} of {n}", n / 2), dense_column(n, n / 2));
        case(format!("rows of 0 to 6 entries, {n} x {n}"), random_rows(n, n, 1, |row| row % 7));
        case(format!("one entry, last of {n} x {n}"), square(n, vec![(n as u32 - 1, n as u32 - 1, 2.0)]));
        case(format!("one full row of {n}"), random_rows(1, n, 2, |_| n));
        case(format!("one full column of {n}"), random_rows(n, 1, 3, |_| 1));
    }
    case("every row length".into(), every_row_length());
    case("every column length".into(), every_row_length().transposed());
    for n in [1, 3, 32, 100] {
        case(format!("duplicates {n}"), duplicates(n));
        case(format!("explicit zeros {n}"), explicit_zeros(n));
    }
    for (rows, cols, density) in
        [(100, 70, 0.1), (70, 100, 0.1), (300, 300, 0.02), (20, 20, 1.0), (65, 1000, 0.05)]
    {
        case(format!("random {rows} x {cols}"), random(rows, cols, density, 4));
        case(format!("random {rows} x {cols}, shuffled"), random(rows, cols, density, 5).shuffled(6));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_cases_have_entries_in_range_and_distinct_names() {
        let cases = edge_cases();
        let names: HashSet<_> = cases.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), cases.len());
        for (name, case) in &cases {
            let inside = |&(row, column, _): &(u32, u32, f64)| {
                (row as usize) < case.rows && (column as usize) < case.cols
            };
            assert!(case.entries.iter().all(inside), "{name}");
        }
    }

    #[test]
    fn only_the_matrix_of_duplicates_repeats_positions() {
        for (name, case) in edge_cases() {
            let positions: HashSet<_> = case.entries.iter().map(|&(row, column, _)| (row, column)).collect();
            let times = if name.starts_with("duplicates") { 3 } else { 1 };
            assert_eq!(case.entries.len(), times * positions.len(), "{name}");
        }
    }

    #[test]
    fn products_follow_the_definitions() {
        let x = [1.0, 10.0, 100.0];
        assert_eq!(diagonal(3).product_reference(&x).0, [1.0, 20.0, 300.0]);
        assert_eq!(tridiagonal(3).product_reference(&x).0, [-8.0, -81.0, 190.0]);
        assert_eq!(duplicates(3).product_reference(&x).0, [-8.0, -81.0, 190.0]);
        assert_eq!(arrow(3).product_reference(&x).0, [3.0 - 110.0, 19.0, 199.0]);
        assert_eq!(cyclic_shift(3).product_reference(&x).0, [100.0, 1.0, 10.0]);
        assert_eq!(explicit_zeros(3).product_reference(&x).0, [0.0, 10.0, 200.0]);
        assert_eq!(explicit_zeros(3).entries.len(), 5);
    }

    #[test]
    fn row_lengths_are_as_requested() {
        let case = every_row_length();
        for (k, &size) in EDGE_SIZES.iter().enumerate() {
            let length = |row: usize| case.entries.iter().filter(|entry| entry.0 as usize == row).count();
            assert_eq!((length(2 * k), length(2 * k + 1)), (size, 0));
        }
        assert_eq!(dense_row(9, 4).entries.iter().filter(|entry| entry.0 == 4).count(), 9);
        assert_eq!(dense_column(9, 4).entries.iter().filter(|entry| entry.1 == 4).count(), 9);
    }
}
