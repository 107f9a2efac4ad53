//! The total time from CSR to `x` on a CPU, including ordering, format, preconditioner, and allocations of the solve. External
//! programs can be run on the same system.

use super::system::System;
use super::{Boxed, Options, Result, Table, cg, machine};
use krysp::{
    Amg, CoarseSpace, Composed, Csr, Fsai, Host, Ic0, Jacobi, Operator, Permutation, Refresh, Sell,
    SinglePrecision, TwoLevel,
};
use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// Number of rows in each run of the clustered ordering. A run is a range of consecutive rows with few
/// entries in columns outside it.
const RUN: usize = 2592;

type Matrix = Csr<f64>;
type Build<X> = fn(&Matrix, &System) -> Result<X>;

const ORDERINGS: [(&str, Option<Build<Permutation>>); 3] = [
    ("as given", None),
    ("RCM", Some(|a, _| Ok(Permutation::rcm(a)?))),
    ("clustered", Some(|a, _| Ok(Permutation::clustered(a, RUN)?))),
];

/// Preconditioners, and whether the solve uses the fastest format (`true`) or the given CSR (`false`), which
/// suits few iterations.
const PRECONDITIONERS: [(&str, bool, Build<Boxed<'static>>); 6] = [
    ("Jacobi", true, |a, _| Ok(Box::new(Jacobi::new(a)?))),
    ("FSAI f32", true, |a, _| {
        let fsai = Fsai::new(a)?;
        let [upper, lower] = [fsai.upper(), fsai.lower()].map(|factor| Sell::new(&factor.cast::<f32>()));
        Ok(Box::new(SinglePrecision::new(Composed::new(upper?, lower?)?)?))
    }),
    ("IC(0) f32", true, |a, _| Ok(Box::new(SinglePrecision::new(Ic0::shifted(&a.cast::<f32>())?)?))),
    ("two-level 1024", true, |a, system| {
        let coarse = match &system.rigid {
            Some(rigid) => CoarseSpace::with_near_null_space(a, 1024, rigid)?,
            None => CoarseSpace::new(a, 1024)?,
        };
        Ok(Box::new(TwoLevel::with_inner(Jacobi::new(a)?, coarse, a)?))
    }),
    ("AMG", false, amg),
    ("AMG", true, amg),
];

fn amg(a: &Matrix, system: &System) -> Result<Boxed<'static>> {
    Ok(Box::new(Amg::with_near_null_space(a, system.rigid.as_deref().unwrap_or(&[]))?))
}

pub(super) fn all(options: &Options, system: &System) -> Result<()> {
    let csr = &system.csr;
    let name = format!("{}_from_CSR", system.name);
    let mut table = Table::new(options, &machine::device(), &name, [csr.rows(), csr.nnz()]);
    for (preconditioner, fastest, build) in PRECONDITIONERS {
        for (ordering, number) in ORDERINGS {
            let format = if fastest { "fastest format" } else { "CSR" };
            let called = format!("{preconditioner} {ordering} {format}");
            if options.with.as_ref().is_some_and(|with| !called.contains(with.as_str())) {
                continue;
            }
            table.whole(cg(&called), system, &|solve| {
                let a = match number {
                    Some(number) => Cow::Owned(csr.reordered(&number(csr, system)?)?),
                    None => Cow::Borrowed(csr),
                };
                let m = build(&a, system)?;
                let operator: Boxed<'_> =
                    if fastest { Box::new(Operator::symmetric(&*a, &Host)?) } else { Box::new(&*a) };
                solve(operator, m)
            })?;
        }
    }
    let modes = system.rigid.as_deref().unwrap_or(&[]);
    if let Some(mut made) =
        options.with.is_none().then(|| Amg::with_near_null_space(csr, modes)).transpose()?
    {
        table.again("AMG", &|| Ok(()), &mut made, &|amg| Ok(amg.refresh(csr)?))?;
        println!("{made}");
    }
    for program in &options.beside {
        beside(&mut table, program, system)?;
    }
    table.keep(&machine::name())
}

/// Runs a program with the files of a matrix and of its near-null space. The program prints a tab-separated line for each solve,
/// `NAME  setup S s  solve S s  its N  true R  total S`. Of lines with equal names, the last one counts.
fn beside(table: &mut Table<'_>, program: &Path, system: &System) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("krysp_beside_{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let [matrix, modes] = ["matrix.bin", "modes.bin"].map(|name| folder.join(name));
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", rayon::current_num_threads().to_string()).arg(&matrix);
    write_matrix(&matrix, system)?;
    if let Some(rigid) = &system.rigid {
        let rows = (0..system.b.len()).flat_map(|row| rigid.iter().map(move |mode| mode[row]));
        let mut file = BufWriter::new(std::fs::File::create(&modes)?);
        rows.map(f64::to_le_bytes).try_for_each(|number| file.write_all(&number))?;
        file.flush()?;
        command.arg(&modes);
    }
    let output = command.output();
    std::fs::remove_dir_all(&folder)?;
    let text = String::from_utf8(output?.stdout)?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    for (at, line) in lines.iter().enumerate() {
        let [name, numbers @ ..] = &line[..] else { continue };
        if numbers.len() < 4 || lines[at + 1..].iter().any(|later| later[0] == *name) {
            continue;
        }
        let number = |cell: usize| -> Result<f64> {
            Ok(numbers[cell].split(' ').nth(1).ok_or("a number is missing")?.parse()?)
        };
        let its = number(2)? as usize;
        table.row(cg(name), [number(0)? * 1e3, number(1)? * 1e3], its, number(3)?, number(3)? <= 1.1e-8);
    }
    Ok(())
}

/// Writes numbers of rows and entries in 64 bits, offsets and columns in 32, values and right-hand side in double precision.
fn write_matrix(path: &Path, System { csr, b, .. }: &System) -> Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut write = |bytes: &[u8]| file.write_all(bytes);
    [csr.rows(), csr.nnz()].iter().try_for_each(|&size| write(&(size as u64).to_le_bytes()))?;
    csr.offsets().iter().try_for_each(|&offset| write(&(offset as u32).to_le_bytes()))?;
    csr.columns().iter().try_for_each(|&column| write(&column.to_le_bytes()))?;
    csr.entries().iter().chain(b).try_for_each(|value| write(&value.to_le_bytes()))?;
    Ok(file.flush()?)
}
