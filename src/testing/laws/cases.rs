//! Matrices with sizes and shapes at which formats and threads change their behaviour.

use crate::testing::matrices::{Triplets, edge, random_rows};

/// A matrix and its name.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the matrix.
    pub name: String,
    /// The matrix.
    pub triplets: Triplets,
}

/// The matrices of [`edge::edge_cases`] (unusual shapes and row lengths, repeated entries, explicit zeros),
/// and matrices of about two chunks of rows.
pub fn cases() -> Vec<Case> {
    let mut cases = edge::edge_cases();
    for n in 1535..=1537 {
        cases.push((format!("tridiagonal {n}"), edge::tridiagonal(n)));
        cases.push((format!("rows of 0 to 6 entries, {n} x {n}"), random_rows(n, n, 1, |row| row % 7)));
        cases.push((format!("{n} x 40"), random_rows(n, 40, 2, |row| row * row % 5)));
    }
    cases.push(("0 x 769".into(), edge::empty(0, 769)));
    cases.push(("769 x 0".into(), edge::empty(769, 0)));
    cases.into_iter().map(|(name, triplets)| Case { name, triplets }).collect()
}

/// Matrices so large that each block of a reduction has several chunks: more rows than `BLOCKS · CHUNK` = 196,608. One
/// matrix has rows of 0 to 4 entries and one row of 5,000. The other is symmetric, with blocks of 3 on the diagonal and
/// few other entries.
pub fn large_cases() -> Vec<Case> {
    let n = 196_608 + 780;
    let value = |i: u32, k: u32| f64::from((i * 7 + k * 3) % 11) - 4.5;
    let (mut ragged, mut blocks) = (Vec::new(), Vec::new());
    for i in 0..n as u32 {
        if i == 100_000 {
            ragged.extend((0..5000).map(|k| (i, k * 39, value(i, k))));
        } else {
            ragged.extend((0..i % 5).map(|k| (i, (i + k * k * 41) % n as u32, value(i, k))));
        }
        let columns = (0..3).map(|k| i / 3 * 3 + k);
        blocks.extend(columns.map(|j| (i, j, value(i.min(j), i.abs_diff(j)))));
        if i % 100 == 0 && i + 1000 < n as u32 {
            blocks.extend([(i, i + 1000, value(i, 4)), (i + 1000, i, value(i, 4))]);
        }
    }
    [("rows of 0 to 5000 entries", ragged), ("symmetric, blocks of 3", blocks)]
        .map(|(name, entries)| Case {
            name: format!("{name}, {n} x {n}"),
            triplets: Triplets { rows: n, cols: n, entries },
        })
        .into()
}

/// Rounds the values of the cases to multiples of 2⁻¹², so that the values and their sums are exact in `f32`.
pub fn coarse(mut cases: Vec<Case>) -> Vec<Case> {
    let values = cases.iter_mut().flat_map(|case| &mut case.triplets.entries).map(|entry| &mut entry.2);
    values.for_each(|value| *value = (*value * 4096.0).round() / 4096.0);
    cases
}
