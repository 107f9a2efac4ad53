//! Rutherford-Boeing files, and the older Harwell-Boeing files: compressed columns as text in fixed Fortran
//! fields.
//!
//! ```text
//! title, key
//! numbers of lines: total, pointers, rows, values [right-hand sides: Harwell-Boeing]
//! type, rows, columns, entries, 0               type: real, integer or pattern; symmetric, ...; assembled
//! formats, such as (13I6) (16I5) (3E26.18)
//! pointers and rows, counted from 1; values     one triangle of a symmetric matrix
//! ```
//!
//! Fields have a fixed width and need no blanks between them. Right-hand sides are skipped.

use super::file::{Parsed, length};
use crate::formats::Csr;
use crate::numbers::Real;
use krysp_solvers::Element;
use std::fmt::Write;

/// The type of a matrix, three letters in the third line; `None` if the text has another format.
fn kind(text: &[u8]) -> Option<[u8; 3]> {
    let line = text.split(|&byte| byte == b'\n').nth(2)?;
    let kind = [*line.first()?, *line.get(1)?, *line.get(2)?].map(|letter| letter.to_ascii_lowercase());
    let known = b"ricpq".contains(&kind[0]) && b"suzhr".contains(&kind[1]) && b"ae".contains(&kind[2]);
    let apart = line.get(3..14)?.iter().all(|&byte| byte == b' ');
    (known && apart).then_some(kind)
}

pub(super) fn is_matrix(text: &[u8]) -> bool {
    kind(text).is_some()
}

/// Parses a Fortran format: the number of fields on a line, and their width. A scale factor has no effect on
/// numbers with exponents.
fn fields(format: &str) -> Parsed<(usize, usize)> {
    let refused =
        || format!("the format `{format}` is not supported: expected integers or numbers with exponents");
    let inner = format.trim().trim_start_matches('(').trim_end_matches(')').to_ascii_uppercase();
    let inner = inner.split_once('P').map_or(inner.as_str(), |(_, rest)| rest).trim_start_matches(',');
    let (count, rest) = inner.split_once(['I', 'E', 'D', 'F', 'G']).ok_or_else(refused)?;
    let count = if count.is_empty() { 1 } else { count.trim().parse().map_err(|_| refused())? };
    let width =
        rest.split(['.', 'E']).next().and_then(|width| width.trim().parse().ok()).ok_or_else(refused)?;
    if count == 0 || width == 0 { Err(refused()) } else { Ok((count, width)) }
}

/// The lines that are not yet read, and the number of the line that was read last.
struct Lines<'a> {
    text: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Parsed<&'a str> {
        self.number += 1;
        self.text.next().ok_or_else(|| format!("the file ends before line {}", self.number))
    }

    fn wrong(&self, why: impl std::fmt::Display) -> String {
        format!("line {}: {why}", self.number)
    }

    /// Reads `count` fields of the Fortran format `format`, from as many lines as they take.
    fn read<V>(&mut self, count: usize, format: &str, parse: impl Fn(&str) -> Option<V>) -> Parsed<Vec<V>> {
        let (per_line, width) = fields(format).map_err(|why| self.wrong(why))?;
        let mut found = vec![];
        while found.len() < count {
            let line = self.next()?;
            for field in 0..per_line.min(count - found.len()) {
                let end = line.len().min((field + 1) * width);
                let text = line.get((field * width).min(end)..end).unwrap_or("").trim();
                let wrong =
                    || self.wrong(format_args!("expected a number in field {}, found `{text}`", field + 1));
                found.push(parse(text).ok_or_else(wrong)?);
            }
        }
        Ok(found)
    }
}

/// Parses a number whose exponent is marked by E, D or only by its sign.
fn real(text: &str) -> Option<f64> {
    let text = text.replace(['D', 'd'], "e");
    text.parse().ok().or_else(|| {
        let sign = text.rfind(['+', '-']).filter(|&at| at > 0)?;
        format!("{}e{}", &text[..sign], &text[sign..]).parse().ok()
    })
}

pub(super) fn matrix<T: Real>(text: &[u8]) -> Parsed<Csr<T>> {
    let kind = kind(text).ok_or("expected a matrix type such as `rsa` in line 3")?;
    let text = String::from_utf8_lossy(text);
    let mut lines = Lines { text: text.lines(), number: 0 };
    lines.next()?;
    let counts = lines.next()?;
    let right_sides = counts.split_whitespace().nth(4).is_some_and(|lines| lines != "0");
    let sizes = lines.next()?;
    let sizes: Option<Vec<i64>> =
        sizes[3..].split_whitespace().take(3).map(|size| size.parse().ok()).collect();
    let Some(&[rows, cols, entries]) = sizes.as_deref() else {
        return Err(lines.wrong("expected rows, columns and entries"));
    };
    let [rows, cols, entries] = [(rows, "rows"), (cols, "columns"), (entries, "entries")]
        .map(|(stated, what)| length(stated, what).map_err(|why| lines.wrong(why)));
    let (rows, cols, entries) = (rows?, cols?, entries?);
    if kind[2] == b'e' {
        return Err(lines.wrong("the matrix is a sum of elements that are not assembled: assemble it first"));
    }
    if matches!(kind[0], b'c' | b'q') || kind[1] == b'h' {
        return Err(lines.wrong("the matrix is complex: only real ones are read"));
    }
    let formats = lines.next()?;
    let format = |from: usize, to: usize| formats.get(from..to.min(formats.len())).unwrap_or("").trim();
    if right_sides {
        lines.next()?;
    }
    let index = |text: &str| text.parse::<i64>().ok()?.checked_sub(1);
    let pointers = lines.read(cols.saturating_add(1), format(0, 16), index)?;
    let row = lines.read(entries, format(16, 32), index)?;
    let values: Vec<T> = match (kind[0], format(32, 52)) {
        (b'p', _) => vec![T::one(); entries],
        (_, "") => return Err("line 4 has no format of values".into()),
        (_, format) => lines.read(entries, format, |text| real(text).map(T::from_f64))?,
    };
    let triangle = Csr::from_csc(rows, cols, &pointers, &row, &values).map_err(|error| error.to_string())?;
    let full = match kind[1] {
        b's' => triangle.mirrored(),
        b'z' => super::skew(&triangle),
        _ => Ok(triangle),
    };
    full.map_err(|error| error.to_string())
}

/// Writes fields in lines of at most 80 characters; returns the number of lines as well.
fn written(fields: impl Iterator<Item = String>, width: usize) -> (String, usize) {
    let per_line = 80 / width;
    let (mut text, mut count) = (String::new(), 0);
    for field in fields {
        if count > 0 && count % per_line == 0 {
            text.push('\n');
        }
        // writing to a string does not fail
        let _ = write!(text, "{field:>width$}");
        count += 1;
    }
    if count > 0 {
        text.push('\n');
    }
    (text, count.div_ceil(per_line))
}

/// Writes the entries of a matrix by columns; for a symmetric one only the lower triangle.
pub(super) fn matrix_text<T: Real>(csr: &Csr<T>) -> Parsed<String> {
    const VALUE: usize = 26;
    let symmetric = csr.check_symmetric(0.0).is_ok();
    let mut columns: Vec<Vec<(usize, T)>> = vec![vec![]; csr.cols()];
    for (row, column, value) in csr.triplets().filter(|(row, column, _)| !symmetric || row >= column) {
        columns[column].push((row, value));
    }
    let entries: usize = columns.iter().map(Vec::len).sum();
    let width = (entries + 1).max(csr.rows()).to_string().len() + 1;
    let mut next = 1;
    let pointers = std::iter::once(1).chain(columns.iter().map(|column| {
        next += column.len();
        next
    }));
    let (pointers, pointer_lines) = written(pointers.map(|pointer| pointer.to_string()), width);
    let stored = || columns.iter().flatten();
    let (rows, row_lines) = written(stored().map(|(row, _)| (row + 1).to_string()), width);
    let (values, value_lines) =
        written(stored().map(|(_, value)| format!("{:.17E}", Element::to_f64(*value))), VALUE);
    let lines = pointer_lines + row_lines + value_lines;
    let kind = match (symmetric, csr.rows() == csr.cols()) {
        (true, _) => "rsa",
        (false, true) => "rua",
        (false, false) => "rra",
    };
    let index = format!("({}I{width})", 80 / width);
    let value = format!("({}E{VALUE}.17)", 80 / VALUE);
    let mut text = format!("{:<72}{:<8}\n", "written by krysp", "krysp");
    let _ = writeln!(text, "{lines:>14} {pointer_lines:>13} {row_lines:>13} {value_lines:>13}");
    let _ = writeln!(text, "{kind:<14}{:>14} {:>13} {entries:>13} {:>13}", csr.rows(), csr.cols(), 0);
    let _ = writeln!(text, "{index:<16}{index:<16}{value:<20}");
    Ok(text + &pointers + &rows + &values)
}
