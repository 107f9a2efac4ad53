//! The factor of FSAI on a device, row by row. The kernels say how a row is computed, and what is moved.

use super::device::{Array, Device, Real};
use super::error::{Error, Result};
use super::module::Source;
use super::ordered::{Ordered, RawRows};
use super::product::Pattern;
use super::vector::index;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use rayon::prelude::*;

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "fsai.cu", text: include_str!("fsai.cu") };

/// `BLOCK` of fsai.cu.
const BLOCK: usize = 128;

/// Entries of rows, at most, and lanes that share one; longer rows have a warp and shared memory as they need.
const LANES: [usize; 3] = [8, 16, 32];

/// Computes `G` from `A`, on patterns that stay.
#[derive(Debug)]
pub struct Fsai<T: Real> {
    a: Ordered<T>,
    g: Ordered<T>,
    classes: Vec<Class>,
    /// The least row that failed, all bits set for none.
    failed: Array<u32>,
}

/// Rows of about one length.
#[derive(Debug)]
struct Class {
    kernel: CudaFunction,
    rows: Array<u32>,
    config: LaunchConfig,
    /// Entries of the longest row.
    longest: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    a: RawRows,
    a_columns: u64,
    a_values: u64,
    g: RawRows,
    g_columns: u64,
    g_values: u64,
    failed: u64,
}
// SAFETY: as `Systems` of fsai.cu
unsafe impl DeviceRepr for Raw {}

impl<T: Real> Fsai<T> {
    /// A factor of zeros of the pattern `g`, lower triangular with a full diagonal, for matrices of the pattern `a`.
    pub fn new(device: &Device, a: Pattern<'_>, g: Pattern<'_>) -> Result<Self> {
        let n = a.rows();
        index("the number of rows", n)?;
        assert!(a.cols() == n && g.rows() == n && g.cols() == n, "square matrices of one size");
        let ordered = Ordered::zeros_of(device, a)?;
        let factor = Ordered::zeros_of(device, g)?;
        let classes = sorted(device, g)?.into_iter().map(|rows| Class::new::<T>(device, &rows));
        Ok(Fsai { a: ordered, g: factor, classes: classes.collect::<Result<_>>()?, failed: device.zeros(1)? })
    }

    /// Queues the computation of all rows from a value for each entry of `A`.
    pub fn solve(&mut self, values: &[T]) -> Result<()> {
        self.a.values.write(values)?;
        self.failed.write(&[u32::MAX])?;
        let raw = self.raw();
        for Class { kernel, rows, config, longest } in &self.classes {
            let (at, count) = (rows.address(0), rows.len() as u32);
            let mut launch = self.failed.device().launch(kernel);
            launch.arg(&raw).arg(&at).arg(&count);
            if config.shared_mem_bytes > 0 {
                launch.arg(longest);
            }
            // SAFETY: arguments as in fsai.cu; rows of `g` are not empty and end on the diagonal, and no longer than the
            // kernel has room for; columns of both patterns lie below the number of rows
            unsafe { launch.launch(*config) }?;
        }
        Ok(())
    }

    /// The first row whose system is not positive definite, if any, when it is computed.
    pub fn failed(&self) -> Result<Option<usize>> {
        let mut row = [0];
        self.failed.read(&mut row)?;
        Ok((row[0] != u32::MAX).then_some(row[0] as usize))
    }

    /// `G`, row by row.
    pub fn factor(&self) -> &Ordered<T> {
        &self.g
    }

    fn raw(&self) -> Raw {
        Raw {
            a: self.a.rows.raw(),
            a_columns: self.a.columns.address(0),
            a_values: self.a.values.address(0),
            g: self.g.rows.raw(),
            g_columns: self.g.columns.address(0),
            g_values: self.g.values.address(0),
            failed: self.failed.address(0),
        }
    }
}

/// Rows that as many lanes share.
struct Sorted {
    /// 0 for rows that are longer than a warp.
    lanes: usize,
    rows: Vec<u32>,
    /// Entries of the longest.
    longest: usize,
}

fn sorted(device: &Device, g: Pattern<'_>) -> Result<Vec<Sorted>> {
    let most = most_entries(device.shared_memory()?);
    let rows = || (0..g.rows()).into_par_iter();
    let length = |row: usize| g.row(row).len();
    let ends_on_diagonal = |row: usize| g.columns()[g.row(row)].last() == Some(&(row as u32));
    assert!(rows().all(ends_on_diagonal), "rows end on the diagonal");
    let longest = rows().map(length).max().unwrap_or(0);
    if longest > most {
        let (what, got) = ("the number of entries of a row of FSAI's factor", longest);
        return Err(Error::TooLarge { what, got, limit: most });
    }
    let bounds = [0, LANES[0], LANES[1], LANES[2], usize::MAX];
    let classes = [LANES[0], LANES[1], LANES[2], 0].into_iter().zip(bounds.windows(2));
    let sorted = classes.map(|(lanes, bounds)| {
        let here = |&row: &usize| length(row) > bounds[0] && length(row) <= bounds[1];
        let rows: Vec<u32> = rows().filter(here).map(|row| row as u32).collect();
        Sorted { lanes, rows, longest: longest.min(bounds[1]) }
    });
    Ok(sorted.filter(|sorted| !sorted.rows.is_empty()).collect())
}

/// Bytes that a row of so many entries takes: its triangle, its numbers, its columns.
fn room(entries: usize) -> usize {
    entries * (entries + 1) / 2 * size_of::<f64>() + entries * (size_of::<f64>() + size_of::<u32>())
}

/// Entries of a row that so much memory has room for.
fn most_entries(bytes: usize) -> usize {
    let root = (bytes as f64 / 4.0).sqrt() as usize;
    (0..=root).rev().find(|&entries| room(entries) <= bytes).unwrap_or(0)
}

impl Class {
    fn new<T: Real>(device: &Device, sorted: &Sorted) -> Result<Class> {
        let Sorted { lanes, ref rows, longest } = *sorted;
        let (name, shared) = if lanes > 0 { (lanes.to_string(), 0) } else { ("long".into(), room(longest)) };
        let kernel = device.function::<T>(&SOURCE, &format!("fsai_{name}"))?;
        let (threads, blocks) = match lanes {
            0 => {
                device.lift_shared_limit(&kernel)?;
                (32, rows.len())
            }
            _ => (BLOCK, rows.len().div_ceil(BLOCK / lanes)),
        };
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (threads as u32, 1, 1),
            shared_mem_bytes: shared as u32,
        };
        Ok(Class { kernel, rows: device.upload(rows)?, config, longest: longest as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_long_as_there_is_room() {
        for bytes in [0, 11, 12, 20, 48 << 10, 64 << 10, 227 << 10] {
            let most = most_entries(bytes);
            assert!(room(most) <= bytes && room(most + 1) > bytes, "{bytes}: {most}");
        }
        assert_eq!([64 << 10, 227 << 10].map(most_entries), [126, 239]);
    }
}
