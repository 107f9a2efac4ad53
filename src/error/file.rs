//! Errors of reading and writing matrices and vectors in files.

use krysp_kernels::interrupt::Interrupted;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reasons why a file could not be read.
#[derive(thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file starts like a gzip file but cannot be decompressed to its end.
    #[error("{}{}", In(path, ": "), Gzip(source))]
    Gzip {
        /// The file, if the text came from one.
        path: Option<PathBuf>,
        /// The error of the decoder.
        source: io::Error,
    },
    /// The file was being read when its [`Interrupt`](crate::Interrupt) was raised.
    #[error(transparent)]
    Interrupted(Interrupted),
    /// A value is infinite or NaN.
    #[error("{}line {line}: entry ({row}, {col}) is {value}", In(path, ", "))]
    NotFinite {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// The line, counted from 1; for a gzip file, in the decompressed text.
        line: u64,
        /// The row, counted from 1.
        row: u64,
        /// The column, counted from 1.
        col: u64,
        /// The value.
        value: f64,
    },
    /// A line is malformed.
    #[error("{}line {line}: expected {expected}, found {found}", In(path, ", "))]
    Syntax {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// The line, counted from 1; for a gzip file, in the decompressed text.
        line: u64,
        /// Content that the line should have.
        expected: String,
        /// Content that the line has.
        found: String,
    },
}

impl ReadError {
    /// Adds the name of the file to the error.
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        match &mut self {
            Self::Io { .. } | Self::Interrupted(_) => {}
            Self::Gzip { path, .. } | Self::NotFinite { path, .. } | Self::Syntax { path, .. } => {
                *path = Some(file.to_owned())
            }
        }
        self
    }
}

/// Reasons why a file could not be written.
#[derive(thiserror::Error)]
pub enum WriteError {
    /// The file could not be created or written.
    #[error("{}{source}", In(path, ": "))]
    Io {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The matrix is inconsistent, so the file could not be read again.
    #[error("expected {expected}, found {found}")]
    Content {
        /// Content that the matrix should have.
        expected: String,
        /// Content that the matrix has.
        found: String,
    },
}

/// Prints the message, because `main` prints errors that it returns by `Debug`.
impl fmt::Debug for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints the message, because `main` prints errors that it returns by `Debug`.
impl fmt::Debug for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct In<'a>(&'a Option<PathBuf>, &'static str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, "{}{}", path.display(), self.1),
            None => Ok(()),
        }
    }
}

struct Gzip<'a>(&'a io::Error);

impl fmt::Display for Gzip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            io::ErrorKind::UnexpectedEof => write!(f, "the gzip data end too early"),
            _ => write!(f, "the gzip data are damaged ({})", self.0),
        }
    }
}
