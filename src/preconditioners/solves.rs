//! Two triangular solves as a preconditioner: their rows numbered level by level, or in blocks.

use super::check_square;
use crate::formats::derived::Derivation;
use crate::saved::{Broken, Loaded, Reader, Saved, Writer};
use crate::{Csr, Error, Format, HostSpace, HostVector, Numbering, Real, Result};
use krysp_kernels::cpu::preconditioners::triangular::{Schedule, Triangle, solve};
use krysp_kernels::cpu::run::threads::{find_row, over_rows};
use krysp_solvers::Space;
use std::sync::{Mutex, PoisonError};

/// In which order the rows of a matrix are eliminated, and the matrix that way.
pub(super) struct Scheduled<T: Real> {
    pub(super) schedule: Schedule,
    pub(super) numbering: Numbering,
    pub(super) csr: Csr<T>,
    pub(super) from: Derivation,
}

impl<T: Real> Scheduled<T> {
    /// By levels: renumbers a matrix. Rows that are joined keep their order: what is below the diagonal stays there.
    pub(super) fn by_levels(what: &'static str, a: &Csr<T>) -> Result<Scheduled<T>> {
        check_square(what, a)?;
        let (schedule, places) = Schedule::levels(a.rows(), |row| a.row_columns(row));
        let mut old_of_new = vec![0; a.rows()];
        places.iter().zip(0..).for_each(|(&place, row)| old_of_new[place as usize] = row);
        let numbering = Numbering::from_old_of_new(old_of_new)?;
        let (csr, from) = Derivation::renumbered(a, numbering.new_of_old(), &HostSpace::new(a.rows()))?;
        Ok(Scheduled { schedule, numbering, csr, from })
    }

    /// By blocks: leaves out what joins two of them.
    pub(super) fn by_blocks(what: &'static str, a: &Csr<T>, count: usize) -> Result<Scheduled<T>> {
        check_square(what, a)?;
        if count == 0 {
            let expected = "at least one block of rows, as many as threads is best";
            return Err(Error::Option { what: "the number of blocks", got: "0".into(), expected });
        }
        let schedule = Schedule::blocks(a.rows(), count);
        let block = |row: usize| schedule.bounds().partition_point(|&bound| bound <= row);
        let of_row: Vec<usize> = (0..a.rows()).map(block).collect();
        let numbering = Numbering::from_old_of_new((0..a.rows() as u32).collect())?;
        let (csr, from) = Derivation::part(a, |row, column| of_row[row] == of_row[column])?;
        let csr = csr.declared_in(&HostSpace::new(a.rows()));
        Ok(Scheduled { schedule, numbering, csr, from })
    }
}

/// `z = U⁻¹ (L⁻¹ r)`
#[derive(Debug)]
pub(super) struct Solves<T: Real> {
    /// Of the preconditioner; the triangles live in one of their own.
    pub(super) space: HostSpace<T>,
    pub(super) schedule: Schedule,
    pub(super) numbering: Numbering,
    pub(super) lower: Csr<T>,
    pub(super) upper: Csr<T>,
    x: Mutex<HostVector<T>>,
}

impl<T: Real> Saved for Solves<T> {
    fn save(&self, to: &mut Writer<'_>) {
        let Solves { space, schedule, numbering, lower, upper, x: _ } = self;
        space.save(to);
        schedule.save(to);
        numbering.save(to);
        lower.save(to);
        upper.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<Solves<T>> {
        let (space, (schedule, numbering)): (HostSpace<T>, (Schedule, Numbering)) = from.load()?;
        let (lower, upper): (Csr<T>, Csr<T>) = from.load()?;
        let n = space.len();
        let triangles = has_diagonal(Triangle::Lower, &lower) && has_diagonal(Triangle::Upper, &upper);
        let last = schedule.bounds().last().copied().unwrap_or(0);
        if !(triangles && [numbering.len(), lower.rows(), upper.rows(), last] == [n; 4]) {
            return Err(Broken);
        }
        Solves::new(&space, (schedule, numbering), (lower, upper)).map_err(|_| Broken)
    }
}

/// Whether a matrix is a square triangle with every diagonal entry, as solves take it.
pub(super) fn has_diagonal<T: Real>(triangle: Triangle, csr: &Csr<T>) -> bool {
    let end = |row: usize| match triangle {
        Triangle::Lower => csr.row_columns(row).last(),
        Triangle::Upper => csr.row_columns(row).first(),
    };
    csr.rows() == csr.cols() && find_row(csr.rows(), 2, &|row| end(row) != Some(&(row as u32))).is_none()
}

impl<T: Real> Solves<T> {
    pub(super) fn new(
        space: &HostSpace<T>,
        (schedule, numbering): (Schedule, Numbering),
        (lower, upper): (Csr<T>, Csr<T>),
    ) -> Result<Solves<T>> {
        let x = Mutex::new(lower.source().domain().zeros()?);
        Ok(Solves { space: space.clone(), schedule, numbering, lower, upper, x })
    }

    pub(super) fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) {
        // what a solve that failed left behind is overwritten
        let mut x = self.x.lock().unwrap_or_else(PoisonError::into_inner);
        gather(r.as_slice(), self.numbering.old_of_new(), x.as_mut_slice());
        solve(Triangle::Lower, &self.schedule, self.lower.arrays(), x.as_mut_slice());
        solve(Triangle::Upper, &self.schedule, self.upper.arrays(), x.as_mut_slice());
        gather(x.as_slice(), self.numbering.new_of_old(), z.as_mut_slice());
    }

    /// A triangle in the numbering of the preconditioner's space.
    pub(super) fn in_space(&self, triangle: &Csr<T>) -> Result<Csr<T>> {
        Ok(Derivation::renumbered(triangle, self.numbering.old_of_new(), &self.space)?.0)
    }

    /// The row of the matrix that a row of the triangles is.
    pub(super) fn row(&self, place: usize) -> usize {
        self.numbering.old_of_new()[place] as usize
    }

    pub(super) fn bytes(&self) -> usize {
        let numbering = size_of_val(self.numbering.old_of_new()) + size_of_val(self.numbering.new_of_old());
        array_bytes(&self.lower) + array_bytes(&self.upper) + numbering
    }
}

fn array_bytes<T: Real>(csr: &Csr<T>) -> usize {
    krysp_solvers::LinearOperator::bytes(csr)
}

/// `y_i ← x_{from_i}`
fn gather<T: Real>(x: &[T], from: &[u32], y: &mut [T]) {
    over_rows(y.len(), 3, y, &|rows, y: &mut [T]| {
        y.iter_mut().zip(&from[rows]).for_each(|(y, &from)| *y = x[from as usize]);
    });
}
