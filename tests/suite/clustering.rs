//! Clustered orderings are valid on every graph and have runs with small halos; they and RCM do not depend on the number
//! of threads.

use krysp::partition::halo;
use krysp::testing::matrices::{
    self, Matrix, Triplets, circuit, edge, elasticity, hashed_circuit, random, rmat, stencil7, tetrahedra,
};
use krysp::testing::needed_matrix;
use krysp::{Csr, Error, Permutation};

fn on_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

fn shuffled_tetrahedra(side: usize) -> Csr<f64> {
    tetrahedra(side, matrices::NodeOrder::Shuffled(5)).csr().unwrap()
}

/// The halo per row after reordering, for blocks of `rows` rows.
fn halo_with(a: &Csr<f64>, permutation: &Permutation, rows: usize) -> f64 {
    halo(&a.reordered(permutation).unwrap(), rows).per_row
}

/// Isolated vertices and isolated pairs of vertices.
fn scattered(pairs: usize) -> Triplets {
    let both_ways = |i: u32| [(3 * i, 3 * i + 1, 1.0), (3 * i + 1, 3 * i, 1.0)];
    let entries = (0..pairs as u32).flat_map(both_ways).collect();
    Triplets { rows: 3 * pairs, cols: 3 * pairs, entries }
}

/// `Permutation` itself checks that it is a permutation, so the test only compares results.
#[test]
fn orderings_do_not_depend_on_the_number_of_threads() {
    let named = |name: &str, matrix: Matrix| (name.to_owned(), matrix.csr::<f64>().unwrap());
    let from = |(name, t): (String, Triplets)| (name, t.csr::<f64>().unwrap());
    let edge_cases = edge::edge_cases().into_iter().map(from).filter(|(_, a)| a.rows() == a.cols());
    let cases = edge_cases.chain([
        from(("arrow".into(), edge::arrow(5_000))),
        from(("dense column".into(), edge::dense_column(3_000, 7))),
        from(("diagonal".into(), edge::diagonal(20_000))),
        from(("chain".into(), edge::tridiagonal(20_000))),
        from(("cycle of one direction".into(), edge::cyclic_shift(3_000))),
        from(("pairs and singles".into(), scattered(5_000))),
        from(("unsymmetric".into(), random(3_000, 3_000, 0.001, 4))),
        named("stencil", stencil7(24)),
        named("tetrahedra", tetrahedra(18, matrices::NodeOrder::Shuffled(3))),
        named("elasticity", elasticity(8)),
        named("R-MAT", rmat(11, 16_000)),
        named("circuit", circuit(6_000, 900)),
        // its levels have up to 1,800 vertices
        named("wide stencil", stencil7(50)),
        named("hubs", hashed_circuit(6_000)),
    ]);
    for (name, a) in cases {
        let rcm = || Permutation::rcm(&a).unwrap();
        let one = on_threads(1, rcm);
        for threads in [2, 3, 7] {
            assert!(on_threads(threads, rcm) == one, "{name}, RCM, {threads} threads");
        }
        for rows in [1, 100, 1000] {
            let number = || Permutation::clustered(&a, rows).unwrap();
            let permutation = on_threads(1, number);
            assert_eq!(permutation.len(), a.rows(), "{name}");
            for threads in [2, 5] {
                assert_eq!(
                    on_threads(threads, number),
                    permutation,
                    "{name}, {rows} rows, {threads} threads"
                );
            }
        }
    }
}

#[test]
fn rectangles_are_refused() {
    let a = edge::empty(3, 4).csr::<f64>().unwrap();
    assert!(matches!(Permutation::clustered(&a, 10), Err(Error::NotSquare { rows: 3, cols: 4, .. })));
}

#[test]
fn unknowns_of_a_node_stay_together() {
    let a = elasticity(9).csr::<f64>().unwrap();
    let permutation = Permutation::clustered(&a, 300).unwrap();
    for node in permutation.old_of_new().chunks(3) {
        assert!(node[0].is_multiple_of(3) && node[1] == node[0] + 1 && node[2] == node[0] + 2, "{node:?}");
    }
}

/// For comparison: METIS 5.2 (recursive bisection) reaches a halo of 0.528 per row on such a mesh, reverse
/// Cuthill-McKee 1.86.
#[test]
fn runs_of_a_shuffled_mesh_are_compact() {
    let a = shuffled_tetrahedra(40);
    let clustered = Permutation::clustered(&a, 1024).unwrap();
    let found = halo_with(&a, &clustered, 1024);
    let rcm = halo_with(&a, &Permutation::rcm(&a).unwrap(), 1024);
    println!("{found} {rcm}");
    assert!(found < 0.6, "{found}");
    assert!(found < 0.4 * rcm, "{found} {rcm}");
    // the largest halo of a block is small, too
    let largest = halo(&a.reordered(&clustered).unwrap(), 1024).largest;
    assert!(largest < 1024, "{largest}");
    // blocks of other lengths than the runs have small halos, too
    for rows in [512, 1536, 2048] {
        let (other, rcm) =
            (halo_with(&a, &clustered, rows), halo_with(&a, &Permutation::rcm(&a).unwrap(), rows));
        assert!(other < 0.75 * rcm, "{rows}: {other} {rcm}");
    }
}

#[test]
fn disconnected_graphs_are_cut_between_components() {
    // 40 disconnected cubes of 5³ nodes, with shuffled numbers
    let cube = stencil7(5).to_triplets();
    let mut entries = vec![];
    for copy in 0..40 {
        let place = |i: u32| (i as usize) * 40 + copy;
        entries.extend(cube.entries.iter().map(|&(i, j, value)| (place(i), place(j), value)));
    }
    let a = Csr::from_triplets(5000, 5000, &entries).unwrap();
    let found = halo_with(&a, &Permutation::clustered(&a, 1000).unwrap(), 1000);
    println!("{found}");
    assert!(found < 0.02, "{found}");
}

#[test]
fn a_run_of_a_chain_has_two_neighbours() {
    let a = edge::tridiagonal(100).csr::<f64>().unwrap();
    let halo = halo(&a, 10);
    assert_eq!((halo.largest, halo.per_row), (2, 0.18));
}

/// For comparison: METIS 5.2 (recursive bisection) reaches halos of 0.207 and 0.539 per row.
#[test]
fn runs_of_real_meshes_are_compact() {
    for (name, bound) in [("heat_sink_p1_27k", 0.24), ("elast_bracket_p1_59k", 0.66)] {
        let Some(path) = needed_matrix(name) else { continue };
        let a: Csr<f64> = krysp::io::read_matrix(path).unwrap();
        let found = halo_with(&a, &Permutation::clustered(&a, 1024).unwrap(), 1024);
        println!("{name} {found}");
        assert!(found < bound, "{name}: {found}");
    }
}
