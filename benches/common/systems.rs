//! The matrices of the benches, each in the orderings in which it is measured.

use super::Result;
use krysp::io::read_matrix;
use krysp::testing::matrices::{self, Matrix};
use krysp::testing::shared_matrix;
use krysp::{Csr, Permutation};
use std::path::PathBuf;
use std::time::Instant;

/// Generated matrices, equal on every machine.
pub const GENERATED: [&str; 7] =
    ["p7_128", "p27_80", "elast55", "tet_rand", "tet_nat", "rmat20", "circuit1m"];

/// Matrices from the folder of shared matrices.
pub const SHARED: [&str; 4] =
    ["heat_sink_p1_340k", "elast_bracket_p1_59k", "convdiff_channel_p1_186k", "G3_circuit"];

/// Matrices with rows of very unequal lengths; the name `irregular` stands for all of them.
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

/// Irregular matrices so large that their generation takes minutes; the name `irregular_large` stands for both.
pub const IRREGULAR_LARGE: [&str; 2] = ["rmat_33M", "rmat_100M"];

/// Replaces names that stand for several matrices by the names of those.
pub fn expanded(wanted: &[String]) -> Vec<String> {
    let of_wish = |wish: &String| match &**wish {
        "irregular" => IRREGULAR.map(String::from).to_vec(),
        "irregular_large" => IRREGULAR_LARGE.map(String::from).to_vec(),
        _ => vec![wish.clone()],
    };
    wanted.iter().flat_map(of_wish).collect()
}

/// A matrix in one ordering.
pub struct System {
    pub name: String,
    pub ordering: &'static str,
    /// The matrix in the measured ordering, for this library and for those that it is compared with.
    pub csr: Csr<f64>,
    /// The milliseconds of computing the ordering.
    pub ordering_ms: f64,
}

impl System {
    /// The name in a bench: `tet_rand`, `tet_rand_rcm`.
    pub fn id(&self) -> String {
        match self.ordering {
            "given" => self.name.clone(),
            other => format!("{}_{}", self.name, other.replace(' ', "_")),
        }
    }
}

/// Loads all matrices of [`GENERATED`] and [`SHARED`] if `wanted` is empty; otherwise those whose name
/// contains a wanted name, or is part of one (`p7_128` for the wanted `p7_128/f64`), and other matrices that
/// `wanted` names exactly. They are loaded one at a time, each in several orderings.
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
    names.into_iter().map(|name| reordered(&name, |matrix| matrix, |_| None))
}

/// Returns whether the unknowns of a generated matrix are shuffled.
fn is_shuffled(name: &str) -> bool {
    let shuffled = ["tet_rand", "rmat20", "circuit1m", "el3_20k", "p1_200k", "el3_200k"];
    shuffled.contains(&name) || name.ends_with("_perm")
}

/// Whether a matrix is a graph with hubs and without locality: most rows refer to the longest rows.
fn has_hubs(name: &str) -> bool {
    name == "rmat20"
}

/// Number of consecutive unknowns of each node of the mesh.
pub fn unknowns(name: &str) -> usize {
    if ["el3_", "elast", "tiny_el3"].iter().any(|family| name.starts_with(family)) { 3 } else { 1 }
}

/// Reverse Cuthill-McKee for the nodes of a mesh, so that the unknowns of a node stay together.
fn rcm(csr: &Csr<f64>, unknowns: usize) -> Result<Permutation> {
    by_nodes(csr, unknowns, |graph, _| Ok(Permutation::rcm(graph)?))
}

/// METIS ordering in which every `rows` consecutive rows form a compact part of the mesh.
#[cfg(feature = "metis")]
fn metis(csr: &Csr<f64>, unknowns: usize, rows: usize) -> Result<Permutation> {
    let line = |graph: &Csr<f64>, unknowns: usize| super::metis::line(graph, rows / unknowns);
    by_nodes(csr, unknowns, |graph, unknowns| Ok(Permutation::from_old_of_new(line(graph, unknowns)?)?))
}

/// Expands an ordering of the graph of nodes to their unknowns.
fn by_nodes(
    csr: &Csr<f64>,
    unknowns: usize,
    number: impl Fn(&Csr<f64>, usize) -> Result<Permutation>,
) -> Result<Permutation> {
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
    Ok(Permutation::from_old_of_new(first.flat_map(|first| first..first + unknowns as u32).collect())?)
}

/// Loads a matrix from a file, or generates it by its name, and returns it in several orderings:
///
/// 1. the given one;
/// 2. reverse Cuthill-McKee, if the given one is shuffled or the matrix comes from a file;
/// 3. in the same case, if `rows_per_block` returns a number of rows: `Permutation::clustered` with runs
///    (ranges of consecutive rows) of so many rows and, with the feature `metis`, METIS with parts of so many
///    rows;
/// 4. longest rows first, for graphs with hubs.
///
/// `prepare` is applied to a generated matrix before it is reordered.
pub fn reordered(
    wanted: &str,
    prepare: impl FnOnce(Matrix) -> Matrix,
    rows_per_block: impl Fn(&Csr<f64>) -> Option<usize>,
) -> Result<Vec<System>> {
    let file = Some(PathBuf::from(wanted)).filter(|path| path.is_file());
    let (name, csr, shuffled) = match (matrices::named(wanted), file.or_else(|| shared_matrix(wanted))) {
        (Some(matrix), _) => (wanted, prepare(matrix).csr()?, is_shuffled(wanted)),
        (None, Some(path)) => (stem(wanted), read_matrix(path)?, true),
        (None, None) => {
            println!(
                "skipped: {wanted} is neither a generated matrix, nor a file, nor in the folder of shared matrices"
            );
            return Ok(vec![]);
        }
    };
    let mut systems = vec![];
    let mut add = |ordering, number: &dyn Fn() -> Result<Permutation>| -> Result<()> {
        let started = Instant::now();
        let new = csr.reordered(&number()?)?;
        let ordering_ms = started.elapsed().as_secs_f64() * 1e3;
        // copy the arrays to a CSR without a permutation: other libraries have to see the reordered matrix as
        // the original
        let csr = Csr::from_csr(new.rows(), new.cols(), &new.offsets(), new.columns(), new.entries())?;
        systems.push(System { name: name.into(), ordering, csr, ordering_ms });
        Ok(())
    };
    if shuffled {
        add("rcm", &|| rcm(&csr, unknowns(name)))?;
        if let Some(rows) = rows_per_block(&csr) {
            add("clustered", &|| Ok(Permutation::clustered(&csr, rows)?))?;
            #[cfg(feature = "metis")]
            add("metis", &|| metis(&csr, unknowns(name), rows))?;
        }
    }
    if has_hubs(name) {
        add("by length", &|| Ok(Permutation::by_length(&csr)?))?;
    }
    systems.insert(0, System { name: name.into(), ordering: "given", csr, ordering_ms: 0.0 });
    Ok(systems)
}

/// The name of the matrix in a path: `heat_sink` for `some/where/heat_sink.mtx.gz`.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}
