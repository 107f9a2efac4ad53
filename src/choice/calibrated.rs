//! Cost models measured on this machine, stored in the user's cache folder.

use super::CostModel;
use super::Formats;
use krysp_kernels::cache;
use krysp_kernels::cpu::simd::{self, Level};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// First line of a file of cost models. Increase the number when the cost model changes: files with another
/// number are ignored.
const HEAD: &str = "krysp format costs 1";

/// Names of formats with their cost models.
pub(super) type CostModels = Vec<(&'static str, CostModel)>;

/// The SIMD level and the number of threads for which cost models are valid.
pub(crate) type Key = (Level, usize);

/// Cost models read from files so far; `None` if there is no file for a key.
static READ: Mutex<Vec<(Key, Option<Arc<CostModels>>)>> = Mutex::new(vec![]);

pub(crate) fn key() -> Key {
    (simd::level(), rayon::current_num_threads())
}

/// The cost model of a format on this machine, if it was calibrated.
pub(crate) fn calibrated(format: &str) -> Option<CostModel> {
    let cost_models = here()?;
    cost_models.iter().find(|(name, _)| *name == format).map(|(_, cost_model)| *cost_model)
}

fn here() -> Option<Arc<CostModels>> {
    let key = key();
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, cost_models)) = read().iter().find(|(of, _)| *of == key) {
        return cost_models.clone();
    }
    // read the file without holding the lock: a process forked meanwhile would inherit a lock that is never
    // released
    let text = path("format_costs", key).and_then(|path| std::fs::read_to_string(path).ok());
    let cost_models = text.and_then(|text| parsed(&text)).map(Arc::new);
    read().push((key, cost_models.clone()));
    cost_models
}

/// Stores cost models for this program and, if there is a cache folder, in a file for later programs. Returns
/// the path of the file.
pub(super) fn keep(cost_models: &CostModels) -> std::io::Result<Option<PathBuf>> {
    let key = key();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.retain(|(of, _)| *of != key);
    read.push((key, Some(Arc::new(cost_models.clone()))));
    let Some(path) = path("format_costs", key) else { return Ok(None) };
    cache::write_whole(&path, written(cost_models).as_bytes())?;
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

/// Contents of the file: a line for each format with the coefficients of its cost model and its name, which
/// may have spaces.
fn written(cost_models: &CostModels) -> String {
    let mut text = format!("{HEAD}\n");
    for (name, CostModel { start, byte, gather, row, wait }) in cost_models {
        // writing to a string does not fail
        let _ = writeln!(text, "{start:e} {byte:e} {gather:e} {row:e} {wait:e} {name}");
    }
    text
}

/// Parses a file; `None` if it is malformed. Formats that no longer exist are ignored.
fn parsed(text: &str) -> Option<CostModels> {
    let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.lines();
    let known = Formats::<f64>::standard().names();
    let mut cost_models = vec![];
    for line in lines {
        let mut words = line.splitn(6, ' ');
        let mut number = || {
            words.next()?.parse().ok().filter(|cost_model: &f64| *cost_model >= 0.0 && cost_model.is_finite())
        };
        let cost_model = CostModel {
            start: number()?,
            byte: number()?,
            gather: number()?,
            row: number()?,
            wait: number()?,
        };
        let name = words.next()?;
        cost_models.extend(known.iter().find(|known| **known == name).map(|known| (*known, cost_model)));
    }
    Some(cost_models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let cost_model = CostModel { start: 0.0, byte: 1.25, gather: 0.1, row: 1.0 / 3.0, wait: 2e6 };
        let cost_models = vec![("CSR", cost_model), ("symmetric CSR", CostModel { byte: 0.5, ..cost_model })];
        let text = written(&cost_models);
        assert_eq!(parsed(&text), Some(cost_models));
        let unknown = text.replace("symmetric CSR", "a format of tomorrow");
        assert_eq!(parsed(&unknown).map(|cost_models| cost_models.len()), Some(1));
        for wrong in [text.replace("costs 1", "costs 2"), text.replace("1.25e0", "-1"), text[..30].to_owned()]
        {
            assert_eq!(parsed(&wrong), None, "{wrong}");
        }
    }
}
