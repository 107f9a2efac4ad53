//! Symmetric positive definite matrices of meshes: stencils, and elasticity on hexes.

use super::{Grid, Matrix, Triplets};

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
/// displacements a node. A thin, long and nearly incompressible plate (`poisson` close to ½) is as stiff as systems in
/// engineering practice. Symmetric positive definite; the last three unknowns belong to a free corner.
pub fn plate(hexes: [usize; 3], poisson: f64) -> Triplets {
    let element = hex_stiffness(poisson);
    let nodes = hexes.map(|count| count + 1);
    let row_of = |node: [usize; 3], direction: usize| {
        let free = node[0].checked_sub(1)?;
        Some((3 * (node[2] + nodes[2] * (node[1] + nodes[1] * free)) + direction) as u32)
    };
    let mut entries = vec![];
    for hex in 0..hexes.iter().product() {
        let low = [hex / (hexes[1] * hexes[2]), hex / hexes[2] % hexes[1], hex % hexes[2]];
        let corner = |bits: usize| std::array::from_fn(|d| low[d] + (bits >> d & 1));
        for (i, row) in element.iter().enumerate() {
            let Some(to) = row_of(corner(i / 3), i % 3) else { continue };
            let columns = (0..24).filter_map(|j| Some((row_of(corner(j / 3), j % 3)?, row[j])));
            entries.extend(columns.map(|(column, value)| (to, column, value)));
        }
    }
    let rows = 3 * hexes[0] * nodes[1] * nodes[2];
    Triplets { rows, cols: rows, entries }
}

/// The sum over the up to eight hexes that contain both nodes.
fn elasticity_entry(grid: Grid, element: &[[f64; 24]; 24], row: usize, column: usize) -> f64 {
    let (from, to) = (grid.position(row / 3), grid.position(column / 3));
    let side = grid.side as i64;
    let mut sum = 0.0;
    for corner in 0..8 {
        // The lowest node of the hex that has `from` at this corner. One more layer of hexes lies below the free nodes.
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

/// `Kᵃⁱᵇʲ = ∫ λ ∂ᵢNᵃ ∂ⱼNᵇ + μ ∂ⱼNᵃ ∂ᵢNᵇ + δᵢⱼ μ ∇Nᵃ·∇Nᵇ` over a unit cube, by 2 x 2 x 2 Gauss points. Bit d
/// of a corner's or a point's number says on which side of direction d it lies.
fn hex_stiffness(poisson: f64) -> [[f64; 24]; 24] {
    let young = 1.0;
    let lambda = young * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson));
    let mu = young / (2.0 * (1.0 + poisson));
    let gauss = 1.0 / 3.0_f64.sqrt();
    let side = |bits: usize, d: usize| if bits >> d & 1 == 1 { 1.0 } else { -1.0 };

    let mut stiffness = [[0.0; 24]; 24];
    for point in 0..8 {
        let gradients: [[f64; 3]; 8] = std::array::from_fn(|corner| {
            std::array::from_fn(|d| {
                let across = (0..3).filter(|&e| e != d);
                let weight = across.fold(side(corner, d) / 8.0, |w, e| {
                    w * (1.0 + side(corner, e) * (side(point, e) * gauss))
                });
                2.0 * weight
            })
        });
        for (a, da) in gradients.iter().enumerate() {
            for (b, db) in gradients.iter().enumerate() {
                let dot = (0..3).fold(0.0, |sum, d| sum + da[d] * db[d]);
                for i in 0..3 {
                    for j in 0..3 {
                        let shear = if i == j { mu * dot } else { 0.0 };
                        stiffness[3 * a + i][3 * b + j] +=
                            (lambda * da[i] * db[j] + mu * da[j] * db[i] + shear) / 8.0;
                    }
                }
            }
        }
    }
    stiffness
}
