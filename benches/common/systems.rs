//! The matrices of the benches, each in the numberings it is measured in.

use super::Result;
use krysp::io::read_matrix;
use krysp::testing::matrices::{self, Matrix};
use krysp::testing::shared_matrix;
use krysp::{Csr, Numbering};
use std::path::PathBuf;
use std::time::Instant;

/// Generated, the same on every machine.
pub const GENERATED: [&str; 7] =
    ["p7_128", "p27_80", "elast55", "tet_rand", "tet_nat", "rmat20", "circuit1m"];

/// From files, where they lie beside this checkout.
pub const SHARED: [&str; 4] =
    ["heat_sink_p1_340k", "elast_bracket_p1_59k", "convdiff_channel_p1_186k", "G3_circuit"];

/// Rows of very unequal lengths: all of them go with the wish `irregular`.
pub const IRREGULAR: [&str; 16] = [
    "webbase_like",
    "lp_like",
    "asic_680k_like",
    "boyd2_like",
    "dc2_like",
    "ins2_like",
    "rajat21_like",
    "transient_like",
    "rmat_2M",
    "rmat_8M",
    "rmat20",
    "circuit_1M",
    "circuit_25M",
    "circuit1m",
    "NotreDame_www",
    "memplus",
];

/// The same at a size that takes minutes: with the wish `irregular_large`.
pub const IRREGULAR_LARGE: [&str; 2] = ["rmat_33M", "rmat_100M"];

/// Wishes, and what those for many mean.
pub fn expanded(wanted: &[String]) -> Vec<String> {
    let of_wish = |wish: &String| match &**wish {
        "irregular" => IRREGULAR.map(String::from).to_vec(),
        "irregular_large" => IRREGULAR_LARGE.map(String::from).to_vec(),
        _ => vec![wish.clone()],
    };
    wanted.iter().flat_map(of_wish).collect()
}

/// A matrix in a numbering.
pub struct System {
    pub name: String,
    pub numbering: &'static str,
    /// Numbered as it is measured, for us and for the peers.
    pub csr: Csr<f64>,
    /// What the numbering took.
    pub numbering_ms: f64,
}

impl System {
    /// Its name in a bench: `tet_rand`, `tet_rand_rcm`.
    pub fn id(&self) -> String {
        match self.numbering {
            "given" => self.name.clone(),
            other => format!("{}_{}", self.name, other.replace(' ', "_")),
        }
    }
}

/// The matrices above whose names go with a wish (`p7_128/f64` too), and any other that is wished for by its whole name;
/// all of the above without a wish. One at a time.
pub fn systems(wanted: &[String]) -> impl Iterator<Item = Result<Vec<System>>> {
    let wanted = expanded(wanted);
    let goes_with = |name: &str, wish: &str| name.contains(wish) || wish.contains(name);
    let listed = || GENERATED.into_iter().chain(SHARED);
    let mut names: Vec<String> = listed()
        .filter(|name| wanted.is_empty() || wanted.iter().any(|wish| goes_with(name, wish)))
        .map(String::from)
        .collect();
    let others = wanted.iter().filter(|wish| !listed().any(|name| goes_with(name, wish)));
    names.extend(others.filter_map(|wish| wish.split('/').next()).map(String::from));
    names.into_iter().map(|name| numbered(&name, |matrix| matrix, |_| None))
}

/// Generated in a numbering without regard to neighbourhoods.
fn is_shuffled(name: &str) -> bool {
    let shuffled = ["tet_rand", "rmat20", "circuit1m", "el3_20k", "p1_200k", "el3_200k"];
    shuffled.contains(&name) || name.ends_with("_perm")
}

/// A graph without neighbourhoods, whose longest rows every other row leads to.
fn has_hubs(name: &str) -> bool {
    name == "rmat20"
}

/// Unknowns that belong to a node of the mesh, one after the other.
pub fn unknowns(name: &str) -> usize {
    if ["el3_", "elast", "tiny_el3"].iter().any(|family| name.starts_with(family)) { 3 } else { 1 }
}

/// Reverse Cuthill and McKee of the nodes of a mesh: their unknowns stay together.
fn rcm(csr: &Csr<f64>, unknowns: usize) -> Result<Numbering> {
    by_nodes(csr, unknowns, |graph, _| Ok(Numbering::rcm(graph)?))
}

/// The clusters of METIS, in runs of so many rows.
#[cfg(feature = "metis")]
fn metis(csr: &Csr<f64>, unknowns: usize, rows: usize) -> Result<Numbering> {
    let line = |graph: &Csr<f64>, unknowns: usize| super::metis::line(graph, rows / unknowns);
    by_nodes(csr, unknowns, |graph, unknowns| Ok(Numbering::from_old_of_new(line(graph, unknowns)?)?))
}

/// The numbering that one of the graph of nodes makes, which is given the unknowns of a node.
fn by_nodes(
    csr: &Csr<f64>,
    unknowns: usize,
    number: impl Fn(&Csr<f64>, usize) -> Result<Numbering>,
) -> Result<Numbering> {
    if unknowns == 1 || !csr.rows().is_multiple_of(unknowns) {
        return number(csr, 1);
    }
    let (mut offsets, mut columns) = (vec![0], vec![]);
    for node in 0..csr.rows() / unknowns {
        let mut neighbours: Vec<u32> =
            (0..unknowns).flat_map(|unknown| csr.row_columns(node * unknowns + unknown)).copied().collect();
        neighbours.iter_mut().for_each(|column| *column /= unknowns as u32);
        neighbours.sort_unstable();
        neighbours.dedup();
        columns.extend(neighbours);
        offsets.push(columns.len());
    }
    let nodes = offsets.len() - 1;
    let graph = Csr::from_csr(nodes, nodes, &offsets, &columns, &vec![1.0; columns.len()])?;
    let of_nodes = number(&graph, unknowns)?;
    let first = of_nodes.old_of_new().iter().map(|node| node * unknowns as u32);
    Ok(Numbering::from_old_of_new(first.flat_map(|first| first..first + unknowns as u32).collect())?)
}

/// A matrix by its name or its file, as it is given, where that is shuffled also as reverse Cuthill and McKee number it and
/// in blocks of so many rows that are close to each other,
/// and a graph with hubs with its longest rows first; `prepare` changes a generated one first.
pub fn numbered(
    wanted: &str,
    prepare: impl FnOnce(Matrix) -> Matrix,
    rows_per_block: impl Fn(&Csr<f64>) -> Option<usize>,
) -> Result<Vec<System>> {
    let file = Some(PathBuf::from(wanted)).filter(|path| path.is_file());
    let (name, csr, shuffled) = match (matrices::named(wanted), file.or_else(|| shared_matrix(wanted))) {
        (Some(matrix), _) => (wanted, prepare(matrix).csr()?, is_shuffled(wanted)),
        (None, Some(path)) => (stem(wanted), read_matrix(path)?, true),
        (None, None) => {
            println!("skipped: {wanted} is neither generated nor a file nor beside this checkout");
            return Ok(vec![]);
        }
    };
    let mut systems = vec![];
    let mut add = |numbering, number: &dyn Fn() -> Result<Numbering>| -> Result<()> {
        let started = Instant::now();
        let new = csr.renumbered(&number()?)?;
        let numbering_ms = started.elapsed().as_secs_f64() * 1e3;
        // the same arrays again, in a space without numbering: what peers see, too
        let csr = Csr::from_csr(new.rows(), new.cols(), &new.offsets(), new.columns(), new.entries())?;
        systems.push(System { name: name.into(), numbering, csr, numbering_ms });
        Ok(())
    };
    if shuffled {
        add("rcm", &|| rcm(&csr, unknowns(name)))?;
        if let Some(rows) = rows_per_block(&csr) {
            add("clustered", &|| Ok(Numbering::clustered(&csr, rows)?))?;
            #[cfg(feature = "metis")]
            add("metis", &|| metis(&csr, unknowns(name), rows))?;
        }
    }
    if has_hubs(name) {
        add("by length", &|| Ok(Numbering::by_length(&csr)?))?;
    }
    systems.insert(0, System { name: name.into(), numbering: "given", csr, numbering_ms: 0.0 });
    Ok(systems)
}

/// `heat_sink` of `some/where/heat_sink.mtx.gz`.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}
