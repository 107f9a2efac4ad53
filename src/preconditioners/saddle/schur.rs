//! Approximations of the Schur complement `S = −(C + B A⁻¹ Bᵀ)`, applied as `(−S)⁻¹`.

use super::blocks::Blocks;
use super::inner::{BlockSolver, Inner};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::saved::saved;
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{Element, LinearOperator, Space};

/// Approximations of the Schur complement `S = −(C + B A⁻¹ Bᵀ)`.
#[derive(Clone, Debug, Default)]
pub enum Schur<T: Real> {
    /// [`Schur::Sparse`] where `A` is nearly diagonal, as in optimization and with short time steps;
    /// otherwise [`Schur::Diagonal`] if `A` is symmetric, as for Stokes flow, and [`Schur::LeastSquares`] if
    /// it is not and `C = 0`, as for Oseen flow ([`Schur::Sparse`] if `C` is not zero).
    /// [`Schur::Diagonal`] for any matrix if `B D⁻¹ Bᵀ` is too expensive.
    #[default]
    Automatic,
    /// The diagonal of `C + B D⁻¹ Bᵀ` with `D = diag(A)`, times a factor that is estimated by one application
    /// of the solver of `A`. For Stokes flow it approximates the pressure mass matrix divided by the
    /// viscosity `ν`: for mesh width `h` in `d` dimensions both have entries of the size `hᵈ / ν`.
    Diagonal,
    /// `C + B D⁻¹ Bᵀ` with `D = diag(A)`, solved by [`SaddlePointOptions::second`](crate::SaddlePointOptions::second).
    #[doc(alias = "selfp")]
    #[doc(alias = "simple")]
    Sparse,
    /// The least-squares commutator with the inverse `N⁻¹ (B D⁻¹ A D⁻¹ Bᵀ) N⁻¹`, where `N = C + B D⁻¹ Bᵀ`
    /// (Elman, Howle, Shadid, Shuttleworth and Tuminaro 2006). An application takes two solves with `N`.
    #[doc(alias = "lsc")]
    #[doc(alias = "bfbt")]
    LeastSquares,
    /// A given approximation of `C + B A⁻¹ Bᵀ`, symmetric and positive definite, in the user's order of the
    /// second field's unknowns: for Stokes flow the pressure mass matrix divided by the viscosity.
    /// [`Refresh`](crate::Refresh) leaves it unchanged.
    Given(Csr<T>),
}

/// The approximation of the Schur complement that a preconditioner applies.
#[derive(Debug)]
pub(super) enum Complement<T: Real> {
    /// The inverse of a diagonal.
    Diagonal(Vec<T>),
    Sparse(Inner<T>),
    LeastSquares(Inner<T>),
    Given(Inner<T>),
}

/// Workspace: vectors of the first and of the second field.
#[derive(Debug)]
pub(super) struct Work<T: Real> {
    pub(super) first: [HostVector<T>; 2],
    pub(super) second: [HostVector<T>; 3],
}

impl<T: Real> Work<T> {
    pub(super) fn new(blocks: &Blocks<T>) -> krysp_solvers::Result<Work<T>> {
        let [n, m] = [blocks.a.matrix.domain(), blocks.k.matrix.domain()];
        Ok(Work { first: [n.zeros()?, n.zeros()?], second: [m.zeros()?, m.zeros()?, m.zeros()?] })
    }
}

impl<T: Real> Complement<T> {
    /// Builds an approximation. Returns also the sign `σ` that makes most of the diagonal of
    /// `σ (H D⁻¹ G − K)` positive.
    pub(super) fn new(
        blocks: &Blocks<T>,
        inverse: &[T],
        schur: &Schur<T>,
        symmetric: bool,
        solver: BlockSolver,
        a: &Inner<T>,
    ) -> Result<(Complement<T>, T)> {
        let sparse = || -> Result<(Inner<T>, T)> {
            let (n, sign) = blocks.approximate_schur(inverse)?;
            Ok((Inner::new(&n, symmetric, solver)?, sign))
        };
        Ok(match schur {
            Schur::Sparse => {
                let (inner, sign) = sparse()?;
                (Complement::Sparse(inner), sign)
            }
            Schur::LeastSquares => {
                let (inner, sign) = sparse()?;
                (Complement::LeastSquares(inner), sign)
            }
            Schur::Given(given) => {
                let (_, sign) = blocks.diagonal_of_schur(inverse)?;
                (Complement::Given(Inner::new(given, true, solver)?), sign)
            }
            _ => {
                let (diagonal, sign) = blocks.scaled_diagonal(inverse, a)?;
                (Complement::Diagonal(diagonal), sign)
            }
        })
    }

    /// Recomputes the approximation for new values of the blocks, and returns the new sign.
    pub(super) fn refresh(&mut self, blocks: &Blocks<T>, inverse: &[T], a: &Inner<T>) -> Result<T> {
        Ok(match self {
            Complement::Diagonal(own) => {
                let (diagonal, sign) = blocks.scaled_diagonal(inverse, a)?;
                *own = diagonal;
                sign
            }
            Complement::Sparse(inner) | Complement::LeastSquares(inner) => {
                let (n, sign) = blocks.approximate_schur(inverse)?;
                inner.refresh(&n)?;
                sign
            }
            Complement::Given(_) => blocks.diagonal_of_schur(inverse)?.1,
        })
    }

    /// `second[1] ← −σ S⁻¹ second[0]`, which is `|S|⁻¹ second[0]` where `S` is negative definite (`σ = 1`).
    pub(super) fn apply(
        &self,
        blocks: &Blocks<T>,
        inverse: &[T],
        work: &mut Work<T>,
    ) -> krysp_solvers::Result<()> {
        let [r, z, t] = &mut work.second;
        match self {
            Complement::Diagonal(diagonal) => {
                z.as_mut_slice().copy_from_slice(r.as_slice());
                scale(z, diagonal);
                Ok(())
            }
            Complement::Sparse(inner) | Complement::Given(inner) => inner.apply(r, z),
            Complement::LeastSquares(inner) => {
                let [one, other] = &mut work.first;
                inner.apply(r, t)?;
                blocks.g.matrix.apply(t, one)?;
                scale(one, inverse);
                blocks.a.matrix.apply(one, other)?;
                scale(other, inverse);
                blocks.h.matrix.apply(other, t)?;
                inner.apply(t, z)
            }
        }
    }

    /// Returns whether the approximation of a symmetric matrix's Schur complement is guaranteed to be positive
    /// definite.
    pub(super) fn is_positive(&self) -> bool {
        match self {
            Complement::Diagonal(inverse) => inverse.iter().all(|&value| Element::to_f64(value) > 0.0),
            Complement::Sparse(inner) | Complement::Given(inner) | Complement::LeastSquares(inner) => {
                inner.is_positive()
            }
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Complement::Diagonal(_) => "diagonal of B D⁻¹ Bᵀ + C".into(),
            Complement::Sparse(inner) => format!("{} of B D⁻¹ Bᵀ + C", inner.name()),
            Complement::LeastSquares(inner) => {
                format!("least-squares commutator, {} of B D⁻¹ Bᵀ + C", inner.name())
            }
            Complement::Given(inner) => format!("{} of a given matrix", inner.name()),
        }
    }

    pub(super) fn rows(&self) -> usize {
        match self {
            Complement::Diagonal(inverse) => inverse.len(),
            Complement::Sparse(inner) | Complement::LeastSquares(inner) | Complement::Given(inner) => {
                inner.rows()
            }
        }
    }

    pub(super) fn bytes(&self, blocks: &Blocks<T>) -> usize {
        match self {
            Complement::Diagonal(inverse) => size_of_val(&**inverse),
            Complement::Sparse(inner) | Complement::Given(inner) => inner.bytes(),
            Complement::LeastSquares(inner) => {
                2 * inner.bytes()
                    + blocks.g.matrix.bytes()
                    + blocks.a.matrix.bytes()
                    + blocks.h.matrix.bytes()
            }
        }
    }
}

impl<T: Real> Blocks<T> {
    /// The inverse of the diagonal of `σ (H D⁻¹ G − K)`, scaled so that the mean eigenvalue of the Schur
    /// complement preconditioned by it is about one, and `σ`. The mean is estimated by the Rayleigh quotient
    /// of a pseudo-random vector.
    fn scaled_diagonal(&self, inverse: &[T], a: &Inner<T>) -> Result<(Vec<T>, T)> {
        let (mut diagonal, sign) = self.diagonal_of_schur(inverse)?;
        let Work { first: [force, moved], second: [v, s, k] } = &mut Work::new(self)?;
        let mut norm = 0.0;
        for ((at, v), &d) in (0_u64..).zip(v.as_mut_slice()).zip(&diagonal) {
            let d = Element::to_f64(d).abs();
            let number = noise(at);
            norm += number * number;
            *v = T::from_f64(number / d.sqrt());
        }
        self.g.matrix.apply(v, force)?;
        a.apply(force, moved)?;
        self.h.matrix.apply(moved, s)?;
        self.k.matrix.apply(v, k)?;
        let sum = |s: &[T]| {
            v.as_slice().iter().zip(s).map(|(&v, &s)| Element::to_f64(v) * Element::to_f64(s)).sum::<f64>()
        };
        let mean = Element::to_f64(sign) * (sum(s.as_slice()) - sum(k.as_slice())) / norm;
        let mean = if mean.is_normal() && mean > 0.0 { mean } else { 1.0 };
        diagonal.iter_mut().for_each(|d| *d = T::from_f64(1.0 / (mean * Element::to_f64(*d))));
        Ok((diagonal, sign))
    }
}

/// A pseudo-random number between −1 and 1.
fn noise(at: u64) -> f64 {
    let bits = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (bits >> 40) as f64 / f64::from(1_u32 << 23) - 1.0
}

/// Multiplies each entry of `vector` by that of `by`.
fn scale<T: Real>(vector: &mut HostVector<T>, by: &[T]) {
    over_rows(by.len(), 2, vector.as_mut_slice(), &|rows, part: &mut [T]| {
        part.iter_mut().zip(&by[rows]).for_each(|(v, &by)| *v *= by);
    });
}

saved!(impl[T: Real] enum Complement<T> {
    Diagonal { 0: inverse },
    Sparse { 0: inner },
    LeastSquares { 0: inner },
    Given { 0: inner },
});
