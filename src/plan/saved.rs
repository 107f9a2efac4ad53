//! A ladder in a file: what was decided, what solves have cost, the matrix in its format, and the preconditioner that runs.
//!
//! The matrix itself is not in the file: whoever loads has it. What stands where in it must be what it was. Other values are
//! taken as [`PlannedSolver::refresh`] takes them.

use super::ladder::{Memory, user_order};
use super::{Backend, Candidate, PlannedSolver};
use crate::choice::Stores;
use crate::saved::{Broken, Keys, Saved, read, write};
use crate::{Csr, Format, LinearOperator, Operator, Real, Result};
use std::path::Path;

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// Saves what was built, so that the next run of a program can [`load`](PlannedSolver::load) it and begin without building. Best
    /// after a solve: it has found out which configuration suits, and built that.
    ///
    /// ```
    /// use krysp::plan::PlannedSolver;
    /// use krysp::{Csr, Host, Plan};
    ///
    /// # let path = std::env::temp_dir().join(format!("krysp_ladder_{}", std::process::id()));
    /// # let path = path.as_path();
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
    /// let mut solver = Plan::new(&a)?.build()?;
    /// solver.solve(&[2.0, 4.0])?;
    /// solver.save(path)?;
    ///
    /// // another day, the same matrix
    /// let mut solver = PlannedSolver::load(path, &a, &Host)?;
    /// assert_eq!(solver.solve(&[2.0, 4.0])?.x, [1.0, 1.0]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), krysp::Error>(())
    /// ```
    ///
    /// For a GPU decisions are saved; formats and preconditioners are made there again.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let operator = self.operator()?;
        let built = match (&self.running, &self.read) {
            (Some((index, rung)), _) => Some((*index, rung.preconditioner())),
            (None, Some((index, read))) => Some((*index, &**read)),
            (None, None) => None,
        };
        write(path.as_ref(), &keys::<T, M>(&self.matrix), |to| {
            // one that was renumbered is in the file: whoever loads has it in the user's numbering
            let renumbered = self.matrix.domain().numbering().is_some();
            renumbered.save(to);
            if renumbered {
                Saved::save(&*self.matrix, to);
            } else {
                to.knows(&self.matrix.source().pattern);
            }
            self.memory.save(to);
            operator.write(to);
            built.map(|(index, _)| index).save(to);
            if let Some((index, m)) = built
                && !M::save_preconditioner(self.memory.candidates[index].preconditioner, m, to)
            {
                false.save(to);
            }
        })
    }

    /// Reads what [`PlannedSolver::save`] wrote, for a matrix of the same pattern on the same kind of machine. Other values are taken as
    /// [`PlannedSolver::refresh`] takes them.
    ///
    /// Refuses a file of another kind, version, processor or matrix, one that was cut off, and one in which any bit is not what
    /// was written: [`Error::Saved`](crate::Error::Saved) says which. The file must not be truncated while it is read: most
    /// operating systems end the process in that case.
    pub fn load(path: impl AsRef<Path>, a: &Csr<T>, machine: &M) -> Result<Self> {
        let (own, memory, operator, read, other_values) =
            read(path.as_ref(), &keys::<T, M>(a), |from, other_values| {
                let own: Option<Csr<T>> = from.load()?;
                if own.is_none() {
                    from.knows(&a.source().pattern);
                }
                let numbered = own.as_ref().unwrap_or(a).domain().numbering().is_some();
                if numbered != own.is_some() {
                    return Err(Broken);
                }
                let memory: Memory = from.load()?;
                let operator = <M as Stores<T>>::load(from)?;
                let read = match from.load()? {
                    Some(index) if from.load()? => {
                        let candidate: &Candidate = memory.candidates.get::<usize>(index).ok_or(Broken)?;
                        Some((index, M::load_preconditioner(candidate.preconditioner, from)?))
                    }
                    _ => None,
                };
                Ok((own, memory, operator, read, other_values))
            })?;
        let matrix = own.unwrap_or_else(|| a.clone());
        let user_order = user_order(a, &matrix);
        let operator = match operator {
            Ok(operator) => operator,
            Err(choice) => Operator::in_format(&matrix, machine, choice.stored().format())?,
        };
        // as many solves are ahead as were when the plan was made
        let memory = Memory { solves: 0, ..memory };
        let mut ladder = PlannedSolver {
            read,
            user_order,
            ..PlannedSolver::with(machine.clone(), matrix, operator, memory)
        };
        if other_values {
            ladder.refresh(a.entries())?;
        }
        Ok(ladder)
    }
}

/// What a file of this matrix must say of itself.
fn keys<T: Real, M: Backend<T>>(a: &Csr<T>) -> Keys {
    let [pattern, values] = a.fingerprints();
    let kind = format!("a plan of {} for {}", std::any::type_name::<T>(), <M as Stores<T>>::KIND);
    Keys::new(&kind, pattern, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Unusable;
    use crate::saved::checksum::checksum;
    use crate::simd::{Level, force};
    use crate::testing::matrices;
    use crate::{Error, Host, Plan, plan::Preconditioner};
    use std::path::PathBuf;

    /// A file of one test, and its bytes.
    fn saved(name: &str, a: &Csr<f64>, preconditioner: Preconditioner) -> (PathBuf, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("krysp_{}_{name}", std::process::id()));
        let mut ladder = Plan::new(a).unwrap().preconditioner(preconditioner).build().unwrap();
        ladder.solve(&vec![1.0; a.rows()]).unwrap();
        ladder.save(&path).unwrap();
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
        let (path, bytes) = saved("flips", &a, Preconditioner::Jacobi);
        load(&path, &bytes, &a).unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= flip;
                let Err(error) = load(&path, &flipped, &a) else { panic!("byte {at} may be wrong") };
                let Error::Saved { why, .. } = error else { panic!("{error}") };
                let expected = match at {
                    0..8 => matches!(why, Unusable::NotSaved),
                    8..16 => matches!(why, Unusable::Length { .. }),
                    _ => matches!(why, Unusable::Damaged),
                };
                assert!(expected, "byte {at}: {why}");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        for cut in (0..bytes.len()).map(|end| &bytes[..end]).chain([&longer[..]]) {
            let Err(Error::Saved { why, .. }) = load(&path, cut, &a) else { panic!("{} bytes", cut.len()) };
            let length =
                matches!(why, Unusable::Length { .. }) || cut.len() < 24 && why == Unusable::NotSaved;
            assert!(length, "{} bytes: {why}", cut.len());
        }
        std::fs::remove_file(path).unwrap();
    }

    /// A run from a file goes the way of the run that wrote it, though new values come: in its course, or at once.
    #[test]
    fn what_was_found_out_is_kept_for_new_values() {
        let a = matrices::stencil7(10).csr::<f64>().unwrap();
        let path = std::env::temp_dir().join(format!("krysp_{}_kept", std::process::id()));
        let (b, doubled) = (vec![1.0; a.rows()], a.entries().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
        let mut ladder = Plan::new(&a).unwrap().solves(90).new_values(true).build().unwrap();
        let direct = |one: &Candidate| one.preconditioner == Preconditioner::Cholesky;
        let at = ladder.memory.candidates.iter().position(direct).unwrap();
        // as if factors had turned out to be the best
        ladder.memory.known.fill(Some(1e4));
        ladder.memory.known[at] = Some(10.0);
        let solves = |ladder: &mut PlannedSolver<f64, Host>, when: &str| {
            let solved = ladder.solve(&b).unwrap();
            assert!(solved.converged(), "{when}: {solved}");
            let [rung] = &solved.attempts[..] else { panic!("{when}: {solved}") };
            assert_eq!(rung.preconditioner, Preconditioner::Cholesky, "{when}: {solved}");
        };
        solves(&mut ladder, "first");
        ladder.save(&path).unwrap();
        let mut loaded = PlannedSolver::load(&path, &a, &Host).unwrap();
        assert_eq!(loaded.memory.solves, 0);
        let given = a.with_values(&doubled).unwrap();
        let mut other = PlannedSolver::load(&path, &given, &Host).unwrap();
        assert!(other.is_ready(at), "factors of a file take other values");
        solves(&mut other, "loaded for other values");
        solves(&mut loaded, "loaded");
        for (ladder, when) in [(&mut ladder, "built, new values"), (&mut loaded, "loaded, new values")] {
            ladder.refresh(&doubled).unwrap();
            assert!(ladder.is_ready(at), "{when}");
            solves(ladder, when);
        }
        std::fs::remove_file(path).unwrap();
    }

    /// A file whose checksum was made to fit is no reason to read or write where nothing is.
    #[test]
    fn forged_files_are_refused_or_harmless() {
        let _one_level = force(Level::Portable);
        let [small, grid, part] = [matrices::stencil7(3), matrices::stencil7(9), matrices::elasticity(6)]
            .map(|one| one.csr::<f64>().unwrap());
        let all = Preconditioner::ALL.map(|preconditioner| (&small, preconditioner, 100));
        // levels of both kinds: aggregates as they are, and smoothed
        let levels = [&grid, &part].map(|a| (a, Preconditioner::Amg, 400));
        for (a, preconditioner, count) in all.into_iter().chain(levels) {
            let (path, bytes) = saved(&format!("forged_{preconditioner}_{}", a.rows()), a, preconditioner);
            let mut refused = 0;
            let places = (24..bytes.len()).step_by(bytes.len().div_ceil(count));
            for at in places.clone() {
                // the lowest bit of some, the highest of others
                let mut forged = bytes.clone();
                forged[at] ^= if at % 2 == 0 { 1 } else { 0x80 };
                let sum = checksum(&forged[24..]);
                forged[16..24].copy_from_slice(&sum.to_le_bytes());
                match load(&path, &forged, a) {
                    Ok(ladder) => {
                        let (mut ladder, b) = (ladder.max_iterations(Some(5)), vec![1.0; a.rows()]);
                        drop(ladder.solve(&b));
                        drop(ladder.refresh(a.entries()));
                        drop(ladder.solve(&b));
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
