//! Products with several vectors on a GPU are bitwise those with each vector; solves in lockstep end like
//! separate solves.

use super::preconditioners::changed;
use super::{gpu, poisson, residual};
use krysp::cuda::CudaScalar;
use krysp::formats::{
    Bsr, BsrOptions, CsrOptions, Dia, Ell, EllpackR, Halo, HaloOptions, OnDevice, Rounded, Sell, SellOptions,
    Strategy,
};
use krysp::solvers::{BasicVector, MultiVector, Scalar, Scalars, Space, Vector};
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices::{self, NodeOrder, random_rows};
use krysp::{
    Amg, AmgOptions, BiCgStab, Cg, Csr, Cuda, CudaSpace, CudaVector, Fcg, Jacobi, LinearOperator, Outcome,
    Real, Refresh, ToCuda,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const COUNTS: [usize; 6] = [1, 2, 3, 5, 8, 17];

/// Checks that products with several vectors equal the products with each vector, for a format that suits the
/// matrix.
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

/// All formats with kernels for several vectors, and CSR by merge path, which has none.
fn all_formats<T: Real>() {
    let gpu = gpu();
    let stencil = matrices::stencil7(21).csr::<T>().unwrap();
    let solid = matrices::elasticity(20).csr::<T>().unwrap();
    let solid_8 = matrices::elasticity(8).csr::<T>().unwrap();
    let tets = matrices::tetrahedra(12, NodeOrder::Shuffled(3)).csr::<T>().unwrap();
    let clustered = tets.reordered(&krysp::Permutation::clustered(&tets, 256).unwrap()).unwrap();
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

/// The bits of vectors, column by column.
fn bits<T: Real>(x: &MultiVector<CudaVector<T>>) -> Vec<Vec<u64>> {
    let of_column = |x: &CudaVector<T>| {
        let mut host = vec![T::zero(); x.space().len()];
        x.space().store(x, &mut host).unwrap();
        host.into_iter().map(|v| v.to_f64().to_bits()).collect()
    };
    x.columns().iter().map(of_column).collect()
}

/// The bits of the scalars of `count` columns.
fn bits_of_scalars<T: Real>(scalars: &Scalars<T, CudaScalar<T>>, count: usize) -> Vec<u64> {
    (0..count).map(|j| scalars.column(j).read().unwrap().to_f64().to_bits()).collect()
}

fn columns<T: Real>(space: &CudaSpace<T>, count: usize, seed: u64) -> MultiVector<CudaVector<T>> {
    let column = |j: usize| space.vector(&laws::numbers(space.len(), seed + j as u64)).unwrap();
    MultiVector::from_columns(space, (0..count).map(column).collect()).unwrap()
}

/// Checks cycles on several vectors against those on each, once with NaN in a column.
fn cycles_equal_those_on_each<T: Real>(what: &str, m: &impl LinearOperator<Vector = CudaVector<T>>) {
    let space = m.domain();
    for count in COUNTS {
        for nan in [None, Some(count / 2)] {
            let mut r = columns(space, count, 70);
            if let Some(at) = nan {
                let mut entries: Vec<T> = laws::numbers(space.len(), 5);
                entries[space.len() / 3] = T::nan();
                r.columns_mut()[at] = space.vector(&entries).unwrap();
            }
            let mut own = columns(space, count, 7);
            let mut own_dots = vec![];
            for (r, z) in r.columns().iter().zip(own.columns_mut()) {
                own_dots.push(m.apply_dot(r, z).unwrap().read().unwrap().to_f64().to_bits());
            }
            let mut z = columns(space, count, 9);
            let is_nan = |j: usize| nan == Some(j);
            let check = |z: &MultiVector<CudaVector<T>>, by: &str| {
                for (j, (z, own)) in bits(z).into_iter().zip(bits(&own)).enumerate() {
                    let what = format!("{what}: column {j} of {count}, {by}");
                    match is_nan(j) {
                        true => assert!(z.iter().any(|&z| f64::from_bits(z).is_nan()), "{what}"),
                        false => assert!(z == own, "{what}"),
                    }
                }
            };
            m.apply_many(&r, &mut z).unwrap();
            check(&z, "apply_many");
            let dots = m.apply_dot_many(&r, &mut z).unwrap();
            check(&z, "apply_dot_many");
            for (j, (dot, own)) in bits_of_scalars(&dots, count).into_iter().zip(own_dots).enumerate() {
                assert!(dot == own || is_nan(j), "{what}: inner product {j} of {count}");
            }
        }
    }
    let (r, mut z) = (columns(space, 2, 1), columns(space, 3, 1));
    assert!(matches!(m.apply_many(&r, &mut z), Err(krysp::solvers::Error::Columns { got: 3, .. })));
    let other = space.gpu().space::<T>(space.len() + 1);
    let (r, mut z) = (columns(&other, 2, 1), columns(space, 2, 1));
    assert!(m.apply_many(&r, &mut z).is_err());
    assert!(m.apply_dot_many(&r, &mut z).is_err());
}

/// Hierarchies with all formats of levels: by diagonals with one and with four rows per lane, in slices with one lane and with many
/// lanes per row, reordered, with rigid body modes, and with unsmoothed aggregation.
fn all_cycles<T: Real>() {
    let gpu = gpu();
    let cycles = |what: &str, a: &Csr<T>, modes: &[Vec<T>]| {
        for smooth_finest in [false, true] {
            let options = AmgOptions { smooth_finest: Some(smooth_finest), ..AmgOptions::default() };
            cycles_equal_those_on_each(what, &Amg::with_on(&gpu, a, modes, options).unwrap());
        }
    };
    let points: Vec<_> = (0..1728).map(|i| [i % 12, i / 12 % 12, i / 144].map(|x| x as f64)).collect();
    let rigid = krysp::rigid_body_modes(&points, krysp::UnknownOrder::ByNode);
    let rigid: Vec<Vec<T>> =
        rigid.iter().map(|mode| mode.iter().map(|&x| T::from_f64(x)).collect()).collect();
    let solid = matrices::elasticity(12).csr::<T>().unwrap();
    cycles("rigid", &solid, &rigid);
    cycles("elasticity", &solid, &[]);
    cycles("stencil", &matrices::stencil7(21).csr::<T>().unwrap(), &[]);
    cycles("long stencil", &matrices::stencil7(68).csr::<T>().unwrap(), &[]);
    cycles("27 points", &matrices::stencil27(16).csr::<T>().unwrap(), &[]);
    let shuffled = matrices::tetrahedra(42, NodeOrder::Shuffled(3)).csr::<T>().unwrap();
    cycles("shuffled", &shuffled, &[]);
    let diagonal = matrices::edge::diagonal(50).csr::<T>().unwrap();
    cycles("one dense level", &diagonal, &[]);
    let copy = Amg::new(&shuffled).unwrap().to(&gpu).unwrap();
    cycles_equal_those_on_each("copied from the host", &copy);
}

gpu_test!(cycles_on_several_vectors_equal_those_on_each_f64);
fn cycles_on_several_vectors_equal_those_on_each_f64() {
    all_cycles::<f64>();
}

gpu_test!(cycles_on_several_vectors_equal_those_on_each_f32);
fn cycles_on_several_vectors_equal_those_on_each_f32() {
    all_cycles::<f32>();
}

gpu_test!(cycles_follow_new_values);
fn cycles_follow_new_values() {
    let gpu = gpu();
    let a = matrices::stencil7(21).csr::<f64>().unwrap();
    let mut m = Amg::on(&gpu, &a).unwrap();
    cycles_equal_those_on_each("before", &m);
    m.refresh(&changed(&a)).unwrap();
    cycles_equal_those_on_each("after", &m);
}

/// One of the operations on vectors, which changes `t` and `u`; returns its sums.
fn operate<V: Vector>(
    which: usize,
    [t, u]: [&mut V; 2],
    [x, y, d]: [&V; 3],
    [a, b, zero]: [&V::Scalar; 3],
) -> Vec<V::Scalar> {
    match which {
        0 => t.axpby(a, x, b),
        1 => t.axpby(a, x, zero),
        2 => t.axpbypcz(a, x, b, y, zero),
        3 => t.axpy_xpby(a, u, x, b),
        4 => t.multiply(d, x),
        5 => t.copy_from(x),
        6 => return x.dot_2(y, x).into(),
        7 => return vec![x.dot(y), x.norm_squared()],
        8 => return t.axpy_dot_2(a, x, y).into(),
        9 => return vec![t.axpy_norm(a, x)],
        10 => return vec![t.multiply_dot(d, x)],
        _ => return t.axpy_multiply_dot(b, y, d, u).into(),
    }
    vec![]
}

/// Operations on several vectors, each in one launch for up to eight, against those on each.
fn operations_equal_those_on_each<T: Real>() {
    let gpu = gpu();
    // no entries, fewer than one vectorized load reads, and more than all resident thread blocks process at once
    for n in [0, 1, 1000, 1_300_001] {
        let space = gpu.space::<T>(n);
        for (count, which) in COUNTS.into_iter().flat_map(|count| (0..12).map(move |which| (count, which))) {
            let what = format!("operation {which} on {count} vectors of {n} entries");
            let [x, y, d] = [1, 100, 200].map(|seed| columns::<T>(&space, count, seed));
            let [mut t, mut u] = [300, 400].map(|seed| columns(&space, count, seed));
            let a = x.dot(&y).quotient(x.norm_squared());
            let (b, zero) = (-y.dot(&d).quotient(d.norm_squared()), Scalars::from(T::zero()));
            let sums = operate(which, [&mut t, &mut u], [&x, &y, &d], [&a, &b, &zero]);
            let sums: Vec<_> = sums.iter().map(|sum| bits_of_scalars(sum, count)).collect();
            let [mut own_t, mut own_u] = [300, 400].map(|seed| columns(&space, count, seed));
            for (j, (t, u)) in own_t.columns_mut().iter_mut().zip(own_u.columns_mut()).enumerate() {
                let operands = [&x, &y, &d].map(|x| &x.columns()[j]);
                let own = operate(which, [t, u], operands, [&a, &b, &zero].map(|a| a.column(j)));
                for (own, all) in own.iter().zip(&sums) {
                    assert_eq!(own.read().unwrap().to_f64().to_bits(), all[j], "{what}: sum {j}");
                }
            }
            assert!(bits(&t) == bits(&own_t) && bits(&u) == bits(&own_u), "{what}");
        }
    }
}

gpu_test!(operations_on_several_vectors_equal_those_on_each_f64);
fn operations_on_several_vectors_equal_those_on_each_f64() {
    operations_equal_those_on_each::<f64>();
}

gpu_test!(operations_on_several_vectors_equal_those_on_each_f32);
fn operations_on_several_vectors_equal_those_on_each_f32() {
    operations_equal_those_on_each::<f32>();
}

gpu_test!(load_cases_with_multigrid_end_as_their_own_solves);
fn load_cases_with_multigrid_end_as_their_own_solves() {
    let gpu = gpu();
    let a = matrices::elasticity(12).csr::<f64>().unwrap();
    let large = Large { inner: a.to(&gpu).unwrap(), joint: AtomicUsize::new(0) };
    let (own, m) = (a.to(&gpu).unwrap(), Amg::on(&gpu, &a).unwrap());
    let jacobi = Jacobi::new(&a).unwrap().to(&gpu).unwrap();
    // lockstep does not pay for few columns of a small matrix, because the host waits in each step, nor instead of resident solves, which
    // need few launches
    let runs = |columns| Cg::new(&own).preconditioner(&m).runs_in_lockstep(columns);
    let runs_on_chip = |columns| Cg::new(&own).preconditioner(&jacobi).runs_in_lockstep(columns);
    assert_eq!([2, 4, 16].map(runs), [false, true, true]);
    assert_eq!([2, 4, 16].map(runs_on_chip), [false; 3]);
    for count in [2, 3, 8, 17] {
        let mut b: Vec<Vec<f64>> = (0..count).map(|j| laws::numbers(a.rows(), j as u64)).collect();
        b[1][7] = f64::NAN;
        let before = large.joint.load(Relaxed);
        let together = Cg::new(&large).preconditioner(&m).rtol(1e-9).solve_many(&b).unwrap();
        assert!(large.joint.load(Relaxed) > before, "lockstep");
        let mut alone = Cg::new(&own).preconditioner(&m).rtol(1e-9);
        for (j, (b, together)) in b.iter().zip(&together).enumerate() {
            let alone = alone.solve(b).unwrap().report;
            let report = &together.report;
            if j == 1 {
                assert!(matches!(report.outcome, Outcome::NotFinite { .. }), "{report}");
                continue;
            }
            assert_eq!(alone.outcome, report.outcome, "column {j} of {count}");
            assert_eq!(alone.iterations, report.iterations, "column {j} of {count}");
            let (truth, norm) = (residual(&a, b, &together.x), report.rhs_norm);
            assert!(truth <= 1.001e-9 * norm, "column {j}: {truth:e} of {norm:e}");
        }
    }
}
