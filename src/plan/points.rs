//! Coordinates of nodes or of single unknowns, and their rigid body modes.

use crate::preconditioners::{UnknownOrder, rigid_body_modes};
use crate::saved::saved;
use std::collections::HashMap;
use std::fmt;

/// Coordinates of each node or, if components are given, of each unknown.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) points: Vec<[f64; 3]>,
    pub(super) components: Option<Vec<usize>>,
}

saved!(impl[] Points { points, components });

impl Points {
    /// What is wrong with the declaration, for a matrix with `rows` rows, and why.
    pub(super) fn wrong(&self, rows: usize) -> Option<(&'static str, String)> {
        let count = self.points.len();
        let coordinates = |why: String| Some(("coordinates", why));
        if let Some(at) = self.points.iter().position(|point| !point.iter().all(|x| x.is_finite())) {
            let [x, y, z] = self.points[at];
            return coordinates(format!("finite numbers are needed; point {at} is ({x}, {y}, {z})"));
        }
        let Some(components) = &self.components else {
            let is_wrong = count == 0 || !rows.is_multiple_of(count) || !(2..=3).contains(&(rows / count));
            if rows > 0 && is_wrong {
                return coordinates(format!(
                    "one point for each node is needed, with 2 or 3 unknowns a node; got {count} points for {rows} unknowns. If nodes \
                     differ in their unknowns, give the point of each unknown and its component (components)"
                ));
            }
            let at = self.first_beyond_plane().filter(|_| rows == 2 * count)?;
            let [first, z] = [0, at].map(|at| self.points[at][2]);
            return coordinates(format!(
                "with 2 unknowns a node all z must be equal; point {at} has z = {z}, point 0 has z = {first}"
            ));
        };
        if count != rows {
            return coordinates(format!(
                "with components, one point for each of {rows} unknowns is needed; got {count}"
            ));
        }
        let got = components.len();
        if got != rows {
            return Some(("components", format!("one for each of {rows} unknowns is needed; got {got}")));
        }
        let at = components.iter().position(|&component| component > 2)?;
        let got = components[at];
        Some(("components", format!("0 (x), 1 (y) or 2 (z) is needed; unknown {at} has {got}")))
    }

    /// Index of the first point whose z differs from that of point 0.
    fn first_beyond_plane(&self) -> Option<usize> {
        let first = self.points.first()?[2];
        self.points.iter().position(|point| point[2] != first)
    }

    /// Coordinates of the nodes, the node and the component of each unknown, and the number of directions of displacement (2 or 3).
    fn nodes(&self, rows: usize) -> (Vec<[f64; 3]>, Vec<(u32, usize)>, usize) {
        let in_plane = self.first_beyond_plane().is_none();
        let Some(components) = &self.components else {
            let dimensions = rows / self.points.len().max(1);
            let of = |unknown: usize| ((unknown / dimensions.max(1)) as u32, unknown % dimensions.max(1));
            return (self.points.clone(), (0..rows).map(of).collect(), dimensions);
        };
        // several nodes may have the same coordinates: a component that occurs again at these coordinates belongs to another node
        let mut at: HashMap<[u64; 3], Vec<(u32, [bool; 3])>> = HashMap::new();
        let (mut points, mut unknowns) = (vec![], Vec::with_capacity(rows));
        for (point, &component) in self.points.iter().zip(components) {
            // adding 0.0 makes -0.0 equal to 0.0
            let here = at.entry(point.map(|x| (x + 0.0).to_bits())).or_default();
            let node = match here.iter_mut().find(|(_, taken)| !taken[component]) {
                Some((node, taken)) => {
                    taken[component] = true;
                    *node
                }
                None => {
                    let node = points.len() as u32;
                    points.push(*point);
                    here.push((node, std::array::from_fn(|other| other == component)));
                    node
                }
            };
            unknowns.push((node, component));
        }
        let flat = in_plane && components.iter().all(|&component| component < 2);
        (points, unknowns, if flat { 2 } else { 3 })
    }

    /// Rigid body modes (three in the plane, six in space) in the user's order of unknowns, and the node of each unknown, for a matrix with
    /// `rows` rows.
    pub(super) fn near(&self, rows: usize) -> (Vec<Vec<f64>>, Vec<u32>) {
        let (points, unknowns, dimensions) = self.nodes(rows);
        let modes = match dimensions {
            2 => {
                let points: Vec<[f64; 2]> = points.iter().map(|&[x, y, _]| [x, y]).collect();
                rigid_body_modes(&points, UnknownOrder::ByNode)
            }
            _ => rigid_body_modes(&points, UnknownOrder::ByNode),
        };
        let nodes = unknowns.iter().map(|(node, _)| *node).collect();
        if self.components.is_none() {
            return (modes, nodes);
        }
        let place = |&(node, component): &(u32, usize)| node as usize * dimensions + component;
        let of_unknowns = |mode: &Vec<f64>| unknowns.iter().map(|unknown| mode[place(unknown)]).collect();
        let modes: Vec<Vec<f64>> = modes.iter().map(of_unknowns).collect();
        // drop modes that are zero for all unknowns, such as a translation in a direction of which there is no component
        (modes.into_iter().filter(|mode| mode.iter().any(|v| *v != 0.0)).collect(), nodes)
    }
}

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.components.is_some() { "unknowns" } else { "nodes" };
        write!(f, "coordinates of {} {of}", self.points.len())
    }
}
