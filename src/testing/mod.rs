//! Matrix generators, laws, and paths of matrix files for tests and benches (feature `testing`).

pub mod laws;
pub mod matrices;

#[cfg(feature = "cuda")]
pub use krysp_kernels::cuda::{Created, created};

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of the shared matrix `name` (`heat_tiny`, `bcsstk01`, `heat_sink_p1_27k_b`, ...), or `None` if the folder
/// of shared matrices does not have it. A caller reports a missing matrix and does not fail. The folder is
/// `../shared/matrices`, or the one that the variable `KRYSP_MATRICES` names.
pub fn shared_matrix(name: &str) -> Option<PathBuf> {
    let root = shared_matrices();
    let file = format!("{name}.mtx.gz");
    SHARED_FOLDERS.iter().map(|folder| root.join(folder).join(&file)).find(|path| path.is_file())
}

/// The subfolders of the folder of shared matrices.
pub const SHARED_FOLDERS: [&str; 4] = ["", "fem", "fem/tiny", "real"];

/// The folder of shared matrices: `../shared/matrices`, or the one that the variable `KRYSP_MATRICES` names.
pub fn shared_matrices() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/matrices");
    std::env::var_os("KRYSP_MATRICES").map_or_else(beside, PathBuf::from)
}

/// Reports that a test, or a part of one, was skipped, and why. Writes to stderr directly, because test harnesses hide
/// what a passing test prints.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    // an error is ignored: stderr may be closed
    let _ = writeln!(std::io::stderr(), "skipped: {why} [{}]", thread.name().unwrap_or("unnamed thread"));
}

#[cfg(test)]
mod tests {
    use super::{shared_matrix, skipped};

    #[test]
    fn a_matrix_that_does_not_exist_is_absent() {
        assert_eq!(shared_matrix("no such matrix"), None);
    }

    #[test]
    fn shared_matrices_are_found_in_every_folder() {
        if shared_matrix("bcsstk01").is_none() {
            skipped("no folder of shared matrices");
            return;
        }
        for name in ["heat_sink_p1_27k", "heat_tiny", "bcsstk01"] {
            assert!(shared_matrix(name).is_some(), "{name}");
        }
    }
}
