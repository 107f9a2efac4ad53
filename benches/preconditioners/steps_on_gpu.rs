//! Steps of implicit Euler on a GPU, each with the values `c_k A + 10⁻⁴ D`, where `D` is the diagonal of `A`
//! and `c_k` lies between 0.7 and 1.3. The preconditioner is refreshed before each solve, which starts from
//! the last solution.

use super::system::System;
use super::{Options, Result};
use krysp::cuda::CudaMatrix;
use krysp::formats::OnDevice;
use krysp::solvers::cg::ConjugateGradients as Cg;
use krysp::solvers::{Diagonal, Solver};
use krysp::{Amg, BasicVector, Csr, Cuda, CudaVector, Jacobi, LinearOperator, Refresh, Space, Vector};
use std::time::Instant;

type Matrix = CudaMatrix<f64, Csr<f64>>;

/// Times all steps with Jacobi and with multigrid.
pub(super) fn run(options: &Options, gpu: &Cuda, system: &System) -> Result<()> {
    let csr = &system.csr;
    let entries: Vec<_> = csr.triplets().collect();
    let plain = Csr::from_triplets(csr.rows(), csr.cols(), &entries)?;
    let values = gpu.space(entries.len());
    let all: Vec<f64> = entries.iter().map(|entry| entry.2).collect();
    let own: Vec<f64> = entries.iter().map(|&(i, j, v)| if i == j { 1e-4 * v } else { 0.0 }).collect();
    let mut diagonal = vec![0.0; csr.rows()];
    entries.iter().filter(|(i, j, _)| i == j).for_each(|&(i, _, v)| diagonal[i] = 1e-4 * v);
    let steps = Steps {
        gpu,
        plain: &plain,
        own: values.vector(&own)?,
        values: values.vector(&all)?,
        heat: &system.b,
        mass: diagonal,
        count: options.steps,
    };
    let rigid = system.rigid.as_deref().unwrap_or(&[]);
    steps.time("Jacobi", &|a| Ok(Jacobi::on(gpu, a)?))?;
    steps.time("AMG", &|a| Ok(Amg::with_near_null_space_on(gpu, a, rigid)?))
}

struct Steps<'a> {
    gpu: &'a Cuda,
    plain: &'a Csr<f64>,
    values: CudaVector<f64>,
    own: CudaVector<f64>,
    heat: &'a [f64],
    mass: Vec<f64>,
    count: usize,
}

impl Steps<'_> {
    /// Times all steps but the first one, in which the solver allocates memory.
    fn time<M>(&self, name: &str, build: &dyn Fn(&Matrix) -> Result<M>) -> Result<()>
    where
        M: LinearOperator<Vector = CudaVector<f64>> + Refresh<f64>,
    {
        let a = Csr::on(self.gpu, self.plain)?;
        let space = a.domain().clone();
        let (heat, mass) = (space.vector(self.heat)?, Diagonal::new(space.vector(&self.mass)?));
        let m = build(&a)?;
        let mut solver = Solver::<Cg, _, _>::new(a).preconditioner(m).rtol(1e-8).max_iterations(20_000);
        let (mut values, mut b, mut x) = (self.values.space().zeros()?, space.zeros()?, space.zeros()?);
        let (mut iterations, mut refreshes, mut solves) = (0, 0.0, 0.0);
        for step in 0..=self.count {
            let factor = 1.0 + 0.3 * (step as f64 / 8.0).sin();
            values.copy_from(&self.own);
            values.axpy(&factor.into(), &self.values);
            mass.apply(&x, &mut b)?;
            b.axpy(&1.0.into(), &heat);
            self.gpu.synchronize()?;
            let started = Instant::now();
            let (a, m) = solver.operators_mut();
            a.refresh_from_device(&values)?;
            m.refresh(a)?;
            self.gpu.synchronize()?;
            let refreshed = started.elapsed().as_secs_f64() * 1e3;
            let report = solver.solve_into(&b, &mut x)?;
            if !report.converged() {
                return Err(format!("step {step}: {report}").into());
            }
            let all = started.elapsed().as_secs_f64() * 1e3;
            if step > 0 {
                iterations += report.iterations;
                refreshes += refreshed;
                solves += all - refreshed;
            }
        }
        let total = refreshes + solves;
        println!(
            "{name:<8}{} steps: {iterations} iterations, refreshes {refreshes:.1} ms, solves {solves:.1} ms, {total:.1} ms in total",
            self.count
        );
        Ok(())
    }
}
