//! A matrix distributed over a team of GPUs: each GPU stores the diagonal block of its rows, and separately
//! the entries of these rows in columns that other GPUs own.

use super::{GpuPart, PartReport};
use crate::choice::Operator;
use crate::device::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::partition::Cut;
use krysp_kernels::cuda::team::halo::{HaloExchange, Plan};
use krysp_kernels::cuda::team::member::Member;
use krysp_solvers::{Form, LinearOperator, Space, check_spaces};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Number of products in one measurement. Guess, chosen so that the start of the GPUs counts little.
const PRODUCTS: usize = 20;

/// A matrix distributed like the matrix of a [`MultiGpu`](super::MultiGpu).
pub struct MultiGpuMatrix<T: Real> {
    parts: Vec<GpuPartMatrix<T>>,
}

impl<T: Real> MultiGpuMatrix<T> {
    pub(super) fn new(parts: Vec<GpuPartMatrix<T>>) -> Self {
        MultiGpuMatrix { parts }
    }

    /// The rows of the GPU of `part`: an operator on vectors of `part.domain()`.
    pub fn of(&self, part: &GpuPart<T>) -> &GpuPartMatrix<T> {
        &self.parts[part.place()]
    }
}

/// A GPU's rows of a matrix.
pub struct GpuPartMatrix<T: Real> {
    space: CudaSpace<T>,
    /// The entries in columns that this GPU owns.
    own: Operator<CudaVector<T>>,
    /// The other entries; `None` if the GPU has all rows.
    halo: Option<HaloExchange<T>>,
    entries: usize,
    outside: usize,
    received: usize,
}

/// Distributes a matrix over GPUs: each of `places` is a GPU, its member of the team, and its range of rows.
pub(super) fn cut<'p, T: Real>(
    csr: &Csr<T>,
    places: impl Iterator<Item = (&'p Cuda, &'p Arc<Member>, Range<usize>)>,
) -> Result<Vec<GpuPartMatrix<T>>> {
    let places: Vec<_> = places.collect();
    let cuts = places.iter().map(|(.., rows)| Cut::of(csr, rows)).collect::<Result<Vec<_>>>()?;
    let ranges: Vec<Range<usize>> = places.iter().map(|(.., rows)| rows.clone()).collect();
    let plans: Vec<Plan<T>> = (0..cuts.len()).map(|own| plan(&cuts, &ranges, own)).collect();
    let members: Vec<Arc<Member>> = places.iter().map(|&(_, member, _)| member.clone()).collect();
    let mut halos = match members.len() {
        0 | 1 => vec![],
        _ => HaloExchange::connect(&members, &plans)?,
    };
    halos.reverse();
    let mut parts = vec![];
    for ((gpu, member, rows), cut) in places.into_iter().zip(cuts) {
        let halo = halos.pop();
        // spaces created now belong to the team
        gpu.device().join(halo.is_some().then(|| member.clone()));
        let own = Operator::auto(&cut.inside, gpu);
        let space = CudaSpace::like(gpu, &HostSpace::new(rows.len()));
        gpu.device().join(None);
        let (outside, received) = (cut.values.len(), cut.ghosts.len());
        parts.push(GpuPartMatrix {
            space,
            own: own?,
            halo,
            entries: cut.inside.nnz() + outside,
            outside,
            received,
        });
    }
    Ok(parts)
}

/// The communication of the member `own`: the entries of `x` that it sends and receives, and its matrix
/// entries in columns that other members own.
fn plan<T: Real>(cuts: &[Cut<T>], ranges: &[Range<usize>], own: usize) -> Plan<T> {
    let (mine, first) = (&cuts[own], ranges[own].start as u64);
    let of = |cut: &Cut<T>, member: usize| {
        cut.ghosts_of(&(ranges[member].start as u64..ranges[member].end as u64))
    };
    let sends = cuts
        .iter()
        .map(|other| other.ghosts[of(other, own)].iter().map(|&column| (column - first) as u32).collect());
    let mut ghosts_from: Vec<usize> = (0..cuts.len()).map(|member| of(mine, member).start).collect();
    ghosts_from.push(mine.ghosts.len());
    Plan {
        sends: sends.collect(),
        ghosts_from,
        rows: mine.rows.clone(),
        offsets: mine.offsets.clone(),
        columns: mine.columns.clone(),
        values: mine.values.clone(),
    }
}

impl<T: Real> GpuPartMatrix<T> {
    /// Returns whether this part has all rows.
    pub(super) fn is_whole(&self) -> bool {
        self.halo.is_none()
    }

    pub(super) fn block(&self) -> Result<Csr<T>> {
        Ok(self.own.origin().in_host_memory()?.into_owned())
    }

    pub(super) fn report(&self, gpu: &str) -> PartReport {
        let &GpuPartMatrix { entries, outside, received, .. } = self;
        PartReport {
            gpu: gpu.into(),
            rows: self.space.local_len(),
            entries,
            off_diagonal: outside,
            received,
            bytes: self.bytes(),
            format: self.own.choice().stored().to_string(),
        }
    }

    /// Seconds of a product with the diagonal block: the minimum of three measurements, each the mean of
    /// several products.
    pub(super) fn seconds(&self) -> Result<f64> {
        let (x, mut y) = (self.own.domain().zeros()?, self.own.range().zeros()?);
        let mut least = f64::INFINITY;
        for _ in 0..3 {
            self.own.apply(&x, &mut y)?;
            self.space.gpu().synchronize()?;
            let started = Instant::now();
            (0..PRODUCTS).try_for_each(|_| self.own.apply(&x, &mut y))?;
            self.space.gpu().synchronize()?;
            least = least.min(started.elapsed().as_secs_f64() / PRODUCTS as f64);
        }
        Ok(least)
    }

    /// Replaces the values by those of `csr`, a whole matrix with the same pattern.
    pub(super) fn refresh(&mut self, csr: &Csr<T>, rows: &Range<usize>) -> Result<()> {
        let cut = Cut::of(csr, rows)?;
        self.own.refresh(cut.inside.entries())?;
        match &mut self.halo {
            Some(halo) => Ok(halo.refresh(&cut.values)?),
            None => Ok(()),
        }
    }
}

impl<T: Real> LinearOperator for GpuPartMatrix<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        let Some(halo) = &self.halo else { return self.own.apply(x, y) };
        check_spaces(self, x, y)?;
        halo.send(&x.entries).map_err(failed)?;
        self.own.apply(x, y)?;
        halo.add(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        let Some(halo) = &self.halo else { return self.own.apply_dot(x, y) };
        check_spaces(self, x, y)?;
        halo.send(&x.entries).map_err(failed)?;
        let own = self.space.gpu().device().apart(|| self.own.apply_dot(x, y))?;
        Ok(CudaScalar(halo.add_dot(&x.entries, &mut y.entries, &own.0).map_err(failed)?))
    }

    fn residual(
        &self,
        b: &CudaVector<T>,
        x: &CudaVector<T>,
        r: &mut CudaVector<T>,
    ) -> krysp_solvers::Result<()> {
        match &self.halo {
            Some(_) => krysp_solvers::plain_residual(self, b, x, r),
            None => self.own.residual(b, x, r),
        }
    }

    fn form(&self) -> Form<'_, CudaVector<T>> {
        match &self.halo {
            Some(_) => Form::General,
            None => self.own.form(),
        }
    }

    fn bytes(&self) -> usize {
        self.own.bytes() + self.halo.as_ref().map_or(0, HaloExchange::bytes)
    }

    fn replays(&self) -> bool {
        true
    }
}
