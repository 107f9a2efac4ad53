//! A format, a preconditioner and a method of this crate, in all places where those of krysp are used.

use krysp::choice::Formats;
use krysp::formats::Rounded;
use krysp::formats::extend::Real;
use krysp::plan::PlannedSolver;
use krysp::simd::{Level, force};
use krysp::testing::laws::{self, Conversion, refusals};
use krysp::{
    BiCgStab, Cg, Csr, Error, Fcg, Fgmres, Format, Gmres, Host, HostVector, Idr, LinearOperator, Minres,
    Operator, PipelinedCg, Plan, Refresh, SavedFileError, Space, gallery,
};
use padded_format::{GaussSeidel, MinimalResidual, Padded};
use std::path::PathBuf;

fn formats<T: Real>() -> Formats<T> {
    Formats::standard().with::<Padded<T>>().unwrap()
}

/// A matrix made for the format: few long rows of equal length, 9 x 20,000. Formats made of slices would pad 9 rows to
/// 16 or more, and CSR would read offsets.
fn few_long_rows() -> Csr<f64> {
    let places = (0..9).flat_map(|i| (0..4000).map(move |k| (i, 5 * k + (7 * k + 3 * i) % 5)));
    let entries: Vec<_> = places.map(|(i, j)| (i, j, 1.0 + (i + j) as f64)).collect();
    Csr::from_triplets(9, 20_000, &entries).unwrap()
}

/// A square matrix for which the format is chosen: 9 rows of 5 entries, unsymmetric.
fn small() -> Csr<f64> {
    let row =
        |i: usize| [(0, 9.0), (2, -1.0), (3, -2.0), (5, 1.0), (7, 2.0)].map(|(k, a)| (i, (i + k) % 9, a));
    Csr::from_triplets(9, 9, &(0..9).flat_map(row).collect::<Vec<_>>()).unwrap()
}

/// A file of this process, removed at the end of a test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        File(std::env::temp_dir().join(format!("krysp_padded_{}_{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn wave(len: usize) -> Vec<f64> {
    (0..len).map(|i| (i as f64 * 0.37).sin()).collect()
}

/// The product with a fixed vector, in the user's order.
fn product(a: &impl LinearOperator<Vector = HostVector<f64>>) -> Vec<f64> {
    let x = a.domain().vector(&wave(a.domain().len())).unwrap();
    let mut y = a.range().zeros().unwrap();
    a.apply(&x, &mut y).unwrap();
    y.as_slice().to_vec()
}

fn obeys<T: Real, F: Format<T>>(cases: &[laws::Case]) {
    let conversion = Conversion { build: &F::new, may_refuse: &refusals::mostly_padding };
    laws::format(cases, &conversion).unwrap();
}

#[test]
fn the_format_obeys_every_law() {
    for level in [Level::Portable, Level::Avx2, Level::Avx512] {
        let Some(_forced) = force(level) else { continue };
        obeys::<f64, Padded<f64>>(&laws::cases());
        obeys::<f32, Padded<f32>>(&laws::cases());
    }
}

#[test]
fn its_values_can_be_rounded() {
    let _one_level = force(Level::Portable);
    let coarse = laws::coarse(laws::cases());
    obeys::<f64, Rounded<Padded<f64>, f32>>(&coarse);
    let rounded = Rounded::<Padded<f64>, f32>::new(&gallery::poisson(&[9; 3]).unwrap()).unwrap();
    assert!(rounded.padding() > 0.0 && rounded.values().iter().all(|value| [0.0, -1.0, 6.0].contains(value)));
}

#[test]
fn the_format_is_chosen_where_it_is_expected_to_be_fastest() {
    let _one_level = force(Level::Portable);
    for csr in [few_long_rows(), small()] {
        let a = Operator::auto(&csr, &formats()).unwrap();
        assert_eq!(a.choice().stored().format(), "padded", "{}", a.choice());
        // the predicted bytes are those of the arrays
        assert_eq!(a.choice().chosen().bytes, a.bytes());
        let without = Operator::auto(&csr, &Host).unwrap();
        assert!(!without.choice().to_string().contains("padded"));
        let [with, without] = [product(&a), product(&without)];
        assert!(with.iter().zip(without).all(|(a, b)| (a - b).abs() <= 1e-12 * (1.0 + b.abs())));
    }
    // a matrix that is mostly padding
    let arrow: Vec<_> = (0..3000).flat_map(|i| [(0, i, 1.0), (i, i, 2.0)]).collect();
    let arrow = Csr::from_triplets(3000, 3000, &arrow).unwrap();
    let choice = Operator::auto(&arrow, &formats()).unwrap().choice().to_string();
    assert!(choice.contains("\nnot padded: 9000000 slots"), "{choice}");
}

#[test]
fn names_are_taken_once() {
    assert!(formats::<f64>().names().contains(&"padded"));
    let refused = formats::<f64>().with::<Padded<f64>>();
    assert!(matches!(refused, Err(Error::Option { got, .. }) if got == "padded"));
    let Err(Error::Unknown { .. }) = Operator::in_format(&small(), &Host, "padded") else {
        panic!("the format is known without being added")
    };
}

#[test]
fn an_operator_is_refreshed_saved_and_loaded() {
    let _one_level = force(Level::Portable);
    let (csr, file) = (small(), File::new("operator"));
    let mut a = Operator::auto(&csr, &formats()).unwrap();
    let before = product(&a);
    let doubled: Vec<f64> = csr.entries().iter().map(|value| 2.0 * value).collect();
    a.refresh(&doubled).unwrap();
    let after = product(&a);
    assert!(before.iter().zip(&after).all(|(before, after)| 2.0 * before == *after));

    a.save(&file.0).unwrap();
    let loaded = Operator::load(&file.0, &formats()).unwrap();
    assert_eq!(loaded.choice(), a.choice());
    assert_eq!(product(&loaded), after);
    // a file that was saved without the format needs no other list
    let without = Operator::auto(&csr, &Host).unwrap();
    let other = File::new("without");
    without.save(&other.0).unwrap();
    assert_eq!(product(&Operator::load(&other.0, &formats()).unwrap()), product(&without));
    // without the format, the error names it
    let refused = Operator::<HostVector<f64>>::load(&file.0, &Host);
    assert!(
        matches!(&refused, Err(Error::Saved { why: SavedFileError::Format { name }, .. }) if name == "padded"),
        "{refused:?}"
    );
}

#[test]
fn a_plan_uses_the_format_and_is_saved_and_loaded() {
    let _one_level = force(Level::Portable);
    let (csr, file) = (gallery::poisson::<f64>(&[30, 30]).unwrap(), File::new("plan"));
    let b = wave(csr.rows());
    let mut planned = Plan::new(&csr).unwrap().on(&formats()).format("padded").solves(5).build().unwrap();
    let first = planned.solve(&b).unwrap();
    assert!(first.converged(), "{first}");
    planned.save(&file.0).unwrap();
    let mut loaded = PlannedSolver::load(&file.0, &csr, &formats()).unwrap();
    assert_eq!(loaded.operator().unwrap().choice().stored().format(), "padded");
    let doubled: Vec<f64> = csr.entries().iter().map(|value| 2.0 * value).collect();
    loaded.refresh(&doubled).unwrap();
    let half = loaded.solve(&b).unwrap();
    let most = first.x.iter().zip(&half.x).map(|(x, y)| (x - 2.0 * y).abs()).fold(0.0, f64::max);
    assert!(half.converged() && most < 1e-5, "{most:e}");
    let refused = PlannedSolver::load(&file.0, &csr, &Host).err();
    assert!(matches!(refused, Some(Error::Saved { why: SavedFileError::Format { .. }, .. })), "{refused:?}");

    // it is found without being named, too
    let small = small();
    let mut planned = Plan::new(&small).unwrap().on(&formats()).build().unwrap();
    assert_eq!(planned.operator().unwrap().choice().stored().format(), "padded");
    assert!(planned.solve(&wave(9)).unwrap().converged());
}

#[test]
fn the_preconditioner_serves_every_method_and_is_refreshed() {
    let csr = gallery::poisson::<f64>(&[30, 30]).unwrap();
    let b = wave(csr.rows());
    let a = Operator::in_format(&csr, &formats(), "padded").unwrap();
    // it reads the entries of an operator in any format
    let m = GaussSeidel::new(&a).unwrap();
    let plain = Cg::new(&a).solve(&b).unwrap().report;
    let swept = Cg::new(&a).preconditioner(&m).solve(&b).unwrap().report;
    assert!(swept.converged() && 3 * swept.iterations < 2 * plain.iterations, "{swept} {plain}");
    laws::second_product(&m).unwrap();
    laws::stale_values(&m).unwrap();
    laws::sizes_refused(&m).unwrap();

    macro_rules! solve {
        ($($method:ident),*) => {$(
            let report = $method::new(&a).preconditioner(&m).rtol(1e-6).solve(&b).unwrap().report;
            assert!(report.converged(), "{}: {report}", stringify!($method));
        )*};
    }
    solve!(BiCgStab, Fcg, Fgmres, Gmres, Idr, MinimalResidual, Minres, PipelinedCg);

    let mut solver = Cg::new(a).preconditioner(m);
    let first = solver.solve(&b).unwrap();
    let scaled: Vec<f64> = csr.entries().iter().map(|value| 4.0 * value).collect();
    let (a, m) = solver.operators_mut();
    a.refresh(&scaled).unwrap();
    m.refresh(a).unwrap();
    let second = solver.solve(&b).unwrap();
    assert_eq!(first.report.iterations, second.report.iterations);
    assert!(first.x.iter().zip(&second.x).all(|(x, y)| (x - 4.0 * y).abs() < 1e-9));
    let other = gallery::poisson::<f64>(&[8]).unwrap();
    assert!(solver.operators_mut().1.refresh(&other).is_err());
}

/// The minimal residual iteration never increases the residual, and the driver recomputes it.
#[test]
fn the_method_has_histories_limits_and_several_right_hand_sides() {
    let csr = gallery::poisson::<f64>(&[12, 12]).unwrap();
    let b = wave(csr.rows());
    let mut solver = MinimalResidual::new(&csr).preconditioner(GaussSeidel::new(&csr).unwrap()).rtol(1e-8);
    let solution = solver.solve(&b).unwrap();
    assert!(solution.report.converged());
    let history = &solution.report.history;
    assert!(history.len() > 10 && history.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)));
    let several = solver.solve_many(&[b.clone(), wave(2 * b.len())[b.len()..].to_vec()]).unwrap();
    assert!(several.iter().all(|solution| solution.report.converged()));
    assert_eq!(several[0].x, solution.x);
    let limited = MinimalResidual::new(&csr).max_iterations(3).solve(&b).unwrap().report;
    assert!(!limited.converged() && limited.iterations == 3);
}

/// CONTRIBUTING.md shows the files of the format.
#[test]
fn the_format_is_what_the_document_shows() {
    let document = include_str!("../../../CONTRIBUTING.md");
    for file in [include_str!("../src/kernel.rs"), include_str!("../src/padded.rs")] {
        assert!(document.contains(&format!("```rust\n{file}```\n")), "not in CONTRIBUTING.md:\n{file}");
    }
}
