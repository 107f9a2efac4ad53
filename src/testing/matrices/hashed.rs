//! The matrices of the GPU benches: meshes, R-MAT and circuits. Pattern and values are hashes of the indices, so any
//! program on any number of threads makes the same matrix. Values come from [`symmetric_value`]. The meshes are
//! symmetric and indefinite; [`Matrix::diagonally_dominant`] makes them positive definite. The patterns of R-MAT and
//! circuit are not symmetric.

use super::matrix::pack;
use super::numbers::{inverse, mix, shuffled_in_windows, symmetric_value, unit};
use super::{Grid, Matrix};
use rayon::prelude::*;

/// Which of the 27 nodes around a node, including itself, are its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// The six nodes across a face: `st7`, 7 entries per row.
    Faces,
    /// All 27 nodes: `st27`, and `el3` with three unknowns per node and 81 entries per row.
    Box,
    /// All nodes across a face, each across an edge with probability ½, each across a corner with probability ¼: `p1`,
    /// about 15 entries a row and unequal rows, as linear tetrahedra have.
    Tetrahedra,
}

/// A mesh of `side`³ nodes with `unknowns` unknowns each. Nodes are numbered in natural order and then shuffled within
/// windows of `window` nodes; with 0 they are not shuffled.
pub fn hashed_mesh(neighbours: Neighbours, side: usize, unknowns: usize, window: usize) -> Matrix {
    let grid = Grid { side };
    let number = shuffled_in_windows(grid.nodes(), window, 42);
    let node_of = inverse(&number);
    Matrix::by_rows(
        grid.nodes() * unknowns,
        |row, columns| {
            let node = node_of[row / unknowns] as usize;
            grid.around(node, |neighbour, offset| {
                if are_neighbours(neighbours, node as u64, neighbour as u64, offset) {
                    let first = number[neighbour] as usize * unknowns;
                    columns.extend((first..first + unknowns).map(|column| column as u32));
                }
            });
        },
        fill_symmetric,
    )
}

fn are_neighbours(neighbours: Neighbours, node: u64, other: u64, offset: [i64; 3]) -> bool {
    let distance: i64 = offset.iter().map(|step| step.abs()).sum();
    match neighbours {
        _ if distance <= 1 => true,
        Neighbours::Faces => false,
        Neighbours::Box => true,
        Neighbours::Tetrahedra => {
            let (low, high) = (node.min(other), node.max(other));
            let draw = unit(mix(low.wrapping_mul(1_315_423_911) ^ mix(high + 17)));
            draw <= if distance == 2 { 0.5 } else { 0.25 }
        }
    }
}

fn fill_symmetric(row: usize, columns: &[u32], values: &mut [f64]) {
    for (value, &column) in values.iter_mut().zip(columns) {
        *value = symmetric_value(row as u64, u64::from(column));
    }
}

/// R-MAT (0.57, 0.19, 0.19, 0.05) on 2^`scale` rows with `edges_per_row` draws a row. The diagonal is added, and
/// repeated entries are stored once.
pub fn hashed_rmat(scale: u32, edges_per_row: usize) -> Matrix {
    let rows = 1usize << scale;
    let mut entries: Vec<u64> = (0..(rows * edges_per_row) as u64)
        .into_par_iter()
        .map(|edge| {
            let (mut row, mut column) = (0, 0);
            for level in 0..u64::from(scale) {
                let quadrant = rmat_quadrant(unit(mix(edge * 64 + level)));
                row = row << 1 | quadrant >> 1;
                column = column << 1 | quadrant & 1;
            }
            pack(row, column)
        })
        .collect();
    entries.par_extend((0..rows as u64).into_par_iter().map(|row| pack(row, row)));
    Matrix::by_entries(rows, entries, |row, column| symmetric_value(u64::from(row), u64::from(column)))
}

/// Rows of three entries, with a full row in the middle.
pub fn hashed_dense_row(rows: usize, cols: usize) -> Matrix {
    let pattern = |row: usize, columns: &mut Vec<u32>| match row == rows / 2 {
        true => columns.extend(0..cols as u32),
        false => columns.extend((row..row + 3).map(|column| (column % cols) as u32)),
    };
    Matrix::by_rows(rows, pattern, fill_symmetric).with_columns(cols)
}

/// The quadrant that a pseudo-random number in [0, 1) selects, as a number of two bits: row bit, column bit.
pub(super) fn rmat_quadrant(draw: f64) -> u64 {
    match draw {
        u if u < 0.57 => 0,
        u if u < 0.76 => 1,
        u if u < 0.95 => 2,
        _ => 3,
    }
}

const HUBS: usize = 4;

/// A circuit: two to six couplings a row, most of them within a thousand rows. About one row in 37 is coupled to a
/// supply, and the four supply rows have up to 300,000 entries.
pub fn hashed_circuit(rows: usize) -> Matrix {
    let n = rows as u64;
    let hub_spacing = rows / (HUBS + 1);
    let hub_entries = (rows / 2).min(150_000);
    Matrix::by_rows(
        rows,
        |row, columns| {
            let i = row as u64;
            let bits = mix(i * 31 + 5);
            columns.push(i as u32);
            if row > 0 && bits & 1 != 0 {
                columns.push(row as u32 - 1);
            }
            if row + 1 < rows && bits & 2 != 0 {
                columns.push(row as u32 + 1);
            }
            for coupling in 0..2 + (bits >> 4) % 3 {
                let draw = mix(bits.wrapping_add(coupling));
                let column = if draw & 7 != 0 {
                    reflect(row as i64 - 1000 + ((draw >> 8) % 2001) as i64, rows as i64)
                } else {
                    (draw >> 8) % n
                };
                columns.push(column as u32);
            }
            if bits.is_multiple_of(37) {
                columns.push((hub_spacing as u64 * (1 + bits % HUBS as u64)) as u32);
            }
            for hub in (1..=HUBS).filter(|hub| row == hub_spacing * hub) {
                let draws = 0..(hub_entries * hub / 2) as u64;
                columns.extend(draws.map(|draw| (mix(hub as u64 * 1_000_003 + draw) % n) as u32));
            }
        },
        fill_symmetric,
    )
}

/// Reflects a column beyond either end back into the matrix. In a small matrix the reflected column may lie
/// beyond the other end; then it is taken modulo `rows`.
fn reflect(column: i64, rows: i64) -> u64 {
    let mirrored = if column.abs() >= rows { 2 * rows - 2 - column.abs() } else { column.abs() };
    mirrored.rem_euclid(rows) as u64
}
