//! Setup and cycle of a rank's part in host memory.

use super::blocks::{HostBlocks, copy_rows};
use super::local::{LocalLevels, LocalSetup, Transfers};
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, MatrixSource};
use crate::host::{Host, HostSpace, HostVector};
use crate::mpi::halo::{Back, HaloExchange, Routes};
use crate::mpi::matrix::RankMatrix;
use crate::mpi::vector::RankSpace;
use crate::numbers::Real;
use crate::preconditioners::amg::aggregates::{Aggregates, NONE};
use crate::preconditioners::amg::blocks::{Transposed, transposed_pattern};
use crate::preconditioners::amg::coarsening::Smoother;
use crate::preconditioners::amg::cycle::scaled;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::on_host::round;
use crate::preconditioners::amg::product::{self, Pieces};
use crate::preconditioners::amg::stored::{Stored, expanded, rounded};
use crate::preconditioners::amg::strength::{self, Strength};
use crate::preconditioners::amg::{AmgOptions, largest_of};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, LinearOperator, Space};
use std::sync::Arc;

/// Aggregates of own nodes, and the strong connections: `None` if all are.
pub struct HostFound {
    pub(super) strong: Option<Pattern>,
    pub(super) aggregates: Aggregates,
}

/// A near-null space in host memory.
pub struct HostModes(pub(super) NearNullSpace);

/// Aggregates and tentative prolongator of own nodes, then of ghosts.
pub struct HostAggregates {
    strong: Option<Pattern>,
    /// The column of each node's aggregate, or [`NONE`].
    of_node: Vec<u32>,
    /// A block for each node.
    tentative: Vec<f64>,
    /// Rows per node, and number of modes.
    shape: [usize; 2],
    /// Number of columns.
    cols: usize,
}

/// Transfer to the next level and back: the rows of `P` and the columns of `Pᵀ` of this rank.
pub struct Transfer {
    p: Stored,
    r: Stored,
    halo: HaloExchange<f32>,
    back: Back<f32>,
    /// A vector of the next level: own entries, then ghosts.
    coarse: HostVector<f32>,
}

impl LocalSetup for Host {
    type Blocks = HostBlocks;
    type Inverse = Vec<f64>;
    type Modes = HostModes;
    type Found = HostFound;
    type Tentative = HostAggregates;
    type Stored = Stored;
    type Inside = Stored;
    type Transfer = Transfer;
    type Keeps = ();

    fn begin<T: Real>(&self) -> Result<()> {
        Ok(())
    }

    fn rows<T: Real>(&self, matrix: &RankMatrix<T>) -> Result<HostBlocks> {
        let csr: Csr<T> = matrix.whole()?;
        let values = map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at])).into();
        Ok(HostBlocks { pattern: csr.structure().pattern.in_order(), shape: [1, 1], values })
    }

    fn upload(&self, blocks: HostBlocks) -> Result<HostBlocks> {
        Ok(blocks)
    }

    fn read(blocks: &HostBlocks) -> Result<HostBlocks> {
        Ok(blocks.clone())
    }

    fn entries(blocks: &HostBlocks) -> usize {
        blocks.values.len()
    }

    fn rows_at(blocks: &HostBlocks, rows: &[u32]) -> Result<HostBlocks> {
        blocks.rows_at(rows)
    }

    fn stacked(
        blocks: &HostBlocks,
        rows: usize,
        places: (usize, &[u32]),
        below: &HostBlocks,
        cols: usize,
    ) -> Result<HostBlocks> {
        blocks.stacked(rows, places, below, cols)
    }

    fn used(blocks: &HostBlocks, rows: usize) -> Result<Vec<bool>> {
        let mut used = vec![false; blocks.pattern.cols()];
        let entries = blocks.pattern.offsets.at(rows);
        blocks.pattern.columns[..entries].iter().for_each(|&column| used[column as usize] = true);
        Ok(used)
    }

    fn product(a: &HostBlocks, b: &HostBlocks) -> Result<HostBlocks> {
        let (pattern, values) = product::product(a.view(), &b.view())?;
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: [a.shape[0], b.shape[1]], values })
    }

    fn modes(&self, modes: HostModes) -> Result<HostModes> {
        Ok(modes)
    }

    fn constants(&self, rows: usize, size: usize) -> Result<HostModes> {
        Ok(HostModes(NearNullSpace::constants(rows, size)))
    }

    fn read_modes(modes: &HostModes) -> Result<HostModes> {
        Ok(HostModes(modes.0.clone()))
    }

    fn count_of_modes(modes: &HostModes) -> usize {
        modes.0.count
    }

    fn found(a: &HostBlocks, options: &AmgOptions, routes: &Routes) -> Result<HostFound> {
        let beyond = |mut own: Vec<f64>| {
            let ghosts = routes.ghosts(1, &own)?;
            own.extend(ghosts);
            Ok(own)
        };
        let ranks = routes.ranks();
        let Strength { strong, left_out } = ranks.all(Strength::new(a.view(), options.strength, &beyond))?;
        let graph = ranks.all(own_part(strong.as_ref().unwrap_or(&a.pattern)))?;
        Ok(HostFound { strong, aggregates: Aggregates::new(&graph, &left_out) })
    }

    fn known(&self, found: HostFound) -> Result<HostFound> {
        Ok(found)
    }

    fn count(found: &HostFound) -> usize {
        found.aggregates.count
    }

    fn tentative(
        HostFound { strong, aggregates }: HostFound,
        size: usize,
        HostModes(modes): &HostModes,
        _: &AmgOptions,
    ) -> Result<(HostAggregates, HostModes)> {
        let (tentative, below) = modes.orthonormal(&aggregates, size);
        let strong = strong.filter(|_| modes.count == 1);
        let Aggregates { count: cols, of_node } = aggregates;
        Ok((
            HostAggregates { strong, of_node, tentative, shape: [size, modes.count], cols },
            HostModes(below),
        ))
    }

    fn tentative_at(aggregates: &HostAggregates, nodes: &[u32]) -> Result<HostBlocks> {
        let HostAggregates { of_node, tentative, shape, cols, .. } = aggregates;
        let width = shape[0] * shape[1];
        let nodes = || nodes.iter().map(|&node| node as usize);
        let kept = || nodes().filter(|&node| of_node[node] != NONE);
        let offsets = Offsets::from_lengths(nodes().map(|node| usize::from(of_node[node] != NONE)));
        let columns: Vec<u32> = kept().map(|node| of_node[node]).collect();
        let values: Vec<f64> = kept().flat_map(|node| &tentative[node * width..][..width]).copied().collect();
        let pattern = Arc::new(Pattern::sorted(offsets, columns, *cols)?);
        Ok(HostBlocks { pattern, shape: *shape, values: values.into() })
    }

    fn with_ghosts(
        mut aggregates: HostAggregates,
        ghosts: &HostBlocks,
        cols: usize,
    ) -> Result<HostAggregates> {
        let width = ghosts.width();
        for row in 0..ghosts.pattern.rows() {
            let at = ghosts.pattern.offsets.range(row);
            aggregates.of_node.push(ghosts.pattern.row(row).first().copied().unwrap_or(NONE));
            let block = &ghosts.values[at.start * width..at.end * width];
            let end = aggregates.tentative.len() + width;
            aggregates.tentative.extend_from_slice(block);
            aggregates.tentative.resize(end, 0.0);
        }
        Ok(HostAggregates { cols, ..aggregates })
    }

    fn of_nodes(aggregates: &HostAggregates, nodes: usize) -> Result<Vec<Option<u32>>> {
        let of_node = aggregates.of_node[..nodes].iter();
        Ok(of_node.map(|&aggregate| (aggregate != NONE).then_some(aggregate)).collect())
    }

    fn prolongator(
        a: &HostBlocks,
        aggregates: &HostAggregates,
        smoothed: Option<(&Vec<f64>, f64)>,
        own: usize,
        _: &AmgOptions,
    ) -> Result<HostBlocks> {
        let HostAggregates { strong, of_node, tentative, shape, cols } = aggregates;
        let nodes = a.pattern.rows();
        let Some((inverse_diagonal, omega)) = smoothed else {
            let of = |node: usize| of_node[node];
            let columns: Vec<u32> = (0..nodes).map(of).filter(|&of| of != NONE).collect();
            let offsets = Offsets::of_rows(nodes, &|node| usize::from(of(node) != NONE));
            let values = map_rows(columns.len(), 1, &|_| 1.0).into();
            let pattern = Arc::new(Pattern::sorted(offsets, columns, own)?);
            return Ok(HostBlocks { pattern, shape: [1, 1], values });
        };
        let (strong, modes) = (strong.as_ref(), shape[1]);
        let a = a.view();
        let smoother = Smoother { a, strong, of_node, tentative, modes, inverse_diagonal, omega };
        let made = smoother.each_row(|size, row| product::assembled([nodes, *cols], size, row));
        let (pattern, values) = made?;
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: *shape, values })
    }

    fn galerkin(
        a: &HostBlocks,
        [p, all]: [&HostBlocks; 2],
        factor: f64,
    ) -> Result<(HostBlocks, Transfers<Host>)> {
        let (transposed, from) = transposed_pattern(&p.pattern)?;
        let transposed = Arc::new(transposed);
        let r = Transposed { pattern: &transposed, of: p.view(), from: &from };
        let (pattern, values) = product::product(r, &Pieces::product(a.view(), &all.view())?)?;
        let [rows, modes] = p.shape;
        let stored = [
            Stored::rows(&expanded(&p.pattern, p.shape)?, rounded(p.view(), factor)),
            Stored::rows(&expanded(&transposed, [modes, rows])?, rounded(r, 1.0)),
        ];
        Ok((HostBlocks { pattern: Arc::new(pattern), shape: [modes; 2], values }, stored))
    }

    fn inverse(a: &HostBlocks) -> Result<Vec<f64>> {
        strength::inverse_diagonal(a.view())
    }

    fn least(inverse: &Vec<f64>) -> Result<f64> {
        Ok(strength::least_of(inverse))
    }

    fn rounded(&self, inverse: &Vec<f64>, scale: f64) -> Result<HostVector<f32>> {
        let mut rounded = HostSpace::new(inverse.len()).zeros()?;
        round(inverse, scale, &mut rounded);
        Ok(rounded)
    }

    fn level(&self, a: &HostBlocks, scale: f64) -> Result<(Stored, HostBlocks)> {
        let own = a.part(false)?;
        Ok((Stored::new(own.view(), &expanded(&own.pattern, own.shape)?, scale)?, a.part(true)?))
    }

    fn refill(inside: &mut Stored, a: &HostBlocks, scale: f64) -> Result<HostBlocks> {
        inside.renew(a.part(false)?.view(), scale);
        a.part(true)
    }

    fn name(inside: &Stored) -> &'static str {
        inside.name()
    }

    fn transfer(&self, [p, r]: Transfers<Host>, routes: Routes, width: usize) -> Result<Transfer> {
        let (halo, back) = (routes.halo()?, routes.back()?);
        let coarse = routes.ranks().all(HostSpace::new(width).zeros().map_err(Into::into))?;
        Ok(Transfer { p, r, halo, back, coarse })
    }

    fn names(transfer: &Transfer) -> [&'static str; 2] {
        [transfer.p.name(), transfer.r.name()]
    }

    fn bytes(transfer: &Transfer) -> usize {
        transfer.p.bytes() + transfer.r.bytes()
    }

    fn restrict(
        transfer: &mut Transfer,
        t: &HostVector<f32>,
        to: &mut HostVector<f32>,
    ) -> krysp_solvers::Result<()> {
        let Transfer { r, back, coarse, .. } = transfer;
        r.apply(t, coarse)?;
        let to = to.as_mut_slice();
        let (own, ghosts) = coarse.as_slice().split_at(to.len());
        to.copy_from_slice(own);
        Ok(back.add(ghosts, to)?)
    }

    fn prolong(
        transfer: &mut Transfer,
        from: &HostVector<f32>,
        t: &mut HostVector<f32>,
    ) -> krysp_solvers::Result<()> {
        let Transfer { p, halo, coarse, .. } = transfer;
        let from = from.as_slice();
        halo.start(from)?;
        let (own, ghosts) = coarse.as_mut_slice().split_at_mut(from.len());
        own.copy_from_slice(from);
        ghosts.copy_from_slice(halo.receive()?);
        p.apply(coarse, t)
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

impl<T: Real> LocalLevels<T> for Host {
    fn machine(_: &RankSpace<T>) -> Host {
        Host
    }

    fn magnitude(r: &HostVector<T>) -> krysp_solvers::Result<f64> {
        Ok(largest_of(r.as_slice()))
    }

    fn narrow(r: &HostVector<T>, factor: f64, b: &mut HostVector<f32>) -> krysp_solvers::Result<()> {
        let wide = r.as_slice();
        over_rows(wide.len(), 2, b.as_mut_slice(), &|rows, b: &mut [f32]| {
            b.iter_mut().zip(&wide[rows]).for_each(|(b, &r)| *b = (Element::to_f64(r) * factor) as f32);
        });
        Ok(())
    }

    fn widen(x: &HostVector<f32>, factor: f64, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        let narrow = x.as_slice();
        over_rows(narrow.len(), 2, z.as_mut_slice(), &|rows, z: &mut [T]| {
            z.iter_mut().zip(&narrow[rows]).for_each(|(z, &x)| *z = T::from_f64(f64::from(x) * factor));
        });
        Ok(())
    }
}

/// Restricts a pattern to the columns of own nodes.
fn own_part(pattern: &Pattern) -> Result<Pattern> {
    let rows = pattern.rows();
    let length = |row: usize| pattern.row(row).partition_point(|&column| (column as usize) < rows);
    let offsets = Offsets::of_rows(rows, &length);
    let mut columns = Buffer::zeros(offsets.end());
    copy_rows(&offsets, 1, &mut columns, &|row, to| to.copy_from_slice(&pattern.row(row)[..to.len()]));
    Pattern::sorted(offsets, columns, rows)
}
