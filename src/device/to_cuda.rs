//! The trait of operators and preconditioners that have a copy on a GPU.

use super::Cuda;
use crate::error::Result;

/// An operator or a preconditioner that can be copied to a GPU: `x.to(&gpu)` computes on the GPU the same as
/// `x` on the host.
///
/// ```no_run
/// use krysp::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let a = Csr::from_triplets(1, 1, &[(0, 0, 2.0)])?;
/// let gpu = Cuda::new(0)?;
/// let two_level = TwoLevel::new(&a)?.to(&gpu)?;
/// let solution = Cg::new(a.to(&gpu)?).preconditioner(two_level).solve(&[1.0])?;
/// # Ok(())
/// # }
/// ```
pub trait ToCuda {
    /// The type of the copy.
    type OnCuda;

    /// Copies to a GPU. The original in host memory is not changed.
    fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda>;
}

/// The type of the copy on a GPU: `OnCuda<Sell<f64>>`, `OnCuda<Fsai<f64>>`.
pub type OnCuda<X> = <X as ToCuda>::OnCuda;
