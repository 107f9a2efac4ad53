//! A heat sink cut into linear tetrahedra, and the heat equation on it.
//!
//! A copper base with aluminium pins. Heat enters through the bottom; all other faces lose heat to the air. The
//! unknowns are temperatures above that of the air, so the air needs no term:
//!
//! ```text
//! ρc ∂T/∂t = ∇·(k ∇T)      inside
//!  k ∂T/∂n = flux          on the bottom
//!  k ∂T/∂n = −h T          where air passes
//! ```

#![allow(dead_code)] // each example uses a part of this module

mod picture;

/// The width of a cell, m.
const CELL: f64 = 1e-3;
/// Numbers of cells: across a pin; across a pin and the gap next to it; from the bottom to the top of the
/// base, and of the pins.
const PIN: usize = 4;
const PITCH: usize = 8;
const BASE_HEIGHT: usize = 6;
const HEIGHT: usize = 38;
/// The tip of a pin is narrower than its foot by this fraction.
const TAPER: f64 = 0.4;

/// The heat transfer coefficient from the surface to moving air, W/(m² K).
const CONVECTION: f64 = 50.0;

/// The material of a cell.
struct Material {
    /// Conductivity, W/(m K)
    conductivity: f64,
    /// Heat capacity by volume, J/(m³ K)
    capacity: f64,
}

const COPPER: Material = Material { conductivity: 390.0, capacity: 3.45e6 };
const ALUMINIUM: Material = Material { conductivity: 200.0, capacity: 2.43e6 };

/// The six paths along a cell's edges from its lowest to its highest corner, as axes. The corners on a path make one
/// tetrahedron. The six tetrahedra fill the cell and fit those of neighbouring cells.
const PATHS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The mesh: points in metres, tetrahedra and surface triangles as indices of points.
pub(crate) struct HeatSink {
    points: Vec<[f64; 3]>,
    copper: Vec<[u32; 4]>,
    aluminium: Vec<[u32; 4]>,
    bottom: Vec<[u32; 3]>,
    cooled: Vec<[u32; 3]>,
}

impl HeatSink {
    /// A square base with `pins` pins along each side.
    pub(crate) fn new(pins: usize) -> HeatSink {
        let width = pins * PITCH - (PITCH - PIN);
        let size = [width, width, HEIGHT];
        let is_solid = |[x, y, z]: [usize; 3]| {
            let inside = x < width && y < width && z < HEIGHT;
            inside && (z < BASE_HEIGHT || (x % PITCH < PIN && y % PITCH < PIN))
        };
        let solid: Vec<[usize; 3]> = grid(size).filter(|&cell| is_solid(cell)).collect();

        // Only corners of solid cells become points. Points are numbered layer by layer, x fastest.
        let place = |[x, y, z]: [usize; 3]| (z * (width + 1) + y) * (width + 1) + x;
        let mut number = vec![u32::MAX; place([0, 0, HEIGHT + 1])];
        for &[x, y, z] in &solid {
            for [dx, dy, dz] in grid([2, 2, 2]) {
                number[place([x + dx, y + dy, z + dz])] = 0;
            }
        }
        let mut points = vec![];
        for corner in grid(size.map(|cells| cells + 1)) {
            if number[place(corner)] == 0 {
                number[place(corner)] = points.len() as u32;
                points.push(position(corner));
            }
        }

        let (mut copper, mut aluminium, mut bottom, mut cooled) = (vec![], vec![], vec![], vec![]);
        for cell in solid {
            let tetrahedra = if cell[2] < BASE_HEIGHT { &mut copper } else { &mut aluminium };
            for [first, second, third] in PATHS {
                let corners = [vec![], vec![first], vec![first, second], vec![first, second, third]];
                tetrahedra.push(corners.map(|axes| number[place(step(cell, &axes))]));
            }
            for axis in 0..3 {
                let (u, v) = ((axis + 1) % 3, (axis + 2) % 3);
                // the face towards the cell below along this axis, and the face towards the cell above
                let mut below = cell;
                below[axis] = below[axis].wrapping_sub(1);
                for (neighbour, face) in [(below, cell), (step(cell, &[axis]), step(cell, &[axis]))] {
                    if is_solid(neighbour) {
                        continue;
                    }
                    let triangles = if axis == 2 && face[2] == 0 { &mut bottom } else { &mut cooled };
                    for first in [u, v] {
                        let corners = [vec![], vec![first], vec![u, v]];
                        triangles.push(corners.map(|axes| number[place(step(face, &axes))]));
                    }
                }
            }
        }
        HeatSink { points, copper, aluminium, bottom, cooled }
    }

    /// Shuffles the points of the mesh: the worst ordering that a mesh generator may produce.
    pub(crate) fn shuffled(mut self) -> HeatSink {
        let mut number: Vec<u32> = (0..self.points.len() as u32).collect();
        let mut random = 1_u64;
        for last in (1..number.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            number.swap(last, (random >> 33) as usize % (last + 1));
        }
        let mut points = self.points.clone();
        for (point, &place) in self.points.iter().zip(&number) {
            points[place as usize] = *point;
        }
        self.points = points;
        let tetrahedra = self.copper.iter_mut().chain(&mut self.aluminium).flatten();
        let triangles = self.bottom.iter_mut().chain(&mut self.cooled).flatten();
        tetrahedra.chain(triangles).for_each(|node| *node = number[*node as usize]);
        self
    }

    /// The number of points, each with one unknown.
    pub(crate) fn unknowns(&self) -> usize {
        self.points.len()
    }

    /// The number of tetrahedra.
    pub(crate) fn elements(&self) -> usize {
        self.copper.len() + self.aluminium.len()
    }

    /// Calls `visit(row, column, conductance in W/K, capacity in J/K)` for every entry that an element adds to the
    /// system. Several entries may have the same position; the order is always the same.
    pub(crate) fn for_each_entry(&self, mut visit: impl FnMut(u32, u32, f64, f64)) {
        for (material, nodes) in self.tetrahedra() {
            let (volume, gradients) = shape(nodes.map(|node| self.points[node as usize]));
            for (i, &row) in nodes.iter().enumerate() {
                for (j, &column) in nodes.iter().enumerate() {
                    let overlap = if i == j { volume / 10.0 } else { volume / 20.0 };
                    let conductance = material.conductivity * volume * dot(gradients[i], gradients[j]);
                    visit(row, column, conductance, material.capacity * overlap);
                }
            }
        }
        for nodes in &self.cooled {
            let area = self.area(nodes);
            for (i, &row) in nodes.iter().enumerate() {
                for (j, &column) in nodes.iter().enumerate() {
                    let overlap = if i == j { area / 6.0 } else { area / 12.0 };
                    visit(row, column, CONVECTION * overlap, 0.0);
                }
            }
        }
    }

    /// The heated area that belongs to each point, m².
    pub(crate) fn heated_area(&self) -> Vec<f64> {
        self.shared(self.bottom.iter().map(|nodes| (&nodes[..], self.area(nodes))))
    }

    /// The heat that each point loses to the air for each kelvin of difference, W/K.
    pub(crate) fn losses(&self) -> Vec<f64> {
        self.shared(self.cooled.iter().map(|nodes| (&nodes[..], CONVECTION * self.area(nodes))))
    }

    /// The heat capacity of each point, J/K.
    pub(crate) fn capacities(&self) -> Vec<f64> {
        self.shared(self.tetrahedra().map(|(material, nodes)| {
            let (volume, _) = shape(nodes.map(|node| self.points[node as usize]));
            (&nodes[..], material.capacity * volume)
        }))
    }

    fn tetrahedra(&self) -> impl Iterator<Item = (&Material, &[u32; 4])> {
        let copper = self.copper.iter().map(|nodes| (&COPPER, nodes));
        copper.chain(self.aluminium.iter().map(|nodes| (&ALUMINIUM, nodes)))
    }

    /// Divides the amount of each element equally among its points.
    fn shared<'a>(&self, amounts: impl Iterator<Item = (&'a [u32], f64)>) -> Vec<f64> {
        let mut shares = vec![0.0; self.points.len()];
        for (nodes, amount) in amounts {
            for &node in nodes {
                shares[node as usize] += amount / nodes.len() as f64;
            }
        }
        shares
    }

    fn area(&self, nodes: &[u32; 3]) -> f64 {
        let [a, b, c] = nodes.map(|node| self.points[node as usize]);
        let normal = cross(minus(b, a), minus(c, a));
        dot(normal, normal).sqrt() / 2.0
    }
}

/// All positions of a grid, x fastest.
fn grid([nx, ny, nz]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..nz).flat_map(move |z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [x, y, z])))
}

/// The position one step further along each of these axes.
fn step(mut place: [usize; 3], axes: &[usize]) -> [usize; 3] {
    axes.iter().for_each(|&axis| place[axis] += 1);
    place
}

/// The coordinates of a point of the grid. Pins get narrower towards the top.
fn position([x, y, z]: [usize; 3]) -> [f64; 3] {
    let height = z.saturating_sub(BASE_HEIGHT) as f64 / (HEIGHT - BASE_HEIGHT) as f64;
    let taper = |across: usize| {
        let from_axis = (across % PITCH) as f64 - PIN as f64 / 2.0;
        across as f64 - TAPER * height * from_axis
    };
    [taper(x), taper(y), z as f64].map(|cells| cells * CELL)
}

/// The volume of a tetrahedron, and the gradients of its four shape functions.
fn shape([a, b, c, d]: [[f64; 3]; 4]) -> (f64, [[f64; 3]; 4]) {
    let (u, v, w) = (minus(b, a), minus(c, a), minus(d, a));
    let determinant = dot(u, cross(v, w));
    let [gu, gv, gw] =
        [cross(v, w), cross(w, u), cross(u, v)].map(|normal| normal.map(|entry| entry / determinant));
    let ga = [0, 1, 2].map(|axis| -gu[axis] - gv[axis] - gw[axis]);
    (determinant.abs() / 6.0, [ga, gu, gv, gw])
}

fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
