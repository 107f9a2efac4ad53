//! Every method and every preconditioner solves on several ranks as on one.

use crate::{cuts, part, share};
use krysp::ranks::{BlockJacobi, Local, RankAmg, RankFsai, RankMatrix, RankSpai, RankTwoLevel, Ranks};
use krysp::solvers::{LinearOperator, Solution};
use krysp::testing::matrices::{self, edge};
use krysp::{
    Amg, AmgOptions, BasicVector, BiCgStab, Cg, Chebyshev, Csr, Fcg, Fgmres, Fsai, Gmres, HostVector, Ic0,
    Idr, Ilu0, Jacobi, Minres, PipelinedCg, Real, Spai, TwoLevel, Vector,
};

type Block = Box<dyn LinearOperator<Vector = HostVector<f64>>>;
type Make = fn(&Csr<f64>) -> krysp::Result<Block>;

/// The norm of `b − A x` over all ranks. `b` is the whole right-hand side, `x` this rank's part of the solution.
pub(super) fn residual<T: Real>(ranks: &Ranks, a: &Csr<T>, x: &[T], b: &[T], cut: &[usize]) -> f64 {
    let rows = share(ranks, a, cut);
    let [b, x] = [part(ranks, b, cut), x].map(|v| rows.domain().vector(v).unwrap());
    let mut r = krysp::Space::zeros(rows.domain()).unwrap();
    krysp::solvers::plain_residual(&rows, &b, &x, &mut r).unwrap();
    let squared = Vector::norm_squared(&r);
    krysp::Element::to_f64(krysp::solvers::Scalar::read(&squared).unwrap()).sqrt()
}

macro_rules! methods {
    ($($method:ident $(with $option:ident)?),*) => {
        [$((stringify!($method), (|a, m, b| {
            let mut solver = $method::new(a).preconditioner(m).rtol(1e-10);
            $(solver = solver.$option(40);)?
            solver.solve(b).unwrap()
        }) as fn(&_, &_, &_) -> _)),*]
    };
}

pub(super) fn methods(ranks: &Ranks) {
    methods_on(ranks, |rows| {
        let jacobi = BlockJacobi::new(&rows, Jacobi::new).unwrap();
        (rows, jacobi)
    });
}

/// Solves by every method with Jacobi. `put` leaves a matrix in host memory or copies it to a GPU.
pub(super) fn methods_on<L, M>(
    ranks: &Ranks,
    put: impl Fn(RankMatrix<f64>) -> (RankMatrix<f64, L>, BlockJacobi<f64, M, L>),
) where
    L: Local<f64>,
    M: LinearOperator<Vector = L::Vector>,
{
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let alone = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-10).solve(&b).unwrap();
    for (name, solve) in
        methods![Cg, PipelinedCg, Fcg, Minres, BiCgStab, Idr, Gmres with restart, Fgmres with restart]
    {
        let mut iterations = vec![];
        for cut in cuts(a.rows(), ranks.size()) {
            let (rows, jacobi) = put(share(ranks, &a, &cut));
            let Solution { x, report } = solve(&rows, &jacobi, part(ranks, &b, &cut));
            assert!(report.converged(), "{name} {cut:?}: {report}");
            let truth = residual(ranks, &a, &x, &b, &cut);
            assert!(truth <= 2e-10 * report.rhs_norm, "{name} {cut:?}: {truth}");
            for (x, expected) in x.iter().zip(part(ranks, &alone.x, &cut)) {
                assert!((x - expected).abs() <= 1e-7, "{name} {cut:?}: {x} {expected}");
            }
            iterations.push(report.iterations);
        }
        let [least, most] = [iterations.iter().min(), iterations.iter().max()].map(|i| *i.unwrap());
        // rounding errors grow faster in the short recurrences of IDR(s), with its random shadow space
        let apart = if name == "Idr" { 4 } else { 1 };
        assert!(most - least <= apart, "{name}: {iterations:?}");
    }
}

pub(super) fn preconditioners(ranks: &Ranks) {
    let a = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let makes: [(&str, Make); 6] = [
        ("Ic0", |block| Ok(Box::new(Ic0::new(block)?))),
        ("Ilu0", |block| Ok(Box::new(Ilu0::new(block)?))),
        ("Fsai", |block| Ok(Box::new(Fsai::new(block)?))),
        ("Spai", |block| Ok(Box::new(Spai::new(block)?))),
        ("Amg", |block| Ok(Box::new(Amg::new(block)?))),
        ("blocks", |block| Ok(Box::new(Jacobi::blocks(block, 4)?))),
    ];
    for (name, make) in makes {
        for cut in cuts(a.rows(), ranks.size()) {
            let rows = share(ranks, &a, &cut);
            let m = BlockJacobi::new(&rows, make).unwrap();
            let solution =
                Gmres::new(&rows).preconditioner(&m).rtol(1e-10).solve(part(ranks, &b, &cut)).unwrap();
            assert!(solution.report.converged(), "{name} {cut:?}: {}", solution.report);
            let truth = residual(ranks, &a, &solution.x, &b, &cut);
            assert!(truth <= 2e-10 * solution.report.rhs_norm, "{name} {cut:?}: {truth}");
        }
    }
    // a polynomial of the whole matrix
    for cut in cuts(a.rows(), ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let jacobi = BlockJacobi::new(&rows, Jacobi::new).unwrap();
        let m = Chebyshev::with_bounds(&rows, jacobi, 3, [0.1, 2.0]).unwrap();
        let report =
            Cg::new(&rows).preconditioner(m).rtol(1e-10).solve(part(ranks, &b, &cut)).unwrap().report;
        assert!(report.converged(), "Chebyshev {cut:?}: {report}");
    }
}

/// Solves take as many iterations as with the factors of one rank, plus or minus one.
pub(super) fn inverse_factors(ranks: &Ranks) {
    for a in [matrices::stencil7(9).csr::<f64>().unwrap(), edge::tridiagonal(40).csr().unwrap()] {
        let b = matrices::vector(a.rows());
        let alone = Cg::new(&a).preconditioner(Fsai::new(&a).unwrap()).rtol(1e-10).solve(&b).unwrap();
        for cut in cuts(a.rows(), ranks.size()) {
            let mut rows = share(ranks, &a, &cut);
            let mut m = RankFsai::new(&rows).unwrap();
            let b = part(ranks, &b, &cut);
            let solution = Cg::new(&rows).preconditioner(&m).rtol(1e-10).solve(b).unwrap();
            assert!(solution.report.converged(), "{cut:?}: {}", solution.report);
            let apart = solution.report.iterations.abs_diff(alone.report.iterations);
            assert!(apart <= 1, "{cut:?}: {}, {}", solution.report, alone.report);
            let own = a.offsets()[cut[ranks.rank()]]..a.offsets()[cut[ranks.rank() + 1]];
            let scaled: Vec<f64> = a.entries()[own.clone()].iter().map(|v| 4.0 * v).collect();
            rows.refresh(&scaled).unwrap();
            m.refresh(&rows).unwrap();
            let again = Cg::new(&rows).preconditioner(&m).rtol(1e-10).solve(b).unwrap();
            assert_eq!(again.report.iterations, solution.report.iterations);
            // a matrix that is not positive definite is an error on all ranks, which names the row
            rows.refresh(&vec![-1.0; own.len()]).unwrap();
            let refused = RankFsai::new(&rows).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("row"), "{refused}");
        }
    }
}

/// The approximate inverse of an unsymmetric matrix equals that of one rank, and solves take as many iterations, plus or minus
/// one.
pub(super) fn inverses(ranks: &Ranks) {
    let cube = matrices::stencil7(8).csr::<f64>().unwrap();
    let wind = cube.triplets().map(|(i, j, v)| (i, j, if j == i + 1 { 1.4 * v } else { v }));
    let cube = Csr::from_triplets(cube.rows(), cube.rows(), &wind.collect::<Vec<_>>()).unwrap();
    // the pattern is not symmetric either
    let n = 40;
    let line =
        (0..n).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % n, -0.9), (i, (i + 7) % n, -0.3 * (i % 3) as f64)]);
    let line = Csr::from_triplets(n, n, &line.collect::<Vec<_>>()).unwrap();
    for a in [cube, line] {
        let (b, spai) = (matrices::vector(a.rows()), Spai::new(&a).unwrap());
        let expected = spai.matrix();
        let alone = BiCgStab::new(&a).preconditioner(&spai).rtol(1e-10).solve(&b).unwrap();
        for cut in cuts(a.rows(), ranks.size()) {
            let mut rows = share(ranks, &a, &cut);
            let mut m = RankSpai::new(&rows).unwrap();
            // M x, entry by entry
            let x = rows.domain().vector(part(ranks, &b, &cut)).unwrap();
            let mut y = krysp::Space::zeros(rows.domain()).unwrap();
            m.apply(&x, &mut y).unwrap();
            let (first, end) = (cut[ranks.rank()], cut[ranks.rank() + 1]);
            for (row, y) in (first..end).zip(y.own().as_slice()) {
                let entries = expected.row_columns(row).iter().zip(expected.row_values(row));
                let sum: f64 = entries.map(|(&column, value)| value * b[column as usize]).sum();
                assert!((y - sum).abs() <= 1e-12, "{cut:?}, row {row}: {y} {sum}");
            }
            let b = part(ranks, &b, &cut);
            let solution = BiCgStab::new(&rows).preconditioner(&m).rtol(1e-10).solve(b).unwrap();
            assert!(solution.report.converged(), "{cut:?}: {}", solution.report);
            let apart = solution.report.iterations.abs_diff(alone.report.iterations);
            assert!(apart <= 1, "{cut:?}: {}, {}", solution.report, alone.report);
            // the approximate inverse of four times the matrix is a quarter of the first one, bitwise
            let own = a.offsets()[first]..a.offsets()[end];
            let scaled: Vec<f64> = a.entries()[own.clone()].iter().map(|v| 4.0 * v).collect();
            rows.refresh(&scaled).unwrap();
            m.refresh(&rows).unwrap();
            let mut quarter = krysp::Space::zeros(rows.domain()).unwrap();
            m.apply(&x, &mut quarter).unwrap();
            let expected: Vec<f64> = y.own().as_slice().iter().map(|y| y / 4.0).collect();
            assert_eq!(quarter.own().as_slice(), expected);
            // a column of zeros is an error on all ranks
            rows.refresh(&vec![0.0; own.len()]).unwrap();
            let refused = RankSpai::new(&rows).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("SPAI"), "{refused}");
        }
    }
}

/// A coarse space whose aggregates do not cross ranks is about as effective as one on a single rank.
pub(super) fn two_levels(ranks: &Ranks) {
    let a = matrices::stencil7(16).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let alone = Cg::new(&a).preconditioner(TwoLevel::new(&a).unwrap()).rtol(1e-9).solve(&b).unwrap();
    for cut in cuts(a.rows(), ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let jacobi = BlockJacobi::new(&rows, Jacobi::new).unwrap();
        let mut m = RankTwoLevel::with_inner(jacobi, &rows, 128).unwrap();
        assert!((64..=140).contains(&m.unknowns()), "{}", m.unknowns());
        let b = part(ranks, &b, &cut);
        let solution = Cg::new(&rows).preconditioner(&m).rtol(1e-9).solve(b).unwrap();
        let (got, expected) = (solution.report.iterations, alone.report.iterations);
        assert!(solution.report.converged(), "{cut:?}: {}", solution.report);
        assert!(10 * got <= 13 * expected, "{cut:?}: {got} iterations, {expected} on one rank");
        // fused operations equal the separate ones
        let [q, mut r] = [1.0, 3.0].map(|scale| {
            let scaled: Vec<f64> = b.iter().map(|b| scale * b).collect();
            rows.domain().vector(&scaled).unwrap()
        });
        let [mut z, mut apart] = [0; 2].map(|_| krysp::Space::zeros(rows.domain()).unwrap());
        let sums = m.axpy_apply_dot(&(-2.0).into(), &q, &mut r, &mut z).unwrap();
        m.apply(&r, &mut apart).unwrap();
        for (z, apart) in z.own().as_slice().iter().zip(apart.own().as_slice()) {
            assert!((z - apart).abs() <= 1e-12 * (1.0 + apart.abs()), "{cut:?}: {z} {apart}");
        }
        for (sum, parts) in sums.into_iter().zip([r.norm_squared(), r.dot(&apart)]) {
            let [sum, parts] = [sum, parts].map(|sum| krysp::solvers::Scalar::read(&sum).unwrap());
            assert!((sum - parts).abs() <= 1e-12 * parts.abs(), "{cut:?}: {sum} {parts}");
        }
        m.refresh_coarse(&rows).unwrap();
        let again = Cg::new(&rows).preconditioner(&m).rtol(1e-9).solve(b).unwrap();
        assert_eq!(again.x, solution.x);
    }
    // rigid body modes of an elastic body
    let side = 6;
    let a = matrices::elasticity(side).csr::<f64>().unwrap();
    let points: Vec<_> = (0..side.pow(3)).map(|i| [i % side, i / side % side, i / side / side]).collect();
    let points: Vec<_> = points.iter().map(|point| point.map(|x| x as f64)).collect();
    let modes = krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode);
    let b = matrices::vector(a.rows());
    for cut in cuts(points.len(), ranks.size()) {
        let cut: Vec<usize> = cut.iter().map(|node| 3 * node).collect();
        let rows = share(ranks, &a, &cut);
        let own: Vec<&[f64]> = modes.iter().map(|mode| part(ranks, mode, &cut)).collect();
        let jacobi = || BlockJacobi::new(&rows, Jacobi::new).unwrap();
        let m = RankTwoLevel::with_near_null_space(jacobi(), &rows, 60, &own).unwrap();
        let b = part(ranks, &b, &cut);
        let both = Cg::new(&rows).preconditioner(m).solve(b).unwrap().report;
        let plain = Cg::new(&rows).preconditioner(jacobi()).solve(b).unwrap().report;
        assert!(both.converged() && both.iterations < plain.iterations, "{cut:?}: {both}, {plain}");
    }
}

/// Multigrid on ranks takes at most two iterations more than on one rank, for all partitions.
pub(super) fn multigrid(ranks: &Ranks) {
    let layers = {
        let a = matrices::stencil7(14).csr::<f64>().unwrap();
        let weak = |i: usize, j: usize, v: f64| if i.abs_diff(j) >= 14 * 14 { 0.01 * v } else { v };
        let entries: Vec<_> = a.triplets().map(|(i, j, v)| (i, j, weak(i, j, v))).collect();
        Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap()
    };
    let systems = [
        ("cube", matrices::stencil7(18).csr::<f64>().unwrap()),
        ("layers", layers),
        ("small", matrices::stencil7(8).csr::<f64>().unwrap()),
    ];
    for (name, a) in systems {
        let b = matrices::vector(a.rows());
        // several levels on ranks
        let options = AmgOptions { max_coarse_size: 60, smooth_finest: Some(true), ..AmgOptions::default() };
        let alone = Amg::with::<[f64; 0]>(&a, &[], options).unwrap();
        let alone = Cg::new(&a).preconditioner(alone).rtol(1e-9).solve(&b).unwrap();
        for cut in cuts(a.rows(), ranks.size()) {
            let rows = share(ranks, &a, &cut);
            let m = RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap();
            let solution = Cg::new(&rows).preconditioner(m).rtol(1e-9).solve(part(ranks, &b, &cut)).unwrap();
            let report = solution.report;
            assert!(report.converged(), "{name}, {cut:?}: {report}");
            let (got, expected) = (report.iterations, alone.report.iterations);
            assert!(got <= expected + 2, "{name}, {cut:?}: {got} iterations, {expected} on one rank");
            for (x, expected) in solution.x.iter().zip(part(ranks, &alone.x, &cut)) {
                assert!(
                    (x - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                    "{name}, {cut:?}: {x} {expected}"
                );
            }
        }
    }
}

/// Nodes with several unknowns, and a near-null space of the user.
pub(super) fn multigrid_of_nodes(ranks: &Ranks) {
    let side = 8;
    let a = matrices::elasticity(side).csr::<f64>().unwrap();
    let points: Vec<_> = (0..side * side * side)
        .map(|i| [i % side, i / side % side, i / side / side].map(|x| x as f64))
        .collect();
    let modes = krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode);
    let b = matrices::vector(a.rows());
    let alone = Amg::with_near_null_space(&a, &modes).unwrap();
    let expected = Cg::new(&a).preconditioner(alone).solve(&b).unwrap().report.iterations;
    for cut in cuts(points.len(), ranks.size()) {
        // partitions that keep the rows of a node together, and partitions that do not
        let whole: Vec<usize> = cut.iter().map(|node| 3 * node).collect();
        let mut torn = whole.clone();
        torn[1..ranks.size()].iter_mut().for_each(|bound| *bound = (*bound + 1).min(a.rows()));
        for (cut, most) in [(whole, expected + 2), (torn, 3 * expected)] {
            let rows = share(ranks, &a, &cut);
            let own: Vec<&[f64]> = modes.iter().map(|mode| part(ranks, mode, &cut)).collect();
            let m = RankAmg::with_near_null_space(&rows, &own).unwrap();
            let solution = Cg::new(&rows).preconditioner(m).solve(part(ranks, &b, &cut)).unwrap();
            assert!(solution.report.converged(), "{cut:?}: {}", solution.report);
            assert!(
                solution.report.iterations <= most,
                "{cut:?}: {}, {expected} on one rank",
                solution.report
            );
        }
    }
}

pub(super) fn more_ranks_than_rows(ranks: &Ranks) {
    for n in 1..4 {
        let a = edge::tridiagonal(n).csr::<f64>().unwrap();
        for cut in cuts(n, ranks.size()) {
            let rows = share(ranks, &a, &cut);
            for restart in [1, 30] {
                let b = vec![1.0; cut[ranks.rank() + 1] - cut[ranks.rank()]];
                let m = BlockJacobi::new(&rows, Ic0::new).unwrap();
                let report = Gmres::new(&rows).preconditioner(&m).restart(restart).solve(&b).unwrap().report;
                assert!(report.converged(), "{n} rows, {cut:?}: {report}");
                let report = Cg::new(&rows).preconditioner(m).solve(&b).unwrap().report;
                assert!(report.converged(), "{n} rows, {cut:?}: {report}");
            }
            let b = vec![1.0; cut[ranks.rank() + 1] - cut[ranks.rank()]];
            let report =
                Cg::new(&rows).preconditioner(RankAmg::new(&rows).unwrap()).solve(&b).unwrap().report;
            assert!(report.converged(), "{n} rows, {cut:?}: {report}");
            let m = RankSpai::new(&rows).unwrap();
            let report = BiCgStab::new(&rows).preconditioner(m).solve(&b).unwrap().report;
            assert!(report.converged(), "{n} rows, {cut:?}: {report}");
            let fsai = RankFsai::new(&rows).unwrap();
            let m = RankTwoLevel::with_inner(fsai, &rows, 1).unwrap();
            let report = Cg::new(&rows).preconditioner(m).solve(&b).unwrap().report;
            assert!(report.converged(), "{n} rows, {cut:?}: {report}");
        }
    }
}

/// Two solves are bitwise equal, and all ranks have the same history.
pub(super) fn same_bits_again(ranks: &Ranks) {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let cut = &cuts(a.rows(), ranks.size())[0];
    let solve = || {
        let rows = share(ranks, &a, cut);
        Cg::new(&rows).rtol(1e-10).solve(part(ranks, &b, cut)).unwrap()
    };
    let [first, second] = [solve(), solve()];
    assert_eq!(first.x, second.x);
    assert_eq!(first.report.history, second.report.history);
    // if a hash of the history is not the same on all ranks, its sum over the ranks is not a multiple of this
    // rank's hash
    let hash = first.report.history.iter().fold(0u64, |hash, r| hash.rotate_left(5) ^ r.to_bits()) >> 12;
    let space = krysp::ranks::RankSpace::<f64>::new(ranks, 1).unwrap();
    let own = space.vector(&[(hash % 1_000_003) as f64]).unwrap();
    let one = space.vector(&[1.0]).unwrap();
    let sum = krysp::solvers::Scalar::read(&BasicVector::dot(&own, &one)).unwrap();
    assert_eq!(sum, (hash % 1_000_003) as f64 * ranks.size() as f64);
}

/// A pure Neumann problem, whose null space is declared.
pub(super) fn null_space(ranks: &Ranks) {
    let n = 50;
    let ends = |i: usize| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)];
    let a = Csr::from_triplets(n, n, &(0..n - 1).flat_map(ends).collect::<Vec<_>>()).unwrap();
    let b = matrices::vector(n);
    for cut in cuts(n, ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let constant = vec![1.0; cut[ranks.rank() + 1] - cut[ranks.rank()]];
        let mut solver = Cg::new(&rows).null_space(&[constant]).unwrap().rtol(1e-9);
        let report = solver.solve(part(ranks, &b, &cut)).unwrap().report;
        assert!(report.converged(), "{cut:?}: {report}");
    }
}

pub(super) fn single_precision(ranks: &Ranks) {
    let a = matrices::stencil7(8).csr::<f32>().unwrap();
    let b: Vec<f32> = matrices::vector(a.rows()).iter().map(|&b: &f64| b as f32).collect();
    for cut in cuts(a.rows(), ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let m = BlockJacobi::new(&rows, Jacobi::new).unwrap();
        let solution = Cg::new(&rows).preconditioner(m).rtol(1e-4).solve(part(ranks, &b, &cut)).unwrap();
        assert!(solution.report.converged(), "{cut:?}: {}", solution.report);
        assert!(residual(ranks, &a, &solution.x, &b, &cut) <= 3e-4 * solution.report.rhs_norm);
    }
}
