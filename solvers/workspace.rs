//! What a solver keeps from solve to solve: vectors, steps, the part of `x` that was put aside, and what was found out of the
//! operators.

use crate::accuracy::{is_symmetric, operator_norm, rounding_limit};
use crate::verdict::norm;
use crate::{
    Element, LinearOperator, Method, Result, Space, SpaceOf, Steps, Symmetry, Vector, plain_residual,
};
use num_traits::{One, Zero};

/// What is found out of operators when it is first needed.
#[derive(Default)]
pub(crate) struct Found {
    /// `‖A‖`, from below.
    norm: Option<f64>,
    /// Which of the two is not symmetric, if one is.
    unsymmetric: Option<Option<&'static str>>,
}

/// What a solver keeps from solve to solve.
pub(crate) struct Workspace<K: Method<V>, V: Vector> {
    pub(crate) space: SpaceOf<V>,
    pub(crate) work: K::Work,
    pub(crate) steps: V::Steps,
    /// `b` without its part along the null space, where there is one.
    pub(crate) rhs: Option<V>,
    /// What was put aside of the solution: `x` is what was gained since.
    aside: Option<V>,
    /// Whether something was.
    folded: bool,
    /// Two vectors for norms and limits.
    spare: Option<[V; 2]>,
    /// What was found out of the operators, for as long as they keep their values.
    pub(crate) found: Found,
    /// What a step recorded.
    pub(crate) numbers: Vec<f64>,
    /// `[α, β]` of every iteration since the last start, for methods of Lanczos type.
    pub(crate) lanczos: Vec<[f64; 2]>,
}

impl<K: Method<V>, V: Vector> Workspace<K, V> {
    pub(crate) fn new(method: &K, space: &SpaceOf<V>) -> Result<Self> {
        Ok(Workspace {
            space: space.clone(),
            work: method.workspace(space)?,
            steps: V::Steps::new(space, method.numbers(space.len()))?,
            rhs: None,
            aside: None,
            folded: false,
            spare: None,
            found: Found::default(),
            numbers: Vec::new(),
            lanczos: Vec::new(),
        })
    }

    /// Begins a solve: nothing is put aside.
    pub(crate) fn begin(&mut self) {
        self.folded = false;
        self.lanczos.clear();
    }

    /// Puts aside what `x` holds; it is zero then.
    pub(crate) fn fold(&mut self, x: &mut V) -> Result<()> {
        let aside = match &mut self.aside {
            Some(aside) => aside,
            none => none.insert(self.space.zeros()?),
        };
        if self.folded {
            aside.axpy(&V::Elem::one().into(), x);
        } else {
            aside.copy_from(x);
        }
        self.folded = true;
        let zero: V::Scalar = V::Elem::zero().into();
        x.axpby(&zero, aside, &zero);
        Ok(())
    }

    /// Makes `x` whole again.
    pub(crate) fn unfold(&mut self, x: &mut V) {
        if let Some(aside) = self.aside.as_ref().filter(|_| self.folded) {
            x.axpy(&V::Elem::one().into(), aside);
        }
        self.folded = false;
    }

    /// Two vectors to work in, made when first needed.
    fn spare<'s>(spare: &'s mut Option<[V; 2]>, space: &V::Space) -> Result<[&'s mut V; 2]> {
        let [v, w] = match spare {
            Some(spare) => spare,
            none => none.insert([space.zeros()?, space.zeros()?]),
        };
        Ok([v, w])
    }

    /// `‖A‖`, from below; found once for the values that `A` has.
    pub(crate) fn operator_norm<A: LinearOperator<Vector = V>>(&mut self, a: &A, b: &V) -> Result<f64> {
        if let Some(norm) = self.found.norm {
            return Ok(norm);
        }
        let norm = operator_norm(a, b, Self::spare(&mut self.spare, &self.space)?)?;
        self.found.norm = Some(norm);
        Ok(norm)
    }

    /// Which of operator and preconditioner is not symmetric, if one is; found once for the values that they have.
    pub(crate) fn unsymmetric(
        &mut self,
        needed: Symmetry,
        a: &dyn LinearOperator<Vector = V>,
        m: &dyn LinearOperator<Vector = V>,
        b: &V,
        x: &V,
    ) -> Result<Option<&'static str>> {
        if let Some(found) = self.found.unsymmetric {
            return Ok(found);
        }
        let [v, w] = Self::spare(&mut self.spare, &self.space)?;
        // tried with the residual: rows that are solved, such as those of boundary values, need not be symmetric
        let mut r = self.space.zeros()?;
        v.copy_from(x);
        if let Some(aside) = self.aside.as_ref().filter(|_| self.folded) {
            v.axpy(&V::Elem::one().into(), aside);
        }
        plain_residual(a, b, v, &mut r)?;
        // an assembly rounds; preconditioners may be computed in fewer digits
        let [of_matrix, of_preconditioner] = [V::Elem::EPSILON.sqrt(), V::Elem::EPSILON.sqrt().sqrt()];
        let found = if needed == Symmetry::Nothing {
            None
        } else if !is_symmetric(a, &r, [v, w], of_matrix)? {
            Some("the matrix")
        } else if needed == Symmetry::Both && !is_symmetric(m, &r, [v, w], of_preconditioner)? {
            Some("the preconditioner")
        } else {
            None
        };
        self.found.unsymmetric = Some(found);
        Ok(found)
    }

    /// The residual that rounding `x` leaves.
    pub(crate) fn rounding_limit<A: LinearOperator<Vector = V>>(&mut self, a: &A, x: &V) -> Result<f64> {
        rounding_limit(a, x, Self::spare(&mut self.spare, &self.space)?)
    }

    /// Between two steps, where all of `x` is put aside or none: the residual that rounding `x` leaves, and `‖A‖ ‖x‖`. Nothing
    /// where a threshold is far from that, which costs one inner product.
    pub(crate) fn limit_near<A: LinearOperator<Vector = V>>(
        &mut self,
        a: &A,
        b: &V,
        x: &V,
        threshold: f64,
    ) -> Result<Option<[f64; 2]>> {
        let aside = self.aside.take();
        let whole = aside.as_ref().filter(|_| self.folded).unwrap_or(x);
        let limit = (|| {
            let scale = self.operator_norm(a, b)? * norm::<V>(whole.norm_squared())?;
            match threshold < V::Elem::EPSILON * scale {
                true => Ok(Some([self.rounding_limit(a, whole)?, scale])),
                false => Ok(None),
            }
        })();
        self.aside = aside;
        limit
    }
}
