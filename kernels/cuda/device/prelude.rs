//! What every file of kernels begins with.

use crate::cuda::device::launch::{MOST_VALUES, NONE, PACK_BYTES, THREADS};
use crate::cuda::device::module::{Source, constants};
use crate::cuda::solve::gate::{FINITE, NONZERO, POSITIVE, WATCHES};
use crate::cuda::solve::number::TERMS;
use crate::cuda::solve::ring::{FAILED, GOES_ON, HEAD, LAST};
use crate::cuda::solve::sums::RESULTS;

/// Types, scalars that stay on the device, gates, and sums over a grid.
pub(crate) const PRELUDE: Source = Source {
    file: "prelude.cu",
    text: include_str!("prelude.cu"),
    constants: constants![
        THREADS,
        PACK_BYTES,
        MOST_VALUES,
        NONE,
        TERMS,
        WATCHES,
        FINITE,
        NONZERO,
        POSITIVE,
        HEAD,
        GOES_ON,
        LAST,
        FAILED,
        RESULTS
    ],
};
