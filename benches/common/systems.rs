//! The matrices of the benches, each in the numberings it is measured in.

use super::Result;
use krysp::io::read_matrix;
use krysp::testing::{matrices, shared_matrix};
use krysp::{Csr, Numbering};
use std::time::Instant;

/// Generated, the same on every machine.
pub const GENERATED: [&str; 7] =
    ["p7_128", "p27_80", "elast55", "tet_rand", "tet_nat", "rmat20", "circuit1m"];

/// From files, where they lie beside this checkout.
pub const SHARED: [&str; 4] =
    ["heat_sink_p1_340k", "elast_bracket_p1_59k", "convdiff_channel_p1_186k", "G3_circuit"];

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
            other => format!("{}_{other}", self.name),
        }
    }
}

/// The matrices above whose names go with a wish (`p7_128/f64` too), and any other that is wished for by its whole name;
/// all of the above without a wish. One at a time.
pub fn systems(wanted: &[String]) -> impl Iterator<Item = Result<Vec<System>>> {
    let goes_with = |name: &str, wish: &str| name.contains(wish) || wish.contains(name);
    let listed = || GENERATED.into_iter().chain(SHARED);
    let mut names: Vec<String> = listed()
        .filter(|name| wanted.is_empty() || wanted.iter().any(|wish| goes_with(name, wish)))
        .map(String::from)
        .collect();
    let others = wanted.iter().filter(|wish| !listed().any(|name| goes_with(name, wish)));
    names.extend(others.filter_map(|wish| wish.split('/').next()).map(String::from));
    names.into_iter().map(numbered)
}

/// As it is given; randomly numbered meshes, graphs, and what comes from files also as reverse Cuthill and McKee number them.
fn numbered(name: String) -> Result<Vec<System>> {
    let csr = match (matrices::named(&name), shared_matrix(&name)) {
        (Some(matrix), _) => matrix.csr()?,
        (None, Some(path)) => read_matrix(path)?,
        (None, None) => {
            println!("skipped: {name} is neither generated nor beside this checkout");
            return Ok(vec![]);
        }
    };
    let mut systems = vec![];
    if ["tet_rand", "rmat20", "circuit1m"].contains(&&*name) || SHARED.contains(&&*name) {
        let started = Instant::now();
        let rcm = csr.renumbered(&Numbering::rcm(&csr)?)?;
        let numbering_ms = started.elapsed().as_secs_f64() * 1e3;
        // the same arrays again, in a space without numbering: what peers see, too
        let csr = Csr::from_csr(rcm.rows(), rcm.cols(), &rcm.offsets(), rcm.columns(), rcm.entries())?;
        systems.push(System { name: name.clone(), numbering: "rcm", csr, numbering_ms });
    }
    systems.insert(0, System { name, numbering: "given", csr, numbering_ms: 0.0 });
    Ok(systems)
}
