//! Unsmoothed aggregation on the finest level. With a smoothed prolongator, the matrix products of that level
//! take more than half of the setup, more than the saved iterations are worth in a single solve.
//!
//! ```text
//! T = 1 where a node belongs to an aggregate
//! A_c = Tᵀ A T                                sums of entries
//! x ← x + OVER T cycle(Tᵀ (b − A x))          VISITS cycles on the next level
//! ```
//!
//! Piecewise constant vectors have too much energy, so the coarse correction is too small: the overcorrection
//! factor [`OVER`] compensates for a part of that (Braess 1995). Prolongators of coarser levels are smoothed,
//! and the repeated cycles continue from the result of the one before. They are cheap, because aggregates
//! have some ten to twenty nodes, and rows are hardly longer than on the finest level.
//!
//! Used only for symmetric matrices with one unknown per node and constants as modes: compared with a
//! smoothed prolongator, it took 1.7 times as many iterations for convection-diffusion, and 1.3 times for
//! elasticity.
//!
//! Cost: one pass over the matrix in the setup. Two indices per row are stored, which a cycle reads once
//! each.

use super::aggregates::{Aggregates, NONE};
use super::blocks::{Blocks, entries};
use super::product::{self, Row};
use crate::error::Result;
use crate::formats::pattern::{Pattern, by_rows, place_of};
use crate::formats::sampled_rows;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::cpu::simd::prefetch;
use krysp_kernels::index::Offsets;
use std::sync::Arc;

/// Overcorrection factor of the coarse correction. The cycle is symmetric positive definite for values below
/// two.
pub(crate) const OVER: f32 = 1.6;

/// Number of cycles on the next level per cycle of the finest one.
pub(super) const VISITS: usize = 3;

/// Number of rows tested for symmetry, and relative difference of mirrored off-diagonal entries that is
/// attributed to rounding.
const SAMPLE: usize = 1024;
const ROUNDING: f64 = 1e-5;

/// Prefetch distance, in nodes of an aggregate.
const AHEAD: usize = 4;

/// Unsmoothed aggregation of the finest level.
#[derive(Debug)]
pub(super) struct Unsmoothed {
    pub(super) aggregates: Aggregates,
    /// The nodes of each aggregate.
    pub(super) members: Pattern,
    pub(super) coarse: Arc<Pattern>,
}

saved!(impl[] Unsmoothed { aggregates, members, coarse });

impl Unsmoothed {
    /// Aggregates a matrix with 1 x 1 blocks; returns the values of the next level as well.
    pub(super) fn new(a: Blocks<'_>, aggregates: Aggregates) -> Result<(Unsmoothed, Buffer<f64>)> {
        let Aggregates { count, of_node } = &aggregates;
        let (count, nodes) = (*count, a.pattern.rows());
        let (starts, members) = by_rows(count + 1, nodes, &|node| (of_node[node].min(count as u32), 0));
        let offsets = Offsets::of_rows(count, &|aggregate| starts.range(aggregate).len());
        let members = map_rows(offsets.end(), 3, &|at| place_of(members[at]));
        let members = Pattern::sorted(offsets, members, nodes)?;
        let row = |aggregate: usize, to: &mut Row| sum(a, of_node, &members, aggregate, to);
        let (coarse, values) = product::assembled([count; 2], 1, &row)?;
        Ok((Unsmoothed { aggregates, members, coarse: Arc::new(coarse) }, values))
    }

    /// Recomputes the values of the next level.
    pub(super) fn numbers(&self, a: Blocks<'_>) -> Result<Buffer<f64>> {
        let of_node = &self.aggregates.of_node;
        product::numbers(&self.coarse, 1, &|aggregate, to| sum(a, of_node, &self.members, aggregate, to))
    }

    /// `b ← Tᵀ t`, for `W` vectors stored row by row.
    pub(super) fn restrict<const W: usize>(&self, t: &[f32], b: &mut [f32]) {
        let (t, b) = (t.as_chunks::<W>().0, b.as_chunks_mut::<W>().0);
        over_rows(self.aggregates.count, 16 * W, b, &|aggregates, b: &mut [[f32; W]]| {
            for (aggregate, b) in aggregates.zip(b) {
                let mut sums = [0.0; W];
                for &node in self.members.row(aggregate) {
                    let t = &t[node as usize];
                    (0..W).for_each(|j| sums[j] += t[j]);
                }
                *b = sums;
            }
        });
    }

    /// `x ← x + OVER T e`, for `W` vectors stored row by row.
    pub(super) fn add<const W: usize>(&self, e: &[f32], x: &mut [f32]) {
        let (e, of_node) = (e.as_chunks::<W>().0, &self.aggregates.of_node);
        over_rows(of_node.len(), 3 * W, x.as_chunks_mut::<W>().0, &|nodes, x: &mut [[f32; W]]| {
            for (x, &aggregate) in x.iter_mut().zip(&of_node[nodes]) {
                let e = e.get(aggregate as usize).unwrap_or(&[0.0; W]);
                (0..W).for_each(|j| x[j] += OVER * e[j]);
            }
        });
    }

    /// Bytes that a cycle reads.
    pub(super) fn bytes(&self) -> usize {
        4 * (self.aggregates.of_node.len() + self.members.entries() + self.aggregates.count)
    }
}

/// A row of `Tᵀ A T`.
fn sum(a: Blocks<'_>, of_node: &[u32], members: &Pattern, aggregate: usize, to: &mut Row) {
    for at in members.offsets.range(aggregate) {
        if let Some(&later) = members.columns.get(at + AHEAD) {
            let range = a.pattern.offsets.range(later as usize);
            prefetch(&a.pattern.columns[range.clone()]);
            prefetch(&a.values[range]);
        }
        for (column, value) in entries(a, members.columns[at] as usize) {
            let other = of_node[column as usize];
            if other != NONE {
                to.add(other, value);
            }
        }
    }
}

/// Returns whether the finest level of a matrix without given modes and with `size` rows per node uses
/// unsmoothed aggregation. `values` returns the entries at some positions of the pattern.
pub(crate) fn is_worthwhile(
    smooth_finest: bool,
    size: usize,
    pattern: &Pattern,
    values: impl FnOnce(&[usize]) -> Result<Vec<f64>>,
) -> Result<bool> {
    if smooth_finest || size > 1 {
        return Ok(false);
    }
    let place = |row: usize, column: usize| {
        let at = pattern.row(row).binary_search(&(column as u32)).ok()?;
        Some(pattern.offsets.at(row) + at)
    };
    // an entry of a sampled row, the mirrored one, and both diagonal entries
    let mut groups: Vec<[Option<usize>; 4]> = vec![];
    for row in sampled_rows(pattern.rows(), SAMPLE) {
        for entry in pattern.offsets.range(row) {
            let column = pattern.columns[entry] as usize;
            groups.push([Some(entry), place(column, row), place(row, row), place(column, column)]);
        }
    }
    let mut values = values(&groups.iter().flatten().flatten().copied().collect::<Vec<_>>())?.into_iter();
    let mut is_symmetric = |group: [Option<usize>; 4]| {
        let [entry, mirrored, row, column] =
            group.map(|place| place.and_then(|_| values.next()).unwrap_or(0.0));
        let largest = entry.abs().max(mirrored.abs()).max((row * column).abs().sqrt());
        (entry - mirrored).abs() <= ROUNDING * largest
    };
    Ok(groups.into_iter().all(&mut is_symmetric))
}
