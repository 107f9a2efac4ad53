//! Saves what is expensive to build to a file, so that the next run of a program can load it instead.
//!
//! Operators and plans are saved, also with formats of other crates, which are written with the items of
//! [`formats::extend`](crate::formats::extend).
//!
//! ```
//! use krysp::saved::saved;
//!
//! struct Window { first: usize, weights: Vec<f64> }
//! saved!(impl[] Window { first, weights } where |read| !read.weights.is_empty());
//! ```
//!
//! A type that can be saved implements [`Saved`]: it writes its fields one after the other, and reads them
//! back in the same order. The macro [`saved!`] implements this trait from the names of the fields. Parts that
//! several values share (patterns and permutations) are behind an [`Arc`] and are written once. In a file, each
//! value follows a hash of the names and types of its fields ([`Schema`]): a file with other fields is refused.
//!
//! A file is mapped into memory, verified as a whole (`file.rs`), and copied from the mapping by all threads.
//! The mapping is not kept: separate arrays have huge pages, which make products with a matrix faster, and
//! other processes cannot change them. Index arrays are checked by their constructors, so that even a forged
//! file with a valid checksum is either refused or harmless.

mod arrays;
pub(crate) mod checksum;
mod file;
mod schema;

pub(crate) use file::{FileReader, FileWriter, Keys, read, write};
pub use schema::Schema;

use krysp_kernels::buffer::{Buffer, Plain, bytes_of, bytes_of_mut, in_huge_pages};
use krysp_kernels::cost::ProductWork;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::strategy::Strategy;
use std::any::Any;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Loaded data is inconsistent.
#[derive(Clone, Copy, Debug)]
pub struct InconsistentData;

/// Result of loading.
pub type Loaded<X> = Result<X, InconsistentData>;

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
    /// Names that strings of the program may have.
    names: Vec<&'static str>,
    /// A name of the file that is not one of them.
    unknown: Option<String>,
}

impl<'f> Reader<'f> {
    fn new(left: &'f [u8]) -> Reader<'f> {
        Reader { left, shared: vec![], names: vec![], unknown: None }
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
    pub fn load<X: Saved>(&mut self) -> Loaded<X> {
        X::load(self)
    }
}

/// A type that can be saved to a file and loaded again. [`saved!`] implements it, so that what is written, what is read and
/// the schema have the same fields.
pub trait Saved: Sized {
    /// Adds the names and types of the fields to a schema.
    fn describe(schema: &mut Schema);

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

/// A value that is written in the form of an `X`, without conversion.
pub trait WrittenAs<X> {
    /// Writes the value.
    fn write(&self, to: &mut Writer<'_>);
}

impl<X: Saved> WrittenAs<X> for X {
    fn write(&self, to: &mut Writer<'_>) {
        self.save(to);
    }
}

impl<X: Saved> WrittenAs<Vec<X>> for [X] {
    fn write(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        X::save_all(self, to);
    }
}

impl<X: Saved + Plain> WrittenAs<Buffer<X>> for [X] {
    fn write(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        to.bytes(bytes_of(self));
    }
}

impl WrittenAs<String> for str {
    fn write(&self, to: &mut Writer<'_>) {
        self.len().save(to);
        to.bytes(self.as_bytes());
    }
}

/// Implements [`Saved`](crate::saved::Saved).
///
/// - `saved!(impl[T: Real] Type<T> { field, field })` for a struct. Fields that are not saved but recomputed follow as
///   `; field = value`. With `where |read| condition`, a value `read` that violates the condition is an error.
/// - `saved!(impl[T: Real] enum Type<T> { Variant { 0: name }, Variant { field: name } })` for an enum.
/// - `saved!(impl[T: Real] Type<T> as |this| { name: Type = &reference } => result)` for a type that is written in another form:
///   `result` is computed from what was read.
#[macro_export]
macro_rules! saved {
    (impl[$($of:tt)*] enum $type:ty {
        $($variant:ident { $($key:tt: $field:ident),* }),* $(,)?
    }) => {
        impl<$($of)*> $crate::saved::Saved for $type {
            fn describe(schema: &mut $crate::saved::Schema) {
                $(
                    schema.name(stringify!($variant));
                    $(schema.field(stringify!($key), |this: &Self| match this {
                        Self::$variant { $key: field, .. } => Some(field),
                        #[allow(unreachable_patterns, reason = "of an enum with one variant")]
                        _ => None,
                    });)*
                )*
            }

            fn save(&self, to: &mut $crate::saved::Writer<'_>) {
                match self {
                    $(Self::$variant { $($key: $field),* } => {
                        $crate::saved::WrittenAs::<String>::write(stringify!($variant), to);
                        $($crate::saved::Saved::save($field, to);)*
                    })*
                }
            }

            fn load(from: &mut $crate::saved::Reader<'_>) -> $crate::saved::Loaded<Self> {
                let variant: String = from.load()?;
                $(
                    if variant == stringify!($variant) {
                        return Ok(Self::$variant { $($key: from.load()?),* });
                    }
                )*
                Err($crate::saved::InconsistentData)
            }
        }
    };
    (impl[$($of:tt)*] $type:ty as |$this:ident| {
        $($field:ident: $stored:ty = $value:expr),* $(,)?
    } => $made:expr) => {
        impl<$($of)*> $crate::saved::Saved for $type {
            fn describe(schema: &mut $crate::saved::Schema) {
                $(schema.part::<$stored>(stringify!($field));)*
            }

            fn save(&self, to: &mut $crate::saved::Writer<'_>) {
                let $this = self;
                $($crate::saved::WrittenAs::<$stored>::write($value, to);)*
            }

            fn load(from: &mut $crate::saved::Reader<'_>) -> $crate::saved::Loaded<Self> {
                $(let $field: $stored = from.load()?;)*
                $made
            }
        }
    };
    (impl[$($of:tt)*] $type:ty {
        $($field:ident),* $(; $($made:ident = $value:expr),*)?
    } $(where |$read:ident| $holds:expr)?) => {
        impl<$($of)*> $crate::saved::Saved for $type {
            fn describe(schema: &mut $crate::saved::Schema) {
                $(schema.field(stringify!($field), |this: &Self| Some(&this.$field));)*
            }

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
pub use saved;

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Saved for $number {
            fn describe(schema: &mut Schema) {
                schema.name(stringify!($number));
            }

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
            fn describe(schema: &mut Schema) {
                schema.name(stringify!($type));
            }

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
    fn describe(schema: &mut Schema) {
        schema.name("bool");
    }

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
    fn describe(schema: &mut Schema) {
        schema.part::<X>("array");
    }

    fn save(&self, to: &mut Writer<'_>) {
        WrittenAs::<Vec<X>>::write(&**self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Vec<X>> {
        let count = from.count(size_of::<X>().min(1))?;
        X::load_all(from, count)
    }
}

impl<X: Saved + Plain> Saved for Buffer<X> {
    fn describe(schema: &mut Schema) {
        schema.part::<X>("array");
    }

    fn save(&self, to: &mut Writer<'_>) {
        WrittenAs::<Buffer<X>>::write(&**self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Buffer<X>> {
        let mut all = Buffer::zeros(from.count(size_of::<X>())?);
        from.fill(&mut all)?;
        Ok(all)
    }
}

impl Saved for String {
    fn describe(schema: &mut Schema) {
        schema.name("text");
    }

    fn save(&self, to: &mut Writer<'_>) {
        WrittenAs::<String>::write(&**self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<String> {
        let count = from.count(1)?;
        String::from_utf8(from.bytes(count)?.to_vec()).map_err(|_| InconsistentData)
    }
}

/// A name of the program, such as that of a format. On loading it must be one that the reader knows.
impl Saved for &'static str {
    fn describe(schema: &mut Schema) {
        schema.name("name");
    }

    fn save(&self, to: &mut Writer<'_>) {
        WrittenAs::<String>::write(*self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<&'static str> {
        let name: String = from.load()?;
        match from.names.iter().find(|known| **known == name) {
            Some(known) => Ok(known),
            None => {
                from.unknown = Some(name);
                Err(InconsistentData)
            }
        }
    }
}

impl<X: Saved> Saved for Option<X> {
    fn describe(schema: &mut Schema) {
        schema.part::<X>("option");
    }

    fn save(&self, to: &mut Writer<'_>) {
        self.is_some().save(to);
        self.iter().for_each(|some| some.save(to));
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Option<X>> {
        if bool::load(from)? { X::load(from).map(Some) } else { Ok(None) }
    }
}

impl<X: Saved, const N: usize> Saved for [X; N] {
    fn describe(schema: &mut Schema) {
        schema.part::<X>(&format!("{N} times"));
    }

    fn save(&self, to: &mut Writer<'_>) {
        X::save_all(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<[X; N]> {
        X::load_all(from, N)?.try_into().map_err(|_| InconsistentData)
    }
}

impl<X: Saved, Y: Saved> Saved for (X, Y) {
    fn describe(schema: &mut Schema) {
        schema.part::<X>("0");
        schema.part::<Y>("1");
    }

    fn save(&self, to: &mut Writer<'_>) {
        self.0.save(to);
        self.1.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<(X, Y)> {
        Ok((from.load()?, from.load()?))
    }
}

impl<X: Saved> Saved for Box<X> {
    fn describe(schema: &mut Schema) {
        X::describe(schema);
    }

    fn save(&self, to: &mut Writer<'_>) {
        X::save(self, to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Box<X>> {
        X::load(from).map(Box::new)
    }
}

saved!(impl[] Range<usize> as |this| { start: usize = &this.start, end: usize = &this.end } => {
    if start <= end { Ok(start..end) } else { Err(InconsistentData) }
});

saved!(impl[] std::time::Duration as |this| { seconds: f64 = &this.as_secs_f64() } => {
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| InconsistentData)
});

/// The value is written once; further references to it are written as its index.
impl<X: Saved + Any + Send + Sync> Saved for Arc<X> {
    fn describe(schema: &mut Schema) {
        schema.part::<X>("shared");
    }

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

saved!(impl[] ProductWork { bytes, gathers, rows, waits });

saved!(impl[] enum Strategy { Automatic {}, Classical {}, LoadBalance {}, MergePath {}, Speculative {} });
