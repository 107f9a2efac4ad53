//! Block preconditioners of saddle point systems, from the blocks of the matrix alone.
//!
//! ```text
//! [ A  Bᵀ ]      block triangular   z₂ = S⁻¹ r₂,  z₁ = A⁻¹ (r₁ − Bᵀ z₂)      GMRES, FGMRES
//! [ B  −C ]      block diagonal     z₂ = |S|⁻¹ r₂,  z₁ = A⁻¹ r₁              MINRES
//! ```
//!
//! with an approximation of the Schur complement `S = −(C + B A⁻¹ Bᵀ)` and, for `A⁻¹`, a cycle of multigrid or a
//! factorization. With exact blocks GMRES ends after two steps and MINRES after three (Murphy, Golub and
//! Wathen 2000). Benzi, Golub and Liesen (2005) review the field; Elman, Silvester and Wathen (2014) treat
//! flow, and approximate `S` by the pressure mass matrix. [`Schur::Diagonal`] replaces that matrix, and needs
//! no mesh.
//!
//! Differs from the textbook:
//! 1. fields are found from the sign of the diagonal ([`SaddlePoint::fields`]);
//! 2. the matrix may be any `[A G; H K]`: the Schur complement is approximated by `σ (H D⁻¹ G − K)`, where the
//!    sign `σ` makes most of the diagonal positive;
//! 3. if `B D⁻¹ Bᵀ` is singular, as for enclosed flow, LU omits columns that depend linearly on others, and AMG
//!    shifts the diagonal of its coarsest level.
//!
//! Cost of an application: one application of the solver of `A`; in the block triangular form one product
//! with `Bᵀ`; and for the Schur complement a diagonal, one solve, or two solves and products with `A`, `B`
//! and `Bᵀ`.

mod blocks;
mod estimate;
mod fields;
mod inner;
mod saved;
mod schur;

pub use estimate::SaddleEstimate;
pub use fields::Fields;
pub use inner::BlockSolver;
pub use schur::Schur;

use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, check_symmetric};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::permutation::Permutation;
use blocks::Blocks;
use inner::Inner;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{LinearOperator, check_spaces, with_workspace};
use schur::{Complement, Work};
use std::fmt;
use std::sync::{Arc, Mutex};

const NAME: &str = "a saddle point preconditioner";

/// Options of [`SaddlePoint`].
#[derive(Clone, Debug, Default)]
pub struct SaddlePointOptions<T: Real> {
    /// The field of each unknown in the user's order, 0 or 1; found by [`SaddlePoint::fields`] if `None`.
    pub fields: Option<Vec<u8>>,
    /// True if the preconditioner is block diagonal and positive definite, for [`Minres`](crate::Minres),
    /// instead of block triangular, for [`Fgmres`](crate::Fgmres).
    pub block_diagonal: bool,
    /// The solver of the first field's block `A`.
    pub first: BlockSolver,
    /// The approximation of the Schur complement.
    pub schur: Schur<T>,
    /// The solver of the matrix that approximates the Schur complement.
    pub second: BlockSolver,
}

/// A block preconditioner of a saddle point system `[A Bᵀ; B −C]`: Stokes and Oseen flow, optimization with constraints,
/// contact.
///
/// ```
/// use krysp::{Fgmres, Minres, SaddlePoint, gallery};
///
/// let a = gallery::stokes::<f64>(&[40, 20])?;
/// let b = vec![1.0; a.rows()];
/// let report = Fgmres::new(&a).preconditioner(SaddlePoint::new(&a)?).rtol(1e-8).solve(&b)?.report;
/// assert!(report.converged() && report.iterations < 40, "{report}");
/// // less memory, for a symmetric matrix
/// let m = SaddlePoint::block_diagonal(&a)?;
/// assert!(Minres::new(&a).preconditioner(m).rtol(1e-8).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An approximation of the Schur complement, for example the pressure mass matrix divided by the viscosity,
/// and the field of each unknown can be given:
///
/// ```no_run
/// # fn with(a: &krysp::Csr<f64>, mass: krysp::Csr<f64>, fields: Vec<u8>) -> krysp::Result<()> {
/// use krysp::{SaddlePoint, SaddlePointOptions, Schur};
///
/// let schur = Schur::Given(mass);
/// let m = SaddlePoint::with(a, SaddlePointOptions { fields: Some(fields), schur, ..Default::default() })?;
/// println!("{m}");
/// # Ok(())
/// # }
/// ```
///
/// The preconditioner is a fixed linear operator, so [`Gmres`](crate::Gmres), [`Idr`](crate::Idr) and
/// [`BiCgStab`](crate::BiCgStab) accept it too.
#[doc(alias = "block preconditioner")]
#[doc(alias = "fieldsplit")]
#[doc(alias = "schur complement")]
#[derive(Debug)]
pub struct SaddlePoint<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    blocks: Blocks<T>,
    block_diagonal: bool,
    /// `D⁻¹`, with `D = diag(A)`.
    inverse: Vec<T>,
    a: Inner<T>,
    complement: Complement<T>,
    /// The sign `σ` that makes most of the diagonal of `σ (H D⁻¹ G − K)` positive.
    sign: T,
    work: Mutex<Work<T>>,
}

impl<T: Real> SaddlePoint<T> {
    /// Builds the block triangular form, for [`Fgmres`](crate::Fgmres) and [`Gmres`](crate::Gmres).
    pub fn new(csr: &Csr<T>) -> Result<SaddlePoint<T>> {
        SaddlePoint::with(csr, SaddlePointOptions::default())
    }

    /// Builds the block diagonal, symmetric positive definite form, for [`Minres`](crate::Minres). Returns an
    /// error for matrices that are not symmetric.
    pub fn block_diagonal(csr: &Csr<T>) -> Result<SaddlePoint<T>> {
        SaddlePoint::with(csr, SaddlePointOptions { block_diagonal: true, ..Default::default() })
    }

    /// Builds a preconditioner with options.
    pub fn with(csr: &Csr<T>, options: SaddlePointOptions<T>) -> Result<SaddlePoint<T>> {
        check_square(NAME, csr)?;
        csr.check_finite()?;
        let space = csr.source().domain().clone();
        let fields = match &options.fields {
            Some(fields) => Fields::given(fields, &space)?,
            None => Fields::find(csr).map_err(refused)?,
        };
        let blocks = Blocks::new(csr, &fields.of_row)?;
        let inverse = blocks.inverse_diagonal()?;
        let symmetry = blocks.symmetry();
        if options.block_diagonal && !symmetry.whole {
            return Err(refused("the block diagonal form needs a symmetric matrix".into()));
        }
        let a = Inner::new(&blocks.a.matrix, symmetry.first, options.first)?;
        let schur = match options.schur {
            Schur::Automatic => blocks.suitable(symmetry.first),
            Schur::Given(matrix) => Schur::Given(in_order(&matrix, &space, &blocks.rows[1])?),
            chosen => chosen,
        };
        let (complement, sign) =
            Complement::new(&blocks, &inverse, &schur, symmetry.second, options.second, &a)?;
        if options.block_diagonal && !(a.is_positive() && complement.is_positive()) {
            return Err(refused("the block diagonal form needs a positive definite block A".into()));
        }
        let work = Mutex::new(Work::new(&blocks)?);
        let pattern = csr.source().pattern.clone();
        let block_diagonal = options.block_diagonal;
        Ok(SaddlePoint { space, pattern, blocks, block_diagonal, inverse, a, complement, sign, work })
    }

    /// Determines the fields of a saddle point matrix; the error says why the matrix is not one. The second
    /// field has the rows whose diagonal is negative, zero or missing; there must be other rows too. The
    /// block of the second field must be zero or negative semidefinite, as far as its 2 x 2 principal minors
    /// show.
    ///
    /// Costs one pass over the entries for a matrix with a positive diagonal. Otherwise the search ends at
    /// the first entry that contradicts a saddle point.
    pub fn fields(csr: &Csr<T>) -> Result<Fields> {
        Fields::find(csr).map_err(refused)
    }

    fn apply_with(
        &self,
        r: &HostVector<T>,
        z: &mut HostVector<T>,
        work: &mut Work<T>,
    ) -> krysp_solvers::Result<()> {
        let Blocks { rows: [first, second], g, .. } = &self.blocks;
        crate::host::gather(r.as_slice(), second, work.second[0].as_mut_slice());
        self.complement.apply(&self.blocks, &self.inverse, work)?;
        let [from, to] = &mut work.first;
        let [_, z2, _] = &mut work.second;
        if self.block_diagonal {
            crate::host::gather(r.as_slice(), first, from.as_mut_slice());
        } else {
            over_rows(z2.as_slice().len(), 1, z2.as_mut_slice(), &|_, part: &mut [T]| {
                part.iter_mut().for_each(|v| *v *= -self.sign);
            });
            g.matrix.apply(z2, to)?;
            let (all, coupled) = (r.as_slice(), to.as_slice());
            over_rows(first.len(), 4, from.as_mut_slice(), &|rows, part: &mut [T]| {
                for (row, v) in rows.zip(part) {
                    *v = all[first[row] as usize] - coupled[row];
                }
            });
        }
        self.a.apply(from, to)?;
        let all = z.as_mut_slice();
        first.iter().zip(to.as_slice()).for_each(|(&row, &v)| all[row as usize] = v);
        second.iter().zip(z2.as_slice()).for_each(|(&row, &v)| all[row as usize] = v);
        Ok(())
    }
}

fn refused(why: String) -> Error {
    Error::Unsuitable { format: NAME, why }
}

/// Permutes a matrix of the second field from the user's order of its unknowns to the order of `rows`.
fn in_order<T: Real>(given: &Csr<T>, space: &HostSpace<T>, rows: &[u32]) -> Result<Csr<T>> {
    check_square(NAME, given)?;
    given.check_finite()?;
    if given.rows() != rows.len() {
        let (own, second) = (given.rows(), rows.len());
        return Err(refused(format!("the given matrix has {own} rows, the second field {second} unknowns")));
    }
    check_symmetric(given)?;
    let Some(permutation) = space.permutation() else { return Ok(given.clone()) };
    let mut by_user: Vec<u32> = (0..rows.len() as u32).collect();
    by_user.sort_unstable_by_key(|&at| permutation.old_of_new()[rows[at as usize] as usize]);
    let mut old_of_new = vec![0; rows.len()];
    (0..).zip(&by_user).for_each(|(old, &new)| old_of_new[new as usize] = old);
    let reordered = given.reordered(&Permutation::from_old_of_new(old_of_new)?)?;
    Ok(reordered.declared_in(&HostSpace::new(rows.len())))
}

/// A refresh keeps the fields, the patterns, the kinds of solvers and a given Schur complement
/// ([`Schur::Given`]).
impl<T: Real> Refresh<T> for SaddlePoint<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        check_same_pattern(&self.pattern, csr)?;
        self.blocks.refresh(csr);
        self.inverse = self.blocks.inverse_diagonal()?;
        self.a.refresh(&self.blocks.a.matrix)?;
        self.sign = self.complement.refresh(&self.blocks, &self.inverse, &self.a)?;
        Ok(())
    }
}

impl<T: Real> LinearOperator for SaddlePoint<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        with_workspace(&self.work, || Work::new(&self.blocks), |work| self.apply_with(r, z, work))
    }

    fn bytes(&self) -> usize {
        let coupling = if self.block_diagonal { 0 } else { self.blocks.g.matrix.bytes() };
        self.a.bytes() + self.complement.bytes(&self.blocks) + coupling
    }
}

/// Prints the form, the fields and their solvers.
impl<T: Real> fmt::Display for SaddlePoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.block_diagonal { "block diagonal" } else { "block triangular" };
        let [n, m] = self.blocks.rows.each_ref().map(Vec::len);
        writeln!(f, "saddle point preconditioner, {form}")?;
        writeln!(f, "first field   {n} unknowns, {}", self.a.name())?;
        write!(f, "second field  {m} unknowns, {}", self.complement.name())
    }
}
