//! Expected work of complete factorizations.

use super::unit;
use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::plan::{Profile, WorkUnits};
use crate::preconditioners::{DirectOptions, Symbolic, is_long};
use crate::saved::saved;
use std::sync::{Arc, Mutex, PoisonError};

/// A symbolic factorization, or the error from computing it; `None` until it is computed.
pub(in crate::plan) type SharedSymbolic = Arc<Mutex<Option<Result<Symbolic>>>>;

/// Mean number of fronts per row.
const FRONTS_PER_ROW: f64 = 0.25;

/// Mean entries per row, divided by the unknowns per node, from which on a mesh is taken for 3D: triangles have 7, tetrahedra 14.
const IN_SPACE: f64 = 12.0;

/// For 2D meshes, `factor entries / (matrix entries · log₂ rows)` and `multiplications / (length² · rows^1.5)`, where `length` is
/// `matrix entries / rows`. Measured, in the order of minimum degree and without the zeros that merged fronts store: 0.25 to 0.32 and 0.13 to
/// 0.26 on 20 grids of five points, 0.20 to 0.40 and 0.08 to 0.27 on 14 meshes of triangles, 0.22 and 0.1 on three of quadratic triangles.
const FLAT: [f64; 2] = [0.32, 0.18];

/// Entries and multiplications of a factor in the order of nested dissection, divided by those in the order of minimum degree, where they
/// are compared: the multiplications were 0.2 to 0.6 times as many on 3D grids and `cage10`. That of the entries is a guess.
const DISSECTED: [f64; 2] = [0.75, 0.5];

/// Multiply-adds per row and per entry of the matrix to compute an elimination ordering, up to `NEAR` rows. With more rows more of its reads
/// miss the caches: the work grows with the power `DISTANT` of the number of rows. 450 ns for each row and 30 for each entry were measured,
/// within a factor of 2, on 16 matrices of 468 to 82,000 rows (one thread of a Xeon), 1.4 and 2.5 µs for each row of `NotreDame_www` and
/// `G3_circuit`.
const ORDERING: [f64; 2] = [900.0, 60.0];
const NEAR: f64 = 1e4;
const DISTANT: f64 = 0.2;

/// Multiply-adds for each entry of the matrix to order it by nested dissection, which all threads do. 0.6 to 0.95 µs were measured on seven
/// matrices of 15,000 to 60,000 rows (two threads of a Xeon), 6 to 9 times as much as an ordering by minimum degree takes.
pub(super) const DISSECTION: f64 = 1600.0;

/// Multiple of the work by minimum degree for `Ldl` and `Lu` where they compute a matching, and another ordering. A guess.
pub(super) const MATCHING: f64 = 2.0;

/// Work and memory of a complete factorization of a symmetric pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct Factorization {
    /// Number of entries of the factor.
    pub(in crate::plan) entries: f64,
    /// Number of multiplications.
    pub(in crate::plan) multiplications: f64,
    /// Number of dense fronts.
    pub(in crate::plan) fronts: f64,
    /// Whether nested dissection will order the matrix, which the numbers anticipate.
    pub(in crate::plan) dissects: bool,
}

saved!(impl[] Factorization { entries, multiplications, fronts, dissects });

impl Factorization {
    /// The cost according to the symbolic factorization, which is computed unless it is known, at first without nested dissection. One that
    /// was interrupted is not kept.
    pub(in crate::plan) fn analysed<T: Real>(matrix: &Csr<T>, symbolic: &SharedSymbolic) -> Factorization {
        let mut symbolic = symbolic.lock().unwrap_or_else(PoisonError::into_inner);
        let known = symbolic.get_or_insert_with(|| Symbolic::by_degree(matrix, DirectOptions::default()));
        let factorization = Factorization::of(known);
        if matches!(&*symbolic, Some(Err(Error::Interrupted(_)))) {
            *symbolic = None;
        }
        factorization
    }

    /// The cost according to a symbolic factorization; infinite if that failed, as for a factor that does not fit into memory.
    pub(in crate::plan) fn of(symbolic: &Result<Symbolic>) -> Factorization {
        let Ok(known) = symbolic else {
            let infinite = f64::INFINITY;
            return Factorization {
                entries: infinite,
                multiplications: infinite,
                fronts: 0.0,
                dissects: false,
            };
        };
        let dissects = known.may_dissect();
        let [entries, multiplications] = if dissects { DISSECTED } else { [1.0; 2] };
        Factorization {
            entries: entries * known.entries(),
            multiplications: multiplications * known.work(),
            fronts: known.fronts(),
            dissects,
        }
    }

    /// The estimate without an ordering. It takes the matrix for a network if nodes have few neighbours or few entries are mirrored, for a 3D
    /// mesh if they have many neighbours or very different numbers of them, and otherwise for a 2D mesh.
    pub(in crate::plan) fn estimate(profile: &Profile) -> Factorization {
        let (rows, entries) = (profile.rows.max(2) as f64, profile.entries as f64);
        let fronts = FRONTS_PER_ROW * rows;
        if profile.is_network() {
            return Factorization {
                entries: 2.0 * entries,
                multiplications: 6.0 * entries,
                fronts,
                dissects: false,
            };
        }
        let block = profile.block as f64;
        if entries >= IN_SPACE * rows * block || profile.is_irregular() {
            let multiplications = 0.3 * (block * rows).powi(2);
            let dissects = is_long(2.0 * multiplications / DISSECTED[1], profile.rows, profile.entries);
            return Factorization {
                entries: 3.0 * block * rows.powf(4.0 / 3.0),
                multiplications,
                fronts,
                dissects,
            };
        }
        let length = entries / rows;
        Factorization {
            entries: FLAT[0] * entries * rows.log2(),
            multiplications: FLAT[1] * length.powi(2) * rows.powf(1.5),
            fronts,
            dissects: false,
        }
    }
}

/// Work to compute an elimination ordering, which one thread does, in units of two threads.
pub(in crate::plan) fn ordering(profile: &Profile) -> WorkUnits {
    let distant = (profile.rows as f64 / NEAR).max(1.0).powf(DISTANT);
    let work = ORDERING[0] * profile.rows as f64 + ORDERING[1] * profile.entries as f64;
    WorkUnits(distant * work / unit(profile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery;

    #[test]
    fn the_estimate_for_grids_is_near_the_analysis() {
        for n in [60, 120] {
            let a = gallery::poisson::<f64>(&[n; 2]).unwrap();
            let (estimate, known) = (
                Factorization::estimate(&Profile::of(&a)),
                Factorization::analysed(&a, &SharedSymbolic::default()),
            );
            let ratios = [estimate.entries / known.entries, estimate.multiplications / known.multiplications];
            // the analysis counts zeros, too, that merged fronts store
            assert!(ratios.iter().all(|ratio| (0.5..1.5).contains(ratio)), "{n} {ratios:?}");
        }
        let chain = Profile::of(&gallery::poisson::<f64>(&[10_000]).unwrap());
        assert!(Factorization::estimate(&chain).entries <= 2.0 * chain.entries as f64);
    }

    #[test]
    fn the_analysis_anticipates_the_dissection_of_a_cube() {
        let a = gallery::poisson::<f64>(&[32; 3]).unwrap();
        let symbolic = SharedSymbolic::default();
        let expected = Factorization::analysed(&a, &symbolic);
        assert!(expected.dissects);
        let mut known = symbolic.lock().unwrap().take().unwrap().unwrap();
        known.dissect(&a).unwrap();
        let actual = Factorization::of(&Ok(known));
        assert_eq!(actual, Factorization::of(&Symbolic::new(&a, DirectOptions::default())));
        let ratio = actual.multiplications / expected.multiplications;
        assert!(!actual.dissects && (0.5..2.0).contains(&ratio), "{ratio}");
        let square = gallery::poisson::<f64>(&[90; 2]).unwrap();
        assert!(!Factorization::analysed(&square, &SharedSymbolic::default()).dissects);
    }
}
