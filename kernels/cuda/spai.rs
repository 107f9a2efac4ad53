//! A sparse approximate inverse on a device, row by row. The kernels say how a row is computed, and what is moved.
//!
//! How many rows a dense problem has is known when it is gathered. So all are tried with little room, of which many have
//! place on a multiprocessor, and what is left over with more: that is found out once, and kept.

use super::device::{Array, Device, Real};
use super::error::{Error, Result};
use super::module::Source;
use super::ordered::{Ordered, RawRows};
use super::product::Pattern;
use super::vector::index;
use cudarc::driver::sys::CUfunction_attribute_enum;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};

/// The kernels.
pub(super) const SOURCE: Source = Source { file: "spai.cu", text: include_str!("spai.cu") };

/// Numbers of a dense problem that `spai_small` has room for, and `spai_medium`: 12 and 32 KiB of shared memory, as it is
/// for 16 and 7 blocks of a multiprocessor.
const ROOM: [usize; 2] = [1536, 4096];

/// Unknowns of a row at most: a lane has 4 walks, one of all of them for `e_k`.
const MOST_UNKNOWNS: usize = 127;

/// Blocks of a multiprocessor, so that rows of different lengths even out.
const BLOCKS: usize = 64;

/// Bytes of device memory for problems that shared memory has no room for.
const SCRATCH: usize = 256 << 20;

/// Computes the rows of an approximate inverse, on patterns that stay.
#[derive(Debug)]
pub struct Spai<T: Real> {
    matrix: Ordered<T>,
    inverse: Ordered<T>,
    residuals: Array<f64>,
    /// The least row that was refused, all bits set for none.
    refused: Array<u32>,
    launches: Vec<Launch>,
}

/// Rows that one kernel computes.
#[derive(Debug)]
struct Launch {
    kernel: CudaFunction,
    /// None for all.
    rows: Option<Array<u32>>,
    count: usize,
    room: usize,
    scratch: Option<Array<f64>>,
    config: LaunchConfig,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Raw {
    a: RawRows,
    a_columns: u64,
    a_values: u64,
    m: RawRows,
    m_columns: u64,
    m_values: u64,
    residuals: u64,
    refused: u64,
}
// SAFETY: as `Systems` of spai.cu
unsafe impl DeviceRepr for Raw {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawLaunch {
    rows: u64,
    count: u32,
    room: u32,
    scratch: u64,
    left: u64,
    left_count: u64,
}
// SAFETY: as `Rows` of spai.cu
unsafe impl DeviceRepr for RawLaunch {}

/// Rows that a launch had no room for.
struct Left {
    rows: Array<u32>,
    count: Array<u32>,
}

impl<T: Real> Spai<T> {
    /// Computes the rows of `inverse` from those of `matrix`, square matrices of these patterns.
    pub fn new(
        (matrix, a): (Ordered<T>, Pattern<'_>),
        (inverse, m): (Ordered<T>, Pattern<'_>),
    ) -> Result<Self> {
        let n = a.rows();
        index("the number of rows", n)?;
        assert!(a.cols() == n && m.rows() == n && m.cols() == n, "square matrices of one size");
        matrix.check(a.shape(), a);
        inverse.check(m.shape(), m);
        let device = matrix.device().clone();
        let longest = (0..n).map(|row| m.row(row).len()).max().unwrap_or(0);
        if longest > MOST_UNKNOWNS {
            return Err(Error::TooLarge {
                what: "the number of entries of a row or column of SPAI",
                got: longest,
                limit: MOST_UNKNOWNS,
            });
        }
        let (residuals, refused) = (device.zeros(n)?, device.zeros(1)?);
        let mut spai = Spai { matrix, inverse, residuals, refused, launches: vec![] };
        spai.refused.write(&[u32::MAX])?;
        spai.find_launches(&device, a, m)?;
        Ok(spai)
    }

    /// Tries launches with more and more room until no row is left.
    fn find_launches(&mut self, device: &Device, a: Pattern<'_>, m: Pattern<'_>) -> Result<()> {
        // room for two blocks of a multiprocessor
        let half = device.shared_memory()? / 2 / size_of::<f64>();
        let mut left = Left { rows: device.zeros(a.rows())?, count: device.zeros(1)? };
        let mut rows = None;
        for (name, room) in [("spai_small", ROOM[0]), ("spai_medium", ROOM[1]), ("spai_medium", half)] {
            let launch = Launch::with_shared_memory::<T>(device, (name, room), (rows, a.rows()))?;
            left.count.clear()?;
            self.queue(&launch, Some(&left))?;
            self.launches.push(launch);
            let Some(others) = left.read()? else { return Ok(()) };
            rows = Some(others);
        }
        let Some(rows) = rows else { return Ok(()) };
        let launch = Launch::with_scratch::<T>(device, &rows, a, m)?;
        self.queue(&launch, None)?;
        self.launches.push(launch);
        Ok(())
    }

    /// Queues the computation of all rows from the values that the matrix has now.
    pub fn solve(&mut self) -> Result<()> {
        self.refused.write(&[u32::MAX])?;
        self.launches.iter().try_for_each(|launch| self.queue(launch, None))
    }

    fn queue(&self, launch: &Launch, left: Option<&Left>) -> Result<()> {
        if launch.count == 0 {
            return Ok(());
        }
        let (systems, rows) = (self.raw(), launch.raw(left));
        let mut queued = self.matrix.device().launch(&launch.kernel);
        queued.arg(&systems).arg(&rows);
        // SAFETY: arguments as in spai.cu; columns of both patterns lie below the number of rows, of which there are no
        // others in the launch; what has no room is left
        unsafe { queued.launch(launch.config) }
    }

    /// The first row whose columns depend on each other, if any, when it is computed.
    pub fn refused(&self) -> Result<Option<usize>> {
        let mut row = [0];
        self.refused.read(&mut row)?;
        Ok((row[0] != u32::MAX).then_some(row[0] as usize))
    }

    /// The residual of each row.
    pub fn residuals(&self) -> Result<Vec<f64>> {
        let mut residuals = vec![0.0; self.residuals.len()];
        self.residuals.read(&mut residuals)?;
        Ok(residuals)
    }

    /// The matrix, to give it new values.
    pub fn matrix_mut(&mut self) -> &mut Ordered<T> {
        &mut self.matrix
    }

    /// The inverse, row by row.
    pub fn inverse(&self) -> &Ordered<T> {
        &self.inverse
    }

    fn raw(&self) -> Raw {
        Raw {
            a: self.matrix.rows.raw(),
            a_columns: self.matrix.columns.address(0),
            a_values: self.matrix.values.address(0),
            m: self.inverse.rows.raw(),
            m_columns: self.inverse.columns.address(0),
            m_values: self.inverse.values.address(0),
            residuals: self.residuals.address(0),
            refused: self.refused.address(0),
        }
    }
}

impl Left {
    /// The rows, ascending; none if there are none.
    fn read(&self) -> Result<Option<Vec<u32>>> {
        let mut count = [0];
        self.count.read(&mut count)?;
        if count == [0] {
            return Ok(None);
        }
        let mut rows = vec![0; self.rows.len()];
        self.rows.read(&mut rows)?;
        rows.truncate(count[0] as usize);
        rows.sort_unstable();
        Ok(Some(rows))
    }
}

impl Launch {
    /// The rows of a list, or all of so many, with room in shared memory.
    fn with_shared_memory<T: Real>(
        device: &Device,
        (name, room): (&str, usize),
        (rows, all): (Option<Vec<u32>>, usize),
    ) -> Result<Launch> {
        let kernel = device.function::<T>(&SOURCE, name)?;
        let count = rows.as_ref().map_or(all, Vec::len);
        let shared = index("the shared memory of a block", room * size_of::<f64>())?;
        let largest = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.set_attribute(largest, shared)?;
        let config = blocks(count.min(BLOCKS * device.multiprocessors()), shared as u32);
        let rows = rows.map(|rows| device.upload(&rows)).transpose()?;
        Ok(Launch { kernel, rows, count, room, scratch: None, config })
    }

    /// The rows of a list, with as much room in device memory as the largest may take.
    fn with_scratch<T: Real>(
        device: &Device,
        rows: &[u32],
        a: Pattern<'_>,
        m: Pattern<'_>,
    ) -> Result<Launch> {
        let room = rows.iter().map(|&row| most_room(row as usize, a, m)).max().unwrap_or(0);
        if u32::try_from(room).is_err() {
            let (what, limit) = ("the size of a dense problem of SPAI", u32::MAX as usize);
            return Err(Error::TooLarge { what, got: room, limit });
        }
        let at_once = (SCRATCH / size_of::<f64>() / room.max(1)).clamp(1, BLOCKS * device.multiprocessors());
        let count = rows.len().min(at_once);
        Ok(Launch {
            kernel: device.function::<T>(&SOURCE, "spai_large")?,
            rows: Some(device.upload(rows)?),
            count: rows.len(),
            room,
            scratch: Some(device.zeros(count * room)?),
            config: blocks(count, 0),
        })
    }

    fn raw(&self, left: Option<&Left>) -> RawLaunch {
        RawLaunch {
            rows: self.rows.as_ref().map_or(0, |rows| rows.address(0)),
            count: self.count as u32,
            room: self.room as u32,
            scratch: self.scratch.as_ref().map_or(0, |scratch| scratch.address(0)),
            left: left.map_or(0, |left| left.rows.address(0)),
            left_count: left.map_or(0, |left| left.count.address(0)),
        }
    }
}

/// Numbers that the dense problem of a row may take: as if no two of its sparse rows met.
fn most_room(row: usize, a: Pattern<'_>, m: Pattern<'_>) -> usize {
    let unknowns = m.row(row);
    // as `stride` of spai.cu
    let width = unknowns.len() + 1 + 4;
    let met: usize = m.columns()[unknowns].iter().map(|&j| a.row(j as usize).len()).sum();
    (met + 1).min(a.rows()) * width
}

/// Blocks of a warp.
fn blocks(count: usize, shared: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count.max(1) as u32, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: shared }
}
