//! What would be chosen on a machine that need not be at hand.

#[cfg(feature = "cuda")]
use super::gpu;
use super::ranking::Values;
use super::{Choice, Model, host};
use crate::formats::check_symmetric;
use crate::{Csr, Real, Result};

impl Choice {
    /// What is likely to be the fastest format of a matrix on a machine, which need not be at hand.
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

    /// The choice among all formats, symmetric ones too, for a matrix whose values are symmetric and remain so; refuses one that
    /// is not symmetric.
    pub fn of_symmetric<T: Real>(csr: &Csr<T>, machine: Model) -> Result<Choice> {
        check_symmetric(csr)?;
        Ok(Choice::among(csr, machine, Values::Symmetric))
    }

    fn among<T: Real>(csr: &Csr<T>, machine: Model, values: Values) -> Choice {
        match machine {
            Model::Host => host::ranking(csr, values, None).choice(),
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors } => gpu::ranking(csr, values, None, multiprocessors).choice(),
        }
    }
}
