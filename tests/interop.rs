//! Matrices and solvers of other crates.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::matrix_free::LinOp;
use faer::matrix_free::conjugate_gradient::{CgParams, conjugate_gradient, conjugate_gradient_scratch};
use faer::sparse::{
    SparseColMat, SparseRowMat, SparseRowMatRef, SymbolicSparseRowMatRef, Triplet as FaerTriplet,
};
use faer::{Mat, Par};
use krysp::formats::CsrRef;
use krysp::interop::AsFaer;
use krysp::testing::matrices::{self, Triplets};
use krysp::{BasicVector, Cg, Csr, Format, HostVector, Jacobi, LinearOperator, Permutation};
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};
use sprs::{CsMat, CsMatI, CsMatViewI, TriMat};

fn rectangle() -> (Triplets, Csr<f64>) {
    let triplets = matrices::random(60, 45, 0.1, 3);
    let csr = triplets.csr().unwrap();
    (triplets, csr)
}

fn same(a: &Csr<f64>, b: &Csr<f64>) {
    assert_eq!((a.rows(), a.cols(), a.nnz()), (b.rows(), b.cols(), b.nnz()));
    assert!(a.triplets().eq(b.triplets()));
}

/// Checks that products are bitwise equal.
fn has_equal_products(a: &Csr<f64>, b: &impl LinearOperator<Vector = HostVector<f64>>) {
    let x = HostVector::from_slice(&matrices::vector(a.cols()));
    let nan = vec![f64::NAN; a.rows()];
    let (mut y, mut z) = (HostVector::from_slice(&nan), HostVector::from_slice(&nan));
    a.apply(&x, &mut y).unwrap();
    b.apply(&x, &mut z).unwrap();
    assert_eq!(y.as_slice(), z.as_slice());
    if a.rows() == a.cols() {
        assert_eq!(a.apply_dot(&x, &mut y).unwrap(), b.apply_dot(&x, &mut z).unwrap());
    }
    assert_eq!(a.bytes(), b.bytes());
}

#[test]
fn sprs_matrices_convert_both_ways() {
    let (_, csr) = rectangle();
    let wide: CsMat<f64> = (&csr).into();
    let short: CsMatI<f64, u32> = (&csr).try_into().unwrap();
    same(&csr, &Csr::try_from(&wide).unwrap());
    same(&csr, &Csr::try_from(&wide.to_csc()).unwrap());
    same(&csr, &Csr::try_from(wide.to_csc()).unwrap());
    same(&csr, &Csr::try_from(wide.to_other_types::<i32, f64, i64>()).unwrap());
    same(&csr, &Csr::try_from(&short.view()).unwrap());
    let some_rows = Csr::try_from(&short.slice_outer(10..30)).unwrap();
    let expected = csr.triplets().filter(|t| (10..30).contains(&t.0)).map(|(i, j, v)| (i - 10, j, v));
    assert!(some_rows.triplets().eq(expected));

    let mut triplets = TriMat::new((2, 2));
    for (row, col, value) in [(1, 0, 1.0), (0, 0, 2.0), (1, 0, 3.0)] {
        triplets.add_triplet(row, col, value);
    }
    let summed = Csr::try_from(&triplets.to_csr::<usize>()).unwrap();
    assert_eq!(summed.triplets().collect::<Vec<_>>(), [(0, 0, 2.0), (1, 0, 4.0)]);
}

#[test]
fn sprs_arrays_are_adopted_without_copying() {
    let (_, csr) = rectangle();
    let short: CsMatI<f64, u32> = (&csr).try_into().unwrap();
    let (columns, values) = (short.indices().as_ptr(), short.data().as_ptr());
    let adopted = Csr::try_from(short).unwrap();
    assert_eq!((adopted.columns().as_ptr(), adopted.entries().as_ptr()), (columns, values));
    same(&csr, &adopted);

    let signed: CsMatI<f64, i32> = adopted_as_signed(&csr);
    let columns = signed.indices().as_ptr();
    assert_eq!(Csr::try_from(signed).unwrap().columns().as_ptr().cast::<i32>(), columns);
}

fn adopted_as_signed(csr: &Csr<f64>) -> CsMatI<f64, i32> {
    CsMat::from(csr).to_other_types()
}

#[test]
fn sprs_views_multiply_without_a_copy() {
    let (_, csr) = rectangle();
    let short: CsMatI<f64, u32> = (&csr).try_into().unwrap();
    has_equal_products(&csr, &CsrRef::try_from(short.view()).unwrap());
    assert!(CsrRef::try_from(short.transpose_view()).unwrap_err().to_string().contains("compressed columns"));

    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let short: CsMatI<f64, u32> = (&a).try_into().unwrap();
    let view = CsrRef::try_from(short.view()).unwrap();
    has_equal_products(&a, &view);
    let jacobi = Jacobi::from_diagonal(&view.diagonal_entries()).unwrap();
    let b = matrices::vector(a.rows());
    let borrowed = Cg::new(view).preconditioner(&jacobi).solve(&b).unwrap();
    let owned = Cg::new(&a).preconditioner(&jacobi).solve(&b).unwrap();
    assert!(borrowed.report.converged());
    assert_eq!(borrowed.x, owned.x);
}

#[test]
fn borrowed_arrays_are_checked() {
    let values = [1.0, 2.0];
    let refused = |offsets: &[u32], columns: &[u32], values: &[f64]| {
        CsrRef::new(2, offsets, columns, values).unwrap_err().to_string()
    };
    assert!(refused(&[0, 1, 2], &[0, 2], &values).contains("column 2"));
    assert!(refused(&[0, 1, 1], &[0, 1], &values).contains("offset 2 is 1"));
    assert!(refused(&[0, 3, 2], &[0, 1], &values).contains("offset 1 is 3"));
    assert!(refused(&[], &[], &[]).contains("offset 0"));
    assert!(refused(&[0, 1, 2], &[0, 1], &[1.0]).contains("the values"));
    // unsorted and duplicate columns
    let a = CsrRef::new(2, &[0, 3, 3], &[1, 0, 0], &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(a.diagonal_entries(), [5.0, 0.0]);
    same(&Csr::from_triplets(2, 2, &[(0, 0, 5.0), (0, 1, 1.0)]).unwrap(), &a.to_csr().unwrap());
    let mut y = HostVector::from_slice(&[f64::NAN; 2]);
    a.apply(&HostVector::from_slice(&[1.0, 10.0]), &mut y).unwrap();
    assert_eq!(y.as_slice(), [15.0, 0.0]);
}

#[test]
fn nalgebra_matrices_convert_both_ways() {
    let (triplets, csr) = rectangle();
    let foreign = CsrMatrix::try_from(&csr).unwrap();
    same(&csr, &Csr::try_from(&foreign).unwrap());
    same(&csr, &Csr::try_from(&CscMatrix::try_from(&csr).unwrap()).unwrap());
    let mut coo = CooMatrix::new(triplets.rows, triplets.cols);
    for &(row, col, value) in &triplets.shuffled(9).entries {
        // entries in two halves, which add up to the values
        coo.push(row as usize, col as usize, value / 2.0);
        coo.push(row as usize, col as usize, value / 2.0);
    }
    same(&csr, &Csr::try_from(&coo).unwrap());
    same(&csr, &Csr::try_from(&CooMatrix::try_from(&csr).unwrap()).unwrap());
    let values = foreign.values().as_ptr();
    let adopted = Csr::try_from(foreign).unwrap();
    assert_eq!(adopted.entries().as_ptr(), values);
    same(&csr, &adopted);
}

#[test]
fn values_in_the_order_of_the_foreign_matrix_are_assembled() {
    let (_, csr) = rectangle();
    let columns = CscMatrix::try_from(&csr).unwrap();
    let mut taken = Csr::try_from(&columns).unwrap();
    let doubled: Vec<f64> = columns.values().iter().map(|v| 2.0 * v).collect();
    taken.refresh(&taken.assemble(&doubled).unwrap()).unwrap();
    assert!(taken.triplets().eq(csr.triplets().map(|(i, j, v)| (i, j, 2.0 * v))));
}

#[test]
fn faer_matrices_convert_both_ways() {
    let (triplets, csr) = rectangle();
    let wide = SparseRowMat::<usize, f64>::from(&csr);
    same(&csr, &Csr::try_from(wide.as_ref()).unwrap());
    let short = SparseRowMat::<u32, f64>::try_from(&csr).unwrap();
    same(&csr, &Csr::try_from(short.as_ref()).unwrap());
    has_equal_products(&csr, &CsrRef::try_from(short.as_ref()).unwrap());
    let entries: Vec<_> = triplets
        .entries
        .iter()
        .map(|&(row, col, val)| FaerTriplet { row: row as usize, col: col as usize, val })
        .collect();
    let columns = SparseColMat::try_new_from_triplets(csr.rows(), csr.cols(), &entries).unwrap();
    same(&csr, &Csr::try_from(columns.as_ref()).unwrap());
}

#[test]
fn faer_rows_with_gaps_are_copied() {
    // rows [(0, 1.0)], [(1, 2.0), (2, 3.0)] with a gap after each
    let symbolic =
        SymbolicSparseRowMatRef::<u32>::new_checked(2, 3, &[0, 2, 5], Some(&[1, 2]), &[0, 0, 1, 2, 0]);
    let matrix = SparseRowMatRef::new(symbolic, &[1.0, 9.0, 2.0, 3.0, 9.0]);
    let copied = Csr::try_from(matrix).unwrap();
    assert_eq!(copied.triplets().collect::<Vec<_>>(), [(0, 0, 1.0), (1, 1, 2.0), (1, 2, 3.0)]);
    let transposed = Csr::try_from(matrix.transpose()).unwrap();
    assert_eq!(transposed.triplets().collect::<Vec<_>>(), [(0, 0, 1.0), (1, 1, 2.0), (2, 1, 3.0)]);
    assert!(CsrRef::try_from(matrix).unwrap_err().to_string().contains("gaps"));
}

/// The solution and the iterations of faer's conjugate gradients with an operator and a Jacobi preconditioner of this
/// crate.
fn faer_cg(
    a: &impl LinearOperator<Vector = HostVector<f64>>,
    m: &Jacobi<f64>,
    b: &[f64],
) -> (Vec<f64>, usize) {
    let (a, m) = (AsFaer::new(a), AsFaer::new(m));
    let rhs = Mat::from_fn(b.len(), 1, |i, _| b[i]);
    let mut x = Mat::zeros(b.len(), 1);
    let mut memory = MemBuffer::new(conjugate_gradient_scratch(&m, &a, 1, Par::Seq));
    let params = CgParams { rel_tolerance: 1e-10, max_iters: 1000, ..Default::default() };
    let stack = MemStack::new(&mut memory);
    let info = conjugate_gradient(x.as_mut(), &m, &a, rhs.as_ref(), params, |_| (), Par::Seq, stack);
    let x = x.col(0).iter().copied().collect();
    (x, info.unwrap().iter_count)
}

#[test]
fn faer_solves_with_our_operators() {
    let a = matrices::stencil7(12).csr::<f64>().unwrap();
    let b = matrices::vector(a.rows());
    let ours = Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).rtol(1e-10).solve(&b).unwrap();
    let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
    for a in [&a, &reordered] {
        let (x, iterations) = faer_cg(a, &Jacobi::new(a).unwrap(), &b);
        assert!(iterations.abs_diff(ours.report.iterations) <= 1, "{iterations} {}", ours.report);
        for (theirs, ours) in x.iter().zip(&ours.x) {
            approx::assert_relative_eq!(*theirs, *ours, max_relative = 1e-6, epsilon = 1e-9);
        }
    }
}

#[test]
fn faer_multiplies_columns_of_any_stride() {
    let (_, csr) = rectangle();
    let foreign = SparseRowMat::<usize, f64>::from(&csr);
    let x = Mat::from_fn(csr.cols(), 3, |i, j| (i * 3 + j) as f64);
    let expected = &foreign * &x;
    let operator = AsFaer::new(&csr);
    let stack = MemStack::new(&mut []);
    let mut y = Mat::zeros(csr.rows(), 3);
    LinOp::apply(&operator, y.as_mut(), x.as_ref(), Par::Seq, stack);
    // row-major matrices: columns of `x` and `y` are not contiguous
    let by_rows = x.transpose().to_owned();
    let mut transposed = Mat::zeros(3, csr.rows());
    LinOp::apply(&operator, transposed.as_mut().transpose_mut(), by_rows.transpose(), Par::Seq, stack);
    for (i, j) in (0..csr.rows()).flat_map(|i| (0..3).map(move |j| (i, j))) {
        approx::assert_relative_eq!(y[(i, j)], expected[(i, j)], max_relative = 1e-12);
        assert_eq!(y[(i, j)], transposed[(j, i)]);
    }
}

#[test]
fn single_precision_matrices_convert() {
    let csr: Csr<f32> = rectangle().0.csr().unwrap();
    let taken = Csr::try_from(SparseRowMat::<u32, f32>::try_from(&csr).unwrap().as_ref()).unwrap();
    assert!(csr.triplets().eq(taken.triplets()));
    let view = CsMat::from(&csr).to_other_types::<u32, f32, u32>();
    let view: CsMatViewI<'_, f32, u32> = view.view();
    assert_eq!(CsrRef::try_from(view).unwrap().domain(), HostVector::from_slice(&[0.0f32; 45]).space());
}
