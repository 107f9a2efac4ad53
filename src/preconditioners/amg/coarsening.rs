//! From one level to the next: aggregates, smoothed prolongation, Galerkin product.
//!
//! ```text
//! T    modes, orthonormal on each aggregate
//! P = (I − ω D⁻¹ A_F) T        A_F: weak entries are added to the diagonal block of their row
//! A_c = Pᵀ (A P)
//! ```
//!
//! What does not depend on numbers (aggregates, `T`, all patterns) is made once; [`Coarsening::numbers`] makes the rest, at
//! first and after every refresh.

use super::aggregates::{Aggregates, NONE};
use super::modes::Modes;
use super::product::{self, Blocks, Met};
use super::stored::{Stored, expanded, rounded};
use super::strength::Strength;
use crate::Result;
use crate::formats::pattern::Pattern;
use crate::preconditioners::rows::{STREAMS, find_rows};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_rows};
use std::sync::Arc;

/// What of a weak entry's diagonal must be left for it to be added there.
const POSITIVE: f64 = 0.1;

/// How a level becomes coarser.
#[derive(Debug)]
pub(super) struct Coarsening {
    /// Strong connections; none where all are.
    strong: Option<Pattern>,
    aggregates: Aggregates,
    /// `T`, a block for each node.
    tentative: Vec<f64>,
    /// Rows of a node, and modes.
    shape: [usize; 2],
    pub(super) prolongation: Arc<Pattern>,
    pub(super) restriction: Arc<Pattern>,
    /// The block of `P` that each block of `Pᵀ` is.
    from: Buffer<u32>,
    /// Of `A P`.
    product: Pattern,
    pub(super) coarse: Arc<Pattern>,
}

/// The numbers of a coarsening.
pub(super) struct Numbers {
    pub(super) prolongation: Buffer<f64>,
    pub(super) restriction: Buffer<f64>,
    pub(super) coarse: Buffer<f64>,
}

impl Coarsening {
    /// Of a matrix and its modes; with the modes of the next level. None where there is nothing to aggregate.
    pub(super) fn new(a: Blocks<'_>, modes: &Modes, theta: f64) -> Result<Option<(Coarsening, Modes)>> {
        let Strength { strong, left_out } = Strength::new(a, theta)?;
        let graph = strong.as_ref().unwrap_or(a.pattern);
        let aggregates = Aggregates::new(graph, &left_out);
        if aggregates.count == 0 {
            return Ok(None);
        }
        let (tentative, coarse_modes) = modes.orthonormal(&aggregates, a.shape[0]);
        let new = || Met::new(aggregates.count);
        // what is added to the diagonal is there for constants alone
        let smooth = if modes.count == 1 { graph } else { a.pattern };
        let prolongation = find_rows(a.pattern.rows(), aggregates.count, &new, &|row, met, columns| {
            let own = aggregates.of_node[row];
            if own != NONE {
                let nodes = smooth.row(row).iter().map(|&node| aggregates.of_node[node as usize]);
                let reached = nodes.chain([own]).filter(|&of| of != NONE && met.first(row, of));
                columns.extend(reached);
            }
            Ok(())
        })?;
        let (restriction, from) = prolongation.transposed()?;
        let product = product::pattern(a.pattern, &prolongation)?;
        let coarse = Arc::new(product::pattern(&restriction, &product)?);
        let (prolongation, restriction) = (Arc::new(prolongation), Arc::new(restriction));
        let shape = [a.shape[0], modes.count];
        let strong = strong.filter(|_| modes.count == 1);
        let coarsening = Coarsening {
            strong,
            aggregates,
            tentative,
            shape,
            prolongation,
            restriction,
            from,
            product,
            coarse,
        };
        Ok(Some((coarsening, coarse_modes)))
    }

    /// `P` and `Pᵀ` in the format that suits each.
    pub(super) fn transfers(&self, numbers: &Numbers) -> Result<[Stored; 2]> {
        let [rows, modes] = self.shape;
        let stored = |pattern: &Arc<Pattern>, shape: [usize; 2], values: &[f64]| {
            let blocks = Blocks { pattern, shape, values };
            Stored::new(&expanded(pattern, shape)?, rounded(blocks, 1.0))
        };
        let prolongation = stored(&self.prolongation, self.shape, &numbers.prolongation)?;
        Ok([prolongation, stored(&self.restriction, [modes, rows], &numbers.restriction)?])
    }

    /// New numbers for what [`Coarsening::transfers`] made.
    pub(super) fn refill(&self, numbers: &Numbers, [prolongation, restriction]: &mut [Stored; 2]) {
        let [rows, modes] = self.shape;
        let blocks = |pattern, shape, values| rounded(Blocks { pattern, shape, values }, 1.0);
        prolongation.fill(&blocks(&self.prolongation, self.shape, &numbers.prolongation));
        restriction.fill(&blocks(&self.restriction, [modes, rows], &numbers.restriction));
    }

    /// Unknowns of an aggregate.
    pub(super) fn modes(&self) -> usize {
        self.shape[1]
    }

    /// The number of aggregates.
    pub(super) fn aggregates(&self) -> usize {
        self.aggregates.count
    }

    /// `P`, `Pᵀ` and `Pᵀ A P` for a matrix, its inverse diagonal, and `ω`.
    pub(super) fn numbers(&self, a: Blocks<'_>, inverse_diagonal: &[f64], omega: f64) -> Numbers {
        let prolongation = self.smoothed(a, inverse_diagonal, omega);
        let p = Blocks { pattern: &self.prolongation, shape: self.shape, values: &prolongation };
        let restriction = product::transposed(p, &self.from);
        let [rows, modes] = self.shape;
        let r = Blocks { pattern: &self.restriction, shape: [modes, rows], values: &restriction };
        let values = product::values(a, p, &self.product);
        let ap = Blocks { pattern: &self.product, shape: self.shape, values: &values };
        let coarse = product::values(r, ap, &self.coarse);
        Numbers { prolongation, restriction, coarse }
    }

    /// `(I − ω D⁻¹ A_F) T`
    fn smoothed(&self, a: Blocks<'_>, inverse_diagonal: &[f64], omega: f64) -> Buffer<f64> {
        let ([rows, modes], pattern) = (self.shape, &*self.prolongation);
        let size = rows * modes;
        let mut values = Buffer::zeros(pattern.entries() * size);
        let tentative = |node: u32| &self.tentative[node as usize * size..(node as usize + 1) * size];
        let offset = |node: usize| pattern.offsets.at(node) * size;
        let data = ByRow::new(&mut values, &offset);
        over_rows(pattern.rows(), STREAMS, data, &|nodes, values: ByRow<'_, f64>| {
            let (mut values, _) = values.all();
            let mut places = vec![0u32; pattern.cols()];
            let (mut own, mut factors) = (vec![0.0; rows * rows], vec![0.0; rows]);
            for node in nodes {
                let columns = pattern.row(node);
                let (to, rest) = values.split_at_mut(columns.len() * size);
                values = rest;
                if columns.is_empty() {
                    continue;
                }
                (0..).zip(columns).for_each(|(place, &column)| places[column as usize] = place);
                let mut add = |other: u32, block: &[f64], factors: &[f64]| {
                    let aggregate = self.aggregates.of_node[other as usize];
                    if aggregate == NONE {
                        return;
                    }
                    let to = &mut to[places[aggregate as usize] as usize * size..][..size];
                    let rows_of = to.chunks_exact_mut(modes).zip(block.chunks_exact(rows)).zip(factors);
                    for ((to, block), factor) in rows_of {
                        for (value, t) in block.iter().zip(tentative(other).chunks_exact(modes)) {
                            to.iter_mut().zip(t).for_each(|(to, t)| *to += factor * value * t);
                        }
                    }
                };
                own.fill(0.0);
                let mut weak = false;
                let mut strong = self.strong.as_ref().map(|strong| strong.row(node));
                let is_strong = |strong: &mut Option<&[u32]>, column: u32| match strong {
                    None => true,
                    Some(list) => match list.split_first() {
                        Some((first, rest)) if *first == column => {
                            *list = rest;
                            true
                        }
                        _ => false,
                    },
                };
                // the diagonal block first: what is weak changes the diagonal that all is divided by
                for (column, block) in a.row(node) {
                    let strong = is_strong(&mut strong, column);
                    if column as usize == node || !strong {
                        weak |= !strong;
                        own.iter_mut().zip(block).for_each(|(own, v)| *own += v);
                    }
                }
                for (k, factor) in factors.iter_mut().enumerate() {
                    let inverse = inverse_diagonal[node * rows + k];
                    let lumped = own[k * (rows + 1)];
                    let divide = weak && lumped * inverse > POSITIVE;
                    *factor = -omega * if divide { 1.0 / lumped } else { inverse };
                }
                add(node as u32, &own, &factors);
                let mut strong = self.strong.as_ref().map(|strong| strong.row(node));
                for (column, block) in a.row(node) {
                    if is_strong(&mut strong, column) && column as usize != node {
                        add(column, block, &factors);
                    }
                }
                let place = places[self.aggregates.of_node[node] as usize] as usize;
                let to = &mut to[place * size..][..size];
                to.iter_mut().zip(tentative(node as u32)).for_each(|(to, t)| *to += t);
            }
        });
        values
    }
}
