//! Symmetric positive definite matrices of meshes: stencils, and elasticity on hexes.

use super::{Grid, Matrix, Triplets};
use crate::gallery::{Clamped, hex_stiffness};

/// The 7-point Laplacian on `side`³ nodes: 6 and -1, Dirichlet conditions on every face.
pub fn stencil7(side: usize) -> Matrix {
    stencil(side, 1, 6.0)
}

/// The 27-point Laplacian on `side`³ nodes: 26 and -1, Dirichlet conditions on every face.
pub fn stencil27(side: usize) -> Matrix {
    stencil(side, 3, 26.0)
}

fn stencil(side: usize, reach: i64, diagonal: f64) -> Matrix {
    let grid = Grid { side };
    Matrix::by_rows(
        grid.nodes(),
        |row, columns| {
            grid.around(row, |neighbour, offset| {
                if offset.iter().map(|step| step.abs()).sum::<i64>() <= reach {
                    columns.push(neighbour as u32);
                }
            });
        },
        |row, columns, values| {
            for (value, &column) in values.iter_mut().zip(columns) {
                *value = if column as usize == row { diagonal } else { -1.0 };
            }
        },
    )
}

/// Linear elasticity (E = 1, ν = 0.3) on trilinear unit hexes: a block of `side`³ free nodes with three
/// displacements each, clamped at a further layer below. Symmetric up to the rounding of the element matrix.
pub fn elasticity(side: usize) -> Matrix {
    let grid = Grid { side };
    let element = hex_stiffness(0.3);
    Matrix::by_rows(
        3 * grid.nodes(),
        |row, columns| {
            grid.around(row / 3, |neighbour, _| {
                columns.extend((0..3).map(|direction| (3 * neighbour + direction) as u32));
            });
        },
        |row, columns, values| {
            for (value, &column) in values.iter_mut().zip(columns) {
                *value = elasticity_entry(grid, &element, row, column as usize);
            }
        },
    )
}

/// A plate of `hexes[d]` unit hexes in direction d, clamped at the side x = 0: linear elasticity (E = 1) with three
/// displacements per node. A thin, long and nearly incompressible plate (`poisson` close to ½) is as ill-conditioned as
/// systems in engineering practice. Symmetric positive definite; the last three unknowns belong to a free corner.
pub fn plate(hexes: [usize; 3], poisson: f64) -> Triplets {
    let plate = Clamped { elements: hexes };
    Triplets { rows: plate.rows(), cols: plate.rows(), entries: plate.entries(poisson).collect() }
}

/// An entry of the stiffness matrix: the sum over the up to eight hexes that contain both nodes.
fn elasticity_entry(grid: Grid, element: &[[f64; 24]; 24], row: usize, column: usize) -> f64 {
    let (from, to) = (grid.position(row / 3), grid.position(column / 3));
    let side = grid.side as i64;
    let mut sum = 0.0;
    for corner in 0..8 {
        // The lowest node of the hex that has `from` at this corner. There is one more layer of hexes below the free nodes.
        let hex: [i64; 3] = std::array::from_fn(|d| from[d] - (corner >> d & 1) as i64);
        let exists = (0..side - 1).contains(&hex[0])
            && (0..side - 1).contains(&hex[1])
            && (-1..side - 1).contains(&hex[2]);
        let other: [i64; 3] = std::array::from_fn(|d| to[d] - hex[d]);
        if exists && other.iter().all(|step| (0..2).contains(step)) {
            let other = (other[0] + 2 * other[1] + 4 * other[2]) as usize;
            sum += element[3 * corner + row % 3][3 * other + column % 3];
        }
    }
    sum
}
