//! Formats in GPU memory, and matrices in them as operators.

use super::user_order::UserOrder;
use super::{Format, Source};
use crate::device::{self, Cuda, CudaScalar, CudaSpace, CudaVector, OnChip, ToCuda, failed, open_columns};
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::{Real, Storage};
use crate::permutation::Permutation;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::{Device, DeviceCsr, Order, Product, Refill, Resident};
use krysp_solvers::{BasicVector, Error, Form, LinearOperator, MultiVector, Scalars, Space, check_spaces};
use std::borrow::Cow;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A format that can be in GPU memory, where the layout of its arrays may differ from that on the host.
pub trait OnDevice<T: Real>: Format<T> + ToCuda<OnCuda = CudaMatrix<T, Self>> + 'static {
    /// Device arrays of the matrix, with values stored as `V`.
    type Arrays<V: Storage<T>>: Product<T>;

    /// Options of this matrix that apply to a GPU, for moving the matrix there.
    fn chosen(&self) -> Self::Options;

    /// Builds the device arrays of a matrix. Returns an error for options that do not apply on a device.
    #[doc(hidden)]
    fn lay_out<V: Storage<T>>(
        csr: &Csr<T>,
        options: Self::Options,
        device: &Device,
    ) -> Result<Self::Arrays<V>>;

    /// Builds the device arrays of a matrix that is already in device memory as CSR.
    #[doc(hidden)]
    fn lay_out_from<V: Storage<T>>(
        source: &Source<T>,
        ordered: &DeviceCsr<T>,
        options: Self::Options,
    ) -> Result<Self::Arrays<V>> {
        // default implementation: through host memory
        let csr = Csr::from_source(source.clone(), values_of(ordered)?);
        Self::lay_out(&csr, options, ordered.device())
    }

    /// Converts a matrix to this format on a GPU; no slot of the format is filled in host memory.
    fn on(gpu: &Cuda, csr: &Csr<T>) -> Result<CudaMatrix<T, Self>> {
        Self::on_with(gpu, csr, Self::Options::default())
    }

    /// Converts a matrix to this format on a GPU, with options.
    fn on_with(gpu: &Cuda, csr: &Csr<T>, options: Self::Options) -> Result<CudaMatrix<T, Self>> {
        CudaMatrix::new(gpu, csr, options)
    }

    /// Equivalent to `Self::on(gpu, &csr.reordered(permutation)?)`, but reorders on the GPU too. The CSR
    /// arrays are transferred once in their original order, and the reordered ones are built in host memory
    /// only when something needs them, such as [`CudaMatrix::refresh`]. That method takes values in the order
    /// of `csr.entries()`, not of the reordered matrix.
    ///
    /// This is faster for SELL-P, and for Halo with one unknown per node. For other formats the host
    /// reorders, as it does for a matrix that was reordered before or has rows of more than 2048 entries.
    fn on_reordered(gpu: &Cuda, csr: &Csr<T>, permutation: &Permutation) -> Result<CudaMatrix<T, Self>> {
        Self::on_reordered_with(gpu, csr, permutation, Self::Options::default())
    }

    /// Reorders a matrix and converts it to this format on a GPU, with options.
    fn on_reordered_with(
        gpu: &Cuda,
        csr: &Csr<T>,
        permutation: &Permutation,
        options: Self::Options,
    ) -> Result<CudaMatrix<T, Self>> {
        if let Some(options) = Self::by_lengths(csr, &options)
            && let Some((source, ordered)) = csr.reordered_on(gpu.device(), permutation)?
        {
            let reordered = CudaMatrix::from_ordered(gpu, source, &ordered, options)?;
            return Ok(reordered.reordered_from(csr.source()));
        }
        let reordered = Self::on_with(gpu, &csr.reordered(permutation)?, options)?;
        Ok(reordered.reordered_from(csr.source()))
    }

    /// Options with which [`OnDevice::lay_out_from`] needs only the row lengths of a matrix from host memory,
    /// whatever the ordering of the matrix; `None` if it needs more.
    #[doc(hidden)]
    fn by_lengths(_: &Csr<T>, _: &Self::Options) -> Option<Self::Options> {
        None
    }
}

/// Copies the values of a matrix from a device.
pub(super) fn values_of<T: Real>(ordered: &DeviceCsr<T>) -> Result<Buffer<T>> {
    let mut values = Buffer::zeros(ordered.nnz());
    ordered.read(&mut values)?;
    Ok(values)
}

/// A matrix in device memory, in the format `F`, made by [`OnDevice::on`] or
/// [`ToCuda::to`].
///
/// The pattern is kept in host memory as well, for [`CudaMatrix::refresh`] and [`CudaMatrix::to_csr`]; it is
/// shared with the matrix that was copied. New values are in the order of [`Csr::entries`] of that matrix,
/// also after [`OnDevice::on_reordered`].
#[derive(Debug)]
pub struct CudaMatrix<T: Real, F: OnDevice<T>> {
    pub(crate) source: Source<T>,
    pub(crate) arrays: F::Arrays<F::Value>,
    domain: CudaSpace<T>,
    range: CudaSpace<T>,
    /// The order of the user's entries, if the matrix was reordered on the GPU.
    user_order: Option<UserOrder<T>>,
    /// Index of the value of each slot (position in the format's value array), for values that are already on
    /// the GPU: `refill[0]` for values in the order of the user's entries, `refill[1]` for values in the
    /// order of assembly. Computed when first needed.
    refill: [Option<Refill<T>>; 2],
    /// A copy of the matrix in the layout of the persistent kernel, which keeps small systems in on-chip memory; made
    /// when first needed. `None` if the matrix does not suit that kernel, for example because it is too large.
    resident: OnceLock<Option<Resident<T>>>,
    /// The copy for the persistent kernel with outdated values, which is refilled when it is needed again.
    outdated: Mutex<Option<Resident<T>>>,
}

impl<T: Real, F: OnDevice<T>> CudaMatrix<T, F> {
    pub(crate) fn new(gpu: &Cuda, csr: &Csr<T>, options: F::Options) -> Result<CudaMatrix<T, F>> {
        CudaMatrix::with_arrays(gpu, csr.source().clone(), F::lay_out(csr, options, gpu.device()))
    }

    /// A matrix whose values are already on the GPU.
    pub(crate) fn from_ordered(
        gpu: &Cuda,
        source: Source<T>,
        ordered: &DeviceCsr<T>,
        options: F::Options,
    ) -> Result<CudaMatrix<T, F>> {
        let arrays = F::lay_out_from(&source, ordered, options);
        CudaMatrix::with_arrays(gpu, source, arrays)
    }

    /// This matrix, marked as a reordered copy of the user's matrix.
    pub(crate) fn reordered_from(self, user: &Source<T>) -> CudaMatrix<T, F> {
        CudaMatrix { user_order: Some(UserOrder::new(user, &self.source)), ..self }
    }

    fn with_arrays(
        gpu: &Cuda,
        source: Source<T>,
        arrays: Result<F::Arrays<F::Value>>,
    ) -> Result<CudaMatrix<T, F>> {
        let (domain, range) = (CudaSpace::like(gpu, source.domain()), CudaSpace::like(gpu, source.range()));
        let arrays = arrays.map_err(|error| match error {
            crate::error::Error::Cuda(
                why @ (device::Error::Padding { .. } | device::Error::Window { .. }),
            ) => crate::error::Error::Unsuitable { format: F::NAME, why: why.to_string() },
            other => other,
        })?;
        let (resident, outdated) = (OnceLock::new(), Mutex::new(None));
        let refill = [None, None];
        Ok(CudaMatrix { source, arrays, domain, range, user_order: None, refill, resident, outdated })
    }

    /// Replaces the values by those of a matrix with the same pattern in the memory of the GPU.
    pub(crate) fn fill_from(&mut self, ordered: &DeviceCsr<T>) -> Result<()> {
        self.arrays.fill_from(self.source.on_device(), ordered)?;
        self.outdate();
        Ok(())
    }

    /// Marks the copy for the persistent kernel as outdated after values have changed on the GPU. `None` (the matrix
    /// does not suit that kernel) is kept, because it depends on the pattern and not on the values.
    fn outdate(&mut self) {
        match self.resident.take() {
            Some(Some(resident)) => self.outdated = Mutex::new(Some(resident)),
            Some(None) => self.resident = OnceLock::from(None),
            None => {}
        }
    }

    /// The matrix in host memory, with its current values.
    pub fn to_csr(&self) -> Result<Csr<T>> {
        Ok(Csr::from_source(self.source.clone(), self.entries()?))
    }

    /// The values of the pattern's entries.
    fn entries(&self) -> std::result::Result<Buffer<T>, device::Error> {
        let mut entries = Buffer::zeros(self.source.nnz());
        self.arrays.entries(self.source.on_device())?.read(&mut entries)?;
        Ok(entries)
    }

    /// The matrix that the user passed in.
    fn user(&self) -> &Source<T> {
        self.user_order.as_ref().map_or(&self.source, UserOrder::user)
    }

    /// Converts assembled values to entries, as [`Csr::assemble`] of the user's matrix does.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.user().assemble(values)
    }

    /// Replaces the values, as [`Format::refresh`] does. The pattern stays the same, and `values` are in the order of
    /// [`Csr::entries`] of the matrix that was copied. Returns an error for infinite values and NaN, and then keeps the
    /// old values.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        if self.user_order.is_none() {
            self.source.check_entries(values)?;
        }
        self.fill(values)
    }

    /// Like [`CudaMatrix::refresh`], but checks values only where it reorders them.
    pub(crate) fn fill(&mut self, values: &[T]) -> Result<()> {
        let entries = match &self.user_order {
            Some(order) => Cow::Owned(order.entries(values)?),
            None => Cow::Borrowed(values),
        };
        self.arrays.fill(self.source.on_device(), &entries)?;
        self.outdate();
        Ok(())
    }

    /// Replaces the values by those of a matrix of the same pattern, as [`Format::refresh_from`] does.
    pub fn refresh_from(&mut self, a: &Csr<T>) -> Result<()> {
        let entries = self.user().entries_of(a)?;
        self.refresh(&entries)
    }

    /// Replaces the values by values that are already on the GPU, in the order of [`Csr::entries`] of the
    /// matrix that was copied: a vector of [`Cuda::space`] with as many entries.
    ///
    /// The first call takes as long as a conversion: it computes the index of each slot's value, which takes
    /// 3 to 6 bytes of device memory per slot. Later calls neither copy to the GPU nor wait, and take as long
    /// as one to four products. If the first call returns an error, the values of the matrix are invalid
    /// until it is refreshed.
    ///
    /// Values are not tested for infinity and NaN, because that would wait for the GPU: a solve with such
    /// values ends with [`Outcome::NotFinite`](crate::Outcome::NotFinite).
    pub fn refresh_from_device(&mut self, values: &CudaVector<T>) -> Result<()> {
        self.user().check_length(values.space().len())?;
        let order = self.user_order.as_ref().map_or(Order::InOrder, |order| order.order().on_device());
        Self::refill(&mut self.refill[0], &mut self.arrays, &self.source, &self.domain, order, values)?;
        self.outdate();
        Ok(())
    }

    /// Like [`CudaMatrix::refresh_from_device`], with values in the order in which the matrix was assembled: that of its
    /// triplets, of its CSR or CSC arrays, or of its triangle. Duplicate entries are summed on the GPU.
    pub fn refresh_assembled_from_device(&mut self, values: &CudaVector<T>) -> Result<()> {
        let given = &self.source.pattern.given;
        given.check_length(values.space().len())?;
        let order = given.on_device();
        Self::refill(&mut self.refill[1], &mut self.arrays, &self.source, &self.domain, order, values)?;
        self.outdate();
        Ok(())
    }

    fn check_square(&self) -> krysp_solvers::Result<()> {
        let (rows, columns) = (self.range.len(), self.domain.len());
        if self.domain == self.range { Ok(()) } else { Err(Error::NotSquare { rows, columns }) }
    }

    fn refill(
        refill: &mut Option<Refill<T>>,
        arrays: &mut F::Arrays<F::Value>,
        source: &Source<T>,
        domain: &CudaSpace<T>,
        order: Order<'_>,
        values: &CudaVector<T>,
    ) -> Result<()> {
        let count = values.space().len();
        if *values.space() != domain.gpu().space(count) {
            return Err(Error::Space { what: "`values`", than: "the values of `A`" }.into());
        }
        let found = match refill.take() {
            Some(found) => found,
            None => Refill::new(arrays, source.on_device(), order, count)?,
        };
        found.run(arrays, &values.entries)?;
        *refill = Some(found);
        Ok(())
    }
}

impl<T: Real, F: OnDevice<T>> OnChip<T> for CudaMatrix<T, F> {
    fn resident(&self) -> krysp_solvers::Result<Option<&Resident<T>>> {
        if let Some(resident) = self.resident.get() {
            return Ok(resident.as_ref());
        }
        let (device, pattern) = (self.domain.gpu().device(), self.source.on_device());
        let outdated = self.outdated.lock().unwrap_or_else(PoisonError::into_inner).take();
        let made = match outdated {
            Some(mut resident) => {
                resident.refill(&self.arrays.entries(pattern).map_err(failed)?).map_err(failed)?;
                Some(resident)
            }
            None if self.domain == self.range && Resident::<T>::suits(pattern) => {
                Resident::new(device, pattern, &|| self.arrays.entries(pattern)).map_err(failed)?
            }
            None => None,
        };
        Ok(self.resident.get_or_init(|| made).as_ref())
    }
}

impl<T: Real, F: OnDevice<T>> LinearOperator for CudaMatrix<T, F> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.domain
    }

    fn range(&self) -> &CudaSpace<T> {
        &self.range
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.arrays.product(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        self.check_square()?;
        check_spaces(self, x, y)?;
        Ok(CudaScalar(self.arrays.product_dot(&x.entries, &mut y.entries).map_err(failed)?))
    }

    fn apply_many(
        &self,
        x: &MultiVector<CudaVector<T>>,
        y: &mut MultiVector<CudaVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let (x, mut y) = open_columns(self, x, y)?;
        self.arrays.products(&x, &mut y).map_err(failed)
    }

    fn apply_dot_many(
        &self,
        x: &MultiVector<CudaVector<T>>,
        y: &mut MultiVector<CudaVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, CudaScalar<T>>> {
        self.check_square()?;
        let sums = {
            let (x, mut y) = open_columns(self, x, y)?;
            self.arrays.products_dot(&x, &mut y).map_err(failed)?
        };
        Ok(y.scalars_of_open(sums.into_iter().map(CudaScalar)))
    }

    fn residual(
        &self,
        b: &CudaVector<T>,
        x: &CudaVector<T>,
        r: &mut CudaVector<T>,
    ) -> krysp_solvers::Result<()> {
        check_spaces(self, x, r)?;
        if b.space() != &self.range {
            return Err(Error::Space { what: "`b`", than: "`A`" });
        }
        let pattern = self.source.on_device();
        let precise = self.arrays.entries(pattern);
        let precise =
            precise.and_then(|entries| entries.residual(pattern, &b.entries, &x.entries, &mut r.entries));
        match precise {
            // the precise residual needs a second copy of the entries
            Err(device::Error::OutOfMemory { .. }) => krysp_solvers::plain_residual(self, b, x, r),
            precise => precise.map_err(failed),
        }
    }

    fn form(&self) -> Form<'_, CudaVector<T>> {
        Form::Native(self as &dyn OnChip<T>)
    }

    fn bytes(&self) -> usize {
        self.arrays.bytes()
    }

    fn replays(&self) -> bool {
        true
    }
}
