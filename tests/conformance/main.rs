//! Every format obeys every law at the best SIMD level, and the laws of operators at every level, for both element types. Formats with
//! options have a line each.
//!
//! A forced SIMD level applies to the whole process, so every test that forces one is in this program. A test
//! that compares bits holds the guard of its level to the end; tests at the same level run together.

mod choice;

use krysp::formats::{
    Bsr, BsrOptions, Ehyb, EhybOptions, Halo, HaloOptions, Hyb, HybOptions, Rounded, Sell, SellOptions,
    Strategy, SymBsr, SymBsrOptions, Threshold,
};
use krysp::simd::{Level, force};
use krysp::testing::laws::refusals::{anything, many_diagonals, mostly_padding, nothing, unsymmetric};
use krysp::testing::laws::{self, Agreement, Case, Conversion, Tally};
use krysp::testing::matrices::{Triplets, edge};
use krysp::testing::skipped;
use krysp::{
    Bf16, Csr, Error, Format, Host, HostSpace, HostVector, Jacobi, LinearOperator, Permutation, Plan, Real,
    Result, SavedFileError, Space,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `test` at every SIMD level of the CPU, and reports the missing levels.
fn at_every_level(test: &dyn Fn(Level)) {
    for level in Level::ALL {
        match force(level) {
            Some(_guard) => test(level),
            None => skipped(&format!("no {level} on this CPU")),
        }
    }
}

/// Checks every law on every case, with formats made by `build`. A format may refuse only matrices for which `may_refuse`
/// returns true.
fn conforms<T: Real, F: Format<T>>(
    build: impl Fn(&Csr<T>) -> Result<F> + Sync,
    may_refuse: impl Fn(&Csr<T>) -> bool + Sync,
) {
    conforms_to([laws::cases(), laws::large_cases()], build, may_refuse);
}

fn conforms_to<T: Real, F: Format<T>>(
    cases: [Vec<Case>; 2],
    build: impl Fn(&Csr<T>) -> Result<F> + Sync,
    may_refuse: impl Fn(&Csr<T>) -> bool + Sync,
) {
    let conversion = Conversion { build: &build, may_refuse: &may_refuse };
    every_law(cases, F::NAME, &|level, cases| match level == Level::best() {
        true => laws::format(cases, &conversion),
        false => laws::format_products(cases, &conversion),
    });
}

fn every_law(
    [cases, large_cases]: [Vec<Case>; 2],
    name: &str,
    laws: &dyn Fn(Level, &[Case]) -> laws::Law<Tally>,
) {
    at_every_level(&|level| {
        let Tally { tested, refused } = laws(level, &cases).unwrap();
        println!("{name}, {level}: {tested} matrices, {refused} refused");
    });
    if large_cases.is_empty() {
        return;
    }
    // large cases test how threads share the rows, for which one level is enough
    let _guard = force(Level::best()).unwrap();
    let Tally { tested, refused } = laws(Level::best(), &large_cases).unwrap();
    println!("{name}: {tested} large matrices, {refused} refused");
}

/// Tests formats with `f64` on all cases, and with `f32` on the small ones. Large cases test how threads share rows, which does not depend
/// on the element.
macro_rules! conformance {
    ($($name:ident: $build:expr, $may_refuse:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn f64() {
                conforms::<f64, _>($build, $may_refuse);
            }

            #[test]
            fn f32() {
                conforms_to::<f32, _>([laws::cases(), vec![]], $build, $may_refuse);
            }
        }
    )*};
}

/// Every format, with default options.
macro_rules! conformance_of_all {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        conformance! { $($file: krysp::$format::new, $refusals;)* }
    };
}
krysp::each_format!(conformance_of_all);

// The same formats with other options.
conformance! {
    csr_classical: |a| Ok(a.clone().with_strategy(Strategy::Classical)), nothing;
    hyb_two_thirds: |a| Hyb::with(a, HybOptions { threshold: Threshold::Quantile(2.0 / 3.0) }), nothing;
    sell_unsorted: |a| Sell::with(a, SellOptions { height: Some(48), window: Some(1) }), nothing;
    sell_sorted: |a| Sell::with(a, SellOptions { height: Some(16), window: Some(48) }), nothing;
    halo_2: |a| Halo::with(a, HaloOptions { size: Some(2) }), |a| !divides(2, a);
    halo_3: |a| Halo::with(a, HaloOptions { size: Some(3) }), |a| !divides(3, a);
    halo_4: |a| Halo::with(a, HaloOptions { size: Some(4) }), |a| !divides(4, a);
    halo_6: |a| Halo::with(a, HaloOptions { size: Some(6) }), |a| !divides(6, a);
    ehyb_small_parts: |a| Ehyb::with(a, EhybOptions { rows_per_part: Some(768) }), nothing;
    symmetric_bsr_2: |a| SymBsr::with(a, SymBsrOptions { size: Some(2) }), |a| unsymmetric(a) || !divides(2, a);
    symmetric_bsr_3: |a| SymBsr::with(a, SymBsrOptions { size: Some(3) }), |a| unsymmetric(a) || !divides(3, a);
    symmetric_bsr_4: |a| SymBsr::with(a, SymBsrOptions { size: Some(4) }), |a| unsymmetric(a) || !divides(4, a);
    symmetric_bsr_6: |a| SymBsr::with(a, SymBsrOptions { size: Some(6) }), |a| unsymmetric(a) || !divides(6, a);
    hyb_all_coo: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(0) }), nothing;
    hyb_all_ell: |a| Hyb::with(a, HybOptions { threshold: Threshold::Columns(usize::MAX) }), mostly_padding;
    bsr_2: |a| Bsr::with(a, BsrOptions { size: Some(2) }), |a| !divides(2, a);
    bsr_3: |a| Bsr::with(a, BsrOptions { size: Some(3) }), |a| !divides(3, a);
    bsr_4: |a| Bsr::with(a, BsrOptions { size: Some(4) }), |a| !divides(4, a);
    bsr_6: |a| Bsr::with(a, BsrOptions { size: Some(6) }), |a| !divides(6, a);
}

/// Matrices that are exact when stored in `f32`. This tests a conversion, which does not depend on the shape, so some
/// of the cases are enough.
fn coarse() -> Vec<Case> {
    laws::coarse(laws::cases().into_iter().step_by(7).collect())
}

/// Checks every law with values stored in `f32` and vectors of `f64`. An error above the rounding of sums in `f64`
/// breaks a law.
fn conforms_rounded<F: Format<f64>>(
    build: impl Fn(&Csr<f64>) -> Result<F> + Sync,
    may_refuse: impl Fn(&Csr<f64>) -> bool + Sync,
) {
    conforms_to([coarse(), vec![]], |a| Ok(Rounded::<F, f32>::of(build(a)?)), may_refuse);
}

macro_rules! conformance_rounded {
    ($($name:ident: $build:expr, $may_refuse:expr;)*) => {
        mod f64_storing_f32 {
            use super::*;

            $(#[test]
            fn $name() {
                conforms_rounded($build, $may_refuse);
            })*
        }
    };
}

/// Every format with default options, and BSR with blocks of three rows.
macro_rules! conformance_rounded_of_all {
    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
        conformance_rounded! {
            $($file: krysp::$format::new, $refusals;)*
            bsr_3: |a| Bsr::with(a, BsrOptions { size: Some(3) }), |a| !divides(3, a);
        }
    };
}
krysp::each_format!(conformance_rounded_of_all);

/// Entries stored in 16 bits are off by at most half a unit in the last of eight significant bits. The
/// product is that of the stored entries, up to rounding of sums.
fn stores_16_bits<T: Real, F: Format<T> + LinearOperator<Vector = HostVector<T>>>(case: &Case)
where
    Bf16: krysp::Storage<T>,
{
    let a = case.triplets.csr::<T>().unwrap();
    let Ok(format) = F::new(&a) else { return };
    let rounded = Rounded::<F, Bf16>::of(format);
    let stored = rounded.to_csr();
    for ((.., exact), (.., stored)) in a.triplets().zip(stored.triplets()) {
        let (exact, stored) = (exact.to_f64(), stored.to_f64());
        assert!((stored - exact).abs() <= 0.0039063 * exact.abs(), "{exact} {stored}");
    }
    let entries = stored.triplets().map(|(i, j, value)| (i as u32, j as u32, value.to_f64())).collect();
    let triplets = Triplets { rows: a.rows(), cols: a.cols(), entries };
    let rounded: &dyn LinearOperator<Vector = HostVector<T>> = &rounded;
    laws::product(rounded, &triplets).unwrap();
}

#[test]
fn entries_in_16_bits() {
    at_every_level(&|_| {
        for case in laws::cases().iter().step_by(7) {
            macro_rules! store {
                ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                    $(stores_16_bits::<f64, krysp::$format<f64>>(case);)*
                };
            }
            krysp::each_format!(store);
            stores_16_bits::<f32, Sell<f32>>(case);
        }
    });
}

/// Entries stored in `f32` are off by at most half a unit in the last place: they are rounded once.
#[test]
fn entries_are_rounded_once() {
    let _guard = force(Level::best()).unwrap();
    let (n, rounding) = (2000, 2f64.powi(-24));
    let triplets = krysp::testing::matrices::random_rows(n, n, 3, |row| row % 40);
    let a = triplets.csr::<f64>().unwrap();
    let mut rounded = Rounded::<Sell<f64>, f32>::new(&a).unwrap();
    assert!(3 * rounded.bytes() < 2 * Sell::new(&a).unwrap().bytes());
    for ((i, j, exact), (.., stored)) in a.triplets().zip(rounded.to_csr().triplets()) {
        assert_eq!(stored, f64::from(exact as f32), "{i}, {j}");
        assert!((stored - exact).abs() <= rounding * exact.abs(), "{i}, {j}");
    }
    let x: Vec<f64> = laws::numbers(n, 3);
    let (exact, magnitudes) = triplets.product_reference(&x);
    let far = |a: &Rounded<Sell<f64>, f32>| {
        let mut y = a.range().zeros().unwrap();
        a.apply(&a.domain().vector(&x).unwrap(), &mut y).unwrap();
        let shares =
            y.as_slice().iter().zip(&exact).zip(&magnitudes).filter(|(_, magnitude)| **magnitude > 0.0);
        shares.map(|((y, exact), magnitude)| (y - exact).abs() / magnitude).fold(0.0, f64::max)
    };
    let share = far(&rounded);
    assert!(share <= rounding * (1.0 + 1e-7) && share > rounding / 100.0, "{share:e}");
    // a refresh rounds values like a conversion
    let values: Vec<f64> = triplets.entries.iter().map(|entry| entry.2).collect();
    let before = rounded.values().to_vec();
    rounded.refresh(&vec![0.1; rounded.source().nnz()]).unwrap();
    assert!(rounded.to_csr().triplets().all(|entry| entry.2 == f64::from(0.1f32)));
    rounded.refresh(&rounded.source().assemble(&values).unwrap()).unwrap();
    assert_eq!(rounded.values().to_vec(), before);
}

fn divides<T: Real>(size: usize, a: &Csr<T>) -> bool {
    a.rows().is_multiple_of(size) && a.cols().is_multiple_of(size)
}

/// The laws of vectors at sizes around those of lanes, chunks and blocks, and in a space with a permutation.
fn vectors<T: Real>() {
    let sizes = edge::EDGE_SIZES.into_iter().chain([0, 1535, 1536, 1537, 50_000, 196_609]);
    let sizes: Vec<usize> = sizes.collect();
    at_every_level(&|_| {
        for &n in &sizes {
            let space = HostSpace::<T>::new(n);
            laws::vector_fusions(&space, Agreement::Bitwise).unwrap();
            laws::basis_fusions(&space, Agreement::Bitwise).unwrap();
        }
        let backwards = Permutation::from_old_of_new((0..1000).rev().collect()).unwrap();
        laws::vector_fusions(&HostSpace::<T>::permuted(Arc::new(backwards)), Agreement::Bitwise).unwrap();
    });
}

#[test]
fn vectors_f64() {
    vectors::<f64>();
}

#[test]
fn vectors_f32() {
    vectors::<f32>();
}

/// Jacobi obeys the laws of operators.
fn jacobi<T: Real>() {
    at_every_level(&|_| {
        for n in edge::EDGE_SIZES.into_iter().chain([1537, 50_000]) {
            let diagonal = edge::diagonal(n);
            let mut inverse = diagonal.clone();
            // the inverse that Jacobi stores is rounded once more
            inverse.entries.iter_mut().for_each(|e| e.2 = (T::one() / T::from_f64(e.2)).to_f64());
            let jacobi = Jacobi::new(&diagonal.csr::<T>().unwrap()).unwrap();
            laws::product(&jacobi, &inverse).unwrap();
            laws::stale_values(&jacobi).unwrap();
            laws::second_product(&jacobi).unwrap();
            laws::operator_fusions(&jacobi, Agreement::Bitwise).unwrap();
            laws::sizes_refused(&jacobi).unwrap();
        }
    });
}

#[test]
fn jacobi_f64() {
    jacobi::<f64>();
}

#[test]
fn jacobi_f32() {
    jacobi::<f32>();
}

/// The identity and functions obey the laws of operators.
#[test]
fn identity_and_functions() {
    let _guard = force(Level::best()).unwrap();
    for n in [0, 1, 33, 1537] {
        let identity = krysp::solvers::Identity::new(&HostSpace::<f64>::new(n));
        laws::sizes_refused(&identity).unwrap();
        laws::operator_fusions(&identity, Agreement::Bitwise).unwrap();
        let twice = krysp::operator_fn(n, |x: &[f64], y: &mut [f64]| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        });
        laws::sizes_refused(&twice).unwrap();
        laws::operator_fusions(&twice, Agreement::Bitwise).unwrap();
    }
}

/// A check of a law fails if the law is broken, and if there is nothing to check.
#[test]
fn laws_can_be_broken() {
    let _guard = force(Level::best()).unwrap();
    let triplets = edge::arrow(9);
    let a = triplets.csr::<f64>().unwrap();
    let mut other = triplets.clone();
    other.entries[5].2 += 1e-12;
    let broken = laws::product(&a, &other).unwrap_err().to_string();
    assert!(broken.starts_with("broken law: the product is that of the triplets: row "), "{broken}");
    let conversion = Conversion { build: &|a: &Csr<f64>| Ok(a.clone()), may_refuse: &|_| false };
    assert!(laws::format(&[], &conversion).is_err());
    let refused = |_: &Csr<f64>| -> Result<Csr<f64>> {
        Err(Error::Unsuitable { format: "nothing", why: "it takes nothing".into() })
    };
    let case = Case { name: "arrow".into(), triplets };
    for may_refuse in [true, false] {
        let nothing = Conversion { build: &refused, may_refuse: &|_| may_refuse };
        assert!(laws::format(std::slice::from_ref(&case), &nothing).is_err());
    }
    assert_eq!(laws::format(&[case], &conversion).unwrap(), Tally { tested: 1, refused: 0 });
    let wrong = other.csr::<f64>().unwrap();
    assert!(laws::round_trip(&a, &wrong).is_err());
    let adding = krysp::operator_fn(9, |x: &[f64], y: &mut [f64]| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    });
    assert!(laws::stale_values(&adding).is_err());
    let calls = AtomicU64::new(0);
    let counting = krysp::operator_fn(9, |_: &[f64], y: &mut [f64]| {
        y.fill(calls.fetch_add(1, Ordering::Relaxed) as f64);
    });
    assert!(laws::second_product(&counting).is_err());
    assert!(laws::operator_fusions(&counting, Agreement::Rounding).is_err());
}

/// Formats are chosen for one SIMD level, so a plan saved at another one is refused.
#[test]
fn plans_of_another_level_are_refused() {
    let a = krysp::testing::matrices::stencil7(8).csr::<f64>().unwrap();
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("saved_at_the_best_level");
    {
        let _best = force(Level::best()).unwrap();
        Plan::new(&a).unwrap().build().unwrap().save(&file).unwrap();
    }
    at_every_level(&|level| match krysp::plan::PlannedSolver::load(&file, &a, &Host) {
        Ok(_) => assert_eq!(level, Level::best()),
        Err(Error::Saved { why: SavedFileError::Architecture { .. }, .. }) => {
            assert_ne!(level, Level::best())
        }
        Err(error) => panic!("{level}: {error}"),
    });
    std::fs::remove_file(&file).unwrap();
}
