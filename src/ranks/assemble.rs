//! Constructors of distributed matrices: from entries given on any rank, from a file, or from one rank.

use super::collective::Ranks;
use super::local::Local;
use super::matrix::RankMatrix;
use crate::error::{Error, Result};
use crate::formats::{Csr, Format, node_rows};
use crate::io::matrix_market::{Number, read_part};
use crate::numbers::Real;
use krysp_kernels::buffer::Plain;
use krysp_kernels::ranges::even_parts;
use krysp_solvers::{LinearOperator, Space};
use std::path::Path;

/// Distribution of the rows of a matrix over the ranks.
#[derive(Clone, Copy, Debug)]
pub enum RowDistribution<'b> {
    /// An equal number of rows for each rank.
    Even,
    /// About an equal amount of work for each rank. Work is estimated as the number of entries plus two per
    /// row, for the entries of vectors in that row.
    ByEntries,
    /// The first row of each rank, followed by the number of rows of the matrix.
    Given(&'b [u64]),
}

/// Matrix entries in coordinate format.
struct Entries<T> {
    rows: Vec<u64>,
    columns: Vec<u64>,
    values: Vec<T>,
}

impl<T: Real> RankMatrix<T> {
    /// Builds a matrix with `n` rows from triplets `(row, column, value)` with global indices. A rank may
    /// pass entries of any row; they are sent to the rank that owns the row. Duplicate entries are summed in
    /// the order of the ranks. Collective: all ranks call this.
    pub fn from_entries(
        ranks: &Ranks,
        n: u64,
        rows: RowDistribution<'_>,
        entries: &[(u64, u64, T)],
    ) -> Result<RankMatrix<T>> {
        let bound = n as usize;
        let wrong = entries.iter().position(|&(row, ..)| row >= n).map(|position| {
            let index = i128::from(entries[position].0);
            Err(Error::Index { position, what: "row", index, bound })
        });
        ranks.all(wrong.unwrap_or(Ok(())))?;
        let sizes = ranks.all_gather(vec![n])?;
        if let Some(&other) = sizes.iter().find(|&&size| size != sizes[0]) {
            let got = format!("{} on one rank and {other} on another", sizes[0]);
            return Err(Error::Option { what: "the number of rows", got, expected: "the same on all" });
        }
        let mut entries = Entries {
            rows: entries.iter().map(|entry| entry.0).collect(),
            columns: entries.iter().map(|entry| entry.1).collect(),
            values: entries.iter().map(|entry| entry.2).collect(),
        };
        let even = even_bounds(n, ranks.size());
        let bounds = match rows {
            RowDistribution::Even => even,
            RowDistribution::Given(bounds) => ranks.all(check_bounds(bounds, n, ranks.size()))?,
            RowDistribution::ByEntries => {
                entries = send_to_owners(ranks, &even, entries)?;
                bounds_by_entries(ranks, &even, &entries.rows)?
            }
        };
        let entries = send_to_owners(ranks, &bounds, entries)?;
        let first = bounds[ranks.rank()];
        let own = (bounds[ranks.rank() + 1] - first) as usize;
        // counting sort by rows
        let mut offsets = vec![0usize; own + 1];
        entries.rows.iter().for_each(|row| offsets[(row - first) as usize + 1] += 1);
        (0..own).for_each(|row| offsets[row + 1] += offsets[row]);
        let mut next = offsets.clone();
        let (mut columns, mut values) = (vec![0; entries.rows.len()], vec![T::zero(); entries.rows.len()]);
        for ((row, &column), &value) in entries.rows.iter().zip(&entries.columns).zip(&entries.values) {
            let at = &mut next[(row - first) as usize];
            (columns[*at], values[*at]) = (column, value);
            *at += 1;
        }
        RankMatrix::from_rows(ranks, &offsets, &columns, &values)
    }

    /// Reads a Matrix Market file that all ranks can open: each parses its part of the text. (A gzipped file
    /// is decompressed by every rank.) Collective: all ranks call this.
    pub fn read(ranks: &Ranks, path: impl AsRef<Path>, rows: RowDistribution<'_>) -> Result<RankMatrix<T>>
    where
        T: Number,
    {
        let read = read_part::<T>(path, ranks.rank(), ranks.size()).map_err(Error::from);
        let (part, expected) = ranks.all(read)?;
        let got: u64 = ranks.all_gather(vec![part.value.len() as u64])?.into_iter().sum();
        if got != expected {
            let (got, expected) = (got as usize, expected as usize);
            return Err(Error::Length { what: "the file", got, expected, why: "entries, by its size line" });
        }
        let (rows_of_all, cols) = (part.rows, part.cols);
        if rows_of_all != cols {
            return Err(Error::NotSquare { what: "a matrix on several ranks", rows: rows_of_all, cols });
        }
        let entries = crate::io::both_triangles(&part);
        RankMatrix::from_entries(ranks, rows_of_all as u64, rows, &entries)
    }

    /// Distributes a matrix that the first rank has. Rows are divided into ranges with about an equal number
    /// of entries, in the order of the matrix. Reorder an unstructured matrix first ([`Csr::reordered`] with
    /// a clustered ordering), so that few rows need entries of other ranks. [`RankMatrix::scatter`]
    /// distributes vectors, [`RankMatrix::gather`] collects them. Collective: all ranks call this.
    pub fn distribute(ranks: &Ranks, csr: Option<&Csr<T>>) -> Result<RankMatrix<T>> {
        let size = ranks.size();
        let whole = csr.filter(|_| ranks.rank() == 0);
        let checked = match whole {
            None if ranks.rank() == 0 => {
                let got = "no matrix".into();
                Err(Error::Option { what: "the first rank's matrix", got, expected: "the whole matrix" })
            }
            Some(a) if a.rows() != a.cols() || a.source().domain() != a.source().range() => {
                let (rows, cols) = (a.rows(), a.cols());
                Err(Error::NotSquare { what: "a matrix on several ranks", rows, cols })
            }
            _ => Ok(()),
        };
        ranks.all(checked)?;
        let (mut lengths, mut columns, mut values) =
            (vec![vec![]; size], vec![vec![]; size], vec![vec![]; size]);
        if let Some(a) = whole {
            // keep the unknowns of a node on one rank
            let mut bounds = even_parts(&*a.pattern().offsets, size, node_rows(a.pattern()).0);
            bounds.resize(size + 1, a.rows());
            let offsets = a.offsets();
            for rank in 0..size {
                let rows = bounds[rank]..bounds[rank + 1];
                let entries = offsets[rows.start]..offsets[rows.end];
                lengths[rank] = rows.map(|row| a.row_columns(row).len() as u64).collect();
                columns[rank] = a.columns()[entries.clone()].iter().map(|&column| column.into()).collect();
                values[rank] = a.entries()[entries].to_vec();
            }
        }
        let lengths: Vec<u64> = from_first(ranks.exchange(lengths)?);
        let (columns, values) = (from_first(ranks.exchange(columns)?), from_first(ranks.exchange(values)?));
        let mut offsets = vec![0usize];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length as usize);
        }
        let mut matrix = RankMatrix::from_rows(ranks, &offsets, &columns, &values)?;
        matrix.permutation = whole.and_then(|a| a.source().domain().permutation().cloned());
        Ok(matrix)
    }
}

impl<T: Real, L: Local<T>> RankMatrix<T, L> {
    /// Distributes a vector that the first rank has, in the order of that rank's matrix; returns this rank's
    /// part. Collective: all ranks call this.
    pub fn scatter(&self, whole: Option<&[T]>) -> Result<Vec<T>> {
        let (ranks, space, n) = (self.ranks(), self.domain(), self.domain().len());
        let whole = whole.filter(|_| ranks.rank() == 0);
        let got = whole.map_or(0, <[T]>::len);
        let fits = ranks.rank() != 0 || got == n;
        let wrong = Error::Length { what: "the vector", got, expected: n, why: "one for each row" };
        ranks.all(if fits { Ok(()) } else { Err(wrong) })?;
        let mut parts = vec![vec![]; ranks.size()];
        if let Some(whole) = whole {
            let ordered =
                self.permutation.as_deref().map(|permutation| take(whole, permutation.old_of_new()));
            let whole = ordered.as_deref().unwrap_or(whole);
            for (rank, part) in parts.iter_mut().enumerate() {
                let rows = space.rows_of(rank);
                *part = whole[rows.start as usize..rows.end as usize].to_vec();
            }
        }
        Ok(from_first(ranks.exchange(parts)?))
    }

    /// Collects the parts of a vector on the first rank, in the order of that rank's matrix; returns `None`
    /// on the others. Collective: all ranks call this.
    pub fn gather(&self, own: &[T]) -> Result<Option<Vec<T>>> {
        let (ranks, expected) = (self.ranks(), self.domain().local_len());
        let wrong = Error::Length { what: "the part", got: own.len(), expected, why: "one for each row" };
        ranks.all(if own.len() == expected { Ok(()) } else { Err(wrong) })?;
        let mut parts = vec![vec![]; ranks.size()];
        parts[0] = own.to_vec();
        let whole = ranks.exchange(parts)?.concat();
        let ordered = self.permutation.as_deref().map(|permutation| take(&whole, permutation.new_of_old()));
        Ok((ranks.rank() == 0).then(|| ordered.unwrap_or(whole)))
    }
}

/// The part that was received from the first rank.
fn from_first<X>(parts: Vec<Vec<X>>) -> Vec<X> {
    parts.into_iter().next().unwrap_or_default()
}

fn take<T: Copy>(from: &[T], places: &[u32]) -> Vec<T> {
    places.iter().map(|&place| from[place as usize]).collect()
}

fn even_bounds(n: u64, ranks: usize) -> Vec<u64> {
    (0..=ranks as u128).map(|rank| (u128::from(n) * rank / ranks as u128) as u64).collect()
}

fn check_bounds(bounds: &[u64], n: u64, ranks: usize) -> Result<Vec<u64>> {
    let ascend = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
    if bounds.len() == ranks + 1 && bounds[0] == 0 && bounds[ranks] == n && ascend {
        return Ok(bounds.to_vec());
    }
    let expected = "the first row of each rank and the number of rows, ascending from 0";
    Err(Error::Option { what: "the distribution of rows", got: format!("{bounds:?}"), expected })
}

/// Sends each entry to the rank that owns its row.
fn send_to_owners<T: Real>(ranks: &Ranks, bounds: &[u64], entries: Entries<T>) -> Result<Entries<T>> {
    let owner = |row: u64| bounds.partition_point(|&bound| bound <= row) - 1;
    fn sorted<X: Plain + Default>(ranks: &Ranks, owners: &[usize], from: &[X]) -> Result<Vec<X>> {
        let mut parts = vec![vec![]; ranks.size()];
        owners.iter().zip(from).for_each(|(&owner, &x)| parts[owner].push(x));
        Ok(ranks.exchange(parts)?.concat())
    }
    let owners: Vec<usize> = entries.rows.iter().map(|&row| owner(row)).collect();
    Ok(Entries {
        rows: sorted(ranks, &owners, &entries.rows)?,
        columns: sorted(ranks, &owners, &entries.columns)?,
        values: sorted(ranks, &owners, &entries.values)?,
    })
}

/// The first row of each rank, such that ranks have about equal work, followed by the number of rows. `rows`
/// has the row of each entry that this rank owns in the distribution `even`.
fn bounds_by_entries(ranks: &Ranks, even: &[u64], rows: &[u64]) -> Result<Vec<u64>> {
    let (first, end) = (even[ranks.rank()], even[ranks.rank() + 1]);
    let mut work = vec![2u64; (end - first) as usize];
    rows.iter().for_each(|row| work[(row - first) as usize] += 1);
    let of_ranks = ranks.all_gather(vec![work.iter().sum::<u64>()])?;
    let all: u64 = of_ranks.iter().sum();
    let mut before: u64 = of_ranks[..ranks.rank()].iter().sum();
    // a rank's part ends with the row that reaches its share of the work
    let target = |rank: usize| (u128::from(all) * rank as u128 / ranks.size() as u128) as u64;
    let (mut found, mut rank) = (vec![], 1);
    while target(rank) <= before && rank < ranks.size() {
        rank += 1; // an earlier rank finds this bound
    }
    for (row, work) in (first + 1..).zip(work) {
        before += work;
        while rank < ranks.size() && target(rank) <= before {
            found.push(row);
            rank += 1;
        }
    }
    let mut bounds = ranks.exchange(vec![found; ranks.size()])?.concat();
    bounds.insert(0, 0);
    bounds.resize(ranks.size() + 1, even[ranks.size()]);
    Ok(bounds)
}
