//! A matrix whose rows are split between the host and coprocessors.

use super::coprocessor::Coprocessor;
use super::forecast::{Forecast, after_pause};
use super::halo::Halo;
use super::own::Own;
use super::report::{Measured, MemberReport};
use super::scalar::SplitScalar;
use super::vector::{SplitSpace, SplitVector};
use crate::choice::{Host, Operator};
use crate::error::{Error, Result};
use crate::formats::{Csr, Format, Source};
use crate::host::HostVector;
use crate::numbers::Real;
use crate::partition::{Cut, PartSummary, RowShares};
use krysp_kernels::buffer::Buffer;
use krysp_solvers::{Diagonal, Element, LinearOperator, Space, check_spaces};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// A square matrix whose rows are split between the host and coprocessors, which multiply them at the same
/// time: an operator on vectors that are split in the same way.
pub struct SplitMatrix<T: Real, M: Coprocessor<T>> {
    source: Source<T>,
    space: SplitSpace<T, M>,
    /// `None` if the host has no rows.
    of_host: Option<Own<HostVector<T>>>,
    of_others: Vec<Own<M::Vector>>,
    halo: Mutex<Halo<T, M>>,
    diagonal: Vec<T>,
    shares: RowShares,
    members: Vec<MemberReport>,
    /// Indices of the processors that take part, the host and the machines with rows.
    used: Vec<usize>,
    pub(super) forecast: Option<Forecast>,
    /// True after a refresh that failed, which may leave old values beside new ones.
    mixed: bool,
}

impl<T: Real, M: Coprocessor<T>> SplitMatrix<T, M> {
    /// Splits the rows between the host and these machines, if that is expected to be faster than the machines
    /// alone; otherwise the host gets no rows. `Display` prints the estimates, and when the host would save time.
    ///
    /// Computing powers are measured by products of the matrix, or of a part of a large one, on each machine.
    pub fn new(machines: &[M], csr: &Csr<T>) -> Result<Self> {
        each_once(machines)?;
        let mut forecast = Forecast::measure(machines, csr)?;
        let all = RowShares::by_nonzeros(csr, &forecast.powers(true))?;
        let cuts = cut(csr, &all)?;
        forecast.exchange(machines, &cuts)?;
        if forecast.host_pays() {
            return Self::among(machines, csr, all, cuts, Some(forecast));
        }
        drop(cuts);
        let alone = RowShares::by_nonzeros(csr, &forecast.powers(false))?;
        let cuts = cut(csr, &alone)?;
        Self::among(machines, csr, alone, cuts, Some(forecast))
    }

    /// Splits the rows between the host and all of these machines by measured powers, even if the machines
    /// alone are expected to be faster.
    pub fn on_all(machines: &[M], csr: &Csr<T>) -> Result<Self> {
        each_once(machines)?;
        let mut forecast = Forecast::measure(machines, csr)?;
        let shares = RowShares::by_nonzeros(csr, &forecast.powers(true))?;
        let cuts = cut(csr, &shares)?;
        forecast.exchange(machines, &cuts)?;
        Self::among(machines, csr, shares, cuts, Some(forecast))
    }

    /// Splits the rows as given: the first share is that of the host, the others are those of the machines.
    /// Machines without rows take no part.
    ///
    /// Results are bitwise repeatable for equal shares, which can be saved ([`RowShares::save`]).
    pub fn with_shares(machines: &[M], csr: &Csr<T>, shares: &RowShares) -> Result<Self> {
        each_once(machines)?;
        let (got, expected) = (shares.powers().len(), machines.len() + 1);
        if got != expected {
            let (what, got) = ("the shares", format!("{got} for the host and {} machines", machines.len()));
            return Err(Error::Option { what, got, expected: "one for the host, then one for each machine" });
        }
        if shares.bounds().last() != Some(&csr.rows()) {
            let got = format!("those of {} rows", shares.bounds().last().unwrap_or(&0));
            return Err(Error::Option {
                what: "the shares",
                got,
                expected: "those of the rows of the matrix",
            });
        }
        let reordered = shares.permutation().map(|order| csr.reordered(order)).transpose()?;
        let csr = reordered.as_ref().unwrap_or(csr);
        Self::among(machines, csr, shares.clone(), cut(csr, shares)?, None)
    }

    fn among(
        machines: &[M],
        csr: &Csr<T>,
        shares: RowShares,
        cuts: Vec<Cut<T>>,
        forecast: Option<Forecast>,
    ) -> Result<Self> {
        let source = Format::source(csr).clone();
        let mut members = members(machines, csr, &shares, forecast.as_ref());
        let has_rows = |&at: &usize| at == 0 || members[at].rows.rows > 0;
        let used: Vec<usize> = (0..members.len()).filter(has_rows).collect();
        let machines: Vec<M> = used[1..].iter().map(|&at| machines[at - 1].clone()).collect();
        let mut processor = 0..;
        let mut cuts = cuts;
        cuts.retain(|_| processor.next().is_some_and(|at| used.contains(&at)));
        let bounds = [0].into_iter().chain(used.iter().map(|&at| shares.bounds()[at + 1])).collect();

        let space = SplitSpace::new(source.domain().clone(), bounds, &machines);
        let halo = Halo::new(&space, &cuts)?;
        let of_host = match cuts[0].inside.rows() {
            0 => None,
            _ => Some(Own::new(Operator::auto(&cuts[0].inside, &Host)?)),
        };
        let of_others = machines.iter().zip(&cuts[1..]);
        let of_others = of_others.map(|(machine, cut)| Ok(Own::new(machine.operator(&cut.inside, None)?)));
        let of_others = of_others.collect::<Result<Vec<_>>>()?;
        let stored = of_others.iter().map(|own| Some((own.matrix.choice(), own.matrix.bytes())));
        let stored = std::iter::once(of_host.as_ref().map(|own| (own.matrix.choice(), own.matrix.bytes())))
            .chain(stored);
        for (at, ((&processor, stored), cut)) in used.iter().zip(stored).zip(&cuts).enumerate() {
            let member = &mut members[processor];
            (member.off_diagonal, member.received) = (cut.values.len(), cut.ghosts.len());
            if let Some((choice, bytes)) = stored {
                (member.format, member.bytes) = (choice.stored().to_string(), bytes + halo.bytes(at));
            }
        }
        let (halo, diagonal) = (Mutex::new(halo), csr.diagonal_entries());
        let mixed = false;
        Ok(SplitMatrix {
            source,
            space,
            of_host,
            of_others,
            halo,
            diagonal,
            shares,
            members,
            used,
            forecast,
            mixed,
        })
    }

    /// The shares by which rows were split. Saved and given to [`SplitMatrix::with_shares`], they give bitwise
    /// the same products.
    pub fn shares(&self) -> &RowShares {
        &self.shares
    }

    /// Reports of the host's part, then of each machine's.
    pub fn members(&self) -> &[MemberReport] {
        &self.members
    }

    /// Measures how long each processor takes for its part of a product, one after the other, and how long a
    /// whole product takes. If times differ, other shares make products faster; [`Measured::gain`] estimates by
    /// how much:
    ///
    /// ```no_run
    /// # use krysp::host_and_gpus::HostAndGpus;
    /// # use krysp::partition::RowShares;
    /// # use krysp::{Cuda, gallery};
    /// # let a = gallery::poisson::<f64>(&[100; 3])?;
    /// # let gpus = [Cuda::new(0)?];
    /// let mut shared = HostAndGpus::on_all(&gpus, &a)?;
    /// let measured = shared.balance()?;
    /// println!("{measured}");
    /// if measured.gain() > 0.05 {
    ///     shared = HostAndGpus::with_shares(&gpus, &a, &RowShares::by_nonzeros(&a, &measured.powers())?)?;
    /// }
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn balance(&self) -> Result<Measured> {
        self.usable()?;
        let (x, mut y) = (self.space.zeros()?, self.space.zeros()?);
        let mut seconds = vec![0.0; self.members.len()];
        if let Some(own) = &self.of_host {
            // between these two starts the host waits for the machines
            let (x, y) = (&x.host, &mut y.host);
            seconds[0] = after_pause(|| Ok(own.apply(x, y, false).map(drop)?))?
                + after_pause(|| {
                    Ok(self.halo().add_to_host(x.as_slice(), y.as_mut_slice(), false).map(drop)?)
                })?;
        }
        let others = self.of_others.iter().zip(self.space.others());
        for (k, (own, (machine, _))) in others.enumerate() {
            let (x, y) = (&x.others[k], &mut y.others[k]);
            let call = || {
                let mut halo = self.halo();
                halo.collect_from(k, x)?;
                own.apply(x, y, false)?;
                halo.add(k, x, y, None)?;
                Ok(())
            };
            seconds[self.used[k + 1]] = fastest(call, || machine.synchronize())?;
        }
        let wait = || self.space.others().iter().try_for_each(|(machine, _)| machine.synchronize());
        let product = fastest(|| Ok(self.apply(&x, &mut y)?), wait)?;
        Ok(Measured { members: self.members.clone(), seconds, product })
    }

    /// Jacobi preconditioner: the inverse of the diagonal.
    pub fn jacobi(&self) -> Result<Diagonal<SplitVector<T, M>>> {
        self.usable()?;
        let inverse: Vec<T> = self.diagonal.iter().map(|&d| T::one() / d).collect();
        if let Some(row) = inverse.iter().position(|&d| !Element::is_finite(d) || d.is_zero()) {
            let user = self.source.domain().permutation().map_or(row, |p| p.old_of_new()[row] as usize);
            return Err(Error::diagonal(user, self.diagonal[row].to_f64()));
        }
        let mut diagonal = self.space.zeros()?;
        self.space.load_ordered(&inverse, &mut diagonal)?;
        Ok(Diagonal::new(diagonal))
    }

    /// The diagonal block of the host, if it has rows.
    pub(super) fn host_block(&self) -> Result<Option<Csr<T>>> {
        self.usable()?;
        let block = self.of_host.as_ref().map(|own| own.matrix.origin().in_host_memory());
        Ok(block.transpose()?.map(Cow::into_owned))
    }

    /// The diagonal blocks of the machines.
    pub(super) fn machine_blocks(&self) -> Result<Vec<Csr<T>>> {
        self.usable()?;
        let block = |own: &Own<M::Vector>| own.matrix.origin().in_host_memory().map(Cow::into_owned);
        self.of_others.iter().map(block).collect()
    }

    /// Replaces the values for the same pattern. `values` are in the order of [`Csr::entries`] of the matrix
    /// from which this was made, reordered if the shares have a permutation; see [`SplitMatrix::assemble`].
    ///
    /// If a machine fails, the matrix is unusable until a refresh succeeds.
    pub fn refresh(&mut self, values: &[T]) -> Result<()> {
        self.source.check_entries(values)?;
        let csr = Csr::from_source(self.source.clone(), Buffer::copy_of(values));
        let cuts = self.space.ranges().map(|rows| Cut::of(&csr, &rows)).collect::<Result<Vec<_>>>()?;
        self.mixed = true;
        if let Some(own) = &mut self.of_host {
            own.matrix.refresh(cuts[0].inside.entries())?;
        }
        for (own, cut) in self.of_others.iter_mut().zip(&cuts[1..]) {
            own.matrix.refresh(cut.inside.entries())?;
        }
        self.diagonal = csr.diagonal_entries();
        self.halo.get_mut().unwrap_or_else(PoisonError::into_inner).refresh(&cuts)?;
        self.mixed = false;
        Ok(())
    }

    /// Returns an error after a refresh that failed.
    fn usable(&self) -> krysp_solvers::Result<()> {
        if !self.mixed {
            return Ok(());
        }
        let why =
            "the last refresh of this matrix failed, so it has old values beside new ones: refresh it again";
        Err(krysp_solvers::Error::Backend(why.into()))
    }

    /// Converts assembled values to entries, as [`Csr::assemble`] of the matrix from which this was made.
    pub fn assemble<'v>(&self, values: &'v [T]) -> Result<Cow<'v, [T]>> {
        self.source.assemble(values)
    }

    /// Lets a processor multiply `times` more times by those of `rows` that it owns, which takes time and
    /// changes nothing: a test of the balance. `processor` is an index of [`SplitMatrix::members`], `rows` are
    /// in the order of the matrix.
    #[cfg(any(test, feature = "testing"))]
    pub fn slowed(mut self, processor: usize, rows: &Range<usize>, times: usize) -> Result<Self> {
        let own = self.shares.ranges().nth(processor).unwrap_or_default();
        let slow = |block: &Csr<T>| {
            let kept = |row: usize| rows.contains(&(own.start + row));
            let entries: Vec<_> = block.triplets().filter(|&(row, ..)| kept(row)).collect();
            Csr::from_triplets(block.rows(), block.cols(), &entries)
        };
        if let Some(own) = self.of_host.as_mut().filter(|_| processor == 0) {
            let block = slow(&*own.matrix.origin().in_host_memory()?)?;
            own.slow_down(Operator::auto(&block, &Host)?, times)?;
        }
        let others = self.of_others.iter_mut().zip(self.space.others()).zip(&self.used[1..]);
        for ((own, (machine, _)), _) in others.filter(|(_, used)| **used == processor) {
            let block = slow(&*own.matrix.origin().in_host_memory()?)?;
            own.slow_down(machine.operator(&block, None)?, times)?;
        }
        Ok(self)
    }

    /// The buffers of a product. A thread of the pool does not wait for them: the product that uses them may wait for
    /// this thread.
    fn halo_of_product(&self) -> krysp_solvers::Result<MutexGuard<'_, Halo<T, M>>> {
        match self.halo.try_lock() {
            Err(TryLockError::WouldBlock) if rayon::current_thread_index().is_some() => {
                let why = "another solve is using this matrix on the host and GPUs: let its solves follow each other";
                Err(krysp_solvers::Error::Backend(why.into()))
            }
            Ok(halo) => Ok(halo),
            Err(_) => Ok(self.halo()),
        }
    }

    fn halo(&self) -> MutexGuard<'_, Halo<T, M>> {
        self.halo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `y ← A x`; returns `⟨x, y⟩` if `dot` is set.
    fn product(
        &self,
        x: &SplitVector<T, M>,
        y: &mut SplitVector<T, M>,
        dot: bool,
    ) -> krysp_solvers::Result<Option<SplitScalar<T>>> {
        check_spaces(self, x, y)?;
        self.usable()?;
        y.failure = x.failure.clone();
        let mut halo = self.halo_of_product()?;
        halo.collect(x)?;
        let mut sums = vec![];
        for ((own, x), y) in self.of_others.iter().zip(&x.others).zip(&mut y.others) {
            sums.push(own.apply(x, y, dot)?);
        }
        // what needs entries of the host only is queued before the host begins to compute
        halo.send_from_host(x.host.as_slice());
        let mut awaited: Vec<_> = sums.iter().map(|_| None).collect();
        let mut add = |halo: &mut Halo<T, M>, early: bool| {
            for (k, (machine, _)) in self.space.others().iter().enumerate() {
                if halo.needs_host_only(k) == early {
                    let sum = halo.add(k, &x.others[k], &mut y.others[k], sums[k].take())?;
                    awaited[k] = sum.map(|sum| machine.read_back([sum]));
                }
            }
            krysp_solvers::Result::Ok(())
        };
        add(&mut halo, true)?;
        let own = self.of_host.as_ref().map(|own| own.apply(&x.host, &mut y.host, dot)).transpose()?;
        halo.send_from_others()?;
        add(&mut halo, false)?;
        let added = halo.add_to_host(x.host.as_slice(), y.host.as_mut_slice(), dot)?;
        let of_host = own.flatten().unwrap_or(T::zero()) + added;
        let awaited = awaited.into_iter().flatten().collect();
        let [sum] = SplitScalar::sums([of_host], awaited, x.failure.clone());
        Ok(dot.then_some(sum))
    }
}

/// Returns an error if a machine is listed twice.
fn each_once<T: Real, M: Coprocessor<T>>(machines: &[M]) -> Result<()> {
    let twice =
        (1..machines.len()).find(|&at| machines[..at].iter().any(|other| machines[at].is_same(other)));
    twice.map_or(Ok(()), |twice| {
        let (what, got) = ("the list of machines", format!("one with {} twice", machines[twice].name()));
        Err(Error::Option { what, got, expected: "list each once" })
    })
}

/// The rows of each processor.
fn cut<T: Real>(csr: &Csr<T>, shares: &RowShares) -> Result<Vec<Cut<T>>> {
    let (rows, cols) = (csr.rows(), csr.cols());
    if rows != cols || csr.domain() != csr.range() {
        return Err(Error::NotSquare { what: "a matrix on the host and GPUs", rows, cols });
    }
    shares.ranges().map(|rows| Cut::of(csr, &rows)).collect()
}

/// The sizes of each processor's rows.
fn members<T: Real, M: Coprocessor<T>>(
    machines: &[M],
    csr: &Csr<T>,
    shares: &RowShares,
    forecast: Option<&Forecast>,
) -> Vec<MemberReport> {
    let total: f64 = shares.powers().iter().sum();
    let lengths: Vec<usize> = csr.row_lengths().collect();
    let names = std::iter::once(format!("host, {} threads", rayon::current_num_threads()))
        .chain(machines.iter().map(Coprocessor::name));
    let member = |(((name, range), power), processor): (((String, Range<usize>), &f64), usize)| {
        let lengths = &lengths[range];
        let nonzeros = lengths.iter().sum();
        let rows = PartSummary {
            rows: lengths.len(),
            nonzeros,
            longest: lengths.iter().copied().max().unwrap_or(0),
            share: csr.nnz() as f64 * power / total,
        };
        MemberReport {
            name,
            rows,
            of_all: csr.nnz(),
            off_diagonal: 0,
            received: 0,
            bytes: 0,
            format: String::new(),
            predicted: forecast.filter(|_| !lengths.is_empty()).map(|f| f.seconds_of(processor, nonzeros)),
        }
    };
    names.zip(shares.ranges()).zip(shares.powers()).zip(0..).map(member).collect()
}

/// Seconds of a call: the minimum of several measurements, each the mean of several calls. `wait` waits for
/// queued work.
pub(super) fn fastest(mut call: impl FnMut() -> Result<()>, wait: impl Fn() -> Result<()>) -> Result<f64> {
    call()?;
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        wait()?;
        let started = Instant::now();
        (0..CALLS).try_for_each(|_| call())?;
        wait()?;
        least = least.min(started.elapsed().as_secs_f64() / f64::from(CALLS));
    }
    Ok(least)
}

/// Number of measurements of which the fastest counts.
const ROUNDS: u32 = 5;

/// Number of calls in one measurement. Guess, chosen so that the start of a machine counts little.
const CALLS: u32 = 10;

impl<T: Real, M: Coprocessor<T>> LinearOperator for SplitMatrix<T, M> {
    type Vector = SplitVector<T, M>;

    fn domain(&self) -> &SplitSpace<T, M> {
        &self.space
    }

    fn apply(&self, x: &SplitVector<T, M>, y: &mut SplitVector<T, M>) -> krysp_solvers::Result<()> {
        self.product(x, y, false).map(|_| ())
    }

    fn apply_dot(
        &self,
        x: &SplitVector<T, M>,
        y: &mut SplitVector<T, M>,
    ) -> krysp_solvers::Result<SplitScalar<T>> {
        Ok(self.product(x, y, true)?.unwrap_or(T::zero().into()))
    }

    fn bytes(&self) -> usize {
        self.members.iter().map(|member| member.bytes).sum()
    }
}
