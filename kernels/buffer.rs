//! Arrays in host memory, aligned for SIMD and, when large, backed by huge pages.

use crate::cpu::run::threads::over_rows;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Alignment in bytes: a cache line, which is also the widest SIMD register.
pub(crate) const LINE: usize = 64;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Plain numbers: every bit pattern is a valid value, and the pattern of zero bits is the number zero.
///
/// # Safety
/// Implementors must be valid for any bit pattern, have no padding bytes and no drop glue.
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

/// Views numbers as bytes.
pub fn bytes_of<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers are bytes without padding
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Views numbers as mutable bytes.
pub fn bytes_of_mut<T: Plain>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: plain numbers are bytes without padding, and valid for any bit pattern
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Reinterprets the memory of `numbers` as the same count of numbers of another type, which must not be
/// larger.
pub(crate) fn stored<T: Plain, V: Plain>(numbers: &[T]) -> &[V] {
    const { assert!(size_of::<V>() <= size_of::<T>() && align_of::<V>() <= align_of::<T>()) };
    // SAFETY: the same count of numbers, which are not larger or more strictly aligned, and for which every
    // bit pattern is valid
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

/// Mutable version of [`stored`].
pub(crate) fn stored_mut<T: Plain, V: Plain>(numbers: &mut [T]) -> &mut [V] {
    const { assert!(size_of::<V>() <= size_of::<T>() && align_of::<V>() <= align_of::<T>()) };
    // SAFETY: as in `stored`; the memory is borrowed exclusively
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// An array of fixed length, either aligned to a cache line or adopted from a `Vec` without a copy.
pub struct Buffer<T> {
    start: NonNull<T>,
    len: usize,
    owner: Owner,
}

/// Origin of the memory, which determines how it is freed.
enum Owner {
    Aligned { base: NonNull<u8>, layout: Layout },
    Vec { capacity: usize },
}

// SAFETY: a buffer owns its memory exclusively and dereferences like a `Vec`
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// Allocates an array of zeros.
    pub fn zeros(len: usize) -> Buffer<T> {
        Buffer::try_zeros(len)
            .unwrap_or_else(|| handle_alloc_error(Layout::array::<T>(len).unwrap_or(Layout::new::<T>())))
    }

    /// Allocates an array of zeros, or returns `None` if the allocation fails. The system maps a page of a
    /// large array when a thread first writes to it.
    pub fn try_zeros(len: usize) -> Option<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>())?;
        if bytes == 0 {
            return Some(Buffer::from(Vec::new()));
        }
        // `alloc_zeroed` with an alignment beyond the default clears the memory itself, on one thread and in
        // small pages. Large arrays therefore request default alignment plus one huge page to align within;
        // the system then supplies zero pages on first touch by the threads.
        let huge = bytes >= 2 * HUGE;
        let (size, align) = if huge { (bytes.checked_add(HUGE)?, align_of::<T>()) } else { (bytes, LINE) };
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the layout is not empty
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped = if huge { base.addr().get().wrapping_neg() % HUGE } else { 0 };
        // SAFETY: fewer bytes than the additional huge page are skipped; zero bits are a value of `T`
        let start = unsafe { base.add(skipped) }.cast::<T>();
        if huge {
            advise_huge_pages(start.as_ptr().cast(), bytes);
        }
        Some(Buffer { start, len, owner: Owner::Aligned { base, layout } })
    }

    /// Copies a slice, on all threads.
    pub fn copy_of(slice: &[T]) -> Buffer<T> {
        let mut buffer = Buffer::zeros(slice.len());
        over_rows(slice.len(), 2, &mut *buffer, &|range, part: &mut [T]| part.copy_from_slice(&slice[range]));
        buffer
    }
}

/// Requests huge pages for a large array, which reduces TLB misses of gathers. Call it before the first
/// write: the system can supply huge pages only for pages not yet touched. Failure changes nothing.
pub fn in_huge_pages<X>(numbers: &mut [X]) {
    let (start, bytes) = (numbers.as_mut_ptr().cast::<u8>(), size_of_val(numbers));
    let skipped = start.addr().wrapping_neg() % HUGE;
    if bytes >= skipped + 2 * HUGE {
        advise_huge_pages(start.wrapping_add(skipped), (bytes - skipped) / HUGE * HUGE);
    }
}

/// Views a slice as atomics, for threads that write to distinct positions.
pub fn shared(numbers: &mut [u32]) -> &[AtomicU32] {
    // SAFETY: same size and alignment; the slice is borrowed exclusively for the lifetime of the result
    unsafe { std::slice::from_raw_parts(numbers.as_mut_ptr().cast(), numbers.len()) }
}

/// Requests huge pages, which reduce TLB misses of gathers. Failure changes nothing.
fn advise_huge_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the range is part of a live allocation, and the advice does not change its content
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
            // SAFETY: these are the parts of the `Vec` that the buffer was created from
            Owner::Vec { capacity } => unsafe {
                drop(Vec::from_raw_parts(self.start.as_ptr(), self.len, capacity));
            },
        }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the buffer owns `len` initialized values from `start` on
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
