//! Operations of a cycle on the part of one rank, in host memory or on a GPU.

use super::Transfer;
use crate::choice::Stores;
use crate::host::{Host, HostSpace, HostVector};
use crate::mpi::local::{Local, RankMemory};
use crate::mpi::vector::RankSpace;
use crate::numbers::Real;
use crate::preconditioners::amg::cycle::scaled;
use crate::preconditioners::amg::largest_of;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{BasicVector, Element, LinearOperator, Result, SpaceOf, Vector};

/// A rank's part of a vector of `T`.
pub(super) type PartOf<T, L> = <L as Stores<T>>::Vector;

/// A rank's part of a vector of a cycle, in single precision.
pub(super) type Single<L> = PartOf<f32, L>;

/// Memory of a rank's part of a hierarchy for systems in `T`.
pub trait LocalLevels<T: Real>: Local<T> + Local<f32> {
    /// Transfer between two levels.
    type Transfer: Send;

    /// The space of this rank's parts of vectors with `len` entries.
    fn single(space: &RankSpace<T, Self>, len: usize) -> SpaceOf<Single<Self>>;

    /// Magnitude of a vector, from which the scaling of right-hand sides follows.
    fn magnitude(r: &PartOf<T, Self>) -> Result<f64>;

    /// `b ← factor r`, in single precision.
    fn narrow(r: &PartOf<T, Self>, factor: f64, b: &mut Single<Self>) -> Result<()>;

    /// `z ← factor x`
    fn widen(x: &Single<Self>, factor: f64, z: &mut PartOf<T, Self>) -> Result<()>;

    /// `to ← Pᵀ t`
    fn restrict(transfer: &mut Self::Transfer, t: &Single<Self>, to: &mut Single<Self>) -> Result<()>;

    /// `t ← P from`
    fn prolong(transfer: &mut Self::Transfer, from: &Single<Self>, t: &mut Single<Self>) -> Result<()>;

    /// Bytes that both products of a transfer read.
    fn bytes(transfer: &Self::Transfer) -> usize;

    /// `x ← w D⁻¹ b`; `change` is workspace.
    fn first_sweep(
        weight: f32,
        inverse: &Single<Self>,
        b: &Single<Self>,
        [x, change]: [&mut Single<Self>; 2],
    ) {
        change.multiply(inverse, b);
        x.axpby(&weight.into(), change, &0.0.into());
    }

    /// `x ← x + w D⁻¹ (b − t)`; `t` and `change` are workspace.
    fn relax(weight: f32, inverse: &Single<Self>, b: &Single<Self>, [t, x, change]: [&mut Single<Self>; 3]) {
        t.axpby(&1.0.into(), b, &(-1.0).into());
        change.multiply(inverse, t);
        x.axpy(&weight.into(), change);
    }
}

impl<T: Real> LocalLevels<T> for Host {
    type Transfer = Transfer;

    fn single(_: &RankSpace<T>, len: usize) -> HostSpace<f32> {
        RankMemory::<f32>::space(&Host, len)
    }

    fn magnitude(r: &HostVector<T>) -> Result<f64> {
        Ok(largest_of(r.as_slice()))
    }

    fn narrow(r: &HostVector<T>, factor: f64, b: &mut HostVector<f32>) -> Result<()> {
        let wide = r.as_slice();
        over_rows(wide.len(), 2, b.as_mut_slice(), &|rows, b: &mut [f32]| {
            b.iter_mut().zip(&wide[rows]).for_each(|(b, &r)| *b = (Element::to_f64(r) * factor) as f32);
        });
        Ok(())
    }

    fn widen(x: &HostVector<f32>, factor: f64, z: &mut HostVector<T>) -> Result<()> {
        let narrow = x.as_slice();
        over_rows(narrow.len(), 2, z.as_mut_slice(), &|rows, z: &mut [T]| {
            z.iter_mut().zip(&narrow[rows]).for_each(|(z, &x)| *z = T::from_f64(f64::from(x) * factor));
        });
        Ok(())
    }

    fn restrict(transfer: &mut Transfer, t: &HostVector<f32>, to: &mut HostVector<f32>) -> Result<()> {
        let Transfer { r, back, coarse, .. } = transfer;
        r.apply(t, coarse)?;
        let to = to.as_mut_slice();
        let (own, ghosts) = coarse.as_slice().split_at(to.len());
        to.copy_from_slice(own);
        Ok(back.add(ghosts, to)?)
    }

    fn prolong(transfer: &mut Transfer, from: &HostVector<f32>, t: &mut HostVector<f32>) -> Result<()> {
        let Transfer { p, halo, coarse, .. } = transfer;
        let from = from.as_slice();
        halo.start(from)?;
        let (own, ghosts) = coarse.as_mut_slice().split_at_mut(from.len());
        own.copy_from_slice(from);
        ghosts.copy_from_slice(halo.receive()?);
        p.apply(coarse, t)
    }

    fn bytes(transfer: &Transfer) -> usize {
        transfer.bytes()
    }

    fn first_sweep(
        weight: f32,
        inverse: &HostVector<f32>,
        b: &HostVector<f32>,
        [x, _]: [&mut HostVector<f32>; 2],
    ) {
        scaled::<1>(weight, inverse.as_slice(), b.as_slice(), x.as_mut_slice());
    }

    fn relax(
        weight: f32,
        inverse: &HostVector<f32>,
        b: &HostVector<f32>,
        [t, x, _]: [&mut HostVector<f32>; 3],
    ) {
        let (b, t, inverse) = (b.as_slice(), t.as_slice(), inverse.as_slice());
        over_rows(b.len(), 5, x.as_mut_slice(), &|rows, x: &mut [f32]| {
            let parts = b[rows.clone()].iter().zip(&t[rows.clone()]).zip(&inverse[rows]);
            for (x, ((b, t), d)) in x.iter_mut().zip(parts) {
                *x += weight * d * (b - t);
            }
        });
    }
}
