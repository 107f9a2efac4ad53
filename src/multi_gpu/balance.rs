//! Measured time of a product with each GPU's diagonal block, and the computing powers (entries per second)
//! by which rows should be partitioned so that all parts take equally long.

use super::PartReport;
use std::fmt;

/// Times of the parts of a [`MultiGpu`](super::MultiGpu) in a product, without communication.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// Seconds that each GPU takes to multiply its diagonal block; communication is not measured.
    pub seconds: Vec<f64>,
    /// Number of entries of each GPU's diagonal block.
    pub entries: Vec<usize>,
}

impl Balance {
    /// The balance of parts whose diagonal blocks take these times. Entries in columns of other GPUs do not
    /// count, because their products are not measured.
    pub(super) fn new(seconds: Vec<f64>, parts: impl Iterator<Item = PartReport>) -> Balance {
        Balance { seconds, entries: parts.map(|part| part.entries - part.off_diagonal).collect() }
    }

    /// The measured computing power of each GPU, in entries per second. If rows are partitioned by these
    /// powers ([`MultiGpu::by_powers`](super::MultiGpu::by_powers)), all parts take equally long.
    pub fn powers(&self) -> Vec<f64> {
        let powers = self.entries.iter().zip(&self.seconds);
        powers.map(|(&entries, seconds)| entries.max(1) as f64 / seconds).collect()
    }

    /// Estimated fraction of the time of a product that a partition by these powers would save.
    pub fn gain(&self) -> f64 {
        let slowest = self.seconds.iter().fold(0.0, |most: f64, &seconds| most.max(seconds));
        let entries: usize = self.entries.iter().sum();
        let even = entries as f64 / self.powers().iter().sum::<f64>();
        (1.0 - even / slowest).max(0.0)
    }
}

/// Time of each GPU's diagonal block and its fraction of the entries of all diagonal blocks, and the estimated
/// gain of a partition by the measured powers.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.entries.iter().sum();
        for (at, (seconds, &entries)) in self.seconds.iter().zip(&self.entries).enumerate() {
            let share = 100.0 * entries as f64 / all.max(1) as f64;
            writeln!(
                f,
                "{at}: {share:.1} % of the entries of diagonal blocks, {:.4} ms per product",
                1e3 * seconds
            )?;
        }
        write!(f, "partitioned by these powers, a product would take {:.1} % less time", 100.0 * self.gain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three GPUs with powers 2 : 1 : 1 and equally many entries: the two slower ones take twice as long as
    /// the first. With a balanced partition, all take 3/4 of the longer time.
    #[test]
    fn powers_follow_from_times() {
        let balance = Balance { seconds: vec![0.5, 1.0, 1.0], entries: vec![100; 3] };
        assert_eq!(balance.powers(), [200.0, 100.0, 100.0]);
        assert!((balance.gain() - 0.25).abs() < 1e-12);
        let even = Balance { seconds: vec![0.7; 2], entries: vec![30, 90] };
        assert!(even.gain() < 1e-12);
    }

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
        let balance = Balance::new(vec![0.5, 1.0], [part(100, 50), part(110, 10)].into_iter());
        assert_eq!(balance.powers(), [100.0, 100.0]);
    }
}
