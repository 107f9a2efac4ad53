//! Singular systems: the component of a right-hand side that is orthogonal to the range of `A`.

use super::{DirectOptions, Factors, Lu, Pivoting};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_solvers::{Cg, LinearOperator, Space, check_spaces};

impl<T: Real> Lu<T> {
    /// As [`Lu::new`], for a matrix of any rank. Unknowns whose columns depend on others are set to zero, so
    /// that every consistent system is solved.
    pub(crate) fn tolerant(csr: &Csr<T>) -> Result<Lu<T>> {
        Lu::pivoted(csr, DirectOptions::default(), Pivoting::Tolerant)
    }

    /// Number of columns that depend on others (rank deficiency).
    pub(crate) fn missing(&self) -> usize {
        match &self.factors {
            Factors::Columns { factors, .. } => factors.missing.len(),
            Factors::Fronts { factors, .. } => factors.missing(),
        }
    }

    /// Component of `b` that is orthogonal to the range of `A`: `Nᵀ (N Nᵀ)⁻¹ N b`, where the rows of `N` span
    /// the left null space, all `v` with `vᵀ A = 0`.
    pub(crate) fn unreachable(&self, b: &HostVector<T>) -> Result<HostVector<T>> {
        let few = HostSpace::new(self.missing());
        let mut w = few.zeros()?;
        let rhs = few.vector(&self.missed(b.as_slice()))?;
        Cg::new(Gram { factors: self, few }).rtol(T::EPSILON).solve_into(&rhs, &mut w)?;
        let mut v = self.space.zeros()?;
        v.as_mut_slice().copy_from_slice(&self.missed_transposed(w.as_slice()));
        Ok(v)
    }

    /// `N b`: zero if `A x = b` has a solution.
    fn missed(&self, b: &[T]) -> Vec<T> {
        let mut scaled = vec![];
        let b = match &self.scaling {
            Some(scaling) => {
                scaling.rhs_in_place_order(b, &mut scaled);
                &*scaled
            }
            None => b,
        };
        match &self.factors {
            Factors::Columns { factors, .. } => {
                let mut y = vec![T::zero(); b.len()];
                factors.forward(b, &mut y);
                factors.missing.iter().map(|&step| y[step as usize]).collect()
            }
            Factors::Fronts { tree, factors } => factors.missed(tree, b),
        }
    }

    /// `Nᵀ w`.
    fn missed_transposed(&self, w: &[T]) -> Vec<T> {
        let v = match &self.factors {
            Factors::Columns { factors, .. } => factors.missed_transposed(w),
            Factors::Fronts { tree, factors } => factors.missed_transposed(tree, w),
        };
        match &self.scaling {
            Some(scaling) => scaling.transposed_in_place_order(&v),
            None => v,
        }
    }
}

/// `N Nᵀ`.
struct Gram<'a, T: Real> {
    factors: &'a Lu<T>,
    few: HostSpace<T>,
}

impl<T: Real> LinearOperator for Gram<'_, T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.few
    }

    fn apply(&self, w: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, w, y)?;
        let v = self.factors.missed_transposed(w.as_slice());
        y.as_mut_slice().copy_from_slice(&self.factors.missed(&v));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.factors.bytes()
    }
}
