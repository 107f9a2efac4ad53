//! Worked examples and numbers printed in papers.

use krysp::formats::{hyb_bytes, row_length_quantile};
use krysp::testing::matrices::SplitMix;
use krysp::testing::needed_matrix;
use krysp::{BiCgStab, Coo, Csr, Dia, Ell, EllpackR, Format, Hyb, Outcome, Real, Sell, Space, formats};

/// The example of Liu and Vinter (2015): six rows, the fourth empty, with the entries a to l = 1 to 12.
fn liu_and_vinter<T: Real>() -> Csr<T> {
    let values: Vec<T> = (1..=12).map(|v| T::from_f64(f64::from(v))).collect();
    let columns = [0, 2, 5, 0, 1, 2, 2, 4, 4, 2, 3, 4];
    Csr::from_csr(6, 6, &[0, 3, 6, 8, 8, 9, 12], &columns, &values).unwrap()
}

fn product<T: Real, F: Format<T>>(format: &F, x: &[T]) -> Vec<T> {
    let x = format.domain().vector(x).unwrap();
    let mut y = format.range().zeros().unwrap();
    y.as_mut_slice().fill(T::from_f64(f64::NAN));
    format.apply(&x, &mut y).unwrap();
    y.as_slice().to_vec()
}

fn segmented_sums<T: Real>() {
    let a = liu_and_vinter::<T>();
    let x: Vec<T> = (1..=6).map(|x| T::from_f64(f64::from(x))).collect();
    // a+3b+6c, d+2e+3f, 3g+5h, 0, 5i, 3j+4k+5l
    let [a_, b, c, d, e, f, g, h, i, j, k, l] = std::array::from_fn(|v| v as f64 + 1.0);
    let expected = [
        a_ + 3.0 * b + 6.0 * c,
        d + 2.0 * e + 3.0 * f,
        3.0 * g + 5.0 * h,
        0.0,
        5.0 * i,
        3.0 * j + 4.0 * k + 5.0 * l,
    ]
    .map(T::from_f64);
    assert_eq!(product(&a, &x), expected);
    assert_eq!(product(&Ell::new(&a).unwrap(), &x), expected);
    assert_eq!(product(&EllpackR::new(&a).unwrap(), &x), expected);
    assert_eq!(product(&Sell::new(&a).unwrap(), &x), expected);
    assert_eq!(product(&Dia::new(&a).unwrap(), &x), expected);
    assert_eq!(product(&Coo::new(&a).unwrap(), &x), expected);
    assert_eq!(product(&Hyb::new(&a).unwrap(), &x), expected);
    for size in [2, 3, 6] {
        assert_eq!(
            product(&formats::Bsr::with(&a, formats::BsrOptions { size: Some(size) }).unwrap(), &x),
            expected
        );
    }
    // the segment descriptor marks the first entries of rows; an empty row has no mark
    let offsets = a.offsets();
    let descriptor: Vec<u8> = (0..12).map(|k| u8::from(offsets[..6].contains(&k))).collect();
    assert_eq!(descriptor, [1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0]);
}

#[test]
fn liu_and_vinter_segmented_sums() {
    segmented_sums::<f64>();
    segmented_sums::<f32>();
    // the fourth row and column are empty: the matrix is singular, so the method must not report convergence
    let report = BiCgStab::new(liu_and_vinter::<f64>()).solve(&[1.0; 6]).unwrap().report;
    assert_ne!(report.outcome, Outcome::Converged);
}

/// Vázquez et al. (2011), table of matrices: the share of entries that HYB stores in its ELLPACK part if the width of that part
/// is the 2/3 quantile of the row lengths.
#[test]
fn vazquez_shares_of_ellpack() {
    for (name, printed) in [("qh1484", 86.8), ("gemat12", 90.7)] {
        let Some(path) = needed_matrix(name) else { continue };
        let a: Csr<f64> = krysp::io::read_matrix(path).unwrap();
        let threshold = row_length_quantile(a.row_lengths(), 2.0 / 3.0);
        let kept: usize = a.row_lengths().map(|length| length.min(threshold)).sum();
        let share = 100.0 * kept as f64 / a.nnz() as f64;
        assert_eq!((share * 10.0).round() / 10.0, printed, "{name}: {share} with {threshold} columns");
        let options = formats::HybOptions { threshold: formats::Threshold::Quantile(2.0 / 3.0) };
        let hyb = Hyb::with(&a, options).unwrap();
        assert_eq!(hyb.width(), threshold);
        assert!((100.0 * hyb.ell_share() - share).abs() < 1e-9);
    }
}

/// Different distributions of row lengths.
fn distributions() -> Vec<(&'static str, Vec<usize>)> {
    let mut random = SplitMix::new(5);
    let mut draw = |rows: usize, length: &mut dyn FnMut(&mut SplitMix) -> usize| -> Vec<usize> {
        (0..rows).map(|_| length(&mut random)).collect()
    };
    vec![
        ("none", vec![]),
        ("one row", vec![7]),
        ("empty rows", vec![0; 9]),
        ("equal", vec![5; 100]),
        ("two kinds, a quarter long", (0..100).map(|i| if i % 4 == 0 { 12 } else { 3 }).collect()),
        ("two kinds, a third long", (0..99).map(|i| if i % 3 == 0 { 12 } else { 3 }).collect()),
        ("ascending", (0..50).collect()),
        ("uniform", draw(1000, &mut |r| r.below(40) as usize)),
        ("power law", draw(1000, &mut |r| (1.0 / (r.unit() + 1e-3)) as usize)),
        ("one dense row", (0..200).map(|i| if i == 9 { 200 } else { 2 }).collect()),
        ("Yang et al.", vec![2, 5, 3, 7, 1, 5, 2, 6, 13, 5, 7, 9, 3, 10, 7, 1, 6, 13, 2, 10]),
    ]
}

/// Anzt et al. (2020): quantiles of row lengths equal `Q_R(x) = min{t : x < F_R(t)}`, where `F_R(t)` is the fraction of rows
/// with at most `t` entries.
#[test]
fn anzt_quantiles() {
    for (name, lengths) in distributions() {
        let rows = lengths.len();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let up_to = |t: usize| lengths.iter().filter(|&&length| length <= t).count();
        for (numerator, denominator) in
            [(0, 1), (1, 4), (1, 3), (1, 2), (2, 3), (3, 4), (9, 10), (rows.saturating_sub(1), rows.max(1))]
        {
            // x < F_R(t) in integers, with x = numerator / denominator
            let expected =
                (0..=longest).find(|&t| numerator * rows < denominator * up_to(t)).unwrap_or(longest);
            let x = numerator as f64 / denominator as f64;
            assert_eq!(row_length_quantile(lengths.iter().copied(), x), expected, "{name}, x = {x}");
        }
        assert_eq!(row_length_quantile(lengths.iter().copied(), -0.1), 0, "{name}: all COO");
        assert_eq!(row_length_quantile(lengths.iter().copied(), 1.0), longest, "{name}: all ELL");
    }
}

/// The storage of HYB with `t` entries per row in its ELLPACK part is `S(t) = n t (v + p) + (v + 2p) Σ max(n_i − t, 0)`, for `n`
/// rows of `n_i` entries with `v` bytes per value and `p` bytes per index. It has its minimum at `t = Q_R(p / (v + 2p))`.
#[test]
fn anzt_storage_is_least_at_the_quantile() {
    for (name, lengths) in distributions() {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        for (value, index, x) in [(8, 4, 1.0 / 4.0), (4, 4, 1.0 / 3.0), (8, 8, 1.0 / 3.0), (8, 2, 1.0 / 6.0)]
        {
            let bytes = |t: usize| -> usize {
                let overflow: usize = lengths.iter().map(|&length| length.saturating_sub(t)).sum();
                lengths.len() * t * (value + index) + (value + 2 * index) * overflow
            };
            let least = (0..=longest + 2).map(bytes).min().unwrap();
            let t = row_length_quantile(lengths.iter().copied(), x);
            assert_eq!(bytes(t), least, "{name}, {value} + {index} bytes, t = {t}");
            for t in 0..=longest + 2 {
                assert_eq!(hyb_bytes(lengths.iter().copied(), t, value, index), bytes(t));
            }
        }
    }
}

/// Algorithm 3 of Yang et al. (2015) does not always need the least padding: for lengths 1, 2, 3, 3 and powers 2 : 1 it
/// stores 12 entries, padding included, where 10 are enough.
#[test]
fn yang_theorem_1_has_a_counterexample() {
    use krysp::partition::{by_length_classes, quality};
    let (lengths, powers) = ([1, 2, 3, 3], [2.0, 1.0]);
    let parts = by_length_classes(&lengths, &powers).unwrap();
    let places = |parts: Vec<Vec<usize>>| -> usize {
        quality(&lengths, parts, &powers).unwrap().parts.iter().map(|part| part.slots()).sum()
    };
    assert_eq!(places(parts), 12);
    assert_eq!(places(vec![vec![2, 3], vec![0, 1]]), 10);
}
