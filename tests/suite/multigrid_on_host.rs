//! Multigrid in host memory, with which tests compare that in other memories.

use krysp::testing::laws::{MAX_COARSE_SIZE, Multigrid};
use krysp::{Amg, AmgOptions, Cg, Csr, Refresh, Result, Solution};

/// Options of hierarchies with several levels.
pub(crate) fn options(smooth_finest: bool) -> AmgOptions {
    AmgOptions {
        max_coarse_size: MAX_COARSE_SIZE,
        smooth_finest: Some(smooth_finest),
        ..AmgOptions::default()
    }
}

pub(crate) struct OnHost;

impl Multigrid for OnHost {
    type Hierarchy = Amg<f64>;

    fn build(&self, a: &Csr<f64>, modes: &[Vec<f64>], smooth_finest: bool) -> Result<Amg<f64>> {
        Amg::with(a, modes, options(smooth_finest))
    }

    fn refresh(&self, m: &mut Amg<f64>, a: &Csr<f64>) -> Result<()> {
        m.refresh(a)
    }

    fn aggregates(&self, m: &Amg<f64>) -> Result<Vec<Vec<Option<u32>>>> {
        Ok(m.aggregates())
    }

    fn solve(&self, m: &Amg<f64>, a: &Csr<f64>, b: &[f64]) -> Result<Solution<f64>> {
        Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?)
    }

    fn table(&self, m: &Amg<f64>) -> String {
        m.to_string()
    }
}
