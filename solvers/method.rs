//! The interface of a method: its state, its step, and its cost.

use crate::operator::plain_residual;
use crate::stagnation::StagnationWindow;
use crate::{LinearOperator, Result, Vector};

/// The system that a method solves. Operators are called through trait objects, so that a method is not
/// compiled again for each pair of operator and preconditioner. Such a call takes a few nanoseconds.
pub struct System<'s, V: Vector> {
    /// The operator.
    pub a: &'s dyn LinearOperator<Vector = V>,
    /// The preconditioner, which applies `M⁻¹`.
    pub m: &'s dyn LinearOperator<Vector = V>,
    /// The right-hand side.
    pub b: &'s V,
    /// Arithmetic with which the residual `b − A x` is computed.
    pub arithmetic: Arithmetic,
    /// Number of consecutive breakdowns before this start, without progress between them. A method may start
    /// differently after each.
    pub attempt: usize,
}

/// Which operators must be symmetric for a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// No operator need be symmetric.
    Nothing,
    /// The operator must be symmetric. The preconditioner need not be, and may change from one iteration to
    /// the next.
    Operator,
    /// Operator and preconditioner must both be symmetric.
    Both,
}

/// Ways of computing the residual `b − A x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// No product: `x` is zero, so the residual is `b`.
    Zero,
    /// One product with `A`, in the precision of the elements.
    Plain,
    /// [`LinearOperator::residual`], which may use twice the precision.
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

/// Cost of one iteration. Benches compare measured memory traffic with this budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Products with `A`. Each reads the whole matrix once.
    pub products: f64,
    /// Applications of `M⁻¹`.
    pub preconditionings: f64,
    /// Vectors read or written, including those of the products and of a diagonal `M⁻¹`.
    pub vectors: f64,
}

/// A Krylov method: its state and one iteration.
pub trait Method<V: Vector>: 'static {
    /// Vectors and scalars of an iteration. A solver keeps them in its workspace for its next solve.
    type State: Send;

    /// Allocates the state.
    fn workspace(&self, space: &V::Space) -> Result<Self::State>;

    /// Starts at `x`: computes `r = b − A x` and returns `‖r‖²`.
    fn start(&self, system: &System<'_, V>, x: &V, state: &mut Self::State) -> Result<V::Scalar>;

    /// Computes what the first step needs besides the residual, such as `M⁻¹ r`. The driver calls it after
    /// [`Method::start`] only if steps follow: a solve whose residual is small enough ends without it.
    fn begin(&self, _system: &System<'_, V>, _state: &mut Self::State) -> Result<()> {
        Ok(())
    }

    /// Runs one iteration. `place` is the index of the step within the method's [cycle](Method::cycle), or
    /// modulo its [places](Method::places), from 0. All state between steps is in `x` and `state`. A step
    /// makes no decision on the host, because a GPU may queue and replay it. The host receives results of the
    /// step only through the numbers that the step records.
    fn step(
        &self,
        system: &System<'_, V>,
        x: &mut V,
        state: &mut Self::State,
        place: usize,
        steps: &mut V::Steps,
    ) -> Result<()>;

    /// Queues up to `count` steps as one kernel launch (a batch), if the hardware has such a kernel, and
    /// returns the number of steps queued: 0 without such a kernel. The results equal those of single steps
    /// up to rounding.
    fn run_batch(
        &self,
        _system: &System<'_, V>,
        _x: &mut V,
        _state: &mut Self::State,
        _steps: &mut V::Steps,
        _count: usize,
    ) -> Result<usize> {
        Ok(0)
    }

    /// Maximum number of values that one step records, for a system of `len` unknowns.
    fn numbers(&self, _len: usize) -> usize {
        1
    }

    /// Number of steps per cycle for a system of `len` unknowns. After a cycle the driver calls
    /// [`Method::finish`] and starts the method again. `None` for methods without cycles: those record their
    /// residual and update `x` in every step.
    fn cycle(&self, _len: usize) -> Option<usize> {
        None
    }

    /// Period after which the steps of a method without cycles repeat. With a period of two, for example, two
    /// vectors can swap roles after each step, so that neither is copied.
    fn places(&self) -> usize {
        1
    }

    /// Processes the numbers that a step recorded and returns `‖r‖`. Methods of Lanczos type also append
    /// `[α, β]` to `lanczos`.
    fn process_step(
        &self,
        _state: &mut Self::State,
        numbers: &[f64],
        _lanczos: &mut Vec<[f64; 2]>,
    ) -> Result<f64> {
        Ok(numbers.first().map_or(f64::NAN, |squared| squared.sqrt()))
    }

    /// Updates `x` to the last reported iterate, for methods that assemble `x` only at the end of a cycle.
    fn finish(&self, _system: &System<'_, V>, _x: &mut V, _state: &mut Self::State) -> Result<()> {
        Ok(())
    }

    /// Cost of one iteration.
    fn cost(&self) -> Cost;

    /// Stagnation window: how long the residual may fail to decrease before the driver checks for stagnation.
    fn stagnation_window(&self) -> StagnationWindow {
        StagnationWindow { iterations: 2000, fall: 0.01 }
    }

    /// Returns whether the method minimizes the error in the energy norm: its residual may rise while it converges.
    fn minimizes_energy(&self) -> bool {
        false
    }

    /// Which operators must be symmetric.
    fn needs_symmetry(&self) -> Symmetry {
        Symmetry::Nothing
    }

    /// Returns whether restarting from the true residual may help after a breakdown.
    fn restarts_after_breakdown(&self) -> bool {
        false
    }
}
