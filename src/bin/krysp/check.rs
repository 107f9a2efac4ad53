//! `krysp check`

use crate::files;
use crate::formats::Device;
use crate::text::{self, bad, good, line};
use crate::{Failure, formats};
use clap::Args;
use krysp::testing::laws::{self, Agreement, Conversion, Law, Violation};
use krysp::testing::matrices::Triplets;
use krysp::{Csr, Error, Format, Real};
use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks matrix-vector products in every format against a simple reference loop over the entries.
///
/// Use it before you report wrong results. It runs the library's own tests of each format with your matrix, in f64 and, unless
/// values are too large or too small for it, in f32: products and residuals are correct to rounding, fused operations and products
/// of several vectors agree with the separate ones, results do not depend on the number of threads, new values are taken, and
/// conversion loses nothing. The first difference is printed; its row is counted from 1.
///
/// SymCsr and SymBsr store one triangle. If your matrix is symmetric only to rounding, they are checked with the exactly symmetric
/// matrix that has its lower triangle.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp check A.mtx
  krysp check A.mtx --format sell
  krysp check A.mtx --format sell --device cpu

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

/// Numbers of vectors for which products are checked: some kernels process two or more at once, and up to
/// eight.
const COLUMNS: [usize; 2] = [3, 8];

/// Returns whether the checks hold in `f32`, too: sums of squares neither overflow nor underflow, and no
/// value loses digits because it is tiny.
fn fits_single(matrix: &Csr<f64>) -> bool {
    let largest = matrix.entries().iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let tiny = |value: &f64| *value != 0.0 && value.abs() < 1e-30;
    let sums = largest * matrix.cols() as f64;
    (largest == 0.0 || largest > 1e-10 && sums < 1e15) && !matrix.entries().iter().any(tiny)
}

/// The checks of one format, each with its outcome; `Err` says why the format cannot store the matrix.
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
        let single = fits_single(&matrix);
        let (mut compared, mut wrong) = (0, 0);
        for device in &devices {
            let mut all = device.check::<f64>(&triplets, wanted)?;
            if single {
                all.extend(device.check::<f32>(&triplets, wanted)?);
            }
            for (format, element, checked) in all {
                let name = format!("{format} on {}, {element}", device.name());
                match checked {
                    Ok(checks) => {
                        compared += checks.len();
                        wrong += checks.iter().filter(|(_, outcome)| outcome.is_err()).count();
                        self.print(&name, &checks);
                    }
                    Err(why) if wanted.is_some() => return Err(why.into()),
                    Err(why) if !self.quiet => text::say(&format!("{name:<25}not suitable: {why}")),
                    Err(_) => {}
                }
            }
        }
        if !self.quiet {
            let checks = text::counted(compared, "check");
            let result = match wrong {
                0 => good(&format!("{checks}, all ok")),
                _ => bad(&format!("{wrong} of {checks} failed")),
            };
            line("result", &result);
            if !single {
                line("not checked", "f32: values are too large or too small for it");
            }
        }
        Ok(ExitCode::from(u8::from(wrong > 0)))
    }

    /// Prints a line for each check.
    fn print(&self, name: &str, checks: &[(&str, Law)]) {
        for (check, outcome) in checks {
            match outcome {
                Ok(()) if self.quiet => {}
                Ok(()) => text::say(&format!("{name:<25}{check:<36}ok")),
                Err(broken) => text::say(&format!("{name:<25}{check:<36}{}", bad(&broken.to_string()))),
            }
        }
    }
}

/// Name of a format, of an element type, and the checks.
type OfFormat = (&'static str, &'static str, Checked);

impl Device {
    /// Checks every format that is available on this device, or only the wanted one.
    fn check<T: Real>(&self, triplets: &Triplets, wanted: Option<&str>) -> krysp::Result<Vec<OfFormat>> {
        let mut all = vec![];
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
        match self {
            Device::Host => {
                macro_rules! check {
                    ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {$(
                        if is_wanted(stringify!($format)) {
                            let checked = on_host::<T, krysp::$format<T>>(triplets);
                            all.push((stringify!($format), T::NAME, checked));
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
                            let checked = on_gpu::<T, krysp::$format<T>>(triplets, gpu);
                            all.push((stringify!($format), T::NAME, checked));
                        });
                    )*};
                }
                krysp::each_format!(check);
            }
        }
        Ok(all)
    }
}

/// The matrix with which a format is checked. For a format that stores one triangle, entries above the diagonal are
/// replaced by their mirror images, from which they differ by rounding at most: otherwise the format refuses the matrix.
fn exact<T: Real, F: Format<T>>(given: &Triplets) -> krysp::Result<Cow<'_, Triplets>> {
    if !F::NAME.starts_with("symmetric") {
        return Ok(Cow::Borrowed(given));
    }
    F::new(&given.csr::<T>()?)?;
    let a = given.csr::<f64>()?;
    let mut exact = given.clone();
    for (row, col, value) in exact.entries.iter_mut().filter(|(row, col, _)| col > row) {
        *value = a.get(*col as usize, *row as usize).unwrap_or(*value);
    }
    Ok(Cow::Owned(exact))
}

fn on_host<T: Real, F: Format<T>>(given: &Triplets) -> Checked {
    let triplets = &*exact::<T, F>(given)?;
    let a = triplets.csr::<T>()?;
    let format = F::new(&a)?;
    let conversion = Conversion { build: &F::new, may_refuse: &|_| true };
    let build =
        || F::new(&a).map_err(|error| Violation::new("a format takes a matrix again", error.to_string()));
    Ok(vec![
        ("product", laws::product(&format, triplets)),
        ("residual in twice the precision", laws::precise_residual(&format, &a)),
        ("product overwrites y", laws::stale_values(&format)),
        ("product repeats bitwise", laws::second_product(&format)),
        ("fused operations", laws::operator_fusions(&format, Agreement::Bitwise)),
        ("products of several vectors", laws::several_products(&format, &COLUMNS, Agreement::Bitwise)),
        ("same on 1 to 32 threads", laws::same_on_all_threads(&build)),
        ("wrong sizes are errors", laws::sizes_refused(&format)),
        ("conversion and back", laws::round_trip(&format, &a)),
        ("slots and bytes add up", laws::accounting(&format)),
        ("new values", laws::refresh(triplets, &conversion)),
    ])
}

#[cfg(feature = "cuda")]
fn on_gpu<T: Real, F: krysp::formats::OnDevice<T>>(given: &Triplets, gpu: &krysp::Cuda) -> Checked {
    let triplets = &*exact::<T, F>(given)?;
    let a = triplets.csr::<T>()?;
    let mut format = F::on(gpu, &a)?;
    let mut checks = vec![
        ("product", laws::product(&format, triplets)),
        ("residual in twice the precision", laws::precise_residual(&format, &a)),
        ("product overwrites y", laws::stale_values(&format)),
        ("product repeats bitwise", laws::second_product(&format)),
        ("fused operations", laws::operator_fusions(&format, Agreement::Rounding)),
        ("products of several vectors", laws::several_products(&format, &COLUMNS, Agreement::Rounding)),
        ("conversion and back", laws::same_matrix("conversion and back", &format.to_csr()?, &a)),
    ];
    // refreshes from GPU memory twice: the first call computes the index of the value of each slot (stored
    // position), and later calls reuse these indices
    let refreshes = [
        ("new values", 2.0, false),
        ("new values on the GPU", -1.0, true),
        ("the same once more", 0.5, true),
    ];
    for (what, factor, on_gpu) in refreshes {
        let mut new = triplets.clone();
        new.entries.iter_mut().for_each(|entry| entry.2 *= factor);
        let values = new.csr::<T>()?;
        match on_gpu {
            true => format.refresh_from_device(&gpu.space(values.nnz()).vector(values.entries())?)?,
            false => format.refresh(values.entries())?,
        }
        checks.push((what, laws::product(&format, &new)));
    }
    Ok(checks)
}
