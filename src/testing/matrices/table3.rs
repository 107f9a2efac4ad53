//! Matrices with row lengths like those of the irregular matrices in Liu and Vinter (2015), Table 3, which
//! lists the dimensions, the number of entries, and the lengths of the shortest, mean and longest row.
//! Between the shortest and the longest, row lengths follow a power law with the mean of the table; the
//! `k`-th longest row has at least `longest / k^1.5` entries. The rows are shuffled.

use super::Matrix;
use super::numbers::{mix, shuffled_in_windows, symmetric_value};

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Irregular {
    /// The name in the table.
    pub name: &'static str,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Entries.
    pub entries: usize,
    /// Entries of the shortest row.
    pub shortest: usize,
    /// Entries of the longest row.
    pub longest: usize,
    /// Number of entries near the diagonal, of every ten entries.
    pub near: usize,
}

const fn square(
    name: &'static str,
    rows: usize,
    entries: usize,
    [shortest, longest]: [usize; 2],
    near: usize,
) -> Irregular {
    Irregular { name, rows, cols: rows, entries, shortest, longest, near }
}

/// The lines of the table. The fraction of entries near the diagonal is not in the table; it is chosen by the
/// kind of matrix: one half for a web graph, most entries for a circuit, none for an optimization problem.
pub const TABLE_3: [Irregular; 8] = [
    square("Webbase", 1_000_000, 3_100_000, [1, 4_700], 5),
    Irregular {
        name: "LP",
        rows: 4_000,
        cols: 1_100_000,
        entries: 11_300_000,
        shortest: 1,
        longest: 56_200,
        near: 0,
    },
    square("ASIC_680k", 683_000, 3_900_000, [1, 395_000], 9),
    square("boyd2", 466_000, 1_500_000, [2, 93_000], 0),
    square("dc2", 117_000, 766_000, [1, 114_000], 9),
    square("ins2", 309_000, 2_800_000, [5, 309_000], 9),
    square("rajat21", 412_000, 1_900_000, [1, 119_000], 9),
    square("transient", 179_000, 962_000, [1, 60_000], 9),
];

impl Irregular {
    /// The lengths of the rows, longest first, with exactly the printed number of entries, shortest and longest row.
    pub fn lengths(&self) -> Vec<usize> {
        let &Irregular { rows, entries, shortest, longest, .. } = self;
        let (low, high) = (shortest as f64, longest as f64);
        // bounded Pareto distribution: for u from 0 to 1, l(u)^s is linear between both ends
        let length = |s: f64, row: usize| {
            let u = 1.0 - (row as f64 + 0.5) / rows as f64;
            let (a, b) = (low.powf(s), high.powf(s));
            let falling = high / (row as f64 + 1.0).powf(1.5);
            ((a + u * (b - a)).powf(1.0 / s).max(falling).round() as usize).clamp(shortest, longest)
        };
        // the number of entries increases with s; it is estimated from the 4,000 longest rows and a sample of the
        // others
        let total = |s: f64| {
            let step = rows.div_ceil(4000);
            let head = 4000.min(rows);
            let rest = (head + step / 2..rows).step_by(step).map(|row| step * length(s, row)).sum::<usize>();
            longest + (1..head).map(|row| length(s, row)).sum::<usize>() + rest
        };
        // no midpoint of these bounds is s = 0, for which the power law has another formula
        let (mut least, mut most) = (-6.0, 5.03);
        for _ in 0..40 {
            let middle = (least + most) / 2.0;
            *(if total(middle) < entries { &mut least } else { &mut most }) = middle;
        }
        let mut lengths: Vec<usize> = (0..rows).map(|row| length(least, row)).collect();
        lengths[0] = longest;
        lengths[rows - 1] = shortest;
        self.meet(&mut lengths);
        lengths
    }

    /// Lengthens or shortens rows by one entry, longer rows first, until the number of entries is right.
    fn meet(&self, lengths: &mut [usize]) {
        let last = lengths.len() - 1;
        let mut total: usize = lengths.iter().sum();
        while total != self.entries {
            for length in &mut lengths[1..last] {
                if total < self.entries && *length < self.longest {
                    *length += 1;
                    total += 1;
                } else if total > self.entries && *length > self.shortest {
                    *length -= 1;
                    total -= 1;
                }
            }
        }
    }

    /// The matrix.
    pub fn matrix(&self) -> Matrix {
        let lengths = self.lengths();
        let place = shuffled_in_windows(self.rows, self.rows, 3);
        let &Irregular { rows, cols, near, .. } = self;
        let pattern = |row: usize, columns: &mut Vec<u32>| {
            let length = lengths[place[row] as usize];
            let window = (8 * length).max(64).min(cols);
            let first = row.saturating_sub(window / 2).min(cols - window);
            let here = (length * near).div_ceil(10).max((length + window).saturating_sub(cols));
            columns.extend(spread(row, here, window).map(|column| (first + column) as u32));
            // the other entries are spread over the columns on both sides of the window
            let others = spread(row + rows, length - here, cols - window);
            columns.extend(others.map(|at| if at < first { at } else { at + window } as u32));
        };
        Matrix::by_rows(rows, pattern, |row, columns, values| {
            for (value, &column) in values.iter_mut().zip(columns) {
                *value = symmetric_value(row as u64, u64::from(column));
            }
        })
        .with_columns(cols)
    }
}

/// `count` distinct numbers below `bound`, one from each of `count` equal ranges.
fn spread(seed: usize, count: usize, bound: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |k| {
        let (from, to) = (k * bound / count, (k + 1) * bound / count);
        from + (mix((seed as u64) << 20 ^ k as u64) % (to - from) as u64) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_agree_with_the_table() {
        for line in TABLE_3 {
            let lengths = line.lengths();
            let ends = (lengths.iter().min(), lengths.iter().max());
            assert_eq!(ends, (Some(&line.shortest), Some(&line.longest)), "{}", line.name);
            assert_eq!((lengths.len(), lengths.iter().sum()), (line.rows, line.entries), "{}", line.name);
            // a distribution, not one heavy row: many lengths, and the next rows well below the longest
            let mut distinct = lengths.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert!(distinct.len() > 100, "{}: {}", line.name, distinct.len());
            assert!(
                lengths[0] < 40 * lengths[10] && lengths[10] > 10 * lengths[line.rows / 2],
                "{}",
                line.name
            );
        }
    }

    #[test]
    fn a_small_matrix_has_its_row_lengths() {
        let line = Irregular { rows: 1000, cols: 1500, entries: 9000, longest: 1500, ..TABLE_3[5] };
        for line in [line, Irregular { near: 0, ..line }, Irregular { cols: 1600, near: 10, ..line }] {
            let matrix = line.matrix();
            assert_eq!((matrix.rows, matrix.cols, matrix.nnz()), (1000, line.cols, 9000));
            let length = |row: usize| matrix.row(row).0.len();
            assert_eq!((0..1000).map(length).max(), Some(1500));
            assert!((0..1000).all(|row| matrix.row(row).0.windows(2).all(|pair| pair[0] < pair[1])));
            assert!(matrix.columns.iter().all(|&column| (column as usize) < line.cols));
        }
    }
}
