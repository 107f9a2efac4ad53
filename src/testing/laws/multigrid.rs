//! Features of multigrid, which are the same in every memory.

use super::{Law, Violation};
use crate::error::Result;
use crate::formats::Csr;
use crate::testing::matrices;
use krysp_solvers::Solution;
use std::ops::RangeInclusive;

/// Largest number of rows of a level that is inverted, so that small matrices have several levels.
pub const MAX_COARSE_SIZE: usize = 40;

/// Multigrid in one memory.
pub trait Multigrid {
    /// A hierarchy.
    type Hierarchy;

    /// Builds a hierarchy in which levels of at most [`MAX_COARSE_SIZE`] rows are inverted; without modes, the
    /// near-null space is that of the constants.
    fn build(&self, a: &Csr<f64>, modes: &[Vec<f64>], smooth_finest: bool) -> Result<Self::Hierarchy>;

    /// Takes new values of the matrix.
    fn refresh(&self, m: &mut Self::Hierarchy, a: &Csr<f64>) -> Result<()>;

    /// The aggregate of each node of each level, `None` for nodes without one.
    fn aggregates(&self, m: &Self::Hierarchy) -> Result<Vec<Vec<Option<u32>>>>;

    /// Solves by conjugate gradients to a relative residual of 1e-8.
    fn solve(&self, m: &Self::Hierarchy, a: &Csr<f64>, b: &[f64]) -> Result<Solution<f64>>;

    /// The table of the levels.
    fn table(&self, m: &Self::Hierarchy) -> String;
}

/// Relation of hierarchies in a memory to those of the host.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    /// The aggregates are the same.
    pub same_aggregates: bool,
    /// The admissible numbers of iterations, given that of the host.
    pub iterations: fn(usize) -> RangeInclusive<usize>,
}

/// The system whose diagonal grows so much in one half that the hierarchy of the first matrix is a poor one.
const VARIED: &str = "grid";

/// A matrix, the same pattern with other values, and modes.
#[derive(Debug)]
struct System {
    name: &'static str,
    a: Csr<f64>,
    other: Csr<f64>,
    modes: Vec<Vec<f64>>,
    /// Upper bound of the iterations on the host.
    most: usize,
}

/// Results of the host for one system.
#[derive(Debug)]
struct OnHost {
    aggregates: Vec<Vec<Option<u32>>>,
    table: String,
    /// Iterations for the matrix, for its other values, and for the matrix again.
    iterations: [usize; 3],
}

/// Results of the host, with which other memories are compared.
#[derive(Debug)]
pub struct Reference(Vec<(System, [OnHost; 2])>);

impl Reference {
    /// Solves all systems on the host, once for any number of comparisons.
    pub fn of(host: &impl Multigrid) -> Law<Self> {
        let both = |system: System| {
            let [plain, smoothed] = [false, true].map(|smooth_finest| {
                on_host(host, &system, smooth_finest)
                    .map_err(|violation| on(violation, &system, smooth_finest))
            });
            Ok((system, [plain?, smoothed?]))
        };
        systems()?.into_iter().map(both).collect::<Law<Vec<_>>>().map(Reference)
    }
}

fn on(violation: Violation, system: &System, smooth_finest: bool) -> Violation {
    violation.on(&format!("{}, smooth_finest: {smooth_finest}", system.name))
}

/// Checks that `memory` has the features of the host: both kinds of aggregation on the finest level, nodes with equal
/// and different numbers of unknowns, modes, refreshes, values of any magnitude, the same bits again, a table, and
/// refusals.
pub fn multigrid<M: Multigrid>(Reference(systems): &Reference, memory: &M, relation: Relation) -> Law {
    for (system, on_host) in systems {
        for (expected, smooth_finest) in on_host.iter().zip([false, true]) {
            same_features(expected, memory, relation, system, smooth_finest)
                .map_err(|violation| on(violation, system, smooth_finest))?;
        }
    }
    refusals(memory)
}

/// Solves; returns the number of iterations and the solution.
fn solved<M: Multigrid>(memory: &M, m: &M::Hierarchy, a: &Csr<f64>, b: &[f64]) -> Law<(usize, Vec<f64>)> {
    let Solution { x, report } = memory.solve(m, a, b).map_err(failed)?;
    require(report.converged(), || report.to_string())?;
    Ok((report.iterations, x))
}

fn failed(error: crate::error::Error) -> Violation {
    Violation::new("multigrid", error.to_string())
}

fn require(holds: bool, how: impl FnOnce() -> String) -> Law {
    if holds { Ok(()) } else { Err(Violation::new("multigrid", how())) }
}

/// Results of the steps for a system: the first matrix, a refresh with the other values, and one with the first again.
fn steps<M: Multigrid>(
    memory: &M,
    m: &mut M::Hierarchy,
    System { a, other, .. }: &System,
    b: &[f64],
) -> Law<[(usize, Vec<f64>); 3]> {
    let first = solved(memory, m, a, b)?;
    memory.refresh(m, other).map_err(failed)?;
    let second = solved(memory, m, other, b)?;
    memory.refresh(m, a).map_err(failed)?;
    Ok([first, second, solved(memory, m, a, b)?])
}

fn on_host(host: &impl Multigrid, system: &System, smooth_finest: bool) -> Law<OnHost> {
    let mut m = host.build(&system.a, &system.modes, smooth_finest).map_err(failed)?;
    let (aggregates, table) = (host.aggregates(&m).map_err(failed)?, host.table(&m));
    let steps = steps(host, &mut m, system, &matrices::vector(system.a.rows()))?;
    let (iterations, most) = (steps.map(|(iterations, _)| iterations), system.most);
    require(iterations.iter().all(|of_host| *of_host <= most), || {
        format!("{iterations:?} iterations on the host, at most {most}")
    })?;
    Ok(OnHost { aggregates, table, iterations })
}

fn same_features<M: Multigrid>(
    expected: &OnHost,
    memory: &M,
    relation: Relation,
    system: &System,
    smooth_finest: bool,
) -> Law {
    let System { name, a, other, modes, .. } = system;
    let mut m = memory.build(a, modes, smooth_finest).map_err(failed)?;
    let table = memory.table(&m);
    if relation.same_aggregates {
        let same = memory.aggregates(&m).map_err(failed)? == expected.aggregates;
        require(same, || format!("other aggregates:\n{}\n{table}", expected.table))?;
        let [ours, theirs] = [&expected.table, &table].map(|table| rows(table));
        require(ours == theirs && !ours.is_empty(), || format!("levels of {ours:?}, not {theirs:?} rows"))?;
    }
    let b = matrices::vector(a.rows());
    let stale = (*name == VARIED).then(|| solved(memory, &m, other, &b)).transpose()?;
    let steps = steps(memory, &mut m, system, &b)?;
    let iterations = steps.each_ref().map(|(iterations, _)| *iterations);
    for (step, (got, of_host)) in iterations.iter().zip(expected.iterations).enumerate() {
        let range = (relation.iterations)(of_host);
        require(range.contains(got), || format!("step {step}: {got} iterations, {of_host} on the host"))?;
    }
    require(iterations[0] == iterations[2], || format!("{iterations:?} iterations after refreshes"))?;
    let has_effect = stale.as_ref().is_none_or(|(stale, _)| *stale > iterations[1] + 1);
    require(has_effect, || format!("{stale:?} without a refresh: {iterations:?}"))?;
    let mut again = vec![];
    for scale in [1e-60, 1e60, 1.0] {
        let b: Vec<f64> = b.iter().map(|b| scale * b).collect();
        let (got, x) = solved(memory, &m, a, &b)?;
        require(got.abs_diff(iterations[0]) <= 1, || {
            format!("{got} iterations for {scale} b: {iterations:?}")
        })?;
        again = x;
    }
    require(again == steps[2].1, || "another solution for the same right-hand side".into())
}

/// The numbers of rows in a table: its second column.
fn rows(table: &str) -> Vec<usize> {
    table.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
}

fn refusals<M: Multigrid>(memory: &M) -> Law {
    let a = matrices::stencil7(6).csr::<f64>().map_err(failed)?;
    let negative = a.with_values(&a.entries().iter().map(|v| -v).collect::<Vec<_>>()).map_err(failed)?;
    let mut m = memory.build(&a, &[], false).map_err(failed)?;
    require(memory.build(&negative, &[], false).is_err(), || "a negative diagonal is accepted".into())?;
    require(memory.refresh(&mut m, &negative).is_err(), || "a refresh accepts a negative diagonal".into())?;
    let entries: Vec<_> =
        a.triplets().map(|(i, j, v)| (i, if i == j { j } else { (j + 1) % 216 }, v)).collect();
    let moved = Csr::from_triplets(216, 216, &entries).map_err(failed)?;
    require(memory.refresh(&mut m, &moved).is_err(), || "a refresh accepts another pattern".into())?;
    memory.refresh(&mut m, &a).map_err(failed)
}

/// The translations and rotations of points in space, unknown by unknown.
fn rigid(points: &[[f64; 3]]) -> Vec<Vec<f64>> {
    let moves = |&[x, y, z]: &[f64; 3]| {
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-y, x, 0.0], [-z, 0.0, x], [0.0, -z, y]]
    };
    (0..6).map(|mode| points.iter().flat_map(|point| moves(point)[mode]).collect()).collect()
}

fn systems() -> Law<Vec<System>> {
    let csr = |a: matrices::Matrix| a.csr::<f64>().map_err(failed);
    let kept = |a: &Csr<f64>,
                kept: &dyn Fn(usize, usize) -> bool,
                value: &dyn Fn(usize, usize, f64) -> f64| {
        let entries = a.triplets().filter(|&(i, j, _)| kept(i, j)).map(|(i, j, v)| (i, j, value(i, j, v)));
        Csr::from_triplets(a.rows(), a.rows(), &entries.collect::<Vec<_>>()).map_err(failed)
    };
    let all = |_, _| true;
    let same = |_, _, v| v;
    let (grid, part) = (csr(matrices::stencil7(11))?, csr(matrices::elasticity(5))?);
    let layers = kept(&grid, &all, &|i, j, v| if i.abs_diff(j) >= 121 { 0.01 * v } else { v })?;
    let flow = kept(&grid, &all, &|i, j, v| if j == i + 1 { 0.9 * v } else { v })?;
    let holes = kept(&part, &|i, j| i == j || !(i + j).is_multiple_of(101), &same)?;
    let dirichlet = |i: usize| i.is_multiple_of(29);
    let dirichlet = kept(&grid, &|i, j| i == j || !(dirichlet(i) || dirichlet(j)), &same)?;
    let points: Vec<[f64; 3]> =
        (0..125).map(|i| [i % 5, i / 5 % 5, i / 25].map(|x| x as f64 - 2.0)).collect();
    let modes = rigid(&points);
    // without the third unknown of the nodes on one side, nodes differ in their number of unknowns
    let free: Vec<usize> = (0..part.rows()).filter(|i| i % 3 != 2 || i / 75 > 0).collect();
    let place = |i: usize| free.binary_search(&i).ok();
    let entries: Vec<_> = part.triplets().filter_map(|(i, j, v)| Some((place(i)?, place(j)?, v))).collect();
    let clamped = Csr::from_triplets(free.len(), free.len(), &entries).map_err(failed)?;
    let of_free = modes.iter().map(|mode| free.iter().map(|&i| mode[i]).collect()).collect();
    let systems = [
        ("grid", grid, vec![], 20),
        ("layers", layers, vec![], 26),
        ("flow", flow, vec![], 30),
        ("Dirichlet rows", dirichlet, vec![], 20),
        ("elasticity", part.clone(), vec![], 40),
        ("rigid body modes", part, modes.clone(), 25),
        ("nodes with missing entries", holes, modes, 30),
        ("nodes of different size", clamped, of_free, 40),
        ("diagonal", matrices::edge::diagonal(200).csr().map_err(failed)?, vec![], 2),
    ];
    systems
        .into_iter()
        .map(|(name, a, modes, most)| {
            let factor = |i: usize| if name == VARIED && 2 * i < a.rows() { 20.0 } else { 1.1 };
            let larger = |(i, j, v): (usize, usize, f64)| if i == j { factor(i) * v } else { v };
            let other = a.with_values(&a.triplets().map(larger).collect::<Vec<_>>()).map_err(failed)?;
            Ok(System { name, a, other, modes, most })
        })
        .collect()
}
