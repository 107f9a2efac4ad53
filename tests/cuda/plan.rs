//! Plans for a GPU solve every kind of system; residuals are checked in host memory.

use super::{gpu, residual};
use krysp::plan::{Method, Preconditioner, Solved};
use krysp::testing::laws;
use krysp::testing::matrices;
use krysp::{Csr, Cuda, Plan};

/// `‖b‖` as `‖b − A 0‖`.
fn norm(a: &Csr<f64>, b: &[f64]) -> f64 {
    residual(a, b, &vec![0.0; b.len()])
}

/// Solves several times with the image of a test vector as right-hand side. Returns the last solution.
fn solves(gpu: &Cuda, name: &str, a: &Csr<f64>, times: usize) -> Solved<f64> {
    let plan = Plan::new(a).unwrap().on(gpu).solves(times);
    let mut solver = plan.build().unwrap();
    let mut last = None;
    for round in 0..times.min(3) {
        let x = laws::numbers::<f64>(a.rows(), round as u64);
        let mut b = vec![0.0; a.rows()];
        a.triplets().for_each(|(i, j, v)| b[i] += v * x[j]);
        let solved = solver.solve(&b).unwrap();
        println!("{name}, {times} solves: {solved}");
        assert!(solved.converged(), "{name}: {solved}");
        let left = residual(a, &b, &solved.x) / norm(a, &b);
        assert!(left <= 1.001e-8, "{name}: {left:e}, {solved}");
        last = Some(solved);
    }
    last.unwrap()
}

/// A matrix whose entries above the diagonal are multiplied by a factor, like convection.
fn convection(side: usize) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let entries: Vec<_> =
        stencil.triplets().map(|(i, j, v)| (i, j, if j > i { 0.3 * v } else { v })).collect();
    Csr::from_triplets(stencil.rows(), stencil.rows(), &entries).unwrap()
}

/// A stencil with a shift between its eigenvalues, so that some become negative; its diagonal remains positive.
fn indefinite(side: usize) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let entries: Vec<_> =
        stencil.triplets().map(|(i, j, v)| (i, j, if i == j { v - 0.5 } else { v })).collect();
    Csr::from_triplets(stencil.rows(), stencil.rows(), &entries).unwrap()
}

/// A chain of points without boundary conditions: constants are its null space.
fn floating_chain(n: usize) -> Csr<f64> {
    let link = |i: usize| [(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)];
    Csr::from_triplets(n, n, &(0..n - 1).flat_map(link).collect::<Vec<_>>()).unwrap()
}

gpu_test!(every_kind_of_system_is_solved);
fn every_kind_of_system_is_solved() {
    let gpu = gpu();
    let stencil = matrices::stencil7(40).csr::<f64>().unwrap();
    let few = solves(&gpu, "stencil", &stencil, 1);
    assert_eq!(
        (few.attempts[0].method, few.attempts[0].preconditioner),
        (Method::Cg, Preconditioner::Jacobi)
    );
    let many = solves(&gpu, "stencil", &stencil, 1000);
    assert_eq!(many.attempts.len(), 1, "{many}");
    solves(&gpu, "elasticity", &matrices::elasticity(12).csr().unwrap(), 1);
    solves(&gpu, "elasticity", &matrices::elasticity(12).csr().unwrap(), 100);
    let unsymmetric = solves(&gpu, "convection", &convection(30), 1);
    assert_eq!(unsymmetric.attempts[0].method, Method::BiCgStab);
    solves(&gpu, "convection", &convection(30), 1000);
    solves(&gpu, "indefinite", &indefinite(12), 1);
    solves(&gpu, "singular", &floating_chain(200), 1);
}

gpu_test!(each_preconditioner_is_taken_and_takes_new_values);
fn each_preconditioner_is_taken_and_takes_new_values() {
    use Preconditioner::{Amg, Fsai, Jacobi, None, Spai, TwoLevel};
    let gpu = gpu();
    let a = matrices::elasticity(8).csr::<f64>().unwrap();
    let b = laws::numbers::<f64>(a.rows(), 5);
    let values: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    let other = a.with_values(&values).unwrap();
    for preconditioner in [None, Jacobi, TwoLevel, Amg, Fsai, Spai] {
        let method = if preconditioner == Spai { Method::Gmres } else { Method::Cg };
        let plan = Plan::new(&a).unwrap().on(&gpu).values_change(true);
        let mut solver = plan.method(method).preconditioner(preconditioner).build().unwrap();
        for matrix in [&a, &other] {
            let solved = solver.solve(&b).unwrap();
            println!("{preconditioner}: {solved}");
            assert!(solved.converged() && solved.attempts.len() == 1, "{solved}");
            assert!(residual(matrix, &b, &solved.x) <= 1.001e-8 * norm(matrix, &b), "{solved}");
            solver.refresh(&values).unwrap();
        }
    }
}

gpu_test!(several_right_hand_sides_are_solved_with_the_candidate_of_the_first);
fn several_right_hand_sides_are_solved_with_the_candidate_of_the_first() {
    let gpu = gpu();
    let a = matrices::elasticity(12).csr::<f64>().unwrap();
    let mut b: Vec<Vec<f64>> = (0..6).map(|seed| laws::numbers(a.rows(), seed)).collect();
    b[3].fill(0.0);
    let plan = || Plan::new(&a).unwrap().on(&gpu).method(Method::Cg).preconditioner(Preconditioner::Amg);
    let mut alone = plan().build().unwrap();
    let together = plan().build().unwrap().solve_many(&b).unwrap();
    assert_eq!(together.len(), b.len());
    for (b, together) in b.iter().zip(&together) {
        println!("{together}");
        let own = alone.solve(b).unwrap();
        assert!(together.converged() && together.attempts.len() == own.attempts.len(), "{together}");
        assert!(own.report.iterations.abs_diff(together.report.iterations) <= 2, "{own}, {together}");
        assert!(residual(&a, b, &together.x) <= 1.001e-8 * norm(&a, b), "{together}");
    }
}

gpu_test!(factorizations_of_the_host_are_applied_to_vectors_of_the_gpu);
fn factorizations_of_the_host_are_applied_to_vectors_of_the_gpu() {
    use Preconditioner::{Cholesky, Ic0, Ilu0, Ilut, Lu};
    let gpu = gpu();
    let stencil = matrices::stencil7(10).csr::<f64>().unwrap();
    let permutation = krysp::Permutation::rcm(&stencil).unwrap();
    let cases = [
        (Cholesky, Method::Cg, stencil.clone()),
        (Ic0, Method::Cg, stencil.reordered(&permutation).unwrap()),
        (Ilu0, Method::BiCgStab, convection(10)),
        (Ilut, Method::Idr, convection(10).reordered(&permutation).unwrap()),
        (Lu, Method::Gmres, convection(10)),
    ];
    for (preconditioner, method, a) in cases {
        let b = laws::numbers::<f64>(a.rows(), 5);
        let values: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
        let other = a.with_values(&values).unwrap();
        let plan =
            || Plan::new(&a).unwrap().values_change(true).method(method).preconditioner(preconditioner);
        let mut on_host = plan().build().unwrap();
        let mut on_gpu = plan().on(&gpu).build().unwrap();
        for matrix in [&a, &other] {
            let (expected, solved) = (on_host.solve(&b).unwrap(), on_gpu.solve(&b).unwrap());
            println!("{preconditioner}: {solved}");
            assert!(solved.converged() && solved.attempts.len() == 1, "{solved}");
            assert!(user_residual(matrix, &b, &solved.x) <= 1.001e-8 * norm(&stencil, &b), "{solved}");
            // both run the same method with the same preconditioner, so the iterations differ by rounding only
            let [host, gpu] = [&expected, &solved].map(|solved| solved.report.iterations);
            assert!(gpu.abs_diff(host) <= 1 + host / 10, "{preconditioner}: {host} and {gpu} iterations");
            on_host.refresh(&values).unwrap();
            on_gpu.refresh(&values).unwrap();
        }
    }
}

/// `‖b − A x‖` in the user's order, for a matrix in any ordering.
fn user_residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let product = krysp::Operator::in_format(a, &krysp::Host, "CSR").unwrap();
    let space = krysp::LinearOperator::domain(&product).clone();
    let (x, mut y) = (space.vector(x).unwrap(), space.vector(b).unwrap());
    krysp::LinearOperator::apply(&product, &x, &mut y).unwrap();
    let mut image = vec![0.0; b.len()];
    krysp::Space::store(&space, &y, &mut image).unwrap();
    b.iter().zip(&image).map(|(b, y)| (b - y).powi(2)).sum::<f64>().sqrt()
}

/// A network with a zero diagonal, in which row `i` has its large entry in another column, so that Jacobi is useless.
fn without_diagonal(n: usize) -> Csr<f64> {
    let place = |i: usize| (i * 7919 + 1) % n;
    let entries = (0..n).flat_map(|i| {
        let far = (i * 31 + 7) % n;
        [(i, place(i), 4.0 + (i % 5) as f64), (i, (place(i) + 3) % n, 1.0), (i, far, -0.5)]
    });
    let entries: Vec<_> = entries.filter(|(i, j, _)| i != j).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

gpu_test!(a_system_that_needs_a_factorization_is_solved);
fn a_system_that_needs_a_factorization_is_solved() {
    let (gpu, a) = (gpu(), without_diagonal(3000));
    let all: Vec<_> =
        Plan::new(&a).unwrap().on(&gpu).candidates().iter().map(|one| one.preconditioner).collect();
    assert!(all.contains(&Preconditioner::Ilut) && all.contains(&Preconditioner::Lu), "{all:?}");
    solves(&gpu, "network", &a, 1);
}

gpu_test!(right_hand_sides_of_any_size_are_taken);
fn right_hand_sides_of_any_size_are_taken() {
    let gpu = gpu();
    let a = matrices::stencil7(10).csr::<f64>().unwrap();
    let base = laws::numbers::<f64>(a.rows(), 6);
    let mut solver = Plan::new(&a).unwrap().on(&gpu).build().unwrap();
    for size in [1.0, 1e200, 1e-200] {
        let b: Vec<f64> = base.iter().map(|b| b * size).collect();
        let solved = solver.solve(&b).unwrap();
        let x: Vec<f64> = solved.x.iter().map(|x| x / size).collect();
        assert!(solved.converged(), "{solved}");
        assert!(residual(&a, &base, &x) <= 1.001e-8 * norm(&a, &base), "{solved}");
    }
}

gpu_test!(coordinates_make_rigid_body_modes_on_a_gpu);
fn coordinates_make_rigid_body_modes_on_a_gpu() {
    let gpu = gpu();
    let (a, points) = krysp::gallery::elasticity::<f64>([14, 14, 14], 0.3).unwrap();
    // single unknowns are removed: nodes differ in size, and the host aggregates them
    let free: Vec<usize> =
        (0..a.rows()).filter(|&i| !(i % 3 == 1 && points[i / 3][1] == 0.0) && i % 101 != 7).collect();
    let place = |i: usize| free.binary_search(&i).ok();
    let entries: Vec<_> = a.triplets().filter_map(|(i, j, v)| Some((place(i)?, place(j)?, v))).collect();
    let reduced = Csr::from_triplets(free.len(), free.len(), &entries).unwrap();
    let each: Vec<[f64; 3]> = free.iter().map(|i| points[i / 3]).collect();
    let components: Vec<usize> = free.iter().map(|i| i % 3).collect();
    let amg = |plan: Plan<'_, f64>| {
        let plan = plan.on(&gpu).method(Method::Cg).preconditioner(Preconditioner::Amg);
        let mut solver = plan.build().unwrap();
        let rows = krysp::Space::len(solver.space().unwrap());
        let solved = solver.solve(&laws::numbers::<f64>(rows, 5)).unwrap();
        assert!(solved.converged(), "{solved}");
        solved.report.iterations
    };
    let constants = amg(Plan::new(&a).unwrap());
    let rigid = amg(Plan::new(&a).unwrap().coordinates(&points));
    let removed = amg(Plan::new(&reduced).unwrap().unknown_coordinates(&each, &components));
    println!("constants {constants}, rigid body modes {rigid}, with unknowns removed {removed}");
    assert!(rigid < constants && 4 * removed <= 5 * rigid);
    let a = krysp::gallery::neumann::<f64>(&[60, 60]).unwrap();
    let plan = Plan::new(&a).unwrap().null_space(&[vec![1.0; a.rows()]]).on(&gpu);
    let solved = plan.build().unwrap().solve(&laws::numbers::<f64>(a.rows(), 5)).unwrap();
    assert!(solved.converged() && solved.x.iter().sum::<f64>().abs() < 1e-6, "{solved}");
}
