//! Products with several vectors on a GPU are, bit by bit, those with each; solves in lockstep are those of each.

use super::{gpu, poisson, residual};
use krysp::cuda::CudaScalar;
use krysp::formats::{
    Bsr, BsrOptions, CsrOptions, Dia, Ell, EllpackR, Halo, HaloOptions, OnDevice, Rounded, Sell, SellOptions,
    Strategy,
};
use krysp::solvers::{MultiVector, Scalar, Scalars, Space};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, Numbering, random_rows};
use krysp::{
    BiCgStab, Cg, Csr, Cuda, CudaSpace, CudaVector, Fcg, Jacobi, LinearOperator, Outcome, Real, ToCuda,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const COUNTS: [usize; 6] = [1, 2, 3, 5, 8, 17];

/// Checks products with several vectors against those with each, for a format that suits the matrix.
fn equal_those_of_each<T: Real, F: OnDevice<T>>(gpu: &Cuda, what: &str, a: &Csr<T>, options: F::Options) {
    let a = F::on_with(gpu, a, options).unwrap();
    laws::several_products(&a, &COUNTS, Agreement::Rounding).map_err(|broken| broken.on(what)).unwrap();
    let (domain, range) = (a.domain(), a.range());
    let read = |space: &CudaSpace<T>, vector: &CudaVector<T>| {
        let mut host = vec![T::zero(); space.len()];
        space.store(vector, &mut host).unwrap();
        host
    };
    for count in COUNTS {
        let column = |j: usize| domain.vector(&laws::numbers(domain.len(), 40 + j as u64)).unwrap();
        let x = MultiVector::from_columns(domain, (0..count).map(column).collect()).unwrap();
        let stale = |_| range.vector(&vec![T::nan(); range.len()]).unwrap();
        let mut y = MultiVector::from_columns(range, (0..count).map(stale).collect()).unwrap();
        let mut own = range.zeros().unwrap();
        let mut same = |y: &MultiVector<CudaVector<T>>, by: &str| {
            for (j, (x, y)) in x.columns().iter().zip(y.columns()).enumerate() {
                a.apply(x, &mut own).unwrap();
                let bits = |v: Vec<T>| v.into_iter().map(|v| v.to_f64().to_bits()).collect::<Vec<_>>();
                let equal = bits(read(range, y)) == bits(read(range, &own));
                assert!(equal, "{what}: column {j} of {count}, {by}");
            }
        };
        a.apply_many(&x, &mut y).unwrap();
        same(&y, "apply_many");
        if domain == range {
            let dots = a.apply_dot_many(&x, &mut y).unwrap();
            same(&y, "apply_dot_many");
            let values = |dots: &Scalars<T, CudaScalar<T>>| -> Vec<u64> {
                (0..count).map(|j| dots.column(j).read().unwrap().to_f64().to_bits()).collect()
            };
            let again = a.apply_dot_many(&x, &mut y).unwrap();
            assert_eq!(values(&dots), values(&again), "{what}: inner products of {count} columns, twice");
        }
    }
}

/// All formats with kernels for several vectors, and one without.
fn all_formats<T: Real>() {
    let gpu = gpu();
    let stencil = matrices::stencil7(21).csr::<T>().unwrap();
    let solid = matrices::elasticity(20).csr::<T>().unwrap();
    let solid_8 = matrices::elasticity(8).csr::<T>().unwrap();
    let tets = matrices::tetrahedra(12, Numbering::Shuffled(3)).csr::<T>().unwrap();
    let clustered = tets.renumbered(&krysp::Numbering::clustered(&tets, 256).unwrap()).unwrap();
    // rows that get 1, 4 and 32 lanes, empty rows, and more columns than rows
    let lengths = |of: fn(usize) -> usize, rows| random_rows(rows, 2500, 3, of).csr::<T>().unwrap();
    let irregular = [
        lengths(|i| i % 7, 200_000),
        lengths(|i| 9 + i % 11, 3000),
        lengths(|i| 400 + i % 50, 900),
        lengths(|i| usize::from(i % 40 == 7) * 5, 1111),
    ];
    // four rows per lane
    let long = matrices::stencil7(68).csr::<T>().unwrap();
    for (name, a) in [("stencil", &stencil), ("long stencil", &long)] {
        equal_those_of_each::<T, Dia<T>>(&gpu, &format!("{name}, DIA"), a, ());
        equal_those_of_each::<T, Sell<T>>(&gpu, &format!("{name}, SELL-P"), a, Default::default());
    }
    for size in [1, 2, 3, 4, 6] {
        let what = format!("nodes of {size}");
        // 3 · 8³ rows: every size divides them
        let of_size = if size == 3 { &solid } else { &solid_8 };
        equal_those_of_each::<T, Halo<T>>(&gpu, &what, of_size, HaloOptions { size: Some(size) });
        if size > 1 {
            equal_those_of_each::<T, Bsr<T>>(&gpu, &what, of_size, BsrOptions { size: Some(size) });
        }
    }
    equal_those_of_each::<T, Halo<T>>(&gpu, "tetrahedra, Halo", &clustered, Default::default());
    equal_those_of_each::<T, Ell<T>>(&gpu, "tetrahedra, ELL", &tets, ());
    equal_those_of_each::<T, EllpackR<T>>(&gpu, "tetrahedra, ELLPACK-R", &tets, ());
    let unsorted = SellOptions { window: Some(1), ..SellOptions::default() };
    for (i, a) in [&tets].into_iter().chain(&irregular).enumerate() {
        for strategy in [Strategy::Classical, Strategy::MergePath] {
            equal_those_of_each::<T, Csr<T>>(&gpu, &format!("{i}: CSR"), a, CsrOptions { strategy });
        }
        equal_those_of_each::<T, Sell<T>>(&gpu, &format!("{i}: SELL-P"), a, Default::default());
        equal_those_of_each::<T, Sell<T>>(&gpu, &format!("{i}: SELL-P, unsorted"), a, unsorted);
    }
}

gpu_test!(products_equal_those_of_each_f64);
fn products_equal_those_of_each_f64() {
    all_formats::<f64>();
}

gpu_test!(products_equal_those_of_each_f32);
fn products_equal_those_of_each_f32() {
    all_formats::<f32>();
}

gpu_test!(products_with_rounded_values_equal_those_of_each);
fn products_with_rounded_values_equal_those_of_each() {
    let gpu = gpu();
    let (stencil, solid) = (matrices::stencil7(68).csr().unwrap(), matrices::elasticity(7).csr().unwrap());
    equal_those_of_each::<f64, Rounded<Dia<f64>, f32>>(&gpu, "DIA", &stencil, ());
    equal_those_of_each::<f64, Rounded<Sell<f64>, f32>>(&gpu, "SELL-P", &stencil, Default::default());
    equal_those_of_each::<f64, Rounded<Bsr<f64>, f32>>(&gpu, "BSR", &solid, BsrOptions { size: Some(3) });
    equal_those_of_each::<f64, Rounded<Halo<f64>, f32>>(&gpu, "Halo", &solid, HaloOptions { size: Some(3) });
}

/// A matrix that claims to be so large that lockstep pays, and counts its products with several vectors.
struct Large<A> {
    inner: A,
    joint: AtomicUsize,
}

impl<A: LinearOperator<Vector = CudaVector<f64>>> LinearOperator for Large<A> {
    type Vector = CudaVector<f64>;

    fn domain(&self) -> &CudaSpace<f64> {
        self.inner.domain()
    }

    fn apply(&self, x: &CudaVector<f64>, y: &mut CudaVector<f64>) -> krysp::solvers::Result<()> {
        self.inner.apply(x, y)
    }

    fn apply_many(
        &self,
        x: &MultiVector<CudaVector<f64>>,
        y: &mut MultiVector<CudaVector<f64>>,
    ) -> krysp::solvers::Result<()> {
        self.joint.fetch_add(1, Relaxed);
        self.inner.apply_many(x, y)
    }

    fn apply_dot_many(
        &self,
        x: &MultiVector<CudaVector<f64>>,
        y: &mut MultiVector<CudaVector<f64>>,
    ) -> krysp::solvers::Result<Scalars<f64, CudaScalar<f64>>> {
        self.joint.fetch_add(1, Relaxed);
        self.inner.apply_dot_many(x, y)
    }

    fn bytes(&self) -> usize {
        1 << 32
    }
}

gpu_test!(columns_in_lockstep_end_as_their_own_solves);
fn columns_in_lockstep_end_as_their_own_solves() {
    let gpu = gpu();
    let (a, rough) = poisson(20);
    let n = a.rows();
    let mut unit = vec![0.0; n];
    unit[n / 2] = 1.0;
    let mut nan = vec![1.0; n];
    nan[1] = f64::NAN;
    let small = rough.iter().rev().map(|b| 1e-9 * b).collect();
    let b = [rough, nan, unit, small, vec![0.0; n]];
    let large = Large { inner: a.to(&gpu).unwrap(), joint: AtomicUsize::new(0) };
    let (own, jacobi) = (a.to(&gpu).unwrap(), Jacobi::new(&a).unwrap().to(&gpu).unwrap());
    macro_rules! each_as_its_own {
        ($($method:ident),*) => {$({
            let solver = || $method::new(&own).preconditioner(&jacobi).rtol(1e-9);
            let before = large.joint.load(Relaxed);
            let together = $method::new(&large).preconditioner(&jacobi).rtol(1e-9).solve_many(&b).unwrap();
            let joint = large.joint.load(Relaxed) - before;
            let longest = together.iter().map(|solution| solution.report.iterations).max().unwrap();
            assert!(2 * joint > longest && longest > 5, "{joint} joint products in {longest} iterations");
            for (j, (b, together)) in b.iter().zip(&together).enumerate() {
                let (alone, report) = (solver().solve(b).unwrap().report, &together.report);
                if j == 1 {
                    assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
                    continue;
                }
                assert_eq!(alone.outcome, report.outcome, "column {j}");
                for (alone, together) in alone.history.iter().zip(&report.history).take(5) {
                    assert!((alone - together).abs() <= 1e-10 * alone, "column {j}: {alone:e}, {together:e}");
                }
                let (own, own_joint) = (alone.iterations, report.iterations);
                assert!(own.abs_diff(own_joint) <= 2 + own / 10, "column {j}: {own} iterations, {own_joint}");
                let (truth, norm) = (residual(&a, b, &together.x), report.rhs_norm);
                assert!(truth <= 1.001e-9 * norm, "column {j}: {truth:e} of {norm:e}");
            }
            let again = $method::new(&large).preconditioner(&jacobi).rtol(1e-9).solve_many(&b).unwrap();
            assert!(again.iter().zip(&together).all(|(again, first)| again.x == first.x || again.x[0].is_nan()));
        })*};
    }
    each_as_its_own!(Cg, Fcg, BiCgStab);
}
