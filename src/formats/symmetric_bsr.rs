//! Symmetric BSR: each pair of blocks `A_ij = A_jiᵀ` is read once.
//!
//! The format is for symmetric matrices with several unknowns per node. A product reads half the bytes of BSR
//! if blocks are close to the diagonal. Rows are divided into parts as in [`SymCsr`](super::SymCsr), and
//! pairs of blocks whose row and column are not in the same part or in adjacent ones are stored in both triangles.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::analysis::Model;
#[cfg(feature = "cuda")]
use super::bsr::best_block_size;
use super::bsr::{BLOCK_SIZES, best_blocks, block_pattern, block_size, slots_of_blocks};
use super::symmetric::{check_symmetric, halves_bytes, mirrored_entries, parts, stored};
use super::{Analysis, Coefficients, Csr, Format, Multiply, Offer, Offered, Source, Variant};
use crate::error::{Error, Result};
use crate::host::{HostSpace, HostVector};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::bsr::SLACK;
use krysp_kernels::cpu::formats::symmetric::{Halves, reach};
use krysp_kernels::cpu::formats::symmetric_blocks;
use krysp_kernels::cpu::run::threads::{fill_by_rows, map_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::{Columns, Offsets};
#[cfg(feature = "cuda")]
use krysp_kernels::windows::TooLarge;
use krysp_solvers::LinearOperator;

/// Options of the conversion to symmetric BSR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymBsrOptions {
    /// Rows and columns per block: 2, 3, 4 or 6. `None` selects the size that takes the fewest bytes in BSR.
    pub size: Option<usize>,
}

/// A symmetric matrix of small dense blocks, of which one triangle is stored.
#[derive(Clone, Debug)]
pub struct SymBsr<T: Real> {
    source: Source<T>,
    size: usize,
    /// Pattern of the stored blocks.
    halves: Halves,
    values: Buffer<T>,
}

saved!(impl[T: Real] SymBsr<T> { source, size, halves, values } where |read| {
    let entries = read.values.len().checked_sub(SLACK);
    BLOCK_SIZES.contains(&read.size)
        && read.halves.size() == read.size
        && entries.is_some_and(|entries| read.halves.fit(read.source.pattern.rows(), entries))
});

impl<T: Real> SymBsr<T> {
    /// Converts a symmetric matrix with the block size of [`Bsr::new`](super::Bsr::new). If `a_ij` and `a_ji`
    /// differ by rounding, the entry below the diagonal is used.
    pub fn new(csr: &Csr<T>) -> Result<SymBsr<T>> {
        SymBsr::with(csr, SymBsrOptions::default())
    }

    /// Converts a symmetric matrix. Returns an error if the block size does not divide its rows.
    pub fn with(csr: &Csr<T>, options: SymBsrOptions) -> Result<SymBsr<T>> {
        let size = block_size(csr, options.size)?;
        let (offsets, columns) = block_pattern(csr, size)?;
        check_symmetric(csr)?;
        let unsuitable = |_| Error::Unsuitable { format: Self::NAME, why: "an index is out of range".into() };
        let rows = offsets.ranges();
        let parts: Vec<usize> = parts(csr.pattern()).into_iter().map(|bound| bound / size).collect();
        let stored_of = |row: usize| stored(&offsets, &columns, row, reach(&parts, row));
        let lengths = map_rows(rows, 8, &|row| {
            let stored = stored_of(row);
            (stored.mirrored.len() as u32, stored.mirrored.len() + stored.rest.count())
        });
        let (mirrored, lengths): (Vec<u32>, Vec<usize>) = lengths.into_iter().unzip();
        let kept = Offsets::from_lengths(lengths);
        let mut kept_columns = Buffer::zeros(kept.end());
        fill_by_rows(rows, &mut kept_columns, &|row| kept.at(row), &|rows, part, _| {
            let blocks = rows.map(stored_of).flat_map(|stored| stored.mirrored.chain(stored.rest));
            part.iter_mut().zip(blocks).for_each(|(column, block)| *column = columns[block]);
        });
        let kept_columns = Columns::new(kept_columns, csr.cols() / size).map_err(unsuitable)?;
        let values = Buffer::zeros(kept.end() * size * size + SLACK);
        let halves = Halves::new(size, parts, kept, mirrored, kept_columns).map_err(unsuitable)?;
        let mut sym = SymBsr { source: csr.source().clone(), size, halves, values };
        sym.fill(csr.entries());
        Ok(sym)
    }

    /// Bytes of a symmetric matrix in host memory with blocks of a size, computed without converting it.
    pub(crate) fn bytes_of(csr: &Csr<T>, size: usize) -> Result<usize> {
        let (offsets, columns) = block_pattern(csr, size)?;
        Ok(halves_bytes(csr, size, &offsets, &columns))
    }

    /// Block size.
    pub fn block_size(&self) -> usize {
        self.size
    }
}

impl<T: Real> Multiply<T> for SymBsr<T> {
    fn multiply<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.source.check(x, y)?;
        let (x, y) = (x.as_slice(), y.as_mut_slice());
        symmetric_blocks::product(self.size, &self.halves, values, x, y);
        Ok(())
    }
}

impl<T: Real> LinearOperator for SymBsr<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.source.domain()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.multiply(&self.values, x, y)
    }

    super::precise_residual!();

    fn bytes(&self) -> usize {
        self.halves.bytes() + size_of_val(&*self.values)
    }
}

impl<T: Real> Format<T> for SymBsr<T> {
    const NAME: &'static str = "symmetric BSR";
    type Value = T;
    type Options = SymBsrOptions;

    fn with(csr: &Csr<T>, options: SymBsrOptions) -> Result<Self> {
        SymBsr::with(csr, options)
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
        self.halves.offsets().at(row / self.size) * self.size * self.size
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let (size, pattern) = (self.size, &self.source.pattern);
        let blocks = self.halves.offsets().range(row / size);
        let columns = &self.halves.columns()[blocks.clone()];
        // both lists ascend; mirrored blocks come before all others
        let (mirrored, rest) = columns.split_at(self.halves.mirrored()[row / size] as usize);
        for (entry, &column) in pattern.offsets.range(row).zip(pattern.row(row)) {
            let block = column / size as u32;
            let at = mirrored.binary_search(&block).or_else(|_| {
                let at = rest.binary_search(&block)?;
                Ok::<usize, usize>(mirrored.len() + at)
            });
            // mirror images of stored entries are not stored
            if let Ok(at) = at {
                visit(entry, ((blocks.start + at) * size + column as usize % size) * size + row % size);
            }
        }
    }

    /// Number of zeros in partially filled blocks per stored entry.
    fn padding(&self) -> f64 {
        let slots = self.halves.offsets().end() * self.size * self.size;
        let mut stored = 0;
        (0..self.source.pattern.rows()).for_each(|row| self.slots(row, |_, _| stored += 1));
        if stored == 0 { 0.0 } else { (slots - stored) as f64 / stored as f64 }
    }

    fn entries_from<V: Storage<T>>(&self, values: &[V]) -> Buffer<T> {
        mirrored_entries(self, values)
    }
}

impl<T: Real> Offered<T> for SymBsr<T> {
    const SYMMETRIC: bool = true;

    /// With AVX-512, the advantage over formats with gathers is smaller, because gathers are fast there
    /// (`elast_bracket_p1_59k` in `benches/record/avx512-2t`).
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::BySimdLevel {
                avx512: CostModel { start: 0.0, byte: 0.9, gather: 0.0, row: 110.0, wait: 0.0 },
                other: CostModel { start: 0.0, byte: 0.7, gather: 0.0, row: 165.0, wait: 0.0 },
            },
            gpu: Coefficients::Fixed(CostModel {
                start: 59.9e6,
                byte: 0.608,
                gather: 20.3,
                row: 0.0,
                wait: 1.49e6,
            }),
        }]
    }

    /// Predicts the same padding as for [`Bsr`](super::Bsr).
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<SymBsrOptions>>> {
        let (bytes, size) = best_blocks(matrix.csr)?;
        let slots = slots_of_blocks(matrix.csr, bytes, size);
        let (bytes, gathers, rows, waits) = match matrix.machine {
            Model::Host => (SymBsr::bytes_of(matrix.csr, size)?, 0, matrix.rows.rows, 0),
            #[cfg(feature = "cuda")]
            Model::Gpu { .. } => {
                let (bytes, halo) = SymBsr::footprint_on_gpu(matrix.csr, size)?;
                // a thread processes its nodes one after the other, and a node stores half of its pairs
                let pairs = matrix.rows.longest.div_ceil(size).div_ceil(2);
                let nodes = cuda::formats::symmetric::nodes_of_thread(size, size_of::<T>());
                (bytes, halo, 0, nodes * pairs)
            }
        };
        Ok(vec![Offer {
            detail: format!("blocks of {size} x {size}"),
            gathers: gathers as f64,
            rows,
            waits,
            ..matrix.offer(Self::variants()[0], SymBsrOptions { size: Some(size) }, bytes, slots)
        }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> SymBsr<T> {
    /// Number of rows that one thread block of a GPU processes (not the size of the dense blocks). Pass it to
    /// [`Permutation::clustered`](crate::Permutation::clustered), so that each run of that ordering is the
    /// rows of a thread block and few pairs cross thread blocks; a pair that crosses them is stored twice.
    ///
    /// ```no_run
    /// # fn main() -> krysp::Result<()> {
    /// # let csr = krysp::Csr::<f64>::from_triplets(1, 1, &[(0, 0, 1.0)])?;
    /// use krysp::formats::OnDevice;
    /// use krysp::{Cuda, Permutation, SymBsr};
    ///
    /// let gpu = Cuda::new(0)?;
    /// let permutation = Permutation::clustered_on(&gpu, &csr, SymBsr::rows_per_block(&csr)?)?;
    /// let a = SymBsr::on_reordered(&gpu, &csr, &permutation)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_per_block(csr: &Csr<T>) -> Result<usize> {
        let size = best_block_size(csr)?;
        Ok(cuda::formats::symmetric::nodes_per_block::<T>(size) * size)
    }

    /// Memory traffic on a GPU of a symmetric matrix with blocks of a size, computed without converting it:
    /// bytes, and entries of `x` in halos. Returns an error if some rows read more entries of `x` than a
    /// window (the part of `x` in shared memory) can hold.
    pub(crate) fn footprint_on_gpu(csr: &Csr<T>, size: usize) -> Result<(usize, usize)> {
        let (offsets, columns) = block_pattern(csr, size)?;
        let footprint =
            cuda::formats::symmetric::footprint::<T>(size, cuda::Pattern::new(&offsets, &columns));
        let cuda::formats::symmetric::Footprint { bytes, halo } =
            footprint.map_err(|TooLarge { rows, window }| {
                let why = format!(
                    "nodes {} to {} read {window} nodes, more than a window holds",
                    rows.start, rows.end
                );
                Error::Unsuitable { format: Self::NAME, why }
            })?;
        Ok((bytes, halo * size))
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for SymBsr<T> {
    type Arrays<V: Storage<T>> = cuda::formats::symmetric::Symmetric<T, V>;

    fn chosen(&self) -> SymBsrOptions {
        SymBsrOptions { size: Some(self.size) }
    }

    /// Uses blocks of rows that keep the `x` they read in shared memory.
    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: SymBsrOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        let size = block_size(csr, options.size)?;
        let (offsets, columns) = block_pattern(csr, size)?;
        check_symmetric(csr)?;
        let (pattern, nodes) = (csr.source().on_device(), cuda::Pattern::new(&offsets, &columns));
        Ok(Self::Arrays::<V>::new(device, size, nodes, pattern, csr.entries())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::copied;

    /// A matrix of dense blocks of `size` rows on the diagonal and beside it.
    fn tridiagonal_blocks(size: usize) -> Csr<f64> {
        let near = |i: usize, j: usize| (i / size).abs_diff(j / size) <= 1;
        let pairs = (0..5 * size).flat_map(|i| (0..5 * size).map(move |j| (i, j)));
        let entries: Vec<_> =
            pairs.filter(|&(i, j)| near(i, j)).map(|(i, j)| (i, j, (1 + i + j) as f64)).collect();
        Csr::from_triplets(5 * size, 5 * size, &entries).unwrap()
    }

    #[test]
    fn forged_sizes_and_values_are_refused() {
        let a = tridiagonal_blocks(3);
        let sym = SymBsr::new(&a).unwrap();
        let loaded = copied(&sym).unwrap();
        assert_eq!(loaded.values(), sym.values());

        let mut short = sym.clone();
        short.values = Buffer::zeros(sym.values.len() - 1);
        assert!(copied(&short).is_err(), "no zeros follow the last block");
        let mut none = sym.clone();
        none.values = Buffer::zeros(0);
        assert!(copied(&none).is_err(), "no values");

        // a size without a kernel, in all parts of the file
        let offsets = Offsets::from_lengths(vec![1; 3]);
        let columns = Columns::new(Buffer::from(vec![0, 1, 2]), 3).unwrap();
        let halves = Halves::new(5, vec![0, 3], offsets, vec![0; 3], columns).unwrap();
        let source = tridiagonal_blocks(3).source().clone();
        let values = Buffer::zeros(3 * 25 + SLACK);
        assert!(copied(&SymBsr::<f64> { source, size: 5, halves, values }).is_err(), "blocks of 5 rows");
    }
}
