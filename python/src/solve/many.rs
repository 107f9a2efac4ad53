//! Solves a system for several right-hand sides.

use super::{Given, Name, Options, info, on_host};
use crate::arrays::{array, entries};
use crate::errors::raised_by_solver;
use crate::matrix::Number;
use crate::report::Report;
use crate::threads;
use crate::watch::watched;
use krysp::{BiCgStab, Cg, Fcg, Fgmres, Gmres, HostVector, Idr, LinearOperator, Minres, Stopping};
use numpy::PyArray1;
use pyo3::prelude::*;

/// Solutions for several right-hand sides, one after the other, with `info` and report of each.
pub(crate) type Columns<'py, R> = (Bound<'py, PyAny>, Vec<(isize, R)>);

/// Solves `A x = b` for several right-hand sides in host memory, stored one after the other, each with an
/// entry for each row. Returns the solutions, stored likewise, and `(info, report)` of each. With `block`,
/// `cg` and `gmres` use one search space for all.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the package calls it, in one place")]
pub(crate) fn solve_many<'py>(
    method: &str,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    rows: usize,
    m: &Bound<'py, PyAny>,
    rtol: f64,
    atol: f64,
    max_iterations: usize,
    restart: usize,
    block: bool,
) -> PyResult<Columns<'py, Report>> {
    threads::enter();
    let options = Options::new(method, rtol, atol, max_iterations, restart)?;
    match b.is_instance_of::<PyArray1<f32>>() {
        true => many_typed::<f32>(&options, a, b, rows, m, block),
        false => many_typed::<f64>(&options, a, b, rows, m, block),
    }
}

fn many_typed<'py, T: Number>(
    options: &Options,
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    rows: usize,
    m: &Bound<'py, PyAny>,
    block: bool,
) -> PyResult<Columns<'py, Report>> {
    let py = b.py();
    let b = array::<T>("b", b)?;
    let columns: Vec<&[T]> = entries("b", &b)?.chunks(rows.max(1)).collect();
    let (a, m) = (Given::<T>::new(a, rows)?, Given::<T>::new(m, rows)?);
    let of_user = a.is_of_user() || m.is_of_user();
    let space = a.space(rows);
    let (a, m) = (on_host(&a, &space)?, on_host(&m, &space)?);
    let solve = || many_by_name(options, &*a, &*m, &columns, block);
    let solved = match of_user {
        true => py.detach(solve),
        false => watched(py, &options.watch.token, solve)?,
    };
    options.watch.outcome()?;
    let solutions = solved.map_err(raised_by_solver)?;
    let mut x = Vec::with_capacity(rows * solutions.len());
    let mut ended = Vec::with_capacity(solutions.len());
    for solution in solutions {
        x.extend_from_slice(&solution.x);
        let tolerance = options.tolerance(&solution.report);
        ended
            .push((info(&solution.report), Report::new(options.method.as_str(), solution.report, tolerance)));
    }
    Ok((PyArray1::from_vec(py, x).into_any(), ended))
}

/// Solves several systems by the given method, or by its block method.
fn many_by_name<T: Number>(
    options: &Options,
    a: &dyn LinearOperator<Vector = HostVector<T>>,
    m: &dyn LinearOperator<Vector = HostVector<T>>,
    b: &[&[T]],
    block: bool,
) -> krysp::solvers::Result<Vec<krysp::Solution<T>>> {
    let stopping = Stopping {
        rtol: options.rtol,
        atol: options.atol,
        max_iterations: options.max_iterations,
        ..Stopping::new(T::EPSILON)
    };
    let token = &options.watch.token;
    match options.method {
        Name::Cg if block => {
            return Cg::new(a).preconditioner(m).stopping(stopping).cancel_token(token).solve_block(b);
        }
        Name::Gmres if block => {
            let solver = Gmres::new(a).preconditioner(m).restart(options.restart);
            return solver.stopping(stopping).cancel_token(token).solve_block(b);
        }
        _ => {}
    }
    macro_rules! solved {
        ($($name:literal: $method:ident, $matrix:ident $(, $option:ident)?;)*) => {
            match options.method {
                $(Name::$method => {
                    let solver = $method::new(a).preconditioner(m)$(.$option(options.$option))?;
                    solver.stopping(stopping).cancel_token(token).solve_many(b)
                })*
            }
        };
    }
    each_method!(solved)
}
