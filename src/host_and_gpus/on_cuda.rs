//! GPUs as coprocessors.

use super::coprocessor::{Coprocessor, Exchange};
use super::scalar::Awaited;
use crate::choice::Operator;
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_kernels::cuda::team::post::{Collect, Ghosts};
use krysp_kernels::cuda::tuning::{STEP_ALONE, STEP_TOGETHER};
use krysp_kernels::cuda::{PinnedArray, ScalarReadback};

impl<T: Real> Coprocessor<T> for Cuda {
    type Vector = CudaVector<T>;
    type Exchange = ThroughPinned<T>;

    fn name(&self) -> String {
        format!("GPU {}, {}", self.ordinal(), Cuda::name(self))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.ordinal() == other.ordinal()
    }

    fn free_memory(&self) -> Result<usize> {
        Ok(self.memory()?.0)
    }

    fn bus(&self) -> Result<f64> {
        Ok(self.device().bus()?)
    }

    fn overhead(count: usize) -> f64 {
        if count == 1 { STEP_ALONE } else { STEP_TOGETHER }
    }

    fn space(&self, len: usize) -> CudaSpace<T> {
        Cuda::space(self, len)
    }

    fn operator(&self, csr: &Csr<T>, format: Option<&str>) -> Result<Operator<CudaVector<T>>> {
        Operator::known(csr, self, false, format)
    }

    fn exchange(
        &self,
        length: usize,
        sent: &[u32],
        rows: &[u32],
        outside: &Csr<T>,
    ) -> Result<ThroughPinned<T>> {
        let device = self.device();
        let offsets: Vec<u32> = outside.offsets().iter().map(|&offset| offset as u32).collect();
        let border = [rows, &offsets, outside.columns()];
        let ghosts = Ghosts::new(device, length, outside.cols(), border, outside.entries())?;
        Ok(ThroughPinned {
            collect: Collect::new(device, length, sent)?,
            sent: device.pinned(sent.len())?,
            in_flight: false,
            border: ghosts.copied_beside()?,
            ghosts: [device.pinned(outside.cols())?, device.pinned(outside.cols())?],
        })
    }

    fn read_back<const K: usize>(&self, sums: [CudaScalar<T>; K]) -> Awaited<T> {
        // queued now, so that the copy does not wait for work that is queued later
        let read_back = ScalarReadback::new(sums.each_ref().map(|sum| &sum.0));
        Box::new(move || Ok(read_back.and_then(|sums| sums.read()).map_err(failed)?.to_vec()))
    }

    fn synchronize(&self) -> Result<()> {
        Cuda::synchronize(self)
    }
}

/// Exchange with a GPU through pinned memory.
#[derive(Debug)]
pub struct ThroughPinned<T: Real> {
    collect: Collect<T>,
    sent: PinnedArray<T>,
    /// True while a copy to `sent` was queued and not waited for.
    in_flight: bool,
    border: Ghosts<T>,
    /// The ghosts of the next product, and those of the last one.
    ghosts: [PinnedArray<T>; 2],
}

impl<T: Real> Exchange<T, CudaVector<T>> for ThroughPinned<T> {
    fn collect(&mut self, x: &CudaVector<T>) -> krysp_solvers::Result<()> {
        // a product that failed may have left a copy behind; waiting also shows that the ghosts of the product
        // before the last one have been added, so that their place can be used again
        self.sent()?;
        self.collect.queue(&x.entries, &mut self.sent).map_err(failed)?;
        self.in_flight = true;
        Ok(())
    }

    fn sent(&mut self) -> krysp_solvers::Result<&[T]> {
        if self.in_flight {
            self.collect.wait().map_err(failed)?;
            self.in_flight = false;
        }
        Ok(self.sent.as_ref())
    }

    fn ghosts(&mut self) -> &mut [T] {
        self.ghosts[0].as_mut()
    }

    fn add(&mut self, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        let added = self.border.add(&self.ghosts[0], &mut y.entries);
        self.ghosts.swap(0, 1);
        added.map_err(failed)
    }

    fn add_dot(
        &mut self,
        x: &CudaVector<T>,
        y: &mut CudaVector<T>,
        own: CudaScalar<T>,
    ) -> krysp_solvers::Result<CudaScalar<T>> {
        let sum = self.border.add_dot(&self.ghosts[0], &x.entries, &mut y.entries, &own.0);
        self.ghosts.swap(0, 1);
        Ok(CudaScalar(sum.map_err(failed)?))
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        Ok(self.border.refresh(values)?)
    }

    fn bytes(&self) -> usize {
        self.border.bytes() + self.collect.bytes()
    }
}
