//! Vectors, bases and operators on ranks obey the same laws as those of one process.

use crate::{cuts, part, share};
use krysp::ranks::{BlockJacobi, RankSpace, RankTwoLevel, Ranks};
use krysp::testing::laws::{self, Agreement, numbers};
use krysp::testing::matrices::edge;
use krysp::{Csr, Jacobi, LinearOperator, Space};

pub(super) fn vectors(ranks: &Ranks) {
    for n in [0, 1, 41, 3000] {
        for cut in cuts(n, ranks.size()) {
            let own = cut[ranks.rank() + 1] - cut[ranks.rank()];
            let space = RankSpace::<f64>::new(ranks, own).unwrap();
            assert_eq!((space.len(), space.local_len()), (n, own));
            obeyed(&space);
            obeyed(&RankSpace::<f32>::new(ranks, own).unwrap());
        }
    }
}

pub(super) fn obeyed<S: Space>(space: &S) {
    laws::vector_fusions(space, Agreement::Rounding).unwrap();
    laws::basis_fusions(space, Agreement::Rounding).unwrap();
}

pub(super) fn operators(ranks: &Ranks) {
    for triplets in [edge::tridiagonal(41), edge::arrow(33), edge::dense_column(50, 7)] {
        let a = triplets.csr::<f64>().unwrap();
        for cut in cuts(a.rows(), ranks.size()) {
            let rows = share(ranks, &a, &cut);
            laws::operator_fusions(&rows, Agreement::Rounding).unwrap();
            laws::stale_values(&rows).unwrap();
            laws::second_product(&rows).unwrap();
            let jacobi = BlockJacobi::new(&rows, Jacobi::new).unwrap();
            laws::operator_fusions(&jacobi, Agreement::Rounding).unwrap();
            let two_level = RankTwoLevel::with_inner(jacobi, &rows, 8);
            // a saddle point has no coarse matrix that is positive definite
            if let Ok(two_level) = two_level {
                laws::operator_fusions(&two_level, Agreement::Rounding).unwrap();
                laws::second_product(&two_level).unwrap();
            }
        }
    }
}

/// Small square matrices of all kinds in all partitions, each with a vector.
pub(super) fn small(ranks: &Ranks, check: impl Fn(&str, &Csr<f64>, &[usize], &[f64])) {
    for (name, triplets) in edge::edge_cases() {
        if triplets.rows != triplets.cols || triplets.rows > 300 {
            continue;
        }
        let a = triplets.csr::<f64>().unwrap();
        let x: Vec<f64> = numbers(a.cols(), 3);
        cuts(a.rows(), ranks.size()).iter().for_each(|cut| check(&name, &a, cut, &x));
    }
}

/// Asserts that this rank's part of a product equals that of one process.
pub(super) fn assert_product(ranks: &Ranks, name: &str, a: &Csr<f64>, cut: &[usize], x: &[f64], y: &[f64]) {
    let mut expected = a.range().zeros().unwrap();
    a.apply(&a.domain().vector(x).unwrap(), &mut expected).unwrap();
    for (y, expected) in y.iter().zip(part(ranks, expected.as_slice(), cut)) {
        assert!((y - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{name} {cut:?}: {y} {expected}");
    }
}

/// The product equals that of one process.
pub(super) fn products(ranks: &Ranks) {
    small(ranks, |name, a, cut, x| {
        let rows = share(ranks, a, cut);
        let own = rows.domain().vector(part(ranks, x, cut)).unwrap();
        let mut y = rows.range().zeros().unwrap();
        rows.apply(&own, &mut y).unwrap();
        assert_product(ranks, name, a, cut, x, y.own().as_slice());
    });
}

/// Products use new values. If one rank passes a wrong number of values, all ranks return an error.
pub(super) fn refreshed(ranks: &Ranks) {
    let a = edge::dense_row(60, 11).csr::<f64>().unwrap();
    let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
    for cut in cuts(a.rows(), ranks.size()) {
        let mut rows = share(ranks, &a, &cut);
        let x = rows.domain().vector(part(ranks, &numbers(a.rows(), 4), &cut)).unwrap();
        let [mut y, mut z] = [(); 2].map(|()| rows.range().zeros().unwrap());
        rows.apply(&x, &mut y).unwrap();
        let offsets = a.offsets();
        let own = offsets[cut[ranks.rank()]]..offsets[cut[ranks.rank() + 1]];
        rows.refresh(&doubled[own.clone()]).unwrap();
        rows.apply(&x, &mut z).unwrap();
        for (y, z) in y.own().as_slice().iter().zip(z.own().as_slice()) {
            assert_eq!(2.0 * y, *z);
        }
        // one rank has one value too many
        let wrong = vec![1.0; own.len() + usize::from(ranks.rank() == 0)];
        assert!(rows.refresh(&wrong).is_err());
    }
}

/// The residual is computed in twice the precision, across ranks too.
pub(super) fn precise_residuals(ranks: &Ranks) {
    let a = edge::dense_row(60, 11).csr::<f64>().unwrap();
    let x: Vec<f64> = numbers(a.cols(), 6);
    let space = a.domain();
    let x_whole = space.vector(&x).unwrap();
    let [mut b, mut expected] = [(); 2].map(|()| space.zeros().unwrap());
    a.apply(&x_whole, &mut b).unwrap();
    a.residual(&b, &x_whole, &mut expected).unwrap();
    // the residual consists of the rounding errors of a plain product
    assert!(expected.as_slice().iter().any(|&r| r != 0.0 && r.abs() < 1e-12));
    for cut in cuts(a.rows(), ranks.size()) {
        let rows = share(ranks, &a, &cut);
        let [b, x] = [b.as_slice(), &x].map(|v| rows.domain().vector(part(ranks, v, &cut)).unwrap());
        let mut r = rows.range().zeros().unwrap();
        rows.residual(&b, &x, &mut r).unwrap();
        for (r, expected) in r.own().as_slice().iter().zip(part(ranks, expected.as_slice(), &cut)) {
            assert!((r - expected).abs() <= 1e-28 + 1e-15 * expected.abs(), "{cut:?}: {r} {expected}");
        }
    }
}
