//! Finds the line of a file whose value is infinite or NaN.

use super::header::header;
use super::number::{count, real, skip_blanks};
use crate::error::ReadError;

/// The first entry of a file that is infinite or NaN, as an error with its line, row and column as written in
/// the file: counted from 1, for a symmetric matrix only the entries in the file. `None` if all are finite,
/// or the text is malformed.
pub(in crate::io) fn not_finite(text: &[u8]) -> Option<ReadError> {
    let (header, body) = header(text).ok()?;
    let mut place = 0;
    for (line, content) in (header.lines + 1..).zip(body.split(|&byte| byte == b'\n')) {
        let content = skip_blanks(content);
        if content.is_empty() || content.starts_with(b"%") || content == b"\r" {
            continue;
        }
        let (row, col, rest) = match header.entries {
            Some(_) => {
                let (row, rest) = count(content)?;
                let (col, rest) = count(skip_blanks(rest))?;
                (row, col, skip_blanks(rest))
            }
            // an array is written column by column
            None => {
                let rows = header.rows.max(1) as u64;
                place += 1;
                ((place - 1) % rows + 1, (place - 1) / rows + 1, content)
            }
        };
        let value = real::<f64>(rest)?.0;
        if !value.is_finite() {
            return Some(ReadError::NotFinite { path: None, line, row, col, value });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_and_the_place_are_those_of_the_file() {
        let cases = [
            (
                "%%MatrixMarket matrix coordinate real symmetric\n% by hand\n3 3 2\n1 1 2\n\n3 1 nan\n",
                "line 6: entry (3, 1) is NaN",
            ),
            (
                "%%MatrixMarket matrix coordinate real general\r\n2 2 1\r\n1 2 -inf\r\n",
                "line 3: entry (1, 2) is -inf",
            ),
            (
                "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1e999\n",
                "line 3: entry (1, 2) is inf",
            ),
            ("%%MatrixMarket matrix array real general\n2 2\n1\n2\nnan\n4\n", "line 5: entry (1, 2) is NaN"),
        ];
        for (text, expected) in cases {
            assert_eq!(not_finite(text.as_bytes()).unwrap().to_string(), expected);
        }
        let finite = "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n";
        assert!(not_finite(finite.as_bytes()).is_none());
    }
}
