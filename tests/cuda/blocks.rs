//! Block Jacobi on a GPU, inverted there or copied from the host, equals that of the host.

use super::gpu;
use super::preconditioners::{changed, close, convection};
use krysp::formats::{Bsr, Coo, Ehyb, Ell, EllpackR, Halo, Hyb, OnDevice, Rounded, Sell, SymBsr, SymCsr};
use krysp::solvers::{LinearOperator, Space};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{Cg, Csr, Cuda, CudaVector, Error, Jacobi, Operator, Refresh, ToCuda};

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
    let backwards = krysp::Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let b = changed(&a);
    for [a, other] in [[a.clone(), b.clone()], [a, b].map(|a| a.reordered(&backwards).unwrap())] {
        for (size, accuracy) in [(3, 0.0), (7, 1e-3), (30, 0.1)] {
            let host = Jacobi::blocks(&a, size).unwrap().rounded(accuracy).unwrap();
            let mut device = host.to(&gpu).unwrap();
            assert_eq!(device.bytes(), host.bytes());
            laws::operator_fusions(&device, Agreement::Rounding).unwrap();
            let b: Vec<f64> = laws::numbers(a.rows(), 9);
            let on_host = Cg::new(&a).preconditioner(&host).rtol(1e-9).solve(&b).unwrap();
            let on_device =
                Cg::new(a.to(&gpu).unwrap()).preconditioner(&device).rtol(1e-9).solve(&b).unwrap();
            assert_eq!(on_host.report.iterations, on_device.report.iterations);
            for (one, other) in on_host.x.iter().zip(&on_device.x) {
                assert!((one - other).abs() <= 1e-8 * (1.0 + one.abs()), "{one} {other}");
            }
            // inverses that were copied from the host cannot be rounded; a refresh inverts the blocks on the GPU
            device.refresh(&other).unwrap();
            let mut host = host;
            host.refresh(&other).unwrap();
            assert_eq!(device.stored_rows(), host.stored_rows());
            let rounding = if accuracy > 0.0 { 2f64.powi(-7) } else { 1e-10 };
            same_application(&gpu, &host, &device, rounding);
            device.refresh(&Sell::on(&gpu, &a).unwrap()).unwrap();
            host.refresh(&a).unwrap();
            same_application(&gpu, &host, &device, rounding);
            assert!(matches!(host.to(&gpu).unwrap().rounded(0.1), Err(Error::Option { .. })));
            assert!(device.rounded(0.1).is_ok());
        }
    }
}

/// The diagonal on the GPU, from operators in the format `F` and from matrices in host memory, is bitwise that of the host. The
/// host can also take the diagonal from an operator on the GPU.
fn diagonals_are_those_of_the_host<F: OnDevice<f64>>(gpu: &Cuda, [a, b]: [&Csr<f64>; 2]) {
    let (op, other) = (F::on(gpu, a).unwrap(), F::on(gpu, b).unwrap());
    let inverse = |jacobi: &Jacobi<f64>| jacobi.diagonal().unwrap().as_slice().to_vec();
    let on_gpu = |jacobi: &<Jacobi<f64> as ToCuda>::OnCuda| jacobi.to_csr().unwrap().entries().to_vec();
    let [first, second] = [a, b].map(|a| inverse(&Jacobi::new(a).unwrap()));
    assert_ne!(first, second);
    let mut device = Jacobi::on(gpu, &op).unwrap();
    assert!(on_gpu(&device) == first, "{}", F::NAME);
    // the positions of the diagonal are cached for a pattern
    for _ in 0..2 {
        device.refresh(&other).unwrap();
        assert!(on_gpu(&device) == second, "{}", F::NAME);
        device.refresh(a).unwrap();
        assert!(on_gpu(&device) == first, "{}", F::NAME);
    }
    let mut copy = Jacobi::new(b).unwrap().to(gpu).unwrap();
    assert!(on_gpu(&copy) == second, "{}", F::NAME);
    copy.refresh(&op).unwrap();
    assert!(on_gpu(&copy) == first, "{}", F::NAME);
    let mut host = Jacobi::new(a).unwrap();
    host.refresh(&other).unwrap();
    assert!(inverse(&host) == second, "{}", F::NAME);
    // the same for blocks of three rows
    let mut device = Jacobi::blocks_on(gpu, &op, 3).unwrap();
    same_application(gpu, &Jacobi::blocks(a, 3).unwrap(), &device, 1e-10);
    device.refresh(&other).unwrap();
    same_application(gpu, &Jacobi::blocks(b, 3).unwrap(), &device, 1e-10);
}

gpu_test!(jacobi_follows_operators_on_the_gpu);
fn jacobi_follows_operators_on_the_gpu() {
    let gpu = gpu();
    let elastic = matrices::elasticity(6).diagonally_dominant().csr::<f64>().unwrap();
    let backwards = krysp::Permutation::from_old_of_new((0..elastic.rows() as u32).rev().collect()).unwrap();
    let other = changed(&elastic);
    let reordered = [&elastic, &other].map(|a| a.reordered(&backwards).unwrap());
    for a in [[&elastic, &other], [&reordered[0], &reordered[1]]] {
        diagonals_are_those_of_the_host::<Csr<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Coo<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Ell<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<EllpackR<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Sell<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Hyb<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Halo<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Ehyb<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<SymCsr<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<Bsr<f64>>(&gpu, a);
        diagonals_are_those_of_the_host::<SymBsr<f64>>(&gpu, a);
    }
    // a format that was chosen at run time, and one that stores fewer bits
    let mut auto = Operator::auto(&elastic, &gpu).unwrap();
    let mut device = Jacobi::on(&gpu, &auto).unwrap();
    same_application(&gpu, &Jacobi::new(&elastic).unwrap(), &device, 0.0);
    let values: Vec<f64> = elastic.entries().iter().map(|value| 1.7 * value).collect();
    let other = elastic.with_values(&values).unwrap();
    auto.refresh(&values).unwrap();
    device.refresh(&auto).unwrap();
    same_application(&gpu, &Jacobi::new(&other).unwrap(), &device, 0.0);
    let narrow = Rounded::<Sell<f64>, f32>::on(&gpu, &elastic).unwrap();
    let host = Jacobi::new(&narrow.to_csr().unwrap()).unwrap();
    same_application(&gpu, &host, &Jacobi::on(&gpu, &narrow).unwrap(), 0.0);
    let single = elastic.cast::<f32>();
    let device = Jacobi::on(&gpu, &single.to(&gpu).unwrap()).unwrap().to_csr().unwrap();
    assert!(device.entries() == Jacobi::new(&single).unwrap().diagonal().unwrap().as_slice());
    // new values in GPU memory, in a solver that replays steps that were recorded with the first values
    let (b, space) = (laws::numbers(elastic.rows(), 3), gpu.space::<f64>(values.len()));
    let a = Sell::on(&gpu, &elastic).unwrap();
    let jacobi = Jacobi::on(&gpu, &a).unwrap();
    let mut solver = Cg::new(a).preconditioner(jacobi).rtol(1e-9).observe(|_| {});
    solver.solve(&b).unwrap();
    let (a, jacobi) = solver.operators_mut();
    a.refresh_from_device(&space.vector(&values).unwrap()).unwrap();
    jacobi.refresh(a).unwrap();
    let device = solver.solve(&b).unwrap();
    let host = Cg::new(&other).preconditioner(Jacobi::new(&other).unwrap()).rtol(1e-9).solve(&b).unwrap();
    super::agree(&other, &b, &host, &device, 2);
}

gpu_test!(zeros_on_the_diagonal_are_refused_with_their_row);
fn zeros_on_the_diagonal_are_refused_with_their_row() {
    let gpu = gpu();
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    let with = |what: f64| {
        let at = |(i, j, v)| (i, j, if i == j && (i == 77 || i == 6000) { what } else { v });
        Csr::from_triplets(a.rows(), a.cols(), &a.triplets().map(at).collect::<Vec<_>>()).unwrap()
    };
    let mut device = Jacobi::on(&gpu, &a).unwrap();
    for what in [0.0, f64::INFINITY, f64::NAN, 1e-310] {
        let wrong = with(what);
        let expected = Jacobi::new(&wrong).unwrap_err().to_string();
        match Jacobi::new(&wrong) {
            Err(Error::ZeroDiagonal { row, .. } | Error::NotFinite { row, .. }) => assert_eq!(row, 77),
            other => panic!("{other:?}"),
        }
        let op = Halo::on(&gpu, &wrong).unwrap();
        assert_eq!(Jacobi::on(&gpu, &op).unwrap_err().to_string(), expected);
        assert_eq!(Jacobi::on(&gpu, &wrong).unwrap_err().to_string(), expected);
        assert_eq!(device.refresh(&op).unwrap_err().to_string(), expected);
        assert_eq!(device.refresh(&wrong).unwrap_err().to_string(), expected);
        assert_eq!(Jacobi::new(&a).unwrap().refresh(&op).unwrap_err().to_string(), expected);
    }
    // a pattern without one of the diagonal entries
    let open: Vec<_> = a.triplets().filter(|&(i, j, _)| (i, j) != (5, 5)).collect();
    let open = Csr::from_triplets(a.rows(), a.rows(), &open).unwrap();
    let refused = device.refresh(&Sell::on(&gpu, &open).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::ZeroDiagonal { row: 5, value: 0.0 }), "{refused}");
    // a failed refresh leaves the old values
    same_application(&gpu, &Jacobi::new(&a).unwrap(), &device, 0.0);
    // a matrix on another stream, and one of another size, are refused
    let elsewhere = Cuda::new(0).unwrap();
    assert!(device.refresh(&a.to(&elsewhere).unwrap()).is_err() && Jacobi::on(&elsewhere, &a).is_ok());
    assert!(device.refresh(&matrices::stencil7(19).csr::<f64>().unwrap()).is_err());
    let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Jacobi::on(&gpu, &wide), Err(Error::NotSquare { .. })));
    let nothing = Csr::<f64>::from_triplets::<u32>(0, 0, &[]).unwrap();
    assert_eq!(Jacobi::on(&gpu, &nothing).unwrap().bytes(), 0);
}
