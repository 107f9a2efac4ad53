//! AVX-512: registers of 512 bits with masks and hardware gathers.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(not(target_arch = "x86_64"))]
use crate::cpu::simd::Simd;
use crate::cpu::simd::Task;

/// AVX-512 foundation and vector-length extensions.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[cfg(not(target_arch = "x86_64"))]
impl Simd for Avx512 {
    type F32 = crate::cpu::simd::portable::Array<f32, 4>;
    type F64 = crate::cpu::simd::portable::Array<f64, 4>;
    const FUSED: bool = false;
    const SUMS_HALVES: bool = false;

    unsafe fn fence() {}

    fn prefetch<T>(_: *const T) {}
}

impl Avx512 {
    pub(crate) fn available() -> bool {
        #[cfg(target_arch = "x86_64")]
        return is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi2");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// # Safety
    /// The CPU must have AVX-512 F and VL, FMA and BMI2.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512vl,avx2,fma,bmi2"))]
    pub(crate) unsafe fn run<K: Task>(task: K) -> K::Output {
        // SAFETY: this function has the target features that the task needs
        unsafe { task.run::<Avx512>() }
    }
}

#[cfg(target_arch = "x86_64")]
mod lanes {
    use super::Avx512;
    use crate::cpu::simd::{Lanes, Simd};
    use std::arch::x86_64::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Cached answer of [`loads_are_faster`], or `UNKNOWN`.
    static LOADS: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const FASTER: u8 = 1;
    const SLOWER: u8 = 2;

    /// Returns whether scalar loads are faster than the gather instruction for data in cache. True on AMD processors:
    /// on a Zen 4, products with scalar loads take 0.7 to 0.9 of the time with gathers (CSR of
    /// `elast_bracket_p1_59k` and `convdiff_channel_p1_186k`), and 0.7 for SELL-P with 16-bit columns (`p7_64`
    /// in f32). Other processors were not measured and use gathers. `gather_near` (CSR) and, in f32,
    /// `gather_short` (16-bit columns) depend on this; other gathers always use the instruction.
    #[inline(always)]
    fn loads_are_faster() -> bool {
        match LOADS.load(Ordering::Relaxed) {
            UNKNOWN => query(),
            known => known == FASTER,
        }
    }

    #[cold]
    #[inline(never)]
    fn query() -> bool {
        // SAFETY: every x86-64 CPU has the instruction
        #[allow(unused_unsafe, reason = "the oldest supported compiler requires it, newer ones do not")]
        let vendor = unsafe { __cpuid(0) };
        let faster = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
        LOADS.store(if faster { FASTER } else { SLOWER }, Ordering::Relaxed);
        faster
    }

    /// Gathers `base[index[lane]]` with scalar loads.
    ///
    /// # Safety
    /// The requirements are those of [`Lanes::gather`].
    #[inline(always)]
    unsafe fn loaded_pd<I: Copy + Into<u32>>(base: *const f64, index: *const I) -> __m512d {
        // SAFETY: the caller's contract is the same
        unsafe {
            let at = |i: usize| base.add((*index.add(i)).into() as usize);
            let half = |i: usize| {
                let low = _mm_loadh_pd(_mm_load_sd(at(i)), at(i + 1));
                _mm256_set_m128d(_mm_loadh_pd(_mm_load_sd(at(i + 2)), at(i + 3)), low)
            };
            _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(half(0)), half(4))
        }
    }

    /// Single-precision version of [`loaded_pd`].
    ///
    /// # Safety
    /// The requirements are those of [`Lanes::gather`].
    #[inline(always)]
    unsafe fn loaded_ps<I: Copy + Into<u32>>(base: *const f32, index: *const I) -> __m512 {
        // SAFETY: the caller's contract is the same
        unsafe {
            let at = |i: usize| *base.add((*index.add(i)).into() as usize);
            let half = |i: usize| {
                let low = _mm_setr_ps(at(i), at(i + 1), at(i + 2), at(i + 3));
                let high = _mm_setr_ps(at(i + 4), at(i + 5), at(i + 6), at(i + 7));
                _mm256_castps_pd(_mm256_set_m128(high, low))
            };
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(half(0)), half(8)))
        }
    }

    impl Simd for Avx512 {
        type F32 = F32x16;
        type F64 = F64x8;
        const FUSED: bool = true;

        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: every x86-64 CPU has the instruction
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        unsafe fn widen(from: *const f32) -> F64x8 {
            // SAFETY: the caller's contract is the same
            unsafe { F64x8(_mm512_cvtps_pd(_mm256_loadu_ps(from))) }
        }

        #[inline(always)]
        unsafe fn widen_first(from: *const f32, count: usize) -> F64x8 {
            // SAFETY: the caller's contract is the same; masked lanes are not read
            unsafe { F64x8(_mm512_cvtps_pd(_mm256_maskz_loadu_ps(first_of_8(count), from))) }
        }

        #[inline(always)]
        fn prefetch<T>(at: *const T) {
            // SAFETY: every x86-64 CPU has the instruction, and it has no architectural effect
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    #[derive(Clone, Copy)]
    pub(crate) struct F64x8(__m512d);
    #[derive(Clone, Copy)]
    pub(crate) struct F32x16(__m512);

    /// Mask of the first `count ≤ 8` lanes.
    #[inline(always)]
    fn first_of_8(count: usize) -> __mmask8 {
        ((1u16 << count) - 1) as __mmask8
    }

    /// Mask of the first `count ≤ 16` lanes.
    #[inline(always)]
    fn first_of_16(count: usize) -> __mmask16 {
        ((1u32 << count) - 1) as __mmask16
    }

    // SAFETY of every block below: the caller ensures CPU features and valid pointers, as the trait requires.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
    impl Lanes<f64> for F64x8 {
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(value: f64) -> Self {
            unsafe { F64x8(_mm512_set1_pd(value)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f64) -> Self {
            unsafe { F64x8(_mm512_loadu_pd(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f64, count: usize) -> Self {
            unsafe { F64x8(_mm512_maskz_loadu_pd(first_of_8(count), from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f64) {
            unsafe { _mm512_storeu_pd(to, self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut f64) {
            unsafe { _mm512_stream_pd(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f64, count: usize) {
            unsafe { _mm512_mask_storeu_pd(to, first_of_8(count), self.0) }
        }

        #[inline(always)]
        unsafe fn gather(base: *const f64, index: *const u32) -> Self {
            unsafe { F64x8(_mm512_i32gather_pd::<8>(_mm256_loadu_si256(index.cast()), base)) }
        }

        #[inline(always)]
        unsafe fn gather_near(base: *const f64, index: *const u32) -> Self {
            match loads_are_faster() {
                true => unsafe { F64x8(loaded_pd(base, index)) },
                false => unsafe { Self::gather(base, index) },
            }
        }

        #[inline(always)]
        unsafe fn gather_short(base: *const f64, index: *const u16) -> Self {
            unsafe {
                F64x8(_mm512_i32gather_pd::<8>(_mm256_cvtepu16_epi32(_mm_loadu_si128(index.cast())), base))
            }
        }

        #[inline(always)]
        unsafe fn gather_first(base: *const f64, index: *const u32, count: usize) -> Self {
            unsafe {
                let mask = first_of_8(count);
                let index = _mm256_maskz_loadu_epi32(mask, index.cast());
                F64x8(_mm512_mask_i32gather_pd::<8>(_mm512_setzero_pd(), mask, index, base))
            }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { F64x8(_mm512_fmadd_pd(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { F64x8(_mm512_mul_pd(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            unsafe { F64x8(_mm512_add_pd(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f64 {
            unsafe { _mm512_reduce_add_pd(self.0) }
        }
    }

    // SAFETY of every block below: the caller ensures CPU features and valid pointers, as the trait requires.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
    impl Lanes<f32> for F32x16 {
        const COUNT: usize = 16;

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { F32x16(_mm512_set1_ps(value)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { F32x16(_mm512_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> Self {
            unsafe { F32x16(_mm512_maskz_loadu_ps(first_of_16(count), from)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut f32) {
            unsafe { _mm512_stream_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            unsafe { _mm512_mask_storeu_ps(to, first_of_16(count), self.0) }
        }

        #[inline(always)]
        unsafe fn gather(base: *const f32, index: *const u32) -> Self {
            unsafe { F32x16(_mm512_i32gather_ps::<4>(_mm512_loadu_si512(index.cast()), base)) }
        }

        #[inline(always)]
        unsafe fn gather_near(base: *const f32, index: *const u32) -> Self {
            match loads_are_faster() {
                true => unsafe { F32x16(loaded_ps(base, index)) },
                false => unsafe { Self::gather(base, index) },
            }
        }

        #[inline(always)]
        unsafe fn gather_short(base: *const f32, index: *const u16) -> Self {
            if loads_are_faster() {
                return unsafe { F32x16(loaded_ps(base, index)) };
            }
            unsafe {
                F32x16(_mm512_i32gather_ps::<4>(
                    _mm512_cvtepu16_epi32(_mm256_loadu_si256(index.cast())),
                    base,
                ))
            }
        }

        #[inline(always)]
        unsafe fn gather_first(base: *const f32, index: *const u32, count: usize) -> Self {
            unsafe {
                let mask = first_of_16(count);
                let index = _mm512_maskz_loadu_epi32(mask, index.cast());
                F32x16(_mm512_mask_i32gather_ps::<4>(_mm512_setzero_ps(), mask, index, base))
            }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { F32x16(_mm512_fmadd_ps(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { F32x16(_mm512_mul_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            unsafe { F32x16(_mm512_add_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe { _mm512_reduce_add_ps(self.0) }
        }
    }
}
