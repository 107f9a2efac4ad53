//! Entries of some rows in columns that other processors own, in host memory.

use super::{Host, Operator};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::HostVector;
use crate::numbers::Real;
use krysp_solvers::{LinearOperator, Space};

/// Entries of some rows in columns of other processors, whose entries of `x` (ghosts) are copied here.
pub(crate) struct HostBorder<T: Real> {
    rows: Vec<u32>,
    outside: Operator<HostVector<T>>,
    ghosts: HostVector<T>,
    /// Contributions of the ghosts to the rows.
    sums: HostVector<T>,
}

impl<T: Real> HostBorder<T> {
    /// `outside` has a row for each of `rows`, and a column for each ghost.
    pub(crate) fn new(rows: &[u32], outside: &Csr<T>) -> Result<HostBorder<T>> {
        let outside = Operator::auto(outside, &Host)?;
        let [ghosts, sums] = [outside.domain().zeros()?, outside.range().zeros()?];
        Ok(HostBorder { rows: rows.to_vec(), outside, ghosts, sums })
    }

    /// Place for the ghosts of the next product.
    pub(crate) fn ghosts(&mut self) -> &mut [T] {
        self.ghosts.as_mut_slice()
    }

    /// `y ← y + A_ghost ghosts`
    pub(crate) fn add(&mut self, y: &mut [T]) -> krysp_solvers::Result<()> {
        self.outside.apply(&self.ghosts, &mut self.sums)?;
        for (&row, &sum) in self.rows.iter().zip(self.sums.as_slice()) {
            y[row as usize] += sum;
        }
        Ok(())
    }

    /// `y ← y + A_ghost ghosts`; returns `⟨x, A_ghost ghosts⟩` over the rows.
    pub(crate) fn add_dot(&mut self, x: &[T], y: &mut [T]) -> krysp_solvers::Result<T> {
        self.add(y)?;
        let sums = self.rows.iter().zip(self.sums.as_slice());
        Ok(sums.fold(T::zero(), |dot, (&row, &sum)| dot + x[row as usize] * sum))
    }

    /// The entries in columns of other processors.
    pub(crate) fn outside(&self) -> Result<Csr<T>> {
        Ok(self.outside.origin().in_host_memory()?.into_owned())
    }

    /// Replaces the values of these entries.
    pub(crate) fn refresh(&mut self, values: &[T]) -> Result<()> {
        let entries = self.outside.assemble(values)?.into_owned();
        self.outside.refresh(&entries)
    }

    /// Bytes that a product reads.
    pub(crate) fn bytes(&self) -> usize {
        self.outside.bytes()
    }
}
