//! Nodes of a rectangular grid in any number of directions.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::memory::check_free_memory;
use crate::numbers::Real;

/// A grid with `points[d]` nodes in direction d. The first direction varies fastest in the ordering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid<'a> {
    points: &'a [usize],
    nodes: usize,
}

impl<'a> Grid<'a> {
    /// Returns an error for a grid without nodes, and for one with more nodes than a matrix can have rows.
    pub(super) fn new(points: &'a [usize]) -> Result<Self> {
        if points.is_empty() || points.contains(&0) {
            let expected = "one number for each direction, at least 1 each";
            return Err(Error::Option { what: "the number of points", got: format!("{points:?}"), expected });
        }
        let nodes = points.iter().try_fold(1_usize, |nodes, &points| nodes.checked_mul(points));
        let nodes = nodes.filter(|&nodes| nodes <= 1 << 31);
        nodes.map(|nodes| Grid { points, nodes }).ok_or(Error::TooLarge { what: "row", got: usize::MAX })
    }

    /// Calls `visit(node, None)` and, for the neighbours along the axes,
    /// `visit(neighbour, Some((axis, side)))`, in ascending order of index; side 0 is before the node, side 1
    /// after it.
    fn around(self, node: usize, mut visit: impl FnMut(usize, Option<(usize, usize)>)) {
        let mut stride = self.nodes;
        for (d, &points) in self.points.iter().enumerate().rev() {
            stride /= points;
            if !(node / stride).is_multiple_of(points) {
                visit(node - stride, Some((d, 0)));
            }
        }
        visit(node, None);
        for (d, &points) in self.points.iter().enumerate() {
            if node / stride % points + 1 < points {
                visit(node + stride, Some((d, 1)));
            }
            stride *= points;
        }
    }

    /// The matrix with the constant `diagonal` on its diagonal, and in the row of a node the entries
    /// `beside(d)` for its neighbours before and after it in direction d.
    pub(super) fn matrix<T: Real>(self, diagonal: f64, beside: impl Fn(usize) -> [f64; 2]) -> Result<Csr<T>> {
        let most = (2 * self.points.len() + 1) as u128 * self.nodes as u128;
        check_free_memory("a matrix of the gallery", most * (4 + size_of::<T>()) as u128)?;
        let mut offsets = Vec::with_capacity(self.nodes + 1);
        let (mut columns, mut values) = (vec![], vec![]);
        offsets.push(0);
        for node in 0..self.nodes {
            self.around(node, |neighbour, direction| {
                columns.push(neighbour as u32);
                values.push(T::from_f64(direction.map_or(diagonal, |(d, side)| beside(d)[side])));
            });
            offsets.push(columns.len());
        }
        Csr::from_csr(self.nodes, self.nodes, &offsets, &columns, &values)
    }
}
