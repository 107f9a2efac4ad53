//! Preconditioned block conjugate gradients (O'Leary 1980) for symmetric positive definite `A` and `M`:
//! several right-hand sides share one search space. The form is BCGrQ of Dubrulle (2001, "Retooling the
//! method of block conjugate gradients").
//!
//! ```text
//! R = B − A X = Q S,  with Qᵀ M⁻¹ Q = I
//! P = M⁻¹ Q
//! until all columns have ended:
//!     Φ = (Pᵀ A P)⁻¹
//!     X = X + P Φ S
//!     Q ζ = Q − A P Φ,  with Qᵀ M⁻¹ Q = I
//!     P = M⁻¹ Q + P ζᵀ
//!     S = ζ S,  ‖r_j‖² = s_jᵀ (Qᵀ Q) s_j
//! ```
//!
//! Each `x_j` minimizes `‖x_j − x_j*‖_A`, where `x_j*` is the solution, over the sum of the Krylov spaces of
//! all columns. With `k` columns the error decreases as if the `k − 1` smallest eigenvalues of `M⁻¹ A` were
//! absent. For `k = 1` this is conjugate gradients.
//!
//! Differs from the paper: 1. `Q` is orthonormal in the inner product of `M⁻¹`, so no factorization of `M` is
//! needed. `Q` is orthonormalized by the Cholesky factorization of a Gram matrix. 2. The factorization
//! reveals the rank (Ji and Li 2017, "A breakdown-free block conjugate gradient method"): a vector that
//! depends nearly linearly on the preceding ones is orthogonalized explicitly, and its norm is computed
//! again; if the vector has vanished, it is dropped, and `ζ` and `P` become narrower. So no singular matrix
//! is inverted. 3. When a column has ended, the block is reduced to the span of the residuals of the other
//! columns.
//!
//! An iteration costs a product with `k` vectors, `k` preconditionings, about `13 k²` multiply-adds per row,
//! and `21 k` vectors read or written (without a preconditioner `10 k²` and `16 k`). Memory: four vectors per
//! column.

use crate::Condition::Positive;
use crate::cg::{ConjugateGradients, RHO, SIGMA};
use crate::few::{Few, TOGETHER};
use crate::many::Joining;
use crate::small::Matrix;
use crate::{
    Cost, ElemOf, Element, Error, Form, LinearOperator, Method, MultiSpace, MultiVector, Report, Result,
    Scalar, ScalarOf, Scalars, Solution, Solver, Space, SpaceOf, Steps, StepsOf, System, Term, Vector,
};

/// Exponent `c`: a vector is accepted into the orthonormal basis if its component orthogonal to the preceding
/// ones has a squared norm above `εᶜ` times that of the vector. Cancellation may lose the digits that this
/// factor stands for; the basis is orthonormal to the remaining digits. Guess: with a larger exponent the
/// basis is less orthonormal, with a smaller one more vectors are orthogonalized explicitly.
const CLEAR: f64 = 1.0 / 3.0;

/// Exponent `c`: a vector is dropped if orthogonalization leaves less than `εᶜ` of its norm, because it then
/// consists mostly of rounding errors. The residual changes by that much.
const VANISHED: f64 = 0.75;

/// Maximum number of explicit orthogonalizations; vectors that are still dependent afterwards count as
/// vanished. Each one can detect that a vector's norm is reduced by a factor of down to `√ε`, so two reach
/// `VANISHED`.
const SUBTRACTIONS: usize = 3;

impl<A, M> Solver<ConjugateGradients, A, M>
where
    A: LinearOperator,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Solves `A x_j = b_j` for several right-hand sides from zero, as [`Solver::solve_many`] does, by block
    /// conjugate gradients: up to 16 columns share one search space ([`block_cg`](crate::block_cg) has the
    /// formulas). That takes fewer iterations, each with more work on vectors.
    ///
    /// Each column ends by its own residual, recomputed from the solution, and has its own report, whose
    /// `bytes` are those of a separate solve. If the matrix is not positive definite, all columns that have
    /// not ended end with that breakdown. Columns may be zero, equal or linearly dependent.
    ///
    /// On a GPU, on MPI ranks, and with a null space, observers or stop rules, this is
    /// [`Solver::solve_many`]. The bits of a solution depend on the other columns, but are the same every
    /// time.
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many`].
    ///
    /// ```
    /// use krysp::{Cg, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[30, 30])?;
    /// let loads: Vec<Vec<f64>> = (1..5).map(|j| (0..900).map(|i| f64::from(i * j % 7)).collect()).collect();
    /// let one_by_one = Cg::new(&a).solve_many(&loads)?;
    /// let block = Cg::new(&a).solve_block(&loads)?;
    /// assert!(block.iter().all(|solution| solution.report.converged()));
    /// assert!(block[0].report.iterations < one_by_one[0].report.iterations);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "block cg")]
    #[doc(alias = "multiple right-hand sides")]
    pub fn solve_block<B>(&mut self, b: &[B]) -> Result<Vec<Solution<ElemOf<A::Vector>>>>
    where
        B: AsRef<[ElemOf<A::Vector>]>,
    {
        let (driver, on) = self.parts();
        if !driver.joins(on, b.len(), &Self::BLOCK) {
            return self.solve_many(b);
        }
        let b: Vec<_> = b.iter().map(AsRef::as_ref).collect();
        let solutions = driver.solve_columns(on, &b, &Self::BLOCK);
        self.or_give_up(solutions)
    }

    /// Like [`Solver::solve_block`], on vectors of the operator's space. The columns of `x` hold the guesses
    /// and receive the solutions.
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many_into`].
    pub fn solve_block_into(
        &mut self,
        b: &MultiVector<A::Vector>,
        x: &mut MultiVector<A::Vector>,
    ) -> Result<&[Report]> {
        let same_number = b.columns().len() == x.columns().len();
        let (driver, on) = self.parts();
        if !(same_number && driver.joins(on, b.columns().len(), &Self::BLOCK)) {
            return self.solve_many_into(b, x);
        }
        let solved = driver.solve_columns_into(on, b, x, &Self::BLOCK);
        self.or_give_up(solved)?;
        Ok(&self.driver.reports[..b.columns().len()])
    }

    /// Block method: all columns share one search space. It is not used on a GPU, where steps are queued
    /// ahead of the host: without kernels for operations on blocks it would be slower.
    const BLOCK: Joining<ConjugateGradients, BlockConjugateGradients, A::Vector> = Joining {
        method: |_| &BlockConjugateGradients,
        shares: true,
        pays: |_, _, _| StepsOf::<A::Vector>::LAG == 1,
    };
}

/// The method of all columns of a block.
pub(crate) struct BlockConjugateGradients;

/// State between two iterations.
pub(crate) struct BlockCgState<V: Vector> {
    /// `Q`; the residuals are `Q S`.
    q: MultiVector<V>,
    /// `M⁻¹ Q`; not used without a preconditioner.
    w: MultiVector<V>,
    /// `P`, the search directions.
    p: MultiVector<V>,
    /// `A P`, and workspace.
    z: MultiVector<V>,
    /// The space of `q`, `w`, `p` and `z`. Vectors beyond the width of the block are closed.
    directions: MultiSpace<SpaceOf<V>>,
    /// Number of vectors of `Q` and `P`.
    width: usize,
    s: Matrix,
    /// Index of the solution that each column of `S` belongs to.
    columns: Few<usize>,
    /// Inner products, and workspace for them.
    products: Vec<ScalarOf<V>>,
    numbers: Vec<ElemOf<V>>,
}

/// Coefficients of an orthonormal basis: `Q T` is orthonormal in the inner product of `M⁻¹`, and the previous
/// vectors are `Q T ζ`.
struct Orthonormal {
    t: Matrix,
    zeta: Matrix,
}

impl<V: Vector> Method<MultiVector<V>> for BlockConjugateGradients {
    type State = BlockCgState<V>;

    fn workspace(&self, space: &MultiSpace<SpaceOf<V>>) -> Result<BlockCgState<V>> {
        let directions = MultiSpace::new(space.of_column(), space.columns());
        Ok(BlockCgState {
            q: space.zeros()?,
            w: directions.zeros()?,
            p: directions.zeros()?,
            z: directions.zeros()?,
            directions,
            width: 0,
            s: Matrix::zeros(0, 0),
            columns: Few::new(),
            products: Vec::new(),
            numbers: Vec::new(),
        })
    }

    fn start(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &MultiVector<V>,
        state: &mut BlockCgState<V>,
    ) -> Result<ScalarOf<MultiVector<V>>> {
        // a second solve finds the vectors as the first one left them
        state.directions.open_all();
        state.q.join(x.space());
        system.residual(x, &mut state.q)
    }

    fn begin(&self, system: &System<'_, MultiVector<V>>, state: &mut BlockCgState<V>) -> Result<()> {
        let open: Few<usize> = (0..state.q.columns().len()).filter(|&j| state.q.space().is_open(j)).collect();
        for (to, &from) in open.iter().enumerate() {
            state.q.columns_mut().swap(to, from);
        }
        (state.width, state.columns) = (state.q.columns().len(), open);
        state.narrow_to(state.columns.len());
        let BlockCgState { q, directions, .. } = state;
        q.join(directions);
        state.precondition(system)?;
        let Orthonormal { t, zeta } = state.orthonormalize(system, |squared| squared)?;
        state.direct(system, &t, None);
        state.s = zeta;
        Ok(())
    }

    fn step(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &mut MultiVector<V>,
        state: &mut BlockCgState<V>,
        _: usize,
        steps: &mut <MultiVector<V> as Vector>::Steps,
    ) -> Result<()> {
        state.leave_ended(x.space());
        system.a.apply(&state.p, &mut state.z)?; // Z = A P
        let BlockCgState { p, z, width, products, numbers, .. } = &mut *state;
        let sigma = gram(p, z, *width, products, numbers)?;
        not_finite(SIGMA, &sigma)?;
        let phi = match sigma.inverse_of_definite() {
            Ok(phi) => phi, // Φ = (Pᵀ Z)⁻¹
            Err(pivot) => return steps.watch(SIGMA, &same::<V>(pivot), Positive),
        };
        not_finite(SIGMA, &phi)?;
        let (columns, width) = (state.columns, state.width);
        // X = X + P Φ S; the open columns, which are in ascending order, are moved to the front and back
        columns.iter().enumerate().for_each(|(to, &from)| x.columns_mut().swap(to, from));
        let open = &mut x.columns_mut()[..columns.len()];
        combine(open, true, &[(&state.p.columns()[..width], &phi.times(&state.s))]);
        columns.iter().enumerate().rev().for_each(|(to, &from)| x.columns_mut().swap(to, from));
        let q = &mut state.q.columns_mut()[..width];
        combine(q, true, &[(&state.z.columns()[..width], &phi.negated())]); // Q = Q − Z Φ
        state.precondition(system)?; // W = M⁻¹ Q
        let Orthonormal { t, zeta } = match state.orthonormalize(system, |squared| squared.max(1.0)) {
            Err(Error::Breakdown { what, value }) if value.is_finite() => {
                return steps.watch(what, &same::<V>(value), Positive);
            }
            basis => basis?,
        };
        state.s = zeta.times(&state.s);
        let squares = state.residuals(system, &t)?;
        state.direct(system, &t, Some(&zeta));
        let mut all = [0.0; TOGETHER];
        columns.iter().zip(squares.iter()).for_each(|(&column, &squared)| all[column] = squared);
        steps.residual(&Scalars::new(all[..x.columns().len()].iter().map(|&squared| scalar::<V>(squared))))
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 21.0 }
    }
}

impl<V: Vector> BlockCgState<V> {
    /// `W ← M⁻¹ Q`
    fn precondition(&mut self, system: &System<'_, MultiVector<V>>) -> Result<()> {
        match is_identity(system) {
            true => Ok(()),
            false => system.m.apply(&self.q, &mut self.w),
        }
    }

    /// Closes all but the first `width` vectors of the block.
    fn narrow_to(&mut self, width: usize) {
        (width..self.width).for_each(|column| self.directions.close(column));
        self.width = width;
    }

    /// Removes the columns that have ended, and reduces the block to the span of the residuals of the others.
    fn leave_ended(&mut self, of_solutions: &MultiSpace<SpaceOf<V>>) {
        let is_open = |&place: &usize| of_solutions.is_open(self.columns[place]);
        let left: Few<usize> = (0..self.columns.len()).filter(is_open).collect();
        if left.len() == self.columns.len() {
            return;
        }
        self.columns = left.iter().map(|&place| self.columns[place]).collect();
        self.s = self.s.with_columns(&left);
        let (u, t) = self.s.orthonormalized(ElemOf::<V>::EPSILON.powf(VANISHED));
        if u.cols() < self.width {
            let BlockCgState { q, p, z, width, .. } = self;
            // R = Q U T, and the search directions of Q U are P U
            transform(q, z, *width, &u);
            transform(p, z, *width, &u);
            self.s = t;
            self.narrow_to(u.cols());
        }
    }

    /// Finds an orthonormal basis of `Q`. Replaces `Q` and `W` by combinations of their vectors, if these are
    /// nearly dependent. `scale` maps the squared norm of a vector to the squared norm relative to which it
    /// is tested for vanishing.
    fn orthonormalize(
        &mut self,
        system: &System<'_, MultiVector<V>>,
        scale: impl Fn(f64) -> f64,
    ) -> Result<Orthonormal> {
        let (epsilon, mut zeta) = (ElemOf::<V>::EPSILON, Matrix::identity(self.width));
        let mut least: Option<Few<f64>> = None;
        let mut subtractions = 0;
        loop {
            let BlockCgState { q, w, width, products, numbers, .. } = &mut *self;
            let preconditioned = if is_identity(system) { &*q } else { &*w };
            let rho = gram(q, preconditioned, *width, products, numbers)?;
            not_finite(RHO, &rho)?;
            let vanished = epsilon.powf(2.0 * VANISHED);
            let of_first = || (0..self.width).map(|j| vanished * scale(rho.at(j, j))).collect();
            let floor = least.take().unwrap_or_else(of_first);
            let factor = Factor::new(&rho, &floor, epsilon, subtractions == SUBTRACTIONS)?;
            let Factor { c, kept, is_clear } = factor;
            let square = c.with_columns(&kept);
            let mut t = Matrix::zeros(self.width, kept.len());
            let inverse = square.inverse_of_upper();
            for (i, &row) in kept.iter().enumerate() {
                (0..kept.len()).for_each(|j| t.set(row, j, inverse.at(i, j)));
            }
            zeta = c.times(&zeta);
            if is_clear {
                return Ok(Orthonormal { t, zeta });
            }
            let BlockCgState { q, w, z, width, .. } = self;
            transform(q, z, *width, &t);
            if !is_identity(system) {
                transform(w, z, *width, &t);
            }
            let lengths =
                kept.iter().enumerate().map(|(i, &j)| floor[j] / (square.at(i, i) * square.at(i, i)));
            least = Some(lengths.collect());
            self.narrow_to(kept.len());
            subtractions += 1;
        }
    }

    /// `Q ← Q T; P ← M⁻¹ Q + P ζᵀ`
    fn direct(&mut self, system: &System<'_, MultiVector<V>>, t: &Matrix, zeta: Option<&Matrix>) {
        let conjugate = zeta.map(Matrix::transposed);
        let w = if is_identity(system) { &self.q } else { &self.w };
        let next = &mut self.z.columns_mut()[..t.cols()];
        let new = (&w.columns()[..self.width], t);
        match &conjugate {
            Some(conjugate) => {
                combine(next, false, &[new, (&self.p.columns()[..conjugate.rows()], conjugate)])
            }
            None => combine(next, false, &[new]),
        }
        std::mem::swap(&mut self.p, &mut self.z);
        let BlockCgState { q, z, width, .. } = self;
        transform(q, z, *width, t);
        self.narrow_to(t.cols());
    }

    /// Squared norms of the residuals `Q T S`.
    fn residuals(&mut self, system: &System<'_, MultiVector<V>>, t: &Matrix) -> Result<Few<f64>> {
        if is_identity(system) {
            return Ok(Matrix::identity(self.s.rows()).forms(&self.s));
        }
        let BlockCgState { q, width, products, numbers, .. } = &mut *self;
        let squares = gram(q, q, *width, products, numbers)?.forms(&t.times(&self.s));
        // rounding may make the squared norm of a vanishing residual negative
        Ok(squares.iter().map(|&squared| if squared < 0.0 { 0.0 } else { squared }).collect())
    }
}

/// Cholesky factorization of a Gram matrix, in the order of its vectors, without those that have vanished.
struct Factor {
    /// Coefficients of all vectors in terms of those kept.
    c: Matrix,
    /// Indices of the vectors that are kept, in ascending order.
    kept: Few<usize>,
    /// Whether all kept vectors are clearly independent of the preceding ones. Otherwise the dependent ones
    /// are not yet orthogonal to them.
    is_clear: bool,
}

impl Factor {
    /// Factorizes a Gram matrix. `floor` is the squared norm below which a vector has vanished. If `last`,
    /// vectors that are not clearly independent count as vanished too.
    fn new(gram: &Matrix, floor: &[f64], epsilon: f64, last: bool) -> Result<Factor> {
        let n = gram.rows();
        let clear = epsilon.powf(CLEAR);
        // a row for each vector that is kept; those of vectors that are not clearly independent are no pivots
        let (mut c, mut kept, mut pivots) = (Matrix::zeros(n, n), Few::new(), Few::<usize>::new());
        for (j, &floor) in floor.iter().enumerate() {
            let whole = gram.at(j, j);
            if whole < -floor.abs() {
                return Err(Error::Breakdown { what: RHO, value: whole });
            }
            let rest = pivots.iter().fold(whole, |rest, &row| rest - c.at(row, j) * c.at(row, j));
            let is_clear = rest > clear * whole;
            if whole <= floor || (last && !is_clear) {
                continue;
            }
            if rest < -clear * whole {
                return Err(Error::Breakdown { what: RHO, value: rest });
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

fn is_identity<V: Vector>(system: &System<'_, MultiVector<V>>) -> bool {
    matches!(system.m.form(), Form::Identity)
}

/// `Xᵀ Y` for the first `width` vectors of two blocks; it must be symmetric. The lists are workspace.
fn gram<V: Vector>(
    x: &MultiVector<V>,
    y: &MultiVector<V>,
    width: usize,
    products: &mut Vec<ScalarOf<V>>,
    numbers: &mut Vec<ElemOf<V>>,
) -> Result<Matrix> {
    V::gram(&x.columns()[..width], &y.columns()[..width], products);
    numbers.clear();
    ScalarOf::<V>::read_all(products.iter(), numbers)?;
    Ok(Matrix::symmetric(width, numbers.iter().map(|number| number.to_f64())))
}

/// `Y ← Σ X C`, or, if `keep` is set, `Y ← Y + Σ X C`.
fn combine<V: Vector, const N: usize>(y: &mut [V], keep: bool, terms: &[(&[V], &Matrix); N]) {
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
fn transform<V: Vector>(x: &mut MultiVector<V>, workspace: &mut MultiVector<V>, width: usize, c: &Matrix) {
    let to = &mut workspace.columns_mut()[..c.cols()];
    combine(to, false, &[(&x.columns()[..width], c)]);
    std::mem::swap(x, workspace);
}

fn scalar<V: Vector>(value: f64) -> ScalarOf<V> {
    ElemOf::<V>::from_f64(value).into()
}

/// A scalar with the same value for all columns.
fn same<V: Vector>(value: f64) -> ScalarOf<MultiVector<V>> {
    ElemOf::<V>::from_f64(value).into()
}

/// Returns an error if an entry is infinite or NaN. The columns are then solved separately, because the one
/// that caused it is unknown.
fn not_finite(what: &'static str, matrix: &Matrix) -> Result<()> {
    matrix.not_finite().map_or(Ok(()), |value| Err(Error::Breakdown { what, value }))
}
