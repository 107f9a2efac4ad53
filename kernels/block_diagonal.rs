//! Block-diagonal matrix with blocks of up to 32 rows, each stored in as few bits as its condition number
//! allows. Hosts and devices share this layout.
//!
//! Consecutive blocks form slices of up to 32 rows; no block is split. Entry `(i, j)` of a block (`j` counted
//! from the block's first column, `i` from the slice's first row) is stored at offset `j · rows + i` of its
//! slice, where `rows` is the number of rows of the slice. All values of a slice have the same type: the
//! element type, `f32` or bfloat16. Each slice reserves enough memory for values of the element type, so that
//! its place does not change when a refresh changes its type.
//!
//! Rounding each entry of the inverse `M` of a block `A` to `p` bits gives `M + E` with `|E| ≤ 2⁻ᵖ |M|`,
//! hence `(M + E) A = I + E A` with `‖E A‖ ≤ 2⁻ᵖ ‖M‖ ‖A‖` in the infinity norm (largest row sum): the
//! relative error is `2⁻ᵖ` times the block's condition number.

use crate::buffer::Plain;
use std::ops::Range;

/// Largest number of rows of a block and of a slice.
pub const LARGEST_BLOCK: usize = 32;

/// Values per unit: every slice begins at a multiple of `UNIT` values.
pub(crate) const UNIT: usize = 16;

/// Type of the values of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum StoredAs {
    /// The element type of the matrix.
    Element = 0,
    /// `f32`, for elements of 64 bits.
    Single = 1,
    /// bfloat16, [`Bf16`](crate::cpu::simd::bf16::Bf16).
    Half = 2,
}

/// A group of consecutive blocks of up to 32 rows in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slice {
    pub(crate) first: u32,
    /// Bit mask of the rows at which a block begins.
    pub(crate) starts: u32,
    /// Offset of the values, in units of [`UNIT`] values.
    pub(crate) place: u32,
    pub(crate) rows: u8,
    /// Rows of the largest block.
    pub(crate) width: u8,
    pub(crate) stored: u8,
    /// Number of rows of every block if all have the same size, otherwise zero.
    pub(crate) even: u8,
}

// SAFETY: only integers, which fill sixteen bytes without padding
unsafe impl Plain for Slice {}

impl Slice {
    /// Rows of the slice.
    pub fn rows(&self) -> Range<usize> {
        self.first as usize..self.first as usize + usize::from(self.rows)
    }

    /// Row ranges of the blocks, relative to the first row of the slice.
    pub fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (starts, rows) = (self.starts, usize::from(self.rows));
        let mut start = 0;
        std::iter::from_fn(move || {
            let behind = (u64::from(starts) >> (start + 1)).trailing_zeros() as usize;
            let end = rows.min(start + 1 + behind);
            (start < rows).then(|| std::mem::replace(&mut start, end)..end)
        })
    }

    /// Type of the stored values.
    pub fn stored_as(&self) -> StoredAs {
        match self.stored {
            1 => StoredAs::Single,
            2 => StoredAs::Half,
            _ => StoredAs::Element,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        usize::from(self.rows) * usize::from(self.width)
    }

    pub(crate) fn numbers(&self) -> Range<usize> {
        let start = self.place as usize * UNIT;
        start..start + self.capacity()
    }
}

/// Groups blocks into slices. `bounds` holds the first row of every block and the end of the last.
pub(crate) fn cut(bounds: &[usize]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = vec![];
    let mut place = 0;
    for block in bounds.windows(2) {
        let (start, size) = (block[0], block[1].wrapping_sub(block[0]));
        assert!((1..=LARGEST_BLOCK).contains(&size), "blocks have 1 to 32 rows");
        match slices.last_mut() {
            Some(last) if usize::from(last.rows) + size <= LARGEST_BLOCK => {
                last.starts |= 1 << last.rows;
                last.rows += size as u8;
                last.width = last.width.max(size as u8);
                last.even = if usize::from(last.even) == size { last.even } else { 0 };
            }
            last => {
                place += last.map_or(0, |last| last.capacity().div_ceil(UNIT));
                let (first, place) = (index(start), index(place));
                let size = size as u8;
                slices.push(Slice {
                    first,
                    starts: 1,
                    place,
                    rows: size,
                    width: size,
                    stored: 0,
                    even: size,
                });
            }
        }
    }
    slices
}

/// Number of rows of the largest block, or 1 without blocks.
pub(crate) fn largest_block(slices: &[Slice]) -> usize {
    slices.iter().map(|slice| usize::from(slice.width)).max().unwrap_or(1)
}

/// Number of values that memory must be allocated for.
pub(crate) fn capacity(slices: &[Slice]) -> usize {
    slices.last().map_or(0, |last| last.numbers().end.next_multiple_of(UNIT))
}

fn index(number: usize) -> u32 {
    assert!(number <= u32::MAX as usize, "rows and units fit 32 bits");
    number as u32
}

/// Largest condition numbers at which a block may be stored as `f32` (`single`) or as bfloat16 (`half`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Zero if elements have no more than 32 bits.
    pub(crate) single: f32,
    pub(crate) half: f32,
}

impl Limits {
    /// Limits for elements of type `T` and a relative error of at most `accuracy`.
    pub fn of<T>(accuracy: f64) -> Limits {
        let single = if size_of::<T>() == 8 { accuracy * f64::from(1 << 24) } else { 0.0 };
        Limits { single: single as f32, half: (accuracy * f64::from(1 << 8)) as f32 }
    }

    pub(crate) fn stored(self, condition: f32) -> StoredAs {
        match condition {
            condition if condition <= self.half => StoredAs::Half,
            condition if condition <= self.single => StoredAs::Single,
            _ => StoredAs::Element,
        }
    }
}

/// Number of rows stored in each type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredRows {
    /// Rows stored as elements.
    pub elements: usize,
    /// Rows stored as `f32` although elements have 64 bits.
    pub singles: usize,
    /// Rows stored as bfloat16, [`Bf16`](crate::cpu::simd::bf16::Bf16).
    pub halves: usize,
}

/// Returns whether two lists of slices describe the same blocks; the types of their values may differ.
#[cfg(feature = "cuda")]
pub(crate) fn same_blocks(some: &[Slice], others: &[Slice]) -> bool {
    let blocks = |slice: &Slice| (slice.first, slice.starts, slice.rows);
    some.iter().map(blocks).eq(others.iter().map(blocks))
}

/// Counts the rows of each type and the bytes that one matrix-vector product reads.
pub(crate) fn count<T>(slices: &[Slice]) -> (StoredRows, usize) {
    let (mut rows, mut bytes) = (StoredRows::default(), size_of_val(slices));
    for slice in slices {
        let (stored, size) = match slice.stored_as() {
            StoredAs::Element => (&mut rows.elements, size_of::<T>()),
            StoredAs::Single => (&mut rows.singles, 4),
            StoredAs::Half => (&mut rows.halves, 2),
        };
        *stored += usize::from(slice.rows);
        bytes += slice.blocks().map(|block| block.len().pow(2) * size).sum::<usize>();
    }
    (rows, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_of_whole_blocks() {
        let slices = cut(&[0, 3, 6, 31, 63, 64]);
        let sizes = |slice: &Slice| slice.blocks().map(|block| block.len()).collect::<Vec<_>>();
        assert_eq!(slices.iter().map(sizes).collect::<Vec<_>>(), [vec![3, 3, 25], vec![32], vec![1]]);
        assert!(slices[0].blocks().map(|block| block.start).eq([0, 3, 6]));
        let numbers: Vec<_> = slices.iter().map(Slice::numbers).collect();
        assert_eq!(numbers, [0..775, 784..1808, 1808..1809]);
        assert_eq!(cut(&[0]), []);
    }
}
