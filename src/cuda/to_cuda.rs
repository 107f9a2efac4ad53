//! What has a copy on a GPU.

use super::Cuda;
use crate::Result;

/// What can be copied to a GPU. `x.to(&gpu)` is there what `x` is here.
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
    /// Its type there.
    type OnCuda;

    /// A copy on a GPU. What is in host memory stays as it is.
    fn to(&self, gpu: &Cuda) -> Result<Self::OnCuda>;
}

/// What something in host memory is on a GPU: `OnCuda<Sell<f64>>`, `OnCuda<Fsai<f64>>`.
pub type OnCuda<X> = <X as ToCuda>::OnCuda;
