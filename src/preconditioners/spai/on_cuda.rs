//! SPAI built and applied in device memory.
//!
//! A warp or a block solves the least-squares problem of each row or column by modified Gram-Schmidt, and what it finds goes
//! from there into the format of the inverse: a matrix that is in host memory crosses the bus, and another pattern where one is
//! given, and problems of blocks are handed out by the host.
//!
//! Budget: building moves `A` over the bus once, refreshing its values, unless an operator has them on the GPU: then nothing,
//! where its format tells columns (CSR, ELLPACK, SELL-P, Halo of single rows), and columns for others. Both read `A` some times a
//! row's length from caches; an application is one product. Beside both patterns and their transposes, a byte stays in device
//! memory for each entry of the rows of `A` that meet in a problem of a warp: some 15 for each of `A` where rows have as many
//! entries.

use crate::cuda::{Cuda, CudaScalar, CudaSpace, CudaVector, OnCuda};
use crate::formats::derived::Derivation;
use crate::formats::pattern::Pattern;
use crate::formats::{OnDevice, Source};
use crate::preconditioners::origin::{Origin, check_alike, check_square};
use crate::preconditioners::spai;
use crate::preconditioners::transposed_on_cuda::{mirrored, transposed};
use crate::{Error, Real, Result, Sell, Side, Spai, SpaiReport, Sparsity};
use krysp_kernels::cuda::{Ordered, Transposition};
use krysp_solvers::LinearOperator;
use std::sync::Arc;

/// A sparse approximate inverse in device memory, in the format `F`; made by [`Spai::on`].
///
/// ```no_run
/// use krysp::cuda::CudaSpai;
/// use krysp::formats::OnDevice;
/// use krysp::testing::matrices;
/// use krysp::{BiCgStab, Cuda, Halo, Side, Spai, Sparsity};
///
/// let a = matrices::stencil7(8).csr::<f64>()?;
/// let (gpu, b) = (Cuda::new(0)?, vec![1.0; a.rows()]);
/// let op = a.to(&gpu)?;
/// // of what is on the GPU already; `&a` would cross the bus
/// let spai = Spai::on(&gpu, &op)?;
/// println!("‖A M − I‖ = {:.1}", spai.report()?.frobenius);
/// assert!(BiCgStab::new(&op).preconditioner(spai).solve(&b)?.report.converged());
/// // of another pattern, in another format
/// let square = CudaSpai::<f64, Halo<f64>>::new(&gpu, &a, Side::Right, Sparsity::Power(2))?;
/// assert!(BiCgStab::new(&op).preconditioner(square).solve(&b)?.report.converged());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CudaSpai<T: Real, F: OnDevice<T> = Sell<T>> {
    matrix: OnCuda<T, F>,
    solver: krysp_kernels::cuda::preconditioners::spai::Spai<T>,
    right: Option<Right<T>>,
    /// The pattern that is computed row by row: of `M`, or of `Mᵀ` on the right.
    rows: Arc<Pattern>,
    /// The pattern of `A`.
    origin: Arc<Pattern>,
}

/// Transposes, for an inverse that is computed by columns.
#[derive(Debug)]
struct Right<T: Real> {
    /// `A`, and how its transpose follows.
    a: Ordered<T>,
    follow_a: Arc<Transposition>,
    /// `M`, and how it follows its transpose.
    inverse: Ordered<T>,
    followed: Arc<Transposition>,
}

impl<T: Real> Spai<T> {
    /// From the right, on the matrix's own pattern, built on a GPU. A matrix that is on the GPU already need not cross the bus
    /// again.
    pub fn on(gpu: &Cuda, a: &impl Origin<T>) -> Result<CudaSpai<T>> {
        CudaSpai::new(gpu, a, Side::Right, Sparsity::Power(1))
    }
}

impl<T: Real, F: OnDevice<T>> CudaSpai<T, F> {
    /// On a pattern that is known: a power of the matrix's own, or that of an adaptive one, `Sparsity::Of(spai.matrix())`.
    pub fn new(gpu: &Cuda, from: &impl Origin<T>, side: Side, sparsity: Sparsity<'_, T>) -> Result<Self> {
        check_square(spai::NAME, from)?;
        let (space, origin) = (from.structure().domain(), from.structure().pattern.clone());
        let a = from.ordered(gpu)?;
        let own = matches!(sparsity, Sparsity::Power(1)) && a.has_diagonal()?;
        let (given, inverse) = if own {
            (origin.in_order(), a.alike()?)
        } else {
            let given = sparsity.whole(&*from.in_host_memory()?)?;
            let inverse = Ordered::zeros_of(gpu.device(), given.on_device())?;
            (given, inverse)
        };
        let build = |a: (Ordered<T>, &Pattern), m: (Ordered<T>, &Pattern)| {
            krysp_kernels::cuda::preconditioners::spai::Spai::new(
                (a.0, a.1.on_device()),
                (m.0, m.1.on_device()),
            )
        };
        let (solver, rows, mut right) = match side {
            Side::Left => (build((a, &origin), (inverse, &given))?, given.clone(), None),
            Side::Right => {
                // as a rule patterns are symmetric
                let guess = (origin.clone(), a.alike()?);
                let (columns, mut at, follow_a) = transposed(&origin, &a, Some(guess))?;
                follow_a.refresh(&a, &mut at)?;
                let follow_a = Arc::new(follow_a);
                let (rows, mt) = if own {
                    (columns.clone(), at.alike()?)
                } else {
                    let guess = (given.clone(), inverse.alike()?);
                    let (rows, mt, _) = transposed(&given, &inverse, Some(guess))?;
                    (rows, mt)
                };
                // of one symmetric pattern, both ways are the same
                let alike = own && Arc::ptr_eq(&columns, &origin);
                let followed = if alike { follow_a.clone() } else { Arc::new(mirrored(&mt, &inverse)?) };
                let solver = build((at, &columns), (mt, &rows))?;
                (solver, rows, Some(Right { a, follow_a, inverse, followed }))
            }
        };
        check(&solver, &rows, side, from)?;
        let source = Source::new(given, space.clone(), space.clone());
        let values = match &mut right {
            None => solver.inverse(),
            Some(Right { inverse, followed, .. }) => {
                followed.refresh(solver.inverse(), inverse)?;
                inverse
            }
        };
        let matrix = OnCuda::from_ordered(gpu, source, values, F::defaults())?;
        Ok(CudaSpai { matrix, solver, right, rows, origin })
    }

    /// `M`
    pub fn matrix(&self) -> &OnCuda<T, F> {
        &self.matrix
    }

    /// How good it is, when it is computed.
    pub fn report(&self) -> Result<SpaiReport> {
        Ok(SpaiReport::of(&self.solver.residuals()?, spai::NOTHING))
    }

    /// Takes new values from a matrix of the same pattern and space. After an error the inverse is as it was.
    pub fn refresh(&mut self, from: &impl Origin<T>) -> Result<()> {
        check_alike(from, self.domain().host(), &self.origin)?;
        match &mut self.right {
            None => from.give_values(self.matrix.domain().gpu(), self.solver.matrix_mut())?,
            Some(Right { a, follow_a, .. }) => {
                from.give_values(self.matrix.domain().gpu(), a)?;
                follow_a.refresh(a, self.solver.matrix_mut())?;
            }
        }
        self.solver.solve()?;
        let side = if self.right.is_some() { Side::Right } else { Side::Left };
        check(&self.solver, &self.rows, side, from)?;
        match &mut self.right {
            None => self.matrix.refresh_from(self.solver.inverse()),
            Some(Right { inverse, followed, .. }) => {
                followed.refresh(self.solver.inverse(), inverse)?;
                self.matrix.refresh_from(inverse)
            }
        }
    }
}

/// Refuses a local system whose columns depend on each other.
fn check<T: Real>(
    solver: &krysp_kernels::cuda::preconditioners::spai::Spai<T>,
    rows: &Pattern,
    side: Side,
    from: &impl Origin<T>,
) -> Result<()> {
    let Some(row) = solver.refused()? else { return Ok(()) };
    let csr = from.in_host_memory()?;
    let refused: Error = match side {
        Side::Left => spai::refusal(&*csr, rows.row(row), row),
        Side::Right => spai::refusal(&Derivation::transposed(&*csr)?.0, rows.row(row), row),
    };
    Err(refused)
}

impl<T: Real, F: OnDevice<T>> LinearOperator for CudaSpai<T, F> {
    type Vector = CudaVector<T>;

    fn domain(&self) -> &CudaSpace<T> {
        self.matrix.domain()
    }

    fn apply(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<()> {
        self.matrix.apply(x, y)
    }

    fn apply_dot(&self, x: &CudaVector<T>, y: &mut CudaVector<T>) -> krysp_solvers::Result<CudaScalar<T>> {
        self.matrix.apply_dot(x, y)
    }

    fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    fn replays(&self) -> bool {
        self.matrix.replays()
    }
}
