//! Values that users give: assembled into entries, checked, and brought into the order of a matrix that was
//! reordered internally.

use super::assembly_order::AssemblyOrder;
use super::pattern::{Later, check_pattern, place_of};
use super::{Csr, Format, Source};
use crate::error::{Error, Result};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::cpu::run::threads::find_row;
use krysp_solvers::Element;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

impl<T: Real> Source<T> {
    /// Converts assembled values to entries. `values` are in the order of the triplets, of the CSR or CSC
    /// arrays or of the triangle that the matrix was built from; the result has one value for each entry, row
    /// by row with ascending columns. That is the order of [`Csr::entries`](crate::Csr::entries), which
    /// `refresh` expects.
    ///
    /// Values of duplicate positions are added, and those of a mirrored triangle are copied. If the orders
    /// are the same, `values` are returned without a copy.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        let given = &*self.pattern.given;
        if matches!(given, AssemblyOrder::InOrder { len } if *len == values.len()) {
            return Ok(Cow::Borrowed(values));
        }
        let mut entries = vec![T::zero(); self.nnz()];
        given.assemble(values, &mut entries)?;
        Ok(Cow::Owned(entries))
    }

    /// Checks that there is one finite value for each entry. Reads the values once, on all threads.
    pub(crate) fn check_entries(&self, values: &[T]) -> Result<()> {
        self.check_length(values.len())?;
        self.check_finite(values)
    }

    /// Checks that there is one value for each entry.
    pub(crate) fn check_length(&self, got: usize) -> Result<()> {
        let expected = self.nnz();
        if got == expected {
            return Ok(());
        }
        let why = if got == self.pattern.given.len() {
            "one for each entry, row by row; assembled values, as these seem to be, must be passed through `assemble` first"
        } else {
            "one for each entry, row by row; assembled values must be passed through `assemble` first"
        };
        Err(Error::Length { what: "`values`", got, expected, why })
    }

    /// Entries of a matrix with the same pattern, in this matrix's order of unknowns. Returns an error if the
    /// patterns differ.
    pub(crate) fn entries_of<'a>(&self, a: &'a Csr<T>) -> Result<Cow<'a, [T]>> {
        let why = "as many as in the matrix that this was converted from";
        let counts =
            [("the rows", a.rows(), self.pattern.rows()), ("the columns", a.cols(), self.pattern.cols())];
        if let Some((what, got, expected)) = counts.into_iter().find(|(_, got, expected)| got != expected) {
            return Err(Error::Length { what, got, expected, why });
        }
        let other = a.source();
        let same_space = other.domain() == self.domain() && other.range() == self.range();
        let a = if same_space { Cow::Borrowed(a) } else { Cow::Owned(a.in_space(self.domain())?) };
        check_pattern(&self.pattern, &a.source().pattern).map_err(|error| match error {
            Error::PatternMismatch { row } => {
                Error::PatternMismatch { row: in_user_order(self.range(), row) }
            }
            other => other,
        })?;
        Ok(match a {
            Cow::Borrowed(a) => Cow::Borrowed(a.entries()),
            Cow::Owned(a) => Cow::Owned(a.entries().to_vec()),
        })
    }

    /// Checks that all entries are finite. The error names the first infinite or NaN entry by its row and
    /// column in the user's order.
    pub(crate) fn check_finite(&self, entries: &[T]) -> Result<()> {
        let Some(entry) = first_not_finite(entries) else { return Ok(()) };
        let (offsets, columns) = (&self.pattern.offsets, &**self.pattern.columns);
        let row = find_row(self.pattern.rows(), 1, &|row| offsets.range(row).contains(&entry));
        Err(Error::NotFinite {
            row: in_user_order(self.range(), row.unwrap_or_default()),
            col: in_user_order(self.domain(), columns[entry] as usize),
            value: entries[entry].to_f64(),
        })
    }
}

/// Index in the user's order of an unknown of a space.
fn in_user_order<T: Real>(space: &HostSpace<T>, index: usize) -> usize {
    space.permutation().map_or(index, |permutation| permutation.old_of_new()[index] as usize)
}

/// Number of values that are tested together without branches, so that the loop is vectorized.
const TESTED: usize = 256;

/// Index of the first value that is infinite or NaN.
pub(crate) fn first_not_finite<T: Real>(values: &[T]) -> Option<usize> {
    let block = |k: usize| &values[k * TESTED..values.len().min((k + 1) * TESTED)];
    let wrong = |k: usize| !block(k).iter().fold(true, |finite, &value| finite & Element::is_finite(value));
    let first = find_row(values.len().div_ceil(TESTED), TESTED, &wrong)?;
    let place = block(first).iter().position(|&value| !Element::is_finite(value))?;
    Some(first * TESTED + place)
}

/// Mapping from the entries of the user's matrix to those of the matrix that was reordered internally.
#[derive(Debug)]
pub(crate) struct UserOrder<T> {
    user: Source<T>,
    /// The user's entry for each entry of the reordered matrix, computed on first use.
    order: Later<AssemblyOrder>,
}

impl<T: Real> UserOrder<T> {
    /// Creates the mapping from the user's matrix and the reordered one, `own`.
    pub(crate) fn new(user: &Source<T>, own: &Source<T>) -> UserOrder<T> {
        let (pattern, offsets) = (user.pattern.clone(), own.pattern.offsets.clone());
        let [from, to] = [user, own].map(|source| source.domain().permutation().cloned());
        let (old_of_new, new_of_old) = reordering(from, to);
        let order: Later<AssemblyOrder> = LazyLock::new(Box::new(move || {
            let from = pattern.entries_in(&offsets, old_of_new, new_of_old, place_of);
            AssemblyOrder::Permuted { len: pattern.entries(), from }
        }));
        UserOrder { user: user.clone(), order }
    }

    /// The user's matrix.
    pub(crate) fn user(&self) -> &Source<T> {
        &self.user
    }

    /// Mapping from the user's entries to those of the reordered matrix.
    #[cfg(feature = "cuda")]
    pub(crate) fn order(&self) -> &AssemblyOrder {
        &self.order
    }

    /// Returns whether the reordered matrix has these values already. Stops soon after the first one that differs.
    pub(crate) fn has(&self, values: &[T], own: &Csr<T>) -> bool {
        let differs = |entry: usize| {
            self.order.sources(entry).any(|from| values[from as usize] != own.entries()[entry])
        };
        values.len() == own.nnz() && find_row(values.len(), 3, &differs).is_none()
    }

    /// Replaces the values of the reordered matrix. Returns an error unless there is one finite value for each
    /// entry.
    pub(crate) fn refresh(&self, values: &[T], own: &mut Csr<T>) -> Result<()> {
        self.user.check_entries(values)?;
        self.order.assemble(values, own.values_mut())
    }

    /// Entries of the reordered matrix. Returns an error unless there is one finite value for each entry.
    #[cfg(feature = "cuda")]
    pub(crate) fn entries(&self, values: &[T]) -> Result<Vec<T>> {
        self.user.check_entries(values)?;
        let mut entries = vec![T::zero(); values.len()];
        self.order.assemble(values, &mut entries)?;
        Ok(entries)
    }
}

/// Maps one ordering of a matrix to another; `None` stands for the user's order. Returns two functions: the
/// old index of each new row, and the new index of each old column.
pub(super) fn reordering(
    from: Option<Arc<Permutation>>,
    to: Option<Arc<Permutation>>,
) -> (impl Fn(usize) -> u32 + Send + Sync + 'static, impl Fn(u32) -> u32 + Send + Sync + 'static) {
    let permutations = (from.clone(), to.clone());
    let old_of_new = move |index: usize| {
        let user = to.as_ref().map_or(index as u32, |n| n.old_of_new()[index]);
        from.as_ref().map_or(user, |n| n.new_of_old()[user as usize])
    };
    let (from, to) = permutations;
    let new_of_old = move |index: u32| {
        let user = from.as_ref().map_or(index, |n| n.old_of_new()[index as usize]);
        to.as_ref().map_or(user, |n| n.new_of_old()[user as usize])
    };
    (old_of_new, new_of_old)
}
