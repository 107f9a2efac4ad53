//! Copies of preconditioners on a GPU equal those of the host, before and after new values.

use super::gpu;
use super::preconditioners::{changed, same_factors};
use krysp::formats::{Halo, OnDevice, Sell};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self};
use krysp::{
    CoarseSpace, Csr, Cuda, CudaVector, Fsai, HostVector, Ic0, Ilu0, Isai, Jacobi, LinearOperator,
    MatrixSource, Operator, Refresh, Side, Space, Spai, Sparsity, ToCuda, TwoLevel,
};

/// Checks that `M r` of host and GPU agree up to rounding.
fn same_application(
    host: &impl LinearOperator<Vector = HostVector<f64>>,
    device: &impl LinearOperator<Vector = CudaVector<f64>>,
) {
    let numbers = laws::numbers(host.domain().len(), 7);
    let (x, mut y) = (host.domain().vector(&numbers).unwrap(), host.domain().zeros().unwrap());
    host.apply(&x, &mut y).unwrap();
    let space = device.domain();
    assert!(space.host() == host.domain() && device.replays());
    let (x, mut z) = (space.vector(&numbers).unwrap(), space.zeros().unwrap());
    device.apply(&x, &mut z).unwrap();
    let [mut ours, mut theirs] = [0; 2].map(|_| vec![0.0; numbers.len()]);
    host.domain().store(&y, &mut ours).unwrap();
    space.store(&z, &mut theirs).unwrap();
    let largest = ours.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    for (h, d) in ours.iter().zip(&theirs) {
        assert!((h - d).abs() <= 1e-10 * largest, "{h:e} on the host, {d:e} on the device");
    }
}

/// A copy equals the preconditioner of the host, before and after new values. Refreshes twice, because the first refresh of some
/// copies builds data that later ones reuse.
fn copies_follow<M>(gpu: &Cuda, host: &mut M, [a, b]: [&Csr<f64>; 2])
where
    M: LinearOperator<Vector = HostVector<f64>> + Refresh<f64>,
    M: ToCuda<OnCuda: LinearOperator<Vector = CudaVector<f64>> + Refresh<f64>>,
{
    let mut device = host.to(gpu).unwrap();
    laws::operator_fusions(&device, Agreement::Rounding).unwrap();
    laws::stale_values(&device).unwrap();
    same_application(host, &device);
    let halo = Halo::on(gpu, a).unwrap();
    let sell = Sell::new(b).unwrap();
    let others: [&dyn MatrixSource<f64>; 4] = [b, &halo, &sell, a];
    for other in others {
        device.refresh(other).unwrap();
        host.refresh(other).unwrap();
        same_application(host, &device);
    }
    assert!(device.refresh(&matrices::stencil7(3).csr::<f64>().unwrap()).is_err());
    same_application(host, &device);
}

gpu_test!(copies_are_those_of_the_host);
fn copies_are_those_of_the_host() {
    let gpu = gpu();
    let elastic = matrices::elasticity(6).diagonally_dominant().csr::<f64>().unwrap();
    let permutation = krysp::Permutation::rcm(&elastic).unwrap();
    let others = [elastic.clone(), changed(&elastic)].map(|a| a.reordered(&permutation).unwrap());
    for [a, b] in [[elastic.clone(), changed(&elastic)], others] {
        let both = [&a, &b];
        copies_follow(&gpu, &mut Jacobi::new(&a).unwrap(), both);
        copies_follow(&gpu, &mut Jacobi::blocks(&a, 3).unwrap(), both);
        copies_follow(&gpu, &mut Fsai::new(&a).unwrap(), both);
        let grown = Fsai::adaptive(&a, Sparsity::Power(1), Fsai::<f64>::GROWTH);
        copies_follow(&gpu, &mut grown.unwrap(), both);
        for side in [Side::Left, Side::Right] {
            let mut spai = Spai::with_pattern(&a, side, Sparsity::Power(1)).unwrap();
            copies_follow(&gpu, &mut spai, both);
            let grown = Spai::adaptive(&a, side, Sparsity::Power(0), Spai::<f64>::GROWTH).unwrap();
            let copy = grown.to(&gpu).unwrap();
            assert_eq!(&copy.report().unwrap(), grown.report());
            assert!(copy.matrix().to_csr().unwrap().entries() == grown.matrix().entries());
        }
        copies_follow(&gpu, &mut TwoLevel::new(&a).unwrap(), both);
        let coarse = CoarseSpace::new(&a, 9).unwrap();
        copies_follow(&gpu, &mut TwoLevel::with_inner(Fsai::new(&a).unwrap(), coarse, &a).unwrap(), both);
        let isai = Isai::new(Ic0::new(&a).unwrap(), Sparsity::Power(1)).unwrap();
        same_application(&isai, &isai.to(&gpu).unwrap());
        let isai = Isai::new(Ilu0::new(&a).unwrap(), Sparsity::Power(1)).unwrap();
        same_application(&isai, &isai.to(&gpu).unwrap());
        let single = Fsai::new(&a.cast::<f32>()).unwrap();
        let copy = single.to(&gpu).unwrap();
        assert!(copy.lower().to_csr().unwrap().entries() == single.lower().entries());
    }
    // preconditioners are also built from an operator whose format was chosen at run time
    let a = Operator::auto(&elastic, &gpu).unwrap();
    let mut fsai = Fsai::on(&gpu, &a).unwrap();
    same_factors(&Fsai::new(&elastic).unwrap(), &fsai, 1e-10);
    fsai.refresh(&a).unwrap();
    same_factors(&Fsai::new(&elastic).unwrap(), &fsai, 1e-10);
}

gpu_test!(two_levels_on_the_gpu_follow_operators);
/// Two-level preconditioners around Jacobi, and around FSAI. For the latter, the whole is refreshed first, then FSAI and the
/// coarse matrix separately.
fn two_levels_on_the_gpu_follow_operators() {
    let gpu = gpu();
    let a = matrices::stencil7(20).csr::<f64>().unwrap();
    let b = changed(&a);
    let (op, other) = (a.to(&gpu).unwrap(), Sell::on(&gpu, &b).unwrap());
    let mut both = TwoLevel::on(&gpu, &op).unwrap();
    same_application(&TwoLevel::new(&a).unwrap(), &both);
    both.refresh(&other).unwrap();
    same_application(&TwoLevel::new(&b).unwrap(), &both);
    let mut over =
        TwoLevel::with_inner_on(Fsai::on(&gpu, &op).unwrap(), CoarseSpace::new(&a, 64).unwrap(), &op);
    let over = over.as_mut().unwrap();
    over.refresh(&other).unwrap();
    let host = TwoLevel::with_inner(Fsai::new(&b).unwrap(), CoarseSpace::new(&a, 64).unwrap(), &b).unwrap();
    same_application(&host, over);
    over.inner_mut().refresh(&a).unwrap();
    over.refresh_coarse(&op).unwrap();
    let host = TwoLevel::with_inner(Fsai::new(&a).unwrap(), CoarseSpace::new(&a, 64).unwrap(), &a).unwrap();
    same_application(&host, over);
}
