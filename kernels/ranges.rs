//! Ranges of consecutive rows with about equally many entries each.

use crate::index::OffsetsRef;
use std::ops::Range;

/// Boundaries of at most `count` parts with about equally many entries each. Boundaries are multiples of
/// `grain` rows.
pub fn even_parts<'o>(offsets: impl Into<OffsetsRef<'o>>, count: usize, grain: usize) -> Vec<usize> {
    let offsets = offsets.into();
    let rows = offsets.ranges();
    // a row counts like two further entries, for its `y` and its offset
    let work = |row: usize| offsets.at(row) + 2 * row;
    let mut bounds = vec![0];
    for part in 1..count {
        let target = work(rows) / count * part;
        let (mut low, mut high) = (bounds[bounds.len() - 1] / grain, rows.div_ceil(grain));
        while low < high {
            let middle = (low + high) / 2;
            if work((middle * grain).min(rows)) < target { low = middle + 1 } else { high = middle }
        }
        let bound = (low * grain).min(rows);
        if bound > bounds[bounds.len() - 1] && bound < rows {
            bounds.push(bound);
        }
    }
    if rows > 0 {
        bounds.push(rows);
    }
    bounds
}

/// The ranges between boundaries.
pub fn ranges(bounds: &[usize]) -> impl Iterator<Item = Range<usize>> + '_ {
    bounds.windows(2).map(|b| b[0]..b[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Offsets;

    #[test]
    fn even_parts_cover_all_rows_at_the_grain() {
        let offsets = Offsets::from_lengths((0..10_000).map(|i| if i == 77 { 50_000 } else { i % 9 }));
        for count in [1, 2, 3, 8, 100] {
            let bounds = even_parts(&offsets, count, 64);
            assert_eq!((bounds[0], bounds[bounds.len() - 1]), (0, 10_000));
            assert!(bounds.windows(2).all(|b| b[0] < b[1] && b[0].is_multiple_of(64)), "{bounds:?}");
        }
        let (bounds, halves) = (even_parts(&offsets, 2, 1), offsets.end() / 2);
        assert_eq!(bounds.len(), 3);
        assert!(offsets.at(bounds[1]).abs_diff(halves) < 50_000);
        assert_eq!(even_parts(&Offsets::from_lengths([]), 4, 64), [0]);
    }
}
