//! Estimates for formats in host memory, and the conversion to the chosen one.

use super::machine::{Refresh, Stores};
use super::ranking::{Ranking, Values};
use super::{Choice, Host, Model, Operator};
use crate::error::Result;
use crate::formats::{Analysis, Csr, Format, MatrixSource};
use crate::host::HostVector;
use crate::memory::free_for;
use crate::numbers::Real;
use crate::saved::{FileReader, FileWriter, InconsistentData, Loaded, Saved};
use krysp_solvers::ElemOf;

/// Function that converts a matrix to a format with the options of its predicted work (`Offer`).
pub(super) type Recipe<T> = Box<dyn Fn(&Csr<T>) -> Result<Box<dyn Refresh<HostVector<T>>>>>;

/// The ranking of all formats, or of the named one, for a matrix.
pub(super) fn ranking<T: Real>(csr: &Csr<T>, values: Values, format: Option<&str>) -> Ranking<Recipe<T>> {
    let matrix = Analysis::new(csr, Model::Host);
    let mut ranking = Ranking::new(matrix.rows, values, format);
    macro_rules! query {
        ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
            $(ranking.query::<T, crate::formats::$format<T>>(&matrix, recipe::<T, crate::formats::$format<T>>);)*
        };
    }
    crate::formats::each_format!(query);
    ranking
}

fn recipe<T: Real, F: Format<T> + Saved + Clone + 'static>(options: F::Options) -> Recipe<T> {
    Box::new(move |csr| Ok(Box::new(F::with(csr, options.clone())?)))
}

impl<T: Real> Stores<T> for Host {
    type Vector = HostVector<T>;

    fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>) -> Result<Operator<HostVector<T>>> {
        let ranking = ranking(csr, values, format).only(format)?;
        let free = free_for(ranking.max_bytes());
        let (matrix, choice) = ranking.fitting(free)?.convert(|recipe| recipe(csr))?;
        Ok(Operator { matrix, choice })
    }

    const KIND: &'static str = "the CPU";

    fn load(from: &mut FileReader<'_>) -> Loaded<std::result::Result<Operator<HostVector<T>>, Choice>> {
        let (choice, name): (Choice, String) = (from.read()?, from.read()?);
        macro_rules! named {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                match name.as_str() {
                    $(<crate::formats::$format<T> as Format<T>>::NAME => Box::new(from.read::<crate::formats::$format<T>>()?),)*
                    _ => return Err(InconsistentData),
                }
            };
        }
        let matrix: Box<dyn Refresh<HostVector<T>>> = crate::formats::each_format!(named);
        Ok(Ok(Operator { matrix, choice }))
    }
}

impl<T: Real, F: Format<T> + Saved + Clone + 'static> Refresh<HostVector<T>> for F {
    fn refresh(&mut self, values: &[ElemOf<HostVector<T>>]) -> Result<()> {
        Format::refresh(self, values)
    }

    fn origin(&self) -> &dyn MatrixSource<T> {
        self
    }

    fn kind(&self) -> &'static str {
        <Host as Stores<T>>::KIND
    }

    fn save(&self, to: &mut FileWriter<'_>) {
        to.write(&F::NAME.to_owned());
        to.write(self);
    }
}
