//! Model problems for examples and first experiments: Poisson, convection-diffusion, Helmholtz, linear elasticity
//! and Stokes flow.
//!
//! Each function returns a [`Csr`] in `f64` or `f32`, [`elasticity`] also the coordinates of the nodes. As a
//! right-hand side, a vector of ones will do, except for [`neumann`].
//!
//! | problem | function | symmetric | positive definite | a method for it |
//! | --- | --- | --- | --- | --- |
//! | heat, diffusion | [`poisson`] | yes | yes | [`Cg`](crate::Cg) with [`Amg`](crate::Amg) |
//! | the same with pure Neumann conditions | [`neumann`] | yes | no: singular | [`Cg`](crate::Cg) with `null_space` |
//! | transport by a flow | [`convection_diffusion`] | no | | [`BiCgStab`](crate::BiCgStab) with [`Ilu0`](crate::Ilu0) |
//! | waves | [`helmholtz`] | yes | no | [`Minres`](crate::Minres) |
//! | an elastic beam | [`elasticity`] | yes | yes | [`Cg`](crate::Cg) with [`Amg`](crate::Amg) and rigid body modes |
//! | viscous flow | [`stokes`] | yes | no: a saddle point | [`Fgmres`](crate::Fgmres) with [`SaddlePoint`](crate::SaddlePoint) |
//!
//! ```
//! use krysp::{Amg, Cg, gallery};
//!
//! let a = gallery::poisson::<f64>(&[30, 30, 30])?;
//! let solution = Cg::new(&a).preconditioner(Amg::new(&a)?).rtol(1e-8).solve(&vec![1.0; a.rows()])?;
//! assert!(solution.report.converged());
//! # Ok::<(), krysp::Error>(())
//! ```
//!
//! Problems on a grid use finite differences: `points` is the number of unknowns in each direction, usually
//! one to three directions. The first direction varies fastest in the ordering. Equations are multiplied by
//! h², where h is the mesh width, so that entries do not depend on h.

mod elasticity;
mod grid;
mod stokes;

pub use elasticity::elasticity;
#[cfg(any(test, feature = "testing"))]
pub(crate) use elasticity::{Clamped, hex_stiffness};
pub use stokes::stokes;

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use grid::Grid;

/// `−Δu = f` with `u = 0` on the boundary, by central differences: `2 d` on the diagonal in `d` directions, `−1` for each
/// neighbour (3, 5 and 7 points on a line, a square and a cube).
///
/// Symmetric positive definite, with the eigenvalues `Σ_d 4 sin²(k_d π / (2 (points[d] + 1)))`, `k_d = 1 .. points[d]`.
///
/// ```
/// use krysp::gallery;
///
/// let a = gallery::poisson::<f64>(&[3])?;
/// assert_eq!(a.entries(), [2.0, -1.0, -1.0, 2.0, -1.0, -1.0, 2.0]);
/// let square = gallery::poisson::<f32>(&[100, 50])?;
/// assert_eq!((square.rows(), square.get(0, 0)), (5000, Some(4.0)));
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn poisson<T: Real>(points: &[usize]) -> Result<Csr<T>> {
    Grid::new(points)?.matrix(2.0 * points.len() as f64, |_| [-1.0; 2])
}

/// `−Δu = f` with `∂u/∂n = 0` on the boundary, by cell-centred finite volumes: the diagonal entry is the
/// number of neighbours, and there is an entry `−1` for each of them.
///
/// Symmetric positive semidefinite. Constants are its null space: `f` must have the mean 0, and `u` is unique up to a constant.
///
/// ```
/// use krysp::{Cg, gallery};
///
/// let a = gallery::neumann::<f64>(&[10, 10])?;
/// let mut b = vec![0.0; 100];
/// (b[0], b[99]) = (1.0, -1.0); // a source and a sink
/// let solution = Cg::new(&a).null_space(&[vec![1.0; 100]])?.solve(&b)?;
/// assert!(solution.report.converged());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn neumann<T: Real>(points: &[usize]) -> Result<Csr<T>> {
    let a = Grid::new(points)?.matrix(0.0, |_| [-1.0; 2])?;
    let lengths = a.row_lengths().collect::<Vec<_>>();
    let value =
        |(row, column, value)| if row == column { T::from_f64((lengths[row] - 1) as f64) } else { value };
    let values: Vec<T> = a.triplets().map(value).collect();
    a.with_values(&values)
}

/// `−ε Δu + v · ∇u = f` with `u = 0` on the boundary: central differences for the diffusion, first-order upwind differences
/// for the convection. `peclet[d] = v[d] h / ε` is the mesh Péclet number of each direction; the equation is divided by ε.
///
/// The row of a node has `2 d + Σ_d |peclet[d]|` on the diagonal, `−1 − max(peclet[d], 0)` for the neighbour
/// before it in direction d, and `−1 + min(peclet[d], 0)` for the neighbour after it. The matrix is an
/// M-matrix for all Péclet numbers, and unsymmetric unless they are zero.
///
/// ```
/// use krysp::{BiCgStab, Ilu0, gallery};
///
/// let a = gallery::convection_diffusion::<f64>(&[40, 40], &[5.0, 2.0])?;
/// let solution = BiCgStab::new(&a).preconditioner(Ilu0::new(&a)?).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn convection_diffusion<T: Real>(points: &[usize], peclet: &[f64]) -> Result<Csr<T>> {
    if peclet.len() != points.len() {
        let (got, expected) = (peclet.len(), points.len());
        return Err(Error::Length {
            what: "`peclet`",
            got,
            expected,
            why: "one for each direction of the grid",
        });
    }
    finite("a mesh Péclet number", peclet)?;
    let diagonal = 2.0 * points.len() as f64 + peclet.iter().map(|p| p.abs()).sum::<f64>();
    Grid::new(points)?.matrix(diagonal, |d| [-1.0 - peclet[d].max(0.0), -1.0 + peclet[d].min(0.0)])
}

/// `−Δu − k² u = f` with `u = 0` on the boundary, by central differences: [`poisson`] with `(k h)²` subtracted from the
/// diagonal. `kh` is the wave number times the mesh width; ten points for each wavelength are `kh = 0.63`.
///
/// Symmetric. Indefinite if `kh²` is between the smallest and the largest eigenvalue of [`poisson`], and
/// singular if it equals an eigenvalue.
///
/// ```
/// use krysp::{Minres, gallery};
///
/// let a = gallery::helmholtz::<f64>(&[30, 30], 0.3)?;
/// let solution = Minres::new(&a).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn helmholtz<T: Real>(points: &[usize], kh: f64) -> Result<Csr<T>> {
    finite("`kh`", &[kh])?;
    Grid::new(points)?.matrix(2.0 * points.len() as f64 - kh * kh, |_| [-1.0; 2])
}

/// Returns an error for infinite and NaN parameters.
fn finite(what: &'static str, numbers: &[f64]) -> Result<()> {
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(number) => Err(Error::Option { what, got: number.to_string(), expected: "a finite number" }),
        None => Ok(()),
    }
}
