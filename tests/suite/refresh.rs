//! Preconditioners are refreshed from a matrix in any format.

use krysp::formats::Rounded;
use krysp::testing::laws;
use krysp::testing::matrices;
use krysp::{
    Bf16, Bsr, CoarseSpace, Coo, Csr, Dia, Ehyb, Ell, EllpackR, Error, Format, Fsai, Halo, Host, HostVector,
    Hyb, Ic0, Ilu0, Ilut, Isai, Jacobi, LinearOperator, MatrixSource, Operator, Permutation, Real, Refresh,
    Sell, Side, SinglePrecision, Space, Spai, Sparsity, SymBsr, SymCsr, TwoLevel,
};

/// The result of applying a preconditioner to a test vector.
fn applied<M: LinearOperator<Vector = HostVector<f64>>>(m: &M) -> Vec<f64> {
    let x = m.domain().vector(&laws::numbers(m.domain().len(), 7)).unwrap();
    let mut y = m.domain().zeros().unwrap();
    m.apply(&x, &mut y).unwrap();
    y.as_slice().to_vec()
}

/// Other values, symmetric and positive definite where those of `a` are.
fn changed<T: Real>(a: &Csr<T>) -> Csr<T> {
    let larger = |(i, j, v): (usize, usize, T)| {
        if i == j { T::from_f64(krysp::Element::to_f64(v) * (1.5 + (i % 7) as f64)) } else { v }
    };
    a.with_values(&a.triplets().map(larger).collect::<Vec<_>>()).unwrap()
}

/// Checks that a preconditioner of `a` that is refreshed from any of `others`, which have the values of `b`,
/// is bitwise equal to that of `b`.
fn follows<M: LinearOperator<Vector = HostVector<f64>> + Refresh<f64>>(
    build: impl Fn(&Csr<f64>) -> krysp::Result<M>,
    [a, b]: [&Csr<f64>; 2],
    others: &[&dyn MatrixSource<f64>],
) {
    let [first, expected] = [a, b].map(|csr| applied(&build(csr).unwrap()));
    assert_ne!(first, expected);
    let mut m = build(a).unwrap();
    for (place, other) in others.iter().enumerate() {
        m.refresh(*other).unwrap();
        assert!(applied(&m) == expected, "{} from origin {place}", std::any::type_name::<M>());
        m.refresh(a).unwrap();
        assert!(applied(&m) == first, "{} after origin {place}", std::any::type_name::<M>());
    }
}

#[test]
fn values_come_from_every_format() {
    // make both triangles equal (they differ by rounding)
    let elastic = SymCsr::new(&matrices::elasticity(4).csr::<f64>().unwrap()).unwrap().to_csr();
    let backwards = Permutation::from_old_of_new((0..elastic.rows() as u32).rev().collect()).unwrap();
    for [a, b] in [
        [elastic.clone(), changed(&elastic)],
        [&elastic, &changed(&elastic)].map(|a| a.reordered(&backwards).unwrap()),
    ] {
        let (auto, symmetric) = (Operator::auto(&b, &Host).unwrap(), Operator::symmetric(&b, &Host).unwrap());
        let others: [&dyn MatrixSource<f64>; 15] = [
            &b,
            &Bsr::new(&b).unwrap(),
            &Coo::new(&b).unwrap(),
            &Ehyb::new(&b).unwrap(),
            &Ell::new(&b).unwrap(),
            &EllpackR::new(&b).unwrap(),
            &Halo::new(&b).unwrap(),
            &Hyb::new(&b).unwrap(),
            &Sell::new(&b).unwrap(),
            &SymBsr::new(&b).unwrap(),
            &SymCsr::new(&b).unwrap(),
            &auto,
            &symmetric,
            &Rounded::<Sell<f64>, f64>::of(Sell::new(&b).unwrap()),
            &b.clone().with_strategy(krysp::formats::Strategy::Classical),
        ];
        follows(Jacobi::new, [&a, &b], &others);
        follows(|a| Jacobi::blocks(a, 3), [&a, &b], &others);
        follows(Fsai::new, [&a, &b], &others);
        follows(|a| Spai::with_pattern(a, Side::Left, Sparsity::Power(1)), [&a, &b], &others);
        follows(Ic0::shifted, [&a, &b], &others);
        follows(Ilu0::new, [&a, &b], &others);
        follows(Ilut::new, [&a, &b], &others);
        follows(|a| Isai::new(Ic0::shifted(a)?, Sparsity::Power(1)), [&a, &b], &others);
        follows(|a| Isai::new(Ilu0::new(a)?, Sparsity::Power(1)), [&a, &b], &others);
        follows(TwoLevel::new, [&a, &b], &others);
        follows(|a| TwoLevel::with_inner(Fsai::new(a)?, CoarseSpace::new(a, 9)?, a), [&a, &b], &others);
        follows(|a| SinglePrecision::new(Fsai::new(&a.cast::<f32>())?), [&a, &b], &others);
    }
}

/// The diagonal of formats that are not suitable for the matrix above, and of symmetric formats with a missing diagonal entry.
#[test]
fn diagonals_come_from_slots() {
    let a = matrices::stencil7(9).csr::<f64>().unwrap();
    let b = changed(&a);
    follows(Jacobi::new, [&a, &b], &[&Dia::new(&b).unwrap(), &Operator::auto(&b, &Host).unwrap()]);
    let open: Vec<_> = b.triplets().filter(|&(i, j, _)| (i, j) != (5, 5)).collect();
    let open = Csr::from_triplets(a.rows(), a.rows(), &open).unwrap();
    let mut jacobi = Jacobi::new(&a).unwrap();
    let before = applied(&jacobi);
    let others: [&dyn MatrixSource<f64>; 4] =
        [&open, &Dia::new(&open).unwrap(), &SymCsr::new(&open).unwrap(), &Sell::new(&open).unwrap()];
    for other in others {
        let refused = jacobi.refresh(other).unwrap_err();
        assert!(matches!(refused, Error::ZeroDiagonal { row: 5, value: 0.0 }), "{refused}");
        assert_eq!(applied(&jacobi), before);
    }
    // a format that rounds values to fewer bits yields the rounded values
    let narrow = Rounded::<Sell<f64>, Bf16>::of(Sell::new(&b).unwrap());
    follows(Jacobi::new, [&a, &narrow.to_csr()], &[&narrow]);
}

#[test]
fn matrices_of_other_spaces_are_refused() {
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let backwards = Permutation::from_old_of_new((0..a.rows() as u32).rev().collect()).unwrap();
    let reordered = Sell::new(&a.reordered(&backwards).unwrap()).unwrap();
    let wide: Vec<_> = a.triplets().filter(|&(i, _, _)| i < 100).collect();
    let wide = Csr::from_triplets(100, a.rows(), &wide).unwrap();
    let others: [&dyn MatrixSource<f64>; 3] =
        [&reordered, &wide, &matrices::stencil7(5).csr::<f64>().unwrap()];
    let mut all: [Box<dyn Refresh<f64>>; 9] = [
        Box::new(Jacobi::new(&a).unwrap()),
        Box::new(Jacobi::blocks(&a, 4).unwrap()),
        Box::new(Fsai::new(&a).unwrap()),
        Box::new(Spai::new(&a).unwrap()),
        Box::new(Ic0::new(&a).unwrap()),
        Box::new(Ilu0::new(&a).unwrap()),
        Box::new(Ilut::new(&a).unwrap()),
        Box::new(Isai::new(Ic0::new(&a).unwrap(), Sparsity::Power(1)).unwrap()),
        Box::new(TwoLevel::new(&a).unwrap()),
    ];
    for m in &mut all {
        for other in others {
            assert!(matches!(m.refresh(other), Err(Error::Solver(_))));
        }
        m.refresh(&a).unwrap();
    }
}
