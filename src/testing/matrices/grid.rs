//! Nodes of a cubic mesh: numbers, positions, neighbours.

/// A cube of `side`³ nodes, x fastest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) side: usize,
}

impl Grid {
    pub(super) fn nodes(self) -> usize {
        self.side.pow(3)
    }

    /// x, y and z of a node.
    pub(super) fn position(self, node: usize) -> [i64; 3] {
        let side = self.side;
        [node % side, node / side % side, node / (side * side)].map(|coordinate| coordinate as i64)
    }

    /// The node at x, y, z, or `None` outside.
    pub(super) fn node(self, position: [i64; 3]) -> Option<usize> {
        let side = self.side as i64;
        let inside = position.iter().all(|coordinate| (0..side).contains(coordinate));
        inside.then(|| (position[0] + side * (position[1] + side * position[2])) as usize)
    }

    /// Calls `visit(neighbour, offset)` for the up to 27 nodes around a node, including the node itself, in ascending
    /// order.
    pub(super) fn around(self, node: usize, mut visit: impl FnMut(usize, [i64; 3])) {
        let [x, y, z] = self.position(node);
        for offset in box_offsets() {
            if let Some(neighbour) = self.node([x + offset[0], y + offset[1], z + offset[2]]) {
                visit(neighbour, offset);
            }
        }
    }
}

/// The offsets (-1, -1, -1) to (1, 1, 1), x fastest.
fn box_offsets() -> impl Iterator<Item = [i64; 3]> {
    (0..27).map(|k| [k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1])
}
