//! The entries of a processor's rows in columns that it owns.

use crate::choice::Operator;
use krysp_solvers::{LinearOperator, Result, ScalarOf, Vector};

/// The diagonal block of a processor.
pub(super) struct Own<V: Vector> {
    pub(super) matrix: Operator<V>,
    #[cfg(any(test, feature = "testing"))]
    extra_work: Option<ExtraWork<V>>,
}

/// Products that take time and change nothing, for tests of the balance: a processor repeats those with some of
/// its rows.
#[cfg(any(test, feature = "testing"))]
struct ExtraWork<V: Vector> {
    /// These rows; others are empty.
    matrix: Operator<V>,
    /// Number of additional products.
    times: usize,
    result: std::sync::Mutex<V>,
}

impl<V: Vector> Own<V> {
    pub(super) fn new(matrix: Operator<V>) -> Self {
        Own {
            matrix,
            #[cfg(any(test, feature = "testing"))]
            extra_work: None,
        }
    }

    /// Adds `times` products with some of the rows to every product.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn slow_down(&mut self, matrix: Operator<V>, times: usize) -> Result<()> {
        let result = std::sync::Mutex::new(krysp_solvers::Space::zeros(matrix.range())?);
        self.extra_work = Some(ExtraWork { matrix, times, result });
        Ok(())
    }

    /// `y ← A_own x`; returns `⟨x, y⟩` if `dot` is set.
    pub(super) fn apply(&self, x: &V, y: &mut V, dot: bool) -> Result<Option<ScalarOf<V>>> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(ExtraWork { matrix, times, result }) = &self.extra_work {
            let mut result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            (0..*times).try_for_each(|_| matrix.apply(x, &mut result))?;
        }
        match dot {
            true => self.matrix.apply_dot(x, y).map(Some),
            false => self.matrix.apply(x, y).map(|()| None),
        }
    }
}
