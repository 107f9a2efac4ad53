//! Tests of all generators: exact bits, symmetry, definiteness, counts, independence of the number of
//! threads.

use super::edge::{arrow, diagonal, tridiagonal};
use super::*;

/// A hash of every bit of a matrix.
fn fingerprint(matrix: &Matrix) -> u64 {
    let offsets = matrix.offsets.iter().copied();
    let columns = matrix.columns.iter().map(|&column| u64::from(column));
    let values = matrix.values.iter().map(|value| value.to_bits());
    offsets.chain(columns).chain(values).fold(mix(matrix.rows as u64), |hash, bits| mix(hash ^ bits))
}

fn small_matrices() -> Vec<(&'static str, Matrix)> {
    vec![
        ("hashed faces", hashed_mesh(Neighbours::Faces, 6, 1, 0)),
        ("hashed box", hashed_mesh(Neighbours::Box, 5, 3, 64)),
        ("hashed tetrahedra", hashed_mesh(Neighbours::Tetrahedra, 7, 1, 32)),
        ("hashed rmat", hashed_rmat(9, 8)),
        ("hashed circuit", hashed_circuit(3000)),
        ("stencil 7", stencil7(6)),
        ("stencil 27", stencil27(5)),
        ("elasticity", elasticity(4)),
        ("tetrahedra", tetrahedra(6, NodeOrder::Natural)),
        ("tetrahedra, shuffled", tetrahedra(6, NodeOrder::Shuffled(7))),
        ("rmat", rmat(9, 4000)),
        ("circuit", circuit(3000, 500)),
        ("eigenvalues", distinct_eigenvalues(50, 4)),
    ]
}

/// The constants come from the C++ generators of the bench prototypes, compiled without fused multiply-adds.
#[test]
fn small_matrices_equal_those_of_the_cpp_generators_bitwise() {
    let expected = [
        ("hashed faces", 1296, 0x7e74_6cfe_641b_843f),
        ("hashed box", 19_773, 0x79b5_2844_0423_1268),
        ("hashed tetrahedra", 4005, 0xab94_cb30_db00_bfdb),
        ("hashed rmat", 3706, 0x5099_f19d_c02f_3705),
        ("hashed circuit", 20_374, 0x0654_a3ea_acd3_28a5),
        ("stencil 7", 1296, 0x99a4_3709_11c1_c385),
        ("stencil 27", 2197, 0x0ff9_f3b4_8986_5da5),
        ("elasticity", 9000, 0xfe84_0d74_91a1_6b38),
        ("rmat", 3121, 0x3063_407d_c903_52aa),
        ("circuit", 15_318, 0x7c2f_2a0f_79b4_1220),
    ];
    let matrices = small_matrices();
    for (name, nnz, bits) in expected {
        let (_, matrix) = matrices.iter().find(|(other, _)| *other == name).unwrap();
        assert_eq!((matrix.nnz(), fingerprint(matrix)), (nnz, bits), "{name}");
    }
    let dominant = hashed_mesh(Neighbours::Tetrahedra, 7, 1, 32).diagonally_dominant();
    assert_eq!(fingerprint(&dominant), 0x2ba0_ef07_c33e_9ed8);
}

/// Fingerprints of the matrices at bench size: `cargo test --release -- --ignored named_matrices`.
#[test]
#[ignore = "gigabytes and a minute"]
fn named_matrices_equal_those_of_the_cpp_generators_bitwise() {
    let expected = [
        ("tiny_el3", 61_731, 0xc957_f963_3d4b_aa8c),
        ("p1_10M_perm", 9_695_179, 0x4b1e_c06b_9c7b_ab29),
        ("el3_10M_perm", 9_000_000, 0x489c_6504_4dea_291e),
        ("st27_10M_nat", 9_800_344, 0x52b1_16bb_2deb_3d1b),
        ("st7_128", 14_581_760, 0xb125_d447_708a_0eb9),
        ("rmat_2M", 2_073_755, 0xa741_ee50_ac25_6baf),
        ("circuit_1M", 1_359_203, 0xe2dc_115e_f904_3b75),
        ("circuit_25M", 20_821_822, 0xaf74_4655_899c_a4f7),
        ("el3_100M_perm", 95_832_000, 0x0e52_980b_713d_825c),
        ("p7_128", 14_581_760, 0xd8a2_6ad9_e50d_00c0),
        ("p27_80", 13_481_272, 0xb030_0840_7a3c_8a4f),
        ("elast55", 38_976_723, 0x4d32_2e00_98b3_5c89),
        ("rmat20", 8_664_042, 0x4ca3_5cf3_cb3e_16f9),
        ("circuit1m", 5_434_360, 0x89c4_7705_1116_8886),
    ];
    for (name, nnz, bits) in expected {
        let matrix = named(name).unwrap();
        assert_eq!((matrix.nnz(), fingerprint(&matrix)), (nnz, bits), "{name}");
    }
}

#[test]
fn matrices_do_not_depend_on_the_number_of_threads() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut matrices = small_matrices();
            // large enough for several tasks each
            matrices.push(("several tasks", hashed_mesh(Neighbours::Tetrahedra, 20, 1, 512)));
            matrices.push(("several jumps", rmat(12, 150_000)));
            matrices.iter().map(|(_, matrix)| fingerprint(matrix)).collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn rows_are_sorted_and_offsets_fit() {
    for (name, matrix) in small_matrices() {
        assert_eq!(matrix.offsets.len(), matrix.rows + 1, "{name}");
        assert_eq!(matrix.offsets[matrix.rows] as usize, matrix.nnz(), "{name}");
        assert_eq!(matrix.values.len(), matrix.nnz(), "{name}");
        for row in 0..matrix.rows {
            let (columns, _) = matrix.row(row);
            assert!(columns.windows(2).all(|pair| pair[0] < pair[1]), "{name}, row {row}");
            assert!(columns.last().is_none_or(|&last| (last as usize) < matrix.rows), "{name}, row {row}");
        }
    }
}

#[test]
fn small_and_degenerate_sizes_are_made() {
    for side in 0..3 {
        for neighbours in [Neighbours::Faces, Neighbours::Box, Neighbours::Tetrahedra] {
            assert_eq!(hashed_mesh(neighbours, side, 3, 4).rows, 3 * side * side * side);
        }
        assert_eq!(stencil7(side).rows, side * side * side);
        assert_eq!(elasticity(side).rows, 3 * side * side * side);
        assert_eq!(tetrahedra(side, NodeOrder::Shuffled(1)).rows, side * side * side);
    }
    for rows in [0, 1, 2, 5, 40, 700] {
        for matrix in [hashed_circuit(rows), circuit(rows, 3)] {
            assert_eq!(matrix.rows, rows);
            assert!(matrix.columns.iter().all(|&column| (column as usize) < rows));
        }
    }
    assert_eq!((rmat(0, 3).rows, rmat(0, 3).nnz()), (1, 1));
    assert_eq!(hashed_rmat(0, 3).nnz(), 1);
}

/// The largest difference between mirrored entries, relative to the largest entry. A missing entry counts as zero.
fn asymmetry(matrix: &Matrix) -> f64 {
    let largest = matrix.values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let mut worst = 0.0_f64;
    for (row, column, value) in matrix.to_triplets().entries {
        let (columns, values) = matrix.row(column as usize);
        let mirrored = columns.binary_search(&row).map_or(0.0, |at| values[at]);
        worst = worst.max((value - mirrored).abs());
    }
    worst / largest
}

#[test]
fn symmetric_families_are_symmetric() {
    for (name, matrix) in small_matrices() {
        let asymmetry = asymmetry(&matrix);
        match name {
            "hashed rmat" | "hashed circuit" | "rmat" | "circuit" => assert!(asymmetry > 0.0, "{name}"),
            "elasticity" => assert!(asymmetry < 1e-15, "{name}: {asymmetry}"),
            _ => assert_eq!(asymmetry, 0.0, "{name}"),
        }
    }
}

#[test]
fn the_circuit_has_a_symmetric_pattern() {
    let mut pattern = circuit(700, 50);
    pattern.values.fill(1.0);
    assert_eq!(asymmetry(&pattern), 0.0);
}

/// Returns whether a dense Cholesky factorization has only positive pivots.
fn is_positive_definite(matrix: &Triplets) -> bool {
    let n = matrix.rows;
    let mut a = vec![0.0; n * n];
    for &(row, column, value) in &matrix.entries {
        a[row as usize * n + column as usize] += value;
    }
    for k in 0..n {
        if a[k * n + k] <= 0.0 {
            return false;
        }
        for i in k + 1..n {
            let factor = a[i * n + k] / a[k * n + k];
            if factor != 0.0 {
                for j in k + 1..n {
                    a[i * n + j] -= factor * a[k * n + j];
                }
            }
        }
    }
    true
}

#[test]
fn positive_definite_families_are_positive_definite() {
    let dominant = |neighbours, unknowns| hashed_mesh(neighbours, 4, unknowns, 16).diagonally_dominant();
    let matrices = [
        ("stencil 7", stencil7(5)),
        ("stencil 27", stencil27(5)),
        ("elasticity", elasticity(4)),
        ("tetrahedra", tetrahedra(6, NodeOrder::Natural)),
        ("tetrahedra, shuffled", tetrahedra(5, NodeOrder::Shuffled(3))),
        ("dominant faces", dominant(Neighbours::Faces, 1)),
        ("dominant box", dominant(Neighbours::Box, 3)),
        ("dominant tetrahedra", dominant(Neighbours::Tetrahedra, 1)),
        ("eigenvalues", distinct_eigenvalues(50, 4)),
    ];
    for (name, matrix) in matrices {
        assert!(is_positive_definite(&matrix.to_triplets()), "{name}");
    }
    for n in [1, 2, 9, 65] {
        for matrix in [arrow(n), diagonal(n), tridiagonal(n)] {
            assert!(is_positive_definite(&matrix));
        }
    }
    let hashed = hashed_mesh(Neighbours::Box, 4, 1, 0);
    assert!(!is_positive_definite(&hashed.to_triplets()), "hence `diagonally_dominant`");
}

#[test]
fn counts_follow_from_the_meshes() {
    for n in [1, 2, 5, 8] {
        let cubed = |side: usize| side.pow(3);
        assert_eq!(stencil7(n).nnz(), 7 * cubed(n) - 6 * n * n);
        assert_eq!(stencil27(n).nnz(), cubed(3 * n - 2));
        assert_eq!(elasticity(n).nnz(), 9 * cubed(3 * n - 2));
        // The edges of the mesh, in both directions: along axes, face diagonals, space diagonals.
        let edges = 3 * n * n * (n - 1) + 3 * n * (n - 1) * (n - 1) + cubed(n - 1);
        assert_eq!(tetrahedra(n, NodeOrder::Natural).nnz(), cubed(n) + 2 * edges);
    }
}

/// The stiffness matrix maps constants to zero, and the mass matrix adds up to the volume of the unit cube.
#[test]
fn tetrahedra_fill_their_jittered_cube() {
    let matrix = tetrahedra(8, NodeOrder::Natural);
    let total: f64 = matrix.values.iter().sum();
    assert!((total - 1.0).abs() < 0.05, "{total}");
    let row_sums = matrix.to_triplets().product_reference(&vec![1.0; matrix.rows]).0;
    assert!(row_sums.iter().all(|&mass| mass > 0.0));
}

/// Translating all neighbours of an inner node needs no force: away from the clamped layer, each row sums to zero in
/// each direction.
#[test]
fn elasticity_resists_no_translation() {
    let side = 5;
    let matrix = elasticity(side);
    for direction in 0..3 {
        let shift: Vec<f64> = (0..matrix.rows).map(|i| if i % 3 == direction { 1.0 } else { 0.0 }).collect();
        let force = matrix.to_triplets().product_reference(&shift).0;
        let first_free = 3 * side * side;
        assert!(force[first_free..].iter().all(|f| f.abs() < 1e-14));
        assert!(force[..first_free].iter().any(|f| f.abs() > 1e-3));
    }
}

#[test]
fn shuffling_only_renumbers() {
    let sorted = |matrix: &Matrix| {
        let mut values = matrix.values.clone();
        values.sort_by(f64::total_cmp);
        values
    };
    let natural = tetrahedra(5, NodeOrder::Natural);
    let shuffled = tetrahedra(5, NodeOrder::Shuffled(9));
    assert_eq!(sorted(&natural), sorted(&shuffled));
    assert_ne!(natural, shuffled);
}
