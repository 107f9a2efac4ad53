//! What to try after a solve that did not converge, in the words of the interface in use.

use crate::{Evidence, Outcome, Report, cg, gmres, minres, verdict};
use std::fmt;

/// The names that an interface uses for what an advice mentions, each as it is to be printed: "`max_iterations`" in Rust,
/// "`maxiter`" in Python. `None` stands for what the interface does not offer, and the advice leaves it out.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The limit of iterations.
    pub max_iterations: &'static str,
    /// The limit of time.
    pub time_limit: &'static str,
    /// What makes a solve begin with a given `x`.
    pub guess: &'static str,
    /// The method GMRES.
    pub gmres: &'static str,
    /// The method MINRES.
    pub minres: &'static str,
    /// The method BiCGStab.
    pub bicgstab: &'static str,
    /// The iterations between two restarts of GMRES.
    pub restart: Option<&'static str>,
    /// The declaration of a null space.
    pub null_space: Option<&'static str>,
}

impl Words {
    /// The names of this library.
    pub const RUST: Words = Words {
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
    /// What to try next, in one sentence; `None` after convergence.
    pub fn advice(&self) -> Option<String> {
        self.advice_in(&Words::RUST)
    }

    /// As [`Outcome::advice`], with the names of another interface.
    pub fn advice_in(&self, words: &Words) -> Option<String> {
        let Words { max_iterations, time_limit, guess, gmres, minres, bicgstab, .. } = words;
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
                format!("allow more with {max_iterations}, or take a preconditioner that needs fewer")
            }
            Outcome::TimeLimit => {
                format!("raise {time_limit}, or take a preconditioner that needs fewer iterations")
            }
            Outcome::Cancelled | Outcome::Stopped => format!("{guess} continues from the returned `x`"),
            Outcome::Breakdown { what, .. } => match *what {
                cg::SIGMA => {
                    format!("the matrix is not positive definite: {minres} if it is symmetric, else {gmres}")
                }
                cg::RHO | minres::NU => {
                    format!("the preconditioner is not symmetric positive definite: take another, or {gmres}")
                }
                verdict::RHS | verdict::RESIDUAL => {
                    "scale `b`: squares of its entries, or of those of the residual, underflow or overflow".into()
                }
                gmres::PIVOT | minres::GAMMA => {
                    let declare = declare("its null space");
                    let or = if declare.is_empty() { "" } else { "or " };
                    format!("the matrix is singular: {declare}{or}make `b` consistent")
                }
                _ => format!("take {gmres}, which does not divide by this number, or a better preconditioner"),
            },
            Outcome::Diverged => format!(
                "check that matrix and preconditioner have the properties that the method needs, or take {gmres}"
            ),
            Outcome::Stagnated(Evidence::Energy { .. }) => {
                format!("check that matrix and preconditioner are symmetric positive definite, or take {gmres}")
            }
            Outcome::Stagnated(Evidence::Unsymmetric { .. }) => {
                format!("{gmres} and {bicgstab} do not need symmetry")
            }
            Outcome::Stagnated(Evidence::Pace { .. }) => {
                let restart = restart(" or");
                format!("take a better preconditioner{restart}, or allow more iterations with {max_iterations}")
            }
            Outcome::Stagnated(Evidence::Singular { .. }) => {
                let declare = declare("the null space of the matrix");
                format!("{declare}scale the system, or use an element type with more digits")
            }
            Outcome::Stagnated(Evidence::Residual { .. }) => {
                let restart = restart(&format!(", or for {gmres}"));
                format!("take a better preconditioner{restart}")
            }
            Outcome::Stagnated(Evidence::Restart) => {
                "take a better preconditioner, or make the one there is closer to linear".into()
            }
            Outcome::PrecisionLimit { .. } => {
                "ask for a larger tolerance; a smaller residual needs an element type with more digits, or a better scaled \
                 matrix"
                    .into()
            }
            Outcome::Inconsistent { .. } => {
                let declare = declare("the null space of the matrix");
                let or = if declare.is_empty() { "" } else { "or " };
                format!("{declare}{or}make `b` consistent")
            }
            Outcome::NotFinite { .. } => {
                "look for infinities, NaN and overflow in the matrix, the preconditioner, `b` and the guess".into()
            }
        })
    }
}

impl Report {
    /// The report on one line, with the names of another interface in its advice.
    pub fn in_words<'a>(&'a self, words: &'a Words) -> impl fmt::Display + 'a {
        InWords { report: self, words }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_words(&Words::RUST).fmt(f)
    }
}

struct InWords<'a> {
    report: &'a Report,
    words: &'a Words,
}

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        write!(
            f,
            "{} after {} iterations, solve {:.3} s, relative residual {:.2e}",
            report.outcome,
            report.iterations,
            report.time.as_secs_f64(),
            report.relative_residual()
        )?;
        if let Some(condition) = &report.condition {
            write!(f, ", condition of the preconditioned operator about {:.1e}", condition.ratio())?;
        }
        if let Outcome::PrecisionLimit { limit, .. } = report.outcome {
            write!(f, "; rounding `x` alone leaves {:.1e}", limit / report.rhs_norm)?;
        }
        if let Some(advice) = report.outcome.advice_in(self.words) {
            write!(f, "; to try next: {advice}")?;
        }
        Ok(())
    }
}
