//! Matrix and machine, on which costs depend.

use super::costs::{Costs, Factorization, MachineClass};
use super::{Method, Preconditioner, Profile};

/// Matrix and machine, on which costs and lists of candidates depend.
#[derive(Clone, Copy)]
pub(super) struct Context<'p> {
    pub(super) profile: &'p Profile,
    pub(super) class: MachineClass,
    /// Factors on the costs of setup and application, calibrated for this machine.
    pub(super) factors: fn(Preconditioner) -> [f64; 2],
}

impl<'p> Context<'p> {
    /// A context without calibration: costs are those of the built-in table (`costs::TABLE`).
    pub(super) fn of_table(profile: &'p Profile, class: MachineClass) -> Context<'p> {
        Context { profile, class, factors: |_| [1.0; 2] }
    }

    pub(super) fn costs(
        self,
        method: Method,
        preconditioner: Preconditioner,
        factorization: Option<Factorization>,
    ) -> Costs {
        let factors = (self.factors)(preconditioner);
        Costs::of(method, preconditioner, self.profile, factorization, self.class, factors)
    }
}
