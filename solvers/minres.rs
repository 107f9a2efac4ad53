//! MINRES (Paige and Saunders 1975), preconditioned, for symmetric `A`, definite or not, and symmetric
//! positive definite `M`.
//!
//! The iterate minimizes `‖b − A x‖`, in the norm of `M⁻¹`, over the Krylov space of `M⁻¹A`. In exact
//! arithmetic the method ends after as many steps as `M⁻¹A` has distinct eigenvalues. The Lanczos process
//! gives `A M⁻¹ V_k = V_{k+1} T_k` with a tridiagonal `T_k`, whose column `k` has the entries `β_k`, `α_k`,
//! `β_{k+1}`. Two earlier Givens rotations and a new one make this column upper triangular:
//!
//! ```text
//! ε_k = s_{k−2} β_k    δ_k = c_{k−1} c_{k−2} β_k + s_{k−1} α_k    γ̄_k = c_{k−1} α_k − s_{k−1} c_{k−2} β_k
//! γ_k = √(γ̄_k² + β_{k+1}²)    c_k = γ̄_k / γ_k    s_k = β_{k+1} / γ_k
//! w_k = (M⁻¹ v_k − δ_k w_{k−1} − ε_k w_{k−2}) / γ_k    x_k = x_{k−1} + c_k φ_k w_k    φ_{k+1} = −s_k φ_k
//! ```
//!
//! 1. `|φ_{k+1}|` is `‖r_k‖` in the norm of `M⁻¹`, but the stopping criterion uses the Euclidean norm. With a
//!    preconditioner the residual is therefore updated too, by
//!    `r_k = s_k² r_{k−1} − (c_k φ_k / γ_k) β_{k+1} v_{k+1}`.
//! 2. `v` and `w` are stored unnormalized, as `β_k v_k` and `γ_k w_k`, so that no vector operation waits for
//!    a square root.
//! 3. Vectors swap roles after every step instead of being copied: even and odd steps alternate
//!    ([`Method::places`]).
//!
//! An iteration costs one product, one preconditioning and two reductions. With a diagonal `M` its memory
//! traffic is that of the matrix and 20 vectors. Without a preconditioner `r` and `M⁻¹ v` are not needed, and
//! it is that of 14. Memory: seven vectors. On a GPU the sums and square roots of scalars take seven launches
//! of one thread.
//!
//! If `A` is singular and `b` is not in its range, the residual decreases to its minimum and stays there, until
//! rounding errors let `x` grow along the null space: `|φ|` then decreases below the minimum, and `‖b − A x‖`
//! grows. The driver returns an iterate from before (`fallback.rs`), which nearly has the least residual.

use crate::Condition::Positive;
use crate::{
    Cost, Element, Form, Identity, LinearOperator, Method, Result, Scalar, ScalarOf, Solver, Space, Steps,
    Symmetry, System, Vector,
};
use num_traits::{One, Zero};

/// A new direction makes no progress if its image leaves less than `ε^NO_PROGRESS` of its squared norm outside the span of the
/// earlier ones. Guess, chosen above the square of a rounding, `ε²`, by the
/// growth of rounding errors in a recurrence.
const NO_PROGRESS: f64 = 1.6;

/// MINRES, for symmetric `A`, definite or not: `Minres::new(op).solve(&b)`.
///
/// | option | what it sets |
/// | --- | --- |
/// | [`preconditioner`](Solver::preconditioner) | an operator that applies `M⁻¹`, symmetric positive definite |
/// | [`rtol`](Solver::rtol), [`atol`](Solver::atol) | converged when `‖b − A x‖ ≤ max(rtol ‖b‖, atol)`; 1e-8 (`f32`: 3.5e-4) and 0 by default |
/// | [`max_iterations`](Solver::max_iterations), [`time_limit`](Solver::time_limit) | limits: 10,000 iterations and no time limit by default |
/// | [`stagnation_window`](Solver::stagnation_window) | stagnation window: iterations without a decrease of the residual before a check |
/// | [`null_space`](Solver::null_space) | the null space of `A`, if it is known |
/// | [`observe`](Solver::observe), [`stop_when`](Solver::stop_when), [`stop_soon_when`](Solver::stop_soon_when), [`cancel_token`](Solver::cancel_token) | observe iterations, stop the solve |
///
/// Then call [`solve`](Solver::solve) to start from zero, [`solve_from`](Solver::solve_from) to start from an
/// initial guess, or [`solve_into`](Solver::solve_into) for vectors in the operator's memory, without copies.
///
/// ```
/// use krysp::{Csr, Minres};
///
/// // symmetric, with eigenvalues of both signs
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 1.0)])?;
/// let solution = Minres::new(&a).solve(&[3.0, 3.0])?;
/// assert!(solution.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Minres<A, M = Identity<<A as LinearOperator>::Vector>> = Solver<MinimalResidual, A, M>;

/// The method of [`Minres`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MinimalResidual;

pub(crate) const NU: &str = "⟨v, M⁻¹v⟩";
pub(crate) const GAMMA: &str = "γ² minus its rounding error";

/// State between two iterations.
pub struct MinresState<V: Vector> {
    r: V,
    z: V,
    q: V,
    /// States after the last two steps. Even and odd steps swap the roles of both.
    states: [StepState<V>; 2],
    phi: ScalarOf<V>,
    nu: ScalarOf<V>,
}

/// State after step `k` that the next two steps need.
struct StepState<V: Vector> {
    /// `β_{k+1} v_{k+1}`
    v: V,
    /// `γ_k w_k`
    w: V,
    beta: ScalarOf<V>,
    gamma: ScalarOf<V>,
    c: ScalarOf<V>,
    s: ScalarOf<V>,
}

impl<V: Vector> StepState<V> {
    fn new(space: &V::Space) -> Result<Self> {
        let one = V::Elem::one();
        Ok(StepState {
            v: space.zeros()?,
            w: space.zeros()?,
            beta: one.into(),
            gamma: one.into(),
            c: one.into(),
            s: one.into(),
        })
    }

    /// Sets the state of a virtual step before the first, with this cosine and a sine of zero.
    fn begin(&mut self, beta: &V::Scalar, cosine: V::Elem) {
        let zero: V::Scalar = V::Elem::zero().into();
        let StepState { v, w, .. } = self;
        w.axpby(&zero, v, &zero);
        self.beta.assign(beta);
        self.gamma.assign(&V::Elem::one().into());
        self.c.assign(&cosine.into());
        self.s.assign(&zero);
    }
}

impl<V: Vector> Method<V> for MinimalResidual {
    type State = MinresState<V>;

    fn workspace(&self, space: &V::Space) -> Result<MinresState<V>> {
        Ok(MinresState {
            r: space.zeros()?,
            z: space.zeros()?,
            q: space.zeros()?,
            states: [StepState::new(space)?, StepState::new(space)?],
            phi: V::Elem::zero().into(),
            nu: V::Elem::zero().into(),
        })
    }

    fn start(&self, system: &System<'_, V>, x: &V, state: &mut MinresState<V>) -> Result<V::Scalar> {
        system.residual(x, &mut state.r) // r = b − A x
    }

    fn begin(&self, system: &System<'_, V>, state: &mut MinresState<V>) -> Result<()> {
        let MinresState { r, z, states: [now, before], phi, nu, .. } = state;
        let (zero, one): (V::Scalar, V::Scalar) = (V::Elem::zero().into(), V::Elem::one().into());
        nu.assign(&system.m.apply_dot(r, z)?); // z = M⁻¹ r,  ν₁ = ⟨r, z⟩
        now.v.copy_from(r); // β₁ v₁ = r
        before.v.axpby(&zero, r, &zero); // v₀ = w₀ = w₋₁ = 0,  c₀ = 1,  c₋₁ = 0
        now.begin(&nu.clone().sqrt(), V::Elem::one()); // β₁ = √ν₁
        before.begin(&one, V::Elem::zero());
        phi.assign(&now.beta); // φ₁ = β₁
        Ok(())
    }

    fn step(
        &self,
        &System { a, m, .. }: &System<'_, V>,
        x: &mut V,
        state: &mut MinresState<V>,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()> {
        let MinresState { r, z, q, states: [even, odd], phi, nu } = state;
        // `before` holds v_{k−1}, w_{k−2}, and is overwritten by v_{k+1}, w_k
        let (now, before) = if place == 0 { (even, odd) } else { (odd, even) };
        let direct = matches!(m.form(), Form::Identity);
        let [beta, beta_before] = [now.beta.clone(), before.beta.clone()];
        let [[c, s], [c_before, s_before]] =
            [&*now, &*before].map(|state| [state.c.clone(), state.s.clone()]);

        steps.watch(NU, nu, Positive)?;
        let z_now = if direct { &now.v } else { &*z };
        let sigma = a.apply_dot(z_now, q)?; // q = A β z_k,  σ = β² α
        let alpha = sigma / (beta.clone() * beta.clone());
        let rotated = c_before * beta.clone();
        let epsilon = s_before * beta.clone(); // ε = s' β
        let delta = c.clone() * rotated.clone() + s.clone() * alpha.clone(); // δ = c c' β + s α
        let gamma_bar = c * alpha.clone() + -(s * rotated); // γ̄ = c α − s c' β

        // γ_k w_k = M⁻¹ v_k − δ w_{k−1} − ε w_{k−2}
        let inverse = V::Scalar::from(V::Elem::one()) / beta.clone();
        let of_w = delta.clone() / now.gamma.clone();
        let of_w_before = epsilon.clone() / before.gamma.clone();
        before.w.axpbypcz(&inverse, z_now, &-of_w, &now.w, &-of_w_before);
        // β_{k+1} v_{k+1} = A M⁻¹ v_k − α v_k − β v_{k−1}
        let [of_v, of_v_before] = [alpha / beta.clone(), beta / beta_before];
        before.v.axpbypcz(&inverse, q, &-of_v, &now.v, &-of_v_before);
        let nu_next = if direct { before.v.norm_squared() } else { m.apply_dot(&before.v, z)? }; // ν' = β_{k+1}²
        let gamma_squared = gamma_bar.clone() * gamma_bar.clone() + nu_next.clone(); // γ² = γ̄² + ν'

        // The image of the new direction is in the span of the earlier images, up to the rounding errors of a
        // recurrence: no progress is possible.
        let others = delta.clone() * delta + epsilon.clone() * epsilon;
        let rounding: V::Scalar = V::Elem::from_f64(-V::Elem::EPSILON.powf(NO_PROGRESS)).into();
        steps.watch(GAMMA, &(gamma_squared.clone() + rounding * others), Positive)?;
        let tau = gamma_bar.clone() * phi.clone() / gamma_squared.clone(); // c_k φ_k / γ_k
        x.axpy(&tau, &before.w); // x = x + c φ w
        let s_squared = nu_next.clone() / gamma_squared.clone();
        let rr = if direct {
            phi.clone() * phi.clone() * s_squared // ‖r‖² = φ_{k+1}²
        } else {
            r.axpby(&-tau, &before.v, &s_squared); // r = s² r − (c φ / γ) β_{k+1} v_{k+1}
            r.norm_squared()
        };
        let [beta_next, gamma] = [nu_next.clone().sqrt(), gamma_squared.sqrt()];
        let s = beta_next.clone() / gamma.clone();
        phi.assign(&-(s.clone() * phi.clone())); // φ = −s φ
        nu.assign(&nu_next);
        before.beta.assign(&beta_next);
        before.gamma.assign(&gamma);
        before.c.assign(&(gamma_bar / gamma));
        before.s.assign(&s);
        steps.residual(&rr)
    }

    fn places(&self) -> usize {
        2
    }

    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Both
    }

    fn cost(&self) -> Cost {
        Cost { products: 1.0, preconditionings: 1.0, vectors: 20.0 }
    }
}
