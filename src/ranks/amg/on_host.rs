//! Setup and cycle of a rank's part in host memory.

use super::blocks::HostBlocks;
use super::local::{Border, GhostExchange, LocalLevels, LocalSetup, Tentative};
use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, MatrixSource};
use crate::host::{Host, HostSpace, HostVector};
use crate::numbers::Real;
use crate::preconditioners::amg::aggregates::{Aggregates, NONE};
use crate::preconditioners::amg::blocks::{Transposed, fill_rows, transposed_pattern};
use crate::preconditioners::amg::coarsening::Smoother;
use crate::preconditioners::amg::cycle::scaled;
use crate::preconditioners::amg::largest_of;
use crate::preconditioners::amg::modes::{NearNullSpace, constants, orthonormal};
use crate::preconditioners::amg::on_host::rounded_diagonal;
use crate::preconditioners::amg::product::{self, Pieces};
use crate::preconditioners::amg::stored::{Stored, expanded, rounded};
use crate::preconditioners::amg::strength::{self, Strength};
use crate::ranks::halo::{Back, HaloExchange, Routes};
use crate::ranks::matrix::RankMatrix;
use crate::ranks::vector::RankSpace;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{map_rows, over_rows};
use krysp_kernels::index::Offsets;
use krysp_solvers::{Element, Space};
use std::borrow::Cow;
use std::sync::Arc;

/// Exchange of entries of the next level.
pub struct HostExchange {
    halo: HaloExchange<f32>,
    back: Back<f32>,
    /// A vector of the next level: own entries, then ghosts.
    coarse: HostVector<f32>,
}

impl LocalSetup for Host {
    type Blocks = HostBlocks;
    type Numbers = Vec<f64>;
    type Inverse = Vec<f64>;
    type Strong = Pattern;
    type Stored = Stored;
    type Exchange = HostExchange;
    type Keeps = ();

    fn begin<T: Real>(&self) -> Result<()> {
        Ok(())
    }

    fn rows<T: Real>(&self, matrix: &RankMatrix<T>) -> Result<HostBlocks> {
        let csr: Csr<T> = matrix.whole()?;
        let values = map_rows(csr.nnz(), 2, &|at| Element::to_f64(csr.entries()[at])).into();
        Ok(HostBlocks { pattern: csr.structure().pattern.in_order(), shape: [1, 1], values })
    }

    fn entries_at<T: Real>(&self, matrix: &RankMatrix<T>, at: &[usize]) -> Result<Vec<f64>> {
        let csr = matrix.diagonal_block().in_host_memory()?;
        Ok(at.iter().map(|&at| Element::to_f64(csr.entries()[at])).collect())
    }

    fn upload(&self, blocks: HostBlocks) -> Result<HostBlocks> {
        Ok(blocks)
    }

    fn read(blocks: &HostBlocks) -> Result<Cow<'_, HostBlocks>> {
        Ok(Cow::Borrowed(blocks))
    }

    fn entries(blocks: &HostBlocks) -> usize {
        blocks.values.len()
    }

    fn rows_at(blocks: &HostBlocks, rows: &[u32]) -> Result<HostBlocks> {
        let entries = |row: usize| blocks.pattern.offsets.range(rows[row] as usize);
        blocks.picked(rows.len(), blocks.pattern.cols(), &entries, 0)
    }

    fn stacked(
        blocks: &HostBlocks,
        rows: usize,
        (own, places): (usize, &[u32]),
        below: &HostBlocks,
        cols: usize,
    ) -> Result<HostBlocks> {
        let (above, width) = (&*blocks.pattern, blocks.width());
        let (entries, more) = (above.offsets.at(rows), below.pattern.entries());
        let column = |at: usize| match at.checked_sub(entries) {
            Some(at) => below.pattern.columns[at],
            None => match (above.columns[at] as usize).checked_sub(own) {
                Some(ghost) => places[ghost],
                None => above.columns[at],
            },
        };
        let value = |at: usize| match at.checked_sub(entries * width) {
            Some(at) => below.values[at],
            None => blocks.values[at],
        };
        let length = |row: usize| match row.checked_sub(rows) {
            Some(row) => below.pattern.offsets.range(row).len(),
            None => above.offsets.range(row).len(),
        };
        let offsets = Offsets::of_rows(rows + below.pattern.rows(), &length);
        let pattern = Pattern::sorted(offsets, map_rows(entries + more, 2, &column), cols)?;
        let values = map_rows((entries + more) * width, 2, &value).into();
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: blocks.shape, values })
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

    fn modes(&self, modes: NearNullSpace) -> Result<NearNullSpace> {
        Ok(modes)
    }

    fn read_modes(modes: &NearNullSpace) -> Result<NearNullSpace> {
        Ok(modes.clone())
    }

    fn constants(&self, rows: usize, size: usize) -> Result<NearNullSpace> {
        Ok(constants(rows, size))
    }

    fn aggregated(
        a: &HostBlocks,
        modes: &NearNullSpace,
        theta: f64,
        sent: &[u32],
        exchange: GhostExchange<'_>,
    ) -> Result<(Tentative<Host>, NearNullSpace)> {
        let with_ghosts = |mut own: Vec<f64>| {
            let ghosts = exchange(Ok(sent.iter().map(|&node| own[node as usize]).collect()))?;
            own.extend(ghosts);
            Ok(own)
        };
        let Strength { strong, left_out } = Strength::new(a.view(), theta, &with_ghosts)?;
        let graph = own_part(strong.as_ref().unwrap_or(&a.pattern))?;
        tentative(strong, Aggregates::new(&graph, &left_out), a.shape[0], modes)
    }

    fn columns(t: &HostBlocks) -> usize {
        t.pattern.cols()
    }

    fn ones(HostBlocks { pattern, .. }: &HostBlocks, rows: usize, cols: usize) -> Result<HostBlocks> {
        let offsets = Offsets::of_rows(rows, &|row| pattern.offsets.range(row).len());
        let columns = pattern.columns[..offsets.end()].to_vec();
        Ok(HostBlocks::identities(Arc::new(Pattern::sorted(offsets, columns, cols)?), 1))
    }

    fn prolongator(
        a: &HostBlocks,
        Tentative { t, strong }: &Tentative<Host>,
        (inverse_diagonal, omega): (&Vec<f64>, f64),
    ) -> Result<HostBlocks> {
        let (nodes, width, modes) = (t.pattern.rows(), t.width(), t.shape[1]);
        let of_node = map_rows(nodes, 2, &|node| t.pattern.row(node).first().copied().unwrap_or(NONE));
        let value = |at: usize| match t.pattern.offsets.range(at / width) {
            block if block.is_empty() => 0.0,
            block => t.values[block.start * width + at % width],
        };
        let (of_node, tentative) = (&of_node, &map_rows(nodes * width, 2, &value));
        let smoother = Smoother {
            a: a.view(),
            strong: strong.as_ref(),
            of_node,
            tentative,
            modes,
            inverse_diagonal,
            omega,
        };
        let shape = [a.pattern.rows(), t.pattern.cols()];
        let (pattern, values) = smoother.each_row(|size, row| product::assembled(shape, size, row))?;
        Ok(HostBlocks { pattern: Arc::new(pattern), shape: t.shape, values })
    }

    fn galerkin(
        &self,
        a: &HostBlocks,
        [p, all]: [&HostBlocks; 2],
        factor: f64,
    ) -> Result<(HostBlocks, [Stored; 2])> {
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
        rounded_diagonal(inverse, scale)
    }

    fn level(&self, a: &HostBlocks, scale: f64, _: Option<&Pattern>) -> Result<(Stored, Border)> {
        let own = a.own_part()?;
        Ok((Stored::new(own.view(), &expanded(&own.pattern, own.shape)?, scale)?, a.border()?))
    }

    fn refill(inside: &mut Stored, a: &HostBlocks, scale: f64) -> Result<Border> {
        inside.renew(a.own_part()?.view(), scale);
        a.border()
    }

    fn name(stored: &Stored) -> &'static str {
        stored.name()
    }

    fn exchange(&self, routes: Routes, width: usize) -> Result<HostExchange> {
        let (halo, back) = (routes.halo()?, routes.back()?);
        let coarse = routes.ranks().all(HostSpace::new(width).zeros().map_err(Into::into))?;
        Ok(HostExchange { halo, back, coarse })
    }

    fn add_ghosts(
        HostExchange { back, coarse, .. }: &mut HostExchange,
        product: impl FnOnce(&mut HostVector<f32>) -> krysp_solvers::Result<()>,
        to: &mut HostVector<f32>,
    ) -> krysp_solvers::Result<()> {
        product(coarse)?;
        let to = to.as_mut_slice();
        let (own, ghosts) = coarse.as_slice().split_at(to.len());
        to.copy_from_slice(own);
        Ok(back.add(ghosts, to)?)
    }

    fn with_ghosts<'a>(
        HostExchange { halo, coarse, .. }: &'a mut HostExchange,
        from: &HostVector<f32>,
    ) -> krysp_solvers::Result<&'a HostVector<f32>> {
        let from = from.as_slice();
        halo.start(from)?;
        let (own, ghosts) = coarse.as_mut_slice().split_at_mut(from.len());
        own.copy_from_slice(from);
        ghosts.copy_from_slice(halo.receive()?);
        Ok(coarse)
    }

    fn first_sweep(weight: f32, inverse: &HostVector<f32>, b: &HostVector<f32>, x: &mut HostVector<f32>) {
        scaled::<1>(weight, inverse.as_slice(), b.as_slice(), x.as_mut_slice());
    }

    fn relax(
        weight: f32,
        inverse: &HostVector<f32>,
        b: &HostVector<f32>,
        t: &HostVector<f32>,
        x: &mut HostVector<f32>,
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

/// The tentative prolongator on the aggregates of own nodes of `size` rows, and the modes of the next level.
pub(super) fn tentative(
    strong: Option<Pattern>,
    aggregates: Aggregates,
    size: usize,
    modes: &NearNullSpace,
) -> Result<(Tentative<Host>, NearNullSpace)> {
    let shape = [size, modes.count];
    let (blocks, below) = orthonormal(modes, &aggregates, size);
    let (pattern, values) = aggregates.tentative(&blocks, size * modes.count)?;
    let t = HostBlocks { pattern: Arc::new(pattern), shape, values: values.into() };
    Ok((Tentative { t, strong: strong.filter(|_| modes.count == 1) }, below))
}

/// Restricts a pattern to the columns of own nodes.
fn own_part(pattern: &Pattern) -> Result<Pattern> {
    let rows = pattern.rows();
    let length = |row: usize| pattern.row(row).partition_point(|&column| (column as usize) < rows);
    let offsets = Offsets::of_rows(rows, &length);
    let mut columns = Buffer::zeros(offsets.end());
    fill_rows(&offsets, 1, &mut columns, &|row, to| to.copy_from_slice(&pattern.row(row)[..to.len()]));
    Pattern::sorted(offsets, columns, rows)
}
