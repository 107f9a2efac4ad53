//! Matrices from entries on any rank, from files, and from one rank.

use krysp::ranks::{BlockJacobi, RankMatrix, Ranks, RowDistribution};
use krysp::testing::laws::numbers;
use krysp::testing::matrices::{self, edge};
use krysp::{Cg, Csr, Ic0, LinearOperator, Permutation, Space, Vector, io};
use std::path::PathBuf;

/// The product with `x` on the first rank.
fn product(a: &RankMatrix<f64>, x: &[f64]) -> Option<Vec<f64>> {
    let rows = a.domain().rows();
    let own = a.domain().vector(&x[rows.start as usize..rows.end as usize]).unwrap();
    let mut y = a.range().zeros().unwrap();
    a.apply(&own, &mut y).unwrap();
    a.gather(y.own().as_slice()).unwrap()
}

fn is_that_of(a: &RankMatrix<f64>, whole: &Csr<f64>) {
    let x = numbers(whole.cols(), 9);
    let mut y = whole.range().zeros().unwrap();
    whole.apply(&whole.domain().vector(&x).unwrap(), &mut y).unwrap();
    let found = product(a, &x);
    assert_eq!(found.is_some(), a.ranks().rank() == 0);
    for (y, found) in y.as_slice().iter().zip(found.unwrap_or_default()) {
        assert!((y - found).abs() <= 1e-12 * (1.0 + y.abs()), "{y} {found}");
    }
}

/// Entries are assigned to ranks in turn, independently of their rows.
pub(super) fn entries_go_to_their_rows(ranks: &Ranks) {
    let whole = edge::dense_row(60, 11).csr::<f64>().unwrap();
    let all: Vec<_> = whole.triplets().map(|(i, j, value)| (i as u64, j as u64, value)).collect();
    let own: Vec<_> = all.iter().copied().skip(ranks.rank()).step_by(ranks.size()).collect();
    let mut given = vec![0; ranks.size()];
    given.push(60);
    for rows in [RowDistribution::Even, RowDistribution::ByEntries, RowDistribution::Given(&given)] {
        is_that_of(&RankMatrix::from_entries(ranks, 60, rows, &own).unwrap(), &whole);
    }
    // each rank adds its share
    let part: Vec<_> = all.iter().map(|&(i, j, value)| (i, j, value / ranks.size() as f64)).collect();
    is_that_of(&RankMatrix::from_entries(ranks, 60, RowDistribution::Even, &part).unwrap(), &whole);
    given[0] = 1;
    assert!(RankMatrix::from_entries(ranks, 60, RowDistribution::Given(&given), &own).is_err());
    // ranks pass different numbers of rows; then one rank passes a row out of range
    let n = 60 + u64::from(ranks.rank() == 0);
    assert!(ranks.size() == 1 || RankMatrix::from_entries(ranks, n, RowDistribution::Even, &own).is_err());
    let wrong = [(if ranks.rank() == 0 { 60 } else { 0 }, 0, 1.0)];
    let message = RankMatrix::from_entries(ranks, 60, RowDistribution::Even, &wrong).unwrap_err().to_string();
    assert!(message.contains("row 60"), "{message}");
}

/// No rank has much more work (its entries plus twice its rows) than its share.
pub(super) fn rows_by_entries(ranks: &Ranks) {
    let whole = edge::dense_row(600, 11).csr::<f64>().unwrap();
    let own: Vec<_> = if ranks.rank() == 0 {
        whole.triplets().map(|(i, j, value)| (i as u64, j as u64, value)).collect()
    } else {
        vec![]
    };
    let a = RankMatrix::from_entries(ranks, 600, RowDistribution::ByEntries, &own).unwrap();
    is_that_of(&a, &whole);
    let work = a.report().entries + 2 * a.report().rows;
    let (all, longest) = (whole.nnz() + 1200, whole.row_lengths().max().unwrap() + 2);
    assert!(work <= all / ranks.size() + longest + 1, "{work} of {all}");
}

fn scratch(ranks: &Ranks, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!(
        "krysp_{}_{}_{name}",
        std::os::unix::process::parent_id(),
        ranks.size()
    ))
}

/// A symmetric and a general file, plain and gzipped.
pub(super) fn files(ranks: &Ranks) {
    let general = edge::dense_row(60, 11).csr::<f64>().unwrap();
    let symmetric = matrices::stencil7(5).csr::<f64>().unwrap();
    for (name, whole) in
        [("general.mtx", &general), ("symmetric.mtx", &symmetric), ("zipped.mtx.gz", &general)]
    {
        let path = scratch(ranks, name);
        let written = if ranks.rank() == 0 { io::write_matrix(&path, whole) } else { Ok(()) };
        ranks.all(written).unwrap();
        for rows in [RowDistribution::Even, RowDistribution::ByEntries] {
            is_that_of(&RankMatrix::read(ranks, &path, rows).unwrap(), whole);
        }
        if ranks.rank() == 0 {
            std::fs::remove_file(&path).unwrap();
        }
    }
}

/// An error has the line number in the file, whichever rank reads the line.
pub(super) fn wrong_files(ranks: &Ranks) {
    let path = scratch(ranks, "wrong.mtx");
    let lines: Vec<String> = (1..=40).map(|i| format!("{i} {i} 1.0")).collect();
    let head = "%%MatrixMarket matrix coordinate real general\n40 40 40\n";
    for (wrong, expected) in [(33, "line 36"), (2, "line 5")] {
        let mut lines = lines.clone();
        lines[wrong] = "nonsense".into();
        let text = format!("{head}{}\n", lines.join("\n"));
        let written = if ranks.rank() == 0 { std::fs::write(&path, text) } else { Ok(()) };
        ranks.all(written.map_err(|error| krysp::Error::Communication(error.to_string()))).unwrap();
        let message = RankMatrix::<f64>::read(ranks, &path, RowDistribution::Even).unwrap_err().to_string();
        assert!(message.contains(expected) || message.contains(&expected.replace("line ", ":")), "{message}");
    }
    // an entry is missing
    let text = format!("{head}{}\n", lines[1..].join("\n"));
    let written = if ranks.rank() == 0 { std::fs::write(&path, text) } else { Ok(()) };
    ranks.all(written.map_err(|error| krysp::Error::Communication(error.to_string()))).unwrap();
    let message = RankMatrix::<f64>::read(ranks, &path, RowDistribution::Even).unwrap_err().to_string();
    assert!(message.contains("39"), "{message}");
    if ranks.rank() == 0 {
        std::fs::remove_file(&path).unwrap();
    }
    assert!(RankMatrix::<f64>::read(ranks, scratch(ranks, "missing.mtx"), RowDistribution::Even).is_err());
}

/// The first rank distributes a matrix, in the given and in a clustered ordering, and a right-hand side. The
/// solution is in the user's order.
pub(super) fn from_the_first_rank(ranks: &Ranks) {
    let whole = matrices::stencil7(8).csr::<f64>().unwrap();
    let b = matrices::vector(whole.rows());
    for clustered in [false, true] {
        let reordered = if clustered {
            whole
                .reordered(&Permutation::clustered(&whole, whole.rows().div_ceil(ranks.size())).unwrap())
                .unwrap()
        } else {
            whole.clone()
        };
        let first = (ranks.rank() == 0).then_some(&reordered);
        let a = RankMatrix::distribute(ranks, first).unwrap();
        assert_eq!(a.domain().len(), whole.rows());
        let own = a.scatter((ranks.rank() == 0).then_some(&b[..])).unwrap();
        assert_eq!(own.len(), a.domain().local_len());
        let m = BlockJacobi::new(&a, Ic0::new).unwrap();
        let solution = Cg::new(&a).preconditioner(m).rtol(1e-10).solve(&own).unwrap();
        assert!(solution.report.converged(), "{}", solution.report);
        if let Some(x) = a.gather(&solution.x).unwrap() {
            let [b, x] = [&b, &x].map(|v| whole.domain().vector(v).unwrap());
            let mut r = whole.range().zeros().unwrap();
            whole.residual(&b, &x, &mut r).unwrap();
            assert!(r.norm_squared().sqrt() <= 2e-10 * solution.report.rhs_norm);
        }
    }
    assert!(RankMatrix::<f64>::distribute(ranks, None).is_err());
    let tall = Csr::from_triplets(3, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(RankMatrix::distribute(ranks, Some(&tall)).is_err());
}
