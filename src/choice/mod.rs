//! Automatic choice of the format for a matrix on a machine, with a report of the reasons.
//!
//! ```
//! use krysp::{Cg, Csr, Host, Operator};
//!
//! // −u″ on a thousand points
//! let inside = |i: usize| (0..2).map(move |k| (i + k, i + 1 - k, -1.0));
//! let entries: Vec<_> = (0..1000).map(|i| (i, i, 2.0)).chain((0..999).flat_map(inside)).collect();
//! let csr = Csr::from_triplets(1000, 1000, &entries)?;
//!
//! let a = Operator::auto(&csr, &Host)?;
//! println!("{}", a.choice());
//! assert_eq!(a.choice().stored().to_string(), "DIA, 3 diagonals");
//! assert!(Cg::new(&a).solve(&[1.0; 1000])?.report.converged());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The format with the lowest estimated cost of a matrix-vector product is chosen. The cost is the scalar
//! product of the [`ProductWork`] of a product (bytes, gathers, rows, waits) and the [`CostModel`] of the
//! format on this kind of machine, plus a constant. Cost models are fitted to half of the matrices of the
//! committed measurements (`benches/record`) and validated on the other half (`benches/judge/main.rs`). Each
//! format defines its cost model and estimates its work in its own file in `src/formats`; formats of other crates are
//! added to [`Formats`]. The estimates need only row lengths, diagonals, blocks and column spans, so that the matrix
//! is converted to the chosen format only, and [`Choice::of`] works for machines that are not available.

mod border;
mod calibrate;
mod calibrated;
mod candidate;
mod formats;
#[cfg(feature = "cuda")]
mod gpu;
mod host;
mod matrix_source;
mod model;
mod predicted;
mod ranking;
mod saved;

pub(crate) use border::HostBorder;
pub(crate) use calibrated::{Key, key as calibration_key, path as calibration_file};

pub use crate::formats::analysis::{Model, RowStatistics};
pub use crate::host::Host;
pub use calibrate::{Calibration, calibrate};
pub(crate) use candidate::share_of_joint;
pub use candidate::{Candidate, Choice, Estimate, StoredFormat};
pub use formats::Formats;
pub use krysp_kernels::cost::{CostModel, ProductWork};

#[cfg(feature = "cuda")]
use crate::device::Cuda;
use crate::error::Result;
use crate::formats::{Csr, MatrixSource, check_symmetric};
use crate::numbers::Real;
use crate::saved::FileWriter;
use krysp_solvers::{ElemOf, LinearOperator, Vector, Wrapper};
use machine::Refresh;
pub(crate) use machine::Stores;
use ranking::Values;
use std::borrow::Cow;

/// A matrix in the format with the lowest estimated cost on a machine.
///
/// Every method is forwarded to that format. Values can be replaced for the same pattern
/// ([`Operator::refresh`]).
pub struct Operator<V: Vector> {
    matrix: Box<dyn Refresh<V>>,
    choice: Choice,
}

impl<V: Vector> Operator<V> {
    /// Converts a matrix to the format that is expected to be fastest on a machine: `&Host`, the CPU with the
    /// threads of this program, `&Formats`, the same with formats of other crates, or a `&Cuda`, a GPU.
    pub fn auto<T: Real, M: Machine<T, Vector = V>>(csr: &Csr<T>, machine: &M) -> Result<Operator<V>> {
        machine.store(csr, Values::Any, None)
    }

    /// Converts a matrix to the named format. The name is that of the type, such as `"Sell"` or `"SymBsr"`,
    /// or the one that [`Choice`] prints, such as `"SELL-P"` or `"symmetric BSR"`; case, blanks and
    /// punctuation are ignored. A symmetric format needs a matrix that is symmetric and remains so, as for
    /// [`Operator::symmetric`].
    pub fn in_format<T: Real, M: Machine<T, Vector = V>>(
        csr: &Csr<T>,
        machine: &M,
        name: &str,
    ) -> Result<Operator<V>> {
        Operator::known(csr, machine, check_symmetric(csr).is_ok(), Some(name))
    }

    /// [`Operator::auto`] for a matrix that is symmetric and remains so: symmetric formats, which store and
    /// read one triangle only, may be chosen as well. Returns an error if the matrix is not symmetric.
    ///
    /// New values must be symmetric, too. This is not checked: for unsymmetric values, a product may use one
    /// triangle and its mirror image. For products with several vectors prefer [`Operator::auto`]: symmetric
    /// formats multiply one vector after the other, most others read the matrix once for all of them.
    ///
    /// ```
    /// use krysp::{Csr, Host, Operator};
    ///
    /// let csr = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 2.0)])?;
    /// println!("{}", Operator::symmetric(&csr, &Host)?.choice());
    ///
    /// let upper = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, -1.0), (1, 1, 2.0)])?;
    /// assert!(Operator::symmetric(&upper, &Host).is_err());
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn symmetric<T: Real, M: Machine<T, Vector = V>>(csr: &Csr<T>, machine: &M) -> Result<Operator<V>> {
        check_symmetric(csr)?;
        Operator::known(csr, machine, true, None)
    }

    /// Converts a matrix to the named format, or to the one with the lowest cost, among all formats if
    /// `symmetric` is true. Symmetric formats check the symmetry again.
    pub(crate) fn known<T: Real, M: Machine<T, Vector = V>>(
        csr: &Csr<T>,
        machine: &M,
        symmetric: bool,
        format: Option<&str>,
    ) -> Result<Operator<V>> {
        machine.store(csr, if symmetric { Values::Symmetric } else { Values::Any }, format)
    }

    /// The chosen format, and the reasons against all others.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Replaces the values for the same pattern and format, in the order of [`Csr::entries`] of the matrix
    /// that was converted, as [`Format::refresh`](crate::Format::refresh) does.
    pub fn refresh(&mut self, values: &[ElemOf<V>]) -> Result<()> {
        self.matrix.refresh(values)
    }

    /// Like [`Operator::refresh`], for values that the caller has checked.
    pub(crate) fn fill(&mut self, values: &[ElemOf<V>]) -> Result<()> {
        self.matrix.fill(values)
    }

    /// Replaces the values by those of a matrix with the same pattern, as
    /// [`Format::refresh_from`](crate::Format::refresh_from) does.
    pub fn refresh_from(&mut self, a: &Csr<ElemOf<V>>) -> Result<()>
    where
        ElemOf<V>: Real,
    {
        let entries = self.matrix.origin().structure().entries_of(a)?;
        self.matrix.refresh(&entries)
    }

    /// Converts assembled values to entries, as [`Csr::assemble`] of the original matrix does.
    pub fn assemble<'v>(&self, values: &'v [ElemOf<V>]) -> Result<Cow<'v, [ElemOf<V>]>>
    where
        ElemOf<V>: Real,
    {
        self.matrix.origin().structure().assemble(values)
    }

    /// Writes the choice and, for host memory, the arrays.
    pub(crate) fn write(&self, to: &mut FileWriter<'_>) {
        to.write(&self.choice);
        self.matrix.save(to);
    }

    /// The matrix, for preconditioners.
    pub(crate) fn origin(&self) -> &dyn MatrixSource<ElemOf<V>>
    where
        ElemOf<V>: Real,
    {
        self.matrix.origin()
    }
}

impl<V: Vector> std::fmt::Debug for Operator<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("choice", &self.choice).finish_non_exhaustive()
    }
}

/// Returns whether two names, of a type or as printed, denote the same format. Case, blanks and punctuation are
/// ignored, as in [`Operator::in_format`].
///
/// ```
/// use krysp::choice::is_format;
///
/// assert!(is_format("SymBsr", "symmetric BSR") && is_format("sell", "SELL-P"));
/// assert!(!is_format("Bsr", "SymBsr"));
/// ```
pub fn is_format(one: &str, other: &str) -> bool {
    crate::spelling::same_name(one, other)
}

/// A machine whose memory can store a matrix: [`Host`]; [`Formats`], the same with formats of other crates; or a
/// GPU. Only this library implements it.
pub trait Machine<T: Real>: Stores<T> {}

impl<T: Real> Machine<T> for Host {}
#[cfg(feature = "cuda")]
impl<T: Real> Machine<T> for Cuda {}

mod machine {
    use super::{Choice, Operator, Values};
    use crate::error::Result;
    use crate::formats::{Csr, MatrixSource};
    use crate::numbers::Real;
    use crate::saved::{FileReader, FileWriter, Loaded};
    use krysp_solvers::{ElemOf, LinearOperator, Vector};

    /// Operations that the choice of a format needs on an available machine.
    pub trait Stores<T: Real> {
        /// Vectors in the memory of the machine.
        type Vector: Vector<Elem = T> + 'static;

        /// Converts a matrix to the format with the lowest cost, or to the named one.
        fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>)
        -> Result<Operator<Self::Vector>>;

        /// Name of the kind of machine, for the keys of a saved file.
        const KIND: &'static str;

        /// Reads the data that [`Operator::write`] wrote: the operator, or the choice if arrays were not
        /// written.
        fn load(
            &self,
            from: &mut FileReader<'_>,
        ) -> Loaded<std::result::Result<Operator<Self::Vector>, Choice>>;
    }

    /// An operator whose values can be replaced for the same pattern.
    pub(super) trait Refresh<V: Vector>: LinearOperator<Vector = V> {
        /// Replaces the values, given in the order of the entries.
        fn refresh(&mut self, values: &[ElemOf<V>]) -> Result<()>;

        /// Replaces the values without checking them: there must be one finite value for each entry.
        fn fill(&mut self, values: &[ElemOf<V>]) -> Result<()>;

        /// The matrix, for preconditioners.
        fn origin(&self) -> &dyn MatrixSource<ElemOf<V>>
        where
            ElemOf<V>: Real;

        /// [`Stores::KIND`] of the machine.
        fn kind(&self) -> &'static str;

        /// Writes the arrays, unless rebuilding them is as fast as reading them.
        fn save(&self, to: &mut FileWriter<'_>);
    }
}

impl<V: Vector> Wrapper for Operator<V> {
    type Inner = dyn LinearOperator<Vector = V>;

    fn inner(&self) -> &Self::Inner {
        &*self.matrix
    }
}

#[cfg(test)]
mod tests {
    use super::is_format;
    use crate::formats::Format;

    #[test]
    fn a_format_is_known_by_its_type_and_by_its_printed_name() {
        macro_rules! each {
            ($($file:ident: $format:ident, $memory:ident, $refusals:ident;)*) => {
                [$((stringify!($format), crate::formats::$format::<f64>::NAME),)*]
            };
        }
        let names = crate::formats::each_format!(each);
        for (at, (of_type, printed)) in names.iter().enumerate() {
            for (other, (_, name)) in names.iter().enumerate() {
                assert_eq!(is_format(of_type, name), at == other, "{of_type}, {name}");
            }
            assert!(is_format(&printed.to_uppercase().replace([' ', '-'], "_"), printed));
        }
        assert!(!is_format("", "CSR"));
    }
}
