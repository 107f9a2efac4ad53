//! Reads CSV files of recorded measurements.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

/// A row of the file: its cells by the names of the columns.
pub type Row = BTreeMap<String, String>;

/// The rows of a file in order; of rows that agree in the columns `key`, only the newest one. Empty if there is no file.
pub fn newest(folder: &Path, file: &str, key: &[&str]) -> Result<Vec<Row>, Box<dyn Error>> {
    let Ok(text) = fs::read_to_string(folder.join(file)) else { return Ok(vec![]) };
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut rows: Vec<Row> = vec![];
    for (number, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != header.len() {
            let (got, expected) = (cells.len(), header.len());
            return Err(format!("{file}, row {}: {got} cells, not {expected}", number + 2).into());
        }
        let row: Row = header.iter().map(|&h| h.into()).zip(cells.into_iter().map(String::from)).collect();
        match rows.iter_mut().find(|old| key.iter().all(|&k| old.get(k) == row.get(k))) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
    }
    Ok(rows)
}

pub fn text<'r>(row: &'r Row, column: &str) -> &'r str {
    row.get(column).map_or("", |cell| cell)
}

pub fn number(row: &Row, column: &str) -> f64 {
    text(row, column).parse().unwrap_or(f64::NAN)
}
