//! Random systems for tests of factorizations, and the backward error of their solutions.

use crate::formats::Csr;
use crate::host::HostVector;
use krysp_kernels::cpu::simd::{Level, force};
use krysp_solvers::{LinearOperator, MultiVector, Space};

/// Pseudo-random number generator (Marsaglia's xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns a number between -1 and 1.
    pub(super) fn number(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Returns the size, at most 60, and the entries of a random matrix. Its pattern is symmetric or not; its
/// diagonal is empty, tiny, permuted or large; its rows may have different scales, or a row and a column may
/// be empty.
pub(super) fn random(random: &mut Random) -> (usize, Vec<(usize, usize, f64)>) {
    let n = 1 + random.below(60);
    let (symmetric, diagonal, kind) = (random.below(2) == 0, random.below(4), random.below(8));
    let mut entries = vec![];
    for _ in 0..n * (1 + random.below(4)) {
        let (i, j, value) = (random.below(n), random.below(n), random.number());
        if i != j {
            entries.push((i, j, value));
            if symmetric {
                entries.push((j, i, random.number()));
            }
        }
    }
    for i in 0..n {
        match diagonal {
            0 => {}
            1 => entries.push((i, i, 1e-10 * random.number())),
            2 => entries.push((i, (7 * i + 3) % n, 1.0 + random.number())),
            _ => entries.push((i, i, 2.0 + random.number())),
        }
    }
    match kind {
        // an empty row and an empty column
        0 => entries.retain(|&(i, j, _)| i != n / 2 && j != n / 3),
        1 => entries.iter_mut().for_each(|(i, _, value)| *value *= 10f64.powi((*i % 9) as i32 - 4)),
        _ => {}
    }
    entries.sort_by_key(|&(i, j, _)| (i, j));
    entries.dedup_by_key(|&mut (i, j, _)| (i, j));
    (n, entries)
}

/// The smallest and the largest pivot of a dense factorization with full pivoting of the equilibrated matrix.
pub(super) fn pivots(a: &Csr<f64>) -> (f64, f64) {
    let n = a.rows();
    let mut dense = vec![vec![0.0; n]; n];
    a.triplets().for_each(|(i, j, value)| dense[i][j] = value);
    for row in &mut dense {
        let most = row.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        row.iter_mut().for_each(|value| *value /= if most > 0.0 { most } else { 1.0 });
    }
    let (mut least, mut first) = (f64::INFINITY, 0.0);
    for step in 0..n {
        let places = (step..n).flat_map(|i| (step..n).map(move |j| (i, j)));
        let size = |&(i, j): &(usize, usize)| dense[i][j].abs();
        let (i, j) = places.max_by(|one, other| size(one).total_cmp(&size(other))).unwrap();
        dense.swap(step, i);
        dense.iter_mut().for_each(|row| row.swap(step, j));
        let pivot = dense[step][step];
        least = f64::min(least, pivot.abs());
        first = f64::max(first, pivot.abs());
        if pivot == 0.0 {
            break;
        }
        let (done, rest) = dense.split_at_mut(step + 1);
        for row in rest {
            let factor = row[step] / pivot;
            row[step..].iter_mut().zip(&done[step][step..]).for_each(|(value, &u)| *value -= factor * u);
        }
    }
    (least, first)
}

/// The normwise backward error `‖b − A x‖ / (‖A‖ ‖x‖ + ‖b‖)` after at most two steps of refinement.
pub(super) fn backward_error(
    a: &Csr<f64>,
    m: &impl LinearOperator<Vector = HostVector<f64>>,
    b: &[f64],
) -> f64 {
    let space = a.domain();
    let b = space.vector(b).unwrap();
    let (mut x, mut r, mut z) = (space.zeros().unwrap(), space.zeros().unwrap(), space.zeros().unwrap());
    let most = |v: &[f64]| v.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let norm =
        (0..a.rows()).map(|i| a.row_values(i).iter().map(|v| v.abs()).sum::<f64>()).fold(0.0, f64::max);
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        a.residual(&b, &x, &mut r).unwrap();
        m.apply(&r, &mut z).unwrap();
        x.as_mut_slice().iter_mut().zip(z.as_slice()).for_each(|(x, z)| *x += z);
        a.residual(&b, &x, &mut r).unwrap();
        let scale = norm * most(x.as_slice()) + most(b.as_slice());
        best = best.min(if scale == 0.0 { 0.0 } else { most(r.as_slice()) / scale });
    }
    best
}

/// Laplacian of a grid with Neumann boundary conditions and random conductivities. Its null space is the
/// constants.
pub(super) fn neumann([nx, ny, nz]: [usize; 3]) -> Csr<f64> {
    let mut source = Random(0x1357_9bdf_0246_8ace);
    let n = nx * ny * nz;
    let (mut entries, mut diagonal) = (vec![], vec![0.0; n]);
    for at in 0..n {
        let (x, y, z) = (at % nx, at / nx % ny, at / nx / ny);
        for (inside, step) in [(x + 1 < nx, 1), (y + 1 < ny, nx), (z + 1 < nz, nx * ny)] {
            if inside {
                let value = 1.5 + 0.5 * source.number();
                entries.extend([(at, at + step, -value), (at + step, at, -value)]);
                diagonal[at] += value;
                diagonal[at + step] += value;
            }
        }
    }
    entries.extend(diagonal.into_iter().enumerate().map(|(at, value)| (at, at, value)));
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Checks that factors and solves have the same bits on 1, 2, 3 and 7 threads, and for one and for three vectors. `others` returns
/// the results of other operations.
pub(super) fn threads_and_vectors_change_no_bits<M: LinearOperator<Vector = HostVector<f64>>>(
    build: impl Fn() -> M + Sync,
    others: impl Fn(&M) -> Vec<f64> + Sync,
) {
    // tests that run beside this one force other levels, which change bits
    let _one_level = force(Level::best());
    let solve = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (m, b) = (build(), |i: usize, j: usize| ((i * (j + 3)) % 17) as f64 - 8.0);
            let space = m.domain().clone();
            let mut r = MultiVector::<HostVector<f64>>::zeros(&space, 3).unwrap();
            for (j, r) in r.columns_mut().iter_mut().enumerate() {
                space.load(&(0..space.len()).map(|i| b(i, j)).collect::<Vec<_>>(), r).unwrap();
            }
            let mut z = MultiVector::zeros(&space, 3).unwrap();
            m.apply_many(&r, &mut z).unwrap();
            let mut alone = space.zeros().unwrap();
            m.apply(&r.columns()[1], &mut alone).unwrap();
            assert_eq!(alone.as_slice(), z.columns()[1].as_slice());
            let all = z.columns().iter().flat_map(|z| z.as_slice().to_vec());
            all.chain(others(&m)).collect::<Vec<_>>()
        })
    };
    let alone = solve(1);
    for threads in [2, 3, 7] {
        assert!(solve(threads) == alone, "{threads} threads");
    }
}
