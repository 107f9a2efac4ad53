//! The folder where what was found out about a machine is kept from one program to the next.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// `$KRYSP_CACHE`, or `krysp` among the user's caches; `None` where there is no such place.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("KRYSP_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("krysp")))
        .or_else(|| Some(set("HOME")?.join(".cache/krysp")))
}

/// Writes a file, and its folder if need be. Other processes see the old file or the whole new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(&part, path)
}
