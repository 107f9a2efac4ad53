//! Options of `krysp solve` that describe the system: coordinates, null spaces, symmetry, fields.

use crate::Failure;
use crate::files::{self, shown, vector};
use clap::{Args, ValueEnum};
use krysp::Plan;
use krysp::plan::Backend;
use std::path::{Path, PathBuf};

/// Options that describe the system.
#[derive(Args)]
#[command(next_help_heading = "Properties of the system")]
pub(super) struct Declarations {
    /// Coordinates of the nodes, for elasticity: a row x y (z) for each node, whose 2 or 3 unknowns are consecutive. Multigrid
    /// then uses rigid body modes
    #[arg(long, value_name = "FILE")]
    coordinates: Option<PathBuf>,
    /// Component of each unknown: 0 for x, 1 for y, 2 for z; --coordinates then has a row for each unknown
    #[arg(long, value_name = "FILE", requires = "coordinates")]
    components: Option<PathBuf>,
    /// Basis of the near-null space, as columns, for multigrid: the null space of A without boundary conditions
    #[arg(long, value_name = "FILE")]
    near_null_space: Option<PathBuf>,
    /// Null space of a singular A: `constant`, or a file with a basis as columns. It is projected out of b and x
    #[arg(long, value_name = "constant|FILE")]
    null_space: Option<PathBuf>,
    /// Whether A is symmetric
    #[arg(long, value_name = "yes|no", hide_possible_values = true)]
    symmetric: Option<Answer>,
    /// Whether a symmetric A is positive definite
    #[arg(long, value_name = "yes|no", hide_possible_values = true)]
    positive_definite: Option<Answer>,
    /// Field of each unknown of a saddle point system: 0 for velocities, 1 for pressures
    #[arg(long, value_name = "FILE")]
    fields: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Answer {
    Yes,
    No,
}

impl Declarations {
    /// Input files of the options.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let null_space = self.null_space.as_ref().filter(|path| !is_constant(path));
        [&self.coordinates, &self.components, &self.near_null_space, &self.fields]
            .into_iter()
            .flatten()
            .chain(null_space)
            .map(PathBuf::as_path)
    }

    /// Name of the first of these options that was given, if any.
    pub(super) fn first(&self) -> Option<&'static str> {
        let given = [
            ("--coordinates", self.coordinates.is_some()),
            ("--near-null-space", self.near_null_space.is_some()),
            ("--null-space", self.null_space.is_some()),
            ("--symmetric", self.symmetric.is_some()),
            ("--positive-definite", self.positive_definite.is_some()),
            ("--fields", self.fields.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    /// Declares the properties to a plan.
    pub(super) fn declare_to<'a, M: Backend<f64>>(
        &self,
        mut plan: Plan<'a, f64, M>,
        rows: usize,
    ) -> Result<Plan<'a, f64, M>, Failure> {
        if let Some(path) = &self.coordinates {
            let points = points(path)?;
            plan = match &self.components {
                Some(path) => plan.unknown_coordinates(&points, &numbers(path)?),
                None => plan.coordinates(&points),
            };
        }
        if let Some(path) = &self.near_null_space {
            plan = plan.near_null_space(&columns(path)?);
        }
        if let Some(path) = &self.null_space {
            plan = plan.null_space(&if is_constant(path) { vec![vec![1.0; rows]] } else { columns(path)? });
        }
        if let Some(answer) = self.symmetric {
            plan = plan.symmetric(answer == Answer::Yes);
        }
        if let Some(answer) = self.positive_definite {
            plan = plan.positive_definite(answer == Answer::Yes);
        }
        if let Some(path) = &self.fields {
            plan = plan.fields(&numbers(path)?);
        }
        Ok(plan)
    }
}

fn is_constant(path: &Path) -> bool {
    path == Path::new("constant")
}

/// Reads the columns of a dense array.
fn columns(path: &Path) -> Result<Vec<Vec<f64>>, Failure> {
    let array = files::matrix(path)?.matrix;
    let mut columns = vec![vec![0.0; array.rows()]; array.cols()];
    array.triplets().for_each(|(row, column, value)| columns[column][row] = value);
    Ok(columns)
}

fn points(path: &Path) -> Result<Vec<[f64; 3]>, Failure> {
    let columns = columns(path)?;
    let rows = columns.first().map_or(0, Vec::len);
    match &columns[..] {
        [x, y] => Ok((0..rows).map(|at| [x[at], y[at], 0.0]).collect()),
        [x, y, z] => Ok((0..rows).map(|at| [x[at], y[at], z[at]]).collect()),
        other => {
            let (file, got) = (shown(path), other.len());
            Err(format!("{file}: expected 2 or 3 columns, the coordinates of the points; found {got}").into())
        }
    }
}

/// Reads a vector of integers, one for each unknown.
fn numbers(path: &Path) -> Result<Vec<usize>, Failure> {
    let whole = |(at, value): (usize, f64)| {
        let is_whole = value >= 0.0 && value.fract() == 0.0 && value < 4e9;
        let file = shown(path);
        is_whole
            .then_some(value as usize)
            .ok_or_else(|| format!("{file}: expected integers from 0; entry {} is {value}", at + 1).into())
    };
    vector(path, None)?.into_iter().enumerate().map(whole).collect()
}
