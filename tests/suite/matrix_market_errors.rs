//! What the Matrix Market reader says of malformed files, and what it makes of well-formed ones.

// The exemption of tests stops at functions that tests call.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use krysp::io::matrix_market::{
    Content, Coordinate, Number, ReadError, Symmetry, WriteError, parse, read, write, write_array,
    write_coordinate, write_to,
};
use proptest::prelude::*;

const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";
const PATTERN: &str = "%%MatrixMarket matrix coordinate pattern general\n";
const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";
const SKEW: &str = "%%MatrixMarket matrix coordinate real skew-symmetric\n";
const INTEGER: &str = "%%MatrixMarket matrix coordinate integer general\n";
const ARRAY: &str = "%%MatrixMarket matrix array real general\n";

const BANNER: &str = "expected the banner `%%MatrixMarket matrix ...`, found";
const FIELD: &str = "expected the field real, integer or pattern, found";
const TRIANGLE: &str =
    "expected an entry of the lower triangle (the matrix is symmetric or skew-symmetric), found";

/// Banner, the rest of the file, the whole message.
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
        // The first of several wrong lines, also where a later piece of another kind of error follows.
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
fn bytes_that_are_no_text() {
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
    corrupted[10] = 0xff; // no kind of block
    assert!(message(&corrupted).starts_with("the gzip data are damaged ("), "{}", message(&corrupted));
    let garbage = [&whole[..], b"more than a header could be, and none"].concat();
    assert!(message(&garbage).starts_with("the gzip data are damaged ("), "{}", message(&garbage));
    let inside = gzip(format!("{GENERAL}2 2 1\n1 3 1\n").as_bytes());
    assert_eq!(message(&inside), "line 3: expected a column index in 1..=2, found 3");
    // Several members, as parallel compressors write them, are one text.
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

/// Line numbers and order across the pieces that threads parse.
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

    // Comments above take two lines each.
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
fn long_lines_and_voids() {
    let void = "\n".repeat(1 << 20);
    let comment = format!("%{}\n", "x".repeat(1 << 20));
    let blanks = " ".repeat(1 << 20);
    let text = format!("{GENERAL}{comment}{void}2 2 1\n{void}{comment}1{blanks}2 3{blanks}\n{void}");
    let Content::Coordinate(a) = parse::<f32>(text.as_bytes()).unwrap() else { panic!("an array") };
    assert_eq!((a.row, a.col, a.value), (vec![0], vec![1], vec![3.0]));
}

fn coordinate<T: Number>(text: &str) -> Coordinate<T> {
    match parse(text.as_bytes()) {
        Ok(Content::Coordinate(a)) => a,
        Ok(_) => panic!("{text:?} is read as an array"),
        Err(error) => panic!("{text:?}: {error}"),
    }
}

#[test]
fn liberties() {
    let expected = coordinate::<f64>(&format!("{GENERAL}2 3 3\n1 1 1000\n2 3 -0.5\n1 1 7\n"));
    assert_eq!(expected.row, [0, 1, 0]);
    assert_eq!(expected.col, [0, 2, 0]);
    assert_eq!(expected.value, [1000.0, -0.5, 7.0]);
    assert_eq!((expected.rows, expected.cols, expected.symmetry), (2, 3, Symmetry::General));
    for text in [
        "%%matrixmarket MATRIX Coordinate REAL gEnErAl\n2 3 3\n1 1 1000\n2 3 -0.5\n1 1 7\n",
        "%%MatrixMarket matrix coordinate double general\n2 3 3\n1 1 1000\n2 3 -0.5\n1 1 7\n",
        "\u{feff}%%MatrixMarket\tmatrix  coordinate real general \r\n%\r\n\r\n2 3 3\r\n1 1 1000\r\n2 3 -0.5\r\n1 1 7\r\n",
        "%%MatrixMarket matrix coordinate real general\n% c\n\n \t\n  % c\n\t2\t3  3 \n\n1 1 1000\n%\n  2 3\t-0.5 \n\n1 1 7",
        "%%MatrixMarket matrix coordinate real general\n+2 3 3\n+1 01 +1.0D+03\n2 3 -5.0d-1\n1 1 7.\n\n\n",
        "%%MatrixMarket matrix coordinate real general\n2 3 3\n1 1 1e3\n2 3 -.5\n1 1 0.0000000000000000000000000070E+27\n \t",
    ] {
        assert_eq!(coordinate::<f64>(text), expected, "{text:?}");
    }
    let odd = coordinate::<f64>(&format!("{GENERAL}1 1 4\n1 1 NaN\n1 1 -Inf\n1 1 +infinity\n1 1 1e999\n"));
    assert!(odd.value[0].is_nan());
    assert_eq!(odd.value[1..], [f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY]);
}

#[test]
fn fields_and_symmetries() {
    let kinds = [
        ("general", Symmetry::General),
        ("symmetric", Symmetry::Symmetric),
        ("skew-symmetric", Symmetry::Skew),
        ("hermitian", Symmetry::Symmetric),
    ];
    for (name, symmetry) in kinds {
        for (field, values, read_as) in [
            ("real", ["0.5", "-2e1"], [0.5, -20.0]),
            (
                "integer",
                ["+12345678901234567890123", "-9007199254740993"],
                [12345678901234567890123.0, -9007199254740992.0],
            ),
            ("unsigned-integer", ["3", "007"], [3.0, 7.0]),
            ("pattern", ["", ""], [1.0, 1.0]),
        ] {
            if field == "pattern" && symmetry == Symmetry::Skew {
                continue;
            }
            let [v, w] = values;
            let text = format!("%%MatrixMarket matrix coordinate {field} {name}\n3 3 2\n2 1 {v}\n3 1 {w}\n");
            let a = coordinate::<f64>(&text);
            assert_eq!((a.row, a.col, a.symmetry), (vec![1, 2], vec![0, 0], symmetry), "{text}");
            assert_eq!(a.value, read_as, "{text}");
            assert_eq!(coordinate::<f32>(&text).value, read_as.map(|v| v as f32), "{text}");
            if field == "pattern" {
                continue;
            }
            let (body, full) = match symmetry {
                Symmetry::General => (format!("2 1\n{v}\n{w}\n"), read_as.to_vec()),
                Symmetry::Symmetric => {
                    (format!("2 2\n{v}\n{w}\n1\n"), vec![read_as[0], read_as[1], read_as[1], 1.0])
                }
                Symmetry::Skew => {
                    let [v, w] = read_as;
                    (
                        format!("3 3\n{}\n{}\n8\n", values[0], values[1]),
                        vec![0., v, w, -v, 0., 8., -w, -8., 0.],
                    )
                }
            };
            let text = format!("%%MatrixMarket matrix array {field} {name}\n{body}");
            let Content::Array { rows, cols, values } = parse::<f64>(text.as_bytes()).unwrap() else {
                panic!("{text}")
            };
            assert_eq!(values, full, "{text}");
            assert_eq!(rows * cols, full.len());
        }
    }
    let a = coordinate::<f64>(&format!("{SKEW}2 2 2\n1 1 -0.0\n2 1 3\n"));
    assert_eq!(a.value, [0.0, 3.0]);
}

#[test]
fn empty_matrices() {
    for (rows, cols) in [(0, 0), (0, 5), (5, 0), (i32::MAX as usize, i32::MAX as usize)] {
        let a = coordinate::<f64>(&format!("{GENERAL}{rows} {cols} 0\n"));
        assert_eq!((a.rows, a.cols, a.value.len()), (rows, cols, 0));
    }
    for banner in [
        ARRAY,
        "%%MatrixMarket matrix array real symmetric\n",
        "%%MatrixMarket matrix array real skew-symmetric\n",
    ] {
        let content = parse::<f64>(format!("{banner}0 0").as_bytes()).unwrap();
        assert_eq!(content, Content::Array { rows: 0, cols: 0, values: vec![] });
    }
    let content = parse::<f64>(b"%%MatrixMarket matrix array real skew-symmetric\n1 1\n").unwrap();
    assert_eq!(content, Content::Array { rows: 1, cols: 1, values: vec![0.0] });
    let content = parse::<f64>(format!("{ARRAY}0 2147483647\n").as_bytes()).unwrap();
    assert_eq!(content, Content::Array { rows: 0, cols: 2147483647, values: vec![] });
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
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
fn writing() {
    let folder = Folder::new("writing");
    let a = Coordinate {
        rows: 3,
        cols: 3,
        row: vec![0, 2, 2, 2],
        col: vec![0, 0, 1, 1],
        value: vec![0.1, -1.0, 1e-300, 1e16],
        symmetry: Symmetry::Symmetric,
    };
    let entries = |a: &Coordinate<f64>| {
        let columns = a.row.clone().into_iter().zip(a.col.clone()).zip(a.value.clone());
        columns.map(|((r, c), v)| (r, c, v)).collect::<Vec<_>>()
    };
    let mut text = Vec::new();
    write_to(&mut text, &Content::Coordinate(a.clone())).unwrap();
    let expected = format!("{SYMMETRIC}3 3 4\n1 1 0.1\n3 1 -1\n3 2 1e-300\n3 2 1e16\n");
    assert_eq!(String::from_utf8(text).unwrap(), expected);

    for name in ["a.mtx", "a.mtx.gz", "A.MTX.GZ"] {
        let path = folder.0.join(name);
        write(&path, &Content::Coordinate(a.clone())).unwrap();
        let zipped = std::fs::read(&path).unwrap().starts_with(b"\x1f\x8b");
        assert_eq!(zipped, name.ends_with("gz") || name.ends_with("GZ"), "{name}");
        assert_eq!(read(&path).unwrap(), Content::Coordinate(a.clone()));
        write_coordinate(&path, (3, 3), Symmetry::Symmetric, 4, entries(&a)).unwrap();
        assert_eq!(read(&path).unwrap(), Content::Coordinate(a.clone()));
        write_array(&path, (2, 2), &[1.0f32, 2.5, f32::INFINITY, -0.0]).unwrap();
        let values = vec![1.0f32, 2.5, f32::INFINITY, -0.0];
        assert_eq!(read(&path).unwrap(), Content::Array { rows: 2, cols: 2, values });
    }

    let path = folder.0.join("wrong.mtx");
    let says = |result: Result<(), WriteError>| result.unwrap_err().to_string();
    let one = |entry: (u32, u32, f64), symmetry| says(write_coordinate(&path, (3, 3), symmetry, 1, [entry]));
    let range = "expected entries within 3 rows and 3 columns, found one in row 0, column 3 (counted from 0)";
    assert_eq!(one((0, 3, 1.0), Symmetry::General), range);
    let upper = "expected entries of the lower triangle only, as the matrix is symmetric, found 1 in row 0, column 2 (counted from 0)";
    assert_eq!(one((0, 2, 1.0), Symmetry::Symmetric), upper);
    assert!(one((2, 2, 1.0), Symmetry::Skew).contains("skew-symmetric, found 1 in row 2, column 2"));
    let general = Symmetry::General;
    let count = says(write_coordinate(&path, (3, 3), general, 2, [(0, 0, 1.0)]));
    assert_eq!(count, "expected 2 entries, found 1");
    let square = says(write_coordinate(&path, (3, 4), Symmetry::Skew, 0, [(0, 0, 1.0)]));
    assert_eq!(square, "expected as many rows as columns in a symmetric matrix, found 3 by 4");
    let large = says(write_coordinate(&path, (1 << 31, 4), general, 0, [(0, 0, 1.0)]));
    assert_eq!(large, "expected at most 2147483647 rows and columns, found 2147483648 by 4");
    assert_eq!(says(write_array(&path, (2, 2), &[1.0])), "expected 2 * 2 values, found 1");
    let short = Content::Coordinate(Coordinate { row: vec![0], ..a });
    assert_eq!(
        says(write(&path, &short)),
        "expected as many rows as columns and values, found 1 rows, 4 columns, 4 values"
    );
    let nowhere = folder.0.join("no/such/folder.mtx");
    assert!(says(write_array(&nowhere, (1, 1), &[1.0])).starts_with(&format!("{}: ", nowhere.display())));
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in prop::collection::vec((0u32..50, 0u32..50, any::<f64>()), 0..300), skew: bool) {
        // proptest's f64 has no NaN, which would not equal itself.
        let sets = [
            (Symmetry::General, entries.clone()),
            (
                if skew { Symmetry::Skew } else { Symmetry::Symmetric },
                entries.into_iter().filter(|e| e.0 > e.1 || !skew && e.0 == e.1).collect(),
            ),
        ];
        for (symmetry, entries) in sets {
            let content = Content::Coordinate(Coordinate {
                rows: 50,
                cols: 50,
                row: entries.iter().map(|e| e.0).collect(),
                col: entries.iter().map(|e| e.1).collect(),
                value: entries.iter().map(|e| e.2).collect(),
                symmetry,
            });
            let mut text = Vec::new();
            write_to(&mut text, &content).unwrap();
            prop_assert_eq!(&parse::<f64>(&text).unwrap(), &content);
            let values: Vec<f64> = entries.iter().map(|e| e.2).collect();
            let content = Content::Array { rows: values.len(), cols: 1, values };
            text.clear();
            write_to(&mut text, &content).unwrap();
            prop_assert_eq!(&parse::<f64>(&text).unwrap(), &content);
        }
    }

    #[test]
    fn no_text_makes_it_panic(head in 0usize..6, text in "[0-9 \\n\\r\\t.%eE+-]{0,60}", bytes: Vec<u8>) {
        let head = [GENERAL, PATTERN, SYMMETRIC, SKEW, INTEGER, ARRAY][head];
        let _ = parse::<f64>(format!("{head}{text}").as_bytes());
        let _ = parse::<f32>(&[head.as_bytes(), b"9 9 9\n", &bytes].concat());
        let _ = parse::<f32>(&bytes);
    }
}

fn tables(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tables(&path, found);
        } else if path.file_name().is_some_and(|name| name == "INDEX.tsv") {
            found.push(path);
        }
    }
}

/// Every file in the folders of real matrices, and the counts that their tables give.
#[test]
fn real_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/matrices");
    if !root.is_dir() {
        krysp::testing::skipped(&format!("there are no matrices in {}", root.display()));
        return;
    }
    let mut found = Vec::new();
    tables(&root, &mut found);
    let mut checked = 0;
    for index in found {
        let folder = index.parent().unwrap();
        let table = std::fs::read_to_string(&index).unwrap();
        let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let names = lines.next().unwrap();
        let rows: Vec<Vec<&str>> = lines.collect();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let Some(stem) = name.strip_suffix(".mtx.gz").or(name.strip_suffix(".mtx")) else { continue };
            let row = rows.iter().find(|row| row[0] == stem);
            let cell = |column: &str| {
                let at = names.iter().position(|name| *name == column)?;
                row.and_then(|row| row.get(at).copied())
            };
            let number = |column: &str| cell(column).and_then(|text| text.parse::<usize>().ok());
            checked += 1;
            match read::<f64>(&path) {
                Ok(Content::Coordinate(a)) => {
                    assert_eq!(number("rows").unwrap_or(a.rows), a.rows, "{name}");
                    assert_eq!(number("cols").unwrap_or(a.cols), a.cols, "{name}");
                    let diagonal = a.row.iter().zip(&a.col).filter(|(r, c)| r == c).count();
                    let all = match a.symmetry {
                        Symmetry::General => a.value.len(),
                        _ => 2 * a.value.len() - diagonal,
                    };
                    assert_eq!(number("nnz").unwrap_or(all), all, "{name}");
                    assert_eq!(number("nnz_stored").unwrap_or(a.value.len()), a.value.len(), "{name}");
                    if cell("symmetric") == Some("no") {
                        assert_eq!(a.symmetry, Symmetry::General, "{name}");
                    }
                    assert!(a.value.iter().all(|value| value.is_finite()), "{name}");
                }
                Ok(Content::Array { rows, cols, values }) => {
                    assert_eq!(rows * cols, values.len());
                    assert!(values.iter().all(|value| value.is_finite()), "{name}");
                }
                Err(error) => {
                    assert_eq!(cell("field"), Some("complex"), "{error}");
                    assert!(
                        error.to_string().ends_with("found complex (complex matrices are not supported yet)")
                    );
                }
            }
        }
    }
    assert!(checked > 0, "no matrices beside the tables in {}", root.display());
}
