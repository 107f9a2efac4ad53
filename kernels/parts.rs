//! Equal parts of consecutive rows, each of which caches the entries of `x` with the indices of its own rows
//! (EHYB, Chen 2022).

use crate::windows::LARGEST;
use std::ops::Range;

/// Partition of the rows into parts of equal height; the last part may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    rows: usize,
    cols: usize,
    height: usize,
}

/// Rows per part, a multiple of `grain`, by equations 1 and 2 of Chen (2022): `rows / (K P)`, where `P` is
/// `processors` and `K` is the smallest integer for which a part has at most `most` rows, those whose `x`
/// fits the cache.
pub fn rows_per_part(rows: usize, processors: usize, most: usize, grain: usize) -> usize {
    let most = (most.min(LARGEST - 1) / grain).max(1) * grain;
    let k = rows.div_ceil(processors * most).max(1);
    rows.div_ceil(k * processors).next_multiple_of(grain).max(grain)
}

impl Parts {
    /// Partitions the rows of a matrix into parts of `height` rows, which must be below [`LARGEST`].
    pub fn new(rows: usize, cols: usize, height: usize) -> Parts {
        assert!(0 < height && height < LARGEST, "`height` is {height}, expected 1 to 65534");
        Parts { rows, cols, height }
    }

    /// Number of parts.
    pub fn count(self) -> usize {
        self.rows.div_ceil(self.height)
    }

    /// Rows per part.
    pub fn height(self) -> usize {
        self.height
    }

    /// Range of those entries of a row whose columns belong to the row's own part, given the ascending
    /// columns of the row.
    pub fn inside(self, row: usize, columns: &[u32]) -> Range<usize> {
        let first = row / self.height * self.height;
        let below = |bound: usize| columns.partition_point(|&column| (column as usize) < bound);
        below(first)..below((first + self.height).min(self.rows).min(self.cols).max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_few_as_fit() {
        // (rows, processors, most, grain): K = 1, 1, 2, 3, 1, 1
        let cases = [
            (658_503, 264, 14_000, 32),
            (6_644_672, 396, 19_000, 32),
            (6_644_672, 396, 9_500, 32),
            (100_000, 1, 40_000, 768),
            (5, 132, 14_000, 32),
            (0, 1, 32_768, 768),
        ];
        let heights =
            cases.map(|(rows, processors, most, grain)| rows_per_part(rows, processors, most, grain));
        assert_eq!(heights, [2496, 16_800, 8416, 33_792, 32, 768]);
        for rows in (0..200_000).step_by(997) {
            for (most, grain) in [(100, 32), (70_000, 32), (65_536, 768), (10, 768)] {
                let height = rows_per_part(rows, 7, most, grain);
                assert!(height.is_multiple_of(grain) && height < LARGEST);
                assert!(height <= most.max(grain), "{rows} {most} {grain}: {height}");
            }
        }
    }

    #[test]
    fn a_part_has_the_columns_of_its_rows() {
        let columns: Vec<u32> = (0..100).step_by(3).collect();
        for (rows, cols) in [(100, 100), (90, 100), (100, 90), (64, 100), (100, 33), (100, 3)] {
            let parts = Parts::new(rows, cols, 32);
            assert_eq!(parts.count(), rows.div_ceil(32));
            let columns = &columns[..columns.partition_point(|&c| (c as usize) < cols)];
            for row in 0..rows {
                let inside = parts.inside(row, columns);
                let own = row / 32 * 32..(row / 32 * 32 + 32).min(rows);
                for (k, &column) in columns.iter().enumerate() {
                    assert_eq!(inside.contains(&k), own.contains(&(column as usize)), "{rows} {cols} {row}");
                }
            }
        }
    }
}
