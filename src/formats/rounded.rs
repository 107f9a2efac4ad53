//! Mixed precision: formats whose values have fewer bits than the vectors they are multiplied with.
//!
//! A product reads 4 bytes per entry for its value instead of 8 and computes in `f64`. The only additional
//! error is one rounding of each entry. For every row `i`, with the matrix `Â` of the rounded entries,
//!
//! ```text
//! |(A x)_i − (Â x)_i| ≤ 2⁻²⁴ Σ_j |a_ij x_j|          if entries are between 1e-38 and 3e38 in magnitude
//! ```
//!
//! in addition to the rounding of an `f64` product; with [`Bf16`](crate::Bf16) the factor is `2⁻⁸`. In a
//! preconditioner this usually costs no iterations. As the matrix of a solve it defines a slightly different
//! system: use iterative refinement, or require no more than seven digits.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::{Csr, Format, Multiply, Source};
use crate::error::Result;
use crate::host::{HostSpace, HostVector};
use crate::numbers::{Real, Storage};
use krysp_kernels::buffer::{Buffer, Plain};
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_kernels::cpu::simd::storage::widen;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_solvers::{LinearOperator, MultiVector, Scalars};

/// A format that stores its values as `V`.
///
/// ```
/// use krysp::formats::Rounded;
/// use krysp::{Cg, Composed, Format, Fsai, LinearOperator, Sell, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let fsai = Fsai::new(&a)?;
/// let half = |factor| -> krysp::Result<_> { Rounded::<Sell<f64>, f32>::new(factor) };
/// let factors = Composed::new(half(fsai.upper())?, half(fsai.lower())?)?;
/// let solution = Cg::new(&a).preconditioner(factors).rtol(1e-12).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rounded<F, V: Plain> {
    /// The format, without its values.
    format: F,
    values: Buffer<V>,
}

impl<F, V: Plain> Rounded<F, V> {
    /// Rounds the values of a matrix that is already in the format.
    pub fn of<T: Real>(mut format: F) -> Rounded<F, V>
    where
        F: Format<T>,
        V: Storage<T>,
    {
        let from = std::mem::take(format.values_mut());
        let mut values = Buffer::zeros(from.len());
        over_rows(from.len(), 2, &mut *values, &|slots, values: &mut [V]| {
            values
                .iter_mut()
                .zip(&from[slots])
                .for_each(|(value, from)| *value = V::narrow(widen::<T, _>(*from)));
        });
        Rounded { format, values }
    }
}

impl<T: Real, F: Format<T>, V: Storage<T>> Multiply<T> for Rounded<F, V> {
    fn multiply<W: Storage<T>>(
        &self,
        values: &[W],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.format.multiply(values, x, y)
    }

    fn multiply_dot<W: Storage<T>>(
        &self,
        values: &[W],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<T> {
        self.format.multiply_dot(values, x, y)
    }

    fn multiply_many<W: Storage<T>>(
        &self,
        values: &[W],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        self.format.multiply_many(values, x, y)
    }

    fn multiply_dot_many<W: Storage<T>>(
        &self,
        values: &[W],
        x: &MultiVector<HostVector<T>>,
        y: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<Scalars<T, T>> {
        self.format.multiply_dot_many(values, x, y)
    }
}

impl<T, F, V> LinearOperator for Rounded<F, V>
where
    T: Real,
    F: Format<T> + LinearOperator<Vector = HostVector<T>>,
    V: Storage<T>,
{
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.format.domain()
    }

    fn range(&self) -> &HostSpace<T> {
        self.format.range()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.format.multiply(&self.values, x, y)
    }

    fn apply_dot(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<T> {
        self.format.multiply_dot(&self.values, x, y)
    }

    super::many_columns!();

    super::precise_residual!();

    fn bytes(&self) -> usize {
        self.format.bytes() + size_of_val(&*self.values)
    }
}

/// Values passed to [`Format::refresh`] have the type of the vectors, and are rounded.
impl<T, F, V> Format<T> for Rounded<F, V>
where
    T: Real,
    F: Format<T> + LinearOperator<Vector = HostVector<T>>,
    V: Storage<T>,
{
    const NAME: &'static str = F::NAME;
    type Value = V;
    type Options = F::Options;

    fn with(csr: &Csr<T>, options: F::Options) -> Result<Self> {
        Ok(Rounded::of(F::with(csr, options)?))
    }

    fn source(&self) -> &Source<T> {
        self.format.source()
    }

    fn values(&self) -> &Buffer<V> {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Buffer<V> {
        &mut self.values
    }

    fn first_slot(&self, row: usize) -> usize {
        self.format.first_slot(row)
    }

    fn slots(&self, row: usize, visit: impl FnMut(usize, usize)) {
        self.format.slots(row, visit);
    }

    fn padding(&self) -> f64 {
        self.format.padding()
    }

    fn entries_from<W: Storage<T>>(&self, values: &[W]) -> Buffer<T> {
        self.format.entries_from(values)
    }
}

#[cfg(feature = "cuda")]
impl<T, F, V> OnDevice<T> for Rounded<F, V>
where
    T: Real,
    F: OnDevice<T> + LinearOperator<Vector = HostVector<T>>,
    V: Storage<T>,
{
    type Arrays<W: Storage<T>> = F::Arrays<W>;

    fn chosen(&self) -> F::Options {
        self.format.chosen()
    }

    fn lay_out<W: Storage<T>>(
        csr: &Csr<T>,
        options: F::Options,
        device: &cuda::Device,
    ) -> Result<Self::Arrays<W>> {
        F::lay_out(csr, options, device)
    }

    fn by_lengths(csr: &Csr<T>, options: &F::Options) -> Option<F::Options> {
        F::by_lengths(csr, options)
    }

    fn lay_out_from<W: Storage<T>>(
        source: &Source<T>,
        ordered: &cuda::DeviceCsr<T>,
        options: F::Options,
    ) -> Result<Self::Arrays<W>> {
        F::lay_out_from(source, ordered, options)
    }
}
