//! Names of methods and preconditioners, by which each decision of a plan can be made by hand.

use crate::saved::{Broken, Loaded, Reader, Saved, Writer};
use crate::spelling::same_name;
use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A Krylov method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// [`Cg`](crate::Cg)
    Cg,
    /// [`Fcg`](crate::Fcg)
    Fcg,
    /// [`Minres`](crate::Minres)
    Minres,
    /// [`BiCgStab`](crate::BiCgStab)
    BiCgStab,
    /// [`Gmres`](crate::Gmres)
    Gmres,
    /// [`Fgmres`](crate::Fgmres)
    Fgmres,
    /// [`Idr`](crate::Idr)
    Idr,
    /// Conjugate gradients on `Aᵀ A x = Aᵀ b`, which lead to the least residual that there is. Taken last, by itself, to find
    /// out whether the system has a solution; cannot be asked for.
    LeastSquares,
}

/// A preconditioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preconditioner {
    /// None at all.
    None,
    /// [`PositiveJacobi`](crate::PositiveJacobi), which is [`Jacobi`](crate::Jacobi) for a positive diagonal.
    Jacobi,
    /// [`TwoLevel`](crate::TwoLevel)
    TwoLevel,
    /// [`Amg`](crate::Amg)
    Amg,
    /// [`Fsai`](crate::Fsai)
    Fsai,
    /// [`Spai`](crate::Spai)
    Spai,
    /// [`Ic0`](crate::Ic0), shifted where a pivot is not positive.
    Ic0,
    /// [`Ilu0`](crate::Ilu0)
    Ilu0,
    /// [`Ilut`](crate::Ilut) of the matrix as a [`Matching`](crate::Matching) orders and scales it.
    Ilut,
    /// [`Cholesky`](crate::Cholesky)
    Cholesky,
    /// [`Ldl`](crate::Ldl), only where it is configured.
    Ldl,
    /// [`Lu`](crate::Lu)
    Lu,
    /// [`SaddlePoint`](crate::SaddlePoint), block triangular.
    SaddlePoint,
}

impl Method {
    /// All that can be asked for.
    pub const ALL: [Method; 7] = [
        Method::Cg,
        Method::Fcg,
        Method::Minres,
        Method::BiCgStab,
        Method::Gmres,
        Method::Fgmres,
        Method::Idr,
    ];

    /// The name of its type.
    pub fn name(self) -> &'static str {
        match self {
            Method::Cg => "Cg",
            Method::Fcg => "Fcg",
            Method::Minres => "Minres",
            Method::BiCgStab => "BiCgStab",
            Method::Gmres => "Gmres",
            Method::Fgmres => "Fgmres",
            Method::Idr => "Idr",
            Method::LeastSquares => "LeastSquares",
        }
    }

    /// Whether it needs a symmetric matrix.
    pub(super) fn needs_symmetry(self) -> bool {
        matches!(self, Method::Cg | Method::Fcg | Method::Minres)
    }
}

impl Preconditioner {
    /// All of them.
    pub const ALL: [Preconditioner; 13] = [
        Preconditioner::None,
        Preconditioner::Jacobi,
        Preconditioner::TwoLevel,
        Preconditioner::Amg,
        Preconditioner::Fsai,
        Preconditioner::Spai,
        Preconditioner::Ic0,
        Preconditioner::Ilu0,
        Preconditioner::Ilut,
        Preconditioner::Cholesky,
        Preconditioner::Ldl,
        Preconditioner::Lu,
        Preconditioner::SaddlePoint,
    ];

    /// The name of its type.
    pub fn name(self) -> &'static str {
        match self {
            Preconditioner::None => "none",
            Preconditioner::Jacobi => "Jacobi",
            Preconditioner::TwoLevel => "TwoLevel",
            Preconditioner::Amg => "Amg",
            Preconditioner::Fsai => "Fsai",
            Preconditioner::Spai => "Spai",
            Preconditioner::Ic0 => "Ic0",
            Preconditioner::Ilu0 => "Ilu0",
            Preconditioner::Ilut => "Ilut",
            Preconditioner::Cholesky => "Cholesky",
            Preconditioner::Ldl => "Ldl",
            Preconditioner::Lu => "Lu",
            Preconditioner::SaddlePoint => "SaddlePoint",
        }
    }
}

impl Preconditioner {
    /// Whether the host builds and applies it, also for a solve on a GPU.
    pub(super) fn needs_host(self) -> bool {
        use Preconditioner::{Ic0, Ilu0, Ilut, SaddlePoint};
        self.is_complete() || matches!(self, Ic0 | Ilu0 | Ilut | SaddlePoint)
    }

    /// Whether it is a complete factorization.
    pub(super) fn is_complete(self) -> bool {
        matches!(self, Preconditioner::Cholesky | Preconditioner::Ldl | Preconditioner::Lu)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Preconditioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// By its name; case, blanks and punctuation do not count: `"cg"`, `"BiCgStab"`, `"bicg-stab"`.
impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Method> {
        by_name("method", name, &Method::ALL, Method::name)
    }
}

/// By its name; case, blanks and punctuation do not count: `"jacobi"`, `"none"`, `"two-level"`.
impl FromStr for Preconditioner {
    type Err = Error;

    fn from_str(name: &str) -> Result<Preconditioner> {
        by_name("preconditioner", name, &Preconditioner::ALL, Preconditioner::name)
    }
}

fn by_name<N: Copy>(what: &'static str, wanted: &str, all: &[N], name: fn(N) -> &'static str) -> Result<N> {
    let found = all.iter().find(|&&one| same_name(name(one), wanted));
    found.copied().ok_or_else(|| Error::Unknown {
        what,
        got: wanted.into(),
        known: all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", "),
    })
}

macro_rules! saved_by_name {
    ($($type:ty),*) => {$(
        impl Saved for $type {
            fn save(&self, to: &mut Writer<'_>) {
                self.name().to_owned().save(to);
            }

            fn load(from: &mut Reader<'_>) -> Loaded<Self> {
                from.load::<String>()?.parse().map_err(|_| Broken)
            }
        }
    )*};
}
saved_by_name!(Method, Preconditioner);
