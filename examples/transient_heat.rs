//! A heat sink on a chip that works in bursts: 500 steps of implicit Euler with a matrix that is prepared once.
//!
//! ```text
//! (M + Δt K) Tⁿ⁺¹ = M Tⁿ + Δt qⁿ⁺¹
//!
//! cargo run --release --example transient_heat
//! ```

mod common;

use common::HeatSink;
use krysp::formats::Sell;
use krysp::{Cg, Csr, Format, HostVector, Jacobi, LinearOperator, Numbering, Refresh, Space, Vector};
use std::f64::consts::TAU;
use std::time::{Duration, Instant};

/// Short time steps during the bursts, then longer ones: the number of steps, and seconds of each.
const PHASES: [(usize, f64); 2] = [(300, 0.05), (200, 0.1)];

/// The power of the chip at a time, W.
fn power(time: f64) -> f64 {
    let burst = (TAU * time / 10.0).sin() > 0.0;
    if burst { 150.0 } else { 30.0 }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sink = HeatSink::new(6).shuffled();
    let n = sink.unknowns();

    // The values of M + Δt K, one for each entry of each element. The order is the same for every Δt.
    let system = |dt: f64| {
        let mut entries = vec![];
        sink.for_each_entry(|row, column, k, m| entries.push((row, column, m + dt * k)));
        entries
    };
    let mut capacities = vec![];
    sink.for_each_entry(|_, _, _, m| capacities.push(m));
    let plain = Csr::from_triplets(n, n, &system(PHASES[0].1))?;
    println!("matrix     {n} unknowns in random order, {} entries", plain.nnz());

    // Prepare the matrix: a numbering that keeps neighbours close in memory, and the format.
    let started = Instant::now();
    let numbering = Numbering::rcm(&plain)?;
    let renumbering = started.elapsed();
    let started = Instant::now();
    let renumbered = plain.renumbered(&numbering)?;
    let permuting = started.elapsed();
    let started = Instant::now();
    let a = Sell::new(&renumbered)?;
    let conversion = started.elapsed();
    let preparation = renumbering + permuting + conversion;
    let (slow, fast) = (time_of_product(&plain)?, time_of_product(&a)?);
    println!("product    {slow:.1?} in plain CSR, {:.1} MB", plain.bytes() as f64 / 1e6);
    println!("           {:.1?} renumbered", time_of_product(&renumbered)?);
    println!("           {fast:.1?} renumbered in {}, {:.1} MB", Sell::<f64>::NAME, a.bytes() as f64 / 1e6);
    println!("cost       {preparation:.1?}, or {:.0} products in plain CSR:", in_units(preparation, slow));
    println!(
        "           numbering {:.0}, permuting {:.0}, conversion {:.0}",
        in_units(renumbering, slow),
        in_units(permuting, slow),
        in_units(conversion, slow)
    );

    // All other matrices and vectors are made in the space of the matrix, so nothing is permuted between time steps. M
    // has the pattern of K.
    let space = a.domain().clone();
    let mass = renumbered.with_values(&capacities)?;
    let heated = sink.heated_area();
    let share = 1.0 / heated.iter().sum::<f64>();
    let heat = space.vector(&heated.iter().map(|area| area * share).collect::<Vec<_>>())?;
    let losses = space.vector(&sink.losses())?;
    let stored = space.vector(&sink.capacities())?;

    // The vectors and the solver's workspace are kept from step to step: a time step allocates nothing.
    let (mut t, mut b) = (space.zeros()?, space.zeros()?);
    let mut solver = Cg::new(a).preconditioner(Jacobi::new(&renumbered)?).rtol(1e-7);
    let (mut time, mut step, mut iterations) = (0.0, 0, 0);
    let started = Instant::now();
    for (phase, (steps, dt)) in PHASES.into_iter().enumerate() {
        if phase > 0 {
            let values: Vec<f64> = system(dt).iter().map(|entry| entry.2).collect();
            let started = Instant::now();
            let (a, jacobi) = solver.operators_mut();
            a.refresh(&values)?;
            jacobi.refresh(a)?;
            println!(
                "refresh    step {step}: Δt = {dt} s for the cost of {:.0} products",
                in_units(started.elapsed(), slow)
            );
        }
        for _ in 0..steps {
            time += dt;
            step += 1;
            let heat_before = stored.dot(&t);
            mass.apply(&t, &mut b)?;
            b.axpy(&(dt * power(time)), &heat);

            // `t` still has the last temperatures: the guess from which the solver begins.
            let report = solver.solve_into(&b, &mut t)?;
            assert!(report.converged(), "step {step}: {report}");

            // Energy balance: heat that came in is stored or has left, up to the sum of the residual's entries.
            let balance = stored.dot(&t) - heat_before - dt * (power(time) - losses.dot(&t));
            let rounding = 1e-12 * stored.dot(&t);
            assert!(
                balance.abs() <= (n as f64).sqrt() * report.true_residual + rounding,
                "step {step}: {balance} J"
            );

            iterations += report.iterations;
        }
    }
    let per_step = iterations as f64 / step as f64;
    println!("steps      {step} of {per_step:.0} iterations in {:.2?}", started.elapsed());
    let saved = per_step * (slow.as_secs_f64() - fast.as_secs_f64());
    match preparation.as_secs_f64() / saved {
        steps if saved > 0.0 => {
            println!("earned     after {:.0} steps the preparation has paid for itself", steps.ceil())
        }
        _ => println!("earned     nothing: on this machine the preparation does not pay"),
    }

    let mut above_air = vec![0.0; n];
    space.store(&t, &mut above_air)?;
    let hottest = above_air.iter().fold(f64::MIN, |a, &b| a.max(b));
    let coolest = above_air.iter().fold(f64::MAX, |a, &b| a.min(b));
    println!("result     {coolest:.2} K to {hottest:.2} K above the air after {time:.0} s");
    assert!(0.0 < coolest && coolest < hottest);
    let [vtk, png] = sink.save("transient_heat", &above_air)?;
    println!("           {} for ParaView, and {}", vtk.display(), png.display());
    Ok(())
}

/// The minimum over a few rounds, because others may be using the machine.
fn time_of_product(a: &impl LinearOperator<Vector = HostVector<f64>>) -> krysp::Result<Duration> {
    const PRODUCTS: u32 = 10;
    let x = a.domain().vector(&vec![1.0; a.domain().len()])?;
    let mut y = a.range().zeros()?;
    let mut best = Duration::MAX;
    for _ in 0..30 {
        let started = Instant::now();
        for _ in 0..PRODUCTS {
            a.apply(&x, &mut y)?;
        }
        best = best.min(started.elapsed() / PRODUCTS);
    }
    Ok(best)
}

fn in_units(time: Duration, unit: Duration) -> f64 {
    time.as_secs_f64() / unit.as_secs_f64()
}
