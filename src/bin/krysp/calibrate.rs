//! `krysp calibrate`

use crate::{Failure, text::line};
use clap::Args;
use std::process::ExitCode;
use std::time::Instant;

/// Measures the costs of formats and preconditioners on this CPU, so that the fastest ones are chosen here
///
/// The results are stored in the folder KRYSP_CACHE, or in ~/.cache/krysp, and apply to this machine with this number of threads.
/// Delete the files to return to the built-in costs.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp calibrate
  RAYON_NUM_THREADS=1 krysp calibrate      for programs with one thread")]
pub(crate) struct Calibrate {
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

impl Calibrate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let calibration = krysp::calibrate()?;
        let costs = krysp::plan::calibrate_costs()?;
        if !self.quiet {
            println!("{calibration}");
            println!("\n{:16} {:>16} {:>16}", "preconditioner", "setup", "application");
            for (preconditioner, [setup, application]) in costs {
                println!("{preconditioner:16} {setup:>15.2}x {application:>15.2}x");
            }
            let place = calibration.path().map_or("nowhere".into(), |path| path.display().to_string());
            line("stored", &format!("in {place}, after {:.1} s", started.elapsed().as_secs_f64()));
        }
        Ok(ExitCode::SUCCESS)
    }
}
