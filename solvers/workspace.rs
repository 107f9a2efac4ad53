//! Data that a solver keeps from solve to solve: vectors, steps, the folded part of `x`, and the result of the
//! symmetry test.

use crate::accuracy::{is_symmetric, operator_norm, rounding_limit};
use crate::driver::Operators;
use crate::fallback::Fallback;
use crate::verdict::norm;
use crate::{
    Element, LinearOperator, Method, Result, Space, SpaceOf, Steps, Symmetry, Vector, plain_residual,
};
use num_traits::{One, Zero};

/// Vectors, buffers and test results that a solver keeps from solve to solve.
pub(crate) struct Workspace<K: Method<V>, V: Vector> {
    pub(crate) space: SpaceOf<V>,
    pub(crate) state: K::State,
    pub(crate) steps: V::Steps,
    /// `b` without its component along the null space, if a null space was declared.
    pub(crate) rhs: Option<V>,
    /// Part of the solution that is accumulated separately (group-wise update). While `is_folded`, the
    /// solution is `folded + x`.
    folded: Option<V>,
    /// True if `folded` holds a part of the solution.
    is_folded: bool,
    /// Earlier solutions, for solves that fail.
    pub(crate) fallback: Fallback<V>,
    /// Two vectors of workspace for norms, residuals and rounding limits.
    scratch: Option<[V; 2]>,
    /// `‖x‖` at the last start of the method.
    pub(crate) length: f64,
    /// Result of the symmetry test; cleared when the operators may get new values.
    pub(crate) symmetry: Option<SymmetryTest>,
    /// Numbers that the latest step recorded.
    pub(crate) numbers: Vec<f64>,
    /// `[α, β]` of every iteration since the last start, for methods of Lanczos type.
    pub(crate) lanczos: Vec<[f64; 2]>,
}

/// Per-column state of a lockstep solve.
pub(crate) struct PerColumn<V> {
    folded: Option<V>,
    is_folded: bool,
    fallback: Fallback<V>,
    lanczos: Vec<[f64; 2]>,
}

impl<V> Default for PerColumn<V> {
    fn default() -> Self {
        PerColumn { folded: None, is_folded: false, fallback: Fallback::default(), lanczos: Vec::new() }
    }
}

impl<V: Vector> PerColumn<V> {
    /// Resets for a new solve: no part of the solution is accumulated separately.
    pub(crate) fn begin(&mut self) {
        self.is_folded = false;
        self.fallback.begin();
        self.lanczos.clear();
    }
}

/// Result of testing whether operator and preconditioner are symmetric.
#[derive(Clone, Copy)]
pub(crate) enum SymmetryTest {
    Passed,
    UnsymmetricMatrix,
    UnsymmetricPreconditioner,
}

impl<K: Method<V>, V: Vector> Workspace<K, V> {
    pub(crate) fn new(method: &K, space: &SpaceOf<V>) -> Result<Self> {
        Ok(Workspace {
            space: space.clone(),
            state: method.workspace(space)?,
            steps: V::Steps::new(space, method.numbers(space.len()))?,
            rhs: None,
            folded: None,
            is_folded: false,
            fallback: Fallback::default(),
            scratch: None,
            length: f64::NAN,
            symmetry: None,
            numbers: Vec::new(),
            lanczos: Vec::new(),
        })
    }

    /// Exchanges the state of one column for that of another one.
    pub(crate) fn exchange(&mut self, other: &mut PerColumn<V>) {
        std::mem::swap(&mut self.folded, &mut other.folded);
        std::mem::swap(&mut self.is_folded, &mut other.is_folded);
        std::mem::swap(&mut self.fallback, &mut other.fallback);
        std::mem::swap(&mut self.lanczos, &mut other.lanczos);
    }

    /// Begins a solve: nothing is folded yet.
    pub(crate) fn begin(&mut self) {
        self.is_folded = false;
        self.fallback.begin();
        self.lanczos.clear();
    }

    /// Adds `x` to the folded part of the solution and sets `x` to zero.
    pub(crate) fn fold(&mut self, x: &mut V) -> Result<()> {
        let folded = match &mut self.folded {
            Some(folded) => folded,
            none => none.insert(self.space.zeros()?),
        };
        if self.is_folded {
            folded.axpy(&V::Elem::one().into(), x);
        } else {
            folded.copy_from(x);
        }
        self.is_folded = true;
        let zero: V::Scalar = V::Elem::zero().into();
        x.axpby(&zero, folded, &zero);
        Ok(())
    }

    /// Adds the folded part back to `x`, so that `x` is the whole solution.
    pub(crate) fn unfold(&mut self, x: &mut V) {
        if let Some(folded) = self.folded.as_ref().filter(|_| self.is_folded) {
            x.axpy(&V::Elem::one().into(), folded);
        }
        self.is_folded = false;
    }

    /// The current solution: `x` plus its folded part.
    pub(crate) fn whole<'x>(&'x mut self, x: &'x V) -> Result<&'x V> {
        let Some(folded) = self.folded.as_ref().filter(|_| self.is_folded) else { return Ok(x) };
        let [whole, _] = Self::scratch(&mut self.scratch, &self.space)?;
        whole.copy_from(x);
        whole.axpy(&V::Elem::one().into(), folded);
        Ok(whole)
    }

    /// Keeps the current solution if its recomputed residual is the smallest so far. Takes one product.
    pub(crate) fn keep_iterate(&mut self, a: &dyn LinearOperator<Vector = V>, b: &V, x: &V) -> Result<()> {
        let [whole, r] = Self::scratch(&mut self.scratch, &self.space)?;
        whole.copy_from(x);
        if let Some(folded) = self.folded.as_ref().filter(|_| self.is_folded) {
            whole.axpy(&V::Elem::one().into(), folded);
        }
        plain_residual(a, b, whole, r)?;
        let residual = norm::<V>(r.norm_squared())?;
        self.fallback.keep_iterate(whole, residual)
    }

    /// Two vectors of workspace, allocated on first use.
    fn scratch<'s>(scratch: &'s mut Option<[V; 2]>, space: &V::Space) -> Result<[&'s mut V; 2]> {
        let [v, w] = match scratch {
            Some(scratch) => scratch,
            none => none.insert([space.zeros()?, space.zeros()?]),
        };
        Ok([v, w])
    }

    /// Returns `‖A‖`: the value in `known`, or an estimate from below, which it stores there.
    pub(crate) fn operator_norm(
        &mut self,
        known: &mut Option<f64>,
        a: &dyn LinearOperator<Vector = V>,
        b: &V,
    ) -> Result<f64> {
        if let Some(norm) = *known {
            return Ok(norm);
        }
        let norm = operator_norm(a, b, Self::scratch(&mut self.scratch, &self.space)?)?;
        *known = Some(norm);
        Ok(norm)
    }

    /// Name of the operator that is not symmetric although the method requires it; `None` if both are as
    /// required. Tested once for each set of values of the operators.
    pub(crate) fn unsymmetric(
        &mut self,
        needed: Symmetry,
        Operators { a, m }: Operators<'_, V>,
        b: &V,
        x: &V,
    ) -> Result<Option<&'static str>> {
        if let Some(test) = self.symmetry {
            return Ok(test.unsymmetric_operator());
        }
        let [v, w] = Self::scratch(&mut self.scratch, &self.space)?;
        // The test vector is the residual. It is zero in rows that are already solved, such as those of
        // boundary values; these rows need not be symmetric.
        let mut r = self.space.zeros()?;
        v.copy_from(x);
        if let Some(folded) = self.folded.as_ref().filter(|_| self.is_folded) {
            v.axpy(&V::Elem::one().into(), folded);
        }
        plain_residual(a, b, v, &mut r)?;
        // The tolerances are loose, because assembling a matrix involves rounding, and a preconditioner may
        // be computed in lower precision.
        let [matrix_tolerance, preconditioner_tolerance] =
            [V::Elem::EPSILON.sqrt(), V::Elem::EPSILON.sqrt().sqrt()];
        let test = if needed == Symmetry::Nothing {
            SymmetryTest::Passed
        } else if !is_symmetric(a, &r, [v, w], matrix_tolerance)? {
            SymmetryTest::UnsymmetricMatrix
        } else if needed == Symmetry::Both && !is_symmetric(m, &r, [v, w], preconditioner_tolerance)? {
            SymmetryTest::UnsymmetricPreconditioner
        } else {
            SymmetryTest::Passed
        };
        self.symmetry = Some(test);
        Ok(test.unsymmetric_operator())
    }

    /// Residual norm that is left by rounding an exact `x` to its element type.
    pub(crate) fn rounding_limit(&mut self, a: &dyn LinearOperator<Vector = V>, x: &V) -> Result<f64> {
        rounding_limit(a, x, Self::scratch(&mut self.scratch, &self.space)?)
    }

    /// Returns the residual norm that rounding the solution leaves, and `‖A‖ ‖x‖`; `None` if the threshold is
    /// far above the rounding limit, which one inner product decides. The whole solution must be either in
    /// `x` or folded, as is the case between two steps.
    pub(crate) fn limit_near(
        &mut self,
        known: &mut Option<f64>,
        a: &dyn LinearOperator<Vector = V>,
        b: &V,
        x: &V,
        threshold: f64,
    ) -> Result<Option<[f64; 2]>> {
        let folded = self.folded.take();
        let whole = folded.as_ref().filter(|_| self.is_folded).unwrap_or(x);
        let limit = (|| {
            let scale = self.operator_norm(known, a, b)? * norm::<V>(whole.norm_squared())?;
            match threshold < V::Elem::EPSILON * scale {
                true => Ok(Some([self.rounding_limit(a, whole)?, scale])),
                false => Ok(None),
            }
        })();
        self.folded = folded;
        limit
    }
}

impl SymmetryTest {
    /// Name of the operator that failed the test.
    fn unsymmetric_operator(self) -> Option<&'static str> {
        match self {
            SymmetryTest::Passed => None,
            SymmetryTest::UnsymmetricMatrix => Some("the matrix"),
            SymmetryTest::UnsymmetricPreconditioner => Some("the preconditioner"),
        }
    }
}
