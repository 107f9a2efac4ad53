//! Symmetric storage in CSR: an entry `a_ij = a_ji` is read once, to update both `y_i ← y_i + a_ij x_j` and
//! `y_j ← y_j + a_ij x_i`.
//!
//! Rows are divided into parts, whose number depends on the matrix only. An entry whose row and column belong
//! to one part is stored below the diagonal only, and its mirror image is applied in the same pass; other
//! entries are stored in both triangles. Each part is processed by one thread, so that neither atomics nor
//! private copies of `y` are needed, and results are bitwise the same for every number of threads.
//!
//! Memory traffic of a product: 12 B (f64) per two entries within a part, half of what CSR reads, 12 B per
//! entry that crosses parts, 8 B per row (an offset and the number of mirrored entries), and the vectors.

use crate::buffer::Buffer;
use crate::cpu::run::threads::{block_rows, find_row, over_parts, sum_over_parts};
use crate::cpu::simd::storage::Storage;
use crate::cpu::simd::{Simd, Task, Value, run};
use crate::cpu::vector::block_dot;
use crate::index::{Columns, Invalid, Offsets};
use std::ops::Range;

/// Pattern of the stored entries of a symmetric matrix, checked once at construction.
#[derive(Clone, Debug)]
pub struct Halves {
    size: usize,
    parts: Vec<usize>,
    offsets: Offsets,
    inner: Buffer<u32>,
    columns: Columns,
}

impl Halves {
    /// Checks and wraps the pattern. `size` is the number of rows of a dense block of the matrix (1: scalar
    /// entries); the other arguments count block rows and blocks. `parts` holds the first block row of each
    /// part, then the number of block rows. The first row of every part, `size` times its first block row,
    /// must be a multiple of the rows per reduction block ([`block_rows`]). `inner` holds for each block row
    /// the number of leading blocks that are below the diagonal and in the row's part: these are mirrored,
    /// the others are not.
    pub fn new(
        size: usize,
        parts: Vec<usize>,
        offsets: Offsets,
        inner: Vec<u32>,
        columns: Columns,
    ) -> Result<Halves, Invalid> {
        let rows = offsets.ranges();
        let block = block_rows(rows * size);
        let covered = parts.first() == Some(&0) && parts.last() == Some(&rows);
        let aligned = parts.iter().all(|&bound| bound == rows || (bound * size).is_multiple_of(block));
        if !covered || !aligned || !parts.is_sorted() || inner.len() != rows || columns.len() < offsets.end()
        {
            return Err(Invalid::Order { position: 0 });
        }
        let check = |row: usize, part_start: usize| {
            let range = offsets.range(row);
            if inner[row] as usize > range.len() {
                return Err(Invalid::Order { position: row });
            }
            let inner = &columns[range.start..range.start + inner[row] as usize];
            let inside = part_start..row;
            match inner.iter().position(|&column| !inside.contains(&(column as usize))) {
                None => Ok(()),
                Some(at) => {
                    let (position, index) = (range.start + at, u64::from(inner[at]));
                    Err(Invalid::Bound { position, index, bound: row as u64 })
                }
            }
        };
        let entries_of_row = columns.len() / rows.max(1);
        let part_start = |row: usize| parts[parts.partition_point(|&bound| bound <= row) - 1];
        let fails = |row: usize| check(row, part_start(row)).is_err();
        if let Some(row) = find_row(rows, entries_of_row, &fails) {
            check(row, part_start(row))?;
        }
        Ok(Halves { size, parts, offsets, inner: inner.into(), columns })
    }

    /// Rows per dense block; 1 for scalar entries.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Offsets of the block rows, counted in blocks.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Number of mirrored blocks of each block row.
    pub fn inner(&self) -> &[u32] {
        &self.inner
    }

    /// Block column of each stored block.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// First block row of each part, then the number of block rows.
    pub fn parts(&self) -> &[usize] {
        &self.parts
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.parts)
            + self.offsets.bytes()
            + size_of_val(&*self.inner)
            + size_of_val(&*self.columns)
    }

    /// Whether the pattern belongs to a square matrix with `rows` rows, and `values` is large enough for all
    /// stored entries.
    pub fn fit(&self, rows: usize, values: usize) -> bool {
        self.offsets.ranges() * self.size == rows
            && self.columns.bound() * self.size <= rows
            && values >= self.offsets.end() * self.size * self.size
    }

    /// Panics if the pattern does not fit a loop over blocks of `size` rows, or the lengths differ.
    pub(crate) fn check<T>(&self, size: usize, values: usize, x: &[T], y: &[T]) {
        assert_eq!(self.size, size, "blocks have the size that the loop expects");
        assert!(values >= self.offsets.end() * size * size, "there are values for each stored block");
        assert!(self.columns.bound() * size <= x.len() && x.len() == y.len(), "`x` and `y` fit the matrix");
        assert_eq!(self.offsets.ranges() * size, y.len(), "`y` has an entry for each row");
    }
}

struct Part<'a, T, V> {
    halves: &'a Halves,
    values: &'a [V],
    rows: Range<usize>,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Value, V: Storage<T>> Task for Part<'_, T, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { halves, values, rows, x, y } = self;
        let first = rows.start;
        let (values, columns) = (values.as_ptr(), halves.columns.as_ptr());
        let (x, y) = (x.as_ptr(), y.as_mut_ptr());
        let mut start = halves.offsets.at(first);
        for row in rows {
            let end = halves.offsets.at(row + 1);
            // SAFETY: `Halves::new` checked offsets and columns, and that inner columns are in this part and
            // before this row; `check` compared the lengths
            unsafe {
                let middle = start + *halves.inner.get_unchecked(row) as usize;
                let own = *x.add(row);
                let (mut even, mut odd) = (T::zero(), T::zero());
                let mut k = start;
                while k + 1 < middle {
                    let (a, b) = ((*values.add(k)).widen(), (*values.add(k + 1)).widen());
                    let (i, j) = (*columns.add(k) as usize, *columns.add(k + 1) as usize);
                    even = S::mul_add(a, *x.add(i), even);
                    odd = S::mul_add(b, *x.add(j), odd);
                    let (at_i, at_j) = (y.add(i - first), y.add(j - first));
                    *at_i = S::mul_add(a, own, *at_i);
                    *at_j = S::mul_add(b, own, *at_j);
                    k += 2;
                }
                if k < middle {
                    let (a, i) = ((*values.add(k)).widen(), *columns.add(k) as usize);
                    even = S::mul_add(a, *x.add(i), even);
                    let at_i = y.add(i - first);
                    *at_i = S::mul_add(a, own, *at_i);
                    k += 1;
                }
                while k < end {
                    odd = S::mul_add((*values.add(k)).widen(), *x.add(*columns.add(k) as usize), odd);
                    k += 1;
                }
                // overwrites `y`: only later rows of the part have mirrored entries in this row
                *y.add(row - first) = even + odd;
            }
            start = end;
        }
    }
}

/// `y ← A x`
pub fn product<T: Value, V: Storage<T>>(halves: &Halves, values: &[V], x: &[T], y: &mut [T]) {
    halves.check(1, values.len(), x, y);
    let bound = |part: usize| halves.parts[part];
    over_parts(halves.parts.len() - 1, &bound, y, &|rows, y: &mut [T]| {
        run(Part { halves, values, rows, x, y })
    });
}

/// `y ← A x; ⟨x, y⟩`
pub fn product_dot<T: Value, V: Storage<T>>(halves: &Halves, values: &[V], x: &[T], y: &mut [T]) -> T {
    halves.check(1, values.len(), x, y);
    let bound = |part: usize| halves.parts[part];
    let [xy] = sum_over_parts(halves.parts.len() - 1, &bound, y, &|rows, y: &mut [T], sums| {
        run(Part { halves, values, rows: rows.clone(), x, y });
        let first = rows.start;
        sums.fill(rows, |block| [block_dot(&x[block.clone()], &y[block.start - first..block.end - first])]);
    });
    xy
}
