//! Tests of the multifrontal and of the column-by-column factorization: against a dense one with full
//! pivoting, suspended and resumed, and bitwise equal on any number of threads.

use super::super::testing::{
    Random, backward_error, neumann, pivots, random, threads_and_vectors_change_no_bits,
};
use super::*;
use crate::error::Error;
use crate::saved::copied;
use crate::testing::matrices;
use krysp_kernels::cpu::simd::{Level, force};
use krysp_kernels::interrupt::Scope;
use krysp_solvers::Space;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether a row or a column has no entries.
fn has_empty(a: &Csr<f64>) -> bool {
    let mut columns = vec![true; a.cols()];
    a.columns().iter().for_each(|&column| columns[column as usize] = false);
    columns.contains(&true) || (0..a.rows()).any(|row| a.row_columns(row).is_empty())
}

fn factorized(a: &Csr<f64>, by_fronts: Option<bool>, pivoting: Pivoting) -> Result<Lu<f64>> {
    let mut partial = PartialLu::of(
        a,
        Prepared::new(a)?,
        Budget::new(NAME, DirectOptions::default(), a.rows()),
        pivoting,
        by_fronts,
        None,
    )?;
    partial.go_on(a, f64::INFINITY)?;
    Ok(partial.whole())
}

#[test]
fn random_structures_are_solved_or_called_singular() {
    compare_random_structures(1500);
}

#[test]
#[ignore = "takes long"]
fn many_random_structures_are_solved_or_called_singular() {
    compare_random_structures(10_000);
}

fn compare_random_structures(cases: usize) {
    let mut source = Random(0x1234_5678_9abc_def1);
    let (mut solved, mut refused) = (0, 0);
    for case in 0..cases {
        let (n, entries) = random(&mut source);
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let (least, first) = pivots(&a);
        let b: Vec<f64> = (0..n).map(|_| source.number()).collect();
        for by_fronts in [true, false] {
            let label = format!("case {case}, fronts: {by_fronts}, {n} rows, pivots {least:e} to {first:e}");
            match factorized(&a, Some(by_fronts), Pivoting::Regular) {
                Ok(lu) => {
                    // rounding may hide that a matrix is singular, but not that a row or column is empty
                    assert!(!has_empty(&a), "{label}: not called singular");
                    let error = backward_error(&a, &lu, &b);
                    assert!(error <= 1e-14, "{label}: backward error {error:e}");
                    solved += 1;
                }
                Err(Error::Singular { column, .. }) => {
                    assert!(column < n && least <= 1e-12 * first, "{label}: called singular");
                    refused += 1;
                }
                Err(error) => panic!("{label}: {error}"),
            }
        }
    }
    assert!(solved > 1000 && refused > 100, "{solved} solved, {refused} refused");
}

#[test]
fn neumann_problems_are_singular() {
    for a in [neumann([12, 15, 1]), neumann([6, 5, 7]), neumann([200, 1, 1])] {
        for by_fronts in [true, false] {
            let label = format!("{} rows, fronts: {by_fronts}", a.rows());
            let refused = factorized(&a, Some(by_fronts), Pivoting::Regular).map(|lu| lu.nnz());
            assert!(matches!(refused, Err(Error::Singular { .. })), "{label}: {refused:?}");
            let tolerant = factorized(&a, Some(by_fronts), Pivoting::Tolerant).unwrap();
            assert_eq!(tolerant.missing(), 1, "{label}");
        }
    }
}

#[test]
fn columns_of_very_different_size_are_not_taken_for_dependent() {
    // in the scale of its rows, the pivot of the first or second column is rounding; with a matching it is not
    let entries =
        [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0), (1, 2, 1e14), (2, 1, 1.0), (2, 2, 2e14)];
    let a = Csr::from_triplets(3, 3, &entries).unwrap();
    let lu = factorized(&a, Some(false), Pivoting::Tolerant).unwrap();
    assert!(lu.missing() == 0 && lu.matched.is_some());
    let (x, mut b) = (vec![1.0; 3], a.range().zeros().unwrap());
    a.apply(&a.domain().vector(&x).unwrap(), &mut b).unwrap();
    let error = backward_error(&a, &lu, b.as_slice());
    assert!(error < 1e-14, "{error:e}");
}

#[test]
fn repeated_rows_and_columns_are_not_delayed() {
    let a = mesh(10, false);
    let nine = |(i, j, v): (usize, usize, f64)| (0..9).map(move |at| (3 * i + at / 3, 3 * j + at % 3, v));
    let n = 3 * a.rows();
    let repeated = Csr::from_triplets(n, n, &a.triplets().flat_map(nine).collect::<Vec<_>>()).unwrap();
    let refused = factorized(&repeated, Some(true), Pivoting::Regular).map(|lu| lu.nnz());
    assert!(matches!(refused, Err(Error::Singular { .. })), "{refused:?}");
    let lu = factorized(&repeated, Some(true), Pivoting::Tolerant).unwrap();
    let Factors::Fronts { tree, .. } = &lu.factors else { panic!("columns") };
    assert!(tree.steps().len() > 8 && lu.missing() == 2 * a.rows());
    // three rows instead of one below each pivot
    let single = factorized(&a, Some(true), Pivoting::Regular).unwrap();
    assert!(lu.nnz() < 4 * single.nnz(), "{} {}", lu.nnz(), single.nnz());
    let (x, mut b) = (vec![1.0; n], repeated.range().zeros().unwrap());
    repeated.apply(&repeated.domain().vector(&x).unwrap(), &mut b).unwrap();
    let error = backward_error(&repeated, &lu, b.as_slice());
    assert!(error < 1e-14, "{error:e}");
    let unreachable = lu.unreachable(&b, f64::EPSILON).unwrap();
    let most = unreachable.as_slice().iter().fold(0.0f64, |most, v| most.max(v.abs()));
    assert!(most <= 1e-10, "{most:e}");
    // of three equal rows one has a larger right-hand side: what is orthogonal to the range adds up to zero
    b.as_mut_slice()[0] += 3.0;
    let unreachable = lu.unreachable(&b, f64::EPSILON).unwrap();
    for (row, expected) in [2.0, -1.0, -1.0, 0.0].into_iter().enumerate() {
        assert!(
            (unreachable.as_slice()[row] - expected).abs() < 1e-10,
            "{row}: {}",
            unreachable.as_slice()[row]
        );
    }
}

#[test]
fn consistent_singular_systems_are_solved() {
    let mut source = Random(0x2545_f491_4f6c_dd1d);
    let mut deficient = 0;
    for case in 0..400 {
        let (n, entries) = random(&mut source);
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let (x, mut b): (Vec<f64>, _) =
            ((0..n).map(|_| source.number()).collect(), a.range().zeros().unwrap());
        a.apply(&a.domain().vector(&x).unwrap(), &mut b).unwrap();
        let any = a.range().vector(&x).unwrap();
        let (mut projections, mut ranks) = (vec![], vec![]);
        for by_fronts in [true, false] {
            let lu = factorized(&a, Some(by_fronts), Pivoting::Tolerant).unwrap();
            let error = backward_error(&a, &lu, b.as_slice());
            assert!(error <= 1e-13, "case {case}, fronts: {by_fronts}: backward error {error:e}");
            deficient += lu.missing();
            ranks.push(n - lu.missing());
            // a vector in the range of A has no component in the left null space
            let unreachable = lu.unreachable(&b, f64::EPSILON).unwrap();
            let most = unreachable.as_slice().iter().fold(0.0f64, |most, v| most.max(v.abs()));
            assert!(most <= 1e-8, "case {case}, fronts: {by_fronts}: {most:e}");
            projections.push(lu.unreachable(&any, f64::EPSILON).unwrap().as_slice().to_vec());
        }
        // the projection of any vector on the left null space does not depend on the factors, unless rounding errors or tiny entries make
        // the rank unclear
        let clear = ranks[0] == ranks[1] && entries.iter().all(|&(_, _, value)| value.abs() > 1e-8);
        for (by_fronts, by_columns) in projections[0].iter().zip(&projections[1]).filter(|_| clear) {
            assert!((by_fronts - by_columns).abs() <= 1e-7, "case {case}: {by_fronts} {by_columns}");
        }
    }
    assert!(deficient > 100, "{deficient}");
}

/// Number of entries of the factors, and the result of a solve.
fn applied(lu: &Lu<f64>) -> (usize, Vec<f64>) {
    let b: Vec<f64> = (0..lu.space.len()).map(|i| (i as f64).sin()).collect();
    let mut x = lu.space.zeros().unwrap();
    lu.apply(&lu.space.vector(&b).unwrap(), &mut x).unwrap();
    (lu.nnz(), x.as_slice().to_vec())
}

/// Unsymmetric matrix of a 3D grid, with a stored zero diagonal if `zero_diagonal`.
fn mesh(side: usize, zero_diagonal: bool) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let n = stencil.rows();
    let value = |i: usize, j: usize, v: f64| {
        if i == j && zero_diagonal { 0.0 } else { v * (1.0 + 0.3 * ((i * 7 + j) % 5) as f64) }
    };
    let entries: Vec<_> = stencil.triplets().map(|(i, j, v)| (i, j, value(i, j, v))).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

#[test]
fn a_known_ordering_is_used_by_columns_and_fronts() {
    for a in [mesh(5, false), mesh(12, false)] {
        let nnz = |order: Option<&[u32]>| {
            let mut partial = PartialLu::tolerant(&a, order).unwrap();
            partial.go_on(&a, f64::INFINITY).unwrap();
            partial.whole().nnz()
        };
        let ordered = crate::preconditioners::Symbolic::new(&a, DirectOptions::default()).unwrap();
        let natural: Vec<u32> = (0..a.rows() as u32).collect();
        let (own, known) = (nnz(None), nnz(Some(ordered.order())));
        assert!(
            known as f64 <= 1.1 * own as f64 && nnz(Some(&natural)) as f64 > 1.2 * own as f64,
            "{own} {known}"
        );
    }
}

#[test]
fn suspended_factorizations_end_with_the_same_factors() {
    let _one_level = force(Level::best());
    let shifted =
        mesh(6, false).triplets().map(|(i, j, value)| (i, (j + 1) % 216, value)).collect::<Vec<_>>();
    for (a, by_fronts) in [
        (mesh(6, false), Some(false)),
        (Csr::from_triplets(216, 216, &shifted).unwrap(), Some(false)),
        (mesh(8, false), Some(true)),
        (mesh(7, true), None),
    ] {
        let budget = Budget::new(NAME, DirectOptions::default(), a.rows());
        let mut partial =
            PartialLu::of(&a, Prepared::new(&a).unwrap(), budget, Pivoting::Tolerant, by_fronts, None)
                .unwrap();
        let mut suspended = 0;
        while !partial.go_on(&a, 1000.0).unwrap() {
            suspended += 1;
        }
        assert!(suspended > 5, "{suspended}");
        let whole = factorized(&a, by_fronts, Pivoting::Tolerant).unwrap();
        assert_eq!(applied(&partial.whole()), applied(&whole));
    }
}

#[test]
fn a_failed_refresh_keeps_the_factors() {
    let a = mesh(6, false);
    for by_fronts in [true, false] {
        let mut lu = factorized(&a, Some(by_fronts), Pivoting::Regular).unwrap();
        let expected = applied(&lu);
        // the column of zeros fails after others have been eliminated
        let values: Vec<f64> = a.triplets().map(|(_, j, v)| if j == 100 { 0.0 } else { 2.0 * v }).collect();
        let singular = a.with_values(&values).unwrap();
        assert!(matches!(lu.refresh(&singular), Err(Error::Singular { .. })), "fronts: {by_fronts}");
        assert!(applied(&lu) == expected, "fronts: {by_fronts}");
    }
}

/// A grid with a full row and column, whose entries fronts look up by a search.
#[test]
fn a_full_row_and_column_are_assembled_by_fronts() {
    let grid = matrices::stencil7(7).csr::<f64>().unwrap();
    let n = grid.rows();
    let mut triplets: Vec<(usize, usize, f64)> = grid.triplets().collect();
    triplets.extend((0..n).flat_map(|i| [(i, n, 1.0 + i as f64 / 500.0), (n, i, -0.5 + i as f64 / 300.0)]));
    triplets.push((n, n, 3.0));
    let a = Csr::from_triplets(n + 1, n + 1, &triplets).unwrap();
    let lu = factorized(&a, Some(true), Pivoting::Regular).unwrap();
    assert!(matches!(lu.factors, Factors::Fronts { .. }));
    let b: Vec<f64> = (0..=n).map(|i| (i % 7) as f64 - 3.0).collect();
    let error = backward_error(&a, &lu, &b);
    assert!(error < 1e-15, "{error}");
}

#[test]
fn threads_and_vectors_change_no_bits_of_fronts() {
    for zero_diagonal in [false, true] {
        let a = mesh(12, zero_diagonal);
        let build = || factorized(&a, Some(true), Pivoting::Tolerant).unwrap();
        let Factors::Fronts { tree, .. } = &build().factors else { panic!("columns") };
        assert!(!tree.top.is_empty());
        threads_and_vectors_change_no_bits(build, |lu| {
            let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64).cos()).collect();
            let mut x = lu.space.zeros().unwrap();
            lu.apply_transposed(&lu.space.vector(&b).unwrap(), &mut x).unwrap();
            x.as_slice().to_vec()
        });
    }
}

#[test]
fn transposed_solves_invert_the_transpose() {
    let shifted: Vec<_> = mesh(6, false).triplets().map(|(i, j, value)| ((i + 5) % 216, j, value)).collect();
    for a in [mesh(6, false), mesh(6, true), Csr::from_triplets(216, 216, &shifted).unwrap()] {
        for by_fronts in [true, false] {
            let lu = factorized(&a, Some(by_fronts), Pivoting::Regular).unwrap();
            let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64).cos()).collect();
            let mut x = lu.space.zeros().unwrap();
            lu.apply_transposed(&lu.space.vector(&b).unwrap(), &mut x).unwrap();
            let mut product = vec![0.0; b.len()];
            a.triplets().for_each(|(i, j, v)| product[j] += v * x.as_slice()[i]);
            let most = x.as_slice().iter().fold(1.0f64, |most, x| most.max(x.abs()));
            assert!(product.iter().zip(&b).all(|(one, other)| (one - other).abs() < 1e-12 * most));
        }
    }
}

#[test]
fn weak_diagonals_with_little_fill_are_eliminated_by_columns() {
    // a chain whose every third diagonal entry is zero
    let n = 300;
    let entry =
        |i: usize, j: usize| if i == j && i.is_multiple_of(3) { 0.0 } else { 1.0 + ((i + 2 * j) % 7) as f64 };
    let near = (0..n).flat_map(|i: usize| (i.saturating_sub(2)..n.min(i + 3)).map(move |j| (i, j)));
    let entries: Vec<_> = near.map(|(i, j)| (i, j, entry(i, j))).collect();
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let mut lu = factorized(&a, None, Pivoting::Regular).unwrap();
    assert!(matches!(lu.factors, Factors::Columns { .. }));
    let b: Vec<f64> = (0..n).map(|i| ((i * i) % 11) as f64 - 5.0).collect();
    assert!(backward_error(&a, &lu, &b) <= 1e-14);
    let doubled =
        Csr::from_triplets(n, n, &a.triplets().map(|(i, j, v)| (i, j, 2.0 * v)).collect::<Vec<_>>());
    lu.refresh(doubled.as_ref().unwrap()).unwrap();
    assert!(backward_error(doubled.as_ref().unwrap(), &lu, &b) <= 1e-14);
}

/// Matrix with these sizes of diagonal blocks and with entries above them, in permuted rows and columns.
/// Values are `value(row, column, random number)`, indices before the permutation.
fn block_triangular(sizes: &[usize], value: impl Fn(usize, usize, f64) -> f64) -> Csr<f64> {
    let mut source = Random(0x3141_5926_5358_9793);
    let n: usize = sizes.iter().sum();
    let (mut entries, mut start) = (vec![], 0);
    for &size in sizes {
        for j in start..start + size {
            let next = start + (j + 1 - start) % size;
            let inside = [j, next, start + source.below(size)];
            let above = (0..2).filter(|_| start > 0).map(|_| source.below(start.max(1))).collect::<Vec<_>>();
            entries.extend(inside.into_iter().chain(above).map(|i| (i, j)));
        }
        start += size;
    }
    entries.sort_unstable();
    entries.dedup();
    let place = |at: usize, step: usize| (at * step + 11) % n;
    let entries: Vec<_> =
        entries.into_iter().map(|(i, j)| (place(i, 7), place(j, 13), value(i, j, source.number()))).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Number of diagonal blocks.
fn blocks(lu: &Lu<f64>) -> usize {
    match &lu.factors {
        Factors::Columns { factors, .. } => factors.blocks.len() - 1,
        Factors::Fronts { .. } => 1,
    }
}

#[test]
fn only_diagonal_blocks_are_factorized() {
    let sizes = [1, 40, 1, 1, 3, 90, 1, 25, 1, 2];
    let value = |i: usize, j: usize, number: f64| number + if i == j { 0.1 } else { 0.0 };
    let (a, scaled) = (
        block_triangular(&sizes, value),
        block_triangular(&sizes, |i, j, number| value(i, j, number) * (1.0 + ((3 * i + j) % 5) as f64)),
    );
    let mut lu = factorized(&a, None, Pivoting::Regular).unwrap();
    assert_eq!(blocks(&lu), sizes.len());
    let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64).cos()).collect();
    let check = |lu: &Lu<f64>, a: &Csr<f64>| {
        assert!(backward_error(a, lu, &b) <= 1e-14);
        let mut x = lu.space.zeros().unwrap();
        lu.apply_transposed(&lu.space.vector(&b).unwrap(), &mut x).unwrap();
        let mut product = vec![0.0; b.len()];
        a.triplets().for_each(|(i, j, v)| product[j] += v * x.as_slice()[i]);
        let most = x.as_slice().iter().fold(1.0f64, |most, x| most.max(x.abs()));
        assert!(product.iter().zip(&b).all(|(one, other)| (one - other).abs() < 1e-12 * most));
    };
    check(&lu, &a);
    // outside of the blocks, factors have only entries of the matrix
    let most: usize = sizes.iter().map(|size| size * size).sum();
    assert!(lu.nnz() <= most + a.nnz(), "{} entries", lu.nnz());
    assert!(applied(&copied(&lu).unwrap()) == applied(&lu));
    let expected = applied(&lu);
    lu.refresh(&scaled).unwrap();
    check(&lu, &scaled);
    lu.refresh(&a).unwrap();
    assert_eq!(applied(&lu).0, expected.0);
    check(&lu, &a);
    let mut partial =
        PartialLu::with(&a, Budget::new(NAME, DirectOptions::default(), a.rows()), Pivoting::Regular)
            .unwrap();
    let mut suspended = 0;
    while !partial.go_on(&a, 200.0).unwrap() {
        suspended += 1;
    }
    assert!(suspended > 5 && applied(&partial.whole()) == expected, "{suspended}");
    // the null space is computed from factors of the whole matrix
    assert_eq!(blocks(&factorized(&a, None, Pivoting::Tolerant).unwrap()), 1);
}

#[test]
fn blocks_are_found_where_diagonal_entries_are_missing() {
    // full blocks with three columns, coupled above the diagonal; the first block has one diagonal entry
    let block =
        |k: usize| (0..9).map(move |at| (3 * k + at / 3, 3 * k + at % 3, 1.0 + ((at * at + k) % 7) as f64));
    let above = (1..80).map(|k| (3 * k - 3, 3 * k, 0.5));
    let entries = (0..80).flat_map(block).chain(above).filter(|&(i, j, _)| i != j || i > 1);
    let a = Csr::from_triplets(240, 240, &entries.collect::<Vec<_>>()).unwrap();
    let lu = factorized(&a, None, Pivoting::Regular).unwrap();
    assert!(lu.matched.is_none());
    assert_eq!(blocks(&lu), 80);
    let b: Vec<f64> = (0..240).map(|i| (i as f64).cos()).collect();
    assert!(backward_error(&a, &lu, &b) <= 1e-14);
}

#[test]
fn a_tree_with_one_dense_block_is_eliminated_by_columns() {
    // a full block, and chains of 90 variables that end in its variables
    let (full, all) = (200, 200 * 91);
    let block = (0..full).flat_map(|i| (0..full).map(move |j| (i, j, if i == j { 300.0 } else { 1.0 })));
    let chain = (full..all).flat_map(|i| [(i, i, 3.0), (i, i - full, 1.0), (i - full, i, 1.0)]);
    let a = Csr::from_triplets(all, all, &block.chain(chain).collect::<Vec<_>>()).unwrap();
    // the block alone has enough multiplications for fronts
    let of_block: usize = (1..=full).map(|length| length * length).sum();
    assert!(of_block > 40 * (full * (full + 1) / 2 + 2 * (all - full)));
    let lu = factorized(&a, None, Pivoting::Regular).unwrap();
    assert!(matches!(lu.factors, Factors::Columns { .. }));
}

#[test]
fn a_singular_block_is_reported_with_one_of_its_columns() {
    // columns of the third block sum to zero
    let value = |i: usize, j: usize, number: f64| match ((40..43).contains(&i), (40..43).contains(&j)) {
        (true, true) if i == j => 1.0,
        (true, true) => {
            if (i + 2) % 3 == j % 3 {
                -1.0
            } else {
                0.0
            }
        }
        _ => number + if i == j { 2.0 } else { 0.0 },
    };
    let a = block_triangular(&[1, 39, 3, 50], value);
    let Err(Error::Singular { column, .. }) = factorized(&a, None, Pivoting::Regular) else { panic!() };
    assert!((40..43).any(|j| (j * 13 + 11) % 93 == column), "{column}");
}

#[test]
fn a_refresh_computes_at_most_one_matching() {
    // a ring with a zero diagonal, in which each row is matched to its larger neighbour
    let ring = |next: f64, last: f64| {
        let entries = (0..12).flat_map(|i| [(i, i, 0.0), (i, (i + 1) % 12, next), (i, (i + 11) % 12, last)]);
        Csr::from_triplets(12, 12, &entries.collect::<Vec<_>>()).unwrap()
    };
    let (scope, count) = (Arc::new(OnceLock::<Scope>::new()), Arc::new(AtomicUsize::new(0)));
    let polled = (scope.clone(), count.clone());
    let counting = Scope::new(move || {
        let progress = polled.0.get().and_then(Scope::progress);
        let matching = progress.is_some_and(|progress| progress.phase == "maximum-product matching");
        polled.1.fetch_add(usize::from(matching), Ordering::Relaxed);
        false
    });
    scope.set(counting.clone()).unwrap();
    counting.run(|| {
        let mut lu = factorized(&ring(3.0, 1.0), Some(true), Pivoting::Regular).unwrap();
        let (first, matched) = (count.swap(0, Ordering::Relaxed), lu.matched.clone());
        assert!(matched.is_some());
        lu.refresh(&ring(1.0, 3.0)).unwrap();
        assert!(lu.matched != matched);
        assert_eq!(count.swap(0, Ordering::Relaxed), first);
        // column by column, the pivots of a transversal are large enough, also those of a refresh
        let mut lu = factorized(&ring(3.0, 1.0), Some(false), Pivoting::Regular).unwrap();
        lu.refresh(&ring(6.0, 2.0)).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_refresh_with_the_same_values_changes_no_bit_of_columns() {
    let shifted =
        mesh(6, false).triplets().map(|(i, j, value)| (i, (j + 1) % 216, value)).collect::<Vec<_>>();
    for a in [mesh(6, false), mesh(6, true), Csr::from_triplets(216, 216, &shifted).unwrap()] {
        let mut lu = factorized(&a, Some(false), Pivoting::Regular).unwrap();
        let Factors::Columns { factors, .. } = &lu.factors else { panic!("fronts") };
        // the last columns of `L` share their pattern (a supernode), so `continued` is true for them
        let continued = factors.lower.continued();
        assert!(continued.iter().filter(|&&continued| continued).count() > 20, "{continued:?}");
        let expected = applied(&lu);
        lu.refresh(&a).unwrap();
        assert!(applied(&lu) == expected);
    }
}

#[test]
fn a_matching_is_computed_where_other_pivots_cause_fill() {
    // the tiny diagonal entries of a mesh are no pivots
    let tiny = |i: usize, j: usize, value: f64| if i == j { 1e-9 * value } else { value };
    let small = mesh(6, false).triplets().map(|(i, j, value)| (i, j, tiny(i, j, value))).collect::<Vec<_>>();
    // a chain of 80 variables with 20 constraints, each between two of them
    let chain = (0..80).flat_map(|i| [(i, i, 4.0), (i, (i + 1) % 80, -1.0), ((i + 1) % 80, i, -1.0)]);
    let between = |k: usize| [(4 * k, 80 + k, 1.0), (4 * k + 1, 80 + k, -1.0)];
    let constraints = (0..20).flat_map(between).flat_map(|(i, j, value)| [(i, j, value), (j, i, value)]);
    let saddle = Csr::from_triplets(100, 100, &chain.chain(constraints).collect::<Vec<_>>()).unwrap();
    for (a, matched) in [(Csr::from_triplets(216, 216, &small).unwrap(), true), (saddle, false)] {
        let lu = factorized(&a, Some(false), Pivoting::Regular).unwrap();
        assert_eq!((lu.matched.is_some(), lu.scaling.is_some()), (matched, matched));
        let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64).cos()).collect();
        assert!(backward_error(&a, &lu, &b) <= 1e-14);
    }
}
