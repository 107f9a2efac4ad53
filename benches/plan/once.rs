//! The one-time decisions of a plan for many solves: the chosen format, and the file in which it is saved.

use crate::Result;
use krysp::Plan;
use krysp::choice::{Candidate, RowStatistics};
use krysp::plan::{Backend, PlannedSolver};
use krysp::prelude::*;
use krysp_solvers::Scalar;
use std::time::{Duration, Instant};

/// Number of rounds in which all formats are timed, and number of times that a file is read.
const ROUNDS: usize = 7;

/// Prints the times to build a plan for a thousand solves and to load it, and returns their ratio.
pub(crate) fn loading<M: Backend<f64>>(machine: &M, name: &str, a: &Csr<f64>) -> Result<Option<f64>> {
    let b = vec![1.0; a.rows()];
    let started = Instant::now();
    let mut planned = Plan::new(a)?.on(machine).solves(1000).build()?;
    let (made, mut kept) = (started.elapsed(), Duration::ZERO);
    // the preconditioner is chosen during the first solves
    for _ in 0..4 {
        let solved = planned.solve(&b)?;
        kept = solved
            .attempts
            .last()
            .map(|attempt| attempt.setup)
            .filter(|setup| !setup.is_zero())
            .unwrap_or(kept);
    }
    let path = std::env::temp_dir().join(format!("krysp_bench_{}.plan", std::process::id()));
    planned.save(&path)?;
    let bytes = std::fs::metadata(&path)?.len();
    let mut read = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        drop(PlannedSolver::load(&path, a, machine)?);
        read = read.min(started.elapsed().as_secs_f64());
    }
    std::fs::remove_file(&path)?;
    let built = (made + kept).as_secs_f64();
    let part = read / built;
    println!("{name},{},{},{bytes},{built:.3e},{read:.3e},{part:.3}", a.rows(), a.nnz());
    Ok(Some(part))
}

/// Compares the product of a plan for many solves with those of all formats.
pub(crate) fn products<M: Backend<f64>>(machine: &M, name: &str, a: &Csr<f64>) -> Result<Option<f64>> {
    let planned = Plan::new(a)?.on(machine).solves(1000).build()?;
    let chosen = planned.operator()?;
    let reordered = [("given", a.clone()), ("reordered", a.reordered(&machine.ordering(a)?)?)];
    let mut others = vec![];
    for (ordering, a) in &reordered {
        let auto = Operator::auto(a, machine)?;
        let formats: Vec<&str> = auto
            .choice()
            .rejected()
            .iter()
            .filter_map(|one| match one {
                Candidate::HigherCost(other) => Some(other.stored.format()),
                _ => None,
            })
            .chain([auto.choice().stored().format()])
            .collect();
        let made = formats.iter().filter_map(|format| Operator::in_format(a, machine, format).ok());
        others.extend(made.map(|operator| (format!("{} {ordering}", operator.choice().stored()), operator)));
    }
    let mut times = vec![f64::INFINITY; others.len()];
    for _ in 0..ROUNDS {
        for (time, (_, other)) in times.iter_mut().zip(&others) {
            *time = time.min(product(other)?);
        }
    }
    let Some(best) = (0..others.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])) else {
        return Ok(None);
    };
    let (best, operator) = &others[best];
    let scattering = chosen.choice().rows().scattering;
    let own = reordered.iter().find(|(_, a)| RowStatistics::of(a).scattering == scattering);
    let ordering = own.map_or("", |(ordering, _)| ordering);
    let stored = format!("{} {ordering}", chosen.choice().stored());
    // the minimum over many formats is biased downwards: time both again, in turns
    let (mut own, mut time) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..2 * ROUNDS {
        own = own.min(product(chosen)?);
        time = time.min(product(operator)?);
    }
    // The ratio is 1 if the best format is the chosen one.
    let ratio = if stored == *best { 1.0 } else { own / time };
    let [stored, best] = [&stored, best].map(|name| name.replace(',', ";"));
    println!("{name},{},{},{stored},{own:.3e},{best},{time:.3e},{ratio:.3}", a.rows(), a.nnz());
    Ok(Some(ratio))
}

/// The mean time of several consecutive products.
fn product<V: Vector<Elem = f64>>(a: &Operator<V>) -> Result<f64> {
    let (x, mut y) = (a.domain().zeros()?, a.range().zeros()?);
    let mut made = 0;
    a.apply(&x, &mut y)?;
    y.norm_squared().read()?;
    let started = Instant::now();
    while made < 4 || started.elapsed() < Duration::from_millis(1) {
        (0..4).try_for_each(|_| a.apply(&x, &mut y))?;
        y.norm_squared().read()?;
        made += 4;
    }
    Ok(started.elapsed().as_secs_f64() / made as f64)
}
