//! Tables of the levels of a hierarchy.

use super::Amg;
use super::cycle::{Level, Transfer};
use super::stored::Stored;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::preconditioners::inverse::row_stride;
#[cfg(feature = "cuda")]
use krysp_kernels::cuda::multigrid::cycle as on_gpu;
use krysp_solvers::LinearOperator;
use std::fmt;
use std::time::Instant;

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct LevelReport {
    rows: usize,
    entries: usize,
    bytes: usize,
    formats: String,
    seconds: f64,
}

saved!(impl[] LevelReport { rows, entries, bytes, formats, seconds });

impl LevelReport {
    pub(super) fn new(level: &Level, started: Instant) -> LevelReport {
        let (bytes, rows) =
            (level.transfer.as_ref().map_or(0, Transfer::bytes), level.inverse.as_slice().len());
        let formats = match &level.transfer {
            Some(Transfer::Smoothed(transfers)) => {
                let [p, r] = transfers.each_ref().map(Stored::name);
                format!("{}, {p} and {r}", level.a.name())
            }
            Some(Transfer::Unsmoothed(_)) => format!("{} and aggregates", level.a.name()),
            None => level.a.name().into(),
        };
        LevelReport {
            rows,
            entries: level.a.entries(),
            bytes: bytes + level.a.bytes() + 4 * rows,
            formats,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    /// Report of a level on a GPU.
    #[cfg(feature = "cuda")]
    pub(super) fn on_gpu(level: &on_gpu::Level, started: Instant) -> LevelReport {
        let (a, rows) = (level.a.product(), level.inverse.len());
        let transfers = level.transfer.iter().flatten();
        let bytes: usize = transfers.map(|matrix| matrix.product().bytes()).sum();
        let formats = match &level.transfer {
            Some([p, r]) => format!("{}, {} and {}", level.a.name(), p.name(), r.name()),
            None => level.a.name().into(),
        };
        LevelReport {
            rows,
            entries: a.shape().entries,
            bytes: bytes + a.bytes() + 4 * rows,
            formats,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    pub(super) fn dense(rows: usize, started: Instant) -> LevelReport {
        LevelReport {
            rows,
            entries: rows * rows,
            bytes: 4 * rows * row_stride(rows),
            formats: "dense".into(),
            seconds: started.elapsed().as_secs_f64(),
        }
    }
}

/// Prints one line per level.
impl<T: Real> fmt::Display for Amg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(&self.reports, f)
    }
}

pub(super) fn write_table(reports: &[LevelReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
