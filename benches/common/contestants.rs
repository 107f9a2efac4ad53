//! SpMV by every format and by every other library ("peer"), with the same matrix and `x`. Results are
//! checked.

use super::Result;
use super::answer::Answer;
use super::contestant::{Contestant, Element, Product, Whose};
use super::mkl::mkl;
use super::peers::peers;
use krysp::formats::Strategy;
use krysp::{Csr, Format, HostVector, LinearOperator, Real, Space};
use std::time::Instant;

struct Ours<T: Real> {
    operator: Box<dyn LinearOperator<Vector = HostVector<T>>>,
    x: HostVector<T>,
    y: HostVector<T>,
}

impl<T: Real> Product<T> for Ours<T> {
    fn multiply(&mut self) {
        assert!(self.operator.apply(&self.x, &mut self.y).is_ok(), "spaces were checked with the answer");
    }

    fn y(&self) -> &[T] {
        self.y.as_slice()
    }
}

/// The name of a format, the operator if the format is suitable for the matrix, and the milliseconds of the conversion.
pub type Converted<T> = (&'static str, Option<Box<dyn LinearOperator<Vector = HostVector<T>>>>, f64);

fn converted<T: Real, F: Format<T> + 'static>(csr: &Csr<T>) -> Converted<T> {
    let started = Instant::now();
    let format = F::new(csr).ok();
    let setup_ms = started.elapsed().as_secs_f64() * 1e3;
    (F::NAME, format.map(|format| Box::new(format) as Box<_>), setup_ms)
}

fn by_strategy<T: Real>(name: &'static str, csr: &Csr<T>, strategy: Strategy) -> Converted<T> {
    (name, Some(Box::new(csr.clone().with_strategy(strategy))), 0.0)
}

/// A matrix in every suitable format, and in CSR with other strategies.
pub fn formats<T: Real>(csr: &Csr<T>) -> Vec<Converted<T>> {
    macro_rules! convert {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            vec![
                $(converted::<T, krysp::$format<T>>(csr),)*
                by_strategy("CSR classical", csr, Strategy::Classical),
            ]
        };
    }
    krysp::each_format!(convert)
}

/// All implementations of SpMV to compare, after a first product whose result is checked.
pub fn contestants<T: Element>(csr: &Csr<T>, x: &[f64]) -> Result<Vec<Contestant<T>>> {
    let x: Vec<T> = x.iter().map(|&x| T::narrow(x)).collect();
    let mut all = own(csr, &x)?;
    all.extend(peers(csr, &x)?);
    all.extend(mkl(csr, &x)?);
    checked(csr, &x, all)
}

/// The products of this library.
pub fn own<T: Element>(csr: &Csr<T>, x: &[T]) -> Result<Vec<Contestant<T>>> {
    let mut all = vec![];
    for (name, operator, setup_ms) in formats(csr) {
        let Some(operator) = operator else { continue };
        let (bytes, y) = (operator.bytes(), operator.range().zeros()?);
        let product = Box::new(Ours { x: operator.domain().vector(x)?, y, operator });
        all.push(Contestant { name, whose: Whose::Ours, setup_ms, bytes, product });
    }
    Ok(all)
}

/// Returns these implementations after a first product of each, whose result is checked.
pub fn checked<T: Element>(csr: &Csr<T>, x: &[T], mut all: Vec<Contestant<T>>) -> Result<Vec<Contestant<T>>> {
    let answer = Answer::new(csr, x);
    for contestant in &mut all {
        contestant.product.multiply();
        answer.check(contestant.product.y()).map_err(|wrong| format!("{}: {wrong}", contestant.name))?;
    }
    Ok(all)
}

/// The bytes that a product with a CSR matrix must move: entries, 32-bit offsets, and `x` and `y` once.
pub fn compulsory_bytes<T: Real>(csr: &Csr<T>) -> usize {
    csr.nnz() * (size_of::<T>() + 4) + 4 * (csr.rows() + 1) + (csr.rows() + csr.cols()) * size_of::<T>()
}

/// The matrix with another element type.
pub fn cast<T: Element>(csr: &Csr<f64>) -> Result<Csr<T>> {
    let values: Vec<T> = csr.entries().iter().map(|&value| T::narrow(value)).collect();
    Ok(Csr::from_csr(csr.rows(), csr.cols(), &csr.offsets(), csr.columns(), &values)?)
}
