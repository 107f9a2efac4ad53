//! Measurements on a GPU. Preconditioners built from the operator on the GPU have other names than those
//! built from the matrix in host memory, which must cross the bus.

use super::system::System;
use super::{Options, Result, Table, bicgstab, cg};
use krysp::cuda::CudaMatrix;
use krysp::formats::{BsrOptions, HaloOptions, OnDevice, Rounded};
use krysp::solvers::bicgstab::StabilizedBiConjugateGradients as BiCgStab;
use krysp::solvers::cg::ConjugateGradients as Cg;
use krysp::{
    Amg, Bsr, Chebyshev, CoarseSpace, Composed, Csr, Cuda, CudaVector, Fsai, Halo, Jacobi, LinearOperator,
    Permutation, Refresh, Sell, Side, Space, Spai, Sparsity, ToCuda, TwoLevel,
};
use std::time::Instant;

type Slices = CudaMatrix<f64, Sell<f64>>;
type SinglePrecision = Rounded<Sell<f64>, f32>;

pub(super) fn all(options: &Options, system: &System) -> Result<()> {
    if Cuda::devices().is_empty() {
        println!("skipped: no CUDA device on this machine");
        return Ok(());
    }
    let gpu = &Cuda::new(0)?;
    if options.amg {
        return multigrid(options, gpu, system);
    }
    let started = Instant::now();
    let a = system
        .csr
        .reordered(&Permutation::clustered(&system.csr, Halo::rows_per_block(gpu, &system.csr))?)?;
    println!("ordering: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let mut formats = vec![("clustered_Halo", a)];
    if system.unknowns == 3 {
        formats.push(("BSR", system.csr.clone()));
    }
    for (format, a) in &formats {
        match *format {
            "BSR" => lines::<Bsr<f64>>(
                options,
                gpu,
                system,
                format,
                a,
                BsrOptions { size: Some(system.unknowns) },
            )?,
            _ => lines::<Halo<f64>>(options, gpu, system, format, a, HaloOptions::default())?,
        }
    }
    Ok(())
}

/// Multigrid built from CSR in GPU memory. The solver uses the same CSR, so nothing is reordered or
/// converted.
fn multigrid(options: &Options, gpu: &Cuda, system: &System) -> Result<()> {
    let csr = &system.csr;
    let on_gpu = &Csr::on(gpu, csr)?;
    let device = gpu.name().replace(',', " ");
    let mut table = Table::new(options, &device, &format!("{}_CSR", system.name), [csr.rows(), csr.nnz()]);
    let b = on_gpu.range().vector(&system.b)?;
    let wait = &|| Ok(gpu.synchronize()?);
    if options.with.as_deref().is_some_and(|words| "two-level".contains(words)) {
        table.line::<Cg, _, _>(cg("two-level"), on_gpu, &b, wait, &|| Ok(TwoLevel::on(gpu, csr)?))?;
        return table.keep(&machine_of(gpu));
    }
    let jacobi = || Ok(Jacobi::on(gpu, on_gpu)?);
    table.line::<Cg, _, _>(cg("Jacobi"), on_gpu, &b, wait, &jacobi)?;
    let multigrid = || Ok(Amg::with_near_null_space_on(gpu, on_gpu, system.rigid.as_deref().unwrap_or(&[]))?);
    table.line::<Cg, _, _>(cg("AMG"), on_gpu, &b, wait, &multigrid)?;
    let mut made = multigrid()?;
    table.again("AMG", wait, &mut made, &|amg| Ok(amg.refresh(on_gpu)?))?;
    println!("{made}");
    let (r, mut z) = (on_gpu.range().vector(&system.b)?, on_gpu.range().zeros()?);
    let mut cycles = |count: usize| -> Result<f64> {
        gpu.synchronize()?;
        let started = Instant::now();
        (0..count).try_for_each(|_| made.apply(&r, &mut z))?;
        gpu.synchronize()?;
        Ok(started.elapsed().as_secs_f64() * 1e3 / count as f64)
    };
    cycles(3)?;
    println!("a cycle, not replayed: {:.4} ms", cycles(50)?);
    if options.steps > 0 {
        super::steps_on_gpu::run(options, gpu, system)?;
    }
    table.keep(&machine_of(gpu))
}

/// The name of a GPU's folder in `benches/record`.
fn machine_of(gpu: &Cuda) -> String {
    let words = gpu.name().split_whitespace().filter(|&word| word != "NVIDIA");
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

/// Measures all preconditioners with one format.
fn lines<F: OnDevice<f64>>(
    options: &Options,
    gpu: &Cuda,
    system: &System,
    format: &str,
    a: &Csr<f64>,
    how: F::Options,
) -> Result<()> {
    let started = Instant::now();
    let on_gpu = &F::on_with(gpu, a, how)?;
    gpu.synchronize()?;
    println!("{format}: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let name = format!("{}_{format}", system.name);
    let device = gpu.name().replace(',', " ");
    let mut table = Table::new(options, &device, &name, [a.rows(), a.nnz()]);
    let bench = Bench { gpu, system, a, on_gpu, b: on_gpu.range().vector(&system.b)? };
    if system.symmetric {
        bench.positive_definite(&mut table)?;
    } else {
        bench.general(&mut table)?;
    }
    table.keep(&machine_of(gpu))
}

struct Bench<'a, F: OnDevice<f64>> {
    gpu: &'a Cuda,
    system: &'a System,
    a: &'a Csr<f64>,
    on_gpu: &'a CudaMatrix<f64, F>,
    b: CudaVector<f64>,
}

impl<F: OnDevice<f64>> Bench<'_, F> {
    /// Factors whose pattern was grown on the host, in a sliced format on the GPU.
    fn grown(&self, fsai: &Fsai<f64>) -> Result<Composed<Slices, Slices>> {
        Ok(Composed::new(Sell::on(self.gpu, fsai.upper())?, Sell::on(self.gpu, fsai.lower())?)?)
    }

    fn positive_definite(&self, table: &mut Table<'_>) -> Result<()> {
        let Bench { gpu, system, a, on_gpu, b } = self;
        let wait = &|| Ok(gpu.synchronize()?);
        let jacobi = || Ok(Jacobi::new(a)?.to(gpu)?);
        table.line::<Cg, _, _>(cg("Jacobi"), on_gpu, b, wait, &jacobi)?;
        table.again("Jacobi", wait, &mut jacobi()?, &|jacobi| Ok(jacobi.refresh(*a)?))?;
        table.again(
            "Jacobi of the operator",
            wait,
            &mut jacobi()?,
            &|jacobi| Ok(jacobi.refresh(*on_gpu)?),
        )?;
        for size in system.blocks() {
            let blocks = || Ok(Jacobi::blocks_on(gpu, *a, size)?);
            table.line::<Cg, _, _>(cg(&format!("block Jacobi {size}")), on_gpu, b, wait, &blocks)?;
            let rounded = || Ok(blocks()?.rounded(0.1)?);
            let name = format!("block Jacobi {size} rounded");
            table.line::<Cg, _, _>(cg(&name), on_gpu, b, wait, &rounded)?;
        }
        let fsai = || Ok(Fsai::on(gpu, *a)?);
        table.line::<Cg, _, _>(cg("FSAI"), on_gpu, b, wait, &fsai)?;
        table.again("FSAI", wait, &mut fsai()?, &|fsai| Ok(fsai.refresh(*a)?))?;
        let there = || Ok(Fsai::on(gpu, *on_gpu)?);
        table.line::<Cg, _, _>(cg("FSAI of the operator"), on_gpu, b, wait, &there)?;
        table.again("FSAI of the operator", wait, &mut there()?, &|fsai| Ok(fsai.refresh(*on_gpu)?))?;
        let narrow = || Ok(Fsai::with_pattern_on::<SinglePrecision>(gpu, *a, Sparsity::Power(1))?);
        table.line::<Cg, _, _>(cg("FSAI in f32"), on_gpu, b, wait, &narrow)?;
        let square = || Ok(Fsai::with_pattern_on::<SinglePrecision>(gpu, *a, Sparsity::Power(2))?);
        table.line::<Cg, _, _>(cg("FSAI of A² in f32"), on_gpu, b, wait, &square)?;
        let adaptive = || self.grown(&Fsai::adaptive(a, Sparsity::Power(1), Fsai::<f64>::GROWTH)?);
        table.line::<Cg, _, _>(cg("FSAI adaptive"), on_gpu, b, wait, &adaptive)?;
        table.again("SPAI, new", wait, &mut (), &|()| {
            Spai::on(gpu, *a)?;
            Ok(())
        })?;
        table.again("SPAI", wait, &mut Spai::on(gpu, *a)?, &|spai| Ok(spai.refresh(*a)?))?;
        let there = || Spai::on(gpu, *on_gpu);
        table.again("SPAI of the operator, new", wait, &mut (), &|()| {
            there()?;
            Ok(())
        })?;
        table.again("SPAI of the operator", wait, &mut there()?, &|spai| Ok(spai.refresh(*on_gpu)?))?;
        let chebyshev = || Ok(Chebyshev::new(on_gpu, jacobi()?, 4)?);
        table.line::<Cg, _, _>(cg("Chebyshev(4)"), on_gpu, b, wait, &chebyshev)?;
        for unknowns in [256, 512, 1024, 1536] {
            let coarse = || CoarseSpace::new(a, unknowns);
            let two = || Ok(TwoLevel::with_inner_on(jacobi()?, coarse()?, *a)?);
            table.line::<Cg, _, _>(cg(&format!("two-level {unknowns}")), on_gpu, b, wait, &two)?;
            let Some(rigid) = &system.rigid else { continue };
            let coarse = || CoarseSpace::with_near_null_space(a, unknowns, rigid);
            let two = || Ok(TwoLevel::with_inner_on(jacobi()?, coarse()?, *a)?);
            table.line::<Cg, _, _>(cg(&format!("two-level {unknowns} rigid")), on_gpu, b, wait, &two)?;
        }
        let coarse = || match &system.rigid {
            Some(rigid) => CoarseSpace::with_near_null_space(a, CoarseSpace::<f64>::UNKNOWNS, rigid),
            None => CoarseSpace::new(a, CoarseSpace::<f64>::UNKNOWNS),
        };
        let over = || Ok(TwoLevel::with_inner_on(narrow()?, coarse()?, *a)?);
        table.line::<Cg, _, _>(cg("two-level over FSAI in f32"), on_gpu, b, wait, &over)
    }

    fn general(&self, table: &mut Table<'_>) -> Result<()> {
        let Bench { gpu, a, on_gpu, b, .. } = self;
        let wait = &|| Ok(gpu.synchronize()?);
        let jacobi = || Ok(Jacobi::new(a)?.to(gpu)?);
        table.line::<BiCgStab, _, _>(bicgstab("Jacobi"), on_gpu, b, wait, &jacobi)?;
        let spai = || Ok(Spai::on(gpu, *a)?);
        table.line::<BiCgStab, _, _>(bicgstab("SPAI"), on_gpu, b, wait, &spai)?;
        table.again("SPAI", wait, &mut spai()?, &|spai| Ok(spai.refresh(*a)?))?;
        let there = || Ok(Spai::on(gpu, *on_gpu)?);
        table.line::<BiCgStab, _, _>(bicgstab("SPAI of the operator"), on_gpu, b, wait, &there)?;
        table.again("SPAI of the operator", wait, &mut there()?, &|spai| Ok(spai.refresh(*on_gpu)?))?;
        let narrow =
            || Ok(Spai::with_pattern_on::<SinglePrecision>(gpu, *a, Side::Right, Sparsity::Power(1))?);
        table.line::<BiCgStab, _, _>(bicgstab("SPAI in f32"), on_gpu, b, wait, &narrow)
    }
}
