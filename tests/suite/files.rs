//! Matrices and vectors in files of other programs.

use krysp::Csr;
use krysp::io::{
    read_columns, read_columns_from, read_matrix, read_matrix_from, read_vector, write_columns,
    write_columns_to, write_matrix, write_vector,
};
use krysp::testing::matrices;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files_{name}"))
}

fn same(one: &Csr<f64>, other: &Csr<f64>) -> bool {
    one.rows() == other.rows() && one.cols() == other.cols() && one.triplets().eq(other.triplets())
}

/// Files that SciPy wrote.
#[test]
fn files_of_scipy_are_read() {
    let expected: Csr<f64> = read_matrix(data("scipy.mtx")).unwrap();
    assert_eq!((expected.rows(), expected.cols(), expected.nnz()), (7, 5, 14));
    for name in ["scipy_csr.npz", "scipy_csc.npz", "scipy_coo.npz"] {
        assert!(same(&read_matrix(data(name)).unwrap(), &expected), "{name}");
    }
    let expected: Csr<f64> = read_matrix(data("scipy_rb.mtx")).unwrap();
    assert!(same(&read_matrix(data("scipy.rb")).unwrap(), &expected));
    assert_eq!(read_vector::<f64>(data("scipy.npy")).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

/// Files in every format, gzipped or not, are read back bitwise as they were written.
#[test]
fn every_form_keeps_every_bit() {
    let symmetric = matrices::stencil7(4).csr::<f64>().unwrap();
    let values: Vec<f64> = (0..20).map(|k| (1.0 + f64::from(k)).sqrt() * 10f64.powi(k - 10)).collect();
    let entries: Vec<(usize, usize, f64)> = values
        .iter()
        .enumerate()
        .map(|(k, &v)| (k * 7 % 9, k * 5 % 13, if k % 3 == 0 { -v } else { v }))
        .collect();
    let rectangular = Csr::from_triplets(9, 13, &entries).unwrap();
    let empty = Csr::from_triplets(3, 2, &[] as &[(usize, usize, f64)]).unwrap();
    for (kind, matrix) in [("symmetric", &symmetric), ("rectangular", &rectangular), ("empty", &empty)] {
        for ending in ["mtx", "mtx.gz", "npz", "npz.gz", "petsc", "bin", "petsc.gz", "rb", "rb.gz"] {
            let path = scratch(&format!("{kind}.{ending}"));
            write_matrix(&path, matrix).unwrap();
            let back = read_matrix::<f64>(&path).unwrap_or_else(|error| panic!("{kind}, {ending}: {error}"));
            assert!(same(&back, matrix), "{kind}, {ending}");
        }
    }
    for ending in ["mtx", "mtx.gz", "npy", "npy.gz", "petsc", "petsc.gz"] {
        let path = scratch(&format!("vector.{ending}"));
        write_vector(&path, &values).unwrap();
        assert_eq!(read_vector::<f64>(&path).unwrap(), values, "{ending}");
    }
}

/// Fixed Fortran fields: without blanks between them, with all forms of exponents, with right-hand sides, and one triangle.
#[test]
fn fields_of_fortran_are_read() {
    let text = "A title                                                                 KEY     \n\
        \x20            5             1             1             2             1\n\
        rsa                        3             3             4             0\n\
        (4I2)           (4I2)           (1P,2D9.2)          (3F5.1)             \n\
        F                          1             0\n\
        \x201 3 4 5\n\
        \x201 2 2 3\n\
        \x201.25D+00-1.00d+00\n\
        \x202.5E-01\x20\x201.5+001\n\
        \x20 1.0  2.0  3.0\n";
    let path = scratch("fields.rsa");
    std::fs::write(&path, text).unwrap();
    let matrix = read_matrix::<f64>(&path).unwrap();
    let found: Vec<_> = matrix.triplets().collect();
    assert_eq!(found, [(0, 0, 1.25), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 0.25), (2, 2, 15.0)]);
}

/// A truncated file is read as the same matrix if only unimportant bytes are missing, otherwise it is an error. No damage causes
/// a panic.
#[test]
fn damaged_files_are_refused() {
    let matrix = matrices::stencil7(2).csr::<f64>().unwrap();
    for ending in ["npz", "petsc", "rb"] {
        let whole = scratch(&format!("whole.{ending}"));
        write_matrix(&whole, &matrix).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let path = scratch(&format!("damaged.{ending}"));
        // without its last bytes, which may be a newline or the length of a comment, a file may be complete
        for length in (0..bytes.len() - 4).step_by(3) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            match read_matrix::<f64>(&path) {
                Ok(read) => assert!(same(&read, &matrix), "{ending}, {length} bytes"),
                Err(error) => assert!(error.to_string().contains("damaged"), "{ending}: {error}"),
            }
        }
        // the result may be anything but a panic
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x55;
            std::fs::write(&path, &wrong).unwrap();
            let _ = read_matrix::<f64>(&path);
        }
    }
}

#[test]
fn an_unknown_extension_is_refused_with_those_that_are_known() {
    let matrix = matrices::stencil7(2).csr::<f64>().unwrap();
    for name in ["a.mat", "a.npy", "a", "a.gz", "mtx"] {
        let error = write_matrix(scratch(name), &matrix).unwrap_err().to_string();
        assert!(error.contains(".mtx, .npz, .petsc") && !scratch(name).exists(), "{error}");
    }
    for name in ["v.npz", "v.xyz", "v.rb"] {
        let error = write_vector(scratch(name), &[1.0]).unwrap_err().to_string();
        assert!(error.contains(".mtx, .npy, .petsc") && !scratch(name).exists(), "{error}");
    }
}

#[test]
fn a_pipe_is_read_as_a_file_is() {
    let path = scratch("pipe.mtx.gz");
    let matrix = matrices::stencil7(3).csr::<f64>().unwrap();
    write_matrix(&path, &matrix).unwrap();
    let from = read_matrix_from::<f64>("pipe", std::fs::File::open(&path).unwrap()).unwrap();
    assert!(same(&from, &matrix));
    let mut text = vec![];
    krysp::io::write_matrix_to(&mut text, &matrix).unwrap();
    assert!(same(&read_matrix_from("text", &text[..]).unwrap(), &matrix));
    let error = read_matrix_from::<f64>("text", &text[..text.len() - 9]).unwrap_err().to_string();
    assert!(error.starts_with("text, line "), "{error}");
}

#[test]
fn what_a_file_cannot_hold_is_said() {
    let matrix = matrices::stencil7(2).csr::<f64>().unwrap();
    let refused = |outcome: krysp::Result<()>| outcome.unwrap_err().to_string();
    assert!(refused(write_vector(scratch("vector.rb"), &[1.0])).contains(".npy"));
    let path = scratch("matrix.petsc");
    write_matrix(&path, &matrix).unwrap();
    assert!(read_vector::<f64>(&path).is_err());
    write_vector(&path, &[1.0, 2.0]).unwrap();
    assert!(read_matrix::<f64>(&path).unwrap_err().to_string().contains("found a vector"));
    write_matrix(scratch("two.mtx"), &matrix).unwrap();
    assert!(read_vector::<f64>(scratch("two.mtx")).unwrap_err().to_string().contains("8 columns"));
}

/// Columns keep their number and length, also without entries; those of different lengths are no matrix.
#[test]
fn columns_are_read_as_they_were_written() {
    for columns in [vec![vec![1.0, -2.5], vec![0.1, 3.0], vec![4.0, 5.0]], vec![vec![]; 3], vec![]] {
        write_columns(scratch("columns.mtx"), &columns).unwrap();
        assert_eq!(read_columns::<f64>(scratch("columns.mtx")).unwrap(), columns);
        let mut text = vec![];
        write_columns_to(&mut text, &columns).unwrap();
        assert_eq!(read_columns_from::<f64>("text", &text[..]).unwrap(), columns);
    }
    let ragged = [vec![1.0, 2.0], vec![3.0], vec![4.0, 5.0, 6.0]];
    let error = write_columns(scratch("ragged.mtx"), &ragged).unwrap_err().to_string();
    assert!(error.contains("2 entries in every column") && error.contains("1 in column 2"), "{error}");
    assert!(!scratch("ragged.mtx").exists());
    let sparse = "%%MatrixMarket matrix coordinate real general\n0 3 0\n";
    assert_eq!(read_columns_from::<f64>("text", sparse.as_bytes()).unwrap().len(), 3);
}
