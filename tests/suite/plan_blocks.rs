//! Plans for several right-hand sides: where columns share one search space, and where they do not.

use krysp::plan::{AttemptEnd, Method, Preconditioner, Solved};
use krysp::testing::matrices::{mix, unit};
use krysp::{Csr, Outcome, Plan};

/// Pseudo-random right-hand sides.
fn rough(n: usize, columns: usize) -> Vec<Vec<f64>> {
    let value = |i: usize, j: usize| unit(mix((i + 1_000_003 * j) as u64)) - 0.5;
    (0..columns).map(|j| (0..n).map(|i| value(i, j)).collect()).collect()
}

/// The second difference on `n` points, with explicit zeros that make the matrix large enough for lockstep, and a multiple of the identity.
fn line(n: usize, shift: f64) -> Csr<f64> {
    let value = |i: usize, j: usize| [2.0 + shift, -1.0, 0.0, 0.0, 0.0][i.abs_diff(j)];
    let near = (0..n).flat_map(|i: usize| (i.saturating_sub(4)..n.min(i + 5)).map(move |j| (i, j)));
    Csr::from_triplets(n, n, &near.map(|(i, j)| (i, j, value(i, j))).collect::<Vec<_>>()).unwrap()
}

fn with_jacobi(a: &Csr<f64>) -> Plan<'_, f64> {
    Plan::new(a).unwrap().method(Method::Cg).preconditioner(Preconditioner::Jacobi)
}

fn all_converged(a: &Csr<f64>, b: &[Vec<f64>], solved: &[Solved<f64>]) {
    assert_eq!(b.len(), solved.len());
    for (j, (b, solved)) in b.iter().zip(solved).enumerate() {
        let residual = crate::truth::residual(a, &solved.x, b);
        assert!(solved.converged() && residual <= 1.001e-8 * crate::truth::norm(b), "column {j}: {solved}");
    }
}

fn blocks(solved: &[Solved<f64>]) -> Vec<usize> {
    solved.iter().map(|solved| solved.report.block).collect()
}

/// Many iterations become much fewer in blocks: the first column runs alone, the others in
/// blocks of 8, because small matrices of 16 columns would take long beside so few rows.
#[test]
fn hard_systems_share_a_search_space() {
    let a = line(800, 0.0);
    let b = rough(800, 17);
    let solve = || with_jacobi(&a).build().unwrap().solve_many(&b).unwrap();
    let solved = solve();
    all_converged(&a, &b, &solved);
    assert_eq!(blocks(&solved), [vec![1], vec![8; 16]].concat());
    let iterations = |solved: &[Solved<f64>]| solved.iter().map(|one| one.report.iterations).sum::<usize>();
    let alone: Vec<_> = b.iter().map(|b| with_jacobi(&a).build().unwrap().solve(b).unwrap()).collect();
    assert!(3 * iterations(&solved) < iterations(&alone), "{} {}", iterations(&solved), iterations(&alone));
    let [attempt] = &solved[5].attempts[..] else { panic!("{}", solved[5]) };
    assert_eq!(attempt.block, 8);
    assert!(attempt.to_string().contains(" iterations in a block of 8 right-hand sides, "), "{attempt}");
    assert!(solved[5].report.to_string().contains(" in a block of 8 right-hand sides, "), "{}", solved[5]);
    assert!(!solved[0].to_string().contains("block"), "{}", solved[0]);
    // no clock decides: another solve has the same bits
    for (again, solved) in solve().iter().zip(&solved) {
        assert_eq!((&again.x, &again.report.history), (&solved.x, &solved.report.history));
    }
}

/// Few iterations with a diagonal are made in lockstep, with the bits of separate solves.
#[test]
fn easy_systems_are_solved_in_lockstep() {
    let a = line(800, 1.0);
    let b = rough(800, 17);
    let solved = with_jacobi(&a).build().unwrap().solve_many(&b).unwrap();
    all_converged(&a, &b, &solved);
    for (solved, b) in solved.iter().zip(&b) {
        assert_eq!((solved.report.block, solved.attempts[0].block), (1, 1));
        assert_eq!(solved.x, with_jacobi(&a).build().unwrap().solve(b).unwrap().x);
    }
}

/// Small matrices are solved one by one rather than in lockstep, but faster in a block.
#[test]
fn small_matrices_share_a_search_space() {
    let a = krysp::gallery::poisson::<f64>(&[50, 50]).unwrap();
    let b = rough(2500, 9);
    let solved = with_jacobi(&a).build().unwrap().solve_many(&b).unwrap();
    all_converged(&a, &b, &solved);
    assert_eq!(blocks(&solved), [vec![1], vec![8; 8]].concat());
}

/// If the first block takes as many iterations as a solve by itself, the other columns are not solved in blocks. Each right-hand
/// side is nonzero in a separate set of 250 rows and has a component in each of the 250 eigenvectors there, so that the columns
/// of a block share nothing.
#[test]
fn the_first_block_is_measured() {
    let (n, columns) = (250, 22);
    let entry = |i: usize| 1.0 + (i as f64 / n as f64).powi(3) * 1e4;
    let near = |i: usize| (i.saturating_sub(4)..(n * columns).min(i + 5)).map(move |j| (i, j));
    let value = |i: usize, j: usize| if i == j { entry(i % n) } else { 0.0 };
    let entries: Vec<_> = (0..n * columns).flat_map(near).map(|(i, j)| (i, j, value(i, j))).collect();
    let a = Csr::from_triplets(n * columns, n * columns, &entries).unwrap();
    let b: Vec<Vec<f64>> = (0..columns)
        .map(|j| (0..n * columns).map(|i| if i / n == j { 1.0 } else { 0.0 }).collect())
        .collect();
    let plan = Plan::new(&a).unwrap().method(Method::Cg).preconditioner(Preconditioner::None);
    let solved = plan.build().unwrap().solve_many(&b).unwrap();
    all_converged(&a, &b, &solved);
    assert_eq!(blocks(&solved), [vec![1], vec![16; 16], vec![1; 5]].concat());
}

/// Zero, NaN, tiny and equal columns, within a block and without harm to the others.
#[test]
fn columns_of_a_block_may_be_zero_equal_or_not_finite() {
    let a = line(600, 0.0);
    let mut b = rough(600, 12);
    b[3] = vec![0.0; 600];
    b[5][7] = f64::NAN;
    b[6] = b[4].clone();
    b[8].iter_mut().for_each(|b| *b *= 1e-200);
    let solved = with_jacobi(&a).build().unwrap().solve_many(&b).unwrap();
    assert!(matches!(solved[5].report.outcome, Outcome::NotFinite { .. }), "{}", solved[5]);
    let others: Vec<usize> = (0..12).filter(|&j| j != 5).collect();
    let of_others = |j: &usize| (b[*j].clone(), solved[*j].clone());
    let (rhs, solved): (Vec<_>, Vec<_>) = others.iter().map(of_others).unzip();
    all_converged(&a, &rhs, &solved);
    assert_eq!(solved.iter().filter(|solved| solved.report.block > 1).count(), 8);
    assert_eq!((solved[3].report.iterations, solved[3].report.block), (0, 1));
}

/// The first right-hand side does not show that the matrix is indefinite. The block of the others breaks down, and each is continued by
/// itself with other candidates.
#[test]
fn columns_of_a_block_that_breaks_down_are_solved_by_themselves() {
    let n = 300;
    let mut entries: Vec<_> = line(n, 0.0).triplets().collect();
    entries.extend([(n, n, 1.0), (n, n + 1, 3.0), (n + 1, n, 3.0), (n + 1, n + 1, 1.0)]);
    let a = Csr::from_triplets(n + 2, n + 2, &entries).unwrap();
    let mut b = rough(n + 2, 8);
    b[0][n..].fill(0.0);
    all_converged(&a, &b, &Plan::new(&a).unwrap().build().unwrap().solve_many(&b).unwrap());
    let solved = with_jacobi(&a).build().unwrap().solve_many(&b).unwrap();
    assert!(solved[0].converged(), "{}", solved[0]);
    for solved in &solved[1..] {
        let [together, alone, ..] = &solved.attempts[..] else { panic!("{solved}") };
        assert_eq!((together.block, alone.block), (7, 1));
        let broken = |end: &AttemptEnd| matches!(end, AttemptEnd::Ended(Outcome::Breakdown { .. }));
        assert!(broken(&together.ending) && broken(&alone.ending), "{solved}");
    }
}

/// Limits hold for every column of a block. The first right-hand side is a sum of 100 eigenvectors, for which conjugate gradients take that
/// many iterations; a block of 8 takes about n/8.
#[test]
fn limits_hold_for_columns_of_a_block() {
    let n = 2000;
    let a = line(n, 0.0);
    let mut b = rough(n, 9);
    let wave = |k: usize, i: usize| ((k * (i + 1)) as f64 * std::f64::consts::PI / (n + 1) as f64).sin();
    b[0] = (0..n).map(|i| (1..=100).map(|k| wave(19 * k, i)).sum()).collect();
    let solved = with_jacobi(&a).max_iterations(130).build().unwrap().solve_many(&b).unwrap();
    assert!(solved[0].converged(), "{}", solved[0]);
    for solved in &solved[1..] {
        assert_eq!((&solved.report.outcome, solved.report.iterations), (&Outcome::IterationLimit, 130));
        assert_eq!((solved.attempts.len(), solved.report.block), (1, 8), "{solved}");
    }
}
