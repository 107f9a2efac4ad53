//! Restarted block GMRES (Simoncini and Gallopoulos 1996, "Convergence properties of block GMRES and matrix
//! polynomials"), right-preconditioned, for general `A`: several right-hand sides share one search space.
//!
//! ```text
//! until all columns have ended:
//!     R = B − A X = V₀ S,  with V₀ᵀ V₀ = I
//!     for p = 0, 1, ... up to the length of a cycle:
//!         A M⁻¹ V_p = V C + V_{p+1} ζ,  with V = [V₀ ... V_p],  Vᵀ V_{p+1} = 0,  V_{p+1}ᵀ V_{p+1} = I
//!         column p of the block Hessenberg matrix H: [C; ζ]
//!         ‖r_j‖ = min_y ‖[s_j; 0] − H y‖
//!         columns that have ended: x_j = x_j + M⁻¹ V y_j
//!     X = X + M⁻¹ V Y
//! ```
//!
//! Each `x_j` minimizes `‖b_j − A x_j‖` over the sum of the Krylov spaces of all columns. With `k` columns a
//! residual decreases as if the `k − 1` most harmful eigenvalues of `A M⁻¹` were absent. For `k = 1` this is
//! GMRES.
//!
//! A block is orthogonalized by classical block Gram-Schmidt, done twice, and by the Cholesky factorization of
//! its Gram matrix (`solvers/orthonormal.rs`); if vectors of the block are nearly dependent, both are repeated.
//! Vectors that depend on the others are dropped: of `R` at a start, as for equal columns, and of
//! `A M⁻¹ V_p` (Robbe and Sadkane 2006, "Exact and inexact breakdowns in the block GMRES method"). The following
//! blocks are then narrower. Vectors are not dropped as soon as residuals become small, which Langou discusses
//! (2003, "Iterative methods for solving linear systems with multiple right-hand sides"): a block keeps its width
//! when a column ends, and the next cycle starts from the residuals of the other columns. Householder reflections
//! keep `H` triangular; a vector whose image is in the span of earlier images, as with a singular `A`, gets the
//! coordinate zero. If the basis cannot grow, the columns that have not ended are solved separately from their
//! initial guesses; their reports do not count the steps of the block.
//!
//! Differs from the textbook: a vector that is dropped is lost until the next cycle. The method of Robbe and
//! Sadkane keeps such directions and may return them to the block in later steps.
//!
//! Step `p` costs a product with `k` vectors, `k` preconditionings, about `4 (p + 1) k²` multiply-adds per row,
//! and `8 (p + 1) k` vectors read or written.
//!
//! Memory: a cycle has as many steps as one of GMRES, `m`, and stores up to `m + 4` vectors per column. They are
//! allocated when they are first needed. With `m / k` steps a cycle would take the memory of GMRES, but after each
//! restart a block has to find the same eigenvalues again, so short cycles lose what the joint search space gains.
//! Products of blocks of 8 and 16 columns, relative to separate solves with cycles of the same length, of
//! convection and diffusion on grids of 30³ and 100² points (pseudo-random right-hand sides, to 1e-8): 0.47 to 0.88
//! with `Ilu0` and m = 30, 0.31 to 0.89 with `Jacobi` and m = 120, but 0.95 to 1.45 with `Jacobi` and m = 30, where
//! a solve takes 6 to 18 cycles.
//!
//! Blocks save time if products and preconditioning are expensive compared with orthogonalization. On two busy
//! cores, 16 columns with `Ilu0` and m = 30 took 0.46 of the products and 0.31 of the time with 68 entries in a row
//! (5,184 rows), but 0.47 of the products and 2.1 times the time with 5 entries in a row (10,000 rows).

use crate::block::BlockMethod;
use crate::few::{Few, TOGETHER};
use crate::gmres::{GeneralizedMinimalResidual, PIVOT};
use crate::orthonormal::{
    Block, Orthonormal, Products, VANISHED, combine, is_identity, not_finite, scalars, transform,
};
use crate::reflections::{LeastSquares, ROUNDING};
use crate::small::Matrix;
use crate::{
    BasicVector, Cost, ElemOf, Element, Error, Method, MultiSpace, MultiVector, Result, Scalar, ScalarOf,
    Space, SpaceOf, Steps, System, Vector,
};
use num_traits::One;
use std::mem::swap;
use std::ops::Range;

/// Name of `A M⁻¹ V` in errors.
const IMAGE: &str = "A M⁻¹ V";

/// Maximum number of orthonormalizations of a block. The second one finds the block orthonormal, unless its
/// vectors were so nearly dependent that rounding errors in the span of the basis were enlarged again. Guess that
/// follows from this analysis.
const PASSES: usize = 3;

impl<V: Vector> BlockMethod<V> for GeneralizedMinimalResidual {
    type Block = BlockGeneralizedMinimalResidual;

    fn block(&self) -> &BlockGeneralizedMinimalResidual {
        &self.block
    }
}

/// The method of all columns of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockGeneralizedMinimalResidual {
    pub(crate) restart: usize,
}

impl BlockGeneralizedMinimalResidual {
    /// Number of steps per cycle for a system of `len` unknowns.
    pub(crate) fn steps(&self, len: usize) -> usize {
        self.restart.min(len.max(1))
    }
}

/// State between two steps.
pub struct BlockGmresState<V: Vector> {
    /// The orthonormal basis `V`, block by block; vectors from `latest.end` on are workspace.
    basis: Vec<V>,
    /// Indices of the latest block in the basis. Those before it span the search space.
    latest: Range<usize>,
    /// Residuals at the start, and then `A M⁻¹ V_p`.
    w: MultiVector<V>,
    /// `V_p`, and `V Y`.
    v: MultiVector<V>,
    /// `M⁻¹ V_p`, `M⁻¹ V Y`, and workspace.
    z: MultiVector<V>,
    /// The space of `w`, `v` and `z`. Vectors beyond the width of the block are closed.
    directions: MultiSpace<SpaceOf<V>>,
    /// Index of the solution that each right-hand side of the least-squares problem belongs to.
    columns: Few<usize>,
    /// `C`, a matrix for each [`TOGETHER`] vectors of the basis.
    coefficients: Vec<Matrix>,
    /// Coefficients of the latest projection or combination, stored as `coefficients`.
    recent: Vec<Matrix>,
    least_squares: LeastSquares,
    products: Products<V>,
}

impl<V: Vector> Method<MultiVector<V>> for BlockGeneralizedMinimalResidual {
    type State = BlockGmresState<V>;

    fn workspace(&self, space: &MultiSpace<SpaceOf<V>>) -> Result<BlockGmresState<V>> {
        let directions = MultiSpace::new(space.of_column(), space.columns());
        Ok(BlockGmresState {
            basis: Vec::new(),
            latest: 0..0,
            w: directions.zeros()?,
            v: directions.zeros()?,
            z: directions.zeros()?,
            directions,
            columns: Few::new(),
            coefficients: Vec::new(),
            recent: Vec::new(),
            least_squares: LeastSquares::default(),
            products: Products::default(),
        })
    }

    fn start(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &MultiVector<V>,
        state: &mut BlockGmresState<V>,
    ) -> Result<ScalarOf<MultiVector<V>>> {
        state.w.join(x.space());
        system.residual(x, &mut state.w)
    }

    fn begin(&self, _: &System<'_, MultiVector<V>>, state: &mut BlockGmresState<V>) -> Result<()> {
        let open: Few<usize> = (0..state.w.columns().len()).filter(|&j| state.w.space().is_open(j)).collect();
        for (to, &from) in open.iter().enumerate() {
            state.w.columns_mut().swap(to, from);
        }
        let BlockGmresState { directions, w, v, z, .. } = &mut *state;
        directions.open_all();
        [w, v, z].into_iter().for_each(|vectors| vectors.join(directions));
        (state.columns, state.latest) = (open, 0..0);
        let vanished = ElemOf::<V>::EPSILON.powf(2.0 * VANISHED);
        let s = state.orthonormalize(open.len(), |_, squared| vanished * squared)?.zeta;
        state.least_squares.begin(&s);
        state.append(s.rows())
    }

    fn step(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &mut MultiVector<V>,
        state: &mut BlockGmresState<V>,
        _: usize,
        steps: &mut <MultiVector<V> as BasicVector>::Steps,
    ) -> Result<()> {
        if state.latest.is_empty() {
            // A M⁻¹ maps the span of the basis to itself. What is left of the residuals is due to rounding, or
            // outside the range of a singular A.
            return Err(Error::Breakdown { what: PIVOT, value: 0.0 });
        }
        state.multiply(system)?; // W = A M⁻¹ V_p
        let zeta = state.orthogonalize()?; // W = V C + Q ζ
        for j in 0..state.latest.len() {
            let matrices = state.coefficients.iter().chain([&zeta]);
            let h = matrices.flat_map(|c| (0..c.rows()).map(move |i| c.at(i, j)));
            state.least_squares.extend(h, ElemOf::<V>::EPSILON);
        }
        state.append(zeta.rows())?; // V_{p+1} = Q
        let squares: Few<f64> =
            (0..state.columns.len()).map(|j| state.least_squares.residual_squared(j)).collect();
        steps.residual(&scalars::<V>(x.columns().len(), &state.columns, &squares))
    }

    fn cycle(&self, len: usize) -> Option<usize> {
        Some(self.steps(len))
    }

    /// Updates the open columns of `x` to the iterates with the smallest residuals. Closed columns are unchanged.
    fn finish(
        &self,
        system: &System<'_, MultiVector<V>>,
        x: &mut MultiVector<V>,
        state: &mut BlockGmresState<V>,
    ) -> Result<()> {
        if state.latest.start == 0 {
            return Ok(());
        }
        state.combine_basis(x.space());
        let BlockGmresState { v, z, directions, .. } = state;
        v.join(x.space());
        z.join(x.space());
        let one = ElemOf::<V>::one().into();
        let updated = if is_identity(system) {
            x.axpy(&one, v); // X = X + V Y
            Ok(())
        } else {
            system.m.apply(v, z).map(|()| x.axpy(&one, z)) // X = X + M⁻¹ V Y
        };
        // also after an error: the solver keeps this state for later solves
        v.join(directions);
        z.join(directions);
        updated
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 4.0 * (self.restart as f64 + 1.0) + 10.0 }
    }
}

impl<V: Vector> BlockGmresState<V> {
    /// `W ← A M⁻¹ V_p`
    fn multiply(&mut self, system: &System<'_, MultiVector<V>>) -> Result<()> {
        let BlockGmresState { basis, latest, w, v, z, .. } = self;
        let mut exchange = |v: &mut MultiVector<V>| {
            basis[latest.clone()].iter_mut().zip(v.columns_mut()).for_each(|(of_basis, v)| swap(of_basis, v));
        };
        exchange(v);
        let multiplied = if is_identity(system) {
            system.a.apply(v, w)
        } else {
            system.m.apply(v, z).and_then(|()| system.a.apply(z, w))
        };
        exchange(v);
        multiplied
    }

    /// Replaces `W` by an orthonormal basis `Q` of its component orthogonal to `V`. Sets the coefficients `C`,
    /// and returns `ζ` with `W = V C + Q ζ`.
    fn orthogonalize(&mut self) -> Result<Matrix> {
        let mut zeta = Matrix::identity(self.latest.len());
        let rounding = (ROUNDING * ElemOf::<V>::EPSILON).powi(2);
        let squares = self.w.norm_squared();
        let mut floors = Few::<f64>::new();
        for j in 0..zeta.rows() {
            floors.push(rounding * squares.column(j).read()?.to_f64());
        }
        self.coefficients.clear();
        self.project(&zeta)?;
        for _ in 0..PASSES {
            self.project(&zeta)?;
            let basis = self.orthonormalize(zeta.rows(), |j, _| floors[j])?;
            zeta = basis.zeta.times(&zeta);
            if basis.was_clear || zeta.rows() == 0 {
                break;
            }
            // the vectors are now of length one
            floors.iter_mut().for_each(|floor| *floor = rounding);
        }
        Ok(zeta)
    }

    /// Subtracts from the first vectors of `W` their components in the span of `V`. Adds the coefficients, times
    /// `ζ`, to `C`.
    fn project(&mut self, zeta: &Matrix) -> Result<()> {
        let BlockGmresState { basis, latest, w, coefficients, recent, products, .. } = self;
        let (basis, w) = (&basis[..latest.end], &mut w.columns_mut()[..zeta.rows()]);
        recent.clear();
        for (index, vectors) in basis.chunks(TOGETHER).enumerate() {
            let c = products.all(vectors, w)?;
            not_finite(IMAGE, &c)?;
            let total = c.times(zeta);
            match coefficients.get_mut(index) {
                Some(before) => *before = before.plus(&total),
                None => coefficients.push(total),
            }
            recent.push(c.negated());
        }
        add_combination(w, true, basis, recent);
        Ok(())
    }

    /// Makes the first `width` vectors of `W` orthonormal, without those that depend on the others, and closes
    /// all others.
    fn orthonormalize(&mut self, width: usize, floor: impl Fn(usize, f64) -> f64) -> Result<Orthonormal> {
        let BlockGmresState { w, z, products, .. } = &mut *self;
        let basis = Block { q: w, w: None, z, width }.orthonormalize(IMAGE, products, floor)?;
        transform(w, z, basis.t.rows(), &basis.t);
        (basis.t.cols()..self.directions.columns()).for_each(|column| self.directions.close(column));
        Ok(basis)
    }

    /// Moves the first `width` vectors of `W` to the end of the basis.
    fn append(&mut self, width: usize) -> Result<()> {
        let BlockGmresState { basis, latest, w, directions, .. } = self;
        *latest = latest.end..latest.end + width;
        while basis.len() < latest.end {
            basis.push(directions.of_column().zeros()?);
        }
        basis[latest.clone()].iter_mut().zip(w.columns_mut()).for_each(|(of_basis, w)| swap(of_basis, w));
        Ok(())
    }

    /// Assembles `V y_j` in column `j` of `v`, for the columns that are open in `space`.
    fn combine_basis(&mut self, space: &MultiSpace<SpaceOf<V>>) {
        let BlockGmresState { basis, latest, v, columns, recent, least_squares, .. } = self;
        let open = columns.iter().enumerate().filter(|(_, column)| space.is_open(**column));
        let sides: Few<usize> = open.map(|(side, _)| side).collect();
        let basis = &basis[..latest.start];
        recent.clear();
        recent.extend(basis.chunks(TOGETHER).map(|vectors| Matrix::zeros(vectors.len(), sides.len())));
        for (place, &side) in sides.iter().enumerate() {
            for (index, y) in least_squares.solve(side) {
                recent[index / TOGETHER].set(index % TOGETHER, place, y);
            }
        }
        add_combination(&mut v.columns_mut()[..sides.len()], false, basis, recent);
        // the columns are in ascending order
        for (place, &side) in sides.iter().enumerate().rev() {
            v.columns_mut().swap(place, columns[side]);
        }
    }
}

/// `Y ← V C`, or, if `keep` is set, `Y ← Y + V C`, with a matrix for each [`TOGETHER`] vectors of `V`.
fn add_combination<V: Vector>(y: &mut [V], keep: bool, v: &[V], c: &[Matrix]) {
    let mut keep = keep;
    for (v, c) in v.chunks(2 * TOGETHER).zip(c.chunks(2)) {
        match c {
            [first, second] => {
                let (of_first, of_second) = v.split_at(TOGETHER);
                combine(y, keep, &[(of_first, first), (of_second, second)]);
            }
            [only] => combine(y, keep, &[(v, only)]),
            _ => {}
        }
        keep = true;
    }
}
