//! Aggregates of nodes that differ in their number of unknowns, for example after eliminating single unknowns
//! for boundary conditions.
//!
//! ```text
//! B_IJ = (Σ a_ij² over unknowns i of node I and j of node J)^½
//! strength of connection and aggregates are those of B; an unknown is in the aggregate of its node
//! ```
//!
//! For nodes of equal size, these are the aggregates that a matrix of blocks would have, because strength
//! compares Frobenius norms of blocks. The finest level itself remains a matrix of single unknowns.

use super::aggregates::{Aggregates, NONE};
use super::blocks::{Blocks, entries};
use super::coarsening::aggregated;
use super::modes::constants;
use super::product::assembled;
use super::unsmoothed::is_worthwhile;
use super::{Amg, AmgOptions, NAME, check_square, loaded};
use crate::error::{Error, Result};
use crate::formats::pattern::{Pattern, by_rows, place_of};
use crate::formats::{Csr, Format, node_rows};
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_solvers::Element;

/// The node of each unknown. Nodes are counted from zero, in the order of their first unknowns.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    count: usize,
    of: Vec<u32>,
}

impl Nodes {
    /// Numbers the nodes, given a label of each unknown's node. Returns `None` if there are at least 0.9
    /// nodes per unknown.
    pub(crate) fn new(labels: impl ExactSizeIterator<Item = u32>) -> Option<Nodes> {
        let rows = labels.len();
        let (mut known, mut count) = (vec![], 0u32);
        let mut number = |label: u32| {
            let label = label as usize;
            if known.len() <= label {
                known.resize(label + 1, NONE);
            }
            if known[label] == NONE {
                known[label] = count;
                count += 1;
            }
            known[label]
        };
        let of: Vec<u32> = labels.map(&mut number).collect();
        let count = count as usize;
        (10 * count < 9 * rows).then_some(Nodes { count, of })
    }

    /// Groups consecutive rows with the same pattern into nodes of at most `most` unknowns, unless rows are in nodes of
    /// `size` already.
    pub(crate) fn detect(pattern: &Pattern, size: usize, most: usize) -> Option<Nodes> {
        if size > 1 || most < 2 {
            return None;
        }
        let (mut label, mut unknowns) = (0, 0);
        let labels = (0..pattern.rows()).map(|row| {
            let equal = row > 0 && unknowns < most && pattern.row(row) == pattern.row(row - 1);
            (label, unknowns) = match (row, equal) {
                (0, _) => (0, 1),
                (_, true) => (label, unknowns + 1),
                (_, false) => (label + 1, 1),
            };
            label
        });
        Nodes::new(labels)
    }

    /// Aggregates the nodes of a matrix of single unknowns, and assigns each unknown to the aggregate of its node.
    pub(crate) fn aggregated(&self, a: Blocks<'_>, theta: f64) -> Result<Aggregates> {
        let Nodes { count, of } = self;
        let (starts, members) = by_rows(*count, of.len(), &|unknown| (of[unknown], 0));
        let (pattern, mut norms) = assembled([*count; 2], 1, &|node, to| {
            for &member in &members[starts.range(node)] {
                for (column, value) in entries(a, place_of(member) as usize) {
                    to.add(of[column as usize], value * value);
                }
            }
        })?;
        norms.iter_mut().for_each(|square| *square = square.sqrt());
        let nodes = Blocks::new(&pattern, [1, 1], &norms);
        let (_, Aggregates { count, of_node }) = aggregated(nodes, theta)?;
        Ok(Aggregates { count, of_node: map_rows(of.len(), 4, &|unknown| of_node[of[unknown] as usize]) })
    }
}

impl<T: Real> Amg<T> {
    /// Like [`Amg::with_near_null_space`], given the node of each unknown: unknowns of one node are aggregated
    /// together. Use it if boundary conditions have removed single unknowns of nodes, or if the unknowns of a
    /// node are not consecutive.
    ///
    /// ```
    /// use krysp::{Amg, Cg, Csr, UnknownOrder, gallery, rigid_body_modes};
    ///
    /// let (a, points) = gallery::elasticity::<f64>([9, 9, 9], 0.3)?;
    /// let modes = rigid_body_modes(&points, UnknownOrder::ByNode);
    /// // the displacement in z is fixed where z = 0: those unknowns are removed
    /// let free: Vec<usize> = (0..a.rows()).filter(|i| i % 3 != 2 || points[i / 3][2] > 0.0).collect();
    /// let place = |i: usize| free.binary_search(&i).ok();
    /// let entries = a.triplets().filter_map(|(i, j, value)| Some((place(i)?, place(j)?, value)));
    /// let a = Csr::from_triplets(free.len(), free.len(), &entries.collect::<Vec<_>>())?;
    /// let of_free = |mode: &Vec<f64>| free.iter().map(|&i| mode[i]).collect();
    /// let modes: Vec<Vec<f64>> = modes.iter().map(of_free).collect();
    /// let nodes: Vec<u32> = free.iter().map(|&i| i as u32 / 3).collect();
    ///
    /// let m = Amg::with_nodes(&a, &modes, &nodes)?;
    /// let report = Cg::new(&a).preconditioner(&m).rtol(1e-8).solve(&vec![1.0; a.rows()])?.report;
    /// assert!(report.converged() && report.iterations < 30, "{report}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_nodes<V: AsRef<[T]> + Sync>(csr: &Csr<T>, modes: &[V], nodes: &[u32]) -> Result<Amg<T>> {
        let (rows, got) = (csr.rows(), nodes.len());
        if rows != got {
            let what = "the array of nodes";
            return Err(Error::Length { what, got, expected: rows, why: "one for each row" });
        }
        if let Some(&node) = nodes.iter().find(|node| **node as usize >= rows) {
            let expected = "less than the number of rows";
            return Err(Error::Option { what: "a node", got: node.to_string(), expected });
        }
        Amg::made(csr, modes, Some(nodes), AmgOptions::default())
    }

    /// Builds a hierarchy, given the node of each unknown if it is known.
    pub(super) fn made<V: AsRef<[T]> + Sync>(
        csr: &Csr<T>,
        modes: &[V],
        nodes: Option<&[u32]>,
        options: AmgOptions,
    ) -> Result<Amg<T>> {
        check_square(NAME, csr)?;
        options.check()?;
        csr.check_finite()?;
        let (size, _) = node_rows(csr.pattern());
        let values = |at: &[usize]| Ok(at.iter().map(|&at| Element::to_f64(csr.entries()[at])).collect());
        let smooth = options.smooth_finest.unwrap_or(false);
        let unsmoothed = modes.is_empty() && is_worthwhile(smooth, size, csr.pattern(), values)?;
        let space = csr.source().domain();
        let nodes = match (nodes, space.permutation()) {
            (None, _) => Nodes::detect(csr.pattern(), size, modes.len()),
            _ if size > 1 || modes.is_empty() => None,
            (Some(nodes), None) => Nodes::new(nodes.iter().copied()),
            (Some(nodes), Some(permutation)) => {
                Nodes::new(permutation.old_of_new().iter().map(|&old| nodes[old as usize]))
            }
        };
        let modes = match modes.is_empty() {
            true => constants(csr.rows(), size),
            false => loaded(space, modes)?,
        };
        Amg::of_nodes(csr, size, (modes, nodes), unsmoothed, options)
    }
}
