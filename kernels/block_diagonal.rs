//! Diagonal blocks of up to 32 rows, each stored in as few bits as its condition allows: hosts and devices have the same
//! arrays.
//!
//! Whole blocks make up slices of up to 32 rows. The number of row `i` and column `j` (counted from where its block begins)
//! stands `j · rows + i` behind the first of its slice, and all of a slice are stored alike: as elements, as `f32` or in 16
//! bits. A slice has room for elements, whatever it stores: new values move no others.
//!
//! Rounding an inverse `M` to `p` bits makes it `M + E` with `|E| ≤ 2⁻ᵖ |M|`, and `(M + E) A = I + E A` with
//! `‖E A‖ ≤ 2⁻ᵖ ‖M‖ ‖A‖`, in the norm of the largest row sum: what is lost is `2⁻ᵖ` times the block's condition.

use crate::buffer::Plain;
use std::ops::Range;

/// The most rows of a block, and of a slice.
pub const LARGEST_BLOCK: usize = 32;

/// Numbers of a unit: slices begin at multiples of it.
pub(crate) const UNIT: usize = 16;

/// What stores the numbers of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum StoredAs {
    /// An element.
    Element = 0,
    /// An `f32`, of an element of 64 bits.
    Single = 1,
    /// [`Bf16`](crate::cpu::simd::bf16::Bf16)
    Half = 2,
}

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slice {
    pub(crate) first: u32,
    /// The bit of each row with which a block begins.
    pub(crate) starts: u32,
    /// Where the numbers begin, in units.
    pub(crate) place: u32,
    pub(crate) rows: u8,
    /// Rows of the largest block.
    pub(crate) width: u8,
    pub(crate) stored: u8,
    /// Rows of every block, where all are of one size.
    pub(crate) even: u8,
}

// SAFETY: integers that fill sixteen bytes
unsafe impl Plain for Slice {}

impl Slice {
    /// Its rows.
    pub fn rows(&self) -> Range<usize> {
        self.first as usize..self.first as usize + usize::from(self.rows)
    }

    /// Its blocks, as rows of the slice.
    pub fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (starts, rows) = (self.starts, usize::from(self.rows));
        let mut start = 0;
        std::iter::from_fn(move || {
            let behind = (u64::from(starts) >> (start + 1)).trailing_zeros() as usize;
            let end = rows.min(start + 1 + behind);
            (start < rows).then(|| std::mem::replace(&mut start, end)..end)
        })
    }

    /// What stores its numbers.
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

/// The slices of blocks that begin at these rows, and end at the last of them.
pub(crate) fn cut(bounds: &[usize]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = vec![];
    let mut place = 0;
    for block in bounds.windows(2) {
        let (start, size) = (block[0], block[1].wrapping_sub(block[0]));
        assert!((1..=LARGEST_BLOCK).contains(&size), "bounds ascend by 32 rows at most");
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

/// Rows of the largest block, one where there is none.
pub(crate) fn largest_block(slices: &[Slice]) -> usize {
    slices.iter().map(|slice| usize::from(slice.width)).max().unwrap_or(1)
}

/// Numbers that slices have room for.
pub(crate) fn capacity(slices: &[Slice]) -> usize {
    slices.last().map_or(0, |last| last.numbers().end.next_multiple_of(UNIT))
}

fn index(number: usize) -> u32 {
    assert!(number <= u32::MAX as usize, "rows and units of 32 bits");
    number as u32
}

/// The largest conditions of blocks that are stored as `f32`, and in 16 bits, where each may cost an accuracy.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Zero where elements have no more bits.
    pub(crate) single: f32,
    pub(crate) half: f32,
}

impl Limits {
    /// For elements of a type.
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

/// How a matrix is stored, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredRows {
    /// As elements.
    pub elements: usize,
    /// As `f32`, of elements of 64 bits.
    pub singles: usize,
    /// In 16 bits, [`Bf16`](crate::cpu::simd::bf16::Bf16).
    pub halves: usize,
}

/// Whether these are slices of the same blocks, whatever stores them.
#[cfg(feature = "cuda")]
pub(crate) fn same_blocks(some: &[Slice], others: &[Slice]) -> bool {
    let blocks = |slice: &Slice| (slice.first, slice.starts, slice.rows);
    some.iter().map(blocks).eq(others.iter().map(blocks))
}

/// Counts rows, and the bytes that a product reads of them.
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
