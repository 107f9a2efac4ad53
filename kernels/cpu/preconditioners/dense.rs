//! Small dense systems in double precision, each solved on one thread, for the rows of approximate inverses.
//!
//! Both factorizations, Cholesky and Householder QR, can be extended: an approximate inverse that adapts its
//! pattern adds unknowns to a system that is already factorized. With `n` unknowns and `m` equations,
//! Cholesky takes `n³/6` and Householder QR `n² (m − n/3)` multiplications.

/// A Cholesky factor `A = L Lᵀ` to which rows can be appended.
#[derive(Clone, Debug, Default)]
pub struct Cholesky {
    /// Rows of `L` in packed storage, with `1, 2, 3, …` numbers.
    factor: Vec<f64>,
    rows: usize,
}

/// Offset of a row of a packed triangle.
fn packed(row: usize) -> usize {
    row * (row + 1) / 2
}

impl Cholesky {
    /// Removes all rows.
    pub fn clear(&mut self) {
        self.factor.clear();
        self.rows = 0;
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends the next row of `A`, given its entries up to the diagonal. If the pivot is not positive,
    /// returns it as an error and does not append the row.
    pub fn push(&mut self, row: &[f64]) -> Result<(), f64> {
        let k = self.rows;
        let start = packed(k);
        self.factor.truncate(start);
        self.factor.extend_from_slice(&row[..=k]);
        let (rows, new) = self.factor.split_at_mut(start);
        // l_kj = (a_kj − Σ l_kt l_jt) / l_jj
        for j in 0..k {
            let above = &rows[packed(j)..=packed(j) + j];
            let (diagonal, above) = (above[j], &above[..j]);
            new[j] = (new[j] - dot(&new[..j], above)) / diagonal;
        }
        let pivot = new[k] - dot(&new[..k], &new[..k]);
        if pivot <= 0.0 || !pivot.is_finite() {
            return Err(pivot);
        }
        new[k] = pivot.sqrt();
        self.rows += 1;
        Ok(())
    }

    /// Next step of the forward substitution `L w = b`: given the entries of `w` solved so far and the next
    /// entry of `b`, returns the next entry of `w`.
    pub fn forward(&self, w: &[f64], b: f64) -> f64 {
        let k = w.len();
        let row = &self.factor[packed(k)..=packed(k) + k];
        (b - dot(&row[..k], w)) / row[k]
    }

    /// Backward substitution `Lᵀ x = b`, in place.
    pub fn backward(&self, x: &mut [f64]) {
        for k in (0..self.rows).rev() {
            let row = &self.factor[packed(k)..=packed(k) + k];
            let (solved, earlier) = (x[k] / row[k], &mut x[..k]);
            earlier.iter_mut().zip(row).for_each(|(x, l)| *x -= l * solved);
            x[k] = solved;
        }
    }
}

/// Least-squares problem `min ‖A x − b‖` by Householder QR. Columns can be appended to the matrix, and rows
/// in which all earlier columns are zero.
///
/// Each reflection is stored with the number of rows that existed when it was computed: reflections do not
/// change rows appended later.
#[derive(Clone, Debug, Default)]
pub struct LeastSquares {
    /// Unit vectors `v_k` of the reflections `I − 2 v vᵀ`; the first entry of the `k`-th belongs to row `k`.
    reflections: Vec<f64>,
    /// Offset of each reflection, then the end of the last.
    starts: Vec<usize>,
    /// Columns of `R` in packed storage, with `1, 2, 3, …` numbers.
    triangle: Vec<f64>,
    /// `Qᵀ b`
    rhs: Vec<f64>,
    column: Vec<f64>,
}

impl LeastSquares {
    /// Resets to a problem without columns, with a right-hand side.
    pub fn start(&mut self, rhs: &[f64]) {
        self.reflections.clear();
        self.starts.clear();
        self.starts.push(0);
        self.triangle.clear();
        self.rhs.clear();
        self.rhs.extend_from_slice(rhs);
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.starts.len() - 1
    }

    /// Appends rows, given their right-hand side. All existing columns are zero in these rows.
    pub fn extend(&mut self, rhs: &[f64]) {
        self.rhs.extend_from_slice(rhs);
    }

    /// Appends a column, given an entry for each row. Returns `false` and does not append it if it is
    /// linearly dependent on the earlier columns (up to rounding) or there are no more rows than columns.
    pub fn push(&mut self, column: &[f64]) -> bool {
        let k = self.columns();
        self.column.clear();
        self.column.extend_from_slice(column);
        for (at, start) in self.starts[..k].iter().enumerate() {
            reflect(&self.reflections[*start..self.starts[at + 1]], &mut self.column[at..]);
        }
        let Some((top, tail)) = self.column.split_at_mut_checked(k) else { return false };
        let below = dot(tail, tail).sqrt();
        // upper bound of `below` due to rounding if the column is linearly dependent on the earlier ones
        // (exactly zero without rounding)
        let rounding = f64::EPSILON * (below + dot(top, top).sqrt()) * (1 + tail.len()) as f64;
        if below <= rounding || !below.is_finite() {
            return false;
        }
        // v = x − α e₁ with the sign of α that avoids cancellation
        let alpha = -below.copysign(tail[0]);
        self.triangle.extend_from_slice(top);
        self.triangle.push(alpha);
        tail[0] -= alpha;
        let length = 1.0 / dot(tail, tail).sqrt();
        tail.iter_mut().for_each(|v| *v *= length);
        reflect(tail, &mut self.rhs[k..]);
        self.reflections.extend_from_slice(tail);
        self.starts.push(self.reflections.len());
        true
    }

    /// Solution, one number per column.
    pub fn solve(&self, x: &mut Vec<f64>) {
        let n = self.columns();
        x.clear();
        x.extend_from_slice(&self.rhs[..n]);
        for k in (0..n).rev() {
            let column = &self.triangle[packed(k)..=packed(k) + k];
            let (solved, earlier) = (x[k] / column[k], &mut x[..k]);
            earlier.iter_mut().zip(column).for_each(|(x, r)| *x -= r * solved);
            x[k] = solved;
        }
    }

    /// `‖A x − b‖`
    pub fn residual(&self) -> f64 {
        let rest = &self.rhs[self.columns()..];
        dot(rest, rest).sqrt()
    }
}

/// `x ← x − 2 v ⟨v, x⟩` on the rows of `v`.
fn reflect(v: &[f64], x: &mut [f64]) {
    let twice = 2.0 * dot(v, &x[..v.len()]);
    x.iter_mut().zip(v).for_each(|(x, v)| *x -= twice * v);
}

/// Dot product in four partial sums, which the compiler vectorizes.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (fours, rest) = x.as_chunks::<4>();
    let (others, last) = y[..x.len()].as_chunks::<4>();
    for (x, y) in fours.iter().zip(others) {
        for lane in 0..4 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = rest.iter().zip(last).map(|(x, y)| x * y).sum();
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

/// Inverts a matrix, stored row by row in `a`, by Gauss-Jordan elimination with partial (row) pivoting;
/// returns `false` if it is singular.
pub fn invert(a: &mut [f64], n: usize) -> bool {
    let mut swaps = Vec::with_capacity(n);
    for k in 0..n {
        let size = |row: usize| a[row * n + k].abs();
        let pivot_row = (k..n).max_by(|&i, &j| size(i).total_cmp(&size(j))).unwrap_or(k);
        swaps.push(pivot_row);
        for j in 0..n {
            a.swap(k * n + j, pivot_row * n + j);
        }
        let pivot = 1.0 / a[k * n + k];
        if !pivot.is_finite() || pivot == 0.0 {
            return false;
        }
        a[k * n + k] = 1.0;
        for j in 0..n {
            a[k * n + j] *= pivot;
        }
        for i in (0..n).filter(|&i| i != k) {
            let factor = std::mem::take(&mut a[i * n + k]);
            for j in 0..n {
                a[i * n + j] -= factor * a[k * n + j];
            }
        }
    }
    for (k, &pivot_row) in swaps.iter().enumerate().rev() {
        for i in 0..n {
            a.swap(i * n + k, i * n + pivot_row);
        }
    }
    a.iter().all(|v| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers.
    fn number(k: usize) -> f64 {
        ((k * 7919 + 13) % 101) as f64 / 50.0 - 1.0
    }

    #[test]
    fn cholesky_grows_to_a_solution() {
        let n = 13;
        // B Bᵀ + I
        let entry = |i: usize, j: usize| {
            (0..n).map(|k| number(i * n + k) * number(j * n + k)).sum::<f64>() + f64::from(u8::from(i == j))
        };
        let (mut cholesky, mut x) = (Cholesky::default(), vec![]);
        for i in 0..n {
            cholesky.push(&(0..=i).map(|j| entry(i, j)).collect::<Vec<_>>()).unwrap();
            x.push(cholesky.forward(&x, number(i)));
        }
        cholesky.backward(&mut x);
        for i in 0..n {
            let product: f64 = (0..n).map(|j| entry(i, j) * x[j]).sum();
            assert!((product - number(i)).abs() < 1e-12, "{i}");
        }
    }

    #[test]
    fn pivots_that_are_not_positive_are_refused() {
        let mut cholesky = Cholesky::default();
        cholesky.push(&[4.0]).unwrap();
        assert_eq!(cholesky.push(&[4.0, 1.0]), Err(-3.0));
        assert!(cholesky.push(&[1.0, f64::NAN]).unwrap_err().is_nan());
        // a refused row leaves the factor unchanged
        cholesky.push(&[4.0, 5.0]).unwrap();
        assert_eq!(cholesky.rows(), 2);
        let mut x = [0.0, 1.0];
        cholesky.backward(&mut x);
        assert_eq!(x, [-1.0, 1.0]);
    }

    #[test]
    fn least_squares_grow_and_hold_their_normal_equations() {
        let (first, all, columns) = (9, 14, 6);
        // the first three columns are zero in the rows that are appended later
        let entry = |i: usize, j: usize| if j < 3 && i >= first { 0.0 } else { number(31 * j + i) };
        let rhs: Vec<f64> = (0..all).map(|i| number(977 + i)).collect();
        let mut system = LeastSquares::default();
        for _ in 0..2 {
            system.start(&rhs[..first]);
            for j in 0..columns {
                if j == 3 {
                    system.extend(&rhs[first..]);
                }
                let rows = if j < 3 { first } else { all };
                assert!(system.push(&(0..rows).map(|i| entry(i, j)).collect::<Vec<_>>()));
            }
        }
        let mut x = vec![];
        system.solve(&mut x);
        let residual: Vec<f64> =
            (0..all).map(|i| (0..columns).map(|j| entry(i, j) * x[j]).sum::<f64>() - rhs[i]).collect();
        assert!((system.residual() - dot(&residual, &residual).sqrt()).abs() < 1e-13);
        for j in 0..columns {
            let normal: f64 = (0..all).map(|i| entry(i, j) * residual[i]).sum();
            assert!(normal.abs() < 1e-13, "{j}: {normal:e}");
        }
        let sum: Vec<f64> = (0..all).map(|i| entry(i, 1) + 2.0 * entry(i, 4)).collect();
        assert!(!system.push(&sum));
        assert_eq!(system.columns(), columns);
    }

    #[test]
    fn small_inverses() {
        let original = [0.0, 2.0, 1.0, 1.0, 1.0, 0.0, 3.0, 0.0, 1.0];
        let mut inverse = original;
        assert!(invert(&mut inverse, 3));
        for i in 0..3 {
            for j in 0..3 {
                let entry: f64 = (0..3).map(|k| original[i * 3 + k] * inverse[k * 3 + j]).sum();
                assert!((entry - f64::from(u8::from(i == j))).abs() < 1e-14);
            }
        }
        assert!(!invert(&mut [1.0, 2.0, 2.0, 4.0], 2));
        assert!(!invert(&mut [f64::NAN; 4], 2));
    }
}
