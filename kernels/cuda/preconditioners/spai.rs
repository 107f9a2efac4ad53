//! A sparse approximate inverse on a device, row by row. The kernels say how a row is computed, and what is moved.
//!
//! How many rows a dense problem has is counted on the device, once, and what row of its problem each entry becomes is kept for
//! problems of a warp. Then each problem goes to the kernel that has room for it and keeps most others like it at once on a
//! multiprocessor.

use super::spai_kernels::{
    COUNTED, FOUND, KERNELS, MEMBERS, MOST_UNKNOWNS, OF_BLOCKS, OF_WARPS, Raw, RawLaunch,
};
use crate::cuda::device::ahead::For;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch;
use crate::cuda::device::launch::{WARP, index};
use crate::cuda::device::module::Source;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::classes::{self, List};
use crate::cuda::matrix::ordered::Ordered;
use crate::cuda::matrix::pattern::Pattern;
use cudarc::driver::{CudaFunction, LaunchConfig};
use std::cell::LazyCell;

/// Rows that kernels of a block have room for, with all unknowns that shared memory has room for. The last is of any number,
/// at less speed.
const OF_A_BLOCK: [usize; 5] = [128, 192, 256, 320, COUNTED];

/// Threads of such a block.
const BLOCK: usize = WARP * MEMBERS;

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
    /// What row of its problem each entry becomes, problem by problem, and where these start, of problems of a warp.
    places: Array<u8>,
    starts: Array<u64>,
    launches: Vec<Launch>,
}

/// Problems that one kernel solves.
#[derive(Debug)]
struct Launch {
    kernel: CudaFunction,
    rows: List,
    problems: usize,
    slots: usize,
    /// Of problems in device memory.
    scratch: Option<Array<f64>>,
    /// Of a problem with its table.
    numbers: usize,
    config: LaunchConfig,
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
        let (residuals, refused) = (device.zeros(n)?, device.zeros(1)?);
        let (places, starts) = (device.zeros(0)?, device.uninitialised(n)?);
        let mut spai = Spai { matrix, inverse, residuals, refused, places, starts, launches: vec![] };
        spai.reserve_places()?;
        let [of_a_warp @ .., others] = spai.find_places()?;
        let (rows, found) = (others.read()?, spai.count(&others)?);
        let classes =
            if rows.is_empty() { vec![] } else { sorted(device.shared_memory()?, &rows, &found, a, m) };
        let of_a_warp: Vec<_> =
            OF_WARPS.into_iter().zip(of_a_warp).filter(|(_, rows)| rows.len() > 0).collect();
        let sources = of_a_warp.iter().map(|&(source, _)| source);
        let sources = sources.chain(classes.iter().map(|class| class.kernel.source()));
        device.begin_with::<T>(sources.map(|source| (source, For::Solve)));
        for (source, rows) in of_a_warp {
            spai.launches.push(Launch::of_a_warp::<T>(&device, source, rows)?);
        }
        for class in classes {
            spai.launches.push(Launch::of_a_block::<T>(&device, &class)?);
        }
        spai.solve()?;
        Ok(spai)
    }

    /// Reserves memory for the places of problems that may be a warp's; refuses more unknowns than there is room for.
    fn reserve_places(&mut self) -> Result<()> {
        let (device, total) = (self.matrix.device(), self.matrix.device().zeros::<u64>(2)?);
        let kernel = device.function::<T>(&FOUND, "spai_reserve")?;
        let (systems, to) = (self.raw(), total.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&to);
        // SAFETY: arguments as in spai_problems.cu; columns of both patterns lie below the number of rows, each of which has
        // a start
        unsafe { queued.launch(launch::config(self.starts.len())) }?;
        let mut most = [0; 2];
        total.read(&mut most)?;
        let [bytes, longest] = most.map(|number| number as usize);
        if longest > MOST_UNKNOWNS {
            let what = "the number of entries of a row or column of SPAI";
            return Err(Error::TooLarge { what, got: longest, limit: MOST_UNKNOWNS });
        }
        self.places = device.uninitialised(bytes)?;
        Ok(())
    }

    /// The rows of each kernel of a warp, whose problems find their places, and all others.
    fn find_places(&self) -> Result<[List; KERNELS + 1]> {
        let (device, n) = (self.matrix.device(), self.starts.len());
        let (kernel, kernels) = (device.function::<T>(&FOUND, "spai_places")?, device.uninitialised(n)?);
        let (systems, to) = (self.raw(), kernels.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&to);
        // SAFETY: arguments as in spai_problems.cu; columns of both patterns lie below the number of rows, each of which has
        // a kernel, and there is room for what has a start
        unsafe { queued.launch(config(blocks(device, n), 32, 0)) }?;
        classes::sorted(&kernels)
    }

    /// What the device finds of the problems of rows of the inverse.
    fn count(&self, rows: &List) -> Result<Vec<Found>> {
        let mut found = vec![[0; 3]; rows.len()];
        if found.is_empty() {
            return Ok(found);
        }
        let device = self.matrix.device();
        let (kernel, counts) = (device.function::<T>(&FOUND, "spai_count")?, device.zeros(3 * rows.len())?);
        let (systems, list, count, to) = (self.raw(), rows.address(), rows.len() as u32, counts.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&list).arg(&count).arg(&to);
        // SAFETY: arguments as in spai_problems.cu; columns of both patterns lie below the number of rows, and rows of the
        // inverse have no more unknowns than there is room for
        unsafe { queued.launch(config(blocks(device, rows.len()), 32, 0)) }?;
        counts.read(found.as_flattened_mut())?;
        Ok(found)
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
            starts: self.starts.address(0),
            places: self.places.address(0),
        }
    }
}

/// The rows of a block's problem and the entries of its columns, all bits set where they are too many to count, and the first
/// row of the inverse that has the same problem but for its right-hand side: `Found` of spai_problems.cu.
pub(super) type Found = [u32; 3];

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

/// Places of a table of hashes for this number of rows, half of them empty: a power of two, and one for each thread of a block.
fn slots(rows: usize) -> usize {
    (2 * rows).next_power_of_two().max(BLOCK)
}

/// Bytes of a table.
fn table(slots: usize) -> usize {
    2 * slots * size_of::<u32>()
}

/// Problems for one kernel of a block.
#[derive(Debug)]
struct Class {
    kernel: BlockKernel,
    /// Of each problem all of [`MEMBERS`], all bits set for those that it lacks.
    rows: Vec<u32>,
    /// The most of a problem: rows, numbers, entries.
    most: [usize; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKernel {
    /// For problems of at most this number of rows.
    Small(usize),
    /// Of any size, in device memory.
    Large,
}

impl BlockKernel {
    /// All, the small ones once for each of [`AT_ONCE`].
    fn all() -> impl Iterator<Item = BlockKernel> {
        let small = OF_A_BLOCK.iter().flat_map(|&rows| [BlockKernel::Small(rows); AT_ONCE.len()]);
        small.chain([BlockKernel::Large])
    }

    fn source(self) -> &'static Source {
        let place = match self {
            BlockKernel::Small(rows) => OF_A_BLOCK.iter().position(|&most| most == rows),
            BlockKernel::Large => None,
        };
        OF_BLOCKS[place.unwrap_or(OF_BLOCKS.len() - 1)]
    }

    /// How far apart it has the columns of a problem: as `apart` of spai.cu.
    fn apart(self, problem: Problem) -> usize {
        match self {
            BlockKernel::Small(rows) if rows < COUNTED => rows,
            _ => problem.height().next_multiple_of(2),
        }
    }

    /// Which of all solves a problem, the multiprocessor having so much shared memory.
    fn of(problem: Problem, shared: usize) -> usize {
        let place = OF_A_BLOCK.iter().position(|&most| problem.height() <= most).and_then(|kernel| {
            let most = OF_A_BLOCK[kernel];
            let numbers = problem.numbers(BlockKernel::Small(most).apart(problem));
            let bytes = table(slots(most)) + numbers * size_of::<f64>() + FIXED;
            let at_once = AT_ONCE.iter().position(|blocks| bytes <= shared / blocks)?;
            Some(kernel * AT_ONCE.len() + at_once)
        });
        place.unwrap_or(OF_A_BLOCK.len() * AT_ONCE.len())
    }
}

/// Problems of rows by what solves them, and by how many a multiprocessor has room for at once.
fn sorted(shared: usize, rows: &[u32], found: &[Found], a: Pattern<'_>, m: Pattern<'_>) -> Vec<Class> {
    let mut classes: Vec<Class> = BlockKernel::all().map(Class::new).collect();
    // where the class of a leader has room for another row of its last problem
    let mut open = vec![0usize; rows.len()];
    // leaders have as many unknowns as those that follow them, and are among these rows
    let places = LazyCell::new(|| {
        let mut places = vec![0u32; a.rows()];
        (0..).zip(rows).for_each(|(at, &row)| places[row as usize] = at);
        places
    });
    for (at, (&row, &found)) in rows.iter().zip(found).enumerate() {
        let problem = Problem::new(row as usize, found, a, m);
        let class = &mut classes[BlockKernel::of(problem, shared)];
        let [_, _, leader] = found;
        // the class of a leader is that of all who have its problem
        let next = &mut open[if leader == row { at } else { places[leader as usize] as usize }];
        if !next.is_multiple_of(MEMBERS) {
            class.rows[*next] = row;
            *next += 1;
        } else {
            *next = class.rows.len() + 1;
            class.push(row, problem);
        }
    }
    classes.retain(|class| !class.rows.is_empty());
    classes
}

impl Class {
    fn new(kernel: BlockKernel) -> Class {
        Class { kernel, rows: vec![], most: [0; 3] }
    }

    /// Adds a problem.
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
    /// Rows whose problems a warp solves.
    fn of_a_warp<T: Real>(device: &Device, source: &'static Source, rows: List) -> Result<Launch> {
        let kernel = device.function::<T>(source, "spai_solve")?;
        let (problems, config) = (rows.len(), config(blocks(device, rows.len()), 32, 0));
        Ok(Launch { kernel, rows, problems, slots: 0, scratch: None, numbers: 0, config })
    }

    fn of_a_block<T: Real>(device: &Device, class: &Class) -> Result<Launch> {
        let Class { kernel, ref rows, most: [most_rows, numbers, entries] } = *class;
        let slots = match kernel {
            BlockKernel::Small(rows) => slots(rows),
            BlockKernel::Large => slots(most_rows),
        };
        let numbers = table(slots) / size_of::<f64>() + numbers;
        let (got, limit) = (numbers.max(entries), u32::MAX as usize);
        if got > limit {
            return Err(Error::TooLarge { what: "the size of a dense problem of SPAI", got, limit });
        }
        let problems = rows.len() / MEMBERS;
        let mut blocks = blocks(device, problems);
        let (mut shared, mut scratch) = (numbers * size_of::<f64>(), None);
        if kernel == BlockKernel::Large {
            blocks = blocks.min((SCRATCH / size_of::<f64>() / numbers).max(1));
            (shared, scratch) = (0, Some(device.zeros(blocks * numbers)?));
        }
        let kernel = device.function::<T>(kernel.source(), "spai_solve")?;
        if shared > 0 {
            device.lift_shared_limit(&kernel)?;
        }
        let (rows, config) = (List::all(device.upload(rows)?), config(blocks, BLOCK, shared));
        Ok(Launch { kernel, rows, problems, slots, scratch, numbers, config })
    }

    fn raw(&self) -> RawLaunch {
        RawLaunch {
            rows: self.rows.address(),
            count: self.problems as u32,
            slots: self.slots as u32,
            scratch: self.scratch.as_ref().map_or(0, |scratch| scratch.address(0)),
            numbers: self.numbers as u64,
        }
    }
}

/// Blocks of a launch that solves this number of problems.
fn blocks(device: &Device, problems: usize) -> usize {
    problems.clamp(1, BLOCKS * device.multiprocessors())
}

fn config(blocks: usize, threads: usize, shared: usize) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: shared as u32,
    }
}
