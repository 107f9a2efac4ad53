//! Kinds of matrices, on which the expected costs depend.

use super::{MANY_SOLVES, MANY_SOLVES_ON_MANY_THREADS, MANY_THREADS, MachineClass};
use crate::plan::Profile;

/// Median number of neighbours of a node, with itself, up to which a matrix is taken for a network, whose factors have little fill-in: 2 to
/// 4 in chains, most circuits and power networks (with one or two unknowns per node); 5 on five-point grids and in networks that fill in like
/// these, 7 on meshes of triangles.
const NETWORK: usize = 4;

/// Fraction of rows with a negative sum from which on constants are no near-null vectors: 0.15 to 0.34 was measured for edge elements,
/// beams and shells, at most 0.07 for diffusion and elasticity.
const ROUGH: f64 = 0.1;

/// Σ length² over the rows, divided by that of rows of equal length, from which on a matrix is irregular: 0.6 to 1.9 on meshes and power
/// networks, 3.3 and more on graphs whose degrees follow a power law. On one of these, with 60,000 nodes, a setup of `Amg` takes 0.1 s, and
/// 2.5 s with a smoothed finest prolongator.
const IRREGULAR: f64 = 2.5;

/// Iterations of `Ilut`: as a rule; for an unsymmetric matrix with a mostly zero diagonal, and a symmetric saddle point (8 to 57 on six
/// systems from optimization, elasticity and flow, while four others were stopped); and where it mostly fails, for a symmetric matrix,
/// and for a mostly symmetric pattern with at least 30 % zeros on the diagonal, whose symmetry a matching destroys: fill-in grows, and much
/// of it is dropped. A symmetric matrix runs it only if it is not positive definite; it then solved one of seven systems (graphs, a
/// Helmholtz and a Maxwell problem), which `Ldl` solved in a third of its time.
const ILUT: [f64; 3] = [20.0, 50.0, 500.0];

impl Profile {
    /// Whether the matrix is taken for that of a network rather than of a mesh: nodes have few neighbours, or few entries are mirrored.
    pub(super) fn is_network(&self) -> bool {
        self.neighbours <= NETWORK || 2 * self.mirrored < self.off_diagonal
    }

    /// Whether some rows have so many entries that products of the matrix with itself fill in, as for power-law graphs.
    pub(in crate::plan) fn is_irregular(&self) -> bool {
        let mean = self.entries as f64 / self.rows.max(1) as f64;
        self.sum_of_lengths(2) > IRREGULAR * mean * self.entries as f64
    }

    /// Whether plans smooth the finest prolongator of `Amg` for a problem with one unknown for each node, after so many solves.
    pub(in crate::plan) fn smooths_finest(&self, class: MachineClass, solves: usize) -> bool {
        let amortized = match class {
            MachineClass::Gpu { .. } => true,
            MachineClass::Host { threads } if threads >= MANY_THREADS => {
                solves >= MANY_SOLVES_ON_MANY_THREADS
            }
            MachineClass::Host { .. } => solves >= MANY_SOLVES,
        };
        (amortized || self.declared.many_solves) && !self.is_irregular()
    }

    /// Whether `Ldl` and `Lu` compute a matching: more than a fiftieth of the diagonal is small, and the pattern nearly symmetric.
    pub(in crate::plan) fn takes_matching(&self) -> bool {
        50 * self.weak_diagonal > self.rows && 2 * self.mirrored >= self.off_diagonal
    }

    /// Whether most of the diagonal is zero, and the matrix unsymmetric: Jacobi would fail.
    pub(in crate::plan) fn has_zero_diagonal(&self) -> bool {
        2 * self.zero_diagonal > self.rows && !self.is_symmetric()
    }

    /// Whether constants are far from the near-null space of a symmetric matrix, so that aggregation is not expected to help.
    pub(in crate::plan) fn is_rough(&self) -> bool {
        self.negative_sums as f64 > ROUGH * self.rows as f64
    }

    /// Σ `length^power` over the rows, estimated from the histogram of lengths.
    pub(super) fn sum_of_lengths(&self, power: i32) -> f64 {
        let powers = (0..).zip(&self.histogram).map(|(bucket, &rows): (i32, _)| {
            let most = (2f64.powi(bucket) - 1.0).min(self.lengths[4] as f64);
            rows as f64 * (0.75 * most).powi(power)
        });
        powers.sum()
    }

    pub(super) fn ilut_iterations(&self) -> f64 {
        let destroyed = 2 * self.mirrored >= self.off_diagonal && 10 * self.zero_diagonal >= 3 * self.rows;
        match self.has_zero_diagonal() || self.saddle.is_some() && self.is_symmetric() {
            true => ILUT[1],
            false if destroyed || self.is_symmetric() => ILUT[2],
            false => ILUT[0],
        }
    }
}
