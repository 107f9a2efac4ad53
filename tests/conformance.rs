//! Every format obeys every law, for both elements, at every SIMD level: one line each.
//!
//! Forcing a level is process-wide. A test that compares bits holds a guard throughout, so the tests of this file run one
//! after the other.

use krysp::simd::{Level, force};
use krysp::testing::laws::{self, Agreement, Case, Tally};
use krysp::testing::matrices::edge;
use krysp::{Csr, Format, HostSpace, Jacobi, Numbering, Real};
use std::sync::Arc;

/// Runs `test` at every level that the CPU has, and says which it has not.
fn at_every_level(test: impl Fn()) {
    for level in Level::ALL {
        match force(level) {
            Some(_guard) => test(),
            None => println!("skipped: no {level} on this CPU"),
        }
    }
}

/// Every law over every case; a format may refuse only what `may_refuse` names.
fn conforms<T: Real, F: Format<T>>(may_refuse: impl Fn(&Csr<T>) -> bool) {
    let (cases, large) = (laws::cases(), laws::large_cases());
    at_every_level(|| {
        let Tally { tested, refused } = laws::format::<T, F>(&cases, &may_refuse).unwrap();
        println!("{}: {tested} matrices, {refused} refused", F::NAME);
    });
    // the widest level runs the large ones; what is at stake there is how threads share rows
    let _guard = force(Level::best()).unwrap();
    for case in &large {
        if !may_refuse(&case.triplets.csr().unwrap()) {
            laws::format::<T, F>(std::slice::from_ref(case), &may_refuse).unwrap();
        }
    }
}

macro_rules! conformance {
    ($($name:ident: $format:ident, $may_refuse:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn f64() {
                conforms::<f64, krysp::formats::$format<f64>>($may_refuse);
            }

            #[test]
            fn f32() {
                conforms::<f32, krysp::formats::$format<f32>>($may_refuse);
            }
        }
    )*};
}

conformance! {
    csr: Csr, |_| false;
}

/// Vectors in the user's numbering and in another, at every edge of lanes, chunks and blocks.
fn vectors<T: Real>() {
    let sizes = edge::EDGE_SIZES.into_iter().chain([0, 1535, 1536, 1537, 50_000, 196_609]);
    let sizes: Vec<usize> = sizes.collect();
    at_every_level(|| {
        for &n in &sizes {
            let space = HostSpace::<T>::new(n);
            laws::vector_fusions(&space, Agreement::Bitwise).unwrap();
            laws::basis_fusions(&space, Agreement::Bitwise).unwrap();
        }
        let backwards = Numbering::from_old_of_new((0..1000).rev().collect()).unwrap();
        laws::vector_fusions(&HostSpace::<T>::numbered(Arc::new(backwards)), Agreement::Bitwise).unwrap();
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

/// Preconditioners are operators too.
fn jacobi<T: Real>() {
    at_every_level(|| {
        for n in edge::EDGE_SIZES.into_iter().chain([1537, 50_000]) {
            let diagonal = edge::diagonal(n);
            let mut inverse = diagonal.clone();
            // what Jacobi stores is rounded once more
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

/// No preconditioner is one as well, and functions are operators.
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

/// A law that tests nothing, or is broken, says so.
#[test]
fn laws_can_be_broken() {
    let _guard = force(Level::best()).unwrap();
    let triplets = edge::arrow(9);
    let a = triplets.csr::<f64>().unwrap();
    let mut other = triplets.clone();
    other.entries[5].2 += 1e-12;
    let broken = laws::product(&a, &other).unwrap_err().to_string();
    assert!(broken.starts_with("broken law: the product is that of the triplets: y["), "{broken}");
    assert!(laws::format::<f64, Csr<f64>>(&[], &|_| false).is_err());
    let wrong = other.csr::<f64>().unwrap();
    assert!(laws::round_trip(&a, &wrong).is_err());
    let adding = krysp::operator_fn(9, |x: &[f64], y: &mut [f64]| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    });
    assert!(laws::stale_values(&adding).is_err());
    assert!(laws::second_product(&adding).is_err());
    let case = Case { name: "arrow".into(), triplets };
    assert_eq!(laws::format::<f64, Csr<f64>>(&[case], &|_| true).unwrap(), Tally { tested: 1, refused: 0 });
}
