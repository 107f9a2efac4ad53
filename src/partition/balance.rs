//! Measured times of the parts of a product, and the computing powers (entries per second) by which rows
//! should be partitioned so that all parts take equally long.

use std::fmt;

/// Times of the parts of a product, each measured alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// Seconds that each processor takes to multiply its part; waiting for others is not measured.
    pub seconds: Vec<f64>,
    /// Number of entries of each processor that were multiplied.
    pub entries: Vec<usize>,
}

impl Balance {
    /// The measured computing power of each processor, in entries per second. If rows are partitioned by
    /// these powers, as by `MultiGpu::by_powers`, all parts take equally long.
    pub fn powers(&self) -> Vec<f64> {
        let powers = self.entries.iter().zip(&self.seconds);
        powers.map(|(&entries, seconds)| entries.max(1) as f64 / seconds).collect()
    }

    /// Estimated fraction of the time of the longest part that a partition by these powers would save.
    pub fn gain(&self) -> f64 {
        let slowest = self.seconds.iter().fold(0.0, |most: f64, &seconds| most.max(seconds));
        let entries: usize = self.entries.iter().sum();
        let even = entries as f64 / self.powers().iter().sum::<f64>();
        (1.0 - even / slowest).max(0.0)
    }
}

/// Time of each processor and its fraction of the measured entries, and the estimated gain of a partition by
/// the measured powers.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.entries.iter().sum();
        for (at, (seconds, &entries)) in self.seconds.iter().zip(&self.entries).enumerate() {
            let share = 100.0 * entries as f64 / all.max(1) as f64;
            writeln!(f, "{at}: {share:.1} % of the entries, {:.4} ms per product", 1e3 * seconds)?;
        }
        write!(
            f,
            "partitioned by these powers, the longest part would take {:.1} % less time",
            100.0 * self.gain()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three processors with powers 2 : 1 : 1 and equally many entries: the two slower ones take twice as long as
    /// the first. With a balanced partition, all take 3/4 of the longer time.
    #[test]
    fn powers_follow_from_times() {
        let balance = Balance { seconds: vec![0.5, 1.0, 1.0], entries: vec![100; 3] };
        assert_eq!(balance.powers(), [200.0, 100.0, 100.0]);
        assert!((balance.gain() - 0.25).abs() < 1e-12);
        let even = Balance { seconds: vec![0.7; 2], entries: vec![30, 90] };
        assert!(even.gain() < 1e-12);
    }
}
