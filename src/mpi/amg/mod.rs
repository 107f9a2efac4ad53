//! Algebraic multigrid over MPI ranks.
//!
//! Aggregates do not cross rank boundaries. Everything else is as in one process: prolongators are smoothed
//! across ranks, and coarse matrices are those of the whole system. A level that is small enough to be
//! inverted, or that has few rows per rank, is replicated on all ranks, which compute the remaining levels
//! redundantly: communicating so few rows would take longer than computing them.
//!
//! Communication of a cycle: for each distributed level and each neighbour, one message per product with the
//! level's matrix, overlapped with the product of the diagonal block, one message for the product with `P`,
//! and one for that with `Pᵀ`. The right-hand side of the replicated levels takes one gather.

#[cfg(feature = "cuda")]
mod on_cuda;
mod setup;

use super::halo::{Back, HaloExchange, Routes};
use super::matrix::RankMatrix;
use super::ranks::Ranks;
use super::vector::{RankSpace, RankVector};
use crate::error::Result;
use crate::host::HostVector;
use crate::numbers::Real;
use crate::preconditioners::amg::cycle::scaled;
use crate::preconditioners::amg::modes::NearNullSpace;
use crate::preconditioners::amg::spectrum::{largest, noise, weights};
use crate::preconditioners::amg::stored::Stored;
use crate::preconditioners::amg::{Amg, AmgOptions, LEVELS, largest_of, power_below, strength};
use krysp_kernels::cpu::run::threads::over_rows;
use krysp_solvers::{Diagonal, Element, LinearOperator, Space, Vector, check_spaces};
use setup::Rows;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A level with at most this many rows per rank, on average, is replicated on all ranks.
const FEW: u64 = 8;

/// The right-hand side may grow or shrink by this factor before `size`, by which it is divided, is changed:
/// the range of single precision is 1e-38 to 1e38.
const REACH: f64 = 1e12;

/// [`Amg`] over MPI ranks: one hierarchy for the whole system. `Display` prints the sizes of its levels.
/// `m.to(&gpu)` copies the levels to the GPUs of the ranks.
///
/// ```no_run
/// use krysp::Cg;
/// use krysp::mpi::{RankAmg, RankMatrix};
///
/// fn solve(a: &RankMatrix<f64>, b: &[f64]) -> krysp::Result<Vec<f64>> {
///     let m = RankAmg::new(a)?;
///     Ok(Cg::new(a).preconditioner(m).rtol(1e-8).solve(b)?.x)
/// }
/// ```
#[derive(Debug)]
pub struct RankAmg<T: Real> {
    space: RankSpace<T>,
    modes: Vec<Vec<T>>,
    options: AmgOptions,
    hierarchy: Mutex<Hierarchy>,
    report: String,
}

/// The levels and the workspace of a cycle.
#[derive(Debug)]
struct Hierarchy {
    /// A power of two that scales the largest diagonal entry to about one.
    scale: f64,
    /// The power of two by which the last right-hand side was divided.
    size: f64,
    levels: Vec<Level>,
    last: Last,
}

/// A level that is distributed over the ranks.
#[derive(Debug)]
struct Level {
    a: RankMatrix<f32>,
    /// `D⁻¹`
    inverse: HostVector<f32>,
    weights: Vec<f32>,
    /// `None` on the last distributed level if no level follows.
    transfer: Option<Transfer>,
    b: RankVector<f32>,
    x: RankVector<f32>,
    t: RankVector<f32>,
}

/// Transfer to the next level and back: the rows of `P` and the columns of `Pᵀ` of this rank.
struct Transfer {
    p: Stored,
    r: Stored,
    halo: HaloExchange<f32>,
    back: Back<f32>,
    /// Kept for copies on GPUs.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    routes: Routes,
    /// A vector of the next level: own entries, then ghosts.
    coarse: HostVector<f32>,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P in {}, its transpose in {}", self.p.name(), self.r.name())
    }
}

/// The levels that are replicated on all ranks.
#[derive(Clone, Debug)]
struct Last {
    ranks: Ranks,
    /// `None` where the last distributed level is only smoothed.
    amg: Option<Arc<Amg<f64>>>,
    /// The first row of each rank, then the total number of rows; all zero if `amg` is `None`.
    bounds: Vec<usize>,
    b: Vec<f32>,
    x: Vec<f32>,
}

impl<T: Real> RankAmg<T> {
    /// Like [`Amg::new`]. Collective: all ranks call this.
    pub fn new(matrix: &RankMatrix<T>) -> Result<RankAmg<T>> {
        RankAmg::with::<[T; 0]>(matrix, &[], AmgOptions::default())
    }

    /// Like [`Amg::with_near_null_space`], each rank with its part of the modes. Collective: all ranks call this.
    pub fn with_near_null_space<V: AsRef<[T]> + Sync>(
        matrix: &RankMatrix<T>,
        modes: &[V],
    ) -> Result<RankAmg<T>> {
        RankAmg::with(matrix, modes, AmgOptions::default())
    }

    /// Like [`Amg::with`], each rank with its part of the modes. Collective: all ranks call this.
    pub fn with<V: AsRef<[T]> + Sync>(
        matrix: &RankMatrix<T>,
        modes: &[V],
        options: AmgOptions,
    ) -> Result<RankAmg<T>> {
        let space = matrix.domain();
        let check = || {
            options.check()?;
            modes.iter().try_for_each(|mode| space.vector(mode.as_ref()).map(|_| ()))?;
            Ok(())
        };
        matrix.ranks().all(check())?;
        let modes: Vec<Vec<T>> = modes.iter().map(|mode| mode.as_ref().to_vec()).collect();
        let (hierarchy, report) = Hierarchy::new(matrix, &modes, options)?;
        let hierarchy = Mutex::new(hierarchy);
        Ok(RankAmg { space: space.clone(), modes, options, hierarchy, report })
    }

    /// Rebuilds all levels for new values of the matrix. Collective: all ranks call this.
    pub fn refresh(&mut self, matrix: &RankMatrix<T>) -> Result<()> {
        *self = RankAmg::with(matrix, &self.modes, self.options)?;
        Ok(())
    }
}

impl Hierarchy {
    fn new<T: Real>(
        matrix: &RankMatrix<T>,
        modes: &[Vec<T>],
        options: AmgOptions,
    ) -> Result<(Hierarchy, String)> {
        let mut rows = Rows::of(matrix)?;
        let ranks = rows.ranks.clone();
        let own = matrix.domain().local_len();
        let mut modes = match modes.len() {
            0 => NearNullSpace::constants(own, rows.size),
            count => {
                let entry = |at: usize| Element::to_f64(modes[at % count][at / count]);
                NearNullSpace { count, values: (0..own * count).map(entry).collect() }
            }
        };
        let (mut levels, mut report, mut scale) = (vec![], String::new(), 1.0);
        let last = loop {
            report += &format!("{}{} rows", if levels.is_empty() { "" } else { ", " }, rows.all());
            let inverse = ranks.all(strength::inverse_diagonal(rows.blocks()))?;
            if levels.is_empty() {
                scale = strength::scale_of(strength::least_of(
                    &ranks.gather(vec![strength::least_of(&inverse)])?,
                ));
            }
            if rows.all() <= (options.max_coarse_size as u64).max(FEW * ranks.size() as u64) {
                let (csr, modes) = rows.everywhere(&modes)?;
                let amg = ranks.all(Amg::of_nodes(&csr, rows.size, (modes, None), false, options))?;
                report += " on each rank";
                break Last::new(&ranks, Some(amg), &rows);
            }
            let mut level = Level::new(&rows, &inverse, scale)?;
            let omega = level.set_weights(options.sweeps)?;
            let coarser = match levels.len() < LEVELS {
                true => rows.coarser(&inverse, omega, &modes, options.strength)?,
                false => None,
            };
            let Some((transfer, coarse, coarse_modes)) = coarser else {
                levels.push(level);
                break Last::new(&ranks, None, &rows);
            };
            level.transfer = Some(transfer);
            levels.push(level);
            (rows, modes) = (coarse, coarse_modes);
        };
        Ok((Hierarchy { scale, size: 1.0, levels, last }, report))
    }
}

impl Level {
    fn new(rows: &Rows, inverse: &[f64], scale: f64) -> Result<Level> {
        let a = rows.narrow(scale)?;
        let space = a.domain().clone();
        let of = |&inverse: &f64| if inverse == 0.0 { 1.0 } else { (inverse / scale) as f32 };
        let inverse = HostVector::from_slice(&inverse.iter().map(of).collect::<Vec<_>>());
        let [b, x, t] = [space.zeros()?, space.zeros()?, space.zeros()?];
        Ok(Level { a, inverse, weights: vec![], transfer: None, b, x, t })
    }

    /// Chooses the weights of the smoother; returns the `ω` of the prolongator.
    fn set_weights(&mut self, sweeps: usize) -> Result<f64> {
        let space = self.a.domain();
        let own = space.rows();
        let noise = space.vector(&noise(own.start as usize..own.end as usize))?;
        let diagonal = Diagonal::new(space.vector(self.inverse.as_slice())?);
        let largest = largest(&self.a, &diagonal, noise, &mut None)?;
        self.weights = weights(largest, sweeps);
        Ok(4.0 / 3.0 / largest)
    }

    /// `t ← A x`
    fn product(&mut self) -> krysp_solvers::Result<()> {
        self.a.apply(&self.x, &mut self.t)
    }

    /// `x ← x + w D⁻¹ (b − A x)`
    fn sweep(&mut self, weight: f32) -> krysp_solvers::Result<()> {
        self.product()?;
        let (b, t, x) = (self.b.own().as_slice(), self.t.own().as_slice(), self.x.own_mut().as_mut_slice());
        relax(weight, self.inverse.as_slice(), b, t, x);
        Ok(())
    }
}

impl Last {
    fn new(ranks: &Ranks, amg: Option<Amg<f64>>, rows: &Rows) -> Last {
        let amg = amg.map(Arc::new);
        let all = amg.as_ref().map_or(0, |amg| amg.domain().len());
        let row = |&bound: &u64| if all == 0 { 0 } else { bound as usize * rows.size };
        let bounds: Vec<usize> = rows.bounds.iter().map(row).collect();
        let own = bounds[ranks.rank() + 1] - bounds[ranks.rank()];
        Last { ranks: ranks.clone(), amg, bounds, b: vec![0.0; own], x: vec![0.0; own] }
    }

    /// Solves with the replicated levels. Only the distributed levels are scaled by `scale`, so the solution
    /// is divided by it. Returns the maximum of `own` over all ranks, which is sent in the same message.
    fn solve(&mut self, scale: f64, own: f64) -> Result<f64> {
        let Last { ranks, amg, bounds, b, x } = self;
        let lengths = || bounds.windows(2).map(|pair| pair[1] - pair[0]);
        let most = lengths().max().unwrap_or(0);
        let mut message = vec![0.0f32; most + 1];
        message[..b.len()].copy_from_slice(b);
        // the base-2 logarithm of any `f64` fits into single precision
        message[most] = own.log2() as f32;
        let parts = ranks.gather(message)?;
        let parts = parts.chunks_exact(most + 1);
        if let Some(amg) = amg {
            let whole = parts.clone().zip(lengths()).flat_map(|(part, length)| &part[..length]);
            let whole: Vec<f64> = whole.map(|&b| f64::from(b)).collect();
            let mut solved = amg.domain().zeros()?;
            amg.apply(&HostVector::from_slice(&whole), &mut solved)?;
            let own = &solved.as_slice()[bounds[ranks.rank()]..bounds[ranks.rank() + 1]];
            x.iter_mut().zip(own).for_each(|(x, &own)| *x = (own / scale) as f32);
        }
        Ok(parts.map(|part| f64::from(part[most])).fold(f64::NEG_INFINITY, f64::max).exp2())
    }
}

impl Hierarchy {
    /// Applies one V-cycle to the right-hand side. `own` is the largest magnitude of its part on this rank,
    /// before the division by `size`; returns the maximum of `own` over all ranks.
    fn cycle(&mut self, own: f64) -> krysp_solvers::Result<f64> {
        let Hierarchy { scale, levels, last, .. } = self;
        for at in 0..levels.len() {
            let (level, below) = levels[at..].split_at_mut(1);
            let level = &mut level[0];
            let (inverse, b) = (level.inverse.as_slice(), level.b.own().as_slice());
            scaled::<1>(level.weights[0], inverse, b, level.x.own_mut().as_mut_slice());
            for sweep in 1..level.weights.len() {
                level.sweep(level.weights[sweep])?;
            }
            if level.transfer.is_some() {
                level.product()?;
            }
            let Level { transfer: Some(Transfer { r, back, coarse, .. }), b, t, .. } = level else { break };
            t.own_mut().axpby(&1.0, b.own(), &-1.0);
            r.apply(t.own(), coarse)?;
            let to = match below.first_mut() {
                Some(below) => below.b.own_mut().as_mut_slice(),
                None => &mut last.b,
            };
            let (own, ghosts) = coarse.as_slice().split_at(to.len());
            to.copy_from_slice(own);
            back.add(ghosts, to)?;
        }
        let largest = last.solve(*scale, own)?;
        for at in (0..levels.len()).rev() {
            let (level, below) = levels[at..].split_at_mut(1);
            let level = &mut level[0];
            if let Level { transfer: Some(Transfer { p, halo, coarse, .. }), x, t, .. } = level {
                let from = match below.first() {
                    Some(below) => below.x.own().as_slice(),
                    None => &last.x,
                };
                halo.start(from)?;
                let (own, ghosts) = coarse.as_mut_slice().split_at_mut(from.len());
                own.copy_from_slice(from);
                ghosts.copy_from_slice(halo.receive()?);
                p.apply(coarse, t.own_mut())?;
                x.own_mut().axpy(&1.0, t.own());
            }
            for sweep in (0..level.weights.len()).rev() {
                level.sweep(level.weights[sweep])?;
            }
        }
        Ok(largest)
    }

    /// The right-hand side and the solution of the finest level.
    fn ends(&mut self) -> [&mut [f32]; 2] {
        match self.levels.first_mut() {
            Some(Level { b, x, .. }) => [b.own_mut().as_mut_slice(), x.own_mut().as_mut_slice()],
            None => [&mut self.last.b, &mut self.last.x],
        }
    }
}

impl<T: Real> LinearOperator for RankAmg<T> {
    type Vector = RankVector<T>;

    fn domain(&self) -> &RankSpace<T> {
        &self.space
    }

    fn apply(&self, r: &RankVector<T>, z: &mut RankVector<T>) -> krysp_solvers::Result<()> {
        check_spaces(self, r, z)?;
        let hierarchy = &mut *self.hierarchy.lock().unwrap_or_else(PoisonError::into_inner);
        let wide = r.own().as_slice();
        let own = largest_of(wide);
        loop {
            let down = 1.0 / hierarchy.size;
            let [b, _] = hierarchy.ends();
            over_rows(wide.len(), 2, b, &|rows, b: &mut [f32]| {
                b.iter_mut().zip(&wide[rows]).for_each(|(b, &r)| *b = (Element::to_f64(r) * down) as f32);
            });
            // the cycle reports the largest magnitude of `r` over all ranks; if `size` is too far from it, the
            // cycle is repeated with a new `size`
            let largest = hierarchy.cycle(own)?;
            let apart = largest / hierarchy.size;
            if !(largest.is_normal()) || (apart < REACH && apart > 1.0 / REACH) {
                break;
            }
            hierarchy.size = power_below(largest);
        }
        let up = hierarchy.scale * hierarchy.size;
        let [_, x] = hierarchy.ends();
        let narrow = &*x;
        over_rows(wide.len(), 2, z.own_mut().as_mut_slice(), &|rows, z: &mut [T]| {
            z.iter_mut().zip(&narrow[rows]).for_each(|(z, &x)| *z = T::from_f64(f64::from(x) * up));
        });
        Ok(())
    }

    fn bytes(&self) -> usize {
        let hierarchy = self.hierarchy.lock().unwrap_or_else(PoisonError::into_inner);
        let level = |level: &Level| {
            let transfers = level.transfer.as_ref().map_or(0, |both| both.p.bytes() + both.r.bytes());
            2 * level.weights.len() * (level.a.bytes() + size_of_val(level.inverse.as_slice())) + transfers
        };
        let last = hierarchy.last.amg.as_ref().map_or(0, |amg| amg.bytes());
        hierarchy.levels.iter().map(level).sum::<usize>() + last
    }
}

/// Prints the number of rows of each level, over all ranks.
impl<T: Real> fmt::Display for RankAmg<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

/// `x ← x + w D⁻¹ (b − t)`
fn relax(weight: f32, inverse: &[f32], b: &[f32], t: &[f32], x: &mut [f32]) {
    over_rows(b.len(), 5, x, &|rows, x: &mut [f32]| {
        let parts = b[rows.clone()].iter().zip(&t[rows.clone()]).zip(&inverse[rows]);
        for (x, ((b, t), d)) in x.iter_mut().zip(parts) {
            *x += weight * d * (b - t);
        }
    });
}
