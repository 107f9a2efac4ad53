//! The SpMVs of a record (the CSV files measured on one machine): for each matrix and format, the work of the
//! product and its measured time.

use super::Result;
use super::fit::CostModels;
use super::newest::{newest, number, text};
use krysp::choice::ProductWork;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Formats in the CSV files that cannot be chosen: one no longer exists, the other is measured only for
/// comparison.
const OTHERS: [&str; 2] = ["COO atomic", "CSR speculative on host"];

/// A matrix in one ordering, with one element type.
pub struct Case {
    pub matrix: String,
    pub ordering: String,
    pub element: String,
    /// True if cost models are fitted to this case.
    fitted: bool,
    pub options: Vec<Choosable>,
    /// Milliseconds of an SpMV in each measured format.
    times: Vec<(String, f64)>,
    /// The fastest measured format, and its milliseconds.
    pub best: (String, f64),
}

/// Formats that are chosen only if values remain symmetric.
pub fn is_symmetric(format: &str) -> bool {
    format.starts_with("symmetric")
}

/// A format that the library can choose.
#[derive(Clone)]
pub struct Choosable {
    pub format: String,
    pub work: ProductWork,
    pub ms: f64,
}

impl Case {
    /// `fitted` if cost models are fitted to this case, else `judged`.
    pub fn half(&self) -> &'static str {
        if self.fitted { "fitted" } else { "judged" }
    }

    /// The option with the lowest cost.
    pub fn chosen(&self, cost_models: &CostModels) -> &Choosable {
        let cost = |option: &Choosable| {
            cost_models.get(&option.format).map_or(f64::INFINITY, |p| p.cost(&option.work))
        };
        let first = &self.options[0];
        let cheaper = |a, b| if cost(b) < cost(a) { b } else { a };
        self.options.iter().fold(first, cheaper)
    }

    /// The time of an option over that of the fastest format.
    pub fn ratio(&self, option: &Choosable) -> f64 {
        option.ms / self.best.1
    }

    /// Returns whether a format that needs a symmetric matrix was measured.
    pub fn is_symmetric(&self) -> bool {
        self.times.iter().any(|(format, _)| is_symmetric(format))
    }

    /// The case with formats for general matrices only.
    pub fn of_any_values(&self) -> Option<Case> {
        let kept = |format: &str| !is_symmetric(format);
        let options = self.options.iter().filter(|option| kept(&option.format)).cloned().collect();
        let times = self.times.iter().filter(|(format, _)| kept(format)).cloned().collect();
        self.with(options, times)
    }

    /// The case with CSR only, where the options are its strategies. `None` if fewer than two of them were
    /// measured.
    pub fn of_strategies(&self) -> Option<Case> {
        let strategies = self.options.iter().filter(|option| option.format.starts_with("CSR"));
        let options: Vec<Choosable> = strategies.cloned().collect();
        let times = options.iter().map(|option| (option.format.clone(), option.ms)).collect();
        self.with(options, times).filter(|case| case.options.len() > 1)
    }

    fn with(&self, options: Vec<Choosable>, times: Vec<(String, f64)>) -> Option<Case> {
        let best = fastest(&times)?;
        let Case { matrix, ordering, element, fitted, .. } = self;
        let [matrix, ordering, element] = [matrix, ordering, element].map(String::clone);
        let case = Case { matrix, ordering, element, fitted: *fitted, options, times, best };
        Some(case).filter(|case| !case.options.is_empty())
    }
}

fn fastest(times: &[(String, f64)]) -> Option<(String, f64)> {
    times.iter().min_by(|a, b| a.1.total_cmp(&b.1)).cloned()
}

/// All cases of `spmv.csv` in `folder` for whose formats `layouts.csv` has the work. Prints the others.
pub fn cases(folder: &Path) -> Result<Vec<Case>> {
    let recorded = newest(folder, "spmv.csv", &["matrix", "ordering", "element", "format"])?;
    let layouts = newest(folder, "layouts.csv", &["matrix", "ordering", "element", "format"])?;
    let key = |row| ["matrix", "ordering", "element"].map(|column| text(row, column).to_string());
    let mut works = BTreeMap::new();
    for row in &layouts {
        let work = ProductWork {
            bytes: number(row, "bytes"),
            gathers: number(row, "gathers"),
            rows: number(row, "rows"),
            waits: number(row, "waits"),
        };
        works.insert((key(row), text(row, "format").to_string()), work);
    }
    let mut times: BTreeMap<[String; 3], Vec<(String, f64)>> = BTreeMap::new();
    for row in recorded.iter().filter(|row| !text(row, "matrix").ends_with(')')) {
        let format = text(row, "format");
        if !OTHERS.contains(&format) {
            times.entry(key(row)).or_default().push((format.into(), number(row, "product_ms")));
        }
    }
    let names: BTreeSet<String> = times.keys().map(|[matrix, ..]| matrix.clone()).collect();
    let fitted: BTreeSet<&String> = names.iter().skip(1).step_by(2).collect();
    let mut cases = vec![];
    for (key, times) in times {
        let [matrix, ordering, element] = key.clone();
        let known = times.iter().filter_map(|(format, ms)| {
            let work = *works.get(&(key.clone(), format.clone()))?;
            Some(Choosable { format: format.clone(), work, ms: *ms })
        });
        let options: Vec<Choosable> = known.collect();
        match fastest(&times).filter(|_| !options.is_empty()) {
            Some(best) => {
                let fitted = fitted.contains(&matrix);
                cases.push(Case { matrix, ordering, element, fitted, options, times, best });
            }
            None => println!("skipped: {matrix} {ordering} {element} is not in layouts.csv"),
        }
    }
    Ok(cases)
}
