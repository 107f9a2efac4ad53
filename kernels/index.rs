//! Index arrays that were checked once, so that kernels may trust them.

use crate::buffer::{Buffer, Plain};

/// Why an index array was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// An entry of an index array lies at or above its bound.
    Bound {
        /// Where in the array.
        position: usize,
        /// What stands there.
        index: u64,
        /// What it must stay below.
        bound: u64,
    },
    /// Offsets must start at zero and never fall.
    Order {
        /// The first offending position.
        position: usize,
    },
}

/// Column indices, all below a bound.
///
/// The bound is at most 2³¹, because hardware gathers read indices as signed.
#[derive(Clone, Debug)]
pub struct Columns {
    indices: Buffer<u32>,
    bound: usize,
}

impl Columns {
    /// The largest bound.
    pub const LIMIT: usize = 1 << 31;

    /// Checks that every index lies below `bound`.
    pub fn new(indices: impl Into<Buffer<u32>>, bound: usize) -> Result<Columns, Invalid> {
        let indices = indices.into();
        ColumnsRef::new(&indices, bound)?;
        Ok(Columns { indices, bound })
    }

    /// What every index is below.
    pub fn bound(&self) -> usize {
        self.bound
    }
}

impl std::ops::Deref for Columns {
    type Target = [u32];

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
    /// Checks that every index lies below `bound`.
    pub fn new(indices: &'a [u32], bound: usize) -> Result<ColumnsRef<'a>, Invalid> {
        let limit = bound.min(Columns::LIMIT);
        match indices.iter().position(|&i| i as usize >= limit) {
            None => Ok(ColumnsRef { indices, bound }),
            Some(position) => {
                Err(Invalid::Bound { position, index: u64::from(indices[position]), bound: limit as u64 })
            }
        }
    }

    /// What every index is below.
    pub fn bound(self) -> usize {
        self.bound
    }
}

impl<'a> From<&'a Columns> for ColumnsRef<'a> {
    fn from(columns: &'a Columns) -> Self {
        ColumnsRef { indices: &columns.indices, bound: columns.bound }
    }
}

impl std::ops::Deref for ColumnsRef<'_> {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        self.indices
    }
}

/// Offsets of consecutive ranges: `n + 1` numbers that start at zero and never fall. 32 bits while they fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offsets {
    /// Up to 2³² − 1.
    Short(Ascending<u32>),
    /// Beyond.
    Long(Ascending<u64>),
}

/// Numbers that start at zero and never fall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ascending<O: Plain>(Buffer<O>);

impl<O: Plain> std::ops::Deref for Ascending<O> {
    type Target = [O];

    fn deref(&self) -> &[O] {
        &self.0
    }
}

/// An offset's width.
pub trait Offset: Copy + Send + Sync + 'static {
    /// As an index.
    fn get(self) -> usize;
}

impl Offset for u32 {
    fn get(self) -> usize {
        self as usize
    }
}

impl Offset for u64 {
    fn get(self) -> usize {
        self as usize
    }
}

impl Offsets {
    /// Checks the order of the offsets and stores them as narrow as they fit.
    pub fn new(offsets: &[u64]) -> Result<Offsets, Invalid> {
        let falls = |w: &[u64]| w[0] > w[1];
        if offsets.first() != Some(&0) {
            return Err(Invalid::Order { position: 0 });
        }
        if let Some(at) = offsets.windows(2).position(falls) {
            return Err(Invalid::Order { position: at + 1 });
        }
        Ok(Offsets::narrow(offsets))
    }

    /// Stores offsets that ascend as narrow as they fit.
    fn narrow(offsets: &[u64]) -> Offsets {
        if offsets.last().is_none_or(|&last| last <= u64::from(u32::MAX)) {
            Offsets::Short(Ascending(offsets.iter().map(|&o| o as u32).collect::<Vec<_>>().into()))
        } else {
            Offsets::Long(Ascending(offsets.to_vec().into()))
        }
    }

    /// Adopts offsets that are 32 bits wide already.
    pub fn from_short(offsets: Vec<u32>) -> Result<Offsets, Invalid> {
        OffsetsRef::from_short(&offsets)?;
        Ok(Offsets::Short(Ascending(offsets.into())))
    }

    /// The offsets of ranges with these lengths.
    pub fn from_lengths(lengths: impl IntoIterator<Item = usize>) -> Offsets {
        let mut offsets = vec![0u64];
        let mut end = 0u64;
        offsets.extend(lengths.into_iter().map(|length| {
            end = end.saturating_add(length as u64);
            end
        }));
        Offsets::narrow(&offsets)
    }

    /// The number of ranges.
    pub fn ranges(&self) -> usize {
        OffsetsRef::from(self).ranges()
    }

    /// The offset at a position.
    pub fn at(&self, position: usize) -> usize {
        OffsetsRef::from(self).at(position)
    }

    /// The range at a position.
    pub fn range(&self, position: usize) -> std::ops::Range<usize> {
        self.at(position)..self.at(position + 1)
    }

    /// The end of the last range.
    pub fn end(&self) -> usize {
        self.at(self.ranges())
    }

    /// The length of each range.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + Clone + '_ {
        (0..self.ranges()).map(|i| self.range(i).len())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        OffsetsRef::from(self).bytes()
    }
}

/// Borrowed offsets of consecutive ranges.
#[derive(Clone, Copy, Debug)]
pub enum OffsetsRef<'a> {
    /// Up to 2³² − 1.
    Short(AscendingRef<'a, u32>),
    /// Beyond.
    Long(AscendingRef<'a, u64>),
}

/// Borrowed numbers that start at zero and never fall.
#[derive(Clone, Copy, Debug)]
pub struct AscendingRef<'a, O>(&'a [O]);

impl<O> std::ops::Deref for AscendingRef<'_, O> {
    type Target = [O];

    fn deref(&self) -> &[O] {
        self.0
    }
}

impl<'a> From<&'a Offsets> for OffsetsRef<'a> {
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
        match offsets.windows(2).position(|w| w[0] > w[1]) {
            Some(at) => Err(Invalid::Order { position: at + 1 }),
            None => Ok(OffsetsRef::Short(AscendingRef(offsets))),
        }
    }

    /// The number of ranges.
    pub fn ranges(self) -> usize {
        match self {
            OffsetsRef::Short(o) => o.len() - 1,
            OffsetsRef::Long(o) => o.len() - 1,
        }
    }

    /// The offset at a position.
    pub fn at(self, position: usize) -> usize {
        match self {
            OffsetsRef::Short(o) => o[position].get(),
            OffsetsRef::Long(o) => o[position].get(),
        }
    }

    /// The range at a position.
    pub fn range(self, position: usize) -> std::ops::Range<usize> {
        self.at(position)..self.at(position + 1)
    }

    /// The end of the last range.
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
        // a signed 32-bit gather would go backwards from here on
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
    fn offsets_choose_their_width() {
        assert!(matches!(Offsets::new(&[0, 3, 3, u64::from(u32::MAX)]), Ok(Offsets::Short(_))));
        let long = Offsets::new(&[0, 3, 1 << 32]).unwrap();
        assert!(matches!(long, Offsets::Long(_)));
        assert_eq!((long.ranges(), long.end(), long.range(1)), (2, 1 << 32, 3..1 << 32));
        assert_eq!(Offsets::new(&[0, 3, 2]), Err(Invalid::Order { position: 2 }));
        assert_eq!(Offsets::new(&[1, 3]), Err(Invalid::Order { position: 0 }));
        assert_eq!(Offsets::new(&[]), Err(Invalid::Order { position: 0 }));
    }
}
