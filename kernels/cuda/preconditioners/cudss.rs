//! Complete factorizations by cuDSS, NVIDIA's library of sparse direct solvers, which is opened at run time.
//!
//! Matrix, factors and vectors are in device memory. The analysis (elimination ordering, symbolic factorization)
//! runs mostly on the host. A running phase cannot be cancelled, and the order of sums is not fixed: results may
//! differ bitwise from run to run.
//!
//! Work is queued on the stream of the device. The analysis and the factorization wait for it; a solve does not.

mod library;

pub use library::{cudss_is_found, cudss_version};

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::launch::index;
use crate::cuda::device::{Array, Device, Held, Real, lock};
use crate::cuda::matrix::device_csr::{DeviceCsr, RowStarts};
use crate::cuda::matrix::pattern::Pattern;
use crate::cuda::solve::vector;
use cudarc::driver::result;
use library::{Library, Object, Queried, RawCsr, Setting};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

/// Structure of a matrix; the numbers are those of cuDSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// `A = L U`
    General = 0,
    /// Symmetric, definite or not: `A = L D Lᵀ`
    Symmetric = 1,
    /// Symmetric positive definite: `A = L Lᵀ`
    PositiveDefinite = 3,
}

/// Options of a factorization.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Structure of the matrix.
    pub kind: Kind,
    /// True if rows are permuted and the matrix is scaled by a matching, which makes the diagonal large.
    pub matching: bool,
    /// Magnitude below which a pivot is replaced by this number.
    pub pivot_epsilon: f64,
    /// Threads of the host for the analysis.
    pub threads: usize,
}

/// The report of cuDSS on a factorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Findings {
    /// Zero if no error was found on the device.
    pub info: i32,
    /// Stored entries of the factors.
    pub entries: usize,
    /// Number of pivots that were replaced.
    pub perturbed: usize,
    /// Numbers of negative and of positive eigenvalues, of a matrix of kind [`Kind::Symmetric`].
    pub inertia: Option<[usize; 2]>,
}

/// Phases of `cudssExecute`.
const ANALYSIS: c_int = 1 | 2;
const FACTORIZATION: c_int = 4;
const REFACTORIZATION: c_int = 8;
const SOLVE: c_int = (1 << 10) - (1 << 4);

/// `CUDA_R_32F` and `CUDA_R_64F` of the CUDA toolkit.
const TYPES: [c_int; 2] = [0, 1];

/// Number of memory estimates that cuDSS returns; the first two are the bytes of device memory that remain
/// allocated, and their maximum during the factorization.
const ESTIMATES: usize = 16;

/// Held while the library creates or destroys objects, or analyses a matrix, because it does not promise that
/// several threads may do so at the same time.
static ON_HOST: Mutex<()> = Mutex::new(());

/// Objects of the library for one matrix; null until they are created.
struct Raw {
    library: &'static Library,
    device: Device,
    handle: Object,
    config: Object,
    data: Object,
    matrix: Object,
    /// Descriptors of a single right-hand side and its solution.
    one: [Object; 2],
    /// Descriptors of several right-hand sides and their solutions; null until `solve_many` creates them.
    many: [Object; 2],
}

// SAFETY: the objects are not bound to a thread; they are used under a lock, or through `&mut`
unsafe impl Send for Raw {}

/// Right-hand sides and solutions of several columns, one after the other.
struct Many<T> {
    columns: usize,
    arrays: [Array<T>; 2],
}

/// A factorization of a square matrix.
pub struct Factors<T: Real> {
    raw: Mutex<(Raw, Option<Many<T>>)>,
    matrix: DeviceCsr<T>,
    kind: Kind,
    rows: usize,
    is_factorized: bool,
    /// Addresses of the arrays of the matrix that the library knows.
    arrays: [u64; 3],
    /// Threshold of pivots, and the norm of the values for which it was given.
    pivot_epsilon: f64,
    norm: f64,
    /// Device memory of the library, counted in the total of the device.
    held: Option<Held>,
}

impl<T: Real> std::fmt::Debug for Factors<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} factors by cuDSS of {} rows on {:?}", self.kind, self.rows, self.matrix.device())
    }
}

fn check(call: &'static str, status: c_int) -> Result<()> {
    let status = match status {
        0 => return Ok(()),
        1 => "not initialized",
        2 => "out of memory",
        3 => "invalid value",
        4 => "not supported",
        5 => "execution failed on the GPU",
        6 => "internal error",
        _ => "unknown status",
    };
    Err(Error::CuDss { call, status })
}

/// Runs work of the library that other threads must not run at the same time.
fn alone<R>(work: impl FnOnce() -> R) -> R {
    let _one = lock(&ON_HOST);
    work()
}

impl Raw {
    fn new(device: &Device, threads: usize) -> Result<Raw> {
        let library = Library::get()?;
        device.inner.context.bind_to_thread()?;
        let mut raw = Raw {
            library,
            device: device.clone(),
            handle: null_mut(),
            config: null_mut(),
            data: null_mut(),
            matrix: null_mut(),
            one: [null_mut(); 2],
            many: [null_mut(); 2],
        };
        // the lock is released before an error drops `raw`, which takes it again
        let created = alone(|| raw.create(threads));
        created.map(|()| raw)
    }

    fn create(&mut self, threads: usize) -> Result<()> {
        let library = self.library;
        // SAFETY: each call writes a handle to a field, from which `drop` destroys it; the device owns the stream
        unsafe {
            check("cudssCreate", (library.create)(&mut self.handle))?;
            check("cudssSetStream", (library.set_stream)(self.handle, self.device.stream()))?;
            check("cudssConfigCreate", (library.config_create)(&mut self.config))?;
            check("cudssDataCreate", (library.data_create)(self.handle, &mut self.data))?;
        }
        let Some(layer) = &library.threading else { return Ok(()) };
        // SAFETY: the string ends with a zero
        let status = unsafe { (library.set_threading_layer)(self.handle, layer.as_ptr()) };
        // if the layer is refused, one thread remains
        if status != 0 {
            return Ok(());
        }
        self.set("the number of threads", Setting::HostThreads, threads.clamp(1, 1 << 10) as c_int)
    }

    fn set<V>(&self, what: &'static str, setting: Setting, value: V) -> Result<()> {
        let number = self.library.setting(setting);
        // SAFETY: the value is copied, and has the type of the setting, a number of 4 or 8 bytes
        let status = unsafe {
            (self.library.config_set)(self.config, number, (&raw const value).cast(), size_of::<V>())
        };
        check(what, status)
    }

    /// Queries numbers into `into`, of the type of the result.
    fn query<V>(&self, what: &'static str, queried: Queried, into: &mut V) -> Result<()> {
        let (number, mut written) = (self.library.queried(queried), 0);
        // SAFETY: writes at most the given number of bytes to a local, which may hold any bits
        let status = unsafe {
            let to = std::ptr::from_mut(into).cast::<c_void>();
            (self.library.data_get)(self.handle, self.data, number, to, size_of::<V>(), &mut written)
        };
        check(what, status)
    }

    /// Creates the descriptors of a right-hand side and a solution, whose values are set before each use.
    fn dense(
        &self,
        rows: usize,
        columns: usize,
        value_type: c_int,
        addresses: [u64; 2],
    ) -> Result<[Object; 2]> {
        let mut both = [null_mut(); 2];
        for (matrix, address) in both.iter_mut().zip(addresses) {
            let (rows, columns, by_columns) = (rows as i64, columns as i64, 0);
            // SAFETY: writes a descriptor, which reads nothing at the address
            let status = unsafe {
                let create = self.library.matrix_create_dn;
                create(matrix, rows, columns, rows, address as *const c_void, value_type, by_columns)
            };
            check("cudssMatrixCreateDn", status)?;
        }
        Ok(both)
    }

    /// Runs phases with a right-hand side and a solution.
    ///
    /// # Safety
    /// The arrays that the descriptors refer to are in the memory of the device, have the lengths of the
    /// descriptors, and live until the queued work is done.
    unsafe fn execute(&self, what: &'static str, phases: c_int, [rhs, solution]: [Object; 2]) -> Result<()> {
        self.device.inner.context.bind_to_thread()?;
        let execute = self.library.execute;
        // SAFETY: objects of this library; the rest is promised by the caller
        let status =
            unsafe { execute(self.handle, phases, self.config, self.data, self.matrix, solution, rhs) };
        check(what, status)
    }

    /// Solves for the values at two addresses.
    ///
    /// # Safety
    /// The requirements are those of [`Raw::execute`], with these addresses.
    unsafe fn solve(&self, objects: [Object; 2], addresses: [u64; 2]) -> Result<()> {
        for (object, address) in objects.into_iter().zip(addresses) {
            // SAFETY: stores an address
            let status = unsafe { (self.library.matrix_set_values)(object, address as *const c_void) };
            check("cudssMatrixSetValues", status)?;
        }
        // SAFETY: promised by the caller
        unsafe { self.execute("the solve", SOLVE, objects) }
    }

    fn destroy_many(&mut self) {
        for object in std::mem::replace(&mut self.many, [null_mut(); 2]) {
            if !object.is_null() {
                // SAFETY: created, and destroyed once
                unsafe { (self.library.matrix_destroy)(object) };
            }
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // without the context of the device, as at the end of the process, the objects are left to the driver
        if self.device.inner.context.bind_to_thread().is_err() {
            return;
        }
        // a failure of the device is reported by its next use
        let _ = self.device.inner.stream.synchronize();
        let _one = lock(&ON_HOST);
        self.destroy_many();
        let library = self.library;
        // SAFETY: each object that exists was created by this library, is not in use, and is destroyed once
        unsafe {
            for matrix in [self.matrix, self.one[0], self.one[1]].into_iter().filter(|one| !one.is_null()) {
                (library.matrix_destroy)(matrix);
            }
            if !self.data.is_null() {
                (library.data_destroy)(self.handle, self.data);
            }
            if !self.config.is_null() {
                (library.config_destroy)(self.config);
            }
            if !self.handle.is_null() {
                (library.destroy)(self.handle);
            }
        }
    }
}

impl<T: Real> Factors<T> {
    const TYPE: c_int = TYPES[(size_of::<T>() == size_of::<f64>()) as usize];

    /// Analyses a matrix of this pattern, with at least one row. Returns an error before the factorization if it
    /// would take more device memory than is free.
    pub fn analyse(matrix: DeviceCsr<T>, pattern: Pattern<'_>, options: Options) -> Result<Self> {
        matrix.check(pattern.shape(), pattern);
        let (rows, entries) = (matrix.rows.count(), matrix.values.len());
        assert!(rows == pattern.cols() && rows > 0, "a square matrix with rows");
        index("the number of rows", rows)?;
        index("the number of entries", entries)?;
        let RowStarts::Short(offsets) = &*matrix.rows else {
            return Err(Error::TooLarge {
                what: "the number of entries",
                got: entries,
                limit: i32::MAX as usize,
            });
        };
        let mut raw = Raw::new(matrix.device(), options.threads)?;
        // newer versions may choose a matching by default
        let matching = if options.matching { raw.library.matching() } else { 0 };
        raw.set("the matching", Setting::Matching, matching)?;
        let arrays = [offsets.address(0), matrix.columns.address(0), matrix.values.address(0)];
        let csr = RawCsr {
            rows: rows as i64,
            entries: entries as i64,
            offsets: arrays[0] as *const c_void,
            columns: arrays[1] as *const c_void,
            values: arrays[2] as *const c_void,
            value_type: Self::TYPE,
            kind: options.kind as c_int,
        };
        let library = raw.library;
        // SAFETY: the arrays of a CSR matrix, which this object owns; `factorize` refuses other arrays, and `raw` is
        // declared before them, so it is dropped first
        let created = alone(|| unsafe { library.create_csr(&mut raw.matrix, &csr) });
        check("cudssMatrixCreateCsr", created)?;
        raw.one = alone(|| raw.dense(rows, 1, Self::TYPE, [0; 2]))?;
        // SAFETY: the analysis reads the matrix, and no vectors
        alone(|| unsafe { raw.execute("the analysis", ANALYSIS, raw.one) })?;
        let held = reserve(&raw)?;
        let Options { kind, pivot_epsilon, .. } = options;
        let (raw, norm) = (Mutex::new((raw, None)), norm(&matrix)?);
        Ok(Factors { raw, matrix, kind, rows, is_factorized: false, arrays, pivot_epsilon, norm, held })
    }

    /// Factorizes the matrix, or, with new values, factorizes it again with the same analysis. Waits until that is
    /// done. The pivot threshold grows with the values.
    pub fn factorize(&mut self) -> Result<Findings> {
        let offsets = match &*self.matrix.rows {
            RowStarts::Short(offsets) => offsets.address(0),
            _ => 0,
        };
        if [offsets, self.matrix.columns.address(0), self.matrix.values.address(0)] != self.arrays {
            return Err(Error::CuDss {
                call: "the factorization",
                status: "the arrays of the matrix were replaced",
            });
        }
        let grown = norm(&self.matrix)? / self.norm;
        let grown = if grown.is_finite() { grown } else { 1.0 };
        let (raw, _) = self.raw.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (what, phase) = match self.is_factorized {
            true => ("the refactorization", REFACTORIZATION),
            false => ("the factorization", FACTORIZATION),
        };
        raw.set("the pivot threshold", Setting::PivotEpsilon, self.pivot_epsilon * grown)?;
        // SAFETY: the factorization reads the matrix, whose arrays are those of the analysis, and no vectors
        unsafe { raw.execute(what, phase, raw.one) }?;
        self.is_factorized = true;
        let (mut info, mut entries, mut perturbed, mut inertia) = (0i32, 0i64, 0i32, [0i32; 2]);
        raw.query("the query of errors", Queried::Info, &mut info)?;
        raw.query("the query of the factors", Queried::FactorEntries, &mut entries)?;
        raw.query("the query of pivots", Queried::PerturbedPivots, &mut perturbed)?;
        let counted = self.kind == Kind::Symmetric && info == 0;
        if counted {
            raw.query("the query of the inertia", Queried::Inertia, &mut inertia)?;
        }
        let [positive, negative] = inertia.map(|count| count.max(0) as usize);
        Ok(Findings {
            info,
            entries: entries.max(0) as usize,
            perturbed: perturbed.max(0) as usize,
            inertia: counted.then_some([negative, positive]),
        })
    }

    /// `‖b − A x‖ / ‖b‖` of a solve with a right-hand side of random signs; not finite if the factors are not.
    pub fn trial(&self) -> Result<f64> {
        let device = self.matrix.device();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let signs = (0..self.rows).map(|_| {
            // xorshift (Marsaglia 2003)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state >> 63 == 0 { T::one() } else { -T::one() }
        });
        let b = device.upload(&signs.collect::<Vec<T>>())?;
        let (mut x, mut r) = (device.zeros(self.rows)?, device.zeros(self.rows)?);
        self.solve(&b, &mut x)?;
        self.matrix.square_residual(&b, &x, &mut r)?;
        let squared = vector::dot(&r, &r).read()?;
        Ok((squared.to_f64().unwrap_or(f64::NAN) / self.rows as f64).sqrt())
    }

    /// Queues `x ← A⁻¹ b`.
    pub fn solve(&self, b: &Array<T>, x: &mut Array<T>) -> Result<()> {
        let device = self.matrix.device();
        assert!(b.len() == self.rows && x.len() == self.rows, "vectors that fit the matrix");
        assert!(b.device() == device && x.device() == device, "vectors on the device of the matrix");
        let raw = &lock(&self.raw).0;
        // SAFETY: lengths and device were checked; memory of arrays is freed in the order of the stream
        unsafe { raw.solve(raw.one, [b.address(0), x.address(0)]) }
    }

    /// Queues the solves for several right-hand sides, which read the factors once for all of them. Copies the
    /// columns to two arrays, which it keeps for the next call with as many columns.
    pub fn solve_many(&self, b: &[&Array<T>], x: &mut [&mut Array<T>]) -> Result<()> {
        assert_eq!(b.len(), x.len(), "a solution for each right-hand side");
        if let ([b], [x]) = (b, &mut *x) {
            return self.solve(b, x);
        }
        let (device, columns) = (self.matrix.device(), b.len());
        let fits = |array: &Array<T>| array.len() == self.rows && array.device() == device;
        assert!(b.iter().all(|b| fits(b)) && x.iter().all(|x| fits(x)), "vectors that fit the matrix");
        if columns == 0 {
            return Ok(());
        }
        let (raw, kept) = &mut *lock(&self.raw);
        let many = match kept.take().filter(|many| many.columns == columns) {
            Some(many) => kept.insert(many),
            None => {
                alone(|| raw.destroy_many());
                let zeros = || device.zeros(self.rows * columns);
                let arrays = [zeros()?, zeros()?];
                raw.many = alone(|| raw.dense(self.rows, columns, Self::TYPE, [0; 2]))?;
                kept.insert(Many { columns, arrays })
            }
        };
        let [all_b, all_x] = &many.arrays;
        for (column, b) in b.iter().enumerate() {
            self.copy(b.address(0), all_b.address(column * self.rows))?;
        }
        // SAFETY: both arrays have this number of columns, and are kept until the queued work is done
        unsafe { raw.solve(raw.many, [all_b.address(0), all_x.address(0)]) }?;
        for (column, x) in x.iter_mut().enumerate() {
            self.copy(all_x.address(column * self.rows), x.address(0))?;
        }
        Ok(())
    }

    /// Queues a copy of a vector.
    fn copy(&self, from: u64, to: u64) -> Result<()> {
        let inner = &self.matrix.device().inner;
        inner.context.bind_to_thread()?;
        let bytes = self.rows * size_of::<T>();
        // SAFETY: callers pass addresses of this many bytes of different arrays on the device
        Ok(unsafe { result::memcpy_dtod_async(to, from, bytes, inner.stream.cu_stream()) }?)
    }

    /// The matrix, whose values may be replaced before [`Factors::factorize`].
    pub fn matrix_mut(&mut self) -> &mut DeviceCsr<T> {
        &mut self.matrix
    }

    /// Bytes of device memory that the library keeps according to its estimate; zero if it returns none.
    pub fn estimated_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, Held::bytes)
    }
}

/// Euclidean norm of the values.
fn norm<T: Real>(matrix: &DeviceCsr<T>) -> Result<f64> {
    let squares = vector::dot(&matrix.values, &matrix.values).read()?;
    Ok(squares.to_f64().unwrap_or(f64::NAN).sqrt())
}

/// Counts the memory that the library will keep, and returns an error if the factorization needs more than is free.
/// Without an estimate nothing is counted.
fn reserve(raw: &Raw) -> Result<Option<Held>> {
    let mut estimates = [0i64; ESTIMATES];
    if raw.query("the memory estimate", Queried::MemoryEstimates, &mut estimates).is_err() {
        return Ok(None);
    }
    let [kept, most] = [estimates[0], estimates[1]].map(|bytes| bytes.max(0) as usize);
    let (free, total) = raw.device.memory()?;
    if most > free {
        return Err(Error::OutOfMemory { requested: most, free, total });
    }
    if most > raw.device.inner.context.mem_get_info()?.0 {
        raw.device.release_unused()?;
    }
    raw.device.hold(kept).map(Some)
}
