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
//! needed. 2. A vector of `Q` that depends linearly on the others is dropped (`solvers/orthonormal.rs`), and
//! `ζ` and `P` become narrower (Ji and Li 2017). So no singular matrix is inverted. 3. When a column has ended,
//! the block is reduced to the span of the residuals of the other columns.
//!
//! An iteration costs a product with `k` vectors, `k` preconditionings, about `13 k²` multiply-adds per row,
//! and `21 k` vectors read or written (without a preconditioner `10 k²` and `16 k`). Memory: four vectors per
//! column.

use crate::Condition::Positive;
use crate::block::BlockMethod;
use crate::cg::{ConjugateGradients, RHO, SIGMA};
use crate::few::Few;
use crate::orthonormal::{
    Block, Orthonormal, Products, VANISHED, combine, is_identity, not_finite, same, scalars, transform,
};
use crate::small::Matrix;
use crate::{
    BasicVector, Cost, ElemOf, Element, Error, Method, MultiSpace, MultiVector, Result, ScalarOf, Space,
    SpaceOf, Steps, System, Vector,
};

impl<V: Vector> BlockMethod<V> for ConjugateGradients {
    type Block = BlockConjugateGradients;

    fn block(&self) -> &BlockConjugateGradients {
        &BlockConjugateGradients
    }
}

/// The method of all columns of a block.
pub struct BlockConjugateGradients;

/// State between two iterations.
pub struct BlockCgState<V: Vector> {
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
    products: Products<V>,
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
            products: Products::default(),
        })
    }

    fn start(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &MultiVector<V>,
        state: &mut BlockCgState<V>,
    ) -> Result<ScalarOf<MultiVector<V>>> {
        // the previous solve has closed vectors of this space
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
        let Orthonormal { t, zeta, .. } = state.orthonormalize(system, |squared| squared)?;
        state.update_directions(system, &t, None);
        state.s = zeta;
        Ok(())
    }

    fn step(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &mut MultiVector<V>,
        state: &mut BlockCgState<V>,
        _: usize,
        steps: &mut <MultiVector<V> as BasicVector>::Steps,
    ) -> Result<()> {
        state.drop_ended(x.space());
        system.a.apply(&state.p, &mut state.z)?; // Z = A P
        let BlockCgState { p, z, width, products, .. } = &mut *state;
        let sigma = products.symmetric(&p.columns()[..*width], &z.columns()[..*width])?;
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
        let Orthonormal { t, zeta, .. } = match state.orthonormalize(system, |squared| squared.max(1.0)) {
            Err(Error::Breakdown { what, value }) if value.is_finite() => {
                return steps.watch(what, &same::<V>(value), Positive);
            }
            basis => basis?,
        };
        state.s = zeta.times(&state.s);
        let squares = state.residuals(system, &t)?;
        state.update_directions(system, &t, Some(&zeta));
        steps.residual(&scalars::<V>(x.columns().len(), &columns, &squares))
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
    fn drop_ended(&mut self, of_solutions: &MultiSpace<SpaceOf<V>>) {
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

    /// Finds an orthonormal basis of `Q`; `scale` maps the squared norm of a vector to the squared norm
    /// relative to which it is tested for vanishing.
    fn orthonormalize(
        &mut self,
        system: &System<'_, MultiVector<V>>,
        scale: impl Fn(f64) -> f64,
    ) -> Result<Orthonormal> {
        let BlockCgState { q, w, z, width, products, .. } = &mut *self;
        let w = (!is_identity(system)).then_some(w);
        let vanished = ElemOf::<V>::EPSILON.powf(2.0 * VANISHED);
        let floor = |_, squared| vanished * scale(squared);
        let basis = Block { q, w, z, width: *width }.orthonormalize(RHO, products, floor)?;
        self.narrow_to(basis.t.rows());
        Ok(basis)
    }

    /// `Q ← Q T; P ← M⁻¹ Q + P ζᵀ`
    fn update_directions(&mut self, system: &System<'_, MultiVector<V>>, t: &Matrix, zeta: Option<&Matrix>) {
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
        let BlockCgState { q, width, products, .. } = &mut *self;
        let q = &q.columns()[..*width];
        let squares = products.symmetric(q, q)?.forms(&t.times(&self.s));
        // rounding may make the squared norm of a vanishing residual negative
        Ok(squares.iter().map(|&squared| if squared < 0.0 { 0.0 } else { squared }).collect())
    }
}
