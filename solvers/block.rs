//! Solves in which several right-hand sides share one search space.

use crate::many::Joining;
use crate::{
    ElemOf, LinearOperator, Method, MultiVector, Report, Result, Solution, Solver, Steps, StepsOf, Vector,
};

/// A method with a variant for blocks: several right-hand sides that share one search space.
pub trait BlockMethod<V: Vector>: Method<V> + Method<MultiVector<V>> {
    /// The method that advances all columns of a block.
    type Block: Method<MultiVector<V>>;

    /// Returns that method, with the options of this one.
    fn block(&self) -> &Self::Block;
}

impl<K, A, M> Solver<K, A, M>
where
    A: LinearOperator,
    K: BlockMethod<A::Vector>,
    M: LinearOperator<Vector = A::Vector>,
{
    /// Solves `A x_j = b_j` for several right-hand sides from zero, as [`Solver::solve_many`] does, by block
    /// conjugate gradients or block GMRES: up to 16 columns share one search space
    /// ([`block_cg`](crate::block_cg) and [`block_gmres`](crate::block_gmres) have the formulas). That usually
    /// takes fewer iterations, each with more work on vectors. Block GMRES stores a basis for each column.
    ///
    /// Each column ends by its own residual, recomputed from the solution, and has its own report, whose
    /// `bytes` are those of a separate solve. If the matrix is not positive definite, conjugate gradients end
    /// all columns that have not ended with that breakdown. If the basis of GMRES cannot grow, these columns are
    /// solved separately. Columns may be zero, equal or linearly dependent.
    ///
    /// On a GPU, on ranks, and with a null space, observers or stop rules, this is
    /// [`Solver::solve_many`]. The bits of a solution depend on the other columns, but are the same every
    /// time.
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many`].
    ///
    /// ```
    /// use krysp::{Cg, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[30, 30])?;
    /// let loads: Vec<Vec<f64>> = (1..5).map(|j| (0..900).map(|i| f64::from(i * j % 7)).collect()).collect();
    /// let one_by_one = Cg::new(&a).solve_many(&loads)?;
    /// let block = Cg::new(&a).solve_block(&loads)?;
    /// assert!(block.iter().all(|solution| solution.report.converged()));
    /// assert!(block[0].report.iterations < one_by_one[0].report.iterations);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "block cg")]
    #[doc(alias = "block gmres")]
    #[doc(alias = "multiple right-hand sides")]
    pub fn solve_block<B>(&mut self, b: &[B]) -> Result<Vec<Solution<ElemOf<A::Vector>>>>
    where
        B: AsRef<[ElemOf<A::Vector>]>,
    {
        let (driver, on) = self.parts();
        if !driver.joins(on, b.len(), &Self::BLOCK) {
            return self.solve_many(b);
        }
        let b: Vec<_> = b.iter().map(AsRef::as_ref).collect();
        let solutions = driver.solve_columns(on, &b, &Self::BLOCK);
        self.or_report(solutions)
    }

    /// Like [`Solver::solve_block`], on vectors of the operator's space. The columns of `x` hold the guesses
    /// and receive the solutions.
    ///
    /// # Errors
    /// The errors of [`Solver::solve_many_into`].
    pub fn solve_block_into(
        &mut self,
        b: &MultiVector<A::Vector>,
        x: &mut MultiVector<A::Vector>,
    ) -> Result<&[Report]> {
        let same_number = b.columns().len() == x.columns().len();
        let (driver, on) = self.parts();
        if !(same_number && driver.joins(on, b.columns().len(), &Self::BLOCK)) {
            return self.solve_many_into(b, x);
        }
        let solved = driver.solve_columns_into(on, b, x, &Self::BLOCK);
        self.or_report(solved)?;
        Ok(&self.driver.reports[..b.columns().len()])
    }

    /// Block method: all columns share one search space. It is not used on a GPU, where steps are queued
    /// ahead of the host: without kernels for operations on blocks it would be slower.
    const BLOCK: Joining<K, K::Block, A::Vector> =
        Joining { method: K::block, shares: true, pays: |_, _, _| StepsOf::<A::Vector>::LAG == 1 };
}
