//! `krysp calibrate`

use crate::{Failure, text::line};
use clap::Args;
use std::process::ExitCode;
use std::time::Instant;

/// Measures for a few seconds what each format costs on this CPU, so that the fastest is chosen here.
///
/// What was found is kept in the folder KRYSP_CACHE, or in ~/.cache/krysp, and holds for this machine and this number of threads.
/// Delete the file to go back to the built-in prices.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp calibrate
  RAYON_NUM_THREADS=1 krysp calibrate      for programs with one thread")]
pub(crate) struct Calibrate {
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

impl Calibrate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let calibration = krysp::calibrate()?;
        if !self.quiet {
            println!("{calibration}");
            let place = calibration.path().map_or("nowhere".into(), |path| path.display().to_string());
            line("kept", &format!("in {place}, after {:.1} s", started.elapsed().as_secs_f64()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
