//! Expected work of complete factorizations.

use crate::error::{Error, Result};
use crate::formats::Csr;
use crate::numbers::Real;
use crate::plan::Profile;
use crate::preconditioners::{DirectOptions, Symbolic};
use crate::saved::saved;
use std::sync::{Arc, Mutex, PoisonError};

/// A symbolic factorization, or the error from computing it; `None` until it is computed.
pub(in crate::plan) type SharedSymbolic = Arc<Mutex<Option<Result<Symbolic>>>>;

/// Mean number of fronts per row.
const FRONTS_PER_ROW: f64 = 0.25;

/// Mean entries per row, divided by the unknowns per node, from which on a mesh is taken for 3D: triangles have 7, tetrahedra 14.
const IN_SPACE: f64 = 12.0;

/// Work and memory of a complete factorization of a symmetric pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct Factorization {
    /// Number of entries of the factor.
    pub(in crate::plan) entries: f64,
    /// Number of multiplications.
    pub(in crate::plan) multiplications: f64,
    /// Number of dense fronts.
    pub(in crate::plan) fronts: f64,
}

saved!(impl[] Factorization { entries, multiplications, fronts });

impl Factorization {
    /// The cost according to the symbolic factorization, which is computed unless it is known. One that was interrupted is not kept.
    pub(in crate::plan) fn analysed<T: Real>(matrix: &Csr<T>, symbolic: &SharedSymbolic) -> Factorization {
        let mut symbolic = symbolic.lock().unwrap_or_else(PoisonError::into_inner);
        let known = symbolic.get_or_insert_with(|| Symbolic::new(matrix, DirectOptions::default()));
        let factorization = Factorization::of(known);
        if matches!(&*symbolic, Some(Err(Error::Interrupted(_)))) {
            *symbolic = None;
        }
        factorization
    }

    /// The cost according to a symbolic factorization; infinite if that failed, as for a factor that does not fit into memory.
    pub(in crate::plan) fn of(symbolic: &Result<Symbolic>) -> Factorization {
        symbolic.as_ref().map_or(
            Factorization { entries: f64::INFINITY, multiplications: f64::INFINITY, fronts: 0.0 },
            |known| Factorization {
                entries: known.entries(),
                multiplications: known.work(),
                fronts: known.fronts(),
            },
        )
    }

    /// An estimate without an ordering. It takes the matrix for a network if rows are short or few entries are mirrored, for a 3D mesh if
    /// nodes have many neighbours or very different numbers of them, and otherwise for a 2D mesh.
    pub(in crate::plan) fn estimate(profile: &Profile) -> Factorization {
        let (rows, entries) = (profile.rows.max(2) as f64, profile.entries as f64);
        let fronts = FRONTS_PER_ROW * rows;
        if profile.is_network() {
            return Factorization { entries: 2.0 * entries, multiplications: 6.0 * entries, fronts };
        }
        let block = profile.block as f64;
        if entries >= IN_SPACE * rows * block || profile.is_irregular() {
            let multiplications = 0.3 * (block * rows).powi(2);
            return Factorization { entries: 3.0 * block * rows.powf(4.0 / 3.0), multiplications, fronts };
        }
        Factorization { entries: 4.0 * rows * rows.log2(), multiplications: 18.0 * rows.powf(1.5), fronts }
    }
}
