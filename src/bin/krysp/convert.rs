//! `krysp convert`

use crate::files::{self, Content};
use crate::{Failure, text};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Converts a matrix or a vector from one file format to another.
///
/// The format of the input is detected from its content, that of the output follows from its extension: .mtx Matrix Market, .npz
/// SciPy (vectors .npy), .petsc or .bin PETSc, .rb or .hb Rutherford-Boeing; each also with .gz. Other extensions are an error. -
/// is standard input, or Matrix Market on standard output.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp convert A.mtx A.npz             for scipy.sparse.load_npz
  krysp convert A.npz A.mtx.gz          a gzipped Matrix Market file
  krysp convert A.mtx A.petsc           for PETSc's MatLoad
  krysp convert --vector b.mtx b.npy    a right-hand side for numpy.load
  krysp convert A.npz - | head          Matrix Market on standard output")]
pub(crate) struct Convert {
    /// File to read, or - for standard input
    from: PathBuf,
    /// File to write, or - for standard output
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
        let content = if self.vector { Content::Vector } else { Content::Matrix };
        text::keep_clear(files::check_outputs(&[("convert to", Some(&self.to), content)])?);
        let about = if self.vector {
            let vector = files::vector(&self.from, None)?;
            files::save_vector(&self.to, &vector)?;
            text::counted(vector.len(), "value")
        } else {
            let matrix = files::matrix(&self.from)?.matrix;
            files::save_matrix(&self.to, &matrix)?;
            let (rows, cols) = (text::count(matrix.rows()), text::count(matrix.cols()));
            format!("{rows} x {cols}, {}", text::entries(matrix.nnz()))
        };
        if !self.quiet {
            text::say(&format!("{}: {about}", files::shown_output(&self.to)));
        }
        Ok(ExitCode::SUCCESS)
    }
}
