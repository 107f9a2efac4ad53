//! Measures computing powers, and estimates whether the host makes an iteration faster.
//!
//! An iteration of conjugate gradients multiplies by the matrix once, and reads or writes eleven vectors. With
//! the host, processors exchange entries of `x` once, the host reads back two sums, and its threads start
//! four operations. Starting them takes long where threads sleep while the machines compute. If all processors
//! take equally long:
//!
//! ```text
//! alone(k)  = seconds of a product + seconds of the vector operations, if processor k had all rows
//! shared    = 1 / Σ 1 / alone(k)
//! with      = max(shared (1 + 4 start / alone(host)), 4 start)  +  exchanged / bus + 3 latency
//! without   = shared, over the machines  +  overhead of launches
//! ```

use super::coprocessor::Coprocessor;
use super::matrix::fastest;
use crate::choice::{Host, Operator};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::partition::Cut;
use krysp_solvers::{BasicVector, LinearOperator, Space, Vector};
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, Instant};

/// Number of vectors that an iteration of conjugate gradients with a diagonal preconditioner reads or writes.
const VECTORS: f64 = 11.0;

/// Number of vectors that `axpby` reads or writes.
const MEASURED_VECTORS: f64 = 3.0;

/// Maximum number of entries of the matrix that is multiplied to measure powers: 400 MB in CSR, several times
/// what the caches of a GPU or a CPU hold.
const SAMPLE: usize = 1 << 25;

/// Number of times in an iteration that the host waits for the machines: for two sums, and for entries of `x`.
const WAITS: f64 = 3.0;

/// Number of operations in an iteration that all threads of the host start together: the product, that with
/// ghosts, and two updates of vectors. The first two are those of a product.
const STARTS: f64 = 4.0;

/// The host's start is measured with one part in this number of the rows, about what it gets beside a GPU.
const SMALL_PART: usize = 32;

/// Least power of the host, relative to the measured one. A guess.
const LEAST_POWER: f64 = 0.1;

/// Time for which the host waits before each start that is measured: about an iteration, long enough for its
/// threads to fall asleep.
const PAUSE: Duration = Duration::from_micros(200);

/// Number of starts that are measured; the median counts.
const MEASURED_STARTS: usize = 21;

/// Largest factor by which a system is enlarged to find out when the host saves time.
const LARGEST_FACTOR: f64 = 1e4;

/// Measured times of the processors, and estimates made of them.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    /// Seconds of a product on the host alone, then on each machine alone.
    products: Vec<f64>,
    /// Seconds of the vector operations of an iteration, likewise.
    vectors: Vec<f64>,
    /// Seconds that the threads of the host need to start an operation.
    start: f64,
    /// Number of entries of the matrix.
    entries: usize,
    /// Seconds of launches and synchronization of the machines without the host.
    overhead: f64,
    /// Seconds until the host has a sum that a machine computes.
    latency: f64,
    /// Seconds of transfers of `x` in a product.
    exchange: f64,
    /// Number of entries that fit in the memory of each machine.
    capacity: Vec<usize>,
}

impl Forecast {
    /// Measures products on the host and on each machine.
    pub(super) fn measure<T: Real, M: Coprocessor<T>>(machines: &[M], csr: &Csr<T>) -> Result<Forecast> {
        // During conversion a machine stores the matrix twice, as CSR and in its format. Both are counted with a value and a column
        // per entry; row offsets, which only CSR has, are rounded up to whole bytes per entry.
        let offsets = (size_of::<u32>() * csr.rows()).div_ceil(csr.nnz().max(1));
        let bytes = 2 * (size_of::<T>() + size_of::<u32>()) + offsets;
        let capacity = machines.iter().map(|machine| Ok(machine.free_memory()? / bytes));
        let capacity = capacity.collect::<Result<Vec<usize>>>()?;
        let sample = sample(csr, capacity.iter().copied().fold(SAMPLE, usize::min))?;
        let [of_entries, of_rows] = scales(csr, &sample);
        let of_host = seconds(&Operator::auto(&*sample, &Host)?, || Ok(()))?;
        let (mut products, mut vectors) = (vec![of_entries * of_host[0]], vec![of_rows * of_host[1]]);
        let start = start(&sample, of_host[0])?;
        let mut latency = 0.0;
        for machine in machines {
            let [product, vector] = seconds(&machine.operator(&sample, None)?, || machine.synchronize())?;
            products.push(of_entries * product);
            vectors.push(of_rows * vector);
            let x = machine.space(1).zeros()?;
            let read = || Ok(machine.read_back([x.dot(&x)])().map(drop)?);
            latency = f64::max(latency, fastest(read, || Ok(()))?);
        }
        let (entries, overhead) = (csr.nnz().max(1), M::overhead(machines.len()));
        Ok(Forecast { products, vectors, start, entries, overhead, latency, exchange: 0.0, capacity })
    }

    /// Adds the time that entries of `x` need to cross the bus if rows are split as in `cuts`.
    pub(super) fn exchange<T: Real, M: Coprocessor<T>>(
        &mut self,
        machines: &[M],
        cuts: &[Cut<T>],
    ) -> Result<()> {
        self.exchange = 0.0;
        for (machine, cut) in machines.iter().zip(cuts.iter().skip(1)) {
            // what a machine sends is about as much as it receives
            let bytes = cut.ghosts.len() * size_of::<T>();
            self.exchange = f64::max(self.exchange, 2.0 * bytes as f64 / machine.bus()?);
        }
        Ok(())
    }

    /// Computing power of each processor, in entries per second. That of the host is smaller than measured,
    /// so that parts of a product by these powers take equally long with its start; it is zero without the host.
    /// Those of machines are small enough for their memory.
    pub(super) fn powers(&self, with_host: bool) -> Vec<f64> {
        let mut powers: Vec<f64> =
            self.products.iter().map(|seconds| self.entries as f64 / seconds).collect();
        let others = powers[1..].iter().fold(0.0, |sum, power| sum + power) / self.entries as f64;
        let host = self.products[0];
        let equal = (1.0 + STARTS / 2.0 * self.start / host) / (1.0 / host + others);
        let share = 1.0 - equal * others;
        if others > 0.0 {
            let even = share / (1.0 - share) * others * self.entries as f64;
            // a host that starts after the others end still gets some rows where they are requested
            powers[0] = even.max(LEAST_POWER * powers[0]);
        }
        if !with_host {
            powers[0] = 0.0;
        }
        self.capped(powers)
    }

    /// Reduces the powers of machines whose shares exceed their memory; the others share the rest.
    fn capped(&self, mut powers: Vec<f64>) -> Vec<f64> {
        let (mut others, mut left) = (powers.iter().sum::<f64>(), self.entries as f64);
        let mut full = vec![];
        // each full machine leaves more to the others
        while let Some(k) = (1..powers.len())
            .find(|k| !full.contains(k) && powers[*k] * left > self.capacity[k - 1] as f64 * others)
        {
            full.push(k);
            (others, left) = (others - powers[k], left - self.capacity[k - 1] as f64);
        }
        for k in full {
            let capacity = self.capacity[k - 1] as f64;
            // nothing is left if the machines that are full hold the whole matrix
            powers[k] = if left > 0.0 { capacity * others / left } else { capacity };
        }
        powers
    }

    /// Returns whether the matrix fits in the memory of the machines.
    fn fits(&self) -> bool {
        self.capacity.iter().fold(0, |sum: usize, &capacity| sum.saturating_add(capacity)) >= self.entries
    }

    /// Estimated seconds of the part of a product that has this number of entries.
    pub(super) fn seconds_of(&self, processor: usize, nonzeros: usize) -> f64 {
        let start = if processor == 0 { STARTS / 2.0 * self.start } else { 0.0 };
        start + self.products[processor] * nonzeros as f64 / self.entries as f64
    }

    /// Seconds of an iteration on the host alone.
    fn host_alone(&self) -> f64 {
        self.products[0] + self.vectors[0]
    }

    /// Seconds of an iteration that these processors share, without communication.
    fn shared(&self, first: usize) -> f64 {
        let alone = self.products[first..].iter().zip(&self.vectors[first..]);
        1.0 / alone.fold(0.0, |speed, (product, vector)| speed + 1.0 / (product + vector))
    }

    /// Estimated seconds of an iteration with the host, for a system `factor` times as large. Surfaces of parts
    /// grow less than their volumes.
    fn with_host(&self, factor: f64) -> f64 {
        let (shared, starts) = (self.shared(0), STARTS * self.start);
        let computing = (factor * shared + starts * shared / self.host_alone()).max(starts);
        computing + factor.powf(2.0 / 3.0) * self.exchange + WAITS * self.latency
    }

    /// Estimated seconds of an iteration without the host.
    fn without_host(&self, factor: f64) -> f64 {
        if self.fits() { factor * self.shared(1) + self.overhead } else { f64::INFINITY }
    }

    /// Returns whether an iteration is expected to be faster with the host.
    pub(super) fn host_pays(&self) -> bool {
        self.with_host(1.0) < self.without_host(1.0)
    }

    /// The smallest power of 2^(1/4) by which the system must grow so that the host saves time.
    fn pays_from(&self) -> Option<f64> {
        let factors = (1..).map(|k| 2_f64.powf(f64::from(k) / 4.0));
        factors
            .take_while(|&factor| factor <= LARGEST_FACTOR)
            .find(|&factor| self.with_host(factor) < self.without_host(factor))
    }

    /// Factor by which the host must be faster so that it saves time; `None` if no speed is enough.
    fn pays_at_speed(&self) -> Option<f64> {
        let left = self.without_host(1.0) - self.exchange - WAITS * self.latency;
        let computing = left - STARTS * self.start;
        (computing > 0.0).then(|| self.host_alone() * (1.0 - left / self.shared(1)) / computing)
    }
}

/// The estimated times with and without the host, and when the host would save time.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (with, without) = (1e3 * self.with_host(1.0), 1e3 * self.without_host(1.0));
        write!(f, "estimated time of an iteration of conjugate gradients: {with:.4} ms with the host, ")?;
        if !self.fits() {
            return write!(f, "whose memory is needed: the matrix does not fit in that of the others");
        }
        if self.products.len() == 1 {
            return write!(f, "the only processor");
        }
        write!(f, "{without:.4} ms without it")?;
        if self.host_pays() {
            return Ok(());
        }
        let waits = 1e3 * (WAITS * self.latency + self.exchange);
        write!(f, " (waiting for sums and entries of x takes {waits:.4} ms, ")?;
        let starts = 1e3 * STARTS * self.start;
        write!(f, "starting the threads of the host {starts:.4} ms). The host would save time ")?;
        match self.pays_from() {
            Some(factor) => write!(f, "for a system {factor:.1} times as large")?,
            None => write!(f, "for no larger system")?,
        }
        match self.pays_at_speed() {
            Some(speed) => write!(f, ", or if it were {speed:.1} times as fast"),
            None => write!(f, ", and at no speed for this one"),
        }
    }
}

/// The matrix, or a block on its diagonal with about `most` entries.
fn sample<T: Real>(csr: &Csr<T>, most: usize) -> Result<Cow<'_, Csr<T>>> {
    if csr.rows() != csr.cols() {
        let (rows, cols) = (csr.rows(), csr.cols());
        return Err(Error::NotSquare { what: "a matrix on the host and GPUs", rows, cols });
    }
    if csr.nnz() <= most {
        return Ok(Cow::Borrowed(csr));
    }
    let kept = ((csr.rows() as f64 * most as f64 / csr.nnz() as f64) as usize).max(1);
    let first = (csr.rows() - kept) / 2;
    Ok(Cow::Owned(Cut::of(csr, &(first..first + kept))?.inside))
}

/// Factors from measurements of a sample to the matrix: those of products grow with the entries, those of vectors
/// with the rows.
fn scales<T: Real>(csr: &Csr<T>, sample: &Csr<T>) -> [f64; 2] {
    // at least one entry, so that powers of a matrix without entries are finite
    let ratio = |whole: usize, part: usize| whole.max(1) as f64 / part.max(1) as f64;
    [ratio(csr.nnz(), sample.nnz()), ratio(csr.rows(), sample.rows())]
}

/// Seconds that the threads of the host need to start an operation, from the time of a small product after a
/// pause. A product of all rows takes `whole` seconds.
fn start<T: Real>(csr: &Csr<T>, whole: f64) -> Result<f64> {
    let part = Cut::of(csr, &(0..csr.rows().div_ceil(SMALL_PART)))?.inside;
    let matrix = Operator::auto(&part, &Host)?;
    let (x, mut y) = (matrix.domain().zeros()?, matrix.range().zeros()?);
    let computing = whole * part.nnz() as f64 / csr.nnz().max(1) as f64;
    Ok((after_pause(|| Ok(matrix.apply(&x, &mut y)?))? - computing).max(0.0))
}

/// Seconds of a call that the host starts after a pause, the median of several.
pub(super) fn after_pause(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = [0.0; MEASURED_STARTS];
    for time in &mut times {
        let waiting = Instant::now();
        while waiting.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
        let started = Instant::now();
        call()?;
        *time = started.elapsed().as_secs_f64();
    }
    times.sort_by(f64::total_cmp);
    Ok(times[MEASURED_STARTS / 2])
}

/// Seconds of a product, and of the vector operations of an iteration. `wait` waits for queued work.
fn seconds<V: Vector>(matrix: &Operator<V>, wait: impl Fn() -> Result<()>) -> Result<[f64; 2]> {
    let (x, mut y) = (matrix.domain().zeros()?, matrix.range().zeros()?);
    let product = fastest(|| Ok(matrix.apply(&x, &mut y)?), &wait)?;
    let one: V::Scalar = <V::Elem as krysp_solvers::Element>::from_f64(1.0).into();
    let update = || {
        y.axpby(&one, &x, &one);
        Ok(())
    };
    Ok([product, fastest(update, &wait)? * VECTORS / MEASURED_VECTORS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_and_gpus::{SplitMatrix, StandIn};

    fn forecast(host: f64, gpu: f64) -> Forecast {
        Forecast {
            products: vec![host, gpu],
            vectors: vec![0.5 * host, 0.5 * gpu],
            start: 2e-6,
            entries: 1000,
            overhead: 6e-6,
            latency: 15e-6,
            exchange: 5e-6,
            capacity: vec![usize::MAX],
        }
    }

    /// A GPU with twenty times the speed of the host saves a twentieth of the time, less than the host needs to
    /// wait for it; in a system that is large enough, it pays.
    #[test]
    fn a_slow_host_pays_in_large_systems_only() {
        let small = forecast(4e-3, 2e-4);
        assert!(!small.host_pays() && forecast(4e-1, 2e-2).host_pays() && forecast(4e-3, 3e-3).host_pays());
        let factor = small.pays_from().unwrap();
        let larger = |factor: f64| Forecast {
            exchange: small.exchange * factor.powf(2.0 / 3.0),
            ..forecast(4e-3 * factor, 2e-4 * factor)
        };
        assert!(larger(factor).host_pays() && !larger(0.8 * factor).host_pays(), "{factor}");
        let speed = small.pays_at_speed().unwrap();
        assert!(forecast(0.99 * 4e-3 / speed, 2e-4).host_pays(), "{speed}");
        assert!(!forecast(1.01 * 4e-3 / speed, 2e-4).host_pays(), "{speed}");
        assert!(forecast(4e-3, 1e-5).pays_at_speed().is_none());
        // sleeping threads
        let slow_start = Forecast { start: 1e-3, ..forecast(4e-1, 2e-2) };
        assert!(slow_start.host_pays() && !Forecast { start: 1e-2, ..forecast(4e-1, 2e-2) }.host_pays());
        assert!(slow_start.powers(true)[0] < forecast(4e-1, 2e-2).powers(true)[0]);
        let part = |processor: usize| {
            let powers = slow_start.powers(true);
            let share = powers[processor] / (powers[0] + powers[1]);
            slow_start.seconds_of(processor, (1e3 * share).round() as usize)
        };
        assert!((part(0) - part(1)).abs() < 0.05 * part(1), "{} {}", part(0), part(1));
        assert!(small.to_string().contains(&format!("{factor:.1} times as large")), "{small}");
    }

    /// The sample has one entry in each row, other rows have three.
    #[test]
    fn times_of_vectors_grow_with_the_rows() {
        let entries: Vec<_> =
            (0..6).map(|i| (i, i, 1.0)).chain((4..6).flat_map(|i| [(i, 0, 1.0), (i, 1, 1.0)])).collect();
        let a = Csr::<f64>::from_triplets(6, 6, &entries).unwrap();
        let sample = Cut::of(&a, &(1..4)).unwrap().inside;
        assert_eq!(scales(&a, &sample), [10.0 / 3.0, 2.0]);
    }

    #[test]
    fn the_balance_times_the_host_after_pauses() {
        let a = crate::testing::matrices::edge::tridiagonal(41).csr::<f64>().unwrap();
        let shares = crate::partition::RowShares::by_nonzeros(&a, &[1.0, 1.0]).unwrap();
        let split = SplitMatrix::with_shares(&[StandIn::default()], &a, &shares).unwrap();
        let started = Instant::now();
        split.balance().unwrap();
        assert!(
            started.elapsed() >= 2 * MEASURED_STARTS as u32 * PAUSE,
            "one pause for each start of the host"
        );
    }

    #[test]
    fn what_does_not_fit_needs_the_host() {
        let full = Forecast { capacity: vec![10], ..forecast(1.0, 1e-6) };
        assert!(full.host_pays() && full.to_string().contains("does not fit"), "{full}");
        let three = Forecast {
            products: vec![4.0, 2.0, 1.0, 1.0],
            vectors: vec![0.0; 4],
            capacity: vec![1000, 100, 300],
            ..forecast(1.0, 1.0)
        };
        let powers = three.powers(true);
        let share = |k: usize| 1000.0 * powers[k] / powers.iter().sum::<f64>();
        assert!((share(2) - 100.0).abs() < 1e-9 && (share(3) - 300.0).abs() < 1e-9, "{powers:?}");
        assert!((share(0) / share(1) - 0.5).abs() < 0.01, "{powers:?}");
        let powers = three.powers(false);
        assert!(three.fits() && powers[0] == 0.0 && (powers[2] / powers[1] - 100.0 / 600.0).abs() < 1e-9);
    }
}
