//! HYB on a device: the first entries of every row in slices, and the rest of long rows as coordinates, added
//! to `y` by a second launch. Memory traffic: that of [`Sliced`] and [`Coo`](crate::cuda::formats::coo::Coo),
//! and `y` once more in rows with overflow, read and written.

use crate::cuda::device::error::Result;
use crate::cuda::device::{Array, Device, Real, Storage};
use crate::cuda::formats::coo::Coordinates;
use crate::cuda::formats::sliced::{Sliced, Widths};
use crate::cuda::matrix::borders::Onto;
use crate::cuda::matrix::device_csr::{DeviceCsr, Direction};
use crate::cuda::matrix::lengths;
use crate::cuda::matrix::pattern::{Pattern, Shape};
use crate::cuda::matrix::product::{Layout, Product, Slots, check_square};
use crate::cuda::solve::number::Scalar;
use crate::cuda::solve::vector;

/// Rule for the number of entries per row that are stored in slices: the smallest length that more than
/// `rows` rows do not exceed, but at most `most`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Width {
    /// Number of rows that defines the quantile. If it is at least the number of all rows, the length of the
    /// longest row is used.
    pub rows: f64,
    /// Maximum number of entries per row.
    pub most: usize,
}

/// A matrix in slices and coordinates.
#[derive(Debug)]
pub struct Hyb<T: Real, V: Storage<T> = T> {
    first: Sliced<T, V>,
    overflow: Coordinates<T, V>,
}

impl<T: Real, V: Storage<T>> Hyb<T, V> {
    /// Uploads a matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], width: Width) -> Result<Self> {
        let ordered = DeviceCsr::new(device, pattern, values)?;
        let width = lengths::quantile(device, &ordered.rows, width.rows)?.min(width.most);
        Ok(Hyb {
            first: Sliced::of(&ordered, pattern, Widths::First(width))?,
            overflow: Coordinates::of(&ordered, pattern, width, Onto::Y)?,
        })
    }

    fn copy_values(&self, ordered: &DeviceCsr<T>, direction: Direction) -> Result<()> {
        self.first.copy_values(ordered, direction)?;
        self.overflow.copy_values(ordered, direction)
    }
}

impl<T: Real, V: Storage<T>> Product<T> for Hyb<T, V> {
    fn shape(&self) -> Shape {
        Layout::shape(&self.first)
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        self.first.product(x, y)?;
        self.overflow.multiply(x, y)
    }

    /// Computes the inner product in a separate launch if rows overflow.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        if self.overflow.is_empty() {
            return self.first.product_dot(x, y);
        }
        check_square(Product::shape(self), self.first.device(), x, y);
        self.product(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let (device, shape) = (self.first.device(), Product::shape(self));
        let ordered = DeviceCsr::with_values(device, shape, pattern, values)?;
        self.copy_values(&ordered, Direction::ToSlots)
    }

    fn fill_from(&mut self, pattern: Pattern<'_>, ordered: &DeviceCsr<T>) -> Result<()> {
        ordered.check(Product::shape(self), pattern);
        self.copy_values(ordered, Direction::ToSlots)
    }

    fn copy_values_to(&self, pattern: Pattern<'_>, ordered: &mut DeviceCsr<T>) -> Result<()> {
        ordered.check(Product::shape(self), pattern);
        self.copy_values(ordered, Direction::FromSlots)
    }

    fn entries(&self, pattern: Pattern<'_>) -> Result<DeviceCsr<T>> {
        let ordered = DeviceCsr::zeros(self.first.device(), Product::shape(self), pattern)?;
        self.copy_values(&ordered, Direction::FromSlots)?;
        Ok(ordered)
    }

    fn slots(&self) -> Vec<Slots> {
        let mut slots = Product::slots(&self.first);
        slots.push(self.overflow.slots());
        slots
    }

    fn bytes(&self) -> usize {
        Product::bytes(&self.first) + self.overflow.bytes()
    }
}
