//! `krysp bench`

use crate::files::{self, Content};
use crate::formats::{Device, Measured};
use crate::peers::Peers;
use crate::{Failure, chart, inspect, text};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures conversions and matrix-vector products in every format on every device, and in other libraries.
///
/// The last table is a performance profile (Dolan and Moré, 2002): the fraction of the matrices on which a format takes at most a
/// given multiple of the time of the fastest one. A format that cannot store a matrix counts as infinitely slow.
///
/// SciPy, petsc4py, MKL (sparse_dot_mkl) and CuPy are measured, too, if `python3` can import them: in a separate process, with
/// SciPy's CSR arrays.
#[derive(Args)]
#[command(after_help = "Examples:
  krysp bench A.mtx
  krysp bench *.mtx.gz --csv products.csv --plot profile.png")]
pub(crate) struct Bench {
    /// Files of matrices, in any file format that `krysp convert` reads
    #[arg(required = true)]
    matrices: Vec<PathBuf>,
    /// Write all times
    #[arg(long, value_name = "CSV")]
    csv: Option<PathBuf>,
    /// Plot the performance profile of the best eight to a PNG file
    #[arg(long, value_name = "PNG")]
    plot: Option<PathBuf>,
}

/// Columns of the performance profile: multiples of the shortest time.
const FACTORS: [f64; 6] = [1.0, 1.05, 1.25, 1.5, 2.0, 4.0];

/// A format on a device, and for each matrix the ratio of its time to the shortest one; infinite if it cannot store the matrix.
struct Contestant {
    name: String,
    ratios: Vec<f64>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let plot = ("--plot", self.plot.as_deref(), Content::Picture);
        text::keep_clear(files::check_outputs(&[("--csv", self.csv.as_deref(), Content::Csv), plot])?);
        files::check_inputs(&self.matrices.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        let devices = Device::all();
        let mut csv = "matrix,rows,columns,nonzeros,device,format,storage,conversion_time,time\n".to_owned();
        let mut contestants: Vec<Contestant> = vec![];
        for (index, path) in self.matrices.iter().enumerate() {
            let a = files::matrix(path)?.matrix;
            let shape =
                format!("{} x {}, {}", text::count(a.rows()), text::count(a.cols()), text::entries(a.nnz()));
            text::say(&text::bold(&format!("{}: {shape}", inspect::title(path))));
            let heads = ["bytes", "conversion", "product"];
            text::say(&format!(
                "  {:<24}{:>10}{:>12}{:>12}{:>9}",
                "format", heads[0], heads[1], heads[2], "GB/s"
            ));
            let mut all: Vec<(String, Measured)> = vec![];
            for device in &devices {
                let named = |one| (device.name(), one);
                all.extend(device.measure(&a)?.into_iter().map(named));
            }
            let peers = Peers::measure(&a)?;
            all.extend(peers.measured);
            all.sort_by(|(_, one), (_, other)| one.product.total_cmp(&other.product));
            let least = all.iter().map(|(_, one)| one.product).fold(f64::INFINITY, f64::min);
            for (device, one) in all {
                let name = if devices.len() > 1 {
                    format!("{} on {device}", one.format)
                } else {
                    one.format.clone()
                };
                let rate = one.bytes as f64 / one.product / 1e9;
                let (bytes, conversion) = (text::bytes(one.bytes), text::seconds(one.conversion));
                let product = text::seconds(one.product);
                text::say(&format!("  {name:<24}{bytes:>10}{conversion:>12}{product:>12}{rate:>9.1}"));
                csv += &format!(
                    "{},{},{},{},{device},{},{},{:e},{:e}\n",
                    inspect::title(path).replace(',', "_"),
                    a.rows(),
                    a.cols(),
                    a.nnz(),
                    one.format,
                    one.bytes,
                    one.conversion,
                    one.product
                );
                note(&mut contestants, name, index, one.product / least);
            }
            if !peers.absent.is_empty() {
                text::say(&format!(
                    "  {:<24}{}",
                    "not measured",
                    text::wrapped(&peers.absent.join(", "), 26)
                ));
            }
            text::say("");
        }
        let matrices = self.matrices.len();
        contestants.iter_mut().for_each(|one| one.ratios.resize(matrices, f64::INFINITY));
        // sort by the area under the performance profile, the largest first
        contestants.sort_by(|one, other| other.area().total_cmp(&one.area()));
        print_profile(&contestants, matrices);
        if let Some(path) = &self.csv {
            files::save(path, csv.as_bytes())?;
        }
        if let Some(path) = &self.plot {
            draw(path, &contestants)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn note(contestants: &mut Vec<Contestant>, name: String, index: usize, ratio: f64) {
    let known = contestants.iter().position(|one| one.name == name);
    let at = known.unwrap_or_else(|| {
        contestants.push(Contestant { name, ratios: vec![] });
        contestants.len() - 1
    });
    contestants[at].ratios.resize(index, f64::INFINITY);
    contestants[at].ratios.push(ratio);
}

impl Contestant {
    /// Fraction of the matrices on which the format takes at most `factor` times the shortest time.
    fn within(&self, factor: f64) -> f64 {
        let close = self.ratios.iter().filter(|ratio| **ratio <= factor).count();
        close as f64 / self.ratios.len().max(1) as f64
    }

    /// The area under the format's performance profile, as a sum over the columns of the table.
    fn area(&self) -> f64 {
        FACTORS.iter().map(|&factor| self.within(factor)).sum()
    }
}

fn print_profile(contestants: &[Contestant], matrices: usize) {
    let title = format!(
        "fraction of {} within a multiple of the shortest time",
        if matrices == 1 { "1 matrix".into() } else { format!("{matrices} matrices") }
    );
    text::say(&text::bold(&title));
    let heads: String = FACTORS.iter().map(|factor| format!("{factor:>8}")).collect();
    text::say(&format!("  {:<24}{heads}", "format"));
    for one in contestants {
        let shares: String =
            FACTORS.iter().map(|&factor| format!("{:>6.0} %", 100.0 * one.within(factor))).collect();
        text::say(&format!("  {:<24}{shares}", one.name));
    }
}

fn draw(path: &Path, contestants: &[Contestant]) -> Result<(), String> {
    const MOST: f64 = 4.0;
    let steps = |one: &Contestant| {
        let mut ratios: Vec<f64> = one.ratios.iter().copied().filter(|ratio| *ratio <= MOST).collect();
        ratios.sort_by(f64::total_cmp);
        let mut points = vec![(1.0, one.within(1.0))];
        for ratio in ratios {
            points.push((ratio, points.last().map_or(0.0, |point| point.1)));
            points.push((ratio, one.within(ratio)));
        }
        points.push((MOST, one.within(MOST)));
        (one.name.clone(), points)
    };
    // there are no colours for more curves
    let drawn = contestants.iter().take(chart::CURVES).map(steps);
    chart::profile(path, &drawn.collect::<Vec<_>>(), contestants.len(), MOST)
}
