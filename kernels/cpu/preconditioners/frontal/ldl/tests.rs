//! Compares `P A Pᵀ` with the product of the factors of dense fronts, and tests solves.

use super::*;

/// A symmetric matrix of pseudo-random numbers, column by column; its diagonal is multiplied by `diagonal`.
fn symmetric(order: usize, diagonal: f64) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ order as u64;
    let mut values = vec![0.0; order * order];
    for j in 0..order {
        for i in j..order {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            let value = if i == j { diagonal * value } else { value };
            (values[j * order + i], values[i * order + j]) = (value, value);
        }
    }
    values
}

struct Factored {
    original: Vec<f64>,
    values: Vec<f64>,
    rows: Vec<u32>,
    pairs: Vec<bool>,
    pivots: usize,
}

fn factored(order: usize, summed: usize, diagonal: f64) -> Factored {
    eliminated(symmetric(order, diagonal), order, summed)
}

fn eliminated(original: Vec<f64>, order: usize, summed: usize) -> Factored {
    let (mut values, mut rows) = (original.clone(), (0..order as u32).collect::<Vec<_>>());
    let (mut least, mut pairs) = (vec![0.0; summed], vec![]);
    let front =
        LdlFront { values: &mut values, order, summed, rows: &mut rows, least: &mut least, threshold: 0.01 };
    let pivots = eliminate(front, &mut pairs, &Phase::new("test", 0.0)).unwrap();
    Factored { original, values, rows, pairs, pivots }
}

/// Largest magnitude of an entry of `P A Pᵀ − L D Lᵀ`.
fn error(order: usize, factored: &Factored) -> f64 {
    let Factored { original, values, rows, pairs, pivots } = factored;
    let second = |k: usize| k > 0 && pairs[k - 1];
    let l = |i: usize, k: usize| match i {
        _ if i == k => 1.0,
        _ if i < k || pairs[k] && i == k + 1 => 0.0,
        _ => values[k * order + i],
    };
    // (L D)(i, k)
    let ld = |i: usize, k: usize| {
        let own = l(i, k) * values[k * order + k];
        if pairs[k] {
            own + l(i, k + 1) * values[k * order + k + 1]
        } else if second(k) {
            own + l(i, k - 1) * values[(k - 1) * order + k]
        } else {
            own
        }
    };
    let mut worst = 0.0f64;
    for (i, j) in (0..order).flat_map(|i| (0..=i).map(move |j| (i, j))) {
        let product: f64 = (0..*pivots).map(|k| ld(i, k) * l(j, k)).sum();
        let rest = if j >= *pivots { values[j * order + i] } else { 0.0 };
        let wanted = original[rows[j] as usize * order + rows[i] as usize];
        worst = worst.max((product + rest - wanted).abs());
    }
    worst
}

#[test]
fn fronts_of_all_shapes_are_products_of_their_factors() {
    for (order, summed) in [(1, 1), (2, 2), (5, 0), (5, 2), (40, 40), (70, 33), (150, 100), (230, 64)] {
        for diagonal in [1.0, 0.0, 20.0] {
            if order == 1 && diagonal == 0.0 {
                continue;
            }
            let factored = factored(order, summed, diagonal);
            let (error, pivots) = (error(order, &factored), factored.pivots);
            assert!(error < 1e-10, "{order} {summed} {diagonal}: {error}");
            assert!(pivots == summed, "{order} {summed} {diagonal}: {pivots} pivots");
            assert!(diagonal > 0.0 || summed < 2 || factored.pairs.contains(&true), "{order}");
        }
    }
}

#[test]
fn a_column_whose_pair_fails_is_rejected_and_not_its_partner() {
    // The first columns are not connected with each other. Their largest entries are in the row of a hub,
    // whose entries in the columns after it are much larger: 2×2 pivots with the hub fail until one of the
    // latter columns is tried.
    let count = BLOCK;
    let order = 2 * count + 1;
    let mut original = vec![0.0; order * order];
    let mut set = |i: usize, j: usize, value: f64| {
        (original[j * order + i], original[i * order + j]) = (value, value);
    };
    set(count, count, 1.0);
    for first in 0..count {
        let last = count + 1 + first;
        set(first, count, 1.0);
        set(first, last, 0.5);
        set(last, count, 1e4);
    }
    let factored = eliminated(original, order, order);
    assert_eq!(factored.pivots, order);
    let error = error(order, &factored);
    assert!(error < 1e-7, "{error}");
}

#[test]
fn a_zero_beside_large_rows_is_delayed() {
    // the one fully summed column has a zero on its diagonal
    let (mut values, mut rows, mut least) = (vec![0.0, 1.0, 1.0, 3.0], vec![0, 1], vec![0.0]);
    let front = LdlFront {
        values: &mut values,
        order: 2,
        summed: 1,
        rows: &mut rows,
        least: &mut least,
        threshold: 0.01,
    };
    assert_eq!(eliminate(front, &mut vec![], &Phase::new("test", 0.0)), Ok(0));
}

#[test]
fn solves_and_signs_are_those_of_the_matrix() {
    let (order, diagonal) = (37, 0.5);
    let Factored { original, values, rows, pairs, pivots } = factored(order, order, diagonal);
    assert_eq!(pivots, order);
    let mut lower = vec![];
    pack(&values, order, pivots, &mut lower);
    let factors = LdlFactors { lower: &lower, order, pairs: &pairs };
    let b: Vec<f64> = (0..order).map(|i| (i as f64).sin()).collect();
    let mut x: Vec<f64> = rows.iter().map(|&row| b[row as usize]).collect();
    factors.forward(1, &mut x, &mut []);
    factors.backward(1, &mut x, &[]);
    for i in 0..order {
        let product: f64 = rows.iter().zip(&x).map(|(&j, x)| original[j as usize * order + i] * x).sum();
        assert!((product - b[i]).abs() < 1e-11, "{i}: {product}");
    }
    // elimination without exchanges gives as many negative pivots as the matrix has negative eigenvalues
    let mut dense = original;
    let mut negative = 0;
    for k in 0..order {
        let pivot = dense[k * order + k];
        negative += usize::from(pivot < 0.0);
        for j in k + 1..order {
            let factor = dense[j * order + k] / pivot;
            for i in k + 1..order {
                dense[j * order + i] -= factor * dense[k * order + i];
            }
        }
    }
    assert_eq!(factors.signs(), [negative, order - negative]);
}

#[test]
fn the_largest_entry_of_d_times_the_transpose_of_l_is_found() {
    let largest = |lower: &[f64], order, pairs: &[bool]| LdlFactors { lower, order, pairs }.largest();
    assert_eq!(largest(&[2.0, -5.0, 1.0], 3, &[false]), 10.0);
    // D = [0 2; 2 1], and 3 and 4 below: 2 * 3 + 1 * 4
    assert_eq!(largest(&[0.0, 2.0, 3.0, 1.0, 4.0], 3, &[true, false]), 10.0);
    assert_eq!(largest(&[0.0, 12.0, 1.0], 2, &[true, false]), 12.0);
    assert_eq!(largest(&[], 0, &[]), 0.0);
}

#[test]
fn columns_with_nan_have_no_pivots() {
    let (order, summed) = (40, 20);
    for (row, column) in [(3, 3), (11, 4), (35, 7)] {
        let mut original = symmetric(order, 20.0);
        (original[column * order + row], original[row * order + column]) = (f64::NAN, f64::NAN);
        let factored = eliminated(original, order, summed);
        assert!(factored.pivots < summed, "{row} {column}: {} pivots", factored.pivots);
        assert!(!factored.rows[..factored.pivots].contains(&(column as u32)), "{row} {column}");
    }
}
