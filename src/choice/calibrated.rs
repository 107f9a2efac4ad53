//! Prices measured on this machine, stored in the user's cache folder.

use super::Price;
use crate::simd::{self, Level};
use krysp_kernels::cache;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// First line of a file of prices. Increase the number when the cost model changes: files with another number
/// are ignored.
const HEAD: &str = "krysp prices 1";

/// Names of formats with their prices.
pub(super) type Prices = Vec<(&'static str, Price)>;

/// The SIMD level and the number of threads for which prices are valid.
pub(crate) type Key = (Level, usize);

/// Prices read from files so far; `None` if there is no file for a key.
static READ: Mutex<Vec<(Key, Option<Arc<Prices>>)>> = Mutex::new(vec![]);

pub(crate) fn key() -> Key {
    (simd::level(), rayon::current_num_threads())
}

/// The price of a format on this machine, if it was calibrated.
pub(crate) fn calibrated(format: &str) -> Option<Price> {
    let prices = here()?;
    prices.iter().find(|(name, _)| *name == format).map(|(_, price)| *price)
}

fn here() -> Option<Arc<Prices>> {
    let key = key();
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, prices)) = read().iter().find(|(of, _)| *of == key) {
        return prices.clone();
    }
    // read the file without holding the lock: a process forked meanwhile would inherit a lock that is never
    // released
    let text = path("prices", key).and_then(|path| std::fs::read_to_string(path).ok());
    let prices = text.and_then(|text| parsed(&text)).map(Arc::new);
    read().push((key, prices.clone()));
    prices
}

/// Stores prices for this program and, if there is a cache folder, in a file for later programs. Returns the
/// path of the file.
pub(super) fn keep(prices: &Prices) -> std::io::Result<Option<PathBuf>> {
    let key = key();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.retain(|(of, _)| *of != key);
    read.push((key, Some(Arc::new(prices.clone()))));
    let Some(path) = path("prices", key) else { return Ok(None) };
    cache::write_whole(&path, written(prices).as_bytes())?;
    Ok(Some(path))
}

/// Path of the file for measurements of a kind. It contains the name of the machine, because several machines
/// may share a home folder, and differs for debug builds, because their times differ.
pub(crate) fn path(kind: &str, (level, threads): Key) -> Option<PathBuf> {
    let build = if cfg!(debug_assertions) { "-debug" } else { "" };
    let name = format!("{kind}-{}-{level:?}-{threads}{build}.txt", machine());
    Some(cache::folder()?.join(name.to_lowercase()))
}

/// The name of this machine.
fn machine() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    match named.trim() {
        "" => "here".into(),
        name => name.chars().map(plain).collect(),
    }
}

/// Contents of the file: a line for each format with its prices and its name, which may have spaces.
fn written(prices: &Prices) -> String {
    let mut text = format!("{HEAD}\n");
    for (name, Price { start, byte, gather, row, wait }) in prices {
        // writing to a string does not fail
        let _ = writeln!(text, "{start:e} {byte:e} {gather:e} {row:e} {wait:e} {name}");
    }
    text
}

/// Parses a file; `None` if it is malformed. Formats that no longer exist are ignored.
fn parsed(text: &str) -> Option<Prices> {
    let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.lines();
    let known = super::model::names();
    let mut prices = vec![];
    for line in lines {
        let mut words = line.splitn(6, ' ');
        let mut number =
            || words.next()?.parse().ok().filter(|price: &f64| *price >= 0.0 && price.is_finite());
        let price =
            Price { start: number()?, byte: number()?, gather: number()?, row: number()?, wait: number()? };
        let name = words.next()?;
        prices.extend(known.iter().find(|known| **known == name).map(|known| (*known, price)));
    }
    Some(prices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let price = Price { start: 0.0, byte: 1.25, gather: 0.1, row: 1.0 / 3.0, wait: 2e6 };
        let prices = vec![("CSR", price), ("symmetric CSR", Price { byte: 0.5, ..price })];
        let text = written(&prices);
        assert_eq!(parsed(&text), Some(prices));
        let unknown = text.replace("symmetric CSR", "a format of tomorrow");
        assert_eq!(parsed(&unknown).map(|prices| prices.len()), Some(1));
        for wrong in
            [text.replace("prices 1", "prices 2"), text.replace("1.25e0", "-1"), text[..30].to_owned()]
        {
            assert_eq!(parsed(&wrong), None, "{wrong}");
        }
    }
}
