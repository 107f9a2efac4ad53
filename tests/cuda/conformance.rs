//! Vectors, all formats and preconditioners on a GPU obey every law. Formats with options have a line each.

use super::gpu;
use krysp::cuda::CudaMatrix;
use krysp::formats::{
    Bsr, BsrOptions, Coo, CooOptions, Crossing, CsrOptions, Ehyb, EhybOptions, Halo, HaloOptions, Hyb,
    HybOptions, OnDevice, Rounded, Sell, SellOptions, Strategy, SymBsr, SymBsrOptions, Threshold,
};
use krysp::solvers::{BasicVector, Space};
use krysp::testing::laws::{self, Agreement, Case, Violation};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{Bf16, Cg, Csr, Cuda, Format, HostVector, Jacobi, LinearOperator, Permutation, Real, ToCuda};
use std::sync::Arc;

fn vectors<T: Real>() {
    let gpu = gpu();
    for n in edge::EDGE_SIZES.into_iter().chain([0, 1535, 1537, 50_000, 196_609]) {
        let space = gpu.space::<T>(n);
        let named = |broken: Violation| broken.on(&format!("{n} entries"));
        laws::vector_fusions(&space, Agreement::Rounding).map_err(named).unwrap();
        laws::basis_fusions(&space, Agreement::Rounding).map_err(named).unwrap();
    }
    let backwards = Arc::new(Permutation::from_old_of_new((0..1000).rev().collect()).unwrap());
    let space = krysp::CudaSpace::like(&gpu, &krysp::HostSpace::<T>::permuted(backwards));
    laws::vector_fusions(&space, Agreement::Rounding).unwrap();
}

gpu_test!(vectors_f64);
fn vectors_f64() {
    vectors::<f64>();
}

gpu_test!(vectors_f32);
fn vectors_f32() {
    vectors::<f32>();
}

gpu_test!(sums_are_bitwise_equal_from_run_to_run);
fn sums_are_bitwise_equal_from_run_to_run() {
    let gpu = gpu();
    use krysp::solvers::Scalar;
    let space = gpu.space::<f64>(1_000_003);
    let (x, y) = (space.vector(&laws::numbers(1_000_003, 1)), space.vector(&laws::numbers(1_000_003, 2)));
    let (x, y) = (x.unwrap(), y.unwrap());
    let first = x.dot(&y).read().unwrap();
    for _ in 0..20 {
        assert_eq!(x.dot(&y).read().unwrap().to_bits(), first.to_bits());
    }
}

/// Checks every law of operators on every case, with formats that are built on the host and copied by `to`. A format may
/// refuse the matrices that it refuses on the host.
fn conforms<T: Real, F: OnDevice<T>>(build: impl Fn(&Csr<T>) -> krysp::Result<F>) {
    conforms_on::<T, F>(|gpu, a| build(a)?.to(gpu));
}

/// Checks the laws like `conforms`, with a format that is built on the GPU.
fn conforms_on<T: Real, F: OnDevice<T>>(build: impl Fn(&Cuda, &Csr<T>) -> krysp::Result<CudaMatrix<T, F>>) {
    let mut cases: Vec<Case> = laws::cases();
    cases.extend(laws::large_cases());
    conforms_to(cases, build);
}

fn conforms_to<T: Real, F: OnDevice<T>>(
    cases: Vec<Case>,
    build: impl Fn(&Cuda, &Csr<T>) -> krysp::Result<CudaMatrix<T, F>>,
) {
    let gpu = gpu();
    let mut tested = 0;
    for Case { name, triplets } in &cases {
        let csr = triplets.csr::<T>().unwrap();
        let mut a = match build(&gpu, &csr) {
            Ok(a) => a,
            Err(
                krysp::Error::Unsuitable { .. }
                | krysp::Error::NotSymmetric { .. }
                | krysp::Error::NotSquare { .. },
            ) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        tested += 1;
        let mut check = || {
            laws::product(&a, triplets)?;
            let round_trip = a.to_csr().unwrap();
            assert!(round_trip.triplets().eq(csr.triplets()), "{name}: a round trip");
            laws::stale_values(&a)?;
            laws::precise_residual(&a, &csr)?;
            laws::second_product(&a)?;
            laws::operator_fusions(&a, Agreement::Rounding)?;
            laws::several_products(&a, &[3], Agreement::Rounding)?;
            // a refresh with doubled values
            let mut twice = triplets.clone();
            twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
            a.refresh(twice.csr::<T>().unwrap().entries()).unwrap();
            laws::product(&a, &twice)?;
            let round_trip = a.to_csr().unwrap();
            assert!(round_trip.triplets().eq(twice.csr::<T>().unwrap().triplets()), "{name}: a round trip");
            // Refreshes from device memory, twice each: the first one computes the position of each value.
            let space = |count: usize| gpu.space::<T>(count);
            for (factor, in_order) in [(3.0, true), (5.0, true), (7.0, false), (9.0, false)] {
                let mut more = triplets.clone();
                more.entries.iter_mut().for_each(|entry| entry.2 *= factor);
                let values: Vec<T> = more.entries.iter().map(|entry| T::from_f64(entry.2)).collect();
                if in_order {
                    let more = more.csr::<T>().unwrap();
                    a.refresh_from_device(&space(more.nnz()).vector(more.entries()).unwrap()).unwrap();
                } else {
                    a.refresh_assembled_from_device(&space(values.len()).vector(&values).unwrap()).unwrap();
                }
                laws::product(&a, &more)?;
                let round_trip = a.to_csr().unwrap();
                assert!(round_trip.triplets().eq(more.csr::<T>().unwrap().triplets()), "{name}: refreshed");
            }
            if let Ok(converted) = F::on(&gpu, &csr) {
                laws::product(&converted, triplets)?;
            }
            Ok(())
        };
        check().map_err(|broken: Violation| broken.on(name).on(F::NAME)).unwrap();
    }
    println!("{}: {tested} matrices on {}", F::NAME, gpu.name());
    assert!(tested > 0);
}

macro_rules! conformance {
    ($($name:ident: $build:expr;)*) => {$(
        mod $name {
            use super::*;

            gpu_test!(f64);
            fn f64() {
                conforms::<f64, _>($build);
            }

            gpu_test!(f32);
            fn f32() {
                conforms::<f32, _>($build);
            }
        }
    )*};
}

/// Every format that can be on a GPU, with default options.
macro_rules! conformance_of_all {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        $(krysp::where_on_gpu!($memory, conformance! { $file: krysp::$format::new; });)*
    };
}
krysp::each_format!(conformance_of_all);

// with other options
conformance! {
    hyb_two_thirds: |a| Hyb::with(a, HybOptions { threshold: Threshold::Quantile(2.0 / 3.0) });
    hyb_bounded: |a| Hyb::with(a, HybOptions { threshold: Threshold::BoundedQuantile { x: 0.9, share: 0.01 } });
    hyb_all_coo: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(0) });
    hyb_all_ell: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(usize::MAX) });
    sell_unsorted: |a| Sell::with(a, SellOptions { height: Some(48), window: Some(1) });
    bsr_2: |a| Bsr::with(a, BsrOptions { size: Some(2) });
    bsr_3: |a| Bsr::with(a, BsrOptions { size: Some(3) });
    bsr_4: |a| Bsr::with(a, BsrOptions { size: Some(4) });
    bsr_6: |a| Bsr::with(a, BsrOptions { size: Some(6) });
    halo_2: |a| Halo::with(a, HaloOptions { size: Some(2) });
    halo_3: |a| Halo::with(a, HaloOptions { size: Some(3) });
    halo_4: |a| Halo::with(a, HaloOptions { size: Some(4) });
    halo_6: |a| Halo::with(a, HaloOptions { size: Some(6) });
    symmetric_bsr_2: |a| SymBsr::with(a, SymBsrOptions { size: Some(2) });
    symmetric_bsr_3: |a| SymBsr::with(a, SymBsrOptions { size: Some(3) });
    symmetric_bsr_4: |a| SymBsr::with(a, SymBsrOptions { size: Some(4) });
    symmetric_bsr_6: |a| SymBsr::with(a, SymBsrOptions { size: Some(6) });
    sell_sorted: |a| Sell::with(a, SellOptions { height: Some(32), window: Some(96) });
}

/// Formats with options that exist on a GPU only.
macro_rules! conformance_on {
    ($($name:ident: $format:ident, $options:expr;)*) => {$(
        mod $name {
            use super::*;

            gpu_test!(f64);
            fn f64() {
                conforms_on::<f64, $format<f64>>(|gpu, a| $format::on_with(gpu, a, $options));
            }

            gpu_test!(f32);
            fn f32() {
                conforms_on::<f32, $format<f32>>(|gpu, a| $format::on_with(gpu, a, $options));
            }
        }
    )*};
}

conformance_on! {
    csr_classical: Csr, CsrOptions { strategy: Strategy::Classical };
    csr_load_balance: Csr, CsrOptions { strategy: Strategy::LoadBalance };
    csr_merge_path: Csr, CsrOptions { strategy: Strategy::MergePath };
    csr_speculative: Csr, CsrOptions { strategy: Strategy::Speculative };
    coo_carried_out: Coo, CooOptions { crossing: Crossing::CarriedOut };
    coo_slabs: Coo, CooOptions { crossing: Crossing::Slabs };
    ehyb_small_parts: Ehyb, EhybOptions { rows_per_part: Some(64) };
    hyb_minimal_storage: Hyb, HybOptions::default();
    hyb_last_quantile: Hyb, HybOptions { threshold: Threshold::Quantile(0.999) };
}

/// Checks every law with values stored in `f32` and vectors of `f64`, on matrices that are exact in `f32`. An error
/// above the rounding of sums in `f64` breaks a law.
fn conforms_rounded<F: OnDevice<f64>>(options: impl Fn() -> F::Options) {
    // conversion of values does not depend on the shape of a matrix, so some of the cases suffice
    let mut cases: Vec<Case> = laws::cases().into_iter().step_by(3).collect();
    cases.extend(laws::large_cases());
    conforms_to(laws::coarse(cases), |gpu, a| Rounded::<F, f32>::on_with(gpu, a, options()));
}

macro_rules! conformance_rounded {
    ($($name:ident: $format:ident, $options:expr;)*) => {
        $(gpu_test!($name);
        fn $name() {
            conforms_rounded::<krysp::$format<f64>>(|| $options);
        })*
    };
}

mod f64_storing_f32 {
    use super::*;

    /// Every format that can be on a GPU, with default options.
    macro_rules! conformance_rounded_of_all {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(krysp::where_on_gpu!($memory, conformance_rounded! { $file: $format, Default::default(); });)*
        };
    }
    krysp::each_format!(conformance_rounded_of_all);

    // with other options
    conformance_rounded! {
        csr_classical: Csr, CsrOptions { strategy: Strategy::Classical };
        csr_load_balance: Csr, CsrOptions { strategy: Strategy::LoadBalance };
        csr_merge_path: Csr, CsrOptions { strategy: Strategy::MergePath };
        csr_speculative: Csr, CsrOptions { strategy: Strategy::Speculative };
        coo_carried_out: Coo, CooOptions { crossing: Crossing::CarriedOut };
        coo_slabs: Coo, CooOptions { crossing: Crossing::Slabs };
        sell_unsorted: Sell, SellOptions { window: Some(1), ..SellOptions::default() };
        bsr_2: Bsr, BsrOptions { size: Some(2) };
        bsr_3: Bsr, BsrOptions { size: Some(3) };
        bsr_4: Bsr, BsrOptions { size: Some(4) };
        bsr_6: Bsr, BsrOptions { size: Some(6) };
        halo_1: Halo, HaloOptions { size: Some(1) };
        halo_2: Halo, HaloOptions { size: Some(2) };
        halo_3: Halo, HaloOptions { size: Some(3) };
        halo_4: Halo, HaloOptions { size: Some(4) };
        halo_6: Halo, HaloOptions { size: Some(6) };
        symmetric_bsr_2: SymBsr, SymBsrOptions { size: Some(2) };
        symmetric_bsr_3: SymBsr, SymBsrOptions { size: Some(3) };
        symmetric_bsr_6: SymBsr, SymBsrOptions { size: Some(6) };
    }
}

/// Entries stored in 16 bits equal those of the host, and the product is that of the stored entries, up to
/// rounding of sums.
fn stores_16_bits<T: Real, F: OnDevice<T> + LinearOperator<Vector = HostVector<T>>>(gpu: &Cuda)
where
    Bf16: krysp::Storage<T>,
{
    for Case { name, triplets } in laws::cases().iter().step_by(3) {
        let a = triplets.csr::<T>().unwrap();
        let Ok(host) = Rounded::<F, Bf16>::new(&a) else { continue };
        let stored = host.to_csr();
        let device = Rounded::<F, Bf16>::on(gpu, &a).unwrap();
        assert!(device.to_csr().unwrap().triplets().eq(stored.triplets()), "{}, {name}", F::NAME);
        let entries = stored.triplets().map(|(i, j, value)| (i as u32, j as u32, value.to_f64())).collect();
        let triplets = Triplets { rows: a.rows(), cols: a.cols(), entries };
        laws::product(&device, &triplets).map_err(|broken| broken.on(name).on(F::NAME)).unwrap();
    }
}

gpu_test!(entries_in_16_bits);
fn entries_in_16_bits() {
    let gpu = gpu();
    macro_rules! store {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(krysp::where_on_gpu!($memory, stores_16_bits::<f64, krysp::$format<f64>>(&gpu););)*
        };
    }
    krysp::each_format!(store);
    stores_16_bits::<f32, Sell<f32>>(&gpu);
    stores_16_bits::<f32, Halo<f32>>(&gpu);
}

gpu_test!(entries_are_rounded_once);
/// Entries are rounded once, as on the host, and a resident solve uses the rounded entries.
fn entries_are_rounded_once() {
    let gpu = gpu();
    let (n, rounding) = (20_000, 2f64.powi(-24));
    let triplets = matrices::random_rows(n, n, 3, |row| row % 40);
    let a = triplets.csr::<f64>().unwrap();
    let host = Rounded::<Sell<f64>, f32>::new(&a).unwrap();
    let mut device = host.to(&gpu).unwrap();
    assert!(device.to_csr().unwrap().triplets().eq(host.to_csr().triplets()));
    device.refresh(&vec![0.1; a.nnz()]).unwrap();
    assert!(device.to_csr().unwrap().triplets().all(|entry| entry.2 == f64::from(0.1f32)));
    device.refresh(a.entries()).unwrap();
    assert!(device.to_csr().unwrap().triplets().eq(host.to_csr().triplets()));
    let x: Vec<f64> = laws::numbers(n, 3);
    let (exact, magnitudes) = triplets.product_reference(&x);
    let mut y = device.range().vector(&vec![f64::NAN; n]).unwrap();
    device.apply(&device.domain().vector(&x).unwrap(), &mut y).unwrap();
    let mut got = vec![0.0; n];
    device.range().store(&y, &mut got).unwrap();
    for (row, ((y, exact), magnitude)) in got.iter().zip(&exact).zip(&magnitudes).enumerate() {
        assert!((y - exact).abs() <= rounding * (1.0 + 1e-7) * magnitude, "{row}: {y} {exact}");
    }
    // a resident solve, before and after a refresh
    let csr = matrices::stencil7(12).csr::<f64>().unwrap();
    let tenths: Vec<f64> = csr.entries().iter().map(|entry| entry * 0.1).collect();
    let b: Vec<f64> = laws::numbers(csr.rows(), 5);
    let mut solver = Cg::new(Rounded::<Sell<f64>, f32>::on(&gpu, &csr).unwrap()).rtol(1e-10);
    assert!(solver.solve(&b).unwrap().report.converged());
    solver.operator_mut().refresh(&tenths).unwrap();
    let solution = solver.solve(&b).unwrap();
    assert!(solution.report.converged(), "{}", solution.report);
}

gpu_test!(options_that_a_gpu_would_ignore_are_refused);
/// Options that have no effect on a GPU are errors there; they are dropped when a host matrix that has them is copied to a GPU.
fn options_that_a_gpu_would_ignore_are_refused() {
    let gpu = gpu();
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    for (height, window) in [(Some(32), None), (None, Some(96)), (Some(48), Some(1))] {
        let refused = Sell::on_with(&gpu, &a, SellOptions { height, window }).map(|_| ()).unwrap_err();
        assert!(matches!(refused, krysp::Error::Option { .. }), "{refused}");
    }
    Sell::with(&a, SellOptions { height: Some(48), window: Some(96) }).unwrap().to(&gpu).unwrap();
}

gpu_test!(thresholds_are_those_of_the_host);
/// The quantile computed on the device is that of the host, so that the stored bytes are equal.
fn thresholds_are_those_of_the_host() {
    let gpu = gpu();
    let matrices = [
        matrices::hashed_rmat(13, 8).csr::<f64>().unwrap(),
        matrices::hashed_circuit(20_000).csr::<f64>().unwrap(),
        // row lengths beyond the bins of one histogram
        edge::whole_rows(300, 40_000, |row| if row % 3 == 0 { 30_000 + row } else { 2000 + 100 * row })
            .csr::<f64>()
            .unwrap(),
    ];
    for csr in &matrices {
        for x in [-1.0, 0.0, 0.1, 1.0 / 3.0, 0.5, 2.0 / 3.0, 0.9, 0.97] {
            let threshold = Threshold::Quantile(x);
            let width = krysp::formats::row_length_quantile(csr.row_lengths(), x);
            let bytes =
                |threshold| Hyb::on_with(&gpu, csr, HybOptions { threshold }).map(|hyb| hyb.bytes()).ok();
            assert_eq!(bytes(threshold), bytes(Threshold::Columns(width)), "{x}");
        }
    }
}

gpu_test!(jacobi_obeys);
fn jacobi_obeys() {
    let gpu = gpu();
    // the last matrix is too large for a resident solve
    for n in [0, 1, 31, 1537, 50_000, 5_000_001] {
        let diagonal = edge::diagonal(n);
        let mut inverse = diagonal.clone();
        inverse.entries.iter_mut().for_each(|entry| entry.2 = 1.0 / entry.2);
        let jacobi = Jacobi::new(&diagonal.csr::<f64>().unwrap()).unwrap().to(&gpu).unwrap();
        laws::product(&jacobi, &inverse).unwrap();
        laws::stale_values(&jacobi).unwrap();
        laws::operator_fusions(&jacobi, Agreement::Rounding).unwrap();
    }
}
