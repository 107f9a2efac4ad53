//! Kinds of machines, and what work of the host costs there.

use super::LAUNCH;
use super::threads::{Threads, speedup};
use crate::plan::Method;

/// Kind of machine on which iterations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineClass {
    /// A CPU, with this many threads.
    Host {
        /// Threads of the Rayon pool.
        threads: usize,
    },
    /// One GPU and its host.
    Gpu {
        /// Threads of the host.
        threads: usize,
    },
}

/// Time of a multiply-add on the host divided by that of a multiply-add of an iteration on a GPU: for work that builds a
/// preconditioner, and for work of two threads that applies one. Of 84 attempts on an H200 (12 and 16 threads of a Xeon, matrices
/// of `../shared/matrices`), setups with complete factorizations took 1.5 to 2.7 times as long as the first figure says, in the median of each.
/// It is low on purpose: the costs of factorizations are more certain than the iterations of other candidates.
const HOST: [f64; 2] = [60.0, 280.0];

/// Fixed time of an iteration on a GPU beyond `LAUNCH`, in multiply-adds: that of kernel launches, which dominate for small matrices. On an
/// H200 an iteration of `BiCgStab` takes 29 µs, one of `Minres` 38 (13 matrices with at most 15,000 rows, where the model without this
/// figure has 8 and 5), one of `Gmres` 42 to 49, and one of `Idr` with `Spai` 50. `Cg` with `Jacobi` needs none: one launch makes many
/// iterations. The other methods were not measured.
fn kernels(method: Method) -> f64 {
    match method {
        Method::BiCgStab => 6e6,
        Method::Minres => 1e7,
        Method::Gmres | Method::Fgmres => 1.1e7,
        Method::Idr => 1e7,
        _ => 0.0,
    }
}

impl MachineClass {
    /// Work units of the fixed time of an iteration; zero on a CPU.
    pub(super) fn of_kernels(self, method: Method, unit: f64) -> f64 {
        if self.is_gpu() { kernels(method) / (unit + LAUNCH) } else { 0.0 }
    }

    pub(in crate::plan) fn is_gpu(self) -> bool {
        matches!(self, MachineClass::Gpu { .. })
    }

    /// Work units of this machine for one unit of work on two threads of a CPU, if the host builds a preconditioner.
    pub(super) fn of_setup(self, kind: Threads, unit: f64) -> f64 {
        match self {
            MachineClass::Host { threads } => kind.factor(threads, unit),
            MachineClass::Gpu { .. } => HOST[0] / (1.0 + LAUNCH / unit),
        }
    }

    /// Work units of this machine for one unit of work on two threads of a CPU, if the host applies a preconditioner.
    pub(super) fn of_application(self, kind: Threads, unit: f64) -> f64 {
        match self {
            MachineClass::Host { threads } => kind.factor(threads, unit),
            MachineClass::Gpu { threads } => {
                kind.factor(threads, unit) * HOST[1] / (speedup(threads, unit) * (1.0 + LAUNCH / unit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::costs::{Factorization, multiplications};
    use crate::plan::{Preconditioner, Profile, WorkUnits};

    /// The same work is as many multiplications on any number of threads if all threads share it, and fewer if one does it all, because an
    /// iteration becomes faster.
    #[test]
    fn limits_of_factorizations_depend_on_the_threads_that_compute_them() {
        let mut profile = Profile::of(&crate::gallery::poisson::<f64>(&[10; 3]).unwrap());
        (profile.rows, profile.entries) = (1_000_000, 7_000_000);
        let large = Factorization { entries: 1e9, multiplications: 1e12, fronts: 1e5, dissects: false };
        let most = |of, threads| {
            multiplications(of, WorkUnits(1.0), &profile, Some(large), MachineClass::Host { threads })
        };
        assert_eq!(most(Preconditioner::Lu, 2), most(Preconditioner::Lu, 16));
        let [two, sixteen] = [2, 16].map(|threads| most(Preconditioner::Ilut, threads));
        assert!(sixteen < 0.5 * two, "{sixteen} {two}");
    }
}
