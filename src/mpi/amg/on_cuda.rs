//! Setup and cycle of a rank's part on a GPU. Rows at the borders and sizes cross the bus; nodes of several unknowns are
//! formed, and nodes that differ in their number of unknowns are aggregated, in host memory.

use super::blocks::HostBlocks;
use super::local::{LocalLevels, LocalSetup, Transfers};
use super::on_host::{HostFound, HostModes};
use crate::device::{Cuda, CudaSpace, CudaVector, failed};
use crate::error::{Error, Result};
use crate::formats::MatrixSource;
use crate::formats::pattern::Pattern;
use crate::host::HostSpace;
use crate::mpi::halo::Routes;
use crate::mpi::matrix::RankMatrix;
use crate::mpi::on_cuda::{Exchange, Sending};
use crate::mpi::vector::RankSpace;
use crate::numbers::Real;
use crate::preconditioners::amg::on_cuda::{joined, parameters, transfers};
use crate::preconditioners::amg::setup_on_cuda::{Products, least};
use crate::preconditioners::amg::{AmgOptions, modes};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_kernels::cuda::multigrid::begin_shared;
use krysp_kernels::cuda::multigrid::coarsening::{self, Aggregates, NearNullSpace, found, transposed};
use krysp_kernels::cuda::multigrid::cycle::Matrix;
use krysp_kernels::cuda::multigrid::graph::{Blocks, Graph};
use krysp_kernels::cuda::multigrid::numbers::{self, Inverse};
use krysp_kernels::cuda::multigrid::shared::{HostRows, extended, product};
use krysp_kernels::cuda::solve::cast::{from_single, to_single};
use krysp_kernels::cuda::solve::vector;
use krysp_kernels::cuda::team::post::Ghosts;
use krysp_kernels::cuda::{Array, KeepsMemory};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, Scalar, Space, Vector};
use std::sync::Arc;

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

/// Aggregates of own nodes, and the strong connections: `None` if all are.
pub struct CudaFound {
    joined: Graph,
    strong: Option<Graph>,
}

impl HostBlocks {
    /// Calls `work` with the arrays of the matrix.
    fn with_rows<R>(&self, work: impl FnOnce(HostRows<'_>) -> R) -> R {
        let offsets = map_rows(self.pattern.rows() + 1, 2, &|row| self.pattern.offsets.at(row) as u32);
        work(HostRows { offsets: &offsets, columns: &self.pattern.columns, values: &self.values })
    }

    fn on(&self, gpu: &Cuda) -> Result<Blocks> {
        Ok(self.with_rows(|rows| Blocks::upload(gpu.device(), rows, self.shape, self.pattern.cols()))?)
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
    type Inverse = Inverse;
    type Modes = NearNullSpace;
    type Found = CudaFound;
    type Tentative = Aggregates;
    type Stored = Matrix;
    type Inside = Products<Matrix>;
    type Transfer = Transfer;
    type Keeps = KeepsMemory;

    fn begin<T: Real>(&self) -> Result<KeepsMemory> {
        begin_shared::<T>(self.device());
        Ok(self.device().keep_memory()?)
    }

    fn rows<T: Real>(&self, matrix: &RankMatrix<T, Cuda>) -> Result<Blocks> {
        let (rows, outside, _) = matrix.border()?;
        let own = matrix.diagonal_block().structure().pattern.rows();
        let mut lengths = vec![0; own];
        (0..).zip(rows).for_each(|(at, &row)| lengths[row as usize] = outside.row_columns(at).len());
        let offsets = Offsets::of_rows(own, &|row| lengths[row]);
        let pattern = Pattern::sorted(offsets, outside.columns().to_vec(), outside.cols())?;
        let values: Vec<f64> = outside.entries().iter().map(|&value| Element::to_f64(value)).collect();
        let ghosts =
            HostBlocks { pattern: Arc::new(pattern), shape: [1, 1], values: values.into() }.on(self)?;
        let inside = matrix.diagonal_block().borrowed_on(self)?;
        let nodes = numbers::nodes(&inside, 1)?;
        Ok(numbers::with_blocks(&inside, &nodes, 1, |inside| inside.joined(&ghosts))??)
    }

    fn upload(&self, blocks: HostBlocks) -> Result<Blocks> {
        blocks.on(self)
    }

    fn read(blocks: &Blocks) -> Result<HostBlocks> {
        HostBlocks::of(blocks)
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

    fn modes(&self, HostModes(modes): HostModes) -> Result<NearNullSpace> {
        Ok(NearNullSpace { count: modes.count, values: self.device().upload(&modes.values)? })
    }

    fn constants(&self, rows: usize, size: usize) -> Result<NearNullSpace> {
        Ok(NearNullSpace { count: size, values: numbers::constants_of(self.device(), rows, size)? })
    }

    fn read_modes(modes: &NearNullSpace) -> Result<HostModes> {
        let mut values = vec![0.0; modes.values.len()];
        modes.values.read(&mut values)?;
        Ok(HostModes(modes::NearNullSpace { count: modes.count, values }))
    }

    fn count_of_modes(modes: &NearNullSpace) -> usize {
        modes.count
    }

    fn found(a: &Blocks, options: &AmgOptions, routes: &Routes) -> Result<CudaFound> {
        // true while all ranks return together from what may fail; a rank that fails alone joins the next `all` of the others
        let (ranks, mut together) = (routes.ranks(), false);
        let mut beyond = |own: Array<f64>| -> Result<Array<f64>> {
            together = true;
            let sent = ranks.all(numbers::gathered(&own, routes.sent()).map_err(Error::from))?;
            let came = routes.lists(false, &sent, &|at| at)?;
            together = false;
            Ok(extended(&own, &came)?)
        };
        let found = found::<Error>(a, parameters(options), &mut beyond);
        let (joined, strong) = if together { found? } else { ranks.all(found)? };
        Ok(CudaFound { joined, strong })
    }

    fn known(&self, found: HostFound) -> Result<CudaFound> {
        Ok(CudaFound { joined: joined(self, &found.aggregates)?, strong: None })
    }

    fn count(found: &CudaFound) -> usize {
        found.joined.cols()
    }

    fn tentative(
        CudaFound { joined, strong }: CudaFound,
        size: usize,
        modes: &NearNullSpace,
        options: &AmgOptions,
    ) -> Result<(Aggregates, NearNullSpace)> {
        let mut aggregates = Aggregates::of(joined, strong, size, modes, parameters(options))?;
        let nothing = modes.values.device().zeros(0)?;
        let values = std::mem::replace(&mut aggregates.modes.values, nothing);
        Ok((aggregates, NearNullSpace { count: modes.count, values }))
    }

    fn tentative_at(aggregates: &Aggregates, nodes: &[u32]) -> Result<HostBlocks> {
        Cuda::rows_at(aggregates.tentative(), nodes)
    }

    fn with_ghosts(aggregates: Aggregates, ghosts: &HostBlocks, cols: usize) -> Result<Aggregates> {
        Ok(ghosts.with_rows(|ghosts| aggregates.with_ghosts(ghosts, cols))?)
    }

    fn of_nodes(aggregates: &Aggregates, nodes: usize) -> Result<Vec<Option<u32>>> {
        let (offsets, columns) = aggregates.tentative().graph.read()?;
        let of_node = |node: &[u32]| (node[0] < node[1]).then(|| columns[node[0] as usize]);
        Ok(offsets.windows(2).take(nodes).map(of_node).collect())
    }

    fn prolongator(
        a: &Blocks,
        aggregates: &Aggregates,
        smoothed: Option<(&Inverse, f64)>,
        own: usize,
        options: &AmgOptions,
    ) -> Result<Blocks> {
        let of = smoothed.map(|(inverse, omega)| (&inverse.values, omega));
        let (_, p) = aggregates.prolongation(a, of, parameters(options))?;
        if of.is_some() {
            return Ok(p);
        }
        // without the rows of ghosts
        let nothing = HostRows { offsets: &[0], columns: &[], values: &[] };
        Ok(p.stacked(a.graph.rows(), (own, &[]), nothing, own)?)
    }

    fn galerkin(a: &Blocks, [p, all]: [&Blocks; 2], factor: f64) -> Result<(Blocks, Transfers<Cuda>)> {
        let (r, _) = transposed(p)?;
        let (_, coarse) = coarsening::galerkin(a, all, &r)?;
        Ok((coarse, transfers([p, &r], factor)?))
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

    fn level(&self, a: &Blocks, scale: f64) -> Result<(Products<Matrix>, HostBlocks)> {
        let matrix = Matrix::of_blocks(&a.part(false)?, scale, &[])?;
        Ok((Products { matrix, space: self.space(a.rows()) }, HostBlocks::of(&a.part(true)?)?))
    }

    fn refill(inside: &mut Products<Matrix>, a: &Blocks, scale: f64) -> Result<HostBlocks> {
        inside.matrix.refill(&a.part(false)?, scale)?;
        HostBlocks::of(&a.part(true)?)
    }

    fn name(inside: &Products<Matrix>) -> &'static str {
        inside.matrix.name()
    }

    fn transfer(&self, [p, r]: Transfers<Cuda>, routes: Routes, length: usize) -> Result<Transfer> {
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
            Ok((returned, sending, came, CudaSpace::like(gpu, &HostSpace::new(length)).zeros()?))
        };
        let (returned, [to_ghosts, back], [ghosts, from_ghosts], coarse) = routes.ranks().all(made())?;
        let up = to_ghosts.forwards(&routes, ghosts)?;
        let down = back.backwards(&routes, from_ghosts)?;
        Ok(Transfer { p, r, coarse, own, up, down, returned })
    }

    fn names(transfer: &Transfer) -> [&'static str; 2] {
        [transfer.p.name(), transfer.r.name()]
    }

    fn bytes(transfer: &Transfer) -> usize {
        transfer.p.product().bytes() + transfer.r.product().bytes()
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
