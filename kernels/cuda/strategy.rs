//! Ways to share the entries of compressed sparse rows among threads.

use super::csr::Csr;
use super::device::{Array, Device, Real};
use super::error::Result;
use super::merge::Merge;
use super::number::Scalar;
use super::product::{Pattern, Product, Shape};

/// How threads of a device share a matrix in compressed sparse rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Equally many threads for every row, by the mean length.
    #[default]
    Classical,
    /// Equally many entries and ends of rows for every warp, whatever the lengths of rows.
    MergePath,
}

/// Compressed sparse rows, shared one way or another.
#[derive(Debug)]
pub enum AnyCsr<T: Real> {
    /// By rows.
    Classical(Csr<T>),
    /// By work.
    MergePath(Merge<T>),
}

impl<T: Real> AnyCsr<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], strategy: Strategy) -> Result<Self> {
        Ok(match strategy {
            Strategy::Classical => AnyCsr::Classical(Csr::new(device, pattern, values)?),
            Strategy::MergePath => AnyCsr::MergePath(Merge::new(device, pattern, values)?),
        })
    }

    fn inner(&self) -> &dyn Product<T> {
        match self {
            AnyCsr::Classical(csr) => csr,
            AnyCsr::MergePath(csr) => csr,
        }
    }
}

impl<T: Real> Product<T> for AnyCsr<T> {
    fn shape(&self) -> Shape {
        self.inner().shape()
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.inner().product(x, y)
    }

    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        self.inner().product_dot(x, y)
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        match self {
            AnyCsr::Classical(csr) => csr.fill(pattern, values),
            AnyCsr::MergePath(csr) => csr.fill(pattern, values),
        }
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        self.inner().entries(pattern, values)
    }

    fn bytes(&self) -> usize {
        self.inner().bytes()
    }
}
