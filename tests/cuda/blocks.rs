//! Block Jacobi on a GPU, inverted there or copied, equals that of the host.

use super::gpu;
use super::preconditioners::{changed, close, convection};
use krysp::formats::OnDevice;
use krysp::solvers::{LinearOperator, Space};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{Cg, Cuda, CudaVector, Error, Jacobi};

/// Checks that both preconditioners give equal results, to a tolerance.
fn same_application(
    gpu: &Cuda,
    host: &Jacobi<f64>,
    device: &impl LinearOperator<Vector = CudaVector<f64>>,
    tolerance: f64,
) {
    let b = laws::numbers::<f64>(host.domain().len(), 7);
    let (x, mut y) = (host.domain().vector(&b).unwrap(), host.range().zeros().unwrap());
    host.apply(&x, &mut y).unwrap();
    let mut ours = vec![0.0; b.len()];
    host.range().store(&y, &mut ours).unwrap();
    let space = device.domain();
    assert_eq!(space, &krysp::CudaSpace::like(gpu, host.domain()));
    let (x, mut y) = (space.vector(&b).unwrap(), space.zeros().unwrap());
    device.apply(&x, &mut y).unwrap();
    let mut theirs = vec![0.0; b.len()];
    space.store(&y, &mut theirs).unwrap();
    let largest = ours.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    for (h, d) in ours.iter().zip(&theirs) {
        assert!((h - d).abs() <= tolerance * largest, "{h:e} on the host, {d:e} on the device");
    }
}

gpu_test!(blocks_are_inverted_as_on_the_host);
fn blocks_are_inverted_as_on_the_host() {
    let gpu = gpu();
    let elastic = matrices::elasticity(6).csr::<f64>().unwrap();
    for a in [&elastic, &convection(648)] {
        for size in [1, 2, 3, 4, 5, 6, 8, 13, 16, 27, 32] {
            let mut device = Jacobi::blocks_on(&gpu, a, size).unwrap();
            same_application(&gpu, &Jacobi::blocks(a, size).unwrap(), &device, 1e-10);
            let b = changed(a);
            device.refresh(&b).unwrap();
            same_application(&gpu, &Jacobi::blocks(&b, size).unwrap(), &device, 1e-10);
        }
        let bounds = [0, 1, 3, 35, 36, 50, 80, 81, 100, 101].into_iter().chain((132..=612).step_by(32));
        let bounds: Vec<usize> = bounds.chain([630, 648]).collect();
        let device = Jacobi::partitioned_on(&gpu, a, &bounds).unwrap();
        same_application(&gpu, &Jacobi::partitioned(a, &bounds).unwrap(), &device, 1e-10);
    }
    // Copies are bitwise those of the host. Inverses computed on the GPU may differ in the last bit, so their rounded
    // values may differ by one unit.
    for (accuracy, rounding) in
        [(0.5, 2f64.powi(-7)), (0.01, 2f64.powi(-7)), (1e-5, 2f64.powi(-23)), (0.0, 1e-10)]
    {
        let uneven = [0, 1, 33, 40].into_iter().chain((60..648).step_by(21)).chain([648]);
        for bounds in [uneven.collect(), (0..=648).step_by(3).collect::<Vec<usize>>()] {
            let host = Jacobi::partitioned(&elastic, &bounds).unwrap().rounded(accuracy).unwrap();
            same_application(&gpu, &host, &host.to(&gpu).unwrap(), 1e-12);
            let device = Jacobi::partitioned_on(&gpu, &elastic, &bounds).unwrap();
            let mut device = device.rounded(accuracy).unwrap();
            assert_eq!(device.stored_rows(), host.stored_rows());
            assert_eq!(device.bytes(), host.bytes());
            laws::operator_fusions(&device, Agreement::Rounding).unwrap();
            same_application(&gpu, &host, &device, rounding);
            device.refresh(&changed(&elastic)).unwrap();
            let mut host = host;
            host.refresh(&changed(&elastic)).unwrap();
            assert_eq!(device.stored_rows(), host.stored_rows());
            same_application(&gpu, &host, &device, rounding);
        }
    }
    let single = elastic.cast::<f32>();
    let device = Jacobi::blocks_on(&gpu, &single, 3).unwrap().to_csr().unwrap();
    close(&Jacobi::blocks_on(&gpu, &elastic, 3).unwrap().to_csr().unwrap().cast(), &device, 1e-4);
    // errors are those of the host
    let values: Vec<f64> =
        elastic.triplets().map(|(i, _, v)| if (60..63).contains(&i) || i == 300 { 0.0 } else { v }).collect();
    let singular = elastic.with_values(&values).unwrap();
    for size in [3, 7] {
        let refused = Jacobi::blocks_on(&gpu, &singular, size).unwrap_err().to_string();
        assert_eq!(refused, Jacobi::blocks(&singular, size).unwrap_err().to_string());
    }
    // a failed refresh keeps the old values, which can be rounded only after another refresh
    let mut refreshed = Jacobi::blocks_on(&gpu, &elastic, 3).unwrap();
    assert!(matches!(refreshed.refresh(&singular), Err(Error::SingularBlock { first: 60, end: 63 })));
    let host = Jacobi::blocks(&elastic, 3).unwrap();
    same_application(&gpu, &host, &refreshed, 1e-10);
    assert!(matches!(refreshed.rounded(0.1), Err(Error::Option { .. })));
    let mut refreshed = Jacobi::blocks_on(&gpu, &elastic, 3).unwrap();
    assert!(refreshed.refresh(&singular).is_err());
    refreshed.refresh(&elastic).unwrap();
    let rounded = refreshed.rounded(0.1).unwrap();
    assert_eq!(rounded.stored_rows(), host.rounded(0.1).unwrap().stored_rows());
    assert!(matches!(Jacobi::blocks_on(&gpu, &elastic, 33), Err(Error::Option { .. })));
    assert!(matches!(Jacobi::blocks_on(&gpu, &elastic, 0), Err(Error::Option { .. })));
    // solves with both take about the same iterations
    let b = laws::numbers(elastic.rows(), 3);
    let host = Cg::new(&elastic).preconditioner(Jacobi::blocks(&elastic, 3).unwrap());
    let host = host.rtol(1e-9).solve(&b).unwrap().report;
    let blocks = Jacobi::blocks_on(&gpu, &elastic, 3).unwrap();
    let device = Cg::new(elastic.to(&gpu).unwrap()).preconditioner(blocks);
    let device = device.rtol(1e-9).solve(&b).unwrap().report;
    assert!(host.converged() && host.iterations.abs_diff(device.iterations) <= 2, "{host}\n{device}");
}

gpu_test!(copies_equal_the_blocks_of_the_host);
fn copies_equal_the_blocks_of_the_host() {
    let gpu = gpu();
    let a = matrices::elasticity(8).diagonally_dominant().csr::<f64>().unwrap();
    let backwards = krysp::Numbering::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    for a in [a.clone(), a.renumbered(&backwards).unwrap()] {
        for (size, accuracy) in [(3, 0.0), (7, 1e-3), (30, 0.1)] {
            let host = Jacobi::blocks(&a, size).unwrap().rounded(accuracy).unwrap();
            let mut device = host.to(&gpu).unwrap();
            assert_eq!(device.bytes(), host.bytes());
            laws::operator_fusions(&device, Agreement::Rounding).unwrap();
            device.refresh(&host).unwrap();
            let b: Vec<f64> = laws::numbers(a.rows(), 9);
            let on_host = Cg::new(&a).preconditioner(&host).rtol(1e-9).solve(&b).unwrap();
            let on_device =
                Cg::new(a.to(&gpu).unwrap()).preconditioner(&device).rtol(1e-9).solve(&b).unwrap();
            assert_eq!(on_host.report.iterations, on_device.report.iterations);
            for (one, other) in on_host.x.iter().zip(&on_device.x) {
                assert!((one - other).abs() <= 1e-8 * (1.0 + one.abs()), "{one} {other}");
            }
            assert!(device.refresh(&Jacobi::new(&a).unwrap()).is_err());
            assert!(device.refresh(&Jacobi::blocks(&a, 4).unwrap()).is_err());
        }
    }
}
