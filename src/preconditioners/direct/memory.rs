//! Memory limits of direct factorizations.

use crate::error::{Error, Result};
use crate::memory::free_for;
use krysp_kernels::buffer::{Buffer, Plain};

/// Default limit, as a fraction of the free memory. Guess; it leaves a quarter for vectors and other programs.
const SHARE: f64 = 0.75;

/// Memory limit of a direct factorization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectOptions {
    /// Maximum number of bytes for the factors and the workspace of the factorization. `None`: three quarters
    /// of the free memory; no limit if that is unknown, or if even a dense matrix of this size is small.
    pub memory: Option<usize>,
}

/// Memory limit of one factorization, with its name for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    what: &'static str,
    limit: usize,
    /// Maximum number of multiplications that are expected of a factorization by fronts, counted as for a symmetric matrix.
    work: f64,
}

impl Budget {
    /// Limit for a matrix with this number of rows. Free memory is queried, which takes about 35 µs, only if
    /// the factors may be large.
    pub(super) fn new(what: &'static str, options: DirectOptions, rows: usize) -> Budget {
        let dense = rows.saturating_mul(rows).saturating_mul(2 * size_of::<f64>());
        let share = || free_for(dense).map_or(usize::MAX, |free| (SHARE * free as f64) as usize);
        Budget { what, limit: options.memory.unwrap_or_else(share), work: f64::INFINITY }
    }

    /// Sets the maximum number of multiplications.
    pub(super) fn with_work(self, work: f64) -> Budget {
        Budget { work, ..self }
    }

    /// Returns the limit that remains beside arrays of this size.
    pub(super) fn without(self, bytes: usize) -> Budget {
        Budget { limit: self.limit.saturating_sub(bytes), ..self }
    }

    /// Name of the factorization.
    pub(super) fn what(self) -> &'static str {
        self.what
    }

    /// Limit in bytes.
    pub(super) fn limit(self) -> usize {
        self.limit
    }

    /// Returns an error if `bytes` exceeds the limit.
    pub(super) fn allows(self, bytes: usize) -> Result<()> {
        if bytes <= self.limit { Ok(()) } else { Err(self.refused(bytes)) }
    }

    /// Returns an error if `work`, in multiplications, exceeds the limit.
    pub(super) fn allows_work(self, work: f64) -> Result<()> {
        if work <= self.work {
            return Ok(());
        }
        let why = format!("it is expected to take {work:.1e} multiplications, more than {:.1e}", self.work);
        Err(Error::Unsuitable { format: self.what, why })
    }

    pub(super) fn refused(self, needed: usize) -> Error {
        Error::Memory { what: self.what, needed, limit: self.limit }
    }

    /// Returns `len` zeros, or an error if the allocation fails; the limit is not checked. Threads may write the
    /// array in parallel.
    pub(super) fn buffer<T: Plain>(self, len: usize) -> Result<Buffer<T>> {
        Buffer::try_zeros(len).ok_or_else(|| self.refused(len.saturating_mul(size_of::<T>())))
    }

    /// Like [`Budget::reserve`], for a list that grows often: reserves at least half of its length.
    pub(super) fn reserve_more<T>(self, list: &mut Vec<T>, more: usize) -> Result<()> {
        if list.capacity() - list.len() >= more {
            Ok(())
        } else {
            self.reserve(list, more.max(list.len() / 2))
        }
    }

    /// Reserves memory for `more` further elements. Returns an error if the allocation fails; the limit is
    /// not checked.
    pub(super) fn reserve<T>(self, list: &mut Vec<T>, more: usize) -> Result<()> {
        let bytes = (list.len() + more).saturating_mul(size_of::<T>());
        list.try_reserve_exact(more).map_err(|_| self.refused(bytes))
    }
}
