//! Formats in host memory: those of the library, and the conversion to the chosen one.

use super::machine::{Refresh, Stores};
use super::ranking::Values;
use super::{Choice, Formats, Host, Operator};
use crate::error::Result;
use crate::formats::{Csr, Format, MatrixSource};
use crate::host::HostVector;
use crate::numbers::Real;
use crate::saved::{FileReader, FileWriter, Loaded, Saved};
use krysp_solvers::ElemOf;

/// A matrix in some format.
pub(super) type Stored<T> = Box<dyn Refresh<HostVector<T>>>;

/// Function that converts a matrix to a format with the options of its predicted work (`Offer`).
pub(super) type Recipe<T> = Box<dyn Fn(&Csr<T>) -> Result<Stored<T>>>;

pub(super) fn recipe<T: Real, F: Format<T> + Saved + Clone + 'static>(options: F::Options) -> Recipe<T> {
    Box::new(move |csr| Ok(Box::new(F::with(csr, options.clone())?)))
}

/// The formats of the library: [`Formats::standard`].
impl<T: Real> Stores<T> for Host {
    type Vector = HostVector<T>;

    fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>) -> Result<Operator<HostVector<T>>> {
        Formats::standard().store(csr, values, format)
    }

    const KIND: &'static str = "the CPU";

    fn load(
        &self,
        from: &mut FileReader<'_>,
    ) -> Loaded<std::result::Result<Operator<HostVector<T>>, Choice>> {
        Formats::standard().load(from)
    }
}

impl<T: Real, F: Format<T> + Saved + Clone + 'static> Refresh<HostVector<T>> for F {
    fn refresh(&mut self, values: &[ElemOf<HostVector<T>>]) -> Result<()> {
        Format::refresh(self, values)
    }

    fn fill(&mut self, values: &[ElemOf<HostVector<T>>]) -> Result<()> {
        Format::fill(self, values);
        Ok(())
    }

    fn origin(&self) -> &dyn MatrixSource<T> {
        self
    }

    fn kind(&self) -> &'static str {
        <Host as Stores<T>>::KIND
    }

    fn save(&self, to: &mut FileWriter<'_>) {
        to.write(&F::NAME);
        to.write(self);
    }
}
