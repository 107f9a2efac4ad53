//! Solves with the factor.

use super::super::super::several::Pair;
use super::super::tree::{Solve, Units, Workspace};
use super::Cholesky;
use crate::numbers::Real;
use krysp_kernels::cpu::preconditioners::frontal;

impl<T: Real> Cholesky<T> {
    pub(super) fn units(&self) -> &Units {
        self.units.get_or_init(|| {
            let places: Vec<u32> = (0..self.tree.order.len() as u32).collect();
            let rows = |front: usize| {
                let front = &self.tree.fronts[front];
                [&places[front.columns.clone()], self.tree.rows(front)]
            };
            Units::new(&self.tree, rows, |_| &[])
        })
    }

    /// Solves for several right-hand sides, reading each front once for all of them.
    pub(super) fn solve(&self, pairs: &mut [Pair<'_, T>], workspace: &mut Workspace<T>) {
        let (tree, units, vectors) = (&self.tree, self.units(), pairs.len());
        let solve = Solve::new(units, vectors, workspace);
        let rhs: Vec<&[T]> = pairs.iter().map(|(r, _)| r.as_slice()).collect();
        let load = |vector: usize, row: u32| rhs[vector][tree.order[row as usize] as usize];
        let factors = |front: usize| {
            let front = &tree.fronts[front];
            (&self.numbers[front.numbers.clone()], front.height())
        };
        solve.up(units, load, |front, x, taken| {
            let (numbers, height) = factors(front);
            frontal::forward(numbers, height, vectors, x, taken);
        });
        solve.down(units, |front, x, others| {
            let (numbers, height) = factors(front);
            frontal::backward(numbers, height, vectors, x, others);
        });
        let mut z: Vec<&mut [T]> = pairs.iter_mut().map(|(_, z)| z.as_mut_slice()).collect();
        solve.each(units, |vector, row, x| z[vector][tree.order[row as usize] as usize] = *x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preconditioners::direct::testing::{backward_error, threads_and_vectors_change_no_bits};
    use crate::testing::matrices;

    #[test]
    fn numbers_of_threads_and_vectors_change_no_bits() {
        let a = matrices::elasticity(7).csr::<f64>().unwrap();
        let cholesky = Cholesky::new(&a).unwrap();
        // the tree has units above its tasks
        assert!(!cholesky.tree.top.is_empty() && cholesky.units().fronts.len() > 8);
        assert!(backward_error(&a, &cholesky, &vec![1.0; a.rows()]) < 1e-15);
        threads_and_vectors_change_no_bits(|| Cholesky::new(&a).unwrap(), |_| vec![]);
    }
}
