//! SIMD lanes: one implementation for three register widths, dispatched at run time.
//!
//! A kernel is a [`Task`] written against [`Lanes`]; [`run`] instantiates it for the SIMD level in use,
//! inside a function that has the level's target features. Every function between [`run`] and the methods of
//! [`Lanes`] must be `#[inline(always)]`, or it is compiled without these features. A closure cannot have
//! this attribute, and one that uses lanes may call a function for each of their instructions: write loops
//! instead.

mod avx2;
mod avx512;
pub mod bf16;
mod portable;
pub mod storage;

use crate::buffer::Plain;
use crate::cpu::simd::avx2::Avx2;
use crate::cpu::simd::avx512::Avx512;
use crate::cpu::simd::bf16::Bf16;
use crate::cpu::simd::portable::Portable;
use crate::cpu::simd::storage::{Storage, one_by_one};
use crate::cpu::tuning::PREFETCH_BYTES;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// A floating-point type that lanes hold: `f32` or `f64`.
pub trait Value: Plain + num_traits::Float + num_traits::NumAssign + fmt::Debug + Default {
    /// Register of this type at a SIMD level.
    type In<S: Simd>: Lanes<Self>;
    /// 32-bit storage type.
    type Single: Storage<Self>;
    /// 16-bit storage type.
    type Half: Storage<Self>;
}

impl Value for f32 {
    type In<S: Simd> = S::F32;
    type Single = f32;
    type Half = Bf16;
}

impl Value for f64 {
    type In<S: Simd> = S::F64;
    type Single = f32;
    type Half = Bf16;
}

/// Largest number of lanes of any register.
pub(crate) const MOST_LANES: usize = 16;

/// A SIMD level: its register types.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of `f32`.
    type F32: Lanes<f32>;
    /// Lanes of `f64`.
    type F64: Lanes<f64>;
    /// Makes non-temporal stores visible to other threads.
    ///
    /// # Safety
    /// Needs a CPU with the level's features.
    unsafe fn fence();
    /// Loads a register of `f32` values and converts them to `f64`.
    ///
    /// # Safety
    /// The requirements are those of [`Lanes::load`].
    #[inline(always)]
    unsafe fn widen(from: *const f32) -> Self::F64 {
        // SAFETY: the caller's contract is the same
        unsafe { Self::widen_first(from, Self::F64::COUNT) }
    }
    /// Loads and converts the first `count ≤ COUNT` values; the other lanes are zero.
    ///
    /// # Safety
    /// The requirements are those of [`Lanes::load_first`].
    #[inline(always)]
    unsafe fn widen_first(from: *const f32, count: usize) -> Self::F64 {
        // SAFETY: the caller's contract is the same; no register has more lanes than `one_by_one` returns
        unsafe { Self::F64::load(one_by_one(from, count).as_ptr()) }
    }
    /// Prefetches the cache line at an address; the address need not be valid.
    fn prefetch<T>(at: *const T);
    /// True if multiply-add is one instruction, with a single rounding.
    const FUSED: bool;
    /// True if [`Lanes::sum`] adds the upper half of the lanes to the lower half until one lane is left. If
    /// not, lanes are added one after the other.
    const SUMS_HALVES: bool = true;

    /// Prefetches the part of a stream that lies the prefetch distance ahead of the `count` values read now.
    #[inline(always)]
    fn prefetch_ahead<T>(at: *const T, count: usize) {
        for line in (0..count * size_of::<T>()).step_by(64) {
            Self::prefetch(at.wrapping_byte_add(PREFETCH_BYTES + line));
        }
    }

    /// Prefetches entries of `x` at some columns.
    #[inline(always)]
    fn prefetch_at<T>(x: *const T, columns: &[u32]) {
        for &column in columns {
            Self::prefetch(x.wrapping_add(column as usize));
        }
    }

    /// `a b + c`, rounded as [`Lanes::mul_add`] does.
    #[inline(always)]
    fn mul_add<T: Value>(a: T, b: T, c: T) -> T {
        if Self::FUSED { a.mul_add(b, c) } else { a * b + c }
    }
}

/// A SIMD register.
///
/// # Safety
/// Every function needs a CPU with the level's features, and pointers that are valid for the lanes it
/// accesses.
#[allow(clippy::missing_safety_doc, reason = "stated once above")]
pub trait Lanes<T>: Copy {
    /// Number of lanes.
    const COUNT: usize;
    /// Register with one value in all lanes.
    unsafe fn splat(value: T) -> Self;
    /// Loads from unaligned memory.
    unsafe fn load(from: *const T) -> Self;
    /// Loads the first `count ≤ COUNT` values; the other lanes are zero.
    unsafe fn load_first(from: *const T, count: usize) -> Self;
    /// Stores to unaligned memory.
    unsafe fn store(self, to: *mut T);
    /// Stores to memory aligned to the register, with a non-temporal store if the level has one.
    unsafe fn stream(self, to: *mut T);
    /// Stores the first `count < COUNT` lanes.
    unsafe fn store_first(self, to: *mut T, count: usize);
    /// Gathers `base[index[lane]]`.
    unsafe fn gather(base: *const T, index: *const u32) -> Self;
    /// Like [`Lanes::gather`], for entries that are likely in cache.
    #[inline(always)]
    unsafe fn gather_near(base: *const T, index: *const u32) -> Self {
        // SAFETY: the caller's contract is the same
        unsafe { Self::gather(base, index) }
    }
    /// Gathers `base[index[lane]]` with 16-bit indices.
    unsafe fn gather_short(base: *const T, index: *const u16) -> Self;
    /// Gathers `base[index[lane]]` in the first `count ≤ COUNT` lanes; the others are zero. All `COUNT`
    /// indices must be readable and valid.
    unsafe fn gather_first(base: *const T, index: *const u32, count: usize) -> Self;
    /// `self · b + c`, with a single rounding if the hardware has fused multiply-add.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// `self · b`
    unsafe fn mul(self, b: Self) -> Self;
    /// `self + b`
    unsafe fn add(self, b: Self) -> Self;
    /// Sum over the lanes, in a fixed order.
    unsafe fn sum(self) -> T;
}

/// A computation on SIMD lanes.
pub trait Task {
    /// Result of the computation.
    type Output;

    /// Runs the computation. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU must have the features of `S`.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// A SIMD level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Arrays of numbers, vectorized by the compiler.
    Portable = 1,
    /// 256-bit registers with fused multiply-add.
    Avx2 = 2,
    /// 512-bit registers with masks.
    Avx512 = 3,
}

impl Level {
    /// List of all levels.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The best level of this CPU.
    pub fn best() -> Level {
        if Avx512::available() {
            Level::Avx512
        } else if Avx2::available() {
            Level::Avx2
        } else {
            Level::Portable
        }
    }

    /// Returns whether this CPU supports the level.
    pub fn available(self) -> bool {
        self <= Level::best()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        })
    }
}

/// SIMD level set by the environment variable `KRYSP_SIMD`, meant for bug reports: `portable`, `avx2` or
/// `avx512`. `None` if the variable is not set. Read once, at the first call or the first operation.
///
/// # Errors
/// A message if the name is unknown or this CPU lacks the level. [`level`] then is the best level of the CPU.
pub fn requested() -> Result<Option<Level>, String> {
    static REQUESTED: OnceLock<Result<Option<Level>, String>> = OnceLock::new();
    let read =
        || std::env::var_os("KRYSP_SIMD").map_or(Ok(None), |name| named(&name.to_string_lossy()).map(Some));
    REQUESTED.get_or_init(read).clone()
}

fn named(name: &str) -> Result<Level, String> {
    let best = Level::best();
    match Level::ALL.into_iter().find(|level| level.to_string() == name) {
        Some(level) if level.available() => Ok(level),
        Some(level) => Err(format!("KRYSP_SIMD is {level}, which this CPU lacks: its best level is {best}")),
        None => Err(format!(
            "KRYSP_SIMD is {name:?}: expected portable, avx2 or avx512; unset, it is {best} here"
        )),
    }
}

/// Level to use unless another one is forced: the requested one, or the best one.
fn usual() -> Level {
    requested().ok().flatten().unwrap_or_else(Level::best)
}

/// Level in use; zero until the first task runs.
static IN_USE: AtomicU8 = AtomicU8::new(0);
/// Number of [`Forced`] guards alive. Threads that want another level wait on [`RELEASED`].
static HOLDERS: Mutex<usize> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();

/// SIMD level of all tasks: the [`requested`] one if this CPU supports it, otherwise the best one.
pub fn level() -> Level {
    match IN_USE.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => {
            let usual = usual();
            IN_USE.store(usual as u8, Ordering::Relaxed);
            usual
        }
    }
}

/// Guard that makes every task of the process run at one level until the guard is dropped.
#[derive(Debug)]
pub struct Forced(());

/// Forces a level, for tests; `None` if the CPU does not support it. Several guards may hold the same level
/// at a time; blocks while another level is held.
pub fn force(level: Level) -> Option<Forced> {
    if !level.available() {
        return None;
    }
    let holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let another = |holders: &mut usize| *holders > 0 && self::level() != level;
    let mut holders = RELEASED.wait_while(holders, another).unwrap_or_else(PoisonError::into_inner);
    IN_USE.store(level as u8, Ordering::Relaxed);
    *holders += 1;
    Some(Forced(()))
}

impl Drop for Forced {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        *holders -= 1;
        if *holders == 0 {
            IN_USE.store(usual() as u8, Ordering::Relaxed);
            RELEASED.notify_all();
        }
    }
}

/// Runs a task at the level in use.
#[inline]
pub fn run<K: Task>(task: K) -> K::Output {
    match level() {
        // SAFETY: needs no CPU features
        Level::Portable => unsafe { task.run::<Portable>() },
        // SAFETY: `level` returns only levels that the CPU supports
        Level::Avx2 => unsafe { Avx2::run(task) },
        // SAFETY: as above
        Level::Avx512 => unsafe { Avx512::run(task) },
    }
}

/// Prefetches numbers that will be read soon.
#[inline(always)]
pub fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for at in numbers.chunks((64 / size_of::<T>()).max(1)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor of this architecture has the instruction, and it has no architectural
        // effect
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_requested_by_its_name_and_must_be_there() {
        for level in Level::ALL {
            match named(&level.to_string()) {
                Ok(found) => assert!(found == level && level.available()),
                Err(why) => assert!(!level.available() && why.contains("this CPU lacks"), "{why}"),
            }
        }
        for unknown in ["", "AVX-512", "sse2"] {
            assert!(named(unknown).is_err_and(|why| why.contains("expected portable, avx2 or avx512")));
        }
    }
}
