//! When a ladder renumbers its matrix, and how: that takes as long as a hundred products, which gain up to three quarters where rows
//! read `x` from anywhere. So it is done when as much has been spent, and what is ahead is long enough.

use super::climb::Standing;
use super::ladder::operator;
use super::measured::nearer;
use super::{Backend, PlannedSolver, Preconditioner};
use crate::formats::given::UserOrder;
use crate::{Format, LinearOperator, Real, Result};
use krysp_solvers::Space;
use std::sync::Arc;

/// What it takes, in iterations of `Cg` with `Jacobi`: 45 to 130 were measured.
const NUMBERING: f64 = 90.0;

/// The part of later work that it saves: 25 to 78 hundredths were measured.
const SAVED: f64 = 0.5;

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Whether another numbering is worth what it takes before this rung goes on, as far as is known.
    pub(super) fn has_earned_numbering(&self, index: usize, standing: &Standing) -> bool {
        let candidate = &self.memory.candidates[index];
        // an order of elimination is one of its own
        let direct = matches!(candidate.preconditioner, Preconditioner::Cholesky | Preconditioner::Lu);
        if !self.renumbers || direct || self.memory.spent < NUMBERING {
            return false;
        }
        // what was built is built again
        let again = if self.is_ready(index) { candidate.setup } else { 0.0 };
        // who does not say how many solves there will be has as much ahead as behind
        let ahead = self.price(index, standing)
            + if self.memory.options.solves.is_none() { self.memory.spent } else { 0.0 };
        SAVED * ahead >= NUMBERING + again
    }

    /// Renumbers matrix, guess and best solution so far; returns `b` in that numbering. Where that brings nothing nearer, or memory is short, all stays.
    pub(super) fn renumber(
        &mut self,
        b: &M::Vector,
        x: &mut M::Vector,
        best: &mut Option<(M::Vector, f64)>,
    ) -> Result<Option<M::Vector>> {
        self.renumbers = false;
        self.memory.spent += NUMBERING;
        let made = nearer(&self.machine, &self.matrix).and_then(|matrix| {
            let Some(matrix) = matrix else { return Ok(None) };
            let operator = operator(&self.machine, &matrix, self.memory.symmetric, None)?;
            Ok(Some((matrix, operator)))
        });
        let Ok(Some((matrix, operator))) = made else { return Ok(None) };
        let (old, new) = (self.space()?.clone(), operator.domain().clone());
        let mut host = vec![T::default(); old.len()];
        let mut moved = |from: &M::Vector| -> Result<M::Vector> {
            old.store(from, &mut host)?;
            let mut to = new.zeros()?;
            new.load(&host, &mut to)?;
            Ok(to)
        };
        let b = moved(b)?;
        *x = moved(x)?;
        if let Some((best, _)) = best {
            *best = moved(best)?;
        }
        self.user_order = Some(UserOrder::new(self.user(), matrix.source()));
        (self.matrix, self.operator) = (Arc::new(matrix), Some(operator));
        (self.running, self.read, self.begins, self.residual) = (None, None, None, None);
        self.symbolic = Arc::default();
        Ok(Some(b))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::matrices;
    use crate::{Csr, LinearOperator, Plan};

    #[test]
    fn a_numbering_is_made_when_solves_have_earned_it() {
        // a cube whose unknowns are numbered anyhow, so large that caches do not make up for it
        let cube = matrices::stencil7(35).csr::<f64>().unwrap();
        let anyhow = |index: usize| index * 7919 % 42_875;
        let entries: Vec<_> = cube.triplets().map(|(i, j, value)| (anyhow(i), anyhow(j), value)).collect();
        let a = Csr::from_triplets(42_875, 42_875, &entries).unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.37).sin()).collect();
        let mut solver = Plan::new(&a).unwrap().build().unwrap();
        let first = solver.solve(&b).unwrap();
        assert!(first.converged() && solver.matrix.domain().numbering().is_none(), "{first}");
        // nobody looked for an order of elimination either
        assert!(solver.memory.direct.is_none() && solver.symbolic.lock().unwrap().is_none());
        let solved: Vec<_> = (0..4).map(|_| solver.solve(&b).unwrap()).collect();
        assert!(solver.matrix.domain().numbering().is_some(), "{}", solver.memory.spent);
        for solved in solved {
            assert!(solved.converged(), "{solved}");
            let most = first.x.iter().zip(&solved.x).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(most < 1e-6, "{most}");
        }
        // values come in the order of the user's entries, as before
        let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
        let assembled: Vec<f64> = entries.iter().map(|(.., value)| 2.0 * value).collect();
        for refresh in 0..3 {
            match refresh {
                0 => solver.refresh(&doubled).unwrap(),
                1 => solver.refresh(&solver.assemble(&assembled).unwrap()).unwrap(),
                _ => solver.refresh_from(&a.with_values(&doubled).unwrap()).unwrap(),
            }
            let half = solver.solve(&b).unwrap();
            let most = first.x.iter().zip(&half.x).map(|(x, y)| (x - 2.0 * y).abs()).fold(0.0, f64::max);
            assert!(half.converged() && most < 1e-6, "{most}");
            solver.refresh(a.entries()).unwrap();
        }
    }
}
