//! Stokes flow in a channel, on a staggered grid.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::memory::check_free_memory;
use crate::numbers::Real;

/// Stokes flow through a rectangular channel of `cells[d]` cells in direction d, two or three directions: the marker-and-cell
/// scheme, with velocities on the faces of cells and pressures in their centres (Harlow and Welch 1965).
///
/// ```text
/// −Δu + ∇p = f,  div u = g        [ A  Bᵀ ]
///                                 [ B  0  ]
/// ```
///
/// The velocity is zero on the walls and at the inlet, the side x = 0. At the outlet, the opposite side, the
/// pressure and the normal derivative of the velocity are zero. The unknowns are ordered by component: the
/// velocities in direction 0 on all faces that have one, then those in the other directions, then the
/// pressures; within each, the first direction varies fastest. Momentum equations are multiplied by h² and
/// continuity equations by −h, with pressures in units of 1/h, so that entries do not depend on the mesh
/// width h.
///
/// Symmetric indefinite. The discretization is stable (inf-sup condition): with a good block preconditioner
/// the number of iterations does not depend on the number of cells. The pressure block has no stored entries.
///
/// ```
/// use krysp::{Fgmres, SaddlePoint, gallery};
///
/// let a = gallery::stokes::<f64>(&[24, 16])?;
/// assert_eq!(a.rows(), 24 * 16 + 24 * 15 + 24 * 16);
/// let m = SaddlePoint::new(&a)?;
/// let report = Fgmres::new(&a).preconditioner(m).rtol(1e-8).solve(&vec![1.0; a.rows()])?.report;
/// assert!(report.converged() && report.iterations < 40, "{report}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stokes<T: Real>(cells: &[usize]) -> Result<Csr<T>> {
    if !(2..=3).contains(&cells.len()) || cells.contains(&0) {
        let expected = "two or three numbers, at least 1 each";
        return Err(Error::Option { what: "the number of cells", got: format!("{cells:?}"), expected });
    }
    let grid = Staggered::new(cells);
    let rows = grid.first.iter().last().copied().unwrap_or(0).saturating_add(product(cells));
    if rows > 1 << 31 {
        return Err(Error::TooLarge { what: "row", got: usize::try_from(rows).unwrap_or(usize::MAX) });
    }
    let most = rows.saturating_mul(4 * cells.len() as u128 + 1);
    check_free_memory("a matrix of the gallery", most.saturating_mul(size_of::<(u32, u32, T)>() as u128))?;
    let entries: Vec<_> =
        grid.entries().into_iter().map(|(i, j, value)| (i, j, T::from_f64(value))).collect();
    Csr::from_triplets(rows as usize, rows as usize, &entries)
}

fn product(sides: &[usize]) -> u128 {
    sides.iter().fold(1, |product: u128, &side| product.saturating_mul(side as u128))
}

/// Unknowns of a staggered grid.
struct Staggered<'a> {
    cells: &'a [usize],
    /// Number of faces with an unknown in each direction, for each component.
    faces: Vec<Vec<usize>>,
    /// Index of the first unknown of each velocity component, and of the pressures.
    first: Vec<u128>,
}

impl<'a> Staggered<'a> {
    fn new(cells: &'a [usize]) -> Staggered<'a> {
        // faces at the outlet have unknowns, faces at walls and at the inlet have none
        let faces: Vec<Vec<usize>> = (0..cells.len())
            .map(|c| (0..cells.len()).map(|k| cells[k] - usize::from(k == c && c > 0)).collect())
            .collect();
        let mut first = vec![0];
        for faces in &faces {
            let before: u128 = first[first.len() - 1];
            first.push(before.saturating_add(product(faces)));
        }
        Staggered { cells, faces, first }
    }

    fn entries(&self) -> Vec<(u32, u32, f64)> {
        let (mut entries, directions) = (vec![], self.cells.len());
        for component in 0..directions {
            let (faces, first) = (&self.faces[component], self.first[component] as u32);
            for face in 0..product(faces) as usize {
                let place = places(faces, face);
                self.momentum(component, face, &place, &mut entries);
                // the face is between the cell with the same coordinates and the next cell
                let (row, mut cell) = (first + face as u32, place);
                let pressure =
                    |cell: &[usize]| self.first[directions] as u32 + number(self.cells, cell) as u32;
                let mut couple = |column: u32, value: f64| {
                    entries.extend([(row, column, value), (column, row, value)]);
                };
                couple(pressure(&cell), -1.0);
                cell[component] += 1;
                if cell[component] < self.cells[component] {
                    couple(pressure(&cell), 1.0);
                }
            }
        }
        entries
    }

    /// The entries of the Laplacian in one row.
    fn momentum(&self, component: usize, face: usize, place: &[usize], entries: &mut Vec<(u32, u32, f64)>) {
        let (faces, row) = (&self.faces[component], self.first[component] as u32 + face as u32);
        let (mut diagonal, mut stride) = (0.0, 1);
        // the control volume of a face at the outlet is half a cell
        let at_outlet = component == 0 && place[0] + 1 == self.cells[0];
        for (k, &count) in faces.iter().enumerate() {
            let weight = if at_outlet && k != component { 0.5 } else { 1.0 };
            // in the direction of the component a prescribed velocity is on the next face, in others on a
            // wall half a cell away
            let fixed = if k == component { weight } else { 2.0 * weight };
            if place[k] > 0 {
                entries.push((row, row - stride, -weight));
                diagonal += weight;
            } else {
                diagonal += fixed;
            }
            if place[k] + 1 < count {
                entries.push((row, row + stride, -weight));
                diagonal += weight;
            } else if k > 0 {
                diagonal += fixed;
            }
            stride *= count as u32;
        }
        entries.push((row, row, diagonal));
    }
}

/// Coordinates of node `number` of a grid with `sides[k]` nodes in direction k.
fn places(sides: &[usize], mut number: usize) -> Vec<usize> {
    let mut places = vec![];
    for side in sides {
        places.push(number % side);
        number /= side;
    }
    places
}

/// Number of the node with the coordinates `place`, in a grid with `sides[k]` nodes in direction k.
fn number(sides: &[usize], place: &[usize]) -> usize {
    sides.iter().zip(place).rev().fold(0, |number, (side, place)| number * side + place)
}
