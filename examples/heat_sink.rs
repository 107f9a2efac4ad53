//! The temperature of a heat sink: steady heat conduction with 100,000 unknowns, from the mesh to the temperatures.
//!
//! ```text
//! cargo run --release --example heat_sink
//! ```

mod common;

use common::HeatSink;
use krysp::Csr;
use std::time::Instant;

/// The power of the chip under the heat sink, W.
const POWER: f64 = 120.0;
/// The temperature of the air, °C.
const AIR: f64 = 25.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let sink = HeatSink::new(9);
    let n = sink.unknowns();
    println!("mesh       {n} unknowns, {} tetrahedra, made in {:.2?}", sink.elements(), started.elapsed());

    // Each element adds its entries, in any order; entries at the same position are added up.
    let started = Instant::now();
    let mut entries = vec![];
    sink.for_each_entry(|row, column, conductance, _| entries.push((row, column, conductance)));
    let a = Csr::from_triplets(n, n, &entries)?;
    println!("assembly   {} entries from {}, assembled in {:.2?}", a.nnz(), entries.len(), started.elapsed());

    let heated = sink.heated_area();
    let flux = POWER / heated.iter().sum::<f64>();
    let b: Vec<f64> = heated.iter().map(|area| flux * area).collect();

    // Analyses the matrix, and tries suitable methods and preconditioners until the residual is small enough.
    let solved = krysp::solve(&a, &b)?;
    let (x, report) = (&solved.x, &solved.report);
    println!("solve      {solved}");
    println!("residual   ‖b − A x‖ = {:.2e} W, recomputed", report.true_residual);
    assert!(report.converged());

    // Energy balance: the heat that enters must leave. The difference is the sum of the residual's entries, which by
    // Cauchy and Schwarz is at most √n ‖r‖.
    let losses = sink.losses();
    let shed: f64 = losses.iter().zip(x).map(|(loss, above_air)| loss * above_air).sum();
    println!("energy     {POWER} W in, {shed:.6} W out");
    assert!((POWER - shed).abs() <= (n as f64).sqrt() * report.true_residual + 1e-10 * POWER);

    let hottest = x.iter().fold(f64::MIN, |a, &b| a.max(b));
    let coolest = x.iter().fold(f64::MAX, |a, &b| a.min(b));
    println!("result     {:.2} °C to {:.2} °C", AIR + coolest, AIR + hottest);
    // No point is colder than the air, and the temperature is not uniform.
    let even = POWER / losses.iter().sum::<f64>();
    assert!(0.0 < coolest && coolest < even && even < hottest);
    println!(
        "           thermal resistance {:.3} K/W; {:.3} K/W if the metal were a perfect conductor",
        hottest / POWER,
        even / POWER
    );
    let temperatures: Vec<f64> = x.iter().map(|above_air| AIR + above_air).collect();
    let [vtk, png] = sink.save("heat_sink", &temperatures)?;
    println!("           {} for ParaView, and {}", vtk.display(), png.display());
    println!("           warms up in about {:.0} s", sink.capacities().iter().sum::<f64>() * hottest / POWER);
    Ok(())
}
