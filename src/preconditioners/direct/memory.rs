//! How much memory factors may take.

use crate::memory::free;
use crate::saved::{Loaded, Reader, Saved, Writer};
use crate::{Error, Result};

/// The share of the memory that is free which factors may take, where no limit is given.
const SHARE: f64 = 0.75;

/// What a direct factorisation may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectOptions {
    /// Bytes for the factors and what computing them needs; three quarters of the memory that is free where `None`.
    pub memory: Option<usize>,
}

/// A limit on the memory of one factorisation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    what: &'static str,
    limit: usize,
}

impl Budget {
    pub(super) fn new(what: &'static str, options: DirectOptions) -> Budget {
        Budget { what, limit: options.memory.unwrap_or_else(free_share) }
    }

    /// The name of the factorization.
    pub(super) fn what(self) -> &'static str {
        self.what
    }

    /// The bytes that may be taken.
    pub(super) fn limit(self) -> usize {
        self.limit
    }

    pub(super) fn save(&self, to: &mut Writer<'_>) {
        self.limit.save(to);
    }

    pub(super) fn load(what: &'static str, from: &mut Reader<'_>) -> Loaded<Budget> {
        Ok(Budget { what, limit: from.load()? })
    }

    /// Refuses to take so many bytes.
    pub(super) fn allows(self, bytes: usize) -> Result<()> {
        if bytes <= self.limit { Ok(()) } else { Err(self.refused(bytes)) }
    }

    pub(super) fn refused(self, needed: usize) -> Error {
        Error::Memory { what: self.what, needed, limit: self.limit }
    }

    /// Zeros, or an error where there is no memory for them.
    pub(super) fn zeros<T: Clone + Default>(self, len: usize) -> Result<Vec<T>> {
        let mut zeros = vec![];
        self.reserve(&mut zeros, len)?;
        zeros.resize(len, T::default());
        Ok(zeros)
    }

    /// As [`Budget::reserve`], for a list that grows often.
    pub(super) fn reserve_more<T>(self, list: &mut Vec<T>, more: usize) -> Result<()> {
        if list.capacity() - list.len() >= more {
            Ok(())
        } else {
            self.reserve(list, more.max(list.len() / 2))
        }
    }

    /// Reserves memory for so many more, or says that there is none.
    pub(super) fn reserve<T>(self, list: &mut Vec<T>, more: usize) -> Result<()> {
        let bytes = (list.len() + more).saturating_mul(size_of::<T>());
        list.try_reserve_exact(more).map_err(|_| self.refused(bytes))
    }
}

fn free_share() -> usize {
    free().map_or(usize::MAX, |free| (SHARE * free as f64) as usize)
}
