//! `A = L U` with threshold partial pivoting.
//!
//! ```text
//! if the pattern is nearly symmetric, and many diagonal entries are small or zero:
//!     fronts: scale by a maximum-product matching, and keep matched rows adjacent
//!     columns: prefer the rows of a transversal as pivots; if other pivots cause fill-in, scale by a matching, and prefer its rows
//! order by minimum degree of A + Aᵀ or of AᵀA, or by nested dissection; count entries and multiplications
//! many multiplications for each entry:  fronts, on all threads, with delayed pivots
//! few of them:                          column by column, on one thread
//! if pivots may be missing by rounding: column by column, without a matching, with the largest entries as pivots
//! ```
//!
//! | method | pattern | pivot | entries of `L` |
//! | --- | --- | --- | --- |
//! | fronts (Duff and Reid 1984) | nearly symmetric | largest entry in a fully summed row, if ≥ 0.1 of the largest of its column; else delayed | ≤ 10 |
//! | columns (Gilbert and Peierls 1988) | any | entry in the preferred row (of the diagonal, a transversal or a matching), if ≥ 0.001 of the largest of its column; else one ≥ 0.1 | ≤ 1000 |

mod blocks;
mod column_factors;
mod columns;
mod coupled;
mod deficient;
mod method;
mod partial;
mod saved;
#[cfg(test)]
mod tests;

pub(crate) use partial::{PartialLu, by_fronts as lu_by_fronts};

use super::super::several::{Pair, alone, in_groups};
use super::super::{MatrixSource, Refresh, check_space, finite};
use super::fronts::FrontFactors;
use super::order::{Order, Pivoting};
use super::transpose::transposed;
use super::tree::{self, Tree};
use super::{Budget, DirectOptions, FactorReport, condition};
use crate::error::Result;
use crate::formats::Csr;
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::scaling::Scaling;
use column_factors::ColumnFactors;
use krysp_solvers::{LinearOperator, MultiVector, Space};
use partial::Prepared;
use std::sync::{Arc, Mutex};

const NAME: &str = "LU";

/// Complete factorization of a square matrix, applied as `A⁻¹`.
///
/// Under [`Gmres`](crate::Gmres) it is a direct solver with iterative refinement. It suits matrices of
/// circuits, power grids and chemical plants of any size, 2D meshes of up to about 10⁶ unknowns, and 3D
/// meshes of up to about 10⁵.
///
/// ```
/// use krysp::{Csr, Gmres, Lu};
///
/// // two diagonal entries are zero
/// let a = Csr::from_triplets(3, 3, &[(0, 1, 2.0), (1, 2, 4.0), (2, 0, 5.0), (2, 2, 1.0)])?;
/// let solution = Gmres::new(&a).preconditioner(Lu::new(&a)?).solve(&[2.0, 8.0, 7.0])?;
/// assert!(solution.report.converged() && solution.report.iterations <= 2);
/// assert!(solution.x.iter().zip([1.0, 1.0, 2.0]).all(|(x, exact): (&f64, f64)| (x - exact).abs() < 1e-14));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Lu<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    budget: Budget,
    pivoting: Pivoting,
    scaling: Option<Scaling<T>>,
    /// Row matched to each column; `None` if no matching was computed.
    matched: Option<Vec<u32>>,
    /// `‖A‖₁`
    norm: f64,
    factors: Factors<T>,
    workspace: Mutex<Workspace<T>>,
}

#[derive(Debug)]
enum Factors<T> {
    Columns { order: Order, factors: ColumnFactors<T> },
    Fronts { tree: Tree, factors: FrontFactors<T> },
}

#[derive(Debug, Default)]
struct Workspace<T> {
    /// Scaled right-hand sides.
    scaled: Vec<Vec<T>>,
    /// A solution by columns, in the order of the steps.
    y: Vec<T>,
    fronts: tree::Workspace<T>,
}

impl<T: Real> Lu<T> {
    /// Factorizes a matrix; the factors have its space, including its permutation.
    pub fn new(csr: &Csr<T>) -> Result<Lu<T>> {
        Lu::with(csr, DirectOptions::default())
    }

    /// As [`Lu::new`], with a memory limit.
    pub fn with(csr: &Csr<T>, options: DirectOptions) -> Result<Lu<T>> {
        Lu::pivoted(csr, options, Pivoting::Regular)
    }

    fn pivoted(csr: &Csr<T>, options: DirectOptions, pivoting: Pivoting) -> Result<Lu<T>> {
        let mut partial = PartialLu::with(csr, Budget::new(NAME, options, csr.rows()), pivoting)?;
        partial.go_on(csr, f64::INFINITY)?;
        Ok(partial.whole())
    }

    /// Number of stored entries of both factors, including zeros.
    pub fn nnz(&self) -> usize {
        match &self.factors {
            Factors::Columns { factors, .. } => factors.nnz(),
            Factors::Fronts { factors, .. } => factors.nnz(),
        }
    }

    /// Facts about the factorization, from a pass over the factors.
    pub fn report(&self) -> FactorReport {
        match &self.factors {
            Factors::Columns { factors, .. } => factors.report(),
            Factors::Fronts { tree, factors } => factors.report(NAME, tree, false),
        }
    }

    /// Estimates the condition number `‖A‖₁ ‖A⁻¹‖₁`, from a few solves with `A` and `Aᵀ`. The estimate is a
    /// lower bound up to rounding, rarely less than a third of the exact value (Higham 1988).
    ///
    /// ```
    /// use krysp::{Csr, Lu};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e3), (1, 1, 1.0)])?;
    /// assert!((Lu::new(&a)?.condition_estimate()? / 1e3 - 1.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rcond")]
    pub fn condition_estimate(&self) -> Result<f64> {
        condition::estimate(
            self.norm,
            &self.space,
            |r, z| Ok(self.apply(r, z)?),
            |r, z| self.apply_transposed(r, z),
        )
    }

    /// `z ← A⁻ᵀ r`.
    ///
    /// ```
    /// use krysp::{Csr, LinearOperator, Lu, Space};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut z = a.domain().zeros()?;
    /// Lu::new(&a)?.apply_transposed(&a.domain().vector(&[2.0, 9.0])?, &mut z)?;
    /// assert_eq!(z.as_slice(), [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply_transposed(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> Result<()> {
        alone(self, &self.workspace, (r, z), |pairs, workspace| {
            pairs
                .iter_mut()
                .for_each(|(r, z)| self.solve_transposed(r.as_slice(), z.as_mut_slice(), workspace));
        })?;
        Ok(())
    }

    fn solve_transposed(&self, b: &[T], x: &mut [T], Workspace { y: scaled, fronts, .. }: &mut Workspace<T>) {
        scaled.clear();
        scaled.extend_from_slice(b);
        if let Some(scaling) = &self.scaling {
            scaling.unscale_in_place_order(scaled);
        }
        match &self.factors {
            Factors::Columns { order, factors } => factors.solve_transposed(&order.column_of, scaled, x),
            Factors::Fronts { tree, factors } => factors.solve_transposed(tree, scaled, x, fronts),
        }
        if let Some(scaling) = &self.scaling {
            x.copy_from_slice(&scaling.transposed_in_place_order(x));
        }
    }

    /// Solves for several right-hand sides, reading each front once for all of them.
    fn solve(&self, pairs: &mut [Pair<'_, T>], Workspace { scaled, y, fronts }: &mut Workspace<T>) {
        if let Some(scaling) = &self.scaling {
            scaled.resize_with(pairs.len().max(scaled.len()), Vec::new);
            let all = pairs.iter().zip(&mut *scaled);
            all.for_each(|((r, _), scaled)| scaling.rhs_in_place_order(r.as_slice(), scaled));
        }
        let (mut b, mut z): (Vec<&[T]>, Vec<&mut [T]>) =
            pairs.iter_mut().map(|(r, z)| (r.as_slice(), z.as_mut_slice())).unzip();
        if self.scaling.is_some() {
            b.iter_mut().zip(&*scaled).for_each(|(b, scaled)| *b = scaled);
        }
        match &self.factors {
            Factors::Columns { order, factors } => {
                for (b, z) in b.iter().zip(&mut z) {
                    y.resize(b.len(), T::zero());
                    factors.solve(b, y);
                    let columns = order.column_of.iter().zip(&*y);
                    columns.for_each(|(&column, &x)| z[column as usize] = x);
                }
            }
            Factors::Fronts { tree, factors } => factors.solve(tree, false, &b, &mut z, fronts),
        }
        if let Some(scaling) = &self.scaling {
            z.into_iter().for_each(|z| scaling.unscale_in_place_order(z));
        }
    }
}

/// A refresh keeps the scaling, the ordering and the pivots of columns if these pivots are still large enough.
/// It keeps the ordering of fronts if the matching stays the same. Otherwise the matrix is analysed again.
impl<T: Real> Refresh<T> for Lu<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        check_same_pattern(&self.pattern, csr)?;
        if let Factors::Columns { order, factors } = &mut self.factors {
            let mut columns = transposed(csr)?;
            if let Some(scaling) = &self.scaling {
                scaling.scale_transposed(&mut columns);
            }
            if factors.refresh(&columns, order, self.pivoting)? {
                self.norm = condition::norm(csr);
                return Ok(());
            }
        }
        let mut prepared = Prepared::new(csr)?;
        if matches!(self.factors, Factors::Fronts { .. }) {
            prepared.match_rows(csr)?;
        }
        let mut partial = match &self.factors {
            Factors::Fronts { tree, .. } if prepared.matched == self.matched => {
                PartialLu::on_tree(csr, prepared, tree.clone(), self.budget, self.pivoting)?
            }
            _ => PartialLu::of(csr, prepared, self.budget, self.pivoting, None, None)?,
        };
        partial.go_on(csr, f64::INFINITY)?;
        *self = partial.whole();
        Ok(())
    }
}

impl<T: Real> LinearOperator for Lu<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        alone(self, &self.workspace, (r, z), |pairs, workspace| self.solve(pairs, workspace))
    }

    fn apply_many(
        &self,
        r: &MultiVector<HostVector<T>>,
        z: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let solve = match &self.factors {
            Factors::Columns { .. } => self.domain().len(),
            Factors::Fronts { tree, factors } => factors.entries(tree, false),
        };
        in_groups(self, r, z, self.domain().len() + solve, |pairs, workspace| self.solve(pairs, workspace))
    }

    fn bytes(&self) -> usize {
        match &self.factors {
            Factors::Columns { factors, .. } => factors.bytes(),
            Factors::Fronts { factors, .. } => factors.bytes(),
        }
    }
}
