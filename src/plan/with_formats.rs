//! Plans for host memory with formats of other crates: preconditioners are those of [`Host`].

use super::backend::ForFactors;
use super::running::{AnyPreconditioner, Prepared};
use super::{Backend, MachineClass, Preconditioner};
use crate::choice::{Formats, Operator};
use crate::error::Result;
use crate::formats::Csr;
use crate::host::{Host, HostVector};
use crate::numbers::Real;
use crate::permutation::Permutation;
use crate::saved::{FileReader, FileWriter, Loaded};

impl<T: Real> Backend<T> for Formats<T> {
    const ON_HOST: bool = <Host as Backend<T>>::ON_HOST;

    fn class(&self) -> MachineClass {
        Backend::<T>::class(&Host)
    }

    fn has(&self, preconditioner: Preconditioner) -> bool {
        Backend::<T>::has(&Host, preconditioner)
    }

    fn ordering(&self, csr: &Csr<T>) -> Result<Permutation> {
        Host.ordering(csr)
    }

    fn preconditioner(
        &self,
        preconditioner: Preconditioner,
        csr: &Csr<T>,
        operator: &Operator<HostVector<T>>,
        factors: ForFactors<'_, T>,
    ) -> Result<AnyPreconditioner<T, HostVector<T>>> {
        Host.preconditioner(preconditioner, csr, operator, factors)
    }

    fn residual(
        csr: &Csr<T>,
        operator: &Operator<HostVector<T>>,
        b: &HostVector<T>,
        x: &HostVector<T>,
        r: &mut HostVector<T>,
    ) -> Result<()> {
        Host::residual(csr, operator, b, x, r)
    }

    fn save_preconditioner(
        preconditioner: Preconditioner,
        m: &dyn Prepared<T, HostVector<T>>,
        to: &mut FileWriter<'_>,
    ) -> bool {
        Host::save_preconditioner(preconditioner, m, to)
    }

    fn load_preconditioner(
        preconditioner: Preconditioner,
        from: &mut FileReader<'_>,
    ) -> Loaded<AnyPreconditioner<T, HostVector<T>>> {
        Host::load_preconditioner(preconditioner, from)
    }
}
