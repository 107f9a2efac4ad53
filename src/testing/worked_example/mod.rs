//! The complete format that CONTRIBUTING.md shows: checks that it compiles, obeys the laws and can be chosen.

#![allow(unreachable_pub, reason = "a format of the library is exported")]

#[allow(unsafe_code, reason = "a kernel of the library stands in `kernels`")]
mod kernel;
mod padded;

use crate::formats::analysis::{Analysis, Model};
use crate::formats::{Format, Offered, Rounded};
use crate::numbers::Real;
use crate::testing::laws::{self, Conversion, refusals};
use crate::testing::matrices;
use krysp_kernels::cpu::simd::{Level, force};
use krysp_solvers::LinearOperator;
use padded::Padded;

fn obeys<T: Real, F: Format<T>>() {
    let conversion = Conversion { build: &F::new, may_refuse: &refusals::mostly_padding };
    laws::format(&laws::cases(), &conversion).unwrap();
}

#[test]
fn it_obeys_every_law() {
    // other tests may force other levels meanwhile
    let _one_level = force(Level::Portable);
    obeys::<f64, Padded<f64>>();
    obeys::<f32, Padded<f32>>();
}

#[test]
fn its_values_can_be_rounded() {
    let rounded = Rounded::<Padded<f64>, f32>::new(&matrices::stencil7(9).csr().unwrap()).unwrap();
    assert!(rounded.padding() > 0.0 && rounded.values().iter().all(|value| [0.0, -1.0, 6.0].contains(value)));
}

#[test]
fn its_bytes_are_predicted() {
    let csr = matrices::stencil7(9).csr::<f64>().unwrap();
    let offers = Padded::offers(&Analysis::new(&csr, Model::Host)).unwrap();
    assert_eq!(offers[0].bytes, Padded::new(&csr).unwrap().bytes());
}

#[test]
fn it_is_what_the_document_shows() {
    let document = include_str!("../../../CONTRIBUTING.md");
    for file in [include_str!("kernel.rs"), include_str!("padded.rs")] {
        assert!(document.contains(&format!("```rust\n{file}```\n")), "not in CONTRIBUTING.md:\n{file}");
    }
}
