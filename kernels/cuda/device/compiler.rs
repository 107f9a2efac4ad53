//! Search for NVRTC, NVIDIA's run-time compiler, in folders that the dynamic linker does not search.
//!
//! cudarc opens NVRTC by its name. The dynamic linker resolves that name to a library of this name that the
//! process has already loaded, from any folder; so [`is_present`] loads NVRTC once by its path.

use crate::cuda::device::gpu;
use cudarc::nvrtc::sys;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Folders added by [`look_for_compiler_in`].
static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The oldest major version whose NVRTC compiles these kernels.
const OLDEST: u32 = 12;
/// The newest major version, unless the driver reports a newer one.
const NEWEST: u32 = 13;

/// Adds a folder to those that are searched for NVRTC, and for cuDSS, if the dynamic linker finds none on its
/// search path. Of several versions of NVRTC, the newest that the driver supports is loaded.
///
/// Always searched: `lib64` and `lib` in `$CUDA_HOME`, `$CUDA_PATH` and `/usr/local/cuda`, and
/// `$CONDA_PREFIX/lib`.
pub fn look_for_compiler_in(folder: impl Into<PathBuf>) {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner).push(folder.into());
}

/// Major and minor version of NVRTC; `None` if NVRTC is not found.
pub fn compiler_version() -> Option<(u32, u32)> {
    if !is_present() {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present, and both numbers are written to locals
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().ok()?;
    Some((major.try_into().ok()?, minor.try_into().ok()?))
}

/// Returns whether NVRTC can be called. If not, every call of it would panic.
pub(crate) fn is_present() -> bool {
    static PRESENT: OnceLock<()> = OnceLock::new();
    // SAFETY: opens a library, whose initializers have no requirements
    let by_name = || unsafe { sys::is_culib_present() };
    if PRESENT.get().is_none() && (by_name() || (load_from(&folders(), newest()) && by_name())) {
        let _ = PRESENT.set(());
    }
    PRESENT.get().is_some()
}

/// The newest major version that the driver supports. The driver rejects code of a newer compiler.
pub(crate) fn newest() -> u32 {
    gpu::driver_version().map_or(NEWEST, |version| version / 1000)
}

/// Folders in which libraries of NVIDIA are searched for.
pub(crate) fn folders() -> Vec<PathBuf> {
    let mut folders = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH"), Some("/usr/local/cuda".into())];
    folders
        .extend(toolkits.into_iter().flatten().flat_map(|folder| [folder.join("lib64"), folder.join("lib")]));
    folders.extend(variable("CONDA_PREFIX").map(|folder| folder.join("lib")));
    folders
}

/// Loads the first candidate that can be loaded, and never unloads it.
fn load_from(folders: &[PathBuf], newest: u32) -> bool {
    let mut all = candidates(folders, newest);
    all.any(|(folder, major)| {
        // load NVRTC's second library by its path, too: NVRTC opens it by its name
        let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_builtins = |name: &str| name.starts_with(&format!("libnvrtc-builtins.so.{major}."));
        for file in beside.filter(|file| file.file_name().to_str().is_some_and(is_builtins)) {
            load(&file.path());
        }
        load(&folder.join(library(major)))
    })
}

fn load(path: &Path) -> bool {
    // SAFETY: NVIDIA's library, whose initializers have no requirements
    unsafe { libloading::Library::new(path) }.map(std::mem::forget).is_ok()
}

/// Pairs of a folder and a major version that the driver supports, the newest version first. Relative folders
/// are skipped, because they depend on the working directory.
fn candidates(folders: &[PathBuf], newest: u32) -> impl Iterator<Item = (&Path, u32)> {
    let absolute = || folders.iter().map(PathBuf::as_path).filter(|folder| folder.is_absolute());
    (OLDEST..=newest).rev().flat_map(move |major| absolute().map(move |folder| (folder, major)))
}

fn library(major: u32) -> String {
    match cfg!(windows) {
        true => format!("nvrtc64_{major}0_0.dll"),
        false => format!("libnvrtc.so.{major}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn the_newest_version_that_the_driver_supports_comes_first() {
        let folders = ["/a", "relative", "/b"].map(PathBuf::from);
        let versions = |newest| candidates(&folders, newest).collect::<Vec<_>>();
        let [a, b] = ["/a", "/b"].map(Path::new);
        assert_eq!(versions(13), [(a, 13), (b, 13), (a, 12), (b, 12)]);
        assert_eq!(versions(12), [(a, 12), (b, 12)]);
        assert!(versions(11).is_empty());
    }
}
