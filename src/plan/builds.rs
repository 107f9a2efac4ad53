//! What a plan asks of a machine.

use super::Preconditioner;
use super::magnitudes::Magnitudes;
use super::matched::Matched;
use super::rung::AnyPreconditioner;
use crate::choice::Machine;
use crate::preconditioners::Symbolic;
use crate::{
    Amg, Cholesky, Csr, Fsai, Host, Ic0, Ilu0, Ilut, LinearOperator, Lu, Numbering, Operator, Real, Result,
    Spai, TwoLevel,
};
#[cfg(feature = "cuda")]
use crate::{Cuda, Error, Halo};
use krysp_solvers::Identity;

/// What factors without gaps are built with.
#[derive(Debug)]
pub struct ForDirect {
    /// The order of `Cholesky`, if it has been found.
    pub(super) ordered: Option<Result<Symbolic>>,
    /// The most multiplications of `Lu`.
    pub(super) most: f64,
}

/// A machine that plans are made for: [`Host`], or a GPU.
pub trait Builds<T: Real>: Machine<T> + Clone {
    /// Whether the host sees each iteration at no cost, and may ask after each whether to go on.
    #[doc(hidden)]
    const WATCHED: bool;

    /// Whether a preconditioner exists here.
    #[doc(hidden)]
    fn has(&self, preconditioner: Preconditioner) -> bool;

    /// The numbering in which products are likely to be fast here.
    #[doc(hidden)]
    fn numbering(&self, csr: &Csr<T>) -> Result<Numbering>;

    /// Builds one of a matrix, in the space of an operator made from it.
    #[doc(hidden)]
    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<Self::Vector>,
        direct: ForDirect,
    ) -> Result<AnyPreconditioner<T, Self::Vector>>;
}

impl<T: Real> Builds<T> for Host {
    const WATCHED: bool = true;

    fn has(&self, _: Preconditioner) -> bool {
        true
    }

    fn numbering(&self, csr: &Csr<T>) -> Result<Numbering> {
        Numbering::rcm(csr)
    }

    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<Self::Vector>,
        direct: ForDirect,
    ) -> Result<AnyPreconditioner<T, Self::Vector>> {
        Ok(match preconditioner {
            Preconditioner::None => Box::new(Identity::new(operator.domain())),
            Preconditioner::Jacobi => Box::new(Magnitudes::new(csr, operator.domain())?),
            Preconditioner::TwoLevel => Box::new(TwoLevel::new(csr)?),
            Preconditioner::Amg => Box::new(Amg::new(csr)?),
            Preconditioner::Fsai => Box::new(Fsai::new(csr)?),
            Preconditioner::Spai => Box::new(Spai::new(csr)?),
            Preconditioner::Ic0 => Box::new(Ic0::shifted(csr)?),
            Preconditioner::Ilu0 => Box::new(Ilu0::new(csr)?),
            Preconditioner::Ilut => Box::new(Matched::new(csr, Ilut::new)?),
            Preconditioner::Cholesky => Box::new(match direct.ordered {
                Some(symbolic) => Cholesky::from_symbolic(csr, symbolic?)?,
                None => Cholesky::new(csr)?,
            }),
            Preconditioner::Lu => Box::new(Matched::new(csr, move |csr| Lu::tolerant(csr, direct.most))?),
        })
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> Builds<T> for Cuda {
    const WATCHED: bool = false;

    fn has(&self, preconditioner: Preconditioner) -> bool {
        use Preconditioner::{Amg, Fsai, Jacobi, None, Spai, TwoLevel};
        matches!(preconditioner, None | Jacobi | TwoLevel | Amg | Fsai | Spai)
    }

    fn numbering(&self, csr: &Csr<T>) -> Result<Numbering> {
        Numbering::clustered_on(self, csr, Halo::rows_per_block(self, csr))
    }

    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<Self::Vector>,
        _: ForDirect,
    ) -> Result<AnyPreconditioner<T, Self::Vector>> {
        Ok(match preconditioner {
            Preconditioner::None => Box::new(Identity::new(operator.domain())),
            Preconditioner::Jacobi => Box::new(Magnitudes::new(csr, operator.domain())?),
            Preconditioner::TwoLevel => Box::new(TwoLevel::on(self, csr)?),
            Preconditioner::Amg => Box::new(Amg::on(self, csr)?),
            Preconditioner::Fsai => Box::new(Fsai::on(self, csr)?),
            Preconditioner::Spai => Box::new(Spai::on(self, csr)?),
            other => {
                return Err(Error::Option {
                    what: "the preconditioner",
                    got: other.to_string(),
                    expected: "one that runs on a GPU: none, Jacobi, TwoLevel, Amg, Fsai or Spai",
                });
            }
        })
    }
}
