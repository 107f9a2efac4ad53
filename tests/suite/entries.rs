//! The pair `entries` and `refresh`: new values have the order of the entries, unless a method for another order is called.
//! Errors for infinity and NaN name the entry.

use krysp::testing::matrices;
use krysp::{Cg, Csr, Error, Format, Host, Operator, Permutation, Plan, Sell, SymCsr};

/// `[[2, -1], [-1, 2]]`, assembled in an unsorted order.
const PLACES: [(usize, usize, f64); 4] = [(1, 1, 2.0), (0, 1, -1.0), (0, 0, 2.0), (1, 0, -1.0)];

fn is_close(x: &[f64], expected: &[f64]) -> bool {
    x.iter().zip(expected).all(|(x, expected)| (x - expected).abs() < 1e-7)
}

#[test]
fn refreshing_with_the_entries_changes_nothing() {
    let a = Csr::from_triplets(2, 2, &PLACES).unwrap();
    let (solution, b) = ([2.0 / 3.0, 1.0 / 3.0], [1.0, 0.0]);
    let mut solver = Plan::new(&a).unwrap().values_change(true).build().unwrap();
    solver.refresh(a.entries()).unwrap();
    assert!(is_close(&solver.solve(&b).unwrap().x, &solution));
    let mut operator = Operator::auto(&a, &Host).unwrap();
    operator.refresh(a.entries()).unwrap();
    assert!(is_close(&Cg::new(operator).solve(&b).unwrap().x, &solution));
    let mut sell = Sell::new(&a).unwrap();
    sell.refresh(a.entries()).unwrap();
    assert!(is_close(&Cg::new(sell).solve(&b).unwrap().x, &solution));
}

#[test]
fn assembled_values_become_entries() {
    let a = Csr::from_triplets(2, 2, &PLACES).unwrap();
    let values = PLACES.map(|place| place.2);
    assert_eq!(*a.assemble(&values).unwrap(), [2.0, -1.0, -1.0, 2.0]);
    // a triangle with a duplicate entry
    let half = [(1, 1, 2.0), (0, 1, -1.0), (0, 0, 1.5), (0, 0, 0.5)];
    let a = Csr::from_triplets(2, 2, &half).unwrap().mirrored().unwrap();
    assert_eq!(*a.assemble(&half.map(|place| place.2)).unwrap(), [2.0, -1.0, -1.0, 2.0]);
    // values in the order of CSC arrays
    let a = Csr::from_csc(2, 2, &[0, 2, 3], &[1, 0, 1], &[3.0, 1.0, 2.0]).unwrap();
    assert_eq!(*a.assemble(&[3.0, 1.0, 2.0]).unwrap(), *a.entries());
    // values that are in order already are not copied
    let a = Csr::from_csr(2, 2, &[0, 1, 2], &[0, 1], &[1.0, 2.0]).unwrap();
    let values = [5.0, 6.0];
    assert_eq!(a.assemble(&values).unwrap().as_ptr(), values.as_ptr());
}

#[test]
fn every_object_assembles_as_its_matrix_does() {
    let a = Csr::from_triplets(2, 2, &PLACES).unwrap();
    let doubled = PLACES.map(|place| 2.0 * place.2);
    let expected = a.assemble(&doubled).unwrap();
    let operator = Operator::auto(&a, &Host).unwrap();
    assert_eq!(operator.assemble(&doubled).unwrap(), expected);
    let solver = Plan::new(&a).unwrap().build().unwrap();
    assert_eq!(solver.assemble(&doubled).unwrap(), expected);
    assert_eq!(SymCsr::new(&a).unwrap().source().assemble(&doubled).unwrap(), expected);
}

#[test]
fn wrong_lengths_say_which_call_takes_these_values() {
    // five values, four entries
    let twice = [&PLACES[..], &[(0, 0, 1.0)]].concat();
    let mut a = Csr::from_triplets(2, 2, &twice).unwrap();
    let refused = a.refresh(&[1.0; 5]).unwrap_err().to_string();
    assert!(
        refused.contains("must have 4 entries (")
            && refused.contains("got 5")
            && refused.contains("`assemble`"),
        "{refused}"
    );
    let refused = a.assemble(&[1.0; 4]).unwrap_err().to_string();
    assert!(
        refused.contains("must have 5 entries (")
            && refused.contains("got 4")
            && refused.contains("`assemble`"),
        "{refused}"
    );
    let mut operator = Operator::auto(&a, &Host).unwrap();
    assert!(matches!(operator.refresh(&[1.0; 5]), Err(Error::Length { got: 5, expected: 4, .. })));
    let mut solver = Plan::new(&a).unwrap().build().unwrap();
    assert!(matches!(solver.refresh(&[1.0; 5]), Err(Error::Length { got: 5, expected: 4, .. })));
}

/// A reordered matrix is refreshed with entries in its own order, and with matrices in any order.
#[test]
fn reordered_matrices_take_their_own_entries() {
    let given = matrices::elasticity(4).csr::<f64>().unwrap();
    let turned = Permutation::from_old_of_new((0..given.rows() as u32).rev().collect()).unwrap();
    let a = given.reordered(&turned).unwrap();
    let mut sell = Sell::new(&a).unwrap();
    sell.refresh(a.entries()).unwrap();
    assert!(sell.to_csr().triplets().eq(a.triplets()));
    let doubled: Vec<f64> = given.entries().iter().map(|value| 2.0 * value).collect();
    let doubled = given.with_values(&doubled).unwrap();
    sell.refresh_from(&doubled).unwrap();
    assert!(sell.to_csr().triplets().eq(doubled.reordered(&turned).unwrap().triplets()));
    sell.refresh_from(&a).unwrap();
    assert!(sell.to_csr().triplets().eq(a.triplets()));
}

#[test]
fn a_matrix_of_another_pattern_is_refused_with_its_row() {
    let a = matrices::stencil7(4).csr::<f64>().unwrap();
    let fewer: Vec<_> = a.triplets().filter(|&(i, j, _)| (i, j) != (11, 10)).collect();
    let fewer = Csr::from_triplets(a.rows(), a.cols(), &fewer).unwrap();
    let turned = Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let mut operator = Operator::auto(&a, &Host).unwrap();
    assert!(matches!(operator.refresh_from(&fewer), Err(Error::PatternMismatch { row: 11 })));
    // errors name rows in the user's order
    let mut reordered = Sell::new(&a.reordered(&turned).unwrap()).unwrap();
    assert!(matches!(reordered.refresh_from(&fewer), Err(Error::PatternMismatch { row: 11 })));
    let mut solver = Plan::new(&a).unwrap().build().unwrap();
    assert!(matches!(solver.refresh_from(&fewer), Err(Error::PatternMismatch { row: 11 })));
    let other = matrices::stencil7(5).csr::<f64>().unwrap();
    assert!(matches!(operator.refresh_from(&other), Err(Error::Length { got: 125, expected: 64, .. })));
}

/// Errors name the entry in the user's order, and leave the matrix unchanged.
#[test]
fn values_that_are_not_finite_are_refused_with_their_place() {
    let a = matrices::stencil7(5).csr::<f64>().unwrap();
    let turned = Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let b = vec![1.0; a.rows()];
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let spoilt = |a: &Csr<f64>, place: (usize, usize)| -> Vec<f64> {
            a.triplets().map(|(i, j, v)| if (i, j) == place { value } else { v }).collect()
        };
        let wrong = spoilt(&a, (7, 8));
        let is_named = |refused: krysp::Result<()>| {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::NotFinite { row: 7, col: 8, .. }), "{refused}");
        };
        is_named(a.with_values(&wrong).map(|_| ()));
        let mut operator = Operator::auto(&a, &Host).unwrap();
        is_named(operator.refresh(&wrong));
        assert!(Cg::new(operator).solve(&b).unwrap().report.converged());
        let mut solver = Plan::new(&a).unwrap().build().unwrap();
        is_named(solver.refresh(&wrong));
        assert!(solver.solve(&b).unwrap().converged());
        let reordered = a.reordered(&turned).unwrap();
        let mut sell = Sell::new(&reordered).unwrap();
        is_named(sell.refresh(&spoilt(&reordered, (124 - 7, 124 - 8))));
        assert!(sell.to_csr().triplets().eq(reordered.triplets()));
        // constructors accept them, and `check_finite` reports them
        let entries: Vec<_> = a.triplets().zip(&wrong).map(|((i, j, _), &v)| (i, j, v)).collect();
        let taken = Csr::from_triplets(a.rows(), a.cols(), &entries).unwrap();
        is_named(taken.check_finite());
        is_named(taken.reordered(&turned).unwrap().check_finite());
    }
}

/// The error of a preconditioner names the entry, and does not say that the matrix is not positive definite.
#[test]
fn preconditioners_name_the_entry_that_is_not_finite() {
    use krysp::{Amg, Cholesky, Fsai, Ic0, Ilu0, Ilut, Jacobi, Lu, Refresh, Spai, TwoLevel};
    let sound = matrices::stencil7(5).csr::<f64>().unwrap();
    let at = |place: (usize, usize)| {
        let spoilt = |(i, j, v)| (i, j, if (i, j) == place { f64::NAN } else { v });
        let entries: Vec<_> = sound.triplets().map(spoilt).collect();
        Csr::from_triplets(sound.rows(), sound.cols(), &entries).unwrap()
    };
    let named = |refused: krysp::Result<()>, place: (usize, usize)| match refused {
        Err(Error::NotFinite { row, col, .. }) => assert_eq!((row, col), place),
        other => panic!("{other:?}"),
    };
    let a = at((7, 8));
    let refused: [krysp::Result<()>; 10] = [
        Amg::new(&a).map(drop),
        Cholesky::new(&a).map(drop),
        Fsai::new(&a).map(drop),
        Ic0::new(&a).map(drop),
        Ilu0::new(&a).map(drop),
        Ilut::new(&a).map(drop),
        Lu::new(&a).map(drop),
        Spai::new(&a).map(drop),
        TwoLevel::new(&a).map(drop),
        Ic0::new(&sound).unwrap().refresh(&a),
    ];
    refused.into_iter().for_each(|refused| named(refused, (7, 8)));
    let a = at((7, 7));
    named(Jacobi::new(&a).map(drop), (7, 7));
    named(Jacobi::blocks(&a, 5).map(drop), (7, 7));
}
