//! Orderings computed on a GPU are identical to those of the host.

use super::gpu;
use krysp::formats::OnDevice;
use krysp::testing::laws;
use krysp::testing::matrices::{
    self, Triplets, circuit, edge, elasticity, hashed_circuit, random, rmat, stencil7, tetrahedra,
};
use krysp::testing::needed_matrix;
use krysp::{Csr, Cuda, Error, Halo, LinearOperator, Permutation, Sell, Space};

fn alike(gpu: &Cuda, name: &str, a: &Csr<f64>, rows: usize) {
    let (host, device) = (Permutation::clustered(a, rows), Permutation::clustered_on(gpu, a, rows));
    assert!(host.unwrap() == device.unwrap(), "{name}, {rows} rows");
}

gpu_test!(every_square_graph_is_numbered_as_on_the_host);
/// Graphs with isolated vertices, with a vertex adjacent to all others, with edges in one direction, hubs, clusters of
/// clusters, and nodes of three unknowns.
fn every_square_graph_is_numbered_as_on_the_host() {
    let gpu = gpu();
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
        ("tetrahedra".into(), tetrahedra(30, matrices::NodeOrder::Shuffled(3)).csr().unwrap()),
        ("elasticity".into(), elasticity(12).csr().unwrap()),
        ("R-MAT".into(), rmat(12, 32_000).csr().unwrap()),
        ("circuit".into(), circuit(6_000, 900).csr().unwrap()),
        ("hubs".into(), hashed_circuit(6_000).csr().unwrap()),
    ]);
    for (name, a) in cases {
        // runs of the last lengths do not fit in shared memory, and exceed the number of rows of most of these matrices
        for rows in [0, 1, 96, 1000, 5_000, 30_000] {
            alike(&gpu, &name, &a, rows);
        }
    }
}

gpu_test!(large_meshes_are_numbered_as_on_the_host);
/// Enough vertices to keep every multiprocessor busy, so that threads run in changing orders.
fn large_meshes_are_numbered_as_on_the_host() {
    let gpu = gpu();
    for (name, rows) in [("p1_200k", 384), ("p1_10M_perm", 1248), ("el3_2M_perm", 768)] {
        alike(&gpu, name, &matrices::named(name).unwrap().csr().unwrap(), rows);
    }
    for name in ["heat_sink_p1_340k", "elast_bracket_p1_59k"] {
        if let Some(path) = needed_matrix(name) {
            alike(&gpu, name, &krysp::io::read_matrix(path).unwrap(), 672);
        }
    }
}

gpu_test!(long_rows_are_numbered_as_on_the_host);
/// Very long rows are treated as empty, as on the host.
fn long_rows_are_numbered_as_on_the_host() {
    let gpu = gpu();
    alike(&gpu, "arrow", &edge::arrow(3_000_000).csr().unwrap(), 1024);
}

gpu_test!(rectangles_are_refused);
fn rectangles_are_refused() {
    let gpu = gpu();
    let a = edge::empty(3, 4).csr::<f64>().unwrap();
    let refused = Permutation::clustered_on(&gpu, &a, 10);
    assert!(matches!(refused, Err(Error::NotSquare { rows: 3, cols: 4, .. })));
}

/// Checks that the matrix and its products, before and after a refresh, equal those of the matrix reordered on the host.
fn reordered_alike<F: OnDevice<f64>>(gpu: &Cuda, name: &str, a: &Csr<f64>, rows: usize) {
    let permutation = Permutation::clustered(a, rows).unwrap();
    let reordered = a.reordered(&permutation).unwrap();
    let mut there = F::on_reordered(gpu, a, &permutation).unwrap();
    let mut here = F::on(gpu, &reordered).unwrap();
    let twice = |a: &Csr<f64>| a.entries().iter().map(|value| 2.0 * value).collect::<Vec<_>>();
    let x = laws::numbers::<f64>(a.cols(), 3);
    for turn in 0..3 {
        let [one, other] = [&there, &here].map(|operator| {
            let x = operator.domain().vector(&x).unwrap();
            let mut y = operator.range().zeros().unwrap();
            operator.apply(&x, &mut y).unwrap();
            let mut found = vec![0.0; a.rows()];
            operator.range().store(&y, &mut found).unwrap();
            found
        });
        assert_eq!(one, other, "{name}, {}, turn {turn}", F::NAME);
        // each takes entries in the order of the matrix that it was built from
        for (operator, user) in [(&mut there, a), (&mut here, &reordered)] {
            match turn {
                0 => operator.refresh(&twice(user)).unwrap(),
                _ => {
                    let values = gpu.space(a.nnz()).vector(user.entries()).unwrap();
                    operator.refresh_from_device(&values).unwrap();
                }
            }
        }
    }
    assert!(there.to_csr().unwrap().triplets().eq(here.to_csr().unwrap().triplets()), "{name}, {}", F::NAME);
}

gpu_test!(reordering_on_the_gpu_equals_reordering_on_the_host);
fn reordering_on_the_gpu_equals_reordering_on_the_host() {
    let gpu = gpu();
    let hub = 3_000u32;
    let spokes = (1..hub).flat_map(|i| [(0, i, 1.0 + f64::from(i)), (i, 0, 2.0), (i, i, 3.0)]);
    let cases: Vec<(&str, Csr<f64>)> = vec![
        ("nothing", edge::empty(0, 0).csr().unwrap()),
        ("one", edge::diagonal(1).csr().unwrap()),
        ("tetrahedra", tetrahedra(20, matrices::NodeOrder::Shuffled(3)).csr().unwrap()),
        ("elasticity", elasticity(10).csr().unwrap()),
        ("unsymmetric", random(3_000, 3_000, 0.001, 4).csr().unwrap()),
        ("rows of many lengths", rmat(11, 16_000).csr().unwrap()),
        ("a row too long", Triplets { rows: 3_000, cols: 3_000, entries: spokes.collect() }.csr().unwrap()),
    ];
    for (name, a) in cases {
        reordered_alike::<Sell<f64>>(&gpu, name, &a, 480);
        reordered_alike::<Csr<f64>>(&gpu, name, &a, 480);
        if Halo::on(&gpu, &a).is_ok() {
            reordered_alike::<Halo<f64>>(&gpu, name, &a, 480);
        }
    }
    // a matrix that already has an ordering
    let a = tetrahedra(12, matrices::NodeOrder::Shuffled(3)).csr::<f64>().unwrap();
    let first = a.reordered(&Permutation::by_length(&a).unwrap()).unwrap();
    let second = Permutation::clustered(&a, 100).unwrap();
    let twice = Halo::on_reordered(&gpu, &first, &second).unwrap().to_csr().unwrap();
    assert!(twice.triplets().eq(a.reordered(&second).unwrap().triplets()));
    let short = Permutation::clustered(&edge::diagonal(5).csr::<f64>().unwrap(), 2).unwrap();
    assert!(matches!(Halo::on_reordered(&gpu, &a, &short), Err(Error::Length { got: 5, .. })));
}
