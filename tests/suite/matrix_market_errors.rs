//! Errors of the Matrix Market reader for malformed files.

// Clippy allows `unwrap` in tests, but not in functions that tests call.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use krysp::io::matrix_market::{Content, ReadError, parse, read};
use proptest::prelude::*;

pub(super) const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";
const PATTERN: &str = "%%MatrixMarket matrix coordinate pattern general\n";
pub(super) const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";
pub(super) const SKEW: &str = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
const INTEGER: &str = "%%MatrixMarket matrix coordinate integer general\n";
pub(super) const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

const BANNER: &str = "expected the banner `%%MatrixMarket matrix ...`, found";
const FIELD: &str = "expected the field real, integer or pattern, found";
const TRIANGLE: &str =
    "expected an entry of the lower triangle (the matrix is symmetric or skew-symmetric), found";

/// Malformed files: the banner, the rest of the file, and the expected message.
fn malformed() -> Vec<(&'static str, &'static str, String)> {
    let case = |banner, body, message: &str| (banner, body, message.to_owned());
    vec![
        case("", "", &format!("line 1: {BANNER} an empty file")),
        case("", "\n", &format!("line 1: {BANNER} the end of the line")),
        case("", "3 3 1\n1 1 1\n", &format!("line 1: {BANNER} 3")),
        case("", "% a comment\n", &format!("line 1: {BANNER} `%`")),
        case(
            "",
            "%MatrixMarket matrix coordinate real general\n",
            &format!("line 1: {BANNER} `%MatrixMarket`"),
        ),
        case("", "%%MatrixMarket\n", "line 1: expected the object `matrix`, found the end of the line"),
        case(
            "",
            "%%MatrixMarket vector array real general\n",
            "line 1: expected the object `matrix`, found `vector`",
        ),
        case(
            "",
            "%%MatrixMarket matrix\n",
            "line 1: expected the format coordinate or array, found the end of the line",
        ),
        case(
            "",
            "%%MatrixMarket matrix csr real general\n",
            "line 1: expected the format coordinate or array, found `csr`",
        ),
        case(
            "",
            "%%MatrixMarket matrix array quaternion general\n",
            &format!("line 1: {FIELD} `quaternion`"),
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate Complex general\n1 1 1\n1 1 0 1\n",
            &format!("line 1: {FIELD} complex (complex matrices are not supported yet)"),
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate complex hermitian\n",
            &format!("line 1: {FIELD} complex (complex matrices are not supported yet)"),
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate real\n",
            "line 1: expected the symmetry general, symmetric or skew-symmetric, found the end of the line",
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate real triangular\n",
            "line 1: expected the symmetry general, symmetric or skew-symmetric, found `triangular`",
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate real general 3\n",
            "line 1: expected the end of the line, found 3",
        ),
        case(
            "",
            "%%MatrixMarket matrix array pattern general\n1 1\n",
            "line 1: expected values in an array, found the field pattern",
        ),
        case(
            "",
            "%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n",
            "line 1: expected values in a skew-symmetric matrix, found the field pattern",
        ),
        case(GENERAL, "", "line 1: expected the size line `rows columns entries`, found the end of the file"),
        case(ARRAY, "% only\n\n", "line 3: expected the size line `rows columns`, found the end of the file"),
        case(GENERAL, "3 3\n", "line 2: expected the number of entries, found the end of the line"),
        case(GENERAL, "\n3\n", "line 3: expected the number of columns, found the end of the line"),
        case(GENERAL, "3 3 1 1\n", "line 2: expected the end of the line, found 1"),
        case(ARRAY, "3 3 1\n", "line 2: expected the end of the line, found 1"),
        case(GENERAL, "three 3 1\n", "line 2: expected the number of rows, found `three`"),
        case(GENERAL, "3 -3 1\n", "line 2: expected the number of columns, found -3"),
        case(GENERAL, "3 3 1e3\n", "line 2: expected the number of entries, found `1e3`"),
        case(GENERAL, "3.0 3 1\n", "line 2: expected the number of rows, found `3.0`"),
        case(
            GENERAL,
            "2147483648 3 0\n",
            "line 2: expected at most 2147483647 rows (indices are 32-bit), found 2147483648",
        ),
        case(
            ARRAY,
            "3 2147483648\n",
            "line 2: expected at most 2147483647 columns (indices are 32-bit), found 2147483648",
        ),
        case(
            GENERAL,
            "1 1 99999999999999999999\n",
            "line 2: expected the number of entries in at most 19 digits, found 99999999999999999999",
        ),
        case(
            GENERAL,
            "2147483647 2147483647 9223372036854775808\n1 1 1\n",
            "line 3: expected 9223372036854775808 entries, found the end of the file after 1",
        ),
        case(
            ARRAY,
            "2147483647 2147483647\n1\n",
            "line 3: expected 4611686014132420609 values, found the end of the file after 1",
        ),
        case(
            SYMMETRIC,
            "2 3 0\n",
            "line 2: expected as many rows as columns in a symmetric or skew-symmetric matrix, found 2 rows and 3 columns",
        ),
        case(
            GENERAL,
            "2 2 3\n1 1 1\n2 2 1\n",
            "line 4: expected 3 entries, found the end of the file after 2",
        ),
        case(GENERAL, "2 2 3\n1 1 1\n2 2 1", "line 4: expected 3 entries, found the end of the file after 2"),
        case(GENERAL, "2 2 1\n", "line 2: expected 1 entries, found the end of the file after 0"),
        case(
            GENERAL,
            "2 2 1\n\n% c\n1 1 1\n\n% c\n2 2 1\n",
            "line 8: expected no more than 1 entries, found another one",
        ),
        case(GENERAL, "2 2 0\n2 2 1\n", "line 3: expected no more than 0 entries, found another one"),
        case(GENERAL, "2 2 1\n0 1 1\n", "line 3: expected a row index in 1..=2, found 0"),
        case(GENERAL, "2 2 1\n1 0 1\n", "line 3: expected a column index in 1..=2, found 0"),
        case(GENERAL, "2 2 2\n1 1 1\n3 1 1\n", "line 4: expected a row index in 1..=2, found 3"),
        case(GENERAL, "2 9 1\n1 10 1\n", "line 3: expected a column index in 1..=9, found 10"),
        case(GENERAL, "2 2 1\n4294967297 1 1\n", "line 3: expected a row index in 1..=2, found 4294967297"),
        case(
            GENERAL,
            "2 2 1\n18446744073709551617 1 1\n",
            "line 3: expected a row index in 1..=2, found 18446744073709551617",
        ),
        case(GENERAL, "2 2 1\n-1 1 1\n", "line 3: expected a row index in 1..=2, found -1"),
        case(GENERAL, "2 2 1\n1.0 1 1\n", "line 3: expected a row index in 1..=2, found `1.0`"),
        case(GENERAL, "2 2 1\nx 1 1\n", "line 3: expected a row index in 1..=2, found `x`"),
        case(GENERAL, "2 2 1\n1\n", "line 3: expected a column index in 1..=2, found the end of the line"),
        case(GENERAL, "0 2 1\n1 1 1\n", "line 3: expected no entries as there are no rows, found 1"),
        case(GENERAL, "2 2 2\n1 1\n2 2 1\n", "line 3: expected a real number, found the end of the line"),
        case(GENERAL, "2 2 1\n1 1", "line 3: expected a real number, found the end of the file"),
        case(GENERAL, "2 2 1\n1 1 one\n", "line 3: expected a real number, found `one`"),
        case(GENERAL, "2 2 1\n1 1 1,5\n", "line 3: expected a real number, found `1,5`"),
        case(GENERAL, "2 2 1\n1 1 1.0e\n", "line 3: expected a real number, found `1.0e`"),
        case(GENERAL, "2 2 1\n1 1 1.0 2.0\n", "line 3: expected the end of the line, found `2.0`"),
        case(GENERAL, "2 2 1\n1 1 1.0 % one\n", "line 3: expected the end of the line, found `%`"),
        case(INTEGER, "2 2 1\n1 1 1.5\n", "line 3: expected an integer, found `1.5`"),
        case(INTEGER, "2 2 1\n1 1 nan\n", "line 3: expected an integer, found `nan`"),
        case(PATTERN, "2 2 1\n1 1 1\n", "line 3: expected the end of the line, found 1"),
        case(SYMMETRIC, "2 2 1\n1 2 5\n", &format!("line 3: {TRIANGLE} `1 2 5`")),
        case(SKEW, "2 2 1\n1 2 5\r\n", &format!("line 3: {TRIANGLE} `1 2 5`")),
        case(
            SKEW,
            "2 2 2\n1 1 0\n2 2 1e-300\n",
            "line 4: expected zeros on the diagonal (the matrix is skew-symmetric), found `2 2 1e-300`",
        ),
        case(ARRAY, "2 2\n1\n2\n3\n4\n5\n", "line 7: expected no more than 4 values, found another one"),
        case(ARRAY, "2 2\n1\n2\n3\n", "line 5: expected 4 values, found the end of the file after 3"),
        case(ARRAY, "2 2\n1 2\n3 4\n", "line 3: expected the end of the line, found 2"),
        case(
            "%%MatrixMarket matrix array real symmetric\n",
            "2 2\n1\n2\n3\n4\n",
            "line 6: expected no more than 3 values, found another one",
        ),
        case(
            "%%MatrixMarket matrix array real skew-symmetric\n",
            "1 1\n0\n",
            "line 3: expected no more than 0 values, found another one",
        ),
        case(GENERAL, "2 2 1\n1 1 \0\n", "line 3: expected a real number, found `\\x00`"),
        case(
            GENERAL,
            "2 2 1\n1 1 1\n\0\0\0",
            "line 4: expected a row index in 1..=2, found `\\x00\\x00\\x00`",
        ),
        case(GENERAL, "2 2 1\n1 1 é\n", "line 3: expected a real number, found `é`"),
        case(
            GENERAL,
            "2 2 1\n1 1 01234567890123456789x0123456789012345678901234567890\n",
            "line 3: expected a real number, found `01234567890123456789x0123456789012345678...`",
        ),
        // Of several wrong lines the first is reported, even if a later piece has another kind of error.
        case(
            GENERAL,
            "2 2 1\n1 1 1\n2 2 1\n3 3 3\n",
            "line 4: expected no more than 1 entries, found another one",
        ),
        case(GENERAL, "2 2 9\n1 1 1\n2 2 x\n3 3 3\n", "line 4: expected a real number, found `x`"),
    ]
}

fn message(text: &[u8]) -> String {
    match parse::<f64>(text) {
        Ok(content) => panic!("{:?} is read as {content:?}", String::from_utf8_lossy(text)),
        Err(error) => error.to_string(),
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A folder that is deleted when the test ends.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("krysp-matrix-market-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn malformed_files() {
    let cases = malformed();
    assert!(cases.len() >= 40);
    for (banner, body, expected) in cases {
        let text = format!("{banner}{body}");
        assert_eq!(message(text.as_bytes()), expected, "{text:?}");
        assert_eq!(message(&gzip(text.as_bytes())), expected, "gzipped {text:?}");
    }
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let text = [GENERAL.as_bytes(), b"2 2 1\n1 1 \xff\xfe\n"].concat();
    assert_eq!(message(&text), "line 3: expected a real number, found `\\xff\\xfe`");
    let text = [b"%%MatrixMarket matrix \x80\n".as_slice()].concat();
    assert_eq!(message(&text), "line 1: expected the format coordinate or array, found `\\x80`");
    assert_eq!(message(b"\x00"), format!("line 1: {BANNER} `\\x00`"));
    assert_eq!(message(b"\x1f"), format!("line 1: {BANNER} `\\x1f`"));
}

#[test]
fn damaged_gzip() {
    let text = format!("{GENERAL}2 2 2\n1 1 1\n2 2 2\n");
    let whole = gzip(text.as_bytes());
    for end in 2..whole.len() {
        assert_eq!(message(&whole[..end]), "the gzip data end too early", "cut after {end} bytes");
    }
    let mut corrupted = whole.clone();
    corrupted[whole.len() - 6] ^= 1; // a byte of the checksum
    assert!(message(&corrupted).starts_with("the gzip data are damaged ("), "{}", message(&corrupted));
    let mut corrupted = whole.clone();
    corrupted[2] = 77; // an unknown method
    assert!(message(&corrupted).starts_with("the gzip data are damaged ("), "{}", message(&corrupted));
    let mut corrupted = whole.clone();
    corrupted[10] = 0xff; // an unknown type of block
    assert!(message(&corrupted).starts_with("the gzip data are damaged ("), "{}", message(&corrupted));
    let garbage = [&whole[..], b"more than a header could be, and none"].concat();
    assert!(message(&garbage).starts_with("the gzip data are damaged ("), "{}", message(&garbage));
    let inside = gzip(format!("{GENERAL}2 2 1\n1 3 1\n").as_bytes());
    assert_eq!(message(&inside), "line 3: expected a column index in 1..=2, found 3");
    // A file of several gzip members, as parallel compressors write them, is read as one text.
    let members = [gzip(&text.as_bytes()[..50]), gzip(&text.as_bytes()[50..])].concat();
    assert_eq!(parse::<f64>(&members).unwrap(), parse(text.as_bytes()).unwrap());
}

#[test]
fn errors_name_the_file() {
    let folder = Folder::new("errors");
    let path = folder.0.join("heat.mtx");
    std::fs::write(&path, format!("{GENERAL}% heat\n100 100 4\n1 1 1\n1 2 1\n\n1 101 1\n1 3 1\n")).unwrap();
    let error = read::<f64>(&path).unwrap_err();
    let expected = "line 7: expected a column index in 1..=100, found 101";
    assert_eq!(error.to_string(), format!("{}, {expected}", path.display()));
    assert!(matches!(&error, ReadError::Syntax { path: Some(p), line: 7, .. } if *p == path));

    std::fs::write(&path, b"\x1f\x8b\x08").unwrap();
    let expected = format!("{}: the gzip data end too early", path.display());
    assert_eq!(read::<f64>(&path).unwrap_err().to_string(), expected);
    std::fs::write(&path, b"").unwrap();
    let expected = format!("{}, line 1: {BANNER} an empty file", path.display());
    assert_eq!(read::<f64>(&path).unwrap_err().to_string(), expected);
    for missing in [folder.0.join("none.mtx"), folder.0.clone()] {
        let error = read::<f64>(&missing).unwrap_err();
        assert!(matches!(error, ReadError::Io { .. }));
        assert!(error.to_string().starts_with(&format!("{}: ", missing.display())), "{error}");
    }
}

/// Line numbers and the order of entries are right across the pieces that threads parse.
#[test]
fn long_files() {
    let n = 200_000;
    let lines: Vec<String> = (0..n)
        .map(|k| if k % 1000 == 7 { format!("% {k}\n\n") } else { format!("{} {} {k}\n", k + 1, k % 9 + 1) })
        .collect();
    let entries = lines.iter().filter(|line| !line.starts_with('%')).count();
    let text =
        |count: usize, lines: &[String]| format!("{GENERAL}{n} 9 {count}\n{}", lines.concat()).into_bytes();
    let Content::Coordinate(a) = parse::<f64>(&text(entries, &lines)).unwrap() else { panic!("an array") };
    assert_eq!((a.row.len(), a.col.len(), a.value.len()), (entries, entries, entries));
    let kept = (0..n).filter(|k| k % 1000 != 7);
    assert!(kept.eq(a.row.iter().map(|&r| r as usize)));
    assert!(a.row.iter().zip(&a.col).zip(&a.value).all(|((&r, &c), &v)| c == r % 9 && v == f64::from(r)));

    // each comment above takes two lines
    let line_of = |k: usize| 3 + k + (k + 992) / 1000;
    let mut wrong = lines.clone();
    for k in [199_999, 150_001, 100_002] {
        wrong[k] = "1 10 1\n".to_owned();
        let expected = format!("line {}: expected a column index in 1..=9, found 10", line_of(k));
        assert_eq!(message(&text(entries, &wrong)), expected);
    }
    let entries_before = |k: usize| lines[..k].iter().filter(|line| !line.starts_with('%')).count();
    let expected = format!(
        "line {}: expected no more than {} entries, found another one",
        line_of(90_000),
        entries_before(90_000)
    );
    assert_eq!(message(&text(entries_before(90_000), &wrong)), expected);
    let expected = format!("line {}: expected a column index in 1..=9, found 10", line_of(100_002));
    assert_eq!(message(&text(entries_before(100_003), &wrong)), expected);
    let expected = format!("expected {} entries, found the end of the file after {entries}", entries + 1);
    assert_eq!(message(&text(entries + 1, &lines)), format!("line {}: {expected}", line_of(n) - 1));
}

#[test]
fn long_lines_and_long_gaps_are_read() {
    let void = "\n".repeat(1 << 20);
    let comment = format!("%{}\n", "x".repeat(1 << 20));
    let blanks = " ".repeat(1 << 20);
    let text = format!("{GENERAL}{comment}{void}2 2 1\n{void}{comment}1{blanks}2 3{blanks}\n{void}");
    let Content::Coordinate(a) = parse::<f32>(text.as_bytes()).unwrap() else { panic!("an array") };
    assert_eq!((a.row, a.col, a.value), (vec![0], vec![1], vec![3.0]));
}

proptest! {
    #[test]
    fn the_reader_never_panics(head in 0usize..6, text in "[0-9 \\n\\r\\t.%eE+-]{0,60}", bytes: Vec<u8>) {
        let head = [GENERAL, PATTERN, SYMMETRIC, SKEW, INTEGER, ARRAY][head];
        let _ = parse::<f64>(format!("{head}{text}").as_bytes());
        let _ = parse::<f32>(&[head.as_bytes(), b"9 9 9\n", &bytes].concat());
        let _ = parse::<f32>(&bytes);
    }
}

/// A header may declare more rows than fit into memory: that is an error, and does not abort the program.
#[test]
fn rows_that_cannot_fit_are_refused() {
    let folder = std::env::temp_dir().join(format!("krysp-rows-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("huge.mtx");
    std::fs::write(
        &file,
        "%%MatrixMarket matrix coordinate real general\n2000000000 2000000000 1\n1 1 1.0\n",
    )
    .unwrap();
    match krysp::io::read_matrix::<f64>(&file) {
        Err(krysp::Error::Allocation { bytes, free, .. }) => assert!(bytes > free as u128),
        Err(other) => panic!("{other}"),
        Ok(_) => krysp::testing::skipped("two billion rows fit into memory"),
    }
    std::fs::remove_dir_all(&folder).unwrap();
    // a basis with as many vectors as unknowns is an error, too
    let n = 3_000_000;
    let one = krysp::operator_fn(n, |x: &[f64], y: &mut [f64]| y.copy_from_slice(x));
    let refused = krysp::Gmres::new(one).restart(n).solve(&vec![1.0; n]).unwrap_err();
    assert!(refused.to_string().contains("bytes"), "{refused}");
}
