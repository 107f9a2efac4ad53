//! Mapping between two orders of values: the order of the entries, and the order in which the user assembles
//! them.

use crate::error::{Error, Result};
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{fill_by_rows, find_row, map_rows, over_rows};
use krysp_kernels::index::Offsets;

/// Mapping from assembled values to the entries of sorted rows.
#[derive(Debug)]
pub(crate) enum AssemblyOrder {
    /// Both orders are the same.
    InOrder { len: usize },
    /// Entry `k` is the assembled value `from[k]`.
    Permuted { len: usize, from: Buffer<u32> },
    /// Entry `k` is the sum of the assembled values `from[starts.range(k)]`, added in the order given.
    Summed { len: usize, starts: Offsets, from: Buffer<u32> },
}

impl AssemblyOrder {
    pub(crate) fn len(&self) -> usize {
        match self {
            AssemblyOrder::InOrder { len }
            | AssemblyOrder::Permuted { len, .. }
            | AssemblyOrder::Summed { len, .. } => *len,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            AssemblyOrder::InOrder { .. } => 0,
            AssemblyOrder::Permuted { from, .. } => size_of_val(&**from),
            AssemblyOrder::Summed { starts, from, .. } => starts.bytes() + size_of_val(&**from),
        }
    }

    /// The same mapping in the form that kernels for devices accept.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> krysp_kernels::cuda::Order<'_> {
        use krysp_kernels::cuda::Order;
        match self {
            AssemblyOrder::InOrder { .. } => Order::InOrder,
            AssemblyOrder::Permuted { from, .. } => Order::Permuted { from },
            AssemblyOrder::Summed { starts, from, .. } => Order::Summed { starts, from },
        }
    }

    /// Indices of the assembled values that are summed to an entry.
    pub(crate) fn sources(&self, entry: usize) -> impl Iterator<Item = u32> + '_ {
        let (one, many) = match self {
            AssemblyOrder::InOrder { .. } => (Some(entry as u32), &[][..]),
            AssemblyOrder::Permuted { from, .. } => (Some(from[entry]), &[][..]),
            AssemblyOrder::Summed { starts, from, .. } => (None, &from[starts.range(entry)]),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Composes this mapping with a permutation of the entries: new entry `k` is entry `order[k]` here.
    pub(super) fn then(&self, order: Buffer<u32>) -> AssemblyOrder {
        let len = self.len();
        match self {
            AssemblyOrder::InOrder { .. }
                if find_row(order.len(), 1, &|k| k != order[k] as usize).is_none() =>
            {
                AssemblyOrder::InOrder { len }
            }
            // in this mapping, entry `k` is the assembled value `k`
            AssemblyOrder::InOrder { .. } => AssemblyOrder::Permuted { len, from: order },
            AssemblyOrder::Permuted { from, .. } => {
                let from: Vec<u32> = map_rows(order.len(), 3, &|k| from[order[k] as usize]);
                AssemblyOrder::Permuted { len, from: from.into() }
            }
            AssemblyOrder::Summed { starts, .. } => {
                let starts = Offsets::from_lengths(order.iter().map(|&o| starts.range(o as usize).len()));
                let mut from = Buffer::zeros(starts.end());
                fill_by_rows(order.len(), &mut from, &|k| starts.at(k), &|entries, part, _| {
                    let sources = order[entries].iter().flat_map(|&o| self.sources(o as usize));
                    part.iter_mut().zip(sources).for_each(|(to, source)| *to = source);
                });
                AssemblyOrder::Summed { len, starts, from }
            }
        }
    }

    /// Computes the entries from the assembled values. Returns an error if their number is wrong.
    pub(super) fn assemble<T: Real>(&self, values: &[T], entries: &mut [T]) -> Result<()> {
        self.check_length(values.len())?;
        over_rows(entries.len(), 2, entries, &|range, entries: &mut [T]| match self {
            AssemblyOrder::InOrder { .. } => entries.copy_from_slice(&values[range]),
            AssemblyOrder::Permuted { from, .. } => {
                for (entry, &from) in entries.iter_mut().zip(&from[range]) {
                    *entry = values[from as usize];
                }
            }
            AssemblyOrder::Summed { starts, from, .. } => {
                for (k, entry) in range.zip(entries) {
                    let mut parts = from[starts.range(k)].iter().map(|&f| values[f as usize]);
                    let first = parts.next().unwrap_or_default();
                    *entry = parts.fold(first, |sum, value| sum + value);
                }
            }
        });
        Ok(())
    }

    /// Checks the number of assembled values.
    pub(crate) fn check_length(&self, got: usize) -> Result<()> {
        let expected = self.len();
        if got == expected {
            return Ok(());
        }
        let why =
            "as many as the matrix was assembled from; values in the order of its entries need no `assemble`";
        Err(Error::Length { what: "`values`", got, expected, why })
    }
}
