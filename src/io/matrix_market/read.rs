//! Reads the body of a file in parallel. The text is cut into pieces at line ends, and each piece is parsed
//! into its own range of the result.
//!
//! A first pass counts lines. The counts give exact line numbers and bound the number of entries of each
//! piece from above, which fixes where each piece may write. Array elements left unused, for example by blank
//! lines and comments, are removed afterwards. So the arrays are never larger than the text allows, whatever
//! the size line claims.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rayon::prelude::*;

use super::header::{Field, Header, header, shown, split_line, wrong};
use super::number::{self, Number, skip_blanks, word};
use super::{Content, Coordinate, Symmetry};
use crate::error::ReadError;
use crate::io::file::{inflated, load};
use krysp_kernels::interrupt::Phase;

/// Bytes of text in a piece: small enough to balance threads and stay in the cache, large enough that the cost per
/// piece does not matter. Guess, chosen as a quarter of an L2 cache of 1 MiB.
const PIECE: usize = 256 << 10;

/// Reads a file, plain or gzipped. Gzip is recognized by the first bytes, not by the name.
///
/// The file is mapped into memory and must not be truncated while it is read: most operating systems end the
/// process in that case.
///
/// # Errors
/// If the file cannot be read, or is not a real matrix in Matrix Market form. The error names the file and
/// the line.
///
/// # Example
/// ```no_run
/// use krysp::io::matrix_market::{Content, read};
///
/// match read::<f64>("heat.mtx.gz")? {
///     Content::Coordinate(a) => assert_eq!(a.row.len(), a.value.len()),
///     Content::Array { rows, cols, values } => assert_eq!(values.len(), rows * cols),
/// }
/// # Ok::<(), krysp::io::matrix_market::ReadError>(())
/// ```
pub fn read<T: Number>(path: impl AsRef<Path>) -> Result<Content<T>, ReadError> {
    let path = path.as_ref();
    parse_text(&load(path)?).map_err(|error| error.in_file(path))
}

/// Reads one of `parts` parts of a coordinate file, which are divided at line ends. Also returns the number
/// of entries of the whole file according to its header. The caller must compare it with the sum over all
/// parts, because no rank reads all entries.
pub(crate) fn read_part<T: Number>(
    path: impl AsRef<Path>,
    part: usize,
    parts: usize,
) -> Result<(Coordinate<T>, u64), ReadError> {
    let path = path.as_ref();
    let text = load(path)?;
    let read = || {
        let (header, body) = header(&text)?;
        let Some(entries) = header.entries else {
            return Err(wrong(1, "the format coordinate", "array"));
        };
        let cut = |part: usize| {
            let near = (body.len() as u128 * part as u128 / parts as u128) as usize;
            let rest = &body[near..];
            let end = rest.iter().position(|&byte| byte == b'\n').map_or(body.len(), |line| near + line + 1);
            if part == 0 { 0 } else { end }
        };
        let range = cut(part)..cut(part + 1).max(cut(part));
        match of_field(&body[range.clone()], &header, None) {
            Ok(Content::Coordinate(part)) => Ok((part, entries)),
            Ok(Content::Array { .. }) => Err(wrong(1, "the format coordinate", "array")),
            // the line was counted from the beginning of the part
            Err(ReadError::Syntax { path, line, expected, found }) => {
                let line = line + newlines(&body[..range.start]) as u64;
                Err(ReadError::Syntax { path, line, expected, found })
            }
            Err(error) => Err(error),
        }
    };
    read().map_err(|error| error.in_file(path))
}

/// Reads the bytes of a file, plain or gzipped.
///
/// # Errors
/// If the bytes are not a real matrix in Matrix Market form. The error names the line.
///
/// # Example
/// ```
/// use krysp::io::matrix_market::{Content, parse};
///
/// let text = b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 4.0\n2 1 -1.0\n";
/// let Content::Coordinate(a) = parse::<f64>(text)? else { unreachable!() };
/// assert_eq!((a.rows, a.cols), (2, 2));
/// assert_eq!((a.row, a.col, a.value), (vec![0, 1], vec![0, 0], vec![4.0, -1.0]));
/// # Ok::<(), krysp::io::matrix_market::ReadError>(())
/// ```
pub fn parse<T: Number>(text: &[u8]) -> Result<Content<T>, ReadError> {
    match inflated(text) {
        None => parse_text(text),
        Some(text) => parse_text(&text?),
    }
}

fn parse_text<T: Number>(text: &[u8]) -> Result<Content<T>, ReadError> {
    let (header, body) = header(text)?;
    match (header.entries, header.field) {
        (Some(_), _) => of_field(body, &header, header.entries),
        (None, Field::Integer) => array(body, &header, integer),
        (None, _) => array(body, &header, real),
    }
}

/// Parses coordinates; `entries` is their expected number, if known.
fn of_field<T: Number>(body: &[u8], header: &Header, entries: Option<u64>) -> Result<Content<T>, ReadError> {
    let entries = entries.unwrap_or(ANY);
    match header.field {
        Field::Real => coordinate(body, header, entries, real),
        Field::Integer => coordinate(body, header, entries, integer),
        Field::Pattern => coordinate(body, header, entries, |text| Ok((T::ONE, text))),
    }
}

/// Accepts any number of entries; larger than any number in a header.
const ANY: u64 = u64::MAX;

fn coordinate<T: Number>(
    body: &[u8],
    header: &Header,
    entries: u64,
    value: impl Fn(&[u8]) -> Parsed<'_, T> + Sync,
) -> Result<Content<T>, ReadError> {
    let &Header { rows, cols, symmetry, .. } = header;
    // The shortest entry is `1 1` and its newline.
    let layout = Layout { indexed: true, shortest: 4, expected: entries, name: "entries" };
    let Arrays { row, col, value } = arrays(body, header, &layout, |text, part: &mut Part<'_, T>, at| {
        let (r, rest) = index(text, "row", rows)?;
        let (c, rest) = index(skip_blanks(rest), "column", cols)?;
        let (v, rest) = value(skip_blanks(rest))?;
        if symmetry != Symmetry::General {
            below_diagonal(text, symmetry, (r, c, v))?;
        }
        (part.row[at], part.col[at], part.value[at]) = (r, c, v);
        Ok(rest)
    })?;
    Ok(Content::Coordinate(Coordinate { rows, cols, row, col, value, symmetry }))
}

fn array<T: Number>(
    body: &[u8],
    header: &Header,
    value: impl Fn(&[u8]) -> Parsed<'_, T> + Sync,
) -> Result<Content<T>, ReadError> {
    let &Header { rows, cols, symmetry, .. } = header;
    let (n, m) = (rows as u64, cols as u64);
    // No product overflows: dimensions have 31 bits.
    let expected = match symmetry {
        Symmetry::General => n * m,
        Symmetry::Symmetric => n * (n + 1) / 2,
        Symmetry::Skew => n * n.saturating_sub(1) / 2,
    };
    let layout = Layout { indexed: false, shortest: 2, expected, name: "values" };
    let Arrays { value: values, .. } = arrays(body, header, &layout, |text, part: &mut Part<'_, T>, at| {
        let (v, rest) = value(text)?;
        part.value[at] = v;
        Ok(rest)
    })?;
    let values = match symmetry {
        Symmetry::General => values,
        Symmetry::Symmetric => both_triangles(n as usize, &values, 0, |mirrored| mirrored),
        Symmetry::Skew => both_triangles(n as usize, &values, 1, |mirrored| -mirrored),
    };
    Ok(Content::Array { rows, cols, values })
}

/// Makes a dense `n × n` matrix from the columns of its lower triangle, each of which starts `skip` rows
/// below the diagonal. An entry above the diagonal is `mirror` of the entry below.
fn both_triangles<T: Number>(n: usize, lower: &[T], skip: usize, mirror: impl Fn(T) -> T) -> Vec<T> {
    // `n * n` cannot overflow: it is at most four times the number of values, or 1.
    let mut full = vec![T::ZERO; n * n];
    let places = (0..n).flat_map(|j| (j + skip..n).map(move |i| (i, j)));
    for ((i, j), &value) in places.zip(lower) {
        full[j * n + i] = value;
        if i != j {
            full[i * n + j] = mirror(value);
        }
    }
    full
}

/// The structure of the body.
struct Layout {
    /// True if values have a row and a column.
    indexed: bool,
    /// Bytes of the shortest line.
    shortest: usize,
    /// Number of lines with a value, by the header.
    expected: u64,
    /// Name of the values in error messages.
    name: &'static str,
}

struct Arrays<T> {
    row: Vec<u32>,
    col: Vec<u32>,
    value: Vec<T>,
}

/// A piece of the text, and the ranges of the arrays that its values go to.
struct Part<'a, T> {
    text: &'a [u8],
    row: &'a mut [u32],
    col: &'a mut [u32],
    value: &'a mut [T],
}

/// An error in a piece: the number of bytes from the error to the end of the piece, what was expected, and
/// what was found. Boxed, so that the type of results stays small.
struct Fault(Box<(usize, String, String)>);

type Parsed<'a, T> = Result<(T, &'a [u8]), Fault>;

#[cold]
fn fault(text: &[u8], expected: impl Into<String>) -> Fault {
    let found = match word(text) {
        [] if text.is_empty() => "the end of the file".to_owned(),
        [] => "the end of the line".to_owned(),
        word => shown(word),
    };
    Fault(Box::new((text.len(), expected.into(), found)))
}

/// Parses all lines. `line(text, part, at)` parses one value at the start of `text`, stores the value at
/// index `at` of the part, and returns the text after the value. `text` extends to the end of the piece.
fn arrays<T: Number>(
    body: &[u8],
    header: &Header,
    layout: &Layout,
    line: impl for<'t> Fn(&'t [u8], &mut Part<'_, T>, usize) -> Result<&'t [u8], Fault> + Sync,
) -> Result<Arrays<T>, ReadError> {
    let pieces = pieces(body);
    let lines: Vec<usize> = pieces.par_iter().map(|piece| newlines(piece)).collect();
    // the last line of the file may lack its newline
    let capacities: Vec<usize> =
        pieces.iter().zip(&lines).map(|(piece, &lines)| capacity(piece, lines, layout.shortest)).collect();
    let total = capacities.iter().sum();
    let indices = if layout.indexed { total } else { 0 };
    // The operating system provides zeroed pages on first use, so memory that is never written costs nothing.
    let mut arrays = Arrays { row: vec![0; indices], col: vec![0; indices], value: vec![T::ZERO; total] };

    let (mut row, mut col, mut value) = (&mut arrays.row[..], &mut arrays.col[..], &mut arrays.value[..]);
    let mut parts = Vec::with_capacity(pieces.len());
    for (&text, &capacity) in pieces.iter().zip(&capacities) {
        let indices = capacity.min(row.len());
        parts.push(Part {
            text,
            row: row.split_off_mut(..indices).unwrap_or_default(),
            col: col.split_off_mut(..indices).unwrap_or_default(),
            value: value.split_off_mut(..capacity).unwrap_or_default(),
        });
    }

    // Pieces after a wrong one need not be parsed. Those before it must be, because an earlier error is the
    // one to report.
    let phase = Phase::new("reading", body.len() as f64);
    let first_wrong = AtomicUsize::new(usize::MAX);
    let outcomes: Vec<(usize, Option<Fault>)> = parts
        .par_iter_mut()
        .enumerate()
        .map(|(at, part)| {
            if at > first_wrong.load(Relaxed) || phase.advance(part.text.len() as u64).is_err() {
                return (0, None);
            }
            let outcome = parse_piece(part, &line);
            if outcome.1.is_some() {
                first_wrong.fetch_min(at, Relaxed);
            }
            outcome
        })
        .collect();

    phase.check().map_err(ReadError::Interrupted)?;

    let mut found = 0;
    let mut line = header.lines;
    for ((&piece, &lines), (count, fault)) in pieces.iter().zip(&lines).zip(&outcomes) {
        let missing = layout.expected - found;
        if *count as u64 > missing {
            let line = line + 1 + newlines(&piece[..start_of_value(piece, missing)]) as u64;
            let Layout { expected, name, .. } = layout;
            return Err(wrong(line, format!("no more than {expected} {name}"), "another one"));
        }
        if let Some(Fault(fault)) = fault {
            let (left, expected, found) = &**fault;
            let line = line + 1 + newlines(&piece[..piece.len() - left]) as u64;
            return Err(wrong(line, expected, found));
        }
        found += *count as u64;
        line += lines as u64;
    }
    if found < layout.expected && layout.expected != ANY {
        let unfinished = u64::from(body.last().is_some_and(|&b| b != b'\n'));
        let expected = format!("{} {}", layout.expected, layout.name);
        return Err(wrong(line + unfinished, expected, format!("the end of the file after {found}")));
    }

    let counts = outcomes.iter().map(|outcome| outcome.0);
    close_gaps(&mut arrays.value, &capacities, counts.clone());
    if layout.indexed {
        close_gaps(&mut arrays.row, &capacities, counts.clone());
        close_gaps(&mut arrays.col, &capacities, counts);
    }
    Ok(arrays)
}

/// Cuts the text at line ends into pieces of about [`PIECE`] bytes.
fn pieces(mut text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(text.len() / PIECE + 1);
    while !text.is_empty() {
        let size = PIECE.min(text.len());
        let end = text[size..].iter().position(|&b| b == b'\n').map_or(text.len(), |more| size + more + 1);
        let (piece, rest) = text.split_at(end);
        pieces.push(piece);
        text = rest;
    }
    pieces
}

/// Maximum number of values in a piece with `lines` newlines and lines of at least `shortest` bytes. It is exact
/// for a piece of values without blank lines and comments, so that no value has to be moved afterwards.
fn capacity(piece: &[u8], lines: usize, shortest: usize) -> usize {
    let unfinished = usize::from(piece.last().is_some_and(|&byte| byte != b'\n'));
    (lines + unfinished).min((piece.len() + 1) / shortest)
}

fn newlines(text: &[u8]) -> usize {
    // Sums in bytes, over blocks too short to overflow, let the compiler count 16 or more bytes at a time.
    let in_block = |block: &[u8]| block.iter().map(|&b| u8::from(b == b'\n')).sum::<u8>();
    text.chunks(192).map(|block| usize::from(in_block(block))).sum()
}

/// Moves all values to the front. Each piece had space for `capacities` values and filled `counts` of them.
fn close_gaps<A: Copy>(array: &mut Vec<A>, capacities: &[usize], counts: impl Iterator<Item = usize>) {
    let (mut from, mut to) = (0, 0);
    for (capacity, count) in capacities.iter().zip(counts) {
        if from != to {
            array.copy_within(from..from + count, to);
        }
        from += capacity;
        to += count;
    }
    array.truncate(to);
}

/// Parses a piece. Returns the number of values before the first error or the end, and the error.
fn parse_piece<T: Number>(
    part: &mut Part<'_, T>,
    line: impl for<'t> Fn(&'t [u8], &mut Part<'_, T>, usize) -> Result<&'t [u8], Fault>,
) -> (usize, Option<Fault>) {
    let mut text = part.text;
    let mut count = 0;
    while let Some(start) = next_value(text) {
        let parsed = line(start, part, count).and_then(|rest| match skip_blanks(rest) {
            [] => Ok(&[][..]),
            [b'\n', below @ ..] => Ok(below),
            more => Err(fault(more, "the end of the line")),
        });
        match parsed {
            Ok(below) => text = below,
            Err(fault) => return (count, Some(fault)),
        }
        count += 1;
    }
    (count, None)
}

/// Skips blank lines and comments. Returns the text from the next value on, or `None` at the end.
#[inline]
fn next_value(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = skip_blanks(text);
        match text {
            [] => return None,
            [b'\n', below @ ..] => text = below,
            [b'%', ..] => text = split_line(text).1,
            _ => return Some(text),
        }
    }
}

/// Offset in bytes of the value after the first `before` values of a piece without errors.
fn start_of_value(piece: &[u8], before: u64) -> usize {
    let mut text = piece;
    for _ in 0..before {
        text = next_value(text).map_or(&[][..], |value| split_line(value).1);
    }
    piece.len() - next_value(text).unwrap_or_default().len()
}

#[inline(always)]
fn index<'a>(text: &'a [u8], name: &str, limit: usize) -> Parsed<'a, u32> {
    match number::count(text) {
        // `limit` is a dimension, hence below 2^31.
        Some((index, rest)) if index.wrapping_sub(1) < limit as u64 => Ok(((index - 1) as u32, rest)),
        _ if limit == 0 => Err(fault(text, format!("no entries as there are no {name}s"))),
        _ => Err(fault(text, format!("a {name} index in 1..={limit}"))),
    }
}

#[inline(always)]
fn real<T: Number>(text: &[u8]) -> Parsed<'_, T> {
    number::real(text).ok_or_else(|| fault(text, "a real number"))
}

#[inline]
fn integer<T: Number>(text: &[u8]) -> Parsed<'_, T> {
    number::integer(text).ok_or_else(|| fault(text, "an integer"))
}

#[inline]
fn below_diagonal<T: Number>(
    text: &[u8],
    symmetry: Symmetry,
    (row, col, value): (u32, u32, T),
) -> Result<(), Fault> {
    let expected = if row < col {
        "an entry of the lower triangle (the matrix is symmetric or skew-symmetric)"
    } else if row == col && symmetry == Symmetry::Skew && value != T::ZERO {
        "zeros on the diagonal (the matrix is skew-symmetric)"
    } else {
        return Ok(());
    };
    let entry = shown(split_line(text).0.trim_ascii_end());
    Err(Fault(Box::new((text.len(), expected.to_owned(), entry))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_without_blank_lines_leave_no_gaps() {
        let lines = 3 * PIECE / 8;
        for text in ["1 1 1.5\n".repeat(lines), "1 1 1.5\n".repeat(lines - 1) + "1 1 1.5"] {
            let pieces = pieces(text.as_bytes());
            assert!(pieces.len() > 2);
            let total: usize = pieces.iter().map(|piece| capacity(piece, newlines(piece), 4)).sum();
            assert_eq!(total, lines);
        }
    }
}
