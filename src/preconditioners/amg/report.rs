//! Tables of the levels of a hierarchy.

use super::Amg;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
use std::fmt;
use std::time::Instant;

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct LevelReport {
    rows: usize,
    entries: usize,
    bytes: usize,
    formats: String,
    seconds: f64,
}

saved!(impl[] LevelReport { rows, entries, bytes, formats, seconds });

impl LevelReport {
    /// A level, or the last one if that is inverted.
    pub(crate) fn new(rows: usize, entries: usize, bytes: usize, formats: String) -> LevelReport {
        LevelReport { rows, entries, bytes, formats, seconds: 0.0 }
    }

    /// Sets the time of the setup of the level.
    pub(super) fn since(self, started: Instant) -> LevelReport {
        LevelReport { seconds: started.elapsed().as_secs_f64(), ..self }
    }

    /// The last level, inverted.
    pub(crate) fn dense(rows: usize) -> LevelReport {
        LevelReport::new(rows, rows * rows, 4 * rows * row_stride(rows), "dense".into())
    }
}

/// Prints one line per level.
impl<T: Real> fmt::Display for Amg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(&self.reports, f)
    }
}

pub(crate) fn write_table(reports: &[LevelReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{:>5} {:>10} {:>11} {:>9} {:>9}  format", "level", "rows", "entries", "MB", "setup ms")?;
    for (at, level) in reports.iter().enumerate() {
        let LevelReport { rows, entries, bytes, formats, seconds } = level;
        let (mb, ms) = (*bytes as f64 / 1e6, seconds * 1e3);
        writeln!(f, "{at:>5} {rows:>10} {entries:>11} {mb:>9.2} {ms:>9.1}  {formats}")?;
    }
    let all: usize = reports.iter().map(|level| level.entries).sum();
    let first = reports.first().map_or(1, |level| level.entries.max(1));
    write!(f, "operator complexity {:.2}", all as f64 / first as f64)
}
