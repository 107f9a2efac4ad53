//! What a method is: its workspace, its step, and what it costs.

use crate::operator::plain_residual;
use crate::stagnation::Patience;
use crate::{LinearOperator, Result, ScalarOf, Vector};

/// The system a method works on.
#[derive(Debug)]
pub struct System<'s, A: LinearOperator, M> {
    /// The operator.
    pub a: &'s A,
    /// The preconditioner, which applies `M⁻¹`.
    pub m: &'s M,
    /// The right-hand side.
    pub b: &'s A::Vector,
    /// How its residual is computed.
    pub arithmetic: Arithmetic,
    /// How many breakdowns in a row, without progress between them, came before this start: the method may go another way.
    pub attempt: usize,
}

/// What a method needs to be symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// Neither the operator nor the preconditioner.
    Nothing,
    /// The operator; the preconditioner may even change from one iteration to the next.
    Operator,
    /// Both.
    Both,
}

/// How `b − A x` is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `x` is zero: the residual is `b`.
    Zero,
    /// By a product.
    Plain,
    /// By [`LinearOperator::residual`].
    Precise,
}

impl<A: LinearOperator, M> System<'_, A, M> {
    /// `r ← b − A x; ‖r‖²`
    pub fn residual(&self, x: &A::Vector, r: &mut A::Vector) -> Result<ScalarOf<A::Vector>> {
        match self.arithmetic {
            Arithmetic::Zero => r.copy_from(self.b),
            Arithmetic::Plain => plain_residual(self.a, self.b, x, r)?,
            Arithmetic::Precise => self.a.residual(self.b, x, r)?,
        }
        Ok(r.norm_squared())
    }
}

/// What one iteration costs: the budget that benches hold it to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Products with `A`, each one reading of its format.
    pub products: f64,
    /// Applications of `M⁻¹`.
    pub preconditionings: f64,
    /// Vectors read or written, those of the products and of a diagonal `M⁻¹` included.
    pub vectors: f64,
}

/// A Krylov method: its workspace and one iteration.
pub trait Method<V: Vector> {
    /// The vectors and scalars an iteration works with, kept from solve to solve.
    type Work: Send;

    /// Room to work in.
    fn workspace(&self, space: &V::Space) -> Result<Self::Work>;

    /// Begins at `x`: computes `r = b − A x` afresh and returns `‖r‖²`.
    fn start<A, M>(&self, system: &System<'_, A, M>, x: &V, work: &mut Self::Work) -> Result<V::Scalar>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>;

    /// One iteration. `place` counts from 0 within the method's [cycle](Method::cycle), or within its
    /// [places](Method::places). All state is in the workspace. Nothing is decided on the host, which learns from what is
    /// recorded: the step may be queued, and replayed.
    fn step<A, M>(
        &self,
        system: &System<'_, A, M>,
        x: &mut V,
        work: &mut Self::Work,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>;

    /// Queues up to `count` steps at once, where operator and hardware can run them without the host in between; says how
    /// many.
    fn leap<A, M>(
        &self,
        _system: &System<'_, A, M>,
        _x: &mut V,
        _work: &mut Self::Work,
        _steps: &mut V::Steps,
        _count: usize,
    ) -> Result<usize>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        Ok(0)
    }

    /// Numbers that a step records at most, for so many unknowns.
    fn numbers(&self, _len: usize) -> usize {
        1
    }

    /// The steps after which the method finishes and starts again, for so many unknowns. Methods without cycles record
    /// their residual, and change `x` in every step.
    fn cycle(&self, _len: usize) -> Option<usize> {
        None
    }

    /// The places that the steps of a method without cycles take in turn, from 0 on: what is written in one step and read in
    /// the next may then change roles instead of being copied.
    fn places(&self) -> usize {
        1
    }

    /// Learns from the numbers that a step recorded; returns `‖r‖`. Methods of Lanczos type add `[α, β]`.
    fn learn(&self, _work: &mut Self::Work, numbers: &[f64], _lanczos: &mut Vec<[f64; 2]>) -> Result<f64> {
        Ok(numbers.first().map_or(f64::NAN, |squared| squared.sqrt()))
    }

    /// Brings `x` up to the iterate last reported, for methods that assemble it late.
    fn finish<A, M>(&self, _system: &System<'_, A, M>, _x: &mut V, _work: &mut Self::Work) -> Result<()>
    where
        A: LinearOperator<Vector = V>,
        M: LinearOperator<Vector = V>,
    {
        Ok(())
    }

    /// What one iteration costs.
    fn cost(&self) -> Cost;

    /// How long a pause the residual may make before the solve is looked at, and given up if there is no hope left.
    fn patience(&self) -> Patience {
        Patience { iterations: 2000, fall: 0.01 }
    }

    /// What must be symmetric.
    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Nothing
    }

    /// Whether a breakdown may be cured by starting again from the true residual.
    fn restarts_after_breakdown(&self) -> bool {
        false
    }
}
