//! Compares the formats that the library chooses with the fastest measured ones, and fits the coefficients of
//! its cost models. Measurements are the CSV files in `benches/record/<machine>/`. Needs no GPU.
//!
//! ```text
//! cargo bench --features cuda --bench judge -- h200            for every measured product, the format and the CSR
//!                                                              strategy that the library chooses, compared with the
//!                                                              fastest; writes auto.csv and automatic.csv to the same
//!                                                              folder, and symmetric.csv: the choices for values that
//!                                                              remain symmetric
//! cargo bench --features cuda --bench judge -- h200 --fit      cost models fitted to one half of the matrices, as Rust code,
//!                                                              and the choices with them
//! cargo bench --features cuda --bench judge -- h200 --layouts  generates matrices that are missing in layouts.csv, and
//!                                                              adds the work of their products (`--most N`: up to N
//!                                                              entries, 20 million by default)
//! ```
//!
//! Every second matrix, in the order of names, is used to fit cost models; the others are used to judge. All
//! orderings and element types of a matrix belong to the same half. `layouts.csv` holds the work that the
//! library predicts for each matrix and format, not measurements. Delete it when formats change.

#![allow(unreachable_pub, reason = "a bench has no users")]

mod cases;
mod fit;
mod layouts;

#[path = "../common/newest.rs"]
mod newest;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../common/record.rs"]
mod record;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../common/systems.rs"]
mod systems;

use cases::{Case, cases};
use fit::{Bounds, CostModels, fitted};
use krysp::choice::{CostModel, Model};
use krysp::simd::{Level, force};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The bounds for all formats: within 10 % of the fastest time for 80 % of the choices, and never beyond 1.3
/// times the fastest.
const FORMATS: Bounds = Bounds { near: 1.10, share: 0.80, far: 1.30 };

/// The bounds for the strategies of CSR: within 5 % of the fastest time for 90 % of the choices, and never
/// beyond 1.15 times the fastest.
const STRATEGIES: Bounds = Bounds { near: 1.05, share: 0.90, far: 1.15 };

/// The number of multiprocessors of the GPUs in the records: of an H100 (SXM) and of an H200.
const MULTIPROCESSORS: usize = 132;

struct Options {
    machine: String,
    fit: bool,
    layouts: bool,
    most: usize,
}

impl Options {
    fn from_args() -> Result<Options> {
        let mut options = Options { machine: "h200".into(), fit: false, layouts: false, most: 20_000_000 };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match &*arg {
                "--fit" => options.fit = true,
                "--layouts" => options.layouts = true,
                "--most" => options.most = args.next().ok_or("--most needs a number")?.parse()?,
                // cargo adds this option
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                machine => options.machine = machine.into(),
            }
        }
        Ok(options)
    }
}

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let folder = record::folder(&options.machine);
    let device = device(&folder)?;
    let is_gpu = device.starts_with("NVIDIA");
    let model = if is_gpu { Model::Gpu { multiprocessors: MULTIPROCESSORS } } else { Model::Host };
    // use the SIMD level of the machine that was measured, because the slice height depends on it
    let _level = if is_gpu { None } else { Some(force(level(&device)?)) };
    if options.layouts {
        layouts::add(&folder, model, options.most)?;
    }
    let cases = cases(&folder)?;
    let strategies: Vec<Case> = match is_gpu {
        true => cases.iter().filter_map(Case::of_strategies).collect(),
        false => vec![],
    };
    let of_any_values: Vec<Case> = cases.iter().filter_map(Case::of_any_values).collect();
    let mut cost_models = of_library(&cases, model);
    if options.fit {
        cost_models = fitted(&cases, &cost_models);
        print_cost_models(&cost_models);
    }
    let symmetric: Vec<Case> = cases.into_iter().filter(Case::is_symmetric).collect();
    for (file, what, cases, bounds) in [
        ("automatic.csv", "strategies of CSR", &strategies, STRATEGIES),
        ("auto.csv", "formats for any values", &of_any_values, FORMATS),
        ("symmetric.csv", "all formats, for symmetric matrices", &symmetric, FORMATS),
    ] {
        if !cases.is_empty() {
            let rows = judged(what, cases, &cost_models, bounds);
            if !options.fit {
                write(&folder, file, &rows)?;
            }
        }
    }
    Ok(())
}

/// The column `device` of the first measured SpMV, such as "AMD EPYC 2t avx2" or "NVIDIA H200".
fn device(folder: &Path) -> Result<String> {
    let path = folder.join("spmv.csv");
    let missing = || format!("{}: expected a record of products", path.display());
    let record = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", missing()))?;
    let row = record.lines().nth(1).ok_or_else(missing)?;
    Ok(row.split(',').nth(2).ok_or_else(missing)?.to_owned())
}

/// The SIMD level of a CPU in the records, the last word of its name.
fn level(device: &str) -> Result<Level> {
    match device.rsplit(' ').next() {
        Some("avx512") => Ok(Level::Avx512),
        Some("avx2") => Ok(Level::Avx2),
        Some("portable") => Ok(Level::Portable),
        _ => Err(format!("{device:?}: expected a name that ends with a SIMD level").into()),
    }
}

/// The cost models of the library for the measured formats.
fn of_library(cases: &[Case], model: Model) -> CostModels {
    let recorded: BTreeSet<&str> =
        cases.iter().flat_map(|case| &case.options).map(|option| &*option.format).collect();
    let cost_models = model.cost_models().into_iter().filter(|(format, _)| recorded.contains(format));
    cost_models.map(|(format, cost_model)| (format.into(), cost_model)).collect()
}

/// Prints cost models as Rust code for the files of the formats.
fn print_cost_models(cost_models: &CostModels) {
    let literal =
        |value: f64| if value < 1e5 { format!("{value:?}") } else { format!("{:?}e6", value / 1e6) };
    for (format, &CostModel { start, byte, gather, row, wait }) in cost_models {
        let [start, byte, gather, row, wait] = [start, byte, gather, row, wait].map(literal);
        println!(
            "{format}: CostModel {{ start: {start}, byte: {byte}, gather: {gather}, row: {row}, wait: {wait} }}"
        );
    }
}

/// Prints how often the choice is near the best, and where it is not. Returns rows for a file.
fn judged(what: &str, cases: &[Case], cost_models: &CostModels, bounds: Bounds) -> Vec<String> {
    let Bounds { near, share, far } = bounds;
    let mut rows = vec![];
    println!("\n# Of {what}: within {near} on {share:.0$}, all within {far}", 2);
    for half in ["fitted", "judged"] {
        let here: Vec<_> = cases.iter().filter(|case| case.half() == half).collect();
        let ratios: Vec<f64> = here.iter().map(|case| case.ratio(case.chosen(cost_models))).collect();
        let within = |bound: f64| ratios.iter().filter(|&&ratio| ratio <= bound).count();
        let worst = ratios.iter().copied().fold(1.0, f64::max);
        println!(
            "{half}: {} products, {:.1} % within {near}, {} beyond {far}, the worst {worst:.2}",
            here.len(),
            100.0 * within(near) as f64 / here.len().max(1) as f64,
            here.len() - within(far),
        );
        for (case, &ratio) in here.iter().zip(&ratios) {
            let (chosen, best) = (case.chosen(cost_models), &case.best);
            let Case { matrix, ordering, element, .. } = case;
            let (format, ms) = (&chosen.format, chosen.ms);
            if ratio > near {
                println!(
                    "    {ratio:.2} {matrix} {ordering} {element}: {format} {ms}, {} {}",
                    best.0, best.1
                );
            }
            rows.push(format!(
                "{matrix},{ordering},{element},{half},{format},{ms},{},{},{ratio:.3}",
                best.0, best.1
            ));
        }
    }
    rows
}

/// Writes a file, replacing an old one.
fn write(folder: &Path, file: &str, rows: &[String]) -> Result<()> {
    fs::write(folder.join(file), format!("{HEADER}\n{}\n", rows.join("\n")))?;
    println!("written to {}", folder.join(file).display());
    Ok(())
}

const HEADER: &str = "matrix,ordering,element,half,chosen,ms,best,best_ms,ratio";
