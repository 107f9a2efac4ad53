//! `krysp generate`

use crate::files::{self, Content};
use crate::{Failure, text};
use clap::Args;
use krysp::testing::matrices::{LARGEST_SIDE, named, names, shape_of, side_of};
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a generated matrix, with the same values on every machine.
#[derive(Args)]
#[command(after_help = "Families, on a cube with N nodes per side, up to 1000:
  p7_N      Laplacian, 7-point stencil; positive definite
  p27_N     Laplacian, 27-point stencil; positive definite
  elastN    linear elasticity, three unknowns per node; positive definite
  st7_N     7-point stencil with random symmetric values; indefinite
  st27_N    27-point stencil with random symmetric values; indefinite

Examples:
  krysp generate p7_20 A.mtx       8,000 unknowns
  krysp generate elast8 A.npz      1,536 unknowns, for SciPy
  krysp generate --list            all other names")]
pub(crate) struct Generate {
    /// Name of the matrix
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// File to write, in the file format of its extension as for `krysp convert`; - is standard output
    #[arg(required_unless_present = "list")]
    to: Option<PathBuf>,
    /// List the names and sizes of the benchmark matrices
    #[arg(long)]
    list: bool,
    /// Make the matrix diagonally dominant: indefinite matrices become positive definite
    #[arg(long)]
    dominant: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (Some(name), Some(to)) = (self.name, self.to) else {
            for name in names() {
                let (rows, cols) = shape_of(name).unwrap_or_default();
                text::say(&format!("{name:<16}{:>11} x {}", text::count(rows), text::count(cols)));
            }
            return Ok(ExitCode::SUCCESS);
        };
        let to_matrix = [("generate to", Some(&*to), Content::Matrix)];
        text::keep_clear(files::check_outputs(&to_matrix)?);
        if let Some(side) = side_of(&name).filter(|side| *side == 0 || *side > LARGEST_SIDE) {
            let (side, most) = (text::count(side), text::count(LARGEST_SIDE));
            return Err(format!("{name}: expected 1 to {most} nodes per side, found {side}").into());
        }
        let matrix = named(&name).ok_or_else(|| {
            format!(
                "unknown matrix `{name}`: `krysp generate --help` shows the families, `--list` all other names"
            )
        })?;
        let matrix = if self.dominant { matrix.diagonally_dominant() } else { matrix };
        files::save_matrix(&to, &matrix.csr::<f64>()?)?;
        if !self.quiet {
            let (rows, cols) = (text::count(matrix.rows), text::count(matrix.cols));
            let size = format!("{rows} x {cols}, {}", text::entries(matrix.nnz()));
            text::say(&format!("{}: {size}", files::shown_output(&to)));
        }
        Ok(ExitCode::SUCCESS)
    }
}
