//! Calibration: costs of preconditioners measured on this machine, relative to those of the table.
//!
//! ```text
//! for some generated matrices:   unit = seconds of an iteration of CG with Jacobi
//!     for each preconditioner:   factors = measured setup and application / (those of the table × unit)
//! ```
//!
//! The geometric means of the factors are stored in a file for this machine, instruction set and number of threads. Plans read the file
//! and measure nothing themselves, so that their decisions are the same from run to run.

use super::backend::{Backend, ForFactors};
use super::context::Context;
use super::costs::Factorization;
use super::declarations::Declarations;
use super::matched::Begins;
use super::{Costs, MachineClass, Method, Preconditioner, Profile};
use crate::choice::{Key, Operator, calibration_file, calibration_key};
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::gallery;
use crate::host::Host;
use crate::preconditioners::{DirectOptions, Jacobi, Symbolic};
use krysp_kernels::cache;
use krysp_solvers::{Cg, LinearOperator, Space};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// First line of the file. A change of the table must increase the number, so that older files are ignored.
const HEAD: &str = "krysp costs 8";

/// Numbers of timed iterations and applications. Not measured; chosen so that the clock and the first iteration count little.
const ITERATIONS: usize = 40;
const APPLICATIONS: usize = 10;

/// Preconditioners that are not calibrated: `Jacobi`, which defines the unit, `None`, `SaddlePoint`, which needs a saddle point system, and
/// `CuDss`, which needs a GPU.
const LEFT_OUT: [Preconditioner; 4] =
    [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::SaddlePoint, Preconditioner::CuDss];

/// Number of multiplications, some tenths of a second, beyond which `Lu` is not measured. A guess.
const MOST: f64 = 1e8;

/// Range of the factors: those beyond it are measurement errors. Not measured.
const RANGE: [f64; 2] = [0.1, 10.0];

/// Factors on the costs of setup and application, for each preconditioner.
pub(super) type Factors = Vec<(Preconditioner, [f64; 2])>;

static READ: Mutex<Vec<(Key, Factors)>> = Mutex::new(vec![]);

impl Context {
    /// A context with the calibration of this machine.
    pub(super) fn here(profile: &Profile, class: MachineClass) -> Context {
        let factors = match class {
            MachineClass::Host { .. } => factors,
            MachineClass::Gpu { .. } => |_| [1.0; 2],
        };
        Context { profile: profile.clone(), class, factors }
    }
}

/// Factors on the table's costs of setup and application of a preconditioner on this machine; 1 if it was not calibrated.
pub(super) fn factors(preconditioner: Preconditioner) -> [f64; 2] {
    let key = calibration_key();
    let find = |factors: &Factors| {
        factors.iter().find(|(one, _)| *one == preconditioner).map_or([1.0; 2], |(_, factors)| *factors)
    };
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, factors)) = read().iter().find(|(of, _)| *of == key) {
        return find(factors);
    }
    // read the file without holding the lock: a process that is forked while the lock is held would wait for it for ever
    let text = calibration_file("costs", key).and_then(|path| std::fs::read_to_string(path).ok());
    let factors = text.and_then(|text| parsed(&text)).unwrap_or_default();
    let found = find(&factors);
    read().push((key, factors));
    found
}

/// Measures the costs of preconditioners on this CPU, for the instruction set and the number of threads of this program. Returns, for
/// each preconditioner, the factors `measured / expected` of setup and application. Takes some seconds.
///
/// Plans use the factors from now on, in this program and in later ones: they are stored in `$KRYSP_CACHE`, or in `krysp` in the user's
/// cache folder, in a file with the machine's name.
pub fn calibrate_costs() -> Result<Vec<(Preconditioner, [f64; 2])>> {
    let (elastic, _) = gallery::elasticity::<f64>([9, 9, 9], 0.3)?;
    let mut logs = vec![];
    for a in [gallery::poisson::<f64>(&[24; 3])?, gallery::poisson::<f64>(&[120, 120])?, elastic] {
        measure(&a, &mut logs)?;
    }
    let mean = |one: Preconditioner, of: usize| {
        let logs: Vec<f64> =
            logs.iter().filter(|(other, _)| *other == one).map(|(_, logs)| logs[of]).collect();
        match logs.len() {
            0 => 1.0,
            count => (logs.iter().sum::<f64>() / count as f64).exp().clamp(RANGE[0], RANGE[1]),
        }
    };
    let factors: Factors = calibrated().map(|one| (one, [0, 1].map(|of| mean(one, of)))).collect();
    let key = calibration_key();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.retain(|(of, _)| *of != key);
    read.push((key, factors.clone()));
    if let Some(path) = calibration_file("costs", key) {
        cache::write_whole(&path, written(&factors).as_bytes()).map_err(|error| Error::File {
            why: format!("costs cannot be kept here, set `KRYSP_CACHE` to a folder: {error}"),
            path,
        })?;
    }
    Ok(factors)
}

fn calibrated() -> impl Iterator<Item = Preconditioner> {
    Preconditioner::ALL.into_iter().filter(|one| !LEFT_OUT.contains(one))
}

/// Measures the preconditioners for one matrix, and adds the logarithms of `measured / expected` work to `logs`.
fn measure(a: &Csr<f64>, logs: &mut Factors) -> Result<()> {
    let profile = Profile::scan(a);
    let operator = Operator::auto(a, &Host)?;
    let b = vec![1.0; a.rows()];
    let mut solver = Cg::new(&operator).preconditioner(Jacobi::new(a)?).rtol(0.0).max_iterations(ITERATIONS);
    let timed = |solve: &mut dyn FnMut() -> Result<f64>| solve().and_then(|first| Ok(first.min(solve()?)));
    let unit = timed(&mut || Ok(solver.solve(&b)?.report.time.as_secs_f64() / ITERATIONS as f64))?;
    let class = MachineClass::Host { threads: rayon::current_num_threads() };
    let context = Context::of_table(&profile, class);
    let factorization = Factorization::of(&Symbolic::new(a, DirectOptions::default()));
    let x = operator.domain().vector(&b)?;
    for preconditioner in calibrated() {
        if preconditioner == Preconditioner::Lu && factorization.multiplications > MOST {
            continue;
        }
        let factors = ForFactors {
            ordered: None,
            most: f64::INFINITY,
            is_alone: true,
            begins: &mut Begins::default(),
            smooth_finest: false,
            known: &Declarations::default(),
        };
        let started = Instant::now();
        let m = Host.preconditioner(preconditioner, a, &operator, factors)?;
        let setup = started.elapsed().as_secs_f64();
        let mut y = operator.range().zeros()?;
        m.apply(&x, &mut y)?;
        let started = Instant::now();
        (0..APPLICATIONS).try_for_each(|_| m.apply(&x, &mut y))?;
        let application = started.elapsed().as_secs_f64() / APPLICATIONS as f64;
        let costs = Costs::of(&context, Method::Cg, preconditioner, Some(factorization));
        let ratios = [setup / costs.setup.0, application / (costs.iteration.0 - 1.0)];
        logs.push((preconditioner, ratios.map(|ratio| (ratio / unit).ln())));
    }
    Ok(())
}

fn written(factors: &Factors) -> String {
    let mut text = format!("{HEAD}\n");
    for (name, [setup, application]) in factors {
        // writing to a string does not fail
        let _ = writeln!(text, "{setup:e} {application:e} {name}");
    }
    text
}

/// Factors from the text of a file; `None` if the file is damaged or of another version.
fn parsed(text: &str) -> Option<Factors> {
    let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?.lines();
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut factor =
            || words.next()?.parse().ok().filter(|factor| (RANGE[0]..=RANGE[1]).contains(factor));
        let factors = [factor()?, factor()?];
        Some((words.next()?.parse().ok()?, factors))
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let factors = vec![(Preconditioner::Amg, [0.5, 2.0]), (Preconditioner::TwoLevel, [1.25, 1.0])];
        let text = written(&factors);
        assert_eq!(parsed(&text), Some(factors));
        for wrong in
            [text.replace(HEAD, "krysp costs 1"), text.replace("1.25e0", "-1"), text[..24].to_owned()]
        {
            assert_eq!(parsed(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn factors_are_measured_for_every_preconditioner() {
        let mut logs = vec![];
        measure(&gallery::poisson::<f64>(&[12; 3]).unwrap(), &mut logs).unwrap();
        assert!(logs.iter().map(|(one, _)| *one).eq(calibrated()), "{logs:?}");
        assert!(logs.iter().flat_map(|(_, both)| both).all(|log| log.is_finite()), "{logs:?}");
    }
}
