//! `krysp inspect`

mod report;

use crate::files::{self, Content};
use crate::formats::{Device, Measured};
use crate::spy::Spy;
use crate::{Failure, chart, recipe, text};
use clap::Args;
use krysp::choice::{Candidate, Choice, Estimate};
use krysp::plan::{Profile, Spectrum};
use krysp::{Csr, Inertia, Ldl, Permutation, Plan};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reports the properties of a matrix, the formats that suit it, and how to solve with it.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp inspect A.mtx.gz
  krysp inspect A.mtx --spy spy.png --histogram rows.png    two plots
  krysp inspect A.mtx --measure          formats by measured time
  krysp inspect A.mtx --solves 1000      a plan for many right-hand sides
  krysp inspect A.mtx --json > A.json    for programs")]
pub(crate) struct Inspect {
    /// File of the matrix, in any file format that `krysp convert` reads; - is standard input
    matrix: PathBuf,
    /// Plot the sparsity pattern to a PNG file
    #[arg(long, value_name = "PNG")]
    spy: Option<PathBuf>,
    /// Plot the distribution of row lengths to a PNG file
    #[arg(long, value_name = "PNG")]
    histogram: Option<PathBuf>,
    /// Measure a matrix-vector product in every format on every device, instead of estimating its cost
    #[arg(long)]
    measure: bool,
    /// Number of right-hand sides to plan for
    #[arg(long, value_name = "N")]
    solves: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The results of the inspection, printed as text or as JSON.
pub(crate) struct Found {
    file: PathBuf,
    is_pattern: bool,
    profile: Profile,
    /// Bandwidths of a square matrix (largest distance of an entry from the diagonal), before and after RCM
    /// reordering.
    bandwidths: Option<[usize; 2]>,
    /// Numbers of negative and of positive eigenvalues, if computing them is cheap.
    inertia: Option<Inertia>,
    devices: Vec<OnDevice>,
    /// The candidates of the plan, or the reason why there is no plan.
    plan: Result<Vec<krysp::plan::Candidate>, String>,
    solves: Option<usize>,
}

/// The formats for a matrix on a device.
pub(crate) struct OnDevice {
    name: String,
    /// Suitable formats, the best first, with the estimated cost of an SpMV in equivalent streamed bytes.
    estimates: Vec<Estimate>,
    unsuitable: Vec<&'static str>,
    measured: Option<(f64, Vec<Measured>)>,
}

impl OnDevice {
    fn has_measured(&self, format: &str) -> bool {
        self.measured.iter().flat_map(|(_, all)| all).any(|one| one.format == format)
    }
}

impl Inspect {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let json = self.json.then_some(Path::new("-"));
        text::keep_clear(files::check_outputs(&[
            ("--spy", self.spy.as_deref(), Content::Picture),
            ("--histogram", self.histogram.as_deref(), Content::Picture),
            ("--json", json, Content::Json),
        ])?);
        let files::Input { matrix: a, is_pattern } = files::matrix(&self.matrix)?;
        let found = Found { is_pattern, ..self.look(&a)? };
        match json {
            Some(path) => files::save(path, format!("{}\n", found.json()).as_bytes())?,
            None => found.print(&Spy::in_terminal(&a, 20)),
        }
        let title = title(&self.matrix);
        if let Some(path) = &self.spy {
            let entries = text::entries(a.nnz());
            let picture =
                Spy::for_picture(&a).picture(&title, &format!("{entries}, darker where there are more"))?;
            files::save(path, &picture)?;
        }
        if let Some(path) = &self.histogram {
            chart::lengths(path, &title, &bars(&a, &found.profile))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn look(&self, a: &Csr<f64>) -> Result<Found, Failure> {
        let (profile, bandwidths) = rayon::join(|| Profile::of(a), || bandwidths(a));
        let (symmetric, inertia) = (profile.is_symmetric(), inertia(a, &profile));
        let mut devices = vec![];
        for device in Device::all() {
            let choice = match symmetric {
                true => Choice::of_symmetric(a, device.model())?,
                false => Choice::of(a, device.model()),
            };
            let measured = if self.measure { Some((device.bandwidth()?, device.measure(a)?)) } else { None };
            let mut found = OnDevice {
                name: device.name(),
                estimates: vec![choice.chosen().clone()],
                unsuitable: vec![],
                measured,
            };
            for candidate in choice.rejected() {
                match candidate {
                    Candidate::HigherCost(estimate) => found.estimates.push(estimate.clone()),
                    // do not list a format as unsuitable if it was measured, even if the cost model excludes
                    // it
                    Candidate::Unsuitable { format, .. } if !found.has_measured(format) => {
                        found.unsuitable.push(format);
                    }
                    Candidate::Unsuitable { .. } => {}
                }
            }
            devices.push(found);
        }
        let plan = Plan::new(a).map(|plan| match self.solves {
            Some(solves) => plan.solves(solves).candidates(),
            None => plan.candidates(),
        });
        let plan = plan.map_err(|error| error.to_string());
        let (file, solves, is_pattern) = (self.matrix.clone(), self.solves, false);
        Ok(Found { file, is_pattern, profile, bandwidths, inertia, devices, plan, solves })
    }
}

/// Maximum number of entries of a matrix that is factorized to find out whether it is positive definite. It limits the time of the
/// ordering. Guess.
const MOST_ENTRIES: usize = 100_000;
/// Maximum number of multiplications of that factorization. With 1.5e8 (`p7_20`), `Ldl` takes 0.2 s on two busy cores of an Intel Xeon,
/// compiled with optimization level 1. Larger values delay the output.
const MOST_MULTIPLICATIONS: f64 = 2e8;

/// The signs of eigenvalues are certain up to this condition number of the matrix scaled to a diagonal of ones. At the inverse of the
/// machine epsilon, rounding of the entries may change a sign; this is a guess some digits below it.
const CERTAIN: f64 = 1e-3 / f64::EPSILON;

/// Numbers of eigenvalues of a symmetric matrix with a positive diagonal, by a complete factorization if that is cheap, and if they are
/// certain.
fn inertia(a: &Csr<f64>, profile: &Profile) -> Option<Inertia> {
    let sound = matches!(profile.spectrum, Some(Spectrum::Positive { .. } | Spectrum::Indefinite));
    if !sound || !profile.has_positive_diagonal() || profile.entries > MOST_ENTRIES {
        return None;
    }
    let factors = Ldl::within(a, MOST_MULTIPLICATIONS).ok()?;
    (factors.scaled_condition_estimate(a).ok()? <= CERTAIN).then(|| factors.inertia())
}

/// The name of a file without its folders, as a title.
pub(crate) fn title(path: &Path) -> String {
    if files::is_standard(path) {
        return files::shown(path);
    }
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The bandwidth (largest distance of an entry from the diagonal), before and after RCM reordering.
fn bandwidths(a: &Csr<f64>) -> Option<[usize; 2]> {
    let permutation = Permutation::rcm(a).ok()?;
    let new = permutation.new_of_old();
    let widest = |place: &dyn Fn(usize) -> usize| {
        let of_row = |row: usize| {
            let own = place(row);
            a.row_columns(row).iter().map(move |&column| (own, column)).collect::<Vec<_>>()
        };
        (0..a.rows())
            .flat_map(of_row)
            .map(|(own, column)| own.abs_diff(place(column as usize)))
            .max()
            .unwrap_or(0)
    };
    Some([widest(&|row| row), widest(&|row| new[row] as usize)])
}

/// Bars of the histogram: one for each row length or, if there would be too many, one for each range from a
/// power of two to the next.
fn bars(a: &Csr<f64>, profile: &Profile) -> Vec<(String, usize)> {
    const MOST: usize = 30;
    let [shortest, .., longest] = profile.lengths;
    if longest - shortest >= MOST {
        // short names, because they are side by side
        let short = |(name, rows): (String, usize)| (name.replace(" to ", "–").replace(',', ""), rows);
        return buckets(profile).into_iter().map(short).collect();
    }
    let mut rows = vec![0; longest - shortest + 1];
    a.row_lengths().for_each(|length| rows[length - shortest] += 1);
    (shortest..).map(|length| length.to_string()).zip(rows).collect()
}

/// Ranges of row lengths as text, each with its number of rows.
fn buckets(profile: &Profile) -> Vec<(String, usize)> {
    let name = |bucket: usize| match bucket {
        0 => "0".to_owned(),
        1 => "1".to_owned(),
        _ => format!("{} to {}", text::count(1 << (bucket - 1)), text::count((1 << bucket) - 1)),
    };
    let first = profile.histogram.iter().position(|&rows| rows > 0).unwrap_or(0);
    profile.histogram.iter().enumerate().skip(first).map(|(bucket, &rows)| (name(bucket), rows)).collect()
}
