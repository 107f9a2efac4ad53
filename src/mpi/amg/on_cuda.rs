//! Algebraic multigrid over MPI ranks with GPUs: distributed levels on the GPUs, replicated ones in host
//! memory.

use super::{Last, REACH, RankAmg};
use crate::device::{Cuda, CudaVector, ToCuda, failed};
use crate::error::Result;
use crate::host::HostSpace;
use crate::mpi::matrix::RankMatrix;
use crate::mpi::on_cuda::{Exchange, Sending};
use crate::mpi::vector::{RankSpace, RankVector};
use crate::numbers::Real;
use crate::preconditioners::amg::power_below;
use krysp_kernels::cuda::multigrid::cycle::Matrix;
use krysp_kernels::cuda::solve::cast::{from_single, to_single};
use krysp_kernels::cuda::solve::vector;
use krysp_kernels::cuda::team::post::Ghosts;
use krysp_solvers::{Element, LinearOperator, Scalar, Space, Vector, check_spaces};
use std::sync::{Mutex, PoisonError};

/// [`RankAmg`] on the GPUs of the ranks, made by [`RankAmg::to`](ToCuda::to) from one in host memory.
pub struct OnGpu<T: Real> {
    space: RankSpace<T, Cuda>,
    hierarchy: Mutex<Hierarchy>,
    bytes: usize,
}

/// The levels and the workspace of a cycle.
struct Hierarchy {
    scale: f64,
    /// The power of two by which the last right-hand side was divided.
    size: f64,
    levels: Vec<Level>,
    last: Last,
    /// Right-hand side and solution of the replicated levels.
    ends: [CudaVector<f32>; 2],
}

struct Level {
    a: RankMatrix<f32, Cuda>,
    /// `w D⁻¹` of each sweep.
    sweeps: Vec<CudaVector<f32>>,
    transfer: Option<Transfer>,
    b: CudaVector<f32>,
    x: RankVector<f32, Cuda>,
    t: RankVector<f32, Cuda>,
    change: CudaVector<f32>,
}

/// Transfer to the next level and back.
struct Transfer {
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
    type OnCuda = OnGpu<T>;

    fn to(&self, gpu: &Cuda) -> Result<OnGpu<T>> {
        let host = self.hierarchy.lock().unwrap_or_else(PoisonError::into_inner);
        let levels = host.levels.iter().map(|level| Level::of(gpu, level)).collect::<Result<_>>()?;
        let last = host.last.clone();
        let space = gpu.space::<f32>(last.b.len());
        let ends = self.space.ranks().all((|| Ok([space.zeros()?, space.zeros()?]))())?;
        let hierarchy = Hierarchy { scale: host.scale, size: host.size, levels, last, ends };
        drop(host);
        Ok(OnGpu { space: self.space.to(gpu)?, hierarchy: Mutex::new(hierarchy), bytes: self.bytes() })
    }
}

impl Level {
    fn of(gpu: &Cuda, host: &super::Level) -> Result<Level> {
        let a = host.a.to(gpu)?;
        let transfer = host.transfer.as_ref().map(|transfer| Transfer::of(gpu, transfer)).transpose()?;
        let space = a.domain().clone();
        let made = || {
            let sweep = |&weight: &f32| {
                let scaled: Vec<f32> =
                    host.inverse.as_slice().iter().map(|inverse| weight * inverse).collect();
                space.own().vector(&scaled)
            };
            let sweeps = host.weights.iter().map(sweep).collect::<krysp_solvers::Result<_>>()?;
            let [b, change] = [space.own().zeros()?, space.own().zeros()?];
            let [x, t] = [space.zeros()?, space.zeros()?];
            Ok((sweeps, b, x, t, change))
        };
        let (sweeps, b, x, t, change) = space.ranks().all(made())?;
        Ok(Level { a, sweeps, transfer, b, x, t, change })
    }

    /// `t ← b − A x`
    fn residual(&mut self) -> krysp_solvers::Result<()> {
        self.a.apply(&self.x, &mut self.t)?;
        self.t.own_mut().axpby(&1.0.into(), &self.b, &(-1.0).into());
        Ok(())
    }

    /// `x ← x + w D⁻¹ (b − A x)`
    fn sweep(&mut self, sweep: usize) -> krysp_solvers::Result<()> {
        self.residual()?;
        self.change.multiply(&self.sweeps[sweep], self.t.own());
        self.x.own_mut().axpy(&1.0.into(), &self.change);
        Ok(())
    }
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
            let coarse = crate::device::CudaSpace::like(gpu, &HostSpace::new(length)).zeros()?;
            Ok((returned, sending, came, coarse, [host.p.to(gpu)?, host.r.to(gpu)?]))
        };
        let (returned, [to_ghosts, back], [ghosts, from_ghosts], coarse, [p, r]) =
            routes.ranks().all(made())?;
        let up = to_ghosts.forwards(routes, ghosts)?;
        let down = back.backwards(routes, from_ghosts)?;
        Ok(Transfer { p, r, coarse, own, up, down, returned })
    }

    /// `to ← Pᵀ t`
    fn restrict(&mut self, t: &CudaVector<f32>, to: &mut CudaVector<f32>) -> krysp_solvers::Result<()> {
        let Transfer { r, coarse, own, down, returned, .. } = self;
        r.product().product(&t.entries, &mut coarse.entries).map_err(failed)?;
        coarse.entries.with_part(0..*own, |part| vector::copy(part, &mut to.entries));
        down.send(coarse, || Ok(()))?;
        returned.add(down.came()?, &mut to.entries).map_err(failed)
    }

    /// `t ← P from`
    fn prolong(&mut self, from: &CudaVector<f32>, t: &mut CudaVector<f32>) -> krysp_solvers::Result<()> {
        let Transfer { p, coarse, own, up, .. } = self;
        let length = coarse.entries.len();
        up.send(from, || {
            coarse.entries.with_part(0..*own, |part| vector::copy(&from.entries, part));
            Ok(())
        })?;
        let came = up.came()?;
        coarse.entries.with_part(*own..length, |part| came.copy_to(part)).map_err(failed)?;
        p.product().product(&coarse.entries, &mut t.entries).map_err(failed)
    }
}

impl Hierarchy {
    /// Applies one V-cycle to the right-hand side. `own` is the norm of its part on this rank, before the
    /// division by `size`; returns the maximum of `own` over all ranks.
    fn cycle(&mut self, own: f64) -> krysp_solvers::Result<f64> {
        let Hierarchy { scale, levels, last, ends: [into_last, out_of_last], .. } = self;
        for at in 0..levels.len() {
            let (level, below) = levels[at..].split_at_mut(1);
            let level = &mut level[0];
            level.x.own_mut().multiply(&level.sweeps[0], &level.b);
            (1..level.sweeps.len()).try_for_each(|sweep| level.sweep(sweep))?;
            if level.transfer.is_some() {
                level.residual()?;
            }
            let Level { transfer: Some(transfer), t, .. } = level else { break };
            let to = below.first_mut().map_or(&mut *into_last, |below| &mut below.b);
            transfer.restrict(t.own(), to)?;
        }
        into_last.space().store(into_last, &mut last.b)?;
        let largest = last.solve(*scale, own)?;
        out_of_last.space().clone().load(&last.x, out_of_last)?;
        for at in (0..levels.len()).rev() {
            let (level, below) = levels[at..].split_at_mut(1);
            let level = &mut level[0];
            if let Level { transfer: Some(transfer), x, t, .. } = level {
                let from = below.first().map_or(&*out_of_last, |below| below.x.own());
                transfer.prolong(from, t.own_mut())?;
                x.own_mut().axpy(&1.0.into(), t.own());
            }
            (0..level.sweeps.len()).rev().try_for_each(|sweep| level.sweep(sweep))?;
        }
        Ok(largest)
    }

    /// The right-hand side and the solution of the finest level.
    fn ends(&mut self) -> [&mut CudaVector<f32>; 2] {
        match self.levels.first_mut() {
            Some(Level { b, x, .. }) => [b, x.own_mut()],
            None => self.ends.each_mut(),
        }
    }
}

impl<T: Real> LinearOperator for OnGpu<T> {
    type Vector = RankVector<T, Cuda>;

    fn domain(&self) -> &RankSpace<T, Cuda> {
        &self.space
    }

    fn apply(&self, r: &RankVector<T, Cuda>, z: &mut RankVector<T, Cuda>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let hierarchy = &mut *self.hierarchy.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Element::to_f64(r.own().norm_squared().read()?).sqrt();
        loop {
            let down = 1.0 / hierarchy.size;
            let [b, _] = hierarchy.ends();
            to_single(&r.own().entries, down, &mut b.entries).map_err(failed)?;
            let largest = hierarchy.cycle(own)?;
            let apart = largest / hierarchy.size;
            if !(largest.is_normal()) || (apart < REACH && apart > 1.0 / REACH) {
                break;
            }
            hierarchy.size = power_below(largest);
        }
        let up = hierarchy.scale * hierarchy.size;
        let [_, x] = hierarchy.ends();
        from_single(&x.entries, up, &mut z.own_mut().entries).map_err(failed)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
