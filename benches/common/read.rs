//! Times reading matrices from files, and writes files for other programs.

use super::systems::System;
use super::{Result, median};
use krysp::io::{matrix_market, read_matrix, write_matrix};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Writes a Matrix Market file below the build folder.
pub fn export(system: &System) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.mtx", system.id()));
    write_matrix(&path, &system.csr)?;
    Ok(path)
}

/// Times reading a file that is in the page cache, into triplets and into a CSR matrix. Returns a row for the CSV
/// file `read.csv`.
pub fn read(system: &System, rounds: usize, stamp: &str) -> Result<String> {
    let path = export(system)?;
    let bytes = fs::metadata(&path)?.len();
    let (mut triplets_ms, mut csr_ms) = (vec![], vec![]);
    for round in 0..=rounds {
        let (content, ms) = timed(|| matrix_market::read::<f64>(&path))?;
        drop(content);
        let (csr, both_ms) = timed(|| read_matrix::<f64>(&path))?;
        if csr.columns() != system.csr.columns() || csr.entries() != system.csr.entries() {
            return Err(
                format!("reading {} does not return the matrix that was written", path.display()).into()
            );
        }
        // the first read brings the file into memory
        if round > 0 {
            triplets_ms.push(ms);
            csr_ms.push(both_ms);
        }
    }
    fs::remove_file(&path)?;
    let (ms, csr_ms) = (median(&mut triplets_ms), median(&mut csr_ms));
    let speed = bytes as f64 / ms / 1e3;
    let (id, megabytes) = (system.id(), bytes as f64 / 1e6);
    println!("\n{id}: {megabytes:.0} MB of text in {ms:.1} ms, {speed:.0} MB/s; {csr_ms:.1} ms into CSR");
    let (name, rows, nnz) = (&system.name, system.csr.rows(), system.csr.nnz());
    Ok(format!("{stamp},{name},{rows},{nnz},{bytes},{ms:.3},{speed:.1},{csr_ms:.3}"))
}

fn timed<R, E>(work: impl FnOnce() -> std::result::Result<R, E>) -> std::result::Result<(R, f64), E> {
    let started = Instant::now();
    let result = work()?;
    Ok((result, started.elapsed().as_secs_f64() * 1e3))
}
