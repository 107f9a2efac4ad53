//! Kernel files of the sparse approximate inverse: one that determines the kernel for each row's problem, and
//! one per solving kernel, so that only those that are needed are compiled.

use crate::cuda::device::module::{Mirror, Source, constants, mirror};
use crate::cuda::device::prelude::RawRowStarts;
use cudarc::driver::DeviceRepr;

/// Determines the kernel for each row's problem.
pub(crate) const FOUND: Source = Source {
    file: "spai_found.cu",
    text: concat!(
        include_str!("spai_problems.cu"),
        "#line 1 \"spai_found.cu\"\n",
        include_str!("spai_found.cu")
    ),
    constants: constants![MOST_UNKNOWNS, COUNTED, MEMBERS, KERNELS; WARP_ROWS, WARP_UNKNOWNS],
    mirrors: &[SYSTEMS, LAUNCH, mirror!("Found" = Found {})],
};

const SYSTEMS: Mirror = mirror!(
    "Systems" =
        RawSpai { a, a_columns, a_values, m, m_columns, m_values, residuals, refused, starts, places }
);

const LAUNCH: Mirror = mirror!("Launch" = RawLaunch { rows, count, slots, scratch, numbers });

/// A kernel for problems with up to `rows` rows (0: any number) and `unknowns` unknowns (0: solved by a
/// block); its registers are limited such that `blocks` blocks are resident on a multiprocessor.
macro_rules! solver {
    ($file:literal, $rows:literal, $unknowns:literal, $blocks:literal) => {{
        const KERNEL_ROWS: usize = $rows;
        const KERNEL_UNKNOWNS: usize = $unknowns;
        const KERNEL_BLOCKS: usize = $blocks;
        &Source {
            file: $file,
            text: concat!(include_str!("spai_problems.cu"), "#line 1 \"spai.cu\"\n", include_str!("spai.cu")),
            constants: constants![KERNEL_ROWS, KERNEL_UNKNOWNS, KERNEL_BLOCKS, MOST_UNKNOWNS, MEMBERS, KERNELS; WARP_ROWS, WARP_UNKNOWNS],
            mirrors: &[SYSTEMS, LAUNCH],
        }
    }};
}

/// Kernels for problems solved by a warp, in the order of [`WARP_ROWS`].
pub(crate) const OF_WARPS: [&Source; KERNELS] = [
    solver!("spai_64_15.cu", 64, 15, 16),
    solver!("spai_96_15.cu", 96, 15, 12),
    solver!("spai_96_19.cu", 96, 19, 12),
    solver!("spai_96_23.cu", 96, 23, 8),
];

/// Kernels for problems solved by a block, in the order of `OF_A_BLOCK` in spai.rs.
pub(crate) const OF_BLOCKS: [&Source; 5] = [
    solver!("spai_128.cu", 128, 0, 4),
    solver!("spai_192.cu", 192, 0, 4),
    solver!("spai_256.cu", 256, 0, 3),
    solver!("spai_320.cu", 320, 0, 2),
    solver!("spai_any.cu", 0, 0, 4),
];

/// Maximum number of unknowns per row.
pub(super) const MOST_UNKNOWNS: usize = 127;

/// Number of kernels for problems solved by a warp.
pub(super) const KERNELS: usize = 4;
/// Maximum number of rows for each kernel that uses a warp per problem.
const WARP_ROWS: [usize; KERNELS] = [64, 96, 96, 96];
/// Maximum number of unknowns for each kernel that uses a warp per problem.
const WARP_UNKNOWNS: [usize; KERNELS] = [15, 15, 19, 23];

/// Capacity of the table with which the rows of a problem are counted.
pub(super) const COUNTED: usize = 1024;

/// Maximum number of rows of the inverse that share a problem of a block: each warp of the block computes one
/// row. Guess.
pub(super) const MEMBERS: usize = 4;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawSpai {
    pub(super) a: RawRowStarts,
    pub(super) a_columns: u64,
    pub(super) a_values: u64,
    pub(super) m: RawRowStarts,
    pub(super) m_columns: u64,
    pub(super) m_values: u64,
    pub(super) residuals: u64,
    pub(super) refused: u64,
    pub(super) starts: u64,
    pub(super) places: u64,
}
// SAFETY: has the layout of `Systems` in spai_problems.cu
unsafe impl DeviceRepr for RawSpai {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawLaunch {
    pub(super) rows: u64,
    pub(super) count: u32,
    pub(super) slots: u32,
    pub(super) scratch: u64,
    pub(super) numbers: u64,
}
// SAFETY: has the layout of `Launch` in spai_problems.cu
unsafe impl DeviceRepr for RawLaunch {}

/// Rows of a problem and entries of its columns (all bits set if there are too many to count), and the first
/// row of the inverse with the same problem up to the right-hand side: `Found` of spai_found.cu.
pub(super) type Found = [u32; 3];
