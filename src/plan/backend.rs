//! Operations that a plan requires of a machine.

use super::declarations::Declarations;
use super::matched::{Begins, Matched};
#[cfg(feature = "cuda")]
use super::on_gpu::HostPreconditioner;
use super::running::{AnyPreconditioner, Prepared, WithNullSpace};
use super::{MachineClass, Preconditioner};
use crate::choice::{Formats, Machine, Operator};
#[cfg(feature = "cuda")]
use crate::device::Cuda;
use crate::error::{Error, Result};
#[cfg(feature = "cuda")]
use crate::formats::Halo;
use crate::formats::{Csr, Format};
use crate::host::{Host, HostSpace, HostVector};
use crate::numbers::Real;
use crate::permutation::Permutation;
#[cfg(feature = "cuda")]
use crate::preconditioners::CuDss;
use crate::preconditioners::{
    Amg, Cholesky, FactorReport, Fsai, Ic0, Ilu0, Ldl, Lu, PositiveJacobi, SaddlePoint, SinglePrecision,
    Spai, Symbolic, TwoLevel,
};
use crate::saved::{FileReader, FileWriter, InconsistentData, Loaded};
use krysp_solvers::{Identity, LinearOperator, Vector};
use std::any::Any;

/// Inputs for building a preconditioner, most of them for factorizations.
#[derive(Debug)]
pub struct ForFactors<'b, T: Real> {
    /// The symbolic factorization for `Cholesky`, if it has been computed.
    pub(super) ordered: Option<Result<Symbolic>>,
    /// Multiplications after which `Lu` is suspended, and `Ilut` refused, and of which `Ldl` may be expected to take at most.
    pub(super) most: f64,
    /// States whether there is no other candidate to switch to.
    pub(super) is_alone: bool,
    /// Elimination ordering, matching and suspended factorization, which later attempts reuse.
    pub(super) begins: &'b mut Begins<T>,
    /// Whether `Amg` smooths its finest prolongator, if no near-null space is declared.
    pub(super) smooth_finest: bool,
    /// Vectors, coordinates and fields that the user has declared.
    pub(super) known: &'b Declarations,
}

/// A machine that plans are made for: [`Host`], [`Formats`](crate::choice::Formats), or a GPU.
pub trait Backend<T: Real>: Machine<T> + Clone {
    /// The class of the machine, on which costs depend.
    #[doc(hidden)]
    fn class(&self) -> MachineClass;

    /// Whether a preconditioner is a candidate here without being requested.
    #[doc(hidden)]
    fn has(&self, preconditioner: Preconditioner) -> bool;

    /// The ordering in which products are expected to be fast here.
    #[doc(hidden)]
    fn ordering(&self, csr: &Csr<T>) -> Result<Permutation>;

    /// Builds a preconditioner of a matrix, in the space of an operator made from it.
    #[doc(hidden)]
    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<Self::Vector>,
        factors: ForFactors<'_, T>,
    ) -> Result<AnyPreconditioner<T, Self::Vector>>;

    /// Computes `r ← b − A x` in twice the precision. The operator was made from the matrix.
    #[doc(hidden)]
    fn residual(
        _: &Csr<T>,
        operator: &Operator<Self::Vector>,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
    ) -> Result<()> {
        Ok(operator.residual(b, x, r)?)
    }

    /// Writes `true` and a preconditioner; or returns `false`, and writes nothing, if it is to be rebuilt after loading.
    #[doc(hidden)]
    fn save_preconditioner(_: &dyn Prepared<T, Self::Vector>, _: &mut FileWriter<'_>) -> bool {
        false
    }

    /// Reads a preconditioner that [`Backend::save_preconditioner`] wrote.
    #[doc(hidden)]
    fn load_preconditioner(
        _: Preconditioner,
        _: &mut FileReader<'_>,
    ) -> Loaded<AnyPreconditioner<T, Self::Vector>> {
        Err(InconsistentData)
    }
}

/// Report of a complete factorization of the host; `None` for any other preconditioner.
pub(super) fn factor_report<T: Real, V: Vector<Elem = T> + 'static>(
    m: &dyn Prepared<T, V>,
) -> Option<FactorReport> {
    let any: &dyn Any = m;
    if let Some(deflated) = any.downcast_ref::<WithNullSpace<T, V>>() {
        return factor_report(&**deflated.inner());
    }
    #[cfg(feature = "cuda")]
    if let Some(on_host) = any.downcast_ref::<HostPreconditioner<T>>() {
        return factor_report(on_host.inner());
    }
    FactorReport::of::<T>(any)
}

/// Writes `true` and a preconditioner by calling `write`, if the preconditioner is of type `M`.
fn put<M: Any, T: Real, V: Vector<Elem = T>>(
    m: &dyn Prepared<T, V>,
    to: &mut FileWriter<'_>,
    write: impl FnOnce(&M, &mut FileWriter<'_>),
) -> bool {
    let Some(m) = (m as &dyn Any).downcast_ref() else { return false };
    to.write(&true);
    write(m, to);
    true
}

/// Incomplete Cholesky, in single precision if all entries are well within its range: that is faster, and costs hardly any iterations.
fn incomplete_cholesky<T: Real>(csr: &Csr<T>) -> Result<AnyPreconditioner<T, HostVector<T>>> {
    let within = |&value: &f64| value == 0.0 || (1e-15..1e15).contains(&value.abs());
    let double = (csr as &dyn Any).downcast_ref::<Csr<f64>>();
    if let Some(double) = double.filter(|csr| csr.values().iter().all(within)) {
        // double precision may need no shift where single precision does
        let narrow = Ic0::shifted(&double.cast::<f32>())?;
        if narrow.shift() == 0.0
            && let Some(made) = in_double(SinglePrecision::new(narrow)?)
        {
            return Ok(made);
        }
    }
    Ok(Box::new(Ic0::shifted(csr)?))
}

/// The preconditioner for vectors of `T`, if `T` is double precision.
fn in_double<T: Real>(narrow: SinglePrecision<Ic0<f32>>) -> Option<AnyPreconditioner<T, HostVector<T>>> {
    let made: AnyPreconditioner<f64, HostVector<f64>> = Box::new(narrow);
    (Box::new(made) as Box<dyn Any>).downcast().ok().map(|made| *made)
}

/// A preconditioner in host memory.
fn in_host_memory<T: Real>(
    preconditioner: Preconditioner,
    csr: &Csr<T>,
    space: &HostSpace<T>,
    factors: ForFactors<'_, T>,
) -> Result<AnyPreconditioner<T, HostVector<T>>> {
    Ok(match preconditioner {
        Preconditioner::None => Box::new(Identity::new(space)),
        Preconditioner::Jacobi => Box::new(PositiveJacobi::new(csr, space)?),
        Preconditioner::TwoLevel => Box::new(TwoLevel::new(csr)?),
        Preconditioner::Amg => Box::new(factors.known.amg(csr, factors.smooth_finest)?),
        Preconditioner::Fsai => Box::new(Fsai::new(csr)?),
        Preconditioner::Spai => Box::new(Spai::new(csr)?),
        Preconditioner::SaddlePoint => Box::new(factors.known.saddle_point(csr)?),
        Preconditioner::Ic0 => incomplete_cholesky(csr)?,
        Preconditioner::Ilu0 => Box::new(Ilu0::new(csr)?),
        Preconditioner::Ilut => Box::new(factors.begins.ilut(csr, factors.most)?),
        Preconditioner::Cholesky => Box::new(match factors.ordered {
            Some(symbolic) => Cholesky::from_symbolic(csr, symbolic?)?,
            None => Cholesky::new(csr)?,
        }),
        Preconditioner::Ldl if factors.is_alone => Box::new(Ldl::new(csr)?),
        Preconditioner::Ldl => Box::new(factors.begins.ldl(csr, factors.most)?),
        Preconditioner::Lu => Box::new(factors.begins.lu(csr, factors.most)?),
        Preconditioner::CuDss => {
            let expected = "CuDss factorizes on a GPU, so the device must be a GPU";
            return Err(Error::Option {
                what: "the preconditioner",
                got: preconditioner.to_string(),
                expected,
            });
        }
    })
}

/// Marks machines whose iterations run in host memory.
#[doc(hidden)]
pub trait OnHost {}
impl OnHost for Host {}
impl<T: Real> OnHost for Formats<T> {}

impl<T: Real, M: OnHost + Machine<T, Vector = HostVector<T>> + Clone> Backend<T> for M {
    fn class(&self) -> MachineClass {
        MachineClass::Host { threads: rayon::current_num_threads() }
    }

    fn has(&self, preconditioner: Preconditioner) -> bool {
        preconditioner != Preconditioner::CuDss
    }

    fn ordering(&self, csr: &Csr<T>) -> Result<Permutation> {
        Permutation::rcm(csr)
    }

    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<HostVector<T>>,
        factors: ForFactors<'_, T>,
    ) -> Result<AnyPreconditioner<T, HostVector<T>>> {
        in_host_memory(preconditioner, csr, operator.domain(), factors)
    }

    /// Uses the CSR matrix, because other formats would first gather the entries from their slots.
    fn residual(
        csr: &Csr<T>,
        _: &Operator<HostVector<T>>,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> Result<()> {
        Ok(csr.residual(b, x, r)?)
    }

    fn save_preconditioner(m: &dyn Prepared<T, HostVector<T>>, to: &mut FileWriter<'_>) -> bool {
        if let Some(deflated) = (m as &dyn Any).downcast_ref::<WithNullSpace<T, HostVector<T>>>() {
            return <M as Backend<T>>::save_preconditioner(&**deflated.inner(), to);
        }
        put(m, to, |m: &PositiveJacobi<T, HostVector<T>>, to| to.write(m))
            || put(m, to, |m: &Amg<T>, to| to.write(m))
            || put(m, to, |m: &Fsai<T>, to| to.write(m))
            || put(m, to, |m: &Spai<T>, to| to.write(m))
            || put(m, to, |m: &Ic0<T>, to| {
                to.write(&false);
                to.write(m);
            })
            || put(m, to, |m: &SinglePrecision<Ic0<f32>>, to| {
                to.write(&true);
                to.write(m.inner());
            })
            || put(m, to, |m: &Ilu0<T>, to| to.write(m))
            || put(m, to, Matched::<T>::save)
            || put(m, to, |m: &Cholesky<T>, to| to.write(m))
            || put(m, to, |m: &SaddlePoint<T>, to| to.write(m))
            || put(m, to, |m: &Ldl<T>, to| to.write(m))
            || put(m, to, |m: &Lu<T>, to| to.write(m))
    }

    fn load_preconditioner(
        preconditioner: Preconditioner,
        from: &mut FileReader<'_>,
    ) -> Loaded<AnyPreconditioner<T, HostVector<T>>> {
        Ok(match preconditioner {
            Preconditioner::None | Preconditioner::TwoLevel | Preconditioner::CuDss => {
                return Err(InconsistentData);
            }
            Preconditioner::Jacobi => Box::new(from.read::<PositiveJacobi<T, HostVector<T>>>()?),
            Preconditioner::Amg => Box::new(from.read::<Amg<T>>()?),
            Preconditioner::Fsai => Box::new(from.read::<Fsai<T>>()?),
            Preconditioner::Spai => Box::new(from.read::<Spai<T>>()?),
            Preconditioner::Ic0 if from.read()? => {
                let narrow = SinglePrecision::new(from.read::<Ic0<f32>>()?).map_err(|_| InconsistentData)?;
                in_double(narrow).ok_or(InconsistentData)?
            }
            Preconditioner::Ic0 => Box::new(from.read::<Ic0<T>>()?),
            Preconditioner::Ilu0 => Box::new(from.read::<Ilu0<T>>()?),
            Preconditioner::Ilut => Box::new(Matched::<T>::load(from)?),
            Preconditioner::Cholesky => Box::new(from.read::<Cholesky<T>>()?),
            Preconditioner::SaddlePoint => Box::new(from.read::<SaddlePoint<T>>()?),
            Preconditioner::Ldl => Box::new(from.read::<Ldl<T>>()?),
            Preconditioner::Lu => Box::new(from.read::<Lu<T>>()?),
        })
    }
}

#[cfg(feature = "cuda")]
impl<T: Real> Backend<T> for Cuda {
    fn class(&self) -> MachineClass {
        MachineClass::Gpu { threads: rayon::current_num_threads() }
    }

    /// All but `Ic0` and `Ilu0`, for which approximate inverses are faster here, and `CuDss` only if `cudss_is_found`.
    fn has(&self, preconditioner: Preconditioner) -> bool {
        match preconditioner {
            Preconditioner::Ic0 | Preconditioner::Ilu0 => false,
            Preconditioner::CuDss => krysp_kernels::cuda::preconditioners::cudss::cudss_is_found(),
            _ => true,
        }
    }

    fn ordering(&self, csr: &Csr<T>) -> Result<Permutation> {
        Permutation::clustered_on(self, csr, Halo::rows_per_block(self, csr))
    }

    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<Self::Vector>,
        factors: ForFactors<'_, T>,
    ) -> Result<AnyPreconditioner<T, Self::Vector>> {
        let space = operator.domain();
        Ok(match preconditioner {
            Preconditioner::None => Box::new(Identity::new(space)),
            Preconditioner::Jacobi => Box::new(PositiveJacobi::new(csr, space)?),
            Preconditioner::TwoLevel => Box::new(TwoLevel::on(self, csr)?),
            // from the operator, whose values are on the GPU already
            Preconditioner::Amg => {
                Box::new(factors.known.amg_on(self, csr, operator, factors.smooth_finest)?)
            }
            Preconditioner::Fsai => Box::new(Fsai::on(self, csr)?),
            Preconditioner::Spai => Box::new(Spai::on(self, csr)?),
            Preconditioner::CuDss => Box::new(CuDss::new(self, csr)?),
            other => {
                let by_host = in_host_memory(other, csr, space.host(), factors)?;
                Box::new(HostPreconditioner::new(by_host, space)?)
            }
        })
    }
}

/// The matrix in the requested format, or in the format of the least estimated cost.
pub(super) fn operator<T: Real, M: Backend<T>>(
    machine: &M,
    matrix: &Csr<T>,
    symmetric: bool,
    format: Option<&str>,
) -> Result<Operator<M::Vector>> {
    match (format, symmetric) {
        (Some(format), _) => Operator::in_format(matrix, machine, format),
        (None, true) => {
            Operator::known(matrix, machine, true, None).or_else(|_| Operator::auto(matrix, machine))
        }
        (None, false) => Operator::auto(matrix, machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::matrices;

    #[test]
    fn the_residual_of_the_matrix_is_that_of_its_formats() {
        let csr = matrices::stencil7(6).csr::<f64>().unwrap();
        let space = csr.domain();
        let [b, x] = [0.37, 0.11].map(|step| {
            space.vector(&(0..csr.rows()).map(|i| (i as f64 * step).sin()).collect::<Vec<_>>()).unwrap()
        });
        for format in ["CSR", "SELL-P", "symmetric CSR", "DIA"] {
            let operator = Operator::in_format(&csr, &Host, format).unwrap();
            let [mut own, mut other] = [(); 2].map(|()| krysp_solvers::Space::zeros(space).unwrap());
            <Host as Backend<f64>>::residual(&csr, &operator, &b, &x, &mut own).unwrap();
            operator.residual(&b, &x, &mut other).unwrap();
            assert_eq!(own.as_slice(), other.as_slice(), "{format}");
        }
    }
}
