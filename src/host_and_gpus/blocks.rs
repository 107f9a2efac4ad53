//! Block Jacobi with one block for the host and one for each coprocessor.

use super::coprocessor::Coprocessor;
use super::matrix::SplitMatrix;
use super::scalar::SplitScalar;
use super::vector::{SplitSpace, SplitVector};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_solvers::{Error, LinearOperator, Space, SpaceOf, check_spaces};

/// Block Jacobi: each processor applies its own preconditioner, of any kind, which is built from its diagonal
/// block only. Nothing is exchanged.
pub struct BlockJacobi<T: Real, M: Coprocessor<T>, P, Q> {
    space: SplitSpace<T, M>,
    /// `None` if the host has no rows.
    of_host: Option<P>,
    of_others: Vec<Q>,
}

impl<T: Real, M: Coprocessor<T>, P, Q> BlockJacobi<T, M, P, Q>
where
    P: LinearOperator<Vector = HostVector<T>>,
    Q: LinearOperator<Vector = M::Vector>,
{
    /// Builds the host's preconditioner from its diagonal block by `of_host`, and those of the machines by
    /// `of_machine`.
    ///
    /// ```no_run
    /// use krysp::host_and_gpus::{BlockJacobi, HostAndGpus};
    /// use krysp::{Cg, Cuda, Ic0, Jacobi, ToCuda, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[100; 3])?;
    /// let shared = HostAndGpus::on_all(&[Cuda::new(0)?], &a)?;
    /// let inverse = BlockJacobi::new(&shared, Ic0::new, |block, gpu| Jacobi::new(block)?.to(gpu))?;
    /// let solution = Cg::new(&shared).preconditioner(inverse).solve(&vec![1.0; a.rows()])?;
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn new(
        matrix: &SplitMatrix<T, M>,
        of_host: impl FnOnce(&Csr<T>) -> Result<P>,
        mut of_machine: impl FnMut(&Csr<T>, &M) -> Result<Q>,
    ) -> Result<Self> {
        let space = matrix.domain().clone();
        let of_host = matrix.host_block()?.as_ref().map(of_host).transpose()?;
        let blocks = matrix.machine_blocks()?;
        let blocks = blocks.iter().zip(space.others());
        let of_others = blocks.map(|(block, (machine, _))| of_machine(block, machine));
        let of_others = of_others.collect::<Result<Vec<_>>>()?;
        let wrong = Error::Space { what: "the preconditioner", than: "the block" };
        let host_fits = of_host.as_ref().is_none_or(|own| {
            let expected = HostSpace::new(space.host().len());
            *own.domain() == expected && *own.range() == expected
        });
        let fits = |(own, (_, expected)): (&Q, &(M, SpaceOf<M::Vector>))| {
            own.domain() == expected && own.range() == expected
        };
        if host_fits && of_others.iter().zip(space.others()).all(fits) {
            return Ok(BlockJacobi { space, of_host, of_others });
        }
        Err(wrong.into())
    }
}

impl<T: Real, M: Coprocessor<T>, P, Q> LinearOperator for BlockJacobi<T, M, P, Q>
where
    P: LinearOperator<Vector = HostVector<T>>,
    Q: LinearOperator<Vector = M::Vector>,
{
    type Vector = SplitVector<T, M>;

    fn domain(&self) -> &SplitSpace<T, M> {
        &self.space
    }

    fn apply(&self, x: &SplitVector<T, M>, y: &mut SplitVector<T, M>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        y.failure = x.failure.clone();
        for ((own, x), y) in self.of_others.iter().zip(&x.others).zip(&mut y.others) {
            own.apply(x, y)?;
        }
        self.of_host.as_ref().map_or(Ok(()), |own| own.apply(&x.host, &mut y.host))
    }

    fn apply_dot(
        &self,
        x: &SplitVector<T, M>,
        y: &mut SplitVector<T, M>,
    ) -> krysp_solvers::Result<SplitScalar<T>> {
        check_spaces(self, x, y)?;
        y.failure = x.failure.clone();
        let mut awaited = vec![];
        let others = self.of_others.iter().zip(self.space.others());
        for ((own, (machine, _)), (x, y)) in others.zip(x.others.iter().zip(&mut y.others)) {
            awaited.push(machine.read_back([own.apply_dot(x, y)?]));
        }
        let of_host = self.of_host.as_ref().map(|own| own.apply_dot(&x.host, &mut y.host)).transpose()?;
        let [sum] = SplitScalar::sums([of_host.unwrap_or(T::zero())], awaited, x.failure.clone());
        Ok(sum)
    }

    fn bytes(&self) -> usize {
        let of_others = self.of_others.iter().map(LinearOperator::bytes);
        self.of_host.iter().map(LinearOperator::bytes).chain(of_others).sum()
    }
}
