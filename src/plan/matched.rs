//! Threshold ILU of a matrix that is permuted and scaled by a matching.
//!
//! Factorizations fail on rows and columns of very different magnitudes, and on zeros on the diagonal. With `A' = R P A C` (row scaling
//! `R`, row permutation `P`, column scaling `C`) and `M' ≈ A'⁻¹`, the operator applied is `C M' R P`. That is a preconditioner of `A`
//! itself, so that residuals are those of the given system.

use crate::error::{Error, Result};
use crate::formats::matrix_source::check_square;
use crate::formats::{Csr, MatrixSource};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use crate::preconditioners::refresh::check_space;
use crate::preconditioners::{Ilut, IlutOptions, Ldl, Lu, OrderedLdl, PartialLu, Refresh};
use crate::saved::{FileReader, FileWriter, Loaded};
use crate::scaling::{Matching, Scaling};
use krysp_solvers::{LinearOperator, Space, check_spaces};

/// Threshold ILU of a matrix that is permuted and scaled by a matching.
pub(super) struct Matched<T: Real> {
    scaling: Scaling<T>,
    inner: Ilut<T>,
    /// Maximum number of multiplications of a refresh, which is not saved.
    most: f64,
}

impl<T: Real> Matched<T> {
    pub(super) fn save(&self, to: &mut FileWriter<'_>) {
        to.write(&self.scaling);
        to.write(&self.inner);
    }

    /// Loads what `save` wrote.
    pub(super) fn load(from: &mut FileReader<'_>) -> Loaded<Self> {
        Ok(Matched { scaling: from.read()?, inner: from.read()?, most: f64::INFINITY })
    }
}

/// Results that factorizations of one matrix share: the elimination ordering, the matching, and complete factorizations that were
/// suspended.
#[derive(Debug, Default)]
pub(super) struct Begins<T: Real> {
    pub(super) order: Option<Vec<u32>>,
    scaling: Option<Scaling<T>>,
    suspended: Option<PartialLu<T>>,
    ordered: Option<OrderedLdl<T>>,
}

impl<T: Real> Begins<T> {
    /// Threshold ILU of the matrix, permuted and scaled by its matching, with at most `most` multiplications.
    pub(super) fn ilut(&mut self, csr: &Csr<T>, most: f64) -> Result<Matched<T>> {
        let scaling = match self.scaling.take() {
            Some(scaling) => scaling,
            None => matched(csr)?,
        };
        let scaling = self.scaling.insert(scaling).clone();
        let inner = ilut(&scaling.matrix(csr)?, most)?;
        // new values may take somewhat more
        Ok(Matched { scaling, inner, most: 2.0 * most })
    }

    /// A symmetric factorization with at most `most` multiplications. If it is expected to take more, the error leaves it ordered.
    pub(super) fn ldl(&mut self, csr: &Csr<T>, most: f64) -> Result<Ldl<T>> {
        let ordered = match self.ordered.take() {
            Some(ordered) => ordered,
            None => OrderedLdl::new(csr, self.order.as_deref())?,
        };
        let work = ordered.work();
        if work <= most {
            return ordered.within_memory(csr);
        }
        self.ordered = Some(ordered);
        let why = format!("it is expected to take {work:.1e} multiplications, more than {most:.1e}");
        Err(Error::Unsuitable { format: "LDL", why })
    }

    /// Number of multiplications of a symmetric factorization that was left ordered.
    pub(super) fn ldl_needs(&self) -> Option<f64> {
        self.ordered.as_ref().map(OrderedLdl::work)
    }

    /// Whether a complete factorization has been suspended.
    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Starts or resumes a complete factorization. It is suspended, with an error, after `most` multiplications.
    pub(super) fn lu(&mut self, csr: &Csr<T>, most: f64) -> Result<Lu<T>> {
        let mut partial = match self.suspended.take() {
            Some(suspended) => suspended,
            None => PartialLu::tolerant(csr, self.order.as_deref())?,
        };
        if partial.go_on(csr, most)? {
            return Ok(partial.whole());
        }
        self.suspended = Some(partial);
        Err(Error::Unsuitable { format: "LU", why: format!("it takes more than {most:.1e} multiplications") })
    }
}

fn ilut<T: Real>(csr: &Csr<T>, max_multiplications: f64) -> Result<Ilut<T>> {
    Ilut::with(csr, IlutOptions { max_multiplications, ..IlutOptions::default() })
}

/// The scaling by a maximum-product matching.
fn matched<T: Real>(csr: &Csr<T>) -> Result<Scaling<T>> {
    check_square("a matching", csr)?;
    match Matching::of(csr) {
        Ok(matching) => Scaling::matched(csr, &matching),
        // no matching covers the whole diagonal
        Err(Error::Singular { .. }) => Scaling::equilibrated(csr),
        Err(error) => Err(error),
    }
}

/// Computes a new matching, because new values may need other entries on the diagonal.
impl<T: Real> Refresh<T> for Matched<T> {
    fn refresh(&mut self, a: &dyn MatrixSource<T>) -> Result<()> {
        check_space(a, self.inner.domain())?;
        let csr = a.in_host_memory()?;
        let scaling = matched(&csr)?;
        self.inner = ilut(&scaling.matrix(&csr)?, self.most)?;
        self.scaling = scaling;
        Ok(())
    }
}

impl<T: Real> LinearOperator for Matched<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        self.inner.domain()
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let space = self.domain();
        let mut host = vec![T::zero(); space.len()];
        space.store(r, &mut host)?;
        let scaled = space.vector(&self.scaling.rhs(&host)?)?;
        self.inner.apply(&scaled, z)?;
        space.store(z, &mut host)?;
        self.scaling.unscale(&mut host)?;
        space.load(&host, z)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
