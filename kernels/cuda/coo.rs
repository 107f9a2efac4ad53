//! Coordinates on a device: warps take equally many entries each. The kernel says how, and what is moved.

use super::chunks::{Borders, Chunks, Onto, SOURCE, TILE};
use super::device::{Array, Device, Real};
use super::error::Result;
use super::number::Scalar;
use super::ordered::{Ordered, RawRows, Rows, Way};
use super::product::{Pattern, Product, Shape, check, check_square, config};
use super::slices::WARP;
use super::vector;
use cudarc::driver::{CudaFunction, DeviceRepr, PushKernelArg};

/// How rows are finished whose entries several warps have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crossing {
    /// In a second kernel that adds up, in a fixed order, what each warp carries out.
    #[default]
    CarriedOut,
    /// Each warp adds what it has atomically, to zeros, in whatever order warps come: products differ from run to run by
    /// rounding. Needs no list of such rows.
    Atomic,
}

/// Entries on a device, and the kernel that multiplies them.
#[derive(Debug)]
pub(super) struct Coordinates<T: Real> {
    chunks: Chunks,
    shape: Shape,
    rows: Array<u32>,
    columns: Array<u32>,
    values: Array<T>,
    /// None where rows that cross are added to atomically.
    borders: Option<Borders<T>>,
    multiply: CudaFunction,
    exchange: CudaFunction,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    rows: u64,
    columns: u64,
    values: u64,
    carries: u64,
    tiles: u32,
    tiles_of_chunk: u32,
}
// SAFETY: as `Coo` of coo.cu
unsafe impl DeviceRepr for Raw {}

/// Coordinates of the last entries of rows, as the kernels that fill them see it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawTaken {
    all: RawRows,
    here: RawRows,
    columns: u64,
    last_row: u32,
    last_column: u32,
    slots: u64,
}
// SAFETY: as `Taken` of coo.cu
unsafe impl DeviceRepr for RawTaken {}

impl<T: Real> Coordinates<T> {
    /// All entries of every row but the first `skip`, of a matrix on the device whose pattern this is.
    pub(super) fn of(ordered: &Ordered<T>, pattern: Pattern<'_>, skip: usize, onto: Onto) -> Result<Self> {
        let chunks = Chunks::new(pattern, skip, ordered.device().multiprocessors())?;
        let borders = Borders::new(ordered.device(), &chunks, onto)?;
        let multiply = match onto {
            Onto::Nothing => "coo",
            Onto::Y => "coo_add",
        };
        Coordinates::filled(ordered, pattern, chunks, Some(borders), multiply)
    }

    /// All entries, rows that cross borders added to atomically.
    fn atomic(ordered: &Ordered<T>, pattern: Pattern<'_>) -> Result<Self> {
        let chunks = Chunks::new(pattern, 0, ordered.device().multiprocessors())?;
        Coordinates::filled(ordered, pattern, chunks, None, "coo_atomic")
    }

    fn filled(
        ordered: &Ordered<T>,
        pattern: Pattern<'_>,
        chunks: Chunks,
        borders: Option<Borders<T>>,
        multiply: &str,
    ) -> Result<Self> {
        let (device, slots) = (ordered.device(), chunks.tiles * TILE);
        let coordinates = Coordinates {
            shape: pattern.shape(),
            rows: device.zeros(slots)?,
            columns: device.zeros(slots)?,
            values: device.zeros(slots)?,
            borders,
            multiply: device.function::<T>(&SOURCE, multiply)?,
            exchange: device.function::<T>(&SOURCE, "coo_exchange")?,
            chunks,
        };
        coordinates.fill_places(ordered, pattern)?;
        coordinates.exchange(ordered, Way::IntoSlots)?;
        Ok(coordinates)
    }

    fn taken(&self, ordered: &Ordered<T>, here: &Rows, (last_row, last_column): (u32, u32)) -> RawTaken {
        let (all, here, columns) = (ordered.rows.raw(), here.raw(), ordered.columns.address(0));
        RawTaken { all, here, columns, last_row, last_column, slots: self.values.len() as u64 }
    }

    fn fill_places(&self, ordered: &Ordered<T>, pattern: Pattern<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let (device, starts) = (ordered.device(), &self.chunks.starts);
        let (fill, here) = (device.function::<T>(&SOURCE, "coo_places")?, Rows::new(device, starts)?);
        let row = self.chunks.row_of(self.chunks.count());
        let column = pattern.row(row).last().map_or(0, |entry| pattern.columns()[entry]);
        let taken = self.taken(ordered, &here, (row as u32, column));
        let (rows, columns) = (self.rows.address(0), self.columns.address(0));
        let mut launch = device.inner.stream.launch_builder(&fill);
        launch.arg(&taken).arg(&rows).arg(&columns);
        // SAFETY: arguments as in coo.cu; both arrays have so many slots
        unsafe { launch.launch(config(self.rows.len())) }?;
        Ok(())
    }

    /// Queues the copy of values between the order of rows and slots.
    pub(super) fn exchange(&self, ordered: &Ordered<T>, way: Way) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let device = ordered.device();
        let here = Rows::new(device, &self.chunks.starts)?;
        let (taken, back) = (self.taken(ordered, &here, (0, 0)), u32::from(way == Way::Back));
        let (entries, values) = (ordered.values.address(0), self.values.address(0));
        let mut launch = device.inner.stream.launch_builder(&self.exchange);
        launch.arg(&taken).arg(&entries).arg(&values).arg(&back);
        // SAFETY: arguments as in coo.cu; entries are those of a pattern with as many rows and entries as this, values
        // have so many slots
        unsafe { launch.launch(config(self.values.len())) }?;
        Ok(())
    }

    /// `y ← A x` or `y ← y + A x`, for vectors that were compared with the matrix.
    pub(super) fn multiply(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        match &self.borders {
            Some(borders) => {
                let to = y.address(0);
                borders.finish(y, |carries| self.launch(x, to, carries))
            }
            None => {
                y.clear()?;
                self.launch(x, y.address(0), 0)
            }
        }
    }

    fn launch(&self, x: &Array<T>, y: u64, carries: u64) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let raw = Raw {
            rows: self.rows.address(0),
            columns: self.columns.address(0),
            values: self.values.address(0),
            carries,
            tiles: self.chunks.tiles as u32,
            tiles_of_chunk: self.chunks.tiles_of_chunk as u32,
        };
        let x_address = x.address(0);
        let mut launch = x.device().inner.stream.launch_builder(&self.multiply);
        launch.arg(&raw).arg(&x_address).arg(&y);
        // SAFETY: arguments as in coo.cu; rows and columns were checked with the pattern, tiles are whole, and the kernel
        // that has no carries writes none
        unsafe { launch.launch(config(self.chunks.chunks() * WARP)) }?;
        Ok(())
    }

    /// The array that values lie in.
    pub(super) fn slots(&mut self) -> &mut Array<T> {
        &mut self.values
    }

    /// Whether there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.tiles == 0
    }

    pub(super) fn bytes(&self) -> usize {
        let borders = self.borders.as_ref().map_or(0, Borders::bytes);
        self.rows.bytes() + self.columns.bytes() + self.values.bytes() + borders
    }
}

/// A matrix in coordinates.
#[derive(Debug)]
pub struct Coo<T: Real>(Coordinates<T>);

impl<T: Real> Coo<T> {
    /// A matrix with a value for each entry of the pattern.
    pub fn new(device: &Device, pattern: Pattern<'_>, values: &[T], crossing: Crossing) -> Result<Self> {
        let ordered = Ordered::new(device, pattern, values)?;
        Ok(Coo(match crossing {
            Crossing::CarriedOut => Coordinates::of(&ordered, pattern, 0, Onto::Nothing)?,
            Crossing::Atomic => Coordinates::atomic(&ordered, pattern)?,
        }))
    }
}

impl<T: Real> Product<T> for Coo<T> {
    fn shape(&self) -> Shape {
        self.0.shape
    }

    fn product(&self, x: &Array<T>, y: &mut Array<T>) -> Result<()> {
        check(self.0.shape, self.0.values.device(), x, y);
        self.0.multiply(x, y)
    }

    /// In a launch of its own: a row's entries may come from several warps.
    fn product_dot(&self, x: &Array<T>, y: &mut Array<T>) -> Result<Scalar<T>> {
        check_square(self.0.shape, self.0.values.device(), x, y);
        self.0.multiply(x, y)?;
        Ok(vector::dot(x, y))
    }

    fn fill(&mut self, pattern: Pattern<'_>, values: &[T]) -> Result<()> {
        let ordered = Ordered::with_values(self.0.values.device(), self.0.shape, pattern, values)?;
        self.0.exchange(&ordered, Way::IntoSlots)
    }

    fn entries(&self, pattern: Pattern<'_>, values: &mut [T]) -> Result<()> {
        let ordered = Ordered::zeros(self.0.values.device(), self.0.shape, pattern)?;
        self.0.exchange(&ordered, Way::Back)?;
        ordered.values.read(values)
    }

    fn slots(&mut self) -> Vec<&mut Array<T>> {
        vec![&mut self.0.values]
    }

    fn take(&mut self, ordered: &Ordered<T>) -> Result<()> {
        self.0.exchange(ordered, Way::IntoSlots)
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn reproducible(&self) -> bool {
        self.0.borders.is_some()
    }
}
