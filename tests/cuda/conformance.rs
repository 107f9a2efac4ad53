//! Vectors, all formats and preconditioners on a GPU obey every law: one line each.

use super::gpu;
use krysp::cuda::OnCuda;
use krysp::formats::{
    Bsr, Coo, Crossing, Dia, Ehyb, Ell, EllpackR, Halo, Hyb, HybOptions, OnDevice, Rounded, Sell,
    SellOptions, Strategy, SymBsr, SymCsr, Threshold,
};
use krysp::solvers::{Space, Vector};
use krysp::testing::laws::{self, Agreement, Broken, Case};
use krysp::testing::matrices::{self, Triplets, edge};
use krysp::{Bf16, Cg, Csr, Cuda, Format, HostVector, Jacobi, LinearOperator, Numbering, Real};
use std::sync::Arc;

fn vectors<T: Real>() {
    let gpu = gpu();
    for n in edge::EDGE_SIZES.into_iter().chain([0, 1535, 1537, 50_000, 196_609]) {
        let space = gpu.space::<T>(n);
        let named = |broken: Broken| broken.on(&format!("{n} entries"));
        laws::vector_fusions(&space, Agreement::Rounding).map_err(named).unwrap();
        laws::basis_fusions(&space, Agreement::Rounding).map_err(named).unwrap();
    }
    let backwards = Arc::new(Numbering::from_old_of_new((0..1000).rev().collect()).unwrap());
    let space = krysp::CudaSpace::like(&gpu, &krysp::HostSpace::<T>::numbered(backwards));
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

/// Checks every law of operators on every case, with formats built on the host and copied by `to`. A format may refuse
/// what it refuses on the host.
fn conforms<T: Real, F: OnDevice<T>>(build: impl Fn(&Csr<T>) -> krysp::Result<F>) {
    conforms_on::<T, F>(|gpu, a| build(a)?.to(gpu));
}

/// Checks every law of operators on every case, with formats built on the GPU.
fn conforms_on<T: Real, F: OnDevice<T>>(build: impl Fn(&Cuda, &Csr<T>) -> krysp::Result<OnCuda<T, F>>) {
    let mut cases: Vec<Case> = laws::cases();
    cases.extend(laws::large_cases());
    conforms_to(cases, build);
}

fn conforms_to<T: Real, F: OnDevice<T>>(
    cases: Vec<Case>,
    build: impl Fn(&Cuda, &Csr<T>) -> krysp::Result<OnCuda<T, F>>,
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
            // a refresh with doubled values
            let mut twice = triplets.clone();
            twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
            let values: Vec<T> = twice.entries.iter().map(|entry| T::from_f64(entry.2)).collect();
            a.refresh(&values).unwrap();
            laws::product(&a, &twice)?;
            let round_trip = a.to_csr().unwrap();
            assert!(round_trip.triplets().eq(twice.csr::<T>().unwrap().triplets()), "{name}: a round trip");
            // A refresh from device memory, twice: the first one finds out where each value goes.
            let values_on = gpu.space::<T>(values.len());
            for factor in [3.0, 5.0] {
                let mut more = triplets.clone();
                more.entries.iter_mut().for_each(|entry| entry.2 *= factor);
                let values: Vec<T> = more.entries.iter().map(|entry| T::from_f64(entry.2)).collect();
                a.refresh_on(&values_on.vector(&values).unwrap()).unwrap();
                laws::product(&a, &more)?;
                let round_trip = a.to_csr().unwrap();
                assert!(round_trip.triplets().eq(more.csr::<T>().unwrap().triplets()), "{name}: refreshed");
            }
            if let Ok(converted) = F::on(&gpu, &csr) {
                laws::product(&converted, triplets)?;
            }
            Ok(())
        };
        check().map_err(|broken: Broken| broken.on(name).on(F::NAME)).unwrap();
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

conformance! {
    csr: |a| Ok(a.clone());
    coo: Coo::new;
    hyb: Hyb::new;
    hyb_two_thirds: |a| Hyb::with(a, HybOptions { threshold: Threshold::Quantile(2.0 / 3.0) });
    hyb_bounded: |a| Hyb::with(a, HybOptions { threshold: Threshold::BoundedQuantile { x: 0.9, share: 0.01 } });
    hyb_all_coo: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(0) });
    ell: Ell::new;
    ellpack_r: EllpackR::new;
    hyb_all_ell: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(usize::MAX) });
    sell: Sell::new;
    sell_unsorted: |a| Sell::with(a, SellOptions { height: 48, window: Some(1) });
    dia: Dia::new;
    bsr_2: |a| Bsr::with_blocks(a, 2);
    bsr_3: |a| Bsr::with_blocks(a, 3);
    bsr_4: |a| Bsr::with_blocks(a, 4);
    bsr_6: |a| Bsr::with_blocks(a, 6);
    halo: Halo::new;
    halo_2: |a| Halo::with_nodes(a, 2);
    halo_3: |a| Halo::with_nodes(a, 3);
    halo_4: |a| Halo::with_nodes(a, 4);
    halo_6: |a| Halo::with_nodes(a, 6);
    ehyb: Ehyb::new;
    symmetric_csr: SymCsr::new;
    symmetric_bsr_2: |a| SymBsr::with_blocks(a, 2);
    symmetric_bsr_3: |a| SymBsr::with_blocks(a, 3);
    symmetric_bsr_4: |a| SymBsr::with_blocks(a, 4);
    symmetric_bsr_6: |a| SymBsr::with_blocks(a, 6);
    sell_sorted: |a| Sell::with(a, SellOptions { height: 32, window: Some(96) });
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
    csr_classical: Csr, Strategy::Classical;
    csr_load_balance: Csr, Strategy::LoadBalance;
    csr_merge_path: Csr, Strategy::MergePath;
    csr_speculative: Csr, Strategy::Speculative;
    coo_carried_out: Coo, Crossing::CarriedOut;
    coo_slabs: Coo, Crossing::Slabs;
    ehyb_small_parts: Ehyb, Some(64);
    hyb_minimal_storage: Hyb, HybOptions::default();
    hyb_last_quantile: Hyb, HybOptions { threshold: Threshold::Quantile(0.999) };
}

/// Checks every law with values stored in `f32` and vectors of `f64`, on matrices that are exact in `f32`. An error
/// above the rounding of sums in `f64` breaks a law.
fn conforms_rounded<F: OnDevice<f64>>(options: impl Fn() -> F::Options) {
    // this tests a conversion, which does not depend on the shape, so some of the cases are enough
    let mut cases: Vec<Case> = laws::cases().into_iter().step_by(3).collect();
    cases.extend(laws::large_cases());
    conforms_to(laws::coarse(cases), |gpu, a| Rounded::<F, f32>::on_with(gpu, a, options()));
}

macro_rules! conformance_rounded {
    ($($name:ident: $format:ident, $options:expr;)*) => {
        mod f64_storing_f32 {
            use super::*;

            $(gpu_test!($name);
            fn $name() {
                conforms_rounded::<$format<f64>>(|| $options);
            })*
        }
    };
}

conformance_rounded! {
    csr_classical: Csr, Strategy::Classical;
    csr_load_balance: Csr, Strategy::LoadBalance;
    csr_merge_path: Csr, Strategy::MergePath;
    csr_speculative: Csr, Strategy::Speculative;
    coo: Coo, Crossing::CarriedOut;
    coo_slabs: Coo, Crossing::Slabs;
    hyb: Hyb, HybOptions::default();
    ell: Ell, ();
    ellpack_r: EllpackR, ();
    sell: Sell, SellOptions::new::<f64>();
    sell_unsorted: Sell, SellOptions { height: 48, window: Some(1) };
    dia: Dia, ();
    bsr_2: Bsr, Some(2);
    bsr_3: Bsr, Some(3);
    bsr_4: Bsr, Some(4);
    bsr_6: Bsr, Some(6);
    halo: Halo, Some(1);
    halo_2: Halo, Some(2);
    halo_3: Halo, Some(3);
    halo_4: Halo, Some(4);
    halo_6: Halo, Some(6);
    ehyb: Ehyb, None;
    symmetric_csr: SymCsr, ();
    symmetric_bsr_2: SymBsr, Some(2);
    symmetric_bsr_3: SymBsr, Some(3);
    symmetric_bsr_6: SymBsr, Some(6);
}

/// Entries stored in 16 bits equal those of the host, and the product is exactly that of the stored entries, to
/// rounding.
fn stores_16_bits<T: Real, F: OnDevice<T> + LinearOperator<Vector = HostVector<T>>>(gpu: &Cuda)
where
    Bf16: krysp::Storage<T>,
{
    for Case { name, triplets } in laws::cases().iter().step_by(3) {
        let a = triplets.csr::<T>().unwrap();
        let Ok(host) = Rounded::<F, Bf16>::convert(&a) else { continue };
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
    stores_16_bits::<f64, Csr<f64>>(&gpu);
    stores_16_bits::<f64, Sell<f64>>(&gpu);
    stores_16_bits::<f64, Dia<f64>>(&gpu);
    stores_16_bits::<f64, Bsr<f64>>(&gpu);
    stores_16_bits::<f64, Halo<f64>>(&gpu);
    stores_16_bits::<f64, Coo<f64>>(&gpu);
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
    let host = Rounded::<Sell<f64>, f32>::new(Sell::new(&a).unwrap());
    let mut device = host.to(&gpu).unwrap();
    assert!(device.to_csr().unwrap().triplets().eq(host.to_csr().triplets()));
    device.refresh(&vec![0.1; triplets.entries.len()]).unwrap();
    assert!(device.to_csr().unwrap().triplets().all(|entry| entry.2 == f64::from(0.1f32)));
    let values: Vec<f64> = triplets.entries.iter().map(|entry| entry.2).collect();
    device.refresh(&values).unwrap();
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

gpu_test!(thresholds_equal_those_of_the_host);
/// The device finds the same quantile as the host, so its format takes as many bytes.
fn thresholds_equal_those_of_the_host() {
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
