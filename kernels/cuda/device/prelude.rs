//! What every file of kernels begins with.

use crate::cpu::simd::bf16::Bf16;
use crate::cuda::device::launch::{MOST_VALUES, NONE, PACK_BYTES, THREADS};
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::matrix::{ordered, windows};
use crate::cuda::solve::gate::{FINITE, GATE, NONZERO, POSITIVE, STATE, WATCH, WATCHES};
use crate::cuda::solve::number::{self, TERMS};
use crate::cuda::solve::ring::{FAILED, GOES_ON, HEAD, LAST};
use crate::cuda::solve::sums::{RESULTS, SENT, SUM};
use crate::cuda::team::member::{TEAM, TEAM_MAIL, TEAM_MEMBERS};

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
        RESULTS,
        TEAM_MEMBERS,
        TEAM_MAIL
    ],
    mirrors: &[
        mirror!("bfloat" = Bf16 {}),
        ordered::MIRROR,
        number::MIRROR,
        WATCH,
        GATE,
        STATE,
        SUM,
        TEAM,
        SENT,
        windows::MIRROR,
    ],
};
