//! Folders in which the program runs.

use super::*;

/// A folder of a test, with a positive definite matrix, an unsymmetric one, and right-hand sides.
pub(crate) struct Folder(PathBuf);

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli_{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        let matrix = krysp::testing::matrices::stencil7(6).csr::<f64>().unwrap();
        for file in ["A.mtx", "A.npz", "A.mtx.gz"] {
            krysp::io::write_matrix(folder.at(file), &matrix).unwrap();
        }
        for file in ["b.mtx", "b.npy"] {
            krysp::io::write_vector(folder.at(file), &vec![1.0; matrix.rows()]).unwrap();
        }
        let columns: Vec<Vec<f64>> =
            (1..4).map(|j| (0..matrix.rows()).map(|i| ((i * j) % 5) as f64 - 1.0).collect()).collect();
        krysp::io::write_columns(folder.at("B.mtx"), &columns).unwrap();
        std::fs::create_dir(folder.at("tests")).unwrap();
        std::fs::create_dir(folder.at("tests/data")).unwrap();
        let circuit = "tests/data/jpwh_991.mtx.gz";
        std::fs::copy(repository().join(circuit), folder.at(circuit)).unwrap();
        folder
    }

    pub(crate) fn at(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.at(file), text).unwrap();
    }

    /// Runs a shell command in which `krysp` is this program.
    pub(crate) fn run(&self, line: &str) -> Ran {
        let program = Path::new(PROGRAM).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.0)
            .env("PATH", path)
            .env("HOME", &self.0)
            // the calibration of one test does not affect others
            .env("KRYSP_CACHE", self.at("cache"))
            .env("RAYON_NUM_THREADS", "2")
            // expected outputs are those of machines without a GPU
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}
