//! Patterns of approximate inverses.

use super::rows::{Places, find_rows};
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format};
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::find_row;
use std::sync::{Arc, LazyLock};

/// A pattern that is given in advance.
#[derive(Clone, Copy, Debug)]
pub enum Sparsity<'a, T: Real> {
    /// The pattern of a power of `A + I` (assuming that no entries cancel): 0 is the diagonal only, 1 is the
    /// pattern of `A` plus the diagonal.
    Power(usize),
    /// The pattern of another matrix, whose `domain()` must be that of `A`.
    Of(&'a Csr<T>),
}

/// Limits of an adaptive pattern, which grows row by row (or column by column) where the residual is large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Growth of a row stops at this residual, whose definition depends on the preconditioner.
    pub epsilon: f64,
    /// Maximum number of growth steps of a row.
    pub max_steps: usize,
    /// Maximum number of entries added in one step.
    pub step_entries: usize,
    /// Maximum number of entries of a row.
    pub max_fill: usize,
}

impl Growth {
    /// Refuses options that allow no growth.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |what, got: String, expected| Err(Error::Option { what, got, expected });
        if self.epsilon.is_nan() || self.epsilon < 0.0 {
            return refused("epsilon", self.epsilon.to_string(), "a number that is not negative");
        }
        if self.step_entries == 0 {
            return refused("step_entries", "0".into(), "at least one entry a step");
        }
        if self.max_fill == 0 {
            return refused("max_fill", "0".into(), "at least one entry a row");
        }
        Ok(())
    }
}

impl<T: Real> Sparsity<'_, T> {
    /// The whole pattern, with its columns computed.
    pub(crate) fn whole(&self, a: &Csr<T>) -> Result<Arc<Pattern>> {
        match self.own(&a.source().pattern) {
            Some(own) => {
                // compute the lazy columns before a parallel loop reads them
                LazyLock::force(&own.columns);
                Ok(own)
            }
            None => Ok(Arc::new(self.pattern(a, false, &|_, _| true)?)),
        }
    }

    /// The pattern of `A` itself, if the pattern is `Power(1)` and `A` contains the diagonal.
    fn own(&self, a: &Arc<Pattern>) -> Option<Arc<Pattern>> {
        let open = |row: usize| a.row(row).binary_search(&(row as u32)).is_err();
        let own = matches!(self, Sparsity::Power(1)) && find_row(a.rows(), 8, &open).is_none();
        own.then(|| a.in_order())
    }

    /// The part of the pattern for which `keep(row, column)` holds, with the diagonal added if `diagonal`.
    pub(super) fn pattern(
        &self,
        a: &Csr<T>,
        diagonal: bool,
        keep: &(impl Fn(usize, usize) -> bool + Sync),
    ) -> Result<Pattern> {
        if let Sparsity::Of(pattern) = self
            && pattern.source().domain() != a.source().domain()
        {
            return Err(krysp_solvers::Error::Space { what: "the pattern", than: "the matrix" }.into());
        }
        find_rows(a.rows(), a.cols(), &|| Places::new(a.cols()), &|row, reached: &mut Places, columns| {
            match self {
                Sparsity::Power(power) => reach(a, row as u32, *power, reached, columns),
                Sparsity::Of(pattern) => columns.extend_from_slice(pattern.row_columns(row)),
            }
            if diagonal && !columns.contains(&(row as u32)) {
                columns.push(row as u32);
            }
            columns.retain(|&column| keep(row, column as usize));
            Ok(())
        })
    }
}

/// Collects the nodes within `steps` edges of a row, that row first.
fn reach<T: Real>(a: &Csr<T>, row: u32, steps: usize, reached: &mut Places, columns: &mut Vec<u32>) {
    columns.push(row);
    reached.set(row, 0);
    let mut last = 0;
    for _ in 0..steps {
        let newest = last..columns.len();
        last = newest.end;
        for at in newest {
            for &column in a.row_columns(columns[at] as usize) {
                if reached.get(column).is_none() {
                    reached.set(column, columns.len());
                    columns.push(column);
                }
            }
        }
    }
    reached.clear(columns.iter().copied());
}
