//! The format that suits a matrix and a machine, and why.
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
//! Every format is given a cost: what a product moves of it, times the [`Price`] of this format on this kind of machine, and
//! what starting and waiting cost; the least wins. Prices are fitted to half of the matrices of the committed records and
//! judged on the other half (`benches/judge/main.rs`). Each format states its own, and what it would move, in its own file in
//! `src/formats`. What is moved follows from row lengths, diagonals, blocks and spans of columns: only the winner is
//! converted, and [`Choice::of`] needs no machine.

mod analysis;
mod calibrate;
mod calibrated;
mod candidate;
mod foretold;
#[cfg(feature = "cuda")]
mod gpu;
mod host;
mod model;
mod ranking;
mod saved;

pub(crate) use analysis::{Analysis, offset_bytes};
pub(crate) use calibrated::{Key, calibrated, key as calibration_key, path as calibration_file};

pub use calibrate::{Calibration, calibrate};
pub use candidate::{Candidate, Choice, Estimate, RowStatistics, Stored};
pub use krysp_kernels::price::{Price, Work};
pub use model::Model;

#[cfg(feature = "cuda")]
use crate::Cuda;
use crate::formats::check_symmetric;
use crate::saved::{Saved, Writer};
use crate::{Csr, Origin, Real, Result};
use krysp_solvers::{ElemOf, Form, LinearOperator, ScalarOf, SpaceOf, Vector};
use machine::Refresh;
pub(crate) use machine::Stores;
use ranking::Values;
use std::borrow::Cow;

/// A matrix in the format that suits it and the machine best, by what bytes and records say.
///
/// It passes every method on to that format, and takes new values for the same pattern.
pub struct Operator<V: Vector> {
    matrix: Box<dyn Refresh<V>>,
    choice: Choice,
}

impl<V: Vector> Operator<V> {
    /// Converts a matrix to the format that is likely to be fastest: on `&Host`, the threads of this program, or on a
    /// `&Cuda`.
    pub fn auto<T: Real, M: Machine<T, Vector = V>>(csr: &Csr<T>, machine: &M) -> Result<Operator<V>> {
        machine.store(csr, Values::Any, None)
    }

    /// Converts a matrix to the format of a name: that of its type, `"Sell"` or `"SymBsr"`, or the one that [`Choice`] prints,
    /// `"SELL-P"` or `"symmetric BSR"`. Case, blanks and punctuation do not count. A symmetric format needs a matrix that is symmetric
    /// and stays so, as for [`Operator::symmetric`].
    pub fn in_format<T: Real, M: Machine<T, Vector = V>>(
        csr: &Csr<T>,
        machine: &M,
        name: &str,
    ) -> Result<Operator<V>> {
        Operator::known(csr, machine, check_symmetric(csr).is_ok(), Some(name))
    }

    /// [`Operator::auto`] for a matrix that is symmetric and stays so: symmetric formats, which read each pair of entries once,
    /// may be chosen as well. Refuses a matrix that is not symmetric.
    ///
    /// New values must be symmetric too. Nobody looks at them: where they are not, a product may be that of another
    /// matrix, one triangle mirrored.
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

    /// As [`Operator::auto`] or [`Operator::in_format`], of a matrix that somebody has looked at. Symmetric formats look again.
    pub(crate) fn known<T: Real, M: Machine<T, Vector = V>>(
        csr: &Csr<T>,
        machine: &M,
        symmetric: bool,
        format: Option<&str>,
    ) -> Result<Operator<V>> {
        machine.store(csr, if symmetric { Values::Symmetric } else { Values::Any }, format)
    }

    /// What was chosen, and what was not and why.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Takes new values for the same pattern, in the order of [`Csr::entries`] of the matrix that was passed in, as
    /// [`Format::refresh`](crate::Format::refresh) does. The format stays.
    pub fn refresh(&mut self, values: &[ElemOf<V>]) -> Result<()> {
        self.matrix.refresh(values)
    }

    /// Takes the values of a matrix of the same pattern, as [`Format::refresh_from`](crate::Format::refresh_from) does.
    pub fn refresh_from(&mut self, a: &Csr<ElemOf<V>>) -> Result<()>
    where
        ElemOf<V>: Real,
    {
        let entries = self.matrix.origin().structure().entries_of(a)?;
        self.matrix.refresh(&entries)
    }

    /// Turns assembled values into entries, as [`Csr::assemble`] of the matrix that was passed in.
    pub fn assemble<'v>(&self, values: &'v [ElemOf<V>]) -> Result<Cow<'v, [ElemOf<V>]>>
    where
        ElemOf<V>: Real,
    {
        self.matrix.origin().structure().assemble(values)
    }

    /// Writes what was chosen, and the arrays where they are worth it.
    pub(crate) fn write(&self, to: &mut Writer<'_>) {
        self.choice.save(to);
        self.matrix.save(to);
    }

    /// The matrix, for preconditioners.
    pub(crate) fn origin(&self) -> &dyn Origin<ElemOf<V>>
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

/// Whether two spellings name the same format, as [`Operator::in_format`] takes names: the type's or the printed one, ignoring case,
/// blanks and punctuation.
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

/// Host memory, and the threads that compute there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host;

/// Where a matrix can be put: [`Host`], or a GPU.
pub trait Machine<T: Real>: Stores<T> {}

impl<T: Real> Machine<T> for Host {}
#[cfg(feature = "cuda")]
impl<T: Real> Machine<T> for Cuda {}

mod machine {
    use super::{Choice, Operator, Values};
    use crate::saved::{Loaded, Reader, Writer};
    use crate::{Csr, Origin, Real, Result};
    use krysp_solvers::{ElemOf, LinearOperator, Vector};

    /// What the chooser asks of a machine that is at hand.
    pub trait Stores<T: Real> {
        /// Vectors that live there.
        type Vector: Vector<Elem = T> + 'static;

        /// Converts a matrix to the format of the least cost, or to the one that is named.
        fn store(&self, csr: &Csr<T>, values: Values, format: Option<&str>)
        -> Result<Operator<Self::Vector>>;

        /// What it is called in the keys of a file.
        const KIND: &'static str;

        /// Reads what [`Operator::write`] wrote; without the arrays, where these are quickly made again.
        fn load(from: &mut Reader<'_>) -> Loaded<std::result::Result<Operator<Self::Vector>, Choice>>;
    }

    /// An operator that takes new values for the same pattern.
    pub(super) trait Refresh<V: Vector>: LinearOperator<Vector = V> {
        /// Takes new values, in the order of the entries.
        fn refresh(&mut self, values: &[ElemOf<V>]) -> Result<()>;

        /// The matrix, for preconditioners.
        fn origin(&self) -> &dyn Origin<ElemOf<V>>
        where
            ElemOf<V>: Real;

        /// [`Stores::KIND`] of the machine.
        fn kind(&self) -> &'static str;

        /// Writes the arrays, where these are worth it.
        fn save(&self, to: &mut Writer<'_>);
    }
}

/// Passes every method on: the format must not lose its fusions.
impl<V: Vector> LinearOperator for Operator<V> {
    type Vector = V;

    fn domain(&self) -> &SpaceOf<V> {
        self.matrix.domain()
    }

    fn range(&self) -> &SpaceOf<V> {
        self.matrix.range()
    }

    fn apply(&self, x: &V, y: &mut V) -> krysp_solvers::Result<()> {
        self.matrix.apply(x, y)
    }

    fn apply_dot(&self, x: &V, y: &mut V) -> krysp_solvers::Result<ScalarOf<V>> {
        self.matrix.apply_dot(x, y)
    }

    fn residual(&self, b: &V, x: &V, r: &mut V) -> krysp_solvers::Result<()> {
        self.matrix.residual(b, x, r)
    }

    fn axpy_apply_dot(
        &self,
        a: &ScalarOf<V>,
        q: &V,
        r: &mut V,
        z: &mut V,
    ) -> krysp_solvers::Result<[ScalarOf<V>; 2]> {
        self.matrix.axpy_apply_dot(a, q, r, z)
    }

    fn form(&self) -> Form<'_, V> {
        self.matrix.form()
    }

    fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    fn replays(&self) -> bool {
        self.matrix.replays()
    }
}
