//! Ranks whose parts are on GPUs.

use super::collective::{Own, Ranks};
use super::fsai::RankFsai;
use super::halo::{HaloExchange, Routes};
use super::link::CudaLink;
use super::local::{Aggregated, Link, OffDiagonal, RankMemory};
use super::matrix::RankMatrix;
use super::spai::RankSpai;
use super::vector::RankSpace;
use crate::device::{Cuda, CudaBasis, CudaScalar, CudaSpace, CudaSteps, CudaVector, ToCuda, failed};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::preconditioners::CoarseSpace;
use krysp_kernels::cuda::preconditioners::coarse::Coarse;
use krysp_kernels::cuda::team::halo;
use krysp_kernels::cuda::team::post::{Collect, Ghosts};
use krysp_kernels::cuda::{PinnedArray, ScalarReadback};
use krysp_solvers::Element;
use std::sync::{Mutex, PoisonError};

impl Ranks {
    /// Chooses a GPU for this rank: the GPUs of a machine are assigned to its ranks round-robin, so that
    /// ranks share GPUs if there are more ranks than GPUs. Collective: all ranks call this.
    ///
    /// ```no_run
    /// use krysp::ranks::{BlockJacobi, RankMatrix, Ranks, RowDistribution};
    /// use krysp::{Cg, Jacobi, LinearOperator, Space, ToCuda};
    ///
    /// let reports = Ranks::threads(2, |ranks| {
    ///     let gpu = ranks.gpu()?;
    ///     let a = RankMatrix::<f64>::read(ranks, "heat.mtx", RowDistribution::ByEntries)?.to(&gpu)?;
    ///     let m = BlockJacobi::new(&a, |block| Jacobi::new(block)?.to(&gpu))?;
    ///     let b = vec![1.0; a.domain().local_len()];
    ///     let solution = Cg::new(&a).preconditioner(m).rtol(1e-8).solve(&b)?;
    ///     krysp::Result::Ok(solution.report)
    /// })?;
    /// println!("{}", reports[0]);
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn gpu(&self) -> Result<Cuda> {
        let (there, neighbours) = (Cuda::devices().len(), self.of_this_machine()?);
        let before = neighbours.iter().filter(|&&rank| rank < self.rank()).count();
        let gpu = Cuda::new(if there == 0 { 0 } else { before % there });
        self.all(gpu)
    }
}

impl<T: Real> RankMemory<T> for Cuda {
    type OffDiagonal = CudaOffDiagonal<T>;
    type Aggregates = Mutex<Coarse<T>>;
    type Link = CudaLink;

    fn space(&self, len: usize) -> CudaSpace<T> {
        Cuda::space(self, len)
    }

    fn link(&self, ranks: &Ranks) -> Result<Option<CudaLink>> {
        CudaLink::new(ranks, self)
    }

    fn off_diagonal(
        &self,
        routes: &Routes,
        link: Option<&CudaLink>,
        own: usize,
        rows: &[u32],
        outside: Csr<T>,
    ) -> Result<CudaOffDiagonal<T>> {
        let path = match link.map(|link| (link, link.member())) {
            Some((link, Some(member))) => {
                let halo = link.halo(member, routes, own, rows, &outside)?;
                HaloPath::Gpus(Box::new(halo), link.clone())
            }
            Some((_, None)) => HaloPath::Nothing,
            None => self.through_hosts(routes, own, rows, &outside)?,
        };
        Ok(CudaOffDiagonal { path, outside, routes: routes.clone() })
    }

    fn begin_step(steps: &mut CudaSteps<T>, place: usize, replays: bool) -> krysp_solvers::Result<bool> {
        steps.steps.begin_step(place, replays).map_err(failed)
    }

    fn end_step(steps: &mut CudaSteps<T>, ok: bool) -> krysp_solvers::Result<bool> {
        steps.steps.end_step(ok).map_err(failed)
    }

    fn read_back<const K: usize>(sums: [CudaScalar<T>; K]) -> Own {
        // enqueue the readback now, so that it overlaps with later work
        let read_back = ScalarReadback::new(sums.each_ref().map(|sum| &sum.0)).map_err(Error::from);
        Box::new(move || Ok(read_back?.read()?.into_iter().map(Element::to_f64).collect()))
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

/// Gathers entries of a vector on a GPU into pinned memory for sending.
pub(crate) struct Sending<T: Real> {
    collect: Collect<T>,
    sent: PinnedArray<T>,
}

impl<T: Real> Sending<T> {
    /// Prepares to gather the entries at `places` of vectors with `length` entries.
    pub(crate) fn new(gpu: &Cuda, length: usize, places: &[u32]) -> Result<Sending<T>> {
        let device = gpu.device();
        Ok(Sending { collect: Collect::new(device, length, places)?, sent: device.pinned(places.len())? })
    }

    /// Prepares an exchange of ghosts; `received` is the receive buffer. Collective: all ranks call this.
    pub(crate) fn forwards(self, routes: &Routes, received: PinnedArray<T>) -> Result<Exchange<T>> {
        Ok(Exchange { collect: self.collect, halo: routes.halo_through(self.sent, received)? })
    }

    /// Prepares an exchange in which values at ghosts are sent to their owners. Collective: all ranks call
    /// this.
    pub(crate) fn backwards(self, routes: &Routes, received: PinnedArray<T>) -> Result<Exchange<T>> {
        Ok(Exchange { collect: self.collect, halo: routes.back_through(self.sent, received)? })
    }
}

/// A repeated exchange of entries of vectors on GPUs.
pub(crate) struct Exchange<T: Real> {
    collect: Collect<T>,
    halo: HaloExchange<T, PinnedArray<T>>,
}

impl<T: Real> Exchange<T> {
    /// Sends entries of `x` while the GPU runs what `meanwhile` enqueues.
    pub(crate) fn send<R>(
        &mut self,
        x: &CudaVector<T>,
        meanwhile: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        let Exchange { collect, halo } = self;
        halo.fill(|sent| collect.queue(&x.entries, sent).map_err(Error::from))?;
        let result = meanwhile()?;
        collect.wait().map_err(failed)?;
        halo.start_filled()?;
        Ok(result)
    }

    /// Waits for the entries of other ranks.
    pub(crate) fn wait(&mut self) -> Result<&PinnedArray<T>> {
        self.halo.wait()
    }
}

/// Path of the entries of `x` between ranks.
enum HaloPath<T: Real> {
    /// No communication is needed.
    Nothing,
    /// HaloPath host memory.
    Hosts(Box<(Exchange<T>, Ghosts<T>)>),
    /// Directly between GPUs.
    Gpus(Box<halo::HaloExchange<T>>, CudaLink),
}

/// Entries in columns of other ranks, for products on a GPU.
pub struct CudaOffDiagonal<T: Real> {
    path: HaloPath<T>,
    outside: Csr<T>,
    routes: Routes,
}

impl Cuda {
    /// Prepares communication through pinned host memory. Collective: all ranks call this.
    fn through_hosts<T: Real>(
        &self,
        routes: &Routes,
        own: usize,
        rows: &[u32],
        outside: &Csr<T>,
    ) -> Result<HaloPath<T>> {
        let made = || {
            let offsets: Vec<u32> = outside.offsets().iter().map(|&offset| offset as u32).collect();
            let border = [rows, &offsets, outside.columns()];
            let ghosts = Ghosts::new(self.device(), own, outside.cols(), border, outside.entries())?;
            Ok((Sending::new(self, own, routes.sent())?, ghosts, self.device().pinned(outside.cols())?))
        };
        let (sending, ghosts, received) = routes.ranks().all(made())?;
        let exchange = sending.forwards(routes, received)?;
        let alone = routes.sent().is_empty() && outside.cols() == 0;
        Ok(if alone { HaloPath::Nothing } else { HaloPath::Hosts(Box::new((exchange, ghosts))) })
    }
}

impl<T: Real> OffDiagonal<T, CudaVector<T>> for CudaOffDiagonal<T> {
    fn send<R>(
        &mut self,
        x: &CudaVector<T>,
        own: impl FnOnce() -> krysp_solvers::Result<R>,
    ) -> krysp_solvers::Result<R> {
        let own = match &mut self.path {
            HaloPath::Nothing => own()?,
            HaloPath::Hosts(hosts) => hosts.0.send(x, own)?,
            HaloPath::Gpus(halo, _) => {
                halo.send(&x.entries).map_err(failed)?;
                own()?
            }
        };
        self.routes.ranks().send_sums()?;
        Ok(own)
    }

    fn add(&mut self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        match &mut self.path {
            HaloPath::Nothing => Ok(()),
            HaloPath::Hosts(hosts) => {
                let (exchange, ghosts) = &mut **hosts;
                ghosts.add(exchange.wait()?, &mut y.entries).map_err(failed)
            }
            HaloPath::Gpus(halo, _) => halo.add(&x.entries, &mut y.entries).map_err(failed),
        }
    }

    fn add_dot(
        &mut self,
        x: &CudaVector<T>,
        y: &mut CudaVector<T>,
        own: CudaScalar<T>,
    ) -> krysp_solvers::Result<CudaScalar<T>> {
        let (x, y) = (&x.entries, &mut y.entries);
        let sum = match &mut self.path {
            HaloPath::Nothing => return Ok(own),
            HaloPath::Hosts(hosts) => {
                let (exchange, ghosts) = &mut **hosts;
                ghosts.add_dot(exchange.wait()?, x, y, &own.0)
            }
            HaloPath::Gpus(halo, link) => link.sum(|| halo.add_dot(x, y, &own.0)),
        };
        Ok(CudaScalar(sum.map_err(failed)?))
    }

    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>> {
        self.routes.ghosts(1, x)
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.outside = self.outside.with_values(&self.outside.assemble(values)?)?;
        match &mut self.path {
            HaloPath::Nothing => Ok(()),
            HaloPath::Hosts(hosts) => Ok(hosts.1.refresh(self.outside.entries())?),
            HaloPath::Gpus(halo, _) => Ok(halo.refresh(self.outside.entries())?),
        }
    }

    fn outside(&self) -> Result<Csr<T>> {
        Ok(self.outside.clone())
    }

    fn bytes(&self) -> usize {
        match &self.path {
            HaloPath::Nothing => 0,
            HaloPath::Hosts(hosts) => hosts.1.bytes() + hosts.0.collect.bytes(),
            HaloPath::Gpus(halo, _) => halo.bytes(),
        }
    }
}

/// The space of vectors whose part on this rank is on its GPU. Collective: all ranks call this.
impl<T: Real> ToCuda for RankSpace<T> {
    type OnCuda = RankSpace<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankSpace<T, Cuda>> {
        self.at(gpu)
    }
}

/// A copy whose part on this rank is on its GPU. Collective: all ranks call this.
impl<T: Real> ToCuda for RankMatrix<T> {
    type OnCuda = RankMatrix<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankMatrix<T, Cuda>> {
        self.at(gpu)
    }
}

/// A copy whose factors are on GPUs. Collective: all ranks call this.
impl<T: Real> ToCuda for RankFsai<T> {
    type OnCuda = RankFsai<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankFsai<T, Cuda>> {
        RankFsai::of_factors(self.lower().to(gpu)?, self.upper().to(gpu)?)
    }
}

/// A copy on GPUs. Collective: all ranks call this.
impl<T: Real> ToCuda for RankSpai<T> {
    type OnCuda = RankSpai<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankSpai<T, Cuda>> {
        Ok(RankSpai::of_matrix(self.matrix().to(gpu)?))
    }
}
