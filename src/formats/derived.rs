//! Matrices derived from the entries of another matrix: its transpose, a submatrix, a reordered matrix.

use super::assembly_order::AssemblyOrder;
use super::pattern::{Pattern, check_pattern, made};
use super::{Csr, Format, Source};
use crate::error::{Error, Result};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::permutation::inverse;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, find_row, map_rows, over_rows};
use krysp_kernels::index::Offsets;
use std::sync::Arc;

/// Relation of a derived square matrix to the original one, by which the derived matrix is refreshed when the
/// values of the original change.
#[derive(Clone, Debug)]
pub(crate) struct Derivation {
    /// Entry of the original matrix for each entry of the derived one.
    from: Buffer<u32>,
    /// Pattern of the original matrix.
    origin: Arc<Pattern>,
}

saved!(impl[] Derivation { from, origin } where |read| {
    let entries = read.origin.entries();
    find_row(read.from.len(), 1, &|k| read.from[k] as usize >= entries).is_none()
});

impl Derivation {
    /// Derives the transpose.
    pub(crate) fn transposed<T: Real>(csr: &Csr<T>) -> Result<(Csr<T>, Derivation)> {
        Derivation::new(csr, csr.pattern().transposed()?, csr.source().domain())
    }

    /// Derives the matrix in which row and column `i` become row and column `new_of_old[i]`, in a space with
    /// that order.
    pub(crate) fn reordered<T: Real>(
        csr: &Csr<T>,
        new_of_old: &[u32],
        space: &HostSpace<T>,
    ) -> Result<(Csr<T>, Derivation)> {
        let old_of_new = inverse(new_of_old);
        let (old_of, new_of) = (|new: usize| old_of_new[new], |old: u32| new_of_old[old as usize]);
        let reordered = csr.pattern().reordered(|entry| entry as u32, old_of, new_of)?;
        Derivation::new(csr, reordered, space)
    }

    /// Derives the matrix of the entries for which `keep(row, column)` is true.
    pub(crate) fn part<T: Real>(
        csr: &Csr<T>,
        keep: impl Fn(usize, usize) -> bool + Sync,
    ) -> Result<(Csr<T>, Derivation)> {
        if csr.nnz() as u64 > 1 << 32 {
            return Err(too_many(csr));
        }
        let (whole, all, keep) = (csr.pattern(), &**csr.pattern().columns, &keep);
        let kept = |row: usize| whole.offsets.range(row).filter(move |&k| keep(row, all[k] as usize));
        let offsets = Offsets::of_rows(csr.rows(), &|row| kept(row).count());
        let (mut columns, mut from) = (Buffer::zeros(offsets.end()), Buffer::zeros(offsets.end()));
        let offset = |row: usize| offsets.at(row);
        let data = (ByRow::new(&mut columns, &offset), ByRow::new(&mut from, &offset));
        over_rows(csr.rows(), 32, data, &|rows, (columns, from): (ByRow<'_, u32>, ByRow<'_, u32>)| {
            let mut to = columns.all().0.iter_mut().zip(from.all().0);
            for row in rows {
                for (entry, (column, from)) in kept(row).zip(&mut to) {
                    (*column, *from) = (all[entry], entry as u32);
                }
            }
        });
        let pattern = Pattern::sorted(offsets, columns, csr.cols())?;
        Derivation::new(csr, (pattern, from), csr.source().domain())
    }

    fn new<T: Real>(
        csr: &Csr<T>,
        (mut pattern, from): (Pattern, Buffer<u32>),
        space: &HostSpace<T>,
    ) -> Result<(Csr<T>, Derivation)> {
        pattern.given = made(AssemblyOrder::InOrder { len: pattern.entries() });
        let source = Source::new(Arc::new(pattern), space.clone(), space.clone());
        let mut made = Csr::from_source(source, Buffer::zeros(from.len()));
        let derivation = Derivation { from, origin: csr.source().pattern.clone() };
        derivation.refresh(csr, &mut made)?;
        Ok((made, derivation))
    }

    /// Composes two derivations: this one, then `next`, which derives a matrix from its result.
    pub(crate) fn then(self, next: &Derivation) -> Derivation {
        let from = map_rows(next.from.len(), 2, &|k| self.from[next.from[k] as usize]);
        Derivation { from: from.into(), origin: self.origin }
    }

    /// Refreshes the derived matrix from a matrix with the pattern of the original.
    pub(crate) fn refresh<T: Real>(&self, csr: &Csr<T>, made: &mut Csr<T>) -> Result<()> {
        check_same_pattern(&self.origin, csr)?;
        let (from, values) = (&self.from, csr.entries());
        over_rows(from.len(), 2, &mut **made.values_mut(), &|entries, to: &mut [T]| {
            to.iter_mut().zip(&from[entries]).for_each(|(to, &from)| *to = values[from as usize]);
        });
        Ok(())
    }
}

/// Checks that a matrix has this pattern.
pub(crate) fn check_same_pattern<T: Real>(pattern: &Arc<Pattern>, csr: &Csr<T>) -> Result<()> {
    check_pattern(pattern, &csr.source().pattern)
}

fn too_many<T: Real>(csr: &Csr<T>) -> Error {
    let why = format!("{} entries are more than 32-bit indices can address", csr.nnz());
    Error::Unsuitable { format: "a matrix derived from another", why }
}
