//! Machines that compute with the host: what vectors and products need of them.

use super::scalar::Awaited;
use crate::choice::Operator;
use crate::error::Result;
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_solvers::{ScalarOf, SpaceOf, Vector};
use std::fmt;

/// A machine that multiplies some of the rows while the host multiplies others: a [`Cuda`](crate::Cuda).
///
/// Calls queue work and return; [`Coprocessor::synchronize`], [`Exchange::sent`] and the functions that
/// [`Coprocessor::read_back`] returns wait. Work is done in the order in which it was queued.
pub trait Coprocessor<T: Real>: Clone + fmt::Debug + Send + Sync + 'static {
    /// Vectors in the memory of the machine.
    type Vector: Vector<Elem = T>;

    /// Exchange of entries of vectors with host memory.
    type Exchange: Exchange<T, Self::Vector>;

    /// Name of the machine, for tables.
    fn name(&self) -> String;

    /// Returns whether both are the same machine, on which their work would run one after the other.
    fn is_same(&self, other: &Self) -> bool;

    /// Free bytes of memory.
    fn free_memory(&self) -> Result<usize>;

    /// Transfer rate from host memory in bytes per second, measured.
    fn bus(&self) -> Result<f64>;

    /// Seconds that launches and synchronization add to an iteration that `count` such machines compute
    /// without the host.
    fn overhead(count: usize) -> f64;

    /// The space of vectors with `len` entries.
    fn space(&self, len: usize) -> SpaceOf<Self::Vector>;

    /// Stores a matrix in the named format, or in the one that suits the machine best.
    fn operator(&self, csr: &Csr<T>, format: Option<&str>) -> Result<Operator<Self::Vector>>;

    /// Prepares to send the entries at the places `sent` of vectors with `length` entries, and to add
    /// products with ghosts: `outside` has a row for each of `rows`, and a column for each ghost.
    fn exchange(&self, length: usize, sent: &[u32], rows: &[u32], outside: &Csr<T>)
    -> Result<Self::Exchange>;

    /// Queues the copy of up to two sums to the host; the returned function waits for it.
    fn read_back<const K: usize>(&self, sums: [ScalarOf<Self::Vector>; K]) -> Awaited<T>;

    /// Waits until all queued work is done.
    fn synchronize(&self) -> Result<()>;
}

/// Exchange of entries of vectors between a coprocessor and host memory. Ghosts are entries of `x` that other
/// processors own.
pub trait Exchange<T: Real, V: Vector<Elem = T>>: Send {
    /// Queues the copy of the entries to be sent.
    fn collect(&mut self, x: &V) -> krysp_solvers::Result<()>;

    /// Waits for the entries that [`Exchange::collect`] copied.
    fn sent(&mut self) -> krysp_solvers::Result<&[T]>;

    /// Place for the ghosts of the next [`Exchange::add`]. There are two such places, used in turn: one may be
    /// filled while the machine still reads the other.
    fn ghosts(&mut self) -> &mut [T];

    /// Queues `y ← y + A_ghost ghosts`. The ghosts are copied while the machine does what was queued before.
    fn add(&mut self, y: &mut V) -> krysp_solvers::Result<()>;

    /// Like [`Exchange::add`]; also returns `⟨x, y⟩`, where `own` is the value before ghosts are added.
    fn add_dot(&mut self, x: &V, y: &mut V, own: V::Scalar) -> krysp_solvers::Result<V::Scalar>;

    /// Replaces the values of the entries in ghost columns.
    fn refresh(&mut self, values: &[T]) -> Result<()>;

    /// Bytes that a product reads.
    fn bytes(&self) -> usize;
}
