//! Matrix generators, laws, and paths of matrix files for tests and benches (feature `testing`).

pub mod laws;
pub mod matrices;

#[cfg(feature = "cuda")]
pub use krysp_kernels::cuda::{Created, created};

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of the shared matrix `name` (`heat_tiny`, `bcsstk01`, `heat_sink_p1_27k_b`, ...), or `None` if it
/// is not in the folder [`shared_matrices`]. Tests call [`needed_matrix`].
pub fn shared_matrix(name: &str) -> Option<PathBuf> {
    let root = shared_matrices();
    let file = format!("{name}.mtx.gz");
    SHARED_FOLDERS.iter().map(|folder| root.join(folder).join(&file)).find(|path| path.is_file())
}

/// The subfolders of the folder of shared matrices.
pub const SHARED_FOLDERS: [&str; 4] = ["", "fem", "fem/tiny", "real"];

/// The folder of shared matrices: `../shared/matrices`, or the folder named by the environment variable
/// `KRYSP_MATRICES`.
pub fn shared_matrices() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/matrices");
    std::env::var_os("KRYSP_MATRICES").map_or_else(beside, PathBuf::from)
}

/// The file of a shared matrix that a test needs. If it is missing, reports a skipped test and returns
/// `None`; the caller must skip what needs the matrix. With `KRYSP_REQUIRE_MATRICES=1` in the environment,
/// the test fails instead.
///
/// # Panics
/// If the matrix is missing and required.
pub fn needed_matrix(name: &str) -> Option<PathBuf> {
    let path = shared_matrix(name);
    if path.is_none() {
        let folder = shared_matrices();
        skipped_unless_required(
            "KRYSP_REQUIRE_MATRICES",
            &format!("no matrix {name} in {}", folder.display()),
        );
    }
    path
}

/// Reports a skipped test like [`skipped`], or fails the test if the environment variable `variable` is 1.
///
/// # Panics
/// If the variable is 1.
pub fn skipped_unless_required(variable: &str, why: &str) {
    let required = std::env::var_os(variable).is_some_and(|value| value == "1");
    assert!(!required, "{why}, and {variable}=1 requires it");
    skipped(why);
}

/// Reports that a test, or a part of one, was skipped, and why: `skipped: why [name of the test]`. Writes to
/// stderr directly, because test harnesses hide what a passing test prints.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    // an error is ignored: stderr may be closed
    let _ = writeln!(std::io::stderr(), "skipped: {why} [{}]", thread.name().unwrap_or("unnamed thread"));
}

#[cfg(test)]
mod tests {
    use super::{needed_matrix, shared_matrix, skipped_unless_required};

    #[test]
    fn a_matrix_that_does_not_exist_is_absent() {
        assert_eq!(shared_matrix("no such matrix"), None);
    }

    /// Runs this test program in a new process with the environment variable set, because setting the
    /// variable in this process would affect other tests.
    #[test]
    fn what_is_required_and_missing_fails_the_test() {
        const REQUIRED: &str = "KRYSP_REQUIRE_FOR_TEST";
        if std::env::var_os(REQUIRED).is_some() {
            return skipped_unless_required(REQUIRED, "a file");
        }
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "testing::tests::what_is_required_and_missing_fails_the_test"])
            .env(REQUIRED, "1")
            .output()
            .unwrap();
        assert!(!again.status.success());
    }

    #[test]
    fn shared_matrices_are_found_in_every_folder() {
        if needed_matrix("bcsstk01").is_none() {
            return;
        }
        for name in ["heat_sink_p1_27k", "heat_tiny", "bcsstk01"] {
            assert!(shared_matrix(name).is_some(), "{name}");
        }
    }
}
