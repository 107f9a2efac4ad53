//! Inverse of a dense symmetric positive definite matrix, on all threads.
//!
//! Blocked Gauss-Jordan elimination in panels of `PANEL` rows, without pivoting, which positive definite
//! matrices do not need. For each panel, with `k` its rows:
//!
//! ```text
//! D = A_kk⁻¹    R = D A_k,:    R_:k = D
//! F = A_ik;  A_ik ← 0;  A_i,: ← A_i,: − F R    for all other rows i
//! A_k,: ← R
//! ```
//!
//! Cost: `n³` multiply-adds in double precision, and two parallel loops per panel. Every number is computed
//! by one thread in a fixed order: the result does not depend on the number of threads.

use crate::cpu::preconditioners::Refused;
use crate::cpu::run::threads;
use crate::cpu::simd::{Lanes, Simd, Task, run};
use crate::interrupt::Phase;

/// Rows per panel: few enough that one thread inverts a diagonal block cheaply. Guess.
const PANEL: usize = 32;

/// Number of rows that are updated together; each entry of the panel is loaded once for all of them. Guess,
/// chosen, with [`REGISTERS`], so that the sums fit the registers of AVX2.
const TOGETHER: usize = 4;

/// Number of registers of a row that are updated together.
const REGISTERS: usize = 2;

/// Distance between rows in memory: rows of `n` numbers are padded with zeros to whole registers.
pub fn row_stride(n: usize) -> usize {
    n.next_multiple_of(16)
}

/// Inverts a symmetric matrix of `n` rows, [`row_stride`] numbers apart, in place. Fails at the first pivot
/// that is not larger than the rounding error of its diagonal entry.
pub fn invert_positive(a: &mut [f64], n: usize) -> Result<(), Refused<f64>> {
    let stride = row_stride(n);
    assert_eq!(a.len(), n * stride, "rows are padded to whole registers");
    let rounding = n as f64 * f64::EPSILON;
    let least: Vec<f64> = (0..n).map(|i| rounding * a[i * stride + i]).collect();
    let mut panel = vec![0.0; PANEL.min(n) * stride];
    let phase = Phase::new("inverse of the coarsest matrix", (n * n * n) as f64);
    for first in (0..n).step_by(PANEL) {
        let rows = PANEL.min(n - first);
        let mut inverse = [[0.0; PANEL]; PANEL];
        for (i, inverse) in inverse[..rows].iter_mut().enumerate() {
            let start = (first + i) * stride + first;
            inverse[..rows].copy_from_slice(&a[start..start + rows]);
        }
        invert_small(&mut inverse, rows, &least[first..])
            .map_err(|(row, value)| Refused::Pivot { at: first + row, value })?;

        // R = D A_k,:
        let panel = &mut panel[..rows * stride];
        let above = &a[first * stride..(first + rows) * stride];
        over(rows, stride, panel, &|row, row_group| {
            let factors = &inverse[row..row + row_group.len() / stride];
            row_group.fill(0.0);
            run(Update { rows: row_group, stride, factors, panel: above, sign: 1.0 });
            for (row, factors) in row_group.chunks_exact_mut(stride).zip(factors) {
                row[first..first + rows].copy_from_slice(&factors[..rows]);
            }
        });
        let panel = &*panel;
        over(n, stride, a, &|i, row_group| {
            let own = first..first + rows;
            if own.contains(&i) {
                let start = (i - first) * stride;
                row_group.copy_from_slice(&panel[start..start + row_group.len()]);
                return;
            }
            let mut factors = [[0.0; PANEL]; TOGETHER];
            for (row, factors) in row_group.chunks_exact_mut(stride).zip(&mut factors) {
                factors[..rows].copy_from_slice(&row[own.clone()]);
                row[own.clone()].fill(0.0);
            }
            let count = row_group.len() / stride;
            run(Update { rows: row_group, stride, factors: &factors[..count], panel, sign: -1.0 });
        });
        phase.advance((n * n * rows) as u64)?;
    }
    // rounding makes the two triangles differ slightly: copy one to the other
    for i in 0..n {
        for j in 0..i {
            a[j * stride + i] = a[i * stride + j];
        }
    }
    Ok(())
}

/// Runs `work` on groups of up to [`TOGETHER`] rows, on all threads.
fn over(rows: usize, stride: usize, data: &mut [f64], work: &(impl Fn(usize, &mut [f64]) + Sync)) {
    let groups = rows.div_ceil(TOGETHER);
    let count = threads::tasks(rows * stride * 4).min(groups);
    let bound = |part: usize| rows.min(part * groups / count.max(1) * TOGETHER);
    let offset = |row: usize| row * stride;
    threads::over_parts(count, &bound, threads::ByRow::new(data, &offset), &|rows, part| {
        let (part, _) = part.all();
        for (group, data) in part.chunks_mut(TOGETHER * stride).enumerate() {
            work(rows.start + group * TOGETHER, data);
        }
    });
}

/// Inverts a small matrix in place. Returns the first pivot that is not larger than its entry of `least` as
/// an error.
fn invert_small(a: &mut [[f64; PANEL]; PANEL], n: usize, least: &[f64]) -> Result<(), (usize, f64)> {
    for k in 0..n {
        let pivot = a[k][k];
        if pivot <= least[k] || !pivot.is_finite() {
            return Err((k, pivot));
        }
        let inverse = 1.0 / pivot;
        a[k][k] = 1.0;
        a[k].iter_mut().for_each(|v| *v *= inverse);
        let row = a[k];
        for (i, other) in a[..n].iter_mut().enumerate() {
            if i != k {
                let factor = std::mem::take(&mut other[k]);
                other.iter_mut().zip(&row).for_each(|(v, r)| *v -= factor * r);
            }
        }
    }
    Ok(())
}

/// `rows ← rows + sign · factors · panel`
struct Update<'a> {
    rows: &'a mut [f64],
    stride: usize,
    factors: &'a [[f64; PANEL]],
    panel: &'a [f64],
    sign: f64,
}

impl Task for Update<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Update { rows, stride, factors, panel, sign } = self;
        if let Some(factors) = factors.first_chunk::<TOGETHER>() {
            // SAFETY: the caller's contract is the same
            unsafe { update::<S, TOGETHER>(rows, stride, factors, panel, sign) };
            return;
        }
        for (row, factors) in rows.chunks_exact_mut(stride).zip(factors) {
            // SAFETY: the caller's contract is the same
            unsafe { update::<S, 1>(row, stride, &[*factors], panel, sign) };
        }
    }
}

/// # Safety
/// The CPU must have the features of `S`.
#[inline(always)]
unsafe fn update<S: Simd, const ROWS: usize>(
    rows: &mut [f64],
    stride: usize,
    factors: &[[f64; PANEL]; ROWS],
    panel: &[f64],
    sign: f64,
) {
    let lanes = <S::F64 as Lanes<f64>>::COUNT;
    let width = REGISTERS * lanes;
    let depth = (panel.len() / stride).min(PANEL);
    assert!(rows.len() >= ROWS * stride && stride.is_multiple_of(width), "rows consist of whole registers");
    for at in (0..stride).step_by(width) {
        // SAFETY: the CPU has the features of `S`; `at + width` is within a row, and the rows are within both
        // arrays
        unsafe {
            let mut sums = [[S::F64::splat(0.0); REGISTERS]; ROWS];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (register, sum) in sums.iter_mut().enumerate() {
                    *sum = S::F64::load(rows.as_ptr().add(row * stride + at + register * lanes));
                }
            }
            for k in 0..depth {
                let from = panel.as_ptr().add(k * stride + at);
                for (sums, factors) in sums.iter_mut().zip(factors) {
                    let factor = S::F64::splat(sign * factors[k]);
                    for (register, sum) in sums.iter_mut().enumerate() {
                        let entry = S::F64::load(from.add(register * lanes));
                        *sum = entry.mul_add(factor, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                for (register, sum) in sums.iter().enumerate() {
                    sum.store(rows.as_mut_ptr().add(row * stride + at + register * lanes));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{Level, force};

    /// `B Bᵀ + n I` with pseudo-random numbers in `B`.
    fn positive(n: usize) -> Vec<f64> {
        let entry = |i: usize, j: usize| ((i * 7919 + j * 104_729 + 13) % 101) as f64 / 50.0 - 1.0;
        let stride = row_stride(n);
        let mut a = vec![0.0; n * stride];
        for i in 0..n {
            for j in 0..n {
                let product: f64 = (0..n).map(|k| entry(i, k) * entry(j, k)).sum();
                a[i * stride + j] = product + if i == j { n as f64 } else { 0.0 };
            }
        }
        a
    }

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        // other tests may force other levels meanwhile
        let _one_level = force(Level::best());
        for n in [0, 1, 3, 16, 31, 32, 33, 70, 130] {
            let (stride, original) = (row_stride(n), positive(n));
            let mut inverse = original.clone();
            invert_positive(&mut inverse, n).unwrap();
            for i in 0..n {
                for j in 0..n {
                    let entry: f64 = (0..n).map(|k| original[i * stride + k] * inverse[k * stride + j]).sum();
                    assert!((entry - f64::from(u8::from(i == j))).abs() < 1e-11, "{n}: {i} {j} {entry}");
                }
                assert!(inverse[i * stride + n..(i + 1) * stride].iter().all(|&v| v == 0.0));
            }
            let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let mut again = original.clone();
            one.install(|| invert_positive(&mut again, n)).unwrap();
            assert!(again == inverse, "{n}");
        }
    }

    #[test]
    fn the_first_pivot_that_is_not_positive_is_told() {
        let (n, stride) = (40, row_stride(40));
        let mut singular = positive(n);
        // row 35 becomes a copy of row 2
        for j in 0..n {
            singular[35 * stride + j] = singular[2 * stride + j];
        }
        for i in 0..n {
            singular[i * stride + 35] = singular[i * stride + 2];
        }
        let Refused::Pivot { at: row, value: pivot } = invert_positive(&mut singular, n).unwrap_err() else {
            panic!()
        };
        assert!(row == 35 && pivot.abs() < 1e-9, "{row} {pivot:e}");
        let mut unknown = positive(n);
        unknown[5 * stride + 5] = f64::NAN;
        assert!(matches!(invert_positive(&mut unknown, n), Err(Refused::Pivot { at: 5, .. })));
    }
}
