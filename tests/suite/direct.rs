//! Direct factorizations: systems that they solve, errors, and bitwise equality for all numbers of threads.

use crate::truth::check;
use krysp::plan::{Method, Preconditioner};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, edge};
use krysp::{
    Cg, Cholesky, Csr, DirectOptions, Error, Gmres, HostVector, Ldl, LinearOperator, Lu, MultiVector,
    Permutation, Plan, Refresh, SinglePrecision, Solution, Space,
};

/// The result of applying an operator to a test vector.
fn applied<M: LinearOperator<Vector = HostVector<f64>>>(m: &M) -> Vec<f64> {
    let b = m.range().vector(&matrices::vector(m.range().len())).unwrap();
    let mut x = m.domain().zeros().unwrap();
    m.apply(&b, &mut x).unwrap();
    x.as_slice().to_vec()
}

fn on_threads<R: Send>(count: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap().install(work)
}

/// An unsymmetric pattern, convection, and rows of different magnitudes.
fn general(side: usize) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let n = stencil.rows();
    let wind = |(i, j, v): (usize, usize, f64)| {
        (i, j, (if j > i { 0.3 } else { 1.4 }) * v * 10f64.powi(i as i32 % 3 - 1))
    };
    let mut entries: Vec<_> = stencil.triplets().map(wind).collect();
    entries.extend((0..n / 3).map(|k| (k, n - 1 - k, 0.25)));
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Permutes the rows of a matrix so that few entries remain on the diagonal.
fn shuffled(a: &Csr<f64>) -> Csr<f64> {
    let n = a.rows();
    let entries: Vec<_> = a.triplets().map(|(i, j, v)| ((5 * i + 3) % n, j, v)).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Systems that `Lu` must solve in one or two iterations.
fn systems() -> Vec<(&'static str, Csr<f64>)> {
    vec![
        ("wind", general(8)),
        ("shuffled rows", shuffled(&general(7))),
        ("elasticity", matrices::elasticity(4).csr().unwrap()),
        ("circuit", matrices::circuit(3000, 200).csr().unwrap()),
        ("arrow", edge::arrow(300).csr().unwrap()),
        ("no diagonal", edge::cyclic_shift(50).csr().unwrap()),
        ("diagonal", edge::diagonal(20).csr().unwrap()),
        ("one unknown", edge::diagonal(1).csr().unwrap()),
        ("none", edge::empty(0, 0).csr().unwrap()),
    ]
}

#[test]
fn lu_solves_in_one_or_two_iterations() {
    for (name, a) in systems() {
        let b = matrices::vector(a.rows());
        let lu = Lu::new(&a).unwrap();
        assert!(lu.nnz() >= a.rows(), "{name}");
        let solution = Gmres::new(&a).preconditioner(lu).rtol(1e-12).solve(&b).unwrap();
        println!("{name}: {}", solution.report);
        check(&a, &b, 1e-12, &solution);
        assert!(
            solution.report.converged() && solution.report.iterations <= 2,
            "{name}: {}",
            solution.report
        );
    }
}

#[test]
fn vectors_stay_in_the_ordering_of_the_user() {
    let a = general(6);
    let turned = Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let turned = a.reordered(&turned).unwrap();
    let b = matrices::vector(a.rows());
    let solution =
        Gmres::new(&turned).preconditioner(Lu::new(&turned).unwrap()).rtol(1e-12).solve(&b).unwrap();
    assert!(solution.report.converged(), "{}", solution.report);
    assert!(crate::truth::residual(&a, &solution.x, &b) < 1e-11 * crate::truth::norm(&b));
}

#[test]
fn real_systems_are_solved() {
    for (name, most) in
        [("west0479", 10_000), ("gemat12", 120_000), ("rajat19", 60_000), ("memplus", 200_000)]
    {
        let Some(path) = krysp::testing::needed_matrix(name) else { continue };
        let a: Csr<f64> = krysp::io::read_matrix(path).unwrap();
        let lu = Lu::new(&a).unwrap();
        assert!(lu.nnz() < most, "{name}: {} entries", lu.nnz());
        let mut b = a.range().zeros().unwrap();
        a.apply(&HostVector::from_slice(&vec![1.0; a.rows()]), &mut b).unwrap();
        let report = Gmres::new(&a).preconditioner(lu).rtol(1e-10).solve(b.as_slice()).unwrap().report;
        assert!(report.converged() && report.iterations <= 3, "{name}: {report}");
    }
}

#[test]
fn threads_change_no_bit_of_lu() {
    let a = general(10);
    let expected = on_threads(1, || applied(&Lu::new(&a).unwrap()));
    for threads in [2, 5] {
        assert!(on_threads(threads, || applied(&Lu::new(&a).unwrap())) == expected, "{threads} threads");
    }
}

#[test]
fn singular_matrices_are_refused_with_a_column() {
    // the last column is the sum of the first two
    let a = Csr::from_triplets(
        3,
        3,
        &[(0, 0, 1.0), (0, 2, 1.0), (1, 1, 3.0), (1, 2, 3.0), (2, 0, 2.0), (2, 1, 4.0), (2, 2, 6.0)],
    )
    .unwrap();
    let refused = Lu::new(&a).unwrap_err();
    assert!(matches!(refused, Error::Singular { column: 0..3, .. }), "{refused}");
    let no_column = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (1, 0, 1.0), (2, 2, 1.0)]).unwrap();
    let refused = Lu::new(&no_column).unwrap_err();
    assert!(matches!(refused, Error::Singular { column: 1, pivot: 0.0, .. }), "{refused}");
    let not_finite = Csr::from_triplets(2, 2, &[(0, 0, f64::NAN), (1, 1, 1.0)]).unwrap();
    assert!(matches!(Lu::new(&not_finite), Err(Error::NotFinite { row: 0, col: 0, .. })));
    let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Lu::new(&wide), Err(Error::NotSquare { .. })));
}

#[test]
fn factors_beyond_the_limit_are_refused() {
    let a = general(12);
    let enough = Lu::new(&a).unwrap().bytes();
    // in addition to the factors, each thread needs memory for the front that it eliminates, and contribution
    // blocks wait for their parent fronts
    Lu::with(&a, DirectOptions { memory: Some(10 * enough) }).unwrap();
    let refused = Lu::with(&a, DirectOptions { memory: Some(enough / 2) }).unwrap_err();
    let Error::Memory { needed, limit, .. } = refused else { panic!("{refused}") };
    assert!(needed > limit && limit == enough / 2, "{refused}");
    assert!(refused.to_string().contains("iterative method"), "{refused}");
}

#[test]
fn refreshed_factors_are_those_of_the_new_values() {
    let a = general(7);
    let a = Csr::from_sorted(a.cols(), a.offsets(), a.columns().to_vec(), a.entries().to_vec()).unwrap();
    let larger = |(i, j, v): (usize, usize, f64)| if i == j { v * (1.5 + (i % 7) as f64) } else { v };
    let b = a.with_values(&a.triplets().map(larger).collect::<Vec<_>>()).unwrap();
    let (of_a, of_b) = (applied(&Lu::new(&a).unwrap()), applied(&Lu::new(&b).unwrap()));
    assert_ne!(of_a, of_b);
    let mut lu = Lu::new(&a).unwrap();
    lu.refresh(&b).unwrap();
    assert!(applied(&lu) == of_b);
    lu.refresh(&a).unwrap();
    assert!(applied(&lu) == of_a);
    // values for which the old pivots are too small
    let c: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { 1e-12 * v } else { v }).collect();
    let c = a.with_values(&c).unwrap();
    lu.refresh(&c).unwrap();
    assert!(applied(&lu) == applied(&Lu::new(&c).unwrap()));
    let other = general(6);
    assert!(lu.refresh(&other).is_err());
    // a singular matrix is an error, after which a refresh with other values succeeds
    let zeros = a.with_values(&vec![0.0; a.nnz()]).unwrap();
    assert!(matches!(lu.refresh(&zeros), Err(Error::Singular { .. })));
    lu.refresh(&a).unwrap();
    let b = vec![1.0; a.rows()];
    assert!(Gmres::new(&a).preconditioner(lu).rtol(1e-12).solve(&b).unwrap().report.iterations <= 2);
}

#[test]
fn factors_in_single_precision_take_about_half_of_the_memory() {
    for (name, a) in systems() {
        let b = matrices::vector(a.rows());
        let (whole, half) =
            (Lu::new(&a).unwrap(), SinglePrecision::new(Lu::new(&a.cast::<f32>()).unwrap()).unwrap());
        assert!(half.bytes() <= whole.bytes(), "{name}");
        // the factors of other systems have many indices beside their values, or other pivots in single precision
        if name == "elasticity" {
            assert!(100 * half.bytes() <= 60 * whole.bytes(), "{} of {}", half.bytes(), whole.bytes());
        }
        let solution = Gmres::new(&a).preconditioner(half).rtol(1e-12).solve(&b).unwrap();
        check(&a, &b, 1e-12, &solution);
        assert!(
            solution.report.converged() && solution.report.iterations <= 8,
            "{name}: {}",
            solution.report
        );
    }
}

/// Systems that `Cholesky` must solve in at most three iterations.
fn definite() -> Vec<(&'static str, Csr<f64>)> {
    vec![
        ("stencil", matrices::stencil7(12).csr().unwrap()),
        ("elasticity", matrices::elasticity(6).csr().unwrap()),
        ("thin plate", matrices::plate([30, 20, 1], 0.3).csr().unwrap()),
        ("tridiagonal", edge::tridiagonal(3000).csr().unwrap()),
        ("diagonal", edge::diagonal(20).csr().unwrap()),
        ("one unknown", edge::diagonal(1).csr().unwrap()),
        ("none", edge::empty(0, 0).csr().unwrap()),
        ("parts", matrices::stencil7(3).csr().map(|a: Csr<f64>| twice(&a)).unwrap()),
    ]
}

/// Two disconnected copies of a matrix, the second multiplied by two.
fn twice(a: &Csr<f64>) -> Csr<f64> {
    let n = a.rows();
    let entries: Vec<_> = a.triplets().flat_map(|(i, j, v)| [(i, j, v), (i + n, j + n, 2.0 * v)]).collect();
    Csr::from_triplets(2 * n, 2 * n, &entries).unwrap()
}

#[test]
fn cholesky_solves_in_at_most_three_iterations() {
    for (name, a) in definite() {
        let b = matrices::vector(a.rows());
        let cholesky = Cholesky::new(&a).unwrap();
        assert!(2 * cholesky.nnz() >= a.nnz(), "{name}");
        // rounding of `x` alone leaves a residual of 1.5e-12 for the tridiagonal matrix
        let solution = Cg::new(&a).preconditioner(cholesky).rtol(4e-12).solve(&b).unwrap();
        println!("{name}: {}", solution.report);
        check(&a, &b, 4e-12, &solution);
        assert!(
            solution.report.converged() && solution.report.iterations <= 3,
            "{name}: {}",
            solution.report
        );
        let narrow = SinglePrecision::new(Cholesky::new(&a.cast::<f32>()).unwrap()).unwrap();
        let solution = Cg::new(&a).preconditioner(narrow).rtol(4e-12).solve(&b).unwrap();
        check(&a, &b, 4e-12, &solution);
        assert!(
            solution.report.converged() && solution.report.iterations <= 15,
            "{name}: {}",
            solution.report
        );
    }
}

#[test]
fn threads_change_no_bit_of_cholesky() {
    let a = matrices::elasticity(9).csr::<f64>().unwrap();
    let expected = on_threads(1, || applied(&Cholesky::new(&a).unwrap()));
    for threads in [2, 5] {
        assert!(
            on_threads(threads, || applied(&Cholesky::new(&a).unwrap())) == expected,
            "{threads} threads"
        );
    }
}

#[test]
fn pivots_that_are_not_positive_are_refused_with_their_row() {
    let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, -1.0), (2, 2, 1.0)]).unwrap();
    assert!(matches!(Cholesky::new(&a), Err(Error::NotPositive { row: 1, pivot: -1.0, .. })));
    let singular = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 4.0)]).unwrap();
    assert!(matches!(Cholesky::new(&singular), Err(Error::NotPositive { pivot: 0.0, .. })));
    let not_finite = Csr::from_triplets(2, 2, &[(0, 0, f64::NAN), (1, 1, 1.0)]).unwrap();
    assert!(matches!(Cholesky::new(&not_finite), Err(Error::NotFinite { row: 0, col: 0, .. })));
    let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Cholesky::new(&wide), Err(Error::NotSquare { .. })));
    // an unsymmetric pattern does not panic
    let _ = Cholesky::new(&general(6));
    let _ = Cholesky::new(&edge::dense_row(40, 3).csr::<f64>().unwrap());
    let _ = Cholesky::new(&edge::dense_column(40, 30).csr::<f64>().unwrap());
}

#[test]
fn cholesky_knows_its_memory_before_it_takes_it() {
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    let needed = |limit| match Cholesky::with(&a, DirectOptions { memory: Some(limit) }) {
        Err(Error::Memory { needed, limit: said, .. }) if said == limit => needed,
        other => panic!("{other:?}"),
    };
    let first = needed(1000);
    let enough = needed(first);
    let cholesky = Cholesky::with(&a, DirectOptions { memory: Some(enough) }).unwrap();
    assert!(first == cholesky.bytes() && enough < 3 * first, "{first} {enough}");
    // a factor that exceeds the limit is an error before any work
    let huge = matrices::stencil7(70).csr::<f64>().unwrap();
    assert!(matches!(
        Cholesky::with(&huge, DirectOptions { memory: Some(1 << 20) }),
        Err(Error::Memory { .. })
    ));
}

#[test]
fn a_refreshed_cholesky_is_that_of_the_new_values() {
    let a = matrices::elasticity(5).csr::<f64>().unwrap();
    let larger = |(i, j, v): (usize, usize, f64)| if i == j { v * (1.5 + (i % 7) as f64) } else { v };
    let b = a.with_values(&a.triplets().map(larger).collect::<Vec<_>>()).unwrap();
    let (of_a, of_b) = (applied(&Cholesky::new(&a).unwrap()), applied(&Cholesky::new(&b).unwrap()));
    let mut cholesky = Cholesky::new(&a).unwrap();
    cholesky.refresh(&b).unwrap();
    assert!(applied(&cholesky) == of_b && of_a != of_b);
    let negative = a.with_values(&a.entries().iter().map(|v| -v).collect::<Vec<_>>()).unwrap();
    assert!(matches!(cholesky.refresh(&negative), Err(Error::NotPositive { .. })));
    cholesky.refresh(&a).unwrap();
    assert!(applied(&cholesky) == of_a);
    assert!(matches!(cholesky.refresh(&matrices::elasticity(5).csr::<f64>().unwrap()), Ok(())));
    assert!(cholesky.refresh(&matrices::elasticity(4).csr::<f64>().unwrap()).is_err());
}

/// Eigenvalues on both sides of zero: a Laplacian minus four times the identity.
fn indefinite(side: usize) -> Csr<f64> {
    let laplacian = matrices::stencil7(side).csr::<f64>().unwrap();
    let shift = (0..laplacian.rows()).map(|i| (i, i, -4.0));
    Csr::from_triplets(
        laplacian.rows(),
        laplacian.cols(),
        &laplacian.triplets().chain(shift).collect::<Vec<_>>(),
    )
    .unwrap()
}

/// Several right-hand sides are solved in groups on several threads; a group reads each front once.
#[test]
fn several_right_hand_sides_have_the_bits_of_single_solves() {
    fn obeys<M: LinearOperator<Vector = HostVector<f64>>>(m: krysp::Result<M>, threads: usize) {
        let m = m.unwrap();
        let many = || laws::several_products(&m, &[0, 1, 2, 3, 8, 17], Agreement::Bitwise);
        on_threads(threads, many).unwrap();
        laws::sizes_refused(&m).unwrap();
    }
    for threads in [1, 3] {
        definite().iter().for_each(|(_, a)| obeys(Cholesky::new(a), threads));
        obeys(Ldl::new(&indefinite(9)), threads);
        systems().iter().for_each(|(_, a)| obeys(Lu::new(a), threads));
    }
    // NaN and infinity in some right-hand sides change no bit of the other solution
    let a = matrices::elasticity(5).csr::<f64>().unwrap();
    let cholesky = Cholesky::new(&a).unwrap();
    let mut r = MultiVector::<HostVector<f64>>::zeros(a.domain(), 3).unwrap();
    let mut z = MultiVector::zeros(a.domain(), 3).unwrap();
    for (j, r) in r.columns_mut().iter_mut().enumerate() {
        let entries = matrices::vector(a.rows());
        r.as_mut_slice().copy_from_slice(&entries);
        r.as_mut_slice()[7] = [entries[7], f64::NAN, f64::INFINITY][j];
    }
    on_threads(1, || cholesky.apply_many(&r, &mut z)).unwrap();
    assert!(z.columns()[0].as_slice() == applied(&cholesky));
    assert!(z.columns()[1..].iter().all(|z| z.as_slice().iter().any(|z| !z.is_finite())));
}

#[test]
fn plans_take_ldl_where_it_is_configured() {
    let (a, b) = (indefinite(7), matrices::vector(343));
    let mut solver = Plan::new(&a).unwrap().preconditioner(Preconditioner::Ldl).build().unwrap();
    let solved = solver.solve(&b).unwrap();
    let [attempt] = solver.attempts() else { panic!("{solved}") };
    assert_eq!((attempt.method, attempt.preconditioner), (Method::Gmres, Preconditioner::Ldl));
    assert!(solved.report.converged() && solved.report.iterations <= 2, "{solved}");
    check(&a, &b, 1e-8, &Solution { x: solved.x, report: solved.report });
}

#[test]
fn threads_change_no_bit_of_ldl() {
    let a = indefinite(9);
    let one = on_threads(1, || applied(&Ldl::new(&a).unwrap()));
    assert_eq!(on_threads(3, || applied(&Ldl::new(&a).unwrap())), one);
}

/// `Cholesky` is refreshed in place: after a refresh that failed, it returns errors instead of applying an
/// incomplete factor.
#[test]
fn a_failed_refresh_of_cholesky_leaves_no_factors() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let negative = a.with_values(&a.entries().iter().map(|value| -value).collect::<Vec<_>>()).unwrap();
    let mut cholesky = Cholesky::new(&a).unwrap();
    let expected = applied(&cholesky);
    assert!(matches!(cholesky.refresh(&negative), Err(Error::NotPositive { .. })));
    let r = HostVector::from_slice(&vec![1.0; a.rows()]);
    assert!(cholesky.apply(&r, &mut r.clone()).is_err());
    assert!(cholesky.condition_estimate().is_err());
    let r = MultiVector::from_columns(a.domain(), vec![r.clone(), r]).unwrap();
    assert!(
        cholesky.apply_many(&r, &mut MultiVector::<HostVector<f64>>::zeros(a.domain(), 2).unwrap()).is_err()
    );
    cholesky.refresh(&a).unwrap();
    assert_eq!(applied(&cholesky), expected);
}

/// A circuit: a square grid of conductors of very different conductance, controlled current sources, ideal voltage sources, and ideal
/// operational amplifiers, each with a column for its output current and a row that makes two voltages equal.
fn amplifiers(side: usize, count: usize, sources: usize, seed: u64) -> Csr<f64> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let n = side * side;
    let mut entries: Vec<(usize, usize, f64)> = vec![];
    for node in 0..n {
        let right = (node % side + 1 < side).then_some(node + 1);
        for other in right.into_iter().chain((node + side < n).then_some(node + side)) {
            let g = 10f64.powf(-6.0 * random());
            entries.extend([(node, node, g), (other, other, g), (node, other, -g), (other, node, -g)]);
        }
    }
    entries.extend((0..n).map(|node| (node, node, 10f64.powf(-12.0 + 6.0 * random()))));
    for _ in 0..5 * count {
        let (first, g) = ((n as f64 * random()) as usize, 10f64.powf(-1.0 - 7.0 * random()));
        let [i, j, k, l] = [0, 1, side, side + 1].map(|far| (first + far) % n);
        entries.extend([(i, k, g), (i, l, -g), (j, k, -g), (j, l, g)]);
    }
    let mut nodes: Vec<usize> = (0..n).collect();
    for at in 0..3 * count + 2 * sources {
        nodes.swap(at, at + ((n - at) as f64 * random()) as usize);
    }
    let (of_amplifiers, of_sources) = nodes.split_at(3 * count);
    for (extra, of) in (n..).zip(of_amplifiers.chunks(3)) {
        entries.extend([(of[0], extra, 1.0), (extra, of[1], 1.0), (extra, of[2], -1.0)]);
    }
    for (extra, of) in (n + count..).zip(of_sources.chunks(2)).take(sources) {
        entries.extend([
            (of[0], extra, 1.0),
            (of[1], extra, -1.0),
            (extra, of[0], 1.0),
            (extra, of[1], -1.0),
        ]);
    }
    Csr::from_triplets(n + count + sources, n + count + sources, &entries).unwrap()
}

#[test]
fn circuits_of_ideal_amplifiers_are_not_called_singular() {
    let mut by_columns = 0;
    for seed in 1..8 {
        let a = amplifiers(30, 20, 4, seed);
        let lu = Lu::new(&a).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        by_columns += usize::from(!lu.report().by_fronts);
        let x: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.01).sin()).collect();
        let mut b = vec![0.0; a.rows()];
        a.triplets().for_each(|(i, j, value)| b[i] += value * x[j]);
        let solution = Gmres::new(&a).preconditioner(lu).rtol(1e-10).solve(&b).unwrap();
        check(&a, &b, 1e-10, &solution);
    }
    assert!(by_columns > 0, "fronts lose no pivot of these circuits");
}
