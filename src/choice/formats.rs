//! The formats that may be chosen in host memory: those of the library, and those of other crates.

use super::host::{Recipe, Stored, recipe};
use super::machine::Stores;
use super::ranking::{Ranking, Values};
use super::{Choice, Host, Machine, Model, Operator};
use crate::error::{Error, Result};
use crate::formats::{Analysis, Csr, Offered, Variant, keeps_to_chunks};
use crate::host::HostVector;
use crate::memory::free_for;
use crate::numbers::Real;
use crate::saved::{FileReader, InconsistentData, Loaded, Saved};
use crate::spelling::same_name;
use std::fmt;

/// Host memory with the formats that may be chosen there: those of krysp, and those of other crates. It can be
/// passed in place of [`Host`](crate::Host) wherever a machine is expected.
///
/// ```
/// use krysp::choice::Formats;
/// use krysp::{Operator, Plan, gallery};
///
/// let formats = Formats::standard(); // then `.with::<Yours<f64>>()?`
/// let csr = gallery::poisson::<f64>(&[20, 20])?;
/// println!("{}", Operator::auto(&csr, &formats)?.choice());
/// let mut solver = Plan::new(&csr)?.on(&formats).build()?;
/// assert!(solver.solve(&vec![1.0; csr.rows()])?.converged());
/// # Ok::<(), krysp::Error>(())
/// ```
///
/// A file that was saved with formats of another crate is loaded with the same ones.
#[derive(Clone)]
pub struct Formats<T: Real> {
    known: Vec<Known<T>>,
}

/// Functions of a format, for a list of different formats.
#[derive(Clone, Copy)]
struct Known<T: Real> {
    name: &'static str,
    variants: fn() -> Vec<Variant>,
    query: fn(&mut Ranking<Recipe<T>>, &Analysis<'_, T>),
    load: fn(&mut FileReader<'_>) -> Loaded<Stored<T>>,
}

impl<T: Real> Known<T> {
    fn of<F: Offered<T> + Saved + Clone + 'static>() -> Known<T> {
        Known {
            name: F::NAME,
            variants: F::variants,
            query: |ranking, matrix| ranking.query::<T, F>(matrix, recipe::<T, F>),
            load: |from| match from.read::<F>()? {
                matrix if keeps_to_chunks(&matrix) => Ok(Box::new(matrix)),
                _ => Err(InconsistentData),
            },
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain((self.variants)().into_iter().map(|variant| variant.name))
    }
}

impl<T: Real> Formats<T> {
    /// The formats of krysp, which [`Host`](crate::Host) has.
    pub fn standard() -> Formats<T> {
        macro_rules! list {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                vec![$(Known::of::<crate::formats::$format<T>>()),*]
            };
        }
        Formats { known: crate::formats::each_format!(list) }
    }

    /// Adds a format, which is queried after the others: of two formats with the same estimated cost, the one that
    /// was added first is chosen. Returns an error if another format has one of its names, in any spelling.
    pub fn with<F: Offered<T> + Saved + Clone + 'static>(mut self) -> Result<Formats<T>> {
        let added = Known::of::<F>();
        let taken = |name: &&str| self.names().iter().any(|known| same_name(known, name));
        if let Some(name) = added.names().find(taken) {
            return Err(Error::Option {
                what: "the name of a format",
                got: name.into(),
                expected: "one that no other format has",
            });
        }
        self.known.push(added);
        Ok(self)
    }

    /// The names of all formats and of their variants.
    pub fn names(&self) -> Vec<&'static str> {
        self.known.iter().flat_map(Known::names).collect()
    }

    /// The variants of all formats.
    pub(super) fn variants(&self) -> Vec<Variant> {
        self.known.iter().flat_map(|format| (format.variants)()).collect()
    }

    /// The ranking of all formats, or of the named one, for a matrix.
    pub(super) fn ranking(&self, csr: &Csr<T>, values: Values, format: Option<&str>) -> Ranking<Recipe<T>> {
        let matrix = Analysis::new(csr, Model::Host);
        let mut ranking = Ranking::new(matrix.rows, values, format);
        self.known.iter().for_each(|known| (known.query)(&mut ranking, &matrix));
        ranking
    }
}

/// Prints the names.
impl<T: Real> fmt::Debug for Formats<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Formats").field(&self.names()).finish()
    }
}

impl<T: Real> Machine<T> for Formats<T> {}

impl<T: Real> Stores<T> for Formats<T> {
    type Vector = HostVector<T>;

    fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>) -> Result<Operator<HostVector<T>>> {
        let ranking = self.ranking(csr, values, format).only(format)?;
        let free = free_for(ranking.max_bytes());
        let (matrix, choice) = ranking.fitting(free)?.convert(|recipe| recipe(csr))?;
        Ok(Operator { matrix, choice })
    }

    const KIND: &'static str = <Host as Stores<T>>::KIND;

    fn load(
        &self,
        from: &mut FileReader<'_>,
    ) -> Loaded<std::result::Result<Operator<HostVector<T>>, Choice>> {
        from.knows_names(self.names());
        let (choice, name): (Choice, &'static str) = (from.read()?, from.read()?);
        let format = self.known.iter().find(|format| format.name == name).ok_or(InconsistentData)?;
        Ok(Ok(Operator { matrix: (format.load)(from)?, choice }))
    }
}
