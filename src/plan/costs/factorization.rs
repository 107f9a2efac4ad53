//! Expected work of complete factorizations.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::plan::Profile;
use crate::preconditioners::{DirectOptions, Symbolic, is_long};
use crate::saved::saved;
use std::sync::{Arc, Mutex, PoisonError};

/// A symbolic factorization, or the error from computing it; `None` until it is computed.
pub(in crate::plan) type SharedSymbolic = Arc<Mutex<Option<Result<Symbolic>>>>;

/// Mean number of fronts per row.
const FRONTS_PER_ROW: f64 = 0.25;

/// Mean entries per row, divided by the unknowns per node, from which on a mesh is taken for 3D: triangles have 7, tetrahedra 14.
const IN_SPACE: f64 = 12.0;

/// Entries and multiplications of a factor in the order of nested dissection, divided by those in the order of minimum degree, where they
/// are compared: the multiplications were 0.2 to 0.6 times as many on 3D grids and `cage10`. That of the entries is a guess.
const DISSECTED: [f64; 2] = [0.75, 0.5];

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

    /// An estimate without an ordering. It takes the matrix for a network if rows are short or few entries are mirrored, for a 3D mesh if
    /// nodes have many neighbours or very different numbers of them, and otherwise for a 2D mesh.
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
        let (entries, multiplications) = (4.0 * rows * rows.log2(), 18.0 * rows.powf(1.5));
        Factorization { entries, multiplications, fronts, dissects: false }
    }
}
