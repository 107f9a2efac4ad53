//! Reading: the body is cut at line ends, the pieces are parsed in parallel, each into its own part of the
//! result.
//!
//! A first pass counts lines. It bounds the entries of each piece from above, which fixes where the piece may
//! write, and makes line numbers exact. Only blank lines and comments leave gaps, closed afterwards. The
//! result is therefore written once and never larger than the text allows, whatever the size line claims.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flate2::bufread::MultiGzDecoder;
use krysp_kernels::map::map_file;
use rayon::prelude::*;

use super::error::{ReadError, shown};
use super::header::{Field, Header, header, split_line, wrong};
use super::number::{self, Number, skip_blanks, word};
use super::{Content, Coordinate, Symmetry};

/// Bytes of text parsed at a time: small enough to balance threads and stay in cache, large enough not to be
/// counted.
const PIECE: usize = 256 << 10;

/// Reads a file, plain or gzipped (seen by its first bytes, whatever its name).
///
/// The file is mapped into memory and must not be truncated by others while it is read: most operating
/// systems end the process in that case.
///
/// # Errors If the file cannot be read, or is not a real matrix in Matrix Market form; the error names the
/// file and the line.
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
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let content = if file.metadata().map_err(failed)?.is_file() {
        parse(&map_file(&file).map_err(failed)?)
    } else {
        // A pipe, say.
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        parse(&text)
    };
    content.map_err(|error| error.in_file(path))
}

/// Reads the bytes of a file, plain or gzipped.
///
/// # Errors
/// If they are not a real matrix in Matrix Market form; the error names the line.
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
    if !text.starts_with(b"\x1f\x8b") {
        return parse_text(text);
    }
    let mut inflated = Vec::new();
    MultiGzDecoder::new(text)
        .read_to_end(&mut inflated)
        .map_err(|source| ReadError::Gzip { path: None, source })?;
    parse_text(&inflated)
}

fn parse_text<T: Number>(text: &[u8]) -> Result<Content<T>, ReadError> {
    let (header, body) = header(text)?;
    match (header.entries, header.field) {
        (Some(entries), Field::Real) => coordinate(body, &header, entries, real),
        (Some(entries), Field::Integer) => coordinate(body, &header, entries, integer),
        (Some(entries), Field::Pattern) => coordinate(body, &header, entries, |text| Ok((T::ONE, text))),
        (None, Field::Integer) => array(body, &header, integer),
        (None, _) => array(body, &header, real),
    }
}

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

/// The full matrix from the columns of its lower triangle, each of which starts `skip` below the diagonal.
fn both_triangles<T: Number>(n: usize, lower: &[T], skip: usize, mirror: impl Fn(T) -> T) -> Vec<T> {
    // The values have been counted, so that `n * n` is at most four times their number, or 1.
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

/// How the body is made up.
struct Layout {
    /// Whether values have a row and a column.
    indexed: bool,
    /// Bytes of the shortest line.
    shortest: usize,
    /// Number of lines with a value, by the header.
    expected: u64,
    /// What they are called.
    name: &'static str,
}

struct Arrays<T> {
    row: Vec<u32>,
    col: Vec<u32>,
    value: Vec<T>,
}

/// A piece of the text and the part of the arrays that its values go to.
struct Part<'a, T> {
    text: &'a [u8],
    row: &'a mut [u32],
    col: &'a mut [u32],
    value: &'a mut [T],
}

/// What is wrong, and how many bytes before the end of the piece. Boxed to keep it out of the way of the
/// numbers.
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

/// Parses all lines by `line`, which takes the text of a line up to the end of the piece, a part and the
/// place in it, and gives the text behind the value.
fn arrays<T: Number>(
    body: &[u8],
    header: &Header,
    layout: &Layout,
    line: impl for<'t> Fn(&'t [u8], &mut Part<'_, T>, usize) -> Result<&'t [u8], Fault> + Sync,
) -> Result<Arrays<T>, ReadError> {
    let pieces = pieces(body);
    let lines: Vec<usize> = pieces.par_iter().map(|piece| newlines(piece)).collect();
    // The very last line may lack its newline.
    let room = |piece: &[u8], lines: usize| (lines + 1).min((piece.len() + 1) / layout.shortest);
    let rooms: Vec<usize> = pieces.iter().zip(&lines).map(|(piece, &lines)| room(piece, lines)).collect();
    let total = rooms.iter().sum();
    let indices = if layout.indexed { total } else { 0 };
    // Zeroed pages come from the system untouched, so that this costs only what is written later.
    let mut arrays = Arrays { row: vec![0; indices], col: vec![0; indices], value: vec![T::ZERO; total] };

    let (mut row, mut col, mut value) = (&mut arrays.row[..], &mut arrays.col[..], &mut arrays.value[..]);
    let mut parts = Vec::with_capacity(pieces.len());
    for (&text, &room) in pieces.iter().zip(&rooms) {
        let indices = room.min(row.len());
        parts.push(Part {
            text,
            row: row.split_off_mut(..indices).unwrap_or_default(),
            col: col.split_off_mut(..indices).unwrap_or_default(),
            value: value.split_off_mut(..room).unwrap_or_default(),
        });
    }

    // Pieces behind a wrong one need not be parsed; those before it must, for they may be wrong too.
    let first_wrong = AtomicUsize::new(usize::MAX);
    let outcomes: Vec<(usize, Option<Fault>)> = parts
        .par_iter_mut()
        .enumerate()
        .map(|(at, part)| {
            if at > first_wrong.load(Relaxed) {
                return (0, None);
            }
            let outcome = parse_piece(part, &line);
            if outcome.1.is_some() {
                first_wrong.fetch_min(at, Relaxed);
            }
            outcome
        })
        .collect();

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
    if found < layout.expected {
        let unfinished = u64::from(body.last().is_some_and(|&b| b != b'\n'));
        let expected = format!("{} {}", layout.expected, layout.name);
        return Err(wrong(line + unfinished, expected, format!("the end of the file after {found}")));
    }

    let counts = outcomes.iter().map(|outcome| outcome.0);
    close_gaps(&mut arrays.value, &rooms, counts.clone());
    if layout.indexed {
        close_gaps(&mut arrays.row, &rooms, counts.clone());
        close_gaps(&mut arrays.col, &rooms, counts);
    }
    Ok(arrays)
}

/// The text in pieces that end where lines end.
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

fn newlines(text: &[u8]) -> usize {
    // Sums of bytes over blocks that cannot overflow them: this way the compiler counts 16 or more at a time.
    let in_block = |block: &[u8]| block.iter().map(|&b| u8::from(b == b'\n')).sum::<u8>();
    text.chunks(192).map(|block| usize::from(in_block(block))).sum()
}

/// Moves the values to the front, where each piece had room for `rooms` and filled `counts`.
fn close_gaps<A: Copy>(array: &mut Vec<A>, rooms: &[usize], counts: impl Iterator<Item = usize>) {
    let (mut from, mut to) = (0, 0);
    for (room, count) in rooms.iter().zip(counts) {
        if from != to {
            array.copy_within(from..from + count, to);
        }
        from += room;
        to += count;
    }
    array.truncate(to);
}

/// Number of values up to the end of the piece or up to the first fault.
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

/// The text from the next line on that is neither blank nor a comment, without leading blanks.
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

/// Where the value stands that has `before` others before it in a piece without faults.
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
        // Limits are dimensions, hence below 2^31.
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
