//! Random matrices give the same `Csr` through every constructor, and malformed input gives errors.

use krysp::testing::matrices::{Triplets, edge, mix};
use krysp::{Csr, Error, Format, HostSpace, LinearOperator, Permutation, Space};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Entry = (u32, u32, f64);

/// Matrices of any shape up to 12 x 12, with repeated entries, explicit zeros of both signs, and values that round when
/// added.
fn triplets() -> impl Strategy<Value = Triplets> {
    (0usize..=12, 0usize..=12).prop_flat_map(|(rows, cols)| {
        let value =
            prop_oneof![8 => -1e3..1e3, 1 => Just(0.0), 1 => Just(-0.0), 1 => Just(1e-9), 1 => Just(1e16)];
        let entry = (0..rows.max(1) as u32, 0..cols.max(1) as u32, value);
        let most = if rows * cols == 0 { 0 } else { 60 };
        prop::collection::vec(entry, 0..=most).prop_map(move |entries| Triplets { rows, cols, entries })
    })
}

fn square() -> impl Strategy<Value = Triplets> {
    triplets().prop_map(|t| {
        let n = t.rows.min(t.cols);
        let inside = |e: &Entry| (e.0 as usize) < n && (e.1 as usize) < n;
        Triplets { rows: n, cols: n, entries: t.entries.into_iter().filter(inside).collect() }
    })
}

/// The expected entries: sorted by position, repeated values added in the given order.
fn reference(triplets: &Triplets) -> Vec<(usize, usize, u64)> {
    let mut sums: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for &(i, j, value) in &triplets.entries {
        sums.entry((i as usize, j as usize)).and_modify(|sum| *sum += value).or_insert(value);
    }
    sums.into_iter().map(|((i, j), value)| (i, j, value.to_bits())).collect()
}

fn entries(a: &Csr<f64>) -> Vec<(usize, usize, u64)> {
    a.triplets().map(|(i, j, value)| (i, j, value.to_bits())).collect()
}

/// CSR or CSC arrays, with the entries of a row or column in the given order.
struct Compressed {
    offsets: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f64>,
}

fn compressed(ranges: usize, entries: &[Entry], of: impl Fn(&Entry) -> (u32, u32)) -> Compressed {
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|e| of(e).0);
    let mut offsets = vec![0; ranges + 1];
    sorted.iter().for_each(|e| offsets[of(e).0 as usize + 1] += 1);
    (0..ranges).for_each(|i| offsets[i + 1] += offsets[i]);
    let indices = sorted.iter().map(|e| of(e).1).collect();
    Compressed { offsets, indices, values: sorted.iter().map(|e| e.2).collect() }
}

fn cast<I: TryFrom<u64>>(numbers: impl IntoIterator<Item = impl TryInto<u64>>) -> Vec<I> {
    let narrow = |n: u64| I::try_from(n).ok().unwrap();
    numbers.into_iter().map(|n| narrow(n.try_into().ok().unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_constructor_gives_the_same_matrix(t in triplets()) {
        let expected = reference(&t);
        let (rows, cols) = (t.rows, t.cols);
        let shape = |a: &Csr<f64>| (a.rows(), a.cols(), entries(a));
        let expected = (rows, cols, expected);

        prop_assert_eq!(shape(&Csr::from_triplets(rows, cols, &t.entries).unwrap()), expected.clone());
        let (i, (j, v)): (Vec<u32>, (Vec<u32>, Vec<f64>)) = t.entries.iter().map(|e| (e.0, (e.1, e.2))).unzip();
        prop_assert_eq!(shape(&Csr::from_coordinates(rows, cols, &i, &j, &v).unwrap()), expected.clone());
        let (p, q): (Vec<i64>, Vec<i64>) = (cast(i), cast(j));
        prop_assert_eq!(shape(&Csr::from_coordinates(rows, cols, &p, &q, &v).unwrap()), expected.clone());

        let Compressed { offsets: o, indices: k, values: v } = compressed(rows, &t.entries, |e| (e.0, e.1));
        prop_assert_eq!(shape(&Csr::from_csr(rows, cols, &o, &k, &v).unwrap()), expected.clone());
        let (o32, k64): (Vec<u32>, Vec<i64>) = (cast(o.clone()), cast(k.clone()));
        prop_assert_eq!(shape(&Csr::from_csr(rows, cols, &o32, &k64, &v).unwrap()), expected.clone());
        let (o64, k32): (Vec<i64>, Vec<i32>) = (cast(o.clone()), cast(k.clone()));
        prop_assert_eq!(shape(&Csr::from_csr(rows, cols, &o64, &k32, &v).unwrap()), expected.clone());
        let (o32, kus): (Vec<i32>, Vec<usize>) = (cast(o), cast(k));
        prop_assert_eq!(shape(&Csr::from_csr(rows, cols, &o32, &kus, &v).unwrap()), expected.clone());

        let Compressed { offsets: o, indices: k, values: v } = compressed(cols, &t.entries, |e| (e.1, e.0));
        let csc = Csr::from_csc(rows, cols, &o, &k, &v).unwrap();
        prop_assert_eq!(shape(&csc), expected.clone());

        // adopting the arrays of a `Csr`
        let offsets: Vec<u32> = cast(csc.offsets());
        let again = Csr::from_sorted(cols, offsets, csc.columns().to_vec(), csc.entries().to_vec()).unwrap();
        prop_assert_eq!(shape(&again), expected);
        prop_assert_eq!(again.nnz(), csc.nnz());
        for (i, j, value) in csc.triplets() {
            prop_assert_eq!(csc.get(i, j).map(f64::to_bits), Some(value.to_bits()));
            prop_assert_eq!(csc.get(i, j + (1 << 32)), None);
        }
    }

    #[test]
    fn values_are_assembled_as_triplets_are(t in triplets(), seed: u64) {
        let other = |k: usize| (mix(seed ^ k as u64) % 2001) as f64 / 7.0 - 140.0;
        let others: Vec<f64> = (0..t.entries.len()).map(other).collect();
        let mut a = Csr::from_triplets(t.rows, t.cols, &t.entries).unwrap();
        let changed = t.entries.iter().zip(&others).map(|(e, &v)| (e.0, e.1, v)).collect();
        a.refresh(&a.assemble(&others).unwrap()).unwrap();
        prop_assert_eq!(entries(&a), reference(&Triplets { entries: changed, ..t }));
        let too_many = vec![0.0; others.len() + 1];
        prop_assert!(matches!(a.assemble(&too_many), Err(Error::Length { .. })), "too many values are refused");
        let too_many = vec![0.0; a.nnz() + 1];
        prop_assert!(matches!(a.refresh(&too_many), Err(Error::Length { .. })), "too many values are refused");
        let before = entries(&a);
        let own = a.entries().to_vec();
        a.refresh(&own).unwrap();
        prop_assert_eq!(entries(&a), before);
    }

    #[test]
    fn reordering_there_and_back_changes_nothing(t in square(), seed: u64) {
        let a = Csr::from_triplets(t.rows, t.cols, &t.entries).unwrap();
        let random = |salt: u64| {
            let mut order: Vec<u32> = (0..t.rows as u32).collect();
            order.sort_by_key(|&i| mix(seed ^ salt ^ u64::from(i)));
            Permutation::from_old_of_new(order).unwrap()
        };
        let (first, second) = (random(1), random(2 << 32));
        let there = a.reordered(&first).unwrap();
        for (new_row, new_col, value) in there.triplets() {
            let old = |new: usize| first.old_of_new()[new] as usize;
            prop_assert_eq!(a.get(old(new_row), old(new_col)).map(f64::to_bits), Some(value.to_bits()));
        }
        prop_assert_eq!(there.nnz(), a.nnz());
        // a second ordering replaces the first: both are relative to the user's order
        let on = there.reordered(&second).unwrap();
        prop_assert_eq!(entries(&on), entries(&a.reordered(&second).unwrap()));
        let mut back = on.in_space(a.domain()).unwrap();
        prop_assert_eq!(entries(&back), entries(&a));
        // values are still assembled in the user's order
        let others: Vec<f64> = (0..t.entries.len()).map(|k| k as f64 + 0.5).collect();
        back.refresh(&back.assemble(&others).unwrap()).unwrap();
        let fresh = a.with_values(&a.assemble(&others).unwrap()).unwrap();
        prop_assert_eq!(entries(&back), entries(&fresh));
        // a matrix in another ordering carries its permutation
        let mut moved = there.clone();
        moved.refresh_from(&fresh).unwrap();
        prop_assert_eq!(entries(&moved), entries(&fresh.reordered(&first).unwrap()));
        let rcm = Permutation::rcm(&a).unwrap();
        prop_assert_eq!(entries(&a.reordered(&rcm).unwrap().in_space(a.domain()).unwrap()), entries(&a));

        let space = HostSpace::permuted(std::sync::Arc::new(first));
        let user: Vec<f64> = (0..t.rows).map(|i| i as f64).collect();
        let mut stored = vec![f64::NAN; t.rows];
        space.store(&space.vector(&user).unwrap(), &mut stored).unwrap();
        prop_assert_eq!(stored, user);
    }

    #[test]
    fn a_triangle_is_mirrored(t in square(), upper: bool) {
        let keep = |e: &Entry| if upper { e.0 <= e.1 } else { e.0 >= e.1 };
        let triangle: Vec<Entry> = t.entries.iter().copied().filter(keep).collect();
        let half = Csr::from_triplets(t.rows, t.cols, &triangle).unwrap();
        let mut both: Vec<_> = entries(&half);
        both.extend(entries(&half).into_iter().filter(|e| e.0 != e.1).map(|(i, j, v)| (j, i, v)));
        both.sort_unstable();
        let mut full = half.mirrored().unwrap();
        prop_assert_eq!(entries(&full), both);
        full.check_symmetric(0.0).unwrap();
        let others: Vec<f64> = (0..triangle.len()).map(|k| 0.1 + k as f64).collect();
        full.refresh(&full.assemble(&others).unwrap()).unwrap();
        let changed: Vec<Entry> = triangle.iter().zip(others).map(|(e, v)| (e.0, e.1, v)).collect();
        let rebuilt = Csr::from_triplets(t.rows, t.cols, &changed).unwrap().mirrored().unwrap();
        prop_assert_eq!(entries(&full), entries(&rebuilt));
    }

    /// Any arrays give a matrix or an error, and no panic.
    #[test]
    fn no_input_panics(
        rows in 0usize..6,
        cols in 0usize..6,
        offsets in prop::collection::vec(-2i64..9, 0..8),
        indices in prop::collection::vec(-2i64..7, 0..9),
        length in 0usize..9,
    ) {
        let values = vec![1.0; length];
        let row: Vec<i64> = indices.iter().rev().copied().collect();
        let inside = |bound: usize, i: &[i64]| i.iter().all(|&i| (0..bound as i64).contains(&i));
        let ordered = |ranges: usize| {
            offsets.len() == ranges + 1
                && offsets[0] == 0
                && offsets.is_sorted()
                && offsets[ranges] == indices.len() as i64
        };
        let lengths = indices.len() == length;
        let csr = Csr::from_csr(rows, cols, &offsets, &indices, &values);
        prop_assert_eq!(csr.is_ok(), ordered(rows) && lengths && inside(cols, &indices), "{:?}", csr.err());
        let csc = Csr::from_csc(rows, cols, &offsets, &indices, &values);
        prop_assert_eq!(csc.is_ok(), ordered(cols) && lengths && inside(rows, &indices), "{:?}", csc.err());
        let coordinates = Csr::from_coordinates(rows, cols, &row, &indices, &values);
        let valid = lengths && inside(rows, &row) && inside(cols, &indices);
        prop_assert_eq!(coordinates.is_ok(), valid, "{:?}", coordinates.err());
        let narrow = |numbers: &[i64]| numbers.iter().map(|&n| n as u32).collect::<Vec<u32>>();
        let sorted = Csr::from_sorted(cols, narrow(&offsets), narrow(&indices), values);
        if let Ok(a) = sorted {
            let columns_ascend = |row| a.row_columns(row).windows(2).all(|w| w[0] < w[1]);
            prop_assert!(inside(cols, &indices) && lengths && (0..a.rows()).all(columns_ascend));
        }
        let order = Permutation::from_old_of_new(narrow(&indices));
        let mut seen = indices.clone();
        seen.sort_unstable();
        prop_assert_eq!(order.is_ok(), seen.iter().copied().eq(0..indices.len() as i64));
    }
}

#[test]
fn errors_name_the_wrong_entry() {
    let csr = |offsets: &[i64], columns: &[i64], values: &[f64]| {
        Csr::from_csr(2, 3, offsets, columns, values).unwrap_err()
    };
    let value = [1.0, 1.0];
    assert!(matches!(csr(&[0, 1], &[0, 1], &value), Error::Length { got: 2, expected: 3, .. }));
    assert!(matches!(csr(&[0, 1, 2], &[0, 1], &[1.0]), Error::Length { got: 1, expected: 2, .. }));
    let negative = csr(&[0, 1, 2], &[0, -1], &value);
    assert!(
        matches!(negative, Error::Index { position: 1, what: "column", index: -1, bound: 3 }),
        "{negative}"
    );
    assert!(matches!(csr(&[0, 1, 2], &[3, 0], &value), Error::Index { position: 0, index: 3, bound: 3, .. }));
    assert!(matches!(
        csr(&[1, 1, 2], &[0, 1], &value),
        Error::Offsets { position: 0, offset: 1, entries: 2 }
    ));
    assert!(matches!(csr(&[0, -1, 2], &[0, 1], &value), Error::Offsets { position: 1, offset: -1, .. }));
    assert!(matches!(csr(&[0, 3, 2], &[0, 1], &value), Error::Offsets { position: 1, offset: 3, .. }));
    assert!(matches!(csr(&[0, 1, 1], &[0, 1], &value), Error::Offsets { position: 2, offset: 1, .. }));
    let triplet = Csr::from_triplets(2, 3, &[(0i32, 0, 1.0), (2, 0, 1.0)]).unwrap_err();
    assert!(matches!(triplet, Error::Index { position: 1, what: "row", index: 2, bound: 2 }), "{triplet}");
    let lengths = Csr::from_coordinates(2, 3, &[0u32], &[0, 1], &value).unwrap_err();
    assert!(matches!(lengths, Error::Length { what: "the rows", got: 1, expected: 2, .. }), "{lengths}");
    let huge = Csr::from_coordinates(1, (1 << 31) + 1, &[0u32], &[0], &[1.0]).unwrap_err();
    assert!(matches!(huge, Error::TooLarge { what: "column", .. }), "{huge}");
    let huge = Csr::from_csr(usize::MAX, 1, &[0u32], &[0u32; 0], &[0.0; 0]).unwrap_err();
    assert!(matches!(huge, Error::TooLarge { what: "row", .. }), "{huge}");
    let unsorted = Csr::from_sorted(3, vec![0, 2], vec![1, 0], value.to_vec()).unwrap_err();
    assert!(matches!(unsorted, Error::Option { what: "the columns", .. }), "{unsorted}");
    assert!(Csr::<f64>::from_sorted(3, Vec::<u32>::new(), Vec::<u32>::new(), vec![]).is_err());

    let a = edge::arrow(5).csr::<f64>().unwrap();
    assert!(matches!(a.mirrored(), Err(Error::NotTriangle { .. })));
    let infinite = Csr::from_triplets(2, 2, &[(0u32, 0u32, 1.0), (1, 0, f64::INFINITY)]).unwrap();
    assert!(matches!(infinite.check_finite(), Err(Error::NotFinite { row: 1, col: 0, .. })));
    assert!(matches!(infinite.check_symmetric(0.0), Err(Error::NotSymmetric { .. })));
    let short = HostSpace::<f64>::new(4);
    assert!(matches!(a.in_space(&short), Err(Error::Length { got: 4, expected: 5, .. })));
    let repeated = Permutation::from_old_of_new(vec![0, 2, 2]).unwrap_err();
    assert!(matches!(repeated, Error::NotPermutation { len: 3, position: 2, index: 2 }));
    let zero = krysp::Jacobi::new(&edge::explicit_zeros(4).csr::<f64>().unwrap()).unwrap_err();
    assert!(matches!(zero, Error::ZeroDiagonal { row: 0, .. }), "{zero}");
}
