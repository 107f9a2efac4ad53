//! A second solve allocates nothing, nor does a second product with several vectors.
//!
//! Within a pool of threads no allocation is allowed. From outside, rayon's queue hands each parallel operation to the
//! pool and sometimes allocates a block, so the test allows a bounded number.
//!
//! This file has one test only, so that nothing else allocates at the same time.

use krysp::solvers::{Method, MultiVector};
use krysp::testing::matrices;
use krysp::{
    BiCgStab, Cg, Chebyshev, Csr, Fcg, Fgmres, Gmres, Host, HostVector, Idr, Jacobi, LinearOperator, Minres,
    Operator, Outcome, PipelinedCg, solvers::Solver,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed to the system's allocator.
#[allow(unsafe_code, reason = "an allocator is unsafe by nature")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the requirements of `GlobalAlloc`, which are those of `System`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the requirements of `GlobalAlloc`, which are those of `System`
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the requirements of `GlobalAlloc`, which are those of `System`
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations of the second and third solve together, and the iterations of one solve.
fn allocations<K, M>(mut solver: Solver<K, &Csr<f64>, M>, a: &Csr<f64>) -> (usize, usize)
where
    K: Method<HostVector<f64>>,
    M: LinearOperator<Vector = HostVector<f64>>,
{
    let b = a.domain().vector(&matrices::vector(a.rows())).unwrap();
    let [mut x, mut y, mut z] = [0; 3].map(|_| HostVector::from_slice(&vec![0.0; a.rows()]));
    let report = solver.solve_into(&b, &mut x).unwrap();
    assert_eq!(report.outcome, Outcome::Converged);
    let iterations = report.iterations;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    solver.solve_into(&b, &mut y).unwrap();
    solver.solve_into(&b, &mut z).unwrap();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!((x.as_slice(), x.as_slice()), (y.as_slice(), z.as_slice()));
    (allocations, iterations)
}

fn every_method(a: &Csr<f64>, each: impl Fn(&str, usize, usize)) {
    let jacobi = Jacobi::new(a).unwrap();
    let (count, iterations) = allocations(Cg::new(a).rtol(1e-4).preconditioner(&jacobi), a);
    each("CG", count, iterations);
    let (count, iterations) = allocations(BiCgStab::new(a).rtol(1e-4).preconditioner(&jacobi), a);
    each("BiCGStab", count, iterations);
    let (count, iterations) = allocations(Idr::new(a).rtol(1e-4).preconditioner(&jacobi), a);
    each("IDR(4)", count, iterations * 2);
    let (count, iterations) = allocations(Gmres::new(a).rtol(1e-3).restart(10), a);
    each("GMRES", count, iterations);
    let (count, iterations) = allocations(Minres::new(a).rtol(1e-2).preconditioner(&jacobi), a);
    each("MINRES", count, iterations);
    let (count, iterations) = allocations(PipelinedCg::new(a).rtol(1e-2).preconditioner(&jacobi), a);
    each("pipelined CG", count, iterations * 2);
    let (count, iterations) = allocations(Fcg::new(a).rtol(1e-2).preconditioner(&jacobi), a);
    each("flexible CG", count, iterations);
    let (count, iterations) = allocations(Fgmres::new(a).rtol(1e-2).restart(10), a);
    each("flexible GMRES", count, iterations);
    let polynomial = Chebyshev::new(a, &jacobi, 2).unwrap();
    let (count, iterations) = allocations(Cg::new(a).rtol(1e-2).preconditioner(&polynomial), a);
    each("CG with a polynomial", count, iterations * 4);
}

/// Vectors of a space, one for each column, from a function of row and column.
fn vectors(a: &Csr<f64>, columns: usize, of: impl Fn(usize, usize) -> f64) -> MultiVector<HostVector<f64>> {
    let column = |j| HostVector::from_slice(&(0..a.rows()).map(|i| of(i, j)).collect::<Vec<_>>());
    MultiVector::from_columns(a.domain(), (1..=columns).map(column).collect()).unwrap()
}

/// The allocations of the second solve of several systems by a method of a solver. Initial guesses are not zero, and columns end in
/// different iterations.
macro_rules! of_columns {
    ($a:expr, $columns:expr, $solver:expr, $solve:ident) => {{
        let (a, mut solver) = ($a, $solver);
        let b = vectors(a, $columns, |i, j| ((i * j) % 17) as f64 - 8.0);
        let [mut x, mut y] = [0; 2].map(|_| vectors(a, $columns, |_, j| (j % 3) as f64));
        let iterations: Vec<usize> =
            solver.$solve(&b, &mut x).unwrap().iter().map(|report| report.iterations).collect();
        assert!(iterations.iter().all(|&iterations| iterations > 3), "{iterations:?}");
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let reports = solver.$solve(&b, &mut y).unwrap();
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(reports.iter().map(|report| report.iterations).eq(iterations));
        assert!(reports.iter().all(|report| report.converged()));
        assert!(x.columns().iter().zip(y.columns()).all(|(x, y)| x.as_slice() == y.as_slice()));
        count
    }};
}

fn every_joint_method(a: &Csr<f64>, each: impl Fn(&str, usize)) {
    let jacobi = Jacobi::new(a).unwrap();
    let cg = || Cg::new(a).rtol(1e-4).preconditioner(&jacobi);
    each("CG in lockstep", of_columns!(a, 5, cg(), solve_many_into));
    each("CG in lockstep, two groups", of_columns!(a, 19, cg(), solve_many_into));
    each("CG without a preconditioner", of_columns!(a, 3, Cg::new(a).rtol(1e-4), solve_many_into));
    each("BiCGStab", of_columns!(a, 5, BiCgStab::new(a).rtol(1e-4), solve_many_into));
    each("MINRES", of_columns!(a, 5, Minres::new(a).rtol(1e-4).preconditioner(&jacobi), solve_many_into));
    // solved one after the other
    each("GMRES", of_columns!(a, 2, Gmres::new(a).rtol(1e-3).restart(10), solve_many_into));
    each("block CG", of_columns!(a, 5, cg(), solve_block_into));
    each("block CG, two groups", of_columns!(a, 19, cg(), solve_block_into));
    each("block CG without a preconditioner", of_columns!(a, 3, Cg::new(a).rtol(1e-4), solve_block_into));
    let gmres = || Gmres::new(a).rtol(1e-4).restart(6).preconditioner(&jacobi);
    each("block GMRES", of_columns!(a, 5, gmres(), solve_block_into));
    each("block GMRES, two groups", of_columns!(a, 19, gmres(), solve_block_into));
    each(
        "block GMRES without a preconditioner",
        of_columns!(a, 3, Gmres::new(a).rtol(1e-4), solve_block_into),
    );
}

/// Allocations of the second product of a matrix with this many vectors, in a format.
fn of_products(a: &Csr<f64>, format: &str, count: usize) -> usize {
    let operator = Operator::in_format(a, &Host, format).unwrap();
    let x = vec![HostVector::from_slice(&matrices::vector(a.rows())); count];
    let x = MultiVector::from_columns(a.domain(), x).unwrap();
    let mut y = MultiVector::<HostVector<f64>>::zeros(a.range(), count).unwrap();
    operator.apply_many(&x, &mut y).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    operator.apply_many(&x, &mut y).unwrap();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_second_solve_allocates_nothing() {
    let elasticity = matrices::elasticity(8).csr::<f64>().unwrap();
    for (side, threads) in [(8, 1), (8, 3), (28, 1), (28, 2), (28, 3)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        // threads allocate when they start and when they first look for work
        pool.broadcast(|_| ());
        std::thread::sleep(std::time::Duration::from_millis(50));
        pool.install(|| {
            let a = matrices::stencil7(side).csr::<f64>().unwrap();
            every_method(&a, |method, count, _| {
                assert_eq!(count, 0, "{method} on {} rows, {threads} threads", a.rows());
            });
            // all matrices with all numbers of threads took half a minute more
            let of_columns: &[&Csr<f64>] = match (side, threads) {
                (8, 3) => &[&a, &elasticity],
                (8, 1) | (28, 2) => &[&a],
                _ => &[],
            };
            for &a in of_columns {
                every_joint_method(a, |method, count| {
                    assert_eq!(count, 0, "{method} on {} rows, {threads} threads", a.rows());
                });
            }
            for (a, formats) in
                [(&a, &["CSR", "DIA", "SELL-P", "COO"][..]), (&elasticity, &["BSR", "DIA"][..])]
            {
                for (format, count) in formats.iter().flat_map(|format| [3, 8, 11].map(|k| (format, k))) {
                    let made = of_products(a, format, count);
                    assert_eq!(made, 0, "{format}, {count} vectors, {threads} threads");
                }
            }
            let floating = matrices::stencil7(side).zero_row_sums().csr::<f64>().unwrap();
            let constants = [vec![1.0; floating.rows()]];
            let solver = Cg::new(&floating).null_space(&constants).unwrap().rtol(1e-2);
            assert_eq!(allocations(solver, &floating).0, 0, "{side}, {threads} threads");
        });
    }
    // from outside the pool: the queue allocates a block for every 63 jobs, and an iteration makes fewer than 20
    for side in [8, 28] {
        let a = matrices::stencil7(side).csr::<f64>().unwrap();
        every_method(&a, |method, count, iterations| {
            println!(
                "{method} on {} rows from outside the pool: {count} in 2 x {iterations} iterations",
                a.rows()
            );
            let handed_over = 2 * (iterations + 3) * 20;
            assert!(count <= handed_over / 63 + 2, "{method}: {count}");
        });
    }
}
