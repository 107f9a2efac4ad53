//! Analysis of a matrix before it is solved with.

use crate::formats::{Csr, Mirrored, best_blocks, over_mirrored_rows, quantile, row_length_histogram};
use crate::numbers::Real;
use crate::preconditioners::{SaddleEstimate, SaddlePoint};
use crate::saved::saved;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use super::declarations::Declared;
use super::nodes::neighbours;
use super::parts::{ConnectedComponents, parts};
use super::spectrum::{Spectrum, spectrum};
use crate::preconditioners::positive_jacobi::WEAK;

/// Properties of a matrix that are known before a solve: sizes, symmetry, diagonal. `Display` prints a few lines.
///
/// ```
/// use krysp::{Csr, plan::Profile};
///
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 2.0)])?;
/// let profile = Profile::of(&a);
/// assert!(profile.is_symmetric() && profile.dominant == 2);
/// println!("{profile}");
/// # Ok::<(), krysp::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Number of stored entries. The constructors of [`Csr`] add up duplicates, so each position is stored once.
    pub entries: usize,
    /// Number of stored entries that are zero.
    pub zeros: usize,
    /// Number of entries that are infinite or NaN.
    pub not_finite: usize,
    /// Row lengths: the minimum, the three quartiles, the maximum.
    pub lengths: [usize; 5],
    /// Numbers of rows with 0, 1, 2 to 3, 4 to 7, ... entries.
    pub histogram: Vec<usize>,
    /// Number of rows without a nonzero entry.
    pub empty_rows: usize,
    /// Number of columns without a nonzero entry.
    pub empty_cols: usize,
    /// Number of rows whose diagonal entry is zero or not stored.
    pub zero_diagonal: usize,
    /// Number of rows with a negative diagonal entry.
    pub negative_diagonal: usize,
    /// Number of rows whose diagonal entry is at most a millionth of the largest entry of the row in magnitude; zeros are included.
    pub weak_diagonal: usize,
    /// Number of rows whose diagonal entry is nonzero and, in magnitude, at least the sum of the others' magnitudes.
    pub dominant: usize,
    /// Number of rows with a positive diagonal entry `d` and a row sum below `-d / 10`.
    pub negative_sums: usize,
    /// Size of the dense blocks in which the matrix takes the fewest bytes, as a rule the unknowns of a node; 1 if it has none.
    pub block: usize,
    /// Median number of neighbours of a node, with itself, in a sample of the rows; rows with the same columns are one node. Zero if the
    /// matrix is not square, or empty.
    pub neighbours: usize,
    /// Number of stored entries off the diagonal.
    pub off_diagonal: usize,
    /// Number of off-diagonal entries whose mirror image is stored.
    pub mirrored: usize,
    /// Number of off-diagonal entries that equal their mirror image to rounding, where a missing entry counts as zero.
    pub symmetric: usize,
    /// Number of off-diagonal entries that equal the negative of their mirror image to rounding.
    pub skew: usize,
    /// Minimum and maximum, over all nonempty rows, of the largest magnitude in the row.
    pub row_scale: [f64; 2],
    /// The expected costs of [`SaddlePoint`](crate::SaddlePoint), if the matrix is large and has the structure of a saddle point system.
    pub saddle: Option<SaddleEstimate>,
    /// Connected components of the graph; computed by [`Profile::of`] alone.
    pub connected_components: Option<ConnectedComponents>,
    /// Estimate of the spectrum; computed by [`Profile::of`] alone, and for symmetric matrices alone.
    pub spectrum: Option<Spectrum>,
    /// Properties that were declared by methods of [`Plan`](crate::Plan).
    pub declared: Declared,
}

saved!(impl[] Profile {
    rows, cols, entries, zeros, not_finite, lengths, histogram, empty_rows, empty_cols, zero_diagonal, negative_diagonal,
    weak_diagonal, dominant, negative_sums, block, neighbours, off_diagonal, mirrored, symmetric, skew, row_scale, declared, saddle; connected_components = None,
    spectrum = None
});

/// A row sum counts as negative below minus this fraction of the diagonal entry. Not measured; far above rounding errors.
const NEGATIVE: f64 = 0.1;

/// Minimum number of rows for detecting the structure of a saddle point system: smaller ones are solved as fast by a complete
/// factorization. Not measured; the same as `COMPLETE` of the block solvers.
const SADDLE: usize = 3000;

impl Profile {
    /// Analyses a matrix: some passes over its entries on all threads, one over its graph, and, if it is symmetric, some Lanczos steps.
    pub fn of<T: Real>(a: &Csr<T>) -> Profile {
        let mut profile = Profile::scan(a);
        profile.connected_components = Some(parts(a));
        if profile.is_symmetric() {
            profile.spectrum = spectrum(a, profile.has_positive_diagonal());
        }
        profile
    }

    /// Analyses the entries of a matrix, but not its graph and its spectrum.
    pub(super) fn scan<T: Real>(a: &Csr<T>) -> Profile {
        let lengths = row_length_histogram(a);
        let of_rank = |x: f64| quantile(&lengths, x);
        let shortest = lengths.iter().position(|&rows| rows > 0).unwrap_or(0);
        let longest = lengths.len().saturating_sub(1);
        let mut histogram = vec![];
        for (length, &rows) in lengths.iter().enumerate().filter(|(_, rows)| **rows > 0) {
            let bucket = (usize::BITS - length.leading_zeros()) as usize;
            histogram.resize(histogram.len().max(bucket + 1), 0);
            histogram[bucket] += rows;
        }
        let square = a.rows() == a.cols();
        let used: Vec<AtomicU8> = (0..a.cols()).map(|_| AtomicU8::new(0)).collect();
        let diagonal = if square { a.diagonal_entries() } else { vec![] };
        let none = Profile { row_scale: [f64::INFINITY, 0.0], ..Profile::default() };
        let total = Mutex::new(none.clone());
        over_mirrored_rows(a, &|rows, mut mirrored| {
            let mut part = none.clone();
            rows.for_each(|row| part.add_row(a, row, &diagonal, &mut mirrored, &used));
            total.lock().unwrap_or_else(PoisonError::into_inner).add(part);
        });
        let mut profile = Profile {
            rows: a.rows(),
            cols: a.cols(),
            entries: a.nnz(),
            lengths: [shortest, of_rank(0.25), of_rank(0.5), of_rank(0.75), longest],
            histogram,
            empty_cols: used.iter().filter(|used| used.load(Ordering::Relaxed) == 0).count(),
            block: if square { best_blocks(a).map_or(1, |(_, size)| size) } else { 1 },
            neighbours: if square { neighbours(a) } else { 0 },
            ..total.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        if square && a.rows() >= SADDLE && !profile.has_positive_diagonal() && profile.not_finite == 0 {
            let symmetric = profile.looks_symmetric();
            profile.saddle =
                SaddlePoint::fields(a).ok().map(|fields| SaddleEstimate::new(a, &fields, symmetric));
        }
        profile
    }

    /// Whether the matrix is symmetric: as declared, or otherwise if it is square and equal to its transpose to rounding.
    pub fn is_symmetric(&self) -> bool {
        self.declared.symmetric.unwrap_or_else(|| self.looks_symmetric())
    }

    /// Whether the matrix is square, and equal to its transpose to rounding.
    pub(super) fn looks_symmetric(&self) -> bool {
        self.rows == self.cols && self.symmetric == self.off_diagonal
    }

    /// Whether every diagonal entry is stored and positive. Otherwise, a symmetric matrix is not positive definite.
    pub fn has_positive_diagonal(&self) -> bool {
        self.zero_diagonal == 0 && self.negative_diagonal == 0
    }

    /// Whether the matrix has an empty row or column, which makes it singular.
    pub fn has_empty_lines(&self) -> bool {
        self.empty_rows + self.empty_cols > 0
    }

    /// The numbers of the profile, in the order in which tests record them.
    pub(super) fn counts(&mut self) -> [&mut usize; 17] {
        macro_rules! fields {
            ($($field:ident)*) => { [$(&mut self.$field),*] };
        }
        fields! {
            rows cols entries zeros not_finite empty_rows empty_cols zero_diagonal negative_diagonal weak_diagonal
            dominant negative_sums block off_diagonal mirrored symmetric skew
        }
    }

    /// Adds the counts of another part of the rows. The number of symmetric entries may be negative for a part: an entry whose mirror image
    /// is a stored zero subtracts what the zero has added in another row.
    fn add(&mut self, mut other: Profile) {
        for (own, other) in self.counts().into_iter().zip(other.counts()) {
            *own = own.wrapping_add(*other);
        }
        let [least, most] = other.row_scale;
        self.row_scale = [self.row_scale[0].min(least), self.row_scale[1].max(most)];
    }

    /// Adds a row to the counts.
    fn add_row<T: Real>(
        &mut self,
        a: &Csr<T>,
        row: usize,
        diagonal: &[T],
        mirrored: &mut Mirrored<'_, T>,
        used: &[AtomicU8],
    ) {
        let (mut own, mut others, mut sum, mut most) = (0.0, 0.0, 0.0, 0.0f64);
        for (&col, &value) in a.row_columns(row).iter().zip(a.row_values(row)) {
            let (col, value) = (col as usize, value.to_f64());
            if value == 0.0 {
                self.zeros += 1;
            } else if used[col].load(Ordering::Relaxed) == 0 {
                // write only once, because threads share these cache lines
                used[col].store(1, Ordering::Relaxed);
            }
            self.not_finite += usize::from(!value.is_finite());
            most = most.max(value.abs());
            sum += value;
            if col == row {
                own = value;
                continue;
            }
            others += value.abs();
            self.off_diagonal += 1;
            // a stored zero counts as symmetric, unless its mirror image turns out to be stored and nonzero
            self.symmetric = self.symmetric.wrapping_add(usize::from(value == 0.0));
            // each pair is compared once, at the entry in the lower triangle
            if col > row || diagonal.is_empty() {
                continue;
            }
            let Some(mirrored) = mirrored.across(row, col) else { continue };
            let mirrored = mirrored.to_f64();
            let zeros = usize::from(value == 0.0) + usize::from(mirrored == 0.0);
            self.mirrored += 2;
            self.symmetric = self.symmetric.wrapping_sub(zeros);
            let (difference, larger) = ((value - mirrored).abs(), value.abs().max(mirrored.abs()));
            let rounding = 100.0 * T::EPSILON * larger;
            if difference <= rounding {
                self.symmetric = self.symmetric.wrapping_add(2);
                continue;
            }
            // rounding is also relative to √|aᵢᵢ aⱼⱼ|: assembled entries that nearly cancel keep the rounding errors of their terms
            let assembled = (diagonal[row].to_f64() * diagonal[col].to_f64()).abs().sqrt();
            let rounding = rounding.max(100.0 * T::EPSILON * assembled);
            self.symmetric = self.symmetric.wrapping_add(if difference <= rounding { 2 } else { 0 });
            self.skew += if zeros == 0 && (value + mirrored).abs() <= rounding { 2 } else { 0 };
        }
        if most > 0.0 {
            self.row_scale = [self.row_scale[0].min(most), self.row_scale[1].max(most)];
        } else {
            self.empty_rows += 1;
        }
        self.zero_diagonal += usize::from(own == 0.0);
        self.negative_diagonal += usize::from(own < 0.0);
        self.weak_diagonal += usize::from(own.abs() <= WEAK * most);
        self.dominant += usize::from(own.abs() >= others && own != 0.0);
        self.negative_sums += usize::from(own > 0.0 && sum < -NEGATIVE * own);
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [shortest, q1, median, q3, longest] = self.lengths;
        write!(f, "{} x {}, {} entries", self.rows, self.cols, self.entries)?;
        if self.zeros > 0 {
            write!(f, ", {} of them zero", self.zeros)?;
        }
        if self.not_finite > 0 {
            write!(f, ", {} not finite", self.not_finite)?;
        }
        write!(f, "\nrows: {shortest} to {longest} entries, quartiles {q1}, {median}, {q3}")?;
        if self.block > 1 {
            write!(f, "; blocks of {0} x {0}", self.block)?;
        }
        if self.has_empty_lines() {
            write!(f, "; {} rows and {} columns are empty", self.empty_rows, self.empty_cols)?;
        }
        let [least, most] = self.row_scale;
        write!(f, "; largest entry of a row from {least:.1e} to {most:.1e}")?;
        if self.rows != self.cols {
            return Ok(());
        }
        let percent = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
        if self.not_finite > 0 {
            write!(f, "\nsymmetry not examined")?;
        } else if self.is_symmetric() {
            let declared = if self.declared.symmetric.is_some() { ", as declared" } else { "" };
            write!(f, "\nsymmetric{declared}")?;
        } else {
            let [mirrored, same] =
                [self.mirrored, self.symmetric].map(|part| percent(part, self.off_diagonal));
            write!(f, "\nnot symmetric: off the diagonal, {mirrored:.0} % of the entries have a mirror ")?;
            write!(f, "image, {same:.0} % one with the same value")?;
        }
        write!(f, "\ndiagonal: ")?;
        match self.has_positive_diagonal() {
            true => write!(f, "positive")?,
            false => write!(f, "{} zero, {} negative", self.zero_diagonal, self.negative_diagonal)?,
        }
        let weak = self.weak_diagonal.saturating_sub(self.zero_diagonal);
        if weak > 0 {
            write!(f, ", {weak} weak")?;
        }
        write!(f, "; {:.0} % of rows diagonally dominant", percent(self.dominant, self.rows))?;
        if let Some(spectrum) = &self.spectrum {
            write!(f, "\n{spectrum}")?;
        }
        if let Some(parts) = self.connected_components.filter(|parts| parts.count > 1) {
            write!(f, "\n{} connected components, the largest has {} rows", parts.count, parts.largest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::looks_symmetric;

    /// The profile and the test after a refresh must agree, or a plan would replace its candidates without a reason.
    #[test]
    fn the_quick_test_of_symmetry_agrees_with_the_profile() {
        let pair = |i, j, value, mirrored| vec![(i, j, value), (j, i, mirrored)];
        for entries in [
            vec![],
            pair(0, 3, 2.0, 2.0),
            pair(0, 3, 0.1, 0.1 + 1e-16),
            pair(2, 1, 1e-17, 0.0),
            pair(0, 3, 2.0, -2.0),
            pair(3, 2, 2.0, 2.0 + 1e-12),
            // without a mirror image
            vec![(0, 3, 0.0)],
            vec![(3, 0, 0.0)],
            vec![(0, 3, 1e-17)],
            vec![(3, 0, 1e-17)],
            // as many entries above the diagonal as below, in different places
            vec![(0, 3, 1.0), (2, 1, 1.0)],
        ] {
            let all: Vec<_> = (0..4).map(|i| (i, i, 1.0)).chain(entries.iter().copied()).collect();
            let a = Csr::from_triplets(4, 4, &all).unwrap();
            assert_eq!(looks_symmetric(&a), Profile::of(&a).is_symmetric(), "{entries:?}");
        }
    }
}
