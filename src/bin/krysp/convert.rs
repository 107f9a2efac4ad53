//! `krysp convert`

use crate::{Failure, text};
use clap::Args;
use krysp::io::{read_matrix, read_vector, write_matrix, write_vector};
use std::path::PathBuf;
use std::process::ExitCode;

/// Converts a matrix, or a vector, from one form of file to another.
///
/// The form of the first file is recognised by its content, that of the second follows from its name: .mtx Matrix Market,
/// .npz SciPy (vectors .npy), .petsc or .bin PETSc, .rb Rutherford-Boeing; any of them with .gz.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp convert A.mtx A.npz             for scipy.sparse.load_npz
  krysp convert A.npz A.mtx.gz          a gzipped Matrix Market file
  krysp convert A.mtx A.petsc           for PETSc's MatLoad
  krysp convert --vector b.mtx b.npy    a right-hand side for numpy.load")]
pub(crate) struct Convert {
    /// The file to read
    from: PathBuf,
    /// The file to write
    to: PathBuf,
    /// The files hold a vector
    #[arg(long)]
    vector: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

impl Convert {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let about = if self.vector {
            let vector: Vec<f64> = read_vector(&self.from)?;
            write_vector(&self.to, &vector)?;
            text::counted(vector.len(), "value")
        } else {
            let matrix = read_matrix::<f64>(&self.from)?;
            write_matrix(&self.to, &matrix)?;
            let (rows, cols) = (text::count(matrix.rows()), text::count(matrix.cols()));
            format!("{rows} x {cols}, {}", text::entries(matrix.nnz()))
        };
        if !self.quiet {
            println!("{}: {about}", self.to.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}
