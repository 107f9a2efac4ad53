//! Matrices whose rows are distributed over the ranks.

use super::collective::Ranks;
use super::halo::Routes;
use super::local::{Local, OffDiagonal, RankMemory};
use super::scalar::RankScalar;
use super::vector::{RankSpace, RankVector};
use crate::choice::Operator;
use crate::error::{Error, Result};
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Source};
use crate::host::{Host, HostSpace, HostVector};
use crate::numbers::Real;
use crate::partition::Cut;
use crate::permutation::Permutation;
use crate::preconditioners::MatrixSource;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::run::threads::{ByRow, over_long_rows};
use krysp_kernels::index::Offsets;
use krysp_solvers::{LinearOperator, Space, check_spaces};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A square matrix of which each rank has some consecutive rows: in host memory, or, after `a.to(&gpu)`, on
/// its GPU.
///
/// Entries in this rank's columns (its diagonal block) are stored separately from those in columns of other
/// ranks, in the format that [`Operator::auto`] chooses. In a product, entries of `x` are communicated while
/// the diagonal block is multiplied.
pub struct RankMatrix<T: Real, L: Local<T> = Host> {
    space: RankSpace<T, L>,
    inside: Operator<L::Vector>,
    /// The rows that have entries in columns of other ranks.
    boundary: Vec<u32>,
    /// Entries in columns of other ranks: a row for each of `boundary`, a column for each ghost.
    outside: Mutex<L::OffDiagonal>,
    /// Positions of the entries in columns of other ranks among all entries, in the order in which they were
    /// given.
    places: Vec<usize>,
    /// Number of entries that were given.
    given: usize,
    /// The columns of other ranks in which this rank's rows have entries, ascending.
    ghosts: Vec<u64>,
    report: RankReport,
    /// On the first rank, the permutation of the matrix if that rank has distributed a reordered one.
    pub(super) permutation: Option<Arc<Permutation>>,
}

/// This rank's part of a matrix, and its communication in a product.
#[derive(Clone, Debug, PartialEq)]
pub struct RankReport {
    /// Number of rows of this rank.
    pub rows: usize,
    /// Number of entries of these rows.
    pub entries: usize,
    /// Number of entries of these rows in columns of other ranks.
    pub off_diagonal: usize,
    /// Number of messages sent in a product.
    pub messages: usize,
    /// Number of entries of `x` sent in a product.
    pub sent: usize,
    /// Number of entries of `x` received in a product.
    pub received: usize,
    /// Format of the diagonal block, the entries in this rank's columns.
    pub format: String,
    /// True if the GPUs of all ranks communicate peer to peer. They then access each other's memory without
    /// the hosts, and [`CommunicationCounts`](super::CommunicationCounts) does not count this communication.
    pub peer_to_peer: bool,
}

impl<T: Real> RankMatrix<T> {
    /// Builds a matrix from the rows of this rank, in CSR with global columns. The first rank has the first
    /// rows, the next rank the following rows, and so on; a rank may have no rows. Columns may be in any
    /// order within a row; duplicate entries are summed. Collective: all ranks call this.
    pub fn from_rows(
        ranks: &Ranks,
        offsets: &[usize],
        columns: &[u64],
        values: &[T],
    ) -> Result<RankMatrix<T>> {
        ranks.all(check_rows(offsets, columns, values))?;
        let space = RankSpace::<T>::new(ranks, offsets.len() - 1)?;
        let all = space.rows_of(ranks.size() - 1).end;
        let cut = ranks.all(Cut::new(all, space.rows(), offsets, columns, values))?;
        let (routes, own) = (Routes::new(ranks, space.bounds(), &cut.ghosts)?, space.rows());
        let places = (0..columns.len()).filter(|&at| !own.contains(&columns[at])).collect();
        RankMatrix::joined(space, cut, &routes, places, values.len())
    }

    /// Builds a matrix from its two parts; `places` are the positions of the entries in columns of other
    /// ranks among the `given` entries.
    fn joined(
        space: RankSpace<T>,
        cut: Cut<T>,
        routes: &Routes,
        places: Vec<usize>,
        given: usize,
    ) -> Result<RankMatrix<T>> {
        let stored = || {
            let starts: &[u32] = &cut.offsets;
            let (rows, ghosts) = (cut.rows.len(), cut.ghosts.len());
            let outside = Csr::from_csr(rows, ghosts, starts, &cut.columns, &cut.values)?;
            Ok((Operator::auto(&cut.inside, &Host)?, outside))
        };
        let (inside, outside) = routes.ranks().all(stored())?;
        let report = RankReport {
            rows: space.local_len(),
            entries: given,
            off_diagonal: places.len(),
            messages: routes.neighbours(),
            sent: routes.sent().len(),
            received: cut.ghosts.len(),
            format: inside.choice().stored().to_string(),
            peer_to_peer: false,
        };
        let outside = Host.off_diagonal(routes, None, space.local_len(), &cut.rows, outside)?;
        Ok(RankMatrix {
            space,
            inside,
            boundary: cut.rows,
            outside: Mutex::new(outside),
            places,
            given,
            ghosts: cut.ghosts,
            report,
            permutation: None,
        })
    }
}

impl<T: Real, L: Local<T>> RankMatrix<T, L> {
    /// A copy of the matrix with this rank's part in the memory of `local`. Collective: all ranks call this.
    #[cfg(feature = "cuda")]
    pub(super) fn at<To: Local<T>>(&self, local: &To) -> Result<RankMatrix<T, To>> {
        let (ranks, own) = (self.ranks(), self.space.local_len());
        let stored = || {
            let inside = Operator::auto(&*self.inside.in_host_memory()?, local)?;
            Ok((inside, self.outside().outside()?))
        };
        let (inside, outside) = ranks.all(stored())?;
        let routes = Routes::new(ranks, self.space.bounds(), &self.ghosts)?;
        let space = self.space.at(local)?;
        let outside = Mutex::new(local.off_diagonal(&routes, space.link(), own, &self.boundary, outside)?);
        Ok(RankMatrix {
            report: RankReport {
                format: inside.choice().stored().to_string(),
                peer_to_peer: space.link().is_some(),
                ..self.report.clone()
            },
            space,
            inside,
            boundary: self.boundary.clone(),
            outside,
            places: self.places.clone(),
            given: self.given,
            ghosts: self.ghosts.clone(),
            permutation: self.permutation.clone(),
        })
    }

    /// Replaces the values of this rank's rows, given in the order of the arrays passed to
    /// [`RankMatrix::from_rows`]; the columns must have been ascending and without duplicates. Collective:
    /// all ranks call this.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        let ranks = self.space.ranks().clone();
        let refreshed = self.refresh_own(values);
        ranks.all(refreshed)
    }

    fn refresh_own(&mut self, values: &[T]) -> Result<()> {
        let (got, expected) = (values.len(), self.given);
        if got != expected {
            return Err(Error::Length {
                what: "the values",
                got,
                expected,
                why: "one for each entry of this rank",
            });
        }
        let outside: Vec<T> = self.places.iter().map(|&at| values[at]).collect();
        let mut others = self.places.iter().peekable();
        let own = |&at: &usize| others.next_if_eq(&&at).is_none();
        let inside: Vec<T> = (0..got).filter(own).map(|at| values[at]).collect();
        self.inside.refresh(&self.inside.assemble(&inside)?)?;
        self.outside().refresh(&outside)
    }

    /// The ranks.
    pub fn ranks(&self) -> &Ranks {
        self.space.ranks()
    }

    /// This rank's part, and its communication in a product.
    pub fn report(&self) -> &RankReport {
        &self.report
    }

    /// The diagonal block of this rank, for preconditioners.
    pub fn diagonal_block(&self) -> &Operator<L::Vector> {
        &self.inside
    }

    fn outside(&self) -> MutexGuard<'_, L::OffDiagonal> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The columns of other ranks in which this rank's rows have entries, ascending.
    pub(crate) fn ghosts(&self) -> &[u64] {
        &self.ghosts
    }

    /// The entries of this rank's rows as triplets `(column, row, value)` of the transpose, with global
    /// indices.
    pub(super) fn mirrored(&self) -> Result<Vec<(u64, u64, T)>> {
        let (whole, own) = (self.space.ranks().all(self.whole())?, self.space.rows());
        let rows = self.space.local_len();
        let name = |column: usize| match column.checked_sub(rows) {
            None => own.start + column as u64,
            Some(ghost) => self.ghosts[ghost],
        };
        Ok(whole
            .triplets()
            .map(|(row, column, value)| (name(column), own.start + row as u64, value))
            .collect())
    }

    /// The entries in columns of other ranks: the rows that have some, these rows, and their columns.
    pub(crate) fn border(&self) -> Result<(&[u32], Csr<T>, &[u64])> {
        Ok((&self.boundary, self.outside().outside()?, &self.ghosts))
    }

    /// This rank's rows as one matrix: own columns first, then ghosts.
    pub(crate) fn whole(&self) -> Result<Csr<T>> {
        let (inside, outside): (Cow<'_, Csr<T>>, _) =
            (self.inside.in_host_memory()?, self.outside().outside()?);
        let (rows, cols) = (inside.rows(), inside.rows() + outside.cols());
        let [own, others] = [&*inside, &outside].map(|part| part.structure().pattern.in_order());
        let mut beside = vec![0..0; rows];
        (0..).zip(&self.boundary).for_each(|(at, &row)| beside[row as usize] = others.offsets.range(at));
        let offsets = Offsets::of_rows(rows, &|row| own.offsets.range(row).len() + beside[row].len());
        let mut columns = Buffer::<u32>::zeros(offsets.end());
        let mut values = Buffer::<T>::zeros(offsets.end());
        let offset = |row: usize| offsets.at(row);
        let data = (ByRow::new(&mut columns, &offset), ByRow::new(&mut values, &offset));
        over_long_rows(rows, 32, data, &|range, (columns, values): (ByRow<'_, u32>, ByRow<'_, T>)| {
            let ((mut columns, _), (mut values, _)) = (columns.all(), values.all());
            for row in range {
                let (own_at, other_at) = (own.offsets.range(row), beside[row].clone());
                let (of_row, rest) = columns.split_at_mut(own_at.len() + other_at.len());
                columns = rest;
                let (to_own, to_ghosts) = of_row.split_at_mut(own_at.len());
                to_own.copy_from_slice(&own.columns[own_at.clone()]);
                let ghosts = others.columns[other_at.clone()].iter();
                to_ghosts.iter_mut().zip(ghosts).for_each(|(to, ghost)| *to = ghost + rows as u32);
                let (of_row, rest) = values.split_at_mut(own_at.len() + other_at.len());
                values = rest;
                let (to_own, to_ghosts) = of_row.split_at_mut(own_at.len());
                to_own.copy_from_slice(&inside.entries()[own_at]);
                to_ghosts.copy_from_slice(&outside.entries()[other_at]);
            }
        });
        let pattern = Arc::new(Pattern::sorted(offsets, columns, cols)?);
        let [domain, range] = [cols, rows].map(HostSpace::new);
        Ok(Csr::from_source(Source::new(pattern, domain, range), values))
    }
}

/// Returns an error if offsets are invalid, or lengths differ.
fn check_rows<T>(offsets: &[usize], columns: &[u64], values: &[T]) -> Result<()> {
    let entries = columns.len();
    if values.len() != entries {
        let (got, expected) = (values.len(), entries);
        return Err(Error::Length { what: "the values", got, expected, why: "one for each entry" });
    }
    if offsets.is_empty() {
        return Err(Error::Length {
            what: "the offsets",
            got: 0,
            expected: 1,
            why: "one for each row, and the end",
        });
    }
    let wrong = (0..offsets.len()).find(|&at| match at {
        0 => offsets[0] != 0 || (offsets.len() == 1 && entries != 0),
        at => offsets[at] < offsets[at - 1] || (at + 1 == offsets.len() && offsets[at] != entries),
    });
    match wrong {
        Some(position) => Err(Error::Offsets { position, offset: offsets[position] as i128, entries }),
        None => Ok(()),
    }
}

impl<T: Real, L: Local<T>> LinearOperator for RankMatrix<T, L> {
    type Vector = RankVector<T, L>;

    fn domain(&self) -> &RankSpace<T, L> {
        &self.space
    }

    fn apply(&self, x: &RankVector<T, L>, y: &mut RankVector<T, L>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        let mut outside = self.outside();
        outside.send(&x.own, || self.inside.apply(&x.own, &mut y.own))?;
        outside.add(&x.own, &mut y.own)
    }

    fn apply_dot(
        &self,
        x: &RankVector<T, L>,
        y: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<RankScalar<T, L>> {
        check_spaces(self, x, y)?;
        let mut outside = self.outside();
        let own = outside.send(&x.own, || self.inside.apply_dot(&x.own, &mut y.own))?;
        let dot = outside.add_dot(&x.own, &mut y.own, own)?;
        if let Some(link) = self.space.link() {
            return Ok(RankScalar::on_gpus(dot, link));
        }
        let [sum] = RankScalar::sums(self.space.ranks(), [dot]);
        Ok(sum)
    }

    /// Copies both parts of the matrix to one matrix in host memory during this call, because the residual of
    /// a row must be summed in one pass before it is rounded.
    fn residual(
        &self,
        b: &RankVector<T, L>,
        x: &RankVector<T, L>,
        r: &mut RankVector<T, L>,
    ) -> krysp_solvers::Result<()> {
        check_spaces(self, x, r)?;
        check_spaces(self, b, r)?;
        let (whole, own) = (self.whole()?, self.space.own());
        let [mut known, mut found] = [(); 2].map(|()| vec![T::zero(); own.len()]);
        own.store(&x.own, &mut found)?;
        own.store(&b.own, &mut known)?;
        let ghosts = self.outside().ghosts(&found)?;
        let mut rest = HostVector::from_slice(&known);
        let [known, found] =
            [HostVector::from_slice(&known), HostVector::from_slice(&[found, ghosts].concat())];
        whole.residual(&known, &found, &mut rest)?;
        own.load(rest.as_slice(), &mut r.own)
    }

    fn bytes(&self) -> usize {
        self.inside.bytes() + self.outside().bytes()
    }

    /// Products of GPUs with peer access can be replayed, because they do not involve the hosts.
    fn replays(&self) -> bool {
        self.space.link().is_some() && self.inside.replays()
    }
}

impl<T: Real, L: Local<T>> fmt::Debug for RankMatrix<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankMatrix")
            .field("space", &self.space)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// Writes one sentence about this rank's part.
impl fmt::Display for RankReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankReport { rows, entries, off_diagonal, messages, sent, received, format, peer_to_peer } = self;
        write!(
            f,
            "{rows} rows, {entries} entries ({format}), {off_diagonal} of them in columns of other ranks; a product "
        )?;
        write!(f, "sends {sent} entries of x in {messages} messages and receives {received}")?;
        if *peer_to_peer { f.write_str(", from GPU to GPU") } else { Ok(()) }
    }
}
