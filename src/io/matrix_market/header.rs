//! Parses the banner and the size line.

use super::number::{count, is_blank, skip_blanks, word};
use super::{LARGEST_DIMENSION, Symmetry};
use crate::error::ReadError;

/// The banner and the size line. The counts are not yet compared with the entries that follow.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) field: Field,
    pub(super) symmetry: Symmetry,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Number of entries of a coordinate file; `None` for an array.
    pub(super) entries: Option<u64>,
    /// The number of lines up to and including the size line.
    pub(super) lines: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field {
    Real,
    Integer,
    Pattern,
}

/// The error for a malformed line.
pub(super) fn wrong(line: u64, expected: impl Into<String>, found: impl Into<String>) -> ReadError {
    ReadError::Syntax { path: None, line, expected: expected.into(), found: found.into() }
}

const BANNER: &str = "the banner `%%MatrixMarket matrix ...`";

/// Parses the header. Returns the header and the text below.
pub(super) fn header(text: &[u8]) -> Result<(Header, &[u8]), ReadError> {
    if text.is_empty() {
        return Err(wrong(1, BANNER, "an empty file"));
    }
    let (banner, mut text) = split_line(text);
    let mut words = Words { rest: banner, line: 1 };
    // Some editors on Windows put a byte order mark before the text.
    words.rest = words.rest.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(words.rest);
    words.choose(BANNER, &[("%%MatrixMarket", ())])?;
    words.choose("the object `matrix`", &[("matrix", ())])?;
    let sparse = words.choose("the format coordinate or array", &[("coordinate", true), ("array", false)])?;
    let field = words.choose(
        "the field real, integer or pattern",
        &[
            ("real", Ok(Field::Real)),
            ("double", Ok(Field::Real)),
            ("integer", Ok(Field::Integer)),
            ("unsigned-integer", Ok(Field::Integer)),
            ("pattern", Ok(Field::Pattern)),
            ("complex", Err(())),
        ],
    )?;
    let Ok(field) = field else {
        let found = "complex (complex matrices are not supported yet)";
        return Err(wrong(1, "the field real, integer or pattern", found));
    };
    let symmetry = words.choose(
        "the symmetry general, symmetric or skew-symmetric",
        &[
            ("general", Symmetry::General),
            ("symmetric", Symmetry::Symmetric),
            ("skew-symmetric", Symmetry::Skew),
            ("hermitian", Symmetry::Symmetric),
        ],
    )?;
    words.end()?;
    if field == Field::Pattern && !sparse {
        return Err(wrong(1, "values in an array", "the field pattern"));
    }
    if field == Field::Pattern && symmetry == Symmetry::Skew {
        return Err(wrong(1, "values in a skew-symmetric matrix", "the field pattern"));
    }

    let mut line = 1;
    loop {
        if text.is_empty() {
            let expected =
                if sparse { "the size line `rows columns entries`" } else { "the size line `rows columns`" };
            return Err(wrong(line, expected, "the end of the file"));
        }
        let (this, below) = split_line(text);
        (line, text) = (line + 1, below);
        let rest = skip_blanks(this);
        if !matches!(rest.first(), None | Some(b'%')) {
            let mut words = Words { rest, line };
            let rows = words.dimension("rows")?;
            let cols = words.dimension("columns")?;
            let entries = if sparse { Some(words.count("the number of entries")?) } else { None };
            words.end()?;
            if symmetry != Symmetry::General && rows != cols {
                let expected = "as many rows as columns in a symmetric or skew-symmetric matrix";
                return Err(wrong(line, expected, format!("{rows} rows and {cols} columns")));
            }
            return Ok((Header { field, symmetry, rows, cols, entries, lines: line }, text));
        }
    }
}

/// Splits off the first line. Returns the line without its newline, and the text below.
pub(super) fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}

struct Words<'a> {
    rest: &'a [u8],
    line: u64,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.rest = skip_blanks(self.rest);
        let word = word(self.rest);
        self.rest = &self.rest[word.len()..];
        (!word.is_empty()).then_some(word)
    }

    fn choose<C: Copy>(&mut self, expected: &str, choices: &[(&str, C)]) -> Result<C, ReadError> {
        let Some(word) = self.next() else {
            return Err(wrong(self.line, expected, "the end of the line"));
        };
        match choices.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())) {
            Some((_, choice)) => Ok(*choice),
            None => Err(wrong(self.line, expected, shown(word))),
        }
    }

    fn count(&mut self, what: &str) -> Result<u64, ReadError> {
        let Some(word) = self.next() else {
            return Err(wrong(self.line, what, "the end of the line"));
        };
        match count(word) {
            Some((u64::MAX, _)) => Err(wrong(self.line, format!("{what} in at most 19 digits"), shown(word))),
            Some((count, _)) => Ok(count),
            None => Err(wrong(self.line, what, shown(word))),
        }
    }

    fn dimension(&mut self, what: &str) -> Result<usize, ReadError> {
        let count = self.count(&format!("the number of {what}"))?;
        usize::try_from(count).ok().filter(|&count| count <= LARGEST_DIMENSION).ok_or_else(|| {
            let expected = format!("at most {LARGEST_DIMENSION} {what} (indices are 32-bit)");
            wrong(self.line, expected, count.to_string())
        })
    }

    fn end(&mut self) -> Result<(), ReadError> {
        match self.rest.iter().all(|&b| is_blank(b)) {
            true => Ok(()),
            false => Err(wrong(self.line, "the end of the line", shown(skip_blanks(self.rest)))),
        }
    }
}

/// Formats a part of a file for error messages: short, printable, and in quotes unless it is an integer.
pub(super) fn shown(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    let (head, dots) = if text.len() > LONGEST { (&text[..LONGEST], "...") } else { (text, "") };
    let quote = if head.iter().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-')) { "" } else { "`" };
    let printable = match str::from_utf8(head) {
        Ok(head) if !head.contains(char::is_control) => head.to_owned(),
        _ => head.escape_ascii().to_string(),
    };
    format!("{quote}{printable}{dots}{quote}")
}
