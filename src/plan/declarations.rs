//! Declarations of the user about properties that the matrix does not show: near-null space, coordinates, null space, fields.
//!
//! They are stored in double precision and in the user's order of unknowns, even if the matrix is reordered, and saved in the file of a
//! plan. Symmetry and definiteness are declared in [`Profile::declared`](super::Profile).

use super::points::Points;
use super::{AnyPreconditioner, Backend, PlannedSolver, Profile};
#[cfg(feature = "cuda")]
use crate::device::{Cuda, ToCuda};
use crate::error::{Error, Result};
use crate::formats::Csr;
#[cfg(feature = "cuda")]
use crate::formats::{MatrixSource, node_rows};
use crate::numbers::Real;
use crate::preconditioners::{Amg, AmgOptions, Fields, SaddlePoint, SaddlePointOptions};
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::find_row;
use krysp_solvers::{Deflated, Element, LinearOperator, NullSpace, Vector};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A matrix with a pair `a_ij`, `a_ji` that differs by more than this fraction of `max(|a_ij|, |a_ji|, sqrt(a_ii a_jj))` cannot be
/// declared symmetric. A guess, which accepts matrices from files with seven digits and refuses those with upwind differences.
const ASYMMETRIC: f64 = 1e-6;

/// Properties that the user has declared of a matrix. They decide which methods are candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// Whether the matrix is symmetric: [`Plan::symmetric`](super::Plan::symmetric).
    pub symmetric: Option<bool>,
    /// Whether it is positive definite: [`Plan::positive_definite`](super::Plan::positive_definite).
    pub positive_definite: Option<bool>,
    /// Whether its near-null space is known, from vectors or from coordinates.
    pub near_null_space: bool,
    /// Whether its null space is known, so that it is singular.
    pub null_space: bool,
    /// Whether ten solves or more were announced: [`Plan::solves`](super::Plan::solves).
    pub many_solves: bool,
}

saved!(impl[] Declared { symmetric, positive_definite, near_null_space, null_space, many_solves });

/// Vectors, coordinates and fields that the user has declared.
#[derive(Clone, Debug, Default)]
pub(super) struct Declarations {
    pub(super) near_null_space: Arc<Vec<Vec<f64>>>,
    pub(super) points: Option<Arc<Points>>,
    pub(super) null_space: Arc<Vec<Vec<f64>>>,
    pub(super) fields: Option<Arc<Vec<usize>>>,
}

saved!(impl[] Declarations { near_null_space, points, null_space, fields });

impl Declarations {
    /// Whether multigrid can be built with rigid body modes, or other vectors of the near-null space.
    pub(super) fn has_near_null_space(&self) -> bool {
        self.points.is_some() || !self.near_null_space.is_empty()
    }

    /// The field of each unknown in the order of a matrix, if two fields were declared.
    pub(super) fn saddle_fields<T: Real>(&self, a: &Csr<T>) -> Option<Fields> {
        Fields::given(&self.two_fields()?, a.domain()).ok()
    }

    fn two_fields(&self) -> Option<Vec<u8>> {
        self.fields
            .as_ref()?
            .iter()
            .map(|&field| u8::try_from(field).ok().filter(|&field| field < 2))
            .collect()
    }

    /// The block preconditioner of a saddle point system, with the fields that were declared.
    pub(super) fn saddle_point<T: Real>(&self, csr: &Csr<T>) -> Result<SaddlePoint<T>> {
        let options = SaddlePointOptions { fields: self.two_fields(), ..SaddlePointOptions::default() };
        SaddlePoint::with(csr, options)
    }

    /// Checks sizes and values, for a matrix with `rows` rows.
    pub(super) fn check(&self, rows: usize) -> Result<()> {
        let vectors = |what, vectors: &[Vec<f64>]| {
            let mut all = vectors.iter().enumerate();
            all.find_map(|(at, vector)| Some((what, wrong_vector(at, vector, rows)?)))
        };
        let wrong = vectors("near_null_space", &self.near_null_space)
            .or_else(|| vectors("null_space", &self.null_space))
            .or_else(|| self.points.as_ref()?.wrong(rows))
            .or_else(|| Some(("fields", wrong_fields(self.fields.as_ref()?, rows)?)));
        wrong.map_or(Ok(()), |(what, why)| Error::declaration(what, why))
    }

    /// Checks that the matrix maps the null space to zero.
    pub(super) fn check_null_space<T: Real>(&self, a: &Csr<T>) -> Result<()> {
        if !self.null_space.is_empty() {
            NullSpace::new(a, &in_precision::<T>(&self.null_space))?;
        }
        Ok(())
    }

    fn near<T: Real>(&self, rows: usize) -> Option<Near<T>> {
        let (modes, nodes) = self.points.as_ref().map(|points| points.near(rows)).unzip();
        let modes = if self.near_null_space.is_empty() { modes.as_ref()? } else { &*self.near_null_space };
        (!modes.is_empty()).then(|| (in_precision(modes), nodes))
    }

    /// Multigrid with the declared near-null space. Without one, `smooth_finest` states whether the finest prolongator is smoothed.
    pub(super) fn amg<T: Real>(&self, csr: &Csr<T>, smooth_finest: bool) -> Result<Amg<T>> {
        match self.near(csr.rows()) {
            None => {
                let options = AmgOptions { smooth_finest: Some(smooth_finest), ..AmgOptions::default() };
                Amg::with::<Vec<T>>(csr, &[], options)
            }
            Some((modes, None)) => Amg::with_near_null_space(csr, &modes),
            Some((modes, Some(nodes))) => Amg::with_nodes(csr, &modes, &nodes),
        }
    }

    /// Multigrid on a GPU, as [`Declarations::amg`]. The host aggregates nodes with different numbers of unknowns. `on_gpu` is the
    /// matrix on the GPU.
    #[cfg(feature = "cuda")]
    pub(super) fn amg_on<T: Real>(
        &self,
        gpu: &Cuda,
        csr: &Csr<T>,
        on_gpu: &impl MatrixSource<T>,
        smooth_finest: bool,
    ) -> Result<crate::preconditioners::amg::OnGpu<T>> {
        match self.near(csr.rows()) {
            None => {
                let options = AmgOptions { smooth_finest: Some(smooth_finest), ..AmgOptions::default() };
                Amg::with_on::<[T; 0]>(gpu, on_gpu, &[], options)
            }
            Some((modes, Some(nodes))) if node_rows(csr.pattern()).0 == 1 => {
                Amg::with_nodes(csr, &modes, &nodes)?.to(gpu)
            }
            Some((modes, _)) => Amg::with_near_null_space_on(gpu, csr, &modes),
        }
    }

    /// A preconditioner whose results have no component in the null space, if one is known.
    pub(super) fn deflated<T: Real, V: Vector<Elem = T> + 'static>(
        &self,
        operator: &impl LinearOperator<Vector = V>,
        m: AnyPreconditioner<T, V>,
    ) -> Result<AnyPreconditioner<T, V>> {
        if self.null_space.is_empty() {
            return Ok(m);
        }
        let null_space = NullSpace::new(operator, &in_precision::<T>(&self.null_space))?;
        Ok(Box::new(Deflated::new(m, null_space)?))
    }

    /// A vector without its component in the null space, and the norm of that component. The vector itself if no null space is known.
    pub(super) fn without_null_space<'b, T: Real>(&self, b: &'b [T]) -> (Cow<'b, [T]>, f64) {
        if self.null_space.is_empty() {
            return (Cow::Borrowed(b), 0.0);
        }
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let subtract = |from: &mut [f64], q: &[f64]| {
            let along = dot(from, q);
            from.iter_mut().zip(q).for_each(|(v, q)| *v -= along * q);
            along
        };
        let mut basis: Vec<Vec<f64>> = vec![];
        for vector in self.null_space.iter() {
            let mut own = vector.clone();
            // Gram–Schmidt orthogonalization, twice
            for q in basis.iter().chain(&basis) {
                subtract(&mut own, q);
            }
            let norm = dot(&own, &own).sqrt();
            own.iter_mut().for_each(|v| *v /= norm);
            basis.push(own);
        }
        let mut rest: Vec<f64> = b.iter().map(|&b| Element::to_f64(b)).collect();
        let removed = basis.iter().map(|q| subtract(&mut rest, q)).fold(0.0, f64::hypot);
        (Cow::Owned(rest.into_iter().map(T::from_f64).collect()), removed)
    }

    /// Suggests declarations that would make solves faster.
    pub(super) fn hint(&self, profile: &Profile) -> Option<String> {
        let block = profile.block;
        let elastic = profile.is_symmetric() && profile.has_positive_diagonal() && (2..=3).contains(&block);
        (elastic && !self.has_near_null_space()).then(|| {
            format!(
                "blocks of {block} x {block}: if the unknowns are displacements, give the coordinates of the nodes, from which \
                 multigrid gets the rigid body modes"
            )
        })
    }
}

impl<T: Real, M: Backend<T>> PlannedSolver<T, M> {
    /// [`Plan::hint`](super::Plan::hint), for the report of a slow solve.
    pub fn hint(&self) -> Option<String> {
        self.settings.options.declarations.hint(&self.settings.profile)
    }
}

/// Prints the declarations in one line, or nothing if there are none.
impl fmt::Display for Declarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vectors = |vectors: &[Vec<f64>], what| match vectors.len() {
            0 => None,
            1 => Some(format!("1 vector of the {what}")),
            count => Some(format!("{count} vectors of the {what}")),
        };
        let fields = |of: &[usize]| of.iter().max().map_or(0, |most| most.saturating_add(1));
        let points = self.points.iter().map(|points| points.to_string());
        let all: Vec<String> = points
            .chain(vectors(&self.near_null_space, "near-null space"))
            .chain(vectors(&self.null_space, "null space"))
            .chain(self.fields.iter().map(|of| format!("{} fields", fields(of))))
            .collect();
        if all.is_empty() { Ok(()) } else { write!(f, "\ngiven: {}", all.join(", ")) }
    }
}

/// Checks declared symmetry and definiteness, as far as a pass over the entries can.
pub(super) fn check_declared<T: Real>(a: &Csr<T>, profile: &Profile) -> Result<()> {
    let Declared { symmetric, positive_definite, .. } = profile.declared;
    let what = match (symmetric, positive_definite) {
        (Some(true), _) => Some("symmetric"),
        (None, Some(true)) => Some("positive_definite"),
        _ => None,
    };
    let user = |row: usize| {
        a.domain().permutation().map_or(row, |permutation| permutation.old_of_new()[row] as usize)
    };
    let diagonal = || a.diagonal_entries().iter().map(|&v| Element::to_f64(v)).collect::<Vec<f64>>();
    if let Some(what) = what.filter(|_| !profile.looks_symmetric()) {
        let diagonal = diagonal();
        let across = |row: usize, col: usize| Element::to_f64(a.get(col, row).unwrap_or_default());
        let differ = |row: usize, col: usize, value: f64| {
            let mirrored = across(row, col);
            let scale = (diagonal[row] * diagonal[col]).abs().sqrt().max(value.abs()).max(mirrored.abs());
            (value - mirrored).abs() > ASYMMETRIC * scale
        };
        let wrong = |row: usize| {
            let mut entries = a.row_columns(row).iter().zip(a.row_values(row));
            entries.find(|&(&col, &value)| differ(row, col as usize, Element::to_f64(value)))
        };
        let row = find_row(a.rows(), 16, &|row| wrong(row).is_some());
        if let Some((row, (&col, &value))) = row.and_then(|row| Some((row, wrong(row)?))) {
            let (value, mirrored) = (Element::to_f64(value), across(row, col as usize));
            let [i, j] = [row, col as usize].map(user);
            let why = format!(
                "the matrix is not symmetric: entry ({i}, {j}) is {value:e}, entry ({j}, {i}) is {mirrored:e} (indices start at 0)"
            );
            return Error::declaration(what, why);
        }
    }
    if positive_definite == Some(true) && !profile.has_positive_diagonal() {
        // NaN has been refused before
        if let Some((row, own)) = diagonal().into_iter().enumerate().find(|(_, own)| *own <= 0.0) {
            let row = user(row);
            let why =
                format!("the diagonal of such a matrix is positive; that of row {row} (from 0) is {own:e}");
            return Error::declaration("positive_definite", why);
        }
    }
    Ok(())
}

/// Why vector `at` of a list is no vector of a null space; `None` if it may be one.
fn wrong_vector(at: usize, vector: &[f64], rows: usize) -> Option<String> {
    let got = vector.len();
    if got != rows {
        return Some(format!("vectors of {rows} entries are needed; vector {at} has {got}"));
    }
    if let Some(entry) = vector.iter().position(|v| !v.is_finite()) {
        let value = vector[entry];
        return Some(format!("finite numbers are needed; entry {entry} of vector {at} is {value}"));
    }
    let is_zero = rows > 0 && vector.iter().all(|v| *v == 0.0);
    is_zero.then(|| format!("vectors other than zero are needed; vector {at} is zero"))
}

/// Why these are no fields of the unknowns; `None` if they may be.
fn wrong_fields(fields: &[usize], rows: usize) -> Option<String> {
    let got = fields.len();
    if got != rows {
        return Some(format!("one for each of {rows} unknowns is needed; got {got}"));
    }
    if let Some(at) = fields.iter().position(|&field| field >= rows) {
        let field = fields[at];
        return Some(format!("small numbers from 0 are needed; unknown {at} has {field}"));
    }
    let seen: BTreeSet<usize> = fields.iter().copied().collect();
    let most = seen.last()?;
    let missing = (0..*most).find(|field| !seen.contains(field))?;
    Some(format!("each of 0 to {most} is needed at least once; no unknown has {missing}"))
}

/// Near-null space vectors in the user's order of unknowns, and the node of each unknown if there are coordinates.
type Near<T> = (Vec<Vec<T>>, Option<Vec<u32>>);

pub(super) fn in_double<T: Real, V: AsRef<[T]>>(vectors: &[V]) -> Vec<Vec<f64>> {
    vectors.iter().map(|vector| vector.as_ref().iter().map(|&v| Element::to_f64(v)).collect()).collect()
}

fn in_precision<T: Real>(vectors: &[Vec<f64>]) -> Vec<Vec<T>> {
    vectors.iter().map(|vector| vector.iter().map(|&v| T::from_f64(v)).collect()).collect()
}
