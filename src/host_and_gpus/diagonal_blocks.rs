//! Entries near the main diagonal on a coprocessor, all others on the host.

use super::coprocessor::{Coprocessor, Exchange};
use crate::choice::Operator;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::partition::by_diagonal_blocks;
use krysp_solvers::{LinearOperator, Space, SpaceOf, check_spaces};
use std::sync::{Mutex, PoisonError, TryLockError};

/// A square matrix whose entries are split (algorithm 4): those in blocks along the main diagonal are on a
/// coprocessor as `Dia`, all others are on the host as `Csr`. An operator on vectors of the coprocessor.
///
/// In a product the host receives the entries of `x` that it needs through pinned memory, and its sums go back
/// in the same way, while the coprocessor multiplies the blocks.
///
/// ```no_run
/// use krysp::host_and_gpus::DiagonalBlocks;
/// use krysp::{Cg, Cuda, gallery};
///
/// let a = gallery::poisson::<f64>(&[64; 3])?;
/// let split = DiagonalBlocks::new(&Cuda::new(0)?, &a, 32)?;
/// let solution = Cg::new(&split).solve(&vec![1.0; a.rows()])?;
/// # Ok::<(), krysp::Error>(())
/// ```
pub struct DiagonalBlocks<T: Real, M: Coprocessor<T>> {
    space: SpaceOf<M::Vector>,
    blocks: Operator<M::Vector>,
    host_entries: Mutex<HostEntries<T, M>>,
}

/// The entries on the host.
struct HostEntries<T: Real, M: Coprocessor<T>> {
    /// The columns and rows that have entries.
    matrix: Csr<T>,
    x: HostVector<T>,
    y: HostVector<T>,
    /// Sends entries of `x` in these columns, and adds sums to these rows.
    exchange: M::Exchange,
}

impl<T: Real, M: Coprocessor<T>> DiagonalBlocks<T, M> {
    /// Splits a matrix at blocks of `block` rows and columns.
    pub fn new(machine: &M, csr: &Csr<T>, block: usize) -> Result<Self> {
        let (rows, cols) = (csr.rows(), csr.cols());
        if rows != cols {
            return Err(Error::NotSquare { what: "`DiagonalBlocks`", rows, cols });
        }
        if csr.domain().permutation().is_some() || csr.range().permutation().is_some() {
            let (what, got) = ("the matrix of `DiagonalBlocks`", "a reordered matrix".into());
            let expected =
                "one in its original order; permute its rows and columns before it becomes a `Csr`";
            return Err(Error::Option { what, got, expected });
        }
        let [blocks, far] = by_diagonal_blocks(csr, block)?;
        let space = machine.space(rows);
        let blocks = machine.operator(&blocks, Some("Dia"))?;
        let mut columns = far.columns().to_vec();
        columns.sort_unstable();
        columns.dedup();
        let rows: Vec<u32> =
            (0..rows as u32).filter(|&row| !far.row_columns(row as usize).is_empty()).collect();
        let place = |column: &u32| columns.partition_point(|known| known < column) as u32;
        let places: Vec<u32> = far.columns().iter().map(place).collect();
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, &row| {
            *end += far.row_columns(row as usize).len();
            Some(*end)
        }));
        let matrix = Csr::from_csr(rows.len(), columns.len(), &offsets, &places, far.entries())?;
        // sums of the host are added like products of a unit matrix with ghosts
        let each: Vec<usize> = (0..=rows.len()).collect();
        let ghosts: Vec<u32> = (0..rows.len() as u32).collect();
        let units = vec![T::one(); rows.len()];
        let unit = Csr::from_csr(rows.len(), rows.len(), &each, &ghosts, &units)?;
        let exchange = machine.exchange(csr.rows(), &columns, &rows, &unit)?;
        let (x, y) = (matrix.domain().zeros()?, matrix.range().zeros()?);
        Ok(DiagonalBlocks { space, blocks, host_entries: Mutex::new(HostEntries { matrix, x, y, exchange }) })
    }
}

impl<T: Real, M: Coprocessor<T>> LinearOperator for DiagonalBlocks<T, M> {
    type Vector = M::Vector;

    fn domain(&self) -> &SpaceOf<M::Vector> {
        &self.space
    }

    fn apply(&self, x: &M::Vector, y: &mut M::Vector) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        let mut far = match self.host_entries.try_lock() {
            // the product that uses the buffers may wait for this thread of the pool
            Err(TryLockError::WouldBlock) if rayon::current_thread_index().is_some() => {
                let why = "another solve is using these diagonal blocks: let their solves follow each other";
                return Err(krysp_solvers::Error::Backend(why.into()));
            }
            Ok(far) => far,
            Err(_) => self.host_entries.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let far = &mut *far;
        if far.matrix.nnz() == 0 {
            return self.blocks.apply(x, y);
        }
        far.exchange.collect(x)?;
        self.blocks.apply(x, y)?;
        far.x.as_mut_slice().copy_from_slice(far.exchange.sent()?);
        far.matrix.apply(&far.x, &mut far.y)?;
        far.exchange.ghosts().copy_from_slice(far.y.as_slice());
        far.exchange.add(y)
    }

    fn bytes(&self) -> usize {
        let far = self.host_entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.blocks.bytes() + far.matrix.bytes() + far.exchange.bytes()
    }
}
