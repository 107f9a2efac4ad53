//! Deterministic matrices for tests and benches: the same bits on any number of threads and any machine, and in any
//! other program that follows the definitions. The generators return a plain [`Matrix`] or [`Triplets`] and depend on
//! nothing else in this crate.
//!
//! | family | generator | positive definite |
//! | --- | --- | --- |
//! | hashed meshes, R-MAT, circuits (GPU benches) | [`hashed_mesh`], [`hashed_rmat`], [`hashed_circuit`] | meshes, after [`Matrix::diagonally_dominant`] |
//! | Laplacian stencils | [`stencil7`], [`stencil27`] | yes |
//! | elasticity on hexes | [`elasticity`] | yes |
//! | linear tetrahedra | [`tetrahedra`] | yes |
//! | R-MAT, circuit (CPU peer benches) | [`rmat`], [`circuit`] | no |
//! | row lengths of irregular matrices in print | [`TABLE_3`] | no |
//! | known spectrum | [`with_eigenvalues`], [`distinct_eigenvalues`] | if the eigenvalues are positive |
//! | edge cases of shape and row length | [`edge`] | [`edge::arrow`], [`edge::tridiagonal`], [`edge::diagonal`] |
//! | random rectangles | [`random`], [`random_rows`] | no |
//!
//! [`named`] makes the matrices that the benches measure.

pub mod edge;
mod graph;
mod grid;
mod hashed;
mod matrix;
mod mesh;
mod named;
mod numbers;
mod spectrum;
mod table3;
mod tetrahedra;
mod triplets;

#[cfg(test)]
mod tests;

pub use graph::{circuit, rmat};
pub use hashed::{Neighbours, hashed_circuit, hashed_dense_row, hashed_mesh, hashed_rmat};
pub use matrix::Matrix;
pub use mesh::{elasticity, plate, stencil7, stencil27};
pub use named::{LARGEST_SIDE, named, names, shape_of, side_of};
pub use numbers::{SplitMix, mix, symmetric_value, unit, vector};
pub use spectrum::{distinct_eigenvalues, with_eigenvalues};
pub use table3::{Irregular, TABLE_3};
pub use tetrahedra::{NodeOrder, tetrahedra};
pub use triplets::{Triplets, random, random_rows};

use grid::Grid;
