//! Functions of cuDSS, declared from the documented interface, and the search for the library at run time.
//!
//! Versions 0.7, 0.8 and 1.x are supported. They differ in the arguments of `cudssMatrixCreateCsr` and in the
//! numbers of some parameters: 0.7 takes one type for offsets and columns, and has a parameter that switches
//! matching on, so the numbers after it are larger by one.

use crate::cuda::device::error::{Error, Result};
use crate::cuda::device::{library_folders, newest_toolkit};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names of the library, the newest version first; a program has at most one of them loaded.
const NAMES: [&str; 2] = match cfg!(windows) {
    true => ["cudss64_1.dll", "cudss64_0.dll"],
    false => ["libcudss.so.1", "libcudss.so.0"],
};

/// Oldest supported version (major, minor), and newest supported major version.
const OLDEST: (c_int, c_int) = (0, 7);
const NEWEST: c_int = 1;

/// The first version with separate types of offsets and columns.
const SEPARATE_TYPES: (c_int, c_int) = (0, 8);

/// The oldest major version of CUDA for which cuDSS is published.
const OLDEST_TOOLKIT: u32 = 12;

/// An object of the library: handle, settings, data or matrix.
pub(super) type Object = *mut c_void;
type Status = c_int;

/// Arguments up to the values are the same in all versions.
type CreateCsrOfOneType = unsafe extern "C" fn(
    *mut Object,
    i64,
    i64,
    i64,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Status;
type CreateCsrOfTwoTypes = unsafe extern "C" fn(
    *mut Object,
    i64,
    i64,
    i64,
    *const c_void,
    *const c_void,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Status;

#[derive(Debug)]
enum CreateCsr {
    OneType(CreateCsrOfOneType),
    TwoTypes(CreateCsrOfTwoTypes),
}

/// A CSR matrix in device memory with 32-bit offsets and columns.
pub(super) struct RawCsr {
    pub(super) rows: i64,
    pub(super) entries: i64,
    pub(super) offsets: *const c_void,
    pub(super) columns: *const c_void,
    pub(super) values: *const c_void,
    pub(super) value_type: c_int,
    pub(super) kind: c_int,
}

/// `CUDA_R_32I` of the CUDA toolkit.
const INT32: c_int = 10;

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// Matching: 1 switches it on in version 0.7; later versions take the number of an algorithm.
    Matching,
    /// Magnitude of a pivot below which it is replaced.
    PivotEpsilon,
    /// Threads of the host.
    HostThreads,
}

/// A result that can be queried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queried {
    Info,
    FactorEntries,
    PerturbedPivots,
    Inertia,
    MemoryEstimates,
}

/// The functions that are used, of a library that is never unloaded.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) version: (c_int, c_int, c_int),
    /// File of the threading layer that belongs to the library, if there is one.
    pub(super) threading: Option<CString>,
    pub(super) create: unsafe extern "C" fn(*mut Object) -> Status,
    pub(super) destroy: unsafe extern "C" fn(Object) -> Status,
    pub(super) set_stream: unsafe extern "C" fn(Object, *mut c_void) -> Status,
    pub(super) set_threading_layer: unsafe extern "C" fn(Object, *const c_char) -> Status,
    pub(super) config_create: unsafe extern "C" fn(*mut Object) -> Status,
    pub(super) config_destroy: unsafe extern "C" fn(Object) -> Status,
    pub(super) config_set: unsafe extern "C" fn(Object, c_int, *const c_void, usize) -> Status,
    pub(super) data_create: unsafe extern "C" fn(Object, *mut Object) -> Status,
    pub(super) data_destroy: unsafe extern "C" fn(Object, Object) -> Status,
    pub(super) data_get:
        unsafe extern "C" fn(Object, Object, c_int, *mut c_void, usize, *mut usize) -> Status,
    pub(super) execute: unsafe extern "C" fn(Object, c_int, Object, Object, Object, Object, Object) -> Status,
    pub(super) matrix_create_dn:
        unsafe extern "C" fn(*mut Object, i64, i64, i64, *const c_void, c_int, c_int) -> Status,
    pub(super) matrix_set_values: unsafe extern "C" fn(Object, *const c_void) -> Status,
    pub(super) matrix_destroy: unsafe extern "C" fn(Object) -> Status,
    create_csr: CreateCsr,
}

impl Library {
    /// The library, loaded at the first call that finds it.
    pub(super) fn get() -> Result<&'static Library> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let folders = library_folders();
        let library = load(&candidates(&folders), &folders)?;
        Ok(LOADED.get_or_init(|| library))
    }

    fn minor(&self) -> (c_int, c_int) {
        (self.version.0, self.version.1)
    }

    /// Number of a setting.
    pub(super) fn setting(&self, setting: Setting) -> c_int {
        let shift = c_int::from(self.minor() < SEPARATE_TYPES);
        match setting {
            Setting::Matching => 3,
            Setting::PivotEpsilon => 9 + shift,
            Setting::HostThreads => 14 + shift,
        }
    }

    /// Value of [`Setting::Matching`] that switches matching on, with an algorithm that the library chooses.
    pub(super) fn matching(&self) -> c_int {
        if self.minor() < SEPARATE_TYPES { 1 } else { 6 }
    }

    /// Number of a result.
    pub(super) fn queried(&self, queried: Queried) -> c_int {
        match queried {
            Queried::Info => 0,
            Queried::FactorEntries => 1,
            Queried::PerturbedPivots => 2,
            Queried::Inertia => 3,
            Queried::MemoryEstimates => 12 + c_int::from(self.minor() >= SEPARATE_TYPES),
        }
    }

    /// Creates the descriptor of a matrix, which refers to its arrays.
    ///
    /// # Safety
    /// The arrays are those of a CSR matrix, and outlive the descriptor.
    pub(super) unsafe fn create_csr(&self, matrix: &mut Object, csr: &RawCsr) -> Status {
        let RawCsr { rows, entries, offsets, columns, values, value_type, kind } = *csr;
        // No array of row ends is passed: each row ends where the next one begins. View 0 is the full matrix, base
        // 0 counts rows and columns from zero.
        let (ends, view, base) = (std::ptr::null(), 0, 0);
        match self.create_csr {
            // SAFETY: the arguments of this version; promised by the caller
            CreateCsr::OneType(create) => unsafe {
                create(
                    matrix, rows, rows, entries, offsets, ends, columns, values, INT32, value_type, kind,
                    view, base,
                )
            },
            // SAFETY: as above
            CreateCsr::TwoTypes(create) => unsafe {
                create(
                    matrix, rows, rows, entries, offsets, ends, columns, values, INT32, INT32, value_type,
                    kind, view, base,
                )
            },
        }
    }
}

/// Major, minor and patch version of cuDSS; an error if the library is not found or not supported. Needs no GPU.
pub fn cudss_version() -> Result<(u32, u32, u32)> {
    let (major, minor, patch) = Library::get()?.version;
    Ok((major.unsigned_abs(), minor.unsigned_abs(), patch.unsigned_abs()))
}

/// Returns whether a file of cuDSS is in one of the searched folders. Does not load it, because loading takes longer than
/// many solves. Misses a library that only the cache of the dynamic linker (`ldconfig`) lists.
pub fn cudss_is_found() -> bool {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(library_folders()).collect();
    candidates(&folders).len() > NAMES.len()
}

/// Files to try: the names alone, which the dynamic linker resolves, and the names in folders.
fn candidates(folders: &[PathBuf]) -> Vec<PathBuf> {
    let absolute = || folders.iter().filter(|folder| folder.is_absolute());
    let files = NAMES.iter().flat_map(|name| absolute().map(move |folder| folder.join(name)));
    NAMES.iter().map(PathBuf::from).chain(files.filter(|file| file.exists())).collect()
}

/// Loads the first candidate that can be loaded, and never unloads it. `folders` may have libraries that cuDSS
/// needs and the dynamic linker does not find.
fn load(candidates: &[PathBuf], folders: &[PathBuf]) -> Result<Library> {
    let mut why: Option<String> = None;
    for candidate in candidates {
        match open(candidate, folders) {
            Ok(library) => {
                // SAFETY: the library is cuDSS, and stays loaded
                let found = unsafe { functions(&library) };
                std::mem::forget(library);
                return found;
            }
            // prefer the error about a missing dependency of cuDSS to that about a missing file
            Err(error) if why.is_none() || candidate.is_absolute() || !names_cudss(&error) => {
                why = Some(error);
            }
            Err(_) => {}
        }
    }
    Err(missing(why.unwrap_or_else(|| "no such file was found".into())))
}

fn missing(why: String) -> Error {
    Error::NoCuDss { names: NAMES.join(" or "), why }
}

/// The message of the dynamic linker.
fn reason(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns whether an error of the dynamic linker is about cuDSS, and not about a library that it needs.
fn names_cudss(error: &str) -> bool {
    error.contains("cudss")
}

/// Opens a library. If one that it needs is missing, loads those from `folders`, and tries again.
fn open(file: &Path, folders: &[PathBuf]) -> std::result::Result<libloading::Library, String> {
    // SAFETY: NVIDIA's library, whose initializers have no requirements
    let opened = || unsafe { libloading::Library::new(file) }.map_err(reason);
    let mut outcome = opened();
    for major in (OLDEST_TOOLKIT..=newest_toolkit()).rev() {
        match &outcome {
            Err(error) if !names_cudss(error) => {}
            _ => break,
        }
        for folder in folders.iter().filter(|folder| folder.is_absolute()) {
            for name in ["cublasLt", "cublas", "nvrtc"] {
                let needed = folder.join(format!("lib{name}.so.{major}"));
                if needed.exists() {
                    // SAFETY: as above; it is never unloaded
                    let _ = unsafe { libloading::Library::new(needed) }.map(std::mem::forget);
                }
            }
        }
        outcome = opened();
    }
    outcome
}

/// Looks up all functions.
///
/// # Safety
/// The library is cuDSS, and stays loaded.
unsafe fn functions(library: &libloading::Library) -> Result<Library> {
    // SAFETY: the type is that of the function, in all versions
    let get_property: unsafe extern "C" fn(c_int, *mut c_int) -> Status =
        unsafe { symbol(library, "cudssGetProperty") }?;
    let number = |property| {
        let mut number = 0;
        // SAFETY: writes a number to a local
        let status = unsafe { get_property(property, &mut number) };
        if status == 0 { Ok(number) } else { Err(missing("its version cannot be queried".into())) }
    };
    let version = (number(0)?, number(1)?, number(2)?);
    check_version(version)?;
    let csr = "cudssMatrixCreateCsr";
    // SAFETY: the types of the fields are those of the functions in the supported versions
    unsafe {
        let create: unsafe extern "C" fn(*mut Object) -> Status = symbol(library, "cudssCreate")?;
        Ok(Library {
            version,
            threading: threading_layer(create as *const c_void, version.0),
            create,
            destroy: symbol(library, "cudssDestroy")?,
            set_stream: symbol(library, "cudssSetStream")?,
            set_threading_layer: symbol(library, "cudssSetThreadingLayer")?,
            config_create: symbol(library, "cudssConfigCreate")?,
            config_destroy: symbol(library, "cudssConfigDestroy")?,
            config_set: symbol(library, "cudssConfigSet")?,
            data_create: symbol(library, "cudssDataCreate")?,
            data_destroy: symbol(library, "cudssDataDestroy")?,
            data_get: symbol(library, "cudssDataGet")?,
            execute: symbol(library, "cudssExecute")?,
            matrix_create_dn: symbol(library, "cudssMatrixCreateDn")?,
            matrix_set_values: symbol(library, "cudssMatrixSetValues")?,
            matrix_destroy: symbol(library, "cudssMatrixDestroy")?,
            create_csr: match (version.0, version.1) < SEPARATE_TYPES {
                true => CreateCsr::OneType(symbol(library, csr)?),
                false => CreateCsr::TwoTypes(symbol(library, csr)?),
            },
        })
    }
}

/// Looks up a function.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn symbol<F: Copy>(library: &libloading::Library, name: &str) -> Result<F> {
    // SAFETY: promised by the caller
    unsafe { library.get::<F>(name) }.map(|found| *found).map_err(|error| missing(reason(error)))
}

/// The threading layer in the folder of the library that has this function, loaded for good; `None` if there is none,
/// or OpenMP, which it needs, is missing. cuDSS uses the threads of OpenMP for its analysis if it is given one, else
/// one thread.
#[cfg(target_os = "linux")]
fn threading_layer(function: *const c_void, major: c_int) -> Option<CString> {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: writes a structure to a local, if the result is not zero
    if unsafe { libc::dladdr(function, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: written, and the name lives as long as the library, which stays loaded
    let file = unsafe { CStr::from_ptr(info.assume_init().dli_fname) };
    let folder = Path::new(OsStr::from_bytes(file.to_bytes())).parent()?;
    let layer = folder.join(format!("libcudss_mtlayer_gomp.so.{major}"));
    // cuDSS closes the layer with its handle, while threads of OpenMP still run code of a library that would be
    // unloaded with the layer: keep both loaded
    // SAFETY: NVIDIA's library, whose initializers have no requirements
    unsafe { libloading::Library::new(&layer) }.map(std::mem::forget).ok()?;
    CString::new(layer.into_os_string().into_vec()).ok()
}

#[cfg(not(target_os = "linux"))]
fn threading_layer(_: *const c_void, _: c_int) -> Option<CString> {
    None
}

/// Refuses versions whose functions may have other arguments.
fn check_version((major, minor, patch): (c_int, c_int, c_int)) -> Result<()> {
    if (major, minor) >= OLDEST && major <= NEWEST {
        return Ok(());
    }
    Err(missing(format!("version {major}.{minor}.{patch} was found, expected 0.7, 0.8 or 1.x")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_and_how_to_install_it() {
        let folder = std::env::temp_dir().join("krysp_without_cudss");
        let files: Vec<PathBuf> = ["libcudss.so.1", "libcudss.so.0"].map(|name| folder.join(name)).into();
        let error = load(&files, std::slice::from_ref(&folder)).unwrap_err();
        assert!(matches!(error, Error::NoCuDss { .. }), "{error}");
        let message = error.to_string();
        for part in [NAMES[1], "pip install nvidia-cudss-cu13", "krysp_without_cudss"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn another_library_of_this_name_is_refused() {
        let folder = std::env::temp_dir().join(format!("krysp_other_cudss_{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(NAMES[1]);
        std::fs::write(&file, b"no library").unwrap();
        let found = candidates(&[folder.clone(), PathBuf::from("relative")]);
        assert_eq!(found, [PathBuf::from(NAMES[0]), PathBuf::from(NAMES[1]), file.clone()]);
        let error = load(&[file], &[]).unwrap_err();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(error.to_string().contains("krysp_other_cudss"), "{error}");
    }

    #[test]
    fn versions_with_other_arguments_are_refused() {
        for version in [(0, 7, 1), (0, 8, 0), (1, 0, 0), (1, 3, 0)] {
            assert_eq!(check_version(version), Ok(()));
        }
        for version in [(0, 6, 0), (2, 0, 0)] {
            let message = check_version(version).unwrap_err().to_string();
            assert!(message.contains("expected 0.7, 0.8 or 1.x"), "{message}");
        }
    }
}
