//! Least-squares problem of a cycle of block GMRES, in host memory.

use crate::few::TOGETHER;
use crate::small::Matrix;

/// A vector counts as dependent on others, up to rounding, if orthogonalization leaves less than this many machine epsilons
/// of its norm. Block GMRES drops such a vector of `A M⁻¹ V_p`; `H` has no entry for it, so the residual of the recurrence
/// is too small by it. Guess, chosen above the rounding of two orthogonalizations, each of a few epsilons.
pub(crate) const ROUNDING: f64 = 10.0;

/// Least-squares problems `min ‖g_j − H y_j‖` for several right-hand sides. `H` grows by columns, each with at
/// least as many rows as the preceding one; entries below are zero. Householder reflections make it triangular.
/// A column that depends linearly on the preceding ones, up to rounding errors relative to its norm, has a zero entry
/// in the solution.
#[derive(Default)]
pub(crate) struct LeastSquares {
    /// Number of columns of `H`.
    columns: usize,
    /// Indices of the columns of `H` that are linearly independent, in ascending order.
    pivots: Vec<usize>,
    /// Triangular factor of these columns: column `q` has `q + 1` entries from `q (q + 1) / 2` on.
    r: Vec<f64>,
    /// Vectors `u` of the reflections `I − u uᵀ`, one after the other. That of pivot `q` begins at row `q`.
    reflections: Vec<f64>,
    /// End of each vector in `reflections`.
    ends: Vec<usize>,
    /// Reflected right-hand sides, row by row.
    g: Vec<f64>,
    /// Number of right-hand sides.
    sides: usize,
    /// Workspace.
    column: Vec<f64>,
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

impl LeastSquares {
    /// Begins with the leading rows of the right-hand sides, and no column.
    pub(crate) fn begin(&mut self, g: &Matrix) {
        self.columns = 0;
        for list in [&mut self.r, &mut self.reflections, &mut self.g] {
            list.clear();
        }
        self.pivots.clear();
        self.ends.clear();
        self.g.extend(g.entries());
        self.sides = g.cols();
    }

    /// Appends a column of `H`.
    pub(crate) fn extend(&mut self, h: impl Iterator<Item = f64>, epsilon: f64) {
        let LeastSquares { columns, pivots, r, reflections, ends, g, sides, column } = self;
        let (q, sides) = (pivots.len(), *sides);
        *columns += 1;
        column.clear();
        column.extend(h);
        g.resize(column.len() * sides, 0.0);
        let whole = norm(column);
        let mut first = 0;
        for (row, &end) in ends.iter().enumerate() {
            let u = &reflections[first..end];
            let dot: f64 = u.iter().zip(&column[row..]).map(|(u, h)| u * h).sum();
            u.iter().zip(&mut column[row..]).for_each(|(u, h)| *h -= dot * u);
            first = end;
        }
        let length = norm(&column[q..]);
        // up to the rounding errors of the reflections
        if length <= ROUNDING * epsilon * (column.len() as f64).sqrt() * whole {
            return;
        }
        // (I − u uᵀ) h = pivot e₁ for the last entries h of the column, with the sign that avoids cancellation
        let head = column[q];
        let pivot = -length.copysign(head);
        let scale = 1.0 / (length * (length + head.abs())).sqrt();
        reflections.push((head - pivot) * scale);
        reflections.extend(column[q + 1..].iter().map(|h| h * scale));
        ends.push(reflections.len());
        r.extend(&column[..q]);
        r.push(pivot);
        pivots.push(*columns - 1);
        if sides == 0 {
            return;
        }
        let (u, rows) = (&reflections[first..], &mut g[q * sides..]);
        let mut dots = [0.0; TOGETHER];
        for (u, row) in u.iter().zip(rows.chunks(sides)) {
            dots.iter_mut().zip(row).for_each(|(dot, g)| *dot += u * g);
        }
        for (u, row) in u.iter().zip(rows.chunks_mut(sides)) {
            dots.iter().zip(row).for_each(|(dot, g)| *g -= dot * u);
        }
    }

    /// Squared norm of the smallest residual of a right-hand side.
    pub(crate) fn residual_squared(&self, side: usize) -> f64 {
        let rows = self.g.chunks(self.sides.max(1));
        rows.skip(self.pivots.len()).map(|row| row[side] * row[side]).sum()
    }

    /// The solution for a right-hand side: indices of columns of `H`, and their coordinates. All other
    /// coordinates are zero.
    pub(crate) fn solve(&mut self, side: usize) -> impl Iterator<Item = (usize, f64)> {
        let LeastSquares { pivots, r, g, sides, column: y, .. } = self;
        y.clear();
        y.extend(g.chunks((*sides).max(1)).map(|row| row[side]).take(pivots.len()));
        for j in (0..pivots.len()).rev() {
            let (column, pivot) = (&r[j * (j + 1) / 2..][..j], r[j * (j + 1) / 2 + j]);
            y[j] /= pivot;
            let last = y[j];
            y.iter_mut().zip(column).for_each(|(y, r)| *y -= r * last);
        }
        pivots.iter().copied().zip(y.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solves with a matrix that is given by columns. Its third column is the sum of the first two.
    #[test]
    fn residuals_are_orthogonal_to_the_columns() {
        let columns =
            [&[2.0, 1.0, 0.5][..], &[1.0, -1.0, 3.0], &[3.0, 0.0, 3.5], &[0.5, 1.0, 1.0, 2.0, -1.0]];
        let sides = [[1.0, 2.0, -1.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0, 0.0]];
        let mut g = Matrix::zeros(3, 2);
        (0..3).for_each(|i| (0..2).for_each(|j| g.set(i, j, sides[j][i])));
        let mut problem = LeastSquares::default();
        for _ in 0..2 {
            problem.begin(&g);
            columns.iter().for_each(|h| problem.extend(h.iter().copied(), f64::EPSILON));
            for (j, side) in sides.iter().enumerate() {
                let mut residual = *side;
                for (index, y) in problem.solve(j) {
                    assert_ne!(index, 2);
                    residual.iter_mut().zip(columns[index]).for_each(|(r, h)| *r -= y * h);
                }
                for h in columns {
                    let dot: f64 = residual.iter().zip(h).map(|(r, h)| r * h).sum();
                    assert!(dot.abs() < 1e-13, "{dot}");
                }
                let squared: f64 = residual.iter().map(|r| r * r).sum();
                assert!((squared - problem.residual_squared(j)).abs() < 1e-13);
            }
        }
    }
}
