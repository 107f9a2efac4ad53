//! Matrix-vector products of other libraries, measured by Python in a separate process, so that this program does not link to
//! them.

use crate::Failure;
use crate::formats::Measured;
use krysp::Csr;
use krysp::io::write_matrix;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Measurements of the libraries that Python can import, and the names of the missing ones.
#[derive(Default)]
pub(crate) struct Peers {
    /// Measurements, each with the name of its device.
    pub(crate) measured: Vec<(String, Measured)>,
    pub(crate) absent: Vec<String>,
}

/// The path of a file that is removed when this value is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // a file that cannot be removed is left behind
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Peers {
    /// Runs the measurements. Libraries with threads use as many threads as this program.
    pub(crate) fn measure(a: &Csr<f64>) -> Result<Peers, Failure> {
        let file = Temporary(std::env::temp_dir().join(format!("krysp-{}.npz", std::process::id())));
        let threads = rayon::current_num_threads().to_string();
        write_matrix(&file.0, a)?;
        let mut python = Command::new("python3");
        python.args(["-c", include_str!("peers.py")]).arg(&file.0).stdin(Stdio::null()).stderr(Stdio::null());
        python.env("OMP_NUM_THREADS", &threads).env("MKL_NUM_THREADS", &threads);
        let (well, lines) = match python.output() {
            Ok(output) => (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(_) => (false, String::new()),
        };
        let bytes = a.nnz() * (size_of::<f64>() + size_of::<u32>()) + (a.rows() + 1) * size_of::<u32>();
        let mut peers = Peers::default();
        for line in lines.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["measured", name, device, conversion, product] => {
                    let format = format!("{name} in python3");
                    let (conversion, product) = (conversion.parse()?, product.parse()?);
                    peers.measured.push((device.into(), Measured { format, bytes, conversion, product }));
                }
                ["absent", name] => peers.absent.push(name.into()),
                _ => {}
            }
        }
        if !well {
            let why = if lines.is_empty() {
                "SciPy, petsc4py, MKL, CuPy: python3 cannot import SciPy, which all of them need"
            } else {
                "the other libraries: python3 stopped with an error"
            };
            peers.absent.push(why.into());
        }
        Ok(peers)
    }
}
