//! What a solve returns that does not converge: no solution that is worse than the initial guess.

use crate::truth::{norm, residual, residual_and_rounding};
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Chebyshev, Csr, Fcg, Fgmres, Gmres, Idr, Jacobi, Minres, Outcome, PipelinedCg, Solution,
    gallery,
};

/// Solves from a guess with a limit of iterations, by each method. Also returns whether the method decreases the energy norm
/// of the error.
fn solutions(a: &Csr<f64>, b: &[f64], x0: &[f64], limit: usize) -> Vec<(&'static str, bool, Solution<f64>)> {
    macro_rules! solved {
        ($($method:ident: $descends:literal,)*) => {
            vec![$((
                stringify!($method),
                $descends,
                $method::new(a).rtol(1e-10).max_iterations(limit).solve_from(b, x0).unwrap(),
            ),)*]
        };
    }
    solved! {
        Cg: true, Fcg: true, PipelinedCg: true, Minres: false, BiCgStab: false, Idr: false, Gmres: false, Fgmres: false,
    }
}

/// A singular matrix, a right-hand side that no product gives, and the least residual norm.
fn inconsistent(side: usize) -> (Csr<f64>, Vec<f64>, f64) {
    let a = gallery::neumann::<f64>(&[side, side]).unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| matrices::unit(matrices::mix(i as u64))).collect();
    let least = b.iter().sum::<f64>().abs() / side as f64;
    (a, b, least)
}

#[test]
fn minres_returns_nearly_the_least_residual_of_an_inconsistent_system() {
    for side in [4, 5, 8, 12, 20, 30, 45] {
        let (a, b, least) = inconsistent(side);
        let single: Vec<f32> = b.iter().map(|&b| b as f32).collect();
        for limit in [100, 300, 1000, 10_000] {
            let Solution { x, report } = Minres::new(&a).max_iterations(limit).solve(&b).unwrap();
            let found = residual(&a, &x, &b);
            println!("{side}, {limit}: {:.6} of the least, {report}", found / least);
            assert!(!report.converged() && found <= 1.01 * least, "{side}, {limit}: {report}");
            assert!((found - report.true_residual).abs() <= 1e-6 * found, "{report}");
            let jacobi = Jacobi::new(&a).unwrap();
            let solver = Minres::new(&a).preconditioner(jacobi).max_iterations(limit);
            let found = residual(&a, &{ solver }.solve(&b).unwrap().x, &b);
            assert!(found <= 1.05 * least, "{side}, {limit}, Jacobi: {:e}", found / least);
            let x = Minres::new(&a.cast::<f32>()).max_iterations(limit).solve(&single).unwrap().x;
            let found = residual(&a, &x.iter().map(|&x| x.into()).collect::<Vec<_>>(), &b);
            assert!(found <= 1.01 * least, "{side}, {limit}, f32: {:e}", found / least);
        }
    }
}

#[test]
fn the_advice_for_an_inconsistent_system_names_the_null_space() {
    let (a, b, _) = inconsistent(30);
    for report in [
        Minres::new(&a).solve(&b).unwrap().report,
        Minres::new(&a).max_iterations(300).solve(&b).unwrap().report,
    ] {
        let advice = report.outcome.advice().unwrap_or_default();
        assert!(advice.contains("null space"), "{report}");
    }
}

/// Singular, indefinite, unsymmetric and ill-conditioned matrices.
fn difficult(seed: u64) -> Csr<f64> {
    let n = 20 + 3 * seed as usize;
    let mut triplets = matrices::random(n, n, 0.15, seed);
    if seed.is_multiple_of(2) {
        // symmetric, and in part of rank below n
        triplets.entries.retain(|&(row, column, _)| row <= column && row % 7 != 3);
        let mirrored: Vec<_> =
            triplets.entries.iter().filter(|e| e.0 < e.1).map(|&(i, j, v)| (j, i, v)).collect();
        triplets.entries.extend(mirrored);
    }
    if seed.is_multiple_of(3) {
        let scale = |k: u32| 10f64.powi(k as i32 % 9 - 4);
        triplets.entries.iter_mut().for_each(|(i, j, v)| *v *= scale(*i) * scale(*j));
    }
    triplets.csr().unwrap()
}

#[test]
fn no_solution_is_worse_than_the_initial_guess() {
    let (mut unconverged, mut kept) = (0, 0);
    for seed in 0..24 {
        let a = difficult(seed);
        let b = matrices::vector(a.rows());
        let guess: Vec<f64> = b.iter().map(|b| 0.1 * b).collect();
        for (x0, limit) in [(vec![0.0; a.rows()], 2000), (guess.clone(), 2000), (guess, 40)] {
            let first = residual(&a, &x0, &b);
            for (method, descends, Solution { x, report }) in solutions(&a, &b, &x0, limit) {
                let (found, rounding) = residual_and_rounding(&a, &x, &b);
                assert!(x.iter().all(|x| x.is_finite()), "{method}, {seed}");
                unconverged += usize::from(!report.converged());
                // the residual of an iterate that decreases the energy norm may be larger
                let limited = descends && report.outcome == Outcome::IterationLimit;
                kept += usize::from(limited && found > first);
                let agrees = (found - report.true_residual).abs() <= 1e-6 * found + rounding;
                assert!(agrees, "{method}, {seed}: {found:e}, {report}");
                let last = report.history.last().unwrap();
                let is_fine = found <= (1.0 + 1e-10) * first + rounding || limited && found <= 2.1 * last;
                assert!(is_fine, "{method}, {seed}: {found:e} after {first:e}, {report}");
            }
        }
    }
    assert!(unconverged > 200, "{unconverged} solves fail");
    println!("{unconverged} unconverged, {kept} iterates of CG kept at the limit");
}

/// The residual of conjugate gradients exceeds that of `x = 0` for thousands of iterations, while the error decreases.
#[test]
fn conjugate_gradients_keep_their_iterate_at_the_iteration_limit() {
    let n = 400;
    let entries: Vec<_> = (0..n)
        .flat_map(|i| {
            let scale = |k: usize| 10f64.powi((k % 7) as i32 - 3);
            let own = [(i, i, 2.0 * scale(i) * scale(i))];
            let next = (i + 1 < n).then(|| (i, i + 1, -scale(i) * scale(i + 1)));
            own.into_iter().chain(next.into_iter().flat_map(|(i, j, v)| [(i, j, v), (j, i, v)]))
        })
        .collect();
    let a = Csr::from_triplets(n, n, &entries).unwrap();
    let b = vec![1.0; n];
    let Solution { x, report } = Cg::new(&a).max_iterations(60).solve(&b).unwrap();
    assert_eq!(report.outcome, Outcome::IterationLimit);
    assert!(report.true_residual > norm(&b), "{report}");
    assert!(x.iter().any(|&x| x != 0.0));
}

/// Columns that are solved in lockstep, and a preconditioner that is not fixed.
#[test]
fn columns_return_their_best_solutions() {
    let (a, b, least) = inconsistent(30);
    let regular: Vec<f64> = {
        let mean = b.iter().sum::<f64>() / b.len() as f64;
        b.iter().map(|b| b - mean).collect()
    };
    let m = Chebyshev::new(&a, Jacobi::new(&a).unwrap(), 4).unwrap();
    let mut solver = Minres::new(&a).preconditioner(&m);
    let solved = solver.solve_many(&[b.clone(), regular.clone(), b.clone()]).unwrap();
    for (solution, b) in solved.iter().zip([&b, &regular, &b]) {
        let single = solver.solve(b).unwrap();
        assert_eq!(single.x, solution.x, "{}", solution.report);
    }
    assert!(solved[1].report.converged());
    assert!(residual(&a, &solved[0].x, &b) <= 1.05 * least, "{}", solved[0].report);
}
