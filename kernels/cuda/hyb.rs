//! HYB on a device: the first entries of every row in slices, then the overflow of long rows as coordinates, added to `y`
//! in launches of their own. Moves what [`Sliced`] and [`Coo`](super::coo::Coo) move; rows with overflow read and write
//! `y` once more.

use super::chunks::Onto;
use super::coo::Coordinates;
use super::device::{Array, Device, Real};
use super::error::Result;
use super::lengths;
use super::number::Scalar;
use super::ordered::{Ordered, Way};
use super::product::{Layout, Pattern, Product, Shape, check_square};
use super::sliced::{Sliced, Widths};
use super::vector;

/// Entries of every row that slices store: as many as the shortest length has that more rows than `rows` do not exceed, and
/// `most`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Width {
    /// So many rows may be as long or shorter; from the number of all on, none overflows.
    pub rows: f64,
    /// The most.
    pub most: usize,
}

/// A matrix in slices and coordinates.
#[derive(Debug)]
pub struct Hyb<T: Real> {
    first: Sliced<T>,
    overflow: Coordinates<T>,
}

impl<T: Real> Hyb<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], width: Width) -> Result<Self> {
        let ordered = Ordered::new(device, pattern, values)?;
        let width = lengths::quantile(device, &ordered.rows, width.rows)?.min(width.most);
        Ok(Hyb {
            first: Sliced::of(&ordered, pattern, Widths::First(width))?,
            overflow: Coordinates::of(&ordered, pattern, width, Onto::Y)?,
        })
    }

    fn exchange(&self, ordered: &Ordered<T>, way: Way) -> Result<()> {
        self.first.exchange(ordered, way)?;
        self.overflow.exchange(ordered, way)
    }
}

impl<T: Real> Product<T> for Hyb<T> {
    fn shape(&self) -> Shape {
        Layout::shape(&self.first)
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
        check_square(Product::shape(self), self.first.values().device(), x, y);
        self.product(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let (device, shape) = (self.first.values().device(), Product::shape(self));
        let ordered = Ordered::with_values(device, shape, pattern, values)?;
        self.exchange(&ordered, Way::IntoSlots)
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        let ordered = Ordered::zeros(self.first.values().device(), Product::shape(self), pattern)?;
        self.exchange(&ordered, Way::Back)?;
        ordered.values.read(values)
    }

    fn slots(&mut self) -> Vec<&mut Array<T>> {
        let mut slots = Product::slots(&mut self.first);
        slots.push(self.overflow.slots());
        slots
    }

    fn take(&mut self, ordered: &Ordered<T>) -> Result<()> {
        self.exchange(ordered, Way::IntoSlots)
    }

    fn bytes(&self) -> usize {
        Product::bytes(&self.first) + self.overflow.bytes()
    }
}
