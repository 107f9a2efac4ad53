//! Products of a record: what each format does there, and what it took.

use super::Result;
use super::fit::Prices;
use super::newest::{newest, number, text};
use krysp::choice::Work;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Lines of a record that are no formats to choose: one is not the same from run to run, the other is kept for comparison.
const OTHERS: [&str; 2] = ["COO atomic", "CSR speculative on host"];

/// A matrix in a numbering, with elements of one kind.
pub struct Case {
    pub matrix: String,
    pub numbering: String,
    pub element: String,
    /// Prices are fitted to it.
    fitted: bool,
    pub options: Vec<Choosable>,
    /// The fastest of all that were recorded, and its milliseconds.
    pub best: (String, f64),
}

/// A format that the chooser knows.
#[derive(Clone)]
pub struct Choosable {
    pub format: String,
    pub work: Work,
    pub ms: f64,
}

impl Case {
    /// The half it is of.
    pub fn half(&self) -> &'static str {
        if self.fitted { "fitted" } else { "judged" }
    }

    /// The option of least cost.
    pub fn chosen(&self, prices: &Prices) -> &Choosable {
        let cost =
            |option: &Choosable| prices.get(&option.format).map_or(f64::INFINITY, |p| p.cost(&option.work));
        let first = &self.options[0];
        let cheaper = |a, b| if cost(b) < cost(a) { b } else { a };
        self.options.iter().fold(first, cheaper)
    }

    /// How many times as long as the best.
    pub fn ratio(&self, option: &Choosable) -> f64 {
        option.ms / self.best.1
    }

    /// The same with some formats only; none where one or no option is left.
    pub fn among(&self, wanted: impl Fn(&str) -> bool) -> Option<Case> {
        let options: Vec<_> = self.options.iter().filter(|option| wanted(&option.format)).cloned().collect();
        let fastest = options.iter().min_by(|a, b| a.ms.total_cmp(&b.ms)).filter(|_| options.len() > 1)?;
        let best = (fastest.format.clone(), fastest.ms);
        let Case { matrix, numbering, element, fitted, .. } = self;
        let [matrix, numbering, element] = [matrix, numbering, element].map(String::clone);
        Some(Case { matrix, numbering, element, fitted: *fitted, options, best })
    }
}

/// All products of a record whose layouts are known; says which are not.
pub fn cases(folder: &Path) -> Result<Vec<Case>> {
    let recorded = newest(folder, "spmv.csv", &["matrix", "numbering", "element", "format"])?;
    let layouts = newest(folder, "layouts.csv", &["matrix", "numbering", "element", "format"])?;
    let key = |row| ["matrix", "numbering", "element"].map(|column| text(row, column).to_string());
    let mut works = BTreeMap::new();
    for row in &layouts {
        let work = Work {
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
        let [matrix, numbering, element] = key.clone();
        let known = times.iter().filter_map(|(format, ms)| {
            let work = *works.get(&(key.clone(), format.clone()))?;
            Some(Choosable { format: format.clone(), work, ms: *ms })
        });
        let options: Vec<Choosable> = known.collect();
        let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1)).cloned();
        match best.filter(|_| !options.is_empty()) {
            Some(best) => {
                let fitted = fitted.contains(&matrix);
                cases.push(Case { matrix, numbering, element, fitted, options, best });
            }
            None => println!("skipped: {matrix} {numbering} {element} is not in layouts.csv"),
        }
    }
    Ok(cases)
}
