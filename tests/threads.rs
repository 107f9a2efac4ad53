//! Results have the same bits for every number of threads, and all work runs in the thread pool of the caller.
//!
//! This file has one test only: it fails if anything in its process starts Rayon's global pool.

use krysp::solvers::MultiVector;
use krysp::testing::laws::{self, Agreement};
use krysp::testing::matrices;
use krysp::{
    Amg, BasicVector, Cg, Cholesky, Csr, Element, EliminationOrder, Format, Fsai, HostSpace, HostVector, Ic0,
    Ilu0, Ilut, Jacobi, Ldl, LinearOperator, Lu, Matching, Permutation, Plan, Real, Refresh, Side, Space,
    Spai, Sparsity, TwoLevel, Vector, elimination_order,
};

/// The bits of every result, with its name.
#[derive(Default)]
struct Results(Vec<(String, Vec<u64>)>);

impl Results {
    fn numbers<T: Real>(&mut self, name: &str, numbers: &[T]) {
        self.0.push((name.into(), numbers.iter().map(|&x| Element::to_f64(x).to_bits()).collect()));
    }

    fn indices(&mut self, name: &str, indices: &[u32]) {
        self.0.push((name.into(), indices.iter().map(|&i| i.into()).collect()));
    }

    /// Adds the product with a vector, and their inner product.
    fn operator<T: Real>(&mut self, name: &str, a: &dyn LinearOperator<Vector = HostVector<T>>) {
        let x = a.domain().vector(&laws::numbers::<T>(a.domain().len(), 1)).unwrap();
        let mut y = a.range().zeros().unwrap();
        let sum = a.apply_dot(&x, &mut y).unwrap();
        self.numbers(name, &[y.as_slice(), &[sum]].concat());
        let xs: Vec<_> =
            (1..4).map(|seed| x.space().vector(&laws::numbers(x.space().len(), seed)).unwrap()).collect();
        let xs = MultiVector::from_columns(a.domain(), xs).unwrap();
        let mut ys = MultiVector::zeros(a.range(), 3).unwrap();
        a.apply_many(&xs, &mut ys).unwrap();
        for y in ys.columns() {
            self.numbers(&format!("{name}, three vectors"), y.as_slice());
        }
    }

    /// Adds products in a format, or returns false if the format does not suit the matrix.
    fn format<T: Real, F: Format<T>>(&mut self, a: &Csr<T>) -> bool {
        F::new(a).map(|format| self.operator(F::NAME, &format)).is_ok()
    }

    fn products<T: Real>(&mut self, matrices: &[Csr<T>]) {
        macro_rules! each {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
                let suits = |a| self.format::<T, krysp::$format<T>>(a);
                assert!(matrices.iter().map(suits).filter(|&suits| suits).count() > 0, stringify!($format));
            )*};
        }
        krysp::each_format!(each);
    }

    fn vectors<T: Real>(&mut self) {
        let space = HostSpace::<T>::new(60_000);
        laws::vector_fusions(&space, Agreement::Bitwise).unwrap();
        laws::basis_fusions(&space, Agreement::Bitwise).unwrap();
        let [x, mut y] = [1, 2].map(|seed| space.vector(&laws::numbers::<T>(space.len(), seed)).unwrap());
        y.axpby(&T::from_f64(0.3), &x, &T::from_f64(0.7));
        self.numbers("axpby", y.as_slice());
        self.numbers("dot", &[x.dot(&y), y.norm_squared()]);
    }

    /// Adds what preconditioners, orderings and plans find for a symmetric positive definite matrix and for an unsymmetric
    /// one.
    fn solvers<T: Real>(&mut self, spd: &Csr<T>, general: &Csr<T>) {
        for (name, a) in [("SPD", spd), ("general", general)] {
            let mut add = |kind: &str, m: &dyn LinearOperator<Vector = HostVector<T>>| {
                self.operator(&format!("{kind}, {name}"), m);
            };
            add("Jacobi", &Jacobi::new(a).unwrap());
            add("Jacobi of blocks", &Jacobi::blocks(a, 7).unwrap());
            add("Ilu0", &Ilu0::new(a).unwrap());
            add("Ilut", &Ilut::new(a).unwrap());
            add("Lu", &Lu::new(a).unwrap());
            add("Spai", &Spai::with_pattern(a, Side::Right, Sparsity::Power(1)).unwrap());
        }
        let mut add = |kind: &str, m: &dyn LinearOperator<Vector = HostVector<T>>| self.operator(kind, m);
        add("Ic0", &Ic0::new(spd).unwrap());
        add("Fsai", &Fsai::new(spd).unwrap());
        add("adaptive Fsai", &Fsai::adaptive(spd, Sparsity::Power(1), Fsai::<T>::GROWTH).unwrap());
        add("TwoLevel", &TwoLevel::new(spd).unwrap());
        add("Cholesky", &Cholesky::new(spd).unwrap());
        add("Ldl", &Ldl::new(spd).unwrap());
        let mut amg = Amg::new(spd).unwrap();
        add("Amg", &amg);
        amg.refresh(spd).unwrap();
        add("refreshed Amg", &amg);

        let b = laws::numbers::<T>(spd.rows(), 5);
        self.numbers("Cg", Cg::new(spd).preconditioner(&amg).solve(&b).unwrap().x.as_slice());
        for (name, a) in [("solve, SPD", spd), ("solve, general", general)] {
            self.numbers(name, &krysp::solve(a, &b).unwrap().x);
        }
        for solved in Plan::new(spd)
            .unwrap()
            .build()
            .unwrap()
            .solve_many(&[&b, &laws::numbers::<T>(b.len(), 6)])
            .unwrap()
        {
            self.numbers("solve_many", &solved.x);
        }
        for (name, a) in [("SPD", spd), ("general", general)] {
            let mut add =
                |kind, order: Permutation| self.indices(&format!("{kind}, {name}"), order.old_of_new());
            add("rcm", Permutation::rcm(a).unwrap());
            add("clustered", Permutation::clustered(a, 500).unwrap());
            add("by length", Permutation::by_length(a).unwrap());
            self.indices(&format!("matching, {name}"), Matching::of(a).unwrap().rows());
        }
    }
}

fn results() -> Vec<(String, Vec<u64>)> {
    let mut results = Results::default();
    let stencil = matrices::stencil7(20).csr::<f64>().unwrap();
    let n = stencil.rows();
    let wind = |(i, j, v): (usize, usize, f64)| (i, j, if j > i { 0.4 * v } else { v });
    let far = (0..n / 3).map(|k| (k, n - 1 - k, 0.25));
    let general =
        Csr::from_triplets(n, n, &stencil.triplets().map(wind).chain(far).collect::<Vec<_>>()).unwrap();
    let elasticity = matrices::elasticity(10).csr::<f64>().unwrap();
    results.vectors::<f64>();
    results.vectors::<f32>();
    results.products(&[stencil.clone(), elasticity.clone()]);
    results.products(&[stencil.cast::<f32>(), elasticity.cast::<f32>()]);
    results.solvers(&stencil, &general);
    for ordering in EliminationOrder::ALL {
        results.indices("elimination order", &elimination_order(&elasticity, ordering).unwrap());
    }
    results.0
}

#[test]
fn results_do_not_depend_on_the_pool_in_which_all_work_runs() {
    let mut first: Option<Vec<(String, Vec<u64>)>> = None;
    for pool in laws::pools().unwrap() {
        let started = std::time::Instant::now();
        let found = pool.install(results);
        println!(
            "{} results on {} threads, {:?}",
            found.len(),
            pool.current_num_threads(),
            started.elapsed()
        );
        let first = first.get_or_insert_with(|| found.clone());
        let differing = found.iter().zip(&*first).filter(|(found, first)| found != first);
        let differing: Vec<&str> = differing.map(|((name, _), _)| name.as_str()).collect();
        assert!(differing.is_empty(), "{differing:?} differ on {} threads", pool.current_num_threads());
    }
    let global = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    assert!(global.is_ok(), "something ran in the global pool instead of that of the caller");
}
