//! Algebraic multigrid on a GPU has the aggregates of the host, gives the same cycle up to rounding, and
//! takes the same number of iterations.

use super::gpu;
use super::multigrid_on_host::{OnHost, options};
use super::preconditioners::changed;
use krysp::formats::OnDevice;
use krysp::testing::laws::{self, Agreement, Multigrid, Reference, Relation};
use krysp::testing::matrices::{self, NodeOrder as Order, edge};
use krysp::{
    Amg, AmgOptions, Cg, Csr, Cuda, Element, Error, LinearOperator, Permutation, Real, Refresh, Result, Sell,
    Solution, Space, ToCuda, UnknownOrder, rigid_body_modes,
};

const CONSTANTS: &[Vec<f64>] = &[];

/// Checks that `M r` of host and GPU agree, relative to the largest entry.
fn same_application<T: Real>(
    host: &impl LinearOperator<Vector = krysp::HostVector<T>>,
    device: &impl LinearOperator<Vector = krysp::CudaVector<T>>,
    tolerance: f64,
) {
    let numbers = laws::numbers::<T>(host.domain().len(), 7);
    let (x, mut y) = (host.domain().vector(&numbers).unwrap(), host.domain().zeros().unwrap());
    host.apply(&x, &mut y).unwrap();
    let space = device.domain();
    assert!(space.host() == host.domain() && device.replays());
    let (x, mut z) = (space.vector(&numbers).unwrap(), space.zeros().unwrap());
    let bits = |z: &krysp::CudaVector<T>| {
        let mut entries = vec![T::default(); numbers.len()];
        space.store(z, &mut entries).unwrap();
        entries
    };
    device.apply(&x, &mut z).unwrap();
    let theirs = bits(&z);
    device.apply(&x, &mut z).unwrap();
    assert!(theirs == bits(&z), "the same bits from run to run");
    let mut ours = vec![T::default(); numbers.len()];
    host.domain().store(&y, &mut ours).unwrap();
    let largest = ours.iter().fold(0.0, |most: f64, v| most.max(Element::to_f64(*v).abs()));
    let error = ours.iter().zip(&theirs).fold(0.0, |most: f64, (h, d)| {
        let off = (Element::to_f64(*h) - Element::to_f64(*d)).abs();
        if off.is_nan() { f64::INFINITY } else { most.max(off) }
    });
    assert!(error <= tolerance * largest, "{error:e} of {largest:e}");
}

/// Coefficient jumps of 1e3, Dirichlet rows, an isolated node, and a row of zeros.
fn irregular(side: usize) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let n = stencil.rows();
    let soft = |i: usize| i % side < side / 2;
    let dirichlet = |i: usize| i % 97 == 5;
    let entries = stencil.triplets().filter_map(|(i, j, v)| {
        let scale = if soft(i) && soft(j) { 1e3 } else { 1.0 };
        let diagonal = if i == j && soft(i) { 1e3 } else { scale };
        match i == j {
            true => Some((i, j, v * diagonal)),
            false if dirichlet(i) || dirichlet(j) => None,
            false => Some((i, j, v * scale)),
        }
    });
    let all: Vec<_> = entries.chain([(n, n, 3.0), (n + 1, n + 1, 0.0)]).collect();
    Csr::from_triplets(n + 2, n + 2, &all).unwrap()
}

/// An ordering without locality, with column distances beyond 16 bits, and some Dirichlet rows.
fn shuffled(side: usize) -> Csr<f64> {
    let a = matrices::tetrahedra(side, Order::Shuffled(1)).csr::<f64>().unwrap();
    let dirichlet = |i: usize| i % 97 == 5;
    let kept = |&(i, j, _): &(usize, usize, f64)| i == j || !(dirichlet(i) || dirichlet(j));
    let entries: Vec<_> = a.triplets().filter(kept).collect();
    Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap()
}

/// Stretched cells: weak connections along two directions.
fn anisotropic(side: usize) -> Csr<f64> {
    let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
    let weak = |i: usize, j: usize| i.abs_diff(j) != 1;
    let entries = stencil.triplets().map(|(i, j, v)| {
        let scale = if weak(i, j) { 1e-2 } else { 1.0 };
        (i, j, if i == j { 2.05 } else { v * scale })
    });
    Csr::from_triplets(stencil.rows(), stencil.rows(), &entries.collect::<Vec<_>>()).unwrap()
}

/// A matrix without a few entries, so that the rows of a node differ.
fn with_holes(a: &Csr<f64>) -> Csr<f64> {
    let kept = |&(i, j, _): &(usize, usize, f64)| i == j || !(i + j).is_multiple_of(101);
    let entries: Vec<_> = a.triplets().filter(kept).collect();
    Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap()
}

/// Systems, and the matrices with which they are refreshed.
fn systems() -> Vec<(&'static str, Csr<f64>, Csr<f64>)> {
    let stencil = matrices::stencil7(24).csr::<f64>().unwrap();
    let permutation = Permutation::clustered(&stencil, 300).unwrap();
    let [clustered, other] = [&stencil, &changed(&stencil)].map(|a| a.reordered(&permutation).unwrap());
    let mut systems = [
        ("stencil", stencil),
        ("tetrahedra", matrices::tetrahedra(14, Order::Natural).csr().unwrap()),
        ("27 points", matrices::stencil27(16).csr().unwrap()),
        ("elasticity", matrices::elasticity(9).csr().unwrap()),
        ("elasticity with holes", with_holes(&matrices::elasticity(9).csr().unwrap())),
        ("irregular", irregular(18)),
        ("anisotropic", anisotropic(20)),
        ("shuffled", shuffled(42)),
        ("diagonal", edge::diagonal(50).csr().unwrap()),
        ("one row", edge::diagonal(1).csr().unwrap()),
        ("nothing", Csr::from_triplets::<usize>(0, 0, &[]).unwrap()),
    ]
    .into_iter()
    .map(|(name, a)| {
        let other = changed(&a);
        (name, a, other)
    })
    .collect::<Vec<_>>();
    systems.push(("clustered", clustered, other));
    systems
}

gpu_test!(cycles_are_those_of_the_host);
fn cycles_are_those_of_the_host() {
    let gpu = gpu();
    for (name, a, other) in systems() {
        eprintln!("{name}");
        for (smooth_finest, copied) in [(false, false), (false, true), (true, false), (true, true)] {
            let memory = OnGpu { gpu: gpu.clone(), copied };
            let mut host = OnHost.build(&a, CONSTANTS, smooth_finest).unwrap();
            let mut device = memory.build(&a, CONSTANTS, smooth_finest).unwrap();
            same_application(&host, &device, if copied { 2e-5 } else { 1e-4 });
            assert_eq!(device.aggregates().unwrap(), host.aggregates(), "{name}");
            laws::operator_fusions(&device, Agreement::Rounding).unwrap();
            laws::stale_values(&device).unwrap();
            // from values in host memory
            let again = match copied {
                true => memory.build(&a, CONSTANTS, smooth_finest),
                false => Amg::with_on(&gpu, &a, CONSTANTS, options(smooth_finest)),
            };
            same_bits(&gpu, &device, &again.unwrap());
            let there = Sell::on(&gpu, &other).unwrap();
            let origins: [&dyn krysp::MatrixSource<f64>; 2] = [&other, &there];
            for origin in origins {
                device.refresh(origin).unwrap();
                host.refresh(origin).unwrap();
                same_application(&host, &device, 1e-4);
            }
            assert!(device.refresh(&matrices::stencil7(3).csr::<f64>().unwrap()).is_err());
        }
        let single = Amg::with::<Vec<f32>>(&a.cast::<f32>(), &[], options(true)).unwrap();
        same_application(&single, &single.to(&gpu).unwrap(), 2e-5);
        for smooth_finest in [false, true] {
            let options = options(smooth_finest);
            let single = Amg::with_on::<Vec<f32>>(&gpu, &a.cast::<f32>(), &[], options).unwrap();
            laws::stale_values(&single).unwrap();
        }
    }
}

/// Two setups for one matrix are bitwise equal.
fn same_bits(
    gpu: &Cuda,
    one: &impl LinearOperator<Vector = krysp::CudaVector<f64>>,
    other: &impl LinearOperator<Vector = krysp::CudaVector<f64>>,
) {
    let numbers = laws::numbers::<f64>(one.domain().len(), 4);
    let x = one.domain().vector(&numbers).unwrap();
    let [mut y, mut z] = [0; 2].map(|_| one.domain().zeros().unwrap());
    one.apply(&x, &mut y).unwrap();
    other.apply(&x, &mut z).unwrap();
    let [mut a, mut b] = [0; 2].map(|_| vec![0.0; numbers.len()]);
    one.domain().store(&y, &mut a).unwrap();
    one.domain().store(&z, &mut b).unwrap();
    gpu.synchronize().unwrap();
    assert!(a == b);
}

gpu_test!(solves_take_the_iterations_of_the_host);
fn solves_take_the_iterations_of_the_host() {
    let gpu = gpu();
    let points: Vec<_> = (0..1728).map(|i| [i % 12, i / 12 % 12, i / 144].map(|x| x as f64)).collect();
    let rigid = rigid_body_modes(&points, UnknownOrder::ByNode);
    for (name, a, modes) in [
        ("stencil", matrices::stencil7(48).csr::<f64>().unwrap(), CONSTANTS),
        ("tetrahedra", matrices::tetrahedra(30, Order::Natural).csr().unwrap(), CONSTANTS),
        ("shuffled", shuffled(42), CONSTANTS),
        ("elasticity", matrices::elasticity(12).csr().unwrap(), CONSTANTS),
        ("rigid", matrices::elasticity(12).csr().unwrap(), &rigid[..]),
    ] {
        let b = laws::numbers(a.rows(), 3);
        let on_host = |smooth_finest| {
            let m = Amg::with(
                &a,
                modes,
                AmgOptions { smooth_finest: Some(smooth_finest), ..AmgOptions::default() },
            )
            .unwrap();
            let solution = Cg::new(&a).preconditioner(&m).rtol(1e-9).solve(&b).unwrap();
            (m, solution)
        };
        // without an option, the finest level is smoothed on a GPU
        let (_, host) = on_host(true);
        let there = a.to(&gpu).unwrap();
        let m = Amg::with_near_null_space_on(&gpu, &there, modes).unwrap();
        eprintln!("{name}: {} iterations\n{m}", host.report.iterations);
        let mut solver = Cg::new(&there).preconditioner(&m).rtol(1e-9);
        for _ in 0..2 {
            // the second solve replays the recorded steps
            follows(&a, &b, &host, &solver.solve(&b).unwrap());
        }
        for (m, host) in [false, true].map(on_host) {
            let copy = m.to(&gpu).unwrap();
            let solution = Cg::new(&there).preconditioner(copy).rtol(1e-9).solve(&b).unwrap();
            follows(&a, &b, &host, &solution);
        }
    }
}

/// A solve needs as many iterations as on the host, plus or minus one, because cycles are in single precision.
fn follows(a: &Csr<f64>, b: &[f64], host: &Solution<f64>, device: &Solution<f64>) {
    assert!(host.report.converged() && device.report.converged(), "{}", device.report);
    let (h, d) = (host.report.iterations, device.report.iterations);
    assert!(h.abs_diff(d) <= 1, "{h} iterations on the host, {d} on the device");
    let size = b.iter().map(|b| b * b).sum::<f64>().sqrt();
    let left = super::residual(a, b, &device.x);
    assert!(left <= 1.1e-9 * size, "{left:e} of {size:e}");
}

gpu_test!(what_is_not_positive_is_refused);
fn what_is_not_positive_is_refused() {
    let gpu = gpu();
    let entries = [(0, 0, 2.0), (1, 1, -1.0), (2, 2, 1.0)];
    let a = Csr::from_triplets(3, 3, &entries).unwrap();
    assert!(matches!(Amg::on(&gpu, &a), Err(Error::NotPositive { row: 1, pivot, .. }) if pivot == -1.0));
    let options = AmgOptions { sweeps: 0, ..AmgOptions::default() };
    assert!(matches!(Amg::with_on(&gpu, &a, CONSTANTS, options), Err(Error::Option { .. })));
}

/// Hierarchies that are built on the GPU, or in host memory and then copied.
struct OnGpu {
    gpu: Cuda,
    copied: bool,
}

impl Multigrid for OnGpu {
    type Hierarchy = krysp::preconditioners::amg::OnGpu<f64>;

    fn build(&self, a: &Csr<f64>, modes: &[Vec<f64>], smooth_finest: bool) -> Result<Self::Hierarchy> {
        match self.copied {
            true => OnHost.build(a, modes, smooth_finest)?.to(&self.gpu),
            false => Amg::with_on(&self.gpu, &a.to(&self.gpu)?, modes, options(smooth_finest)),
        }
    }

    fn refresh(&self, m: &mut Self::Hierarchy, a: &Csr<f64>) -> Result<()> {
        m.refresh(&Sell::on(&self.gpu, a)?)
    }

    fn aggregates(&self, m: &Self::Hierarchy) -> Result<Vec<Vec<Option<u32>>>> {
        m.aggregates()
    }

    fn solve(&self, m: &Self::Hierarchy, a: &Csr<f64>, b: &[f64]) -> Result<Solution<f64>> {
        Ok(Cg::new(a.to(&self.gpu)?).preconditioner(m).rtol(1e-8).solve(b)?)
    }

    fn table(&self, m: &Self::Hierarchy) -> String {
        m.to_string()
    }
}

gpu_test!(features_are_those_of_the_host);
fn features_are_those_of_the_host() {
    // cycles are in single precision
    let iterations = |host: usize| host.saturating_sub(1)..=host + 1;
    let on_host = Reference::of(&OnHost).unwrap();
    for copied in [false, true] {
        let relation = Relation { same_aggregates: true, iterations };
        laws::multigrid(&on_host, &OnGpu { gpu: gpu(), copied }, relation).unwrap();
    }
}
