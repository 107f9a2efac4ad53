//! A heat sink on a chip with bursts of work: 100 steps of implicit Euler with a matrix that is prepared once.
//!
//! ```text
//! (M + Δt K) Tⁿ⁺¹ = M Tⁿ + Δt qⁿ⁺¹
//!
//! cargo run --release --example transient_heat
//! ```

mod common;

use common::HeatSink;
use krysp::plan::PlannedSolver;
use krysp::{BasicVector, Csr, Host, LinearOperator, Plan, Space, Vector};
use std::f64::consts::TAU;
use std::time::Instant;

/// Short time steps during the bursts, then longer ones: number of steps, and length of each in seconds.
const PHASES: [(usize, f64); 2] = [(60, 0.25), (40, 0.5)];

/// The power of the chip in W, at a time in s.
fn power(time: f64) -> f64 {
    let burst = (TAU * time / 10.0).sin() > 0.0;
    if burst { 150.0 } else { 30.0 }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sink = HeatSink::new(5).shuffled();
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

    // For many solves, reordering for locality and choosing the fastest format pay off.
    let steps: usize = PHASES.iter().map(|phase| phase.0).sum();
    let plan = Plan::new(&plain)?.solves(steps).values_change(true).rtol(1e-7);
    println!("{plan}");
    let started = Instant::now();
    let saved = std::env::temp_dir().join("krysp_transient_heat.plan");
    // There is no file before the first run.
    let loaded = saved.exists().then(|| PlannedSolver::load(&saved, &plain, &Host));
    let (mut solver, how) = match loaded {
        Some(Ok(solver)) => (solver, "read again".to_owned()),
        Some(Err(why)) => (plan.build()?, format!("built, because {why},")),
        None => (plan.build()?, "built".to_owned()),
    };
    println!("ready      {}, {how} in {:.1?}", solver.operator()?.choice().stored(), started.elapsed());

    // All vectors are made in the space of the solver, so nothing is permuted between time steps. M has the pattern of K.
    let space = solver.space()?.clone();
    let mass = plain.with_values(&plain.assemble(&capacities)?)?.in_space(&space)?;
    let heated = sink.heated_area();
    let share = 1.0 / heated.iter().sum::<f64>();
    let heat = space.vector(&heated.iter().map(|area| area * share).collect::<Vec<_>>())?;
    let losses = space.vector(&sink.losses())?;
    let stored = space.vector(&sink.capacities())?;

    let (mut t, mut b) = (space.zeros()?, space.zeros()?);
    let (mut time, mut step, mut iterations) = (0.0, 0, 0);
    let started = Instant::now();
    for (phase, (steps, dt)) in PHASES.into_iter().enumerate() {
        if phase > 0 {
            // The next run starts with the preconditioner and the decisions of this one.
            solver.save(&saved)?;
            let values: Vec<f64> = system(dt).iter().map(|entry| entry.2).collect();
            let started = Instant::now();
            solver.refresh(&plain.assemble(&values)?)?;
            println!("refresh    step {step}: Δt = {dt} s in {:.1?}", started.elapsed());
        }
        for _ in 0..steps {
            time += dt;
            step += 1;
            let heat_before = stored.dot(&t);
            mass.apply(&t, &mut b)?;
            b.axpy(&(dt * power(time)), &heat);

            // `t` still has the last temperatures, the initial guess of the solver.
            let report = solver.solve_into(&b, &mut t)?;
            assert!(report.converged(), "step {step}: {report}");

            // Energy balance: the heat that entered is stored or has left, up to the sum of the entries of
            // the residual.
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
