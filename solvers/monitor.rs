//! Numbers that a method watches while it runs.

use crate::{Element, Error, Result, Scalar};

/// What a watched number must be. A number that is not finite fails every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Neither infinite nor NaN.
    Finite,
    /// Finite and not zero.
    NonZero,
    /// Finite and above zero.
    Positive,
}

impl Condition {
    /// Whether `value` is what it must be.
    pub fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Condition::Finite => true,
                Condition::NonZero => value != 0.0,
                Condition::Positive => value > 0.0,
            }
    }
}

/// Watches the numbers of an iteration and keeps those a report is made from.
#[derive(Debug, Default)]
pub struct Monitor {
    /// `[α, β]` of every iteration since the last start, for methods of Lanczos type.
    pub(crate) coefficients: Vec<[f64; 2]>,
}

impl Monitor {
    /// Ends the iteration, before the solution is touched, if the number is not what it must be.
    pub fn watch<T: Element, S: Scalar<T>>(
        &self,
        what: &'static str,
        value: &S,
        must_be: Condition,
    ) -> Result<()> {
        if value.violates(must_be) {
            return Err(Error::Breakdown { what, value: value.read()?.to_f64() });
        }
        Ok(())
    }

    /// Keeps the coefficients of a Lanczos process, from which eigenvalues are estimated.
    pub fn record<T: Element, S: Scalar<T>>(&mut self, alpha: &S, beta: &S) -> Result<()> {
        self.coefficients.push([alpha.read()?.to_f64(), beta.read()?.to_f64()]);
        Ok(())
    }
}
