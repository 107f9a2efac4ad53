//! When a solve is given up: what a method decreases has stopped decreasing.
//!
//! The best residual so far must fall by a part of itself within a window of iterations, which grows with the iterations
//! made: the longer a solve has lasted, the longer a pause it is forgiven. Then it is looked at:
//!
//! 1. Methods for symmetric matrices are stuck where matrix or preconditioner are not symmetric: the residual tells, and the
//!    residual under other signs.
//! 2. The residual of conjugate gradients need not fall, in thousands of iterations. What falls in every one of them is the
//!    energy of the error, `‖x* − x_j‖²_A − ‖x* − x_{j+1}‖²_A = α_j ρ_j` (Hestenes and Stiefel 1952; Strakoš and Tichý 2002).
//!    The solve goes on for as long as it does: until the energy that was spent in the second half of the iterations is
//!    lost in the rounding of that of the first half.
//! 3. For other methods the pause is evidence enough.
//!
//! Restarted GMRES converges linearly: it is also given up where at its present pace the tolerance would take several times
//! the iterations allowed. And every method is, once `x` has grown so large, and stays so, that rounding it leaves a hundredth
//! of the right-hand side: then the matrix is singular to working precision.

use std::fmt;

/// A residual that has not fallen so far in so many iterations is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// The iterations; half of those made, where that is more.
    pub iterations: usize,
    /// The part of the residual by which it must fall.
    pub fall: f64,
}

/// Why a solve was given up as [`Stagnated`](crate::Outcome::Stagnated).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    /// The residual has not fallen.
    Residual {
        /// For how many iterations.
        iterations: usize,
    },
    /// The residual falls too slowly for the iterations allowed.
    Pace {
        /// How many more the tolerance would take.
        needed: f64,
    },
    /// Conjugate gradients no longer decrease the energy of the error: `x` changes by less than its rounding.
    Energy {
        /// For how many iterations the residual has not fallen.
        iterations: usize,
    },
    /// The matrix or the preconditioner is not symmetric, and the method needs it to be.
    Unsymmetric {
        /// Which of the two.
        what: &'static str,
    },
    /// The matrix is singular to the precision of its elements, and the right-hand side is not within its reach.
    Singular {
        /// What the condition of the matrix is at least.
        condition: f64,
    },
    /// The recomputed residual missed the tolerance, and starting again from it did not halve it.
    Restart,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Residual { iterations } => {
                write!(f, "the residual has not fallen in {iterations} iterations")
            }
            Evidence::Pace { needed } => {
                write!(f, "at this pace the tolerance takes {needed:.0} iterations more")
            }
            Evidence::Energy { iterations } => {
                write!(
                    f,
                    "neither the residual nor the energy of the error has fallen in {iterations} iterations"
                )
            }
            Evidence::Unsymmetric { what } => write!(f, "{what} is not symmetric"),
            Evidence::Singular { condition } => write!(
                f,
                "rounding `x` leaves more than a hundredth of the right-hand side: with a condition of {condition:.1e} or \
                 more the matrix is singular to working precision"
            ),
            Evidence::Restart => write!(f, "the recomputed residual no longer falls"),
        }
    }
}

/// What is known of the progress of a solve since it was started or started again.
pub(crate) struct Watch {
    patience: Patience,
    began: usize,
    best: f64,
    best_at: usize,
    /// No closer look before this iteration: one takes as long as some hundred iterations on a small system.
    next_look: usize,
}

/// How many times the iterations allowed a tolerance may seem away: convergence may still become faster.
const FAR: f64 = 4.0;
/// Iterations that are taken as allowed at least: who allows few wants the best of them.
const ALLOWED: usize = 10_000;

impl Watch {
    pub(crate) fn new(patience: Patience, iteration: usize, residual: f64) -> Self {
        Watch { patience, began: iteration, best: residual, best_at: iteration, next_look: 0 }
    }

    /// Takes note of a residual; says whether the solve is to be looked at.
    pub(crate) fn pauses(&mut self, iteration: usize, residual: f64) -> bool {
        if residual < (1.0 - self.patience.fall) * self.best {
            (self.best, self.best_at) = (residual, iteration);
        }
        if iteration - self.best_at < self.window(iteration) || iteration < self.next_look {
            return false;
        }
        self.next_look = iteration + (iteration - self.began) / 4 + 1;
        true
    }

    fn window(&self, iteration: usize) -> usize {
        self.patience.iterations.max((iteration - self.began) / 2)
    }

    /// A residual that has not fallen for so long is evidence.
    pub(crate) fn residual(&self, iteration: usize) -> Evidence {
        Evidence::Residual { iterations: iteration - self.best_at }
    }

    /// Whether conjugate gradients have come to rest; `lanczos` has `[α, β]` of every iteration since the start.
    pub(crate) fn energy(&self, iteration: usize, lanczos: &[[f64; 2]], epsilon: f64) -> Option<Evidence> {
        let [before, now] = energies(lanczos);
        (now <= epsilon * epsilon * before)
            .then_some(Evidence::Energy { iterations: iteration - self.best_at })
    }

    /// Whether a method that converges linearly is too slow to reach a threshold in the iterations allowed. `history` has the
    /// residuals from the first on, the last one just known.
    pub(crate) fn pace(&self, history: &[f64], threshold: f64, allowed: usize) -> Option<Evidence> {
        let iteration = history.len() - 1;
        let window = self.window(iteration);
        let (now, then) = (history.last()?, history.get(iteration.checked_sub(window)?)?);
        let needed = window as f64 * (now / threshold).ln() / (then / now).ln();
        let far =
            threshold > 0.0 && iteration >= self.began + window && needed > FAR * allowed.max(ALLOWED) as f64;
        far.then_some(Evidence::Pace { needed })
    }
}

/// The energy of the error that was spent in the first and in the second half of the iterations: `Σ αⱼ ρⱼ`, in units of `ρ₀`.
fn energies(lanczos: &[[f64; 2]]) -> [f64; 2] {
    let (mut sums, mut rho) = ([0.0; 2], 1.0);
    for (k, [alpha, beta]) in lanczos.iter().enumerate() {
        sums[usize::from(2 * k >= lanczos.len())] += alpha * rho;
        rho *= beta;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { iterations: 100, fall: 0.01 };

    /// The iteration at which a history is looked at first.
    fn looked_at(residual: impl Fn(usize) -> f64) -> Option<usize> {
        let mut watch = Watch::new(PATIENCE, 0, residual(0));
        (1..100_000).find(|&k| watch.pauses(k, residual(k)))
    }

    #[test]
    fn the_longer_a_solve_the_longer_its_pauses() {
        assert_eq!(looked_at(|_| 1.0), Some(100));
        assert_eq!(looked_at(|k| 1.0 / (1.0 + k as f64)), None);
        let fell_for_a_thousand = looked_at(|k| (k.min(1000) as f64 * -0.01).exp());
        assert!(fell_for_a_thousand.is_some_and(|k| (1990..=2000).contains(&k)), "{fell_for_a_thousand:?}");
    }

    #[test]
    fn conjugate_gradients_go_on_while_the_energy_falls() {
        let evidence =
            |beta: f64| Watch::new(PATIENCE, 0, 1.0).energy(400, &vec![[0.3, beta]; 400], f64::EPSILON);
        // ρ falls by a hundredth an iteration, or stays as it is, whatever the residual does
        assert_eq!((evidence(0.99), evidence(1.0)), (None, None));
        assert_eq!(evidence(0.25), Some(Evidence::Energy { iterations: 400 }));
    }

    #[test]
    fn the_pace_of_linear_convergence() {
        let watch = Watch::new(PATIENCE, 0, 1.0);
        let history = |rate: f64| -> Vec<f64> { (0..=200).map(|k| rate.powi(k)).collect() };
        assert_eq!(watch.pace(&history(0.99), 1e-8, 1000), None);
        assert_eq!(watch.pace(&history(0.9999), 1e-8, 100_000), None);
        let Some(Evidence::Pace { needed }) = watch.pace(&history(0.9999), 1e-8, 1000) else {
            panic!("184,000 iterations are too many")
        };
        assert!((needed - 184_000.0).abs() < 1000.0, "{needed}");
        assert!(watch.pace(&history(1.0), 1e-8, 1000).is_some());
        // no threshold, no pace
        assert_eq!(watch.pace(&history(0.9999), 0.0, 1000), None);
    }
}
