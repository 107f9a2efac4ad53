//! The systems of the bench: from files of shared matrices, or generated if the files are missing.

use super::Result;
use flate2::read::GzDecoder;
use krysp::Csr;
use krysp::io::{read_matrix, read_vector};
use krysp::testing::{matrices, shared_matrix, skipped};
use std::fs::File;
use std::io::Read;

const SHARED: [&str; 3] = ["heat_sink_p1_340k", "elast_bracket_p1_59k", "convdiff_channel_p1_186k"];

/// Generated systems: Poisson's equation on tetrahedra, and elasticity on hexahedra.
const GENERATED: [&str; 2] = ["tet_nat", "elast30"];

/// The requested systems, or the usual ones.
pub(super) fn names(wanted: &[String]) -> Vec<String> {
    if !wanted.is_empty() {
        return wanted.to_vec();
    }
    let all = SHARED.iter().all(|name| shared_matrix(name).is_some());
    if !all {
        skipped("no shared matrices: generated ones are used instead");
    }
    let names: &[&str] = if all { &SHARED } else { &GENERATED };
    names.iter().map(|&name| name.into()).collect()
}

pub(super) struct System {
    pub(super) name: String,
    pub(super) csr: Csr<f64>,
    pub(super) b: Vec<f64>,
    /// The number of unknowns of a node.
    pub(super) unknowns: usize,
    pub(super) symmetric: bool,
    /// The rigid body modes, if the coordinates of the nodes are known.
    pub(super) rigid: Option<Vec<Vec<f64>>>,
}

impl System {
    /// Loads or generates a system. With `ones`, a right-hand side of ones is used if there is no file.
    pub(super) fn new(name: &str, ones: bool) -> Result<System> {
        let csr = match (shared_matrix(name), matrices::named(name)) {
            (Some(path), _) => read_matrix(path)?,
            // the generated values are random, and the matrix is indefinite without a larger diagonal
            (None, Some(matrix)) if name.starts_with("p1_") => matrix.diagonally_dominant().csr()?,
            (None, Some(matrix)) => matrix.csr()?,
            (None, None) => {
                return Err(format!("{name} is neither a generated nor a shared matrix").into());
            }
        };
        let b = match shared_matrix(&format!("{name}_b")) {
            Some(path) => read_vector(path)?,
            None if ones => vec![1.0; csr.rows()],
            None => matrices::vector(csr.rows()),
        };
        let cube = name.strip_prefix("elast").and_then(|side| side.parse::<usize>().ok());
        let rigid = match (shared_matrix(&format!("{name}_coord")), cube) {
            (Some(path), _) => {
                let mut text = String::new();
                GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
                Some(rigid_body_modes(&text, csr.rows())?)
            }
            (None, Some(side)) => {
                let place = |i: usize| [i % side, i / side % side, i / side / side].map(|x| x as f64);
                let points: Vec<_> = (0..side.pow(3)).map(place).collect();
                Some(krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode))
            }
            (None, None) => None,
        };
        Ok(System {
            name: name.into(),
            b,
            unknowns: if name.starts_with("elast") { 3 } else { 1 },
            symmetric: !name.starts_with("convdiff"),
            rigid,
            csr,
        })
    }
}

impl System {
    /// The sizes of diagonal blocks to measure: the number of unknowns of a node, if above one, and that of
    /// as many whole nodes as a block can hold.
    pub(super) fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        let of_node = Some(self.unknowns).filter(|&unknowns| unknowns > 1);
        of_node.into_iter().chain([32 / self.unknowns * self.unknowns])
    }
}

/// Three translations and three rotations, from the text of a Matrix Market array of the nodes' positions: all `x`, all
/// `y`, all `z`.
fn rigid_body_modes(text: &str, rows: usize) -> Result<Vec<Vec<f64>>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('%'));
    let nodes: usize = lines.next().and_then(|line| line.split(' ').next()).ok_or("no size")?.parse()?;
    let places = lines.map(|line| Ok(line.trim().parse()?)).collect::<Result<Vec<f64>>>()?;
    if places.len() != 3 * nodes || rows != 3 * nodes {
        return Err(format!("{} places of {nodes} nodes, {rows} rows", places.len()).into());
    }
    let points: Vec<_> = (0..nodes).map(|node| [0, 1, 2].map(|axis| places[axis * nodes + node])).collect();
    Ok(krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode))
}
