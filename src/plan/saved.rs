//! A planned solver in a file: settings, measured costs, the matrix in its format, and the preconditioner.
//!
//! The CSR matrix is in the file only if it was reordered; otherwise it is that of the caller of `load`, which must have the same
//! pattern. If its values differ, they are taken as by [`PlannedSolver::refresh`], and the next solve renews the preconditioner.
//!
//! A checksum does not detect a forged file, so `load` also compares products ([`agrees`]).

use super::executor::{loaded, stored};
use super::schedule::Findings;
use super::solver::Settings;
use super::{Backend, PlannedSolver};
use crate::choice::{Operator, Stores};
use crate::error::{Error, Result, SavedFileError};
use crate::formats::{Csr, Format};
use crate::numbers::Real;
use crate::saved::{InconsistentData, Keys, read, write};
use krysp_kernels::cpu::run::threads::map_rows;
use krysp_solvers::{LinearOperator, Space, Vector};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Saves the solver, so that the next run of a program can [`load`](PlannedSolver::load) it and skip planning and setup. Call it
    /// after a solve, which chooses the configuration and builds its preconditioner.
    ///
    /// ```
    /// use krysp::plan::PlannedSolver;
    /// use krysp::{Csr, Host, Plan};
    ///
    /// # let path = std::env::temp_dir().join(format!("krysp_solver_{}", std::process::id()));
    /// # let path = path.as_path();
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
    /// let mut solver = Plan::new(&a)?.build()?;
    /// solver.solve(&[2.0, 4.0])?;
    /// solver.save(path)?;
    ///
    /// // in a later run, for the same matrix
    /// let mut solver = PlannedSolver::load(path, &a, &Host)?;
    /// assert_eq!(solver.solve(&[2.0, 4.0])?.x, [1.0, 1.0]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), krysp::Error>(())
    /// ```
    ///
    /// Declarations about the system, coordinates for example, are in the file. For a GPU only decisions are saved; formats and
    /// preconditioners are rebuilt.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let operator = self.operator()?;
        let built = match (&self.running, &self.kept) {
            (Some((index, running)), _) => Some((*index, running.operators().1)),
            (None, Some((index, kept))) => Some((*index, &**kept)),
            (None, None) => None,
        };
        write(path.as_ref(), &keys::<T, M>(&self.matrix), |to| {
            // a reordered matrix is in the file: callers of `load` have it in their own order
            let reordered = self.matrix.domain().permutation().is_some();
            to.write(&reordered);
            if reordered {
                to.write(&*self.matrix);
            } else {
                to.knows(&self.matrix.source().pattern);
            }
            to.write(&self.settings);
            to.write(&self.scheduler.found);
            operator.write(to);
            to.write(&built.map(|(index, _)| index));
            to.write(&built.is_some_and(|(index, _)| self.scheduler.is_built(index) == Some(true)));
            if let Some((_, m)) = built
                && !M::save_preconditioner(m, to)
            {
                to.write(&false);
            }
        })
    }

    /// Loads a solver that [`PlannedSolver::save`] wrote, for a matrix with the same pattern, on the same kind of machine. If its values
    /// differ, they are taken as by [`PlannedSolver::refresh`], which checks a declared null space.
    ///
    /// Returns [`Error::Saved`](crate::Error::Saved), with the reason, for a file of another kind, version, processor or matrix, and for
    /// one that is truncated or has any changed bit. A product with a random vector, of the stored matrix and of its format, is compared
    /// with that of `a`. The file must not be truncated while it is read: most operating systems end the process in that case.
    pub fn load(path: impl AsRef<Path>, a: &Csr<T>, machine: &M) -> Result<Self> {
        let (own, settings, findings, operator, kept, stale) =
            read(path.as_ref(), &keys::<T, M>(a), |from, other_values| {
                let own = if from.read()? { Some(from.read::<Csr<T>>()?) } else { None };
                if own.is_none() {
                    from.knows(&a.source().pattern);
                }
                let reordered = own.as_ref().unwrap_or(a).domain().permutation().is_some();
                if reordered != own.is_some() {
                    return Err(InconsistentData);
                }
                let settings: Settings = from.read()?;
                settings.options.declarations.check(a.rows()).map_err(|_| InconsistentData)?;
                let findings: Findings = from.read()?;
                let operator = machine.load(from)?;
                let index: Option<usize> = from.read()?;
                let stale: bool = from.read()?;
                let kept = match index {
                    Some(index) if from.read()? => {
                        let preconditioner =
                            findings.candidates.get(index).ok_or(InconsistentData)?.preconditioner;
                        Some((index, M::load_preconditioner(preconditioner, from)?))
                    }
                    _ => None,
                };
                Ok((own, settings, findings, operator, kept, [stale, other_values]))
            })?;
        let matrix = own.unwrap_or_else(|| a.clone());
        let operator = match operator {
            Ok(operator) => operator,
            Err(choice) => Operator::in_format(&matrix, machine, choice.stored().format())?,
        };
        let kept = match kept {
            Some((index, m)) => Some((index, settings.options.declarations.deflated(&operator, m)?)),
            None => None,
        };
        let [stale, other_values] = stale;
        let mut solver = PlannedSolver::with(machine.clone(), a, matrix, operator, settings, findings);
        solver.kept = kept;
        solver.note_built();
        if other_values {
            // the matrix has them, the operator of the file has not
            solver.replace_values(a.entries())?;
        } else {
            solver.settings.options.declarations.check_null_space(&solver.matrix)?;
            if stale {
                solver.scheduler.mark_stale();
            }
        }
        if agrees(a, &*solver.matrix)? && agrees(a, solver.operator()?)? {
            return Ok(solver);
        }
        Err(Error::Saved { path: path.as_ref().to_owned(), why: SavedFileError::OtherValues })
    }
}

/// Whether `own`, from a file, is the caller's matrix: one product with a random vector, which a forger cannot predict, is that of `a` to
/// rounding (Freivalds 1979). Entries may differ as far as formats for symmetric matrices allow: by `100 ε max(|aᵢⱼ|, √|aᵢᵢ aⱼⱼ|)`.
fn agrees<T: Real, V: Vector<Elem = T>>(
    a: &Csr<T>,
    own: &dyn LinearOperator<Vector = V>,
) -> krysp_solvers::Result<bool> {
    if [own.domain().len(), own.range().len()] != [a.cols(), a.rows()] {
        return Ok(false);
    }
    let random = RandomState::new();
    // from 0.5 to 1.5, in steps that `f32` represents exactly
    let entry = |row: usize| 0.5 + (random.hash_one(row) >> 44) as f64 / f64::from(1 << 20);
    let x: Vec<T> = map_rows(a.cols(), 1, &|row| T::from_f64(entry(row)));
    let mut to = own.range().zeros()?;
    own.apply(&loaded(own.domain(), &x)?, &mut to)?;
    let got = stored(&to)?;

    let (x, got) = (a.domain().vector(&x)?, a.range().vector(&got)?);
    let diagonal: Vec<f64> = a.diagonal_entries().iter().map(|&value| value.to_f64().abs().sqrt()).collect();
    let differs = |row: usize| {
        let (mut sum, mut scale, columns) = (0.0_f64, 0.0_f64, a.row_columns(row));
        for (&column, &value) in columns.iter().zip(a.row_values(row)) {
            let (column, value) = (column as usize, value.to_f64());
            sum += value * x.as_slice()[column].to_f64();
            scale += 1.5 * value.abs().max(diagonal[row] * diagonal[column]);
        }
        let close =
            (got.as_slice()[row].to_f64() - sum).abs() <= T::EPSILON * (128 + columns.len()) as f64 * scale;
        // a product that may exceed the range of `T` proves nothing
        T::from_f64(scale).to_f64().is_finite() && !close
    };
    Ok(!map_rows(a.rows(), 4, &differs).contains(&true))
}

/// Keys by which a file is matched with the caller's matrix, element type and machine.
fn keys<T: Real, M: Backend<T>>(a: &Csr<T>) -> Keys {
    let [pattern, values] = a.fingerprints();
    let kind = format!("a plan of {} for {}", std::any::type_name::<T>(), <M as Stores<T>>::KIND);
    Keys::new(&kind, pattern, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::permutation::Permutation;
    use crate::plan::{Candidate, Plan, Preconditioner};
    use crate::saved::checksum::checksum;
    use crate::testing::matrices;
    use krysp_kernels::cpu::simd::{Level, force};
    use std::path::PathBuf;

    /// A file of one test, and its bytes.
    fn saved(name: &str, plan: &Plan<'_, f64>) -> (PathBuf, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("krysp_{}_{name}", std::process::id()));
        let mut planned = plan.build().unwrap();
        planned.solve(&vec![1.0; plan.a.rows()]).unwrap();
        planned.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    }

    fn load(path: &Path, bytes: &[u8], a: &Csr<f64>) -> Result<PlannedSolver<f64, Host>> {
        std::fs::write(path, bytes).unwrap();
        PlannedSolver::load(path, a, &Host)
    }

    #[test]
    fn every_flip_and_every_cut_is_refused() {
        let _one_level = force(Level::Portable);
        let a = matrices::stencil7(3).csr::<f64>().unwrap();
        let (path, bytes) = saved("flips", &Plan::new(&a).unwrap().preconditioner(Preconditioner::Jacobi));
        load(&path, &bytes, &a).unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= flip;
                let Err(error) = load(&path, &flipped, &a) else { panic!("byte {at} may be wrong") };
                let Error::Saved { why, .. } = error else { panic!("{error}") };
                let expected = match at {
                    0..8 => matches!(why, SavedFileError::NotSaved),
                    8..16 => matches!(why, SavedFileError::Length { .. }),
                    _ => matches!(why, SavedFileError::Damaged),
                };
                assert!(expected, "byte {at}: {why}");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        for cut in (0..bytes.len()).map(|end| &bytes[..end]).chain([&longer[..]]) {
            let Err(Error::Saved { why, .. }) = load(&path, cut, &a) else { panic!("{} bytes", cut.len()) };
            let length = matches!(why, SavedFileError::Length { .. })
                || cut.len() < 24 && why == SavedFileError::NotSaved;
            assert!(length, "{} bytes: {why}", cut.len());
        }
        std::fs::remove_file(path).unwrap();
    }

    /// The products of a row may exceed the range of `f32` although the sum in `f64` does not.
    #[test]
    fn a_row_beyond_the_range_of_its_elements_is_not_compared() {
        let of =
            |last: f32| Csr::from_triplets(2, 2, &[(0, 0, 3e38_f32), (0, 1, 3e38), (1, 1, last)]).unwrap();
        assert!(agrees(&of(1.0), &of(1.0)).unwrap());
        assert!(!agrees(&of(1.0), &of(2.0)).unwrap());
    }

    /// A loaded solver begins with the candidate that was the best when it was saved, also for new values.
    #[test]
    fn decisions_are_kept_for_new_values() {
        let _one_level = force(Level::best());
        let a = matrices::stencil7(10).csr::<f64>().unwrap();
        let path = std::env::temp_dir().join(format!("krysp_{}_kept", std::process::id()));
        let (b, doubled) = (vec![1.0; a.rows()], a.entries().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
        let mut solver = Plan::new(&a).unwrap().solves(90).values_change(true).build().unwrap();
        let direct = |one: &Candidate| one.preconditioner == Preconditioner::Cholesky;
        let at = solver.scheduler.found.candidates.iter().position(direct).unwrap();
        solver.scheduler.pretend_best(at);
        let solves = |solver: &mut PlannedSolver<f64, Host>, when: &str| {
            let solved = solver.solve(&b).unwrap();
            assert!(solved.converged(), "{when}: {solved}");
            let [attempt] = &solved.attempts[..] else { panic!("{when}: {solved}") };
            assert_eq!(attempt.preconditioner, Preconditioner::Cholesky, "{when}: {solved}");
        };
        solves(&mut solver, "first");
        solver.save(&path).unwrap();
        let mut loaded = PlannedSolver::load(&path, &a, &Host).unwrap();
        assert_eq!(loaded.scheduler.is_built(at), Some(false));
        let given = a.with_values(&doubled).unwrap();
        let mut other = PlannedSolver::load(&path, &given, &Host).unwrap();
        assert_eq!(other.scheduler.is_built(at), Some(true), "factors of a file take other values");
        solves(&mut other, "loaded for other values");
        solves(&mut loaded, "loaded");
        for (solver, when) in [(&mut solver, "built, new values"), (&mut loaded, "loaded, new values")] {
            solver.refresh(&doubled).unwrap();
            assert_eq!(solver.scheduler.is_built(at), Some(true), "{when}");
            solves(solver, when);
        }
        // a file records that its factors are those of earlier values
        solver.save(&path).unwrap();
        let loaded = PlannedSolver::load(&path, &given, &Host).unwrap();
        assert_eq!(loaded.scheduler.is_built(at), solver.scheduler.is_built(at));
        std::fs::remove_file(path).unwrap();
    }

    /// Replaces a number in a file, and corrects the checksum.
    fn forged(bytes: &[u8], from: f64, to: f64) -> Vec<u8> {
        let (from, mut forged, mut found) = (from.to_ne_bytes(), bytes.to_vec(), 0);
        for at in 24..bytes.len() - 7 {
            if bytes[at..at + 8] == from {
                forged[at..at + 8].copy_from_slice(&to.to_ne_bytes());
                found += 1;
            }
        }
        assert!(found > 0, "{from:?} is not in the file");
        let sum = checksum(&forged[24..]);
        forged[16..24].copy_from_slice(&sum.to_le_bytes());
        forged
    }

    /// Files with forged values are refused: of a matrix in the user's order, of one stored by one triangle, and of a reordered one.
    #[test]
    fn a_file_with_values_of_another_matrix_is_refused() {
        let _one_level = force(Level::best());
        let a = matrices::stencil7(6).csr::<f64>().unwrap();
        // an entry that equals no other number in the file
        let marked = |of: &Csr<f64>, value: f64| {
            let mut entries = of.entries().to_vec();
            let at = of.triplets().position(|(row, column, _)| row == 100 && column == 100).unwrap();
            entries[at] = value;
            of.with_values(&entries).unwrap()
        };
        let a = marked(&a, 6.15);
        let reordered = a.reordered(&Permutation::rcm(&a).unwrap()).unwrap();
        for (name, a, format) in
            [("csr", &a, "Csr"), ("half", &a, "SymCsr"), ("reordered", &reordered, "Sell")]
        {
            let (path, bytes) = saved(&format!("values_{name}"), &Plan::new(a).unwrap().format(format));
            load(&path, &bytes, a).unwrap();
            let refused = load(&path, &forged(&bytes, 6.15, 6.15 + 1e-9), a);
            let Err(Error::Saved { why, .. }) = refused else { panic!("{name}: loaded") };
            assert_eq!(why, SavedFileError::OtherValues, "{name}");
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Forged files with a correct checksum cause no access out of bounds.
    #[test]
    fn forged_files_are_refused_or_harmless() {
        let _one_level = force(Level::Portable);
        let [small, grid, part] = [matrices::stencil7(3), matrices::stencil7(9), matrices::elasticity(6)]
            .map(|one| one.csr::<f64>().unwrap());
        let suits =
            |one: &Preconditioner| !matches!(one, Preconditioner::SaddlePoint | Preconditioner::CuDss);
        let all = Preconditioner::ALL.into_iter().filter(suits).map(|one| (&small, one, 100));
        // levels of both kinds: unsmoothed and smoothed aggregation
        let levels = [&grid, &part].map(|a| (a, Preconditioner::Amg, 400));
        for (a, preconditioner, count) in all.chain(levels) {
            let plan = Plan::new(a).unwrap().preconditioner(preconditioner);
            let (path, bytes) = saved(&format!("forged_{preconditioner}_{}", a.rows()), &plan);
            let mut refused = 0;
            let places = (24..bytes.len()).step_by(bytes.len().div_ceil(count));
            for at in places.clone() {
                // the lowest bit of some, the highest of others
                let mut forged = bytes.clone();
                forged[at] ^= if at % 2 == 0 { 1 } else { 0x80 };
                let sum = checksum(&forged[24..]);
                forged[16..24].copy_from_slice(&sum.to_le_bytes());
                match load(&path, &forged, a) {
                    Ok(solver) => {
                        let (mut solver, b) = (solver.max_iterations(Some(5)), vec![1.0; a.rows()]);
                        drop(solver.solve(&b));
                        drop(solver.refresh(a.entries()));
                        drop(solver.solve(&b));
                    }
                    Err(Error::Saved { .. }) => refused += 1,
                    Err(error) => panic!("{preconditioner}, byte {at}: {error}"),
                }
            }
            assert!(refused > 5, "{preconditioner}: {refused} of {}", places.len());
            std::fs::remove_file(path).unwrap();
        }
    }
}
