//! Two-level preconditioners of distributed matrices.

use super::comm::Flight;
use super::halo::Routes;
use super::local::{Aggregated, Local};
use super::matrix::RankMatrix;
use super::scalar::RankScalar;
use super::vector::{RankSpace, RankVector};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::host::Host;
use crate::numbers::Real;
use crate::preconditioners::{CoarseSpace, MatrixSource};
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::coarse::{NONE, dense_rows};
use krysp_kernels::cpu::preconditioners::inverse::{invert_positive, row_stride};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, LinearOperator, Space, check_spaces};
use std::ops::Range;

/// A distributed preconditioner plus the additive coarse correction `Z (Zᵀ A Z)⁻¹ Zᵀ`, as
/// [`TwoLevel`](crate::TwoLevel). The columns of `Z` are the modes on each aggregate; aggregates do not cross
/// rank boundaries. While the other preconditioner is applied to the residual `r`, the coarse residual `Zᵀ r`
/// is gathered on all ranks; each rank then multiplies it by its rows of the inverse.
///
/// ```no_run
/// use krysp::ranks::{BlockJacobi, RankMatrix, RankTwoLevel};
/// use krysp::{Cg, Jacobi};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     let jacobi = BlockJacobi::new(a, Jacobi::new)?;
///     let m = RankTwoLevel::with_inner(jacobi, a, 512)?;
///     Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?.x)
/// }
/// ```
#[derive(Debug)]
pub struct RankTwoLevel<T: Real, M, L: Local<T> = Host> {
    space: RankSpace<T, L>,
    inner: M,
    coarse: CoarseSpace<T>,
    aggregates: L::Aggregates,
    /// The first coarse unknown of each rank, and the number of coarse unknowns.
    bounds: Vec<usize>,
    /// This rank's rows of the inverse of the coarse matrix.
    inverse: Vec<T>,
}

impl<T: Real, L: Local<T>, M: LinearOperator<Vector = RankVector<T, L>>> RankTwoLevel<T, M, L> {
    /// Builds a coarse space of about `unknowns` unknowns over all ranks, at least one per rank. Its modes
    /// are constant on each aggregate, one mode for each unknown of a node. Collective: all ranks call this.
    pub fn with_inner(inner: M, matrix: &RankMatrix<T, L>, unknowns: usize) -> Result<RankTwoLevel<T, M, L>> {
        RankTwoLevel::with(inner, matrix, |block| CoarseSpace::new(block, share(matrix, unknowns)))
    }

    /// Builds a coarse space from modes, as [`CoarseSpace::with_near_null_space`]; each rank passes its part of the
    /// modes. Collective: all ranks call this.
    pub fn with_near_null_space<V: AsRef<[T]> + Sync>(
        inner: M,
        matrix: &RankMatrix<T, L>,
        unknowns: usize,
        modes: &[V],
    ) -> Result<RankTwoLevel<T, M, L>> {
        RankTwoLevel::with(inner, matrix, |block| {
            CoarseSpace::with_near_null_space(block, share(matrix, unknowns), modes)
        })
    }

    fn with(
        inner: M,
        matrix: &RankMatrix<T, L>,
        make: impl FnOnce(&Csr<T>) -> Result<CoarseSpace<T>>,
    ) -> Result<RankTwoLevel<T, M, L>> {
        let space = matrix.domain().clone();
        let fits = *inner.domain() == space && *inner.range() == space;
        let wrong = krysp_solvers::Error::Space { what: "the preconditioner", than: "the matrix" };
        let made = if fits { matrix.diagonal_block().in_host_memory() } else { Err(wrong.into()) };
        let coarse = matrix.ranks().all(made.and_then(|block| make(&block)))?;
        let counts = matrix.ranks().all_gather(vec![coarse.unknowns() as u64])?;
        let mut bounds = vec![0];
        counts.iter().for_each(|&count| bounds.push(bounds[bounds.len() - 1] + count as usize));
        let inverse = inverse(matrix, &coarse, &bounds)?;
        let aggregates = matrix.ranks().all(L::aggregates(space.own(), &coarse))?;
        Ok(RankTwoLevel { space, inner, coarse, aggregates, bounds, inverse })
    }

    /// The preconditioner that the coarse correction is added to, for refreshing it. Its spaces must not
    /// change.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    /// Updates only the coarse level, from a matrix of the same pattern. Collective: all ranks call this.
    pub fn refresh_coarse(&mut self, matrix: &RankMatrix<T, L>) -> Result<()> {
        self.inverse = inverse(matrix, &self.coarse, &self.bounds)?;
        Ok(())
    }

    /// Number of coarse unknowns on all ranks.
    pub fn unknowns(&self) -> usize {
        self.bounds[self.bounds.len() - 1]
    }

    /// Starts to gather `Zᵀ r` on all ranks.
    fn restrict(&self, r: &RankVector<T, L>) -> Result<Flight<T>> {
        let most = self.bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let mut restricted = self.aggregates.restrict(&r.own)?;
        restricted.resize(most, T::zero());
        self.space.ranks().start_all_gather(restricted)
    }

    /// `z ← z + Z c` with the coarse solution `c`; returns `⟨r, Z c⟩`, which is computed from coarse vectors.
    fn correct(&self, flight: Flight<T>, z: &mut RankVector<T, L>) -> Result<RankScalar<T, L>> {
        let (ranks, own) = (self.space.ranks(), self.own());
        let parts = ranks.finish(flight)?;
        let most = parts.len() / ranks.size();
        let lengths = self.bounds.windows(2).map(|pair| pair[1] - pair[0]);
        let mut whole: Vec<T> = Vec::with_capacity(row_stride(self.unknowns()));
        for (part, length) in parts.chunks_exact(most.max(1)).zip(lengths) {
            whole.extend_from_slice(&part[..length]);
        }
        whole.resize(row_stride(self.unknowns()), T::zero());
        let mut corrected = vec![T::zero(); own.len()];
        dense_rows(&self.inverse, &whole, &mut corrected);
        self.aggregates.prolong(&corrected, &mut z.own)?;
        let terms = whole[own].iter().zip(&corrected).map(|(&r, &c)| r * c);
        Ok(RankScalar::sum_of_hosts(ranks, terms.fold(T::zero(), |sum, term| sum + term)))
    }

    fn own(&self) -> Range<usize> {
        let rank = self.space.ranks().rank();
        self.bounds[rank]..self.bounds[rank + 1]
    }
}

/// A rank's share of the coarse unknowns.
fn share<T: Real, L: Local<T>>(matrix: &RankMatrix<T, L>, unknowns: usize) -> usize {
    let space = matrix.domain();
    (unknowns * space.local_len()).div_ceil(space.len().max(1)).max(1)
}

/// This rank's rows of `(Zᵀ A Z)⁻¹`, which all ranks compute redundantly.
fn inverse<T: Real, L: Local<T>>(
    matrix: &RankMatrix<T, L>,
    coarse: &CoarseSpace<T>,
    bounds: &[usize],
) -> Result<Vec<T>> {
    let (ranks, space, z) = (matrix.ranks(), matrix.domain(), coarse.kernel());
    let csr = ranks.all(matrix.whole())?;
    let (n, own) = (bounds[ranks.size()], bounds[ranks.rank()]..bounds[ranks.rank() + 1]);
    // a row of Z: for each mode, the coarse unknown and its weight
    let row = |row: usize| {
        let aggregate = z.of_row[row];
        let modes = if aggregate == NONE { 0 } else { z.modes };
        let first = own.start + aggregate as usize * modes;
        (0..modes).map(move |mode| (first + mode, Element::to_f64(z.weight(mode, row))))
    };
    let routes = Routes::new(ranks, space.bounds(), matrix.ghosts())?;
    let of_ghosts: Vec<u64> = routes.rows(|at| vec![row(at).len() as u64])?;
    let names: Vec<u64> = routes.rows(|at| row(at).map(|entry| entry.0 as u64).collect())?;
    let weights: Vec<u64> = routes.rows(|at| row(at).map(|entry| entry.1.to_bits()).collect())?;
    let lengths =
        (0..csr.rows()).map(|at| row(at).len()).chain(of_ghosts.iter().map(|&length| length as usize));
    let starts = Offsets::from_lengths(lengths);
    let mut ends: Vec<(usize, f64)> = (0..csr.rows()).flat_map(row).collect();
    ends.extend(names.iter().zip(&weights).map(|(&name, &bits)| (name as usize, f64::from_bits(bits))));

    let mut product = vec![0.0; own.len() * n];
    for at in 0..csr.rows() {
        for (&column, &value) in csr.row_columns(at).iter().zip(csr.row_values(at)) {
            for &(to, weight) in &ends[starts.range(at)] {
                let factor = weight * Element::to_f64(value);
                let sums = &mut product[(to - own.start) * n..][..n];
                ends[starts.range(column as usize)]
                    .iter()
                    .for_each(|&(k, weight)| sums[k] += factor * weight);
            }
        }
    }
    for (at, sums) in product.chunks_exact_mut(n.max(1)).enumerate() {
        // if the mode was dropped, its row and column are zero: set the diagonal entry to one
        let mut members = z.rows_of(at / z.modes).iter();
        if sums[own.start + at] == 0.0 && members.all(|&row| z.weight(at % z.modes, row as usize).is_zero()) {
            sums[own.start + at] = 1.0;
        }
    }
    let bits: Vec<u64> = product.iter().map(|number| number.to_bits()).collect();
    let whole = ranks.exchange(vec![bits; ranks.size()])?.concat();
    let stride = row_stride(n);
    let mut dense = vec![0.0; n * stride];
    for (to, from) in dense.chunks_exact_mut(stride.max(1)).zip(whole.chunks_exact(n.max(1))) {
        to.iter_mut().zip(from).for_each(|(to, &bits)| *to = f64::from_bits(bits));
    }
    // all ranks compute the same inverse
    invert_positive(&mut dense, n).map_err(|refused| match refused {
        Refused::Pivot { at, value } => {
            Error::NotPositive { what: "the coarse matrix", row: at, pivot: value }
        }
        Refused::Interrupted(interrupted) => interrupted.into(),
    })?;
    Ok(dense[own.start * stride..own.end * stride].iter().map(|&v| T::from_f64(v)).collect())
}

impl<T: Real, L: Local<T>, M: LinearOperator<Vector = RankVector<T, L>>> LinearOperator
    for RankTwoLevel<T, M, L>
{
    type Vector = RankVector<T, L>;

    fn domain(&self) -> &RankSpace<T, L> {
        &self.space
    }

    fn apply(&self, r: &RankVector<T, L>, z: &mut RankVector<T, L>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let flight = self.restrict(r)?;
        self.inner.apply(r, z)?;
        self.correct(flight, z)?;
        Ok(())
    }

    fn apply_dot(
        &self,
        r: &RankVector<T, L>,
        z: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<RankScalar<T, L>> {
        check_spaces(self, r, z)?;
        let flight = self.restrict(r)?;
        let inner = self.inner.apply_dot(r, z)?;
        Ok(inner + self.correct(flight, z)?)
    }

    fn axpy_apply_dot(
        &self,
        a: &RankScalar<T, L>,
        q: &RankVector<T, L>,
        r: &mut RankVector<T, L>,
        z: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<[RankScalar<T, L>; 2]> {
        check_spaces(self, q, r)?;
        check_spaces(self, r, z)?;
        let [norm, inner] = self.inner.axpy_apply_dot(a, q, r, z)?;
        let flight = self.restrict(r)?;
        Ok([norm, inner + self.correct(flight, z)?])
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(&*self.inverse)
    }
}
