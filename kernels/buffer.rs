//! Arrays in host memory, aligned for SIMD and, when large, backed by huge pages.

use crate::cpu::run::threads::over_rows;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A cache line, and the widest register.
const LINE: usize = 64;
/// The size of a huge page.
const HUGE: usize = 2 << 20;

/// Plain numbers: every bit pattern is a value, zero bits are zero.
///
/// # Safety
/// Implementors must be valid for any bit pattern and have no drop glue.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: primitive numbers are valid for any bit pattern
unsafe impl Plain for u8 {}
// SAFETY: as above
unsafe impl Plain for u16 {}
// SAFETY: as above
unsafe impl Plain for u32 {}
// SAFETY: as above
unsafe impl Plain for u64 {}
// SAFETY: as above
unsafe impl Plain for f32 {}
// SAFETY: as above
unsafe impl Plain for f64 {}

/// The bytes of plain numbers.
pub fn bytes_of<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers are bytes without gaps
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The bytes of plain numbers.
pub fn bytes_of_mut<T: Plain>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: plain numbers are bytes without gaps, and valid for any bit pattern
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// As many numbers of no more bits, where numbers of `T` have room.
pub(crate) fn stored<T: Plain, V: Plain>(numbers: &[T]) -> &[V] {
    const { assert!(size_of::<V>() <= size_of::<T>() && align_of::<V>() <= align_of::<T>()) };
    // SAFETY: as many numbers of no more bytes and no stricter alignment, valid for any bit pattern
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// As [`stored`], to be written.
pub(crate) fn stored_mut<T: Plain, V: Plain>(numbers: &mut [T]) -> &mut [V] {
    const { assert!(size_of::<V>() <= size_of::<T>() && align_of::<V>() <= align_of::<T>()) };
    // SAFETY: as in `stored`, of memory that is borrowed alone
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// An array of fixed length: aligned to a cache line, or adopted from a `Vec` as it is.
pub struct Buffer<T> {
    start: NonNull<T>,
    len: usize,
    owner: Owner,
}

/// How the memory was obtained, and so how it is given back.
enum Owner {
    Aligned { base: NonNull<u8>, layout: Layout },
    Vec { capacity: usize },
}

// SAFETY: a buffer owns its memory and gives access by the rules of references
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// Zeros.
    pub fn zeros(len: usize) -> Buffer<T> {
        let bytes = len * size_of::<T>();
        if bytes == 0 {
            return Buffer::from(Vec::new());
        }
        // asked for an alignment, the allocator writes the zeros itself, on one thread and in small pages: large arrays
        // ask for room to align in, and their pages come from the system when threads first write there
        let huge = bytes >= 2 * HUGE;
        let (size, align) = if huge { (bytes + HUGE, align_of::<T>()) } else { (bytes, LINE) };
        let Ok(layout) = Layout::from_size_align(size, align) else { handle_alloc_error(Layout::new::<T>()) };
        // SAFETY: the layout is not empty
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        let skipped = if huge { base.addr().get().wrapping_neg() % HUGE } else { 0 };
        // SAFETY: less than a huge page is skipped, which was asked for on top; zero bits are a value of `T`
        let start = unsafe { base.add(skipped) }.cast::<T>();
        if huge {
            advise_huge_pages(start.as_ptr().cast(), bytes);
        }
        Buffer { start, len, owner: Owner::Aligned { base, layout } }
    }

    /// A copy of a slice.
    pub fn copy_of(slice: &[T]) -> Buffer<T> {
        let mut buffer = Buffer::zeros(slice.len());
        over_rows(slice.len(), 2, &mut *buffer, &|range, part: &mut [T]| part.copy_from_slice(&slice[range]));
        buffer
    }
}

/// Asks for huge pages for a large array before anybody writes to it: there are few to be had from the system then, and gathers
/// miss few translations. Advice only.
pub fn in_huge_pages<X>(numbers: &mut [X]) {
    let (start, bytes) = (numbers.as_mut_ptr().cast::<u8>(), size_of_val(numbers));
    let skipped = start.addr().wrapping_neg() % HUGE;
    if bytes >= skipped + 2 * HUGE {
        advise_huge_pages(start.wrapping_add(skipped), (bytes - skipped) / HUGE * HUGE);
    }
}

/// The numbers of a slice, for threads that write at places of their own.
pub fn shared(numbers: &mut [u32]) -> &[AtomicU32] {
    // SAFETY: the same size and alignment, borrowed alone for as long
    unsafe { std::slice::from_raw_parts(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// Asks for huge pages, which spare gathers most of their translation misses. Advice only: failure changes nothing.
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the range was just allocated, and advice does not change what memory holds
    unsafe {
        libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(mut vec: Vec<T>) -> Buffer<T> {
        let start = NonNull::new(vec.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let (len, capacity) = (vec.len(), vec.capacity());
        std::mem::forget(vec);
        Buffer { start, len, owner: Owner::Vec { capacity } }
    }
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Buffer::from(Vec::new())
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: allocated with this layout; plain numbers need no drop
            Owner::Aligned { base, layout } => unsafe { dealloc(base.as_ptr(), layout) },
            // SAFETY: these are the parts of the `Vec` it was made from
            Owner::Vec { capacity } => unsafe {
                drop(Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity));
            },
        }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the buffer owns `len` initialised values from `start` on
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer::copy_of(self)
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Buffer<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zero_and_aligned() {
        for len in [0, 1, 7, 1000, HUGE] {
            let buffer = Buffer::<f64>::zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&v| v == 0.0));
            let align = if len >= HUGE { HUGE } else { LINE };
            assert!(len == 0 || (buffer.as_ptr() as usize).is_multiple_of(align));
            assert_eq!(*buffer.clone(), *buffer);
        }
    }

    #[test]
    fn a_vec_is_adopted_without_copying() {
        let mut vec = Vec::with_capacity(10);
        vec.extend([1.5, 2.5]);
        let address = vec.as_ptr();
        let mut buffer = Buffer::from(vec);
        assert_eq!(buffer.as_ptr(), address);
        buffer[0] = 3.0;
        assert_eq!(*buffer.clone(), [3.0, 2.5]);
    }
}
