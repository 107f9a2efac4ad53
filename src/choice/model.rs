//! What the chooser must know of a machine: nothing that asks for the machine itself.

use super::{Price, RowStatistics, Stored, Work, host};
use crate::Real;
use crate::formats::default_height;

/// Formats by name, with their prices.
pub(super) type Prices = &'static [(&'static str, Price)];

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The CPU that this program runs on, as fast as it may be.
    Host,
    /// An NVIDIA GPU, as fast as it may be.
    #[cfg(feature = "cuda")]
    Gpu {
        /// How many of these it has: 132 an H200.
        multiprocessors: usize,
    },
}

impl Model {
    /// Rows that SELL-P pads to one length.
    pub(super) fn slice_height<T: Real>(self) -> usize {
        match self {
            Model::Host => default_height::<T>(),
            #[cfg(feature = "cuda")]
            Model::Gpu { .. } => 32,
        }
    }

    /// Whether blocks of rows may have a window of `x` each: the caches of a CPU hold what a window would.
    pub(super) fn has_windows(self) -> bool {
        self != Model::Host
    }

    /// What a format of this name costs here; none where it is no choice.
    pub fn price(self, format: &str) -> Option<Price> {
        match self {
            Model::Host => {
                let mut priced = host::prices().into_iter().flatten();
                priced.find(|priced| priced.0 == format).map(|priced| priced.1)
            }
            #[cfg(feature = "cuda")]
            Model::Gpu { .. } => super::gpu::price(format),
        }
    }

    /// What a product does that reads so many bytes of a matrix.
    pub(super) fn work(self, rows: &RowStatistics, stored: Stored, bytes: usize) -> Work {
        let gathers = match stored {
            Stored::Dia { .. } => 0.0,
            // from the chip, wherever they are
            Stored::Slabs { .. } => rows.entries as f64,
            Stored::Halo { halo, .. } | Stored::SymBsr { halo, .. } => halo as f64,
            _ => rows.entries as f64 * rows.scattering,
        };
        let one_by_one = match stored {
            Stored::Csr { .. } | Stored::Coo | Stored::Hyb { .. } | Stored::SymCsr => rows.rows as f64,
            // a GPU has a thread for each node
            Stored::SymBsr { .. } if self == Model::Host => rows.rows as f64,
            _ => 0.0,
        };
        let any = Work { bytes: bytes as f64, gathers, rows: one_by_one, waits: 0.0 };
        match self {
            Model::Host => any,
            #[cfg(feature = "cuda")]
            Model::Gpu { multiprocessors } => super::gpu::work(rows, stored, any, multiprocessors),
        }
    }
}
