//! Appends measurements to the CSV files in `benches/record/<machine>/` ("records").

use super::Result;
use std::fs::{OpenOptions, create_dir_all};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const SPMV: &str = "date,commit,device,matrix,rows,nnz,element,format,ordering,setup_ms,product_ms,format_bytes,\
                        share_of_bandwidth,peer,peer_ms,ratio";
pub const SOLVE: &str = "date,commit,device,matrix,rows,nnz,element,method,preconditioner,format,setup_ms,iterations,\
                         ms_per_iteration,budget_ms_per_iteration,true_residual,peer,peer_ms_per_iteration,ratio";
pub const READ: &str = "date,commit,device,matrix,rows,nnz,file_bytes,triplets_ms,\
                        megabytes_per_second,csr_ms";

/// The folder with the CSV files of a machine.
pub fn folder(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/record").join(machine)
}

/// Appends rows, after a header if the file is new.
pub fn append(folder: &Path, file: &str, header: &str, rows: &[String]) -> Result<()> {
    create_dir_all(folder)?;
    let path = folder.join(file);
    let is_new = !path.exists();
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    if is_new {
        writeln!(file, "{header}")?;
    }
    for row in rows {
        debug_assert_eq!(row.split(',').count(), header.split(',').count());
        writeln!(file, "{row}")?;
    }
    Ok(())
}
