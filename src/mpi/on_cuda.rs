//! Ranks that have their parts on GPUs.

use super::fsai::RankFsai;
use super::halo::{Halo, Routes};
use super::local::{Border, Keeps};
use super::matrix::RankMatrix;
use super::ranks::{Own, Ranks};
use super::spai::RankSpai;
use super::vector::RankSpace;
use crate::cuda::{CudaBasis, CudaScalar, CudaSpace, CudaVector, ToCuda, failed};
use crate::{Csr, Cuda, Error, Real, Result};
use krysp_kernels::cuda::team::post::Post;
use krysp_kernels::cuda::{PinnedArray, Told};
use krysp_solvers::Element;

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

    fn space(&self, len: usize) -> CudaSpace<T> {
        Cuda::space(self, len)
    }

    fn border(&self, routes: &Routes, own: usize, rows: &[u32], outside: Csr<T>) -> Result<CudaBorder<T>> {
        let made = || {
            let offsets: Vec<u32> = outside.offsets().iter().map(|&offset| offset as u32).collect();
            let border = [rows, &offsets, outside.columns()];
            let (device, ghosts) = (self.device(), outside.cols());
            let post = Post::new(device, own, routes.sent(), ghosts, border, outside.entries())?;
            Ok((post, device.pinned(routes.sent().len())?, device.pinned(ghosts)?))
        };
        let (post, sent, came) = routes.ranks().all(made())?;
        let halo = routes.halo_through(sent, came)?;
        let alone = routes.sent().is_empty() && outside.cols() == 0;
        Ok(CudaBorder { post, halo, outside, alone })
    }

    fn told<const K: usize>(sums: [CudaScalar<T>; K]) -> Own {
        // queued now, so that it is told while later work runs
        let told = Told::new(&sums.map(|sum| sum.0)).map_err(Error::from);
        Box::new(move || Ok(told?.read()?.into_iter().map(Element::to_f64).collect()))
    }

    fn replace_coefficients(basis: &mut CudaBasis<T>, c: &[T]) -> krysp_solvers::Result<()> {
        basis.0.replace_coefficients(c).map_err(failed)
    }
}

/// A border on a GPU: what is sent and received passes through pinned memory.
pub struct CudaBorder<T: Real> {
    post: Post<T>,
    halo: Halo<T, PinnedArray<T>>,
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
        let CudaBorder { post, halo, alone, .. } = self;
        if *alone {
            let own = own()?;
            halo.ranks().send_sums()?;
            return Ok(own);
        }
        halo.fill(|sent| post.collect(&x.entries, sent).map_err(Error::from))?;
        let own = own()?;
        post.collected().map_err(failed)?;
        halo.go()?;
        halo.ranks().send_sums()?;
        Ok(own)
    }

    fn add(&mut self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        if self.alone {
            return Ok(());
        }
        self.post.add(self.halo.came()?, &x.entries, &mut y.entries).map_err(failed)
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
        let sum = self.post.add_dot(self.halo.came()?, &x.entries, &mut y.entries, &own.0);
        Ok(CudaScalar(sum.map_err(failed)?))
    }

    fn ghosts(&mut self, x: &[T]) -> Result<Vec<T>> {
        self.halo.start(x)?;
        Ok(self.halo.receive()?.to_vec())
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.outside = self.outside.with_values(values)?;
        Ok(self.post.refresh(self.outside.entries())?)
    }

    fn outside(&self) -> Result<Csr<T>> {
        Ok(self.outside.clone())
    }

    fn bytes(&self) -> usize {
        self.post.bytes()
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
