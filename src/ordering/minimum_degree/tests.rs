//! Tests of the fill-in of orderings for trees, meshes and columns.

use super::*;
use crate::formats::derived::Derivation;
use crate::testing::matrices::{self, edge};

/// Number of entries of `L` after elimination in this order, for a symmetric pattern, including the
/// diagonal.
fn fill(a: &Csr<f64>, order: &[u32]) -> usize {
    let mut rows: Vec<std::collections::BTreeSet<u32>> =
        (0..a.rows()).map(|row| a.row_columns(row).iter().copied().collect()).collect();
    let mut count = 0;
    for &v in order {
        let joined = std::mem::take(&mut rows[v as usize]);
        count += joined.len();
        for &i in joined.iter().filter(|&&i| i != v) {
            rows[i as usize].extend(&joined);
            rows[i as usize].remove(&v);
        }
    }
    count
}

fn ordered(a: &Csr<f64>, order: impl Fn(&Csr<f64>, &Csr<f64>) -> Result<Vec<u32>>) -> Vec<u32> {
    let order = order(a, &Derivation::transposed(a).unwrap().0).unwrap();
    crate::permutation::Permutation::from_old_of_new(order.clone()).unwrap();
    order
}

fn by_rows(a: &Csr<f64>, transposed: &Csr<f64>) -> Result<Vec<u32>> {
    of_columns(a, transposed, |_, _| true)
}

#[test]
fn trees_and_arrows_have_no_fill() {
    for a in [edge::tridiagonal(200), edge::arrow(40), edge::arrow(2000), edge::diagonal(7)] {
        let a = a.csr::<f64>().unwrap();
        assert_eq!(fill(&a, &ordered(&a, of_sum)), (a.nnz() + a.rows()) / 2);
    }
    let none = edge::empty(5, 5).csr::<f64>().unwrap();
    assert_eq!(ordered(&none, of_sum).len() + ordered(&none, by_rows).len(), 10);
}

#[test]
fn meshes_have_little_fill() {
    for (a, most) in
        [(matrices::stencil7(9), 0.5), (matrices::elasticity(4), 0.9), (matrices::circuit(600, 20), 0.5)]
    {
        let a = a.csr::<f64>().unwrap();
        let natural: Vec<u32> = (0..a.rows() as u32).collect();
        let (given, found) = (fill(&a, &natural), fill(&a, &ordered(&a, of_sum)));
        assert!((found as f64) < most * given as f64, "{given} {found}");
    }
}

/// Ordering the columns of a matrix gives less than 1.1 times the fill of ordering `Aᵀ A`.
#[test]
fn columns_are_ordered_without_the_product() {
    let a = matrices::stencil7(7).csr::<f64>().unwrap();
    let n = a.rows();
    let rows: Vec<_> = a.triplets().map(|(i, j, v)| ((i * 5 + 1) % n, j, v)).collect();
    let shuffled = Csr::from_triplets(n, n, &rows).unwrap();
    let mut squared = vec![];
    for row in 0..n {
        for &i in a.row_columns(row) {
            squared.extend(a.row_columns(row).iter().map(|&j| (i as usize, j as usize, 1.0)));
        }
    }
    let squared = Csr::from_triplets(n, n, &squared).unwrap();
    let [rows, product] =
        [ordered(&shuffled, by_rows), ordered(&squared, of_sum)].map(|order| fill(&squared, &order));
    assert!((rows as f64) < 1.1 * product as f64, "{rows} {product}");
}
