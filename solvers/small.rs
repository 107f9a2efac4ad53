//! Small dense matrices in host memory, such as coefficients of linear combinations of vectors.

use crate::few::{Few, TOGETHER};

/// A dense matrix in double precision, stored row by row, of at most [`TOGETHER`] rows and columns. It allocates
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    entries: [f64; TOGETHER * TOGETHER],
}

impl Matrix {
    pub(crate) fn zeros(rows: usize, cols: usize) -> Matrix {
        Matrix { rows, cols, entries: [0.0; TOGETHER * TOGETHER] }
    }

    pub(crate) fn identity(n: usize) -> Matrix {
        let mut identity = Matrix::zeros(n, n);
        (0..n).for_each(|i| identity.set(i, i, 1.0));
        identity
    }

    /// Creates a symmetric matrix from its upper triangle, column by column.
    pub(crate) fn symmetric(n: usize, upper: impl IntoIterator<Item = f64>) -> Matrix {
        let mut matrix = Matrix::zeros(n, n);
        let places = (0..n).flat_map(|j| (0..=j).map(move |i| (i, j)));
        for ((i, j), value) in places.zip(upper) {
            matrix.set(i, j, value);
            matrix.set(j, i, value);
        }
        matrix
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// The entries, row by row.
    pub(crate) fn entries(&self) -> &[f64] {
        &self.entries[..self.rows * self.cols]
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> f64 {
        self.entries[i * self.cols + j]
    }

    pub(crate) fn set(&mut self, i: usize, j: usize, value: f64) {
        self.entries[i * self.cols + j] = value;
    }

    /// Returns column `j`.
    pub(crate) fn column(&self, j: usize) -> Few<f64> {
        (0..self.rows).map(|i| self.at(i, j)).collect()
    }

    /// Returns the matrix that consists of these columns.
    pub(crate) fn with_columns(&self, columns: &[usize]) -> Matrix {
        let mut chosen = Matrix::zeros(self.rows, columns.len());
        for i in 0..self.rows {
            columns.iter().enumerate().for_each(|(to, &j)| chosen.set(i, to, self.at(i, j)));
        }
        chosen
    }

    /// Returns the first rows.
    pub(crate) fn with_rows(&self, rows: usize) -> Matrix {
        Matrix { rows, ..*self }
    }

    pub(crate) fn times(&self, other: &Matrix) -> Matrix {
        let mut product = Matrix::zeros(self.rows, other.cols);
        let (cols, middle) = (other.cols.max(1), self.cols.max(1));
        for (row, to) in self.entries().chunks(middle).zip(product.entries.chunks_mut(cols)) {
            for (&a, b) in row.iter().zip(other.entries().chunks(cols)) {
                to.iter_mut().zip(b).for_each(|(to, b)| *to += a * b);
            }
        }
        product
    }

    /// The sum with a matrix of the same shape.
    pub(crate) fn plus(mut self, other: &Matrix) -> Matrix {
        self.entries.iter_mut().zip(other.entries()).for_each(|(to, b)| *to += b);
        self
    }

    pub(crate) fn transposed(&self) -> Matrix {
        let mut transposed = Matrix::zeros(self.cols, self.rows);
        for j in 0..self.cols {
            (0..self.rows).for_each(|i| transposed.set(j, i, self.at(i, j)));
        }
        transposed
    }

    pub(crate) fn negated(&self) -> Matrix {
        Matrix { entries: self.entries.map(|entry| -entry), ..*self }
    }

    /// `⟨v, A v⟩` for each column `v` of `of`; the matrix `A` must be square.
    pub(crate) fn forms(&self, of: &Matrix) -> Few<f64> {
        let images = self.times(of);
        let form = |j| of.column(j).iter().zip(images.column(j).iter()).map(|(v, image)| v * image).sum();
        (0..of.cols).map(form).collect()
    }

    /// The first entry that is infinite or NaN.
    pub(crate) fn not_finite(&self) -> Option<f64> {
        self.entries().iter().copied().find(|entry| !entry.is_finite())
    }

    /// The inverse of an upper triangular matrix whose diagonal has no zero.
    pub(crate) fn inverse_of_upper(&self) -> Matrix {
        let n = self.rows;
        let mut inverse = Matrix::zeros(n, n);
        for j in 0..n {
            inverse.set(j, j, 1.0 / self.at(j, j));
            for i in (0..j).rev() {
                let sum: f64 = (i + 1..=j).map(|l| self.at(i, l) * inverse.at(l, j)).sum();
                inverse.set(i, j, -sum / self.at(i, i));
            }
        }
        inverse
    }

    /// The inverse of a symmetric positive definite matrix by its Cholesky factorization, or the first pivot
    /// that is not positive.
    pub(crate) fn inverse_of_definite(&self) -> Result<Matrix, f64> {
        let n = self.rows;
        let mut factor = Matrix::zeros(n, n);
        for j in 0..n {
            for i in 0..=j {
                let sum: f64 = (0..i).map(|l| factor.at(l, i) * factor.at(l, j)).sum();
                let rest = self.at(i, j) - sum;
                if i < j {
                    factor.set(i, j, rest / factor.at(i, i));
                } else if rest > 0.0 {
                    factor.set(j, j, rest.sqrt());
                } else {
                    return Err(rest);
                }
            }
        }
        let inverse = factor.inverse_of_upper();
        Ok(inverse.times(&inverse.transposed()))
    }

    /// Orthonormal columns `U` and coefficients `T` with `A = U T`, by modified Gram-Schmidt, done twice. A
    /// column adds no vector to `U` if orthogonalization against the preceding ones leaves at most the
    /// fraction `least` of its norm.
    pub(crate) fn orthonormalized(&self, least: f64) -> (Matrix, Matrix) {
        let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let (mut u, mut t) = (Matrix::zeros(self.rows, self.cols), Matrix::zeros(self.cols, self.cols));
        let mut count = 0;
        for j in 0..self.cols {
            let mut rest = self.column(j);
            let whole = length(&rest);
            for _ in 0..2 {
                for i in 0..count {
                    let vector = u.column(i);
                    let dot: f64 = vector.iter().zip(rest.iter()).map(|(a, b)| a * b).sum();
                    rest.iter_mut().zip(vector.iter()).for_each(|(rest, v)| *rest -= dot * v);
                    t.set(i, j, t.at(i, j) + dot);
                }
            }
            let outside = length(&rest);
            if outside > least * whole {
                t.set(count, j, outside);
                rest.iter().enumerate().for_each(|(i, &value)| u.set(i, count, value / outside));
                count += 1;
            }
        }
        let kept: Few<usize> = (0..count).collect();
        (u.with_columns(&kept), t.with_rows(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: &Matrix, b: &Matrix) {
        assert_eq!((a.rows, a.cols), (b.rows, b.cols));
        let far = a.entries().iter().zip(b.entries()).find(|(a, b)| (*a - *b).abs() > 1e-12);
        assert_eq!(far, None, "{a:?} and {b:?}");
    }

    #[test]
    fn inverses_invert() {
        let a = Matrix::symmetric(3, [4.0, 1.0, 3.0, -2.0, 0.5, 5.0]);
        assert_eq!((a.at(0, 2), a.at(2, 1)), (-2.0, 0.5));
        close(&a.times(&a.inverse_of_definite().unwrap()), &Matrix::identity(3));
        let indefinite = Matrix::symmetric(2, [1.0, 2.0, 1.0]);
        assert_eq!(indefinite.inverse_of_definite().err(), Some(-3.0));
        assert_eq!(Matrix::zeros(1, 1).inverse_of_definite().err(), Some(0.0));
        assert_eq!(*a.forms(&Matrix::identity(3)), [4.0, 3.0, 5.0]);
    }

    #[test]
    fn dependent_columns_add_no_orthonormal_one() {
        let mut a = Matrix::zeros(3, 4);
        for (i, row) in [[1.0, 2.0, 0.0, 1e-8], [1.0, 2.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]].iter().enumerate()
        {
            row.iter().enumerate().for_each(|(j, &value)| a.set(i, j, value));
        }
        let (u, t) = a.orthonormalized(1e-12);
        assert_eq!((u.cols(), t.rows(), t.cols()), (3, 3, 4));
        close(&u.times(&t), &a);
        close(&u.transposed().times(&u), &Matrix::identity(3));
        assert_eq!(Matrix::zeros(3, 2).orthonormalized(0.0).0.cols(), 0);
    }
}
