//! Preconditioners: the laws of operators, and iterations saved on real finite-element systems.
//!
//! Iterations are counted to a relative residual of 1e-8. Slow tests are ignored by default:
//! `cargo test --release --test suite preconditioners -- --include-ignored`.

use krysp::formats::Rounded;
use krysp::io::{read_matrix, read_vector};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, edge};
use krysp::testing::needed_matrix;
use krysp::{
    Amg, AmgOptions, Bf16, BiCgStab, Cg, Chebyshev, Cholesky, CoarseSpace, Composed, Csr, Error, Fsai,
    HostVector, Ic0, Idr, Ilu0, Ilut, IlutOptions, Isai, Jacobi, LinearOperator, Permutation, Real, Sell,
    Side, SinglePrecision, Spai, Sparsity, gallery,
};

/// Checks the laws of operators, for preconditioners built and applied on different numbers of threads.
fn obeys<T: Real, M: LinearOperator<Vector = HostVector<T>>>(build: impl Fn() -> krysp::Result<M> + Sync) {
    let m = build().unwrap();
    laws::stale_values(&m).unwrap();
    laws::second_product(&m).unwrap();
    laws::operator_fusions(&m, Agreement::Bitwise).unwrap();
    laws::several_products(&m, &[1, 2, 3, 8, 17], Agreement::Bitwise).unwrap();
    laws::sizes_refused(&m).unwrap();
    laws::same_on_all_threads(&|| Ok(build().unwrap())).unwrap();
}

fn all_obey<T: Real>(a: &Csr<T>) {
    let fsai = Fsai::<T>::GROWTH;
    obeys(|| Fsai::new(a));
    obeys(|| Fsai::adaptive(a, Sparsity::Power(1), fsai));
    obeys(|| {
        let fsai = Fsai::new(a)?;
        Ok(Composed::new(Sell::new(fsai.upper())?, Sell::new(fsai.lower())?)?)
    });
    for side in [Side::Left, Side::Right] {
        obeys(|| Spai::with_pattern(a, side, Sparsity::Power(1)));
        obeys(|| Spai::adaptive(a, side, Sparsity::Power(0), Spai::<T>::GROWTH));
    }
    obeys(|| Ic0::new(a));
    obeys(|| Ilu0::new(a));
    obeys(|| Ilut::new(a));
    obeys(|| Isai::new(Ic0::new(a)?, Sparsity::Power(1)));
    obeys(|| Isai::new(Ilu0::new(a)?, Sparsity::Power(1)));
    obeys(|| Jacobi::blocks(a, 7));
    obeys(|| Jacobi::blocks(a, 30)?.rounded(0.1));
    obeys(|| SinglePrecision::new(Fsai::new(&a.cast::<f32>())?));
}

#[test]
fn laws_of_operators() {
    let stencil = matrices::stencil7(13).csr::<f64>().unwrap();
    for a in [
        stencil.reordered(&Permutation::rcm(&stencil).unwrap()).unwrap(),
        matrices::elasticity(6).csr::<f64>().unwrap(),
        edge::diagonal(1).csr().unwrap(),
        Csr::from_triplets::<usize>(0, 0, &[]).unwrap(),
    ] {
        all_obey(&a);
        all_obey(&a.cast::<f32>());
    }
}

/// A matrix and its right-hand side. Reports missing files.
fn system(name: &str) -> Option<(Csr<f64>, Vec<f64>)> {
    let (matrix, rhs) = (needed_matrix(name)?, needed_matrix(&format!("{name}_b"))?);
    Some((read_matrix(matrix).unwrap(), read_vector(rhs).unwrap()))
}

fn cg(a: &Csr<f64>, b: &[f64], m: impl LinearOperator<Vector = HostVector<f64>>) -> f64 {
    let report = Cg::new(a).preconditioner(m).rtol(1e-8).solve(b).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations as f64
}

fn bicgstab(a: &Csr<f64>, b: &[f64], m: impl LinearOperator<Vector = HostVector<f64>>) -> f64 {
    let report = BiCgStab::new(a).preconditioner(m).rtol(1e-8).solve(b).unwrap().report;
    assert!(report.converged(), "{report}");
    report.iterations as f64
}

fn adaptive(a: &Csr<f64>) -> Fsai<f64> {
    Fsai::adaptive(a, Sparsity::Power(1), Fsai::<f64>::GROWTH).unwrap()
}

#[test]
fn a_small_heat_sink() {
    let Some((a, b)) = system("heat_sink_p1_27k") else { return };
    let jacobi = cg(&a, &b, Jacobi::new(&a).unwrap());
    let fsai = Fsai::new(&a).unwrap();
    let fixed = cg(&a, &b, &fsai);
    let grown = cg(&a, &b, adaptive(&a));
    let [upper, lower] = [fsai.upper(), fsai.lower()].map(|factor| Sell::new(&factor.cast::<f32>()).unwrap());
    let narrow = cg(&a, &b, SinglePrecision::new(Composed::new(upper, lower).unwrap()).unwrap());
    let ic0 = Ic0::new(&a).unwrap();
    let exact = cg(&a, &b, &ic0);
    let isai = cg(&a, &b, Isai::new(&ic0, Sparsity::Power(1)).unwrap());
    println!("jacobi {jacobi} fsai {fixed} {grown} {narrow} ic0 {exact} isai {isai}");
    assert!(jacobi >= 2.2 * fixed && fixed >= 1.25 * grown);
    assert!(narrow <= 1.05 * fixed);
    assert!(jacobi >= 2.4 * exact && jacobi >= 2.0 * isai);
}

/// Factors in single precision, with vectors in double precision, need half of the bytes for values and about as many iterations.
/// In 16 bits they need a quarter of the bytes, and at most 10 % more iterations.
#[test]
fn fsai_stored_in_fewer_bits() {
    let elastic = matrices::elasticity(10).csr::<f64>().unwrap();
    for a in [matrices::stencil7(24).csr::<f64>().unwrap(), elastic] {
        let fsai = Fsai::new(&a).unwrap();
        let b = laws::numbers(a.rows(), 7);
        let solve = |m: &dyn LinearOperator<Vector = HostVector<f64>>| {
            let report = Cg::new(&a).preconditioner(m).rtol(1e-12).solve(&b).unwrap().report;
            assert!(report.converged(), "{report}");
            report.iterations
        };
        let [upper, lower] = [fsai.upper(), fsai.lower()].map(|factor| Sell::new(factor).unwrap());
        let double = Composed::new(upper.clone(), lower.clone()).unwrap();
        let halves = [upper.clone(), lower.clone()].map(Rounded::<Sell<f64>, Bf16>::of);
        let [upper, lower] = [upper, lower].map(Rounded::<Sell<f64>, f32>::of);
        let single = Composed::new(upper, lower).unwrap();
        let [upper, lower] = halves;
        let half = Composed::new(upper, lower).unwrap();
        assert!(3 * single.bytes() < 2 * double.bytes(), "{} of {}", single.bytes(), double.bytes());
        let (double, single, half) = (solve(&double), solve(&single), solve(&half));
        println!("iterations: f64 {double}, f32 {single}, bf16 {half}");
        assert!(double.abs_diff(single) <= 2 && 10 * half <= 11 * double, "{double} {single} {half}");
    }
}

/// Options may be as large as their type allows.
#[test]
fn the_largest_options_do_not_overflow() {
    let a = gallery::poisson::<f64>(&[8, 8]).unwrap();
    let b = matrices::vector(64);
    let ilut = Ilut::with(&a, IlutOptions { fill: f64::INFINITY, ..IlutOptions::default() }).unwrap();
    let complete = Ilut::with(&a, IlutOptions { fill: 1e3, ..IlutOptions::default() }).unwrap();
    assert_eq!(ilut.entries(), complete.entries());
    assert!(Idr::new(&a).shadow_vectors(usize::MAX).solve(&b).unwrap().report.converged());
    let jacobi = Jacobi::new(&a).unwrap();
    let chebyshev = Chebyshev::with_bounds(&a, jacobi, usize::MAX, [0.1, 2.0]).unwrap();
    assert_eq!(chebyshev.bytes(), usize::MAX);
    for sweeps in [0, usize::MAX] {
        let options = AmgOptions { sweeps, ..AmgOptions::default() };
        let error = Amg::with::<Vec<f64>>(&a, &[], options).unwrap_err();
        assert!(error.to_string().contains("sweeps"), "{error}");
    }
}

/// What is wrong with a matrix or a near-null space is said in its words.
#[test]
fn refusals_name_the_property_that_is_missing() {
    let a = gallery::poisson::<f64>(&[30, 30]).unwrap();
    let changed = |change: &dyn Fn(usize, usize, f64) -> f64| {
        let values: Vec<f64> = a.triplets().map(|(i, j, value)| change(i, j, value)).collect();
        a.with_values(&values).unwrap()
    };
    let indefinite = changed(&|i, j, value| if i == j { value - 1.7 } else { value });
    let error = Amg::new(&indefinite).unwrap_err();
    assert!(error.to_string().contains("not positive definite"), "{error}");
    assert!(!matches!(error, Error::Solver(_)), "{error}");
    let error = Cholesky::new(&indefinite).unwrap_err();
    assert!(matches!(error, Error::NotPositive { .. }), "{error}");
    let unsymmetric = changed(&|i, j, value| {
        if i > j {
            2.0 * value
        } else if i < j {
            value
        } else {
            value - 1.7
        }
    });
    let error = Cholesky::new(&unsymmetric).unwrap_err();
    assert!(matches!(error, Error::NotSymmetric { .. }), "{error}");
    // one triangle is enough
    let lower: Vec<_> = indefinite.triplets().filter(|&(i, j, _)| i >= j).collect();
    let error = Cholesky::new(&Csr::from_triplets(900, 900, &lower).unwrap()).unwrap_err();
    assert!(matches!(error, Error::NotPositive { .. }), "{error}");
    let mut mode = vec![1.0; 900];
    mode[7] = f64::NAN;
    for error in [
        Amg::with_near_null_space(&a, &[&mode]).unwrap_err(),
        CoarseSpace::with_near_null_space(&a, 100, &[&mode]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("entry 7 of vector 0 is NaN"), "{error}");
    }
}

#[test]
fn fsai_on_an_elastic_bracket() {
    let Some((a, b)) = system("elast_tiny") else { return };
    assert!(732.0 >= 2.9 * cg(&a, &b, Fsai::new(&a).unwrap()));
}

#[test]
#[ignore = "half a minute in the test profile"]
fn fsai_on_a_heat_sink() {
    let Some((a, b)) = system("heat_sink_p1_340k") else { return };
    let fixed = cg(&a, &b, Fsai::new(&a).unwrap());
    assert!(1329.0 >= 2.3 * fixed);
    assert!(fixed >= 1.3 * cg(&a, &b, adaptive(&a)));
}

#[test]
#[ignore = "half a minute in the test profile"]
fn adaptive_fsai_on_an_elastic_bracket() {
    let Some((a, b)) = system("elast_bracket_p1_59k") else { return };
    let fixed = cg(&a, &b, Fsai::new(&a).unwrap());
    assert!(2155.0 >= 2.9 * fixed && fixed >= 1.3 * cg(&a, &b, adaptive(&a)), "{fixed}");
}

#[test]
#[ignore = "half a minute in the test profile"]
fn spai_on_convection_diffusion() {
    let Some((a, b)) = system("convdiff_channel_p1_186k") else { return };
    let jacobi = bicgstab(&a, &b, Jacobi::new(&a).unwrap());
    let spai = Spai::new(&a).unwrap();
    assert!(spai.report().missed.is_empty());
    let fixed = bicgstab(&a, &b, spai);
    let ilu0 = Ilu0::new(&a).unwrap();
    let isai = bicgstab(&a, &b, Isai::new(&ilu0, Sparsity::Power(1)).unwrap());
    let ilut = bicgstab(&a, &b, Ilut::new(&a).unwrap());
    let exact = bicgstab(&a, &b, &ilu0);
    println!("jacobi {jacobi} spai {fixed} ilu0 {exact} isai {isai} ilut {ilut}");
    assert!(fixed <= 290.0 && jacobi >= 2.5 * exact && jacobi >= 2.0 * isai);
    let grown = Spai::adaptive(&a, Side::Right, Sparsity::Power(0), Spai::<f64>::GROWTH).unwrap();
    assert!(100 * grown.report().missed.len() <= 5 * a.rows());
    assert!(bicgstab(&a, &b, grown) <= 340.0);
}

/// A worker of a pool that waits for other threads during an application may begin another application of the same preconditioner.
#[test]
fn preconditioners_are_applied_by_all_tasks_of_a_pool() {
    use rayon::prelude::*;

    let a = matrices::stencil7(40).csr::<f64>().unwrap();
    let ilu0 = || Ilu0::new(&a).unwrap();
    let single = Ilu0::new(&a.cast::<f32>()).unwrap();
    let all: [Box<dyn LinearOperator<Vector = HostVector<f64>>>; 3] = [
        Box::new(ilu0()),
        Box::new(SinglePrecision::new(single).unwrap()),
        Box::new(Composed::new(ilu0(), ilu0()).unwrap()),
    ];
    let r = HostVector::from_slice(&(0..a.rows()).map(|i| (i % 7) as f64 - 3.0).collect::<Vec<_>>());
    for m in &all {
        let mut expected = r.clone();
        m.apply(&r, &mut expected).unwrap();
        (0..40).into_par_iter().for_each(|_| {
            let mut z = r.clone();
            m.apply(&r, &mut z).unwrap();
            assert!(z.as_slice() == expected.as_slice());
        });
    }
}

#[test]
fn rows_without_entries_are_refused() {
    // more empty rows than a group of rows in a level has
    let diagonal: Vec<_> = (0..300).map(|i| (i, i, 2.0)).collect();
    let a = Csr::<f64>::from_triplets(500, 500, &diagonal).unwrap();
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| assert!(Ilu0::new(&a).is_err() && Ic0::new(&a).is_err(), "{threads} threads"));
    }
}
