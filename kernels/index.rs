//! Index arrays that are checked once at construction, so that kernels may rely on them.

use crate::buffer::{Buffer, Plain};
use crate::cpu::run::threads::{CHUNK, find_row, over_parts, over_rows, tasks};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Reason why an index array is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// An index is not below its bound.
    Bound {
        /// Position in the array.
        position: usize,
        /// Index found at that position.
        index: u64,
        /// Exclusive upper bound of the indices.
        bound: u64,
    },
    /// Offsets do not start at zero, or decrease.
    Order {
        /// First position that violates the order.
        position: usize,
    },
}

/// Returns the first position whose number is smaller than its predecessor.
pub(crate) fn first_fall<O: Ord + Sync>(numbers: &[O]) -> Option<usize> {
    let steps = numbers.len().saturating_sub(1);
    find_row(steps, 1, &|step| numbers[step] > numbers[step + 1]).map(|step| step + 1)
}

/// Column indices, all below a bound.
///
/// The bound is at most 2³¹, because SIMD gathers interpret 32-bit indices as signed.
#[derive(Clone, Debug)]
pub struct Columns {
    indices: Buffer<u32>,
    bound: usize,
}

impl Columns {
    /// Largest possible bound.
    pub const LIMIT: usize = 1 << 31;

    /// Checks that every index is below `bound`.
    pub fn new(indices: impl Into<Buffer<u32>>, bound: usize) -> Result<Columns, Invalid> {
        let indices = indices.into();
        ColumnsRef::new(&indices, bound)?;
        Ok(Columns { indices, bound })
    }

    /// Exclusive upper bound of the indices (number of columns).
    pub fn bound(&self) -> usize {
        self.bound
    }
}

impl std::ops::Deref for Columns {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        &self.indices
    }
}

/// Borrowed column indices, all below a bound.
#[derive(Clone, Copy, Debug)]
pub struct ColumnsRef<'a> {
    indices: &'a [u32],
    bound: usize,
}

impl<'a> ColumnsRef<'a> {
    /// Checks that every index is below `bound`.
    pub fn new(indices: &'a [u32], bound: usize) -> Result<ColumnsRef<'a>, Invalid> {
        let limit = bound.min(Columns::LIMIT);
        // a maximum vectorizes, a search for a position does not
        let largest = AtomicU32::new(0);
        over_rows(indices.len(), 1, (), &|range, ()| {
            largest.fetch_max(indices[range].iter().copied().max().unwrap_or(0), Ordering::Relaxed);
        });
        if indices.is_empty() || (largest.into_inner() as usize) < limit {
            return Ok(ColumnsRef { indices, bound });
        }
        let position = indices.iter().position(|&i| i as usize >= limit).unwrap_or(0);
        Err(Invalid::Bound { position, index: u64::from(indices[position]), bound: limit as u64 })
    }

    /// Exclusive upper bound of the indices (number of columns).
    pub fn bound(self) -> usize {
        self.bound
    }
}

impl<'a> From<&'a Columns> for ColumnsRef<'a> {
    #[inline]
    fn from(columns: &'a Columns) -> Self {
        ColumnsRef { indices: &columns.indices, bound: columns.bound }
    }
}

impl std::ops::Deref for ColumnsRef<'_> {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        self.indices
    }
}

/// Offsets of consecutive ranges: `n + 1` non-decreasing numbers that start at zero, in 32 bits while they
/// fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offsets {
    /// Offsets up to 2³² − 1.
    Short(Ascending<u32>),
    /// Larger offsets.
    Long(Ascending<u64>),
}

/// Non-decreasing numbers that start at zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ascending<O: Plain>(Buffer<O>);

impl<O: Plain> std::ops::Deref for Ascending<O> {
    type Target = [O];

    #[inline]
    fn deref(&self) -> &[O] {
        &self.0
    }
}

/// Integer type of an offset.
pub trait Offset: Copy + Send + Sync + 'static {
    /// Converts to an index.
    fn get(self) -> usize;
}

/// The range between the two offsets of a pair.
#[inline]
fn both<O: Offset>(pair: &[O]) -> Range<usize> {
    pair[0].get()..pair[1].get()
}

impl Offset for u32 {
    #[inline]
    fn get(self) -> usize {
        self as usize
    }
}

impl Offset for u64 {
    #[inline]
    fn get(self) -> usize {
        self as usize
    }
}

impl Offsets {
    /// Checks the order of the offsets and stores them in the narrowest type that fits.
    pub fn new(offsets: &[u64]) -> Result<Offsets, Invalid> {
        if offsets.first() != Some(&0) {
            return Err(Invalid::Order { position: 0 });
        }
        if let Some(position) = first_fall(offsets) {
            return Err(Invalid::Order { position });
        }
        if offsets.last().is_none_or(|&last| last <= u64::from(u32::MAX)) {
            Ok(Offsets::Short(Ascending(offsets.iter().map(|&o| o as u32).collect::<Vec<_>>().into())))
        } else {
            Ok(Offsets::Long(Ascending(offsets.to_vec().into())))
        }
    }

    /// Adopts offsets that already have 32 bits.
    pub fn from_short(offsets: impl Into<Buffer<u32>>) -> Result<Offsets, Invalid> {
        let offsets = offsets.into();
        OffsetsRef::from_short(&offsets)?;
        Ok(Offsets::Short(Ascending(offsets)))
    }

    /// Computes the offsets of ranges with these lengths.
    pub fn from_lengths(lengths: impl IntoIterator<Item = usize>) -> Offsets {
        let mut lengths = lengths.into_iter();
        let mut short = Vec::with_capacity(lengths.size_hint().0 + 1);
        short.push(0u32);
        let mut end = 0u64;
        while let Some(length) = lengths.next() {
            end = end.saturating_add(length as u64);
            let Ok(offset) = u32::try_from(end) else {
                let mut long: Vec<u64> = short.into_iter().map(u64::from).collect();
                long.push(end);
                long.extend(lengths.map(|length| {
                    end = end.saturating_add(length as u64);
                    end
                }));
                return Offsets::Long(Ascending(long.into()));
            };
            short.push(offset);
        }
        Offsets::Short(Ascending(short.into()))
    }

    /// Computes the offsets of ranges with these lengths on all threads; `length` is called twice for each
    /// range.
    pub fn of_rows(count: usize, length: &(impl Fn(usize) -> usize + Sync)) -> Offsets {
        let mut starts = vec![0; count.div_ceil(CHUNK)];
        let (chunks, parts) = (starts.len(), tasks(8 * count).min(starts.len()));
        let first = |part: usize| part * chunks / parts;
        over_parts(parts, &first, starts.as_mut_slice(), &|range, starts: &mut [usize]| {
            for (chunk, start) in range.zip(starts) {
                *start = (chunk * CHUNK..count.min((chunk + 1) * CHUNK)).map(length).sum();
            }
        });
        let mut end = 0;
        starts.iter_mut().for_each(|start| end += std::mem::replace(start, end));
        if u32::try_from(end).is_ok() {
            Offsets::Short(Ascending(ascending(count, &starts, end as u32, length, &|offset| offset as u32)))
        } else {
            Offsets::Long(Ascending(ascending(count, &starts, end as u64, length, &|offset| offset as u64)))
        }
    }

    /// Number of ranges.
    #[inline]
    pub fn ranges(&self) -> usize {
        OffsetsRef::from(self).ranges()
    }

    /// Offset at a position.
    #[inline]
    pub fn at(&self, position: usize) -> usize {
        OffsetsRef::from(self).at(position)
    }

    /// Range at a position.
    #[inline]
    pub fn range(&self, position: usize) -> Range<usize> {
        OffsetsRef::from(self).range(position)
    }

    /// End of the last range.
    #[inline]
    pub fn end(&self) -> usize {
        self.at(self.ranges())
    }

    /// Lengths of all ranges.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + Clone + '_ {
        (0..self.ranges()).map(|i| self.range(i).len())
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        OffsetsRef::from(self).bytes()
    }
}

/// Offsets of `count` ranges, given the first offset of every chunk and the end of the last range.
fn ascending<O: Plain>(
    count: usize,
    starts: &[usize],
    end: O,
    length: &(impl Fn(usize) -> usize + Sync),
    narrowed: &(impl Fn(usize) -> O + Sync),
) -> Buffer<O> {
    let mut offsets = Buffer::zeros(count + 1);
    offsets[count] = end;
    over_rows(count, 2, &mut offsets[..count], &|rows, offsets: &mut [O]| {
        // parts begin at chunk boundaries
        let mut next = starts.get(rows.start / CHUNK).copied().unwrap_or(0);
        for (row, offset) in rows.zip(offsets) {
            *offset = narrowed(next);
            next += length(row);
        }
    });
    offsets
}

/// Borrowed offsets of consecutive ranges.
#[derive(Clone, Copy, Debug)]
pub enum OffsetsRef<'a> {
    /// Offsets up to 2³² − 1.
    Short(AscendingRef<'a, u32>),
    /// Larger offsets.
    Long(AscendingRef<'a, u64>),
}

/// Borrowed non-decreasing numbers that start at zero.
#[derive(Clone, Copy, Debug)]
pub struct AscendingRef<'a, O>(&'a [O]);

impl<O> std::ops::Deref for AscendingRef<'_, O> {
    type Target = [O];

    #[inline]
    fn deref(&self) -> &[O] {
        self.0
    }
}

impl<'a> From<&'a Offsets> for OffsetsRef<'a> {
    #[inline]
    fn from(offsets: &'a Offsets) -> Self {
        match offsets {
            Offsets::Short(o) => OffsetsRef::Short(AscendingRef(o)),
            Offsets::Long(o) => OffsetsRef::Long(AscendingRef(o)),
        }
    }
}

impl<'a> OffsetsRef<'a> {
    /// Checks the order of the offsets.
    pub fn from_short(offsets: &'a [u32]) -> Result<OffsetsRef<'a>, Invalid> {
        if offsets.first() != Some(&0) {
            return Err(Invalid::Order { position: 0 });
        }
        match first_fall(offsets) {
            Some(position) => Err(Invalid::Order { position }),
            None => Ok(OffsetsRef::Short(AscendingRef(offsets))),
        }
    }

    /// Number of ranges.
    #[inline]
    pub fn ranges(self) -> usize {
        match self {
            OffsetsRef::Short(o) => o.len() - 1,
            OffsetsRef::Long(o) => o.len() - 1,
        }
    }

    /// Offset at a position.
    #[inline]
    pub fn at(self, position: usize) -> usize {
        match self {
            OffsetsRef::Short(o) => o[position].get(),
            OffsetsRef::Long(o) => o[position].get(),
        }
    }

    /// Range at a position.
    #[inline]
    pub fn range(self, position: usize) -> Range<usize> {
        match self {
            OffsetsRef::Short(o) => both(&o[position..position + 2]),
            OffsetsRef::Long(o) => both(&o[position..position + 2]),
        }
    }

    /// End of the last range.
    #[inline]
    pub fn end(self) -> usize {
        self.at(self.ranges())
    }

    /// Bytes of the array.
    pub fn bytes(self) -> usize {
        match self {
            OffsetsRef::Short(o) => size_of_val(&*o),
            OffsetsRef::Long(o) => size_of_val(&*o),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_checked() {
        assert!(Columns::new(vec![0, 4, 2], 5).is_ok());
        let refused = Columns::new(vec![0, 5, 2], 5).unwrap_err();
        assert_eq!(refused, Invalid::Bound { position: 1, index: 5, bound: 5 });
        // from here on, a gather with signed 32-bit indices would address backwards
        let refused = Columns::new(vec![1 << 31], usize::MAX).unwrap_err();
        assert_eq!(refused, Invalid::Bound { position: 0, index: 1 << 31, bound: 1 << 31 });
    }

    #[test]
    fn borrowed_arrays_are_checked_alike() {
        let refused = ColumnsRef::new(&[0, 5, 2], 5).unwrap_err();
        assert_eq!(refused, Invalid::Bound { position: 1, index: 5, bound: 5 });
        let offsets = OffsetsRef::from_short(&[0, 2, 2, 7]).unwrap();
        assert_eq!((offsets.ranges(), offsets.end(), offsets.range(2)), (3, 7, 2..7));
        for (refused, position) in [(&[][..], 0), (&[1, 2], 0), (&[0, 2, 1], 2)] {
            assert_eq!(OffsetsRef::from_short(refused).unwrap_err(), Invalid::Order { position });
        }
    }

    #[test]
    fn the_first_fault_of_long_arrays_is_reported() {
        let mut indices: Vec<u32> = (0..200_000).collect();
        assert!(Columns::new(indices.clone(), 200_000).is_ok());
        assert!(OffsetsRef::from_short(&indices).is_ok());
        (indices[70_000], indices[190_000]) = (200_007, 200_008);
        let refused = Columns::new(indices.clone(), 200_000).unwrap_err();
        assert_eq!(refused, Invalid::Bound { position: 70_000, index: 200_007, bound: 200_000 });
        assert_eq!(OffsetsRef::from_short(&indices).unwrap_err(), Invalid::Order { position: 70_001 });
    }

    #[test]
    fn offsets_choose_their_width() {
        assert!(matches!(Offsets::new(&[0, 3, 3, u64::from(u32::MAX)]), Ok(Offsets::Short(_))));
        let long = Offsets::new(&[0, 3, 1 << 32]).unwrap();
        assert!(matches!(long, Offsets::Long(_)));
        assert_eq!((long.ranges(), long.end(), long.range(1)), (2, 1 << 32, 3..1 << 32));
        assert_eq!(Offsets::from_lengths([3, (1 << 32) - 3]), long);
        let lengths = |row: usize| [3, 1 << 30, 0][row % 3];
        for rows in [0, 1, 4, 767, 768, 9_999] {
            let expected = Offsets::from_lengths((0..rows).map(lengths));
            assert_eq!(Offsets::of_rows(rows, &lengths), expected, "{rows}");
        }
        assert_eq!(Offsets::from_lengths([3, 0, 5]), Offsets::new(&[0, 3, 3, 8]).unwrap());
        assert_eq!(Offsets::new(&[0, 3, 2]), Err(Invalid::Order { position: 2 }));
        assert_eq!(Offsets::new(&[1, 3]), Err(Invalid::Order { position: 0 }));
        assert_eq!(Offsets::new(&[]), Err(Invalid::Order { position: 0 }));
    }
}
