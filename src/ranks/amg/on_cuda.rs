//! Setup and cycle of a rank's part on a GPU. Rows at the borders and sizes cross the bus; nodes of several unknowns are
//! formed, and nodes that differ in their number of unknowns are aggregated, in host memory.

use super::blocks::HostBlocks;
use super::local::{Border, GhostExchange, LocalLevels, LocalSetup, ModesOf, Tentative};
use crate::device::{Cuda, CudaVector, failed};
use crate::error::{Error, Result};
use crate::formats::MatrixSource;
use crate::formats::pattern::Pattern;
use crate::numbers::Real;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::on_cuda::transfers;
use crate::preconditioners::amg::setup_on_cuda::{Products, diagonals, least};
use crate::ranks::halo::Routes;
use crate::ranks::matrix::RankMatrix;
use crate::ranks::on_cuda::{Exchange, Sending};
use crate::ranks::vector::RankSpace;
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::cuda::multigrid;
use krysp_kernels::cuda::multigrid::coarsening::{
    Aggregates, found, galerkin, ones, prolongation, transposed,
};
use krysp_kernels::cuda::multigrid::cycle::Matrix;
use krysp_kernels::cuda::multigrid::graph::{Blocks, Graph};
use krysp_kernels::cuda::multigrid::numbers::{self, Inverse};
use krysp_kernels::cuda::multigrid::products::product;
use krysp_kernels::cuda::multigrid::shared::{HostRows, extended};
use krysp_kernels::cuda::solve::cast::{from_single, to_single};
use krysp_kernels::cuda::solve::vector;
use krysp_kernels::cuda::team::post::Ghosts;
use krysp_kernels::cuda::{Array, KeepsMemory};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, Scalar, Space, Vector};
use std::borrow::Cow;
use std::sync::Arc;

/// Exchange of entries of the next level.
pub struct CudaExchange {
    /// A vector of the next level: own entries, then ghosts.
    coarse: CudaVector<f32>,
    own: usize,
    /// Sends own entries to the ranks where they are ghosts.
    up: Exchange<f32>,
    /// Sends the values at ghosts to the owners of these entries; `returned` adds them there.
    down: Exchange<f32>,
    returned: Ghosts<f32>,
}

impl HostBlocks {
    /// Calls `work` with the arrays of the matrix.
    fn with_rows<R>(&self, work: impl FnOnce(HostRows<'_>) -> R) -> R {
        let offsets = map_rows(self.pattern.rows() + 1, 2, &|row| self.pattern.offsets.at(row) as u32);
        work(HostRows { offsets: &offsets, columns: &self.pattern.columns, values: &self.values })
    }

    fn of(blocks: &Blocks) -> Result<HostBlocks> {
        let (offsets, columns, values) = blocks.read()?;
        let start = |row: usize| offsets[row] as usize;
        let offsets = Offsets::of_rows(blocks.graph.rows(), &|row| start(row + 1) - start(row));
        let pattern = Pattern::sorted(offsets, columns, blocks.graph.cols())?;
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: blocks.shape, values: values.into() })
    }
}

impl LocalSetup for Cuda {
    type Blocks = Blocks;
    type Numbers = Array<f64>;
    type Inverse = Inverse;
    type Strong = Graph;
    type Stored = Products<Matrix>;
    type Exchange = CudaExchange;
    type Keeps = KeepsMemory;

    fn begin<T: Real>(&self) -> Result<KeepsMemory> {
        multigrid::begin::<T>(self.device(), true);
        Ok(self.device().keep_memory()?)
    }

    fn rows<T: Real>(&self, matrix: &RankMatrix<T, Cuda>) -> Result<Blocks> {
        let (rows, outside, _) = matrix.border()?;
        let values: Vec<f64> = outside.entries().iter().map(|&value| Element::to_f64(value)).collect();
        let pattern = outside.structure().pattern.in_order();
        let ghosts = self.upload(HostBlocks { pattern, shape: [1, 1], values: values.into() })?;
        let inside = matrix.diagonal_block().borrowed_on(self)?;
        let nodes = numbers::nodes(&inside, 1)?;
        Ok(numbers::with_blocks(&inside, &nodes, 1, |inside| inside.joined(rows, &ghosts))??)
    }

    fn entries_at<T: Real>(&self, matrix: &RankMatrix<T, Cuda>, at: &[usize]) -> Result<Vec<f64>> {
        Ok(numbers::entries_at(&*matrix.diagonal_block().borrowed_on(self)?, at)?)
    }

    fn upload(&self, blocks: HostBlocks) -> Result<Blocks> {
        let HostBlocks { pattern, shape, .. } = &blocks;
        Ok(blocks.with_rows(|rows| Blocks::upload(self.device(), rows, *shape, pattern.cols()))?)
    }

    fn read(blocks: &Blocks) -> Result<Cow<'_, HostBlocks>> {
        HostBlocks::of(blocks).map(Cow::Owned)
    }

    fn entries(blocks: &Blocks) -> usize {
        blocks.values.len()
    }

    fn rows_at(blocks: &Blocks, rows: &[u32]) -> Result<HostBlocks> {
        HostBlocks::of(&blocks.rows_at(rows)?)
    }

    fn stacked(
        blocks: &Blocks,
        rows: usize,
        places: (usize, &[u32]),
        below: &HostBlocks,
        cols: usize,
    ) -> Result<Blocks> {
        Ok(below.with_rows(|below| blocks.stacked(rows, places, below, cols))?)
    }

    fn used(blocks: &Blocks, rows: usize) -> Result<Vec<bool>> {
        Ok(blocks.column_counts(rows)?.into_iter().map(|count| count > 0).collect())
    }

    fn product(a: &Blocks, b: &Blocks) -> Result<Blocks> {
        Ok(product(a, b)?)
    }

    fn modes(&self, NearNullSpace { count, values }: NearNullSpace) -> Result<ModesOf<Cuda>> {
        Ok(ModesOf::<Cuda> { count, values: self.device().upload(&values)? })
    }

    fn read_modes(modes: &ModesOf<Cuda>) -> Result<NearNullSpace> {
        let mut values = vec![0.0; modes.values.len()];
        modes.values.read(&mut values)?;
        Ok(NearNullSpace { count: modes.count, values })
    }

    fn constants(&self, rows: usize, size: usize) -> Result<ModesOf<Cuda>> {
        Ok(ModesOf::<Cuda> { count: size, values: numbers::constants_of(self.device(), rows, size)? })
    }

    fn aggregated(
        a: &Blocks,
        modes: &ModesOf<Cuda>,
        theta: f64,
        sent: &[u32],
        exchange: GhostExchange<'_>,
    ) -> Result<(Tentative<Cuda>, ModesOf<Cuda>)> {
        let mut with_ghosts = |own: Array<f64>| -> Result<Array<f64>> {
            Ok(extended(&own, &exchange(numbers::gathered(&own, sent).map_err(Error::from))?)?)
        };
        let (joined, strong) = found::<Error>(a, theta, &mut with_ghosts)?;
        let Aggregates { strong, t, modes, .. } = Aggregates::of(joined, strong, a.shape[0], modes)?;
        Ok((Tentative { t, strong }, modes))
    }

    fn columns(t: &Blocks) -> usize {
        t.graph.cols()
    }

    fn ones(blocks: &Blocks, rows: usize, cols: usize) -> Result<Blocks> {
        let none = HostRows { offsets: &[0], columns: &[], values: &[] };
        Ok(ones(&blocks.stacked(rows, (cols, &[]), none, cols)?.graph)?)
    }

    fn prolongator(
        a: &Blocks,
        Tentative { t, strong }: &Tentative<Cuda>,
        (inverse, omega): (&Inverse, f64),
    ) -> Result<Blocks> {
        Ok(prolongation(a, strong.as_ref(), t, (&inverse.values, omega))?.1)
    }

    fn galerkin(
        &self,
        a: &Blocks,
        [p, all]: [&Blocks; 2],
        factor: f64,
    ) -> Result<(Blocks, [Products<Matrix>; 2])> {
        let (r, _) = transposed(p)?;
        let (_, coarse) = galerkin(a, all, &r)?;
        let [fine, below] = [p.rows(), r.rows()].map(|rows| self.space(rows));
        let [p, r] = transfers([p, &r], factor)?;
        let p = Products { matrix: p, spaces: [below.clone(), fine.clone()] };
        Ok((coarse, [p, Products { matrix: r, spaces: [fine, below] }]))
    }

    fn inverse(a: &Blocks) -> Result<Inverse> {
        Ok(Inverse::new(a, None)?)
    }

    fn least(inverse: &Inverse) -> Result<f64> {
        least(inverse, None)
    }

    fn rounded(&self, inverse: &Inverse, scale: f64) -> Result<CudaVector<f32>> {
        let mut rounded = self.space(inverse.values.len()).zeros()?;
        rounded.entries = numbers::rounded_diagonal(&inverse.values, scale)?;
        Ok(rounded)
    }

    fn level(&self, a: &Blocks, scale: f64, finest: Option<&Pattern>) -> Result<(Products<Matrix>, Border)> {
        let diagonals = finest.map_or(vec![], |finest| diagonals(finest, false));
        let matrix = Matrix::of_blocks(&a.own_part()?, scale, &diagonals)?;
        let space = self.space(a.rows());
        Ok((Products { matrix, spaces: [space.clone(), space] }, border(a)?))
    }

    fn refill(inside: &mut Products<Matrix>, a: &Blocks, scale: f64) -> Result<Border> {
        inside.matrix.refill(&a.own_part()?, scale)?;
        border(a)
    }

    fn name(stored: &Products<Matrix>) -> &'static str {
        stored.matrix.name()
    }

    fn exchange(&self, routes: Routes, length: usize) -> Result<CudaExchange> {
        let (gpu, own, sent) = (self, length - routes.ghost_count(), routes.sent());
        // contributions to an entry are added in the order of the ranks
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
            Ok((returned, sending, came, gpu.space(length).zeros()?))
        };
        let (returned, [to_ghosts, back], [ghosts, from_ghosts], coarse) = routes.ranks().all(made())?;
        let up = to_ghosts.forwards(&routes, ghosts)?;
        let down = back.backwards(&routes, from_ghosts)?;
        Ok(CudaExchange { coarse, own, up, down, returned })
    }

    fn add_ghosts(
        CudaExchange { coarse, own, down, returned, .. }: &mut CudaExchange,
        product: impl FnOnce(&mut CudaVector<f32>) -> krysp_solvers::Result<()>,
        to: &mut CudaVector<f32>,
    ) -> krysp_solvers::Result<()> {
        product(coarse)?;
        coarse.entries.with_part(0..*own, |part| vector::copy(part, &mut to.entries));
        down.send(coarse, || Ok(()))?;
        returned.add(down.wait()?, &mut to.entries).map_err(failed)
    }

    fn with_ghosts<'a>(
        CudaExchange { coarse, own, up, .. }: &'a mut CudaExchange,
        from: &CudaVector<f32>,
    ) -> krysp_solvers::Result<&'a CudaVector<f32>> {
        let length = coarse.entries.len();
        up.send(from, || {
            coarse.entries.with_part(0..*own, |part| vector::copy(&from.entries, part));
            Ok(())
        })?;
        let came = up.wait()?;
        coarse.entries.with_part(*own..length, |part| came.copy_to(part)).map_err(failed)?;
        Ok(coarse)
    }

    fn first_sweep(weight: f32, inverse: &CudaVector<f32>, b: &CudaVector<f32>, x: &mut CudaVector<f32>) {
        vector::scaled_multiply(weight, &inverse.entries, &b.entries, &mut x.entries);
    }

    fn relax(
        weight: f32,
        inverse: &CudaVector<f32>,
        b: &CudaVector<f32>,
        t: &CudaVector<f32>,
        x: &mut CudaVector<f32>,
    ) {
        vector::relax(weight, &inverse.entries, &b.entries, &t.entries, &mut x.entries);
    }
}

/// The entries of a level in columns of ghosts.
fn border(a: &Blocks) -> Result<Border> {
    let (mut rows, columns, values) = a.border()?;
    let offsets = Offsets::from_lengths(rows.chunk_by(|a, b| a == b).map(<[u32]>::len));
    rows.dedup();
    let pattern = Arc::new(Pattern::sorted(offsets, columns, a.graph.cols() - a.graph.rows())?);
    Ok((rows, HostBlocks { pattern, shape: a.shape, values: values.into() }))
}

impl<T: Real> LocalLevels<T> for Cuda {
    fn machine(space: &RankSpace<T, Cuda>) -> Cuda {
        space.own().gpu().clone()
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
}
