//! Measurements in host memory.

use super::system::System;
use super::{Options, Result, Table, bicgstab, cg, machine};
use krysp::solvers::bicgstab::StabilizedBiConjugateGradients as BiCgStab;
use krysp::solvers::cg::ConjugateGradients as Cg;
use krysp::{
    Amg, Chebyshev, CoarseSpace, Composed, Csr, Fsai, HostVector, Ic0, Ilu0, Ilut, Isai, Jacobi,
    LinearOperator, Permutation, Sell, Side, SinglePrecision, Spai, Sparsity, TwoLevel,
};
use std::time::Instant;

/// Number of rows in each run of the clustered ordering. A run is a range of consecutive rows with few
/// entries in columns outside it.
const RUN: usize = 2592;

fn narrow(fsai: &Fsai<f64>) -> krysp::Result<impl LinearOperator<Vector = HostVector<f64>> + use<>> {
    let [upper, lower] = [fsai.upper(), fsai.lower()].map(|factor| Sell::new(&factor.cast::<f32>()));
    SinglePrecision::new(Composed::new(upper?, lower?)?)
}

pub(super) fn all(options: &Options, system: &System) -> Result<()> {
    let started = Instant::now();
    let a = &system.csr.reordered(&Permutation::clustered(&system.csr, RUN)?)?;
    println!("ordering: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let name = format!("{}_clustered", system.name);
    let mut table = Table::new(options, &machine::device(), &name, [a.rows(), a.nnz()]);
    let b = a.range().vector(&system.b)?;
    if system.symmetric {
        positive_definite(&mut table, system, a, &b)?;
    } else {
        general(&mut table, a, &b)?;
    }
    table.keep(&machine::name())
}

fn positive_definite(
    table: &mut Table<'_>,
    system: &System,
    a: &Csr<f64>,
    b: &HostVector<f64>,
) -> Result<()> {
    let wait = &|| Ok(());
    table.line::<Cg, _, _>(cg("Jacobi"), a, b, wait, &|| Ok(Jacobi::new(a)?))?;
    for size in system.blocks() {
        let blocks = || Ok(Jacobi::blocks(a, size)?);
        table.line::<Cg, _, _>(cg(&format!("block Jacobi {size}")), a, b, wait, &blocks)?;
        let rounded = || Ok(blocks()?.rounded(0.1)?);
        table.line::<Cg, _, _>(cg(&format!("block Jacobi {size} rounded")), a, b, wait, &rounded)?;
    }
    table.line::<Cg, _, _>(cg("FSAI"), a, b, wait, &|| Ok(Fsai::new(a)?))?;
    table.line::<Cg, _, _>(cg("FSAI f32"), a, b, wait, &|| Ok(narrow(&Fsai::new(a)?)?))?;
    let adaptive = || Fsai::adaptive(a, Sparsity::Power(1), Fsai::<f64>::GROWTH);
    table.line::<Cg, _, _>(cg("FSAI adaptive"), a, b, wait, &|| Ok(adaptive()?))?;
    table.line::<Cg, _, _>(cg("IC(0) shifted"), a, b, wait, &|| Ok(Ic0::shifted(a)?))?;
    let f32 = || Ok(SinglePrecision::new(Ic0::shifted(&a.cast::<f32>())?)?);
    table.line::<Cg, _, _>(cg("IC(0) shifted f32"), a, b, wait, &f32)?;
    let isai = || Ok(Isai::new(Ic0::shifted(a)?, Sparsity::Power(1))?);
    table.line::<Cg, _, _>(cg("ISAI of IC(0)"), a, b, wait, &isai)?;
    let chebyshev = || Ok(Chebyshev::new(a, Jacobi::new(a)?, 4)?);
    table.line::<Cg, _, _>(cg("Chebyshev(4)"), a, b, wait, &chebyshev)?;
    for unknowns in [CoarseSpace::<f64>::UNKNOWNS, 1024] {
        let coarse = || CoarseSpace::new(a, unknowns);
        let two = || Ok(TwoLevel::with_inner(Jacobi::new(a)?, coarse()?, a)?);
        table.line::<Cg, _, _>(cg(&format!("two-level {unknowns}")), a, b, wait, &two)?;
        let Some(rigid) = &system.rigid else { continue };
        let coarse = || CoarseSpace::with_near_null_space(a, unknowns, rigid);
        let two = || Ok(TwoLevel::with_inner(Jacobi::new(a)?, coarse()?, a)?);
        table.line::<Cg, _, _>(cg(&format!("two-level {unknowns} rigid")), a, b, wait, &two)?;
    }
    let coarse = || match &system.rigid {
        Some(rigid) => CoarseSpace::with_near_null_space(a, CoarseSpace::<f64>::UNKNOWNS, rigid),
        None => CoarseSpace::new(a, CoarseSpace::<f64>::UNKNOWNS),
    };
    let over = || Ok(TwoLevel::with_inner(Fsai::new(a)?, coarse()?, a)?);
    table.line::<Cg, _, _>(cg("two-level over FSAI"), a, b, wait, &over)?;
    table.line::<Cg, _, _>(cg("AMG"), a, b, wait, &|| Ok(Amg::new(a)?))?;
    let Some(rigid) = &system.rigid else { return Ok(()) };
    table.line::<Cg, _, _>(cg("AMG rigid"), a, b, wait, &|| Ok(Amg::with_near_null_space(a, rigid)?))
}

fn general(table: &mut Table<'_>, a: &Csr<f64>, b: &HostVector<f64>) -> Result<()> {
    let wait = &|| Ok(());
    table.line::<BiCgStab, _, _>(bicgstab("Jacobi"), a, b, wait, &|| Ok(Jacobi::new(a)?))?;
    table.line::<BiCgStab, _, _>(bicgstab("AMG"), a, b, wait, &|| Ok(Amg::new(a)?))?;
    table.line::<BiCgStab, _, _>(bicgstab("SPAI"), a, b, wait, &|| Ok(Spai::new(a)?))?;
    let f32 = || Ok(SinglePrecision::new(Sell::new(&Spai::new(a)?.matrix().cast::<f32>())?)?);
    table.line::<BiCgStab, _, _>(bicgstab("SPAI f32"), a, b, wait, &f32)?;
    let adaptive = || Ok(Spai::adaptive(a, Side::Right, Sparsity::Power(0), Spai::<f64>::GROWTH)?);
    table.line::<BiCgStab, _, _>(bicgstab("SPAI adaptive"), a, b, wait, &adaptive)?;
    table.line::<BiCgStab, _, _>(bicgstab("ILU(0)"), a, b, wait, &|| Ok(Ilu0::new(a)?))?;
    table.line::<BiCgStab, _, _>(bicgstab("ILUT"), a, b, wait, &|| Ok(Ilut::new(a)?))?;
    let isai = || Ok(Isai::new(Ilu0::new(a)?, Sparsity::Power(1))?);
    table.line::<BiCgStab, _, _>(bicgstab("ISAI of ILU(0)"), a, b, wait, &isai)
}
