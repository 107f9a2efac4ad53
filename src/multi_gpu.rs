//! Solves one system on several GPUs of a machine: each GPU has some of the rows, and every method runs on
//! all GPUs together.
//!
//! ```no_run
//! use krysp::{Cg, Cuda, MultiGpu, gallery};
//!
//! let a = gallery::poisson::<f64>(&[100; 3])?;
//! let gpus = [Cuda::new(0)?, Cuda::new(1)?];
//! let multi_gpu = MultiGpu::new(&gpus, &a)?;
//! println!("{multi_gpu}");
//! let b = vec![1.0; a.rows()];
//! let solution = multi_gpu.solve(&b, |part, b| Cg::new(part).preconditioner(part.jacobi()?).rtol(1e-8).solve(b))?;
//! assert!(solution.report.converged());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rows are divided into ranges with about equally many entries, in the order of the matrix. Reorder an
//! unstructured matrix first ([`Csr::reordered`] with a clustered ordering), so that few rows need entries
//! of `x` owned by other GPUs. A matrix for which one GPU would be faster stays on one; [`MultiGpu::on_all_gpus`]
//! distributes it anyway.
//!
//! The closure runs once for each GPU, on a separate thread, with that GPU's [`GpuPart`] and its slice of `b`.
//! The closure must make the same calls on each. In a product, entries of `x` on other GPUs are copied
//! directly between the GPUs while the diagonal blocks, which do not need them, are multiplied. The GPUs also
//! add up inner products, in the order of the GPUs. The host waits neither for the copies nor for the sums.
//! All GPUs have bitwise the same scalars, so they take the same decisions and need the same number of
//! iterations. A repeated solve gives bitwise the same result.

mod forecast;
mod matrix;
mod part;

pub use crate::partition::Balance;
pub use matrix::{GpuPartMatrix, MultiGpuMatrix};
pub use part::GpuPart;

use crate::device::Cuda;
use crate::error::{Error, Result};
use crate::formats::{Csr, Format, Source, row_blocks};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::partition::by_nonzeros;
use forecast::Forecast;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cuda::team::member::Member;
use krysp_kernels::ranges::even_parts;
use krysp_solvers::{Solution, Space};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A square matrix whose rows are distributed over several GPUs.
#[doc(alias = "several GPUs")]
#[doc(alias = "distributed")]
pub struct MultiGpu<T: Real> {
    source: Source<T>,
    space: HostSpace<T>,
    parts: Vec<GpuPart<T>>,
    forecast: Forecast,
    /// Locked while the GPUs solve together (as a team), so that there is only one solve at a time.
    working: Mutex<()>,
}

/// A GPU's part of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct PartReport {
    /// Name of the GPU.
    pub gpu: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of entries.
    pub entries: usize,
    /// Number of entries in columns of other GPUs.
    pub off_diagonal: usize,
    /// Number of entries of `x` received in a product.
    pub received: usize,
    /// Bytes of the GPU's matrix arrays that a product reads.
    pub bytes: usize,
    /// Format of the diagonal block, which holds the entries in columns of this GPU.
    pub format: String,
}

impl<T: Real> MultiGpu<T> {
    /// Distributes a matrix over the first `k` of up to eight GPUs that have peer access to each other, with
    /// the `k` that gives the shortest estimated time of an iteration. `k` may be 1.
    pub fn new(gpus: &[Cuda], csr: &Csr<T>) -> Result<MultiGpu<T>> {
        each_once(gpus)?;
        let forecast = Forecast::new(gpus, csr)?;
        let multi_gpu = MultiGpu::evenly(&gpus[..forecast.best()], csr, forecast.clone())?;
        // the number of exchanged entries is known now
        let received = multi_gpu.parts().map(|part| part.received).max().unwrap_or(0);
        match multi_gpu.parts.len() > 1
            && forecast.one_is_faster(multi_gpu.parts.len(), received * size_of::<T>())
        {
            true => MultiGpu::evenly(&gpus[..1], csr, forecast),
            false => Ok(multi_gpu),
        }
    }

    /// Distributes a matrix over all of these GPUs, even if fewer would be faster. GPUs that would get no row
    /// are left out.
    pub fn on_all_gpus(gpus: &[Cuda], csr: &Csr<T>) -> Result<MultiGpu<T>> {
        each_once(gpus)?;
        MultiGpu::evenly(gpus, csr, Forecast::new(gpus, csr)?)
    }

    /// Distributes a matrix over all of these GPUs in proportion to their computing powers, which
    /// [`MultiGpu::balance`] measures. Rows are divided as by [`by_nonzeros`], but nodes of several unknowns are
    /// kept whole.
    pub fn by_powers(gpus: &[Cuda], csr: &Csr<T>, powers: &[f64]) -> Result<MultiGpu<T>> {
        each_once(gpus)?;
        MultiGpu::cut(gpus, csr, powers)
    }

    /// Like [`MultiGpu::by_powers`], but several of `gpus` may be CUDA streams of one GPU, for tests on a machine
    /// with a single GPU. Parts wait for each other, so the kernels of all must fit on that GPU at the same
    /// time.
    #[cfg(any(test, feature = "testing"))]
    pub fn on_streams(gpus: &[Cuda], csr: &Csr<T>, powers: &[f64]) -> Result<MultiGpu<T>> {
        MultiGpu::cut(gpus, csr, powers)
    }

    fn evenly(gpus: &[Cuda], csr: &Csr<T>, forecast: Forecast) -> Result<MultiGpu<T>> {
        let bounds = even_parts(&*csr.pattern().offsets, gpus.len(), row_blocks(csr));
        MultiGpu::among(gpus, csr, bounds, forecast)
    }

    fn cut(gpus: &[Cuda], csr: &Csr<T>, powers: &[f64]) -> Result<MultiGpu<T>> {
        if powers.len() != gpus.len() {
            let (what, got) = ("the powers", format!("{} for {} GPUs", powers.len(), gpus.len()));
            return Err(Error::Option { what, got, expected: "one for each" });
        }
        let (at, rows, node) = (&csr.pattern().offsets, csr.rows(), row_blocks(csr));
        let entries = |first: usize| at.at((first + node).min(rows)) - at.at(first);
        let lengths: Vec<usize> = (0..rows).step_by(node).map(entries).collect();
        let bounds = by_nonzeros(&lengths, powers)?;
        let bounds = bounds.iter().map(|bound| (bound * node).min(rows)).collect();
        MultiGpu::among(gpus, csr, bounds, Forecast::new(gpus, csr)?)
    }

    /// Assigns rows `bounds[k]..bounds[k + 1]` to GPU `k`. GPUs without rows are left out, except for one if
    /// the matrix has no rows.
    fn among(all: &[Cuda], csr: &Csr<T>, bounds: Vec<usize>, forecast: Forecast) -> Result<MultiGpu<T>> {
        let (rows, cols) = (csr.rows(), csr.cols());
        if rows != cols || Format::source(csr).domain() != Format::source(csr).range() {
            return Err(Error::NotSquare { what: "a matrix on several GPUs", rows, cols });
        }
        let ranges = all.iter().zip(bounds.windows(2)).map(|(gpu, b)| (gpu, b[0]..b[1]));
        let (mut gpus, mut ranges): (Vec<&Cuda>, Vec<Range<usize>>) =
            ranges.filter(|(_, rows)| !rows.is_empty()).unzip();
        if rows == 0 {
            gpus.extend(all.first());
            ranges.push(0..0);
        }
        let lengths: Vec<usize> = ranges.iter().map(Range::len).collect();
        // use separate CUDA streams, so that no other work is enqueued between the kernels of a solve
        let queue = |gpu: &Cuda| {
            let own = Cuda::new(gpu.ordinal())?;
            own.limit_memory(gpu.device().limit());
            Ok(own)
        };
        let gpus = gpus.into_iter().map(queue).collect::<Result<Vec<_>>>()?;
        let devices: Vec<_> = gpus.iter().map(|gpu| gpu.device().clone()).collect();
        let members: Vec<Arc<Member>> = Member::team(&devices, &lengths)?.into_iter().map(Arc::new).collect();
        let places: Vec<_> = gpus.into_iter().zip(members).zip(ranges).collect();
        let places = places.iter().map(|((gpu, member), rows)| (gpu, member, rows.clone()));
        let matrices = matrix::cut(csr, places.clone())?;
        let diagonal = csr.diagonal_entries();
        let parts = places.zip(matrices).map(|((gpu, member, rows), matrix)| {
            let diagonal = diagonal[rows.clone()].to_vec();
            GpuPart::new(gpu.clone(), member.clone(), rows, matrix, diagonal)
        });
        let parts = parts.collect();
        let source = Format::source(csr).clone();
        Ok(MultiGpu { space: source.domain().clone(), source, parts, forecast, working: Mutex::default() })
    }

    /// Reports of the parts of all GPUs.
    pub fn parts(&self) -> impl Iterator<Item = PartReport> {
        self.parts.iter().map(GpuPart::report)
    }

    /// Measures the time that each GPU takes to multiply its diagonal block, one GPU after the other. If the
    /// times differ, a partition by the measured powers makes products faster; [`Balance::gain`] estimates by
    /// how much. Entries in columns of other GPUs do not count, because their products are not measured:
    ///
    /// ```no_run
    /// # use krysp::{Cuda, MultiGpu, gallery};
    /// # let a = gallery::poisson::<f64>(&[100; 3])?;
    /// # let gpus = [Cuda::new(0)?, Cuda::new(1)?];
    /// let mut multi_gpu = MultiGpu::new(&gpus, &a)?;
    /// let balance = multi_gpu.balance()?;
    /// println!("{balance}");
    /// if balance.gain() > 0.05 {
    ///     multi_gpu = MultiGpu::by_powers(&gpus, &a, &balance.powers())?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn balance(&self) -> Result<Balance> {
        let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = self.parts.iter().map(GpuPart::seconds).collect::<Result<_>>()?;
        Ok(Balance { seconds, entries: own_entries(self.parts()) })
    }

    /// Distributes another matrix of the same unknowns in the same way, for example an approximate inverse as
    /// preconditioner.
    ///
    /// ```no_run
    /// use krysp::solvers::Composed;
    /// use krysp::{Cg, Cuda, Fsai, MultiGpu, gallery};
    ///
    /// let a = gallery::poisson::<f64>(&[100; 3])?;
    /// let multi_gpu = MultiGpu::new(&[Cuda::new(0)?, Cuda::new(1)?], &a)?;
    /// let fsai = Fsai::new(&a)?;
    /// let [lower, upper] = [multi_gpu.matrix(fsai.lower())?, multi_gpu.matrix(fsai.upper())?];
    /// let solution = multi_gpu.solve(&vec![1.0; a.rows()], |part, b| {
    ///     let inverse = Composed::new(upper.of(part), lower.of(part))?;
    ///     Cg::new(part).preconditioner(inverse).rtol(1e-8).solve(b)
    /// })?;
    /// assert!(solution.report.converged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matrix(&self, csr: &Csr<T>) -> Result<MultiGpuMatrix<T>> {
        let source = Format::source(csr);
        if *source.domain() != self.space || *source.range() != self.space {
            return Err(krysp_solvers::Error::Space { what: "the matrix", than: "`A`" }.into());
        }
        let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.parts.iter().map(|part| (part.gpu(), part.member(), part.rows()));
        Ok(MultiGpuMatrix::new(matrix::cut(csr, places)?))
    }

    /// Replaces the values for the same pattern. `values` are in the order of [`Csr::entries`] of the matrix
    /// from which this was made, as for [`Format::refresh`].
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.source.check_entries(values)?;
        let csr = Csr::from_source(self.source.clone(), Buffer::copy_of(values));
        let diagonal = csr.diagonal_entries();
        self.parts.iter_mut().try_for_each(|part| part.refresh(&csr, &diagonal))
    }

    /// Converts assembled values to entries, as [`Csr::assemble`] of the matrix from which this was made.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.source.assemble(values)
    }

    /// Solves on all GPUs together: for each GPU, a thread calls `solve` with the GPU's part of the matrix
    /// and of `b`. `solve` must make the same calls on each. The solution is in the order of `b`, and the
    /// report is that of the first GPU.
    pub fn solve<F>(&self, b: &[T], solve: F) -> Result<Solution<T>>
    where
        F: Fn(&GpuPart<T>, &[T]) -> krysp_solvers::Result<Solution<T>> + Sync,
    {
        let n = self.space.len();
        if b.len() != n {
            let (what, got, of, expected) = ("`b`", b.len(), "`A`'s rows", n);
            return Err(krysp_solvers::Error::Size { what, got, of, expected }.into());
        }
        let permutation = self.space.permutation().cloned();
        let ordered: Option<Vec<T>> = permutation
            .as_ref()
            .map(|permutation| permutation.old_of_new().iter().map(|&old| b[old as usize]).collect());
        let b = ordered.as_deref().unwrap_or(b);
        let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.parts.first().map(GpuPart::member);
        let failed_member = || first.and_then(|member| member.failed_member());
        if let Some(failed) = failed_member() {
            return Err(unusable(format!("GPU {failed} of this team has failed before")));
        }
        first.iter().for_each(|member| member.begin());
        let mut solutions = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .parts
                .iter()
                .map(|part| {
                    let (solve, b) = (&solve, &b[part.rows()]);
                    scope.spawn(move || part.run(|part| solve(part, b)))
                })
                .collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(solution) => solution,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<Vec<_>>()
        });
        if let Some(failed) = failed_member() {
            // the error of this part made the others fail
            solutions.swap_remove(failed)?;
            let why = "did not take part in a collective operation: all parts must make the same calls";
            return Err(unusable(format!("GPU {failed} of this team {why}")));
        }
        let solutions = solutions.into_iter().collect::<krysp_solvers::Result<Vec<_>>>()?;
        let mut x = Vec::with_capacity(n);
        let mut report = None;
        for solution in solutions {
            x.extend_from_slice(&solution.x);
            report.get_or_insert(solution.report);
        }
        if let Some(permutation) = permutation {
            let found = std::mem::take(&mut x);
            x = permutation.new_of_old().iter().map(|&new| found[new as usize]).collect();
        }
        Ok(Solution { x, report: report.unwrap_or_default() })
    }
}

/// Returns an error if a GPU is listed twice: its two parts would wait for each other on one device.
fn each_once(gpus: &[Cuda]) -> Result<()> {
    let ordinals: Vec<usize> = gpus.iter().map(Cuda::ordinal).collect();
    match (1..ordinals.len()).find(|&at| ordinals[..at].contains(&ordinals[at])) {
        Some(twice) => {
            let (what, got) = ("the GPUs", format!("GPU {} twice", ordinals[twice]));
            Err(Error::Option { what, got, expected: "each listed once" })
        }
        None => Ok(()),
    }
}

fn unusable(why: String) -> Error {
    krysp_solvers::Error::Backend(format!("{why}; distribute the matrix again").into()).into()
}

/// Number of entries of each diagonal block.
fn own_entries(parts: impl Iterator<Item = PartReport>) -> Vec<usize> {
    parts.map(|part| part.entries - part.off_diagonal).collect()
}

/// A table of the parts, and the estimated times on other numbers of GPUs.
impl<T: Real> fmt::Display for MultiGpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.parts().map(|part| part.entries).sum();
        write!(f, "{} rows, {all} entries on {} GPUs", self.space.len(), self.parts.len())?;
        for (at, part) in self.parts().enumerate() {
            let PartReport { gpu, rows, entries, off_diagonal, received, bytes, format } = part;
            let share = 100.0 * entries as f64 / all.max(1) as f64;
            write!(
                f,
                "\n{at}: {gpu}, {rows} rows, {entries} entries ({share:.1} %), {off_diagonal} outside its columns, "
            )?;
            write!(f, "receives {received} entries of x, reads {:.1} MB ({format})", bytes as f64 / 1e6)?;
        }
        write!(f, "\n{}", self.forecast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two equal GPUs, one of which has many entries in columns of the other: the times of the diagonal blocks
    /// give equal powers.
    #[test]
    fn off_diagonal_entries_add_no_power() {
        let part = |entries, off_diagonal| PartReport {
            gpu: "GPU".into(),
            rows: 10,
            entries,
            off_diagonal,
            received: 0,
            bytes: 0,
            format: "CSR".into(),
        };
        let entries = own_entries([part(100, 50), part(110, 10)].into_iter());
        assert_eq!(Balance { seconds: vec![0.5, 1.0], entries }.powers(), [100.0, 100.0]);
    }
}
