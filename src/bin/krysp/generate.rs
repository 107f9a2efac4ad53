//! `krysp generate`

use crate::{Failure, text};
use clap::Args;
use krysp::io::write_matrix;
use krysp::testing::matrices::{named, names};
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
    /// The file to write; its name says in which form, as for `krysp convert`
    #[arg(required_unless_present = "list")]
    to: Option<PathBuf>,
    /// List the matrices of the benches by name
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
            names().for_each(|name| println!("{name}"));
            return Ok(ExitCode::SUCCESS);
        };
        let matrix = named(&name);
        let matrix = matrix.ok_or_else(|| {
            format!(
                "there is no matrix `{name}`: `krysp generate --help` shows families, `--list` other names"
            )
        })?;
        let matrix = if self.dominant { matrix.diagonally_dominant() } else { matrix };
        write_matrix(&to, &matrix.csr::<f64>()?)?;
        if !self.quiet {
            let (rows, cols) = (text::count(matrix.rows), text::count(matrix.cols));
            println!("{}: {rows} x {cols}, {}", to.display(), text::entries(matrix.nnz()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
