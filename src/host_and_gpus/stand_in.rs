//! A coprocessor for tests: host memory in place of that of a GPU.

use super::coprocessor::{Coprocessor, Exchange};
use super::scalar::Awaited;
use crate::choice::{Host, HostBorder, Operator};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_solvers::{Error, LinearOperator};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A coprocessor for tests on machines without a GPU: its memory is that of the host, and it does its work
/// when it is queued. On request one of its calls fails. Clones are the same machine.
#[derive(Clone, Debug)]
pub struct StandIn {
    /// Number of sums that are read back before one fails.
    sums: Arc<AtomicUsize>,
    /// Number of exchanges and refreshes before one fails.
    exchanges: Arc<AtomicUsize>,
    memory: usize,
    bus: f64,
}

impl Default for StandIn {
    fn default() -> StandIn {
        let never = || Arc::new(AtomicUsize::new(usize::MAX));
        StandIn { sums: never(), exchanges: never(), memory: usize::MAX, bus: 1e12 }
    }
}

impl StandIn {
    /// Lets the sum after the next `count` ones fail when it is read, as after an error of queued work; later
    /// ones succeed.
    pub fn fail_after_sums(&self, count: usize) {
        self.sums.store(count, Ordering::Relaxed);
    }

    /// Lets the exchange or refresh after the next `count` ones fail; later ones succeed.
    pub fn fail_after_exchanges(&self, count: usize) {
        self.exchanges.store(count, Ordering::Relaxed);
    }

    /// The same with this number of free bytes. A larger matrix gives an error.
    pub fn with_memory(self, memory: usize) -> StandIn {
        StandIn { memory, ..self }
    }

    /// The same with a bus of this number of bytes per second, for estimates.
    pub fn with_bus(self, bus: f64) -> StandIn {
        StandIn { bus, ..self }
    }
}

/// Counts down; returns whether this call fails.
fn fails(count: &AtomicUsize) -> bool {
    let next = |left: usize| Some(left.checked_sub(1).unwrap_or(usize::MAX));
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) == Ok(0)
}

impl<T: Real> Coprocessor<T> for StandIn {
    type Vector = HostVector<T>;
    type Exchange = InHostMemory<T>;

    fn name(&self) -> String {
        "stand-in".into()
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sums, &other.sums)
    }

    fn free_memory(&self) -> Result<usize> {
        Ok(self.memory)
    }

    fn bus(&self) -> Result<f64> {
        Ok(self.bus)
    }

    fn overhead(_: usize) -> f64 {
        0.0
    }

    fn space(&self, len: usize) -> HostSpace<T> {
        HostSpace::new(len)
    }

    fn operator(&self, csr: &Csr<T>, format: Option<&str>) -> Result<Operator<HostVector<T>>> {
        let operator = Operator::known(csr, &Host, false, format)?;
        let (bytes, free) = (operator.bytes() as u128, self.memory);
        if bytes > free as u128 {
            return Err(crate::error::Error::Allocation { what: "a matrix on a stand-in", bytes, free });
        }
        Ok(operator)
    }

    fn exchange(&self, _: usize, sent: &[u32], rows: &[u32], outside: &Csr<T>) -> Result<InHostMemory<T>> {
        Ok(InHostMemory {
            places: sent.to_vec(),
            sent: vec![T::zero(); sent.len()],
            border: HostBorder::new(rows, outside)?,
            exchanges: self.exchanges.clone(),
        })
    }

    fn read_back<const K: usize>(&self, sums: [T; K]) -> Awaited<T> {
        let fails = fails(&self.sums);
        Box::new(move || match fails {
            true => Err(Error::Backend("queued work of the stand-in failed".into())),
            false => Ok(sums.to_vec()),
        })
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Exchange of a [`StandIn`].
pub struct InHostMemory<T: Real> {
    places: Vec<u32>,
    sent: Vec<T>,
    border: HostBorder<T>,
    exchanges: Arc<AtomicUsize>,
}

impl<T: Real> Exchange<T, HostVector<T>> for InHostMemory<T> {
    fn collect(&mut self, x: &HostVector<T>) -> krysp_solvers::Result<()> {
        if fails(&self.exchanges) {
            return Err(Error::Backend("an exchange of the stand-in failed".into()));
        }
        let x = x.as_slice();
        self.sent.iter_mut().zip(&self.places).for_each(|(to, &place)| *to = x[place as usize]);
        Ok(())
    }

    fn sent(&mut self) -> krysp_solvers::Result<&[T]> {
        Ok(&self.sent)
    }

    fn ghosts(&mut self) -> &mut [T] {
        self.border.ghosts()
    }

    fn add(&mut self, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.border.add(y.as_mut_slice())
    }

    fn add_dot(&mut self, x: &HostVector<T>, y: &mut HostVector<T>, own: T) -> krysp_solvers::Result<T> {
        Ok(own + self.border.add_dot(x.as_slice(), y.as_mut_slice())?)
    }

    fn refresh(&mut self, values: &[T]) -> Result<()> {
        if fails(&self.exchanges) {
            return Err(Error::Backend("a refresh of the stand-in failed".into()).into());
        }
        self.border.refresh(values)
    }

    fn bytes(&self) -> usize {
        self.border.bytes()
    }
}
