//! `auto` chooses a format that is the fastest, or nearly, in the committed measurements (`benches/record`),
//! and its products are right.

use krysp::choice::{Candidate, Choice, Model};
use krysp::simd::{Level, force};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{
    Matrix, NodeOrder, Triplets, circuit, edge, elasticity, hashed_circuit, random_rows, rmat, stencil7,
    stencil27, tetrahedra,
};
use krysp::{
    Cg, Csr, Error, Format, Host, HostVector, Jacobi, LinearOperator, Operator, Real, Sell, SymBsr, SymCsr,
};

/// The names of all formats.
fn names() -> Vec<&'static str> {
    macro_rules! list {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            vec![$(krysp::$format::<f64>::NAME),*]
        };
    }
    let mut names = krysp::each_format!(list);
    names.sort_unstable();
    names
}

/// Chooses among the formats for any matrix, and checks that the choice mentions every format.
fn choose<T: Real>(csr: &Csr<T>) -> Operator<HostVector<T>> {
    checked_choice(Operator::auto(csr, &Host).unwrap())
}

fn checked_choice<T: Real>(a: Operator<HostVector<T>>) -> Operator<HostVector<T>> {
    let (choice, text) = (a.choice(), a.choice().to_string());
    println!("{text}\n");
    let mut formats: Vec<_> = choice.rejected().iter().map(Candidate::format).collect();
    assert!(formats.iter().all(|format| text.contains(&format!("\nnot {format}"))), "{text}");
    formats.push(choice.stored().format());
    formats.sort_unstable();
    assert_eq!(formats, names());
    // the predicted bytes of the chosen format are its actual ones
    let (predicted, real) = (choice.chosen().bytes, a.bytes());
    assert!(100 * predicted.abs_diff(real) <= real + 100_000, "{predicted} {real}: {text}");
    a
}

fn chosen<T: Real>(matrix: &Matrix) -> String {
    choose(&matrix.csr::<T>().unwrap()).choice().stored().to_string()
}

/// The name of a format, without its details.
fn name(stored: &str) -> &str {
    stored.split(',').next().unwrap()
}

/// According to `benches/record/zen3-*/spmv.csv`, each of these choices takes 1 to 1.16 times as long as the
/// fastest format.
#[test]
fn the_fastest_format_of_the_records_is_chosen() {
    let _level = force(Level::Portable);
    let shuffled = tetrahedra(41, NodeOrder::Shuffled(7));
    for (family, matrix, fastest) in [
        ("p7_128", stencil7(30), &["DIA"][..]),
        ("p27_80", stencil27(20), &["DIA"]),
        ("elast55", elasticity(12), &["BSR"]),
        ("tet_nat", tetrahedra(20, NodeOrder::Natural), &["DIA"]),
        ("tet_rand", shuffled, &["ELL", "SELL-P"]),
        ("rmat20", rmat(18, 2_200_000), &["CSR"]),
    ] {
        println!("{family}");
        for stored in [chosen::<f64>(&matrix), chosen::<f32>(&matrix)] {
            assert!(fastest.contains(&name(&stored)), "{family}: {stored}");
        }
    }
    // in f32, CSR and HYB are equally fast within 7 %
    let circuit = circuit(250_000, 50_000);
    assert_eq!(name(&chosen::<f64>(&circuit)), "HYB");
    assert!(["CSR", "HYB"].contains(&name(&chosen::<f32>(&circuit))));
    assert_eq!(chosen::<f64>(&elasticity(5)), "BSR, blocks of 3 x 3");
    assert_eq!(chosen::<f64>(&stencil7(30)), "DIA, 7 diagonals");
}

#[test]
fn row_lengths_decide_whether_padding_pays() {
    let csr = |triplets: Triplets| triplets.csr::<f64>().unwrap();
    // rows of equal length need no padding
    let equal = choose(&csr(random_rows(5000, 70_000, 3, |_| 9)));
    assert_eq!(equal.choice().stored().to_string(), "ELL, 9 slots a row", "{}", equal.choice());
    let rows = equal.choice().rows();
    assert_eq!((rows.shortest, rows.longest, rows.quantile, rows.imbalance()), (9, 9, 9, 1.0));
    assert_eq!(rows.hyb_bytes, 5000 * 9 * 12);
    // one full row goes to the overflow part of HYB
    let dense = choose(&csr(edge::dense_row(20_000, 100)));
    assert_eq!(dense.choice().stored().to_string(), "HYB, 1 slots a row and 19999 entries beyond");
    assert!(dense.choice().rows().imbalance() > 1000.0);
    let refused = |a: &Candidate| matches!(a, Candidate::Unsuitable { format: "ELL", .. });
    assert!(dense.choice().rejected().iter().any(refused));
    choose(&hashed_circuit(20_000).csr::<f32>().unwrap());
}

/// According to `benches/record/zen3-2t/symmetric.csv`, symmetric BSR is chosen if it reads much less,
/// otherwise the same format as without symmetry.
#[test]
fn symmetric_formats_are_chosen_on_request() {
    let _level = force(Level::Portable);
    let symmetric = |matrix: &Matrix| {
        checked_choice(Operator::symmetric(&matrix.csr::<f64>().unwrap(), &Host).unwrap())
            .choice()
            .stored()
            .format()
    };
    assert_eq!(symmetric(&elasticity(12)), "symmetric BSR");
    assert_eq!(symmetric(&stencil7(30)), "DIA");
    assert_eq!(symmetric(&stencil27(20)), "DIA");
    assert_eq!(symmetric(&tetrahedra(20, NodeOrder::Natural)), "DIA");
    // the predicted bytes of rejected symmetric formats are their actual ones
    let csr = elasticity(12).csr::<f64>().unwrap();
    let choice = Choice::of_symmetric(&csr, Model::Host).unwrap();
    let bytes = |wanted: &str| {
        let estimates = choice.rejected().iter().filter_map(|candidate| match candidate {
            Candidate::HigherCost(estimate) => Some(estimate),
            Candidate::Unsuitable { .. } => None,
        });
        estimates.chain([choice.chosen()]).find(|found| found.stored.format() == wanted).unwrap().bytes
    };
    assert_eq!(bytes("symmetric CSR"), SymCsr::new(&csr).unwrap().bytes());
    assert!(bytes("symmetric BSR").abs_diff(SymBsr::new(&csr).unwrap().bytes()) <= 100);
    // `auto` does not choose them unless symmetry is declared, and names the function to call
    let text = Choice::of(&csr, Model::Host).to_string();
    assert!(text.contains("not symmetric BSR: values must remain symmetric"), "{text}");
    assert!(text.contains("Operator::symmetric"), "{text}");
}

#[test]
fn a_matrix_that_is_not_symmetric_is_refused() {
    let refused = |triplets: &[(usize, usize, f64)], rows, cols| {
        Operator::symmetric(&Csr::from_triplets(rows, cols, triplets).unwrap(), &Host).unwrap_err()
    };
    let upper = [(0, 0, 2.0), (0, 1, -1.0), (1, 1, 2.0)];
    assert!(matches!(refused(&upper, 2, 2), Error::NotSymmetric { row: 0, col: 1, .. }));
    assert!(matches!(refused(&upper, 2, 3), Error::NotSquare { .. }));
    let unequal = [(0, 0, 2.0), (0, 1, -1.0), (1, 0, 1.0), (1, 1, 2.0)];
    assert!(matches!(refused(&unequal, 2, 2), Error::NotSymmetric { .. }));
}

/// A symmetric format gives the solution that a general format gives, with the first values and after a refresh.
#[test]
fn a_symmetric_format_gives_the_same_solution() {
    let _level = force(Level::Portable);
    let csr = elasticity(9).csr::<f64>().unwrap();
    let (mut auto, mut symmetric) =
        (Operator::auto(&csr, &Host).unwrap(), Operator::symmetric(&csr, &Host).unwrap());
    let formats = [&auto, &symmetric].map(|a| a.choice().stored().format());
    assert_eq!(formats, ["BSR", "symmetric BSR"]);
    let b = laws::numbers::<f64>(csr.rows(), 1);
    for times in [1.0, 3.0] {
        let values: Vec<f64> = csr.entries().iter().map(|value| times * value).collect();
        auto.refresh(&values).unwrap();
        symmetric.refresh(&values).unwrap();
        let [x, y] = [&auto, &symmetric].map(|a| {
            let solution = Cg::new(a).rtol(1e-12).solve(&b).unwrap();
            assert!(solution.report.converged());
            solution.x
        });
        let largest = x.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 1e-8 * largest));
    }
}

/// Checks the laws of operators, with the first values and after a refresh.
fn obeys<T: Real>(name: &str, triplets: &Triplets) {
    let csr = triplets.csr::<T>().unwrap();
    obeys_as(Operator::auto(&csr, &Host).unwrap(), name, triplets);
    if let Ok(a) = Operator::symmetric(&csr, &Host) {
        obeys_as(a, name, triplets);
    }
}

fn obeys_as<T: Real>(mut a: Operator<HostVector<T>>, name: &str, triplets: &Triplets) {
    laws::product(&a, triplets).map_err(|broken| broken.on(name)).unwrap();
    laws::operator_fusions(&a, Agreement::Bitwise).map_err(|broken| broken.on(name)).unwrap();
    laws::sizes_refused(&a).map_err(|broken| broken.on(name)).unwrap();
    let mut twice = triplets.clone();
    twice.entries.iter_mut().for_each(|entry| entry.2 *= 2.0);
    let values: Vec<T> = twice.entries.iter().map(|entry| T::from_f64(entry.2)).collect();
    a.refresh(&a.assemble(&values).unwrap()).unwrap();
    laws::product(&a, &twice).map_err(|broken| broken.on(name)).unwrap();
    assert!(a.assemble(&[values, vec![T::one()]].concat()).is_err(), "{name}");
    assert!(a.refresh(&vec![T::one(); twice.csr::<T>().unwrap().nnz() + 1]).is_err(), "{name}");
}

#[test]
fn the_chosen_operator_obeys_the_laws() {
    // other tests force SIMD levels; the sums that a law compares need the same one
    let _level = force(Level::best());
    for (name, triplets) in edge::edge_cases() {
        choose(&triplets.csr::<f64>().unwrap());
        obeys::<f64>(&name, &triplets);
        obeys::<f32>(&name, &triplets);
    }
    for (name, matrix) in [
        ("stencil", stencil7(9)),
        ("elasticity", elasticity(5)),
        ("tetrahedra", tetrahedra(9, NodeOrder::Shuffled(1))),
        ("R-MAT", rmat(12, 20_000)),
        ("circuit", circuit(5000, 900)),
    ] {
        obeys::<f64>(name, &matrix.to_triplets().shuffled(5));
    }
}

#[test]
fn solving_with_the_choice_equals_solving_with_its_format() {
    // other tests force SIMD levels; both solves need the same one
    let _level = force(Level::Portable);
    let csr = tetrahedra(12, NodeOrder::Shuffled(7)).csr::<f64>().unwrap();
    let b = laws::numbers::<f64>(csr.rows(), 1);
    let jacobi = Jacobi::new(&csr).unwrap();
    let solve = |a: &dyn LinearOperator<Vector = HostVector<f64>>| {
        Cg::new(a).preconditioner(&jacobi).rtol(1e-10).solve(&b).unwrap()
    };
    let auto = Operator::auto(&csr, &Host).unwrap();
    let [by_choice, by_sell] = [solve(&auto), solve(&Sell::new(&csr).unwrap())];
    assert!(by_choice.report.converged());
    // ELL and SELL-P add up in the same order, so solutions are bitwise equal
    assert!(["ELL", "SELL-P"].contains(&auto.choice().stored().format()), "{}", auto.choice());
    assert_eq!(by_choice.x, by_sell.x);
}
