//! Linear elasticity on trilinear hexahedra.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::memory::check_free_memory;
use crate::numbers::Real;

/// Linear elasticity of a beam of `elements[d]` cubes of size 1 in direction d, clamped at the side x = 0: trilinear elements, Young's
/// modulus 1. Also returns the coordinates of the nodes, from which [`rigid_body_modes`](crate::rigid_body_modes) computes the rigid body
/// modes.
///
/// `−div σ = f`, `σ = λ tr(ε) I + 2 μ ε`, `ε = (∇u + ∇uᵀ) / 2`, `λ = ν / ((1 + ν) (1 − 2 ν))`, `μ = 1 / (2 (1 + ν))`, with `u =
/// 0` on the clamped side and `σ n = 0` on all others. Poisson's ratio ν lies between -1 and 1/2; close to 1/2 the material is
/// nearly incompressible, and the system ill-conditioned.
///
/// There are `3 · elements[0] (elements[1] + 1) (elements[2] + 1)` unknowns: three consecutive ones for each
/// node that is not clamped. Among the nodes, z varies fastest. Symmetric positive definite.
///
/// ```
/// use krysp::{Amg, Cg, UnknownOrder, gallery, rigid_body_modes};
///
/// let (a, points) = gallery::elasticity::<f64>([20, 4, 4], 0.3)?;
/// let amg = Amg::with_near_null_space(&a, &rigid_body_modes(&points, UnknownOrder::ByNode))?;
/// let solution = Cg::new(&a).preconditioner(amg).rtol(1e-8).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), krysp::Error>(())
/// ```
pub fn elasticity<T: Real>(elements: [usize; 3], poisson: f64) -> Result<(Csr<T>, Vec<[f64; 3]>)> {
    if elements.contains(&0) {
        let expected = "at least 1 in each direction";
        return Err(Error::Option { what: "the number of elements", got: format!("{elements:?}"), expected });
    }
    if !(poisson > -1.0 && poisson < 0.5) {
        let expected = "a number strictly between -1 and 0.5";
        return Err(Error::Option { what: "Poisson's ratio", got: poisson.to_string(), expected });
    }
    let nodes = elements.iter().fold(3_u128, |nodes, &elements| nodes.saturating_mul(elements as u128 + 1));
    if nodes > 1 << 31 {
        return Err(Error::TooLarge { what: "row", got: usize::try_from(nodes).unwrap_or(usize::MAX) });
    }
    let beam = Clamped { elements };
    let entries = 576 * elements.iter().map(|&elements| elements as u128).product::<u128>();
    check_free_memory("the element matrices of the gallery", entries * size_of::<(u32, u32, T)>() as u128)?;
    let entries: Vec<_> = beam.entries(poisson).map(|(i, j, value)| (i, j, T::from_f64(value))).collect();
    Ok((Csr::from_triplets(beam.rows(), beam.rows(), &entries)?, beam.points()))
}

/// A box of unit cubes, clamped at the side x = 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clamped {
    /// The number of cubes in each direction.
    pub(crate) elements: [usize; 3],
}

impl Clamped {
    pub(crate) fn rows(self) -> usize {
        let [x, y, z] = self.elements;
        3 * x * (y + 1) * (z + 1)
    }

    /// Coordinates of the free nodes; x varies slowest.
    fn points(self) -> Vec<[f64; 3]> {
        let [_, y, z] = self.elements.map(|elements| elements + 1);
        let at = |node: usize| [node / (y * z) + 1, node / z % y, node % z].map(|place| place as f64);
        (0..self.rows() / 3).map(at).collect()
    }

    /// The entries of all element matrices, which are to be summed.
    pub(crate) fn entries(self, poisson: f64) -> impl Iterator<Item = (u32, u32, f64)> {
        let rounded = hex_stiffness(poisson);
        // the element matrix is exactly symmetric, and therefore also the sum
        let element: [[f64; 24]; 24] =
            std::array::from_fn(|i| std::array::from_fn(|j| 0.5 * (rounded[i][j] + rounded[j][i])));
        let [hexes, nodes] = [self.elements, self.elements.map(|elements| elements + 1)];
        let row_of = move |node: [usize; 3], direction: usize| {
            let free = node[0].checked_sub(1)?;
            Some((3 * (node[2] + nodes[2] * (node[1] + nodes[1] * free)) + direction) as u32)
        };
        (0..hexes.iter().product()).flat_map(move |hex: usize| {
            let low = [hex / (hexes[1] * hexes[2]), hex / hexes[2] % hexes[1], hex % hexes[2]];
            let unknowns: [Option<u32>; 24] = std::array::from_fn(|i| {
                row_of(std::array::from_fn(|d| low[d] + (((i / 3) >> d) & 1)), i % 3)
            });
            (0..24 * 24).filter_map(move |k| {
                let (i, j) = (k / 24, k % 24);
                Some((unknowns[i]?, unknowns[j]?, element[i][j]))
            })
        })
    }
}

/// The element stiffness matrix `Kᵃⁱᵇʲ = ∫ λ ∂ᵢNᵃ ∂ⱼNᵇ + μ ∂ⱼNᵃ ∂ᵢNᵇ + δᵢⱼ μ ∇Nᵃ·∇Nᵇ` of a unit cube, by 2 x
/// 2 x 2 Gauss points. Bit d of the index of a corner or a Gauss point is its side in direction d.
pub(crate) fn hex_stiffness(poisson: f64) -> [[f64; 24]; 24] {
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
