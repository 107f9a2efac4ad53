//! Automatic solver: chooses candidates (a method with a preconditioner) for a matrix, runs them, switches to the next one if a candidate
//! does not converge well, and reports every attempt.
//!
//! ```
//! use krysp::Csr;
//!
//! // −u″ = 1 on a hundred points
//! let inside = |i: usize| (0..2).map(move |k| (i + k, i + 1 - k, -1.0));
//! let entries: Vec<_> = (0..100).map(|i| (i, i, 2.0)).chain((0..99).flat_map(inside)).collect();
//! let a = Csr::from_triplets(100, 100, &entries)?;
//!
//! let solved = krysp::solve(&a, &[1.0; 100])?;
//! assert!(solved.converged());
//! println!("{solved}");
//! # Ok::<(), krysp::Error>(())
//! ```
//!
//! For many right-hand sides, or new values of the same pattern, use a [`Plan`]:
//!
//! ```
//! # use krysp::{Csr, Plan};
//! # let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
//! let plan = Plan::new(&a)?.solves(1000).values_change(true).rtol(1e-10);
//! println!("{plan}");
//! let mut solver = plan.build()?;
//! assert!(solver.solve(&[1.0, 1.0])?.converged());
//! solver.refresh(&[3.0, 5.0])?;
//! assert!(solver.solve(&[1.0, 1.0])?.converged());
//! # Ok::<(), krysp::Error>(())
//! ```

mod backend;
mod blocks;
mod calibrated;
mod candidates;
mod context;
mod costs;
mod declarations;
mod executor;
mod least_squares;
mod many;
mod matched;
mod measured;
mod monitor;
mod names;
mod nodes;
#[cfg(feature = "cuda")]
mod on_gpu;
mod parts;
mod place;
#[expect(clippy::module_inception, reason = "one idea a file: this one is the plan itself")]
mod plan;
mod points;
mod profile;
mod running;
mod saved;
mod scaled;
mod schedule;
mod solved;
mod solver;
mod spectrum;
mod work;

pub use backend::Backend;
pub use calibrated::calibrate_costs;
pub use candidates::Candidate;
pub use costs::{Costs, MachineClass};
pub use declarations::Declared;
pub use measured::nearer;
pub use monitor::iterations_expected;
pub use names::{Method, Preconditioner};
pub use parts::ConnectedComponents;
pub use place::Place;
pub use plan::Plan;
pub use profile::Profile;
pub use running::{AnyPreconditioner, Prepared};
pub use solved::{Attempt, AttemptEnd, Solved};
pub use solver::{PlannedSolver, Preparation};
pub use spectrum::Spectrum;
pub use work::WorkUnits;

use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;

/// Solves `A x_j = b_j` for several right-hand sides. The first is solved as by [`solve`], the others with the candidate that solved it.
/// Where that is faster, the others are solved in lockstep: each iteration multiplies `A` by the vectors of all systems at once; or in blocks
/// that share one search space. See [`PlannedSolver::solve_many`].
pub fn solve_many<T: Real, B: AsRef<[T]>>(a: &Csr<T>, b: &[B]) -> Result<Vec<Solved<T>>> {
    Plan::new(a)?.solves(b.len().max(1)).build()?.solve_many(b)
}

/// Solves `A x = b`: analyses the matrix and runs suitable candidates until the recomputed residual meets the tolerance. For several
/// right-hand sides use [`solve_many`], or a [`Plan`] if they are not known together.
pub fn solve<T: Real>(a: &Csr<T>, b: &[T]) -> Result<Solved<T>> {
    Plan::new(a)?.solves(1).build()?.solve(b)
}
