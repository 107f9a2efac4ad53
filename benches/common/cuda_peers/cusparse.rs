//! SpMV by cuSPARSE's generic interface; matrices are preprocessed once.

use super::layouts::{self, Arrays, SLICE};
use super::{CudaElement, Result};
use cudarc::cusparse::sys::{
    cusparseConstSpMatDescr_t, cusparseCreate, cusparseCreateConstBsr, cusparseCreateConstCoo,
    cusparseCreateConstCsr, cusparseCreateConstSlicedEll, cusparseCreateDnVec, cusparseDestroy,
    cusparseDestroyDnVec, cusparseDestroySpMat, cusparseDnVecDescr_t, cusparseGetVersion, cusparseHandle_t,
    cusparseIndexBase_t, cusparseIndexType_t, cusparseOperation_t, cusparseOrder_t, cusparseSetStream,
    cusparseSpMV, cusparseSpMV_bufferSize, cusparseSpMV_preprocess, cusparseSpMVAlg_t, cusparseStatus_t,
    is_culib_present,
};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use krysp::Csr;
use std::ffi::c_void;
use std::ptr::{from_ref, null, null_mut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

fn check(call: &str, status: cusparseStatus_t) -> Result<()> {
    match status {
        cusparseStatus_t::CUSPARSE_STATUS_SUCCESS => Ok(()),
        failed => Err(format!("{call}: {failed:?}").into()),
    }
}

/// The library, bound to a stream.
pub struct Cusparse {
    handle: cusparseHandle_t,
    stream: Arc<CudaStream>,
}

impl Cusparse {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Rc<Cusparse>> {
        // SAFETY: only checks whether the library is present; every other call panics without it
        if !unsafe { is_culib_present() } {
            return Err("no cuSPARSE on this machine (libcusparse was not found)".into());
        }
        stream.context().bind_to_thread()?;
        let mut handle = null_mut();
        // SAFETY: writes a handle
        check("cusparseCreate", unsafe { cusparseCreate(&mut handle) })?;
        let library = Cusparse { handle, stream: stream.clone() };
        // SAFETY: the handle is new, and its stream lives as long as the handle
        check("cusparseSetStream", unsafe { cusparseSetStream(handle, stream.cu_stream().cast()) })?;
        Ok(Rc::new(library))
    }

    /// The version as a number, for example 12603.
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: writes a number
        check("cusparseGetVersion", unsafe { cusparseGetVersion(self.handle, &mut version) })?;
        Ok(version)
    }
}

impl Drop for Cusparse {
    fn drop(&mut self) {
        // SAFETY: no other copy of the handle is left
        unsafe { cusparseDestroy(self.handle) };
    }
}

/// A layout, and the algorithm that multiplies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    CsrDefault,
    Csr1,
    Csr2,
    Coo1,
    Coo2,
    Sliced,
    /// Square blocks with this side.
    Blocked(usize),
}

impl Kind {
    /// All kinds that suit a matrix with this many unknowns per node.
    pub fn all(unknowns: usize) -> Vec<Kind> {
        let mut kinds = vec![Kind::CsrDefault, Kind::Csr1, Kind::Csr2, Kind::Coo1, Kind::Coo2, Kind::Sliced];
        if unknowns > 1 {
            kinds.push(Kind::Blocked(unknowns));
        }
        kinds
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::CsrDefault => "cuSPARSE CSR default",
            Kind::Csr1 => "cuSPARSE CSR ALG1",
            Kind::Csr2 => "cuSPARSE CSR ALG2",
            Kind::Coo1 => "cuSPARSE COO ALG1",
            Kind::Coo2 => "cuSPARSE COO ALG2",
            Kind::Sliced => "cuSPARSE SELL",
            Kind::Blocked(_) => "cuSPARSE BSR",
        }
    }

    fn algorithm(self) -> cusparseSpMVAlg_t {
        match self {
            Kind::CsrDefault => cusparseSpMVAlg_t::CUSPARSE_SPMV_ALG_DEFAULT,
            Kind::Csr1 => cusparseSpMVAlg_t::CUSPARSE_SPMV_CSR_ALG1,
            Kind::Csr2 => cusparseSpMVAlg_t::CUSPARSE_SPMV_CSR_ALG2,
            Kind::Coo1 => cusparseSpMVAlg_t::CUSPARSE_SPMV_COO_ALG1,
            Kind::Coo2 => cusparseSpMVAlg_t::CUSPARSE_SPMV_COO_ALG2,
            Kind::Sliced => cusparseSpMVAlg_t::CUSPARSE_SPMV_SELL_ALG1,
            Kind::Blocked(_) => cusparseSpMVAlg_t::CUSPARSE_SPMV_BSR_ALG1,
        }
    }

    fn arrays<T: CudaElement>(self, csr: &Csr<T>) -> Option<Arrays<T>> {
        match self {
            Kind::CsrDefault | Kind::Csr1 | Kind::Csr2 => layouts::csr(csr),
            Kind::Coo1 | Kind::Coo2 => layouts::coo(csr),
            Kind::Sliced => layouts::sliced(csr),
            Kind::Blocked(side) => layouts::blocked(csr, side),
        }
    }
}

/// A vector with its descriptor.
struct Dense<T> {
    entries: CudaSlice<T>,
    descriptor: cusparseDnVecDescr_t,
}

impl<T: CudaElement> Dense<T> {
    fn new(stream: &Arc<CudaStream>, entries: &[T]) -> Result<Self> {
        let mut entries = stream.clone_htod(entries)?;
        let mut descriptor = null_mut();
        let address = entries.device_ptr_mut(stream).0 as *mut c_void;
        let len = i64::try_from(entries.len())?;
        // SAFETY: describes an array that lives as long as the descriptor
        check("cusparseCreateDnVec", unsafe { cusparseCreateDnVec(&mut descriptor, len, address, T::TYPE) })?;
        Ok(Dense { entries, descriptor })
    }
}

impl<T> Drop for Dense<T> {
    fn drop(&mut self) {
        // SAFETY: no other copy of the descriptor is left
        unsafe { cusparseDestroyDnVec(self.descriptor.cast_const()) };
    }
}

/// A matrix: its descriptor and its arrays.
struct Sparse<T> {
    descriptor: cusparseConstSpMatDescr_t,
    offsets: CudaSlice<i32>,
    columns: CudaSlice<i32>,
    values: CudaSlice<T>,
    /// Rows, columns and entries.
    size: [i64; 3],
}

impl<T: CudaElement> Sparse<T> {
    /// Stores a matrix in the layout of a kind, if that is suitable.
    fn new(stream: &Arc<CudaStream>, kind: Kind, csr: &Csr<T>) -> Result<Option<Self>> {
        let Some(host) = kind.arrays(csr) else { return Ok(None) };
        let mut sparse = Sparse {
            descriptor: null(),
            offsets: stream.clone_htod(&host.offsets)?,
            columns: stream.clone_htod(&host.columns)?,
            values: stream.clone_htod(&host.values)?,
            size: [csr.rows() as i64, csr.cols() as i64, csr.nnz() as i64],
        };
        sparse.describe(stream, kind)?;
        Ok(Some(sparse))
    }

    /// Replaces the descriptor by a new one.
    fn describe(&mut self, stream: &Arc<CudaStream>, kind: Kind) -> Result<()> {
        const INDEX: cusparseIndexType_t = cusparseIndexType_t::CUSPARSE_INDEX_32I;
        const BASE: cusparseIndexBase_t = cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        self.forget();
        let ([rows, cols, nnz], stored) = (self.size, self.values.len() as i64);
        let offsets = self.offsets.device_ptr(stream).0 as *const c_void;
        let columns = self.columns.device_ptr(stream).0 as *const c_void;
        let values = self.values.device_ptr(stream).0 as *const c_void;
        let blocks = self.columns.len() as i64;
        let to = &mut self.descriptor;
        // SAFETY: describes arrays that live as long as the descriptor, of the lengths that the layout needs
        let status = unsafe {
            match kind {
                Kind::CsrDefault | Kind::Csr1 | Kind::Csr2 => cusparseCreateConstCsr(
                    to,
                    rows,
                    cols,
                    nnz,
                    offsets,
                    columns,
                    values,
                    INDEX,
                    INDEX,
                    BASE,
                    T::TYPE,
                ),
                Kind::Coo1 | Kind::Coo2 => cusparseCreateConstCoo(
                    to,
                    rows,
                    cols,
                    nnz,
                    offsets,
                    columns,
                    values,
                    INDEX,
                    BASE,
                    T::TYPE,
                ),
                Kind::Sliced => {
                    let slice = SLICE as i64;
                    cusparseCreateConstSlicedEll(
                        to,
                        rows,
                        cols,
                        nnz,
                        stored,
                        slice,
                        offsets,
                        columns,
                        values,
                        INDEX,
                        INDEX,
                        BASE,
                        T::TYPE,
                    )
                }
                Kind::Blocked(side) => {
                    let side = side as i64;
                    let (rows, cols, order) = (rows / side, cols / side, cusparseOrder_t::CUSPARSE_ORDER_ROW);
                    cusparseCreateConstBsr(
                        to,
                        rows,
                        cols,
                        blocks,
                        side,
                        side,
                        offsets,
                        columns,
                        values,
                        INDEX,
                        INDEX,
                        BASE,
                        T::TYPE,
                        order,
                    )
                }
            }
        };
        check("cusparseCreateConst…", status)
    }
}

impl<T> Sparse<T> {
    fn forget(&mut self) {
        if !self.descriptor.is_null() {
            // SAFETY: no other copy of the descriptor is left
            unsafe { cusparseDestroySpMat(self.descriptor) };
            self.descriptor = null();
        }
    }
}

impl<T> Drop for Sparse<T> {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The SpMV `y ← A x` with its matrix and vectors, ready to be queued.
pub struct Product<T> {
    library: Rc<Cusparse>,
    kind: Kind,
    matrix: Sparse<T>,
    buffer: CudaSlice<u8>,
    x: Dense<T>,
    y: Dense<T>,
    unprepared: Option<Box<dyn std::error::Error>>,
}

impl<T: CudaElement> Product<T> {
    /// Prepares an SpMV, preprocessed if possible, and fills `y` with NaN. `None` if the layout is not suitable for the
    /// matrix.
    pub fn new(library: &Rc<Cusparse>, kind: Kind, csr: &Csr<T>, x: &[T]) -> Result<Option<Self>> {
        let stream = &library.stream;
        stream.context().bind_to_thread()?;
        let Some(matrix) = Sparse::new(stream, kind, csr)? else { return Ok(None) };
        let mut product = Product {
            library: library.clone(),
            kind,
            matrix,
            buffer: stream.alloc_zeros(1)?,
            x: Dense::new(stream, x)?,
            y: Dense::new(stream, &vec![T::narrow(f64::NAN); csr.rows()])?,
            unprepared: None,
        };
        product.prepare()?;
        Ok(Some(product))
    }

    /// Allocates the buffer, and preprocesses the matrix before the first product.
    fn prepare(&mut self) -> Result<()> {
        let (one, zero) = (T::narrow(1.0), T::narrow(0.0));
        let mut bytes = 0;
        // SAFETY: descriptors of living arrays; the numbers are read before it returns
        check("cusparseSpMV_bufferSize", unsafe {
            cusparseSpMV_bufferSize(
                self.library.handle,
                cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE,
                from_ref(&one).cast(),
                self.matrix.descriptor,
                self.x.descriptor.cast_const(),
                from_ref(&zero).cast(),
                self.y.descriptor,
                T::TYPE,
                self.kind.algorithm(),
                &mut bytes,
            )
        })?;
        self.buffer = self.library.stream.alloc_zeros(bytes.max(1))?;
        // not every version can preprocess every layout
        self.unprepared = self.call("cusparseSpMV_preprocess", cusparseSpMV_preprocess).err();
        Ok(())
    }

    /// The milliseconds of the first product with a CSR matrix on the device, including preparation, by the host's clock.
    /// `None` for other layouts, which would need a conversion.
    pub fn first(&mut self) -> Result<Option<f64>> {
        if !matches!(self.kind, Kind::CsrDefault | Kind::Csr1 | Kind::Csr2) {
            return Ok(None);
        }
        // a new descriptor, so that results of earlier preprocessing are unknown
        self.matrix.describe(&self.library.stream, self.kind)?;
        self.library.stream.synchronize()?;
        let started = Instant::now();
        self.prepare()?;
        self.queue()?;
        self.library.stream.synchronize()?;
        Ok(Some(started.elapsed().as_secs_f64() * 1e3))
    }

    /// Why the matrix could not be preprocessed, if it could not.
    pub fn unprepared(&self) -> Option<String> {
        self.unprepared.as_ref().map(|error| error.to_string())
    }

    /// Bytes of the matrix.
    pub fn bytes(&self) -> usize {
        let Sparse { offsets, columns, values, .. } = &self.matrix;
        offsets.num_bytes() + columns.num_bytes() + values.num_bytes()
    }

    pub fn queue(&mut self) -> Result<()> {
        self.call("cusparseSpMV", cusparseSpMV)
    }

    /// `x` on the device.
    pub fn x(&self) -> &CudaSlice<T> {
        &self.x.entries
    }

    pub fn x_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.x.entries
    }

    /// `y` on the device.
    pub fn y(&self) -> &CudaSlice<T> {
        &self.y.entries
    }

    pub fn answer(&self) -> Result<Vec<T>> {
        let y = self.library.stream.clone_dtoh(&self.y.entries)?;
        self.library.stream.synchronize()?;
        Ok(y)
    }

    fn call(&mut self, name: &str, function: SpMv) -> Result<()> {
        let (one, zero) = (T::narrow(1.0), T::narrow(0.0));
        let buffer = self.buffer.device_ptr_mut(&self.library.stream).0 as *mut c_void;
        // SAFETY: descriptors of living arrays, a buffer of the queried size; the numbers are read before it returns
        check(name, unsafe {
            function(
                self.library.handle,
                cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE,
                from_ref(&one).cast(),
                self.matrix.descriptor,
                self.x.descriptor.cast_const(),
                from_ref(&zero).cast(),
                self.y.descriptor,
                T::TYPE,
                self.kind.algorithm(),
                buffer,
            )
        })
    }
}

/// `cusparseSpMV` and its preparation.
type SpMv = unsafe fn(
    cusparseHandle_t,
    cusparseOperation_t,
    *const c_void,
    cusparseConstSpMatDescr_t,
    cudarc::cusparse::sys::cusparseConstDnVecDescr_t,
    *const c_void,
    cusparseDnVecDescr_t,
    cudarc::cusparse::sys::cudaDataType,
    cusparseSpMVAlg_t,
    *mut c_void,
) -> cusparseStatus_t;
