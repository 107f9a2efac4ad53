//! Ranks that have their parts on GPUs.

use super::fsai::RankFsai;
use super::halo::{Halo, Routes};
use super::local::{Aggregated, Border, Keeps};
use super::matrix::RankMatrix;
use super::ranks::{Own, Ranks};
use super::spai::RankSpai;
use super::vector::RankSpace;
use crate::cuda::{CudaBasis, CudaScalar, CudaSpace, CudaVector, ToCuda, failed};
use crate::{CoarseSpace, Csr, Cuda, Error, Real, Result};
use krysp_kernels::cuda::preconditioners::coarse::Coarse;
use krysp_kernels::cuda::team::post::{Collect, Ghosts};
use krysp_kernels::cuda::{PinnedArray, Told};
use krysp_solvers::Element;
use std::sync::{Mutex, PoisonError};

impl Ranks {
    /// A GPU for this rank: the GPUs of a machine are dealt out among the ranks that run there. Ranks share GPUs where there
    /// are more ranks. All ranks call this.
    ///
    /// ```no_run
    /// use krysp::mpi::{BlockJacobi, RankMatrix, Ranks, Rows};
    /// use krysp::{Cg, Jacobi, LinearOperator, Space, ToCuda};
    ///
    /// fn main() -> krysp::Result<()> {
    ///     let ranks = Ranks::world()?;
    ///     ranks.run(|| {
    ///         let gpu = ranks.gpu()?;
    ///         let a = RankMatrix::<f64>::read(&ranks, "heat.mtx", Rows::ByEntries)?.to(&gpu)?;
    ///         let m = BlockJacobi::new(&a, |block| Jacobi::new(block)?.to(&gpu))?;
    ///         let b = vec![1.0; a.domain().local_len()];
    ///         println!("{}", Cg::new(&a).preconditioner(m).rtol(1e-8).solve(&b)?.report);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    pub fn gpu(&self) -> Result<Cuda> {
        let (there, neighbours) = (Cuda::devices().len(), self.of_this_machine()?);
        let before = neighbours.iter().filter(|&&rank| rank < self.rank()).count();
        let gpu = Cuda::new(if there == 0 { 0 } else { before % there });
        self.all(gpu)
    }
}

impl<T: Real> Keeps<T> for Cuda {
    type Border = CudaBorder<T>;
    type Aggregates = Mutex<Coarse<T>>;

    fn space(&self, len: usize) -> CudaSpace<T> {
        Cuda::space(self, len)
    }

    fn border(&self, routes: &Routes, own: usize, rows: &[u32], outside: Csr<T>) -> Result<CudaBorder<T>> {
        let made = || {
            let offsets: Vec<u32> = outside.offsets().iter().map(|&offset| offset as u32).collect();
            let border = [rows, &offsets, outside.columns()];
            let ghosts = Ghosts::new(self.device(), own, outside.cols(), border, outside.entries())?;
            Ok((Sending::new(self, own, routes.sent())?, ghosts, self.device().pinned(outside.cols())?))
        };
        let (sending, ghosts, came) = routes.ranks().all(made())?;
        let alone = routes.sent().is_empty() && outside.cols() == 0;
        Ok(CudaBorder { exchange: sending.forwards(routes, came)?, ghosts, outside, alone })
    }

    fn told<const K: usize>(sums: [CudaScalar<T>; K]) -> Own {
        // queued now, so that it is told while later work runs
        let told = Told::new(&sums.map(|sum| sum.0)).map_err(Error::from);
        Box::new(move || Ok(told?.read()?.into_iter().map(Element::to_f64).collect()))
    }

    fn aggregates(space: &CudaSpace<T>, coarse: &CoarseSpace<T>) -> Result<Mutex<Coarse<T>>> {
        Ok(Mutex::new(Coarse::new(space.gpu().device(), &coarse.kernel())?))
    }

    fn replace_coefficients(basis: &mut CudaBasis<T>, c: &[T]) -> krysp_solvers::Result<()> {
        basis.0.replace_coefficients(c).map_err(failed)
    }
}

impl<T: Real> Aggregated<T, CudaVector<T>> for Mutex<Coarse<T>> {
    fn restrict(&self, r: &CudaVector<T>) -> krysp_solvers::Result<Vec<T>> {
        let coarse = self.lock().unwrap_or_else(PoisonError::into_inner);
        coarse.restricted(&r.entries).map_err(failed)
    }

    fn prolong(&self, e: &[T], z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        let mut coarse = self.lock().unwrap_or_else(PoisonError::into_inner);
        coarse.add(e, &mut z.entries).map_err(failed)
    }
}

/// Entries of a vector on a GPU that are sent, through pinned memory.
pub(crate) struct Sending<T: Real> {
    collect: Collect<T>,
    sent: PinnedArray<T>,
}

impl<T: Real> Sending<T> {
    /// The entries at `places` of vectors with `length` entries.
    pub(crate) fn new(gpu: &Cuda, length: usize, places: &[u32]) -> Result<Sending<T>> {
        let device = gpu.device();
        Ok(Sending { collect: Collect::new(device, length, places)?, sent: device.pinned(places.len())? })
    }

    /// To ghosts; what comes of other ranks is in `came`. All ranks call this.
    pub(crate) fn forwards(self, routes: &Routes, came: PinnedArray<T>) -> Result<Exchange<T>> {
        Ok(Exchange { collect: self.collect, halo: routes.halo_through(self.sent, came)? })
    }

    /// From ghosts to where their entries are. All ranks call this.
    pub(crate) fn backwards(self, routes: &Routes, came: PinnedArray<T>) -> Result<Exchange<T>> {
        Ok(Exchange { collect: self.collect, halo: routes.back_through(self.sent, came)? })
    }
}

/// Messages with entries of vectors on a GPU.
pub(crate) struct Exchange<T: Real> {
    collect: Collect<T>,
    halo: Halo<T, PinnedArray<T>>,
}

impl<T: Real> Exchange<T> {
    /// Sends while the GPU does what `meanwhile` queues.
    pub(crate) fn send<R>(
        &mut self,
        x: &CudaVector<T>,
        meanwhile: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        let Exchange { collect, halo } = self;
        halo.fill(|sent| collect.queue(&x.entries, sent).map_err(Error::from))?;
        let result = meanwhile()?;
        collect.wait().map_err(failed)?;
        halo.go()?;
        Ok(result)
    }

    /// Waits for what others send.
    pub(crate) fn came(&mut self) -> Result<&PinnedArray<T>> {
        self.halo.came()
    }
}

/// A border on a GPU.
pub struct CudaBorder<T: Real> {
    exchange: Exchange<T>,
    ghosts: Ghosts<T>,
    outside: Csr<T>,
    /// No other rank reads or is read.
    alone: bool,
}

impl<T: Real> Border<T, CudaVector<T>> for CudaBorder<T> {
    fn send<R>(
        &mut self,
        x: &CudaVector<T>,
        own: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        let own = if self.alone { own()? } else { self.exchange.send(x, own)? };
        self.exchange.halo.ranks().send_sums()?;
        Ok(own)
    }

    fn add(&mut self, _: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        if self.alone {
            return Ok(());
        }
        self.ghosts.add(self.exchange.came()?, &mut y.entries).map_err(failed)
    }

    fn add_dot(
        &mut self,
        x: &CudaVector<T>,
        y: &mut CudaVector<T>,
        own: CudaScalar<T>,
    ) -> krysp_solvers::Result<CudaScalar<T>> {
        if self.alone {
            return Ok(own);
        }
        let sum = self.ghosts.add_dot(self.exchange.came()?, &x.entries, &mut y.entries, &own.0);
        Ok(CudaScalar(sum.map_err(failed)?))
    }

    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>> {
        self.exchange.halo.start(x)?;
        Ok(self.exchange.halo.receive()?.to_vec())
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.outside = self.outside.with_values(values)?;
        Ok(self.ghosts.refresh(self.outside.entries())?)
    }

    fn outside(&self) -> Result<Csr<T>> {
        Ok(self.outside.clone())
    }

    fn bytes(&self) -> usize {
        self.ghosts.bytes() + self.exchange.collect.bytes()
    }
}

/// The space of vectors whose part on this rank is on its GPU.
impl<T: Real> ToCuda for RankSpace<T> {
    type OnCuda = RankSpace<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankSpace<T, Cuda>> {
        Ok(self.at(gpu))
    }
}

/// A copy whose part on this rank is on its GPU. All ranks call this.
impl<T: Real> ToCuda for RankMatrix<T> {
    type OnCuda = RankMatrix<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankMatrix<T, Cuda>> {
        self.at(gpu)
    }
}

/// A copy whose factors are on GPUs. All ranks call this.
impl<T: Real> ToCuda for RankFsai<T> {
    type OnCuda = RankFsai<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankFsai<T, Cuda>> {
        RankFsai::of_factors(self.lower().to(gpu)?, self.upper().to(gpu)?)
    }
}

/// A copy that is on GPUs. All ranks call this.
impl<T: Real> ToCuda for RankSpai<T> {
    type OnCuda = RankSpai<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankSpai<T, Cuda>> {
        Ok(RankSpai::of_matrix(self.matrix().to(gpu)?))
    }
}
