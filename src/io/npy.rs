//! NumPy arrays (`.npy`), and archives of them (`.npz`) as written by `scipy.sparse.save_npz`, in the formats
//! CSR, CSC and COO.

use super::file::{Kind, Numbers, Order, Parsed, length, take};
use super::zip::{self, Member};
use crate::formats::Csr;
use crate::memory::check_free_memory;
use crate::numbers::Real;
use krysp_solvers::Element;

const MAGIC: &[u8] = b"\x93NUMPY";

pub(super) fn is_array(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// An array and its shape.
struct Array<'a> {
    numbers: Numbers,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    fn new(mut bytes: &'a [u8]) -> Parsed<Array<'a>> {
        let version = take(&mut bytes, 8, "the header")?;
        let width = match version.strip_prefix(MAGIC) {
            Some([1, _]) => 2,
            Some([2 | 3, _]) => 4,
            _ => return Err("it is not a NumPy array of version 1 to 3".into()),
        };
        let size = Numbers { order: Order::Little, kind: Kind::Unsigned, width };
        let size = size.whole(take(&mut bytes, width, "the header")?).unwrap_or(0);
        let header = take(&mut bytes, length(size, "bytes of header")?, "the header")?;
        let header = String::from_utf8_lossy(header);
        let after = |key: &str| {
            let (_, rest) = header.split_once(key)?;
            Some(rest.trim_start_matches([':', ' ', '\'', '"']))
        };
        let refused = |what: &str| format!("the header of an array has no {what}: {}", header.trim());
        let descr = after("'descr'").ok_or_else(|| refused("type"))?;
        let descr = descr.split(['\'', '"']).next().unwrap_or("");
        let shape = after("'shape'").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
        let shape = shape.ok_or_else(|| refused("shape"))?.0;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty()).map(str::parse);
        let shape: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(|_| refused("shape of numbers"))?;
        if shape.len() > 1 && after("'fortran_order'").is_some_and(|rest| rest.starts_with("True")) {
            return Err("an array of two dimensions is stored column by column: save it in C order".into());
        }
        let numbers = numbers(descr)?;
        let count = shape.iter().try_fold(1_usize, |count, &size| count.checked_mul(size));
        let size = count.and_then(|count| count.checked_mul(numbers.width)).unwrap_or(usize::MAX);
        Ok(Array { numbers, shape, bytes: take(&mut bytes, size, "the values")? })
    }

    fn whole(&self) -> Parsed<Vec<i64>> {
        self.numbers.all_whole(self.bytes)
    }

    fn values<T: Element>(&self) -> Parsed<Vec<T>> {
        self.numbers.all_values(self.bytes)
    }
}

/// The number type for a NumPy type string such as `<f8`. A string, such as the name of a sparse format,
/// counts as one unsigned number; its characters have one byte (`S`) or four (`U`).
fn numbers(descr: &str) -> Parsed<Numbers> {
    let refused = || format!("an array has the type `{descr}`: expected real numbers or integers");
    let (order, rest) = match descr.split_at_checked(1) {
        Some((">", rest)) => (Order::Big, rest),
        Some(("<" | "|" | "=", rest)) => (Order::Little, rest),
        _ => return Err(refused()),
    };
    let (kind, width) = rest.split_at_checked(1).ok_or_else(refused)?;
    let width: usize = width.parse().map_err(|_| refused())?;
    let (kind, width) = match (kind, width) {
        ("f", 4 | 8) => (Kind::Float, width),
        ("i", 1 | 2 | 4 | 8) => (Kind::Signed, width),
        ("b" | "u", 1 | 2 | 4 | 8) => (Kind::Unsigned, width),
        ("S", 1..=64) => (Kind::Unsigned, width),
        ("U", 1..=64) => (Kind::Unsigned, 4 * width),
        _ => return Err(refused()),
    };
    Ok(Numbers { order, kind, width })
}

pub(super) fn vector<T: Element>(bytes: &[u8]) -> Parsed<Vec<T>> {
    let array = Array::new(bytes)?;
    match array.shape[..] {
        [_] | [_, 1] | [1, _] => array.values(),
        _ => Err(format!("its shape is {:?}: a vector has one column", array.shape)),
    }
}

/// The columns of an array of two dimensions; one column for any array that is a vector.
pub(super) fn columns<T: Element>(bytes: &[u8]) -> Parsed<Vec<Vec<T>>> {
    let array = Array::new(bytes)?;
    match array.shape[..] {
        [_] | [_, 1] | [1, _] => Ok(vec![array.values()?]),
        [_, cols] => {
            // an array without rows can claim any number of columns
            let lists = cols as u128 * size_of::<Vec<T>>() as u128;
            check_free_memory("the columns of an array", lists).map_err(|error| error.to_string())?;
            let values: Vec<T> = array.values()?;
            Ok((0..cols).map(|col| values.iter().skip(col).step_by(cols).copied().collect()).collect())
        }
        _ => Err(format!("its shape is {:?}: a dense matrix has two dimensions", array.shape)),
    }
}

/// Reads the archive of a sparse matrix.
pub(super) fn matrix<T: Real>(bytes: &[u8]) -> Parsed<Csr<T>> {
    let members = zip::read(bytes)?;
    let find = |name: &str| {
        let file = format!("{name}.npy");
        let member = members.iter().find(|member| member.name == file);
        let remedy = "write it by `scipy.sparse.save_npz` in the format csr, csc or coo";
        Ok::<_, String>(&member.ok_or_else(|| format!("it has no array `{name}`: {remedy}"))?.bytes)
    };
    let named = |name: &str| Array::new(find(name)?).map_err(|why| format!("array `{name}`: {why}"));
    let text: Vec<u8> = named("format")?.bytes.iter().copied().filter(u8::is_ascii_alphabetic).collect();
    let shape = named("shape")?.whole()?;
    let &[rows, cols] = shape.as_slice() else { return Err("its shape must have two numbers".into()) };
    let (rows, cols) = (length(rows, "rows")?, length(cols, "columns")?);
    let whole = |name| named(name)?.whole();
    let values = || named("data")?.values::<T>();
    let matrix = match text.as_slice() {
        b"csr" => Csr::from_csr(rows, cols, &whole("indptr")?, &whole("indices")?, &values()?),
        b"csc" => Csr::from_csc(rows, cols, &whole("indptr")?, &whole("indices")?, &values()?),
        b"coo" if find("coords").is_ok() => {
            let coords = whole("coords")?;
            let (row, column) = coords.split_at(coords.len() / 2);
            Csr::from_coordinates(rows, cols, row, column, &values()?)
        }
        b"coo" => Csr::from_coordinates(rows, cols, &whole("row")?, &whole("col")?, &values()?),
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(format!("its format is {other}: save `A.tocsr()` instead"));
        }
    };
    matrix.map_err(|error| error.to_string())
}

/// A header followed by the values.
fn array(descr: &str, count: usize, values: impl Iterator<Item = u8>) -> Vec<u8> {
    array_of(descr, &format!("({count},)"), values)
}

fn array_of(descr: &str, shape: &str, values: impl Iterator<Item = u8>) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // the values begin at a multiple of 64 bytes, after a newline
    let width = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((width as u16).to_le_bytes());
    bytes.extend(format!("{header:<0$}\n", width - 1).bytes());
    bytes.extend(values);
    bytes
}

pub(super) fn vector_bytes<T: Element>(values: &[T]) -> Vec<u8> {
    array("<f8", values.len(), values.iter().flat_map(|value| Element::to_f64(*value).to_le_bytes()))
}

/// The archive of a matrix in CSR format.
pub(super) fn matrix_bytes<T: Real>(csr: &Csr<T>) -> Parsed<Vec<u8>> {
    let offsets = csr.offsets();
    let whole = |name: &str, count, values: &mut dyn Iterator<Item = usize>| Member {
        name: name.into(),
        bytes: array("<i8", count, values.flat_map(|value| (value as u64).to_le_bytes())),
    };
    zip::write(&[
        Member {
            name: "indices.npy".into(),
            bytes: array("<i4", csr.nnz(), csr.columns().iter().flat_map(|column| column.to_le_bytes())),
        },
        whole("indptr.npy", offsets.len(), &mut offsets.iter().copied()),
        Member { name: "format.npy".into(), bytes: array_of("|S3", "()", b"csr".iter().copied()) },
        whole("shape.npy", 2, &mut [csr.rows(), csr.cols()].into_iter()),
        Member { name: "data.npy".into(), bytes: vector_bytes(csr.entries()) },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NumPy writes a `str` with four bytes for each character, a `bytes` with one.
    #[test]
    fn the_name_of_the_format_may_be_a_str() {
        let csr = Csr::from_triplets(2, 3, &[(0, 0, 1.5), (1, 2, -2.0)]).unwrap();
        let mut members = zip::read(&matrix_bytes::<f64>(&csr).unwrap()).unwrap();
        let format = members.iter().position(|member| member.name == "format.npy").unwrap();
        let little = [b'c', 0, 0, 0, b's', 0, 0, 0, b'r', 0, 0, 0];
        let big = [0, 0, 0, b'c', 0, 0, 0, b's', 0, 0, 0, b'r'];
        for (descr, bytes) in [("<U3", little), (">U3", big)] {
            members[format].bytes = array_of(descr, "()", bytes.into_iter());
            let read = matrix::<f64>(&zip::write(&members).unwrap()).unwrap();
            assert!(read.triplets().eq(csr.triplets()), "{descr}");
        }
    }
}
