//! `krysp check`

use crate::files;
use crate::formats::Device;
use crate::text::{self, bad, good, line};
use crate::{Failure, formats};
use clap::Args;
use krysp::testing::laws::{self, Agreement, Conversion, Law};
use krysp::testing::matrices::Triplets;
use krysp::{Csr, Error, Format};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks matrix-vector products in every format against a simple reference loop over the entries.
///
/// Use it before you report wrong results. It runs the library's own tests of each format with your matrix: products and
/// residuals are correct to rounding, fused operations agree with the separate ones, results do not depend on the number of
/// threads, and conversion loses nothing. The first difference is printed; its row is counted from 1.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp check A.mtx
  krysp check A.mtx --format sell

Exit codes: 0 all correct, 1 a difference was found, 2 invalid input.")]
pub(crate) struct Check {
    /// File of the matrix, in any file format that `krysp convert` reads; - is standard input
    matrix: PathBuf,
    #[arg(long, help = formats::help("Check only this format"))]
    format: Option<String>,
    /// Device: cpu, gpu, or gpu:1 for the second GPU; all devices if not given
    #[arg(long)]
    device: Option<String>,
    /// Print only differences and errors
    #[arg(short, long)]
    quiet: bool,
}

/// The laws (tests) of one format, each with its outcome; `Err` says why the format cannot store the matrix.
type Checked = Result<Vec<(&'static str, Law)>, Error>;

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let devices = match self.device.as_deref() {
            Some(name) => vec![Device::named(name)?],
            None => Device::all(),
        };
        let wanted = self.format.as_deref().map(formats::known).transpose()?;
        let matrix = files::matrix(&self.matrix)?.matrix;
        // comparisons with NaN or infinity would fail
        krysp::io::check_finite(&self.matrix, &matrix)?;
        let entries = matrix.triplets().map(|(row, col, value)| (row as u32, col as u32, value)).collect();
        let triplets = Triplets { rows: matrix.rows(), cols: matrix.cols(), entries };
        let (mut compared, mut wrong) = (0, 0);
        for device in &devices {
            for (format, checked) in device.check(&matrix, &triplets, wanted)? {
                let name = format!("{format} on {}", device.name());
                match checked {
                    Ok(laws) => {
                        compared += laws.len();
                        wrong += laws.iter().filter(|(_, law)| law.is_err()).count();
                        self.print(&name, &laws);
                    }
                    Err(why) if wanted.is_some() => return Err(why.into()),
                    Err(why) if !self.quiet => text::say(&format!("{name:<20}not suitable: {why}")),
                    Err(_) => {}
                }
            }
        }
        if !self.quiet {
            let laws = text::counted(compared, "law");
            line(
                "result",
                &if wrong == 0 {
                    good(&format!("{laws}, all ok"))
                } else {
                    bad(&format!("{wrong} of {laws} broken"))
                },
            );
        }
        Ok(ExitCode::from(u8::from(wrong > 0)))
    }

    /// Prints a line for each law.
    fn print(&self, name: &str, laws: &[(&str, Law)]) {
        for (law, outcome) in laws {
            match outcome {
                Ok(()) if self.quiet => {}
                Ok(()) => text::say(&format!("{name:<20}{law:<36}ok")),
                Err(broken) => text::say(&format!("{name:<20}{law:<36}{}", bad(&broken.to_string()))),
            }
        }
    }
}

impl Device {
    /// Checks every format that is available on this device, or only the wanted one.
    fn check(
        &self,
        a: &Csr<f64>,
        triplets: &Triplets,
        wanted: Option<&str>,
    ) -> krysp::Result<Vec<(&'static str, Checked)>> {
        let mut all = vec![];
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        match self {
            Device::Host => {
                macro_rules! check {
                    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
                        if is_wanted(stringify!($format)) {
                            all.push((stringify!($format), on_host::<krysp::$format<f64>>(a, triplets)));
                        }
                    )*};
                }
                krysp::each_format!(check);
            }
            #[cfg(feature = "cuda")]
            Device::Gpu(gpu) => {
                macro_rules! check {
                    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
                        krysp::where_on_gpu!($memory, if is_wanted(stringify!($format)) {
                            all.push((stringify!($format), on_gpu::<krysp::$format<f64>>(a, triplets, gpu)));
                        });
                    )*};
                }
                krysp::each_format!(check);
            }
        }
        Ok(all)
    }
}

fn on_host<F: Format<f64>>(a: &Csr<f64>, triplets: &Triplets) -> Checked {
    let format = F::new(a)?;
    let conversion = Conversion { build: &F::new, may_refuse: &|_| true };
    let threads = || -> Law {
        let unexpected =
            |error: &dyn std::fmt::Display| laws::Broken::new("threads start", error.to_string());
        let pools = [1, 2, 3].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build());
        let pools = pools.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| unexpected(&error))?;
        laws::same_on_all_threads(&|| F::new(a).map_err(|error| unexpected(&error)), &pools)
    };
    Ok(vec![
        ("product", laws::product(&format, triplets)),
        ("residual in twice the precision", laws::precise_residual(&format, a)),
        ("product overwrites y", laws::stale_values(&format)),
        ("product repeats bitwise", laws::second_product(&format)),
        ("fused operations", laws::operator_fusions(&format, Agreement::Bitwise)),
        ("same on 1, 2 and 3 threads", threads()),
        ("wrong sizes are errors", laws::sizes_refused(&format)),
        ("conversion and back", laws::round_trip(&format, a)),
        ("slots and bytes add up", laws::accounting(&format)),
        ("new values", laws::refresh(triplets, &conversion)),
    ])
}

#[cfg(feature = "cuda")]
fn on_gpu<F: krysp::formats::OnDevice<f64>>(a: &Csr<f64>, triplets: &Triplets, gpu: &krysp::Cuda) -> Checked {
    let format = F::on(gpu, a)?;
    Ok(vec![
        ("product", laws::product(&format, triplets)),
        ("residual in twice the precision", laws::precise_residual(&format, a)),
        ("product overwrites y", laws::stale_values(&format)),
        ("product repeats bitwise", laws::second_product(&format)),
        ("fused operations", laws::operator_fusions(&format, Agreement::Rounding)),
    ])
}
