//! Advice after a solve that did not converge, in the words of the interface in use.

use crate::{Evidence, Outcome, Report, cg, gmres, minres, verdict};
use std::fmt;
use std::time::Duration;

/// Names that an interface uses for the options and methods that advice mentions, in the form that it prints:
/// "`max_iterations`" in Rust, "`maxiter`" in Python. `None` marks what the interface does not offer; the
/// advice then omits it.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceNames {
    /// Limit of iterations.
    pub max_iterations: &'static str,
    /// Time limit.
    pub time_limit: &'static str,
    /// Function or option that starts a solve from an initial guess.
    pub guess: &'static str,
    /// GMRES.
    pub gmres: &'static str,
    /// MINRES.
    pub minres: &'static str,
    /// BiCGStab.
    pub bicgstab: &'static str,
    /// Number of iterations between two restarts of GMRES.
    pub restart: Option<&'static str>,
    /// Declaration of a null space.
    pub null_space: Option<&'static str>,
}

impl InterfaceNames {
    /// Names of the Rust interface.
    pub const RUST: InterfaceNames = InterfaceNames {
        max_iterations: "`max_iterations`",
        time_limit: "`time_limit`",
        guess: "`solve_from`",
        gmres: "`Gmres`",
        minres: "`Minres`",
        bicgstab: "`BiCgStab`",
        restart: Some("`restart`"),
        null_space: Some("`null_space`"),
    };
}

impl Outcome {
    /// Advice on what to try next, in one sentence; `None` after convergence.
    pub fn advice(&self) -> Option<String> {
        self.advice_with(&InterfaceNames::RUST)
    }

    /// Like [`Outcome::advice`], with the names of another interface.
    pub fn advice_with(&self, words: &InterfaceNames) -> Option<String> {
        let InterfaceNames { max_iterations, time_limit, guess, gmres, minres, bicgstab, .. } = words;
        let declare = |what: &str| {
            words
                .null_space
                .map(|null_space| format!("declare {what} with {null_space}, "))
                .unwrap_or_default()
        };
        let restart = |before: &str| {
            words.restart.map(|restart| format!("{before} a longer {restart}")).unwrap_or_default()
        };
        Some(match self {
            Outcome::Converged => return None,
            Outcome::IterationLimit => {
                format!("raise {max_iterations}, or use a preconditioner that needs fewer iterations")
            }
            Outcome::TimeLimit => {
                format!("raise {time_limit}, or use a preconditioner that needs fewer iterations")
            }
            Outcome::Cancelled | Outcome::Stopped => format!("{guess} continues from the returned `x`"),
            Outcome::Breakdown { what, .. } => match *what {
                cg::SIGMA => {
                    format!("the matrix is not positive definite: use {minres} if it is symmetric, else {gmres}")
                }
                cg::RHO | minres::NU => {
                    format!("the preconditioner is not symmetric positive definite: use another, or {gmres}")
                }
                verdict::RHS | verdict::RESIDUAL => {
                    "scale `b`: squares of its entries, or of those of the residual, underflow or overflow".into()
                }
                gmres::PIVOT | minres::GAMMA => {
                    let declare = declare("its null space");
                    let or = if declare.is_empty() { "" } else { "or " };
                    format!("the matrix is singular: {declare}{or}make `b` consistent")
                }
                _ => format!("use {gmres}, which does not divide by this number, or a better preconditioner"),
            },
            Outcome::Diverged => format!(
                "check that matrix and preconditioner have the properties that the method needs, or use {gmres}"
            ),
            Outcome::Stagnated(Evidence::Energy { .. }) => {
                format!("check that matrix and preconditioner are symmetric positive definite, or use {gmres}")
            }
            Outcome::Stagnated(Evidence::Unsymmetric { .. }) => {
                format!("{gmres} and {bicgstab} do not need symmetry")
            }
            Outcome::Stagnated(Evidence::SlowConvergence { .. }) => {
                let restart = restart(" or");
                format!("use a better preconditioner{restart}, or raise {max_iterations}")
            }
            Outcome::Stagnated(Evidence::Singular { .. }) => {
                let declare = declare("the null space of the matrix");
                format!("{declare}scale the system, or use an element type with more digits")
            }
            Outcome::Stagnated(Evidence::Residual { .. }) => {
                let restart = restart(&format!(", or for {gmres}"));
                format!("use a better preconditioner{restart}")
            }
            Outcome::Stagnated(Evidence::Restart) => {
                "use a better preconditioner, or one that is closer to a linear operator".into()
            }
            Outcome::PrecisionLimit { .. } => {
                "use a larger tolerance; a smaller residual needs an element type with more digits, or a better scaled \
                 matrix"
                    .into()
            }
            Outcome::Inconsistent { .. } => {
                let declare = declare("the null space of the matrix");
                let or = if declare.is_empty() { "" } else { "or " };
                format!("{declare}{or}make `b` consistent")
            }
            Outcome::NotFinite { .. } => {
                "check the matrix, the preconditioner, `b` and the initial guess for infinities, NaN and overflow".into()
            }
        })
    }
}

impl Report {
    /// The report on one line, with the names of another interface in its advice.
    pub fn display_with<'a>(&'a self, words: &'a InterfaceNames) -> impl fmt::Display + 'a {
        self.display_with_setup(words, Duration::ZERO)
    }

    /// The report on one line, where `setup` is printed separately from the rest of [`Report::time`], of which
    /// it is a part.
    pub fn display_with_setup<'a>(
        &'a self,
        words: &'a InterfaceNames,
        setup: Duration,
    ) -> impl fmt::Display + 'a {
        InWords { report: self, words, setup }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display_with(&InterfaceNames::RUST).fmt(f)
    }
}

struct InWords<'a> {
    report: &'a Report,
    words: &'a InterfaceNames,
    setup: Duration,
}

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let iterations = if report.iterations == 1 { "iteration" } else { "iterations" };
        write!(f, "{} after {} {iterations}", report.outcome, report.iterations)?;
        if report.block > 1 {
            write!(f, " in a block of {} right-hand sides", report.block)?;
        }
        write!(f, ", ")?;
        if self.setup > Duration::ZERO {
            write!(f, "setup {:.3} s, ", self.setup.as_secs_f64())?;
        }
        let solve = report.time.saturating_sub(self.setup).as_secs_f64();
        write!(f, "solve {solve:.3} s, relative residual {:.2e}", report.relative_residual())?;
        if let Some(condition) = &report.condition {
            write!(f, ", condition of the preconditioned operator about {:.1e}", condition.ratio())?;
        }
        if let Outcome::PrecisionLimit { limit, .. } = report.outcome {
            write!(f, "; rounding `x` alone leaves {:.1e}", limit / report.rhs_norm)?;
        }
        if let Some(advice) = report.outcome.advice_with(self.words) {
            write!(f, "; to try next: {advice}")?;
        }
        Ok(())
    }
}
