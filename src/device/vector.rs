//! Vectors in device memory.

use super::steps::{CudaSteps, OnChip};
use super::{Cuda, failed};
use crate::host::{HostSpace, gather};
use crate::numbers::Real;
use crate::permutation::Permutation;
use krysp_kernels::cuda::team::member::Member;
use krysp_kernels::cuda::{self, Array, solve::vector};
use krysp_kernels::interrupt;
use krysp_solvers::{
    BasicVector, Basis, CgUpdate, Error, LinearOperator, MultiVector, Result, Scalar, Space, Vector,
    check_spaces,
};
use std::ops::{Add, Div, Mul, Neg};
use std::sync::Arc;

/// A space of vectors of one length in the memory of a GPU, in the user's order or permuted; work on them is
/// enqueued on one CUDA stream. If the GPU belongs to a team (GPUs that share a distributed system) and the
/// length is that of its part, the vectors are its parts of distributed vectors.
#[derive(Clone, Debug)]
pub struct CudaSpace<T: Real> {
    gpu: Cuda,
    host: HostSpace<T>,
    team: Option<Arc<Member>>,
}

impl<T: Real> PartialEq for CudaSpace<T> {
    fn eq(&self, other: &Self) -> bool {
        self.gpu == other.gpu && self.host == other.host
    }
}

impl<T: Real> CudaSpace<T> {
    /// The vectors on a GPU that correspond to those of a space in host memory.
    pub fn like(gpu: &Cuda, host: &HostSpace<T>) -> CudaSpace<T> {
        let team = gpu.device().member().filter(|member| member.own_length() == host.len());
        CudaSpace { gpu: gpu.clone(), host: host.clone(), team }
    }

    /// The corresponding space in host memory.
    pub fn host(&self) -> &HostSpace<T> {
        &self.host
    }

    /// The GPU.
    pub fn gpu(&self) -> &Cuda {
        &self.gpu
    }

    /// The permutation, if the order is not the user's.
    pub fn permutation(&self) -> Option<&Arc<Permutation>> {
        self.host.permutation()
    }

    /// A vector with these entries, given in the user's order.
    pub fn vector(&self, entries: &[T]) -> Result<CudaVector<T>> {
        let mut vector = self.zeros()?;
        self.load(entries, &mut vector)?;
        Ok(vector)
    }

    /// Calls `work` with a vector that another library has stored at an address in the memory of the GPU,
    /// whose entries are in the order of the space. The work that writes them must be complete, or already
    /// enqueued on [`Cuda::stream`]; work enqueued by `work` may still run when this function returns.
    /// Returns an error if the address is not in the GPU's memory, or not a multiple of 256.
    pub fn with_vector_at<R>(
        &self,
        address: u64,
        work: impl FnOnce(&mut CudaVector<T>) -> R,
    ) -> crate::error::Result<R> {
        let entries = self.gpu.device().array_at(address, self.local_len())?;
        Ok(work(&mut CudaVector { entries, space: self.clone() }))
    }

    fn fits(&self, what: &'static str, len: usize) -> Result<()> {
        let expected = self.host.len();
        if len == expected { Ok(()) } else { Err(Error::Size { what, got: len, of: "the space", expected }) }
    }
}

impl<T: Real> Space for CudaSpace<T> {
    type Vector = CudaVector<T>;

    fn len(&self) -> usize {
        self.team.as_ref().map_or(self.host.len(), |team| team.whole_length())
    }

    fn local_len(&self) -> usize {
        self.host.len()
    }

    fn agree(&self, wish: u8) -> Result<u8> {
        self.team.as_ref().map_or(Ok(wish), |team| team.agree(wish).map_err(failed))
    }

    fn is_interrupted(&self) -> bool {
        // the GPUs of a team must stop after the same iteration, which one member alone cannot ensure (it
        // needs the all-reduce of `agree`), so interrupts are ignored here
        self.team.is_none() && interrupt::is_raised()
    }

    fn report_failure(&self, _: &Error) {
        self.team.iter().for_each(|team| team.report_failure());
    }

    fn zeros(&self) -> Result<CudaVector<T>> {
        let entries = self.gpu.device().zeros(self.local_len()).map_err(failed)?;
        Ok(CudaVector { entries, space: self.clone() })
    }

    fn load(&self, host: &[T], into: &mut CudaVector<T>) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", into.entries.len())?;
        match self.permutation() {
            None => into.entries.write(host).map_err(failed),
            Some(permutation) => {
                let mut entries = vec![T::zero(); host.len()];
                gather(host, permutation.old_of_new(), &mut entries);
                into.entries.write(&entries).map_err(failed)
            }
        }
    }

    fn store(&self, from: &CudaVector<T>, host: &mut [T]) -> Result<()> {
        self.fits("the host slice", host.len())?;
        self.fits("the vector", from.entries.len())?;
        match self.permutation() {
            None => from.entries.read(host).map_err(failed),
            Some(permutation) => {
                let mut entries = vec![T::zero(); host.len()];
                from.entries.read(&mut entries).map_err(failed)?;
                gather(&entries, permutation.new_of_old(), host);
                Ok(())
            }
        }
    }
}

/// A scalar in device memory, which is read back when the host needs it.
#[derive(Clone, Debug)]
pub struct CudaScalar<T>(pub(crate) cuda::Scalar<T>);

impl<T: Real> From<T> for CudaScalar<T> {
    fn from(value: T) -> Self {
        CudaScalar(cuda::Scalar::constant(value))
    }
}

impl<T: Real> Neg for CudaScalar<T> {
    type Output = Self;

    fn neg(self) -> Self {
        CudaScalar(self.0.negated())
    }
}

impl<T: Real> Add for CudaScalar<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        CudaScalar(self.0.plus(&other.0))
    }
}

impl<T: Real> Mul for CudaScalar<T> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        CudaScalar(self.0.times(&other.0))
    }
}

impl<T: Real> Div for CudaScalar<T> {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        CudaScalar(self.0.over(&other.0))
    }
}

impl<T: Real> Scalar<T> for CudaScalar<T> {
    fn assign(&mut self, value: &Self) {
        self.0.assign(&value.0);
    }

    fn read(&self) -> Result<T> {
        self.0.read().map_err(failed)
    }

    fn read_both(&self, other: &Self) -> Result<[T; 2]> {
        self.0.read_both(&other.0).map_err(failed)
    }

    fn read_all<'s>(scalars: impl Iterator<Item = &'s Self>, to: &mut Vec<T>) -> Result<()> {
        let scalars: Vec<_> = scalars.map(|scalar| &scalar.0).collect();
        to.extend(cuda::Scalar::read_all(&scalars).map_err(failed)?);
        Ok(())
    }

    fn quotient(self, divisor: Self) -> Self {
        CudaScalar(self.0.quotient(&divisor.0))
    }

    fn sqrt(self) -> Self {
        CudaScalar(self.0.root())
    }
}

/// A vector in device memory.
#[derive(Debug)]
pub struct CudaVector<T: Real> {
    pub(crate) entries: Array<T>,
    space: CudaSpace<T>,
}

impl<T: Real> CudaVector<T> {
    /// Enqueues setting all entries to zero.
    pub fn clear(&mut self) -> Result<()> {
        self.entries.clear().map_err(failed)
    }
}

impl<T: Real> BasicVector for CudaVector<T> {
    type Elem = T;
    type Scalar = CudaScalar<T>;
    type Space = CudaSpace<T>;
    type Basis = CudaBasis<T>;
    type Steps = CudaSteps<T>;
    type Native = dyn OnChip<T>;

    fn space(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn copy_from(&mut self, x: &Self) {
        vector::copy(&x.entries, &mut self.entries);
    }

    fn axpby(&mut self, a: &CudaScalar<T>, x: &Self, b: &CudaScalar<T>) {
        vector::axpby(&a.0, &x.entries, &b.0, &mut self.entries);
    }

    fn dot(&self, y: &Self) -> CudaScalar<T> {
        CudaScalar(vector::dot(&self.entries, &y.entries))
    }

    fn multiply(&mut self, d: &Self, x: &Self) {
        vector::multiply(&d.entries, &x.entries, &mut self.entries);
    }

    fn basis(space: &CudaSpace<T>, count: usize) -> Result<CudaBasis<T>> {
        Ok(CudaBasis(cuda::Basis::new(space.gpu.device(), space.local_len(), count).map_err(failed)?))
    }
}

impl<T: Real> Vector for CudaVector<T> {
    fn together<R>(space: &CudaSpace<T>, work: impl FnOnce() -> R) -> R {
        vector::together::<T, R>(space.gpu.device(), work)
    }

    fn flip_signs(&mut self) -> Result<()> {
        vector::flip_signs(&mut self.entries).map_err(failed)
    }

    fn dot_2(&self, y: &Self, z: &Self) -> [CudaScalar<T>; 2] {
        vector::dot_2(&self.entries, &y.entries, &z.entries).map(CudaScalar)
    }

    fn axpbypcz(&mut self, a: &CudaScalar<T>, x: &Self, b: &CudaScalar<T>, y: &Self, c: &CudaScalar<T>) {
        vector::axpbypcz(&a.0, &x.entries, &b.0, &y.entries, &c.0, &mut self.entries);
    }

    fn axpy_dot_2(&mut self, a: &CudaScalar<T>, x: &Self, y: &Self) -> [CudaScalar<T>; 2] {
        vector::axpy_dot_2(&a.0, &x.entries, &y.entries, &mut self.entries).map(CudaScalar)
    }

    fn axpy_norm(&mut self, a: &CudaScalar<T>, x: &Self) -> CudaScalar<T> {
        CudaScalar(vector::axpy_norm(&a.0, &x.entries, &mut self.entries))
    }

    fn axpy_xpby(&mut self, a: &CudaScalar<T>, p: &mut Self, z: &Self, b: &CudaScalar<T>) {
        vector::axpy_xpby(&a.0, &mut p.entries, &z.entries, &b.0, &mut self.entries);
    }

    fn multiply_dot(&mut self, d: &Self, x: &Self) -> CudaScalar<T> {
        CudaScalar(vector::multiply_dot(&d.entries, &x.entries, &mut self.entries))
    }

    fn axpy_multiply_dot(
        &mut self,
        a: &CudaScalar<T>,
        q: &Self,
        d: &Self,
        z: &mut Self,
    ) -> [CudaScalar<T>; 2] {
        let (r, z) = (&mut self.entries, &mut z.entries);
        vector::axpy_multiply_dot(&a.0, &q.entries, &d.entries, r, z).map(CudaScalar)
    }

    fn cg_update(at: CgUpdate<'_, Self>) -> [CudaScalar<T>; 2] {
        let CgUpdate { alpha, rho, q, d, x, r, p, z } = at;
        let advance = cuda::Advance {
            alpha: &alpha.0,
            rho: &rho.0,
            q: &q.entries,
            d: &d.entries,
            x: &mut x.entries,
            r: &mut r.entries,
            p: &mut p.entries,
        };
        if let Some(sums) = cuda::advance(advance) {
            return sums.map(CudaScalar);
        }
        // the device does not support cooperative launches (no grid-wide synchronization): use two kernels
        let [norm_squared, rho_next] = r.axpy_multiply_dot(&-alpha.clone(), q, d, z);
        x.axpy_xpby(alpha, p, z, &(rho_next.clone() / rho.clone()));
        [norm_squared, rho_next]
    }
}

/// The columns of `X` and of `Y`.
type Columns<'v, T> = (Vec<&'v Array<T>>, Vec<&'v mut Array<T>>);

/// The open columns of `X` and of `Y`: those whose solve has not ended. Returns an error if they are not in
/// the spaces of the operator.
pub(crate) fn open_columns<'v, T: Real>(
    operator: &dyn LinearOperator<Vector = CudaVector<T>>,
    x: &'v MultiVector<CudaVector<T>>,
    y: &'v mut MultiVector<CudaVector<T>>,
) -> Result<Columns<'v, T>> {
    let pairs = MultiVector::open_pairs(x, y)?.map(|(x, y)| {
        check_spaces(operator, x, y)?;
        Ok((&x.entries, &mut y.entries))
    });
    pairs.collect()
}

/// An orthonormal basis in device memory.
#[derive(Debug)]
pub struct CudaBasis<T: Real>(pub(crate) cuda::Basis<T>);

impl<T: Real> Basis<CudaVector<T>> for CudaBasis<T> {
    fn push(&mut self, j: usize, w: &CudaVector<T>, norm_squared: &CudaScalar<T>) -> Result<()> {
        self.0.push(j, &w.entries, &norm_squared.0).map_err(failed)
    }

    fn load(&self, j: usize, w: &mut CudaVector<T>) {
        self.0.load(j, &mut w.entries);
    }

    fn project(&mut self, k: usize, w: &CudaVector<T>) {
        self.0.project(k, &w.entries);
    }

    fn subtract(&mut self, k: usize, w: &mut CudaVector<T>) {
        self.0.subtract_norm(k, &mut w.entries);
    }

    fn subtract_project(&mut self, k: usize, w: &mut CudaVector<T>) {
        self.0.subtract_project(k, &mut w.entries);
    }

    fn subtract_norm(&mut self, k: usize, w: &mut CudaVector<T>) -> CudaScalar<T> {
        CudaScalar(self.0.subtract_norm(k, &mut w.entries))
    }

    fn coefficients(&self, c: &mut [T]) -> Result<()> {
        self.0.coefficients(c).map_err(failed)
    }

    fn record(&self, k: usize, steps: &mut CudaSteps<T>) -> Result<()> {
        self.0.record(k, &mut steps.steps);
        Ok(())
    }

    fn combine(&mut self, y: &[T], x: &mut CudaVector<T>) -> Result<()> {
        self.0.combine(y, &mut x.entries).map_err(failed)
    }
}
