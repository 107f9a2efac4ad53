//! Ranks with GPUs, or with one GPU that they share, compute the same as ranks in host memory. Skipped without a GPU.

use crate::laws::{assert_product, obeyed, small};
use crate::solves::{methods_on, residual};
use crate::{cuts, part, share};
use krysp::ranks::{
    BlockJacobi, Local, RankAmg, RankFsai, RankMatrix, RankSpace, RankSpai, RankTwoLevel, RankVector, Ranks,
};
use krysp::solvers::Solution;
use krysp::testing::laws::{self, Agreement, numbers};
use krysp::testing::matrices::{self, edge};
use krysp::{
    Amg, AmgOptions, BasicVector, BiCgStab, Cg, Chebyshev, Csr, Cuda, CudaVector, Fgmres, Fsai, Gmres, Ic0,
    Isai, Jacobi, LinearOperator, Outcome, Space, Spai, Sparsity, ToCuda, TwoLevel,
};

pub(super) fn vectors(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    for n in [0, 1, 41, 3000] {
        for cut in cuts(n, ranks.size()) {
            let own = cut[ranks.rank() + 1] - cut[ranks.rank()];
            obeyed(&RankSpace::<f64>::new(ranks, own).unwrap().to(&gpu).unwrap());
            obeyed(&RankSpace::<f32>::new(ranks, own).unwrap().to(&gpu).unwrap());
        }
    }
}

pub(super) fn operators(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    for triplets in [edge::tridiagonal(41), edge::arrow(33), edge::dense_column(50, 7)] {
        let a = triplets.csr::<f64>().unwrap();
        for cut in cuts(a.rows(), ranks.size()) {
            let rows = share(ranks, &a, &cut).to(&gpu).unwrap();
            laws::operator_fusions(&rows, Agreement::Rounding).unwrap();
            laws::stale_values(&rows).unwrap();
            laws::second_product(&rows).unwrap();
            let jacobi = BlockJacobi::new(&rows, |block| Jacobi::new(block)?.to(&gpu)).unwrap();
            laws::operator_fusions(&jacobi, Agreement::Rounding).unwrap();
            // a saddle point has no coarse matrix that is positive definite
            if let Ok(two_level) = RankTwoLevel::with_inner(jacobi, &rows, 8) {
                laws::operator_fusions(&two_level, Agreement::Rounding).unwrap();
                laws::second_product(&two_level).unwrap();
            }
        }
    }
}

/// The entries of this rank's part.
fn stored<L: Local<f64>>(v: &RankVector<f64, L>) -> Vec<f64> {
    let mut entries = vec![0.0; v.space().local_len()];
    v.space().store(v, &mut entries).unwrap();
    entries
}

fn product<L: Local<f64>>(a: &RankMatrix<f64, L>, x: &[f64]) -> Vec<f64> {
    let mut y = a.range().zeros().unwrap();
    a.apply(&a.domain().vector(x).unwrap(), &mut y).unwrap();
    stored(&y)
}

/// Products and new values equal those of one process; the messages are those of ranks in host memory.
pub(super) fn products(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    small(ranks, |name, a, cut, x| {
        let host = share(ranks, a, cut);
        let mut rows = host.to(&gpu).unwrap();
        let before = ranks.traffic();
        let y = product(&rows, part(ranks, x, cut));
        let sent = ranks.traffic() - before;
        // direct transfers between GPUs are not counted
        let counted = u64::from(!rows.report().peer_to_peer);
        assert_eq!(sent.messages, counted * host.report().messages as u64);
        assert_eq!(sent.bytes, counted * 8 * host.report().sent as u64);
        assert_product(ranks, name, a, cut, x, &y);
        let own = a.offsets()[cut[ranks.rank()]]..a.offsets()[cut[ranks.rank() + 1]];
        let doubled: Vec<f64> = a.entries()[own].iter().map(|value| 2.0 * value).collect();
        rows.refresh(&doubled).unwrap();
        for (twice, y) in product(&rows, part(ranks, x, cut)).iter().zip(&y) {
            assert!((twice - 2.0 * y).abs() <= 1e-12 * (1.0 + y.abs()), "{name} {cut:?}: {twice} {y}");
        }
    });
}

/// Long messages, and many products in a row.
pub(super) fn large_products(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let a = matrices::stencil7(60).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let host = share(ranks, &a, cut);
    let rows = host.to(&gpu).unwrap();
    let own = part(ranks, &numbers(a.rows(), 5), cut).to_vec();
    let (mut x, mut y) = (rows.domain().vector(&own).unwrap(), rows.range().zeros().unwrap());
    let (mut hx, mut hy) = (host.domain().vector(&own).unwrap(), host.range().zeros().unwrap());
    for _ in 0..20 {
        rows.apply(&x, &mut y).unwrap();
        x.axpby(&0.125.into(), &y, &0.0.into());
        host.apply(&hx, &mut hy).unwrap();
        hx.axpby(&0.125.into(), &hy, &0.0.into());
    }
    for (x, expected) in stored(&x).iter().zip(hx.own().as_slice()) {
        assert!((x - expected).abs() <= 1e-11 * (1.0 + expected.abs()), "{x} {expected}");
    }
}

/// The residual is computed in twice the precision.
pub(super) fn precise_residuals(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let a = edge::dense_row(60, 11).csr::<f64>().unwrap();
    let x: Vec<f64> = numbers(a.cols(), 6);
    let b: Vec<f64> = numbers(a.rows(), 7);
    for cut in cuts(a.rows(), ranks.size()) {
        let host = share(ranks, &a, &cut);
        let rows = host.to(&gpu).unwrap();
        let [on_gpu, on_host] = [&b, &x].map(|v| {
            let own = part(ranks, v, &cut);
            (rows.domain().vector(own).unwrap(), host.domain().vector(own).unwrap())
        });
        let (mut r, mut expected) = (rows.range().zeros().unwrap(), host.range().zeros().unwrap());
        rows.residual(&on_gpu.0, &on_host.0, &mut r).unwrap();
        host.residual(&on_gpu.1, &on_host.1, &mut expected).unwrap();
        assert_eq!(stored(&r), expected.own().as_slice(), "{cut:?}");
    }
}

pub(super) fn methods(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    methods_on(ranks, |rows| {
        let rows = rows.to(&gpu).unwrap();
        let jacobi = BlockJacobi::new(&rows, |block| Jacobi::new(block)?.to(&gpu)).unwrap();
        (rows, jacobi)
    });
}

type Block = Box<dyn LinearOperator<Vector = CudaVector<f64>>>;
type Make = fn(&Csr<f64>, &Cuda) -> krysp::Result<Block>;

pub(super) fn preconditioners(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let makes: [(&str, Make); 6] = [
        ("Fsai", |block, gpu| Ok(Box::new(Fsai::new(block)?.to(gpu)?))),
        ("Spai", |block, gpu| Ok(Box::new(Spai::new(block)?.to(gpu)?))),
        ("Amg", |block, gpu| Ok(Box::new(Amg::on(gpu, block)?))),
        ("TwoLevel", |block, gpu| Ok(Box::new(TwoLevel::new(block)?.to(gpu)?))),
        ("Isai", |block, gpu| Ok(Box::new(Isai::new(Ic0::new(block)?, Sparsity::Power(1))?.to(gpu)?))),
        ("blocks", |block, gpu| Ok(Box::new(Jacobi::blocks(block, 4)?.to(gpu)?))),
    ];
    let check = |name: &str, cut: &[usize], Solution { x, report }: Solution<f64>| {
        assert!(report.converged(), "{name} {cut:?}: {report}");
        let truth = residual(ranks, &a, &x, &b, cut);
        assert!(truth <= 2e-10 * report.rhs_norm, "{name} {cut:?}: {truth}");
        report.iterations
    };
    for cut in cuts(a.rows(), ranks.size()) {
        let host = share(ranks, &a, &cut);
        let (rows, own) = (host.to(&gpu).unwrap(), part(ranks, &b, &cut));
        for (name, make) in makes {
            let m = BlockJacobi::new(&rows, |block| make(block, &gpu)).unwrap();
            check(name, &cut, Gmres::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap());
            // the flexible method, which stores the preconditioned vectors
            check(name, &cut, Fgmres::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap());
        }
        let jacobi = || BlockJacobi::new(&rows, |block| Jacobi::new(block)?.to(&gpu)).unwrap();
        let m = Chebyshev::with_bounds(&rows, jacobi(), 3, [0.1, 2.0]).unwrap();
        check("Chebyshev", &cut, Cg::new(&rows).preconditioner(m).rtol(1e-10).solve(own).unwrap());

        let on_host = BlockJacobi::new(&host, Jacobi::new).unwrap();
        let m = RankTwoLevel::with_inner(on_host, &host, 60).unwrap();
        let alone = Cg::new(&host).preconditioner(m).rtol(1e-10).solve(own).unwrap().report.iterations;
        let m = RankTwoLevel::with_inner(jacobi(), &rows, 60).unwrap();
        let got =
            check("RankTwoLevel", &cut, Cg::new(&rows).preconditioner(m).rtol(1e-10).solve(own).unwrap());
        assert!(got.abs_diff(alone) <= 1, "{cut:?}: {got}, {alone} on hosts");

        let fsai = RankFsai::new(&host).unwrap();
        let alone = Cg::new(&host).preconditioner(&fsai).rtol(1e-10).solve(own).unwrap().report.iterations;
        let m = fsai.to(&gpu).unwrap();
        let got = check("RankFsai", &cut, Cg::new(&rows).preconditioner(m).rtol(1e-10).solve(own).unwrap());
        assert!(got.abs_diff(alone) <= 1, "{cut:?}: {got}, {alone} on hosts");

        let spai = RankSpai::new(&host).unwrap();
        let alone =
            BiCgStab::new(&host).preconditioner(&spai).rtol(1e-10).solve(own).unwrap().report.iterations;
        let m = spai.to(&gpu).unwrap();
        let got =
            check("RankSpai", &cut, BiCgStab::new(&rows).preconditioner(m).rtol(1e-10).solve(own).unwrap());
        assert!(got.abs_diff(alone) <= 2, "{cut:?}: {got}, {alone} on hosts");
    }
}

/// Multigrid on ranks takes as many iterations as in host memory, with one and three unknowns per node, and values of any
/// magnitude.
pub(super) fn multigrid(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let systems = [
        ("cube", 1, matrices::stencil7(18).csr::<f64>().unwrap()),
        ("small", 1, matrices::stencil7(4).csr::<f64>().unwrap()),
        ("elastic", 3, matrices::elasticity(7).csr::<f64>().unwrap()),
    ];
    for (name, size, a) in systems {
        let b = matrices::vector(a.rows());
        let options = AmgOptions { max_coarse_size: 60, ..AmgOptions::default() };
        for cut in cuts(a.rows() / size, ranks.size()) {
            let cut: Vec<usize> = cut.iter().map(|node| size * node).collect();
            let host = share(ranks, &a, &cut);
            let (rows, own) = (host.to(&gpu).unwrap(), part(ranks, &b, &cut));
            assert_eq!(rows.report().peer_to_peer, is_direct(ranks), "{:?}", rows.report());
            let on_host = RankAmg::with::<[f64; 0]>(&host, &[], options).unwrap();
            let m = RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap();
            // GPUs find the same aggregates as hosts
            assert_eq!(m.aggregates().unwrap(), on_host.aggregates().unwrap(), "{name} {cut:?}");
            let alone =
                Cg::new(&host).preconditioner(on_host).rtol(1e-9).solve(own).unwrap().report.iterations;
            for scale in [1.0, 1e-60, 1e60] {
                let own: Vec<f64> = own.iter().map(|b| scale * b).collect();
                let report = Cg::new(&rows).preconditioner(&m).rtol(1e-9).solve(&own).unwrap().report;
                assert!(report.converged(), "{name} {cut:?}, {scale:e}: {report}");
                assert!(
                    report.iterations.abs_diff(alone) <= 1,
                    "{name} {cut:?}, {scale:e}: {report}, {alone} iterations on hosts"
                );
            }
        }
    }
}

/// Two solves are bitwise equal; new values reach the matrix and the preconditioner.
pub(super) fn again(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for cut in cuts(a.rows(), ranks.size()) {
        let mut rows = share(ranks, &a, &cut).to(&gpu).unwrap();
        let own = part(ranks, &b, &cut);
        let mut m = BlockJacobi::new(&rows, |block| Fsai::new(block)?.to(&gpu)).unwrap();
        let [first, second] =
            [(); 2].map(|()| Cg::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap());
        assert_eq!((&first.x, &first.report.history), (&second.x, &second.report.history), "{cut:?}");
        let entries = a.offsets()[cut[ranks.rank()]]..a.offsets()[cut[ranks.rank() + 1]];
        let values: Vec<f64> = a.entries()[entries].iter().map(|value| 4.0 * value).collect();
        rows.refresh(&values).unwrap();
        m.refresh(&rows).unwrap();
        let third = Cg::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap();
        assert_eq!(third.report.iterations, first.report.iterations, "{cut:?}");
        for (x, y) in third.x.iter().zip(&first.x) {
            assert!((4.0 * x - y).abs() <= 1e-9 * (1.0 + y.abs()), "{cut:?}: {x} {y}");
        }
    }
}

/// NaN on one rank is an outcome on all ranks; a preconditioner on another stream is an error on all ranks.
pub(super) fn failures(ranks: &Ranks) {
    let gpu = ranks.gpu().unwrap();
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let rows = share(ranks, &a, cut).to(&gpu).unwrap();
    let mut b = part(ranks, &matrices::vector(a.rows()), cut).to_vec();
    if ranks.rank() == ranks.size() / 2 {
        b[0] = f64::NAN;
    }
    let report = Cg::new(&rows).solve(&b).unwrap().report;
    assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
    let elsewhere = Cuda::new(gpu.ordinal()).unwrap();
    assert!(BlockJacobi::new(&rows, |block| Jacobi::new(block)?.to(&elsewhere)).is_err());
    // a solve whose tokens and limits are checked on all ranks
    let b = part(ranks, &matrices::vector(a.rows()), cut).to_vec();
    let solver = Cg::new(&rows).rtol(1e-10).time_limit(std::time::Duration::from_secs(60));
    assert!(solver.stop_when(|_| false).solve(&b).unwrap().report.converged());
}

/// Returns whether ranks exchange directly, because each has a separate GPU. The tests need GPUs that reach each other's memory.
pub(super) fn is_direct(ranks: &Ranks) -> bool {
    ranks.size() <= Cuda::devices().len()
}

/// Returns whether ranks that are threads may exchange directly on one GPU. Use that for manual runs only, see
/// `Ranks::join_on_one_gpu`.
pub(super) fn threads_share_gpus() -> bool {
    std::env::var("CUDA_MODULE_LOADING").is_ok_and(|how| how == "EAGER")
}

/// GPUs with access to each other's memory, or one GPU that processes share in the same way: a GPU with several processes
/// switches between them, so that each wait takes milliseconds.
fn join(ranks: &Ranks) -> Cuda {
    if !ranks.are_threads() || threads_share_gpus() {
        ranks.join_on_one_gpu();
    }
    ranks.gpu().unwrap()
}

/// Sums and halo entries that GPUs exchange directly equal those that hosts exchange.
pub(super) fn joined(ranks: &Ranks) {
    let gpu = join(ranks);
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    for cut in cuts(a.rows(), ranks.size()) {
        let host = share(ranks, &a, &cut);
        let mut rows = host.to(&gpu).unwrap();
        // threads that share a GPU exchange through host memory
        let expected = is_direct(ranks) || !ranks.are_threads() || threads_share_gpus();
        assert_eq!(rows.report().peer_to_peer, expected, "{:?}", rows.report());
        let own = part(ranks, &b, &cut);
        for (y, expected) in product(&rows, own).iter().zip(product(&host, own)) {
            assert!((y - expected).abs() <= 1e-14, "{cut:?}: {y} {expected}");
        }
        let m = BlockJacobi::new(&rows, |block| Jacobi::new(block)?.to(&gpu)).unwrap();
        let [first, second] =
            [(); 2].map(|()| Cg::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap());
        assert!(first.report.converged(), "{cut:?}: {}", first.report);
        assert!(residual(ranks, &a, &first.x, &b, &cut) <= 2e-10 * first.report.rhs_norm, "{cut:?}");
        assert_eq!((&first.x, &first.report.history), (&second.x, &second.report.history), "{cut:?}");
        let alone = BlockJacobi::new(&host, Jacobi::new).unwrap();
        let alone = Cg::new(&host).preconditioner(alone).rtol(1e-10).solve(own).unwrap().report;
        assert!(first.report.iterations.abs_diff(alone.iterations) <= 1, "{cut:?}: {} {alone}", first.report);
        let gmres = Gmres::new(&rows).preconditioner(&m).rtol(1e-10).solve(own).unwrap();
        assert!(gmres.report.converged(), "{cut:?}: {}", gmres.report);
        assert!(residual(ranks, &a, &gmres.x, &b, &cut) <= 2e-10 * gmres.report.rhs_norm, "{cut:?}");
        let entries = a.offsets()[cut[ranks.rank()]]..a.offsets()[cut[ranks.rank() + 1]];
        let values: Vec<f64> = a.entries()[entries].iter().map(|value| 2.0 * value).collect();
        rows.refresh(&values).unwrap();
        for (y, expected) in product(&rows, own).iter().zip(product(&host, own)) {
            assert!((y - 2.0 * expected).abs() <= 1e-14, "{cut:?}: {y} {expected}");
        }
    }
}

/// A rank that fails ends the waits of other GPUs, and all ranks return its error.
pub(super) fn joined_failures(ranks: &Ranks) {
    let gpu = join(ranks);
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let rows = share(ranks, &a, cut).to(&gpu).unwrap();
    let x = rows.domain().vector(part(ranks, &matrices::vector(a.rows()), cut)).unwrap();
    let mut y = rows.range().zeros().unwrap();
    let failing = ranks.size() / 2;
    let outcome = ranks.run(|| {
        if ranks.size() > 1 && ranks.rank() == failing {
            // the other ranks are waiting now
            std::thread::sleep(std::time::Duration::from_millis(200));
            return Err("out of paper".to_string());
        }
        let sum = rows.apply_dot(&x, &mut y).map_err(|error| error.to_string())?;
        krysp::solvers::Scalar::read(&sum).map_err(|error| error.to_string())
    });
    match ranks.size() {
        1 => assert!(outcome.is_ok()),
        _ => {
            let message = outcome.unwrap_err();
            assert!(message.contains("out of paper"), "{message}");
            assert!(ranks.rank() == failing || message.contains(&format!("rank {failing}")), "{message}");
        }
    }
}
