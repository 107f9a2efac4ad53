//! Files as slices.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The content of a regular file, mapped into memory: pages are read when first touched, and never copied.
///
/// The file must keep its length and content while the map lives; see the safety comment for what happens
/// otherwise.
///
/// # Errors
/// If the operating system cannot map the file.
pub fn map_file(file: &File) -> io::Result<impl Deref<Target = [u8]> + use<>> {
    // SAFETY: The map is read-only and lives as long as the result. That the file is not changed meanwhile is
    // the caller's part, and documented; Rust cannot check it of other processes. What happens if they do:
    // truncation ends this process by a signal (SIGBUS) on the first touch of a lost page, before any wrong
    // byte is seen; rewriting shows different bytes on a second look, which is outside Rust's memory model.
    // The parser of these maps indexes with checks only and takes no address from the bytes, so that in
    // practice it ends in wrong numbers, an error or a panic. A caller that needs more reads the file into a buffer and
    // parses that.
    unsafe { Mmap::map(file) }
}
