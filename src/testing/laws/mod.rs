//! Laws: functions that check one property of any vector, operator or format.
//!
//! A law returns [`Violation`] with the offending numbers. A law neither panics nor prints.
//!
//! ```
//! use krysp::testing::laws::{self, Agreement};
//! use krysp::testing::matrices::edge;
//!
//! let triplets = edge::arrow(33);
//! let a = triplets.csr::<f64>()?;
//! laws::product(&a, &triplets)?;
//! laws::operator_fusions(&a, Agreement::Bitwise)?;
//! laws::sizes_refused(&a)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`format()`] checks all laws of formats on many [`cases()`].

mod cases;
mod format;
mod multigrid;
mod operator;
pub mod refusals;
mod vector;

pub use cases::{Case, cases, coarse, large_cases};
pub use format::{Conversion, Tally, accounting, format, format_products, refresh, round_trip, same_matrix};
pub use multigrid::{MAX_COARSE_SIZE, Multigrid, Reference, Relation, multigrid};
pub use operator::{
    operator_fusions, precise_residual, product, same_on_all_threads, second_product, several_products,
    sizes_refused, stale_values,
};
pub use vector::{basis_fusions, numbers, vector_fusions};

use krysp_solvers::Element;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::fmt;
use std::sync::OnceLock;

/// Numbers of threads on which results are compared: few, an odd number, and more than many machines have cores.
const THREADS: [usize; 6] = [1, 2, 3, 7, 16, 32];

/// Thread pools on which results are compared, of 1, 2, 3, 7, 16 and 32 threads. They are started once, because a pool
/// takes longer to start than most operations that are compared.
pub fn pools() -> Law<&'static [ThreadPool]> {
    static POOLS: OnceLock<Result<Vec<ThreadPool>, String>> = OnceLock::new();
    let start =
        || THREADS.into_iter().map(|threads| ThreadPoolBuilder::new().num_threads(threads).build()).collect();
    let pools = POOLS
        .get_or_init(|| Result::map_err(start(), |error: rayon::ThreadPoolBuildError| error.to_string()));
    pools.as_deref().map_err(unexpected("threads start"))
}

/// The result of a law.
pub type Law<T = ()> = Result<T, Violation>;

/// The violation of a law: which law, on which matrix or format, and with which numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    law: &'static str,
    case: String,
    how: String,
}

impl Violation {
    /// Reports a law as broken, with the numbers that break it.
    pub fn new(law: &'static str, how: impl Into<String>) -> Self {
        Violation { law, case: String::new(), how: how.into() }
    }

    /// Adds the name of the matrix or format that the law was checked on.
    pub fn on(mut self, case: &str) -> Self {
        self.case = if self.case.is_empty() { case.into() } else { format!("{case}, {}", self.case) };
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken law: {}", self.law)?;
        if !self.case.is_empty() {
            write!(f, " [{}]", self.case)?;
        }
        write!(f, ": {}", self.how)
    }
}

/// Equal to [`Display`](fmt::Display), so that a failing `unwrap` in a test is readable.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

/// Required agreement of a fused operation with its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Bitwise, as in host memory.
    Bitwise,
    /// Up to rounding, as in other memories.
    Rounding,
}

impl Agreement {
    /// Compares entries whose magnitudes are neither very large nor very small.
    fn entries<T: Element>(self, law: &'static str, what: &str, got: &[T], expected: &[T]) -> Law {
        if got.len() != expected.len() {
            return Err(Violation::new(
                law,
                format!("{what} has {} entries, not {}", got.len(), expected.len()),
            ));
        }
        let differ = |&(_, (&a, &b)): &(usize, (&T, &T))| match self {
            Agreement::Bitwise => !same_bits(a, b),
            Agreement::Rounding => {
                // rows may have thousands of entries, which each format adds up in its own order
                !close(a.to_f64(), b.to_f64(), 64.0 * T::EPSILON * (1.0 + b.to_f64().abs()))
            }
        };
        match got.iter().zip(expected).enumerate().find(differ) {
            None => Ok(()),
            Some((i, (a, b))) => Err(Violation::new(law, format!("{what}[{i}] is {a:e}, not {b:e}"))),
        }
    }

    /// Compares two sums of the same `terms` numbers, whose magnitudes add up to `magnitude`.
    fn sum<T: Element>(
        self,
        law: &'static str,
        what: &str,
        [got, expected]: [T; 2],
        magnitude: f64,
        terms: usize,
    ) -> Law {
        let agree = match self {
            Agreement::Bitwise => same_bits(got, expected),
            Agreement::Rounding => close(got.to_f64(), expected.to_f64(), rounding::<T>(terms) * magnitude),
        };
        if agree { Ok(()) } else { Err(Violation::new(law, format!("{what} is {got:e}, not {expected:e}"))) }
    }
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance || (a.is_nan() && b.is_nan()) || a == b
}

/// Returns whether two numbers are equal bitwise, compared as doubles.
fn same_bits<T: Element>(a: T, b: T) -> bool {
    a.to_f64().to_bits() == b.to_f64().to_bits()
}

/// The expected error of a sum, relative to the sum of magnitudes: rounding errors add up like a random walk, in any
/// order.
fn rounding<T: Element>(terms: usize) -> f64 {
    (4.0 + (terms as f64).sqrt()) * T::EPSILON
}

/// Turns an error of the library, where the law expects none, into a broken law.
fn unexpected<E: fmt::Display>(law: &'static str) -> impl Fn(E) -> Violation {
    move |error| Violation::new(law, format!("failed: {error}"))
}
