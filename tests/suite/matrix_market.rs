//! Reading well-formed Matrix Market files, and writing files.

use super::matrix_market_errors::{ARRAY, Folder, GENERAL, SKEW, SYMMETRIC};
use krysp::io::matrix_market::{
    Content, Coordinate, Number, Symmetry, WriteError, parse, read, write, write_array, write_coordinate,
    write_to,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn coordinate<T: Number>(text: &str) -> Coordinate<T> {
    match parse(text.as_bytes()) {
        Ok(Content::Coordinate(a)) => a,
        Ok(_) => panic!("{text:?} is read as an array"),
        Err(error) => panic!("{text:?}: {error}"),
    }
}

#[test]
fn files_that_deviate_from_the_standard_are_read() {
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
    fn written_files_are_read_back_unchanged(entries in prop::collection::vec((0u32..50, 0u32..50, any::<f64>()), 0..300), skew: bool) {
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

/// Reads every file in the folders of real matrices, and compares counts with the tables there.
#[test]
fn real_files() {
    let root = krysp::testing::shared_matrices();
    if !root.is_dir() {
        let why = format!("no matrices in {}", root.display());
        return krysp::testing::skipped_unless_required("KRYSP_REQUIRE_MATRICES", &why);
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
    assert!(checked > 0, "no matrices next to the tables in {}", root.display());
}
