//! The irregular matrices of the CPU peer benches. One sequence of random numbers makes both: first the R-MAT of scale
//! 20, then the circuit. Diagonal entries are 8, others lie between -1.5 and 0.5; values are not symmetric.

use super::Matrix;
use super::hashed::rmat_quadrant;
use super::matrix::pack;
use super::numbers::XorShift;
use rayon::prelude::*;

/// The R-MAT of the peer benches: 2²⁰ rows.
pub(super) const PEER_SCALE: u32 = 20;
/// Number of draws of the R-MAT of the peer benches. Repeated entries are stored once.
pub(super) const PEER_EDGES: usize = 8_900_000;

/// R-MAT (0.57, 0.19, 0.19, 0.05) of 2^`scale` rows from `edges` draws. Repeated entries are stored once, and no
/// diagonal is added: at scale 20 more than half of the rows are empty.
pub fn rmat(scale: u32, edges: usize) -> Matrix {
    const EDGES_PER_TASK: usize = 1 << 16;
    let mut entries = vec![0; edges];
    entries.par_chunks_mut(EDGES_PER_TASK).enumerate().for_each(|(task, chunk)| {
        let mut random = XorShift::after((task * EDGES_PER_TASK) as u64 * u64::from(scale));
        for entry in chunk {
            let (mut row, mut column) = (0, 0);
            for _ in 0..scale {
                let quadrant = rmat_quadrant(random.unit());
                row = row << 1 | quadrant >> 1;
                column = column << 1 | quadrant & 1;
            }
            *entry = pack(row, column);
        }
    });
    Matrix::by_entries(1 << scale, entries, value)
}

/// A circuit: each row draws one or two couplings, nine in ten of them within 200 rows, and each coupling is mirrored.
/// Four rows and the matching columns have `dense_entries` draws. The pattern is symmetric, the values are not.
pub fn circuit(rows: usize, dense_entries: usize) -> Matrix {
    let mut random = XorShift::after(PEER_EDGES as u64 * u64::from(PEER_SCALE));
    let n = rows as u64;
    let mut entries = Vec::with_capacity(4 * rows + 8 * dense_entries);
    for row in 0..n {
        entries.push(pack(row, row));
        for _ in 0..1 + random.bits() % 2 {
            let column = if random.unit() < 0.9 {
                (row + random.bits() % 400).checked_sub(200)
            } else {
                Some(random.bits() % n)
            };
            if let Some(column) = column.filter(|&column| column < n) {
                entries.extend([pack(row, column), pack(column, row)]);
            }
        }
    }
    for dense in 0..if rows > 0 { 4 } else { 0 } {
        let row = (1234 + 246_913 * dense) % n;
        for _ in 0..dense_entries {
            let column = random.bits() % n;
            entries.extend([pack(row, column), pack(column, row)]);
        }
    }
    Matrix::by_entries(rows, entries, value)
}

/// 8 on the diagonal; elsewhere -½ plus a hash of the position, in [-1, 1).
fn value(row: u32, column: u32) -> f64 {
    if row == column {
        return 8.0;
    }
    let z = pack(row.into(), column.into()).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x0123_4567);
    let z = (z ^ (z >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = z ^ (z >> 27);
    -0.5 + ((z >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}
