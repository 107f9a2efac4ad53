//! The amounts of communication are those of theory.

use crate::{cuts, part, share};
use krysp::ranks::{
    BlockJacobi, CommunicationCounts, RankAmg, RankFsai, RankMatrix, RankTwoLevel, RankVector, Ranks,
};
use krysp::testing::matrices;
use krysp::{AmgOptions, BiCgStab, Cg, Fcg, Gmres, Jacobi, LinearOperator, Minres, PipelinedCg, Space};
use std::collections::BTreeSet;

/// A product sends each rank the entries that it needs, each once, in one message.
pub(super) fn halo_is_that_of_the_partition(ranks: &Ranks) {
    let a = matrices::stencil7(7).csr::<f64>().unwrap();
    for cut in cuts(a.rows(), ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let own = |rank: usize| cut[rank]..cut[rank + 1];
        let read_by = |rank: usize, of: usize| -> BTreeSet<u32> {
            let columns = own(rank).flat_map(|row| a.row_columns(row)).copied();
            columns.filter(|&column| own(of).contains(&(column as usize))).collect()
        };
        let me = ranks.rank();
        let others = (0..ranks.size()).filter(|&rank| rank != me);
        let sent: Vec<usize> = others.clone().map(|rank| read_by(rank, me).len()).collect();
        let received: usize = others.map(|rank| read_by(me, rank).len()).sum();
        let report = rows.report();
        assert_eq!(report.sent, sent.iter().sum::<usize>(), "{cut:?}");
        assert_eq!(report.messages, sent.iter().filter(|&&count| count > 0).count(), "{cut:?}");
        assert_eq!(report.received, received, "{cut:?}");

        let x = rows.domain().zeros().unwrap();
        let mut y = rows.range().zeros().unwrap();
        let before = ranks.traffic();
        for _ in 0..3 {
            rows.apply(&x, &mut y).unwrap();
        }
        let expected = CommunicationCounts {
            messages: 3 * report.messages as u64,
            bytes: 24 * report.sent as u64,
            ..CommunicationCounts::default()
        };
        assert_eq!(ranks.traffic() - before, expected, "{cut:?}");
    }
}

/// The communication of ten iterations, as the difference of two solves, which excludes start and end.
fn ten(ranks: &Ranks, mut solve: impl FnMut(usize)) -> CommunicationCounts {
    let mut count = |iterations: usize| {
        let before = ranks.traffic();
        solve(iterations);
        ranks.traffic() - before
    };
    let short = count(10);
    count(20) - short
}

pub(super) fn sums_of_an_iteration(ranks: &Ranks) {
    let a = matrices::stencil7(10).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let cut = &cuts(a.rows(), ranks.size())[0];
    let (rows, b) = (share(ranks, &a, cut), part(ranks, &b, cut));
    let m = BlockJacobi::new(&rows, Jacobi::new).unwrap();
    let sent = |products: u64, traffic: CommunicationCounts| {
        let report = RankMatrix::report(&rows);
        assert_eq!(traffic.messages, products * report.messages as u64);
        assert_eq!(traffic.bytes, 8 * products * report.sent as u64);
        [traffic.reductions, traffic.reduced_values]
    };
    macro_rules! counted {
        ($method:ident $(, $option:ident)?) => {
            ten(ranks, |iterations| {
                let solver = $method::new(&rows).preconditioner(&m).rtol(0.0).max_iterations(iterations);
                $(let solver = solver.$option(10);)?
                let mut solver = solver;
                solver.solve(b).unwrap();
            })
        };
    }
    // ⟨p, A p⟩; then ‖r‖² and ⟨r, z⟩ together
    assert_eq!(sent(10, counted!(Cg)), [20, 30]);
    // ‖r‖² and ⟨r, u⟩, ‖w‖² and ⟨w, u⟩, all while the next product is computed
    assert_eq!(sent(10, counted!(PipelinedCg)), [10, 40]);
    // ⟨p, A p⟩; then ‖r‖², ⟨z, r⟩ and ⟨z, A p⟩ together
    assert_eq!(sent(10, counted!(Fcg)), [20, 40]);
    // ⟨r̃, v⟩; ⟨t, s⟩ and ⟨t, t⟩; ‖r‖² and ⟨r̃, r⟩
    assert_eq!(sent(20, counted!(BiCgStab)), [30, 50]);
    let [reductions, _] = sent(10, counted!(Minres));
    assert!(reductions <= 30, "MINRES: {reductions}");
    // two projections and a norm in each step; in addition the products, norms and agreement of a start
    let gmres = counted!(Gmres, restart);
    assert!(gmres.reductions <= 33, "GMRES: {gmres:?}");
}

/// Communication of one application of each preconditioner.
pub(super) fn preconditioners(ranks: &Ranks) {
    let a = matrices::stencil7(14).csr::<f64>().unwrap();
    let cut = &cuts(a.rows(), ranks.size())[0];
    let rows = share(ranks, &a, cut);
    let jacobi = || BlockJacobi::new(&rows, Jacobi::new).unwrap();
    let fsai = RankFsai::new(&rows).unwrap();
    let factors = fsai.lower().report().messages + fsai.upper().report().messages;
    // each factor sends in one direction only: to the next rank, or back
    assert_eq!(factors, rows.report().messages);
    let multigrid = |smooth_finest| {
        let options =
            AmgOptions { max_coarse_size: 60, smooth_finest: Some(smooth_finest), ..AmgOptions::default() };
        let amg = RankAmg::with::<[f64; 0]>(&rows, &[], options).unwrap();
        // the head of the table, two levels on ranks, the replicated one, and the complexity
        assert_eq!(amg.to_string().lines().count(), 5, "{amg}");
        amg
    };
    let sends = [
        count(ranks, &rows, &jacobi()),
        count(ranks, &rows, &fsai),
        count(ranks, &rows, &RankTwoLevel::with_inner(jacobi(), &rows, 60).unwrap()),
        count(ranks, &rows, &multigrid(true)),
        count(ranks, &rows, &multigrid(false)),
    ];
    assert_eq!(sends.map(|sent| sent.reductions), [0, 0, 1, 1, 3]);
    let [block, factors, two_level, cycle, visits] = sends.map(|sent| sent.messages as usize);
    assert_eq!([block, factors, two_level], [0, rows.report().messages, 0]);
    // on each level, four products for two sweeps before and after, one with `P` and one with `Pᵀ`; unsmoothed
    // aggregates have nodes of one rank, but the level below them is visited three times, with one more product
    // in each visit but the first
    for (got, expected) in [(cycle, 6 + 6), (visits, 4 + 6 + 7 + 7)] {
        let expected = expected * rows.report().messages;
        match ranks.size() {
            // coarse levels may have more neighbours than the finest
            3.. => assert!(got >= expected, "{got} messages, at least {expected}"),
            _ => assert_eq!(got, expected),
        }
    }
}

/// Communication of one application. Counts the second one, because the first may determine the scaling.
fn count<M: LinearOperator<Vector = RankVector<f64>>>(
    ranks: &Ranks,
    rows: &RankMatrix<f64>,
    m: &M,
) -> CommunicationCounts {
    let b = matrices::vector(rows.domain().len());
    let own = rows.domain().rows();
    let r = rows.domain().vector(&b[own.start as usize..own.end as usize]).unwrap();
    let mut z = rows.domain().zeros().unwrap();
    m.apply(&r, &mut z).unwrap();
    let before = ranks.traffic();
    m.apply(&r, &mut z).unwrap();
    ranks.traffic() - before
}
