//! PETSc's binary files, as written by `MatView` and `VecView` with a binary viewer, in big-endian byte
//! order:
//!
//! ```text
//! matrix: 1211216, numbers of rows, columns and entries; length of each row;
//!         columns, counted from 0; values in 64 bits
//! vector: 1211214, length; values in 64 bits
//! ```
//!
//! Indices have 32 bits, or 64 bits if PETSc was configured with `--with-64-bit-indices`. The first number of
//! a file shows which.

use super::file::{Kind, Numbers, Order, Parsed, length, take};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_solvers::Element;

const MATRIX: i64 = 1_211_216;
const VECTOR: i64 = 1_211_214;

const VALUES: Numbers = Numbers { order: Order::Big, kind: Kind::Float, width: 8 };

fn indices(width: usize) -> Numbers {
    Numbers { order: Order::Big, kind: Kind::Signed, width }
}

/// The number type of this file, if its first number is `class`.
fn beginning(bytes: &[u8], class: i64) -> Option<Numbers> {
    [4, 8].map(indices).into_iter().find(|numbers| numbers.whole(bytes) == Some(class))
}

pub(super) fn is_matrix(bytes: &[u8]) -> bool {
    beginning(bytes, MATRIX).is_some()
}

pub(super) fn is_vector(bytes: &[u8]) -> bool {
    beginning(bytes, VECTOR).is_some()
}

/// Reads the numbers of the header that follow the first one, `class`; returns the type of indices as well.
fn header<const N: usize>(bytes: &mut &[u8], class: i64) -> Parsed<(Numbers, [i64; N])> {
    let numbers = beginning(bytes, class).ok_or("it is not one of PETSc's binary files")?;
    let header = numbers.all_whole(take(bytes, numbers.width * (N + 1), "the header")?)?;
    let header = header[1..].try_into().map_err(|_| "it ends within the header")?;
    Ok((numbers, header))
}

pub(super) fn matrix<T: Real>(mut bytes: &[u8]) -> Parsed<Csr<T>> {
    let (numbers, [rows, cols, entries]) = header(&mut bytes, MATRIX)?;
    if entries == -1 {
        return Err("it is a dense matrix: `MatConvert` it to `MATAIJ` first".into());
    }
    let (rows, cols) = (length(rows, "rows")?, length(cols, "columns")?);
    let entries = length(entries, "entries")?;
    let wide = |count: usize| count.saturating_mul(numbers.width);
    let lengths = numbers.all_whole(take(&mut bytes, wide(rows), "the lengths of rows")?)?;
    let columns = numbers.all_whole(take(&mut bytes, wide(entries), "the columns")?)?;
    let values = VALUES.all_values::<T>(take(&mut bytes, entries.saturating_mul(8), "the values")?)?;
    let mut offsets = Vec::with_capacity(rows + 1);
    let mut sum = 0_i64;
    offsets.push(sum);
    for length in lengths {
        sum = sum.checked_add(length).ok_or("the lengths of its rows overflow")?;
        offsets.push(sum);
    }
    Csr::from_csr(rows, cols, &offsets, &columns, &values).map_err(|error| error.to_string())
}

pub(super) fn vector<T: Element>(mut bytes: &[u8]) -> Parsed<Vec<T>> {
    let (_, [entries]) = header(&mut bytes, VECTOR)?;
    let entries = length(entries, "values")?;
    VALUES.all_values(take(&mut bytes, entries.saturating_mul(8), "the values")?)
}

pub(super) fn matrix_bytes<T: Real>(csr: &Csr<T>) -> Parsed<Vec<u8>> {
    let short = |count: usize| i32::try_from(count).map_err(|_| format!("{count} does not fit 32 bits"));
    let mut bytes = Vec::with_capacity(16 + 4 * csr.rows() + 12 * csr.nnz());
    let head = [MATRIX as usize, csr.rows(), csr.cols(), csr.nnz()];
    for count in head.into_iter().chain(csr.row_lengths()) {
        bytes.extend(short(count)?.to_be_bytes());
    }
    csr.columns().iter().for_each(|column| bytes.extend(column.to_be_bytes()));
    csr.entries().iter().for_each(|value| bytes.extend(Element::to_f64(*value).to_be_bytes()));
    Ok(bytes)
}

pub(super) fn vector_bytes<T: Element>(values: &[T]) -> Parsed<Vec<u8>> {
    let entries = i32::try_from(values.len()).map_err(|_| "a vector has more than 2³¹ entries")?;
    let mut bytes = Vec::with_capacity(8 + 8 * values.len());
    bytes.extend((VECTOR as i32).to_be_bytes());
    bytes.extend(entries.to_be_bytes());
    values.iter().for_each(|value| bytes.extend(Element::to_f64(*value).to_be_bytes()));
    Ok(bytes)
}
