//! Saving and loading a block preconditioner.

use super::SaddlePoint;
use super::schur::Work;
use crate::numbers::Real;
use crate::saved::{InconsistentData, Loaded, Reader, Saved, Writer};
use krysp_solvers::Space;
use std::sync::Mutex;

impl<T: Real> Saved for SaddlePoint<T> {
    fn save(&self, to: &mut Writer<'_>) {
        let SaddlePoint { space, pattern, blocks, block_diagonal, inverse, a, complement, sign, work: _ } =
            self;
        (space.clone(), pattern.clone()).save(to);
        blocks.save(to);
        block_diagonal.save(to);
        inverse.save(to);
        a.save(to);
        complement.save(to);
        sign.save(to);
    }

    fn load(from: &mut Reader<'_>) -> Loaded<SaddlePoint<T>> {
        let (space, pattern): (crate::host::HostSpace<T>, std::sync::Arc<crate::formats::pattern::Pattern>) =
            from.load()?;
        let blocks: super::Blocks<T> = from.load()?;
        if pattern.rows() != space.len() || !blocks.fits(space.len(), pattern.entries()) {
            return Err(InconsistentData);
        }
        let work = Mutex::new(Work::new(&blocks).map_err(|_| InconsistentData)?);
        let (block_diagonal, inverse): (bool, Vec<T>) = (from.load()?, from.load()?);
        let (a, complement): (super::Inner<T>, super::Complement<T>) = (from.load()?, from.load()?);
        let [n, m] = blocks.rows.each_ref().map(Vec::len);
        if [inverse.len(), a.rows(), complement.rows()] != [n, n, m] {
            return Err(InconsistentData);
        }
        Ok(SaddlePoint {
            space,
            pattern,
            blocks,
            block_diagonal,
            inverse,
            a,
            complement,
            sign: from.load()?,
            work,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SaddlePoint;
    use crate::gallery;
    use crate::host::HostVector;
    use crate::preconditioners::{BlockSolver, Refresh, SaddlePointOptions, Schur};
    use crate::saved::{InconsistentData, Keys, Saved, read, write};
    use krysp_solvers::{LinearOperator, Space};

    #[test]
    fn what_is_loaded_computes_what_was_saved() {
        let path = std::env::temp_dir().join(format!("krysp_saddle_{}", std::process::id()));
        let a = gallery::stokes::<f64>(&[9, 8]).unwrap();
        let keys = Keys::new("a test", 1, 2);
        let r = a.domain().vector(&(0..a.rows()).map(|i| (i as f64).sin()).collect::<Vec<_>>()).unwrap();
        let image = |m: &SaddlePoint<f64>| {
            let mut z: HostVector<f64> = a.domain().zeros().unwrap();
            m.apply(&r, &mut z).unwrap();
            z.as_slice().to_vec()
        };
        let solvers = [BlockSolver::Amg, BlockSolver::Complete, BlockSolver::Incomplete];
        for first in solvers {
            for schur in [Schur::Diagonal, Schur::Sparse, Schur::LeastSquares] {
                let options = SaddlePointOptions { first, schur, ..SaddlePointOptions::default() };
                let mut m = SaddlePoint::with(&a, options).unwrap();
                write(&path, &keys, |to| m.save(to)).unwrap();
                let mut loaded: SaddlePoint<f64> = read(&path, &keys, |from, _| from.load()).unwrap();
                assert_eq!(image(&m), image(&loaded), "{m}");
                let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
                let doubled = a.with_values(&doubled).unwrap();
                m.refresh(&doubled).unwrap();
                loaded.refresh(&doubled).unwrap();
                assert_eq!(image(&m), image(&loaded), "{m}");
            }
        }
        // blocks of another matrix do not fit
        let m = SaddlePoint::new(&a).unwrap();
        let other = gallery::stokes::<f64>(&[8, 8]).unwrap();
        write(&path, &keys, |to| {
            (other.domain().clone(), m.pattern.clone()).save(to);
            m.blocks.save(to);
        })
        .unwrap();
        let broken = read(&path, &keys, |from, _| Ok(from.load::<SaddlePoint<f64>>().map(drop)));
        assert!(matches!(broken, Ok(Err(InconsistentData)) | Err(_)));
        std::fs::remove_file(&path).unwrap();
    }
}
