//! Multifrontal `A = L D Lᵀ` of a symmetric matrix, with 1×1 and 2×2 pivots in `D` (Duff and Reid 1983).
//!
//! ```text
//! scale symmetrically; if many diagonal entries are small or zero, by a maximum-product matching,
//!     and keep matched rows adjacent in the ordering (Duff and Pralet 2005)
//! eliminate fronts as Lu, but use only their lower triangle
//! ```
//!
//! Cost, for the same ordering: half of the multiplications of `Lu`, and half of the stored entries. During
//! its elimination, a front is stored as a full square, as in `Lu`.

mod ordered;

pub(crate) use ordered::OrderedLdl;

use super::super::several::{Pair, alone, in_groups};
use super::super::{MatrixSource, Refresh, check_space, check_square, finite};
use super::fill;
use super::fronts::{FrontFactors, Kind, Progress};
use super::order::{Pivoting, Shape, paired};
use super::scale::largest;
use super::transpose::{is_mirrored, transposed};
use super::tree::{self, Both, Expected, Tree};
use super::{Budget, DirectOptions, FactorReport, Inertia, condition};
use crate::error::Result;
use crate::formats::derived::check_same_pattern;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, check_symmetric};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::saved::saved;
use crate::scaling::{Matching, Scaling};
use krysp_solvers::{LinearOperator, MultiVector, Space};
use std::sync::{Arc, Mutex};

const NAME: &str = "LDL";

/// Tolerance of the symmetry test, in machine epsilons: rounding during assembly makes `aᵢⱼ` and `aⱼᵢ` differ. Guess.
pub(super) const ROUNDED: f64 = 100.0;

/// In a plan, the maximum memory of the factors, and of each front, as a multiple of the memory of the factors
/// without delayed pivots. Guess. It was chosen when pivots of singular matrices such as `PGPgiantcompo` were delayed to the root,
/// which took more than 5 s; such matrices are now refused in an earlier front.
const GROWTH: f64 = 4.0;

/// Complete factorization of a symmetric matrix, definite or not, applied as `A⁻¹`.
///
/// Under [`Gmres`](crate::Gmres) it is a direct solver with iterative refinement. [`Minres`](crate::Minres) and [`Cg`](crate::Cg) need a
/// positive definite preconditioner, which `Ldl` of an indefinite matrix is not.
///
/// ```
/// use krysp::{Csr, Gmres, Ldl};
///
/// // the first diagonal entry is zero
/// let a = Csr::from_triplets(2, 2, &[(0, 1, 2.0), (1, 0, 2.0), (1, 1, 1.0)])?;
/// let ldl = Ldl::new(&a)?;
/// assert_eq!((ldl.inertia().negative, ldl.inertia().positive), (1, 1));
/// let solution = Gmres::new(&a).preconditioner(ldl).solve(&[2.0, 5.0])?;
/// assert!(solution.x.iter().zip([2.0, 1.0]).all(|(x, exact): (&f64, f64)| (x - exact).abs() < 1e-14));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias = "LDLT")]
pub struct Ldl<T: Real> {
    space: HostSpace<T>,
    pattern: Arc<Pattern>,
    /// Maximum memory in bytes.
    limit: usize,
    /// Maximum memory of the factors relative to that without delayed pivots.
    growth: f64,
    scaling: Scaling<T>,
    /// Row matched to each column; `None` if no matching was computed.
    matched: Option<Vec<u32>>,
    tree: Tree,
    factors: FrontFactors<T>,
    /// `‖A‖₁`
    norm: f64,
    workspace: Mutex<Workspace<T>>,
}

saved!(impl[T: Real] Ldl<T> {
    space, pattern, limit, growth, scaling, matched, tree, factors, norm; workspace = Mutex::default()
} where |read| {
    let rows = read.space.len();
    let fits = read.tree.fits(&read.pattern, read.tree.numbers()) && read.factors.fit(&read.tree, true);
    read.pattern.rows() == rows && read.scaling.rows() == rows && fits
});

#[derive(Debug, Default)]
struct Workspace<T> {
    scaled: Vec<Vec<T>>,
    steps: tree::Workspace<T>,
}

impl<T: Real> Ldl<T> {
    /// Factorizes a matrix; the factors have its space, including its permutation. Returns an error if the
    /// matrix is not symmetric up to rounding ([`Error::NotSymmetric`](crate::Error::NotSymmetric)), or
    /// singular to rounding ([`Error::Singular`](crate::Error::Singular)). An entry without a mirrored entry
    /// must be a stored zero.
    pub fn new(csr: &Csr<T>) -> Result<Ldl<T>> {
        Ldl::with(csr, DirectOptions::default())
    }

    /// Like [`Ldl::new`], with a memory limit.
    pub fn with(csr: &Csr<T>, options: DirectOptions) -> Result<Ldl<T>> {
        let budget = Budget::new(NAME, options, csr.rows());
        OrderedLdl::on_tree(csr, budget, None, None)?.factorized(csr, f64::INFINITY)
    }

    /// Like [`Ldl::new`], but refuses a matrix that is expected to take more than `multiplications`, which is known after ordering it and
    /// before factorizing ([`Error::Unsuitable`](crate::Error::Unsuitable)), and one for which delayed pivots take four times the expected
    /// memory. A refresh is limited by the memory only.
    pub fn within(csr: &Csr<T>, multiplications: f64) -> Result<Ldl<T>> {
        let budget = Budget::new(NAME, DirectOptions::default(), csr.rows()).with_work(multiplications);
        OrderedLdl::on_tree(csr, budget, None, None)?.within_memory(csr)
    }

    /// Number of stored entries of `L` and `D`, including zeros.
    pub fn nnz(&self) -> usize {
        self.factors.nnz()
    }

    /// Solves for several right-hand sides, reading each front once for all of them.
    fn solve(&self, pairs: &mut [Pair<'_, T>], Workspace { scaled, steps }: &mut Workspace<T>) {
        scaled.resize_with(pairs.len().max(scaled.len()), Vec::new);
        let all = pairs.iter().zip(&mut *scaled);
        all.for_each(|((r, _), scaled)| self.scaling.rhs_in_place_order(r.as_slice(), scaled));
        let r: Vec<&[T]> = scaled.iter().take(pairs.len()).map(|scaled| &**scaled).collect();
        let mut z: Vec<&mut [T]> = pairs.iter_mut().map(|(_, z)| z.as_mut_slice()).collect();
        self.factors.solve(&self.tree, true, &r, &mut z, steps);
        z.into_iter().for_each(|z| self.scaling.unscale_in_place_order(z));
    }

    /// Estimates the condition number `‖A‖₁ ‖A⁻¹‖₁`, from a few solves. The estimate is a lower bound up to
    /// rounding, rarely less than a third of the exact value (Higham 1988).
    ///
    /// ```
    /// use krysp::{Csr, Ldl};
    ///
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1e3), (1, 1, 1.0)])?;
    /// assert!((Ldl::new(&a)?.condition_estimate()? / 1e3 - 1.0).abs() < 1e-12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rcond")]
    pub fn condition_estimate(&self) -> Result<f64> {
        let solve = |r: &HostVector<T>, z: &mut HostVector<T>| -> Result<()> { Ok(self.apply(r, z)?) };
        condition::estimate(self.norm, &self.space, solve, solve)
    }

    /// Numbers of negative and of positive eigenvalues.
    pub fn inertia(&self) -> Inertia {
        self.factors.inertia()
    }

    /// Facts about the factorization, from a pass over the factors.
    pub fn report(&self) -> FactorReport {
        self.factors.report(NAME, &self.tree, true)
    }
}

/// A refresh keeps the ordering if the matching gives the same rows, and always chooses pivots again.
impl<T: Real> Refresh<T> for Ldl<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, &self.space)?;
        let csr = &*finite(a)?;
        check_same_pattern(&self.pattern, csr)?;
        let budget = Budget::new(NAME, DirectOptions { memory: Some(self.limit) }, csr.rows());
        let ordered = OrderedLdl::on_tree(csr, budget, Some((&self.matched, &self.tree)), None)?;
        *self = ordered.factorized(csr, self.growth)?;
        Ok(())
    }
}

impl<T: Real> LinearOperator for Ldl<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        alone(self, &self.workspace, (r, z), |pairs, workspace| self.solve(pairs, workspace))
    }

    fn apply_many(
        &self,
        r: &MultiVector<HostVector<T>>,
        z: &mut MultiVector<HostVector<T>>,
    ) -> krysp_solvers::Result<()> {
        let numbers = self.domain().len() + self.factors.entries(&self.tree, true);
        in_groups(self, r, z, numbers, |pairs, workspace| self.solve(pairs, workspace))
    }

    fn bytes(&self) -> usize {
        self.factors.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        Random, backward_error, neumann, pivots, random, threads_and_vectors_change_no_bits,
    };
    use super::*;
    use crate::error::Error;
    use crate::testing::matrices;
    use krysp_kernels::cpu::simd::{Level, force};
    use krysp_solvers::Gmres;

    /// A symmetric matrix from random entries.
    fn symmetric(source: &mut Random) -> Csr<f64> {
        let (n, entries) = random(source);
        let mirrored = entries.iter().filter(|(i, j, _)| i >= j).flat_map(|&(i, j, v)| {
            let other = (i != j).then_some((j, i, v));
            [(i, j, v)].into_iter().chain(other)
        });
        Csr::from_triplets(n, n, &mirrored.collect::<Vec<_>>()).unwrap()
    }

    /// Eigenvalues by Jacobi rotations.
    fn eigenvalues(a: &Csr<f64>) -> Vec<f64> {
        let n = a.rows();
        let mut dense = vec![vec![0.0; n]; n];
        a.triplets().for_each(|(i, j, value)| dense[i][j] = value);
        for _ in 0..30 {
            for p in 0..n {
                for q in p + 1..n {
                    if dense[p][q] == 0.0 {
                        continue;
                    }
                    let angle = 0.5 * (2.0 * dense[p][q]).atan2(dense[q][q] - dense[p][p]);
                    let (sin, cos) = angle.sin_cos();
                    for row in &mut dense {
                        (row[p], row[q]) = (cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]);
                    }
                    let (above, below) = dense.split_at_mut(q);
                    for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                        (*x, *y) = (cos * *x - sin * *y, sin * *x + cos * *y);
                    }
                }
            }
        }
        (0..n).map(|i| dense[i][i]).collect()
    }

    #[test]
    fn random_symmetric_structures_are_solved_and_their_signs_counted() {
        compare_random_structures(1500);
    }

    #[test]
    #[ignore = "takes long"]
    fn many_random_symmetric_structures_are_solved_and_their_signs_counted() {
        compare_random_structures(10_000);
    }

    fn compare_random_structures(cases: usize) {
        let mut source = Random(0x0dd0_5eed_1234_5678);
        let (mut solved, mut refused, mut counted) = (0, 0, 0);
        for case in 0..cases {
            let a = symmetric(&mut source);
            let b: Vec<f64> = (0..a.rows()).map(|_| source.number()).collect();
            let label = format!("case {case}, {} rows", a.rows());
            match Ldl::new(&a) {
                Ok(ldl) => {
                    let error = backward_error(&a, &ldl, &b);
                    assert!(error <= 1e-14, "{label}: backward error {error:e}");
                    solved += 1;
                    if a.rows() > 20 {
                        continue;
                    }
                    let values = eigenvalues(&a);
                    let most = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                    if values.iter().all(|value| value.abs() > 1e-12 * most) {
                        let negative = values.iter().filter(|&&value| value < 0.0).count();
                        let wanted = Inertia { negative, positive: a.rows() - negative };
                        assert_eq!(ldl.inertia(), wanted, "{label}");
                        counted += 1;
                    }
                }
                Err(Error::Singular { column, .. }) => {
                    let (least, most) = pivots(&a);
                    assert!(
                        column < a.rows() && least <= 1e-12 * most,
                        "{label}: called singular, {least:e}"
                    );
                    refused += 1;
                }
                Err(error) => panic!("{label}: {error}"),
            }
        }
        assert!(solved > 600 && refused > 100 && counted > 100, "{solved} {refused} {counted}");
    }

    #[test]
    fn unsymmetric_matrices_are_refused_and_stored_zeros_need_no_mirrored_entry() {
        let unsymmetric = |entries: &[(usize, usize, f64)]| {
            let refused = Ldl::new(&Csr::from_triplets(2, 2, entries).unwrap()).unwrap_err();
            assert!(matches!(refused, Error::NotSymmetric { .. }), "{refused}");
        };
        unsymmetric(&[(0, 0, 1.0), (0, 1, 1.0), (1, 1, 1.0)]);
        unsymmetric(&[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 1.0)]);
        unsymmetric(&[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
        // a stored zero, on either side of the diagonal, in two rows that the chain does not connect directly
        let n = 24;
        for zero in [(3, 17, 0.0), (17, 3, 0.0)] {
            let chain = (0..n).flat_map(move |i| {
                let next = [(i, i + 1, -1.0), (i + 1, i, -1.0)].into_iter().filter(move |_| i + 1 < n);
                [(i, i, 0.75)].into_iter().chain(next)
            });
            let a = Csr::from_triplets(n, n, &chain.chain([zero]).collect::<Vec<_>>()).unwrap();
            let b: Vec<f64> = (0..n).map(|i| (i as f64).cos()).collect();
            let mut ldl = Ldl::new(&a).unwrap();
            assert!(backward_error(&a, &ldl, &b) <= 1e-14, "{zero:?}");
            ldl.refresh(&a).unwrap();
            assert!(backward_error(&a, &ldl, &b) <= 1e-14, "{zero:?}");
        }
    }

    #[test]
    fn neumann_problems_and_eigenvalues_as_shifts_are_singular() {
        for a in [neumann([12, 15, 1]), neumann([6, 5, 7]), neumann([200, 1, 1])] {
            let refused = Ldl::new(&a).map(|ldl| ldl.inertia());
            assert!(matches!(refused, Err(Error::Singular { .. })), "{} rows: {refused:?}", a.rows());
        }
        // eigenvalues 2 - 2 cos(k π / 12), the fourth is 1
        let n = 11;
        let shifted = |shift: f64| {
            let chain = (0..n).flat_map(move |i| {
                let next = [(i, i + 1, -1.0), (i + 1, i, -1.0)].into_iter().filter(move |_| i + 1 < n);
                [(i, i, 2.0 - shift)].into_iter().chain(next)
            });
            let a = Csr::from_triplets(n, n, &chain.collect::<Vec<_>>()).unwrap();
            Ldl::new(&a).map(|ldl| ldl.inertia())
        };
        assert!(matches!(shifted(1.0), Err(Error::Singular { .. })));
        assert_eq!(shifted(1.0 - 1e-9).unwrap(), Inertia { negative: 3, positive: 8 });
        assert_eq!(shifted(1.0 + 1e-9).unwrap(), Inertia { negative: 4, positive: 7 });
    }

    #[test]
    fn a_plan_refuses_what_takes_more_memory_than_expected() {
        for a in [indefinite(12, false), indefinite(12, true)] {
            let whole = Ldl::new(&a).unwrap();
            let within_memory = |order| OrderedLdl::new(&a, order)?.within_memory(&a);
            assert_eq!(within_memory(None).unwrap().inertia(), whole.inertia());
            let natural: Vec<u32> = (0..a.rows() as u32).collect();
            let other = within_memory(Some(&natural)).unwrap();
            // matched rows stay adjacent, whatever the given order
            assert_eq!(other.nnz() > whole.nnz(), whole.matched.is_none());
            let budget = Budget::new(NAME, DirectOptions::default(), a.rows());
            let ordered = OrderedLdl::on_tree(&a, budget, None, None).unwrap();
            let refused = ordered.factorized(&a, 0.1).map(|ldl| ldl.inertia());
            assert!(matches!(refused, Err(Error::Unsuitable { .. })), "{refused:?}");
        }
    }

    /// A shifted Laplacian, or one with a zero diagonal.
    fn indefinite(side: usize, zero_diagonal: bool) -> Csr<f64> {
        let stencil = matrices::stencil7(side).csr::<f64>().unwrap();
        let value = |i: usize, j: usize, v: f64| match (i == j, zero_diagonal) {
            (true, true) => 0.0,
            (true, false) => v - 2.5,
            _ => v,
        };
        let entries: Vec<_> = stencil.triplets().map(|(i, j, v)| (i, j, value(i, j, v))).collect();
        Csr::from_triplets(stencil.rows(), stencil.cols(), &entries).unwrap()
    }

    #[test]
    fn threads_and_vectors_change_no_bits_of_solves() {
        for zero_diagonal in [false, true] {
            let a = indefinite(12, zero_diagonal);
            let ldl = Ldl::new(&a).unwrap();
            // some pivots are delayed, and there are fronts above the tasks
            assert!(ldl.report().delayed_pivots > 0 && !ldl.tree.top.is_empty(), "{zero_diagonal}");
            threads_and_vectors_change_no_bits(|| Ldl::new(&a).unwrap(), |_| vec![]);
        }
    }

    #[test]
    fn refreshes_are_new_factorizations() {
        let _one_level = force(Level::best());
        let (a, other) = (indefinite(12, false), indefinite(12, true));
        let applied = |ldl: &Ldl<f64>| {
            let b: Vec<f64> = (0..ldl.space.len()).map(|i| (i as f64).sin()).collect();
            let mut x = ldl.space.zeros().unwrap();
            ldl.apply(&ldl.space.vector(&b).unwrap(), &mut x).unwrap();
            x.as_slice().to_vec()
        };
        let mut ldl = Ldl::new(&a).unwrap();
        let (same, expected) = (a.with_values(other.entries()).unwrap(), applied(&ldl));
        ldl.refresh(&same).unwrap();
        assert!(applied(&ldl) == applied(&Ldl::new(&same).unwrap()));
        ldl.refresh(&a).unwrap();
        assert!(applied(&ldl) == expected);
        assert!(ldl.refresh(&indefinite(11, false)).is_err());
    }

    #[test]
    fn repeated_rows_are_singular_and_not_delayed() {
        for zero_diagonal in [false, true] {
            let a = indefinite(10, zero_diagonal);
            let four =
                |(i, j, v): (usize, usize, f64)| (0..4).map(move |at| (2 * i + at / 2, 2 * j + at % 2, v));
            let n = 2 * a.rows();
            let a = Csr::from_triplets(n, n, &a.triplets().flat_map(four).collect::<Vec<_>>()).unwrap();
            let budget = Budget::new(NAME, DirectOptions::default(), n);
            // no more memory than without delayed pivots
            let ordered = OrderedLdl::on_tree(&a, budget, None, None).unwrap();
            let refused = ordered.factorized(&a, 1.0).map(|ldl| ldl.inertia());
            assert!(matches!(refused, Err(Error::Singular { .. })), "{refused:?}");
        }
    }

    #[test]
    fn memory_is_half_of_that_of_lu_and_limited() {
        let a = indefinite(14, false);
        let ldl = Ldl::new(&a).unwrap();
        let lu = crate::preconditioners::Lu::new(&a).unwrap();
        assert!(ldl.bytes() as f64 <= 0.6 * lu.bytes() as f64, "{} {}", ldl.bytes(), lu.bytes());
        let refused = Ldl::with(&a, DirectOptions { memory: Some(ldl.bytes() / 2) }).unwrap_err();
        assert!(matches!(refused, Error::Memory { what: NAME, .. }), "{refused}");
        let solution = Gmres::new(&a).preconditioner(ldl).rtol(1e-12).solve(&vec![1.0; a.rows()]).unwrap();
        assert!(solution.report.converged() && solution.report.iterations <= 2, "{}", solution.report);
        let not_finite = Csr::from_triplets(1, 1, &[(0, 0, f64::NAN)]).unwrap();
        assert!(matches!(Ldl::new(&not_finite), Err(Error::NotFinite { .. })));
    }
}
