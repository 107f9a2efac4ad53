//! ISAI: incomplete sparse approximate inverses of triangular factors (Anzt, Huckle, Bräckle, Dongarra 2018).
//!
//! Triangular solves do not suit a GPU; matrix-vector products do. For a triangle `L`, a matrix `M` on a
//! given pattern is computed so that `M L = I` holds on that pattern, row by row:
//!
//! ```text
//! m L[S, S] = e_iᵀ        S: the pattern of row i of M, m: its entries there
//! ```
//!
//! which is a small triangular system. Then `z = M_U (M_L r)` approximates `z = U⁻¹ (L⁻¹ r)`. For a Cholesky
//! factor `M_U = M_Lᵀ`, so that the preconditioner stays symmetric.
//!
//! Cost: computing a row of `s` entries reads `s` rows of the triangle; an application reads both inverses
//! once, and reads or writes 4 vectors.

#[cfg(feature = "cuda")]
mod on_cuda;

use super::rows::{Places, solve_rows};
use super::sparsity::Sparsity;
use super::{Ic0, Ilu0, MatrixSource, Refresh};
use crate::error::{Error, Result};
use crate::formats::derived::Derivation;
use crate::formats::{Csr, Format, Source};
use crate::numbers::Real;
use krysp_kernels::buffer::Buffer;
use krysp_solvers::{Composed, Element, Wrapper};
use std::sync::Arc;

const NAME: &str = "ISAI";

/// A factorization into two triangles in the same space.
pub trait TriangularFactors<T: Real> {
    /// The lower triangle, and the upper one unless it is the transpose of the lower one.
    fn triangles(&self) -> Result<(Csr<T>, Option<Csr<T>>)>;
}

impl<T: Real> TriangularFactors<T> for Ic0<T> {
    fn triangles(&self) -> Result<(Csr<T>, Option<Csr<T>>)> {
        Ok((self.lower()?, None))
    }
}

impl<T: Real> TriangularFactors<T> for Ilu0<T> {
    fn triangles(&self) -> Result<(Csr<T>, Option<Csr<T>>)> {
        Ok((self.lower()?, Some(self.upper()?)))
    }
}

impl<T: Real, P: TriangularFactors<T>> TriangularFactors<T> for &P {
    fn triangles(&self) -> Result<(Csr<T>, Option<Csr<T>>)> {
        (**self).triangles()
    }
}

/// Approximate inverses of the triangles of a factorization `P`, and their product as a preconditioner.
///
/// It owns the factorization, because a refresh recomputes it; if values do not change, it may borrow it:
/// `Isai::new(&ic0, ..)`.
///
/// ```
/// use krysp::{Cg, Ic0, Isai, Sparsity, gallery};
///
/// let a = gallery::poisson::<f64>(&[8; 3])?;
/// let isai = Isai::new(Ic0::new(&a)?, Sparsity::Power(1))?;
/// assert!(Cg::new(&a).preconditioner(isai).solve(&vec![1.0; a.rows()])?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Isai<T: Real, P = Ic0<T>> {
    factors: P,
    /// The inverse of the upper triangle times that of the lower one.
    product: Composed<Csr<T>, Csr<T>>,
    /// The map from the lower inverse to the upper one, if the upper one is its transpose.
    transposition: Option<Derivation>,
}

impl<T: Real, P: TriangularFactors<T>> Isai<T, P> {
    /// Computes approximate inverses of the factors, each on the pattern of a power of the factor or on its
    /// triangle of a given pattern.
    pub fn new(factors: P, sparsity: Sparsity<'_, T>) -> Result<Isai<T, P>> {
        let (lower, upper) = factors.triangles()?;
        let inverse = |triangle: &Csr<T>, keep: fn(usize, usize) -> bool| {
            let pattern = Arc::new(sparsity.pattern(triangle, true, &keep)?);
            let (space, values) = (triangle.source().domain(), Buffer::zeros(pattern.entries()));
            let mut inverse = Csr::from_source(Source::new(pattern, space.clone(), space.clone()), values);
            solve(triangle, &mut inverse)?;
            Ok::<_, Error>(inverse)
        };
        let lower = inverse(&lower, |row, column| column <= row)?;
        let (upper, transposition) = match upper {
            Some(upper) => (inverse(&upper, |row, column| column >= row)?, None),
            None => {
                let (upper, transposition) = Derivation::transposed(&lower)?;
                (upper, Some(transposition))
            }
        };
        Ok(Isai { factors, product: Composed::new(upper, lower)?, transposition })
    }
}

impl<T: Real, P> Isai<T, P> {
    /// The factorization.
    pub fn factors(&self) -> &P {
        &self.factors
    }

    /// The approximate inverse of the lower triangle.
    pub fn lower(&self) -> &Csr<T> {
        self.product.inner()
    }

    /// The approximate inverse of the upper triangle.
    pub fn upper(&self) -> &Csr<T> {
        self.product.outer()
    }
}

/// Factorizes the matrix, then inverts its factors. The patterns of the inverses are kept.
impl<T: Real, P: TriangularFactors<T> + Refresh<T>> Refresh<T> for Isai<T, P> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        self.factors.refresh(a)?;
        let (from_lower, from_upper) = self.factors.triangles()?;
        let (upper, lower) = self.product.factors_mut();
        solve(&from_lower, lower)?;
        if let Some(from_upper) = from_upper {
            solve(&from_upper, upper)?;
        }
        if let Some(transposition) = &self.transposition {
            transposition.refresh(lower, upper)?;
        }
        Ok(())
    }
}

/// Computes every row of an inverse on its pattern, by substitution that begins at the diagonal.
fn solve<T: Real>(triangle: &Csr<T>, inverse: &mut Csr<T>) -> Result<()> {
    let source = inverse.source().clone();
    let scratch = || (Places::new(triangle.cols()), vec![]);
    solve_rows(&source.pattern, inverse.values_mut(), &scratch, &|row, (places, m), values| {
        let members = source.pattern.row(row);
        members.iter().enumerate().for_each(|(at, &member)| places.set(member, at));
        m.clear();
        m.resize(members.len(), 0.0);
        let below = members.first().is_some_and(|&first| (first as usize) < row);
        let own = if below { members.len() - 1 } else { 0 };
        m[own] = 1.0;
        for step in 0..members.len() {
            let at = if below { own - step } else { step };
            let member = members[at] as usize;
            let diagonal = triangle.get(member, member).unwrap_or_default().to_f64();
            if diagonal == 0.0 || !diagonal.is_finite() {
                return Err(Error::ZeroPivot { what: NAME, row: member, pivot: diagonal });
            }
            let solved = m[at] / diagonal;
            for (&column, &value) in triangle.row_columns(member).iter().zip(triangle.row_values(member)) {
                if let Some(place) = places.get(column) {
                    m[place] -= solved * Element::to_f64(value);
                }
            }
            m[at] = solved;
        }
        places.clear(members.iter().copied());
        values.iter_mut().zip(&*m).for_each(|(to, &m)| *to = T::from_f64(m));
        Ok(())
    })?;
    Ok(())
}

impl<T: Real, P: Send + Sync> Wrapper for Isai<T, P> {
    type Inner = Composed<Csr<T>, Csr<T>>;

    fn inner(&self) -> &Self::Inner {
        &self.product
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preconditioners::Jacobi;
    use crate::testing::matrices;
    use krysp_solvers::{BiCgStab, Cg};

    /// `M L = I` on the pattern of `M`.
    fn check(inverse: &Csr<f64>, triangle: &Csr<f64>) {
        for (row, column, _) in inverse.triplets() {
            let terms = inverse.row_columns(row).iter().zip(inverse.row_values(row));
            let product: f64 =
                terms.map(|(&k, m)| m * triangle.get(k as usize, column).unwrap_or_default()).sum();
            assert!((product - f64::from(u8::from(row == column))).abs() < 1e-13, "({row}, {column})");
        }
    }

    #[test]
    fn inverses_are_what_defines_them() {
        let a = matrices::elasticity(4).csr::<f64>().unwrap();
        let (ic0, ilu0) = (Ic0::new(&a).unwrap(), Ilu0::new(&a).unwrap());
        for power in [0, 1, 2] {
            let isai = Isai::new(&ic0, Sparsity::Power(power)).unwrap();
            check(isai.lower(), &ic0.lower().unwrap());
            let transposed = isai.lower().triplets().all(|(i, j, v)| isai.upper().get(j, i) == Some(v));
            assert!(transposed && isai.upper().nnz() == isai.lower().nnz());
            let isai = Isai::new(&ilu0, Sparsity::Power(power)).unwrap();
            check(isai.lower(), &ilu0.lower().unwrap());
            check(isai.upper(), &ilu0.upper().unwrap());
        }
        let isai = Isai::new(&ilu0, Sparsity::Of(&a)).unwrap();
        assert_eq!(isai.upper().nnz() + isai.lower().nnz(), a.nnz() + a.rows());
    }

    /// The iteration count lies between those of Jacobi and of exact triangular solves.
    #[test]
    fn iterations_lie_between() {
        let a = matrices::stencil7(16).csr::<f64>().unwrap();
        let b: Vec<f64> = (0..a.rows()).map(|i| (i % 5) as f64).collect();
        let ic0 = Ic0::new(&a).unwrap();
        let [one, two] = [1, 2].map(|power| {
            let isai = Isai::new(&ic0, Sparsity::Power(power)).unwrap();
            Cg::new(&a).preconditioner(isai).solve(&b).unwrap().report.iterations
        });
        let jacobi =
            Cg::new(&a).preconditioner(Jacobi::new(&a).unwrap()).solve(&b).unwrap().report.iterations;
        let exact = Cg::new(&a).preconditioner(&ic0).solve(&b).unwrap().report.iterations;
        assert!(exact <= two && two < one && one < jacobi, "{exact} {two} {one} {jacobi}");
        let isai = Isai::new(Ilu0::new(&a).unwrap(), Sparsity::Power(1)).unwrap();
        assert!(BiCgStab::new(&a).preconditioner(isai).solve(&b).unwrap().report.converged());
    }

    #[test]
    fn new_values_are_those_of_a_new_one() {
        let a = matrices::stencil27(5).csr::<f64>().unwrap();
        let values: Vec<f64> = a.triplets().map(|(i, j, v)| if i == j { v + i as f64 } else { v }).collect();
        let b = a.with_values(&values).unwrap();
        let mut isai = Isai::new(Ic0::new(&a).unwrap(), Sparsity::Power(1)).unwrap();
        isai.refresh(&b).unwrap();
        let rebuilt = Isai::new(Ic0::new(&b).unwrap(), Sparsity::Power(1)).unwrap();
        assert_eq!(isai.lower().entries(), rebuilt.lower().entries());
        assert_eq!(isai.upper().entries(), rebuilt.upper().entries());
        let mut isai = Isai::new(Ilu0::new(&a).unwrap(), Sparsity::Power(1)).unwrap();
        isai.refresh(&b).unwrap();
        let rebuilt = Isai::new(Ilu0::new(&b).unwrap(), Sparsity::Power(1)).unwrap();
        assert_eq!(isai.lower().entries(), rebuilt.lower().entries());
        assert_eq!(isai.upper().entries(), rebuilt.upper().entries());
    }
}
