//! Memory-mapped files.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// Maps the content of a regular file into memory. Pages are read when first accessed and never copied.
///
/// The file must keep its length and content while the map lives. If it shrinks, the process is ended by a
/// signal (SIGBUS); if it is rewritten, different bytes may be read for the same position.
///
/// # Errors
/// Fails if the operating system cannot map the file.
pub fn map_file(file: &File) -> io::Result<impl Deref<Target = [u8]> + use<>> {
    // SAFETY: The map is read-only and lives as long as the result. The caller must ensure that the file does
    // not change meanwhile; this is documented, and Rust cannot check it for other processes. If another
    // process changes the file: truncation ends this process by a signal (SIGBUS) on the first access to a
    // lost page, before any wrong byte is read; rewriting shows different bytes on a second read, which is
    // outside Rust's memory model. The parser of these maps indexes with bounds checks only and derives no
    // address from the bytes, so in practice the result is wrong numbers, an error or a panic. Callers that
    // need a guarantee read the file into a buffer and parse that.
    unsafe { Mmap::map(file) }
}
