//! Numberings found on a GPU are those of the host, bit for bit.

use super::gpu;
use krysp::testing::matrices::{
    self, Triplets, circuit, edge, elasticity, hashed_circuit, random, rmat, stencil7, tetrahedra,
};
use krysp::testing::{shared_matrix, skipped};
use krysp::{Csr, Cuda, Error, Numbering};

fn alike(gpu: &Cuda, name: &str, a: &Csr<f64>, rows: usize) {
    let (host, device) = (Numbering::clustered(a, rows), Numbering::clustered_on(gpu, a, rows));
    assert!(host.unwrap() == device.unwrap(), "{name}, {rows} rows");
}

/// Vertices without neighbours or one that all have, edges in one direction, hubs, clusters of clusters, nodes of three.
#[test]
fn every_square_graph_is_numbered_as_on_the_host() {
    let Some(gpu) = gpu() else { return };
    let pairs = (0..5_000).flat_map(|i| [(3 * i, 3 * i + 1, 1.0), (3 * i + 1, 3 * i, 1.0)]).collect();
    let edge_cases = edge::edge_cases().into_iter().filter(|(_, t)| t.rows == t.cols);
    let cases = edge_cases.map(|(name, triplets)| (name, triplets.csr().unwrap())).chain([
        ("arrow".into(), edge::arrow(5_000).csr().unwrap()),
        ("dense column".into(), edge::dense_column(3_000, 7).csr().unwrap()),
        ("diagonal".into(), edge::diagonal(20_000).csr().unwrap()),
        ("chain".into(), edge::tridiagonal(20_000).csr().unwrap()),
        ("cycle of one direction".into(), edge::cyclic_shift(3_000).csr().unwrap()),
        ("pairs".into(), Triplets { rows: 15_000, cols: 15_000, entries: pairs }.csr().unwrap()),
        ("unsymmetric".into(), random(3_000, 3_000, 0.001, 4).csr().unwrap()),
        ("many neighbours".into(), random(2_000, 2_000, 0.03, 4).csr().unwrap()),
        ("stencil".into(), stencil7(24).csr().unwrap()),
        ("tetrahedra".into(), tetrahedra(30, matrices::Numbering::Shuffled(3)).csr().unwrap()),
        ("elasticity".into(), elasticity(12).csr().unwrap()),
        ("R-MAT".into(), rmat(12, 32_000).csr().unwrap()),
        ("circuit".into(), circuit(6_000, 900).csr().unwrap()),
        ("hubs".into(), hashed_circuit(6_000).csr().unwrap()),
    ]);
    for (name, a) in cases {
        // the last do not fit shared memory, nor most matrices one run
        for rows in [0, 1, 96, 1000, 5_000, 30_000] {
            alike(&gpu, &name, &a, rows);
        }
    }
}

/// As many vertices as keep every multiprocessor busy, whatever order that makes threads run in.
#[test]
fn large_meshes_are_numbered_as_on_the_host() {
    let Some(gpu) = gpu() else { return };
    for (name, rows) in [("p1_200k", 384), ("p1_10M_perm", 1248), ("el3_2M_perm", 768)] {
        alike(&gpu, name, &matrices::named(name).unwrap().csr().unwrap(), rows);
    }
    for name in ["heat_sink_p1_340k", "elast_bracket_p1_59k"] {
        match shared_matrix(name) {
            Some(path) => alike(&gpu, name, &krysp::io::read_matrix(path).unwrap(), 672),
            None => skipped(&format!("{name} is not beside this checkout")),
        }
    }
}

/// Rows of millions of entries say nothing about neighbourhoods.
#[test]
fn long_rows_are_numbered_as_on_the_host() {
    let Some(gpu) = gpu() else { return };
    alike(&gpu, "arrow", &edge::arrow(3_000_000).csr().unwrap(), 1024);
}

#[test]
fn rectangles_are_refused() {
    let Some(gpu) = gpu() else { return };
    let a = edge::empty(3, 4).csr::<f64>().unwrap();
    let refused = Numbering::clustered_on(&gpu, &a, 10);
    assert!(matches!(refused, Err(Error::NotSquare { rows: 3, cols: 4, .. })));
}
