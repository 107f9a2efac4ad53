//! What the GPUs of a [`Spread`](super::Spread) take for their parts, and the powers by which parts take equally long.

use std::fmt;

/// What each GPU of a [`Spread`](super::Spread) takes for its part of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// Its seconds.
    pub seconds: Vec<f64>,
    /// Its entries.
    pub entries: Vec<usize>,
}

impl Balance {
    /// The computing powers that this shows, in entries a second: [`Spread::by_powers`](super::Spread::by_powers) cuts by them so
    /// that all take equally long.
    pub fn powers(&self) -> Vec<f64> {
        let powers = self.entries.iter().zip(&self.seconds);
        powers.map(|(&entries, seconds)| entries.max(1) as f64 / seconds).collect()
    }

    /// The part of the time of a product that a cut by these powers is likely to save.
    pub fn gain(&self) -> f64 {
        let slowest = self.seconds.iter().fold(0.0, |most: f64, &seconds| most.max(seconds));
        let entries: usize = self.entries.iter().sum();
        let even = entries as f64 / self.powers().iter().sum::<f64>();
        (1.0 - even / slowest).max(0.0)
    }
}

/// The time and the share of each GPU, and what another cut would save.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.entries.iter().sum();
        for (at, (seconds, &entries)) in self.seconds.iter().zip(&self.entries).enumerate() {
            let share = 100.0 * entries as f64 / all.max(1) as f64;
            writeln!(f, "{at}: {share:.1} % of the entries, {:.4} ms of a product", 1e3 * seconds)?;
        }
        write!(f, "cut by these powers, products would take {:.1} % less", 100.0 * self.gain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three GPUs of powers 2 : 1 : 1 with equal shares: the slower ones take twice as long, and equal times are 3/4 of theirs.
    #[test]
    fn powers_follow_from_times() {
        let balance = Balance { seconds: vec![0.5, 1.0, 1.0], entries: vec![100; 3] };
        assert_eq!(balance.powers(), [200.0, 100.0, 100.0]);
        assert!((balance.gain() - 0.25).abs() < 1e-12);
        let even = Balance { seconds: vec![0.7; 2], entries: vec![30, 90] };
        assert!(even.gain() < 1e-12);
    }
}
