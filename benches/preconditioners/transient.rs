//! Transient heat with 100 growing time steps: every step has its own values and a refreshed preconditioner.
//!
//! ```text
//! (M + Δt K) Tⁿ⁺¹ = M Tⁿ + Δt f        Δt from 0.05 s, a tenth longer each step
//! ```

use super::{Boxed, Result};
use krysp::io::{read_matrix, read_vector};
use krysp::testing::{shared_matrix, skipped};
use krysp::{Amg, Cg, Csr, HostVector, Jacobi, LinearOperator, Refresh, Space, Vector};
use std::time::{Duration, Instant};

const STEPS: usize = 100;

/// A preconditioner that is refreshed before each step.
enum Prepared {
    Jacobi(Jacobi<f64>),
    Amg(Box<Amg<f64>>),
}

impl Prepared {
    fn refresh(&mut self, a: &Csr<f64>) -> krysp::Result<()> {
        match self {
            Prepared::Jacobi(jacobi) => jacobi.refresh(a),
            Prepared::Amg(amg) => amg.refresh(a),
        }
    }

    fn operator(&self) -> Boxed<'_> {
        match self {
            Prepared::Jacobi(jacobi) => Box::new(jacobi),
            Prepared::Amg(amg) => Box::new(&**amg),
        }
    }
}

pub(super) fn all() -> Result<()> {
    const NAME: &str = "heat_sink_transient_80k";
    let path = |suffix: &str| shared_matrix(&format!("{NAME}_{suffix}"));
    let (Some(k), Some(m), Some(f)) = (path("K"), path("M"), path("f")) else {
        skipped(&format!("no shared matrix {NAME}"));
        return Ok(());
    };
    let (k, m, f) = (read_matrix(k)?, read_matrix(m)?, read_vector(f)?);
    let n = f.len();
    let entries: Vec<(usize, usize, f64)> = k.triplets().chain(m.triplets()).collect();
    let values = |dt: f64| -> Vec<f64> {
        k.entries().iter().map(|k| dt * k).chain(m.entries().iter().copied()).collect()
    };
    let mut a = Csr::from_triplets(n, n, &entries)?;
    println!("{NAME}: {n} rows, {} entries, {STEPS} steps", a.nnz());
    for name in ["Jacobi", "AMG"] {
        let (mut prepared, mut refreshes, mut solves) = (None, Duration::ZERO, Duration::ZERO);
        let mut t: HostVector<f64> = a.domain().vector(&vec![22.0; n])?;
        let mut b = a.domain().zeros()?;
        let (mut iterations, mut dt, load) = (vec![], 0.05, a.domain().vector(&f)?);
        for _ in 0..STEPS {
            a = a.with_values(&a.assemble(&values(dt))?)?;
            m.apply(&t, &mut b)?;
            b.axpy(&dt, &load);
            let started = Instant::now();
            let ready = match &mut prepared {
                Some(ready) => ready,
                None if name == "AMG" => prepared.insert(Prepared::Amg(Box::new(Amg::new(&a)?))),
                None => prepared.insert(Prepared::Jacobi(Jacobi::new(&a)?)),
            };
            ready.refresh(&a)?;
            refreshes += started.elapsed();
            let started = Instant::now();
            let mut solver = Cg::new(&a).preconditioner(ready.operator()).rtol(1e-8);
            let report = solver.solve_into(&b, &mut t)?;
            solves += started.elapsed();
            assert!(report.converged(), "{report}");
            iterations.push(report.iterations);
            dt *= 1.1;
        }
        println!(
            "{name:<8} {:>8.2} s + {:>8.2} s, {} iterations, from {} to {} a step",
            refreshes.as_secs_f64(),
            solves.as_secs_f64(),
            iterations.iter().sum::<usize>(),
            iterations[0],
            iterations[STEPS - 1],
        );
    }
    Ok(())
}
