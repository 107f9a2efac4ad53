//! Singular systems: the component of a right-hand side that is orthogonal to the range of `A`.

use super::coupled::Coupled;
use super::{DirectOptions, Factors, Lu, Pivoting};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_solvers::{Cg, Element, LinearOperator, Space, check_spaces};

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
    /// the left null space, all `v` with `vᵀ A = 0`. The result is `Nᵀ w` with `‖N b − N Nᵀ w‖ ≤ rtol ‖N b‖`: it is in
    /// the left null space for any `rtol`.
    pub(crate) fn unreachable(&self, b: &HostVector<T>, rtol: f64) -> Result<HostVector<T>> {
        let missed = self.missed(b.as_slice());
        let coupled = match &self.factors {
            Factors::Columns { factors, .. } => {
                let further = self.scaling.as_ref().map(|scaling| {
                    let mut factors = vec![];
                    scaling.rhs_in_place_order(&vec![T::one(); b.as_slice().len()], &mut factors);
                    factors
                });
                Some(Coupled::new(factors, further.as_deref()))
            }
            Factors::Fronts { .. } => None,
        };
        let rhs = coupled.as_ref().map_or_else(|| missed.clone(), |coupled| coupled.part(&missed));
        let few = HostSpace::new(rhs.len());
        let (rhs, mut part) = (few.vector(&rhs)?, few.zeros()?);
        let norm = missed.iter().map(|&v| Element::to_f64(v).powi(2)).sum::<f64>().sqrt();
        Cg::new(Gram { factors: self, coupled: coupled.as_ref(), few })
            .rtol(rtol)
            .atol(rtol * norm)
            .solve_into(&rhs, &mut part)?;
        let w = match &coupled {
            Some(coupled) => coupled.whole(&missed, part.as_slice()),
            None => part.as_slice().to_vec(),
        };
        let mut v = self.space.zeros()?;
        v.as_mut_slice().copy_from_slice(&self.missed_transposed(&w));
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

/// `N Nᵀ`, for all rows of `N` or for the coupled ones.
struct Gram<'a, T: Real> {
    factors: &'a Lu<T>,
    coupled: Option<&'a Coupled<T>>,
    few: HostSpace<T>,
}

impl<T: Real> LinearOperator for Gram<'_, T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.few
    }

    fn apply(&self, w: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, w, y)?;
        if let Some(coupled) = self.coupled {
            coupled.apply(w.as_slice(), y.as_mut_slice());
            return Ok(());
        }
        let v = self.factors.missed_transposed(w.as_slice());
        y.as_mut_slice().copy_from_slice(&self.factors.missed(&v));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.factors.bytes()
    }
}
