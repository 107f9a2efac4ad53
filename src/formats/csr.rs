//! CSR (compressed sparse rows): the central format, from which all others are converted.
//!
//! The entries of a row are stored together, sorted by column. A product reads 12 bytes per entry (f64) or 8
//! (f32), 4 bytes of offsets per row, and `x`, and writes `y`. The [`Strategy`] defines how threads share the
//! work.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::analysis::Model;
#[cfg(feature = "cuda")]
use super::analysis::RowStatistics;
use super::pattern::Pattern;
use super::user_order::reordering;
use super::{
    Analysis, Coefficients, Format, Multiply, Offer, Offered, Source, Strategy, Variant, offset_bytes,
};
use crate::error::{Error, Result};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
#[cfg(feature = "cuda")]
use crate::numbers::Storage;
use crate::permutation::Permutation;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::csr;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::{self, csr::Rows, tuning::CSR_COST_MODELS};
use krysp_solvers::LinearOperator;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

/// Options of products with a CSR matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsrOptions {
    /// Division of the rows among threads.
    pub strategy: Strategy,
}

/// A matrix in compressed sparse rows (CSR).
///
/// Built by [`Csr::from_triplets`], [`Csr::from_csr`], [`Csr::from_csc`] or from a file; every constructor
/// checks its input once. For a symmetric matrix of which only one triangle is available, build the triangle
/// and call [`Csr::mirrored`].
#[derive(Clone, Debug)]
pub struct Csr<T: Real> {
    source: Source<T>,
    values: Buffer<T>,
    strategy: Strategy,
}

saved!(impl[T: Real] Csr<T> { source, values, strategy } where |read| {
    // force the lazy columns before loops on all threads read them
    LazyLock::force(&read.source.pattern.columns);
    read.source.fits(&read.kernel(&read.values))
});

impl<T: Real> Csr<T> {
    pub(crate) fn from_source(source: Source<T>, values: Buffer<T>) -> Csr<T> {
        // force the lazy columns before loops on all threads read them
        LazyLock::force(&source.pattern.columns);
        Csr { source, values, strategy: Strategy::Automatic }
    }

    /// Sets the division of the rows among threads, here and on a GPU to which the matrix is moved.
    ///
    /// ```
    /// use krysp::Csr;
    /// use krysp::formats::Strategy;
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?.with_strategy(Strategy::Classical);
    /// assert_eq!(a.strategy(), Strategy::Classical);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Csr<T> {
        Csr { strategy, ..self }
    }

    /// Division of the rows among threads.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.pattern().rows()
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.pattern().cols()
    }

    /// Number of stored entries, including explicit zeros.
    pub fn nnz(&self) -> usize {
        self.pattern().entries()
    }

    /// Number of entries of each row.
    pub fn row_lengths(&self) -> impl ExactSizeIterator<Item = usize> + Clone + '_ {
        self.pattern().offsets.lengths()
    }

    /// Columns of a row's entries, ascending.
    #[inline]
    pub fn row_columns(&self, row: usize) -> &[u32] {
        self.pattern().row(row)
    }

    /// Values of a row's entries.
    #[inline]
    pub fn row_values(&self, row: usize) -> &[T] {
        &self.values[self.pattern().offsets.range(row)]
    }

    /// Columns of all entries, row by row.
    pub fn columns(&self) -> &[u32] {
        &self.pattern().columns
    }

    /// Values of all entries, row by row with ascending columns: the order that [`Format::refresh`] expects.
    pub fn entries(&self) -> &[T] {
        &self.values
    }

    /// Row offsets: the index of the first entry of each row, then the number of entries.
    pub fn offsets(&self) -> Vec<usize> {
        map_rows(self.rows() + 1, 2, &|row| self.pattern().offsets.at(row))
    }

    /// Iterates over the entries `(row, column, value)`, row by row.
    pub fn triplets(&self) -> impl Iterator<Item = (usize, usize, T)> + '_ {
        (0..self.rows()).flat_map(|row| {
            self.row_columns(row)
                .iter()
                .zip(self.row_values(row))
                .map(move |(&col, &value)| (row, col as usize, value))
        })
    }

    /// Diagonal of the matrix, zero where no entry is stored.
    pub fn diagonal_entries(&self) -> Vec<T> {
        let entry = |row: usize| self.get(row, row).unwrap_or_default();
        map_rows(self.rows().min(self.cols()), 8, &entry)
    }

    /// Value of a stored entry; `None` if none is stored at this position.
    pub fn get(&self, row: usize, col: usize) -> Option<T> {
        let at = self.row_columns(row).binary_search(&u32::try_from(col).ok()?).ok()?;
        Some(self.row_values(row)[at])
    }

    /// Converts assembled values to entries. `values` are in the order in which this matrix was given (as
    /// triplets, as CSR or CSC arrays or as one triangle); the result has one value per entry in the order of
    /// [`Csr::entries`], which [`Format::refresh`] expects.
    ///
    /// Values of duplicate positions are added, and those of a mirrored triangle are copied. One pass on all
    /// threads; if the orders are the same, `values` are returned without a copy.
    ///
    /// ```
    /// use krysp::Csr;
    ///
    /// // the positions of one triangle, one of them given twice
    /// let places = [(1, 1, 2.0), (0, 1, -1.0), (0, 0, 1.0), (0, 0, 1.0)];
    /// let a = Csr::from_triplets(2, 2, &places)?.mirrored()?;
    /// assert_eq!(*a.assemble(&[4.0, -2.0, 2.0, 3.0])?, [5.0, -2.0, -2.0, 4.0]);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.source.assemble(values)
    }

    /// Returns a matrix with the same pattern and in the same space, with other values in the order of
    /// [`Csr::entries`].
    pub fn with_values(&self, values: &[T]) -> Result<Csr<T>> {
        let mut other = self.clone();
        other.refresh(values)?;
        Ok(other)
    }

    /// Converts the entries to another type, for example to store them in less memory; the pattern is shared.
    pub fn cast<U: Real>(&self) -> Csr<U> {
        let [domain, range] = [self.source.domain(), self.source.range()].map(HostSpace::cast);
        let mut values = Buffer::zeros(self.nnz());
        over_rows(self.nnz(), 2, &mut *values, &|entries, values: &mut [U]| {
            for (value, &from) in values.iter_mut().zip(&self.values[entries]) {
                *value = U::from_f64(krysp_solvers::Element::to_f64(from));
            }
        });
        Csr {
            source: Source::new(self.source.pattern.clone(), domain, range),
            values,
            strategy: self.strategy,
        }
    }

    pub(super) fn check_square(&self, what: &'static str) -> Result<()> {
        let (rows, cols) = (self.rows(), self.cols());
        if rows == cols { Ok(()) } else { Err(Error::NotSquare { what, rows, cols }) }
    }

    /// Returns the symmetric matrix of which this is one triangle. It has the entries of both triangles; to
    /// refresh it with values of one triangle, pass them through [`Csr::assemble`].
    pub fn mirrored(&self) -> Result<Csr<T>> {
        self.check_square("mirroring a triangle")?;
        let below = (0..self.rows()).find_map(|row| {
            let first = *self.row_columns(row).first()? as usize;
            (first < row).then_some((row, first))
        });
        let above = (0..self.rows()).find_map(|row| {
            let columns = self.row_columns(row);
            let after = columns.partition_point(|&column| column as usize <= row);
            Some((row, *columns.get(after)? as usize))
        });
        if let (Some((row, col)), Some((other_row, other_col))) = (below, above) {
            return Err(Error::NotTriangle { row, col, other_row, other_col });
        }
        let pattern = self.pattern().mirrored()?;
        Ok(self.rearranged(pattern, self.source.domain().clone()))
    }

    /// Reorders the unknowns (a symmetric permutation of rows and columns). Operators made from the result,
    /// and vectors of its spaces, use the new order; right-hand sides and solutions of a solve remain in the
    /// user's order.
    ///
    /// [`Csr::entries`] of the result are in the new order, and operators made from it are refreshed in that
    /// order. [`Csr::assemble`] of the result accepts values in the order in which this matrix was given, and
    /// [`Format::refresh_from`] accepts a matrix in either order.
    #[doc(alias = "permute")]
    #[doc(alias = "renumbering")]
    pub fn reordered(&self, permutation: &Permutation) -> Result<Csr<T>> {
        self.in_space(&HostSpace::permuted(Arc::new(permutation.clone())))
    }

    /// Reorders the matrix to the order of `space`, so that it can be combined with operators in that space.
    pub fn in_space(&self, space: &HostSpace<T>) -> Result<Csr<T>> {
        self.check_numbers(krysp_solvers::Space::len(space))?;
        if space == self.source.domain() {
            return Ok(self.clone());
        }
        let [from, to] = [self.source.domain(), space].map(|space| space.permutation().cloned());
        let (origin, place) = reordering(from, to);
        let (pattern, values) = self.pattern().reordered(|entry| self.values[entry], origin, place)?;
        let source = Source::new(Arc::new(pattern), space.clone(), space.clone());
        Ok(Csr { source, values, strategy: self.strategy })
    }

    /// Reorders this matrix on a device. The columns of the pattern are computed on the host only when they
    /// are needed. Returns `None` if the matrix was reordered before, or its rows are too long for the
    /// kernel.
    #[cfg(feature = "cuda")]
    pub(crate) fn reordered_on(
        &self,
        device: &cuda::Device,
        permutation: &Permutation,
    ) -> Result<Option<(Source<T>, cuda::DeviceCsr<T>)>> {
        self.check_numbers(permutation.len())?;
        if self.source.domain().permutation().is_some() {
            return Ok(None);
        }
        let (old_of_new, new_of_old) = (permutation.old_of_new(), permutation.new_of_old());
        let pattern = self.source.on_device();
        let made = cuda::DeviceCsr::reordered(device, pattern, &self.values, old_of_new, new_of_old)?;
        let Some((ordered, offsets)) = made else { return Ok(None) };
        let permutation = Arc::new(permutation.clone());
        let pattern = Arc::new(self.source.pattern.reordered_lazily(&permutation, offsets)?);
        let space = HostSpace::permuted(permutation);
        Ok(Some((Source::new(pattern, space.clone(), space), ordered)))
    }

    /// Checks that a permutation or space has as many unknowns as this square matrix.
    fn check_numbers(&self, got: usize) -> Result<()> {
        self.check_square("reordering")?;
        let expected = self.rows();
        if got == expected {
            return Ok(());
        }
        Err(Error::Length { what: "the space", got, expected, why: "one entry for each row" })
    }

    fn rearranged(&self, (pattern, order): (Pattern, Buffer<u32>), space: HostSpace<T>) -> Csr<T> {
        let mut values = Buffer::zeros(order.len());
        over_rows(order.len(), 2, &mut *values, &|entries, values: &mut [T]| {
            for (value, &from) in values.iter_mut().zip(&order[entries]) {
                *value = self.values[from as usize];
            }
        });
        let source = Source::new(Arc::new(pattern), space.clone(), space);
        Csr { source, values, strategy: self.strategy }
    }

    /// Declares that rows and columns are already in the order of `space`; nothing is reordered.
    pub(crate) fn declared_in(mut self, space: &HostSpace<T>) -> Csr<T> {
        self.source = Source::new(self.source.pattern.clone(), space.clone(), space.clone());
        self
    }

    pub(crate) fn pattern(&self) -> &Pattern {
        &self.source.pattern
    }

    /// The arrays as kernels expect them.
    pub(crate) fn arrays(&self) -> csr::Csr<'_, T> {
        self.kernel(&self.values)
    }

    pub(crate) fn kernel<'a, V>(&'a self, values: &'a [V]) -> csr::Csr<'a, V> {
        let Pattern { offsets, columns, .. } = self.pattern();
        csr::Csr { offsets: (&**offsets).into(), columns: (&**columns).into(), values }
    }
}

impl<T: Real> LinearOperator for Csr<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.source.domain()
    }

    fn range(&self) -> &HostSpace<T> {
        self.source.range()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.multiply(&self.values, x, y)
    }

    fn apply_dot(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<T> {
        self.multiply_dot(&self.values, x, y)
    }

    super::many_columns!();

    fn residual(
        &self,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.source.residual(&self.values, b, x, r)
    }

    fn bytes(&self) -> usize {
        self.pattern().offsets.bytes() + size_of_val(self.columns()) + size_of_val(&*self.values)
    }
}

impl<T: Real> Format<T> for Csr<T> {
    const NAME: &'static str = "CSR";
    type Value = T;
    type Options = CsrOptions;

    fn with(csr: &Csr<T>, options: CsrOptions) -> Result<Self> {
        Ok(csr.clone().with_strategy(options.strategy))
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
        self.pattern().offsets.at(row)
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        self.pattern().offsets.range(row).for_each(|entry| visit(entry, entry));
    }

    /// Copies the values, because each entry is its own slot.
    fn fill(&mut self, entries: &[T]) {
        over_rows(entries.len(), 2, &mut *self.values, &|range, part: &mut [T]| {
            part.copy_from_slice(&entries[range]);
        });
    }
}

impl<T: Real> Offered<T> for Csr<T> {
    fn variants() -> Vec<Variant> {
        STRATEGIES.map(variant).into()
    }

    /// On a GPU there is one offer (predicted work) for each strategy of `CSR_COST_MODELS`; on a CPU a single
    /// one, for the strategy of the matrix.
    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<CsrOptions>>> {
        let (rows, entries) = (matrix.csr.rows(), matrix.csr.nnz());
        let bytes = offset_bytes(rows, entries) + entries * Analysis::<T>::ENTRY;
        let offer = |strategy, waits| {
            let options = CsrOptions { strategy };
            Offer { rows, waits, ..matrix.offer(variant(strategy), options, bytes, entries) }
        };
        match matrix.machine {
            Model::Host => Ok(vec![Offer {
                options: CsrOptions { strategy: matrix.csr.strategy() },
                ..offer(Strategy::Classical, 0)
            }]),
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors } => {
                let RowStatistics { longest, value, scattering, .. } = matrix.rows;
                let shared = Rows { count: rows, entries, longest, value, scattering };
                let strategies = CSR_COST_MODELS.map(|(strategy, _)| strategy);
                let waits = |strategy| shared.work(strategy, multiprocessors).waits as usize;
                Ok(strategies.map(|strategy| offer(strategy, waits(strategy))).into())
            }
        }
    }
}

/// Strategies that have separate names in `benches/record`.
const STRATEGIES: [Strategy; 4] =
    [Strategy::Classical, Strategy::LoadBalance, Strategy::MergePath, Strategy::Speculative];

/// Name of a strategy in `benches/record`, and its cost coefficients. The coefficients for GPUs are defined
/// in the kernels crate, which uses them to choose a strategy.
fn variant(strategy: Strategy) -> Variant {
    let name = match strategy {
        Strategy::Automatic | Strategy::Classical => "CSR",
        Strategy::LoadBalance => "CSR load-balance",
        Strategy::MergePath => "CSR merge-path",
        Strategy::Speculative => "CSR speculative",
    };
    let host = match strategy {
        Strategy::Automatic | Strategy::Classical => {
            Coefficients::Fixed(CostModel { start: 0.0, byte: 1.0, gather: 0.0, row: 24.0, wait: 0.0 })
        }
        _ => Coefficients::NotOffered("on a CPU threads share rows by the strategy of the matrix"),
    };
    Variant { name, host, gpu: coefficients_on_gpu(strategy) }
}

#[cfg(feature = "cuda")]
fn coefficients_on_gpu(strategy: Strategy) -> Coefficients {
    let found = CSR_COST_MODELS.iter().find(|cost_model| cost_model.0 == strategy);
    found.map_or(
        Coefficients::NotOffered("slower than another strategy for every matrix of the record"),
        |cost_model| Coefficients::Fixed(cost_model.1),
    )
}

#[cfg(not(feature = "cuda"))]
fn coefficients_on_gpu(_: Strategy) -> Coefficients {
    Coefficients::NotOffered("this program is built without CUDA")
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for Csr<T> {
    type Arrays<V: Storage<T>> = cuda::csr::AnyCsr<T>;
    fn chosen(&self) -> CsrOptions {
        CsrOptions { strategy: self.strategy }
    }

    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: CsrOptions,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<V>> {
        Ok(cuda::csr::AnyCsr::new::<V>(device, csr.source().on_device(), csr.entries(), options.strategy)?)
    }
}
