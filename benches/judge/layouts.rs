//! Stores the predicted work of matrices in each format (`layouts.csv`), because large matrices take minutes
//! to generate.

use super::Result;
use super::newest::{Row, newest, number, text};
use super::record::append;
use super::systems::{System, reordered};
use krysp::choice::{Candidate, Choice, Estimate, Model};
use krysp::{Csr, Halo, Real};
use std::collections::BTreeSet;
use std::path::Path;

const FILE: &str = "layouts.csv";
const HEADER: &str = "matrix,ordering,element,format,stored,bytes,gathers,rows,waits";

/// Adds to `layouts.csv` those matrices of `spmv.csv` that have at most `most` entries and are missing there.
pub fn add(folder: &Path, model: Model, most: usize) -> Result<()> {
    let key = |row: &Row| ["matrix", "ordering", "element"].map(|column| text(row, column).to_string());
    let known: BTreeSet<_> =
        newest(folder, FILE, &["matrix", "ordering", "element"])?.iter().map(key).collect();
    let recorded = newest(folder, "spmv.csv", &["matrix", "ordering", "element"])?;
    let small = recorded.iter().filter(|row| number(row, "nnz") <= most as f64);
    let missing: BTreeSet<_> =
        small.map(key).filter(|key| !key[0].ends_with(')') && !known.contains(key)).collect();
    let names: BTreeSet<&String> = missing.iter().map(|[matrix, ..]| matrix).collect();
    for name in names {
        for System { ordering, csr, .. } in
            reordered(name, |matrix| matrix, |csr| rows_per_block(model, csr))?
        {
            let is_missing =
                |element: &str| missing.contains(&[name.clone(), ordering.into(), element.into()]);
            if is_missing("f64") {
                add_rows(folder, [name, ordering, "f64"], &choice(&csr, model))?;
            }
            if is_missing("f32") {
                add_rows(folder, [name, ordering, "f32"], &choice(&csr.cast::<f32>(), model))?;
            }
        }
    }
    Ok(())
}

/// The choice, with symmetric formats if the matrix is symmetric.
fn choice<T: Real>(csr: &Csr<T>, model: Model) -> Choice {
    Choice::of_symmetric(csr, model).unwrap_or_else(|_| Choice::of(csr, model))
}

/// Number of rows in each run (range of consecutive rows) of the clustered ordering that `cuda_spmv` uses;
/// `None` without that ordering, on a CPU.
fn rows_per_block(model: Model, csr: &Csr<f64>) -> Option<usize> {
    match model {
        Model::Host => None,
        Model::Gpu { multiprocessors } => Some(Halo::rows_per_block_of(multiprocessors, csr)),
    }
}

fn add_rows(folder: &Path, [matrix, ordering, element]: [&str; 3], choice: &Choice) -> Result<()> {
    println!("{matrix} {ordering} {element}: {}", choice.stored());
    let others = choice.rejected().iter().filter_map(|candidate| match candidate {
        Candidate::HigherCost(estimate) => Some(estimate),
        Candidate::Unsuitable { .. } => None,
    });
    let row = |Estimate { stored, work, .. }: &Estimate| {
        let (format, what) = (stored.format(), stored.to_string().replace(',', ";"));
        let (bytes, gathers, rows, waits) = (work.bytes, work.gathers, work.rows, work.waits);
        format!("{matrix},{ordering},{element},{format},{what},{bytes},{gathers},{rows},{waits}")
    };
    let rows: Vec<String> = std::iter::once(choice.chosen()).chain(others).map(row).collect();
    append(folder, FILE, HEADER, &rows)
}
