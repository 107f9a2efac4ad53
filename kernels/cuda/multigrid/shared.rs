//! Rows of a level whose other rows are in other memories, as on ranks. The columns are those of the own nodes, as
//! many as there are rows, followed by those of ghosts: nodes of other memories.

use super::graph::{Blocks, Graph, RawGraph, too_many};
use super::numbers::constants_of;
use super::products;
use crate::cuda::device::Element;
use crate::cuda::device::error::Result;
use crate::cuda::device::launch::config;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::{Array, Device};
use std::ops::Range;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "shared.cu",
    text: concat!(include_str!("graph.cu"), "#line 1 \"shared.cu\"\n", include_str!("shared.cu")),
    constants: constants![LANES],
    mirrors: &[mirror!("Graph" = RawGraph { offsets, columns, rows })],
};

/// Lanes of a row (guess).
const LANES: usize = 4;

/// Copies a range of an array into another one, from position `at` on.
fn copy<T: Element>(from: &Array<T>, range: Range<usize>, to: &mut Array<T>, at: usize) -> Result<()> {
    if !range.is_empty() {
        let end = at + range.len();
        let stream = from.device().inner.stream.clone();
        stream.memcpy_dtod(&from.slice.slice(range), &mut to.slice.slice_mut(at..end))?;
    }
    Ok(())
}

/// Appends numbers to an array.
pub fn extended<T: Element>(from: &Array<T>, more: &[T]) -> Result<Array<T>> {
    let (own, all) = (from.len(), from.len() + more.len());
    let mut extended = from.device().uninitialized(all)?;
    copy(from, 0..own, &mut extended, 0)?;
    extended.with_part(own..all, |part| part.write(more))?;
    Ok(extended)
}

impl Graph {
    /// A pattern with the node itself in place of ghosts, for aggregation.
    pub(super) fn without_ghosts(&self) -> Result<Graph> {
        let columns = self.device().uninitialized(self.entries())?;
        queue!(self.device(), f64, "hide_ghosts", config(self.rows() * LANES), self, columns);
        Ok(Graph { cols: self.rows(), ..self.with_columns(columns) })
    }

    /// Position of the first entry of a row, or the end.
    fn start(&self, row: usize) -> Result<usize> {
        if row == self.rows() {
            return Ok(self.entries());
        }
        let (starts, mut start) = (self.short_starts()?, [0u32]);
        self.device().inner.stream.memcpy_dtoh(&starts.slice.slice(row..row + 1), &mut start)?;
        self.device().synchronize()?;
        Ok(start[0] as usize)
    }
}

/// A block matrix in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostRows<'a> {
    /// Start of each row, then the number of blocks.
    pub offsets: &'a [u32],
    /// Columns, ascending in each row.
    pub columns: &'a [u32],
    /// Values, block by block.
    pub values: &'a [f64],
}

impl Blocks {
    /// Copies a block matrix to a device.
    pub fn upload(device: &Device, rows: HostRows<'_>, shape: [usize; 2], cols: usize) -> Result<Blocks> {
        assert_eq!(rows.columns.len() * shape[0] * shape[1], rows.values.len(), "the values of each block");
        let graph = Graph::upload(device, rows.offsets, rows.columns, cols)?;
        Ok(Blocks { graph, shape, values: device.upload(rows.values)? })
    }

    /// Copies row offsets, columns and values to the host.
    pub fn read(&self) -> Result<(Vec<u32>, Vec<u32>, Vec<f64>)> {
        let (offsets, columns) = self.graph.read()?;
        let mut values = vec![0.0; self.values.len()];
        self.values.read(&mut values)?;
        Ok((offsets, columns, values))
    }

    /// The rows with these numbers, as a product with rows of the identity.
    pub fn rows_at(&self, rows: &[u32]) -> Result<Blocks> {
        let (device, size) = (self.values.device(), self.shape[0]);
        let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
        let graph = Graph::upload(device, &offsets, rows, self.graph.rows())?;
        let values = constants_of(device, rows.len() * size, size)?;
        products::product(&Blocks { graph, shape: [size; 2], values }, self)
    }

    /// Appends columns: `[A, B]` for as many own columns as rows. Only the rows `with_ghosts` of `B` have entries, and `ghosts` has a
    /// row for each of them.
    pub fn joined(&self, with_ghosts: &[u32], ghosts: &Blocks) -> Result<Blocks> {
        let (device, rows) = (self.values.device(), self.graph.rows());
        let (entries, size) = (self.graph.entries() + ghosts.graph.entries(), self.shape[0] * self.shape[1]);
        assert!(
            self.graph.cols() == rows
                && ghosts.graph.rows() == with_ghosts.len()
                && ghosts.shape == self.shape
        );
        u32::try_from(entries).map_err(|_| too_many(entries))?;
        let (offsets, columns) = (device.zeros::<u32>(rows + 1)?, device.uninitialized::<u32>(entries)?);
        let values = device.uninitialized::<f64>(entries * size)?;
        let (a, own, b, others) = (&self.graph, &self.values, &ghosts.graph, &ghosts.values);
        let (which, cut, size) = (device.upload(with_ghosts)?, config(rows * LANES), size as u32);
        queue!(device, f64, "join_rows", cut, a, own, which, b, others, size, offsets, columns, values);
        let graph = Graph::new(offsets, columns, rows + ghosts.graph.cols());
        Ok(Blocks { graph, shape: self.shape, values })
    }

    /// The entries in own columns.
    pub fn own_part(&self) -> Result<Blocks> {
        Ok(self.part(false)?.0)
    }

    /// The entries in columns of ghosts, row by row: row, column (counted from zero) and values of each.
    pub fn border(&self) -> Result<(Vec<u32>, Vec<u32>, Vec<f64>)> {
        let (Blocks { graph, values, .. }, of_entry) = self.part(true)?;
        let (mut rows, mut columns) = (vec![0; of_entry.len()], vec![0; of_entry.len()]);
        let mut numbers = vec![0.0; values.len()];
        of_entry.read(&mut rows)?;
        graph.columns.read(&mut columns)?;
        values.read(&mut numbers)?;
        Ok((rows, columns, numbers))
    }

    /// The entries in own columns, or in those of ghosts; the latter with the row of each.
    fn part(&self, ghosts: bool) -> Result<(Blocks, Array<u32>)> {
        let (device, rows, size) = (self.values.device(), self.graph.rows(), self.shape[0] * self.shape[1]);
        let (counts, which) = (device.zeros::<u32>(rows + 1)?, u32::from(ghosts));
        queue!(device, f64, "count_part", config(rows), self.graph, which, counts);
        let graph = Graph::of_lengths(counts, if ghosts { self.graph.cols() - rows } else { rows })?;
        let values = device.uninitialized::<f64>(graph.entries() * size)?;
        let of_entry = device.uninitialized::<u32>(if ghosts { graph.entries() } else { 0 })?;
        let (a, own, cut, size) = (&self.graph, &self.values, config(rows * LANES), size as u32);
        let (offsets, columns) = (graph.offsets(), &graph.columns);
        queue!(device, f64, "copy_part", cut, a, own, size, which, offsets, columns, values, of_entry);
        Ok((Blocks { graph, shape: self.shape, values }, of_entry))
    }

    /// The first `rows` rows, with `places` as columns from `own` on, followed by other rows; ascending columns must
    /// stay ascending. The result has `cols` columns.
    pub fn stacked(
        &self,
        rows: usize,
        (own, places): (usize, &[u32]),
        below: HostRows<'_>,
        cols: usize,
    ) -> Result<Blocks> {
        let (device, size) = (self.values.device(), self.shape[0] * self.shape[1]);
        let (starts, entries) = (self.graph.short_starts()?, self.graph.start(rows)?);
        let all = entries + below.columns.len();
        u32::try_from(all).map_err(|_| too_many(all))?;
        let mut offsets = device.uninitialized(rows + below.offsets.len())?;
        copy(starts, 0..rows, &mut offsets, 0)?;
        let shifted: Vec<u32> = below.offsets.iter().map(|&offset| offset + entries as u32).collect();
        offsets.with_part(rows..rows + shifted.len(), |part| part.write(&shifted))?;
        let mut columns = device.uninitialized::<u32>(all)?;
        let (from, count, first, places) =
            (&self.graph.columns, entries as u64, own as u32, device.upload(places)?);
        queue!(device, f64, "rename_columns", config(entries), from, count, first, places, columns);
        columns.with_part(entries..all, |part| part.write(below.columns))?;
        let mut values = device.uninitialized::<f64>(all * size)?;
        copy(&self.values, 0..entries * size, &mut values, 0)?;
        values.with_part(entries * size..all * size, |part| part.write(below.values))?;
        Ok(Blocks { graph: Graph::new(offsets, columns, cols), shape: self.shape, values })
    }

    /// Number of blocks of the first `rows` rows in each column.
    pub fn column_counts(&self, rows: usize) -> Result<Vec<u32>> {
        let mut counts = vec![0; self.graph.cols() + 1];
        products::column_counts(&self.graph, self.graph.start(rows)?)?.read(&mut counts)?;
        counts.truncate(self.graph.cols());
        Ok(counts)
    }
}
