//! FSAI, the factorized sparse approximate inverse of a symmetric positive definite matrix (Kolotilina and
//! Yeremin 1993).
//!
//! `G ≈ L⁻¹` for the Cholesky factor of `A = L Lᵀ`, without computing `L`: among all lower triangular
//! matrices on a pattern, `G` minimizes `‖I − G L‖_F`. Every row follows from a small system,
//!
//! ```text
//! A[S, S] y = e_last,   g = y / √y_last       S: the pattern of the row, the diagonal last
//! ```
//!
//! of which only the backward substitution is needed: with `A[S, S] = C Cᵀ`, `Cᵀ g = e_last`. Applying it,
//! `z = Gᵀ (G r)`, takes two matrix-vector products, which are fully parallel.
//!
//! The adaptive pattern reduces the Kaporin number (Janna, Ferronato, Sartoretto, Gambolati 2015). A row `g`,
//! scaled to a diagonal entry of 1, contributes `ψ = g A gᵀ` to it; entries are added where the gradient
//! `2 A gᵀ` of `ψ` is large.
//!
//! Departures:
//! 1. gradients are weighted by the diagonal, `(A gᵀ)ⱼ² / aⱼⱼ`, which is the decrease of `ψ` if only `j` is
//!    added: the pattern does not depend on the scaling of `A`;
//! 2. growth starts from a given pattern, usually that of `A`, rather than the diagonal, which saves the
//!    steps that would find it;
//! 3. the final pattern is solved again as if it had been given, so that a refresh with the same values gives
//!    the same result.
//!
//! Cost: computing a row of `s` entries takes `s³/6` multiplications and reads `s` rows of `A`; an
//! application reads `G` and `Gᵀ` once, and reads or writes 4 vectors.

#[cfg(feature = "cuda")]
mod on_cuda;

#[cfg(feature = "cuda")]
pub use on_cuda::OnGpu;

use super::rows::{Accumulator, Places, find_rows, keep_largest, solve_rows};
use super::sparsity::{Growth, Sparsity};
use super::{MatrixSource, Refresh, check_space, check_square, finite};
use crate::error::{Error, Result};
use crate::formats::derived::Derivation;
use crate::formats::pattern::Pattern;
use crate::formats::{Csr, Format, Source};
use crate::host::HostSpace;
use crate::numbers::Real;
use crate::saved::{InconsistentData, saved};
use krysp_kernels::buffer::Buffer;
use krysp_kernels::cpu::preconditioners::dense::Cholesky;
use krysp_kernels::index::Offsets;
use krysp_solvers::{Composed, Element, LinearOperator, Wrapper};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "FSAI";

/// The factors `G` and `Gᵀ`, and their product as a preconditioner.
///
/// ```
/// use krysp::{Cg, Fsai, Sparsity, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let b = vec![1.0; a.rows()];
/// let plain = Cg::new(&a).solve(&b)?;
/// let fixed = Cg::new(&a).preconditioner(Fsai::new(&a)?).solve(&b)?;
/// let adaptive = Fsai::adaptive(&a, Sparsity::Power(1), Fsai::<f64>::GROWTH)?;
/// let grown = Cg::new(&a).preconditioner(adaptive).solve(&b)?;
/// assert!(fixed.report.iterations < plain.report.iterations);
/// assert!(grown.report.iterations < fixed.report.iterations);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The factors are matrices, which any format stores, on any device:
///
/// ```
/// use krysp::{Cg, Composed, Fsai, Sell, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let fsai = Fsai::new(&a)?;
/// let fast = Composed::new(Sell::new(fsai.upper())?, Sell::new(fsai.lower())?)?;
/// assert!(Cg::new(&a).preconditioner(fast).solve(&vec![1.0; a.rows()])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fsai<T: Real> {
    /// `Gᵀ G`
    product: Composed<Csr<T>, Csr<T>>,
    transposition: Derivation,
}

saved!(impl[T: Real] Fsai<T> as |this| {
    upper: Csr<T> = this.upper(),
    lower: Csr<T> = this.lower(),
    transposition: Derivation = &this.transposition,
} => {
    let product = Composed::new(upper, lower).map_err(|_| InconsistentData)?;
    Ok(Fsai { product, transposition })
});

impl<T: Real> Fsai<T> {
    /// Default limits of [`Fsai::adaptive`]. A row's residual is `ψ / aᵢᵢ`, 1 for the diagonal alone.
    pub const GROWTH: Growth = Growth { epsilon: 1e-3, max_steps: 4, step_entries: 4, max_fill: 128 };

    /// Computes `G` on the lower triangle of the matrix's own pattern. Only that triangle is read. The
    /// preconditioner applies to vectors of `csr.domain()`.
    pub fn new(csr: &Csr<T>) -> Result<Fsai<T>> {
        Fsai::with_pattern(csr, Sparsity::Power(1))
    }

    /// Computes `G` on the lower triangle of a pattern, including the diagonal.
    pub fn with_pattern(csr: &Csr<T>, sparsity: Sparsity<'_, T>) -> Result<Fsai<T>> {
        Fsai::of(csr, lower_pattern(csr, sparsity)?)
    }

    /// Computes `G` on a pattern that grows row by row, from the lower triangle of a given one. Reads both
    /// triangles.
    pub fn adaptive(csr: &Csr<T>, start: Sparsity<'_, T>, growth: Growth) -> Result<Fsai<T>> {
        check_square(NAME, csr)?;
        growth.check()?;
        csr.check_finite()?;
        let n = csr.rows();
        let start = start.pattern(csr, false, &|row, column| column < row)?;
        let diagonal: Vec<f64> = csr.diagonal_entries().into_iter().map(Element::to_f64).collect();
        let pattern = find_rows(n, n, &|| Growing::new(n), &|row, local: &mut Growing, columns| {
            local.grow(csr, &diagonal, (row as u32, start.row(row)), growth)?;
            columns.extend_from_slice(&local.system.members);
            columns.push(row as u32);
            Ok(())
        })?;
        Fsai::of(csr, pattern)
    }

    fn of(csr: &Csr<T>, pattern: Pattern) -> Result<Fsai<T>> {
        csr.check_finite()?;
        let space = csr.source().domain();
        let lower = factor(csr, pattern, space.clone(), space.clone())?;
        let (upper, transposition) = Derivation::transposed(&lower)?;
        let product = Composed::new(upper, lower)?;
        Ok(Fsai { product, transposition })
    }

    /// `G`
    pub fn lower(&self) -> &Csr<T> {
        self.product.inner()
    }

    /// `Gᵀ`
    pub fn upper(&self) -> &Csr<T> {
        self.product.outer()
    }
}

/// A refresh keeps the pattern of `G`; the new matrix may have any pattern.
impl<T: Real> Refresh<T> for Fsai<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.domain())?;
        let (upper, lower) = self.product.factors_mut();
        solve(&*finite(a)?, lower)?;
        self.transposition.refresh(lower, upper)
    }
}

/// The lower triangle of a pattern, including the diagonal.
fn lower_pattern<T: Real>(csr: &Csr<T>, sparsity: Sparsity<'_, T>) -> Result<Pattern> {
    check_square(NAME, csr)?;
    match own_triangle(csr, sparsity) {
        Some(lower) => Ok(lower),
        None => sparsity.pattern(csr, true, &|row, column| column <= row),
    }
}

/// The lower triangle of a square matrix's own pattern, if `sparsity` is `Power(1)` and the pattern contains
/// the diagonal.
fn own_triangle<T: Real>(csr: &Csr<T>, sparsity: Sparsity<'_, T>) -> Option<Pattern> {
    if !matches!(sparsity, Sparsity::Power(1)) {
        return None;
    }
    let whole = AtomicBool::new(true);
    let length = |row: usize| {
        let columns = csr.row_columns(row);
        let end = columns.partition_point(|&column| column as usize <= row);
        if columns[..end].last() != Some(&(row as u32)) {
            whole.store(false, Ordering::Relaxed);
        }
        end
    };
    let offsets = Offsets::of_rows(csr.rows(), &length);
    let lower = || csr.source().pattern.part(Arc::new(offsets), |whole, _| whole.start);
    whole.into_inner().then(lower)
}

/// The error for a row whose system the GPU has found not to be positive definite.
#[cfg(feature = "cuda")]
fn refusal<T: Real>(a: &Csr<T>, lower: &Pattern, row: usize) -> Error {
    let mut system = System::new(a.cols());
    let refused = lower.row(row).iter().find_map(|&member| system.push(a, member).err());
    // with other rounding, the host may find all pivots positive
    refused.unwrap_or(Error::NotPositive { what: NAME, row, pivot: 0.0 })
}

/// Computes rows of `G` on a pattern, whose last entry in each row is the diagonal.
pub(crate) fn factor<T: Real>(
    a: &Csr<T>,
    pattern: Pattern,
    domain: HostSpace<T>,
    range: HostSpace<T>,
) -> Result<Csr<T>> {
    let values = Buffer::zeros(pattern.entries());
    let mut lower = Csr::from_source(Source::new(Arc::new(pattern), domain, range), values);
    solve(a, &mut lower)?;
    Ok(lower)
}

/// Computes every row of `G` on its pattern.
fn solve<T: Real>(a: &Csr<T>, lower: &mut Csr<T>) -> Result<()> {
    let source = lower.source().clone();
    let values = lower.values_mut();
    let scratch = || (System::new(a.cols()), vec![]);
    solve_rows(&source.pattern, values, &scratch, &|row, (system, g), values| {
        system.start();
        for &member in source.pattern.row(row) {
            system.push(a, member)?;
        }
        // Cᵀ g = e_last
        g.clear();
        g.resize(values.len(), 0.0);
        g[values.len() - 1] = 1.0;
        system.cholesky.backward(g);
        values.iter_mut().zip(&*g).for_each(|(to, &g)| *to = T::from_f64(g));
        Ok(())
    })?;
    Ok(())
}

/// `A[S, S]`, factorized row by row as `S` grows.
struct System {
    members: Vec<u32>,
    /// Position of each unknown in `members`.
    places: Places,
    cholesky: Cholesky,
    row: Vec<f64>,
}

impl System {
    fn new(n: usize) -> System {
        System { members: vec![], places: Places::new(n), cholesky: Cholesky::default(), row: vec![] }
    }

    fn start(&mut self) {
        self.places.clear(self.members.drain(..));
        self.cholesky.clear();
    }

    fn push<T: Real>(&mut self, a: &Csr<T>, member: u32) -> Result<()> {
        self.places.set(member, self.members.len());
        self.members.push(member);
        self.row.clear();
        self.row.resize(self.members.len(), 0.0);
        for (&column, &value) in a.row_columns(member as usize).iter().zip(a.row_values(member as usize)) {
            if let Some(place) = self.places.get(column) {
                self.row[place] = Element::to_f64(value);
            }
        }
        let refused = |pivot| Error::NotPositive { what: NAME, row: member as usize, pivot };
        self.cholesky.push(&self.row).map_err(refused)
    }
}

/// A row of `G` whose pattern grows.
struct Growing {
    /// `A[S, S]` without the row itself.
    system: System,
    /// `−C⁻¹ A[S, i]`, which gives `ψ = aᵢᵢ − ‖w‖²`
    w: Vec<f64>,
    /// The row of `G` before scaling, without its diagonal of 1.
    g: Vec<f64>,
    gradient: Accumulator,
    next: Vec<(u32, f64)>,
}

impl Growing {
    fn new(n: usize) -> Growing {
        let system = System::new(n);
        Growing { system, w: vec![], g: vec![], gradient: Accumulator::new(n), next: vec![] }
    }

    /// Computes the pattern of row `i`, beginning with the columns in `start`.
    fn grow<T: Real>(
        &mut self,
        a: &Csr<T>,
        diagonal: &[f64],
        (i, start): (u32, &[u32]),
        growth: Growth,
    ) -> Result<()> {
        let Growing { system, w, g, gradient, next } = self;
        system.start();
        w.clear();
        let own = diagonal[i as usize];
        next.clear();
        next.extend(start.iter().map(|&j| (j, 0.0)));
        for step in 0..=growth.max_steps {
            for &(j, _) in &*next {
                system.push(a, j)?;
                let coupling = a.get(i as usize, j as usize).unwrap_or_default();
                w.push(system.cholesky.forward(w, -coupling.to_f64()));
            }
            let psi = own - w.iter().map(|w| w * w).sum::<f64>();
            if step == growth.max_steps || psi <= growth.epsilon * own {
                break;
            }
            g.clone_from(w);
            system.cholesky.backward(g);
            // (A g)ⱼ for j < i
            let terms = system.members.iter().copied().zip(g.iter().copied()).chain([(i, 1.0)]);
            for (k, g) in terms {
                let (columns, values) = (a.row_columns(k as usize), a.row_values(k as usize));
                for (&j, &value) in columns.iter().zip(values).take_while(|&(&j, _)| j < i) {
                    if system.places.get(j).is_none() {
                        gradient.add(j, value.to_f64() * g);
                    }
                }
            }
            gradient.take(next);
            next.iter_mut().for_each(|(j, slope)| *slope *= *slope / diagonal[*j as usize]);
            let limit = growth.max_fill.saturating_sub(system.members.len() + 1);
            keep_largest(next, growth.step_entries.min(limit));
            if next.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl<T: Real> Wrapper for Fsai<T> {
    type Inner = Composed<Csr<T>, Csr<T>>;

    fn inner(&self) -> &Self::Inner {
        &self.product
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::Permutation;
    use crate::testing::matrices;
    use krysp_solvers::Cg;

    /// `Σₖ gᵢₖ aₖⱼ`
    fn product(g: &Csr<f64>, a: &Csr<f64>, row: usize, column: usize) -> f64 {
        let terms = g.row_columns(row).iter().zip(g.row_values(row));
        terms.map(|(&k, g)| g * a.get(k as usize, column).unwrap_or_default()).sum()
    }

    /// Definition of `G`: `G A` vanishes on the pattern off the diagonal, and the diagonal of `G A Gᵀ` is 1.
    fn check(a: &Csr<f64>, fsai: &Fsai<f64>) {
        let g = fsai.lower();
        for row in 0..a.rows() {
            let diagonal = g.get(row, row).unwrap();
            assert!((product(g, a, row, row) * diagonal - 1.0).abs() < 1e-12, "row {row}");
            for &column in &g.row_columns(row)[..g.row_columns(row).len() - 1] {
                let entry = product(g, a, row, column as usize);
                assert!(entry.abs() * diagonal < 1e-13, "({row}, {column}): {entry:e}");
                assert_eq!(fsai.upper().get(column as usize, row), g.get(row, column as usize));
            }
        }
        assert_eq!(fsai.upper().nnz(), g.nnz());
    }

    #[test]
    fn rows_are_what_defines_them() {
        let elastic = matrices::elasticity(4).csr::<f64>().unwrap();
        let a = elastic.reordered(&Permutation::rcm(&elastic).unwrap()).unwrap();
        let mut entries = vec![];
        for sparsity in [Sparsity::Power(0), Sparsity::Power(1), Sparsity::Power(2), Sparsity::Of(&a)] {
            let fsai = Fsai::with_pattern(&a, sparsity).unwrap();
            check(&a, &fsai);
            entries.push(fsai.lower().nnz());
        }
        let lower = (a.nnz() + a.rows()) / 2;
        assert!(entries[0] == a.rows() && entries[1] == lower && entries[2] > lower && entries[3] == lower);
        let grown = Fsai::adaptive(&a, Sparsity::Power(0), Fsai::<f64>::GROWTH).unwrap();
        check(&a, &grown);
        let longest = grown.lower().row_lengths().max();
        assert_eq!(longest, Some(17));
    }

    /// On the whole lower triangle, `Gᵀ G` is the inverse.
    #[test]
    fn a_full_pattern_gives_the_inverse() {
        let a = matrices::stencil7(3).csr::<f64>().unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| (i % 4) as f64 - 1.0).collect();
        let everywhere = Growth { epsilon: 0.0, max_steps: 27, step_entries: 27, max_fill: 27 };
        for fsai in [
            Fsai::with_pattern(&a, Sparsity::Power(9)).unwrap(),
            Fsai::adaptive(&a, Sparsity::Power(0), everywhere).unwrap(),
        ] {
            let report = Cg::new(&a).preconditioner(fsai).rtol(1e-12).solve(&b).unwrap().report;
            assert_eq!(report.iterations, 1);
        }
    }

    /// The pattern does not depend on symmetric scaling.
    #[test]
    fn growth_does_not_see_scaling() {
        let a = matrices::tetrahedra(6, matrices::NodeOrder::Natural).csr::<f64>().unwrap();
        // powers of two do not round
        let scale = |i: usize| f64::powi(2.0, (i % 11) as i32);
        let scaled: Vec<_> = a.triplets().map(|(i, j, v)| (i, j, v * scale(i) * scale(j))).collect();
        let scaled = Csr::from_triplets(a.rows(), a.rows(), &scaled).unwrap();
        let grown = |a: &Csr<f64>| Fsai::adaptive(a, Sparsity::Power(0), Fsai::<f64>::GROWTH).unwrap();
        assert_eq!(grown(&a).lower().columns(), grown(&scaled).lower().columns());
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = matrices::stencil27(7).csr::<f64>().unwrap();
        let values: Vec<f64> =
            a.triplets().map(|(i, j, v)| if i == j { v + 1.0 + i as f64 } else { v }).collect();
        let b = a.with_values(&values).unwrap();
        let mut fsai = Fsai::new(&a).unwrap();
        let first = fsai.lower().entries().to_vec();
        fsai.refresh(&b).unwrap();
        check(&b, &fsai);
        assert_eq!(fsai.lower().entries(), Fsai::new(&b).unwrap().lower().entries());
        fsai.refresh(&a).unwrap();
        assert_eq!(fsai.lower().entries(), first);
        let mut grown = Fsai::adaptive(&a, Sparsity::Power(1), Fsai::<f64>::GROWTH).unwrap();
        let first = grown.upper().entries().to_vec();
        grown.refresh(&a).unwrap();
        assert_eq!(grown.upper().entries(), first);
        assert!(fsai.refresh(&matrices::stencil7(3).csr().unwrap()).is_err());
    }

    #[test]
    fn refusals_name_the_row() {
        let entries = [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0), (2, 2, 1.0)];
        let a = Csr::from_triplets(3, 3, &entries).unwrap();
        let refused = Error::NotPositive { what: "FSAI", row: 1, pivot: -1.0 };
        for result in [Fsai::new(&a), Fsai::adaptive(&a, Sparsity::Power(0), Fsai::<f64>::GROWTH)] {
            assert_eq!(result.unwrap_err().to_string(), refused.to_string());
        }
        let gap = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 0, 1.0), (0, 1, 1.0)]).unwrap();
        assert!(matches!(Fsai::new(&gap), Err(Error::NotPositive { row: 1, .. })));
        let wide = Csr::from_triplets(1, 2, &[(0, 0, 1.0)]).unwrap();
        assert!(matches!(Fsai::new(&wide), Err(Error::NotSquare { .. })));
        let nothing = Growth { step_entries: 0, ..Fsai::<f64>::GROWTH };
        assert!(matches!(Fsai::adaptive(&a, Sparsity::Power(0), nothing), Err(Error::Option { .. })));
    }
}
