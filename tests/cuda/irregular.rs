//! Matrices whose rows have extremely different lengths, in every format that divides a matrix by entries.

use super::gpu;
use krysp::formats::{CooOptions, Crossing, CsrOptions, HybOptions, OnDevice, Strategy, Threshold};
use krysp::testing::matrices::{self, edge};
use krysp::{Coo, Csr, Cuda, CudaVector, Element, Hyb, LinearOperator, Real, Space};

fn wide<T: Element>(value: T) -> f64 {
    value.to_f64()
}

type Operator<T> = Box<dyn LinearOperator<Vector = CudaVector<T>>>;

/// The matrix in every format that divides it by entries.
fn cut_by_entries<T: Real>(gpu: &Cuda, csr: &Csr<T>) -> Vec<(String, Operator<T>)> {
    let strategies = [Strategy::Automatic, Strategy::LoadBalance, Strategy::MergePath, Strategy::Speculative];
    let csr_by = |strategy| {
        let operator = Csr::on_with(gpu, csr, CsrOptions { strategy }).unwrap();
        (format!("CSR {strategy:?}"), Box::new(operator) as Operator<T>)
    };
    let mut all: Vec<_> = strategies.map(csr_by).into();
    for crossing in [Crossing::CarriedOut, Crossing::Slabs] {
        let operator = Coo::on_with(gpu, csr, CooOptions { crossing }).unwrap();
        all.push((format!("COO {crossing:?}"), Box::new(operator)));
    }
    let options = HybOptions { threshold: Threshold::Columns(1) };
    if let Ok(operator) = Hyb::on_with(gpu, csr, options) {
        all.push(("HYB".into(), Box::new(operator)));
    }
    all
}

fn product<T: Real>(a: &Operator<T>, x: &[T]) -> Vec<T> {
    let x = a.domain().vector(x).unwrap();
    let rows = a.range().len();
    let mut y = a.range().vector(&vec![T::from_f64(f64::NAN); rows]).unwrap();
    a.apply(&x, &mut y).unwrap();
    let mut host = vec![T::zero(); rows];
    a.range().store(&y, &mut host).unwrap();
    host
}

/// Products with the matrices of [`edge::extreme_rows`] are exact, among them one with a row of ten million entries and
/// one with a gap of a million empty rows.
fn extreme_rows<T: Real>() {
    let gpu = gpu();
    for (name, triplets) in edge::extreme_rows(10_000_000) {
        let csr = triplets.csr::<T>().unwrap();
        let x = edge::whole_vector(csr.cols());
        let expected = triplets.product_reference(&x).0;
        let x: Vec<T> = x.into_iter().map(T::from_f64).collect();
        for (format, a) in cut_by_entries(&gpu, &csr) {
            // the second product reuses the workspace of the first
            for _ in 0..2 {
                let y = product(&a, &x);
                let wrong = y.iter().zip(&expected).position(|(y, expected)| wide(*y) != *expected);
                assert_eq!(wrong, None, "{name}, {format}");
            }
        }
    }
}

gpu_test!(extreme_rows_f64);
fn extreme_rows_f64() {
    extreme_rows::<f64>();
}

gpu_test!(extreme_rows_f32);
fn extreme_rows_f32() {
    extreme_rows::<f32>();
}

gpu_test!(a_thousand_products_are_bitwise_equal);
/// A thousand products with the same vector are bitwise equal.
fn a_thousand_products_are_bitwise_equal() {
    let gpu = gpu();
    let half_empty = matrices::rmat(14, 200_000);
    for (name, matrix) in [("R-MAT", half_empty), ("circuit", matrices::hashed_circuit(40_000))] {
        let csr = matrix.csr::<f32>().unwrap();
        let x: Vec<f32> = matrices::vector(csr.cols()).into_iter().map(|x| x as f32).collect();
        for (format, a) in cut_by_entries(&gpu, &csr) {
            let first = product(&a, &x);
            for _ in 1..1000 {
                let again = product(&a, &x);
                assert!(
                    first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{name}, {format}"
                );
            }
        }
    }
}

gpu_test!(every_strategy_gives_the_same_solution);
/// Solves record and replay products, so a product must restore its workspace.
fn every_strategy_gives_the_same_solution() {
    let gpu = gpu();
    let a = matrices::hashed_circuit(20_000).diagonally_dominant().csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let expected = krysp::BiCgStab::new(&a).rtol(1e-10).solve(&b).unwrap();
    for (format, operator) in cut_by_entries(&gpu, &a) {
        let solution = krysp::BiCgStab::new(operator).rtol(1e-10).solve(&b).unwrap();
        assert!(solution.report.converged(), "{format}: {}", solution.report);
        for (x, expected) in solution.x.iter().zip(&expected.x) {
            assert!((x - expected).abs() <= 1e-7 * (1.0 + expected.abs()), "{format}: {x}, {expected}");
        }
    }
}

/// A speculative product gives the same result with its second stage on the host and on the device.
fn second_stages<T: Real>() {
    use krysp_kernels::cuda::{Device, Pattern, SpeculativeOnHost};
    use krysp_kernels::index::{Columns, Offsets};
    let gpu = gpu();
    let device = Device::new(0).unwrap();
    let mut all = edge::extreme_rows(100_000);
    all.push(("R-MAT", matrices::rmat(14, 200_000).to_triplets()));
    for (name, triplets) in all {
        let csr = triplets.csr::<T>().unwrap();
        let x: Vec<T> = edge::whole_vector(csr.cols()).into_iter().map(T::from_f64).collect();
        let on_device = product::<T>(
            &(Box::new(Csr::on_with(&gpu, &csr, CsrOptions { strategy: Strategy::Speculative }).unwrap())
                as _),
            &x,
        );
        let offsets: Vec<u64> = csr.offsets().iter().map(|&offset| offset as u64).collect();
        let (offsets, columns) =
            (Offsets::new(&offsets).unwrap(), Columns::new(csr.columns().to_vec(), csr.cols()).unwrap());
        let pattern = Pattern::new(&offsets, &columns);
        let mut on_host = SpeculativeOnHost::new(&device, pattern, csr.entries()).unwrap();
        let x = device.upload(&x).unwrap();
        for _ in 0..3 {
            let y = on_host.product(&x).unwrap();
            let close = |(a, b): (&T, &T)| (wide(*a) - wide(*b)).abs() <= 1e-4 * (1.0 + wide(*b).abs());
            assert!(y.iter().zip(&on_device).all(close), "{name}");
        }
    }
}

gpu_test!(second_stages_agree_f64);
fn second_stages_agree_f64() {
    second_stages::<f64>();
}

gpu_test!(second_stages_agree_f32);
fn second_stages_agree_f32() {
    second_stages::<f32>();
}

gpu_test!(another_pattern_of_one_shape_stays_within_bounds);
/// Values of a matrix with another pattern, but as many rows and entries, are stored by that pattern without access out of
/// bounds.
fn another_pattern_of_one_shape_stays_within_bounds() {
    use krysp_kernels::cuda::formats::coo::{Coo, Crossing};
    use krysp_kernels::cuda::{Device, Pattern, Product};
    use krysp_kernels::index::{Columns, Offsets};
    let device = Device::new(0).unwrap();
    let columns = Columns::new(vec![0, 1, 2, 0], 3).unwrap();
    let [one, other] = [[3, 1], [1, 3]].map(Offsets::from_lengths);
    let [one, other] = [&one, &other].map(|offsets| Pattern::new(offsets, &columns));
    let mut a = Coo::<f64>::new(&device, one, &[1.0, 2.0, 4.0, 8.0], Crossing::CarriedOut).unwrap();
    a.fill(other, &[16.0, 32.0, 64.0, 128.0]).unwrap();
    let (x, mut y) = (device.upload(&[1.0; 3]).unwrap(), device.upload(&[f64::NAN; 2]).unwrap());
    a.product(&x, &mut y).unwrap();
    let mut host = [0.0; 2];
    y.read(&mut host).unwrap();
    // the other pattern has one entry in the first row, and the second row has a slot for only one of its three
    assert_eq!(host, [16.0 + 2.0 + 4.0, 32.0]);
}
