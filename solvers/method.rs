//! What a method is: its workspace, its step, and what it costs.

use crate::operator::plain_residual;
use crate::stagnation::Patience;
use crate::{LinearOperator, Result, Vector};

/// The system a method works on. Operators are called through their trait, so that a method need not be compiled for each
/// pair of them; that takes a few nanoseconds a call.
pub struct System<'s, V: Vector> {
    /// The operator.
    pub a: &'s dyn LinearOperator<Vector = V>,
    /// The preconditioner, which applies `M⁻¹`.
    pub m: &'s dyn LinearOperator<Vector = V>,
    /// The right-hand side.
    pub b: &'s V,
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

impl<V: Vector> System<'_, V> {
    /// `r ← b − A x; ‖r‖²`
    pub fn residual(&self, x: &V, r: &mut V) -> Result<V::Scalar> {
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
    fn start(&self, system: &System<'_, V>, x: &V, work: &mut Self::Work) -> Result<V::Scalar>;

    /// One iteration. `place` counts from 0 within the method's [cycle](Method::cycle), or within its
    /// [places](Method::places). All state is in the workspace. Nothing is decided on the host, which learns from what is
    /// recorded: the step may be queued, and replayed.
    fn step(
        &self,
        system: &System<'_, V>,
        x: &mut V,
        work: &mut Self::Work,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()>;

    /// Queues up to `count` steps in one piece, where the hardware has a kernel for that; says how many. They compute what
    /// single steps would, to rounding.
    fn leap(
        &self,
        _system: &System<'_, V>,
        _x: &mut V,
        _work: &mut Self::Work,
        _steps: &mut V::Steps,
        _count: usize,
    ) -> Result<usize> {
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
    fn finish(&self, _system: &System<'_, V>, _x: &mut V, _work: &mut Self::Work) -> Result<()> {
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
