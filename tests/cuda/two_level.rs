//! The two-level preconditioner on a GPU obeys the laws and gives the results of the host.

use super::gpu;
use krysp::solvers::Identity;
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    Cg, Chebyshev, CoarseSpace, Csr, Cuda, Error, Jacobi, LinearOperator, Permutation, Real, Refresh, Space,
    ToCuda, TwoLevel,
};

/// Checks that `M⁻¹ r` on host and GPU agree to rounding.
fn agrees<T: Real>(
    host: &impl LinearOperator<Vector = krysp::HostVector<T>>,
    device: &impl LinearOperator<Vector = krysp::CudaVector<T>>,
) {
    let n = host.domain().len();
    let r = laws::numbers::<T>(n, 9);
    let (x, y) = (host.domain().vector(&r).unwrap(), device.domain().vector(&r).unwrap());
    let (mut mx, mut my) = (host.domain().zeros().unwrap(), device.domain().zeros().unwrap());
    host.apply(&x, &mut mx).unwrap();
    device.apply(&y, &mut my).unwrap();
    let [mut a, mut b] = [0; 2].map(|_| vec![T::default(); n]);
    host.domain().store(&mx, &mut a).unwrap();
    device.domain().store(&my, &mut b).unwrap();
    let largest = a.iter().fold(0.0, |most: f64, v| most.max(krysp::Element::to_f64(*v).abs()));
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let (a, b) = (krysp::Element::to_f64(*a), krysp::Element::to_f64(*b));
        let rounding = 2e4 * <T as krysp::Element>::EPSILON;
        assert!((a - b).abs() <= rounding * largest, "{i}: {a:e} on the host, {b:e} on the device");
    }
}

fn obeys<T: Real>(gpu: &Cuda, a: &Csr<T>) {
    let device = TwoLevel::on(gpu, a).unwrap();
    laws::stale_values(&device).unwrap();
    laws::second_product(&device).unwrap();
    laws::operator_fusions(&device, Agreement::Rounding).unwrap();
    agrees(&TwoLevel::new(a).unwrap(), &device);
}

gpu_test!(two_levels_obey);
fn two_levels_obey() {
    let gpu = gpu();
    let stencil = matrices::stencil7(30).csr::<f64>().unwrap();
    for a in [
        // one aggregate, and coarse sizes around the width of a panel of the inversion
        matrices::stencil7(2).csr::<f64>().unwrap(),
        matrices::stencil7(10).csr::<f64>().unwrap(),
        matrices::elasticity(8).csr::<f64>().unwrap(),
        stencil.reordered(&Permutation::clustered(&stencil, 1350).unwrap()).unwrap(),
        // an empty coarse space
        Csr::from_triplets(3000, 3000, &(0..3000).map(|i| (i, i, 2.0)).collect::<Vec<_>>()).unwrap(),
        Csr::from_triplets::<usize>(0, 0, &[]).unwrap(),
    ] {
        obeys(&gpu, &a);
        obeys(&gpu, &a.cast::<f32>());
    }
}

gpu_test!(two_levels_take_modes_and_any_fine_preconditioner);
fn two_levels_take_modes_and_any_fine_preconditioner() {
    let gpu = gpu();
    let a = matrices::elasticity(10).csr::<f64>().unwrap();
    // four modes need two passes over the rows of each aggregate
    let modes: Vec<Vec<f64>> = (0..4).map(|seed| laws::numbers(a.rows(), seed)).collect();
    let coarse = || CoarseSpace::with_near_null_space(&a, 96, &modes).unwrap();
    let host = TwoLevel::with_inner(Jacobi::new(&a).unwrap(), coarse(), &a).unwrap();
    let jacobi = || Jacobi::new(&a).unwrap().to(&gpu).unwrap();
    agrees(&host, &TwoLevel::with_inner_on(jacobi(), coarse(), &a).unwrap());
    let blocks = |a| Jacobi::blocks(a, 3).unwrap();
    let host = TwoLevel::with_inner(blocks(&a), coarse(), &a).unwrap();
    let mut device = TwoLevel::with_inner_on(blocks(&a).to(&gpu).unwrap(), coarse(), &a).unwrap();
    laws::operator_fusions(&device, Agreement::Rounding).unwrap();
    agrees(&host, &device);
    device.refresh_coarse(&a).unwrap();
    agrees(&host, &device);
    let on_gpu = a.to(&gpu).unwrap();
    let chebyshev = Chebyshev::new(&on_gpu, jacobi(), 2).unwrap();
    laws::operator_fusions(&TwoLevel::with_inner_on(chebyshev, coarse(), &a).unwrap(), Agreement::Rounding)
        .unwrap();
    let elsewhere = Identity::new(&gpu.space::<f64>(7));
    assert!(TwoLevel::with_inner_on(elsewhere, coarse(), &a).is_err());
}

gpu_test!(two_levels_solve_as_on_the_host);
fn two_levels_solve_as_on_the_host() {
    let gpu = gpu();
    let a = matrices::stencil7(40).csr::<f64>().unwrap();
    let b = laws::numbers(a.rows(), 3);
    let mut m = TwoLevel::on(&gpu, &a).unwrap();
    m.refresh(&a).unwrap();
    let host = Cg::new(&a).preconditioner(TwoLevel::new(&a).unwrap()).rtol(1e-9).solve(&b).unwrap();
    let on_gpu = a.to(&gpu).unwrap();
    let mut solver = Cg::new(&on_gpu).preconditioner(&m).rtol(1e-9);
    for _ in 0..2 {
        // the second solve replays the recorded steps
        let device = solver.solve(&b).unwrap();
        super::agree(&a, &b, &host, &device, 3);
    }
}

gpu_test!(a_resident_solve_with_a_coarse_space_equals_single_steps);
/// A resident solve agrees with single steps, which run if a rule of `stop_when` must be evaluated after each of them.
fn a_resident_solve_with_a_coarse_space_equals_single_steps() {
    let gpu = gpu();
    let stencil = matrices::stencil7(40).csr::<f64>().unwrap();
    let clustered = stencil.reordered(&Permutation::clustered(&stencil, 512).unwrap()).unwrap();
    let elastic = matrices::elasticity(14).csr::<f64>().unwrap();
    let isolated = matrices::stencil7(20).csr::<f64>().unwrap();
    // some rows belong to no aggregate
    let n = isolated.rows();
    let entries = isolated.triplets().chain((n..n + 500).map(|i| (i, i, 3.0)));
    let isolated = Csr::from_triplets(n + 500, n + 500, &entries.collect::<Vec<_>>()).unwrap();
    let given = stencil.clone();
    for a in [matrices::stencil7(3).csr::<f64>().unwrap(), stencil, clustered, elastic, isolated] {
        // residuals are computed with the matrix in the user's order
        let of = if a.rows() == given.rows() { &given } else { &a };
        let (b, op) = (laws::numbers(a.rows(), 5), a.to(&gpu).unwrap());
        let modes: Vec<Vec<f64>> = (0..4).map(|seed| laws::numbers(a.rows(), seed)).collect();
        let jacobi = || Jacobi::new(&a).unwrap().to(&gpu).unwrap();
        for coarse in [
            CoarseSpace::new(&a, 8).unwrap(),
            CoarseSpace::new(&a, 400).unwrap(),
            CoarseSpace::with_near_null_space(&a, 256, &modes).unwrap(),
        ] {
            let unknowns = coarse.unknowns();
            let m = TwoLevel::with_inner_on(jacobi(), coarse, &a).unwrap();
            let mut chip = Cg::new(&op).preconditioner(&m).rtol(1e-9);
            let batched = chip.solve(&b).unwrap();
            let one_by_one =
                Cg::new(&op).preconditioner(&m).rtol(1e-9).stop_when(|_| false).solve(&b).unwrap();
            println!("{} rows, {unknowns} coarse: {} iterations", a.rows(), batched.report.iterations);
            super::agree(of, &b, &one_by_one, &batched, 2);
            let again = chip.solve(&b).unwrap();
            assert_eq!(again.x, batched.x, "bit by bit");
            assert_eq!(again.report.history, batched.report.history);
        }
        let single = a.cast::<f32>();
        let (op, b) = (single.to(&gpu).unwrap(), laws::numbers::<f32>(a.rows(), 5));
        let m = TwoLevel::on(&gpu, &single).unwrap();
        let batched = Cg::new(&op).preconditioner(&m).rtol(1e-4).solve(&b).unwrap();
        let one_by_one = Cg::new(&op).preconditioner(&m).rtol(1e-4).stop_when(|_| false).solve(&b).unwrap();
        assert!(batched.report.converged() && one_by_one.report.converged(), "{}", batched.report);
        assert!(batched.report.iterations.abs_diff(one_by_one.report.iterations) <= 2);
    }
    // two solvers with different coarse spaces alternate on one matrix
    let a = matrices::stencil7(24).csr::<f64>().unwrap();
    let (b, op) = (laws::numbers(a.rows(), 5), a.to(&gpu).unwrap());
    let level = |unknowns| {
        let jacobi = Jacobi::new(&a).unwrap().to(&gpu).unwrap();
        TwoLevel::with_inner_on(jacobi, CoarseSpace::new(&a, unknowns).unwrap(), &a).unwrap()
    };
    let (few, many) = (level(4), level(300));
    let mut solvers = [&few, &many].map(|m| Cg::new(&op).preconditioner(m).rtol(1e-9));
    let first = solvers.each_mut().map(|solver| solver.solve(&b).unwrap());
    let second = solvers.each_mut().map(|solver| solver.solve(&b).unwrap());
    assert!(first[1].report.iterations < first[0].report.iterations);
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first.x, second.x);
    }
}

gpu_test!(indefinite_matrices_are_refused_on_the_device);
fn indefinite_matrices_are_refused_on_the_device() {
    let gpu = gpu();
    let chain = (0..99).flat_map(|i| [(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    let neumann = Csr::from_triplets(100, 100, &chain.collect::<Vec<_>>()).unwrap();
    let refused = TwoLevel::on(&gpu, &neumann).unwrap_err();
    assert!(matches!(refused, Error::CoarseNotPositive { .. }), "{refused}");
}
