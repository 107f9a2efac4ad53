//! Methods and preconditioners of plans, and their names.

use crate::error::{Error, Result};
use crate::saved::{InconsistentData, saved};
use crate::spelling::same_name;
use std::fmt;
use std::str::FromStr;

/// Defines an enum whose variants have names, by which they are printed, parsed and saved. `ALL` lists those that can be requested: all
/// but those after `internal`. `$what` is what an error calls them.
macro_rules! named {
    (
        $what:literal $(#[$doc:meta])* $type:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)* }
        internal { $($(#[$of_internal:meta])* $internal:ident = $internal_name:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[$of])* $variant,)*
            $($(#[$of_internal])* $internal,)*
        }

        impl $type {
            /// All variants that can be requested.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// The name of the type in this crate.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                    $($type::$internal => $internal_name,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        /// Parses a name. Case, blanks and punctuation are ignored: `"cg"`, `"bicg-stab"`, `"two-level"`.
        impl FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<$type> {
                $type::ALL.into_iter().find(|one| same_name(one.name(), name)).ok_or_else(|| Error::Unknown {
                    what: $what,
                    got: name.into(),
                    known: $type::ALL.map($type::name).join(", "),
                })
            }
        }

        saved!(impl[] $type as |this| { name: String = this.name() } => {
            name.parse().map_err(|_| InconsistentData)
        });
    };
}

named! {
    "method"
    /// A Krylov method.
    Method {
        /// [`Cg`](crate::Cg)
        Cg = "Cg",
        /// [`Fcg`](crate::Fcg)
        Fcg = "Fcg",
        /// [`Minres`](crate::Minres)
        Minres = "Minres",
        /// [`BiCgStab`](crate::BiCgStab)
        BiCgStab = "BiCgStab",
        /// [`Gmres`](crate::Gmres)
        Gmres = "Gmres",
        /// [`Fgmres`](crate::Fgmres)
        Fgmres = "Fgmres",
        /// [`Idr`](crate::Idr)
        Idr = "Idr",
    }
    internal {
        /// Conjugate gradients on `Aᵀ A x = Aᵀ b`, which minimize the residual. Runs last, to test whether the system has a solution;
        /// cannot be requested.
        LeastSquares = "LeastSquares",
    }
}

named! {
    "preconditioner"
    /// A preconditioner.
    Preconditioner {
        /// No preconditioner.
        None = "none",
        /// [`PositiveJacobi`](crate::PositiveJacobi), which is [`Jacobi`](crate::Jacobi) for a positive diagonal.
        Jacobi = "Jacobi",
        /// [`TwoLevel`](crate::TwoLevel)
        TwoLevel = "TwoLevel",
        /// [`Amg`](crate::Amg)
        Amg = "Amg",
        /// [`Fsai`](crate::Fsai)
        Fsai = "Fsai",
        /// [`Spai`](crate::Spai)
        Spai = "Spai",
        /// [`Ic0`](crate::Ic0), shifted where a pivot is not positive.
        Ic0 = "Ic0",
        /// [`Ilu0`](crate::Ilu0)
        Ilu0 = "Ilu0",
        /// [`Ilut`](crate::Ilut) of the matrix permuted and scaled by a [`Matching`](crate::Matching).
        Ilut = "Ilut",
        /// [`Cholesky`](crate::Cholesky)
        Cholesky = "Cholesky",
        /// [`Ldl`](crate::Ldl)
        Ldl = "Ldl",
        /// [`Lu`](crate::Lu)
        Lu = "Lu",
        /// [`SaddlePoint`](crate::SaddlePoint), block triangular.
        SaddlePoint = "SaddlePoint",
        /// A complete factorization by NVIDIA's cuDSS, for GPUs only.
        CuDss = "CuDss",
    }
    internal {}
}

impl Method {
    /// Returns whether it needs a symmetric matrix. The match has no wildcard, so that a new method does not compile without an
    /// entry here.
    pub(super) fn needs_symmetry(self) -> bool {
        use Method::{BiCgStab, Cg, Fcg, Fgmres, Gmres, Idr, LeastSquares, Minres};
        match self {
            Cg | Fcg | Minres => true,
            BiCgStab | Gmres | Fgmres | Idr | LeastSquares => false,
        }
    }
}

impl Preconditioner {
    /// Whether the host builds and applies it, also for a solve on a GPU.
    pub(super) fn needs_host(self) -> bool {
        use Preconditioner::{Cholesky, Ic0, Ilu0, Ilut, Ldl, Lu, SaddlePoint};
        matches!(self, Cholesky | Ic0 | Ilu0 | Ilut | Ldl | Lu | SaddlePoint)
    }

    /// Whether it is a complete factorization.
    pub(super) fn is_complete(self) -> bool {
        use Preconditioner::{Cholesky, CuDss, Ldl, Lu};
        matches!(self, Cholesky | CuDss | Ldl | Lu)
    }
}
