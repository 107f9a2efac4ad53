//! HYB on a device: the first entries of every row in slices, then the overflow of long rows as coordinates, added to `y`
//! in launches of their own. Moves what [`Sliced`] and [`Coo`](super::coo::Coo) move; rows with overflow read and write
//! `y` once more.

use super::coo::{Coordinates, Onto};
use super::device::{Array, Device, Real};
use super::error::Result;
use super::number::Scalar;
use super::product::{Pattern, Product};
use super::sliced::{Sliced, Widths};
use super::vector;

/// A matrix in slices and coordinates.
#[derive(Debug)]
pub struct Hyb<T: Real> {
    first: Sliced<T>,
    overflow: Coordinates<T>,
}

impl<T: Real> Hyb<T> {
    /// A matrix with a value for each entry of the pattern, `width` of every row in slices.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], width: usize) -> Result<Self> {
        Ok(Hyb {
            first: Sliced::new(device, pattern, values, Widths::First(width))?,
            overflow: Coordinates::new(device, pattern, values, width, Onto::Y)?,
        })
    }

    /// New values, in the order of the entries of the pattern that the matrix was made from.
    pub fn refill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        self.first.refill(pattern, values)?;
        self.overflow.refill(pattern, values)
    }
}

impl<T: Real> Product<T> for Hyb<T> {
    fn rows(&self) -> usize {
        self.first.rows()
    }

    fn cols(&self) -> usize {
        self.first.cols()
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.first.product(x, y)?;
        self.overflow.multiply(x, y)
    }

    /// Where rows overflow, in a launch of its own.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        if self.overflow.is_empty() {
            return self.first.product_dot(x, y);
        }
        assert_eq!(self.rows(), self.cols(), "an inner product needs equal lengths");
        self.product(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn bytes(&self) -> usize {
        self.first.bytes() + self.overflow.bytes()
    }
}
