//! The choice for a machine that may not be available.

#[cfg(feature = "cuda")]
use super::gpu;
use super::ranking::Values;
use super::{Choice, Formats, Model};
use crate::error::Result;
use crate::formats::{Csr, check_symmetric};
use crate::numbers::Real;

impl Choice {
    /// The format that is expected to be the fastest one for a matrix on a machine, which need not be
    /// available.
    ///
    /// ```
    /// use krysp::choice::{Choice, Model};
    /// # use krysp::Csr;
    ///
    /// let csr = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (1, 1, 2.0)])?;
    /// println!("{}", Choice::of(&csr, Model::Host));
    /// # Ok::<(), krysp::Error>(())
    /// ```
    pub fn of<T: Real>(csr: &Csr<T>, machine: Model) -> Choice {
        Choice::among(csr, machine, Values::Any)
    }

    /// Like [`Choice::of`], but includes symmetric formats, for a matrix whose values are symmetric and
    /// remain so. Returns an error if the matrix is not symmetric.
    pub fn of_symmetric<T: Real>(csr: &Csr<T>, machine: Model) -> Result<Choice> {
        check_symmetric(csr)?;
        Ok(Choice::among(csr, machine, Values::Symmetric))
    }

    fn among<T: Real>(csr: &Csr<T>, machine: Model, values: Values) -> Choice {
        match machine {
            Model::Host => Formats::standard().ranking(csr, values, None).choice(),
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors } => gpu::ranking(csr, values, None, multiprocessors).choice(),
        }
    }
}
