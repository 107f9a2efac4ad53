//! Stagnation detection: a solve ends when the quantity that its method minimizes no longer decreases.
//!
//! The best residual so far must decrease by a given fraction within a window of iterations. The window grows
//! with the number of iterations, because residuals of long solves may plateau for longer. If the residual
//! has not decreased, the solve is checked:
//!
//! 1. Methods for symmetric matrices stagnate if the matrix or the preconditioner is not symmetric. Symmetry
//!    is tested with two vectors: the residual, and the residual with some signs flipped.
//! 2. The residual of conjugate gradients may not decrease for thousands of iterations, but the energy of the
//!    error decreases in each: `‖x* − x_j‖²_A − ‖x* − x_{j+1}‖²_A = α_j ρ_j` with the step length `α_j` and
//!    `ρ_j = ⟨r_j, M⁻¹ r_j⟩` (Hestenes and Stiefel 1952; Strakoš and Tichý 2002). The solve continues until
//!    the decrease over the second half of the iterations is below the rounding error of the decrease over
//!    the first half.
//! 3. For other methods the plateau itself is the evidence.
//!
//! Restarted GMRES converges linearly. Its solve also ends if at the present rate the tolerance would take
//! several times the allowed iterations. Any solve ends once `x` has become and remained so large that
//! rounding `x` leaves a residual above a hundredth of the right-hand side: the matrix is then singular to
//! working precision.

use std::fmt;

/// Stagnation window: a solve is checked for stagnation when the best residual has not decreased by the
/// fraction `fall` within `iterations`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StagnationWindow {
    /// Minimum length of the window, which grows to half of the iterations since the last start.
    pub iterations: usize,
    /// Fraction by which the residual must decrease.
    pub fall: f64,
}

/// Reason why a solve ended as [`Stagnated`](crate::Outcome::Stagnated).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    /// The residual has not decreased.
    Residual {
        /// Number of iterations without a decrease.
        iterations: usize,
    },
    /// The residual decreases too slowly for the allowed iterations.
    SlowConvergence {
        /// Predicted number of further iterations to reach the tolerance.
        iterations: f64,
    },
    /// Conjugate gradients no longer decrease the energy of the error: `x` changes by less than its rounding
    /// error.
    Energy {
        /// Number of iterations in which the residual has not decreased.
        iterations: usize,
    },
    /// The matrix or the preconditioner is not symmetric, and the method requires it.
    Unsymmetric {
        /// `"the matrix"` or `"the preconditioner"`.
        what: &'static str,
    },
    /// The matrix is singular to working precision, and the right-hand side is not in its range.
    Singular {
        /// Lower bound of the matrix's condition number.
        condition: f64,
    },
    /// The recomputed residual missed the tolerance, and the last run did not halve its distance to the
    /// tolerance.
    Restart,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::Residual { iterations } => {
                write!(f, "the residual has not fallen in {iterations} iterations")
            }
            Evidence::SlowConvergence { iterations: needed } => {
                write!(f, "at this rate the tolerance takes {needed:.0} iterations more")
            }
            Evidence::Energy { iterations } => {
                write!(
                    f,
                    "neither the residual nor the energy of the error has decreased in {iterations} iterations"
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

/// Tracks the residuals of a solve since its last start, and decides when to check for stagnation.
pub(crate) struct StagnationDetector {
    stagnation_window: StagnationWindow,
    /// Iteration of the last start.
    began: usize,
    best: f64,
    best_at: usize,
    /// No check before this iteration, because on a small system a check takes as long as some hundred
    /// iterations.
    next_check: usize,
    /// First iteration at which a plateau is reported again.
    next_plateau: usize,
}

/// The solve ends if the predicted iterations exceed the allowed ones by this factor. It is large because
/// convergence may become faster (superlinear). Guess.
const TOO_FAR: f64 = 4.0;
/// Minimum number of iterations without a decrease of the residual until an iterate is kept. A guess: few, because
/// the iterates of small singular systems grow soon.
const PLATEAU: usize = 4;
/// Minimum number of allowed iterations assumed by the rate criterion: a caller who allows few wants all of
/// them. Guess.
const LEAST_ALLOWED: usize = 10_000;

impl StagnationDetector {
    pub(crate) fn new(stagnation_window: StagnationWindow, iteration: usize, residual: f64) -> Self {
        StagnationDetector {
            stagnation_window,
            began: iteration,
            best: residual,
            best_at: iteration,
            next_check: 0,
            next_plateau: 0,
        }
    }

    /// Returns whether the residual has not decreased for [`PLATEAU`] iterations and a quarter of all. True for few
    /// iterations: their distance doubles.
    pub(crate) fn is_on_plateau(&mut self, iteration: usize) -> bool {
        let all = iteration - self.began;
        let on_plateau = iteration - self.best_at >= PLATEAU.max(all / 4) && iteration >= self.next_plateau;
        if on_plateau {
            self.next_plateau = iteration + all;
        }
        on_plateau
    }

    /// Records a residual. Returns whether the solve should be checked now.
    pub(crate) fn note_residual(&mut self, iteration: usize, residual: f64) -> bool {
        if residual < (1.0 - self.stagnation_window.fall) * self.best {
            (self.best, self.best_at) = (residual, iteration);
        }
        if iteration - self.best_at < self.window(iteration) || iteration < self.next_check {
            return false;
        }
        self.next_check = iteration + (iteration - self.began) / 4 + 1;
        true
    }

    /// Number of iterations within which the residual must decrease.
    fn window(&self, iteration: usize) -> usize {
        self.stagnation_window.iterations.max((iteration - self.began) / 2)
    }

    /// Evidence that the residual has not decreased, for methods without a better criterion.
    pub(crate) fn residual_evidence(&self, iteration: usize) -> Evidence {
        Evidence::Residual { iterations: iteration - self.best_at }
    }

    /// Evidence that conjugate gradients no longer decrease the energy of the error. `lanczos` holds `[α, β]`
    /// of every iteration since the start.
    pub(crate) fn energy_evidence(
        &self,
        iteration: usize,
        lanczos: &[[f64; 2]],
        epsilon: f64,
    ) -> Option<Evidence> {
        let [before, now] = energies(lanczos);
        (now <= epsilon * epsilon * before)
            .then_some(Evidence::Energy { iterations: iteration - self.best_at })
    }

    /// Evidence that a linearly convergent method is too slow to reach the threshold in the allowed
    /// iterations. `history` holds all residuals, the latest last.
    pub(crate) fn rate_evidence(&self, history: &[f64], threshold: f64, allowed: usize) -> Option<Evidence> {
        let iteration = history.len() - 1;
        let window = self.window(iteration);
        let (now, then) = (history.last()?, history.get(iteration.checked_sub(window)?)?);
        let needed = window as f64 * (now / threshold).ln() / (then / now).ln();
        let far = threshold > 0.0
            && iteration >= self.began + window
            && needed > TOO_FAR * allowed.max(LEAST_ALLOWED) as f64;
        far.then_some(Evidence::SlowConvergence { iterations: needed })
    }
}

/// Decrease of the error's energy over the first and over the second half of the iterations: `Σ αⱼ ρⱼ`, in
/// units of `ρ₀`.
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

    const WINDOW: StagnationWindow = StagnationWindow { iterations: 100, fall: 0.01 };

    /// First iteration at which this history of residuals triggers a check.
    fn first_check(residual: impl Fn(usize) -> f64) -> Option<usize> {
        let mut detector = StagnationDetector::new(WINDOW, 0, residual(0));
        (1..100_000).find(|&k| detector.note_residual(k, residual(k)))
    }

    #[test]
    fn the_window_grows_with_the_iterations() {
        assert_eq!(first_check(|_| 1.0), Some(100));
        assert_eq!(first_check(|k| 1.0 / (1.0 + k as f64)), None);
        let fell_for_a_thousand = first_check(|k| (k.min(1000) as f64 * -0.01).exp());
        assert!(fell_for_a_thousand.is_some_and(|k| (1990..=2000).contains(&k)), "{fell_for_a_thousand:?}");
    }

    #[test]
    fn few_iterations_of_a_plateau_are_reported() {
        let mut detector = StagnationDetector::new(WINDOW, 0, 1.0);
        let found: Vec<usize> = (1..=100)
            .filter(|&k| {
                detector.note_residual(k, 1.0);
                detector.is_on_plateau(k)
            })
            .collect();
        assert_eq!(found, [4, 8, 16, 32, 64]);
        let mut falls = StagnationDetector::new(WINDOW, 0, 1.0);
        let falling = |k: usize| {
            falls.note_residual(k, 0.9_f64.powi(k as i32));
            falls.is_on_plateau(k)
        };
        assert!(!(1..=100).any(falling));
    }

    #[test]
    fn conjugate_gradients_go_on_while_the_energy_falls() {
        let evidence = |beta: f64| {
            StagnationDetector::new(WINDOW, 0, 1.0).energy_evidence(
                400,
                &vec![[0.3, beta]; 400],
                f64::EPSILON,
            )
        };
        // With these `β`, `ρ` decreases by a hundredth per iteration, or stays constant.
        assert_eq!((evidence(0.99), evidence(1.0)), (None, None));
        assert_eq!(evidence(0.25), Some(Evidence::Energy { iterations: 400 }));
    }

    #[test]
    fn slow_linear_convergence_is_evidence() {
        let detector = StagnationDetector::new(WINDOW, 0, 1.0);
        let history = |rate: f64| -> Vec<f64> { (0..=200).map(|k| rate.powi(k)).collect() };
        assert_eq!(detector.rate_evidence(&history(0.99), 1e-8, 1000), None);
        assert_eq!(detector.rate_evidence(&history(0.9999), 1e-8, 100_000), None);
        let Some(Evidence::SlowConvergence { iterations: needed }) =
            detector.rate_evidence(&history(0.9999), 1e-8, 1000)
        else {
            panic!("184,000 iterations are too many")
        };
        assert!((needed - 184_000.0).abs() < 1000.0, "{needed}");
        assert!(detector.rate_evidence(&history(1.0), 1e-8, 1000).is_some());
        // Without a threshold there is no rate to evaluate.
        assert_eq!(detector.rate_evidence(&history(0.9999), 0.0, 1000), None);
    }
}
