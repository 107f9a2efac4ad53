//! Transpose of a matrix by counting entries per column, and a test for mirrored entries. Both run on one
//! thread: that is faster than sorting on all threads, and cheap compared with a factorization.

use crate::error::Result;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, Rows, Source};
use crate::host::HostSpace;
use crate::numbers::Real;
use krysp_kernels::index::Offsets;
use std::sync::Arc;

/// Returns the transpose, in a separate space. It shares the pattern of a matrix whose entries all have mirrored entries, unless it has
/// 2³² entries or more.
pub(super) fn transposed<T: Real>(csr: &Csr<T>) -> Result<Csr<T>> {
    let (pattern, values) = match mirrored(csr) {
        Some(values) => (csr.source().pattern.clone(), values),
        None => by_counting(csr)?,
    };
    let (domain, range) = (HostSpace::new(csr.rows()), HostSpace::new(csr.cols()));
    Ok(Csr::from_source(Source::new(pattern, domain, range), values.into()))
}

/// Pattern and values of the transpose.
fn by_counting<T: Real>(csr: &Csr<T>) -> Result<(Arc<Pattern>, Vec<T>)> {
    let entries = csr.nnz();
    let mut lengths = vec![0usize; csr.cols()];
    csr.columns().iter().for_each(|&column| lengths[column as usize] += 1);
    let offsets = Offsets::from_lengths(lengths.iter().copied());
    let mut next = lengths;
    next.iter_mut().enumerate().for_each(|(column, next)| *next = offsets.at(column));
    let (mut rows, mut values) = (vec![0; entries], vec![T::zero(); entries]);
    for (row, (columns, of_row)) in (0..).zip(Rows::of(csr).iter()) {
        for (&column, &value) in columns.iter().zip(of_row) {
            let place = &mut next[column as usize];
            (rows[*place], values[*place]) = (row, value);
            *place += 1;
        }
    }
    Ok((Arc::new(Pattern::sorted(offsets, rows, csr.rows())?), values))
}

/// Values of the transpose if each entry has a mirrored entry; otherwise `None`, also for 2³² entries or more. Visits the rows in
/// order: the mirrored entry of `(i, j)` must be the first entry of row `j` that was not visited yet.
fn mirrored<T: Real>(csr: &Csr<T>) -> Option<Vec<T>> {
    let (rows, all) = (Rows::of(csr), csr.columns());
    if csr.rows() != csr.cols() || u32::try_from(all.len()).is_err() {
        return None;
    }
    let mut next: Vec<u32> = (0..csr.rows()).map(|row| rows.range(row).start as u32).collect();
    let mut values = vec![T::zero(); all.len()];
    for (row, (columns, of_row)) in (0u32..).zip(rows.iter()) {
        for (&column, &value) in columns.iter().zip(of_row) {
            let next = &mut next[column as usize];
            let at = *next as usize;
            // past the end of row `column` is an entry of a later row, whose first column may be `row`
            if all.get(at) != Some(&row) {
                return None;
            }
            values[at] = value;
            *next += 1;
        }
    }
    // each row has as many entries as its column: no entry was taken from the row after it
    let ends = next.iter().enumerate().all(|(row, &next)| next as usize == rows.range(row).end);
    ends.then_some(values)
}

/// Returns whether each entry of a square matrix has a mirrored entry. One pass over the entries: row `i` of
/// the upper triangle must find its mirrored entries next in their rows.
pub(super) fn is_mirrored<T: Real>(csr: &Csr<T>) -> bool {
    let (rows, columns) = (Rows::of(csr), csr.columns());
    let mut next: Vec<usize> = (0..csr.rows()).map(|row| rows.range(row).start).collect();
    (0..csr.rows()).all(|row| {
        // `next` is past the entries in the lower triangle, which were found from earlier rows
        let left = &columns[next[row]..rows.range(row).end];
        let from = left.iter().position(|&column| column as usize != row).unwrap_or(left.len());
        left[from..].iter().all(|&column| {
            let (column, at) = (column as usize, next[column as usize]);
            next[column] += 1;
            column > row && at < rows.range(column).end && columns[at] as usize == row
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preconditioners::direct::testing::Random;

    #[test]
    fn mirrored_entries_are_found() {
        let mut source = Random(0x1029_3847_5665_7483);
        let mut counts = [0; 2];
        for case in 0..3000 {
            let n = 1 + source.below(8);
            let mut entries = vec![];
            for _ in 0..source.below(3 * n) {
                let (i, j) = (source.below(n), source.below(n));
                entries.extend([(i, j, source.number()), (j, i, source.number())]);
            }
            if !entries.is_empty() && source.below(2) == 0 {
                entries.remove(source.below(entries.len()));
            }
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            let transpose = transposed(&a).unwrap();
            let expected = a.columns() == transpose.columns() && a.offsets() == transpose.offsets();
            assert_eq!(is_mirrored(&a), expected, "case {case}: {entries:?}");
            assert_eq!(std::ptr::eq(a.pattern(), transpose.pattern()), expected, "case {case}: {entries:?}");
            let mut flipped: Vec<_> = a.triplets().map(|(i, j, value)| (j, i, value)).collect();
            flipped.sort_by_key(|&(i, j, _)| (i, j));
            assert_eq!(transpose.triplets().collect::<Vec<_>>(), flipped, "case {case}");
            counts[usize::from(expected)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
    }
}
