//! The beginning of every kernel file, and its counterpart in Rust: structs and constants that prelude.cu and
//! Rust share.

use crate::buffer::Plain;
use crate::cpu::simd::bf16::Bf16;
use crate::cuda::device::element::Real;
use crate::cuda::device::module::{Source, constants, mirror};
use crate::cuda::matrix::columns::COLUMNS;
use cudarc::driver::{DeviceRepr, ValidAsZeroBits};

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
        TEAM_MAIL,
        TEAM_TIMEOUT_MS
    ],
    mirrors: &[
        mirror!("bfloat" = Bf16 {}),
        mirror!("RowStarts" = RawRowStarts { offsets, count, wide }),
        mirror!("Number" = RawNumber<f32> | RawNumber<f64> { factor, zero_over_zero, above, below }),
        mirror!("Watch" = RawWatch<f32> | RawWatch<f64> { number, condition, id }),
        mirror!("Gate" = RawGate<f32> | RawGate<f64> { control, watches, watch }),
        mirror!("Control" = [u64; CONTROL] {}),
        mirror!("Sum" = RawSum { parcels, calls, results, team }),
        mirror!("Team" = RawTeam { members, own, calls, notice, mail }),
        mirror!("Parcel" = [f32; PARCEL] | [f64; PARCEL] {}),
        mirror!("Windows" = RawWindows { bounds, halos, halo, blocks, cols }),
    ],
};

/// Threads per block of kernels without a number of their own. Guess; 256 threads allow full occupancy with up to
/// 32 registers each, and reductions over eight warps.
pub(crate) const THREADS: u32 = 256;
/// Maximum number of bytes that a thread loads with one instruction.
pub(crate) const PACK_BYTES: usize = 16;
/// Maximum number of stored values per load of a thread.
pub(crate) const MOST_VALUES: usize = 4;
/// Marks the absence of a row, column, entry or vertex.
pub(crate) const NONE: u32 = u32::MAX;

/// Row offsets as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawRowStarts {
    pub(crate) offsets: u64,
    pub(crate) count: u32,
    pub(crate) wide: u32,
}
// SAFETY: has the layout of `RowStarts` in prelude.cu
unsafe impl DeviceRepr for RawRowStarts {}

/// Maximum number of scalars (cells in device memory) in the numerator of a `Number`, and in its denominator.
pub(crate) const TERMS: usize = 4;

/// A number as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawNumber<T> {
    pub(crate) factor: T,
    pub(crate) zero_over_zero: u32,
    pub(crate) above: [u64; TERMS],
    pub(crate) below: [u64; TERMS],
}
// SAFETY: has the layout of `Number` in prelude.cu
unsafe impl<T: Real> DeviceRepr for RawNumber<T> {}

/// Condition on a watched number: neither infinite nor NaN.
pub(crate) const FINITE: u32 = 0;
/// See [`FINITE`]: finite and nonzero.
pub(crate) const NONZERO: u32 = 1;
/// See [`FINITE`]: finite and positive.
pub(crate) const POSITIVE: u32 = 2;

/// Maximum number of watches of a gate.
pub(crate) const WATCHES: usize = 2;

/// A watched number as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawWatch<T> {
    pub(crate) number: RawNumber<T>,
    pub(crate) condition: u32,
    pub(crate) id: u32,
}

/// A gate, checked before a vector changes in an iteration, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawGate<T> {
    pub(crate) control: u64,
    pub(crate) watches: u32,
    pub(crate) watch: [RawWatch<T>; WATCHES],
}
// SAFETY: has the layout of `Gate` in prelude.cu
unsafe impl<T: Real> DeviceRepr for RawGate<T> {}

/// Number of 64-bit words of a gate's state (`Control` of prelude.cu).
pub(crate) const CONTROL: usize = 4;

/// Words before the numbers of an entry of the ring buffer in host memory: its kind, and the count of its
/// numbers or the id of the failed watch.
pub(crate) const HEAD: usize = 2;
/// Kind of a ring entry, the report of a step (iteration): the solve continues after the step. [`LAST`]: it
/// was the last step. [`FAILED`]: a watched number failed its condition in the step.
pub(crate) const GOES_ON: u32 = 0;
/// See [`GOES_ON`].
pub(crate) const LAST: u32 = 1;
/// See [`GOES_ON`].
pub(crate) const FAILED: u32 = 2;

/// Size of a `Parcel` in elements of the arithmetic type.
pub(crate) const PARCEL: usize = 2;
/// Maximum number of sums of one launch: one for each of several vectors.
pub(crate) const RESULTS: usize = COLUMNS;

/// Destination of a sum over the grid, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawSum {
    pub(crate) parcels: u64,
    pub(crate) calls: u64,
    pub(crate) results: [u64; RESULTS],
    pub(crate) team: u64,
}
// SAFETY: has the layout of `Sum` in prelude.cu
unsafe impl DeviceRepr for RawSum {}

/// Maximum number of devices of a team (devices that share the vectors of a solve); each is a member.
pub(crate) const TEAM_MEMBERS: usize = 8;
/// Maximum number of values that a member sends to another for one sum.
pub(crate) const TEAM_MAIL: usize = 1024;

/// Time in milliseconds that members of a team wait for another member to send its part of a sum or of a
/// product. Guess, chosen as much longer than any step, so that only a failed member exceeds it.
pub(crate) const TEAM_TIMEOUT_MS: u32 = 10_000;

/// A team as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawTeam {
    pub(crate) members: u32,
    pub(crate) own: u32,
    pub(crate) calls: u64,
    pub(crate) notice: u64,
    pub(crate) mail: [u64; TEAM_MEMBERS],
}
// SAFETY: has the layout of `Team` in prelude.cu
unsafe impl DeviceRepr for RawTeam {}
// SAFETY: zero bits are zero
unsafe impl ValidAsZeroBits for RawTeam {}
// SAFETY: integers without padding: two of 32 bits, and ten of 64
unsafe impl Plain for RawTeam {}

/// Blocks of rows and their windows, as passed to kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawWindows {
    pub(crate) bounds: u64,
    pub(crate) halos: u64,
    pub(crate) halo: u64,
    pub(crate) blocks: u32,
    pub(crate) cols: u32,
}
// SAFETY: has the layout of `Windows` in prelude.cu
unsafe impl DeviceRepr for RawWindows {}
