//! The bytes of files, and functions shared by the readers and writers of binary files.

use super::matrix_market::{ReadError, WriteError};
use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use krysp_kernels::interrupt::{Interrupted, Phase};
use krysp_kernels::map::map_file;
use krysp_solvers::Element;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

/// Magic number of gzip files.
const GZIP: &[u8] = b"\x1f\x8b";

/// Bytes read between two polls for interruption: a few milliseconds of decompression. The time is estimated, not
/// measured.
const PIECE: u64 = 1 << 20;

/// The bytes of a file, decompressed if its first bytes are those of a gzip file.
///
/// The file is mapped into memory and must not be truncated while it is read: most operating systems end the
/// process in that case.
pub(super) fn load(path: &Path) -> std::result::Result<Box<dyn Deref<Target = [u8]>>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let bytes: Box<dyn Deref<Target = [u8]>> = if file.metadata().map_err(failed)?.is_file() {
        Box::new(map_file(&file).map_err(failed)?)
    } else {
        // for example a pipe
        Box::new(read_to_end(&mut file).map_err(failed)?)
    };
    match inflated(&bytes) {
        None => Ok(bytes),
        Some(Ok(inflated)) => Ok(Box::new(inflated)),
        Some(Err(error)) => Err(error.in_file(path)),
    }
}

/// Reads all bytes of a pipe or of memory, and decompresses them like [`load`]. Error messages call the
/// source `name`.
pub(super) fn load_from(name: &Path, mut source: impl Read) -> std::result::Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = source.read_to_end(&mut bytes);
    read.map_err(|source| ReadError::Io { path: name.to_owned(), source })?;
    match inflated(&bytes) {
        None => Ok(bytes),
        Some(inflated) => inflated.map_err(|error| error.in_file(name)),
    }
}

/// The decompressed bytes; `None` if `bytes` are not gzipped.
pub(super) fn inflated(bytes: &[u8]) -> Option<std::result::Result<Vec<u8>, ReadError>> {
    bytes.starts_with(GZIP).then(|| {
        read_to_end(&mut MultiGzDecoder::new(bytes)).map_err(|source| match interrupted(&source) {
            Some(interrupted) => ReadError::Interrupted(interrupted),
            None => ReadError::Gzip { path: None, source },
        })
    })
}

/// Reads everything that is left, in pieces. Between two pieces reading can be interrupted; the error then
/// contains [`Interrupted`].
pub(super) fn read_to_end(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let phase = Phase::new("reading", 0.0);
    let mut bytes = Vec::new();
    loop {
        let count = from.by_ref().take(PIECE).read_to_end(&mut bytes)?;
        if count == 0 {
            return Ok(bytes);
        }
        phase.advance(count as u64).map_err(io::Error::other)?;
    }
}

/// The interruption that an error contains, if any.
pub(super) fn interrupted(error: &io::Error) -> Option<Interrupted> {
    error.get_ref().and_then(|inner| inner.downcast_ref()).copied()
}

/// Returns whether the name of a file ends with `ending` (lower case), in upper or lower case.
pub(super) fn ends_in(path: &Path, ending: &str) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(ending)
}

/// Writes `bytes` to a file, replacing its content.
pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |source| WriteError::Io { path: Some(path.to_owned()), source };
    Ok(std::fs::write(path, bytes).map_err(failed)?)
}

/// The error that something is wrong in the file `path`.
pub(super) fn wrong(path: &Path, why: impl Into<String>) -> Error {
    Error::File { path: path.to_owned(), why: why.into() }
}

/// Result of a reader of bytes: an error says what is wrong, and the caller adds the name of the file.
pub(super) type Parsed<T> = std::result::Result<T, String>;

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

/// Type of the numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Signed integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Floating-point numbers.
    Float,
}

/// Representation of numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) order: Order,
    pub(super) kind: Kind,
    /// Bytes of a number.
    pub(super) width: usize,
}

impl Numbers {
    /// Reads an integer. `None` if the type is floating-point or wider than 8 bytes, bytes are missing, or
    /// the integer does not fit `i64`.
    pub(super) fn whole(self, bytes: &[u8]) -> Option<i64> {
        let mut raw = [0; 8];
        raw.get_mut(..self.width)?.copy_from_slice(bytes.get(..self.width)?);
        if self.order == Order::Big {
            raw[..self.width].reverse();
        }
        let bits = u64::from_le_bytes(raw);
        match self.kind {
            Kind::Float => None,
            Kind::Unsigned => i64::try_from(bits).ok(),
            Kind::Signed => {
                let unused = 64 - 8 * self.width as u32;
                Some(((bits << unused) as i64) >> unused)
            }
        }
    }

    fn real(self, bytes: &[u8]) -> Option<f64> {
        let ordered = |mut raw: [u8; 8]| {
            if self.order == Order::Big {
                raw[..self.width].reverse();
            }
            raw
        };
        match (self.kind, bytes) {
            (Kind::Float, &[a, b, c, d]) => {
                let [a, b, c, d, ..] = ordered([a, b, c, d, 0, 0, 0, 0]);
                Some(f64::from(f32::from_le_bytes([a, b, c, d])))
            }
            (Kind::Float, _) => Some(f64::from_le_bytes(ordered(bytes.try_into().ok()?))),
            _ => Some(self.whole(bytes)? as f64),
        }
    }

    /// Reads all bytes as integers.
    pub(super) fn all_whole(self, bytes: &[u8]) -> Parsed<Vec<i64>> {
        let phase = Phase::new("reading", 0.0);
        let mut counter = phase.counter();
        let mut whole = |one| {
            counter.add(0).map_err(|interrupted| interrupted.to_string())?;
            self.whole(one).ok_or_else(|| "an index is not a whole number".to_owned())
        };
        bytes.chunks_exact(self.width).map(&mut whole).collect()
    }

    /// Reads all bytes as values.
    pub(super) fn all_values<T: Element>(self, bytes: &[u8]) -> Parsed<Vec<T>> {
        let refused = || format!("expected values of 4 or 8 bytes, found {} bytes", self.width);
        let phase = Phase::new("reading", 0.0);
        let mut counter = phase.counter();
        let mut value = |one| {
            counter.add(0).map_err(|interrupted| interrupted.to_string())?;
            self.real(one).map(T::from_f64).ok_or_else(refused)
        };
        bytes.chunks_exact(self.width).map(&mut value).collect()
    }
}

/// Splits off the first `count` bytes.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize, what: &str) -> Parsed<&'a [u8]> {
    let left = bytes.len();
    bytes
        .split_off(..count)
        .ok_or_else(|| format!("it ends within {what}: expected {count} bytes, found {left}"))
}

/// A length stated in a file.
pub(super) fn length(stated: i64, what: &str) -> Parsed<usize> {
    usize::try_from(stated).map_err(|_| format!("invalid number of {what}: {stated}"))
}
