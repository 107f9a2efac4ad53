//! Matrix and machine, on which costs depend.

use super::costs::MachineClass;
use super::{Preconditioner, Profile};

/// Matrix and machine, on which costs and lists of candidates depend.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) profile: Profile,
    pub(super) class: MachineClass,
    /// Factors on the costs of setup and application, calibrated for this machine.
    pub(super) factors: fn(Preconditioner) -> [f64; 2],
}

impl Context {
    /// A context without calibration: costs are those of the built-in table (`costs::line_of`).
    pub(super) fn of_table(profile: &Profile, class: MachineClass) -> Context {
        Context { profile: profile.clone(), class, factors: |_| [1.0; 2] }
    }
}
