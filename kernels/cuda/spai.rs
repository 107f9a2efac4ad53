//! A sparse approximate inverse on a device, row by row. The kernels say how a row is computed, and what is moved.
//!
//! How many rows a dense problem has is counted on the device, once. Then each problem goes to the kernel that has room for
//! it and keeps most others like it at once on a multiprocessor.

use super::device::{Array, Device, Real};
use super::error::{Error, Result};
use super::module::Source;
use super::ordered::{Ordered, RawRows};
use super::product::Pattern;
use super::vector::index;
use cudarc::driver::{CudaFunction, DeviceRepr, LaunchConfig};
use rayon::prelude::*;
use std::ops::Range;

/// The kernels.
pub(super) const SOURCE: Source = Source {
    file: "spai.cu",
    text: concat!(include_str!("spai_problems.cu"), "#line 1 \"spai.cu\"\n", include_str!("spai.cu")),
};

/// Unknowns of a row at most: `MOST` of spai_problems.cu.
const MOST_UNKNOWNS: usize = 127;

/// Rows and unknowns that kernels of a warp have room for, in the order in which they are tried.
const OF_A_WARP: [(usize, usize); 4] = [(64, 15), (96, 15), (96, 19), (96, 23)];

/// Rows that kernels of a block have room for, with all unknowns that shared memory has room for. The last is of any number,
/// at less speed.
const OF_A_BLOCK: [usize; 5] = [128, 192, 256, 320, COUNTED];

/// Rows that are counted at most: `SLOTS` of spai_problems.cu.
const COUNTED: usize = 1024;

/// Rows of the inverse that share a block's problem at most: `MEMBERS` of spai_problems.cu.
const MEMBERS: usize = 4;

/// Threads of such a block: `WARPS` of spai_problems.cu.
const BLOCK: usize = 128;

/// Blocks that a multiprocessor should have at once, by the shared memory that they take: the more the better.
const AT_ONCE: [usize; 5] = [8, 4, 3, 2, 1];

/// Bytes of shared memory of a block that it does not choose: of the kernel, and of the driver.
const FIXED: usize = 3 << 10;

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

/// Problems that one kernel solves.
#[derive(Debug)]
struct Launch {
    kernel: CudaFunction,
    rows: Array<u32>,
    problems: usize,
    slots: usize,
    /// Of problems of a warp.
    places: Option<Places>,
    /// Of those in device memory.
    scratch: Option<Array<f64>>,
    room: usize,
    config: LaunchConfig,
}

/// The row that each entry has in its dense problem, one problem after the other, and where they start.
#[derive(Debug)]
struct Places {
    starts: Array<u64>,
    places: Array<u8>,
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
// SAFETY: as `Systems` of spai_problems.cu
unsafe impl DeviceRepr for Raw {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawLaunch {
    rows: u64,
    count: u32,
    slots: u32,
    starts: u64,
    places: u64,
    scratch: u64,
    room: u64,
}
// SAFETY: as `Rows` of spai_problems.cu
unsafe impl DeviceRepr for RawLaunch {}

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
        let classes = sorted(device.shared_memory()?, &spai.count(&device)?, a, m);
        spai.launches =
            classes.iter().map(|class| Launch::new::<T>(&device, class)).collect::<Result<_>>()?;
        spai.find_places(&device)?;
        spai.solve()?;
        Ok(spai)
    }

    /// What the device finds of the problem of each row of the inverse.
    fn count(&self, device: &Device) -> Result<Vec<Found>> {
        let kernel = device.function::<T>(&SOURCE, "spai_count")?;
        let n = self.inverse.rows.count();
        let counts = device.zeros::<u32>(3 * n)?;
        let (systems, count, to) = (self.raw(), n as u32, counts.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&count).arg(&to);
        let blocks = n.clamp(1, BLOCKS * device.multiprocessors());
        // SAFETY: arguments as in spai.cu; columns of both patterns lie below the number of rows, and rows of the inverse
        // have no more unknowns than there is room for
        unsafe { queued.launch(config(blocks, 32, 0)) }?;
        let mut found = vec![[0; 3]; n];
        counts.read(found.as_flattened_mut())?;
        Ok(found)
    }

    /// Queues that problems of a warp find their places.
    fn find_places(&self, device: &Device) -> Result<()> {
        let kernel = device.function::<T>(&SOURCE, "spai_places")?;
        for launch in self.launches.iter().filter(|launch| launch.places.is_some()) {
            let (systems, rows) = (self.raw(), launch.raw());
            let mut queued = device.launch(&kernel);
            queued.arg(&systems).arg(&rows);
            // SAFETY: arguments as in spai.cu; columns of both patterns lie below the number of rows, of which there are no
            // others in the launch, and there is a place for each entry of a problem and one behind them
            unsafe { queued.launch(launch.config) }?;
        }
        Ok(())
    }

    /// Queues the computation of all rows from the values that the matrix has now.
    pub fn solve(&mut self) -> Result<()> {
        self.refused.write(&[u32::MAX])?;
        self.launches.iter().try_for_each(|launch| self.queue(launch))
    }

    fn queue(&self, launch: &Launch) -> Result<()> {
        let (systems, rows) = (self.raw(), launch.raw());
        let mut queued = self.matrix.device().launch(&launch.kernel);
        queued.arg(&systems).arg(&rows);
        // SAFETY: arguments as in spai.cu; columns of both patterns lie below the number of rows, of which there are no
        // others in the launch, and problems are no larger than the kernel has room for
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

/// The rows of a problem and the entries of its columns, all bits set where they are too many to count, and the first row of
/// the inverse that has the same problem but for its right-hand side: `Found` of spai_problems.cu.
type Found = [u32; 3];

/// A dense problem.
#[derive(Clone, Copy, Debug)]
struct Problem {
    unknowns: usize,
    /// At most.
    rows: usize,
    /// Of all its columns.
    entries: usize,
}

impl Problem {
    fn new(row: usize, [rows, entries, _]: Found, a: Pattern<'_>, m: Pattern<'_>) -> Problem {
        let unknowns = m.row(row);
        let (mut rows, mut entries) = (rows as usize, entries as usize);
        if rows == u32::MAX as usize {
            // as if no two of its sparse rows met
            entries = m.columns()[unknowns.clone()].iter().map(|&j| a.row(j as usize).len()).sum();
            rows = (entries + 1).min(a.rows());
        }
        Problem { unknowns: unknowns.len(), rows, entries }
    }

    /// Numbers that a block has of it, behind the table: columns so far apart, one of them spare.
    fn numbers(self, apart: usize) -> usize {
        (self.unknowns + MEMBERS + 1) * apart
    }

    /// Columns are so far apart at least: a row of S stands in one.
    fn height(self) -> usize {
        self.rows.max(self.unknowns + MEMBERS)
    }
}

/// Slots of a table for so many rows, half of them empty; each warp of a block looks at as many at once as it has lanes.
fn slots(rows: usize) -> usize {
    (2 * rows).next_power_of_two().max(BLOCK)
}

/// Bytes of a table.
fn table(slots: usize) -> usize {
    2 * slots * size_of::<u32>()
}

/// Problems for one kernel.
#[derive(Debug)]
struct Class {
    kernel: Kernel,
    /// Of each problem; of one of a block all of [`MEMBERS`], all bits set for those that it lacks.
    rows: Vec<u32>,
    /// Where the entries of each begin among those of all, each with one more, and where they end; of a warp's problems.
    starts: Vec<u64>,
    /// The most of a block's problem: rows, numbers, entries.
    most: [usize; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// For so many rows and unknowns.
    OfAWarp(usize, usize),
    /// For so many rows.
    OfABlock(usize),
    /// Of any size, in device memory.
    Large,
}

impl Kernel {
    /// All, those of a block once for each of [`AT_ONCE`].
    fn all() -> impl Iterator<Item = Kernel> {
        let of_a_warp = OF_A_WARP.map(|(rows, unknowns)| Kernel::OfAWarp(rows, unknowns));
        let of_a_block = OF_A_BLOCK.iter().flat_map(|&rows| [Kernel::OfABlock(rows); AT_ONCE.len()]);
        of_a_warp.into_iter().chain(of_a_block).chain([Kernel::Large])
    }

    /// How far apart it has the columns of a problem: as `apart` of spai.cu.
    fn apart(self, problem: Problem) -> usize {
        match self {
            Kernel::OfABlock(rows) if rows < COUNTED => rows,
            _ => problem.height().next_multiple_of(2),
        }
    }

    /// Which of all solves a problem, the multiprocessor having so much shared memory.
    fn of(problem: Problem, shared: usize) -> usize {
        let Problem { unknowns, rows, .. } = problem;
        if let Some(place) = OF_A_WARP.iter().position(|&(most, widest)| rows <= most && unknowns <= widest) {
            return place;
        }
        let kernel = OF_A_BLOCK.iter().position(|&most| problem.height() <= most);
        let place = kernel.and_then(|kernel| {
            let most = OF_A_BLOCK[kernel];
            let numbers = problem.numbers(Kernel::OfABlock(most).apart(problem));
            let bytes = table(slots(most)) + numbers * size_of::<f64>() + FIXED;
            let at_once = AT_ONCE.iter().position(|blocks| bytes <= shared / blocks)?;
            Some(kernel * AT_ONCE.len() + at_once)
        });
        OF_A_WARP.len() + place.unwrap_or(OF_A_BLOCK.len() * AT_ONCE.len())
    }
}

/// Problems by what solves them, and by how many a multiprocessor has room for at once.
fn sorted(shared: usize, found: &[Found], a: Pattern<'_>, m: Pattern<'_>) -> Vec<Class> {
    let problem = |row: usize| Problem::new(row, found[row], a, m);
    let kernel = |row: usize| Kernel::of(problem(row), shared) as u8;
    let kernels: Vec<u8> = (0..found.len()).into_par_iter().map(kernel).collect();
    let rows_of = |wanted: Range<usize>| -> Vec<u32> {
        let rows = (0..kernels.len()).into_par_iter();
        rows.filter(|&row| wanted.contains(&kernels[row].into())).map(|row| row as u32).collect()
    };
    let mut classes: Vec<Class> = Kernel::all().map(Class::new).collect();
    let (of_a_warp, others) = classes.split_at_mut(OF_A_WARP.len());
    for (place, class) in of_a_warp.iter_mut().enumerate() {
        class.rows = rows_of(place..place + 1);
        class.starts = Vec::with_capacity(class.rows.len() + 1);
        let mut end = 0;
        class.starts.push(end);
        for &row in &class.rows {
            end += problem(row as usize).entries as u64 + 1;
            class.starts.push(end);
        }
    }
    // where the class of a leader has room for another row of its last problem
    let mut open = vec![0usize; found.len()];
    for row in rows_of(OF_A_WARP.len()..usize::MAX) {
        let class = &mut others[usize::from(kernels[row as usize]) - OF_A_WARP.len()];
        let [_, _, leader] = found[row as usize];
        // the class of a leader is that of all who have its problem
        let room = &mut open[leader as usize];
        if !room.is_multiple_of(MEMBERS) {
            class.rows[*room] = row;
            *room += 1;
        } else {
            *room = class.rows.len() + 1;
            class.push(row, problem(row as usize));
        }
    }
    classes.retain(|class| !class.rows.is_empty());
    classes
}

impl Class {
    fn new(kernel: Kernel) -> Class {
        Class { kernel, rows: vec![], starts: vec![], most: [0; 3] }
    }

    /// Adds a problem for a block.
    fn push(&mut self, row: u32, problem: Problem) {
        self.rows.push(row);
        self.rows.extend([u32::MAX; MEMBERS - 1]);
        let numbers = problem.numbers(self.kernel.apart(problem));
        for (most, of_problem) in self.most.iter_mut().zip([problem.rows, numbers, problem.entries]) {
            *most = (*most).max(of_problem);
        }
    }
}

impl Launch {
    fn new<T: Real>(device: &Device, class: &Class) -> Result<Launch> {
        let Class { kernel, ref rows, ref starts, most: [most_rows, numbers, entries] } = *class;
        let (name, threads, slots) = match kernel {
            Kernel::OfAWarp(rows, unknowns) => (format!("spai_{rows}_{unknowns}"), 32, 0),
            Kernel::OfABlock(rows) if rows < COUNTED => (format!("spai_{rows}"), BLOCK, slots(rows)),
            Kernel::OfABlock(rows) => ("spai_any".into(), BLOCK, slots(rows)),
            Kernel::Large => ("spai_any".into(), BLOCK, slots(most_rows)),
        };
        let room = table(slots) / size_of::<f64>() + numbers;
        let (got, limit) = (room.max(entries), u32::MAX as usize);
        if got > limit {
            return Err(Error::TooLarge { what: "the size of a dense problem of SPAI", got, limit });
        }
        let problems = if matches!(kernel, Kernel::OfAWarp(..)) { rows.len() } else { rows.len() / MEMBERS };
        let mut blocks = problems.min(BLOCKS * device.multiprocessors());
        let shared = if matches!(kernel, Kernel::OfABlock(_)) { room * size_of::<f64>() } else { 0 };
        let mut scratch = None;
        if kernel == Kernel::Large {
            blocks = blocks.min((SCRATCH / size_of::<f64>() / room).max(1));
            scratch = Some(device.zeros(blocks * room)?);
        }
        let mut places = None;
        if matches!(kernel, Kernel::OfAWarp(..))
            && let Some((&entries, starts)) = starts.split_last()
        {
            places = Some(Places { starts: device.upload(starts)?, places: device.zeros(entries as usize)? });
        }
        let function = device.function::<T>(&SOURCE, &name)?;
        if shared > 0 {
            device.lift_shared_limit(&function)?;
        }
        let (rows, config) = (device.upload(rows)?, config(blocks, threads, shared));
        Ok(Launch { kernel: function, rows, problems, slots, places, scratch, room, config })
    }

    fn raw(&self) -> RawLaunch {
        let (starts, places) =
            self.places.as_ref().map_or((0, 0), |p| (p.starts.address(0), p.places.address(0)));
        RawLaunch {
            rows: self.rows.address(0),
            count: self.problems as u32,
            slots: self.slots as u32,
            starts,
            places,
            scratch: self.scratch.as_ref().map_or(0, |scratch| scratch.address(0)),
            room: self.room as u64,
        }
    }
}

fn config(blocks: usize, threads: usize, shared: usize) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: shared as u32,
    }
}
