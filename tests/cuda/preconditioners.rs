//! Preconditioners built on a GPU equal those built in host memory.

use super::gpu;
use krysp::formats::{Ell, Halo, OnDevice, Rounded, Sell};
use krysp::preconditioners::{fsai, spai};
use krysp::solvers::Element;
use krysp::testing::laws::{self};
use krysp::testing::matrices::{self, NodeOrder};
use krysp::{BiCgStab, Cg, Csr, Cuda, Error, Fsai, Growth, Real, Refresh, Side, Spai, Sparsity, ToCuda};

/// Checks that both matrices have one pattern, and that rows agree to `tolerance` times their largest entry.
pub(super) fn close<T: Real>(host: &Csr<T>, device: &Csr<T>, tolerance: f64) {
    assert_eq!(host.offsets(), device.offsets());
    assert_eq!(host.columns(), device.columns());
    for row in 0..host.rows() {
        let largest = host.row_values(row).iter().map(|&v| Element::to_f64(v).abs()).fold(0.0, f64::max);
        for (&h, &d) in host.row_values(row).iter().zip(device.row_values(row)) {
            let (h, d) = (Element::to_f64(h), Element::to_f64(d));
            assert!(
                (h - d).abs() <= tolerance * largest,
                "row {row}: {h:e} on the host, {d:e} on the device"
            );
        }
    }
}

pub(super) fn same_factors<T: Real, F: OnDevice<T>>(
    host: &Fsai<T>,
    device: &fsai::OnGpu<T, F>,
    tolerance: f64,
) {
    close(host.lower(), &device.lower().to_csr().unwrap(), tolerance);
    close(host.upper(), &device.upper().to_csr().unwrap(), tolerance);
}

/// The matrix with other values and a larger diagonal.
pub(super) fn changed<T: Real>(a: &Csr<T>) -> Csr<T> {
    let larger = |(i, j, v): (usize, usize, T)| {
        if i == j { <T as Element>::from_f64(Element::to_f64(v) * (1.5 + (i % 7) as f64)) } else { v }
    };
    a.with_values(&a.triplets().map(larger).collect::<Vec<_>>()).unwrap()
}

fn fsai_equals_that_of_the_host<T: Real>(gpu: &Cuda, tolerance: f64) {
    let tetrahedra = matrices::tetrahedra(12, NodeOrder::Natural).csr::<T>().unwrap();
    let elastic = matrices::elasticity(7).csr::<T>().unwrap();
    // a reordered matrix takes new values in the user's order, not in its own
    let permutation = krysp::Permutation::rcm(&elastic).unwrap();
    let [elastic, changed_elastic] =
        [elastic.clone(), changed(&elastic)].map(|a| a.reordered(&permutation).unwrap());
    let stencil = matrices::stencil27(9).csr().unwrap();
    let changes =
        [(&tetrahedra, &changed(&tetrahedra)), (&elastic, &changed_elastic), (&stencil, &changed(&stencil))];
    for (a, b) in changes {
        let mut device = Fsai::on(gpu, a).unwrap();
        same_factors(&Fsai::new(a).unwrap(), &device, tolerance);
        device.refresh(b).unwrap();
        same_factors(&Fsai::new(b).unwrap(), &device, tolerance);
    }
    // rows of many lengths, and other formats
    for power in 0..4 {
        let sparsity = Sparsity::Power(power);
        let host = Fsai::with_pattern(&tetrahedra, sparsity).unwrap();
        let longest = host.lower().row_lengths().max().unwrap();
        assert!(power < 3 || longest > 64, "{longest}");
        let device = Fsai::with_pattern_on::<Sell<T>>(gpu, &tetrahedra, sparsity).unwrap();
        same_factors(&host, &device, tolerance);
    }
    let grown = Fsai::adaptive(&elastic, Sparsity::Power(1), Fsai::<T>::GROWTH).unwrap();
    let pattern = Sparsity::Of(grown.lower());
    let mut device = Fsai::with_pattern_on::<Halo<T>>(gpu, &elastic, pattern).unwrap();
    same_factors(&grown, &device, tolerance);
    device.refresh(&elastic).unwrap();
    same_factors(&grown, &device, tolerance);
    let device = Fsai::with_pattern_on::<Ell<T>>(gpu, &elastic, pattern).unwrap();
    same_factors(&grown, &device, tolerance);
}

gpu_test!(fsai_equals_that_of_the_host_f64);
fn fsai_equals_that_of_the_host_f64() {
    let gpu = gpu();
    fsai_equals_that_of_the_host::<f64>(&gpu, 1e-10);
}

gpu_test!(fsai_equals_that_of_the_host_f32);
fn fsai_equals_that_of_the_host_f32() {
    let gpu = gpu();
    fsai_equals_that_of_the_host::<f32>(&gpu, 1e-4);
}

gpu_test!(factors_of_many_rows_equal_those_of_the_host);
/// Numbers of rows around the sizes of thread blocks, with rows of changing length classes; and more rows than one
/// launch processes at once.
fn factors_of_many_rows_equal_those_of_the_host() {
    let gpu = gpu();
    for n in [1023, 1025, 280_000] {
        let chain = (1..n).map(|i| (i, i - 1, -1.0)).chain((0..n).map(|i| (i, i, 30.0)));
        let far = |i: usize| (2..=i % 37).filter(move |back| i.is_multiple_of(5) && *back <= i);
        let lower: Vec<_> =
            chain.chain((0..n).flat_map(|i| far(i).map(move |back| (i, i - back, -0.5)))).collect();
        let upper = lower.iter().filter(|(i, j, _)| i != j).map(|&(i, j, v)| (j, i, v));
        let a = Csr::from_triplets(n, n, &lower.iter().copied().chain(upper).collect::<Vec<_>>()).unwrap();
        same_factors(&Fsai::new(&a).unwrap(), &Fsai::on(&gpu, &a).unwrap(), 1e-10);
        let a = convection::<f64>(n);
        same_inverse(&Spai::new(&a).unwrap(), &Spai::on(&gpu, &a).unwrap(), 1e-10);
    }
}

gpu_test!(fsai_reads_the_lower_triangle_only);
/// The upper triangle may be missing or differ from the lower one.
fn fsai_reads_the_lower_triangle_only() {
    let gpu = gpu();
    let a = matrices::stencil7(6).csr::<f64>().unwrap();
    let n = a.rows();
    let lower: Vec<_> = a.triplets().filter(|&(i, j, _)| j <= i).collect();
    let alone = Csr::from_triplets(n, n, &lower).unwrap();
    // as many entries above the diagonal as below, but not at the mirrored positions
    let below = (1..n).map(|i| (i, i - 1, -1.0));
    let above = (2..n).map(|j| (j - 2, j, 0.5)).chain([(0, n - 1, 0.5)]);
    let other: Vec<_> = (0..n).map(|i| (i, i, 4.0)).chain(below).chain(above).collect();
    let other = Csr::from_triplets(n, n, &other).unwrap();
    let shifted: Vec<_> = a.triplets().filter(|&(i, j, _)| j <= i || (i + j) % 2 == 0 || i > 3).collect();
    let fewer = Csr::from_triplets(n, n, &shifted).unwrap();
    for a in [alone, other, fewer] {
        same_factors(&Fsai::new(&a).unwrap(), &Fsai::on(&gpu, &a).unwrap(), 1e-10);
    }
    let nothing = Csr::<f64>::from_triplets::<u32>(0, 0, &[]).unwrap();
    same_factors(&Fsai::new(&nothing).unwrap(), &Fsai::on(&gpu, &nothing).unwrap(), 0.0);
}

gpu_test!(fsai_refuses_what_the_host_refuses);
fn fsai_refuses_what_the_host_refuses() {
    let gpu = gpu();
    let a = matrices::tetrahedra(8, NodeOrder::Natural).csr::<f64>().unwrap();
    let values: Vec<f64> =
        a.triplets().map(|(i, j, v)| if i == j && (i == 211 || i == 300) { -v } else { v }).collect();
    let indefinite = a.with_values(&values).unwrap();
    let expected = Fsai::new(&indefinite).unwrap_err();
    assert!(matches!(expected, Error::NotPositive { what: "FSAI", row: 211, .. }), "{expected}");
    assert_eq!(Fsai::on(&gpu, &indefinite).unwrap_err().to_string(), expected.to_string());
    // a failed refresh keeps the old factors
    let mut device = Fsai::on(&gpu, &a).unwrap();
    assert_eq!(device.refresh(&indefinite).unwrap_err().to_string(), expected.to_string());
    same_factors(&Fsai::new(&a).unwrap(), &device, 1e-10);
    let missing: Vec<_> = a.triplets().filter(|&(i, j, _)| (i, j) != (5, 5)).collect();
    let missing = Csr::from_triplets(a.rows(), a.rows(), &missing).unwrap();
    let refused = Fsai::on(&gpu, &missing).unwrap_err();
    assert!(matches!(refused, Error::NotPositive { row: 5, .. }), "{refused}");
    assert!(matches!(
        device.refresh(&missing),
        Err(Error::PatternMismatch { row: 5 }) | Err(Error::Solver(_))
    ));
    let wide = Csr::<f64>::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Fsai::on(&gpu, &wide), Err(Error::NotSquare { .. })));
}

gpu_test!(fsai_solves_as_on_the_host);
fn fsai_solves_as_on_the_host() {
    let gpu = gpu();
    for a in [
        matrices::tetrahedra(20, NodeOrder::Natural).csr::<f64>().unwrap(),
        matrices::elasticity(10).csr().unwrap(),
    ] {
        let b = laws::numbers(a.rows(), 3);
        let host = Cg::new(&a).preconditioner(Fsai::new(&a).unwrap()).rtol(1e-9).solve(&b).unwrap().report;
        let op = a.to(&gpu).unwrap();
        let mut fsai = Fsai::on(&gpu, &a).unwrap();
        for _ in 0..2 {
            let device = Cg::new(&op).preconditioner(&fsai).rtol(1e-9).solve(&b).unwrap().report;
            assert!(host.converged() && device.converged(), "{host}\n{device}");
            assert!(host.iterations.abs_diff(device.iterations) <= 2, "{host}\n{device}");
            fsai.refresh(&a).unwrap();
        }
    }
}

/// Convection and diffusion on a line of unequal intervals: neither the matrix nor its pattern is symmetric.
pub(super) fn convection<T: Real>(n: usize) -> Csr<T> {
    let mut entries = vec![];
    for i in 0..n {
        let width = 1.0 + (i % 5) as f64 / 3.0;
        entries.push((i, i, <T as Element>::from_f64(2.0 / width + 0.3)));
        for (j, value) in [(i + 1, -1.0 / width), (i.wrapping_sub(1), -1.0 / width - 0.3), (i + 7, 0.2)] {
            if j < n {
                entries.push((i, j, <T as Element>::from_f64(value)));
            }
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

fn same_inverse<T: Real, F: OnDevice<T>>(host: &Spai<T>, device: &spai::OnGpu<T, F>, tolerance: f64) {
    close(host.matrix(), &device.matrix().to_csr().unwrap(), tolerance);
    let (ours, theirs) = (host.report(), device.report().unwrap());
    assert_eq!(ours.missed, theirs.missed);
    approx::assert_relative_eq!(ours.frobenius, theirs.frobenius, max_relative = 1e-10, epsilon = 1e-13);
    approx::assert_relative_eq!(ours.largest, theirs.largest, max_relative = 1e-10, epsilon = 1e-13);
}

fn spai_equals_that_of_the_host<T: Real>(gpu: &Cuda, tolerance: f64) {
    let tetrahedra = matrices::tetrahedra(9, NodeOrder::Natural).csr::<T>().unwrap();
    let elastic = matrices::elasticity(5).diagonally_dominant().csr::<T>().unwrap();
    let elastic = elastic.reordered(&krysp::Permutation::rcm(&elastic).unwrap()).unwrap();
    for a in [&tetrahedra, &elastic, &convection(700)] {
        for side in [Side::Left, Side::Right] {
            let sparsity = Sparsity::Power(1);
            let mut device = Spai::with_pattern_on::<Sell<T>>(gpu, a, side, sparsity).unwrap();
            same_inverse(&Spai::with_pattern(a, side, sparsity).unwrap(), &device, tolerance);
            let b = changed(a);
            device.refresh(&b).unwrap();
            same_inverse(&Spai::with_pattern(&b, side, sparsity).unwrap(), &device, tolerance);
        }
    }
    // local dense problems of many sizes, some with more rows than fit in registers
    let square = Spai::with_pattern(&tetrahedra, Side::Left, Sparsity::Power(2)).unwrap();
    let longest = square.matrix().row_lengths().max().unwrap();
    assert!((60..=127).contains(&longest), "{longest}");
    let device = Spai::with_pattern_on::<Sell<T>>(gpu, &tetrahedra, Side::Left, Sparsity::Power(2)).unwrap();
    same_inverse(&square, &device, tolerance);
    // a pattern grown on the host, in another format
    let growth = Growth { epsilon: 0.3, ..Spai::<T>::GROWTH };
    for side in [Side::Left, Side::Right] {
        let a = convection::<T>(900);
        let grown = Spai::adaptive(&a, side, Sparsity::Power(0), growth).unwrap();
        let pattern = Sparsity::Of(grown.matrix());
        let device = Spai::with_pattern_on::<Halo<T>>(gpu, &a, side, pattern).unwrap();
        close(grown.matrix(), &device.matrix().to_csr().unwrap(), tolerance);
    }
    same_inverse(&Spai::new(&tetrahedra).unwrap(), &Spai::on(gpu, &tetrahedra).unwrap(), tolerance);
}

gpu_test!(spai_equals_that_of_the_host_f64);
fn spai_equals_that_of_the_host_f64() {
    let gpu = gpu();
    spai_equals_that_of_the_host::<f64>(&gpu, 1e-10);
}

gpu_test!(spai_equals_that_of_the_host_f32);
fn spai_equals_that_of_the_host_f32() {
    let gpu = gpu();
    spai_equals_that_of_the_host::<f32>(&gpu, 1e-4);
}

gpu_test!(spai_of_long_rows_equals_that_of_the_host);
/// Dense problems too large for the kernels of small ones: some use shared memory, some device memory.
fn spai_of_long_rows_equals_that_of_the_host() {
    let gpu = gpu();
    for n in [400, 1500] {
        let band: Vec<_> = convection::<f64>(n).triplets().collect();
        let first = (1..n).map(|j| (0, j, 0.01 * (1 + j % 7) as f64));
        let a = Csr::from_triplets(n, n, &band.iter().copied().chain(first).collect::<Vec<_>>()).unwrap();
        let column = (1..n).map(|i| (i, 0, 1.0));
        let pattern =
            Csr::from_triplets(n, n, &band.iter().copied().chain(column).collect::<Vec<_>>()).unwrap();
        let sparsity = Sparsity::Of(&pattern);
        let mut device = Spai::with_pattern_on::<Sell<f64>>(&gpu, &a, Side::Left, sparsity).unwrap();
        same_inverse(&Spai::with_pattern(&a, Side::Left, sparsity).unwrap(), &device, 1e-10);
        // bitwise equal each time
        let entries = device.matrix().to_csr().unwrap().entries().to_vec();
        device.refresh(&a).unwrap();
        assert_eq!(device.matrix().to_csr().unwrap().entries(), entries);
    }
}

gpu_test!(spai_refuses_what_the_host_refuses);
fn spai_refuses_what_the_host_refuses() {
    let gpu = gpu();
    let singular = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (2, 2, 1.0)]).unwrap();
    let expected = Spai::new(&singular).unwrap_err();
    assert!(matches!(expected, Error::SingularLocal { at: 1, unknown: 1, .. }), "{expected}");
    assert_eq!(Spai::on(&gpu, &singular).unwrap_err().to_string(), expected.to_string());
    // linearly dependent columns
    let a = convection::<f64>(60);
    let values: Vec<f64> = a.triplets().map(|(i, _, v)| if i == 40 { 0.0 } else { v }).collect();
    let zeros = a.with_values(&values).unwrap();
    let mut device = Spai::with_pattern_on::<Sell<f64>>(&gpu, &a, Side::Left, Sparsity::Power(1)).unwrap();
    let expected = Spai::with_pattern(&zeros, Side::Left, Sparsity::Power(1)).unwrap_err();
    assert_eq!(device.refresh(&zeros).unwrap_err().to_string(), expected.to_string());
    // the old values are kept
    let host = Spai::with_pattern(&a, Side::Left, Sparsity::Power(1)).unwrap();
    close(host.matrix(), &device.matrix().to_csr().unwrap(), 1e-10);
    device.refresh(&a).unwrap();
    same_inverse(&host, &device, 1e-10);
    // columns whose pattern cannot reduce the residual are zero, and the report lists them
    let shift = Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)]).unwrap();
    let device = Spai::with_pattern_on::<Sell<f64>>(&gpu, &shift, Side::Right, Sparsity::Power(0)).unwrap();
    assert_eq!(device.report().unwrap().missed, [0, 1]);
    let host = Spai::with_pattern(&shift, Side::Right, Sparsity::Power(0)).unwrap();
    let values = [host.matrix().entries().to_vec(), device.matrix().to_csr().unwrap().entries().to_vec()];
    assert!(values.concat().iter().all(|v| v.abs() < 1e-15), "{values:?}");
    let wide = Csr::<f64>::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
    assert!(matches!(Spai::on(&gpu, &wide), Err(Error::NotSquare { .. })));
    let nothing = Csr::<f64>::from_triplets::<u32>(0, 0, &[]).unwrap();
    assert!(Spai::on(&gpu, &nothing).unwrap().report().unwrap().missed.is_empty());
}

gpu_test!(spai_takes_unsymmetric_patterns);
/// Unsymmetric patterns, patterns without some diagonal entries, and values given out of order.
fn spai_takes_unsymmetric_patterns() {
    let gpu = gpu();
    let full = convection::<f64>(500);
    let without = |missing: &dyn Fn(usize, usize) -> bool| {
        let entries: Vec<_> = full.triplets().filter(|&(i, j, _)| !missing(i, j)).collect();
        Csr::from_triplets(500, 500, &entries).unwrap()
    };
    let open = without(&|i, j| i == j && i % 3 == 1);
    let mixed: Vec<_> = full.triplets().collect::<Vec<_>>().into_iter().rev().collect();
    let mixed = Csr::from_triplets(500, 500, &mixed).unwrap();
    let symmetric = matrices::stencil7(6).csr::<f64>().unwrap();
    let symmetric: Vec<_> = symmetric.triplets().collect::<Vec<_>>().into_iter().rev().collect();
    let symmetric = Csr::from_triplets(216, 216, &symmetric).unwrap();
    // for one entry of each row the mirrored entry is missing
    let lower = without(&|i, j| j > i);
    for a in [&open, &mixed, &symmetric, &lower] {
        for side in [Side::Left, Side::Right] {
            let mut device = Spai::with_pattern_on::<Sell<f64>>(&gpu, a, side, Sparsity::Power(1)).unwrap();
            same_inverse(&Spai::with_pattern(a, side, Sparsity::Power(1)).unwrap(), &device, 1e-10);
            let b = changed(a);
            device.refresh(&b).unwrap();
            same_inverse(&Spai::with_pattern(&b, side, Sparsity::Power(1)).unwrap(), &device, 1e-10);
        }
    }
}

/// Checks that preconditioners built from operators in the format `F` are bitwise those built from matrices
/// in host memory.
fn same_from_operators<T: Real, F: OnDevice<T>>(gpu: &Cuda, [a, b]: [&Csr<T>; 2]) {
    let (op, other) = (F::on(gpu, a).unwrap(), F::on(gpu, b).unwrap());
    // read the matrices back: symmetric formats store one triangle, so their matrices differ from the given
    // ones by rounding
    let [a, b] = [(a, &op), (b, &other)].map(|(given, op)| {
        let has = op.to_csr().unwrap();
        close(given, &has, 1e-14);
        has
    });
    let same = |ours: Csr<T>, theirs: Csr<T>| assert!(ours.triplets().eq(theirs.triplets()), "{}", F::NAME);
    let (mut ours, mut theirs) = (Fsai::on(gpu, &a).unwrap(), Fsai::on(gpu, &op).unwrap());
    same(ours.lower().to_csr().unwrap(), theirs.lower().to_csr().unwrap());
    same(ours.upper().to_csr().unwrap(), theirs.upper().to_csr().unwrap());
    ours.refresh(&b).unwrap();
    theirs.refresh(&other).unwrap();
    same(ours.upper().to_csr().unwrap(), theirs.upper().to_csr().unwrap());
    for side in [Side::Left, Side::Right] {
        for sparsity in [Sparsity::Power(0), Sparsity::Power(1)] {
            let mut ours = Spai::with_pattern_on::<Sell<T>>(gpu, &a, side, sparsity).unwrap();
            let mut theirs = Spai::with_pattern_on::<Sell<T>>(gpu, &op, side, sparsity).unwrap();
            same(ours.matrix().to_csr().unwrap(), theirs.matrix().to_csr().unwrap());
            ours.refresh(&b).unwrap();
            theirs.refresh(&other).unwrap();
            same(ours.matrix().to_csr().unwrap(), theirs.matrix().to_csr().unwrap());
        }
    }
}

gpu_test!(operators_on_the_gpu_are_as_good_as_their_matrices);
fn operators_on_the_gpu_are_as_good_as_their_matrices() {
    let gpu = gpu();
    let tetrahedra = matrices::tetrahedra(9, NodeOrder::Natural).csr::<f64>().unwrap();
    let permutation = krysp::Permutation::clustered(&tetrahedra, 96).unwrap();
    let elastic = matrices::elasticity(5).diagonally_dominant().csr::<f64>().unwrap();
    let [changed_tetrahedra, changed_elastic] = [changed(&tetrahedra), changed(&elastic)];
    let [clustered, changed_clustered] =
        [&tetrahedra, &changed_tetrahedra].map(|a| a.reordered(&permutation).unwrap());
    let elastic = [&elastic, &changed_elastic];
    for a in [[&tetrahedra, &changed_tetrahedra], [&clustered, &changed_clustered], elastic] {
        macro_rules! every_format {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                $(krysp::where_on_gpu!($memory, if krysp::$format::on(&gpu, a[0]).is_ok() {
                    same_from_operators::<f64, krysp::$format<f64>>(&gpu, a);
                });)*
            };
        }
        krysp::each_format!(every_format);
        same_from_operators::<f32, Halo<f32>>(&gpu, [&a[0].cast(), &a[1].cast()]);
    }
    // rows of many lengths, columns too far apart for 16 bits
    let n = 90_000;
    let far = |i: usize| [i, (i * 7919) % n].into_iter().take(1 + usize::from(i.is_multiple_of(3)));
    let entries = (0..n).flat_map(|i| far(i).map(move |j| (i, j, if i == j { 5.0 } else { 0.25 })));
    let wide = Csr::from_triplets(n, n, &entries.collect::<Vec<_>>()).unwrap();
    let sell = Sell::on(&gpu, &wide).unwrap();
    let [ours, theirs] = [Spai::on(&gpu, &wide), Spai::on(&gpu, &sell)].map(|spai| spai.unwrap());
    assert!(ours.matrix().to_csr().unwrap().triplets().eq(theirs.matrix().to_csr().unwrap().triplets()));
    // A matrix that is reordered on the GPU: host memory has only the row lengths of its pattern.
    let op = Halo::on_reordered(&gpu, &tetrahedra, &permutation).unwrap();
    let device = Fsai::on(&gpu, &op).unwrap();
    same_factors(&Fsai::new(&clustered).unwrap(), &device, 1e-10);
    // an operator with rounded values gives those values
    let narrow = Rounded::<Sell<f64>, f32>::on(&gpu, &tetrahedra).unwrap();
    same_factors(&Fsai::new(&narrow.to_csr().unwrap()).unwrap(), &Fsai::on(&gpu, &narrow).unwrap(), 1e-10);
}

gpu_test!(operators_give_the_errors_of_their_matrices);
fn operators_give_the_errors_of_their_matrices() {
    let gpu = gpu();
    let a = matrices::tetrahedra(8, NodeOrder::Natural).csr::<f64>().unwrap();
    let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j && i == 211 { -v } else { v }).collect();
    let indefinite = Halo::on(&gpu, &a.with_values(&values).unwrap()).unwrap();
    let refused = Fsai::on(&gpu, &indefinite).unwrap_err();
    assert!(matches!(refused, Error::NotPositive { what: "FSAI", row: 211, .. }), "{refused}");
    let op = a.to(&gpu).unwrap();
    let mut fsai = Fsai::on(&gpu, &op).unwrap();
    assert!(fsai.refresh(&indefinite).is_err());
    same_factors(&Fsai::new(&a).unwrap(), &fsai, 1e-10);
    let other = matrices::stencil7(6).csr::<f64>().unwrap().to(&gpu).unwrap();
    assert!(fsai.refresh(&other).is_err());
    // an operator on another stream
    let elsewhere = Cuda::new(0).unwrap();
    assert!(Fsai::on(&elsewhere, &op).is_err() && Spai::on(&elsewhere, &op).is_err());
    assert!(fsai.refresh(&a.to(&elsewhere).unwrap()).is_err());
}

gpu_test!(spai_solves_as_on_the_host);
fn spai_solves_as_on_the_host() {
    let gpu = gpu();
    let dominant = matrices::tetrahedra(16, NodeOrder::Natural).diagonally_dominant().csr::<f64>().unwrap();
    let scaled = |(i, _, v): (usize, usize, f64)| v * (1.0 + (i % 5) as f64 / 3.0);
    let general = dominant.with_values(&dominant.triplets().map(scaled).collect::<Vec<_>>()).unwrap();
    for a in [general, dominant] {
        let b = laws::numbers(a.rows(), 3);
        let host = Spai::new(&a).unwrap();
        let host = BiCgStab::new(&a).preconditioner(host).rtol(1e-8).solve(&b).unwrap().report;
        let op = a.to(&gpu).unwrap();
        let mut spai = Spai::on(&gpu, &a).unwrap();
        for _ in 0..2 {
            let device = BiCgStab::new(&op).preconditioner(&spai).rtol(1e-8).solve(&b).unwrap().report;
            assert!(host.converged() && device.converged(), "{host}\n{device}");
            // the iterations of BiCGStab vary with rounding
            let apart = host.iterations.abs_diff(device.iterations);
            assert!(apart <= 2.max(host.iterations / 10), "{host}\n{device}");
            spai.refresh(&a).unwrap();
        }
    }
}
