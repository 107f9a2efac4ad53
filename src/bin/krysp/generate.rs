//! `krysp generate`

use crate::files::{self, Content};
use crate::{Failure, text};
use clap::Args;
use krysp::testing::matrices::{LARGEST_SIDE, named, names, shape_of, side_of};
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes a matrix that is made by a formula: the same numbers on every machine.
#[derive(Args)]
#[command(after_help = "Families, with N nodes a side of a cube, up to 1000:
  p7_N      Laplacian, each node and its 6 neighbours; positive definite
  p27_N     Laplacian, each node and its 26 neighbours; positive definite
  elastN    linear elasticity, three unknowns a node; positive definite
  st7_N     the pattern of p7_N, random symmetric values; indefinite
  st27_N    the pattern of p27_N, random symmetric values; indefinite

Examples:
  krysp generate p7_20 A.mtx       8,000 unknowns
  krysp generate elast8 A.npz      1,536 unknowns, for SciPy
  krysp generate --list            the other names")]
pub(crate) struct Generate {
    /// The name of the matrix
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// The file to write, in the form of its extension as for `krysp convert`; - for standard output
    #[arg(required_unless_present = "list")]
    to: Option<PathBuf>,
    /// List the matrices of the benches by name, with their sizes
    #[arg(long)]
    list: bool,
    /// Make the diagonal as large as the rest of each row: indefinite matrices become positive definite
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
            return Err(format!("{name}: {side} nodes a side; 1 to {most} are possible").into());
        }
        let matrix = named(&name).ok_or_else(|| {
            format!(
                "there is no matrix `{name}`: `krysp generate --help` shows families, `--list` other names"
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
