//! One system on several GPUs: each has some of the rows, and every method runs on all of them at once.
//!
//! ```no_run
//! use krysp::testing::matrices;
//! use krysp::{Cg, Cuda, Spread};
//!
//! let a = matrices::stencil7(100).csr::<f64>()?;
//! let gpus = [Cuda::new(0)?, Cuda::new(1)?];
//! let spread = Spread::new(&gpus, &a)?;
//! println!("{spread}");
//! let b = vec![1.0; a.rows()];
//! let solution = spread.solve(&b, |part, b| Cg::new(part).preconditioner(part.jacobi()?).rtol(1e-8).solve(b))?;
//! assert!(solution.report.converged());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rows are cut into ranges of about equally many entries, in the numbering that the matrix has: number an irregular matrix
//! first ([`Csr::renumbered`] by clusters), so that few rows read what other GPUs own.
//!
//! The closure runs once for each GPU, on a thread of its own, with that GPU's [`Part`] and its slice of `b`. All must do
//! the same. What a product reads of other GPUs travels from memory to memory while rows are multiplied that need none of
//! it; sums are added up by the GPUs, in their order. The host waits for neither. So all GPUs have the same numbers, bit by
//! bit, decide alike, and need the same number of iterations; a second solve gives the same bits.

use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, failed};
use crate::formats::{Format, row_blocks};
use crate::partition::{Cut, even_parts};
use crate::{Csr, Error, HostSpace, Operator, Real, Result};
use krysp_kernels::cuda::team::halo::{Halo, Plan};
use krysp_kernels::cuda::team::member::Member;
use krysp_solvers::{Diagonal, Element, Form, LinearOperator, Solution, Space, check_spaces};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A square matrix whose rows are shared by several GPUs.
pub struct Spread<T: Real> {
    space: HostSpace<T>,
    parts: Vec<Part<T>>,
    /// Held during a solve: there is one team.
    solving: Mutex<()>,
}

/// A GPU's rows of a matrix: an operator on its part of the vectors.
pub struct Part<T: Real> {
    gpu: Cuda,
    rows: Range<usize>,
    member: Arc<Member>,
    space: CudaSpace<T>,
    /// The entries in columns that this GPU owns.
    own: Operator<CudaVector<T>>,
    halo: Halo<T>,
    diagonal: Vec<T>,
    report: PartReport,
}

/// What a GPU has of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct PartReport {
    /// The GPU's name.
    pub gpu: String,
    /// Its rows.
    pub rows: usize,
    /// Their entries.
    pub entries: usize,
    /// Those of them in columns of other GPUs.
    pub outside: usize,
    /// Entries of `x` that it receives in a product.
    pub received: usize,
    /// Bytes of its arrays that a product reads.
    pub bytes: usize,
    /// The format of the entries in columns of its own.
    pub format: String,
}

impl<T: Real> Spread<T> {
    /// Shares a matrix among GPUs, up to eight, which must reach each other's memory.
    pub fn new(gpus: &[Cuda], csr: &Csr<T>) -> Result<Spread<T>> {
        let (rows, cols) = (csr.rows(), csr.cols());
        if rows != cols || Format::source(csr).domain() != Format::source(csr).range() {
            return Err(Error::NotSquare { what: "a matrix on several GPUs", rows, cols });
        }
        let ordinals: Vec<usize> = gpus.iter().map(Cuda::ordinal).collect();
        if let Some(twice) = (1..ordinals.len()).find(|&at| ordinals[..at].contains(&ordinals[at])) {
            // its parts would wait for each other on one device
            let (what, got) = ("the GPUs", format!("GPU {} twice", ordinals[twice]));
            return Err(Error::Option { what, got, expected: "each named once" });
        }
        // unknowns of a node stay together
        let mut bounds = even_parts(&*csr.pattern().offsets, gpus.len(), row_blocks(csr));
        bounds.resize(gpus.len() + 1, rows);
        let ranges: Vec<Range<usize>> = bounds.windows(2).map(|b| b[0]..b[1]).collect();
        let lengths: Vec<usize> = ranges.iter().map(Range::len).collect();
        // queues of their own: what else runs on these GPUs does not get in between
        let gpus = gpus.iter().map(|gpu| Cuda::new(gpu.ordinal())).collect::<Result<Vec<_>>>()?;
        let devices: Vec<_> = gpus.iter().map(|gpu| gpu.device().clone()).collect();
        let members: Vec<Arc<Member>> = Member::team(&devices, &lengths)?.into_iter().map(Arc::new).collect();
        let offsets = csr.offsets();
        let cut = ranges.iter().map(|part| {
            let (range, offsets) = (part.start as u64..part.end as u64, &offsets[part.start..=part.end]);
            Cut::new(rows as u64, range, offsets, csr.columns(), csr.entries())
        });
        let cut = cut.collect::<Result<Vec<Cut<T>>>>()?;
        let plans: Vec<Plan<T>> = (0..cut.len()).map(|own| plan(&cut, &ranges, own)).collect();
        let halos = Halo::connect(&members, &plans)?;
        let mut parts = vec![];
        for ((((gpu, rows), member), cut), halo) in
            gpus.into_iter().zip(ranges).zip(members).zip(cut).zip(halos)
        {
            // spaces that are made now are those of the team
            gpu.device().join(Some(member.clone()));
            let own = Operator::auto(&cut.inside, &gpu)?;
            let space = CudaSpace::like(&gpu, &HostSpace::new(rows.len()));
            gpu.device().join(None);
            let report = PartReport {
                gpu: gpu.name().into(),
                rows: rows.len(),
                entries: cut.inside.nnz() + cut.values.len(),
                outside: cut.values.len(),
                received: cut.ghosts.len(),
                bytes: own.bytes() + halo.bytes(),
                format: own.choice().stored().to_string(),
            };
            let diagonal = csr.diagonal_entries()[rows.clone()].to_vec();
            parts.push(Part { gpu, rows, member, space, own, halo, diagonal, report });
        }
        Ok(Spread { space: Format::source(csr).domain().clone(), parts, solving: Mutex::default() })
    }

    /// What each GPU has.
    pub fn parts(&self) -> impl Iterator<Item = &PartReport> {
        self.parts.iter().map(|part| &part.report)
    }

    /// Solves on all GPUs at once: `solve` is called on a thread for each, with its part of the matrix and of `b`, and does
    /// the same on each. The solution is in the order of `b`, and the report that of the first GPU.
    pub fn solve<F>(&self, b: &[T], solve: F) -> Result<Solution<T>>
    where
        F: Fn(&Part<T>, &[T]) -> krysp_solvers::Result<Solution<T>> + Sync,
    {
        let n = self.space.len();
        if b.len() != n {
            let (what, got, of, expected) = ("`b`", b.len(), "`A`'s rows", n);
            return Err(krysp_solvers::Error::Size { what, got, of, expected }.into());
        }
        let numbering = self.space.numbering().cloned();
        let ordered: Option<Vec<T>> = numbering
            .as_ref()
            .map(|numbering| numbering.old_of_new().iter().map(|&old| b[old as usize]).collect());
        let b = ordered.as_deref().unwrap_or(b);
        let _solving = self.solving.lock().unwrap_or_else(PoisonError::into_inner);
        let solutions = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .parts
                .iter()
                .map(|part| {
                    let (solve, b) = (&solve, &b[part.rows.clone()]);
                    scope.spawn(move || part.run(|part| solve(part, b)))
                })
                .collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(solution) => solution,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<Vec<_>>()
        });
        // the other parts failed because this one did
        let failed_first = self.parts.first().and_then(|part| part.member.given_up_by());
        let mut solutions = solutions;
        if let Some(failed) = failed_first.filter(|&at| solutions[at].is_err()) {
            return Ok(solutions.swap_remove(failed)?);
        }
        let solutions = solutions.into_iter().collect::<krysp_solvers::Result<Vec<_>>>()?;
        let mut x = Vec::with_capacity(n);
        let mut report = None;
        for solution in solutions {
            x.extend_from_slice(&solution.x);
            report.get_or_insert(solution.report);
        }
        if let Some(numbering) = numbering {
            let found = std::mem::take(&mut x);
            x = numbering.new_of_old().iter().map(|&new| found[new as usize]).collect();
        }
        Ok(Solution { x, report: report.unwrap_or_default() })
    }
}

/// A table of the parts.
impl<T: Real> fmt::Display for Spread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.parts().map(|part| part.entries).sum();
        write!(f, "{} rows, {all} entries on {} GPUs", self.space.len(), self.parts.len())?;
        for (at, part) in self.parts().enumerate() {
            let PartReport { gpu, rows, entries, outside, received, bytes, format } = part;
            let share = 100.0 * *entries as f64 / all.max(1) as f64;
            write!(
                f,
                "\n{at}: {gpu}, {rows} rows, {entries} entries ({share:.1} %), {outside} outside its columns, "
            )?;
            write!(f, "receives {received} entries of x, reads {:.1} MB ({format})", *bytes as f64 / 1e6)?;
        }
        Ok(())
    }
}

impl<T: Real> Part<T> {
    /// Works in the team for as long as `solve` takes.
    fn run<R>(&self, solve: impl FnOnce(&Self) -> krysp_solvers::Result<R>) -> krysp_solvers::Result<R> {
        /// Leaves the team, and lets the others go where this thread ends early.
        struct Leave<'p>(&'p Cuda, &'p Member, bool);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if !self.2 {
                    self.1.give_up();
                }
                let _ = self.0.synchronize();
                self.0.device().join(None);
            }
        }
        if self.member.given_up_by().is_some() {
            let why = "a GPU of this team has failed before: spread the matrix again";
            return Err(krysp_solvers::Error::Backend(why.into()));
        }
        self.gpu.device().join(Some(self.member.clone()));
        let mut leave = Leave(&self.gpu, &self.member, false);
        let result = solve(self);
        leave.2 = result.is_ok();
        result
    }

    /// The GPU, and the queue on it that works for this matrix.
    pub fn gpu(&self) -> &Cuda {
        &self.gpu
    }

    /// Its rows, in the numbering of the matrix.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Jacobi's preconditioner: the inverse of this part of the diagonal.
    pub fn jacobi(&self) -> Result<Diagonal<CudaVector<T>>> {
        if let Some(row) = self.diagonal.iter().position(|&d| {
            let inverse = T::one() / d;
            !Element::is_finite(inverse) || inverse.is_zero()
        }) {
            return Err(Error::ZeroDiagonal {
                row: self.rows.start + row,
                value: self.diagonal[row].to_f64(),
            });
        }
        let inverse: Vec<T> = self.diagonal.iter().map(|&d| T::one() / d).collect();
        Ok(Diagonal::new(self.space.vector(&inverse)?))
    }
}

impl<T: Real> LinearOperator for Part<T> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        &self.space
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, x, y)?;
        self.halo.send(&x.entries).map_err(failed)?;
        self.own.apply(x, y)?;
        self.halo.add(&x.entries, &mut y.entries).map_err(failed)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        check_spaces(self, x, y)?;
        self.halo.send(&x.entries).map_err(failed)?;
        let own = self.gpu.device().apart(|| self.own.apply_dot(x, y))?;
        Ok(CudaScalar(self.halo.add_dot(&x.entries, &mut y.entries, &own.0).map_err(failed)?))
    }

    fn form(&self) -> Form<'_, CudaVector<T>> {
        Form::General
    }

    fn bytes(&self) -> usize {
        self.report.bytes
    }

    fn replays(&self) -> bool {
        true
    }
}

/// What a member sends, receives and adds.
fn plan<T: Real>(cut: &[Cut<T>], ranges: &[Range<usize>], own: usize) -> Plan<T> {
    let mine = &cut[own];
    let of = |cut: &Cut<T>, member: usize| {
        let Range { start, end } = ranges[member];
        cut.ghosts_of(&(start as u64..end as u64))
    };
    let first = ranges[own].start as u64;
    let sends = cut
        .iter()
        .map(|other| other.ghosts[of(other, own)].iter().map(|&column| (column - first) as u32).collect());
    let mut ghosts_from: Vec<usize> = (0..cut.len()).map(|member| of(mine, member).start).collect();
    ghosts_from.push(mine.ghosts.len());
    Plan {
        sends: sends.collect(),
        ghosts_from,
        rows: mine.rows.clone(),
        offsets: mine.offsets.clone(),
        columns: mine.columns.clone(),
        values: mine.values.clone(),
    }
}
