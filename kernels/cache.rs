//! Cache folder for data that depends on this machine and persists between runs: calibrated cost models and
//! compiled GPU kernels.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns `$KRYSP_CACHE`, `$XDG_CACHE_HOME/krysp` or `$HOME/.cache/krysp`, whichever is set first; `None` if
/// no variable is set.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("KRYSP_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("krysp")))
        .or_else(|| Some(set("HOME")?.join(".cache/krysp")))
}

/// Writes a file atomically and creates its folder if necessary. Other processes see either the old file or
/// the complete new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(&part, path)
}
