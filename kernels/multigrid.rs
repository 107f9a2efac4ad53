//! The multigrid cycle in any memory.
//!
//! ```text
//! cycle:                                  on the last level, if it is inverted: x = A⁻¹ b
//!     x ← w₁ D⁻¹ b                        if x is zero before, otherwise as the other sweeps
//!     x ← x + w_i D⁻¹ (b − A x)           i = 2 … k
//!     b below ← Pᵀ (b − A x)
//!     x below ← cycle                     several times if the level says so: each visit but the first
//!                                         continues from the result of the one before
//!     x ← x + P (x below)
//!     x ← x + w_i D⁻¹ (b − A x)           i = k … 1
//! ```

/// A node is left out of aggregation if the norms of its off-diagonal blocks sum to at most this fraction of the norm of its
/// diagonal block: one Jacobi sweep then reduces its error to this fraction (the condition of Napov and Notay 2012).
pub const DOMINANT: f64 = 0.2;

/// A near-null-space vector is dropped on an aggregate as linearly dependent if orthogonalization against the preceding ones
/// leaves at most this fraction of its norm there.
pub const DEPENDENT: f64 = 1e-6;

/// With weak entries lumped into the diagonal, a row of the prolongator is scaled by the lumped diagonal if that exceeds this
/// fraction of the original one, otherwise by the original (guess).
pub const POSITIVE: f64 = 0.1;

/// Returns whether a coarsening is worthwhile: the next level, with `modes` unknowns for each of `aggregates`, has some
/// unknowns, and at most 0.9 times as many as the `rows` of this one.
pub fn gains(aggregates: u64, modes: usize, rows: u64) -> bool {
    aggregates > 0 && 10 * aggregates * modes as u64 <= 9 * rows
}

/// Vectors that span the near-null space, stored row by row.
#[derive(Clone, Debug)]
pub struct NearNullSpace<V> {
    /// Number of vectors.
    pub count: usize,
    /// Values: `count` for each row of the matrix.
    pub values: V,
}

/// The levels of a hierarchy, in any memory.
#[derive(Debug)]
pub struct Hierarchy<A, D, T, L> {
    /// The factor on the matrix of all levels, a power of two.
    pub scale: f64,
    /// The levels that are smoothed, the finest first.
    pub levels: Vec<Level<A, D, T>>,
    /// The inverse of the last level; `None` if the last level is smoothed.
    pub last: Option<L>,
}

/// A smoothed level of a hierarchy.
#[derive(Debug)]
pub struct Level<A, D, T> {
    /// The matrix.
    pub a: A,
    /// `D⁻¹`
    pub inverse: D,
    /// Weights of the sweeps, one or more.
    pub weights: Vec<f32>,
    /// Ratio of two estimates of the largest eigenvalue of `D⁻¹ A`: after all steps of the eigenvalue
    /// iteration, and after the few steps that a refresh takes. `None` before the first estimate.
    pub gain: Option<f64>,
    /// Transfer to the next level and back; `None` on the last level if it is smoothed.
    pub transfer: Option<T>,
    /// Number of cycles on the next level per cycle.
    pub visits: usize,
}

impl<A, D, T> Level<A, D, T> {
    /// The numbers of sweeps and visits of the level in a cycle.
    pub fn shape(&self) -> Shape {
        let visits = if self.transfer.is_some() { self.visits } else { 0 };
        Shape { sweeps: self.weights.len(), visits }
    }
}

/// The numbers of sweeps and visits of a level in a cycle.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of sweeps before the correction, and after it.
    pub sweeps: usize,
    /// Number of cycles on the next level; zero if there is no next level.
    pub visits: usize,
}

/// Operations of a cycle on the levels of a hierarchy, the finest of which is level 0. Each level has vectors
/// `b` and `x`.
pub trait Levels {
    /// Error of an operation.
    type Error;

    /// The numbers of sweeps and visits of a level; `None` for the level after the last smoothed one.
    fn shape(&self, level: usize) -> Option<Shape>;

    /// Sweep `k`: `x ← x + w D⁻¹ (b − A x)` with the `k`-th weight. If `from_zero`, entries of `x` count as zero,
    /// whatever they are.
    fn smooth(&mut self, level: usize, k: usize, from_zero: bool) -> Result<(), Self::Error>;

    /// `b ← Pᵀ (b − A x)`: the right-hand side of the next level.
    fn restrict(&mut self, level: usize) -> Result<(), Self::Error>;

    /// `x ← A⁻¹ b` on the last level, which is inverted.
    fn solve(&mut self) -> Result<(), Self::Error>;

    /// `x ← x + P e`, where `e` is the `x` of the next level.
    fn prolong(&mut self, level: usize) -> Result<(), Self::Error>;
}

/// Applies one cycle to a level and those below it. If `from_zero`, the initial guess is zero, otherwise `x`.
pub fn cycle<L: Levels>(levels: &mut L, level: usize, from_zero: bool) -> Result<(), L::Error> {
    let Some(Shape { sweeps, visits }) = levels.shape(level) else { return levels.solve() };
    (0..sweeps).try_for_each(|k| levels.smooth(level, k, from_zero && k == 0))?;
    if visits > 0 {
        levels.restrict(level)?;
        // an exact solve leaves no residual for a second visit
        let visits = if levels.shape(level + 1).is_some() { visits } else { 1 };
        (0..visits).try_for_each(|visit| cycle(levels, level + 1, visit == 0))?;
        levels.prolong(level)?;
    }
    (0..sweeps).rev().try_for_each(|k| levels.smooth(level, k, false))
}

/// Bytes that one cycle reads of a level.
#[derive(Clone, Copy, Debug)]
pub struct LevelBytes {
    /// Bytes of the matrix and the inverse diagonal, which a sweep reads.
    pub sweep: usize,
    /// Bytes of the transfers to the next level and back.
    pub transfer: usize,
}

impl<A, D, T, L> Hierarchy<A, D, T, L> {
    /// Bytes that one cycle reads, without vectors, given those of each level and of the inverse.
    pub fn bytes(
        &self,
        of_level: impl Fn(&Level<A, D, T>) -> LevelBytes,
        of_last: impl FnOnce(&L) -> usize,
    ) -> usize {
        let levels: Vec<_> = self.levels.iter().map(|level| (level.shape(), of_level(level))).collect();
        bytes(&levels, self.last.as_ref().map_or(0, of_last))
    }
}

fn bytes(levels: &[(Shape, LevelBytes)], last: usize) -> usize {
    let Some((&(Shape { sweeps, visits }, level), below)) = levels.split_first() else { return last };
    let (visits, first) = below.first().map_or((1, 0), |(_, next)| (visits, next.sweep));
    // the first sweep and the residual together read the matrix once, as each other sweep does; a visit that
    // does not start from zero has one sweep more
    2 * sweeps * level.sweep + level.transfer + visits * bytes(below, last) + visits.saturating_sub(1) * first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the operations of a cycle.
    struct Recorded(&'static [usize], Vec<String>);

    impl Levels for Recorded {
        type Error = ();

        fn shape(&self, level: usize) -> Option<Shape> {
            Some(Shape { sweeps: 2, visits: *self.0.get(level)? })
        }

        fn smooth(&mut self, level: usize, k: usize, from_zero: bool) -> Result<(), ()> {
            self.1.push(format!("{level}{}{k}", if from_zero { "=" } else { "+" }));
            Ok(())
        }

        fn restrict(&mut self, level: usize) -> Result<(), ()> {
            self.1.push(format!("{level}R"));
            Ok(())
        }

        fn solve(&mut self) -> Result<(), ()> {
            self.1.push("solve".into());
            Ok(())
        }

        fn prolong(&mut self, level: usize) -> Result<(), ()> {
            self.1.push(format!("{level}P"));
            Ok(())
        }
    }

    fn recorded(visits: &'static [usize]) -> String {
        let mut levels = Recorded(visits, vec![]);
        cycle(&mut levels, 0, true).unwrap();
        levels.1.join(" ")
    }

    #[test]
    fn the_order_of_operations() {
        assert_eq!(recorded(&[]), "solve");
        assert_eq!(recorded(&[0]), "0=0 0+1 0+1 0+0");
        let below = "1R solve 1P 1+1 1+0";
        assert_eq!(recorded(&[1, 1]), format!("0=0 0+1 0R 1=0 1+1 {below} 0P 0+1 0+0"));
        // the next level is inverted: one visit is enough
        assert_eq!(recorded(&[3]), "0=0 0+1 0R solve 0P 0+1 0+0");
        let twice = format!("1=0 1+1 {below} 1+0 1+1 {below}");
        assert_eq!(recorded(&[2, 1]), format!("0=0 0+1 0R {twice} 0P 0+1 0+0"));
    }

    /// `bytes` counts what the operations of a cycle read: each level's matrix has another number of bytes.
    #[test]
    fn bytes_are_those_of_the_operations() {
        for visits in [&[][..], &[1], &[3], &[1, 1], &[3, 1], &[3, 1, 1]] {
            let level = |(at, &visits): (usize, &usize)| {
                (Shape { sweeps: 2, visits }, LevelBytes { sweep: 10usize.pow(1 + at as u32), transfer: 3 })
            };
            let levels: Vec<_> = visits.iter().enumerate().map(level).collect();
            let operations = recorded(visits);
            let read = operations.split(' ').map(|operation| match operation {
                "solve" => 7,
                _ if operation.contains('=') => 0,
                _ if operation.contains('P') => 3,
                _ => 10usize.pow(1 + operation[..1].parse::<u32>().unwrap()),
            });
            assert_eq!(bytes(&levels, 7), read.sum::<usize>(), "{operations}");
        }
    }
}
