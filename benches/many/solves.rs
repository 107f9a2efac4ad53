//! Solves for several right-hand sides on a GPU: one after the other, in lockstep (one iteration for all at a
//! time), and as the library decides.

use super::Result;
use super::system::System;
use krysp::solvers::{Identity, MultiVector, ScalarOf};
use krysp::{
    Amg, BasicVector, Cg, Cuda, CudaSpace, CudaVector, Fsai, Jacobi, LinearOperator, Operator, Space, ToCuda,
};
use std::time::Instant;

const ROUNDS: usize = 3;
const COUNTS: [usize; 4] = [2, 4, 8, 16];

type Vectors = MultiVector<CudaVector<f64>>;

/// An operator that reports so many bytes that columns are always solved in lockstep.
struct Large<'a>(&'a Operator<CudaVector<f64>>);

impl LinearOperator for Large<'_> {
    type Vector = CudaVector<f64>;

    fn domain(&self) -> &CudaSpace<f64> {
        self.0.domain()
    }

    fn apply(&self, x: &CudaVector<f64>, y: &mut CudaVector<f64>) -> krysp::solvers::Result<()> {
        self.0.apply(x, y)
    }

    fn apply_many(&self, x: &Vectors, y: &mut Vectors) -> krysp::solvers::Result<()> {
        self.0.apply_many(x, y)
    }

    fn apply_dot_many(&self, x: &Vectors, y: &mut Vectors) -> krysp::solvers::Result<ScalarOf<Vectors>> {
        self.0.apply_dot_many(x, y)
    }

    fn bytes(&self) -> usize {
        1 << 40
    }
}

/// Measures the systems with these names, or the usual ones.
pub(crate) fn all(mut names: Vec<String>) -> Result<()> {
    let gpu = Cuda::new(0)?;
    if names.is_empty() {
        names = ["elast_bracket_p1_59k", "heat_sink_p1_340k", "elast20", "elast55", "p7_128"]
            .map(String::from)
            .into();
    }
    println!("{}", gpu.name());
    for name in &names {
        let System { csr, b, rigid, .. } = System::new(name, true)?;
        let a = Operator::auto(&csr, &gpu)?;
        let (rows, bytes, stored) = (csr.rows(), a.bytes(), a.choice().stored().to_string());
        println!("{name}: {rows} rows, {bytes} bytes, {stored}");
        let multigrid = Amg::with_near_null_space_on(&gpu, &csr, rigid.as_deref().unwrap_or(&[]))?;
        solves(&gpu, "Amg", &a, &multigrid, &b)?;
        solves(&gpu, "Fsai", &a, &Fsai::new(&csr)?.to(&gpu)?, &b)?;
        solves(&gpu, "Jacobi", &a, &Jacobi::new(&csr)?.to(&gpu)?, &b)?;
        solves(&gpu, "none", &a, &Identity::new(a.domain()), &b)?;
    }
    Ok(())
}

/// Solves for right-hand sides that have the entries of `b`, each multiplied by another factor, at most
/// a thousand iterations each.
fn solves<M>(gpu: &Cuda, name: &str, a: &Operator<CudaVector<f64>>, m: &M, b: &[f64]) -> Result<()>
where
    M: LinearOperator<Vector = CudaVector<f64>>,
{
    let space = a.domain();
    let large = Large(a);
    let mut single = Cg::new(a).preconditioner(m).max_iterations(1000);
    let mut chosen = Cg::new(a).preconditioner(m).max_iterations(1000);
    let mut joint = Cg::new(&large).preconditioner(m).max_iterations(1000);
    for count in COUNTS {
        let load = |j: usize| {
            let of_row = |(i, b): (usize, &f64)| b * (1.0 + ((i * (j + 1)) % 17) as f64 / 16.0);
            space.vector(&b.iter().enumerate().map(of_row).collect::<Vec<_>>())
        };
        let loads = (0..count).map(load).collect::<krysp::solvers::Result<Vec<_>>>()?;
        let (b, mut x) = (MultiVector::from_columns(space, loads)?, Vectors::zeros(space, count)?);
        let zero = space.zeros()?;
        let mut times = [f64::INFINITY; 3];
        let mut iterations = [0; 3];
        for _ in 0..ROUNDS {
            for (way, (time, iterations)) in times.iter_mut().zip(&mut iterations).enumerate() {
                x.columns_mut().iter_mut().for_each(|x| x.copy_from(&zero));
                gpu.synchronize()?;
                let started = Instant::now();
                let reports = match way {
                    0 => {
                        let mut reports = Vec::with_capacity(count);
                        for (b, x) in b.columns().iter().zip(x.columns_mut()) {
                            reports.push(single.solve_into(b, x)?.clone());
                        }
                        reports
                    }
                    1 => joint.solve_many_into(&b, &mut x)?.to_vec(),
                    _ => chosen.solve_many_into(&b, &mut x)?.to_vec(),
                };
                gpu.synchronize()?;
                *time = time.min(started.elapsed().as_secs_f64() * 1e3);
                *iterations = reports.iter().map(|report| report.iterations).sum::<usize>();
            }
        }
        let ([alone, joint, chosen], [of_alone, of_joint, _]) = (times, iterations);
        println!(
            "  {name:6} {count:2} columns: alone {alone:8.2} ms ({of_alone} iterations), in lockstep {joint:8.2} ms ({of_joint}), {:.3}; \
             chosen {chosen:8.2} ms, {:.3}; {:.4} ms a step",
            joint / alone,
            chosen / alone,
            joint / of_joint.max(1) as f64 * count as f64,
        );
    }
    Ok(())
}
