//! Serialization of patterns, and of formats that have no file layout of their own.

use super::assembly_order::AssemblyOrder;
use super::pattern::{Pattern, made};
use super::{Csr, Ehyb, Format, Halo};
use crate::numbers::Real;
use crate::saved::checksum::{joined, step};
use crate::saved::{InconsistentData, saved};
use krysp_kernels::cpu::run::threads::{find_row, over_rows};
use krysp_kernels::index::{Columns, Offsets};
use krysp_solvers::Element;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

saved!(impl[] Pattern as |this| {
    offsets: Arc<Offsets> = &this.offsets,
    columns: Columns = &*this.columns,
    given: AssemblyOrder = &*this.given,
} => {
    let entries = offsets.end();
    if columns.len() != entries || !given.makes(entries) {
        return Err(InconsistentData);
    }
    Ok(Pattern { offsets, cols: columns.bound(), columns: made(columns), given: made(given) })
});

saved!(impl[] enum AssemblyOrder {
    InOrder { len: len },
    Permuted { len: len, from: order },
    Summed { len: len, starts: starts, from: order },
});

impl AssemblyOrder {
    /// Returns whether the mapping is valid for this number of entries.
    fn makes(&self, entries: usize) -> bool {
        let within = |from: &[u32]| find_row(from.len(), 1, &|k| from[k] as usize >= self.len()).is_none();
        match self {
            AssemblyOrder::InOrder { len } => *len == entries,
            AssemblyOrder::Permuted { from, .. } => from.len() == entries && within(from),
            AssemblyOrder::Summed { starts, from, .. } => {
                starts.ranges() == entries && starts.end() == from.len() && within(from)
            }
        }
    }
}

/// Saves a format as its CSR matrix, from which loading converts again. These formats are never chosen
/// automatically in host memory, so loading need not be fast.
macro_rules! as_matrix {
    ($($format:ident),*) => {$(
        saved!(impl[T: Real] $format<T> as |this| { csr: Csr<T> = &this.to_csr() } => {
            Self::new(&csr).map_err(|_| InconsistentData)
        });
    )*};
}
as_matrix!(Halo, Ehyb);

impl<T: Real> Csr<T> {
    /// Fingerprints of the pattern and of the values. They do not depend on the order of the unknowns or of
    /// assembly.
    pub(crate) fn fingerprints(&self) -> [u64; 2] {
        let (pattern, permutation) = (self.pattern(), self.source().domain().permutation());
        let user = |index: usize| permutation.map_or(index as u64, |n| u64::from(n.old_of_new()[index]));
        // wrapping sums do not depend on the order of the entries
        let [places, values] = [(); 2].map(|()| AtomicU64::new(0));
        over_rows(pattern.rows(), 32, (), &|rows, ()| {
            let (mut of_places, mut of_values) = (0u64, 0u64);
            for row in rows {
                let of_row = joined(&[user(row)]);
                for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
                    let place = step(of_row, user(column as usize));
                    of_places = of_places.wrapping_add(place);
                    let value = Element::to_f64(self.entries()[entry]).to_bits();
                    of_values = of_values.wrapping_add(step(place, value));
                }
            }
            places.fetch_add(of_places, Ordering::Relaxed);
            values.fetch_add(of_values, Ordering::Relaxed);
        });
        let sizes = [pattern.rows(), pattern.cols(), pattern.entries()].map(|size| size as u64);
        [joined(&[joined(&sizes), places.into_inner()]), values.into_inner()]
    }
}
