//! Symmetric CSR: each pair `a_ij = a_ji` is read once.
//!
//! A product reads half the bytes of CSR if entries are close to the diagonal. Rows are divided into parts
//! for threads; pairs whose row and column are neither in the same part nor in adjacent ones are stored in both
//! triangles, so an ordering that keeps neighbours together (RCM) is important here.

#[cfg(feature = "cuda")]
use super::OnDevice;
use super::mirrored::over_mirrored_rows;
use super::pattern::Pattern;
use super::{Analysis, Coefficients, Csr, Format, Multiply, Offer, Offered, Source, Variant};
use crate::error::{Error, Result};
use crate::host::{HostSpace, HostVector};
use crate::numbers::{Real, Storage};
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cost::CostModel;
use krysp_kernels::cpu::formats::symmetric::{self, Halves, reach};
use krysp_kernels::cpu::run::threads::{CHUNK, fill_by_rows, map_rows, over_rows};
#[cfg(feature = "cuda")]
use krysp_kernels::cuda;
use krysp_kernels::index::{Columns, Offsets};
use krysp_kernels::ranges::even_parts;
use krysp_solvers::LinearOperator;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

/// Number of memory sectors of `x` read per entry (scattering) up to which these reads cost nothing
/// measurable (guess). Typical of matrices in which neighbouring unknowns are close in memory.
const NEAR: f64 = 0.2;

/// A symmetric matrix in CSR, of which one triangle is stored.
#[derive(Clone, Debug)]
pub struct SymCsr<T: Real> {
    source: Source<T>,
    halves: Halves,
    values: Buffer<T>,
}

saved!(impl[T: Real] SymCsr<T> { source, halves, values } where |read| {
    read.halves.size() == 1 && read.halves.fit(read.source.pattern.rows(), read.values.len())
});

impl<T: Real> SymCsr<T> {
    /// Converts a symmetric matrix. If `a_ij` and `a_ji` differ by rounding, the entry below the diagonal is
    /// used.
    pub fn new(csr: &Csr<T>) -> Result<SymCsr<T>> {
        check_symmetric(csr)?;
        let pattern = csr.pattern();
        let parts = parts(pattern);
        let unsuitable = |_| Error::Unsuitable { format: Self::NAME, why: "an index is out of range".into() };
        let stored_of = |row: usize| stored(&pattern.offsets, &pattern.columns, row, reach(&parts, row));
        let lengths = map_rows(csr.rows(), 8, &|row| {
            let stored = stored_of(row);
            (stored.mirrored.len() as u32, stored.mirrored.len() + stored.rest.count())
        });
        let (mirrored, lengths): (Vec<u32>, Vec<usize>) = lengths.into_iter().unzip();
        let offsets = Offsets::from_lengths(lengths);
        let mut columns = Buffer::zeros(offsets.end());
        fill_by_rows(csr.rows(), &mut columns, &|row| offsets.at(row), &|rows, part, _| {
            let entries = rows.map(stored_of).flat_map(|stored| stored.mirrored.chain(stored.rest));
            part.iter_mut().zip(entries).for_each(|(column, entry)| *column = pattern.columns[entry]);
        });
        let columns = Columns::new(columns, csr.cols()).map_err(unsuitable)?;
        let values = Buffer::zeros(offsets.end());
        let halves = Halves::new(1, parts, offsets, mirrored, columns).map_err(unsuitable)?;
        let mut sym = SymCsr { source: csr.source().clone(), halves, values };
        sym.fill(csr.entries());
        Ok(sym)
    }

    /// Bytes of a symmetric matrix in host memory, computed without converting it.
    pub(crate) fn bytes_of(csr: &Csr<T>) -> usize {
        halves_bytes(csr, 1, &csr.pattern().offsets, &csr.pattern().columns)
    }

    /// Number of stored entries divided by the number of all entries of the matrix.
    pub fn stored_share(&self) -> f64 {
        self.values.len() as f64 / self.source.nnz().max(1) as f64
    }
}

/// The stored entries of a row (or the stored blocks of a block row).
pub(super) struct Stored<R> {
    /// Entries below the diagonal within reach, which are mirrored.
    pub(super) mirrored: Range<usize>,
    /// The diagonal entry and the entries out of reach.
    pub(super) rest: R,
}

/// Selects the stored entries of a row, given its [`reach`]. `columns` are those of all rows, which begin at `offsets`.
pub(super) fn stored(
    offsets: &Offsets,
    columns: &[u32],
    row: usize,
    reach: Range<usize>,
) -> Stored<impl Iterator<Item = usize> + use<>> {
    let range = offsets.range(row);
    let columns = &columns[range.clone()];
    let below = |bound: usize| range.start + columns.partition_point(|&column| (column as usize) < bound);
    let (inner, diagonal) = (below(reach.start), below(row));
    let (after, outside) = (below(row + 1), below(reach.end));
    Stored {
        mirrored: inner..diagonal,
        rest: (range.start..inner).chain(diagonal..after).chain(outside.max(after)..range.end),
    }
}

/// Bytes in host memory of a symmetric matrix of which one triangle is stored, computed without converting
/// it. `offsets` and `columns` are the pattern of its dense blocks of `size` rows, or of its entries if
/// `size` is 1.
pub(super) fn halves_bytes<T: Real>(csr: &Csr<T>, size: usize, offsets: &Offsets, columns: &[u32]) -> usize {
    let parts: Vec<usize> = parts(csr.pattern()).into_iter().map(|bound| bound / size).collect();
    let rows = offsets.ranges();
    let kept = AtomicUsize::new(0);
    over_rows(rows, 8, (), &|rows, ()| {
        let of_row = |row: usize| {
            let columns = &columns[offsets.range(row)];
            let below = |bound: usize| columns.partition_point(|&column| (column as usize) < bound);
            // entries above the diagonal within reach are mirror images and not stored
            columns.len() - (below(reach(&parts, row).end) - below(row + 1))
        };
        kept.fetch_add(rows.map(of_row).sum(), Ordering::Relaxed);
    });
    let kept = kept.into_inner();
    let offset = if u32::try_from(kept).is_ok() { size_of::<u32>() } else { size_of::<u64>() };
    let inner = rows * size_of::<u32>();
    size_of_val(&*parts)
        + (rows + 1) * offset
        + inner
        + kept * (size * size * size_of::<T>() + size_of::<u32>())
}

/// Boundaries of up to 128, 64, 32 or 16 parts: the largest of these numbers for which at most 1/8 of the
/// entries are out of [`reach`], or else 16. Half of the parts are computed at a time. Many parts distribute evenly over
/// threads, but every pair out of reach is stored twice.
pub(super) fn parts(pattern: &Pattern) -> Vec<usize> {
    let outside = |bounds: &[usize]| -> usize {
        let sum = AtomicUsize::new(0);
        over_rows(pattern.rows(), 8, (), &|rows, ()| {
            let of_row = |row: usize| {
                let reach = reach(bounds, row);
                let before =
                    |bound: usize| pattern.row(row).partition_point(|&column| (column as usize) < bound);
                before(reach.start) + pattern.row(row).len() - before(reach.end)
            };
            sum.fetch_add(rows.map(of_row).sum(), Ordering::Relaxed);
        });
        sum.into_inner()
    };
    let mut bounds = vec![];
    for count in [128, 64, 32, 16] {
        bounds = even_parts(&*pattern.offsets, count, CHUNK);
        if 8 * outside(&bounds) <= pattern.entries() {
            break;
        }
    }
    bounds
}

/// Checks that a matrix is symmetric up to rounding errors of its assembly.
pub(crate) fn check_symmetric<T: Real>(csr: &Csr<T>) -> Result<()> {
    let (rows, cols) = (csr.rows(), csr.cols());
    if rows != cols {
        return Err(Error::NotSquare { what: "symmetric storage", rows, cols });
    }
    let diagonal = csr.diagonal_entries();
    let compared = |row: usize, col: usize, value: T, mirrored: Option<T>| {
        let pair @ [value, mirrored_value] = [value, mirrored.unwrap_or_default()].map(|v| v.to_f64());
        if mirrored.is_some() && agree([diagonal[row], diagonal[col]], pair) {
            return Ok(());
        }
        Err(Error::NotSymmetric { row, col, value, mirrored: mirrored_value })
    };
    let alike = |row, col, value, mirrored| compared(row, col, value, mirrored).is_ok();
    if is_mirrored(csr, &|_| true, &alike) {
        return Ok(());
    }
    // find the first entry that differs, for the error
    csr.check_entries(
        |row, col, value| {
            if row == col { Ok(()) } else { compared(row, col, value, csr.get(col, row)) }
        },
    )
}

/// Returns whether two entries, one the mirror image of the other, differ by rounding errors of assembly at
/// most. `diagonal` are the diagonal entries of their row and of their column.
fn agree<T: Real>(diagonal: [T; 2], [a, b]: [f64; 2]) -> bool {
    let scale = (diagonal[0].to_f64() * diagonal[1].to_f64()).abs().sqrt().max(a.abs()).max(b.abs());
    a == b || (a - b).abs() <= 100.0 * T::EPSILON * scale && scale.is_finite()
}

/// Returns whether a square matrix is equal to its transpose up to rounding errors of its assembly. Unlike
/// for [`check_symmetric`], entries that are not stored count as zeros. Stops soon after the first pair that
/// differs.
pub(crate) fn looks_symmetric<T: Real>(csr: &Csr<T>) -> bool {
    let diagonal = csr.diagonal_entries();
    is_mirrored(csr, &|value| value != T::zero(), &|row, col, value, mirrored| match mirrored {
        Some(other) => agree([diagonal[row], diagonal[col]], [value, other].map(|v| v.to_f64())),
        None => value == T::zero(),
    })
}

/// Number of rows in the sample of [`sample_looks_symmetric`]. A guess: new values that are no longer symmetric
/// differ from their mirror images in many rows.
const SAMPLE: usize = 32;

/// Distance in rows between the first rows of successive samples, modulo their spacing. It is a prime, so that
/// successive samples cover all rows unless the spacing is a multiple of it.
const STRIDE: usize = 7919;

/// Like [`looks_symmetric`], but compares only the entries of about [`SAMPLE`] rows, evenly distributed. The rows
/// depend on `sample`, so that successive samples find differences in a few rows, too.
pub(crate) fn sample_looks_symmetric<T: Real>(csr: &Csr<T>, sample: usize) -> bool {
    let on_diagonal = |row: usize| csr.get(row, row).unwrap_or_default();
    let step = (csr.rows() / SAMPLE).max(1);
    (sample.wrapping_mul(STRIDE) % step..csr.rows()).step_by(step).all(|row| {
        csr.row_columns(row).iter().zip(csr.row_values(row)).all(|(&col, &value)| {
            let col = col as usize;
            match csr.get(col, row) {
                // most pairs are equal, and each search misses the caches
                Some(other) if other == value => true,
                Some(other) => agree([row, col].map(on_diagonal), [value, other].map(|v| v.to_f64())),
                None => value.to_f64() == 0.0,
            }
        })
    })
}

/// Returns whether `alike(row, column, value, mirror image)` holds for each entry below the diagonal, and each
/// entry above the diagonal is the mirror image of a stored one, unless `counts(value)` is false. Stops soon
/// after the first entry that differs.
fn is_mirrored<T: Real>(
    csr: &Csr<T>,
    counts: &(impl Fn(T) -> bool + Sync),
    alike: &(impl Fn(usize, usize, T, Option<T>) -> bool + Sync),
) -> bool {
    // `unpaired`: entries above the diagonal that count, minus those that are mirror images of stored entries
    let (different, unpaired) = (AtomicBool::new(false), AtomicIsize::new(0));
    over_mirrored_rows(csr, &|rows, mut mirrored| {
        let mut own = 0;
        for row in rows {
            if different.load(Ordering::Relaxed) {
                return;
            }
            for (&col, &value) in csr.row_columns(row).iter().zip(csr.row_values(row)) {
                let col = col as usize;
                if col >= row {
                    own += isize::from(col > row && counts(value));
                    continue;
                }
                let across = mirrored.across(row, col);
                own -= isize::from(across.is_some_and(counts));
                if !alike(row, col, value, across) {
                    return different.store(true, Ordering::Relaxed);
                }
            }
        }
        unpaired.fetch_add(own, Ordering::Relaxed);
    });
    !different.into_inner() && unpaired.into_inner() == 0
}

impl<T: Real> Multiply<T> for SymCsr<T> {
    fn multiply<V: Storage<T>>(
        &self,
        values: &[V],
        x: &HostVector<T>,
        y: &mut HostVector<T>,
    ) -> krysp_solvers::Result<()> {
        self.source.check(x, y)?;
        symmetric::product(&self.halves, values, x.as_slice(), y.as_mut_slice());
        Ok(())
    }
}

impl<T: Real> LinearOperator for SymCsr<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.source.domain()
    }

    fn apply(&self, x: &HostVector<T>, y: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.multiply(&self.values, x, y)
    }

    super::precise_residual!();

    fn bytes(&self) -> usize {
        self.halves.bytes() + size_of_val(&*self.values)
    }
}

impl<T: Real> Format<T> for SymCsr<T> {
    const NAME: &'static str = "symmetric CSR";
    type Value = T;
    type Options = ();

    fn with(csr: &Csr<T>, (): ()) -> Result<Self> {
        SymCsr::new(csr)
    }

    fn source(&self) -> &Source<T> {
        &self.source
    }

    fn values(&self) -> &Buffer<T> {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Buffer<T> {
        &mut self.values
    }

    fn first_slot(&self, row: usize) -> usize {
        self.halves.offsets().at(row)
    }

    fn slots(&self, row: usize, mut visit: impl FnMut(usize, usize)) {
        let pattern = &self.source.pattern;
        let stored = stored(&pattern.offsets, &pattern.columns, row, reach(self.halves.parts(), row));
        let entries = stored.mirrored.chain(stored.rest);
        entries.zip(self.halves.offsets().range(row)).for_each(|(entry, slot)| visit(entry, slot));
    }

    fn padding(&self) -> f64 {
        0.0
    }

    fn entries_from<V: Storage<T>>(&self, values: &[V]) -> Buffer<T> {
        mirrored_entries(self, values)
    }
}

/// All entries of a matrix of which `half` stores one triangle, given the values of its slots.
pub(super) fn mirrored_entries<T: Real, V: Storage<T>>(half: &impl Format<T>, values: &[V]) -> Buffer<T> {
    let pattern = &half.source().pattern;
    let mut entries = Buffer::zeros(pattern.entries());
    for row in 0..pattern.rows() {
        half.slots(row, |entry, slot| {
            let value = values[slot].widen();
            entries[entry] = value;
            let column = pattern.columns[entry] as usize;
            if let Ok(at) = pattern.row(column).binary_search(&(row as u32)) {
                entries[pattern.offsets.at(column) + at] = value;
            }
        });
    }
    entries
}

impl<T: Real> Offered<T> for SymCsr<T> {
    const SYMMETRIC: bool = true;

    /// The costs are high on a CPU, because sums are written to memory and read back, which takes nearly as long in f32 as in f64.
    /// In the records (`benches/record/*/spmv.csv`, one and two threads) this format is at most 1.2 times as fast as the better of CSR and
    /// SELL-P, where the matrix exceeds the caches, and up to 2.7 times as slow. With 1.25 for `byte` it was chosen for
    /// `elast_bracket_p1_59k` in the clustered ordering, where it takes 1.5 times as long as SELL-P; with 1.6 it costs a quarter more there.
    /// Between 1.3 and 2 this choice stays; the value is a guess. On a GPU, another format is faster
    /// for every matrix with one row per node in `benches/record/h200`.
    fn variants() -> Vec<Variant> {
        vec![Variant {
            name: Self::NAME,
            host: Coefficients::Fixed(CostModel {
                start: 0.0,
                byte: 1.6,
                gather: 15.0,
                row: 60.0,
                wait: 0.0,
            }),
            gpu: Coefficients::NotOffered(
                "never chosen automatically on a GPU: others are faster if nodes have one row",
            ),
        }]
    }

    fn offers(matrix: &Analysis<'_, T>) -> Result<Vec<Offer<()>>> {
        let (bytes, slots) = (SymCsr::bytes_of(matrix.csr), matrix.csr.nnz());
        // distant columns also cost a load and a store of their sum
        let gathers = slots as f64 * (matrix.rows.scattering - NEAR).max(0.0);
        let offer = matrix.offer(Self::variants()[0], (), bytes, slots);
        Ok(vec![Offer { rows: matrix.rows.rows, gathers, ..offer }])
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> OnDevice<T> for SymCsr<T> {
    type Arrays<V: Storage<T>> = cuda::formats::symmetric::Symmetric<T, V>;

    fn chosen(&self) {}

    /// Uses blocks of rows that keep the `x` they read in shared memory.
    fn lay_out<V: Storage<T>>(csr: &Csr<T>, (): (), device: &cuda::Device) -> Result<Self::Arrays<V>> {
        check_symmetric(csr)?;
        let pattern = csr.source().on_device();
        Ok(Self::Arrays::<V>::new(device, 1, pattern, pattern, csr.entries())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{SymBsr, SymBsrOptions};
    use krysp_solvers::Space;

    /// Returns whether `entries`, with a diagonal of ones, look symmetric.
    fn looks(entries: &[(usize, usize, f64)]) -> bool {
        let all: Vec<_> = (0..4).map(|i| (i, i, 1.0)).chain(entries.iter().copied()).collect();
        let a = Csr::from_triplets(4, 4, &all).unwrap();
        assert_eq!(looks_symmetric(&a), sample_looks_symmetric(&a, 1), "{entries:?}");
        looks_symmetric(&a)
    }

    #[test]
    fn the_quick_test_finds_what_differs() {
        let pair = |i, j, value, mirrored| [(i, j, value), (j, i, mirrored)];
        assert!(looks(&[]) && looks(&pair(0, 3, 2.0, 2.0)));
        assert!(looks(&pair(0, 3, 0.1, 0.1 + 1e-16)) && looks(&pair(2, 1, 1e-17, 0.0)));
        assert!(!looks(&pair(0, 3, 2.0, -2.0)) && !looks(&pair(3, 2, 2.0, 2.0 + 1e-12)));
        // without a mirror image
        assert!(looks(&[(0, 3, 0.0)]) && looks(&[(3, 0, 0.0)]));
        assert!(!looks(&[(0, 3, 1e-17)]) && !looks(&[(3, 0, 1e-17)]));
        // as many entries above the diagonal as below, in different places
        assert!(!looks(&[(0, 3, 1.0), (2, 1, 1.0)]));
    }

    #[test]
    fn parts_are_mirrored_within_reach() {
        // bands as wide as one part and a half, and pairs that are far apart; integers, so that sums are exact
        for chunks in [1, 2, 3, 6, 7] {
            let rows = chunks * CHUNK;
            let below = |i: usize| {
                [1, 2, 700, 1100, rows - 2].into_iter().filter(move |&d| d <= i).map(move |d| i - d)
            };
            let pairs = (0..rows).flat_map(|i| below(i).map(move |j| (i, j, ((i * 7 + j) % 5) as f64 - 2.0)));
            let mirrored = pairs.clone().map(|(i, j, value)| (j, i, value));
            let diagonal = (0..rows).map(|i| (i, i, (i % 9) as f64));
            let entries: Vec<_> = pairs.clone().chain(mirrored).chain(diagonal).collect();
            let a = Csr::<f64>::from_triplets(rows, rows, &entries).unwrap();
            let x = a.domain().vector(&(0..rows).map(|i| (i % 11) as f64 - 5.0).collect::<Vec<_>>()).unwrap();
            let mut expected = a.range().zeros().unwrap();
            a.apply(&x, &mut expected).unwrap();
            let (sym, blocks) =
                (SymCsr::new(&a).unwrap(), SymBsr::with(&a, SymBsrOptions { size: Some(3) }).unwrap());
            assert_eq!(sym.halves.parts().len() - 1, chunks);
            let is_out_of_reach = |&(i, j, _): &(usize, usize, f64)| i / CHUNK > j / CHUNK + 1;
            let stored = rows + pairs.clone().count() + pairs.filter(is_out_of_reach).count();
            assert_eq!(sym.values.len(), stored, "{chunks} parts");
            for a in [&sym as &dyn LinearOperator<Vector = HostVector<f64>>, &blocks] {
                let mut y = a.range().vector(&vec![f64::NAN; rows]).unwrap();
                a.apply(&x, &mut y).unwrap();
                assert_eq!(y.as_slice(), expected.as_slice(), "{chunks} parts");
            }
        }
    }

    #[test]
    fn successive_samples_cover_all_rows() {
        let size = 10 * SAMPLE;
        let entries = (0..size).map(|i| (i, i, 1.0)).chain([(size / 2 + 13, 7, 0.5)]);
        let a = Csr::from_triplets(size, size, &entries.collect::<Vec<_>>()).unwrap();
        let found = (0..10).filter(|&sample| !sample_looks_symmetric(&a, sample)).count();
        assert_eq!(found, 1);
    }
}
