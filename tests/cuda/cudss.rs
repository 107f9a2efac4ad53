//! Factorizations by cuDSS. Where the library is not installed, these tests are counted as ignored, like all tests on a machine without a
//! GPU.

use super::gpu;
use super::preconditioners::convection;
use krysp::plan::{Method, Preconditioner};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    Csr, CuDss, CuDssKind, Cuda, Element, Error, Gmres, Inertia, Ldl, LinearOperator, Permutation, Plan,
    Real, Refresh, Space, ToCuda,
};
use std::time::Duration;

/// A stencil with a shifted diagonal.
fn shifted(side: usize, shift: f64) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let entries: Vec<_> =
        stencil.triplets().map(|(i, j, v)| (i, j, if i == j { v + shift } else { v })).collect();
    Csr::from_triplets(stencil.rows(), stencil.rows(), &entries).unwrap()
}

/// `[A Bᵀ; B 0]`, where `A` is a stencil, and each row of `B` has two entries.
fn saddle(side: usize) -> Csr<f64> {
    let a = matrices::stencil7(side).csr::<f64>().unwrap();
    let (n, m) = (a.rows(), a.rows() / 5);
    let mut entries: Vec<_> = a.triplets().collect();
    for i in 0..m {
        for (j, value) in [(5 * i, 1.0), (5 * i + 3, -0.5)] {
            entries.extend([(n + i, j, value), (j, n + i, value)]);
        }
    }
    Csr::from_triplets(n + m, n + m, &entries).unwrap()
}

/// Solves with the factors, from a matrix on the GPU, and checks the residual.
fn solves<T: Real>(gpu: &Cuda, what: &str, csr: &Csr<T>, m: &CuDss<T>, rtol: f64) {
    let b = laws::numbers::<T>(csr.rows(), 5);
    let a = csr.to(gpu).unwrap();
    let solution = Gmres::new(&a).preconditioner(m).rtol(rtol).solve(&b).unwrap();
    println!("{what}: {}\n{}", m.report(), solution.report);
    assert!(solution.report.converged() && solution.report.iterations <= 5, "{what}: {}", solution.report);
    let double = |v: &T| Element::to_f64(*v);
    let residual = |x: &[T]| {
        let mut r: Vec<f64> = b.iter().map(double).collect();
        csr.triplets().for_each(|(i, j, v)| r[i] -= double(&v) * double(&x[j]));
        r.iter().map(|r| r * r).sum::<f64>().sqrt()
    };
    let norm = b.iter().map(|b| double(b).powi(2)).sum::<f64>().sqrt();
    // in single precision the residual itself is rounded
    let allowed = rtol * norm * (1.0 + 1e-6) + 10.0 * <T as Element>::EPSILON * norm;
    assert!(residual(&solution.x) <= allowed, "{what}: {:e}", residual(&solution.x));
}

gpu_test!(systems_of_every_kind_are_solved);
fn systems_of_every_kind_are_solved() {
    use CuDssKind::{General, PositiveDefinite, Symmetric};
    let gpu = gpu();
    let elastic = matrices::elasticity(9).csr::<f64>().unwrap();
    let clustered = elastic.reordered(&Permutation::clustered(&elastic, 256).unwrap()).unwrap();
    for (what, a, kind) in [
        ("elasticity", elastic, PositiveDefinite),
        ("stencil", shifted(16, 0.0), PositiveDefinite),
        ("indefinite, positive diagonal", shifted(12, -1.3), Symmetric),
        ("indefinite, negative diagonal", shifted(12, -7.3), Symmetric),
        ("saddle point", saddle(9), General),
        ("unsymmetric", convection::<f64>(5000), General),
    ] {
        let m = CuDss::new(&gpu, &a).unwrap();
        assert_eq!(m.report().kind, kind, "{what}");
        assert!(m.report().factor_entries >= a.rows() && m.bytes() > 0, "{what}: {:?}", m.report());
        solves(&gpu, what, &a, &m, 1e-10);
        let narrow = a.cast::<f32>();
        solves(&gpu, what, &narrow, &CuDss::new(&gpu, &narrow).unwrap(), 1e-5);
        let declared = CuDss::with_kind(&gpu, &a, General);
        match what {
            // pivots of the declared kind without a matching suffice for all but saddle points
            "saddle point" => drop(declared),
            _ => solves(&gpu, what, &a, &declared.unwrap(), 1e-10),
        }
    }
    // in the order of a reordered matrix, from an operator on the GPU
    let on_gpu = clustered.to(&gpu).unwrap();
    let m = CuDss::new(&gpu, &on_gpu).unwrap();
    let b = laws::numbers::<f64>(clustered.rows(), 5);
    let report = Gmres::new(&on_gpu).preconditioner(m).rtol(1e-10).solve(&b).unwrap().report;
    assert!(report.converged() && report.iterations <= 5, "{report}");
}

gpu_test!(signs_of_eigenvalues_are_counted);
fn signs_of_eigenvalues_are_counted() {
    let gpu = gpu();
    for shift in [-1.3, -4.1, -7.3] {
        let a = shifted(10, shift);
        let m = CuDss::with_kind(&gpu, &a, CuDssKind::Symmetric).unwrap();
        let Inertia { negative, positive } = Ldl::new(&a).unwrap().inertia();
        assert_eq!(m.report().inertia, Some(Inertia { negative, positive }), "{shift}: {:?}", m.report());
    }
    assert_eq!(CuDss::new(&gpu, &convection::<f64>(100)).unwrap().report().inertia, None);
}

gpu_test!(applications_agree);
fn applications_agree() {
    let gpu = gpu();
    // well conditioned, so that solutions agree to rounding
    for a in [shifted(10, 2.0), shifted(3, 2.0)] {
        for kind in [CuDssKind::PositiveDefinite, CuDssKind::Symmetric, CuDssKind::General] {
            let m = CuDss::with_kind(&gpu, &a, kind).unwrap();
            laws::operator_fusions(&m, Agreement::Rounding).unwrap();
            laws::several_products(&m, &[1, 2, 3, 8, 2], Agreement::Rounding).unwrap();
            let narrow = CuDss::with_kind(&gpu, &a.cast::<f32>(), kind).unwrap();
            laws::operator_fusions(&narrow, Agreement::Rounding).unwrap();
        }
    }
    let empty = Csr::<f64>::from_triplets::<usize>(0, 0, &[]).unwrap();
    let m = CuDss::new(&gpu, &empty).unwrap();
    m.apply(&m.domain().zeros().unwrap(), &mut m.domain().zeros().unwrap()).unwrap();
}

gpu_test!(new_values_are_factorized_with_the_same_analysis);
fn new_values_are_factorized_with_the_same_analysis() {
    let gpu = gpu();
    for a in [shifted(12, 0.0), shifted(12, -7.3), saddle(8), convection::<f64>(3000)] {
        let mut m = CuDss::new(&gpu, &a).unwrap();
        let analysis = m.report().analysis;
        let values: Vec<f64> =
            a.entries().iter().enumerate().map(|(at, v)| 2.0 * v * (1.0 + 1e-3 * (at % 7) as f64)).collect();
        let symmetric = a.check_symmetric(0.0).is_ok();
        let other = match symmetric {
            true => a.with_values(&a.entries().iter().map(|v| 3.0 * v).collect::<Vec<_>>()).unwrap(),
            false => a.with_values(&values).unwrap(),
        };
        // from the host, and from the GPU
        m.refresh(&other).unwrap();
        solves(&gpu, "refreshed from the host", &other, &m, 1e-10);
        m.refresh(&a.to(&gpu).unwrap()).unwrap();
        solves(&gpu, "refreshed from the GPU", &a, &m, 1e-10);
        assert_eq!(m.report().analysis, analysis);
    }
    // another pattern
    let mut m = CuDss::new(&gpu, &shifted(5, 0.0)).unwrap();
    let diagonal: Vec<_> = (0..125).map(|i| (i, i, 1.0)).collect();
    let other = Csr::from_triplets(125, 125, &diagonal).unwrap();
    assert!(matches!(m.refresh(&other), Err(Error::PatternMismatch { .. })));
}

gpu_test!(a_refresh_to_an_indefinite_matrix_takes_another_kind);
fn a_refresh_to_an_indefinite_matrix_takes_another_kind() {
    let gpu = gpu();
    let (definite, indefinite) = (shifted(10, 0.0), shifted(10, -1.3));
    let mut m = CuDss::new(&gpu, &definite).unwrap();
    m.refresh(&indefinite).unwrap();
    assert_eq!(m.report().kind, CuDssKind::Symmetric);
    solves(&gpu, "indefinite", &indefinite, &m, 1e-10);
    // a declared kind is kept: the refresh fails, so does every application, and another refresh repairs it
    let mut m = CuDss::with_kind(&gpu, &definite, CuDssKind::PositiveDefinite).unwrap();
    let error = m.refresh(&indefinite).unwrap_err();
    assert!(matches!(error, Error::Unsuitable { format: "CuDss", .. }), "{error}");
    let [x, mut y] = [(); 2].map(|()| m.domain().zeros().unwrap());
    assert!(m.apply(&x, &mut y).unwrap_err().to_string().contains("latest refresh failed"));
    m.refresh(&definite).unwrap();
    solves(&gpu, "definite again", &definite, &m, 1e-10);
}

gpu_test!(singular_and_invalid_matrices_are_refused);
fn singular_and_invalid_matrices_are_refused() {
    let gpu = gpu();
    let refused = |what: &str, a: &Csr<f64>| {
        let error = CuDss::new(&gpu, a).unwrap_err();
        println!("{what}: {error}");
        assert!(matches!(error, Error::Unsuitable { format: "CuDss", .. }), "{what}: {error}");
    };
    // constants are the null space of the first, and of the transpose of the second
    refused("Neumann problem", &matrices::stencil7(10).zero_row_sums().csr().unwrap());
    let skewed = convection::<f64>(400);
    let sums: Vec<f64> = (0..400).map(|row| skewed.row_values(row).iter().sum()).collect();
    let entries: Vec<_> =
        skewed.triplets().map(|(i, j, v)| (i, j, if i == j { v - sums[i] } else { v })).collect();
    refused("rows without sums", &Csr::from_triplets(400, 400, &entries).unwrap());
    refused("no entries", &Csr::from_triplets::<usize>(3, 3, &[]).unwrap());
    let nan = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, f64::NAN)]).unwrap();
    assert!(matches!(CuDss::new(&gpu, &nan), Err(Error::NotFinite { .. })));
    let wide = Csr::from_triplets(2, 3, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(CuDss::new(&gpu, &wide), Err(Error::NotSquare { .. })));
}

gpu_test!(memory_is_limited_before_the_factorization);
fn memory_is_limited_before_the_factorization() {
    let gpu = Cuda::new(0).unwrap();
    let a = shifted(30, 0.0);
    gpu.limit_memory(4 << 20);
    let error = CuDss::new(&gpu, &a).unwrap_err();
    assert!(matches!(error, Error::Cuda(krysp::cuda::Error::OutOfMemory { .. })), "{error}");
    gpu.limit_memory(usize::MAX);
    solves(&gpu, "stencil", &a, &CuDss::new(&gpu, &a).unwrap(), 1e-10);
}

gpu_test!(plans_take_it_and_begin_it_in_time_only);
fn plans_take_it_and_begin_it_in_time_only() {
    let gpu = gpu();
    let a = shifted(16, -1.3);
    let b = laws::numbers::<f64>(a.rows(), 5);
    let plan = || Plan::new(&a).unwrap().values_change(true).preconditioner(Preconditioner::CuDss);
    let mut solver = plan().on(&gpu).build().unwrap();
    for factor in [1.0, 2.0] {
        let solved = solver.solve(&b).unwrap();
        println!("{solved}");
        assert!(solved.converged(), "{solved}");
        let [attempt] = &*solved.attempts else { panic!("{solved}") };
        assert_eq!((attempt.method, attempt.preconditioner), (Method::Gmres, Preconditioner::CuDss));
        solver.refresh(&a.entries().iter().map(|v| factor * v).collect::<Vec<_>>()).unwrap();
    }
    let late = plan().time_limit(Duration::from_micros(100)).on(&gpu).build().unwrap().solve(&b);
    let text = late.map_or_else(|error| error.to_string(), |solved| solved.to_string());
    assert!(text.contains("cannot be cancelled"), "{text}");
}
