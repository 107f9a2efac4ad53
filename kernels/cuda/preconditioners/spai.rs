//! Sparse approximate inverse on a device, row by row. spai.cu describes the algorithm and the memory
//! traffic.
//!
//! The rows of each dense problem are counted on the device, once. For problems solved by a warp, the row of
//! each entry within the problem is stored. A problem is assigned to the smallest kernel that it fits, with
//! as many resident blocks per multiprocessor as shared memory allows.

use super::spai_kernels::{
    COUNTED, FOUND, Found, KERNELS, MEMBERS, MOST_UNKNOWNS, OF_BLOCKS, OF_WARPS, RawLaunch, RawSpai,
};
use crate::cuda::device::ahead::For;
use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch;
use crate::cuda::device::launch::{WARP, index};
use crate::cuda::device::module::Source;
use crate::cuda::device::{Array, Device, Real};
use crate::cuda::matrix::classes::{self, List};
use crate::cuda::matrix::device_csr::DeviceCsr;
use crate::cuda::matrix::pattern::Pattern;
use cudarc::driver::{CudaFunction, LaunchConfig};
use std::cell::LazyCell;

/// Maximum number of rows for each kernel that uses a block per problem; the number of unknowns is limited by
/// shared memory. The last kernel is compiled for any number of rows, which makes it slower.
const OF_A_BLOCK: [usize; 5] = [128, 192, 256, 320, COUNTED];

/// Threads per block of the kernels that use a block per problem.
const BLOCK: usize = WARP * MEMBERS;

/// Numbers of resident blocks per multiprocessor, in the order of preference. A problem is solved with the
/// first number for which the shared memory suffices.
const CONCURRENT: [usize; 5] = [8, 4, 3, 2, 1];

/// Upper bound in bytes of the static shared memory of a kernel and the shared memory that the driver
/// reserves per block.
const FIXED: usize = 3 << 10;

/// Maximum number of blocks per multiprocessor of a launch, enough to balance rows of different lengths. Guess.
const BLOCKS: usize = 64;

/// Maximum bytes of device memory for problems that do not fit in shared memory. Guess, chosen as a
/// small part of the memory of any supported GPU.
const SCRATCH: usize = 256 << 20;

/// Computes the rows of an approximate inverse, on fixed patterns.
#[derive(Debug)]
pub struct Spai<T: Real> {
    matrix: DeviceCsr<T>,
    inverse: DeviceCsr<T>,
    residuals: Array<f64>,
    /// The first row that was refused; all bits set if there is none.
    refused: Array<u32>,
    /// For problems solved by a warp, problem by problem: the row of each entry within its problem.
    places: Array<u8>,
    starts: Array<u64>,
    launches: Vec<Launch>,
}

/// Problems solved by one kernel.
#[derive(Debug)]
struct Launch {
    kernel: CudaFunction,
    rows: List,
    problems: usize,
    slots: usize,
    /// Workspace for problems in device memory.
    scratch: Option<Array<f64>>,
    /// Elements of workspace per problem, including its hash table.
    numbers: usize,
    config: LaunchConfig,
}

impl<T: Real> Spai<T> {
    /// Prepares the computation of the rows of `inverse` from the values of `matrix`, square matrices with
    /// patterns `m` and `a`.
    pub fn new(
        (matrix, a): (DeviceCsr<T>, Pattern<'_>),
        (inverse, m): (DeviceCsr<T>, Pattern<'_>),
    ) -> Result<Self> {
        let n = a.rows();
        index("the number of rows", n)?;
        assert!(a.cols() == n && m.rows() == n && m.cols() == n, "square matrices of one size");
        matrix.check(a.shape(), a);
        inverse.check(m.shape(), m);
        let device = matrix.device().clone();
        let (residuals, refused) = (device.zeros(n)?, device.zeros(1)?);
        let (places, starts) = (device.zeros(0)?, device.uninitialized(n)?);
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

    /// Allocates `places` for problems that a warp may solve; fails if a row has too many unknowns.
    fn reserve_places(&mut self) -> Result<()> {
        let (device, total) = (self.matrix.device(), self.matrix.device().zeros::<u64>(2)?);
        let kernel = device.function::<T>(&FOUND, "spai_reserve")?;
        let (systems, to) = (self.raw(), total.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&to);
        // SAFETY: arguments as in spai_found.cu; columns of both patterns are below the number of rows, each
        // of which has an element of `starts`
        unsafe { queued.launch(launch::config(self.starts.len())) }?;
        let mut most = [0; 2];
        total.read(&mut most)?;
        let [bytes, longest] = most.map(|number| number as usize);
        if longest > MOST_UNKNOWNS {
            let what = "the number of entries of a row or column of SPAI";
            return Err(Error::TooLarge { what, got: longest, limit: MOST_UNKNOWNS });
        }
        self.places = device.uninitialized(bytes)?;
        Ok(())
    }

    /// Computes `places`; returns the rows for each kernel that uses a warp per problem, then all other rows.
    fn find_places(&self) -> Result<[List; KERNELS + 1]> {
        let (device, n) = (self.matrix.device(), self.starts.len());
        let (kernel, kernels) = (device.function::<T>(&FOUND, "spai_places")?, device.uninitialized(n)?);
        let (systems, to) = (self.raw(), kernels.address(0));
        let mut queued = device.launch(&kernel);
        queued.arg(&systems).arg(&to);
        // SAFETY: arguments as in spai_found.cu; columns of both patterns are below the number of rows, each
        // of which has an element of `kernels`, and problems with a start have space in `places`
        unsafe { queued.launch(config(blocks(device, n), 32, 0)) }?;
        classes::sorted(&kernels)
    }

    /// Sizes of the problems of rows of the inverse, and the first row with the same problem (see [`Found`]).
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
        // SAFETY: arguments as in spai_found.cu; columns of both patterns are below the number of rows, and
        // rows of the inverse have at most [`MOST_UNKNOWNS`] unknowns
        unsafe { queued.launch(config(blocks(device, rows.len()), 32, 0)) }?;
        counts.read(found.as_flattened_mut())?;
        Ok(found)
    }

    /// Queues the computation of all rows from the current values of the matrix.
    pub fn solve(&mut self) -> Result<()> {
        self.refused.write(&[u32::MAX])?;
        self.launches.iter().try_for_each(|launch| self.queue(launch))
    }

    fn queue(&self, launch: &Launch) -> Result<()> {
        let (systems, rows) = (self.raw(), launch.raw());
        let mut queued = self.matrix.device().launch(&launch.kernel);
        queued.arg(&systems).arg(&rows);
        // SAFETY: arguments as in spai.cu; columns of both patterns and rows in the launch are below the
        // number of rows, and problems fit the kernel
        unsafe { queued.launch(launch.config) }
    }

    /// The first row whose problem is rank-deficient, if any; waits for the computation.
    pub fn refused(&self) -> Result<Option<usize>> {
        let mut row = [0];
        self.refused.read(&mut row)?;
        Ok((row[0] != u32::MAX).then_some(row[0] as usize))
    }

    /// The residual of each row's problem.
    pub fn residuals(&self) -> Result<Vec<f64>> {
        let mut residuals = vec![0.0; self.residuals.len()];
        self.residuals.read(&mut residuals)?;
        Ok(residuals)
    }

    /// The matrix, to change its values.
    pub fn matrix_mut(&mut self) -> &mut DeviceCsr<T> {
        &mut self.matrix
    }

    /// The inverse in CSR.
    pub fn inverse(&self) -> &DeviceCsr<T> {
        &self.inverse
    }

    fn raw(&self) -> RawSpai {
        RawSpai {
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

/// Size of a dense least-squares problem.
#[derive(Clone, Copy, Debug)]
struct Problem {
    unknowns: usize,
    /// Upper bound of the number of rows.
    rows: usize,
    /// Number of entries of all columns.
    entries: usize,
}

impl Problem {
    fn new(row: usize, [rows, entries, _]: Found, a: Pattern<'_>, m: Pattern<'_>) -> Problem {
        let unknowns = m.row(row);
        let (mut rows, mut entries) = (rows as usize, entries as usize);
        if rows == u32::MAX as usize {
            // upper bounds, as if the sparse rows had disjoint columns
            entries = m.columns()[unknowns.clone()].iter().map(|&j| a.row(j as usize).len()).sum();
            rows = (entries + 1).min(a.rows());
        }
        Problem { unknowns: unknowns.len(), rows, entries }
    }

    /// Elements of workspace that a block needs in addition to its hash table, with columns `apart` elements
    /// apart, including one unused column.
    fn numbers(self, apart: usize) -> usize {
        (self.unknowns + MEMBERS + 1) * apart
    }

    /// Minimum distance of columns: a column must also hold a row of `S`, the triangular factor of spai.cu.
    fn height(self) -> usize {
        self.rows.max(self.unknowns + MEMBERS)
    }
}

/// Slots of a hash table for this number of rows: a power of two, at least half empty, and at least one per
/// thread of a block.
fn slots(rows: usize) -> usize {
    (2 * rows).next_power_of_two().max(BLOCK)
}

/// Bytes of a hash table: a key and a number for each slot.
fn table(slots: usize) -> usize {
    2 * slots * size_of::<u32>()
}

/// Problems for one kernel that uses a block per problem.
#[derive(Debug)]
struct Class {
    kernel: BlockKernel,
    /// [`MEMBERS`] elements per problem; all bits set for unused ones.
    rows: Vec<u32>,
    /// Maxima over the problems: rows, elements of workspace, entries.
    most: [usize; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKernel {
    /// Kernel for problems of at most this number of rows.
    Small(usize),
    /// Kernel for problems of any size, in device memory.
    Large,
}

impl BlockKernel {
    /// All kernels; those for shared memory occur once for each of [`CONCURRENT`].
    fn all() -> impl Iterator<Item = BlockKernel> {
        let small = OF_A_BLOCK.iter().flat_map(|&rows| [BlockKernel::Small(rows); CONCURRENT.len()]);
        small.chain([BlockKernel::Large])
    }

    fn source(self) -> &'static Source {
        let place = match self {
            BlockKernel::Small(rows) => OF_A_BLOCK.iter().position(|&most| most == rows),
            BlockKernel::Large => None,
        };
        OF_BLOCKS[place.unwrap_or(OF_BLOCKS.len() - 1)]
    }

    /// Distance of the columns of a problem: `apart` of spai.cu, or an upper bound of it if the kernel is
    /// compiled for any number of rows.
    fn apart(self, problem: Problem) -> usize {
        match self {
            BlockKernel::Small(rows) if rows < COUNTED => rows,
            _ => problem.height().next_multiple_of(2),
        }
    }

    /// Index in [`BlockKernel::all`] of the kernel for a problem, given the shared memory of a
    /// multiprocessor.
    fn of(problem: Problem, shared: usize) -> usize {
        let place = OF_A_BLOCK.iter().position(|&most| problem.height() <= most).and_then(|kernel| {
            let most = OF_A_BLOCK[kernel];
            let numbers = problem.numbers(BlockKernel::Small(most).apart(problem));
            let bytes = table(slots(most)) + numbers * size_of::<f64>() + FIXED;
            let concurrent = CONCURRENT.iter().position(|blocks| bytes <= shared / blocks)?;
            Some(kernel * CONCURRENT.len() + concurrent)
        });
        place.unwrap_or(OF_A_BLOCK.len() * CONCURRENT.len())
    }
}

/// Problems of rows, grouped by kernel and by the number of resident blocks.
fn sorted(shared: usize, rows: &[u32], found: &[Found], a: Pattern<'_>, m: Pattern<'_>) -> Vec<Class> {
    let mut classes: Vec<Class> = BlockKernel::all().map(Class::new).collect();
    // for each leader (see `Found`): where the next row that shares its problem is inserted into `rows` of
    // its class
    let mut open = vec![0usize; rows.len()];
    // a leader has as many unknowns as the rows with the same problem, so it is in `rows`, too
    let places = LazyCell::new(|| {
        let mut places = vec![0u32; a.rows()];
        (0..).zip(rows).for_each(|(at, &row)| places[row as usize] = at);
        places
    });
    for (at, (&row, &found)) in rows.iter().zip(found).enumerate() {
        let problem = Problem::new(row as usize, found, a, m);
        let class = &mut classes[BlockKernel::of(problem, shared)];
        let [_, _, leader] = found;
        // all rows that share a leader's problem have its class
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
    /// A launch for rows whose problems are each solved by a warp.
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

/// Number of blocks of a launch that solves this number of problems.
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
