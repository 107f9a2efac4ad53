//! Intel's MKL, if its library is found at run time: SpMV by the inspector-executor interface, on arrays of this library.
//!
//! `libmkl_rt` is loaded by name, so `LD_LIBRARY_PATH` must have its folder. Indices are 32-bit integers (LP64). MKL gets as many threads
//! as Rayon has. Implementations are timed in turns of several products each. MKL's threads spin for a millisecond after each product:
//! long enough for the next product of its turn, and short enough that they sleep before another implementation is timed. The first
//! product of a turn, which is not timed, wakes them.

#![allow(unsafe_code, reason = "MKL is C")]

use super::Result;
use super::contestant::{Contestant, Element, Product, Whose};
use krysp::{Bsr, Csr, HostSpace, HostVector};
use libloading::{AsFilename, Library};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

type Handle = *mut c_void;
type Status = c_int;

/// `matrix_descr`
#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    kind: c_int,
    triangle: c_int,
    diagonal: c_int,
}

const GENERAL: Description = Description { kind: 20, triangle: 40, diagonal: 50 };
const FROM_ZERO: c_int = 0;
const NOT_TRANSPOSED: c_int = 10;
const MAY_COPY: c_int = 81;
const ROW_MAJOR: c_int = 101;
const COLUMN_MAJOR: c_int = 102;
const LAYER_OF_INTEL: c_int = 0;
const LAYER_OF_GNU: c_int = 3;

/// The number of products that is passed to MKL as a hint.
const EXPECTED: c_int = 10_000;

/// The milliseconds that MKL's threads spin after a product.
const SPIN: c_int = 1;

type Create<T> = unsafe extern "C" fn(
    *mut Handle,
    c_int,
    c_int,
    c_int,
    *const u32,
    *const u32,
    *const u32,
    *const T,
) -> Status;
type Multiply<T> = unsafe extern "C" fn(c_int, T, Handle, Description, *const T, T, *mut T) -> Status;

/// A product with several vectors: its arguments include the order in which the vectors are stored (row or
/// column major), their number, and the leading dimensions of both arrays.
type MultiplyMany<T> = unsafe extern "C" fn(
    c_int,
    T,
    Handle,
    Description,
    c_int,
    *const T,
    c_int,
    c_int,
    T,
    *mut T,
    c_int,
) -> Status;

struct Mkl {
    library: Library,
    hint_products: unsafe extern "C" fn(Handle, c_int, Description, c_int) -> Status,
    hint_products_of_many: unsafe extern "C" fn(Handle, c_int, Description, c_int, c_int, c_int) -> Status,
    hint_memory: unsafe extern "C" fn(Handle, c_int) -> Status,
    optimize: unsafe extern "C" fn(Handle) -> Status,
    convert_bsr: unsafe extern "C" fn(Handle, c_int, c_int, c_int, *mut Handle) -> Status,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    /// The library of Intel's OpenMP threads, if MKL uses it; must remain loaded as long as MKL.
    _openmp: Option<Library>,
}

fn load(name: impl AsFilename) -> Result<Library> {
    // SAFETY: loading these libraries has no requirements
    Ok(unsafe { Library::new(name) }?)
}

/// # Safety
/// `F` is the type of the C function of this name.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: promised by the caller
    Ok(*unsafe { library.get::<F>(name) }?)
}

impl Mkl {
    fn new() -> Result<Mkl> {
        let library = load("libmkl_rt.so.3").or_else(|_| load("libmkl_rt.so.2"))?;
        let openmp = load("libiomp5.so").ok();
        // SAFETY: signatures of mkl_service.h and of Intel's omp.h, plain numbers; no product is running
        unsafe {
            type Set = unsafe extern "C" fn(c_int);
            if let Some(openmp) = &openmp {
                function::<Set>(openmp, "kmp_set_blocktime")?(SPIN);
            }
            if std::env::var_os("MKL_THREADING_LAYER").is_none() {
                type SetLayer = unsafe extern "C" fn(c_int) -> c_int;
                let layer = if openmp.is_some() { LAYER_OF_INTEL } else { LAYER_OF_GNU };
                function::<SetLayer>(&library, "MKL_Set_Threading_Layer")?(layer);
            }
            function::<Set>(&library, "MKL_Set_Dynamic")?(0);
            function::<Set>(&library, "MKL_Set_Num_Threads")?(rayon::current_num_threads().try_into()?);
        }
        // SAFETY: signatures of mkl_spblas.h
        unsafe {
            Ok(Mkl {
                hint_products: function(&library, "mkl_sparse_set_mv_hint")?,
                hint_products_of_many: function(&library, "mkl_sparse_set_mm_hint")?,
                hint_memory: function(&library, "mkl_sparse_set_memory_hint")?,
                optimize: function(&library, "mkl_sparse_optimize")?,
                convert_bsr: function(&library, "mkl_sparse_convert_bsr")?,
                destroy: function(&library, "mkl_sparse_destroy")?,
                library,
                _openmp: openmp,
            })
        }
    }

    /// The library, if there is one. Reports once if there is none.
    fn get() -> Option<&'static Mkl> {
        static MKL: OnceLock<Option<Mkl>> = OnceLock::new();
        let found = || Mkl::new().inspect_err(|error| eprintln!("without MKL: {error}")).ok();
        MKL.get_or_init(found).as_ref()
    }
}

fn check(name: &str, status: Status) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(format!("{name}: status {status}").into()) }
}

/// The arrays that MKL's handles refer to. Those of `csr` are allocated like those of our formats.
struct Arrays<T: Element> {
    csr: Csr<T>,
    offsets: Vec<u32>,
}

struct Matrix<T: Element> {
    mkl: &'static Mkl,
    handle: Handle,
    arrays: Rc<Arrays<T>>,
}

impl<T: Element> Matrix<T> {
    fn new(mkl: &'static Mkl, arrays: &Rc<Arrays<T>>) -> Result<Self> {
        let mut matrix = Matrix { mkl, handle: null_mut(), arrays: arrays.clone() };
        let Arrays { csr, offsets } = &**arrays;
        let name = format!("mkl_sparse_{}_create_csr", letter::<T>());
        // SAFETY: the signature of mkl_spblas.h for this `T`; arrays of the lengths that a CSR matrix has, which fit
        // 32-bit integers, are read only and live as long as the handle
        check(&name, unsafe {
            function::<Create<T>>(&mkl.library, &name)?(
                &mut matrix.handle,
                FROM_ZERO,
                csr.rows().try_into()?,
                csr.cols().try_into()?,
                offsets.as_ptr(),
                offsets.as_ptr().add(1),
                csr.columns().as_ptr(),
                csr.entries().as_ptr(),
            )
        })?;
        Ok(matrix)
    }

    fn blocked(&self, size: usize) -> Result<Self> {
        let mut blocked = Matrix { mkl: self.mkl, handle: null_mut(), arrays: self.arrays.clone() };
        // SAFETY: a living handle, and memory for another
        check("mkl_sparse_convert_bsr", unsafe {
            let size = size.try_into()?;
            (self.mkl.convert_bsr)(self.handle, size, ROW_MAJOR, NOT_TRANSPOSED, &mut blocked.handle)
        })?;
        Ok(blocked)
    }

    /// Lets MKL optimize the matrix for products with one vector or, if `many` is set, with several; `many`
    /// is their storage order (row or column major) and their number.
    fn optimized(self, many: Option<(c_int, usize)>) -> Result<Self> {
        // SAFETY: a living handle
        unsafe {
            let hint = match many {
                None => (self.mkl.hint_products)(self.handle, NOT_TRANSPOSED, GENERAL, EXPECTED),
                Some((order, count)) => {
                    let (hint, count) = (self.mkl.hint_products_of_many, count.try_into()?);
                    hint(self.handle, NOT_TRANSPOSED, GENERAL, order, count, EXPECTED)
                }
            };
            check("mkl_sparse_set_mv_hint or mkl_sparse_set_mm_hint", hint)?;
            check("mkl_sparse_set_memory_hint", (self.mkl.hint_memory)(self.handle, MAY_COPY))?;
            check("mkl_sparse_optimize", (self.mkl.optimize)(self.handle))?;
        }
        Ok(self)
    }
}

impl<T: Element> Drop for Matrix<T> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: no other copy of the handle is left
            unsafe { (self.mkl.destroy)(self.handle) };
        }
    }
}

/// The letter for the element type in MKL's function names.
fn letter<T: Element>() -> &'static str {
    if T::NAME == "f32" { "s" } else { "d" }
}

struct Multiplication<T: Element> {
    function: Multiply<T>,
    matrix: Matrix<T>,
    x: HostVector<T>,
    y: HostVector<T>,
}

impl<T: Element> Product<T> for Multiplication<T> {
    fn multiply(&mut self) {
        let (x, y) = (self.x.as_slice().as_ptr(), self.y.as_mut_slice().as_mut_ptr());
        let (handle, one, zero) = (self.matrix.handle, T::narrow(1.0), T::narrow(0.0));
        // SAFETY: a living handle of this `T`, vectors as long as its columns and its rows
        let status = unsafe { (self.function)(NOT_TRANSPOSED, one, handle, GENERAL, x, zero, y) };
        assert!(status == 0, "mkl_sparse_{}_mv: status {status}", letter::<T>());
    }

    fn y(&self) -> &[T] {
        self.y.as_slice()
    }
}

/// A product with several vectors.
struct MultiplicationOfMany<T: Element> {
    function: MultiplyMany<T>,
    matrix: Matrix<T>,
    order: c_int,
    count: usize,
    x: HostVector<T>,
    y: HostVector<T>,
}

impl<T: Element> Product<T> for MultiplicationOfMany<T> {
    fn multiply(&mut self) {
        let Arrays { csr, .. } = &*self.matrix.arrays;
        let distance = |len| if self.order == ROW_MAJOR { self.count } else { len } as c_int;
        let (of_x, of_y) = (distance(csr.cols()), distance(csr.rows()));
        let (x, y) = (self.x.as_slice().as_ptr(), self.y.as_mut_slice().as_mut_ptr());
        let (handle, one, zero) = (self.matrix.handle, T::narrow(1.0), T::narrow(0.0));
        let (order, count) = (self.order, self.count as c_int);
        // SAFETY: a living handle of this `T`, `count` vectors as long as its columns and its rows
        let status = unsafe {
            (self.function)(NOT_TRANSPOSED, one, handle, GENERAL, order, x, count, of_x, zero, y, of_y)
        };
        assert!(status == 0, "mkl_sparse_{}_mm: status {status}", letter::<T>());
    }

    fn y(&self) -> &[T] {
        self.y.as_slice()
    }
}

/// MKL with a matrix and `count` vectors; `x(i, j)` is entry `i` of vector `j`. Covers vectors stored row by row
/// and column by column, and the matrix in CSR and, if suitable, in BSR, always optimized. Empty without the
/// library, or if numbers of entries exceed the range of 32-bit integers.
pub fn mkl_many<T: Element>(
    csr: &Csr<T>,
    count: usize,
    x: impl Fn(usize, usize) -> T,
) -> Result<Vec<Contestant<T>>> {
    let Some(mkl) = Mkl::get() else { return Ok(vec![]) };
    if c_int::try_from(csr.nnz().max(csr.rows().max(csr.cols()) * count)).is_err() {
        return Ok(vec![]);
    }
    let offsets = csr.offsets().into_iter().map(u32::try_from).collect::<std::result::Result<_, _>>()?;
    let arrays = Rc::new(Arrays { csr: csr.clone(), offsets });
    // SAFETY: the signature of mkl_spblas.h for this `T`
    let function: MultiplyMany<T> =
        unsafe { function(&mkl.library, &format!("mkl_sparse_{}_mm", letter::<T>()))? };
    let block = Bsr::new(csr).map(|bsr| bsr.block_size()).ok();
    let mut all = vec![];
    for (order, names) in [
        (ROW_MAJOR, ["MKL CSR, stored by rows", "MKL BSR, stored by rows"]),
        (COLUMN_MAJOR, ["MKL CSR, stored by columns", "MKL BSR, stored by columns"]),
    ] {
        let (rows, cols) = (csr.rows(), csr.cols());
        let entries: Vec<T> = match order {
            ROW_MAJOR => (0..cols * count).map(|at| x(at / count, at % count)).collect(),
            _ => (0..cols * count).map(|at| x(at % cols, at / cols)).collect(),
        };
        for (name, block) in names.into_iter().zip([None, block]).take(1 + usize::from(block.is_some())) {
            let started = Instant::now();
            let matrix = Matrix::new(mkl, &arrays)?;
            let matrix = match block {
                Some(size) => matrix.blocked(size)?,
                None => matrix,
            };
            let matrix = matrix.optimized(Some((order, count)))?;
            let setup_ms = started.elapsed().as_secs_f64() * 1e3;
            let x = HostSpace::new(cols * count).vector(&entries)?;
            let y = HostSpace::new(rows * count).vector(&vec![T::narrow(f64::NAN); rows * count])?;
            let product = Box::new(MultiplicationOfMany { function, matrix, order, count, x, y });
            all.push(Contestant { name, whose: Whose::Library, setup_ms, bytes: 0, product });
        }
    }
    Ok(all)
}

/// MKL with a matrix and `x`: with a plain handle, with an optimized one, and as BSR if that is suitable. Empty without the
/// library, or if the number of entries exceeds the range of 32-bit integers.
pub fn mkl<T: Element>(csr: &Csr<T>, x: &[T]) -> Result<Vec<Contestant<T>>> {
    let Some(mkl) = Mkl::get() else { return Ok(vec![]) };
    if c_int::try_from(csr.nnz()).is_err() {
        return Ok(vec![]);
    }
    let offsets = csr.offsets().into_iter().map(u32::try_from).collect::<std::result::Result<_, _>>()?;
    let arrays = Rc::new(Arrays { csr: csr.clone(), offsets });
    // SAFETY: the signature of mkl_spblas.h for this `T`
    let function: Multiply<T> =
        unsafe { function(&mkl.library, &format!("mkl_sparse_{}_mv", letter::<T>()))? };
    let mut all = vec![];
    let mut add = |name, make: &dyn Fn() -> Result<Matrix<T>>| -> Result<()> {
        let started = Instant::now();
        let matrix = make()?;
        let setup_ms = started.elapsed().as_secs_f64() * 1e3;
        let vector = |entries: &[T]| HostSpace::new(entries.len()).vector(entries);
        let y = vector(&vec![T::narrow(f64::NAN); csr.rows()])?;
        let product = Box::new(Multiplication { function, matrix, x: vector(x)?, y });
        all.push(Contestant { name, whose: Whose::Library, setup_ms, bytes: 0, product });
        Ok(())
    };
    add("MKL", &|| Matrix::new(mkl, &arrays))?;
    add("MKL optimised", &|| Matrix::new(mkl, &arrays)?.optimized(None))?;
    if let Ok(size) = Bsr::new(csr).map(|bsr| bsr.block_size()) {
        add("MKL BSR", &|| Matrix::new(mkl, &arrays)?.blocked(size)?.optimized(None))?;
    }
    Ok(all)
}
