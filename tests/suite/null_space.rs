//! Systems whose solution is unique up to a known null space.

use crate::truth::{norm, residual};
use krysp::solvers::{Error, Method, Solver};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{
    BiCgStab, Cg, Csr, Fcg, Fgmres, Gmres, HostVector, Idr, Jacobi, LinearOperator, Minres, Outcome,
    Permutation, PipelinedCg, Solution,
};

/// Springs between all neighbours on a cube of jittered nodes, and the six rigid body modes, which stretch no spring.
fn floating(side: usize) -> (Triplets, Vec<Vec<f64>>) {
    let nodes: Vec<[f64; 3]> = (0..side.pow(3))
        .map(|node| {
            let at = [node % side, node / side % side, node / (side * side)];
            std::array::from_fn(|d| at[d] as f64 + 0.2 * matrices::unit(matrices::mix((3 * node + d) as u64)))
        })
        .collect();
    let mut entries = vec![];
    for (a, p) in nodes.iter().enumerate() {
        for (b, q) in nodes.iter().enumerate().skip(a + 1) {
            let along: [f64; 3] = std::array::from_fn(|d| q[d] - p[d]);
            let length = norm(&along);
            if length > 1.9 {
                continue;
            }
            for i in 0..3 {
                for j in 0..3 {
                    let stiffness = along[i] * along[j] / length.powi(3);
                    for (row, column, sign) in [(a, a, 1.0), (a, b, -1.0), (b, a, -1.0), (b, b, 1.0)] {
                        entries.push(((3 * row + i) as u32, (3 * column + j) as u32, sign * stiffness));
                    }
                }
            }
        }
    }
    let mode = |of: &dyn Fn([f64; 3]) -> [f64; 3]| nodes.iter().flat_map(|&p| of(p)).collect();
    let modes = vec![
        mode(&|_| [1.0, 0.0, 0.0]),
        mode(&|_| [0.0, 1.0, 0.0]),
        mode(&|_| [0.0, 0.0, 1.0]),
        mode(&|[_, y, z]| [0.0, -z, y]),
        mode(&|[x, _, z]| [z, 0.0, -x]),
        mode(&|[x, y, _]| [-y, x, 0.0]),
    ];
    let n = 3 * nodes.len();
    (Triplets { rows: n, cols: n, entries }, modes)
}

/// Solves by one method. Checks the residual with `b` without its component along the null space, and that `x` has no
/// such component.
fn solves<K, M>(solver: Solver<K, &Csr<f64>, M>, a: &Csr<f64>, modes: &[Vec<f64>], b: &[f64]) -> Solution<f64>
where
    K: Method<HostVector<f64>>,
    M: LinearOperator<Vector = HostVector<f64>>,
{
    let solution = solver.rtol(1e-9).null_space(modes).unwrap().solve(b).unwrap();
    let report = &solution.report;
    println!("{report}, {:e} removed", report.removed);
    assert!(report.converged(), "{report}");
    // ‖b − A x‖² = ‖P b − A x‖² + ‖removed part of b‖²
    let whole = residual(a, &solution.x, b);
    let expected = report.removed.hypot(report.true_residual);
    assert!((whole - expected).abs() <= 1e-9 * norm(b), "{whole:e}, not {expected:e}");
    for mode in modes {
        let along: f64 = solution.x.iter().zip(mode).map(|(x, y)| x * y).sum();
        assert!(along.abs() <= 1e-10 * norm(&solution.x) * norm(mode), "{along:e}");
    }
    solution
}

#[test]
fn pure_neumann_problems() {
    let a = matrices::stencil7(10).zero_row_sums().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let jacobi = Jacobi::new(&a).unwrap();
    let ones = vec![vec![1.0; a.rows()]];
    // without the null space declared the solve fails
    let unaware = Cg::new(&a).preconditioner(&jacobi).rtol(1e-9).solve(&b).unwrap();
    assert!(!unaware.report.converged());

    let first = solves(Cg::new(&a), &a, &ones, &b);
    let mean = b.iter().sum::<f64>() / (a.rows() as f64).sqrt();
    assert!((first.report.removed - mean.abs()).abs() <= 1e-12 * norm(&b));
    for solution in [
        solves(Cg::new(&a).preconditioner(&jacobi), &a, &ones, &b),
        solves(PipelinedCg::new(&a).preconditioner(&jacobi), &a, &ones, &b),
        solves(Fcg::new(&a).preconditioner(&jacobi), &a, &ones, &b),
        solves(Minres::new(&a), &a, &ones, &b),
        solves(Minres::new(&a).preconditioner(&jacobi), &a, &ones, &b),
        solves(Gmres::new(&a).restart(60).preconditioner(&jacobi), &a, &ones, &b),
        solves(Fgmres::new(&a).restart(60).preconditioner(&jacobi), &a, &ones, &b),
        solves(BiCgStab::new(&a).preconditioner(&jacobi), &a, &ones, &b),
        solves(Idr::new(&a).preconditioner(&jacobi), &a, &ones, &b),
    ] {
        let difference: Vec<f64> = solution.x.iter().zip(&first.x).map(|(x, y)| x - y).collect();
        assert!(norm(&difference) <= 1e-6 * norm(&first.x), "{:e}", norm(&difference));
    }

    // in another ordering, from a guess that is off by a constant
    let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    let mut solver = Cg::new(&reordered).null_space(&ones).unwrap().rtol(1e-9);
    let shifted: Vec<f64> = first.x.iter().map(|x| x + 5.0).collect();
    let solution = solver.solve_from(&b, &shifted).unwrap();
    assert!(solution.report.converged() && solution.report.iterations <= 2, "{}", solution.report);
    assert!(solution.x.iter().sum::<f64>().abs() <= 1e-9 * norm(&first.x));
    // the projection of a right-hand side in the null space is zero
    let solution = solver.solve(&vec![3.0; a.rows()]).unwrap();
    assert_eq!((solution.report.iterations, solution.report.outcome), (0, Outcome::Converged));
    assert!(norm(&solution.x) == 0.0);

    let a = matrices::stencil7(10).zero_row_sums().csr::<f32>().unwrap();
    let b: Vec<f32> = b.iter().map(|&b| b as f32).collect();
    let solution = Cg::new(&a).null_space(&[vec![1.0; a.rows()]]).unwrap().rtol(1e-5).solve(&b).unwrap();
    assert!(solution.report.converged(), "{}", solution.report);
}

#[test]
fn floating_structures() {
    let (triplets, modes) = floating(5);
    let a = triplets.csr::<f64>().unwrap();
    let jacobi = Jacobi::new(&a).unwrap();
    let b = matrices::vector(a.rows());
    let first = solves(Cg::new(&a).preconditioner(&jacobi), &a, &modes, &b);
    for solution in [
        solves(Minres::new(&a).preconditioner(&jacobi), &a, &modes, &b),
        solves(Gmres::new(&a).restart(100).preconditioner(&jacobi), &a, &modes, &b),
    ] {
        let difference: Vec<f64> = solution.x.iter().zip(&first.x).map(|(x, y)| x - y).collect();
        assert!(norm(&difference) <= 1e-6 * norm(&first.x), "{:e}", norm(&difference));
    }
}

#[test]
fn vectors_outside_of_the_null_space_are_refused() {
    let (triplets, modes) = floating(3);
    let a = triplets.csr::<f64>().unwrap();
    let refused = |vectors: &[Vec<f64>]| Cg::new(&a).null_space(vectors).err().unwrap();
    assert!(matches!(refused(&[vec![1.0; a.rows() - 1]]), Error::Size { got: 80, expected: 81, .. }));
    assert!(matches!(refused(&[vec![0.0; a.rows()]]), Error::Dependent { vector: 0 }));
    let mut repeated = modes.clone();
    repeated.push(modes[1].iter().zip(&modes[4]).map(|(x, y)| 2.0 * x - y).collect());
    assert!(matches!(refused(&repeated), Error::Dependent { vector: 6 }));
    let mut bent = modes.clone();
    bent[2][7] += 0.01;
    let error = refused(&bent);
    assert!(matches!(error, Error::NotNull { vector: 2, .. }), "{error}");
    assert!(error.to_string().contains("vector 2 is not in the null space of `A`"));
    // fixed at both ends, the matrix has no null space
    let held = edge::tridiagonal(20).csr::<f64>().unwrap();
    assert!(matches!(Cg::new(&held).null_space(&[[1.0; 20]]), Err(Error::NotNull { vector: 0, .. })));
    // an empty list declares no null space
    assert!(
        Cg::new(&held).null_space::<[f64; 20]>(&[]).unwrap().solve(&[1.0; 20]).unwrap().report.converged()
    );
}
