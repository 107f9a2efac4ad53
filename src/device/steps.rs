//! Execution of the steps (iterations) of a solve in device memory.

use super::{CudaScalar, CudaSpace, CudaVector, failed};
use crate::numbers::Real;
use krysp_kernels::cuda::preconditioners::coarse::Coarse;
use krysp_kernels::cuda::{
    self, Entry, LAG, LAG_OF_LONG, LOCKSTEP_COLUMNS, LOCKSTEP_FROM, LONG_STEP, Resident,
};
use krysp_solvers::{CgIterate, Condition, Ending, Error, Form, LinearOperator, Result, Space, Steps};

/// Data of an operator for the persistent kernel, which keeps small systems in on-chip memory.
pub trait OnChip<T: Real>: Send + Sync {
    /// The matrix in the layout of the persistent kernel; `None` if the matrix is too large, or if the
    /// operator is not a matrix.
    fn resident(&self) -> Result<Option<&Resident<T>>> {
        Ok(None)
    }

    /// The coarse space, if the operator is a diagonal preconditioner plus a coarse correction.
    fn coarse(&self) -> Option<&Coarse<T>> {
        None
    }
}

impl<T: Real> OnChip<T> for Coarse<T> {
    fn coarse(&self) -> Option<&Coarse<T>> {
        Some(self)
    }
}

/// Steps enqueued ahead of the host, recorded once as graphs and replayed.
#[derive(Debug)]
pub struct CudaSteps<T: Real> {
    pub(crate) steps: cuda::Steps<T>,
    /// True if this GPU has the whole system, not a part of one that a team of GPUs shares. The
    /// members of a team must enqueue the same number of steps.
    alone: bool,
}

impl<T: Real> Steps<CudaVector<T>> for CudaSteps<T> {
    const LAG: usize = LAG;

    fn lag(&self, bytes: u64) -> usize {
        if self.alone && bytes >= LONG_STEP { LAG_OF_LONG } else { LAG }
    }

    /// Returns whether lockstep (the iterations of several columns made together) is faster. Not in a team,
    /// whose members run ahead of their hosts, and not for systems in on-chip memory, whose separate solves
    /// take fewer launches.
    fn lockstep_pays(
        a: &dyn LinearOperator<Vector = CudaVector<T>>,
        m: &dyn LinearOperator<Vector = CudaVector<T>>,
        columns: usize,
    ) -> bool {
        let alone = a.range().len() == a.range().local_len();
        let on_chip = match (a.form(), m.form()) {
            (Form::Native(a), Form::Identity | Form::Diagonal(_) | Form::DiagonalAnd(..)) => {
                a.resident().is_ok_and(|resident| resident.is_some())
            }
            _ => false,
        };
        let saved = a.bytes() as u64 * columns.saturating_sub(1) as u64;
        alone && !on_chip && (columns >= LOCKSTEP_COLUMNS || saved >= LOCKSTEP_FROM)
    }

    fn new(space: &CudaSpace<T>, numbers: usize) -> Result<Self> {
        let steps = cuda::Steps::new(space.gpu().device(), numbers).map_err(failed)?;
        // Synchronize the members of a team, whose preceding work may have taken different times: waits
        // between GPUs time out, and allocating memory may wait for all GPUs.
        space.agree(0)?;
        Ok(CudaSteps { steps, alone: space.len() == space.local_len() })
    }

    fn begin(&mut self, threshold_squared: f64) -> Result<()> {
        self.steps.begin(threshold_squared).map_err(failed)
    }

    fn discard_recordings(&mut self) {
        self.steps.discard_recordings();
    }

    fn run(
        &mut self,
        place: usize,
        replays: bool,
        step: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut queue = self.steps.begin_step(place, replays).map_err(failed)?;
        while queue {
            let outcome = step(self);
            queue = self.steps.end_step(outcome.is_ok()).map_err(failed)?;
            outcome?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.steps.in_flight()
    }

    fn next(&mut self, numbers: &mut Vec<f64>) -> Result<Ending> {
        match self.steps.next(numbers).map_err(failed)? {
            Some(Entry::Numbers { last }) => Ok(Ending::Completed { last }),
            Some(Entry::Failed { what, value }) => Ok(Ending::Failed { what, value }),
            None => Err(Error::Backend(
                "internal error: the device ended the solve without a status record".into(),
            )),
        }
    }

    fn watch(&mut self, what: &'static str, value: &CudaScalar<T>, must_be: Condition) -> Result<()> {
        let must_be = match must_be {
            Condition::Finite => cuda::Condition::Finite,
            Condition::NonZero => cuda::Condition::NonZero,
            Condition::Positive => cuda::Condition::Positive,
        };
        self.steps.watch(what, &value.0, must_be);
        Ok(())
    }

    fn residual(&mut self, squared: &CudaScalar<T>) -> Result<()> {
        self.steps.residual(&squared.0);
        Ok(())
    }

    fn record(&mut self, value: &CudaScalar<T>) -> Result<()> {
        self.steps.record(&value.0);
        Ok(())
    }

    fn conjugate_gradients(&mut self, at: CgIterate<'_, CudaVector<T>>, count: usize) -> Result<usize> {
        let CgIterate { a, m, x, r, p, z, rho, watched } = at;
        let (inverse, correction) = match m {
            Form::Identity => (None, None),
            Form::Diagonal(d) => (Some(&d.entries), None),
            Form::DiagonalAnd(d, more) => match more.coarse() {
                Some(coarse) => (Some(&d.entries), Some(coarse)),
                None => return Ok(0),
            },
            Form::General | Form::Native(_) => return Ok(0),
        };
        let Form::Native(a) = a else { return Ok(0) };
        let Some(resident) = a.resident()? else { return Ok(0) };
        let (x, r) = (&mut x.entries, &mut r.entries);
        let (p, z, rho) = (&mut p.entries, &mut z.entries, &rho.0);
        let iterate = cuda::Iterate { inverse, correction, x, r, p, z, rho, watched };
        resident.steps(iterate, &mut self.steps, count).map_err(failed)
    }
}
