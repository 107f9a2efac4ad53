//! Coarse spaces: a few vectors that together approximate the smooth part of an error.
//!
//! The graph of the matrix is partitioned into connected aggregates of about equal size (by recursive
//! clustering, `ordering`). The columns of the matrix `Z` are modes restricted to one aggregate each: a
//! constant for each unknown of a node, or modes that the user gives, rigid body modes for example, whose
//! restrictions are orthonormalized.
//!
//! Departures from Nicolaides (1987), who has one constant for each subdomain of a mesh:
//! 1. aggregates are computed from the matrix, and are connected: a single constant does not help on an
//!    aggregate of two weakly connected halves;
//! 2. several modes, as in smoothed aggregation (Vaněk, Mandel and Brezina 1996), and as there linearly
//!    dependent restrictions are dropped.

use super::amg::modes::check_modes;
use super::{check_space, check_square};
use crate::error::{Error, Result};
use crate::formats::pattern::{by_rows, place_of};
use crate::formats::{Csr, Format, node_rows};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::ordering::aggregates;
use crate::permutation::Permutation;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::coarse::{Aggregates, Blocks, NONE};
use krysp_kernels::cpu::preconditioners::inverse::invert_positive;
use krysp_kernels::cpu::run::threads::{ByRow, map_rows, over_parts, tasks};
use krysp_kernels::interrupt;
use krysp_solvers::Element;
use rayon::prelude::*;
use std::array::from_fn;

/// Minimum average number of nodes per aggregate: with fewer, the coarse problem is not much cheaper than the fine
/// one. Guess.
const NODES: usize = 32;

/// A mode is dropped on an aggregate as linearly dependent if orthogonalization against the preceding modes leaves
/// less than this fraction of its norm there. Guess, chosen far above the rounding of modes that are given in
/// single precision.
const DEPENDENT: f64 = 1e-6;

/// Number of weights of a row that are accumulated together in one SIMD register.
const LANES: usize = 4;
type Lanes = [f64; LANES];

/// A coarse space: aggregates of unknowns, and modes on them.
#[derive(Clone, Debug)]
pub struct CoarseSpace<T: Real> {
    space: HostSpace<T>,
    starts: Vec<u32>,
    /// Rows sorted by aggregate; rows without an aggregate come last.
    rows: Vec<u32>,
    of_row: Vec<u32>,
    modes: usize,
    /// Weights of the first mode, one for each row, then those of the next; `None` for a single constant
    /// mode.
    weights: Option<Vec<T>>,
}

impl<T: Real> CoarseSpace<T> {
    /// Suitable number of coarse unknowns for systems of some 100,000 unknowns; the dense inverse then takes
    /// 2 MB of `f64`. With twice as many, solves took 20 to 25 % fewer iterations, but each took 20 to 40 %
    /// longer, and setup took longer too (`preconditioners.csv`: heat_sink_p1_340k, elast_bracket_p1_59k with
    /// rigid body modes).
    pub const UNKNOWNS: usize = 512;

    /// Builds a coarse space of about `unknowns` unknowns, fewer for small systems: a constant on each
    /// aggregate for every unknown of a node. Nodes are detected from the pattern.
    pub fn new(csr: &Csr<T>, unknowns: usize) -> Result<CoarseSpace<T>> {
        let (size, _) = node_rows(csr.pattern());
        let mut coarse = CoarseSpace::aggregated(csr, size, size, unknowns)?;
        if size > 1 {
            let n = csr.rows();
            let entry = |at: usize| if at % n % size == at / n { T::one() } else { T::zero() };
            coarse.weights = Some(map_rows(size * n, 1, &entry));
        }
        Ok(coarse)
    }

    /// Builds a coarse space from modes, given as vectors in the user's order: a near-null space, which `A`
    /// maps to nearly zero apart from boundary conditions, as the six rigid body modes of elasticity.
    pub fn with_near_null_space<V: AsRef<[T]> + Sync>(
        csr: &Csr<T>,
        unknowns: usize,
        modes: &[V],
    ) -> Result<CoarseSpace<T>> {
        if modes.is_empty() {
            let (what, expected) = ("the number of modes", "at least one");
            return Err(Error::Option { what, got: "0".into(), expected });
        }
        check_modes(modes)?;
        let (size, _) = node_rows(csr.pattern());
        let mut coarse = CoarseSpace::aggregated(csr, size, modes.len(), unknowns)?;
        let loaded = modes.par_iter().map(|mode| Ok(coarse.space.vector(mode.as_ref())?));
        let loaded = loaded.collect::<Result<Vec<_>>>()?;
        let slices: Vec<&[T]> = loaded.iter().map(|mode| mode.as_slice()).collect();
        coarse.weights = Some(coarse.orthonormal(&slices)?);
        Ok(coarse)
    }

    /// Partitions nodes of `size` rows into aggregates.
    fn aggregated(csr: &Csr<T>, size: usize, modes: usize, unknowns: usize) -> Result<CoarseSpace<T>> {
        check_square("a coarse space", csr)?;
        let (n, nodes) = (csr.rows(), csr.rows() / size);
        let most = (unknowns / modes).min(nodes / NODES).max(1);
        let (count, of_node) = aggregates(csr, size, most)?;
        let of_row = if size == 1 { of_node } else { map_rows(n, 2, &|row| of_node[row / size]) };
        let (starts, entries) = by_rows(count + 1, n, &|row| (of_row[row].min(count as u32), 0));
        let rows = map_rows(n, 3, &|at| place_of(entries[at]));
        let starts = (0..=count).map(|aggregate| starts.at(aggregate) as u32).collect();
        let space = csr.source().domain().clone();
        Ok(CoarseSpace { space, starts, rows, of_row, modes, weights: None })
    }

    /// Orthonormalizes the restrictions of modes to aggregates, by Gram-Schmidt, done twice.
    fn orthonormal(&self, modes: &[&[T]]) -> Result<Vec<T>> {
        let (n, count) = (self.of_row.len(), self.aggregates());
        let ends = self.kernel().starts;
        let mut columns = vec![0.0; self.starts[count] as usize * modes.len()];
        let offset = |aggregate: usize| ends[aggregate] as usize * modes.len();
        let parts = tasks(columns.len() * modes.len()).min(count);
        let bound = |part: usize| part * count / parts.max(1);
        over_parts(parts, &bound, ByRow::new(&mut columns, &offset), &|aggregates, mut columns| {
            for aggregate in aggregates {
                let rows = self.kernel().rows_of(aggregate);
                let columns = columns.row_mut(aggregate, rows.len() * modes.len());
                for (mode, values) in modes.iter().enumerate() {
                    let (before, own) = columns.split_at_mut(mode * rows.len());
                    let own = &mut own[..rows.len()];
                    for (own, &row) in own.iter_mut().zip(rows) {
                        *own = Element::to_f64(values[row as usize]);
                    }
                    let whole = norm(own);
                    for other in before.chunks_exact(rows.len()).chain(before.chunks_exact(rows.len())) {
                        let shared = dot(own, other);
                        own.iter_mut().zip(other).for_each(|(v, q)| *v -= shared * q);
                    }
                    let rest = norm(own);
                    let scale = if rest > DEPENDENT * whole { 1.0 / rest } else { 0.0 };
                    own.iter_mut().for_each(|v| *v *= scale);
                }
            }
        });
        let place = Permutation::from_old_of_new(self.rows.clone())?;
        let entry = |at: usize| {
            let (mode, row) = (at / n, at % n);
            let aggregate = self.of_row[row];
            if aggregate == NONE {
                return T::zero();
            }
            let [start, end] = [0, 1].map(|k| self.starts[aggregate as usize + k] as usize);
            let within = place.new_of_old()[row] as usize - start;
            T::from_f64(columns[start * modes.len() + mode * (end - start) + within])
        };
        Ok(map_rows(n * modes.len(), 4, &entry))
    }

    /// Number of aggregates.
    pub fn aggregates(&self) -> usize {
        self.starts.len() - 1
    }

    /// Number of coarse unknowns.
    pub fn unknowns(&self) -> usize {
        self.kernel().unknowns()
    }

    pub(crate) fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    pub(crate) fn kernel(&self) -> Aggregates<'_, T> {
        let CoarseSpace { starts, rows, of_row, modes, weights, .. } = self;
        Aggregates { starts, rows, of_row, modes: *modes, weights: weights.as_deref() }
    }

    /// `Zᵀ A Z`
    pub(crate) fn galerkin(&self, a: &Csr<T>) -> Result<Blocks> {
        check_space(a, &self.space)?;
        let (z, modes) = (self.kernel(), self.modes);
        let weights = self.weights.as_ref().map(|_| self.weights_by_rows());
        let rows_of = |sums: &mut BlockRow, aggregate: usize| {
            sums.clear();
            match &weights {
                None => self.add_rows(a, aggregate, sums),
                Some(weights) => self.add_weighted_rows(a, aggregate, weights, sums),
            }
            for mode in 0..modes {
                // if the mode was dropped, its row and column are zero: put one on the diagonal
                let own = &mut sums.block(aggregate as u32)[mode * (modes + 1)];
                if *own == 0.0
                    && z.rows_of(aggregate).iter().all(|&row| z.weight(mode, row as usize).is_zero())
                {
                    *own = 1.0;
                }
            }
            (sums.columns.clone(), sums.values.clone())
        };
        let aggregates = (0..z.count()).into_par_iter();
        let rows: Vec<_> = aggregates.map_init(|| BlockRow::new(z.count(), modes), rows_of).collect();
        let mut product = Blocks { modes, count: z.count(), ..Blocks::default() };
        for (row, (columns, values)) in rows.iter().enumerate() {
            product.places.extend(columns.iter().map(|&column| [row as u32, column]));
            product.values.extend(values);
        }
        Ok(product)
    }

    /// Adds an aggregate's rows of `Zᵀ A Z`, if all weights are one.
    fn add_rows(&self, a: &Csr<T>, aggregate: usize, sums: &mut BlockRow) {
        for &row in self.kernel().rows_of(aggregate) {
            let row = row as usize;
            for (&column, &value) in a.row_columns(row).iter().zip(a.row_values(row)) {
                let other = self.of_row[column as usize];
                if other != NONE {
                    sums.block(other)[0] += Element::to_f64(value);
                }
            }
        }
    }

    /// The weights of each row, mode by mode, padded with zeros to whole [`Lanes`].
    fn weights_by_rows(&self) -> Vec<Lanes> {
        let (z, lanes) = (self.kernel(), self.modes.div_ceil(LANES));
        let weight = |row: usize, mode: usize| match mode < z.modes {
            true => Element::to_f64(z.weight(mode, row)),
            false => 0.0,
        };
        let few = |at: usize| from_fn(|k| weight(at / lanes, at % lanes * LANES + k));
        map_rows(self.of_row.len() * lanes, 2 * LANES, &few)
    }

    /// Adds an aggregate's rows of `Zᵀ A Z`, with entries weighted by the modes.
    fn add_weighted_rows(&self, a: &Csr<T>, aggregate: usize, weights: &[Lanes], sums: &mut BlockRow) {
        let (modes, lanes) = (self.modes, self.modes.div_ceil(LANES));
        let of = |row: usize| &weights[row * lanes..][..lanes];
        let mut weighted = vec![[0.0; LANES]; lanes];
        let mut flush = |row: usize, other: u32, weighted: &mut [Lanes]| {
            let own = of(row).as_flattened().iter();
            for (&weight, to) in own.zip(sums.block(other).chunks_exact_mut(modes)) {
                to.iter_mut().zip(weighted.as_flattened()).for_each(|(to, sum)| *to += weight * sum);
            }
            weighted.fill([0.0; LANES]);
        };
        for &row in self.kernel().rows_of(aggregate) {
            let row = row as usize;
            // consecutive columns mostly belong to one aggregate: their entries are summed first, then
            // weighted once
            let mut open = NONE;
            for (&column, &value) in a.row_columns(row).iter().zip(a.row_values(row)) {
                let (column, value) = (column as usize, Element::to_f64(value));
                let other = self.of_row[column];
                if other != open && open != NONE {
                    flush(row, open, &mut weighted);
                }
                open = other;
                if other != NONE {
                    for (sums, weights) in weighted.iter_mut().zip(of(column)) {
                        sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
                    }
                }
            }
            if open != NONE {
                flush(row, open, &mut weighted);
            }
        }
    }

    /// `(Zᵀ A Z)⁻¹`
    pub(super) fn inverse(&self, a: &Csr<T>) -> Result<Buffer<T>> {
        a.check_finite()?;
        let mut product = self.galerkin(a)?.dense();
        interrupt::check("coarse matrix")?;
        invert_positive(&mut product, self.unknowns()).map_err(|refused| match refused {
            Refused::Pivot { at, value } => self.refused(at, value),
            Refused::Interrupted(interrupted) => interrupted.into(),
        })?;
        Ok(map_rows(product.len(), 2, &|at| T::from_f64(product[at])).into())
    }

    /// The error for a pivot of `Zᵀ A Z` that is not positive.
    pub(crate) fn refused(&self, at: usize, pivot: f64) -> Error {
        let aggregate = at / self.modes.max(1);
        let rows = self.kernel().rows_of(aggregate);
        let row = rows.first().map_or(0, |&row| row as usize);
        Error::CoarseNotPositive { aggregate, rows: rows.len(), row, pivot }
    }
}

/// Accumulator of one row of blocks.
struct BlockRow {
    size: usize,
    /// Position of each column's block; [`NONE`] if the row has none yet.
    places: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl BlockRow {
    fn new(columns: usize, modes: usize) -> Self {
        BlockRow { size: modes * modes, places: vec![NONE; columns], columns: vec![], values: vec![] }
    }

    fn clear(&mut self) {
        self.columns.drain(..).for_each(|column| self.places[column as usize] = NONE);
        self.values.clear();
    }

    /// The block of a column, initially zero.
    fn block(&mut self, column: u32) -> &mut [f64] {
        let place = &mut self.places[column as usize];
        if *place == NONE {
            *place = self.columns.len() as u32;
            self.columns.push(column);
            self.values.resize(self.columns.len() * self.size, 0.0);
        }
        &mut self.values[*place as usize * self.size..][..self.size]
    }
}

fn norm(v: &[f64]) -> f64 {
    dot(v, v).sqrt()
}

/// `⟨x, y⟩`, in [`LANES`] partial sums.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (x, y) in x.iter().zip(y) {
        sums.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum += x * y);
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}
