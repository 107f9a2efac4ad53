//! The factor `G` of FSAI (factorized sparse approximate inverse) on a device, row by row. fsai.cu describes
//! the algorithm and the memory traffic.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::config;
use crate::cuda::device::launch::index;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::device::prelude::RawRowStarts;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::classes::{List, sorted};
use crate::cuda::matrix::device_csr::{DeviceCsr, Misfit, RowStarts};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::matrix::scan::scan;
use crate::index::Offsets;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use rayon::prelude::*;
use std::sync::Arc;

/// The kernels.
pub(crate) const SOURCE: Source = Source {
    file: "fsai.cu",
    text: include_str!("fsai.cu"),
    constants: constants![BLOCK, TRIANGLE_LANES; LANES],
    mirrors: &[mirror!("Systems" = RawFsai { a, a_columns, a_values, g, g_columns, g_values, failed })],
};

/// Threads per block of the kernels for rows with a fixed number of lanes. Guess.
const BLOCK: usize = 128;

/// Lanes per row in `fsai_triangle`. Guess.
const TRIANGLE_LANES: usize = 8;

/// For each class of `fsai_classes`, the maximum length of rows, which is also the number of lanes per row; 0
/// for longer rows, which get a warp and as much shared memory as they need.
const LANES: [usize; 4] = [8, 16, 32, 0];

/// Computes `G` from `A`, on fixed patterns.
#[derive(Debug)]
pub struct Fsai<T: Real> {
    a: DeviceCsr<T>,
    g: DeviceCsr<T>,
    classes: Vec<Class>,
    /// The first row that failed; all bits set if none did.
    failed: Array<u32>,
}

/// Rows of similar length.
#[derive(Debug)]
struct Class {
    kernel: CudaFunction,
    rows: List,
    config: LaunchConfig,
    /// Length of the longest row of `G`, for the class of long rows.
    longest: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawFsai {
    a: RawRowStarts,
    a_columns: u64,
    a_values: u64,
    g: RawRowStarts,
    g_columns: u64,
    g_values: u64,
    failed: u64,
}
// SAFETY: has the layout of `Systems` in fsai.cu
unsafe impl DeviceRepr for RawFsai {}

impl<T: Real> Fsai<T> {
    /// Prepares the computation for square matrices with patterns `a` and `g`; rows of `g` must end on the
    /// diagonal.
    pub fn new(
        (matrix, a): (DeviceCsr<T>, Pattern<'_>),
        (factor, g): (DeviceCsr<T>, Pattern<'_>),
    ) -> Result<Self> {
        let n = a.rows();
        index("the number of rows", n)?;
        assert!(a.cols() == n && g.rows() == n && g.cols() == n, "square matrices of one size");
        matrix.check(a.shape(), a);
        factor.check(g.shape(), g);
        let device = matrix.device().clone();
        let (classes, failed) = (classes::<T>(&device, &factor.rows, g)?, device.zeros(1)?);
        Ok(Fsai { a: matrix, g: factor, classes, failed })
    }

    /// Queues the computation of all rows from the current values of `A`.
    pub fn solve(&mut self) -> Result<()> {
        self.failed.write(&[u32::MAX])?;
        let raw = self.raw();
        for Class { kernel, rows, config, longest } in &self.classes {
            let (at, count) = (rows.address(), rows.len() as u32);
            let mut launch = self.failed.device().launch(kernel);
            launch.arg(&raw).arg(&at).arg(&count);
            if config.shared_mem_bytes > 0 {
                launch.arg(longest);
            }
            // SAFETY: arguments as in fsai.cu; rows of `g` fit the kernel's memory, or fail; columns of both
            // patterns are below the number of rows
            unsafe { launch.launch(*config) }?;
        }
        Ok(())
    }

    /// The first row whose system is not positive definite, or that lacks a diagonal entry, if any; waits for
    /// the computation.
    pub fn failed(&self) -> Result<Option<usize>> {
        let mut row = [0];
        self.failed.read(&mut row)?;
        Ok((row[0] != u32::MAX).then_some(row[0] as usize))
    }

    /// `A` in CSR.
    pub fn matrix(&self) -> &DeviceCsr<T> {
        &self.a
    }

    /// `A`, to change its values.
    pub fn matrix_mut(&mut self) -> &mut DeviceCsr<T> {
        &mut self.a
    }

    /// `G` in CSR.
    pub fn factor(&self) -> &DeviceCsr<T> {
        &self.g
    }

    fn raw(&self) -> RawFsai {
        RawFsai {
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

/// Lower and upper triangle of a square matrix with a full diagonal, each including the diagonal.
#[derive(Debug)]
pub struct Triangles<T: Real> {
    /// Lower triangle, with zero values.
    pub lower: DeviceCsr<T>,
    /// Row offsets of the lower triangle.
    pub offsets: Offsets,
    /// Upper triangle, with zero values; `None` if its number of entries differs from that of the lower
    /// triangle, so that the pattern is not symmetric.
    pub upper: Option<DeviceCsr<T>>,
}

impl<T: Real> Triangles<T> {
    /// Splits a matrix; `None` if it lacks diagonal entries, or has more entries than 32-bit offsets can
    /// address.
    pub fn of(matrix: &DeviceCsr<T>) -> Result<Option<Triangles<T>>> {
        let (device, rows, entries) = (matrix.device(), matrix.rows.count(), matrix.nnz());
        assert_eq!(matrix.columns.len(), entries, "a pattern with columns");
        if u32::try_from(entries).is_err() {
            return Ok(None);
        }
        let (starts, misfit) = (device.uninitialized::<u32>(rows + 1)?, Misfit::none(device)?);
        let measure = device.function::<T>(&SOURCE, "fsai_lower")?;
        let (whole, columns) = (matrix.rows.raw(), matrix.columns.address(0));
        let (to, mark) = (starts.address(0), misfit.address());
        let mut launch = device.launch(&measure);
        launch.arg(&whole).arg(&columns).arg(&to).arg(&mark);
        // SAFETY: arguments as in fsai.cu; there is a length for each row
        unsafe { launch.launch(config(rows)) }?;
        scan(&starts)?;
        if misfit.is_set()? {
            return Ok(None);
        }
        let mut offsets = vec![0; rows + 1];
        starts.read(&mut offsets)?;
        let Ok(offsets) = Offsets::from_short(offsets) else { return Ok(None) };
        let lower = part(matrix, starts, offsets.end(), false)?;
        let upper = if 2 * lower.nnz() == entries + rows {
            let starts = device.uninitialized::<u32>(rows + 1)?;
            let place = device.function::<T>(&SOURCE, "fsai_upper")?;
            let (whole, below, to) = (matrix.rows.raw(), lower.rows.raw(), starts.address(0));
            let mut launch = device.launch(&place);
            launch.arg(&whole).arg(&below).arg(&to);
            // SAFETY: arguments as in fsai.cu; there is a start for each row, and one more
            unsafe { launch.launch(config(rows + 1)) }?;
            Some(part(matrix, starts, lower.nnz(), true)?)
        } else {
            None
        };
        Ok(Some(Triangles { lower, offsets, upper }))
    }
}

/// A zero matrix with the pattern of the first or the last entries of each row. `starts` has the row offsets
/// of the result, which has `entries` entries.
fn part<T: Real>(
    matrix: &DeviceCsr<T>,
    starts: Array<u32>,
    entries: usize,
    last: bool,
) -> Result<DeviceCsr<T>> {
    let device = matrix.device();
    let part = DeviceCsr {
        rows: Arc::new(RowStarts::Short(starts)),
        columns: Arc::new(device.uninitialized(entries)?),
        values: device.zeros(entries)?,
    };
    let cut = device.function::<T>(&SOURCE, "fsai_triangle")?;
    let (from, columns, last) = (matrix.rows.raw(), matrix.columns.address(0), u32::from(last));
    let (to, its_columns) = (part.rows.raw(), part.columns.address(0));
    let mut launch = device.launch(&cut);
    launch.arg(&from).arg(&columns).arg(&to).arg(&its_columns).arg(&last);
    // SAFETY: arguments as in fsai.cu, where no row is read beyond its end; starts end at the number of
    // entries
    unsafe { launch.launch(config(matrix.rows.count() * TRIANGLE_LANES)) }?;
    Ok(part)
}

/// Groups the rows of `g` by the number of lanes per row.
fn classes<T: Real>(device: &Device, g: &RowStarts, pattern: Pattern<'_>) -> Result<Vec<Class>> {
    let (of_rows, classify) =
        (device.uninitialized::<u8>(g.count())?, device.function::<T>(&SOURCE, "fsai_classes")?);
    let (rows, to) = (g.raw(), of_rows.address(0));
    let mut launch = device.launch(&classify);
    launch.arg(&rows).arg(&to);
    // SAFETY: arguments as in fsai.cu; there is a class for each row
    unsafe { launch.launch(config(g.count())) }?;
    let lists: [List; LANES.len()] = sorted(&of_rows)?;
    let [.., long] = &lists;
    let length = |row: usize| pattern.row(row).len();
    let longest = if long.len() > 0 { (0..g.count()).into_par_iter().map(length).max() } else { None };
    let (longest, most) = (longest.unwrap_or(0), most_entries(device.shared_memory()?));
    if longest > most {
        let (what, got) = ("the number of entries of a row of FSAI's factor", longest);
        return Err(Error::TooLarge { what, got, limit: most });
    }
    let classes = lists.into_iter().zip(LANES).filter(|(rows, _)| rows.len() > 0);
    classes.map(|(rows, lanes)| Class::new::<T>(device, rows, lanes, longest)).collect()
}

/// Bytes of shared memory for a row of `entries` entries: a triangle, a vector, and columns.
fn bytes_of(entries: usize) -> usize {
    entries * (entries + 1) / 2 * size_of::<f64>() + entries * (size_of::<f64>() + size_of::<u32>())
}

/// Maximum number of entries of a row for `bytes` of shared memory.
fn most_entries(bytes: usize) -> usize {
    let root = (bytes as f64 / 4.0).sqrt() as usize;
    (0..=root).rev().find(|&entries| bytes_of(entries) <= bytes).unwrap_or(0)
}

impl Class {
    fn new<T: Real>(device: &Device, rows: List, lanes: usize, longest: usize) -> Result<Class> {
        let (name, shared) =
            if lanes > 0 { (lanes.to_string(), 0) } else { ("long".into(), bytes_of(longest)) };
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
        Ok(Class { kernel, rows, config, longest: longest as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_row_fills_the_workspace() {
        for bytes in [0, 11, 12, 20, 48 << 10, 64 << 10, 227 << 10] {
            let most = most_entries(bytes);
            assert!(bytes_of(most) <= bytes && bytes_of(most + 1) > bytes, "{bytes}: {most}");
        }
        assert_eq!([64 << 10, 227 << 10].map(most_entries), [126, 239]);
    }
}
