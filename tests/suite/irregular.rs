//! Matrices whose rows have extremely different lengths, in host memory.

use krysp::formats::{HybOptions, Strategy, Threshold};
use krysp::testing::matrices::edge;
use krysp::{Coo, Element, Host, HostVector, Hyb, LinearOperator, Operator, Real};

fn wide<T: Element>(value: T) -> f64 {
    value.to_f64()
}

fn is_exact<T: Real>(
    name: &str,
    a: &impl LinearOperator<Vector = HostVector<T>>,
    x: &[f64],
    expected: &[f64],
) {
    let x: Vec<T> = x.iter().map(|&x| T::from_f64(x)).collect();
    let x = a.domain().vector(&x).unwrap();
    let mut y = a.range().vector(&vec![T::from_f64(f64::NAN); expected.len()]).unwrap();
    a.apply(&x, &mut y).unwrap();
    let wrong = y.as_slice().iter().zip(expected).position(|(y, expected)| wide(*y) != *expected);
    assert_eq!(wrong, None, "{name}");
}

fn extreme_rows<T: Real>(size: usize) {
    let overflow = HybOptions { threshold: Threshold::Columns(0) };
    for (name, triplets) in edge::extreme_rows(size) {
        let csr = triplets.csr::<T>().unwrap();
        let x = edge::whole_vector(csr.cols());
        let expected = triplets.product_reference(&x).0;
        for strategy in [Strategy::Classical, Strategy::LoadBalance] {
            is_exact(&format!("{name}, {strategy:?}"), &csr.clone().with_strategy(strategy), &x, &expected);
        }
        is_exact(&format!("{name}, COO"), &Coo::new(&csr).unwrap(), &x, &expected);
        is_exact(&format!("{name}, HYB"), &Hyb::with(&csr, overflow).unwrap(), &x, &expected);
        is_exact(&format!("{name}, auto"), &Operator::auto(&csr, &Host).unwrap(), &x, &expected);
    }
}

#[test]
fn extreme_rows_f64() {
    extreme_rows::<f64>(400_000);
}

#[test]
fn extreme_rows_f32() {
    extreme_rows::<f32>(100_000);
}
