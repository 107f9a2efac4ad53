//! Prices that foretell a record, and choose well by it.

use super::cases::Case;
use krysp::choice::Price;
use std::collections::BTreeMap;

/// Prices by format.
pub type Prices = BTreeMap<String, Price>;

/// How good choices should be, as ratios to the best.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// So near,
    pub near: f64,
    /// for so many of the products,
    pub share: f64,
    /// and all within this.
    pub far: f64,
}

/// Factors that a price is tried with; a finer search follows the record's noise.
const FACTORS: [f64; 9] = [0.0, 0.25, 0.7, 0.9, 0.97, 1.03, 1.1, 1.4, 4.0];

/// What a price that is nothing is tried as: starts and waits in bytes, factors, bytes of a gather and of a row.
const SEEDS: [f64; 5] = [2e6, 1.0, 1.0, 4.0, 1e6];

/// Rounds over all prices, at most: it ends when nothing helps.
const ROUNDS: usize = 60;

/// What an option foretold wrong counts where it takes longer than twice the best: nearly nothing, for it is not chosen.
const HOPELESS: f64 = 0.05;

/// The prices of the formats wanted, moved one at a time as long as the loss on the fitted half falls.
pub fn fitted(cases: &[Case], mut prices: Prices, wanted: impl Fn(&str) -> bool, bounds: Bounds) -> Prices {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.half() == "fitted").collect();
    let per_ms = bytes_per_ms(&cases, &prices);
    let formats: Vec<String> = prices.keys().filter(|format| wanted(format)).cloned().collect();
    let mut least = loss(&cases, &prices, per_ms, bounds);
    for _ in 0..ROUNDS {
        let before = least;
        for format in &formats {
            for field in 0..SEEDS.len() {
                let old = prices[format];
                let mut best = old;
                for value in tried(fields(old)[field], SEEDS[field]) {
                    let mut new = fields(old);
                    new[field] = value;
                    let new = price(new);
                    prices.insert(format.clone(), new);
                    let loss = loss(&cases, &prices, per_ms, bounds);
                    if loss < least {
                        (least, best) = (loss, new);
                    }
                }
                prices.insert(format.clone(), best);
            }
        }
        if least > before - 1e-6 {
            break;
        }
    }
    println!("fitted on {}, loss {least:.4}", names(&cases));
    prices
}

fn names(cases: &[&Case]) -> String {
    let mut names: Vec<&str> = cases.iter().map(|case| &*case.matrix).collect();
    names.dedup();
    names.join(", ")
}

/// Rounded to three digits: more say nothing.
fn tried(value: f64, seed: f64) -> Vec<f64> {
    let rounded = |value: f64| match value {
        0.0 => 0.0,
        _ => {
            let unit = 10f64.powf(2.0 - value.log10().floor());
            (value * unit).round() / unit
        }
    };
    match value {
        0.0 => FACTORS.iter().map(|factor| rounded(seed * factor)).collect(),
        _ => FACTORS.iter().map(|factor| rounded(value * factor)).collect(),
    }
}

fn fields(Price { start, byte, gather, row, wait }: Price) -> [f64; 5] {
    [start, byte, gather, row, wait]
}

fn price([start, byte, gather, row, wait]: [f64; 5]) -> Price {
    Price { start, byte, gather, row, wait }
}

/// Costs of the machine's millisecond, by the prices that there are: from then on the unit stays.
fn bytes_per_ms(cases: &[&Case], prices: &Prices) -> f64 {
    let known = cases.iter().flat_map(|case| &case.options);
    let logs: Vec<f64> = known
        .filter_map(|option| Some((prices.get(&option.format)?.cost(&option.work) / option.ms).ln()))
        .collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// What is foretold wrong, `mean (ln cost − ln time)²`, and what the choice loses: `mean ln ratio`, more beyond the bounds.
fn loss(cases: &[&Case], prices: &Prices, per_ms: f64, bounds: Bounds) -> f64 {
    let (mut wrong, mut weights, mut lost) = (0.0, 0.0, 0.0);
    for case in cases {
        for option in &case.options {
            let Some(price) = prices.get(&option.format) else { continue };
            let weight = if case.ratio(option) <= 2.0 { 1.0 } else { HOPELESS };
            let error = (price.cost(&option.work) / per_ms / option.ms).ln().clamp(-2.0, 2.0);
            wrong += weight * error * error;
            weights += weight;
        }
        // the fastest of the options, not of all: what the chooser does not know it cannot lose
        let fastest = case.options.iter().map(|option| option.ms).fold(f64::INFINITY, f64::min);
        let ratio = case.chosen(prices).ms / fastest;
        lost += ratio.ln() + (ratio / bounds.near).ln().max(0.0) + 3.0 * (ratio / bounds.far).ln().max(0.0);
    }
    let count = cases.len().max(1) as f64;
    wrong / f64::max(weights, 1.0) + 2.0 * lost / count
}
