//! What tests and benches share (feature `testing`): matrix generators, and the way to matrix files where
//! there are any.

pub mod laws;
pub mod matrices;

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of the shared matrix `name` (`heat_tiny`, `bcsstk01`, `heat_sink_p1_27k_b`, ...), or `None` where
/// this checkout has no `../shared/matrices` or no such matrix: callers report the absence, they never fail
/// on it. The variable `KRYSP_MATRICES` names another folder to look in.
pub fn shared_matrix(name: &str) -> Option<PathBuf> {
    let root = shared_matrices();
    let file = format!("{name}.mtx.gz");
    SHARED_FOLDERS.iter().map(|folder| root.join(folder).join(&file)).find(|path| path.is_file())
}

/// The parts of the folder of shared matrices.
pub const SHARED_FOLDERS: [&str; 4] = ["", "fem", "fem/tiny", "real"];

/// The folder of shared matrices: `../shared/matrices`, or the one that the variable `KRYSP_MATRICES` names.
pub fn shared_matrices() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/matrices");
    std::env::var_os("KRYSP_MATRICES").map_or_else(beside, PathBuf::from)
}

/// Says that a test, or a part of one, was skipped, and why. Test harnesses hide what a passing test prints; this stands in
/// their output all the same.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    // a closed stderr is no reason to fail
    let _ =
        writeln!(std::io::stderr(), "skipped: {why} [{}]", thread.name().unwrap_or("a thread of its own"));
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
            skipped("no ../shared/matrices beside this checkout");
            return;
        }
        for name in ["heat_sink_p1_27k", "heat_tiny", "bcsstk01"] {
            assert!(shared_matrix(name).is_some(), "{name}");
        }
    }
}
