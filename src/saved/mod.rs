//! Saves what is expensive to build to a file, so that the next run of a program can load it instead.
//!
//! A type that can be saved implements [`Saved`]: it writes its fields one after the other, and reads them
//! back in the same order. For a struct, the macro [`saved!`] implements this trait from the names of the
//! fields. Parts that several values share (patterns and permutations) are behind an [`Arc`] and are written
//! once.
//!
//! A file is mapped into memory, verified as a whole ([`file`]), and copied from the mapping by all threads.
//! The mapping is not kept: separate arrays have huge pages, which make products with a matrix faster, and
//! other processes cannot change them. Index arrays are checked by their constructors, so that even a forged
//! file with a valid checksum is either refused or harmless.

pub(crate) mod checksum;
mod file;

pub(crate) use file::{Keys, read, write};

use krysp_kernels::buffer::{Buffer, Plain, bytes_of, bytes_of_mut, in_huge_pages};
use krysp_kernels::cost::ProductWork;
use krysp_kernels::cpu::formats::coo::EntryRows;
use krysp_kernels::cpu::formats::sliced::{ChunkOrder, ShortColumns, SlicedColumns};
use krysp_kernels::cpu::formats::symmetric::Halves;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::index::{Columns, Offsets};
use krysp_kernels::strategy::Strategy;
use std::any::Any;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Loaded data is inconsistent.
#[derive(Clone, Copy, Debug)]
pub struct InconsistentData;

/// Result of loading.
pub(crate) type Loaded<X> = Result<X, InconsistentData>;

/// A value that several others share, identified by its address.
type Shared = Arc<dyn Any + Send + Sync>;

/// Writes values to a file.
pub struct Writer<'f> {
    file: &'f mut dyn Write,
    /// The first error, after which nothing is written.
    failed: Option<io::Error>,
    shared: Vec<Shared>,
}

impl<'f> Writer<'f> {
    fn new(file: &'f mut dyn Write) -> Writer<'f> {
        Writer { file, failed: None, shared: vec![] }
    }

    /// Registers a shared value that the reader already has.
    pub(crate) fn knows<X: Any + Send + Sync>(&mut self, known: &Arc<X>) {
        self.shared.push(known.clone());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(bytes).err();
        }
    }
}

/// Saves a value in memory, and loads it again.
#[cfg(test)]
pub(crate) fn copied<X: Saved>(value: &X) -> Loaded<X> {
    let mut bytes = vec![];
    value.save(&mut Writer::new(&mut bytes));
    X::load(&mut Reader::new(&bytes))
}

/// Reads values from a file.
pub struct Reader<'f> {
    left: &'f [u8],
    shared: Vec<Shared>,
}

impl<'f> Reader<'f> {
    fn new(left: &'f [u8]) -> Reader<'f> {
        Reader { left, shared: vec![] }
    }

    /// Registers the same shared values as the writer, in the same order.
    pub(crate) fn knows<X: Any + Send + Sync>(&mut self, known: &Arc<X>) {
        self.shared.push(known.clone());
    }

    fn bytes(&mut self, count: usize) -> Loaded<&'f [u8]> {
        self.left.split_off(..count).ok_or(InconsistentData)
    }

    /// Reads the number of items that follow, each of at least `bytes` bytes. Returns an error if the rest of
    /// the file is too short for them, so that no memory is allocated for a wrong number.
    fn count(&mut self, bytes: usize) -> Loaded<usize> {
        let count = usize::load(self)?;
        if count.saturating_mul(bytes) <= self.left.len() { Ok(count) } else { Err(InconsistentData) }
    }

    /// Fills an array with bytes from the file, copied by all threads.
    fn fill<X: Plain>(&mut self, numbers: &mut [X]) -> Loaded<()> {
        let from = self.bytes(size_of_val(numbers))?;
        over_rows(from.len(), 1, bytes_of_mut(numbers), &|range, part: &mut [u8]| {
            part.copy_from_slice(&from[range]);
        });
        Ok(())
    }

    /// Reads a value of type `X`.
    pub(crate) fn load<X: Saved>(&mut self) -> Loaded<X> {
        X::load(self)
    }
}

/// A type that can be saved to a file and loaded again.
pub trait Saved: Sized {
    /// Writes the value.
    fn save(&self, to: &mut Writer<'_>);

    /// Reads a value.
    fn load(from: &mut Reader<'_>) -> Loaded<Self>;

    /// Writes the values of a slice. Overridden for numbers, which are written in one piece.
    fn save_all(all: &[Self], to: &mut Writer<'_>) {
        all.iter().for_each(|one| one.save(to));
    }

    /// Reads `count` values.
    fn load_all(from: &mut Reader<'_>, count: usize) -> Loaded<Vec<Self>> {
        (0..count).map(|_| Self::load(from)).collect()
    }
}

/// Implements [`Saved`] for a struct: `saved!(impl[T: Real] Type<T> { field, field })`. Fields that are not
/// saved but recomputed follow as `; field = value`. With `where |read| condition`, a value `read` that
/// violates the condition is an error.
macro_rules! saved {
    (impl[$($of:tt)*] $type:ty {
        $($field:ident),* $(; $($made:ident = $value:expr),*)?
    } $(where |$read:ident| $holds:expr)?) => {
        impl<$($of)*> $crate::saved::Saved for $type {
            fn save(&self, to: &mut $crate::saved::Writer<'_>) {
                let Self { $($field,)* $($($made: _,)*)? } = self;
                $($crate::saved::Saved::save($field, to);)*
            }

            fn load(from: &mut $crate::saved::Reader<'_>) -> $crate::saved::Loaded<Self> {
                let read = Self { $($field: from.load()?,)* $($($made: $value,)*)? };
                $(
                    let $read = &read;
                    if !$holds {
                        return Err($crate::saved::InconsistentData);
                    }
                )?
                Ok(read)
            }
        }
    };
}
pub(crate) use saved;

/// Implements [`Saved`] for an enum without data: saves the index of the variant in the given list.
macro_rules! saved_names {
    ($type:ty: $($variant:path),*) => {
        impl $crate::saved::Saved for $type {
            fn save(&self, to: &mut $crate::saved::Writer<'_>) {
                let place = [$($variant),*].iter().position(|variant| variant == self);
                $crate::saved::Saved::save(&place.unwrap_or(usize::MAX), to);
            }

            fn load(from: &mut $crate::saved::Reader<'_>) -> $crate::saved::Loaded<Self> {
                let place: usize = from.load()?;
                [$($variant),*].get(place).copied().ok_or($crate::saved::InconsistentData)
            }
        }
    };
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Saved for $number {
            fn save(&self, to: &mut Writer<'_>) {
                to.bytes(&self.to_ne_bytes());
            }

            fn load(from: &mut Reader<'_>) -> Loaded<Self> {
                let bytes = from.bytes(size_of::<Self>())?;
                Ok(Self::from_ne_bytes(bytes.try_into().map_err(|_| InconsistentData)?))
            }

            fn save_all(all: &[Self], to: &mut Writer<'_>) {
                to.bytes(bytes_of(all));
            }

            fn load_all(from: &mut Reader<'_>, count: usize) -> Loaded<Vec<Self>> {
                let mut all = vec![Self::default(); count];
                in_huge_pages(&mut all);
                from.fill(&mut all)?;
                Ok(all)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, f32, f64);

macro_rules! as_numbers {
    ($($type:ty: $number:ty),*) => {$(
        impl Saved for $type {
            fn save(&self, to: &mut Writer<'_>) {
                (*self as $number).save(to);
            }

            fn load(from: &mut Reader<'_>) -> Loaded<Self> {
                Ok(<$number>::load(from)? as $type)
            }
        }
    )*};
}
as_numbers!(usize: u64, i64: u64);

impl Saved for bool {
    fn save(&self, to: &mut Writer<'_>) {
        u8::from(*self).save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<bool> {
        match u8::load(from)? {
            byte @ 0..=1 => Ok(byte == 1),
            _ => Err(InconsistentData),
        }
    }
}

impl<X: Saved> Saved for Vec<X> {
    fn save(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        X::save_all(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Vec<X>> {
        let count = from.count(size_of::<X>().min(1))?;
        X::load_all(from, count)
    }
}

impl<X: Saved + Plain> Saved for Buffer<X> {
    fn save(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        to.bytes(bytes_of(self));
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Buffer<X>> {
        let mut all = Buffer::zeros(from.count(size_of::<X>())?);
        from.fill(&mut all)?;
        Ok(all)
    }
}

impl Saved for String {
    fn save(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        to.bytes(self.as_bytes());
    }

    fn load(from: &mut Reader<'_>) -> Loaded<String> {
        let count = from.count(1)?;
        String::from_utf8(from.bytes(count)?.to_vec()).map_err(|_| InconsistentData)
    }
}

impl<X: Saved> Saved for Option<X> {
    fn save(&self, to: &mut Writer<'_>) {
        self.is_some().save(to);
        self.iter().for_each(|some| some.save(to));
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Option<X>> {
        if bool::load(from)? { X::load(from).map(Some) } else { Ok(None) }
    }
}

impl<X: Saved, const N: usize> Saved for [X; N] {
    fn save(&self, to: &mut Writer<'_>) {
        X::save_all(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<[X; N]> {
        X::load_all(from, N)?.try_into().map_err(|_| InconsistentData)
    }
}

impl<X: Saved, Y: Saved> Saved for (X, Y) {
    fn save(&self, to: &mut Writer<'_>) {
        self.0.save(to);
        self.1.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<(X, Y)> {
        Ok((from.load()?, from.load()?))
    }
}

impl Saved for Range<usize> {
    fn save(&self, to: &mut Writer<'_>) {
        [self.start, self.end].save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Range<usize>> {
        let [start, end] = from.load()?;
        if start <= end { Ok(start..end) } else { Err(InconsistentData) }
    }
}

impl Saved for std::time::Duration {
    fn save(&self, to: &mut Writer<'_>) {
        self.as_secs_f64().save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Self> {
        Self::try_from_secs_f64(from.load()?).map_err(|_| InconsistentData)
    }
}

/// The value is written once; further references to it are written as its index.
impl<X: Saved + Any + Send + Sync> Saved for Arc<X> {
    fn save(&self, to: &mut Writer<'_>) {
        let address = Arc::as_ptr(self).cast::<()>();
        let known = to.shared.iter().position(|shared| Arc::as_ptr(shared).cast::<()>() == address);
        known.unwrap_or(to.shared.len()).save(to);
        if known.is_none() {
            X::save(self, to);
            to.shared.push(self.clone());
        }
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Arc<X>> {
        let place = usize::load(from)?;
        if let Some(known) = from.shared.get(place) {
            return known.clone().downcast().map_err(|_| InconsistentData);
        }
        let read = Arc::new(X::load(from)?);
        from.shared.push(read.clone());
        Ok(read)
    }
}

impl Saved for Offsets {
    fn save(&self, to: &mut Writer<'_>) {
        let long = match self {
            Offsets::Short(short) => {
                false.save(to);
                return save_slice(short, to);
            }
            Offsets::Long(long) => long,
        };
        true.save(to);
        save_slice(long, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Offsets> {
        let offsets = match bool::load(from)? {
            false => Offsets::from_short(from.load::<Buffer<u32>>()?),
            true => Offsets::new(&from.load::<Vec<u64>>()?),
        };
        offsets.map_err(|_| InconsistentData)
    }
}

impl Saved for Columns {
    fn save(&self, to: &mut Writer<'_>) {
        self.bound().save(to);
        save_slice(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Columns> {
        let bound = from.load()?;
        Columns::new(from.load::<Buffer<u32>>()?, bound).map_err(|_| InconsistentData)
    }
}

/// Writes a slice in the format of a `Vec` or `Buffer`.
pub(crate) fn save_slice<X: Saved>(slice: &[X], to: &mut Writer<'_>) {
    slice.len().save(to);
    X::save_all(slice, to);
}

impl Saved for ChunkOrder {
    fn save(&self, to: &mut Writer<'_>) {
        save_slice(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<ChunkOrder> {
        ChunkOrder::new(from.load()?).map_err(|_| InconsistentData)
    }
}

/// Writes the column indices of a format made of slices. To check 16-bit indices, the reader needs the range
/// of slots (stored positions, including padding) of each slice.
pub(crate) fn save_sliced(columns: &SlicedColumns, to: &mut Writer<'_>) {
    match columns {
        SlicedColumns::Wide(columns) => (false, columns.bound()).save(to),
        SlicedColumns::Short(columns) => (true, columns.bound()).save(to),
    }
    match columns {
        SlicedColumns::Wide(columns) => save_slice(columns, to),
        SlicedColumns::Short(columns) => {
            save_slice(columns.bases(), to);
            save_slice(columns.offsets(), to);
        }
    }
}

/// Reads what [`save_sliced`] wrote.
pub(crate) fn load_sliced(
    from: &mut Reader<'_>,
    slices: usize,
    slots: impl Fn(usize) -> Range<usize> + Sync,
) -> Loaded<SlicedColumns> {
    let (short, bound) = from.load()?;
    if short {
        let (bases, offsets) = (from.load::<Vec<u32>>()?, from.load()?);
        if bases.len() != slices {
            return Err(InconsistentData);
        }
        let columns = ShortColumns::new(bases, offsets, slots, bound).map_err(|_| InconsistentData)?;
        return Ok(SlicedColumns::Short(columns));
    }
    let columns = Columns::new(from.load::<Buffer<u32>>()?, bound).map_err(|_| InconsistentData)?;
    Ok(SlicedColumns::Wide(columns))
}

impl Saved for EntryRows {
    fn save(&self, to: &mut Writer<'_>) {
        self.rows().save(to);
        save_slice(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<EntryRows> {
        let rows = from.load()?;
        EntryRows::new(from.load::<Buffer<u32>>()?, rows).map_err(|_| InconsistentData)
    }
}

impl Saved for Halves {
    fn save(&self, to: &mut Writer<'_>) {
        self.size().save(to);
        save_slice(self.parts(), to);
        self.offsets().save(to);
        save_slice(self.inner(), to);
        self.columns().save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Halves> {
        let (size, parts) = from.load::<(usize, Vec<usize>)>()?;
        let (offsets, inner) = from.load::<(Offsets, Vec<u32>)>()?;
        // the offsets count block rows, but the number of scalar rows must not overflow either
        if size == 0 || offsets.ranges().checked_mul(size).is_none() {
            return Err(InconsistentData);
        }
        Halves::new(size, parts, offsets, inner, from.load()?).map_err(|_| InconsistentData)
    }
}

impl Saved for ProductWork {
    fn save(&self, to: &mut Writer<'_>) {
        let ProductWork { bytes, gathers, rows, waits } = *self;
        [bytes, gathers, rows, waits].save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<ProductWork> {
        let [bytes, gathers, rows, waits] = from.load()?;
        Ok(ProductWork { bytes, gathers, rows, waits })
    }
}

saved_names!(Strategy: Strategy::Automatic, Strategy::Classical, Strategy::LoadBalance, Strategy::MergePath,
    Strategy::Speculative);
