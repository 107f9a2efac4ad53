//! Saving and loading a block preconditioner.

use super::schur::Work;
use super::{Blocks, Complement, Inner, SaddlePoint};
use crate::formats::pattern::Pattern;
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::saved::{InconsistentData, saved};
use krysp_solvers::Space;
use std::sync::{Arc, Mutex};

saved!(impl[T: Real] SaddlePoint<T> as |this| {
    space: HostSpace<T> = &this.space,
    pattern: Arc<Pattern> = &this.pattern,
    blocks: Blocks<T> = &this.blocks,
    block_diagonal: bool = &this.block_diagonal,
    inverse: Vec<T> = &this.inverse,
    a: Inner<T> = &this.a,
    complement: Complement<T> = &this.complement,
    sign: T = &this.sign,
} => {
    if pattern.rows() != space.len() || !blocks.fits(space.len(), pattern.entries()) {
        return Err(InconsistentData);
    }
    let work = Mutex::new(Work::new(&blocks).map_err(|_| InconsistentData)?);
    let [n, m] = blocks.rows.each_ref().map(Vec::len);
    if [inverse.len(), a.rows(), complement.rows()] != [n, n, m] {
        return Err(InconsistentData);
    }
    Ok(SaddlePoint { space, pattern, blocks, block_diagonal, inverse, a, complement, sign, work })
});

#[cfg(test)]
mod tests {
    use super::SaddlePoint;
    use crate::gallery;
    use crate::host::HostVector;
    use crate::preconditioners::{BlockSolver, Refresh, SaddlePointOptions, Schur};
    use crate::saved::{Keys, copied, read, write};
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
                write(&path, &keys, |to| to.write(&m)).unwrap();
                let mut loaded: SaddlePoint<f64> = read(&path, &keys, |from, _| from.read()).unwrap();
                assert_eq!(image(&m), image(&loaded), "{m}");
                let doubled: Vec<f64> = a.entries().iter().map(|value| 2.0 * value).collect();
                let doubled = a.with_values(&doubled).unwrap();
                m.refresh(&doubled).unwrap();
                loaded.refresh(&doubled).unwrap();
                assert_eq!(image(&m), image(&loaded), "{m}");
            }
        }
        // blocks of another matrix do not fit
        let mut m = SaddlePoint::new(&a).unwrap();
        assert!(copied(&m).is_ok());
        m.space = gallery::stokes::<f64>(&[8, 8]).unwrap().domain().clone();
        assert!(copied(&m).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
