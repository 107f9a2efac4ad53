//! Algebraic multigrid over MPI ranks with GPUs: distributed levels on the GPUs, replicated ones in host
//! memory.

use super::local::LocalLevels;
use super::{Hierarchy, Level, RankAmg};
use crate::device::{Cuda, CudaSpace, CudaVector, ToCuda, failed};
use crate::error::Result;
use crate::host::{Host, HostSpace};
use crate::mpi::on_cuda::{Exchange, Sending};
use crate::mpi::vector::RankSpace;
use crate::numbers::Real;
use krysp_kernels::cuda::multigrid::cycle::Matrix;
use krysp_kernels::cuda::solve::cast::{from_single, to_single};
use krysp_kernels::cuda::solve::vector;
use krysp_kernels::cuda::team::post::Ghosts;
use krysp_solvers::{BasicVector, Element, Scalar, Space, Vector};
use std::sync::PoisonError;

/// Transfer to the next level and back.
pub struct Transfer {
    p: Matrix,
    r: Matrix,
    /// A vector of the next level: own entries, then ghosts.
    coarse: CudaVector<f32>,
    own: usize,
    /// Sends own entries to the ranks where they are ghosts.
    up: Exchange<f32>,
    /// Sends the values at ghosts to the owners of these entries; `returned` adds them there.
    down: Exchange<f32>,
    returned: Ghosts<f32>,
}

/// Copies the distributed levels to the GPUs. Collective: all ranks call this.
impl<T: Real> ToCuda for RankAmg<T> {
    type OnCuda = RankAmg<T, Cuda>;

    fn to(&self, gpu: &Cuda) -> Result<RankAmg<T, Cuda>> {
        let host = self.cycle.lock().unwrap_or_else(PoisonError::into_inner);
        let (scale, last) = (host.hierarchy.scale, host.hierarchy.last.clone());
        let levels =
            host.hierarchy.levels.iter().map(|level| copied::<T>(gpu, level)).collect::<Result<_>>()?;
        drop(host);
        let hierarchy = Hierarchy::<T, Cuda> { scale, levels, last };
        RankAmg::of((self.space.to(gpu)?, self.nodes.clone()), self.options, hierarchy, self.reports.clone())
    }
}

fn copied<T: Real>(gpu: &Cuda, host: &Level<T, Host>) -> Result<Level<T, Cuda>> {
    let a = host.a.to(gpu)?;
    let transfer = host.transfer.as_ref().map(|transfer| Transfer::of(gpu, transfer)).transpose()?;
    let space = krysp_solvers::LinearOperator::domain(&a);
    let inverse = space.ranks().all(space.own().vector(host.inverse.as_slice()).map_err(Into::into))?;
    let (weights, gain, visits) = (host.weights.clone(), host.gain, host.visits);
    Ok(Level::<T, Cuda> { a, inverse, weights, gain, transfer, visits })
}

impl Transfer {
    fn of(gpu: &Cuda, host: &super::Transfer) -> Result<Transfer> {
        let (routes, length) = (&host.routes, host.coarse.space().len());
        let own = length - routes.ghost_count();
        // contributions to an entry are added in the order of the ranks
        let sent = routes.sent();
        let mut columns: Vec<u32> = (0..sent.len() as u32).collect();
        columns.sort_by_key(|&at| sent[at as usize]);
        let (mut rows, mut offsets) = (vec![], vec![]);
        for (place, &at) in columns.iter().enumerate() {
            if rows.last() != Some(&sent[at as usize]) {
                rows.push(sent[at as usize]);
                offsets.push(place as u32);
            }
        }
        offsets.push(columns.len() as u32);
        let made = || {
            let ones = vec![1.0; columns.len()];
            let border = [&*rows, &*offsets, &*columns];
            let returned = Ghosts::new(gpu.device(), own, sent.len(), border, &ones)?;
            let ghosts: Vec<u32> = (own as u32..length as u32).collect();
            let sending = [Sending::new(gpu, own, sent)?, Sending::new(gpu, length, &ghosts)?];
            let came = [gpu.device().pinned(ghosts.len())?, gpu.device().pinned(sent.len())?];
            let coarse = CudaSpace::like(gpu, &HostSpace::new(length)).zeros()?;
            Ok((returned, sending, came, coarse, [host.p.to(gpu)?, host.r.to(gpu)?]))
        };
        let (returned, [to_ghosts, back], [ghosts, from_ghosts], coarse, [p, r]) =
            routes.ranks().all(made())?;
        let up = to_ghosts.forwards(routes, ghosts)?;
        let down = back.backwards(routes, from_ghosts)?;
        Ok(Transfer { p, r, coarse, own, up, down, returned })
    }
}

impl<T: Real> LocalLevels<T> for Cuda {
    type Transfer = Transfer;

    fn single(space: &RankSpace<T, Cuda>, len: usize) -> CudaSpace<f32> {
        space.own().gpu().space(len)
    }

    fn magnitude(r: &CudaVector<T>) -> krysp_solvers::Result<f64> {
        Ok(Element::to_f64(r.norm_squared().read()?).sqrt())
    }

    fn narrow(r: &CudaVector<T>, factor: f64, b: &mut CudaVector<f32>) -> krysp_solvers::Result<()> {
        to_single(&r.entries, factor, &mut b.entries).map_err(failed)
    }

    fn widen(x: &CudaVector<f32>, factor: f64, z: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        from_single(&x.entries, factor, &mut z.entries).map_err(failed)
    }

    fn restrict(
        transfer: &mut Transfer,
        t: &CudaVector<f32>,
        to: &mut CudaVector<f32>,
    ) -> krysp_solvers::Result<()> {
        let Transfer { r, coarse, own, down, returned, .. } = transfer;
        r.product().product(&t.entries, &mut coarse.entries).map_err(failed)?;
        coarse.entries.with_part(0..*own, |part| vector::copy(part, &mut to.entries));
        down.send(coarse, || Ok(()))?;
        returned.add(down.came()?, &mut to.entries).map_err(failed)
    }

    fn prolong(
        transfer: &mut Transfer,
        from: &CudaVector<f32>,
        t: &mut CudaVector<f32>,
    ) -> krysp_solvers::Result<()> {
        let Transfer { p, coarse, own, up, .. } = transfer;
        let length = coarse.entries.len();
        up.send(from, || {
            coarse.entries.with_part(0..*own, |part| vector::copy(&from.entries, part));
            Ok(())
        })?;
        let came = up.came()?;
        coarse.entries.with_part(*own..length, |part| came.copy_to(part)).map_err(failed)?;
        p.product().product(&coarse.entries, &mut t.entries).map_err(failed)
    }

    fn bytes(transfer: &Transfer) -> usize {
        transfer.p.product().bytes() + transfer.r.product().bytes()
    }
}
