//! Multifrontal `A = L Lᵀ` of a symmetric positive definite matrix (Duff and Reid 1983).
//!
//! ```text
//! order by minimum degree or nested dissection; build the tree of fronts, which determines memory and work
//! for each front, children first:
//!     assemble: its entries of A, and the Schur complements of its children
//!     eliminate its columns, as a dense matrix;  pass the Schur complement of the rows below to the parent
//! ```
//!
//! Fronts that do not depend on each other run in parallel, and large fronts on all threads. The order of
//! operations in a front is fixed: the factor is bitwise the same for every number of threads.
//!
//! Cost: the factorization consists of dense products (`krysp_kernels`), near the peak of the processor for
//! large fronts. An application reads `L` twice.

mod solves;

use super::super::several::{alone, in_groups};
use super::super::{MatrixSource, Refresh, check_space, check_square, finite};
use super::fill::{self, Reduced};
use super::transpose::{is_mirrored, transposed};
use super::tree::{Both, Front, NONE, Tree, Units, Workspace};
use super::{Budget, DirectOptions, FactorReport, Inertia, condition};
use crate::error::{Error, Result};
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::ordering::minimum_degree;
use crate::saved::saved;
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::Refused;
use krysp_kernels::cpu::preconditioners::frontal::{self, Strip};
use krysp_kernels::cpu::run::threads::{ByRow, over_parts, tasks};
use krysp_kernels::interrupt::Phase;
use krysp_solvers::{Element, LinearOperator, MultiVector, Space};
use std::iter::successors;
use std::mem::take;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const NAME: &str = "Cholesky";

/// Complete factorization of a symmetric positive definite matrix, applied as `A⁻¹`.
///
/// Under [`Cg`](crate::Cg) it is a direct solver with iterative refinement. It suits 2D meshes of up to about
/// 10⁶ unknowns, thin structures, 3D meshes of up to about 10⁵, and many right-hand sides.
///
/// ```
/// use krysp::{Cg, Cholesky, gallery};
///
/// let (a, _) = gallery::elasticity::<f64>([5, 4, 4], 0.3)?;
/// let solution = Cg::new(&a).preconditioner(Cholesky::new(&a)?).rtol(1e-12).solve(&vec![1.0; a.rows()])?;
/// assert!(solution.report.converged() && solution.report.iterations <= 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cholesky<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    tree: Tree,
    numbers: Buffer<T>,
    /// `‖A‖₁`; `None` if the latest factorization failed, so that there are no factors.
    norm: Option<f64>,
    units: OnceLock<Units>,
    work: Mutex<Workspace<T>>,
}

saved!(impl[T: Real] Cholesky<T> {
    space, pattern, tree, numbers, norm; units = OnceLock::new(), work = Mutex::default()
} where |read| {
    read.pattern.rows() == read.space.len() && read.tree.fits(&read.pattern, read.numbers.len())
});

/// Symbolic factorization: ordering, fronts, memory and work.
#[derive(Debug)]
pub(crate) struct Symbolic {
    budget: Budget,
    pattern: Arc<Pattern>,
    tree: Tree,
    /// The sum of the squared column lengths, if the order is that of minimum degree, and nested dissection may reduce the sum.
    squares: Option<f64>,
}

impl Symbolic {
    /// Analyses the pattern of `A + Aᵀ`. Returns an error if the memory limit would be exceeded.
    pub(crate) fn new<T: Real>(csr: &Csr<T>, options: DirectOptions) -> Result<Symbolic> {
        Symbolic::ordered(csr, options, true)
    }

    /// Like [`Symbolic::new`], but without nested dissection, which takes several times as long as minimum degree. It is left to
    /// [`Symbolic::dissect`], unless the factor in the order of minimum degree exceeds the memory limit.
    pub(crate) fn by_degree<T: Real>(csr: &Csr<T>, options: DirectOptions) -> Result<Symbolic> {
        match Symbolic::ordered(csr, options, false) {
            Err(Error::Memory { .. }) => Symbolic::new(csr, options),
            other => other,
        }
    }

    fn ordered<T: Real>(csr: &Csr<T>, options: DirectOptions, dissects: bool) -> Result<Symbolic> {
        check_square(NAME, csr)?;
        let (n, budget) = (csr.rows(), Budget::new(NAME, options, csr.rows()));
        let transposed = if is_mirrored(csr) { None } else { Some(transposed(csr)?) };
        let both = Both::new([csr, transposed.as_ref().unwrap_or(csr)]);
        let (reduced, squares) = match dissects {
            true => (fill::reducing(n, csr.nnz(), &both)?, None),
            false => {
                let reduced = Reduced::Ordered(minimum_degree::of_symmetric(n, csr.nnz(), &both)?);
                let squares = reduced.work().map(|[_, squares]| squares);
                (reduced, squares.filter(|&squares| fill::is_long(squares, n, csr.nnz())))
            }
        };
        let tree = Tree::new(reduced.expected(&both)?, &both, [size_of::<T>(); 2], budget)?;
        Ok(Symbolic { budget, pattern: csr.source().pattern.clone(), tree, squares })
    }

    /// Whether nested dissection may reduce the work, and was not computed.
    pub(crate) fn may_dissect(&self) -> bool {
        self.squares.is_some()
    }

    /// Computes the order by nested dissection, and uses it if it reduces the work. `csr` has the analysed pattern. After an error the
    /// order is that of minimum degree.
    pub(crate) fn dissect<T: Real>(&mut self, csr: &Csr<T>) -> Result<()> {
        let Some(squares) = self.squares else { return Ok(()) };
        let transposed = if is_mirrored(csr) { None } else { Some(transposed(csr)?) };
        let both = Both::new([csr, transposed.as_ref().unwrap_or(csr)]);
        if let Some(expected) = fill::dissected(csr.rows(), csr.nnz(), &both, squares)? {
            match Tree::new(expected, &both, [size_of::<T>(); 2], self.budget) {
                Ok(tree) => self.tree = tree,
                // the tree of minimum degree fits
                Err(Error::Memory { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.squares = None;
        Ok(())
    }

    /// The variable that is eliminated in each step.
    pub(crate) fn order(&self) -> &[u32] {
        &self.tree.order
    }

    /// Number of stored entries of `L`, including zeros.
    pub(crate) fn entries(&self) -> f64 {
        self.tree.entries() as f64
    }

    /// Number of fronts (dense blocks of `L`).
    pub(crate) fn fronts(&self) -> f64 {
        self.tree.count() as f64
    }

    /// Number of multiplications of the factorization.
    pub(crate) fn work(&self) -> f64 {
        self.tree.work()
    }
}

/// Schur complement that a front passes to its parent: a square, column by column, of which only the lower
/// triangle is used.
type Left<T> = Buffer<T>;

impl<T: Real> Cholesky<T> {
    /// Factorizes a symmetric matrix; one of `aᵢⱼ` and `aⱼᵢ` is read. Applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Cholesky<T>> {
        Cholesky::with(csr, DirectOptions::default())
    }

    /// Like [`Cholesky::new`], with a memory limit.
    pub fn with(csr: &Csr<T>, options: DirectOptions) -> Result<Cholesky<T>> {
        Cholesky::from_symbolic(csr, Symbolic::new(csr, options)?)
    }

    /// Factorizes a matrix with the pattern of a symbolic factorization.
    pub(crate) fn from_symbolic(csr: &Csr<T>, symbolic: Symbolic) -> Result<Cholesky<T>> {
        check_square(NAME, csr)?;
        let Symbolic { budget, pattern, tree, .. } = symbolic;
        check_same_pattern(&pattern, csr)?;
        csr.check_finite()?;
        let numbers = budget.buffer(tree.numbers())?;
        let space = csr.source().domain().clone();
        let (units, work) = Default::default();
        let mut cholesky = Cholesky { space, pattern, tree, numbers, norm: None, units, work };
        cholesky.factorise(csr, budget)?;
        Ok(cholesky)
    }

    /// Number of stored entries of `L`, including zeros.
    pub fn nnz(&self) -> usize {
        self.tree.entries()
    }

    /// Facts about the factorization.
    pub fn report(&self) -> FactorReport {
        let rows = self.space.len();
        FactorReport {
            kind: NAME,
            rows,
            entries: self.nnz(),
            multiplications: self.tree.work(),
            bytes: self.bytes(),
            by_fronts: true,
            delayed_pivots: 0,
            missing_pivots: 0,
            // after a failed refresh there are no factors
            inertia: self.norm.map(|_| Inertia { negative: 0, positive: rows }),
            growth: None,
        }
    }

    /// Estimates the condition number `‖A‖₁ ‖A⁻¹‖₁`, from a few solves. The estimate is a lower bound up to
    /// rounding, rarely less than a third of the exact value (Higham 1988).
    ///
    /// ```
    /// use krysp::{Csr, Cholesky};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e3), (1, 1, 1.0)])?;
    /// assert!((Cholesky::new(&a)?.condition_estimate()? / 1e3 - 1.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rcond")]
    pub fn condition_estimate(&self) -> Result<f64> {
        let solve = |r: &HostVector<T>, z: &mut HostVector<T>| -> Result<()> { Ok(self.apply(r, z)?) };
        condition::estimate(self.valid()?, &self.space, solve, solve)
    }

    /// Row with the smallest pivot relative to its diagonal entry, and that ratio `lᵢᵢ² / aᵢᵢ`, which does not depend on the units of
    /// the unknowns; `None` for a matrix without rows. A ratio of a few thousand machine epsilons or less may be a rounded zero:
    /// [`scaled_condition_estimate`](Cholesky::scaled_condition_estimate) finds out. `a` must be the matrix that was factorized.
    ///
    /// ```
    /// use krysp::{Cholesky, Csr};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e9), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 4e-9)])?;
    /// let cholesky = Cholesky::new(&a)?;
    /// let (_, ratio) = cholesky.smallest_pivot(&a)?.unwrap();
    /// assert!((ratio - 0.75).abs() < 1e-12);
    /// // that of [1 0.5; 0.5 1]
    /// assert!((cholesky.scaled_condition_estimate(&a)? - 3.0).abs() < 1e-9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn smallest_pivot(&self, a: &Csr<T>) -> Result<Option<(usize, f64)>> {
        self.valid()?;
        check_same_pattern(&self.pattern, a)?;
        let diagonal = a.diagonal_entries();
        let ratio = |variable: u32, root: T| {
            let (row, root) = (variable as usize, Element::to_f64(root));
            (row, root * root / Element::to_f64(diagonal[row]))
        };
        let of_front = |front: &Front| {
            let pivots = self.numbers[front.numbers.clone()].iter().step_by(front.height() + 1);
            let columns = self.tree.order[front.columns.clone()].iter();
            columns.zip(pivots).map(|(&variable, &root)| ratio(variable, root)).collect::<Vec<_>>()
        };
        let ratios = self.tree.fronts.iter().flat_map(of_front);
        Ok(ratios.min_by(|one, other| one.1.total_cmp(&other.1)))
    }

    fn factorise(&mut self, csr: &Csr<T>, budget: Budget) -> Result<()> {
        self.norm = None;
        let Cholesky { tree, numbers, .. } = self;
        let tree = &*tree;
        let (first, next) = tree.children();
        let phase = Phase::new("Cholesky factorization", tree.work());
        let left = tree.fronts.iter().map(|_| Mutex::default()).collect();
        let work = Work {
            csr,
            tree,
            first: &first,
            next: &next,
            left,
            budget,
            local: Mutex::default(),
            phase: &phase,
        };
        let (units, mut rest) = (tree.units(), &mut **numbers);
        // each unit writes its own part of the array
        let mut own = vec![];
        for unit in &units {
            let size = tree.fronts[unit.end - 1].numbers.end - tree.fronts[unit.start].numbers.start;
            let (numbers, others) = rest.split_at_mut(size);
            rest = others;
            own.push(Mutex::new(numbers));
        }
        let eliminated = tree.run(&units, |at| {
            let mut local = work.local.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let local = local.get_or_insert_with(|| vec![NONE; csr.rows()]);
            let mut own = own[at].lock().unwrap_or_else(PoisonError::into_inner);
            work.eliminate(units[at].clone(), &mut own, local)?;
            work.local.lock().unwrap_or_else(PoisonError::into_inner).push(take(local));
            Ok(())
        });
        eliminated.map_err(|error| match error {
            Error::NotPositive { .. } => csr.asymmetry().unwrap_or(error),
            error => error,
        })?;
        self.norm = Some(condition::norm(csr));
        Ok(())
    }

    /// Returns `‖A‖₁`, or an error if there are no factors.
    fn valid(&self) -> krysp_solvers::Result<f64> {
        let why = "Cholesky has no factors, because its latest refresh failed: refresh it again";
        self.norm.ok_or_else(|| krysp_solvers::Error::Backend(why.into()))
    }
}

/// Input of the factorization of fronts. `first[front]` is a front's first child, `next[child]` its sibling.
struct Work<'a, T: Real> {
    csr: &'a Csr<T>,
    tree: &'a Tree,
    first: &'a [u32],
    next: &'a [u32],
    /// Schur complement of each front; empty before it is computed and after the parent has assembled it.
    left: Vec<Mutex<Left<T>>>,
    budget: Budget,
    /// Idle workspaces; each maps positions in the elimination order to rows of the current front.
    local: Mutex<Vec<Vec<u32>>>,
    phase: &'a Phase,
}

impl<T: Real> Work<'_, T> {
    /// Factorizes `fronts` into `numbers`, which holds their values.
    fn eliminate(&self, fronts: Range<usize>, numbers: &mut [T], local: &mut [u32]) -> Result<()> {
        let start = self.tree.fronts[fronts.start].numbers.start;
        let mut counter = self.phase.counter();
        for at in fronts {
            let front = &self.tree.fronts[at];
            let own = &mut numbers[front.numbers.start - start..front.numbers.end - start];
            let (height, columns, below) = (front.height(), front.columns.len(), front.below());
            counter.add(height * height)?;
            let rows = self.tree.rows(front);
            (0..)
                .zip(front.columns.clone().chain(rows.iter().map(|&row| row as usize)))
                .for_each(|(place, row)| local[row] = place);
            let mut least = vec![T::zero(); columns];
            let mut rest = self.budget.buffer(below * below)?;
            self.assemble(at, (own, &mut least), &mut rest, local);
            let refused = |refused| match refused {
                Refused::Pivot { at, value } => {
                    let row = self.tree.order[front.columns.start + at] as usize;
                    Error::NotPositive { what: NAME, row, pivot: Element::to_f64(value) }
                }
                Refused::Interrupted(interrupted) => interrupted.into(),
            };
            frontal::cholesky(own, height, columns, &least, self.phase).map_err(refused)?;
            if below > 0 {
                let strip = Strip { values: &own[columns..], stride: height, rows: below };
                frontal::subtract(&mut rest, below, 0, [strip; 2], columns, true, self.phase)?;
            }
            *self.left[at].lock().unwrap_or_else(PoisonError::into_inner) = rest;
        }
        Ok(())
    }

    /// Fills the columns of a front, `own`, with its entries of the matrix, and adds the Schur complements of its
    /// children to them and to `rest`, the square of the rows below. `least` receives the magnitude up to which
    /// each pivot counts as zero.
    fn assemble(&self, at: usize, (own, least): (&mut [T], &mut [T]), rest: &mut [T], local: &[u32]) {
        let (tree, front) = (self.tree, &self.tree.fronts[at]);
        let (height, columns, below) = (front.height(), front.columns.len(), front.below());
        let next = |&child: &u32| Some(self.next[child as usize]).filter(|&next| next != NONE);
        let children = successors(Some(self.first[at]).filter(|&first| first != NONE), next);
        let children: Vec<_> = children
            .map(|child| {
                let left =
                    self.left[child as usize].lock().map(|mut left| take(&mut *left)).unwrap_or_default();
                (tree.rows(&tree.fronts[child as usize]), left)
            })
            .collect();
        let parts = |numbers: usize, columns: usize| tasks(numbers).min(columns);
        let count = parts(own.len(), columns);
        let offset = |column: usize| column * height;
        let bound = |part: usize| part * columns / count;
        over_parts(count, &bound, (ByRow::new(own, &offset), least), &|range, (own, least)| {
            let (own, _) = own.all();
            own.fill(T::zero());
            let own_columns = range.clone().map(|column| front.columns.start + column);
            for ((column, least), to) in own_columns.zip(least).zip(own.chunks_exact_mut(height)) {
                let variable = tree.order[column] as usize;
                for (&other, &value) in
                    self.csr.row_columns(variable).iter().zip(self.csr.row_values(variable))
                {
                    let row = tree.place[other as usize] as usize;
                    if row == column {
                        *least = value.abs() * T::epsilon();
                    }
                    if row >= column {
                        to[local[row] as usize] += value;
                    }
                }
            }
            children
                .iter()
                .for_each(|(rows, left)| add(own, range.clone(), [height, 0], (rows, left), local));
        });
        let count = parts(rest.len(), below);
        let offset = |column: usize| column * below;
        let bound = |part: usize| part * below / count;
        over_parts(count, &bound, ByRow::new(rest, &offset), &|range, rest| {
            let (rest, _) = rest.all();
            let range = columns + range.start..columns + range.end;
            children
                .iter()
                .for_each(|(rows, left)| add(rest, range.clone(), [below, columns], (rows, left), local));
        });
    }
}

/// Adds the Schur complement of a child to the columns `range` of its parent. The array `to` holds these columns, of
/// `stride` rows, from row `skip` on. `local` maps the child's rows to those of the parent.
fn add<T: Real>(
    to: &mut [T],
    range: Range<usize>,
    [stride, skip]: [usize; 2],
    (rows, left): (&[u32], &Left<T>),
    local: &[u32],
) {
    let first = rows.partition_point(|&row| (local[row as usize] as usize) < range.start);
    for (j, &row) in rows.iter().enumerate().skip(first) {
        let place = local[row as usize] as usize;
        if place >= range.end {
            break;
        }
        let to = &mut to[(place - range.start) * stride..][..stride];
        let column = &left[j * rows.len()..][..rows.len()];
        for (&row, &value) in rows[j..].iter().zip(&column[j..]) {
            to[local[row as usize] as usize - skip] += value;
        }
    }
}

/// A refresh keeps the ordering and the fronts. After an error there are no factors, and applications return an
/// error, until a refresh succeeds.
impl<T: Real> Refresh<T> for Cholesky<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        check_same_pattern(&self.pattern, csr)?;
        self.factorise(csr, Budget::new(NAME, DirectOptions::default(), csr.rows()))
    }
}

impl<T: Real> LinearOperator for Cholesky<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        self.valid()?;
        alone(self, &self.work, (r, z), |pairs, workspace| self.solve(pairs, workspace))
    }

    fn apply_many(
        &self,
        r: &MultiVector<HostVector<T>>,
        z: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        self.valid()?;
        let numbers = self.units().entries();
        in_groups(self, r, z, numbers, |pairs, workspace| self.solve(pairs, workspace))
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.numbers)
    }
}
