//! Linear tetrahedra on a box with jittered nodes: the positive definite matrix of `-Δu + u` on an unstructured mesh.

use super::numbers::{inverse, mix, shuffled_in_windows, unit};
use super::{Grid, Matrix};

/// Each node is moved by at most this fraction of the mesh width in each direction. Angles become irregular, every edge
/// of the mesh gets a nonzero, and no tetrahedron turns inside out.
const JITTER: f64 = 0.15;

/// The six paths along the edges of a cube from its low to its high corner, as orders of the three
/// directions. The four corners on a path span a tetrahedron, and the six tetrahedra fill the cube.
const PATHS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The ordering of the nodes of a tetrahedral mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Natural ordering, x fastest: the matrix has a narrow band.
    Natural,
    /// Random ordering from a seed: the matrix has no locality.
    Shuffled(u64),
}

/// The stiffness plus the mass matrix of linear tetrahedra on a unit cube of `side`³ nodes (at least 2), with natural
/// boundary conditions. Positive definite, exactly symmetric, 15 entries in an inner row.
pub fn tetrahedra(side: usize, order: NodeOrder) -> Matrix {
    let mesh = Mesh { grid: Grid { side } };
    let nodes = mesh.grid.nodes();
    let number = match order {
        NodeOrder::Natural => shuffled_in_windows(nodes, 0, 0),
        NodeOrder::Shuffled(seed) => shuffled_in_windows(nodes, nodes, mix(seed)),
    };
    let node_of = inverse(&number);
    Matrix::by_rows(
        nodes,
        |row, columns| {
            let node = node_of[row] as usize;
            // Along a path no coordinate decreases, so the two ends of an edge differ by only nonnegative or
            // only nonpositive steps.
            mesh.grid.around(node, |neighbour, offset| {
                if offset.iter().all(|&step| step >= 0) || offset.iter().all(|&step| step <= 0) {
                    columns.push(number[neighbour]);
                }
            });
        },
        |row, columns, values| {
            let node = node_of[row] as usize;
            mesh.for_each_tetrahedron_at(node, |corners| {
                let element = mesh.element(corners);
                for (a, _) in corners.iter().enumerate().filter(|&(_, &corner)| corner == node) {
                    for (b, &other) in corners.iter().enumerate() {
                        if let Ok(at) = columns.binary_search(&number[other]) {
                            values[at] += element[a][b];
                        }
                    }
                }
            });
        },
    )
}

#[derive(Clone, Copy)]
struct Mesh {
    grid: Grid,
}

impl Mesh {
    fn point(self, node: usize) -> [f64; 3] {
        let width = 1.0 / (self.grid.side.max(2) - 1) as f64;
        let position = self.grid.position(node);
        std::array::from_fn(|d| {
            let draw = 2.0 * unit(mix(3 * node as u64 + d as u64)) - 1.0;
            (position[d] as f64 + JITTER * draw) * width
        })
    }

    /// Visits the tetrahedra at a node, in an order that is the same for all four corners of each, so that both ends of
    /// an edge add the same terms in the same order.
    fn for_each_tetrahedron_at(self, node: usize, mut visit: impl FnMut([usize; 4])) {
        let top = self.grid.position(node);
        for cube in 0..8 {
            let low: [i64; 3] = std::array::from_fn(|d| top[d] - 1 + (cube >> d & 1));
            for path in PATHS {
                if let Some(corners) = self.tetrahedron(low, path)
                    && corners.contains(&node)
                {
                    visit(corners);
                }
            }
        }
    }

    fn tetrahedron(self, low: [i64; 3], path: [usize; 3]) -> Option<[usize; 4]> {
        let mut corner = low;
        let mut corners = [self.grid.node(corner)?; 4];
        for (next, direction) in corners.iter_mut().skip(1).zip(path) {
            corner[direction] += 1;
            *next = self.grid.node(corner)?;
        }
        Some(corners)
    }

    /// The element matrix `|T| (∇Nᵃ·∇Nᵇ + (1 + δₐᵦ) / 20)`.
    fn element(self, corners: [usize; 4]) -> [[f64; 4]; 4] {
        let points = corners.map(|corner| self.point(corner));
        let edges: [[f64; 3]; 3] =
            std::array::from_fn(|e| std::array::from_fn(|d| points[e + 1][d] - points[0][d]));
        // The gradient at corner e + 1 is the cross product of the other two edges divided by the determinant.
        let normals: [[f64; 3]; 3] = std::array::from_fn(|e| cross(edges[(e + 1) % 3], edges[(e + 2) % 3]));
        let determinant = dot(edges[0], normals[0]);
        let volume = determinant.abs() / 6.0;
        let mut gradients = [[0.0; 3]; 4];
        for (e, normal) in normals.iter().enumerate() {
            for d in 0..3 {
                gradients[e + 1][d] = normal[d] / determinant;
                gradients[0][d] -= normal[d] / determinant;
            }
        }
        std::array::from_fn(|a| {
            std::array::from_fn(|b| {
                let mass = if a == b { 2.0 } else { 1.0 } / 20.0;
                volume * (dot(gradients[a], gradients[b]) + mass)
            })
        })
    }
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tetrahedron_turns_inside_out() {
        let mesh = Mesh { grid: Grid { side: 20 } };
        let mut smallest = f64::INFINITY;
        for node in 0..mesh.grid.nodes() {
            for path in PATHS {
                let Some(corners) = mesh.tetrahedron(mesh.grid.position(node), path) else { continue };
                let [origin, ends @ ..] = corners.map(|corner| mesh.point(corner));
                let edges = ends.map(|end| std::array::from_fn(|d| end[d] - origin[d]));
                // Odd permutations of the directions have the opposite orientation.
                let parity = if path[1] == (path[0] + 1) % 3 { 1.0 } else { -1.0 };
                smallest = smallest.min(parity * dot(edges[0], cross(edges[1], edges[2])));
            }
        }
        let cube = 1.0 / 19.0_f64.powi(3);
        assert!(smallest > 0.1 * cube, "{}", smallest / cube);
    }

    #[test]
    fn every_edge_has_a_nonzero() {
        assert!(tetrahedra(8, NodeOrder::Natural).values.iter().all(|&value| value != 0.0));
    }
}
