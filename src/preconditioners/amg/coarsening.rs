//! From one level to the next: aggregates, smoothed prolongator, Galerkin product.
//!
//! ```text
//! T    tentative prolongator: near-null space modes, orthonormalized on each aggregate
//! P = (I − ω D⁻¹ A_F) T        A_F: filtered matrix, weak entries are lumped into the diagonal; D: its diagonal, see POSITIVE
//! A_c = Pᵀ (A P)
//! ```
//!
//! Aggregates, `T` and all patterns are computed once; in a refresh [`Coarsening::refill`] recomputes the rest.
//!
//! Departure from Vaněk, Mandel and Brezina (1996): with several modes the matrix is not filtered, `A_F = A`.
//! Lumping weak entries into the diagonal preserves constants only, not rotations.

use super::aggregates::{Aggregates, NONE};
use super::blocks::{self, Blocks, Transposed, entries};
use super::modes::{NearNullSpace, orthonormal};
use super::product::{self, Pieces, Row};
use super::stored::{Stored, expanded, rounded};
use super::strength::Strength;
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::interrupt;
use krysp_kernels::multigrid::POSITIVE;
use std::sync::Arc;

/// Smoothed aggregation of a level: `P`, `Pᵀ`, and the symbolic part, which a refresh reuses.
#[derive(Debug)]
pub(super) struct Coarsening {
    /// Strong connections, which the filtered matrix keeps. `None` if the matrix is not filtered: all
    /// connections are strong, or there are several modes.
    pub(super) strong: Option<Pattern>,
    pub(super) aggregates: Aggregates,
    /// Values of `T`, a dense block for each node.
    pub(super) tentative: Vec<f64>,
    /// Rows per node, and number of modes.
    pub(super) shape: [usize; 2],
    pub(super) prolongation: Arc<Pattern>,
    pub(super) restriction: Arc<Pattern>,
    /// Index in `P` of each block of `Pᵀ`.
    pub(super) from: Vec<u32>,
    /// The pattern of `A P`.
    pub(super) product: Pieces,
    pub(super) coarse: Arc<Pattern>,
    /// `P` and `Pᵀ`, in single precision.
    pub(super) transfers: [Stored; 2],
}

saved!(impl[] Coarsening {
    strong, aggregates, tentative, shape, prolongation, restriction, from, product, coarse, transfers
});

/// Computes strong connections (`None` where all are strong) and aggregates.
pub(super) fn aggregated(a: Blocks<'_>, theta: f64) -> Result<(Option<Pattern>, Aggregates)> {
    let Strength { strong, left_out } = Strength::new(a, theta, &Ok)?;
    interrupt::check("strength of connection")?;
    let aggregates = Aggregates::new(strong.as_ref().unwrap_or(a.pattern), &left_out);
    interrupt::check("aggregation")?;
    Ok((strong, aggregates))
}

impl Coarsening {
    /// Coarsens a matrix, given its inverse diagonal, its modes and the result of [`aggregated`]. Returns values
    /// and modes of the next level as well.
    pub(super) fn new(
        a: Blocks<'_>,
        inverse_diagonal: &[f64],
        omega: f64,
        modes: &NearNullSpace,
        (strong, aggregates): (Option<Pattern>, Aggregates),
    ) -> Result<(Coarsening, Buffer<f64>, NearNullSpace)> {
        let (nodes, [size, _]) = (a.pattern.rows(), a.shape);
        let (tentative, coarse_modes) = orthonormal(modes, &aggregates, size);
        // lumping preserves the row sum, which is right for constants only
        let strong = strong.filter(|_| modes.count == 1);
        let shape = [size, modes.count];
        let smoother = Smoother {
            a,
            strong: strong.as_ref(),
            of_node: &aggregates.of_node,
            tentative: &tentative,
            modes: modes.count,
            inverse_diagonal,
            omega,
        };
        let (pattern, prolongation) =
            smoother.each_row(|size, row| product::assembled([nodes, aggregates.count], size, row))?;
        let (transposed, from) = blocks::transposed_pattern(&pattern)?;
        let p = Blocks::new(&pattern, shape, &prolongation);
        let mut product = Pieces::product(a, &p)?;
        let r = Transposed { pattern: &transposed, of: p, from: &from };
        let (coarse, coarse_values) = product::product(r, &product)?;
        product.clear();
        let [rounded_p, rounded_r] = [rounded(p, 1.0), rounded(r, 1.0)];
        let [prolongation, restriction] = [Arc::new(pattern), Arc::new(transposed)];
        let transfers = [
            Stored::short_rows(&expanded(&prolongation, shape)?, rounded_p)?,
            Stored::rows(&expanded(&restriction, [modes.count, size])?, rounded_r),
        ];
        let coarsening = Coarsening {
            strong,
            aggregates,
            tentative,
            shape,
            prolongation,
            restriction,
            from,
            product,
            coarse: Arc::new(coarse),
            transfers,
        };
        Ok((coarsening, coarse_values, coarse_modes))
    }

    /// Unknowns per aggregate.
    pub(super) fn modes(&self) -> usize {
        self.shape[1]
    }

    /// Recomputes the values of `P` and `Pᵀ` for a matrix, its inverse diagonal, and `ω`; returns those of the next
    /// level.
    pub(super) fn refill(
        &mut self,
        a: Blocks<'_>,
        inverse_diagonal: &[f64],
        omega: f64,
    ) -> Result<Buffer<f64>> {
        let smoother = Smoother {
            a,
            strong: self.strong.as_ref(),
            of_node: &self.aggregates.of_node,
            tentative: &self.tentative,
            modes: self.modes(),
            inverse_diagonal,
            omega,
        };
        let prolongation = smoother.each_row(|size, row| product::numbers(&self.prolongation, size, row))?;
        let p = Blocks::new(&self.prolongation, self.shape, &prolongation);
        self.product.refill(a, &p)?;
        let r = Transposed { pattern: &self.restriction, of: p, from: &self.from };
        let coarse = product::values(r, &self.product, &self.coarse)?;
        self.product.clear();
        self.transfers[0].fill(&rounded(p, 1.0));
        self.transfers[1].fill(&rounded(r, 1.0));
        Ok(coarse)
    }
}

/// Computes rows of `(I − ω D⁻¹ A_F) T`.
pub(crate) struct Smoother<'a> {
    pub(crate) a: Blocks<'a>,
    pub(crate) strong: Option<&'a Pattern>,
    pub(crate) of_node: &'a [u32],
    pub(crate) tentative: &'a [f64],
    pub(crate) modes: usize,
    pub(crate) inverse_diagonal: &'a [f64],
    pub(crate) omega: f64,
}

impl Smoother<'_> {
    pub(crate) fn each_row<R>(&self, does: impl FnOnce(usize, &(dyn Fn(usize, &mut Row) + Sync)) -> R) -> R {
        let size = self.a.shape[0] * self.modes;
        match (size, self.strong) {
            (1, None) => does(1, &|node, to| self.numbers(node, to)),
            (1, Some(strong)) => does(1, &|node, to| self.strong_numbers(strong.row(node), node, to)),
            _ => does(size, &|node, to| self.blocks(node, to)),
        }
    }

    /// Row of `P` for 1 x 1 blocks, if all connections are strong.
    fn numbers(&self, node: usize, to: &mut Row) {
        let own = self.of_node[node];
        if own == NONE {
            return;
        }
        to.add(own, self.tentative[node]);
        let factor = -self.omega * self.inverse_diagonal[node];
        for (column, value) in entries(self.a, node) {
            let aggregate = self.of_node[column as usize];
            if aggregate != NONE {
                to.add(aggregate, factor * value * self.tentative[column as usize]);
            }
        }
    }

    /// Row of `P` for 1 x 1 blocks, with weak entries lumped into the diagonal.
    fn strong_numbers(&self, strong: &[u32], node: usize, to: &mut Row) {
        let own = self.of_node[node];
        if own == NONE {
            return;
        }
        let (mut rest, mut diagonal) = (strong, 0.0);
        for (column, value) in entries(self.a, node) {
            let is_strong = rest.first() == Some(&column);
            rest = &rest[usize::from(is_strong)..];
            if !is_strong || column as usize == node {
                diagonal += value;
            }
        }
        let mut inverse = self.inverse_diagonal[node];
        if diagonal * inverse > POSITIVE {
            inverse = 1.0 / diagonal;
        }
        let factor = -self.omega * inverse;
        to.add(own, (1.0 + factor * diagonal) * self.tentative[node]);
        rest = strong;
        for (column, value) in entries(self.a, node) {
            let is_strong = rest.first() == Some(&column);
            rest = &rest[usize::from(is_strong)..];
            let aggregate = self.of_node[column as usize];
            if is_strong && column as usize != node && aggregate != NONE {
                to.add(aggregate, factor * value * self.tentative[column as usize]);
            }
        }
    }

    fn blocks(&self, node: usize, to: &mut Row) {
        let ([rows, _], modes, own) = (self.a.shape, self.modes, self.of_node[node]);
        let tentative =
            |node: usize| self.tentative[node * rows * modes..][..rows * modes].chunks_exact(modes);
        if own == NONE {
            return;
        }
        let add = |to: &mut [f64], t: &[f64], factor: f64| {
            to.iter_mut().zip(t).for_each(|(to, t)| *to += factor * t);
        };
        let first = to.block(own).chunks_exact_mut(modes);
        first.zip(tentative(node)).for_each(|(to, t)| add(to, t, 1.0));
        for entry in self.a.pattern.offsets.range(node) {
            let column = self.a.pattern.columns[entry];
            let aggregate = self.of_node[column as usize];
            if aggregate == NONE {
                continue;
            }
            for (row, to) in to.block(aggregate).chunks_exact_mut(modes).enumerate() {
                let factor = -self.omega * self.inverse_diagonal[node * rows + row];
                for (value, t) in self.a.row_of_block(node, entry, row).iter().zip(tentative(column as usize))
                {
                    add(to, t, factor * value);
                }
            }
        }
    }
}
