//! AVX2: registers of 256 bits.
//!
//! Gathers are composed of scalar loads: on the cores measured (Zen 3) these are faster than the gather
//! instruction, which takes a dozen micro-operations more.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(not(target_arch = "x86_64"))]
use crate::cpu::simd::Simd;
use crate::cpu::simd::Task;

/// AVX2 with fused multiply-add.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

#[cfg(not(target_arch = "x86_64"))]
impl Simd for Avx2 {
    type F32 = crate::cpu::simd::portable::Array<f32, 4>;
    type F64 = crate::cpu::simd::portable::Array<f64, 4>;
    const FUSED: bool = false;
    const SUMS_HALVES: bool = false;

    unsafe fn fence() {}

    fn prefetch<T>(_: *const T) {}
}

impl Avx2 {
    pub(crate) fn available() -> bool {
        #[cfg(target_arch = "x86_64")]
        return is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi2");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// # Safety
    /// The CPU must have AVX2, FMA and BMI2.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi2"))]
    pub(crate) unsafe fn run<K: Task>(task: K) -> K::Output {
        // SAFETY: this function has the target features that the task needs
        unsafe { task.run::<Avx2>() }
    }
}

#[cfg(target_arch = "x86_64")]
mod lanes {
    use super::Avx2;
    use crate::cpu::simd::{Lanes, Simd};
    use std::arch::x86_64::*;

    impl Simd for Avx2 {
        type F32 = F32x8;
        type F64 = F64x4;
        const FUSED: bool = true;

        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: every x86-64 CPU has the instruction
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        unsafe fn widen(from: *const f32) -> F64x4 {
            // SAFETY: the caller's contract is the same
            unsafe { F64x4(_mm256_cvtps_pd(_mm_loadu_ps(from))) }
        }

        #[inline(always)]
        unsafe fn widen_first(from: *const f32, count: usize) -> F64x4 {
            // SAFETY: the caller's contract is the same; masked lanes are not read
            unsafe {
                let first = _mm256_castsi256_si128(first_of_8(count));
                F64x4(_mm256_cvtps_pd(_mm_maskload_ps(from, first)))
            }
        }

        #[inline(always)]
        fn prefetch<T>(at: *const T) {
            // SAFETY: every x86-64 CPU has the instruction, and it has no architectural effect
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
    }

    #[derive(Clone, Copy)]
    pub(crate) struct F64x4(__m256d);
    #[derive(Clone, Copy)]
    pub(crate) struct F32x8(__m256);

    /// Sliding mask: eight elements from `8 − count` on have their first `count` lanes set.
    static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// # Safety
    /// Needs AVX2; `count` is at most 8.
    #[inline(always)]
    unsafe fn first_of_8(count: usize) -> __m256i {
        // SAFETY: reads eight of the sixteen elements
        unsafe { _mm256_loadu_si256(FIRST.as_ptr().add(8 - count).cast()) }
    }

    /// # Safety
    /// Needs AVX2; `count` is at most 4.
    #[inline(always)]
    unsafe fn first_of_4(count: usize) -> __m256i {
        // SAFETY: reads four of the sixteen elements
        unsafe { _mm256_cvtepi32_epi64(_mm_loadu_si128(FIRST.as_ptr().add(8 - count).cast())) }
    }

    // SAFETY of every block below: the caller ensures CPU features and valid pointers, as the trait requires.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
    impl Lanes<f64> for F64x4 {
        const COUNT: usize = 4;

        #[inline(always)]
        unsafe fn splat(value: f64) -> Self {
            unsafe { F64x4(_mm256_set1_pd(value)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f64) -> Self {
            unsafe { F64x4(_mm256_loadu_pd(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f64, count: usize) -> Self {
            unsafe { F64x4(_mm256_maskload_pd(from, first_of_4(count))) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f64) {
            unsafe { _mm256_storeu_pd(to, self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut f64) {
            unsafe { _mm256_stream_pd(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f64, count: usize) {
            unsafe { _mm256_maskstore_pd(to, first_of_4(count), self.0) }
        }

        #[inline(always)]
        unsafe fn gather(base: *const f64, index: *const u32) -> Self {
            unsafe {
                let at = |i: usize| base.add(*index.add(i) as usize);
                let low = _mm_loadh_pd(_mm_load_sd(at(0)), at(1));
                let high = _mm_loadh_pd(_mm_load_sd(at(2)), at(3));
                F64x4(_mm256_set_m128d(high, low))
            }
        }

        #[inline(always)]
        unsafe fn gather_short(base: *const f64, index: *const u16) -> Self {
            unsafe {
                let at = |i: usize| base.add(*index.add(i) as usize);
                let low = _mm_loadh_pd(_mm_load_sd(at(0)), at(1));
                let high = _mm_loadh_pd(_mm_load_sd(at(2)), at(3));
                F64x4(_mm256_set_m128d(high, low))
            }
        }

        #[inline(always)]
        unsafe fn gather_first(base: *const f64, index: *const u32, count: usize) -> Self {
            unsafe {
                // gathering all four lanes costs less than a branch or a mask for each lane
                F64x4(_mm256_and_pd(Self::gather(base, index).0, _mm256_castsi256_pd(first_of_4(count))))
            }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { F64x4(_mm256_fmadd_pd(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { F64x4(_mm256_mul_pd(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            unsafe { F64x4(_mm256_add_pd(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f64 {
            unsafe {
                let pair = _mm_add_pd(_mm256_castpd256_pd128(self.0), _mm256_extractf128_pd::<1>(self.0));
                _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)))
            }
        }
    }

    // SAFETY of every block below: the caller ensures CPU features and valid pointers, as the trait requires.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
    impl Lanes<f32> for F32x8 {
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            unsafe { F32x8(_mm256_set1_ps(value)) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { F32x8(_mm256_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> Self {
            unsafe { F32x8(_mm256_maskload_ps(from, first_of_8(count))) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut f32) {
            unsafe { _mm256_stream_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            unsafe { _mm256_maskstore_ps(to, first_of_8(count), self.0) }
        }

        #[inline(always)]
        unsafe fn gather(base: *const f32, index: *const u32) -> Self {
            unsafe {
                let at = |i: usize| *base.add(*index.add(i) as usize);
                let low = _mm_setr_ps(at(0), at(1), at(2), at(3));
                let high = _mm_setr_ps(at(4), at(5), at(6), at(7));
                F32x8(_mm256_set_m128(high, low))
            }
        }

        #[inline(always)]
        unsafe fn gather_short(base: *const f32, index: *const u16) -> Self {
            unsafe {
                let at = |i: usize| *base.add(*index.add(i) as usize);
                let low = _mm_setr_ps(at(0), at(1), at(2), at(3));
                let high = _mm_setr_ps(at(4), at(5), at(6), at(7));
                F32x8(_mm256_set_m128(high, low))
            }
        }

        #[inline(always)]
        unsafe fn gather_first(base: *const f32, index: *const u32, count: usize) -> Self {
            unsafe {
                F32x8(_mm256_and_ps(Self::gather(base, index).0, _mm256_castsi256_ps(first_of_8(count))))
            }
        }

        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { F32x8(_mm256_fmadd_ps(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            unsafe { F32x8(_mm256_mul_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            unsafe { F32x8(_mm256_add_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
    }
}
