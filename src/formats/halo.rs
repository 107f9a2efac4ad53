//! Halo: blocks of rows that read `x` from an explicitly cached window.
//!
//! ```text
//! for each block of rows:
//!     window ← x of the block's own rows, then x of its halo: the other columns that it reads
//!     y[row] ← Σ value · window[index]                16-bit indices; on a GPU, 12 bits if nodes have one row
//! ```
//!
//! The format extends the explicit caching of EHYB (Chen 2022) to all columns: EHYB stores entries in columns
//! outside the block separately, with 32-bit indices; here every column is in the window. A product reads 10
//! bytes per entry instead of 12 (f64), or 6 instead of 8 (f32), and half a byte less with 12-bit indices; in
//! dense blocks of 3 x 3 it reads 8.2 or 4.2 bytes. On a GPU the window is stored in shared memory.
//!
//! The halo is small if consecutive rows are neighbours in the mesh: reorder first ([`Csr::reordered`]).
//! Conversion fails if some rows read more entries of `x` than a window can hold.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::bsr::{best_blocks, block_pattern};
#[cfg(feature = "cuda")]
use super::on_device::values_of;
use super::{Analysis, Coefficients, Csr, Format, Offer, Offered, Source, Variant, row_operator};
use crate::error::{Error, Result};
use crate::numbers::{Real, Storage};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::halo;
use krysp_kernels::cpu::run::rows::RowProduct;
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{self, tuning::SLOTS_IN_FLIGHT};
use krysp_kernels::index::{Columns, Offsets};
use krysp_kernels::windows::{LARGEST, PACKED, TooLarge, Windows};
use std::borrow::Cow;

/// Options of the conversion to the Halo format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HaloOptions {
    /// Unknowns per node: 1, 2, 3, 4 or 6. `None` selects the size that takes the fewest bytes.
    pub size: Option<usize>,
}

impl HaloOptions {
    /// Node size given by the option, otherwise the one that takes the fewest bytes.
    fn size_for<T: Real>(self, csr: &Csr<T>) -> usize {
        self.size.unwrap_or_else(|| best_size(csr))
    }
}

/// A matrix stored in blocks of rows with windows of `x`.
#[derive(Clone, Debug)]
pub struct Halo<T: Real> {
    source: Source<T>,
    /// Rows per node.
    size: usize,
    windows: Windows,
    /// Offsets of the dense blocks of each node.
    offsets: Offsets,
    /// Window index of each block's column node.
    columns: Buffer<u16>,
    values: Buffer<T>,
}

impl<T: Real> Halo<T> {
    /// Converts a matrix with the node size that takes the fewest bytes.
    pub fn new(csr: &Csr<T>) -> Result<Halo<T>> {
        Halo::with(csr, HaloOptions::default())
    }

    /// Converts a matrix. Returns an error if the node size does not divide its rows.
    pub fn with(csr: &Csr<T>, options: HaloOptions) -> Result<Halo<T>> {
        let size = options.size_for(csr);
        let (offsets, columns) = node_pattern(csr, size)?;
        let height = CHUNK / size;
        let windows = Windows::new(&offsets, &columns, height, height, LARGEST).map_err(unsuitable::<T>)?;
        let mut places = Buffer::zeros(columns.len());
        fill_by_rows(
            offsets.ranges(),
            &mut places,
            &|node| offsets.at(node),
            &|nodes, part: &mut [u16], first| {
                for node in nodes {
                    for block in offsets.range(node) {
                        part[block - first] = windows.place(node / height, columns[block]) as u16;
                    }
                }
            },
        );
        let values = Buffer::zeros(offsets.end() * size * size);
        let (offsets, source) = (offsets.into_owned(), csr.source().clone());
        let mut halo = Halo { source, size, windows, offsets, columns: places, values };
        halo.fill(csr.entries());
        Ok(halo)
    }

    /// Unknowns per node.
    pub fn node_size(&self) -> usize {
        self.size
    }

    fn kernel<'a, V: Storage<T>>(&'a self, values: &'a [V]) -> impl RowProduct<T> {
        let Halo { size, windows, offsets, columns, .. } = self;
        halo::Halo { size: *size, windows, offsets, columns, values }
    }

    fn array_bytes(&self) -> usize {
        let columns = size_of_val(&*self.columns) + size_of_val(self.windows.all_halos());
        self.offsets.bytes() + columns + size_of_val(&*self.values)
    }
}

/// Node size that takes the fewest bytes.
fn best_size<T: Real>(csr: &Csr<T>) -> usize {
    let single = csr.nnz() * (size_of::<T>() + size_of::<u16>());
    best_blocks(csr).ok().filter(|&(bytes, _)| bytes < single).map_or(1, |(_, size)| size)
}

/// Pattern of the dense blocks between nodes.
fn node_pattern<T: Real>(csr: &Csr<T>, size: usize) -> Result<(Cow<'_, Offsets>, Cow<'_, Columns>)> {
    if size == 1 {
        let pattern = csr.pattern();
        return Ok((Cow::Borrowed(&pattern.offsets), Cow::Borrowed(&pattern.columns)));
    }
    let (offsets, columns) = block_pattern(csr, size)?;
    Ok((Cow::Owned(offsets), Cow::Owned(columns)))
}

fn unsuitable<T: Real>(TooLarge { rows, window }: TooLarge) -> Error {
    let why = format!(
        "rows {} to {} read {window} entries of x, more than a window holds: reorder, or use SELL-P or CSR",
        rows.start, rows.end
    );
    Error::Unsuitable { format: Halo::<T>::NAME, why }
}

row_operator!(Halo);

impl<T: Real> Format<T> for Halo<T> {
    const NAME: &'static str = "Halo";
    type Value = T;
    type Options = HaloOptions;

    fn with(csr: &Csr<T>, options: HaloOptions) -> Result<Self> {
        Halo::with(csr, options)
    }

    fn source(&self) -> &Source<T> {
        &self.source
    }

    fn values(&self) -> &Buffer<T> {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Buffer<T> {
        &mut self.values
    }

    fn first_slot(&self, row: usize) -> usize {
        self.offsets.at(row / self.size) * self.size * self.size
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let (pattern, size) = (&self.source.pattern, self.size);
        let mut block = self.offsets.at(row / size);
        let node_of = |block: usize| self.windows.column(row / CHUNK, self.columns[block] as usize);
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            // the columns of entries and of blocks both ascend, and every entry is in a block
            while node_of(block) < column as usize / size {
                block += 1;
            }
            visit(entry, (block * size + column as usize % size) * size + row % size);
        }
    }
}

impl<T: Real> Offered<T> for Halo<T> {
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::NotOffered("never chosen automatically on a CPU, which caches `x` itself"),
            gpu: Coefficients::Fixed(CostModel {
                start: 17.7e6,
                byte: 0.888,
                gather: 11.6,
                row: 0.0,
                wait: 0.696e6,
            }),
        }]
    }

    /// Predicts the layout on a GPU, for blocks of about a thousand rows. Returns an error if some rows read
    /// more entries of `x` than a window can hold.
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<HaloOptions>>> {
        const ROWS: usize = 1024;
        let csr = matrix.csr;
        let size = best_size(csr);
        let (offsets, columns) = node_pattern(csr, size)?;
        let most = if size == 1 { PACKED } else { LARGEST };
        let windows = Windows::new(&offsets, &columns, (ROWS / size).next_multiple_of(32), 32, most);
        let windows = windows.map_err(unsuitable::<T>)?;
        let halos = windows.all_halos();
        let (blocks, slots) = (columns.len(), columns.len() * size * size);
        // nodes of one row have packed indices of 12 bits
        let places = if size == 1 { blocks * 3 / 2 } else { blocks * 2 };
        let bytes = slots * size_of::<T>() + places + size_of_val(halos) + csr.rows() / size * 2;
        let halo = halos.len() * size;
        Ok(vec![Offer {
            detail: format!("nodes of {size}, {halo} entries of x in halos"),
            gathers: halo as f64,
            #[cfg(feature = "cuda")]
            waits: matrix.rows.longest.div_ceil(SLOTS_IN_FLIGHT),
            ..matrix.offer(Self::variants()[0], HaloOptions { size: Some(size) }, bytes, slots)
        }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> Halo<T> {
    /// Rows per block on a GPU. Pass the number to [`Permutation::clustered`](crate::Permutation::clustered),
    /// so that the runs of that ordering are the blocks.
    ///
    /// ```no_run
    /// # fn main() -> krysp::Result<()> {
    /// # let csr = krysp::Csr::<f64>::from_triplets(1, 1, &[(0, 0, 1.0)])?;
    /// use krysp::formats::OnDevice;
    /// use krysp::{Cuda, Halo, Permutation};
    ///
    /// let gpu = Cuda::new(0)?;
    /// let permutation = Permutation::clustered_on(&gpu, &csr, Halo::rows_per_block(&gpu, &csr))?;
    /// let a = Halo::on_reordered(&gpu, &csr, &permutation)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_per_block(gpu: &crate::device::Cuda, csr: &Csr<T>) -> usize {
        Halo::rows_per_block_of(gpu.device().multiprocessors(), csr)
    }

    /// [`Halo::rows_per_block`] for a GPU that is not available here, given its number of multiprocessors.
    pub fn rows_per_block_of(multiprocessors: usize, csr: &Csr<T>) -> usize {
        let size = best_size(csr);
        cuda::formats::halo::nodes_per_block(csr.rows() / size, size, multiprocessors) * size
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Halo<T> {
    type Arrays<V: Storage<T>> = cuda::formats::halo::Halo<T, V>;

    fn chosen(&self) -> HaloOptions {
        HaloOptions { size: Some(self.size) }
    }

    fn by_lengths(csr: &Csr<T>, options: &HaloOptions) -> Option<HaloOptions> {
        (options.size_for(csr) == 1).then_some(HaloOptions { size: Some(1) })
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: HaloOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        let size = options.size_for(csr);
        let (offsets, columns) = node_pattern(csr, size)?;
        let (pattern, nodes) = (csr.source().on_device(), cuda::Pattern::new(&offsets, &columns));
        Ok(Self::Arrays::<V>::new(device, size, nodes, pattern, csr.entries())?)
    }

    fn lay_out_from<V: Storage<T>>(
        source: &Source<T>,
        ordered: &cuda::DeviceCsr<T>,
        options: HaloOptions,
    ) -> Result<Self::Arrays<V>> {
        let offsets = &source.pattern.offsets;
        if options.size == Some(1)
            && source.pattern.cols() == offsets.ranges()
            && let Some(halo) = Self::Arrays::<V>::of(ordered, offsets)?
        {
            return Ok(halo);
        }
        let csr = Csr::from_source(source.clone(), values_of(ordered)?);
        Self::lay_out(&csr, options, ordered.device())
    }
}
