//! The command line of the benches on a GPU.

use super::Result;
use super::cuda::Gpu;
use super::systems::expanded;
use super::{machine, record};
use krysp::{Csr, Cuda, Ehyb, Halo, SymBsr};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Options {
    /// Whether to measure small matrices only.
    pub quick: bool,
    /// Whether to write nothing.
    dry: bool,
    /// The format whose number of rows per block is the number of rows in each run (range of consecutive
    /// rows) of the clustered ordering.
    clusters: Clusters,
    machine: Option<String>,
    out: Option<PathBuf>,
    commit: Option<String>,
    /// `NAME`, `NAME/f32`, `irregular` or `irregular_large`; empty for the usual matrices.
    wanted: Vec<String>,
}

#[derive(Default)]
enum Clusters {
    #[default]
    Halo,
    Ehyb,
    Symmetric,
}

/// A matrix to measure with, and the requested element types.
pub struct Wanted {
    pub name: String,
    pub f64: bool,
    pub f32: bool,
}

impl Options {
    pub fn from_args() -> Result<Options> {
        let mut options = Options::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match &*arg {
                "--quick" => options.quick = true,
                "--dry" => options.dry = true,
                "--parts" => options.clusters = Clusters::Ehyb,
                "--pairs" => options.clusters = Clusters::Symmetric,
                "--machine" => options.machine = Some(args.next().ok_or("--machine needs a name")?),
                "--out" => options.out = Some(args.next().ok_or("--out needs a folder")?.into()),
                "--commit" => options.commit = Some(args.next().ok_or("--commit needs a commit")?),
                // an option that cargo adds
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                matrix => options.wanted.push(matrix.into()),
            }
        }
        Ok(options)
    }

    /// The requested matrices, or the usual ones.
    pub fn matrices(&self, usual: &[&str]) -> Vec<Wanted> {
        let all: Vec<String> = usual.iter().map(|&name| name.into()).collect();
        let wanted = expanded(if self.wanted.is_empty() { &all } else { &self.wanted });
        let parse = |wish: &String| {
            let (name, f64, f32) = match (wish.strip_suffix("/f64"), wish.strip_suffix("/f32")) {
                (Some(name), _) => (name, true, false),
                (_, Some(name)) => (name, false, true),
                _ => (&**wish, true, true),
            };
            Wanted { name: name.into(), f64, f32 }
        };
        wanted.iter().map(parse).collect()
    }

    /// Number of rows in each run of the clustered ordering. A run is a range of consecutive rows with few
    /// entries in columns outside it.
    pub fn rows_per_block(&self, gpu: &Cuda, csr: &Csr<f64>) -> Option<usize> {
        match self.clusters {
            Clusters::Halo => Some(Halo::rows_per_block(gpu, csr)),
            Clusters::Ehyb => Ehyb::<f64>::rows_per_part(gpu, csr.rows()).ok(),
            Clusters::Symmetric => SymBsr::rows_per_block(csr).ok(),
        }
    }

    /// The first columns of every row: date, commit and device.
    pub fn stamp(&self, gpu: &Gpu) -> String {
        let commit = self.commit.clone().unwrap_or_else(machine::commit);
        format!("{},{commit},{}", machine::date(), gpu.name())
    }

    /// Appends rows to a CSV file in the machine's folder of `benches/record`.
    pub fn append(&self, gpu: &Gpu, file: &str, header: &str, rows: &[String]) -> Result<()> {
        if self.dry || rows.is_empty() {
            return Ok(());
        }
        let machine = self.machine.clone().unwrap_or_else(|| gpu.machine());
        let folder =
            self.out.as_deref().map_or_else(|| record::folder(&machine), |out: &Path| out.join(&machine));
        record::append(&folder, file, header, rows)
    }
}
