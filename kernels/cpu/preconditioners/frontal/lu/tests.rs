//! Compares `P A Q` with the product of the factors of dense fronts, and tests solves.

use super::*;

/// Pseudo-random numbers between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(next).collect()
}

/// Largest entry of `|P A Q − L U|`, and the number of pivots, for a front in which the columns `weak` have
/// no acceptable pivots.
fn check(order: usize, summed: usize, weak: &[usize]) -> (f64, usize) {
    let mut original = numbers(order * order, (order * 1000 + summed) as u64);
    for &column in weak {
        original[column * order..][..summed].iter_mut().for_each(|value| *value *= 1e-9);
    }
    let mut values = original.clone();
    let [mut rows, mut columns] = [(); 2].map(|()| (0..order as u32).collect::<Vec<_>>());
    let (mut least, mut upper) = (vec![0.0; summed], vec![]);
    let front = LuFront {
        values: &mut values,
        order,
        summed,
        rows: &mut rows,
        columns: &mut columns,
        least: &mut least,
        threshold: 0.1,
    };
    let pivots = eliminate(front, &mut upper, &Phase::new("test", 0.0)).unwrap();
    let height = order - pivots;
    let l = |i: usize, k: usize| if i == k { 1.0 } else { values[k * order + i] };
    let u = |k: usize, j: usize| match j.checked_sub(pivots) {
        None => values[j * order + k],
        Some(j) => upper[k * height + j],
    };
    let of_u = (0..pivots).flat_map(|k| (k..order).map(move |j| (k, j)));
    let largest = of_u.fold(0.0f64, |most, (k, j)| most.max(u(k, j).abs()));
    assert_eq!(LuFactors { lower: &values[..pivots * order], upper: &upper, order }.largest(), largest);
    let mut worst = 0.0f64;
    for (i, j) in (0..order).flat_map(|i| (0..order).map(move |j| (i, j))) {
        let product: f64 = (0..pivots.min(i + 1).min(j + 1)).map(|k| l(i, k) * u(k, j)).sum();
        let rest = if i >= pivots && j >= pivots { values[j * order + i] } else { 0.0 };
        let wanted = original[columns[j] as usize * order + rows[i] as usize];
        worst = worst.max((product + rest - wanted).abs());
    }
    let bounded = (0..pivots).all(|k| (k + 1..order).all(|i| l(i, k).abs() <= 10.0));
    assert!(bounded, "entries of L beyond 1 / threshold");
    (worst, pivots)
}

#[test]
fn fronts_of_all_shapes_are_products_of_their_factors() {
    for (order, summed) in [(1, 1), (5, 0), (5, 2), (40, 40), (70, 33), (150, 100), (230, 64)] {
        let (worst, pivots) = check(order, summed, &[]);
        assert!(
            worst < 1e-11 && pivots <= summed && (order > summed || pivots == summed),
            "{order} {summed}: {worst} {pivots}"
        );
    }
}

#[test]
fn columns_that_are_weak_where_they_are_fully_summed_are_delayed() {
    let (worst, pivots) = check(90, 50, &[0, 7, 31, 32, 49]);
    assert!(worst < 1e-11 && (35..=45).contains(&pivots), "{worst} {pivots}");
}

#[test]
fn solves_with_all_four_triangles_invert_their_products() {
    let (order, pivots) = (23, 9);
    let mut lower = numbers(order * pivots, 5);
    (0..pivots).for_each(|j| lower[j * order + j] += 4.0);
    let upper = numbers((order - pivots) * pivots, 6);
    let factors = LuFactors { lower: &lower, upper: &upper, order };
    let l = |i: usize, k: usize| {
        if i < k {
            0.0
        } else if i == k {
            1.0
        } else {
            lower[k * order + i]
        }
    };
    let u = |k: usize, j: usize| match j.checked_sub(pivots) {
        None if j < k => 0.0,
        None => lower[j * order + k],
        Some(j) => upper[k * (order - pivots) + j],
    };
    let (b, rest) = (numbers(pivots, 7), numbers(order - pivots, 8));
    let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-11, "{x} {y}");
    let (mut x, mut others) = (b.clone(), rest.clone());
    factors.forward(1, &mut x, &mut others);
    for i in 0..order {
        let sum: f64 = (0..pivots).map(|k| l(i, k) * x[k]).sum();
        near(sum, if i < pivots { b[i] } else { others[i - pivots] });
    }
    let (mut x, mut others) = (b.clone(), rest.clone());
    factors.backward(1, &mut x, &mut others);
    for (k, &b) in b.iter().enumerate() {
        let all = x.iter().chain(&rest).enumerate();
        near(all.map(|(j, x)| u(k, j) * x).sum(), b);
    }
    let (mut x, mut others) = (b.clone(), rest.clone());
    factors.forward_transposed(1, &mut x, &mut others);
    for j in 0..order {
        let sum: f64 = (0..pivots).map(|k| u(k, j) * x[k]).sum();
        near(sum, if j < pivots { b[j] } else { others[j - pivots] });
    }
    let (mut x, mut others) = (b.clone(), rest.clone());
    factors.backward_transposed(1, &mut x, &mut others);
    for (k, &b) in b.iter().enumerate() {
        let all = x.iter().chain(&rest).enumerate();
        near(all.map(|(i, x)| l(i, k) * x).sum(), b);
    }
}

#[test]
fn columns_with_nan_have_no_pivots() {
    let (order, summed) = (40, 20);
    for (row, column) in [(3, 3), (11, 4), (35, 7)] {
        let mut values = numbers(order * order, 11);
        (0..summed).for_each(|at| values[at * order + at] += 20.0);
        values[column * order + row] = f64::NAN;
        let [mut rows, mut columns] = [(); 2].map(|()| (0..order as u32).collect::<Vec<_>>());
        let (mut least, mut upper) = (vec![0.0; summed], vec![]);
        let front = LuFront {
            values: &mut values,
            order,
            summed,
            rows: &mut rows,
            columns: &mut columns,
            least: &mut least,
            threshold: 0.1,
        };
        let pivots = eliminate(front, &mut upper, &Phase::new("test", 0.0)).unwrap();
        assert!(pivots < summed, "{row} {column}: {pivots} pivots");
        assert!(!columns[..pivots].contains(&(column as u32)), "{row} {column}");
    }
}
