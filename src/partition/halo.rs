//! Sizes of halos. The halo of a block of consecutive rows is the set of columns in which the block has
//! entries and whose indices are not among its rows.

use crate::formats::Csr;
use crate::numbers::Real;
use rayon::prelude::*;

/// Sizes of the halos of a matrix that is divided into blocks of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HaloSize {
    /// Sum of the sizes of all halos, divided by the number of rows.
    pub per_row: f64,
    /// Size of the largest halo.
    pub largest: usize,
}

/// Computes the sizes of the halos of a matrix divided into blocks of `rows_per_block` consecutive rows. The
/// halo of a block is the set of columns in which it has entries and whose indices are not among its rows.
pub fn halo<T: Real>(csr: &Csr<T>, rows_per_block: usize) -> HaloSize {
    let (rows, per_block) = (csr.rows(), rows_per_block.max(1));
    let of_block = |block: usize| {
        let own = block * per_block..rows.min((block + 1) * per_block);
        let columns = own.clone().flat_map(|row| csr.row_columns(row)).copied();
        let mut outside: Vec<u32> = columns.filter(|&column| !own.contains(&(column as usize))).collect();
        outside.sort_unstable();
        outside.chunk_by(|a, b| a == b).count()
    };
    let blocks = rows.div_ceil(per_block);
    let halos: Vec<usize> = (0..blocks).into_par_iter().map(of_block).collect();
    let (sum, largest) = (halos.iter().sum::<usize>(), halos.into_iter().max().unwrap_or(0));
    HaloSize { per_row: sum as f64 / rows.max(1) as f64, largest }
}
