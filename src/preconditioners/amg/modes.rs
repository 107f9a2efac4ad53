//! Near-null space modes and their restriction to aggregates (the tentative prolongator).

use super::aggregates::{Aggregates, NONE};
use crate::error::{Error, Result};
use crate::formats::pattern::{by_rows, place_of};
use crate::formats::user_order::first_not_finite;
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::{ByRow, map_rows, over_parts, tasks};
use krysp_kernels::multigrid::{self, DEPENDENT};
use krysp_solvers::Element;

/// Returns an error if a mode has an entry that is infinite or NaN.
pub(crate) fn check_modes<T: Real, V: AsRef<[T]>>(modes: &[V]) -> Result<()> {
    for (number, mode) in modes.iter().enumerate() {
        let mode: &[T] = mode.as_ref();
        if let Some(at) = first_not_finite(mode) {
            let value = Element::to_f64(mode[at]);
            let why = format!("finite numbers are needed; entry {at} of vector {number} is {value}");
            return Error::declaration("near_null_space", why);
        }
    }
    Ok(())
}

/// Order of the unknowns in a system with several unknowns per node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownOrder {
    /// All unknowns of the first node, then all of the second.
    #[default]
    ByNode,
    /// The first unknown of all nodes, then the second of all nodes. [`Amg`](crate::Amg) then cannot detect
    /// which unknowns belong to one node: reorder by node for fewer iterations.
    ByComponent,
}

/// The rigid body modes of the displacements of nodes at these points: three in the plane, six in space. They
/// span the near-null space of elasticity, for [`Amg::with_near_null_space`](crate::Amg::with_near_null_space) and
/// [`CoarseSpace::with_near_null_space`](crate::CoarseSpace::with_near_null_space).
///
/// ```
/// use krysp::{UnknownOrder, rigid_body_modes};
///
/// let modes = rigid_body_modes(&[[0.0, 0.0], [2.0, 0.0]], UnknownOrder::ByNode);
/// assert_eq!(modes.len(), 3);
/// assert_eq!(modes[1], [0.0, 1.0, 0.0, 1.0]);
/// // the rotation, about the centre of the points
/// assert_eq!(modes[2], [0.0, -1.0, 0.0, 1.0]);
/// ```
#[doc(alias = "rigid body modes")]
pub fn rigid_body_modes<const D: usize>(points: &[[f64; D]], unknowns: UnknownOrder) -> Vec<Vec<f64>> {
    let n = points.len();
    let mean = |axis: usize| points.iter().map(|point| point[axis]).sum::<f64>() / n.max(1) as f64;
    let centre: [f64; D] = std::array::from_fn(mean);
    let at = |node: usize, axis: usize| match unknowns {
        UnknownOrder::ByNode => node * D + axis,
        UnknownOrder::ByComponent => axis * n + node,
    };
    let mode = |moves: &dyn Fn(&[f64; D]) -> [f64; D]| {
        let mut mode = vec![0.0; n * D];
        for (node, point) in points.iter().enumerate() {
            let moved = moves(&std::array::from_fn(|axis| point[axis] - centre[axis]));
            moved.iter().enumerate().for_each(|(axis, moved)| mode[at(node, axis)] = *moved);
        }
        mode
    };
    let unit = |axis: usize, length: f64| {
        let mut unit = [0.0; D];
        unit[axis] = length;
        unit
    };
    let shifts = (0..D).map(|axis| mode(&|_| unit(axis, 1.0)));
    let turns = (0..D).flat_map(|one| (one + 1..D).map(move |other| (one, other)));
    let turns = turns.map(|(one, other)| {
        mode(&|point| {
            let mut moved = unit(one, -point[other]);
            moved[other] = point[one];
            moved
        })
    });
    shifts.chain(turns).collect()
}

/// The near-null space of a level in host memory.
pub(crate) type NearNullSpace = multigrid::NearNullSpace<Vec<f64>>;

/// Constants, one for each unknown of a node.
pub(crate) fn constants(rows: usize, size: usize) -> NearNullSpace {
    let entry = |at: usize| f64::from(u8::from(at / size % size == at % size));
    NearNullSpace { count: size, values: map_rows(rows * size, 1, &entry) }
}

/// Computes the tentative prolongator `T`, stored as a block for each node, and the modes of the coarse
/// unknowns, such that `T` times the coarse modes gives `modes`. Gram-Schmidt, done twice, makes the
/// columns of `T` orthonormal on each aggregate. A mode that depends linearly on preceding ones becomes a
/// zero column.
pub(crate) fn orthonormal(
    modes: &NearNullSpace,
    aggregates: &Aggregates,
    size: usize,
) -> (Vec<f64>, NearNullSpace) {
    let Aggregates { count, of_node } = aggregates;
    let (count, nodes) = (*count, of_node.len());
    let NearNullSpace { count: modes, values } = modes;
    let modes = *modes;
    let (starts, members) = by_rows(count + 1, nodes, &|node| (of_node[node].min(count as u32), 0));
    let block = size * modes;
    let (mut columns, mut coarse) = (vec![0.0; nodes * block], vec![0.0; count * modes * modes]);
    let (offset, square) = (|at: usize| starts.at(at) * block, |at: usize| at * modes * modes);
    let parts = tasks(columns.len() * modes).min(count);
    let bound = |part: usize| part * count / parts.max(1);
    let data = (ByRow::new(&mut columns[..offset(count)], &offset), ByRow::new(&mut coarse, &square));
    over_parts(parts, &bound, data, &|range, (mut columns, mut coarse): (ByRow<'_, f64>, ByRow<'_, f64>)| {
        for aggregate in range {
            let members = &members[starts.range(aggregate)];
            let rows = members.len() * size;
            let columns = columns.row_mut(aggregate, rows * modes);
            let coarse = coarse.row_mut(aggregate, modes * modes);
            for mode in 0..modes {
                let (before, own) = columns.split_at_mut(mode * rows);
                let own = &mut own[..rows];
                for (own, &member) in own.chunks_exact_mut(size).zip(members) {
                    let first = place_of(member) as usize * size;
                    (0..size).for_each(|k| own[k] = values[(first + k) * modes + mode]);
                }
                let whole = dot(own, own).sqrt();
                for _ in 0..2 {
                    for (k, other) in before.chunks_exact(rows).enumerate() {
                        let shared = dot(own, other);
                        coarse[k * modes + mode] += shared;
                        own.iter_mut().zip(other).for_each(|(v, q)| *v -= shared * q);
                    }
                }
                let rest = dot(own, own).sqrt();
                let kept = rest > DEPENDENT * whole;
                coarse[mode * modes + mode] = if kept { rest } else { 0.0 };
                let scale = if kept { 1.0 / rest } else { 0.0 };
                own.iter_mut().for_each(|v| *v *= scale);
            }
        }
    });
    let mut places = vec![0u32; nodes];
    (0..).zip(&members[..]).for_each(|(place, &member)| places[place_of(member) as usize] = place);
    let entry = |at: usize| {
        let (node, within) = (at / block, at % block);
        let aggregate = of_node[node];
        if aggregate == NONE {
            return 0.0;
        }
        let range = starts.range(aggregate as usize);
        let row = (places[node] as usize - range.start) * size + within / modes;
        columns[range.start * block + within % modes * range.len() * size + row]
    };
    (map_rows(nodes * block, 4, &entry), NearNullSpace { count: modes, values: coarse })
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
