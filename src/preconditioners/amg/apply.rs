//! Application of a cycle to one vector, and to several at once.
//!
//! ```text
//! b ← r / size                  in single precision; size: the largest magnitude of r, rounded down to a power of two
//! z ← cycle(b) size scale       cycle.rs; scale: the power of two by which all levels are scaled
//! ```
//!
//! Groups of up to [`TILE`] vectors go through one cycle together. They are stored row by row on all levels,
//! and each level is read once for all of them.

use super::super::several::{Pair, checked_pairs};
use super::cycle::{Workspace, bytes, cycle};
use super::{Amg, largest_of, power_below};
use crate::host::{HostSpace, HostVector};
use crate::numbers::Real;
use krysp_kernels::cpu::run::threads::{over_rows, tasks};
use krysp_kernels::cpu::run::tiles::TILE;
use krysp_solvers::{Element, LinearOperator, MultiVector, Result, check_spaces, with_workspace};
use std::sync::Mutex;

/// Number of entries per row from which on a cycle with a tile takes less time than three single cycles, or less
/// than five. Measured: 2.7 with 40 entries (`elast_bracket_p1_59k`, 2 and 16 threads), 4.5 with 7 (`p7_200`, 16
/// threads). The limits between these are guesses.
const LONG_ROWS: usize = 20;

/// Number of rows that are copied to or from a tile at a time, so that they stay in the L1 cache.
const ROWS: usize = 64;

/// Workspaces of cycles with one vector and with a tile of vectors, kept between applications because their
/// allocation takes a considerable part of a cycle's time.
#[derive(Debug, Default)]
pub(super) struct Workspaces {
    single: Mutex<Workspace<1>>,
    tile: Mutex<Workspace<TILE>>,
}

impl<T: Real> Amg<T> {
    /// Applies one cycle to up to `W` vectors.
    fn apply_to<const W: usize>(&self, kept: &Mutex<Workspace<W>>, pairs: &mut [Pair<'_, T>]) -> Result<()> {
        with_workspace(
            kept,
            || Ok(Workspace::default()),
            |workspace| match tasks(self.whole.entries()) {
                1 => self.apply_with(workspace, pairs),
                // inside the thread pool: otherwise each loop of the cycle would wake its threads
                _ => rayon::scope(|_| self.apply_with(workspace, pairs)),
            },
        )
    }

    /// Minimum number of vectors that go through a cycle together.
    fn least_tile(&self) -> usize {
        if self.whole.entries() >= LONG_ROWS * self.whole.rows() { 3 } else { 5 }
    }

    fn apply_with<const W: usize>(
        &self,
        workspace: &mut Workspace<W>,
        pairs: &mut [Pair<'_, T>],
    ) -> Result<()> {
        workspace.prepare(&self.hierarchy)?;
        // the range of single precision is 1e-38 to 1e38
        let mut sizes = [1.0; W];
        let largest = pairs.iter().map(|(r, _)| power_below(largest_of(r.as_slice())));
        sizes.iter_mut().zip(largest).for_each(|(size, largest)| *size = largest);
        let rows = self.whole.rows();
        let [b, _] = workspace.ends();
        let b = &mut b.as_chunks_mut::<W>().0[..rows];
        over_rows(rows, 2 * W, b, &|rows, b: &mut [[f32; W]]| {
            for (start, b) in rows.step_by(ROWS).zip(b.chunks_mut(ROWS)) {
                for (j, (r, _)) in pairs.iter().enumerate() {
                    let (r, down) = (&r.as_slice()[start..start + b.len()], 1.0 / sizes[j]);
                    b.iter_mut().zip(r).for_each(|(b, &r)| b[j] = (Element::to_f64(r) * down) as f32);
                }
                b.iter_mut().for_each(|b| b[pairs.len()..].fill(0.0));
            }
        });
        cycle::<W>(&self.hierarchy, workspace);
        let [_, x] = workspace.ends();
        let x = x.as_chunks::<W>().0;
        let (count, mut z) = (pairs.len(), [(); W].map(|()| <&mut [T]>::default()));
        z.iter_mut().zip(pairs).for_each(|(to, (_, z))| *to = z.as_mut_slice());
        over_rows(rows, 2 * W, z, &|rows, mut z: [&mut [T]; W]| {
            for (at, x) in x[rows].chunks(ROWS).enumerate() {
                for (j, z) in z[..count].iter_mut().enumerate() {
                    let (z, up) = (&mut z[at * ROWS..][..x.len()], self.hierarchy.scale * sizes[j]);
                    z.iter_mut().zip(x).for_each(|(z, x)| *z = T::from_f64(f64::from(x[j]) * up));
                }
            }
        });
        Ok(())
    }
}

impl<T: Real> LinearOperator for Amg<T> {
    type Vector = HostVector<T>;

    fn domain(&self) -> &HostSpace<T> {
        &self.space
    }

    fn apply(&self, r: &HostVector<T>, z: &mut HostVector<T>) -> Result<()> {
        check_spaces(self, r, z)?;
        self.apply_to(&self.workspaces.single, &mut [(r, z)])
    }

    fn apply_many(&self, r: &MultiVector<HostVector<T>>, z: &mut MultiVector<HostVector<T>>) -> Result<()> {
        let mut pairs = checked_pairs(self, r, z)?;
        for group in pairs.chunks_mut(TILE) {
            if group.len() >= self.least_tile() {
                self.apply_to(&self.workspaces.tile, group)?;
            } else {
                group.chunks_mut(1).try_for_each(|one| self.apply_to(&self.workspaces.single, one))?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        bytes(&self.hierarchy)
    }
}
