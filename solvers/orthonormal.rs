//! Operations shared by block methods: orthonormal bases of blocks of vectors, and combinations of their vectors.
//!
//! A block is orthonormalized by the Cholesky factorization of its Gram matrix. The factorization reveals the
//! rank (Ji and Li 2017, "A breakdown-free block conjugate gradient method"): a vector that depends nearly
//! linearly on the preceding ones is orthogonalized explicitly, and its norm is computed again; if the vector
//! has vanished, it is dropped.

use crate::few::{Few, TOGETHER};
use crate::small::Matrix;
use crate::{
    ElemOf, Element, Error, Form, MultiVector, Result, Scalar, ScalarOf, Scalars, System, Term, Vector,
};

/// Exponent `c`: a vector is accepted into the orthonormal basis if its component orthogonal to the preceding
/// ones has a squared norm above `εᶜ` times that of the vector. Cancellation may lose the digits that this
/// factor stands for; the basis is orthonormal to the remaining digits. Guess: with a larger exponent the
/// basis is less orthonormal, with a smaller one more vectors are orthogonalized explicitly.
const CLEAR: f64 = 1.0 / 3.0;

/// Exponent `c`: a residual or a direction is dropped if orthogonalization leaves less than `εᶜ` of its norm,
/// because it then consists mostly of rounding errors. The residual changes by that much. Guess, chosen
/// between `½`, where some directions are still useful, and `1`, where all is rounding.
pub(crate) const VANISHED: f64 = 0.75;

/// Maximum number of explicit orthogonalizations; vectors that are still dependent afterwards count as
/// vanished. Each one can detect that a vector's norm is reduced by a factor of down to `√ε`, so two reach
/// `VANISHED`, and three `ε`.
const SUBTRACTIONS: usize = 3;

/// Coefficients of an orthonormal basis: `Q T` is orthonormal in the inner product of `M⁻¹`, and the previous
/// vectors are `Q T ζ`.
pub(crate) struct Orthonormal {
    pub(crate) t: Matrix,
    pub(crate) zeta: Matrix,
    /// True if no vector had to be orthogonalized explicitly.
    pub(crate) was_clear: bool,
}

/// The first `width` vectors of a block `Q`, and of `W = M⁻¹ Q`; `None` stands for `W = Q`. `z` is workspace.
pub(crate) struct Block<'q, V: Vector> {
    pub(crate) q: &'q mut MultiVector<V>,
    pub(crate) w: Option<&'q mut MultiVector<V>>,
    pub(crate) z: &'q mut MultiVector<V>,
    pub(crate) width: usize,
}

impl<V: Vector> Block<'_, V> {
    /// Finds an orthonormal basis of `Q`. Replaces `Q` and `W` by combinations of their vectors, if these are
    /// nearly dependent. `floor` maps the index and the squared norm of a vector to the squared norm below which
    /// it has vanished. `what` names the squared norms in errors.
    pub(crate) fn orthonormalize(
        mut self,
        what: &'static str,
        products: &mut Products<V>,
        floor: impl Fn(usize, f64) -> f64,
    ) -> Result<Orthonormal> {
        let (epsilon, mut zeta) = (ElemOf::<V>::EPSILON, Matrix::identity(self.width));
        let mut least: Option<Few<f64>> = None;
        let mut subtractions = 0;
        loop {
            let Block { q, w, z, width } = &mut self;
            let preconditioned = w.as_deref().unwrap_or(q);
            let rho = products.symmetric(&q.columns()[..*width], &preconditioned.columns()[..*width])?;
            not_finite(what, &rho)?;
            let of_first = || (0..*width).map(|j| floor(j, rho.at(j, j))).collect();
            let lengths = least.take().unwrap_or_else(of_first);
            let factor = Factor::new(&rho, &lengths, epsilon, subtractions == SUBTRACTIONS);
            let Factor { c, kept, is_clear } = factor.map_err(|value| Error::Breakdown { what, value })?;
            let square = c.with_columns(&kept);
            let mut t = Matrix::zeros(*width, kept.len());
            let inverse = square.inverse_of_upper();
            for (i, &row) in kept.iter().enumerate() {
                (0..kept.len()).for_each(|j| t.set(row, j, inverse.at(i, j)));
            }
            zeta = c.times(&zeta);
            if is_clear {
                return Ok(Orthonormal { t, zeta, was_clear: subtractions == 0 });
            }
            transform(q, z, *width, &t);
            if let Some(w) = w {
                transform(w, z, *width, &t);
            }
            let lengths =
                kept.iter().enumerate().map(|(i, &j)| lengths[j] / (square.at(i, i) * square.at(i, i)));
            least = Some(lengths.collect());
            *width = kept.len();
            subtractions += 1;
        }
    }
}

/// Inner products of blocks of vectors. The lists are workspace.
pub(crate) struct Products<V: Vector> {
    scalars: Vec<ScalarOf<V>>,
    numbers: Vec<ElemOf<V>>,
}

impl<V: Vector> Default for Products<V> {
    fn default() -> Self {
        Products { scalars: Vec::new(), numbers: Vec::new() }
    }
}

impl<V: Vector> Products<V> {
    /// `Xᵀ Y`, which must be symmetric.
    pub(crate) fn symmetric(&mut self, x: &[V], y: &[V]) -> Result<Matrix> {
        V::gram(x, y, &mut self.scalars);
        Ok(Matrix::symmetric(x.len(), self.read()?))
    }

    /// `Xᵀ Y`
    pub(crate) fn all(&mut self, x: &[V], y: &[V]) -> Result<Matrix> {
        V::dots(x, y, &mut self.scalars);
        let mut matrix = Matrix::zeros(x.len(), y.len());
        let places = (0..y.len()).flat_map(|j| (0..x.len()).map(move |i| (i, j)));
        places.zip(self.read()?).for_each(|((i, j), value)| matrix.set(i, j, value));
        Ok(matrix)
    }

    /// Reads back the latest inner products.
    fn read(&mut self) -> Result<impl Iterator<Item = f64>> {
        self.numbers.clear();
        ScalarOf::<V>::read_all(self.scalars.iter(), &mut self.numbers)?;
        Ok(self.numbers.iter().map(|number| number.to_f64()))
    }
}

/// Cholesky factorization of a Gram matrix, in the order of its vectors, without those that have vanished.
struct Factor {
    /// Coefficients of all vectors in terms of those kept.
    c: Matrix,
    /// Indices of the vectors that are kept, in ascending order.
    kept: Few<usize>,
    /// True if all kept vectors are clearly independent of the preceding ones. Otherwise the dependent ones
    /// are not yet orthogonal to them.
    is_clear: bool,
}

impl Factor {
    /// Factorizes a Gram matrix. `floor` is the squared norm below which a vector has vanished. If `last`,
    /// vectors that are not clearly independent count as vanished too. Returns the number as an error if a
    /// squared norm is negative.
    fn new(gram: &Matrix, floor: &[f64], epsilon: f64, last: bool) -> std::result::Result<Factor, f64> {
        let n = gram.rows();
        let clear = epsilon.powf(CLEAR);
        // a row for each vector that is kept; those of vectors that are not clearly independent are no pivots
        let (mut c, mut kept, mut pivots) = (Matrix::zeros(n, n), Few::new(), Few::<usize>::new());
        for (j, &floor) in floor.iter().enumerate() {
            let whole = gram.at(j, j);
            if whole < -floor.abs() {
                return Err(whole);
            }
            let rest = pivots.iter().fold(whole, |rest, &row| rest - c.at(row, j) * c.at(row, j));
            let is_clear = rest > clear * whole;
            if whole <= floor || (last && !is_clear) {
                continue;
            }
            if rest < -clear * whole {
                return Err(rest);
            }
            let (row, length) = (kept.len(), rest.max(epsilon * whole).sqrt());
            c.set(row, j, length);
            if is_clear {
                for l in j + 1..n {
                    let before: f64 = pivots.iter().map(|&pivot| c.at(pivot, j) * c.at(pivot, l)).sum();
                    c.set(row, l, (gram.at(j, l) - before) / length);
                }
                pivots.push(row);
            }
            kept.push(j);
        }
        let is_clear = pivots.len() == kept.len();
        Ok(Factor { c: c.with_rows(kept.len()), kept, is_clear })
    }
}

/// Returns whether the columns are solved without a preconditioner.
pub(crate) fn is_identity<V: Vector>(system: &System<'_, MultiVector<V>>) -> bool {
    matches!(system.m.form(), Form::Identity)
}

/// `Y ← Σ X C`, or, if `keep` is set, `Y ← Y + Σ X C`.
pub(crate) fn combine<V: Vector, const N: usize>(y: &mut [V], keep: bool, terms: &[(&[V], &Matrix); N]) {
    let rounded = terms.map(|(_, c)| {
        let mut rounded = [ElemOf::<V>::default(); TOGETHER * TOGETHER];
        rounded.iter_mut().zip(c.entries()).for_each(|(to, &c)| *to = ElemOf::<V>::from_f64(c));
        rounded
    });
    let terms: [Term<'_, V>; N] = std::array::from_fn(|k| {
        let (x, c) = terms[k];
        Term { x, c: &rounded[k][..c.entries().len()] }
    });
    V::combine(y, keep, &terms);
}

/// `X ← X C` for the first `width` vectors of a block.
pub(crate) fn transform<V: Vector>(
    x: &mut MultiVector<V>,
    workspace: &mut MultiVector<V>,
    width: usize,
    c: &Matrix,
) {
    let to = &mut workspace.columns_mut()[..c.cols()];
    combine(to, false, &[(&x.columns()[..width], c)]);
    std::mem::swap(x, workspace);
}

/// Scalars of `count` columns: `values` of those whose indices `columns` lists, and zeros.
pub(crate) fn scalars<V: Vector>(
    count: usize,
    columns: &[usize],
    values: &[f64],
) -> ScalarOf<MultiVector<V>> {
    let mut all = [0.0; TOGETHER];
    columns.iter().zip(values).for_each(|(&column, &value)| all[column] = value);
    Scalars::new(all[..count].iter().map(|&value| ElemOf::<V>::from_f64(value).into()))
}

/// A scalar with the same value for all columns.
pub(crate) fn same<V: Vector>(value: f64) -> ScalarOf<MultiVector<V>> {
    ElemOf::<V>::from_f64(value).into()
}

/// Returns an error if an entry is infinite or NaN. The columns are then solved separately, because the one
/// that caused it is unknown.
pub(crate) fn not_finite(what: &'static str, matrix: &Matrix) -> Result<()> {
    matrix.not_finite().map_or(Ok(()), |value| Err(Error::Breakdown { what, value }))
}
